//! Tests of what a reflector does after a watch or a call failed.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::support::*;
use crate::api::{GroupVersionResource, WireFormat};
use crate::cache::ReplaceOutcome;
use crate::informer::reflector::{RecoveryLog, WatchLists};
use crate::informer::{
    Activity, CacheName, Cause, ObjectContent, RecentRecoveries, RecoveryEnd, Reflector,
    ReflectorConfig,
};
use crate::upstream::{Error, Scope};

fn assert_waits(outcome: &Outcome, bounds: &[(f64, f64)]) {
    let waits = outcome.waits();
    assert_eq!(waits.len(), bounds.len(), "{:?}", outcome.recorded);
    for (wait, (low, high)) in waits.iter().zip(bounds) {
        // Timers fire on whole milliseconds.
        let is_within = *low <= *wait && *wait <= high + 0.001;
        assert!(
            is_within,
            "{wait} is not in {low}..{high}: {:?}",
            outcome.recorded
        );
    }
}

const FIRST: (f64, f64) = (0.8, 1.6);
const SECOND: (f64, f64) = (1.6, 3.2);
const THIRD: (f64, f64) = (3.2, 6.4);
const FOURTH: (f64, f64) = (6.4, 12.8);
const AT_ONCE: (f64, f64) = (0.0, 0.0);

fn backoffs(outcome: &Outcome) -> u64 {
    outcome.metrics.backoffs.load(Ordering::Relaxed)
}

#[tokio::test(start_paused = true)]
async fn a_broken_watch_is_resumed_after_its_last_whole_event() {
    for broken in [cut, reset] {
        let outcome = play([
            watch_list([wait(2), modified("a", 10), broken()]),
            revision(11),
            watch([added("b", 11), broken()]),
            revision(12),
            watch([deleted("b", 12), Item::Hang]),
        ])
        .await;
        let expected = ["watch-list", "revision", "watch 10", "revision", "watch 11"];
        assert_eq!(outcome.requests(), expected);
        let changes = outcome.changes_after(9).expect("not expired");
        assert_eq!(changes, ["MODIFIED a@10", "ADDED b@11", "DELETED b@12"]);
        assert_eq!(backoffs(&outcome), 0);
    }
}

/// Each watch from version 9 fails at the same frame. Retries wait, and the fifth is a relist.
#[tokio::test(start_paused = true)]
async fn a_relist_skips_a_frame_that_can_never_be_decoded() {
    let poisoned = || [revision(9), watch([cut()])];
    let mut script = vec![watch_list([wait(2), cut()])];
    script.extend((0..4).flat_map(|_| poisoned()));
    script.push(watch([added("a", 20), end_bookmark(20), Item::Hang]));
    let outcome = play(script).await;
    let waits = [
        (2.0, 2.0),
        AT_ONCE,
        FIRST,
        AT_ONCE,
        SECOND,
        AT_ONCE,
        THIRD,
        AT_ONCE,
        FOURTH,
    ];
    assert_waits(&outcome, &waits);
    assert_eq!(outcome.requests().last(), Some(&"watch-list"));
    assert_eq!(outcome.objects, Some(vec!["a@20".to_owned()]));
    assert_eq!(outcome.metrics.decode_errors.load(Ordering::Relaxed), 5);
}

/// A 410 directly after a list makes the next list wait for a backoff.
#[tokio::test(start_paused = true)]
async fn expired_watches_and_lists_are_relisted() {
    let outcome = play([
        watch_list([wait(2), error_frame(410)]),
        watch([added("a", 3), end_bookmark(20), error_frame(410)]),
        watch([added("a", 3), end_bookmark(30), wait(1), error_frame(410)]),
        watch([added("a", 3), end_bookmark(40), Item::Hang]),
    ])
    .await;
    assert_waits(&outcome, &[(2.0, 2.0), FIRST, (1.0, 1.0)]);
    assert_eq!(outcome.requests(), ["watch-list"; 4]);
    assert_eq!(outcome.metrics.relists.load(Ordering::Relaxed), 3);
    assert_eq!(outcome.watch_ends(Cause::Expired), 3);
    assert_eq!(outcome.metrics.epochs.load(Ordering::Relaxed), 0);

    let outcome = play([
        Answer::Watch(Err(answer(422))),
        list(9, &[("a", 3)], None),
        watch([error_frame(410)]),
        list(20, &[("a", 3)], None),
        Answer::Watch(Err(answer(410))),
        list(30, &[("a", 3)], None),
        watch([wait(1), error_frame(410)]),
        list(40, &[("a", 3)], None),
        watch([Item::Hang]),
    ])
    .await;
    let waits = [
        AT_ONCE,
        AT_ONCE,
        FIRST,
        AT_ONCE,
        SECOND,
        AT_ONCE,
        (1.0, 1.0),
        AT_ONCE,
    ];
    assert_waits(&outcome, &waits);
}

