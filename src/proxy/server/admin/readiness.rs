//! The answers to `/readyz`.

use std::fmt::Write as _;

use http::{Response, StatusCode};
use kubefan_core::body::Body;
use kubefan_core::informer::{CacheName, Informer, InformerSet};

use crate::server::answers::rescue;
use crate::server::startup::Waiting;

/// Answers `/readyz`: 503 if [`InformerSet::missing`] names an informer or a drain has begun, so
/// that `is_serving` is false, and 200 otherwise. If `is_verbose`, the answer lists all informers.
pub(super) fn ready(set: &InformerSet, is_serving: bool, is_verbose: bool) -> Response<Body> {
    let missing = set.missing();
    let ready = is_serving && missing.is_empty();
    let (code, last) = if ready {
        (StatusCode::OK, "ready\n")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "not ready\n")
    };
    if !is_verbose {
        return rescue::plain_text(code, if ready { "ok\n" } else { last });
    }
    let mark = if is_serving { "[+]" } else { "[-]" };
    let mut text = format!("{mark}serving\n");
    if !set.is_upstream_responding() {
        // Readiness does not depend on this: other replicas have the same API server.
        let _ = writeln!(text, "[ ]the API server does not respond");
    }
    for (gvr, format, reason) in &missing {
        let _ = writeln!(text, "[-]{gvr} {}: {reason}", format.name());
    }
    for (gvr, format, reason) in set.left_out() {
        let _ = writeln!(text, "[ ]{gvr} {}: {reason}", format.name());
    }
    let is_missing = |informer: &Informer| {
        missing
            .iter()
            .any(|(gvr, format, _)| *gvr == informer.resource().gvr && *format == informer.format())
    };
    let mut informers = set.all();
    informers.sort_by_cached_key(|informer| CacheName::of(informer).to_string());
    for informer in &informers {
        // Informers that make kubefan not ready were already listed with `[-]`.
        let is_good = informer.reader().is_ready() && !is_missing(informer);
        let mark = if is_good { "[+]" } else { "[ ]" };
        let _ = writeln!(text, "{mark}{}", state_of(informer));
    }
    text.push_str(last);
    rescue::plain_text(code, text)
}

/// Answers `/readyz` before the API server has answered.
pub(super) fn starting(waiting: &Waiting, is_verbose: bool) -> Response<Body> {
    let Waiting { what, details } = waiting;
    let text = match is_verbose {
        false => format!("waiting for {what}\n"),
        true if details.is_empty() => format!("[-]waiting for {what}\nnot ready\n"),
        true => format!("[-]waiting for {what}: {details}\nnot ready\n"),
    };
    rescue::plain_text(StatusCode::SERVICE_UNAVAILABLE, text)
}

/// Returns what the verbose answer says about an informer.
fn state_of(informer: &Informer) -> String {
    let stats = informer.reader().stats();
    let applied = stats.applied.unwrap_or_default();
    let needed = if informer.is_pinned() {
        ""
    } else {
        " (on demand)"
    };
    let age = informer.metrics().watch_liveness.age();
    let alive = age.map_or(String::new(), |age| {
        format!(", watch proven alive {} s ago", age.as_secs())
    });
    format!(
        "{}{needed}: {} objects at resource version {applied}, {} watchers{alive}",
        CacheName::of(informer),
        stats.objects,
        stats.watchers,
    )
}
