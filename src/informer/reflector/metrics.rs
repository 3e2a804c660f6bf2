//! What a reflector counts.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;

use crate::telemetry::Samples;

use super::error::Cause;

/// Counters of one reflector; all only grow.
#[derive(Debug, Default)]
pub struct ReflectorMetrics {
    /// LISTs begun (each of one or more pages).
    pub lists: AtomicU64,
    /// Watch-lists begun.
    pub watch_lists: AtomicU64,
    /// Plain watches begun.
    pub watches: AtomicU64,
    /// Complete lists that were diffed against a cache that already had content.
    pub relists: AtomicU64,
    /// Epochs begun: what clients had was thrown away because it could not be told as events.
    pub epochs: AtomicU64,
    /// Frames and pages that were cut or could not be decoded.
    pub decode_errors: AtomicU64,
    /// Waits before another attempt.
    pub backoffs: AtomicU64,
    watch_ends: [AtomicU64; Cause::ALL.len()],
}

impl ReflectorMetrics {
    /// How many watches, watch-lists included, ended by each cause.
    pub fn watch_ends(&self) -> impl Iterator<Item = (Cause, u64)> {
        let counts = self.watch_ends.iter();
        let counts = counts.map(|count| count.load(Ordering::Relaxed));
        Cause::ALL.into_iter().zip(counts)
    }

    /// Adds them to a scrape, with `labels` in front.
    pub fn sample(&self, labels: &[(&str, &str)], samples: &mut Samples) {
        let counters = [
            ("kubefan_upstream_lists_total", "LISTs begun.", &self.lists),
            (
                "kubefan_upstream_watch_lists_total",
                "Watch-lists begun.",
                &self.watch_lists,
            ),
            (
                "kubefan_upstream_watches_total",
                "Plain watches begun.",
                &self.watches,
            ),
            (
                "kubefan_upstream_decode_errors_total",
                "Frames and pages that were cut or could not be decoded.",
                &self.decode_errors,
            ),
            (
                "kubefan_upstream_backoffs_total",
                "Waits before another attempt.",
                &self.backoffs,
            ),
        ];
        for (name, help, counter) in counters {
            samples.counter(name, help, labels, counter.load(Ordering::Relaxed) as f64);
        }
        for (cause, count) in self.watch_ends().filter(|(_, count)| *count > 0) {
            let mut labels = labels.to_vec();
            labels.push(("cause", cause.name()));
            let help = "Watches that ended, by cause.";
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

/// Adds one; counters are read singly, so no order is needed.
pub(super) fn increment(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}
