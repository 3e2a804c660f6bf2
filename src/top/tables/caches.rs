//! The view of the caches.

use super::rates::Rates;
use super::table::{Cell, Column, Details, Row, Tone};
use crate::pages::{Cache, CacheFreshness, Pages};
use crate::text;

pub(super) const COLUMNS: [Column; 10] = [
    Column::text("RESOURCE", 12),
    Column::text("STATE", 5),
    Column::number("OBJECTS"),
    Column::number("SIZE"),
    Column::number("LOG"),
    Column::number("WATCHES"),
    Column::number("EVENTS/S").needing_two(),
    Column::number("CHANGED"),
    Column::text("FORMAT", 6),
    Column::text("SCOPE", 6),
];
pub(super) const SORTED_BY: usize = 3;

pub(super) fn rows(pages: &Pages, rates: &Rates) -> Vec<Row> {
    let caches = pages.snapshot.caches.items.iter();
    caches.map(|cache| row(cache, pages, rates)).collect()
}

fn row(cache: &Cache, pages: &Pages, rates: &Rates) -> Row {
    let id = &cache.cache;
    let format = match id.content.as_str() {
        "metadata" => format!("{} metadata", id.format),
        _ => id.format.clone(),
    };
    let (resource, scope) = (id.resource_name(), id.scope());
    let cells = vec![
        Cell::text(&resource),
        Cell::text(&cache.state).with_tone(tone_of(&cache.state)),
        Cell::count(cache.objects),
        Cell::bytes(cache.object_bytes),
        Cell::bytes(cache.event_log.bytes),
        Cell::count(cache.watchers),
        Cell::known(rates.events(id), text::rate),
        Cell::known(cache.last_change_seconds, text::age),
        Cell::text(&format),
        Cell::text(&scope),
    ];
    let mut freshness = pages.snapshot.freshness.items.iter();
    let freshness = freshness.find(|one| one.cache == *id);
    let key = format!("{resource} {} {format} {scope}", id.version);
    Row::new(key, cells, details(cache, freshness))
}

fn tone_of(state: &str) -> Tone {
    match state {
        "live" => Tone::Usual,
        "stale" => Tone::Trouble,
        _ => Tone::Warning,
    }
}

fn details(cache: &Cache, freshness: Option<&CacheFreshness>) -> Details {
    let id = &cache.cache;
    let ago = |seconds: Option<f64>| match seconds {
        Some(seconds) => format!("{} ago", text::age(seconds)),
        None => text::UNKNOWN.to_owned(),
    };
    let activity = match (&cache.activity, cache.activity_seconds) {
        (Some(activity), Some(seconds)) => format!("{activity} for {}", text::age(seconds)),
        _ => text::UNKNOWN.to_owned(),
    };
    let started = match cache.on_demand {
        true => "by a client",
        false => "by the configuration",
    };
    let mut details = vec![
        ("resource", id.resource_name()),
        ("API version", id.version.clone()),
        ("format", id.format.clone()),
        ("content", id.content.clone()),
        ("scope", id.scope()),
        ("state", cache.state.clone()),
        ("activity", activity),
        ("started", started.to_owned()),
        (
            "applied version",
            cache.applied_version.clone().unwrap_or_default(),
        ),
        (
            "objects",
            format!(
                "{} with {}",
                cache.objects,
                text::bytes(cache.object_bytes as f64)
            ),
        ),
        ("event log", event_log(cache)),
        (
            "watches",
            format!("{} of {} selections", cache.watchers, cache.selections),
        ),
        ("queues", text::bytes(cache.queue_bytes as f64)),
        ("last change", ago(cache.last_change_seconds)),
        ("watch proven alive", ago(cache.watch_age_seconds)),
        ("events received", cache.events_total.to_string()),
        ("events sent", cache.sent_events_total.to_string()),
        ("lists", cache.lists_total.to_string()),
        ("new epochs", cache.epochs_total.to_string()),
    ];
    if let Some(freshness) = freshness {
        details.extend(freshness_details(freshness));
    }
    details
}

fn event_log(cache: &Cache) -> String {
    let log = &cache.event_log;
    let mut text = format!(
        "{} events with {}",
        log.events,
        text::bytes(log.bytes as f64)
    );
    if let Some(span) = log.span_seconds {
        text.push_str(&format!(", from {} ago on", text::age(span)));
    }
    text
}

fn freshness_details(freshness: &CacheFreshness) -> Details {
    let proof = freshness.last_proof.as_ref();
    let proof =
        proof.map(|proof| format!("{}, {} ago", proof.method, text::age(proof.age_seconds)));
    let failure = freshness.last_failure.as_ref();
    let failure = failure.map(|one| format!("{}, {} ago", one.reason, text::age(one.age_seconds)));
    let none = || "none".to_owned();
    let mut details = vec![
        ("freshness", freshness.policy.clone()),
        ("last proof", proof.unwrap_or_else(none)),
        ("last failed proof", failure.unwrap_or_else(none)),
        ("failed proofs", freshness.unproven_total.to_string()),
        (
            "selections that differ",
            freshness.isolated_selections.to_string(),
        ),
    ];
    if freshness.doubted {
        details.push(("doubted", "until the next list".to_owned()));
    }
    details
}
