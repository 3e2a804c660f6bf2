//! The informers that readiness waits for.

use std::sync::Arc;
use std::time::Duration;

use super::key::Key;
use super::{InformerSet, StartError};
use crate::api::{GroupVersionResource, WireFormat};
use crate::informer::reflector::RefusedLists;
use crate::informer::{Informer, InformerSpec, ObjectContent};

/// Whether readiness waits for a required informer that the API server refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requirement {
    /// The configuration names the resource: kubefan is not ready unless the informer is ready, its
    /// wire format is not served, or it is [left out](InformerSet::left_out).
    Named,
    /// The resource is required as one of all resources: kubefan waits for the informer until it
    /// was ready once, or until the API server refused it, or until it is left out.
    IfAllowed,
}

pub(super) struct RequiredInformer {
    key: Key,
    requirement: Requirement,
    /// True once the informer was ready or refused.
    is_settled: bool,
    /// Why readiness does not wait for the informer, although it is not ready.
    left_out: Option<String>,
}

/// An informer is left out after this many lists in sequence that the API server has answered with
/// errors, in at least this time.
const UNLISTABLE_AFTER: (u32, Duration) = (3, Duration::from_secs(10));

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
            left_out: None,
        });
        self.inner.required.lock().extend(entries);
    }

    /// Returns all resources and formats that were passed to [`InformerSet::require`], each once.
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
            if let Some(informer) = self.running(&entry.key) {
                informer.unpin();
            }
        }
    }

    /// Returns the required informers that readiness still waits for, each with the reason. Also
    /// returns all informers with a watch that was not proven alive within
    /// [`Config::max_staleness`](crate::informer::Config::max_staleness).
    pub fn missing(&self) -> Vec<(GroupVersionResource, WireFormat, String)> {
        // If no resource can be listed, the cause is not one of them.
        let all = self.all();
        let may_leave_out = all.iter().any(|informer| informer.reader().is_ready());
        let mut required = self.inner.required.lock();
        let missing = required.iter_mut().filter_map(|entry| {
            let reason = self.missing_reason(entry, may_leave_out)?;
            Some(entry.because(reason))
        });
        let missing: Vec<_> = missing.collect();
        missing.into_iter().chain(self.stale()).collect()
    }

    /// Returns the required informers that readiness does not wait for, because the API server
    /// lastingly answers their lists with errors, each with its last error. If the conversion of a
    /// custom resource fails, kubefan must still serve the other resources. The result is as of the
    /// last call of [`InformerSet::missing`].
    pub fn left_out(&self) -> Vec<(GroupVersionResource, WireFormat, String)> {
        let required = self.inner.required.lock();
        let left_out = required.iter().filter_map(|entry| {
            let error = entry.left_out.as_ref()?;
            Some(entry.because(format!("left out, because it can't be listed: {error}")))
        });
        left_out.collect()
    }

    fn stale(&self) -> impl Iterator<Item = (GroupVersionResource, WireFormat, String)> {
        let limit = self.inner.config.load().max_staleness;
        let limit = limit.unwrap_or(Duration::MAX);
        self.all().into_iter().filter_map(move |informer| {
            let age = informer.metrics().watch_liveness.age()?;
            let seconds = age.as_secs();
            let reason = || format!("its watch was last proven alive {seconds} s ago");
            let gvr = informer.resource().gvr.clone();
            (age > limit && informer.reader().is_ready())
                .then(|| (gvr, informer.format(), reason()))
        })
    }

    fn missing_reason(&self, entry: &mut RequiredInformer, may_leave_out: bool) -> Option<String> {
        let running = self.running(&entry.key);
        let is_ready = |informer: &Arc<Informer>| informer.reader().is_ready();
        if running.as_ref().is_some_and(is_ready) {
            entry.is_settled = true;
            entry.left_out = None;
            return None;
        }
        let refused = running.and_then(|informer| informer.metrics().refused_lists());
        entry.leave_out_after(refused.filter(|_| may_leave_out));
        let refusal = self.remembered_refusal(&entry.key);
        entry.is_settled |= refusal.is_some() || entry.left_out.is_some();
        match (entry.requirement, refusal) {
            // Some resources have no protobuf: their JSON informer is sufficient.
            (_, Some(StartError::NotAcceptable)) => None,
            (Requirement::IfAllowed, _) if entry.is_settled => None,
            (_, None) if entry.left_out.is_some() => None,
            (_, Some(refusal)) => Some(refusal.to_string()),
            (_, None) => Some("not listed yet".to_owned()),
        }
    }
}

// === impl RequiredInformer ===

impl RequiredInformer {
    /// Leaves the informer out if its lists were `refused` lastingly.
    fn leave_out_after(&mut self, refused: Option<RefusedLists>) {
        let (count, time) = UNLISTABLE_AFTER;
        let error = refused
            .as_ref()
            .and_then(|lists| lists.lasting(count, time));
        if let (None, Some(error)) = (&self.left_out, error) {
            tracing::warn!(
                resource = %self.key.gvr,
                format = self.key.format.name(),
                error,
                "the API server can't list a required resource: it is left out until it can be listed"
            );
        }
        self.left_out = error.map(str::to_owned);
    }

    /// Returns the informer with `reason`, to be shown to people.
    fn because(&self, reason: String) -> (GroupVersionResource, WireFormat, String) {
        let reason = match self.key.scope.to_string() {
            scope if scope.is_empty() => reason,
            scope => format!("{scope}: {reason}"),
        };
        (self.key.gvr.clone(), self.key.format, reason)
    }
}
