//! Turns the entries of `cache.resources` that have keys into the rules of the informers.

use kubefan_core::api::{LabelSelector, RawFieldSelector, is_dns_label};
use kubefan_core::informer::{ResourceRule, ResourceRules};

use super::checker::Checker;
use super::expansion::{Lookup, expand};
use crate::config::values::cached_resource::{CachedResource, RuleSettings};

const RESOURCES: &str = "cache.resources";
/// The longest name of a namespace.
const MAX_NAMESPACE: usize = 63;
const NEVER: &str = "cache.never";

impl Checker<'_> {
    /// Returns the rules of all resources. Reports the mistakes in them that can be found without
    /// the API server.
    pub(super) fn rules(&mut self, variable: Lookup<'_>) -> ResourceRules {
        let cache = &self.settings.cache;
        let mut rules = Vec::new();
        for (index, entry) in cache.resources.iter().enumerate() {
            let name = entry.name();
            let is_same = |other: &str| other.eq_ignore_ascii_case(name);
            let mut before = cache.resources[..index].iter();
            if before.any(|other| is_same(other.name())) {
                self.report_in(RESOURCES, (index, None), &format!("{name} is given twice"));
            }
            if cache.never.iter().any(|never| is_same(never)) {
                let other = self.sources.name(NEVER, RESOURCES);
                let message = format!("{name} is never cached according to {other}");
                self.report_in(RESOURCES, (index, None), &message);
            }
            if let CachedResource::Rule(rule) = entry {
                rules.push(self.rule(index, rule, variable));
            }
        }
        ResourceRules {
            never: cache.never.clone(),
            strip_managed_fields: cache.strip_managed_fields,
            rules,
        }
    }

    fn rule(&mut self, index: usize, rule: &RuleSettings, variable: Lookup<'_>) -> ResourceRule {
        let mut expanded = |key: &str, text: &str| {
            let expanded = expand(text, variable);
            expanded.unwrap_or_else(|message| {
                self.report_in(RESOURCES, (index, Some(key)), &message);
                String::new()
            })
        };
        let namespaces = rule.namespaces.iter();
        let namespaces: Vec<_> = namespaces
            .map(|namespace| expanded("namespaces", namespace))
            .collect();
        let label_selector = rule.label_selector.as_deref().unwrap_or_default();
        let label_selector = expanded("labelSelector", label_selector);
        let field_selector = rule.field_selector.as_deref().unwrap_or_default();
        let field_selector = expanded("fieldSelector", field_selector);
        let mut malformed = |key: &str, message: &str| {
            self.report_in(RESOURCES, (index, Some(key)), message);
        };
        for message in mistakes_in_namespaces(&namespaces) {
            malformed("namespaces", &message);
        }
        let labels = LabelSelector::parse(&label_selector)
            .map_err(|error| malformed("labelSelector", &error.to_string()));
        let fields = RawFieldSelector::parse(&field_selector)
            .map_err(|error| malformed("fieldSelector", &error.to_string()));
        let freshness = rule.freshness.as_ref();
        if freshness.is_some_and(|freshness| freshness.resource.is_some()) {
            malformed("freshness", "leave out the resource, as in bounded:5s");
        }
        ResourceRule {
            resource: rule.resource.clone(),
            namespaces,
            labels: labels.unwrap_or_default(),
            fields: fields.unwrap_or_default(),
            freshness: freshness.map(|freshness| freshness.policy),
            retention_age: rule.retention_age.map(|period| period.0),
            retention_bytes: rule.retention_bytes.map(|size| size.0),
            strip_managed_fields: rule.strip_managed_fields,
        }
    }
}

/// Returns what is wrong with the names of namespaces: one message for empty names, and one for the
/// first other name that no namespace can have.
fn mistakes_in_namespaces(names: &[String]) -> Vec<String> {
    let (empty, others): (Vec<_>, Vec<_>) = names.iter().partition(|name| name.trim().is_empty());
    let empty = empty
        .first()
        .map(|_| "a namespace is empty; without any, all are cached".to_owned());
    let mut others = others.into_iter();
    let wrong = others.find(|name| name.len() > MAX_NAMESPACE || !is_dns_label(name));
    let wrong =
        wrong.map(|name| format!("{name:?} is not the name of a namespace, such as kube-system"));
    empty.into_iter().chain(wrong).collect()
}
