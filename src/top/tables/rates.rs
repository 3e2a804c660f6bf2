//! Rates: what happened per second between two snapshots.

use std::collections::HashMap;
use std::time::Duration;

use crate::pages::{CacheId, Snapshot};

/// What happened per second between two snapshots of a kubefan.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Rates {
    /// Requests of all clients; `None` if it is not known.
    pub(crate) requests: Option<f64>,
    /// Events that were added to each cache.
    pub(super) events: HashMap<CacheId, f64>,
}

// === impl Rates ===

impl Rates {
    /// Returns the rates between two snapshots with `elapsed` between them. After a restart of
    /// kubefan, counters begin again, and their rates are not known.
    pub(crate) fn between(before: &Snapshot, now: &Snapshot, elapsed: Duration) -> Self {
        let rate = |before: u64, now: u64| {
            let more = now.checked_sub(before)?;
            (elapsed > Duration::ZERO).then(|| more as f64 / elapsed.as_secs_f64())
        };
        let earlier = before.caches.items.iter();
        let earlier: HashMap<_, _> = earlier
            .map(|cache| (&cache.cache, cache.events_total))
            .collect();
        let events = now.caches.items.iter().filter_map(|cache| {
            let before = *earlier.get(&cache.cache)?;
            Some((cache.cache.clone(), rate(before, cache.events_total)?))
        });
        Self {
            requests: rate(requests(before), requests(now)),
            events: events.collect(),
        }
    }

    /// Returns the events of a cache per second.
    pub(super) fn events(&self, cache: &CacheId) -> Option<f64> {
        self.events.get(cache).copied()
    }
}

/// Returns all requests of clients since kubefan began.
pub(super) fn requests(snapshot: &Snapshot) -> u64 {
    let all = snapshot.caches.requests.iter();
    all.map(|requests| requests.cache + requests.forwarded + requests.rejected)
        .sum()
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;
    use serde_json::json;

    use super::*;

    fn snapshot(requests: u64, events: u64) -> Snapshot {
        let json = json!({"caches": {
            "items": [{"cache": {"resource": "pods"}, "eventsTotal": events}],
            "requests": [{"cache": requests}, {"forwarded": 1, "rejected": 1}],
        }});
        Snapshot::deserialize(json).expect("a snapshot")
    }

    #[test]
    fn rates_are_per_second_and_unknown_after_a_restart() {
        let half = Duration::from_millis(500);
        let pods = snapshot(0, 0).caches.items.remove(0).cache;
        for (before, now, elapsed, requests, events) in [
            ((10, 5), (20, 5), half, Some(20.0), Some(0.0)),
            ((10, 5), (9, 8), half, None, Some(6.0)),
            ((10, 5), (10, 4), half, Some(0.0), None),
            ((10, 5), (20, 6), Duration::ZERO, None, None),
        ] {
            let (before, now) = (snapshot(before.0, before.1), snapshot(now.0, now.1));
            let rates = Rates::between(&before, &now, elapsed);
            assert_eq!(rates.requests, requests);
            assert_eq!(rates.events(&pods), events);
        }
        let new = Rates::between(&Snapshot::default(), &snapshot(1, 1), half);
        assert_eq!(new.events(&pods), None);
    }
}
