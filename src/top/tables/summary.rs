//! The lines above the tables: the version, the API server, the caches, the memory, the requests, and
//! what is saved.

use super::rates::{Rates, requests};
use super::table::Tone;
use crate::pages::{Caches, Pages, Saved, Snapshot};
use crate::text;

/// The share of the available memory from which on the memory is called high.
const HIGH_MEMORY: f64 = 0.9;

/// A part of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) text: String,
    pub(crate) tone: Tone,
}

// === impl Part ===

impl Part {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            tone: Tone::Usual,
        }
    }

    pub(crate) fn with_tone(text: impl Into<String>, tone: Tone) -> Self {
        Self {
            text: text.into(),
            tone,
        }
    }
}

/// Returns the first line: which kubefan this is, whether its API server responds, and whether its
/// caches follow it.
pub(crate) fn state(pages: &Pages, url: &str) -> Vec<Part> {
    let snapshot = &pages.snapshot;
    let version = match text::harmless(&snapshot.version) {
        version if version.is_empty() => "kubefan".to_owned(),
        version => format!("kubefan {version}"),
    };
    let api_server = match snapshot.caches.upstream_responding {
        true => Part::new("the API server responds"),
        false => Part::with_tone("the API server does NOT respond", Tone::Trouble),
    };
    vec![
        Part::new(version),
        Part::new(text::harmless(url)),
        api_server,
        live(&snapshot.caches),
    ]
}

/// Returns how many caches are live.
fn live(caches: &Caches) -> Part {
    let items = &caches.items;
    let with_state = |state: &str| items.iter().filter(|cache| cache.state == state).count();
    let (live, stale) = (with_state("live"), with_state("stale"));
    let which = match caches.total > items.len() {
        true => "of the largest caches",
        false => "caches",
    };
    let tone = match (stale, live == items.len()) {
        (0, true) => Tone::Usual,
        (0, false) => Tone::Warning,
        _ => Tone::Trouble,
    };
    Part::with_tone(format!("{live}/{} {which} live", items.len()), tone)
}

/// Returns the second line: memory, requests, clients, and what is saved.
pub(crate) fn counts(pages: &Pages, rates: &Rates) -> Vec<Part> {
    let snapshot = &pages.snapshot;
    let mut parts = vec![memory(snapshot)];
    parts.extend(
        rates
            .requests
            .map(|rate| Part::new(format!("requests {}", text::rate(rate)))),
    );
    let cached: u64 = snapshot.caches.requests.iter().map(|one| one.cache).sum();
    let all = requests(snapshot);
    parts.push(Part::new(format!(
        "{} of {} from caches",
        text::percent(cached as f64, all as f64),
        text::count(all as f64),
    )));
    let clients = &snapshot.clients;
    parts.push(Part::new(format!(
        "watches {}",
        text::count(clients.watches as f64)
    )));
    let bill = pages.bill.shown();
    parts.extend(bill.map(|bill| saved(&bill.total.saved)));
    parts
}

/// Returns what the API server was saved since kubefan began.
fn saved(saved: &Saved) -> Part {
    let count = |count: u64| text::count(count as f64);
    Part::new(format!(
        "saved {} requests, {} objects, {} events, about {} of CPU time",
        count(saved.requests),
        count(saved.objects),
        count(saved.events),
        text::cpu(saved.estimated_cpu_seconds),
    ))
}

fn memory(snapshot: &Snapshot) -> Part {
    let memory = &snapshot.memory;
    let Some(resident) = memory.resident_bytes else {
        return Part::new("memory unknown");
    };
    let (resident, available) = (resident as f64, memory.available_bytes as f64);
    let text = format!(
        "memory {} of {}",
        text::bytes(resident),
        text::bytes(available)
    );
    if available > 0.0 && resident >= HIGH_MEMORY * available {
        return Part::with_tone(format!("{text}: HIGH"), Tone::Trouble);
    }
    Part::new(text)
}
