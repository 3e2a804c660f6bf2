//! Asks the API server which of the selectable fields that kubefan knows of built-in kinds it
//! accepts. A field that it refuses is not answered from a cache.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use serde::de::IgnoredAny;
use tokio::time::Instant;

use crate::api::{GroupVersionResource, SelectableFields};
use crate::informer::Informer;
use crate::upstream::{Client, Error};

/// How long no field of a resource is asked about after the API server gave no answer.
const RETRY_PAUSE: Duration = Duration::from_secs(60);

/// What the API server has answered.
#[derive(Default)]
pub(super) struct FieldChecks {
    /// The last check of each resource.
    checked: Mutex<HashMap<GroupVersionResource, Check>>,
    /// The names of the refused fields of the resources that have any.
    refused: ArcSwap<HashMap<GroupVersionResource, Vec<String>>>,
}

/// The last check of a resource.
#[derive(Clone)]
struct Check {
    /// The API server's version at that time.
    version: Arc<String>,
    /// When to check again at this version; `None` if the API server has answered.
    retry_at: Option<Instant>,
}

impl FieldChecks {
    /// Returns `fields` of `gvr`, and marks the fields that the API server has refused.
    pub(super) fn apply(
        &self,
        gvr: &GroupVersionResource,
        fields: Arc<SelectableFields>,
    ) -> Arc<SelectableFields> {
        let refused = self.refused.load();
        let Some(refused) = refused.get(gvr) else {
            return fields;
        };
        let mut fields = SelectableFields::clone(&fields);
        fields.refused.extend_from_slice(refused);
        Arc::new(fields)
    }

    /// Asks about the fields of the resource of `informer`, unless that was done at the `version`
    /// of the API server.
    pub(super) async fn check(&self, client: &Client, informer: &Informer, version: &Arc<String>) {
        let gvr = &informer.resource().gvr;
        if !self.is_due(gvr, version, Instant::now()) {
            return;
        }
        let path = gvr.path(informer.namespace());
        let fields = informer.fields().fields.iter();
        let labels: Vec<_> = fields.map(|field| field.label.as_str()).collect();
        let refused = refused_of(&labels, |selector| {
            // No object has these values, and the API server's cache answers.
            let query = format!("resourceVersion=0&limit=1&fieldSelector={selector}");
            is_accepted(client, format!("{path}?{query}"))
        });
        match refused.await {
            Some(refused) => self.answered(gvr, version, refused),
            None => self.not_answered(gvr, version, Instant::now()),
        }
    }

    fn is_due(&self, gvr: &GroupVersionResource, version: &Arc<String>, now: Instant) -> bool {
        let checked = self.checked.lock();
        let last = checked.get(gvr).filter(|check| check.version == *version);
        last.is_none_or(|check| check.retry_at.is_some_and(|retry_at| now >= retry_at))
    }

    fn not_answered(&self, gvr: &GroupVersionResource, version: &Arc<String>, now: Instant) {
        self.record(gvr, version, Some(now + RETRY_PAUSE));
    }

    fn record(&self, gvr: &GroupVersionResource, version: &Arc<String>, retry_at: Option<Instant>) {
        let check = Check {
            version: Arc::clone(version),
            retry_at,
        };
        self.checked.lock().insert(gvr.clone(), check);
    }

    fn answered(&self, gvr: &GroupVersionResource, version: &Arc<String>, labels: Vec<String>) {
        if !labels.is_empty() {
            tracing::warn!(
                resource = %gvr, %version, fields = labels.join(", "),
                "the API server cannot select by these fields, so selectors with them are forwarded"
            );
        }
        self.record(gvr, version, None);
        self.refused.rcu(|refused| {
            let mut refused = HashMap::clone(refused);
            if labels.is_empty() {
                refused.remove(gvr)
            } else {
                refused.insert(gvr.clone(), labels.clone())
            };
            refused
        });
    }
}

/// Returns the fields of `labels` that the API server refuses, or `None` if there was no clear
/// answer. The first call of `ask` has all fields in one selector. Only if that is refused, each
/// field is asked about separately. `ask` returns whether a selector is accepted.
async fn refused_of<F: Future<Output = Option<bool>>>(
    labels: &[&str],
    ask: impl Fn(String) -> F,
) -> Option<Vec<String>> {
    let all: Vec<_> = labels.iter().map(|label| format!("{label}%3D-")).collect();
    let mut refused = Vec::new();
    if all.is_empty() || ask(all.join("%2C")).await? {
        return Some(refused);
    }
    for (label, selector) in labels.iter().zip(all) {
        if !ask(selector).await? {
            refused.push((*label).to_owned());
        }
    }
    Some(refused)
}

