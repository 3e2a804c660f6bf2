//! Tests of how a reflector lists, watches, relists and ends.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::support::*;
use crate::api::{ResourceVersion, Status, WatchEvent};
use crate::informer::{Cause, ReflectorConfig, ReflectorEnd};
use crate::upstream::Error;

fn names(names: &[&str]) -> Option<Vec<String>> {
    Some(names.iter().map(|name| (*name).to_owned()).collect())
}

#[tokio::test(start_paused = true)]
async fn the_first_request_is_a_watch_list_whose_stream_continues_as_the_watch() {
    let items = [
        added("a", 3),
        added("b", 5),
        end_bookmark(9),
        modified("a", 10),
        bookmark(12),
        Item::Hang,
    ];
    let outcome = play([watch(items)]).await;
    assert_eq!(outcome.requests(), ["watch-list"]);
    assert_eq!(outcome.objects, names(&["a@10", "b@5"]));
    assert_eq!(outcome.changes_after(9), names(&["MODIFIED a@10"]));
    assert_eq!(outcome.applied, Some(ResourceVersion(12)));
    assert_eq!(outcome.metrics.watch_lists.load(Ordering::Relaxed), 1);
    assert_eq!(outcome.metrics.relists.load(Ordering::Relaxed), 0);
    assert!((300..600).contains(&outcome.recorded[0].timeout.as_secs()));
}

