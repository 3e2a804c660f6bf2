//! The informers that readiness waits for.

use std::time::Duration;

use crate::api::GroupVersionResource;
use crate::api::WireFormat;
use crate::informer::InformerSpec;
use crate::informer::ObjectContent;

use super::InformerSet;
use super::Key;
use super::StartError;

/// Whether readiness waits for a required informer that the API server refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requirement {
    /// The configuration names the resource: kubefan is not ready unless the informer is ready, or
    /// its wire format is not served.
    Named,
    /// The resource is required as one of all resources: kubefan waits for the informer until it
    /// was ready once, or until the API server refused it.
    IfAllowed,
}

pub(super) struct RequiredInformer {
    key: Key,
    requirement: Requirement,
    /// True once the informer was ready or refused.
    is_settled: bool,
}

// === impl InformerSet ===

impl InformerSet {
    /// Adds the informers of all objects of `spec` that may be cached to those that readiness waits
    /// for; see [`InformerSet::missing`]. Does not start them.
    pub fn require(&self, spec: &InformerSpec, requirement: Requirement) {
        let scopes = spec.settings.scopes().iter();
        let entries = scopes.map(|scope| RequiredInformer {
            key: Key::of(spec, scope, ObjectContent::Whole, None),
            requirement,
            is_settled: false,
        });
        self.inner.required.lock().extend(entries);
    }

    /// All resources and formats that were passed to [`InformerSet::require`], each once.
    pub fn required(&self) -> Vec<(GroupVersionResource, WireFormat)> {
        let required = self.inner.required.lock();
        let keys = required.iter().map(|entry| &entry.key);
        let mut resources: Vec<_> = keys.map(|key| (key.gvr.clone(), key.format)).collect();
        resources.dedup();
        resources
    }

    /// Removes all informers from those that readiness waits for, and stops keeping them running.
    pub fn require_none(&self) {
        let required = std::mem::take(&mut *self.inner.required.lock());
        for entry in required {
            if let Some(informer) = self.inner.informers.get(&entry.key) {
                informer.unpin();
            }
        }
    }

    /// The required informers that readiness still waits for, and all informers whose watch is not
    /// proven alive within [`Config::max_staleness`](crate::informer::Config::max_staleness), each with
    /// the reason.
    pub fn missing(&self) -> Vec<(GroupVersionResource, WireFormat, String)> {
        let mut required = self.inner.required.lock();
        let missing = required.iter_mut().filter_map(|entry| {
            let reason = self.missing_reason(entry)?;
            let reason = match entry.key.scope.to_string() {
                scope if scope.is_empty() => reason,
                scope => format!("{scope}: {reason}"),
            };
            Some((entry.key.gvr.clone(), entry.key.format, reason))
        });
        let missing: Vec<_> = missing.collect();
        missing.into_iter().chain(self.stale()).collect()
    }

    fn stale(&self) -> impl Iterator<Item = (GroupVersionResource, WireFormat, String)> {
        let limit = self
            .inner
            .config
            .load()
            .max_staleness
            .unwrap_or(Duration::MAX);
        self.all().into_iter().filter_map(move |informer| {
            let age = informer.metrics().watch_liveness.age()?;
            let seconds = age.as_secs();
            let reason = || format!("its watch was last proven alive {seconds} s ago");
            let gvr = informer.resource().gvr.clone();
            (age > limit && informer.reader().is_ready())
                .then(|| (gvr, informer.format(), reason()))
        })
    }

    fn missing_reason(&self, entry: &mut RequiredInformer) -> Option<String> {
        let running = self.inner.informers.get(&entry.key);
        if running.is_some_and(|informer| informer.reader().is_ready()) {
            entry.is_settled = true;
            return None;
        }
        let refusal = self.remembered_refusal(&entry.key);
        entry.is_settled |= refusal.is_some();
        match (entry.requirement, refusal) {
            // Some resources have no protobuf: their JSON informer is sufficient.
            (_, Some(StartError::NotAcceptable)) => None,
            (Requirement::IfAllowed, _) if entry.is_settled => None,
            (_, Some(refusal)) => Some(refusal.to_string()),
            (_, None) => Some("not listed yet".to_owned()),
        }
    }
}