/// After an outage, upstream no longer has the history since version 9. The relist does not wait.
#[tokio::test(start_paused = true)]
async fn a_resume_that_is_too_late_relists_at_once() {
    let outcome = play([
        watch_list([wait(2)]),
        revision(90),
        watch([error_frame(410)]),
        watch([added("a", 80), end_bookmark(90), Item::Hang]),
    ])
    .await;
    assert_eq!(
        outcome.requests(),
        ["watch-list", "revision", "watch 9", "watch-list"]
    );
    assert_waits(&outcome, &[(2.0, 2.0), AT_ONCE, AT_ONCE]);
}

/// An overloaded upstream gets no LISTs, and no request before `Retry-After` (at most a minute).
#[tokio::test(start_paused = true)]
async fn too_many_requests_backs_off_for_retry_after_and_resumes() {
    let busy = |seconds| Error::Answer {
        status: Box::new(status(429)),
        retry_after: Some(Duration::from_secs(seconds)),
    };
    let outcome = play([
        Answer::Watch(Err(busy(20))),
        watch_list([wait(2), error_frame(429)]),
        Answer::Revision(Err(busy(10))),
        revision(9),
        Answer::Watch(Err(busy(1_000_000))),
        revision(9),
        watch([Item::Hang]),
    ])
    .await;
    let expected = [
        "watch-list",
        "watch-list",
        "revision",
        "revision",
        "watch 9",
        "revision",
        "watch 9",
    ];
    assert_eq!(outcome.requests(), expected);
    let waits = [
        (20.0, 20.0),
        // The watch worked for two seconds, so the backoff starts again.
        (2.0 + FIRST.0, 2.0 + FIRST.1),
        (10.0, 10.0),
        AT_ONCE,
        (60.0, 60.0),
        AT_ONCE,
    ];
    assert_waits(&outcome, &waits);
}

