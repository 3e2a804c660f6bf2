//! The counters of a reflector.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::error::{Cause, Error};
use crate::telemetry::{Samples, described};
use crate::upstream;
use crate::upstream::WatchLiveness;

/// The names and help texts of the counters without a label `cause`, in the order of
/// [`ReflectorMetrics::sample`].
const DESCRIPTIONS: &str = "\
kubefan_upstream_lists_total: LISTs begun.
kubefan_upstream_watch_lists_total: Watch-lists begun.
kubefan_upstream_watches_total: Watches begun, watch-lists excluded.
kubefan_upstream_decode_errors_total: Frames and pages from upstream that were truncated or could not be decoded.
kubefan_upstream_backoffs_total: Waits of reflectors before a retry.";

/// What a reflector does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activity {
    /// It fetches all objects.
    Listing,
    /// It asks for the current version, and then opens a watch after the applied one.
    Resuming,
    /// It follows the changes of an open watch.
    Watching,
    /// It waits after a failure.
    Waiting,
}

/// Counters of one reflector.
#[derive(Debug, Default)]
pub struct ReflectorMetrics {
    /// LISTs begun, each of one or more pages.
    pub lists: AtomicU64,
    /// Watch-lists begun.
    pub watch_lists: AtomicU64,
    /// Watches begun, watch-lists excluded.
    pub watches: AtomicU64,
    /// Lists and watch-lists completed while the cache already had content.
    pub relists: AtomicU64,
    /// Epochs begun because events could not express a difference: clients' watches ended with 410.
    pub epochs: AtomicU64,
    /// Frames and pages that were truncated or could not be decoded.
    pub decode_errors: AtomicU64,
    /// Objects that were stored as they were received, because their transform failed.
    pub transform_failures: AtomicU64,
    /// Waits before a retry.
    pub backoffs: AtomicU64,
    /// When upstream's lists and watches were last proven alive.
    pub watch_liveness: WatchLiveness,
    refused_lists: Mutex<Option<RefusedLists>>,
    activity: Mutex<Option<(Activity, Instant)>>,
    watch_ends: [AtomicU64; Cause::ALL.len()],
}

/// Lists in sequence that upstream has answered with errors.
#[derive(Clone, Debug)]
pub(in crate::informer) struct RefusedLists {
    /// When the first one of them was answered.
    since: Instant,
    count: u32,
    /// The last error.
    message: String,
}

impl RefusedLists {
    /// Returns the last error, if there were at least `count` in at least `time`.
    pub(in crate::informer) fn lasting(&self, count: u32, time: Duration) -> Option<&str> {
        let is_lasting = self.count >= count && self.since.elapsed() >= time;
        is_lasting.then_some(&self.message)
    }
}

impl ReflectorMetrics {
    /// Returns the lists since the last one that was completed, or `None` if upstream has answered
    /// none of them with an error.
    pub(in crate::informer) fn refused_lists(&self) -> Option<RefusedLists> {
        self.refused_lists.lock().clone()
    }

    /// Records that a list failed. Only an answer counts: a broken connection says nothing about
    /// the resource.
    pub(super) fn list_failed(&self, error: &Error) {
        if !matches!(error, Error::Upstream(upstream::Error::Answer { .. })) {
            return;
        }
        let mut refused = self.refused_lists.lock();
        let refused = refused.get_or_insert_with(|| RefusedLists {
            since: Instant::now(),
            count: 0,
            message: String::new(),
        });
        refused.count += 1;
        refused.message = error.to_string();
    }

    /// Records that a list was completed.
    pub(super) fn list_completed(&self) {
        self.refused_lists.lock().take();
    }

    /// Returns what the reflector does, and since when; `None` before it begins.
    pub fn activity(&self) -> Option<(Activity, Instant)> {
        *self.activity.lock()
    }

    /// Records what the reflector does from now on. Not called for each event.
    pub(super) fn begin(&self, activity: Activity) {
        let mut current = self.activity.lock();
        if current.is_none_or(|(current, _)| current != activity) {
            *current = Some((activity, Instant::now()));
        }
    }

    /// Returns each cause, with the number of watches and watch-lists that it ended.
    pub fn watch_ends(&self) -> impl Iterator<Item = (Cause, u64)> {
        let counts = self.watch_ends.iter();
        let counts = counts.map(|count| count.load(Ordering::Relaxed));
        Cause::ALL.into_iter().zip(counts)
    }

    /// Adds all counters to `samples`, with `labels` before the label `cause`.
    pub fn sample(&self, labels: &[(&str, &str)], samples: &mut Samples) {
        let counters = [
            &self.lists,
            &self.watch_lists,
            &self.watches,
            &self.decode_errors,
            &self.backoffs,
        ];
        for ((name, help), counter) in described(DESCRIPTIONS, counters) {
            samples.counter(name, help, labels, counter.load(Ordering::Relaxed) as f64);
        }
        let failures = self.transform_failures.load(Ordering::Relaxed);
        if failures > 0 {
            let name = "kubefan_transform_failures_total";
            let help = "Objects stored as they were received, because their transform failed.";
            samples.counter(name, help, labels, failures as f64);
        }
        if let Some(age) = self.watch_liveness.age() {
            let name = "kubefan_upstream_watch_age_seconds";
            let help = "Seconds since the upstream watch was last proven alive by an event, a \
                        bookmark or the answer to a ping.";
            samples.gauge(name, help, labels, age.as_secs_f64());
        }
        for (cause, count) in self.watch_ends().filter(|(_, count)| *count > 0) {
            let mut labels = labels.to_vec();
            labels.push(("cause", cause.name()));
            let help = "Watches and watch-lists to upstream that ended, by cause.";
            samples.counter(
                "kubefan_upstream_watch_ends_total",
                help,
                &labels,
                count as f64,
            );
        }
    }

    pub(super) fn watch_ended(&self, cause: Cause) {
        increment(&self.watch_ends[cause as usize]);
    }
}

/// Adds one to `counter`. Each counter is read on its own, so relaxed ordering is sufficient.
pub(super) fn increment(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}
