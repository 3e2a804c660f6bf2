//! The metrics of each informer, which are sampled at each scrape.

use super::InformerSet;
use crate::cache::Stats;
use crate::informer::{Informer, ObjectContent};
use crate::telemetry::{Samples, described};

/// The names and help texts of the gauges, in the order of [`gauges`].
const GAUGES: &str = "\
kubefan_cache_objects: Objects in the cache.
kubefan_cache_bytes: Bytes of the cached objects.
kubefan_cache_resource_version: Resource version up to which the cache is complete.
kubefan_event_log_events: Events in the event log.
kubefan_event_log_bytes: Bytes of the events in the event log.
kubefan_watchers: Open watches that the cache serves, with those of kubefan itself, such as of definitions and roles.
kubefan_informer_ready: 1 if the informer has completed its first list, else 0.";
/// The names and help texts of the counters, in the order of [`counters`].
const COUNTERS: &str = "\
kubefan_events_total: Events added to the event log, including those that a relist implies.
kubefan_events_sent_total: Events sent to clients, including initial events.
kubefan_relists_total: Lists that replaced the content of the cache.
kubefan_epochs_total: New epochs, each of which ended all watches because events could not express a change.
kubefan_watches_refused_total: Watches refused because clients watch too many selectors that no index answers.";

impl InformerSet {
    /// Adds the current metrics of all informers to `samples`, for
    /// [`Registry::on_scrape`](crate::telemetry::Registry::on_scrape).
    pub fn sample(&self, samples: &mut Samples) {
        for informer in self.all() {
            add_samples(&informer, samples);
        }
    }
}

fn add_samples(informer: &Informer, samples: &mut Samples) {
    let stats = informer.reader().stats();
    let gvr = &informer.resource().gvr;
    let scope = informer.upstream_scope();
    let mut labels = vec![
        ("group", gvr.group.as_str()),
        ("version", gvr.version.as_str()),
        ("resource", gvr.resource.as_str()),
        ("format", informer.format().name()),
        ("namespace", informer.namespace().unwrap_or("")),
    ];
    let selectors = [
        ("label_selector", scope.label_selector.as_str()),
        ("field_selector", scope.field_selector.as_str()),
    ];
    labels.extend(selectors.iter().filter(|(_, text)| !text.is_empty()));
    if informer.content() == ObjectContent::Metadata {
        labels.push(("content", "metadata"));
    }
    let transform = informer.transform_number();
    let transform = transform.map(|number| number.to_string());
    labels.extend(
        transform
            .iter()
            .map(|number| ("transform", number.as_str())),
    );
    let values = gauges(&stats, informer.reader().is_ready());
    for ((name, help), value) in described(GAUGES, values) {
        samples.gauge(name, help, &labels, value);
    }
    let values = counters(&stats, informer.events_sent());
    for ((name, help), value) in described(COUNTERS, values) {
        samples.counter(name, help, &labels, value);
    }
    informer.metrics().sample(&labels, samples);
    informer.freshness_metrics().sample(&labels, samples);
    samples.gauge(
        "kubefan_freshness_isolated_selections",
        "Selections in which the cache lastingly differs from the API server; their reads are forwarded.",
        &labels,
        informer.isolated_selections() as f64,
    );
}

fn gauges(stats: &Stats, is_ready: bool) -> [f64; 7] {
    [
        stats.objects as f64,
        stats.bytes as f64,
        stats.applied.unwrap_or_default().0 as f64,
        stats.log_events as f64,
        stats.log_bytes as f64,
        stats.watchers as f64,
        f64::from(u8::from(is_ready)),
    ]
}

fn counters(stats: &Stats, events_sent: u64) -> [f64; 5] {
    [
        stats.events as f64,
        events_sent as f64,
        stats.relists as f64,
        stats.epochs as f64,
        stats.refused_watches as f64,
    ]
}
