use http::Method;
use proptest::collection::vec;
use proptest::prelude::{ProptestConfig, prop_assert, prop_assert_eq};
use proptest::proptest;

use super::*;
use crate::identity::KnownCaller;

fn info(method: Method, target: &str) -> RequestInfo {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    RequestInfo::parse(&method, path, query)
}

/// The rows follow `BasicLongRunningRequestCheck` and `WithMaxInFlightLimit` of kube-apiserver.
#[test]
fn reads_that_end_soon_need_a_seat() {
    let pod = "/api/v1/namespaces/x/pods/p";
    for (method, target, expected) in [
        (Method::GET, "/api/v1/pods", true),
        (Method::GET, "/api/v1/pods?watch=0", true),
        (Method::GET, pod, true),
        (Method::HEAD, pod, true),
        (Method::GET, &format!("{pod}/status"), true),
        (Method::GET, "/apis/apps/v1", true),
        (Method::GET, "/openapi/v2", true),
        (Method::GET, "/debug/pprof", true),
        (Method::HEAD, "/version", false),
        (Method::GET, "/debug/pprof/profile", false),
        (Method::GET, "/api/v1/pods?watch=1", false),
        (Method::GET, "/api/v1/watch/pods", false),
        (Method::GET, "/api/v1/proxy/nodes/n", false),
        (Method::GET, &format!("{pod}/log?follow=true"), false),
        (Method::GET, &format!("{pod}/exec"), false),
        (Method::GET, &format!("{pod}/attach"), false),
        (Method::GET, &format!("{pod}/portforward"), false),
        (Method::GET, &format!("{pod}/proxy/metrics"), false),
        (Method::POST, "/api/v1/namespaces/x/pods", false),
        (Method::PUT, pod, false),
        (Method::PATCH, pod, false),
        (Method::DELETE, pod, false),
    ] {
        let needed = needs_seat(&info(method.clone(), target));
        assert_eq!(needed, expected, "{method} {target}");
    }
}

#[test]
fn a_holder_may_have_as_many_seats_as_are_free() {
    for (held, total, limit, expected) in [
        (0, 0, 4, true),
        (1, 1, 4, true),
        (2, 2, 4, false),
        // Others hold all seats.
        (0, 4, 4, true),
        (0, 9, 4, true),
        (1, 4, 4, false),
        // One seat: one request per holder.
        (0, 0, 1, true),
        (1, 1, 1, false),
        // No limit.
        (7, 1_000_000, 0, true),
    ] {
        let found = may_take(held, total, limit);
        assert_eq!(found, expected, "{held} {total} {limit}");
    }
}

/// Makes `count` holders: half of them users, half of them connections.
fn holders(count: usize) -> Vec<Holder> {
    let holder = |number: usize| match number % 2 {
        0 => Holder::User(UserKey::for_tests(number as u8)),
        _ => Holder::Connection(ClientConnection::next()),
    };
    (0..count).map(holder).collect()
}

fn take(taken: &Counts<Holder>, holder: &Holder, limit: usize) -> Option<Counted<Holder>> {
    taken.add(holder.clone(), |held, total| may_take(held, total, limit))
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Holders take and release seats at random. The counts are exact, the total is bounded, and a
    /// holder without a seat is never refused.
    #[test]
    fn the_total_is_bounded_and_no_holder_starves(
        limit in 1_usize..40,
        steps in vec((0_usize..6, proptest::bool::ANY), 0..300),
    ) {
        let parties = holders(6);
        let taken = Counts::default();
        let mut held: [Vec<_>; 6] = Default::default();
        for (index, takes) in steps {
            if takes {
                let seat = take(&taken, &parties[index], limit);
                prop_assert!(seat.is_some() || !held[index].is_empty());
                held[index].extend(seat);
            } else {
                held[index].pop();
            }
            let (of_holders, total) = taken.numbers();
            prop_assert_eq!(total, held.iter().map(Vec::len).sum::<usize>());
            let holders = held.iter().filter(|held| !held.is_empty()).count();
            prop_assert_eq!(of_holders.len(), holders);
            prop_assert!(total < limit + holders.max(1));
        }
    }

    /// One holder has what it can get; then all ask for more whenever a request ends, and the
    /// shares become equal.
    #[test]
    fn busy_holders_get_equal_shares(
        count in 2_usize..6,
        limit in 12_usize..60,
        first in 0_usize..6,
    ) {
        let parties = holders(count);
        let taken = Counts::default();
        let mut held: Vec<Vec<_>> = parties.iter().map(|_| Vec::new()).collect();
        while let Some(seat) = take(&taken, &parties[first % count], limit) {
            held[first % count].push(seat);
        }
        for round in 0..2 * limit {
            for index in 0..count {
                held[(index + round) % count].pop();
                // The holders ask in turn, beginning with the one that has just lost a seat.
                for asking in 0..count {
                    let asking = (index + round + asking) % count;
                    held[asking].extend(take(&taken, &parties[asking], limit));
                }
            }
        }
        let shares: Vec<_> = held.iter().map(Vec::len).collect();
        let (least, most) = (shares.iter().min(), shares.iter().max());
        prop_assert!(most <= least.map(|least| least + 1).as_ref(), "{:?}", shares);
    }
}

#[test]
fn a_seat_is_counted_until_it_is_dropped() {
    let registry = Registry::new();
    let in_flight = InFlight::new(1, InFlightMetrics::new(&registry));
    let parties = holders(2);
    let (first, second) = (&parties[0], &parties[1]);
    let list = info(Method::GET, "/api/v1/pods");
    let watch = info(Method::GET, "/api/v1/pods?watch=1");
    let has_metric = |line: &str| registry.render().1.lines().any(|found| found == line);

    let seat = in_flight.take(&list, first).expect("the first seat");
    assert!(seat.is_some());
    assert_eq!(
        in_flight.take(&list, first).err(),
        Some(Limit::RequestsInFlight)
    );
    assert!(
        in_flight
            .take(&watch, first)
            .is_ok_and(|seat| seat.is_none())
    );
    let other = in_flight.take(&list, second).expect("its first seat");
    assert!(has_metric("kubefan_inflight_requests 2"));
    assert!(has_metric("kubefan_inflight_rejected_total 1"));
    drop((seat, other));
    assert!(has_metric("kubefan_inflight_requests 0"));
    assert!(in_flight.take(&list, first).is_ok());
    assert!(in_flight.inner.taken.numbers().0.is_empty());
}

#[test]
fn a_known_user_holds_the_seats_of_all_its_connections() {
    let known = |number| {
        let caller = KnownCaller::for_tests(number);
        Caller::Known(Arc::new(caller))
    };
    let (one, other) = (ClientConnection::next(), ClientConnection::next());
    let on = |caller: &Caller, connection| Holder::of(caller, connection);
    assert_eq!(on(&known(1), &one), on(&known(1), &other));
    assert_ne!(on(&known(1), &one), on(&known(2), &one));
    for caller in [Caller::Unknown, Caller::Trusted] {
        assert_ne!(on(&caller, &one), on(&caller, &other));
        assert_eq!(on(&caller, &one), Holder::Connection(one.clone()));
    }
}