/// Returns whether the API server accepts the selector of the LIST `path`, or `None` if there was
/// no clear answer.
async fn is_accepted(client: &Client, path: String) -> Option<bool> {
    match client.get_json::<IgnoredAny>(&path).await {
        Ok(_) => Some(true),
        Err(Error::Answer { status, .. }) if status.code == 400 => Some(false),
        Err(error) => {
            tracing::debug!(%error, path, "it is not known whether the API server has a field");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;
    use crate::api::Resource;

    fn nodes() -> (GroupVersionResource, Arc<SelectableFields>) {
        let gvr = GroupVersionResource::new("", "v1", "nodes");
        let resource = Resource {
            gvr: gvr.clone(),
            kind: "Node".to_owned(),
            singular: String::new(),
            short_names: Vec::new(),
            namespaced: false,
            verbs: Vec::new(),
        };
        let fields = SelectableFields::for_resource(&resource, Some(37));
        (gvr, Arc::new(fields))
    }

    #[test]
    fn a_field_that_the_api_server_refuses_is_not_selectable_until_another_version_accepts_it() {
        let (gvr, fields) = nodes();
        let checks = FieldChecks::default();
        let is_selectable = || {
            let applied = checks.apply(&gvr, Arc::clone(&fields));
            assert!(applied.equals_unless_refused(&fields));
            applied.resolve("spec.unschedulable").is_ok()
        };
        let [old, new] = ["v1.37.0", "v1.37.1"].map(|version| Arc::new(version.to_owned()));
        assert!(is_selectable());
        checks.answered(&gvr, &old, vec!["spec.unschedulable".to_owned()]);
        assert!(!is_selectable());
        let other = GroupVersionResource::new("", "v1", "pods");
        let unchanged = checks.apply(&other, Arc::clone(&fields));
        assert!(Arc::ptr_eq(&unchanged, &fields));
        checks.answered(&gvr, &new, Vec::new());
        assert!(is_selectable());
    }

    #[tokio::test]
    async fn fields_are_asked_about_singly_only_if_one_is_refused() {
        let all = "a%3D-%2Cb%3D-%2Cc%3D-";
        let singly = [all, "a%3D-", "b%3D-", "c%3D-"];
        // Each row: the field that the API server refuses, whether it answers, what is found, and
        // the selectors that it is asked about.
        for (refuses, answers, expected, selectors) in [
            ("x", true, Some(vec![]), &[all][..]),
            ("b", true, Some(vec!["b".to_owned()]), &singly),
            ("b", false, None, &[all]),
        ] {
            let asked = RefCell::new(Vec::new());
            let ask = async |selector: String| {
                let is_refused = selector.contains(refuses);
                asked.borrow_mut().push(selector);
                answers.then_some(!is_refused)
            };
            let found = refused_of(&["a", "b", "c"], ask).await;
            assert_eq!(found, expected, "{refuses}");
            assert_eq!(asked.into_inner(), selectors, "{refuses}");
        }
        let none = refused_of(&[], async |_| None).await;
        assert_eq!(none, Some(Vec::new()));
    }

    #[tokio::test(start_paused = true)]
    async fn each_resource_is_checked_once_at_each_version_and_again_without_an_answer() {
        let (gvr, _) = nodes();
        let checks = FieldChecks::default();
        let [old, new] = ["v1.37.0", "v1.37.1"].map(|version| Arc::new(version.to_owned()));
        let now = Instant::now();
        assert!(checks.is_due(&gvr, &old, now));
        checks.not_answered(&gvr, &old, now);
        assert!(!checks.is_due(&gvr, &old, now));
        assert!(checks.is_due(&gvr, &old, now + RETRY_PAUSE));
        checks.answered(&gvr, &old, Vec::new());
        assert!(!checks.is_due(&gvr, &old, now + 100 * RETRY_PAUSE));
        assert!(checks.is_due(&gvr, &new, now));
    }
}