/// An API server answers so for a moment while it builds the watch cache of a resource that was
/// redefined.
#[tokio::test(start_paused = true)]
async fn a_429_is_waited_for_by_its_retry_after_before_it_counts() {
    let busy = || {
        Answer::Watch(Err(Error::Answer {
            status: Box::new(status(429)),
            retry_after: Some(Duration::from_secs(1)),
        }))
    };
    let mut script: Vec<_> = (0..12).map(|_| busy()).collect();
    script.push(watch_list([Item::RelistRequest, wait(1)]));
    script.extend([busy(), busy(), watch_list([Item::Hang])]);
    let outcome = play(script).await;
    let mut waits = vec![(1.0, 1.0); 10];
    // The backoff counts from the eleventh answer on, and no longer after a list.
    waits.extend([(1.0, FIRST.1), SECOND]);
    waits.extend([AT_ONCE, (1.0, 1.0), (1.0, 1.0)]);
    assert_waits(&outcome, &waits);
    assert_eq!(outcome.requests(), ["watch-list"; 16]);
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_worked_resets_the_backoff() {
    let mut script: Vec<_> = (0..6).map(|_| Answer::Watch(Err(answer(429)))).collect();
    script.push(watch_list([wait(3), error_frame(429)]));
    script.extend([revision(9), watch([Item::Hang])]);
    let outcome = play(script).await;
    let waits = outcome.waits();
    assert!(waits[5] >= 25.6, "{waits:?}");
    assert!(
        (3.0 + FIRST.0..3.0 + FIRST.1).contains(&waits[6]),
        "{waits:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn too_large_and_expired_lists_and_watches_restart_without_a_resource_version() {
    let outcome = play([
        watch_list([wait(2), error_frame(504)]),
        Answer::Watch(Err(answer(504))),
        Answer::List(Err(answer(504))),
        watch_list([Item::Hang]),
    ])
    .await;
    assert_eq!(
        outcome.requests(),
        ["watch-list", "watch-list", "list 500", "watch-list"]
    );
    assert_waits(&outcome, &[(2.0, 2.0), AT_ONCE, FIRST]);
    assert_eq!(outcome.watch_ends(Cause::TooLarge), 1);
}

#[tokio::test(start_paused = true)]
async fn other_failures_back_off_and_resume() {
    for code in [401, 500, 503] {
        let outcome = play([
            watch_list([wait(2), error_frame(code)]),
            Answer::Revision(Err(answer(code))),
            revision(9),
            Answer::Watch(Err(answer(code))),
            revision(9),
            watch([Item::Hang]),
        ])
        .await;
        let expected = [
            "watch-list",
            "revision",
            "revision",
            "watch 9",
            "revision",
            "watch 9",
        ];
        assert_eq!(outcome.requests(), expected, "{code}");
        let first = (2.0 + FIRST.0, 2.0 + FIRST.1);
        assert_waits(&outcome, &[first, SECOND, AT_ONCE, THIRD, AT_ONCE]);
        assert_eq!(backoffs(&outcome), 3);
    }
}

#[tokio::test(start_paused = true)]
async fn a_dead_upstream_is_called_ever_less_often() {
    let mut script: Vec<_> = (0..8).map(|_| Answer::Watch(Err(refused()))).collect();
    let lives_for_two_minutes = [wait(60), bookmark(10), wait(60), reset()];
    script.push(watch_list(lives_for_two_minutes));
    script.extend((0..2).map(|_| Answer::Revision(Err(refused()))));
    let outcome = play(script).await;
    let bounds = [
        FIRST,
        SECOND,
        THIRD,
        FOURTH,
        (12.8, 25.6),
        (25.6, 51.2),
        (30.0, 60.0),
        (30.0, 60.0),
        (120.0, 120.0),
        FIRST,
        SECOND,
    ];
    assert_waits(&outcome, &bounds);
    assert_eq!(
        outcome.requests()[8..],
        ["watch-list", "revision", "revision", "revision"]
    );
}

#[tokio::test(start_paused = true)]
async fn a_silent_watch_is_closed_and_resumed() {
    let outcome = play([
        watch_list([wait(60), bookmark(10), Item::Hang]),
        revision(10),
        watch([wait(89), bookmark(11), wait(89), bookmark(12), Item::Hang]),
        revision(12),
        watch([Item::Hang]),
    ])
    .await;
    let expected = ["watch-list", "revision", "watch 10", "revision", "watch 12"];
    assert_eq!(outcome.requests(), expected);
    assert_waits(
        &outcome,
        &[(150.0, 150.0), AT_ONCE, (268.0, 268.0), AT_ONCE],
    );
    assert_eq!(outcome.watch_ends(Cause::Silent), 2);
    assert_eq!(backoffs(&outcome), 0);
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_upstream_does_not_end_is_closed() {
    let bookmarks = (0..20).flat_map(|n| [wait(60), bookmark(10 + n)]);
    let outcome = play([watch_list(bookmarks), revision(90), watch([Item::Hang])]).await;
    let limit = outcome.recorded[0].timeout.as_secs_f64() + 10.0;
    assert_waits(&outcome, &[(limit, limit), AT_ONCE]);
    assert_eq!(outcome.watch_ends(Cause::Overdue), 1);
}

/// Each row detects a restored etcd in another way: by the barrier, a change, a bookmark, or a
/// list.
#[tokio::test(start_paused = true)]
async fn another_history_starts_a_new_epoch() {
    let restored = || watch([added("a", 2), end_bookmark(5), Item::Hang]);
    let detections = [
        vec![watch_list([Item::Hang]), revision(8), restored()],
        vec![watch_list([wait(2), modified("a", 7)]), restored()],
        vec![watch_list([wait(2), bookmark(7)]), restored()],
        vec![watch_list([wait(2), Item::RelistRequest]), restored()],
    ];
    for (row, script) in detections.into_iter().enumerate() {
        let outcome = play(script).await;
        assert_eq!(outcome.requests().last(), Some(&"watch-list"), "row {row}");
        assert_eq!(outcome.objects, Some(vec!["a@2".to_owned()]), "row {row}");
        assert_eq!(
            outcome.metrics.epochs.load(Ordering::Relaxed),
            1,
            "row {row}"
        );
        assert_eq!(backoffs(&outcome), 0, "row {row}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_old_history_is_not_served_while_the_new_one_is_fetched() {
    let outcome = play([watch_list([wait(2)]), revision(8)]).await;
    assert_eq!(outcome.requests(), ["watch-list", "revision", "watch-list"]);
    assert_eq!(outcome.objects, None);
}

/// Upstream sends an event below the version of each of its lists, so each list waits longer.
#[tokio::test(start_paused = true)]
async fn repeated_history_rollbacks_back_off_and_serve_nothing() {
    let contradicts = || watch_list([modified("a", 7)]);
    let outcome = play([contradicts(), contradicts(), contradicts()]).await;
    assert_eq!(outcome.requests(), ["watch-list"; 4]);
    assert_waits(&outcome, &[FIRST, SECOND, THIRD]);
    assert_eq!(outcome.objects, None);
    assert_eq!(outcome.metrics.epochs.load(Ordering::Relaxed), 3);
}

#[tokio::test(start_paused = true)]
async fn a_watch_is_never_resumed_unproven() {
    let outcome = play([
        watch_list([wait(2)]),
        Answer::Revision(Err(refused())),
        Answer::Revision(Err(answer(500))),
        Answer::Never,
        revision(9),
        watch([Item::Hang]),
    ])
    .await;
    let expected = [
        "watch-list",
        "revision",
        "revision",
        "revision",
        "revision",
        "watch 9",
    ];
    assert_eq!(outcome.requests(), expected);
    let unanswered = (10.0 + THIRD.0, 10.0 + THIRD.1);
    assert_waits(&outcome, &[(2.0, 2.0), FIRST, SECOND, unanswered, AT_ONCE]);
}

#[tokio::test(start_paused = true)]
async fn calls_without_an_answer_time_out() {
    let outcome = play([
        Answer::Never,
        Answer::Watch(Err(answer(422))),
        Answer::Never,
        list(9, &[], None),
        Answer::Never,
        revision(9),
        watch([Item::Hang]),
    ])
    .await;
    let expected = [
        "watch-list",
        "watch-list",
        "list 500",
        "list 500",
        "watch 9",
        "revision",
        "watch 9",
    ];
    assert_eq!(outcome.requests(), expected);
    let waits = outcome.waits();
    assert!((10.8..11.7).contains(&waits[0]), "{waits:?}");
    // The five minutes without an answer have reset the backoff.
    assert!((300.8..301.7).contains(&waits[2]), "{waits:?}");
}

#[tokio::test(start_paused = true)]
async fn a_very_short_watch_backs_off() {
    let outcome = play([
        watch_list([wait(1)]),
        revision(9),
        watch([]),
        revision(9),
        watch([bookmark(10)]),
        revision(10),
        watch([added("b", 11)]),
        revision(11),
        watch([Item::Hang]),
    ])
    .await;
    let waits = [
        (1.0, 1.0),
        AT_ONCE,
        FIRST,
        AT_ONCE,
        SECOND,
        AT_ONCE,
        AT_ONCE,
        AT_ONCE,
    ];
    assert_waits(&outcome, &waits);
    assert_eq!(outcome.requests().last(), Some(&"watch 11"));
}

/// An API server ends the watches of a custom resource early when its schema changed.
#[tokio::test(start_paused = true)]
async fn an_early_end_makes_a_custom_resource_relist() {
    let custom_resource = || ReflectorConfig {
        relist_on_early_end: true,
        ..ReflectorConfig::default()
    };
    let early = || watch_list([wait(60)]);

    let built_in = play([early(), revision(9), watch([Item::Hang])]).await;
    assert_eq!(built_in.requests(), ["watch-list", "revision", "watch 9"]);

    let script = [early(), watch_list([Item::Hang])];
    let outcome = play_with(custom_resource(), pending(), script).await;
    assert_eq!(outcome.requests(), ["watch-list", "watch-list"]);
    assert_waits(&outcome, &[(60.0, 60.0)]);

    // The seed is the same in all runs, so the first watch has the same timeout.
    let timeout = built_in.recorded[0].timeout.as_secs();
    let bookmarks = (0..timeout / 60).flat_map(|n| [wait(60), bookmark(10 + n)]);
    let at_deadline = watch_list(bookmarks.chain([wait(timeout % 60)]));
    let script = [at_deadline, revision(90), watch([Item::Hang])];
    let outcome = play_with(custom_resource(), pending(), script).await;
    assert_eq!(outcome.requests()[..2], ["watch-list", "revision"]);
    assert_waits(&outcome, &[(timeout as f64, timeout as f64), AT_ONCE]);
}

/// The hook decides whether a relist is necessary. The watch is resumed in any case.
#[tokio::test(start_paused = true)]
async fn an_early_end_is_reported_and_the_watch_is_resumed() {
    let (sender, reports) = std::sync::mpsc::channel();
    let reporting = |reflector: Reflector<Script>| {
        reflector.with_early_end_hook(move || sender.send(()).expect("a receiver"))
    };
    let script = [
        watch_list([wait(60)]),
        revision(9),
        // Neither a broken watch nor one that fails is a clean end.
        watch([wait(2), reset()]),
        revision(9),
        watch([wait(2), error_frame(500)]),
        revision(9),
        watch([Item::Hang]),
    ];
    let config = ReflectorConfig::default();
    let outcome = play_reflector(config, pending(), reporting, script).await;
    let resumed = ["revision", "watch 9"];
    assert_eq!(outcome.requests()[..1], ["watch-list"]);
    assert_eq!(outcome.requests()[1..], resumed.repeat(3));
    assert_eq!(reports.try_iter().count(), 1);
}

/// Something between drops bookmarks, so a watch-list never ends. Only the first reflector waits for
/// that, and one that waits as well does not wait longer.
#[tokio::test(start_paused = true)]
async fn reflectors_of_one_upstream_learn_from_each_other_that_it_has_no_watch_list() {
    let shared = WatchLists::default();
    let play_sharing = |answers: Vec<Answer>| {
        let known = shared.clone();
        let sharing = |reflector: Reflector<Script>| reflector.with_watch_lists(known);
        play_reflector(ReflectorConfig::default(), pending(), sharing, answers)
    };
    let without_end = || watch([added("a", 3), Item::Hang]);
    let listed = || [list(9, &[("a", 3)], None), watch([Item::Hang])];
    let script = || {
        let mut script = vec![without_end()];
        script.extend(listed());
        script
    };
    let late = async {
        tokio::time::sleep(Duration::from_secs(60)).await;
        play_sharing(script()).await
    };
    let (first, second) = tokio::join!(play_sharing(script()), late);
    for (outcome, seconds) in [(first, 90.0), (second, 30.0)] {
        assert_eq!(outcome.requests(), ["watch-list", "list 500", "watch 9"]);
        assert_waits(&outcome, &[(seconds, seconds), AT_ONCE]);
    }
    let third = play_sharing(listed().into()).await;
    assert_eq!(third.requests(), ["list 500", "watch 9"]);
    assert_eq!(third.objects, Some(vec!["a@3".to_owned()]));

    // One that does not work for one resource only is no news about the others.
    let shared = WatchLists::default();
    shared.worked();
    shared.failed(Cause::Silent);
    assert!(!shared.fail());
}

#[tokio::test(start_paused = true)]
async fn relists_and_resumed_watches_are_recorded_with_their_causes() {
    let recent = Arc::new(RecentRecoveries::default());
    let cache = CacheName {
        resource: GroupVersionResource::new("", "v1", "pods"),
        format: WireFormat::Json,
        content: ObjectContent::Whole,
        scope: Scope::default(),
    };
    let log = RecoveryLog::new(cache.clone(), Arc::clone(&recent));
    let script = [
        watch_list([wait(2), reset()]),
        revision(9),
        watch([wait(2), error_frame(410)]),
        watch([added("b", 12), end_bookmark(12), Item::Hang]),
    ];
    let recorded = |reflector: Reflector<Script>| reflector.with_recoveries(log);
    let outcome = play_reflector(ReflectorConfig::default(), pending(), recorded, script).await;
    let (resumes, relists) = (recent.resumes(), recent.relists());
    assert_eq!((resumes.len(), relists.len()), (1, 1));
    assert_eq!(resumes[0].interruption.causes, [Cause::Transport]);
    assert_eq!(resumes[0].end, RecoveryEnd::Resumed);
    assert_eq!(*relists[0].cache, cache);
    assert_eq!(relists[0].interruption.causes, [Cause::Expired]);
    let outcome_of_list = ReplaceOutcome::Diffed {
        added: 1,
        modified: 0,
        deleted: 1,
    };
    let listed = RecoveryEnd::Listed {
        outcome: outcome_of_list,
        objects: 1,
    };
    assert_eq!(relists[0].end, listed);
    let activity = outcome.metrics.activity().map(|(activity, _)| activity);
    assert_eq!(activity, Some(Activity::Watching));
}
