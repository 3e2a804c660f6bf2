//! What the API server warns of with each answer about a resource, such as a deprecated version.

use arc_swap::ArcSwap;
use http::HeaderMap;
use http::HeaderValue;
use http::header::WARNING;

use crate::api::GroupVersionResource;

/// The warnings of resources that have any, as they came last. They are few: most requests find
/// an empty list, and nothing is looked up or copied for them.
#[derive(Debug, Default)]
pub struct Warnings {
    known: ArcSwap<Vec<(GroupVersionResource, Vec<HeaderValue>)>>,
}

impl Warnings {
    /// Takes the warnings of an answer about `gvr` for those that hold from now on.
    pub(super) fn record(&self, gvr: &GroupVersionResource, headers: &HeaderMap) {
        let is_of = |entry: &&(GroupVersionResource, _)| entry.0 == *gvr;
        let known = self.known.load();
        let before = known.iter().find(is_of).map(|entry| entry.1.iter());
        if headers
            .get_all(WARNING)
            .iter()
            .eq(before.unwrap_or_default())
        {
            return;
        }
        self.known.rcu(|known| {
            let mut known = Vec::clone(known);
            known.retain(|entry| !is_of(&entry));
            let warnings: Vec<_> = headers.get_all(WARNING).iter().cloned().collect();
            if !warnings.is_empty() {
                known.push((gvr.clone(), warnings));
            }
            known
        });
    }

    /// Adds the warnings of `gvr`, which is made only when there are any of some resource.
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
        warnings.add(|| unreachable!("none has any"), &mut headers);
    }
}
