use http::Method;
use kubefan_core::api::LabelSelector;
use kubefan_core::upstream::Scope;

use super::*;
use crate::identity::KnownCaller;

impl Shares {
    /// Creates shares with these limits, and with metrics that are not rendered.
    pub(in crate::server) fn for_tests(limits: UserLimits, max_unindexed: usize) -> Self {
        Self::new(limits, max_unindexed, refusal_counter(&Registry::new()))
    }

    fn refused(&self, limit: Limit) -> u64 {
        self.refused.with_label_values(&[limit.name()]).get()
    }
}

fn user(number: u8) -> Caller {
    Caller::Known(Arc::new(KnownCaller::for_tests(number)))
}

fn limits(streams: usize, watches: usize, proof_scopes: usize) -> UserLimits {
    UserLimits {
        streams,
        watches,
        proof_scopes,
    }
}

fn pods() -> GroupVersionResource {
    GroupVersionResource::new("", "v1", "pods")
}

#[test]
fn a_user_has_as_many_requests_and_watches_as_the_limits_permit() {
    let shares = Shares::for_tests(limits(3, 2, 0), 0);
    let request = |user: &Caller, path: &str, query: &str| {
        let info = RequestInfo::parse(&Method::GET, path, query);
        shares.request(user, &info)
    };
    let (one, other) = (user(1), user(2));
    let pods = "/api/v1/namespaces/n/pods";
    let watch = request(&one, pods, "watch=1");
    // Other long-running requests count as watches.
    let exec = request(&one, &format!("{pods}/p/exec"), "");
    assert!(matches!((&watch, &exec), (Ok(Some(_)), Ok(Some(_)))));
    assert!(request(&one, &format!("{pods}/p/log"), "").is_err());
    assert_eq!(shares.refused(Limit::Watches), 1);
    let list = request(&one, pods, "");
    assert!(matches!(list, Ok(Some(_))));
    assert!(request(&one, pods, "").is_err());
    assert_eq!(shares.refused(Limit::Streams), 1);
    // Others are not touched.
    assert!(matches!(request(&other, pods, "watch=1"), Ok(Some(_))));
    for caller in [Caller::Trusted, Caller::Unknown] {
        assert!(matches!(request(&caller, pods, "watch=1"), Ok(None)));
    }
    // An upgraded connection holds a clone.
    let clone = exec.as_ref().ok().cloned().flatten();
    drop(exec);
    drop(list);
    assert!(request(&one, pods, "watch=1").is_err());
    drop(clone);
    assert!(matches!(request(&one, pods, "watch=1"), Ok(Some(_))));
    drop(watch);
    assert!(shares.streams.numbers().0.is_empty());
}

#[test]
fn zero_is_no_limit() {
    let shares = Shares::for_tests(limits(0, 0, 0), 0);
    let info = RequestInfo::parse(&Method::GET, "/api/v1/pods", "watch=1");
    let held: Vec<_> = (0..1_000)
        .map(|_| shares.request(&user(1), &info))
        .collect();
    assert!(held.iter().all(|share| matches!(share, Ok(Some(_)))));
}

#[test]
fn reads_of_a_user_wait_for_proofs_of_a_limited_number_of_scopes() {
    let shares = Shares::for_tests(limits(0, 0, 2), 0);
    let prove = |user, namespace: &str| {
        let request = ProofRequest {
            selection: Arc::default(),
            scope: Scope {
                namespace: Some(namespace.to_owned()),
                ..Scope::default()
            },
        };
        let key = UserKey::for_tests(user);
        shares.prove(key, (pods(), WireFormat::Json, request))
    };
    let held = [prove(1, "a"), prove(1, "b"), prove(1, "b"), prove(2, "c")];
    assert!(held.iter().all(Option::is_some));
    assert!(prove(1, "c").is_none());
    let [first, ..] = held;
    drop(first);
    assert!(prove(1, "c").is_some());
}

#[test]
fn a_user_leaves_a_permit_for_others() {
    let shares = Shares::for_tests(UserLimits::default(), 0);
    let limit = Arc::new(Semaphore::new(2));
    let take = |number| {
        let share = shares.permit(&user(number), &limit).ok()??;
        let permit = limit.try_acquire().ok()?;
        Some((share, permit))
    };
    let first = take(1);
    assert!(first.is_some() && take(1).is_none());
    let other = take(2);
    assert!(other.is_some() && take(2).is_none());
    drop(first);
    assert!(take(3).is_some());
    drop(other);
    assert!(shares.permits.numbers().0.is_empty());
    let trusted = shares.permit(&Caller::Trusted, &limit);
    assert!(trusted.is_ok_and(|share| share.is_none()));
}

#[test]
fn a_user_watches_half_of_the_selections_without_an_index() {
    let shares = Shares::for_tests(UserLimits::default(), 4);
    let watch = |user, label: &str| {
        let selection = Selection {
            labels: LabelSelector::parse(&format!("!{label}")).expect("a selector"),
            ..Selection::default()
        };
        let of_user = (UserKey::for_tests(user), pods(), WireFormat::Json);
        shares.watch(of_user, Arc::new(selection), 1)
    };
    let held = [watch(1, "a"), watch(1, "b"), watch(1, "a"), watch(1, "b")];
    assert!(held.iter().all(Option::is_some));
    assert!(watch(1, "c").is_none());
    assert!(watch(2, "c").is_some());
    let [one, two, three, four] = held;
    drop(one);
    assert!(
        watch(1, "c").is_none(),
        "another watch of the selection is open"
    );
    drop(three);
    assert!(watch(1, "c").is_some());
    drop((two, four));
    assert!(shares.selections.is_empty());
}
