//! The API server's `Warning` headers, such as for a deprecated version, for answers from caches.

use arc_swap::ArcSwap;
use http::header::WARNING;
use http::{HeaderMap, HeaderValue};

use crate::api::GroupVersionResource;

/// The latest warnings of each resource that has any. Few resources do, so the list is usually
/// empty, and requests need not search or copy anything.
#[derive(Debug, Default)]
pub struct Warnings {
    known: ArcSwap<Vec<(GroupVersionResource, Vec<HeaderValue>)>>,
}

impl Warnings {
    /// Replaces the warnings of `gvr` by the ones in `headers`, the headers of an answer.
    pub(super) fn record(&self, gvr: &GroupVersionResource, headers: &HeaderMap) {
        let is_of = |entry: &&(GroupVersionResource, _)| entry.0 == *gvr;
        let known = self.known.load();
        let before = known.iter().find(is_of).map(|entry| entry.1.iter());
        let warnings = headers.get_all(WARNING);
        if warnings.iter().eq(before.unwrap_or_default()) {
            return;
        }
        self.known.rcu(|known| {
            let mut known = Vec::clone(known);
            known.retain(|entry| !is_of(&entry));
            let warnings: Vec<_> = warnings.iter().cloned().collect();
            if !warnings.is_empty() {
                known.push((gvr.clone(), warnings));
            }
            known
        });
    }

    /// Appends a resource's warnings to `headers`; calls `gvr` only if some resource has warnings.
    pub fn add(&self, gvr: impl FnOnce() -> Option<GroupVersionResource>, headers: &mut HeaderMap) {
        let known = self.known.load();
        if known.is_empty() {
            return;
        }
        let Some(gvr) = gvr() else { return };
        for (_, warnings) in known.iter().filter(|entry| entry.0 == gvr) {
            for warning in warnings {
                headers.append(WARNING, warning.clone());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_warnings_replace_older_ones() {
        let warnings = Warnings::default();
        let gvr = GroupVersionResource::new("", "v1", "endpoints");
        let other = GroupVersionResource::new("", "v1", "pods");
        let added = |gvr: &GroupVersionResource| {
            let mut headers = HeaderMap::new();
            warnings.add(|| Some(gvr.clone()), &mut headers);
            headers
        };
        let mut headers = HeaderMap::new();
        warnings.record(&gvr, &headers);
        assert_eq!(added(&gvr), headers);
        for text in ["299 - \"old\"", "299 - \"very old\""] {
            headers.append(WARNING, text.parse().expect("a header value"));
            warnings.record(&gvr, &headers);
            assert_eq!(added(&gvr), headers);
            assert_eq!(added(&other), HeaderMap::new());
        }
        warnings.record(&gvr, &HeaderMap::new());
        warnings.add(|| unreachable!("no resource has warnings"), &mut headers);
    }
}