#[tokio::test(start_paused = true)]
async fn after_a_rejected_watch_list_only_lists_are_used() {
    for code in [400, 405, 415, 422] {
        let outcome = play([
            Answer::Watch(Err(answer(code))),
            list(7, &[("a", 3)], Some("next")),
            list(7, &[("b", 5)], None),
            watch([wait(5), error_frame(410)]),
            list(20, &[("a", 15)], None),
            watch([Item::Hang]),
        ])
        .await;
        let expected = [
            "watch-list",
            "list 500",
            "list 500 next",
            "watch 7",
            "list 500",
            "watch 20",
        ];
        assert_eq!(outcome.requests(), expected, "{code}");
        assert_eq!(outcome.waits(), [0.0, 0.0, 0.0, 5.0, 0.0], "{code}");
        assert_eq!(outcome.objects, names(&["a@15"]), "{code}");
        assert_eq!(outcome.metrics.lists.load(Ordering::Relaxed), 2);
        assert_eq!(outcome.metrics.backoffs.load(Ordering::Relaxed), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_plain_watch_answer_to_a_watch_list_is_detected() {
    let outcome = play([
        watch([added("a", 3), bookmark(7)]),
        list(8, &[("b", 8)], None),
        watch([Item::Hang]),
    ])
    .await;
    assert_eq!(outcome.requests(), ["watch-list", "list 500", "watch 8"]);
    assert_eq!(outcome.objects, names(&["b@8"]));
    assert_eq!(outcome.watch_ends(Cause::NoInitialEventsEnd), 1);
}

#[tokio::test(start_paused = true)]
async fn watch_list_can_be_disabled() {
    let config = ReflectorConfig {
        watch_list: false,
        page_size: 20,
        ..ReflectorConfig::default()
    };
    let script = [list(7, &[("a", 3)], None), watch([Item::Hang])];
    let outcome = play_with(config, pending(), script).await;
    assert_eq!(outcome.requests(), ["list 20", "watch 7"]);
}

#[tokio::test(start_paused = true)]
async fn a_watch_list_without_its_end_bookmark_is_discarded() {
    let endings: [fn() -> Vec<Item>; 4] = [
        Vec::new,
        || vec![cut()],
        || vec![reset()],
        || vec![error_frame(504)],
    ];
    for (row, ending) in endings.into_iter().enumerate() {
        let half = [added("a", 3)].into_iter().chain(ending());
        let outcome = play([watch(half), Answer::Never]).await;
        assert_eq!(outcome.objects, None, "row {row}");

        let half = [added("a", 3)].into_iter().chain(ending());
        let outcome = play([watch(half), list(8, &[("b", 8)], None), watch([Item::Hang])]).await;
        assert_eq!(
            outcome.requests(),
            ["watch-list", "list 500", "watch 8"],
            "row {row}"
        );
        assert_eq!(outcome.objects, names(&["b@8"]), "row {row}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_early_end_disables_watch_list_only_if_it_never_worked() {
    let rest = || {
        [
            list(20, &[("b", 18)], None),
            watch([wait(5), error_frame(410)]),
        ]
    };
    let mut worked = vec![
        watch_list([wait(5), error_frame(410)]),
        watch([added("a", 3)]),
    ];
    worked.extend(rest());
    assert_eq!(play(worked).await.requests().last(), Some(&"watch-list"));

    let mut never = vec![watch([added("a", 3)])];
    never.extend(rest());
    assert_eq!(play(never).await.requests().last(), Some(&"list 500"));
}

#[tokio::test(start_paused = true)]
async fn changes_before_the_end_of_the_initial_events_are_applied() {
    let items = [
        added("a", 3),
        added("b", 4),
        added("c", 5),
        modified("b", 6),
        deleted("a", 7),
        end_bookmark(9),
        Item::Hang,
    ];
    assert_eq!(play([watch(items)]).await.objects, names(&["b@6", "c@5"]));
}

#[tokio::test(start_paused = true)]
async fn a_list_that_expires_between_pages_is_fetched_whole() {
    let outcome = play([
        Answer::Watch(Err(answer(422))),
        list(7, &[("a", 3), ("gone", 4)], Some("next")),
        Answer::List(Err(answer(410))),
        list(9, &[("a", 3), ("b", 8)], None),
        watch([Item::Hang]),
    ])
    .await;
    let expected = [
        "watch-list",
        "list 500",
        "list 500 next",
        "list 0",
        "watch 9",
    ];
    assert_eq!(outcome.requests(), expected);
    assert_eq!(outcome.waits(), [0.0; 4]);
    assert_eq!(outcome.objects, names(&["a@3", "b@8"]));
}

/// Object `b` was deleted while no watch was open, so a client's watch must get a DELETED event.
#[tokio::test(start_paused = true)]
async fn a_relist_reports_deleted_objects() {
    let outcome = play([
        watch_list([added("b", 10), wait(5), error_frame(410)]),
        watch([added("a", 3), added("c", 15), end_bookmark(20), Item::Hang]),
    ])
    .await;
    assert_eq!(outcome.requests(), ["watch-list", "watch-list"]);
    assert_eq!(outcome.waits(), [5.0]);
    let changes = outcome.changes_after(9).expect("not expired");
    assert_eq!(changes.len(), 3, "{changes:?}");
    assert_eq!(changes[0], "ADDED b@10");
    assert!(changes[1].starts_with("DELETED b@"), "{changes:?}");
    assert_eq!(changes[2], "ADDED c@15");
    assert_eq!(outcome.metrics.relists.load(Ordering::Relaxed), 1);
}

/// Upstream could not read `b`, and has deleted it: no DELETED event of upstream can show that.
#[tokio::test(start_paused = true)]
async fn the_deletion_of_an_unreadable_object_is_relisted_at_once() {
    let unreadable = Status::failure(500, "StorageReadError", "corrupt object has been deleted");
    let outcome = play([
        watch_list([
            added("b", 10),
            wait(5),
            frame(Ok(WatchEvent::Error(unreadable))),
        ]),
        watch([added("a", 3), end_bookmark(20), Item::Hang]),
    ])
    .await;
    assert_eq!(outcome.requests(), ["watch-list", "watch-list"]);
    assert_eq!(outcome.waits(), [5.0]);
    let changes = outcome.changes_after(9).expect("not expired");
    assert_eq!(changes.len(), 2, "{changes:?}");
    assert_eq!(changes[0], "ADDED b@10");
    assert!(changes[1].starts_with("DELETED b@"), "{changes:?}");
    assert_eq!(outcome.watch_ends(Cause::StorageReadError), 1);
    assert_eq!(outcome.watch_ends(Cause::Expired), 0);
}

#[tokio::test(start_paused = true)]
async fn deletions_and_bookmarks_move_the_resume_point_and_initial_events_do_not() {
    let rows = [
        (vec![], "watch 9"),
        (vec![deleted("a", 20)], "watch 20"),
        (vec![bookmark(30)], "watch 30"),
        (
            vec![modified("a", 20), bookmark(20), bookmark(31)],
            "watch 31",
        ),
    ];
    for (items, expected) in rows {
        let initial = [added("a", 3), added("z", 8), end_bookmark(9)];
        let items = initial.into_iter().chain(items).chain([wait(2)]);
        let outcome = play([watch(items), revision(31), watch([Item::Hang])]).await;
        assert_eq!(outcome.requests(), ["watch-list", "revision", expected]);
        assert_eq!(outcome.waits(), [2.0, 0.0]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_final_answer_ends_the_reflector_and_closes_the_cache() {
    type End = fn(Box<Status>) -> ReflectorEnd;
    let ends: [(u16, End); 3] = [
        (403, ReflectorEnd::Forbidden),
        (404, ReflectorEnd::Gone),
        (406, ReflectorEnd::NotAcceptable),
    ];
    for (code, ended) in ends {
        let fails = || answer(code);
        let ready = || watch_list([wait(2)]);
        let scripts = [
            vec![Answer::Watch(Err(fails()))],
            vec![Answer::Watch(Err(answer(422))), Answer::List(Err(fails()))],
            vec![ready(), Answer::Revision(Err(fails()))],
            vec![ready(), revision(9), Answer::Watch(Err(fails()))],
            vec![watch_list([wait(2), error_frame(code)])],
            vec![watch([added("a", 3), error_frame(code)])],
        ];
        for (row, script) in scripts.into_iter().enumerate() {
            let length = script.len();
            let outcome = play(script).await;
            let expected = ended(Box::new(status(code)));
            assert_eq!(outcome.ended, Some(expected), "{code}, row {row}");
            assert_eq!(outcome.recorded.len(), length, "{code}, row {row}");
            assert!(outcome.is_closed().await, "{code}, row {row}: not closed");
        }
    }
}

/// An API server that is starting answers 403 until it has loaded its roles.
#[tokio::test(start_paused = true)]
async fn a_ready_cache_survives_a_short_refusal() {
    let config = || ReflectorConfig {
        refusal_patience: Duration::from_secs(10),
        ..ReflectorConfig::default()
    };
    let refuses = || Answer::Revision(Err(answer(403)));
    let passing = [
        watch_list([wait(2)]),
        refuses(),
        refuses(),
        revision(9),
        watch([modified("a", 10), Item::Hang]),
    ];
    let outcome = play_with(config(), pending(), passing).await;
    assert_eq!(outcome.ended, None);
    assert_eq!(outcome.objects, names(&["a@10"]));

    let lasting = [watch_list([wait(2)])].into_iter();
    let outcome = play_with(
        config(),
        pending(),
        lasting.chain((0..20).map(|_| refuses())),
    )
    .await;
    assert!(matches!(outcome.ended, Some(ReflectorEnd::Forbidden(_))));
    let waited: f64 = outcome.waits().iter().sum();
    assert!((10.0..40.0).contains(&waited), "{waited}");

    let at_first = [Answer::Watch(Err(answer(403)))];
    let outcome = play_with(config(), pending(), at_first).await;
    assert!(matches!(outcome.ended, Some(ReflectorEnd::Forbidden(_))));
}

#[tokio::test(start_paused = true)]
async fn a_lasting_401_ends_the_reflector() {
    let config = || ReflectorConfig {
        unauthorized_patience: Duration::from_secs(300),
        ..ReflectorConfig::default()
    };
    let refuses = |code| Answer::Revision(Err(answer(code)));
    let passing = [
        watch_list([wait(2)]),
        refuses(401),
        refuses(401),
        revision(9),
        watch([modified("a", 10), Item::Hang]),
    ];
    let outcome = play_with(config(), pending(), passing).await;
    assert_eq!(outcome.ended, None);
    assert_eq!(outcome.objects, names(&["a@10"]));

    // A failure of another kind in between is not a success.
    let lasting = [watch_list([wait(2)]), refuses(401), refuses(500)];
    let lasting = lasting.into_iter().chain((0..40).map(|_| refuses(401)));
    let outcome = play_with(config(), pending(), lasting).await;
    let waited: f64 = outcome.waits().iter().sum();
    assert!((300.0..400.0).contains(&waited), "{waited}");
    match &outcome.ended {
        Some(ReflectorEnd::Forbidden(status)) => assert_eq!(status.code, 401),
        ended => panic!("{ended:?}"),
    }
    assert!(outcome.is_closed().await);

    let before_the_first_list = (0..40).map(|_| Answer::Watch(Err(answer(401))));
    let outcome = play_with(config(), pending(), before_the_first_list).await;
    let waited: f64 = outcome.waits().iter().sum();
    assert!((300.0..400.0).contains(&waited), "{waited}");
}

#[tokio::test(start_paused = true)]
async fn stopping_drops_the_stream_and_closes_the_cache() {
    let held = Arc::new(());
    let weak = Arc::downgrade(&held);
    let stop = tokio::time::sleep(Duration::from_secs(7));
    let holder = Error::Transport(Box::new(Holder(held)));
    let items = [wait(60), frame(Err(holder)), Item::Hang];
    let script = [watch_list(items), Answer::Never];
    let outcome = play_with(ReflectorConfig::default(), stop, script).await;
    assert_eq!(outcome.ended, Some(ReflectorEnd::Stopped));
    assert_eq!(weak.upgrade(), None);
    assert!(outcome.is_closed().await);
}

/// An error inside a scripted stream. The test sees by its `Arc` whether the stream was dropped.
#[derive(Debug, thiserror::Error)]
#[error("never sent")]
struct Holder(Arc<()>);

#[tokio::test(start_paused = true)]
async fn a_relist_request_is_served_at_once_without_closing_the_cache() {
    let outcome = play([
        watch_list([
            wait(3),
            Item::RelistRequest,
            wait(3),
            modified("a", 10),
            Item::Hang,
        ]),
        watch([added("a", 3), added("b", 11), end_bookmark(12), Item::Hang]),
    ])
    .await;
    assert_eq!(outcome.requests(), ["watch-list", "watch-list"]);
    assert_eq!(outcome.waits(), [3.0]);
    assert_eq!(outcome.changes_after(9), names(&["ADDED b@11"]));
    assert_eq!(outcome.watch_ends(Cause::RelistRequested), 1);
    assert_eq!(outcome.metrics.epochs.load(Ordering::Relaxed), 0);
}

/// The pending list may have read the objects before the change that caused the relist request.
#[tokio::test(start_paused = true)]
async fn a_relist_request_during_a_list_causes_another_list() {
    let outcome = play([
        watch([
            added("a", 3),
            Item::RelistRequest,
            wait(1),
            end_bookmark(9),
            Item::Hang,
        ]),
        watch([added("a", 3), end_bookmark(9), Item::Hang]),
    ])
    .await;
    assert_eq!(outcome.requests(), ["watch-list", "watch-list"]);
    assert_eq!(outcome.waits(), [1.0]);
}

/// The list shows whether upstream's version went back, so the barrier is not needed.
#[tokio::test(start_paused = true)]
async fn a_relist_request_before_a_resume_replaces_it() {
    let outcome = play([
        watch_list([wait(3), Item::RelistRequest]),
        watch([added("a", 3), end_bookmark(9), Item::Hang]),
    ])
    .await;
    assert_eq!(outcome.requests(), ["watch-list", "watch-list"]);
}
