//! Sources: turn the changes of an informer into requests.

use std::collections::BTreeSet;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use kube::Resource;
use kubefan_core::api;
use serde::de::DeserializeOwned;

use super::owner_reference::group_of;
use super::{Error, Predicate, Request, owner_reference};
use crate::shared_informer::{Change, SharedInformer};
use crate::work_queue::{AddOptions, WorkQueue};

/// The priority of requests for the objects of the first list and of a resync. All other requests
/// have priority 0. A request that is requeued has its old priority.
pub const LOW_PRIORITY: i32 = -100;

/// The changes of one resource that a controller watches.
pub(super) trait Source: Send {
    /// Returns the resource, for messages.
    fn resource(&self) -> String;

    /// Waits for a complete list. Returns false if the informer has ended. Cancel safe.
    fn synced(&self) -> Pin<Box<dyn Future<Output = bool> + Send>>;

    /// Adds requests to `queue` until the informer ends or a function of the program panics. Returns
    /// this as the error of `controller`.
    fn pump(
        self: Box<Self>,
        controller: String,
        queue: WorkQueue<Request>,
    ) -> Pin<Box<dyn Future<Output = Error> + Send>>;
}

/// Returns the requests for a changed object of type `K`.
pub(super) type Mapping<K> = Arc<dyn Fn(&K) -> Vec<Request> + Send + Sync>;

/// A shared informer as a source.
pub(super) struct InformerSource<K> {
    pub(super) informer: SharedInformer<K>,
    pub(super) predicate: Option<Predicate<K>>,
    pub(super) mapping: Mapping<K>,
    /// The changes that end the backoff of the requests that they cause.
    pub(super) mends: Option<Predicate<K>>,
    pub(super) resync: Option<Duration>,
}

impl<K> Source for InformerSource<K>
where
    K: Resource + DeserializeOwned + Send + Sync + 'static,
{
    fn resource(&self) -> String {
        self.informer.resource().gvr.group_resource()
    }

    fn synced(&self) -> Pin<Box<dyn Future<Output = bool> + Send>> {
        let informer = self.informer.clone();
        Box::pin(async move { informer.synced().await })
    }

    fn pump(
        self: Box<Self>,
        controller: String,
        queue: WorkQueue<Request>,
    ) -> Pin<Box<dyn Future<Output = Error> + Send>> {
        let resource = self.resource();
        let pump = async move {
            let mut changes = self.informer.changes();
            if let Some(interval) = self.resync {
                changes = changes.with_resync(interval);
            }
            while let Some(change) = changes.next().await {
                self.request(&change, &queue);
            }
        };
        Box::pin(AssertUnwindSafe(pump).catch_unwind().map(|end| match end {
            Ok(()) => Error::InformerEnded {
                controller,
                resource,
            },
            Err(_panic) => Error::WatchPanicked {
                controller,
                resource,
            },
        }))
    }
}

impl<K: Resource + 'static> InformerSource<K> {
    /// Adds the requests of one change.
    fn request(&self, change: &Change<K>, queue: &WorkQueue<Request>) {
        let (old, new): (Option<&K>, Option<&K>) = match change {
            Change::Added { object, .. } => (None, Some(object)),
            Change::Updated { old, new } => (Some(old), Some(new)),
            Change::Deleted(deleted) => (Some(&deleted.object), None),
        };
        let accepts = |predicate: &Predicate<K>| predicate.accepts(old, new);
        if !self.predicate.as_ref().is_none_or(accepts) {
            return;
        }
        let mends = self.mends.as_ref().is_some_and(accepts);
        // For an object that moved from one owner to another, both owners are requested.
        let requests: BTreeSet<Request> = [old, new]
            .into_iter()
            .flatten()
            .flat_map(|object| (self.mapping)(object))
            .collect();
        let options = AddOptions {
            priority: priority(change),
            ..AddOptions::default()
        };
        for request in requests {
            if mends {
                queue.forget(&request);
            }
            queue.add_with(request, options);
        }
    }
}

/// Returns the priority of the requests of a change.
fn priority<K: Resource>(change: &Change<K>) -> i32 {
    let is_old = match change {
        Change::Added {
            is_initial_list, ..
        } => *is_initial_list,
        Change::Updated { old, new } => old.meta().resource_version == new.meta().resource_version,
        Change::Deleted(_) => false,
    };
    if is_old { LOW_PRIORITY } else { 0 }
}

/// Returns the request for a primary object itself.
pub(super) fn itself<K: Resource>(object: &K) -> Vec<Request> {
    Request::of(object.meta()).into_iter().collect()
}

/// Returns the request for the controller that owns `object`, if it is of the resource `primary`.
pub(super) fn controller_of<K: Resource>(object: &K, primary: &api::Resource) -> Vec<Request> {
    let metadata = object.meta();
    let owner = owner_reference::controller_of(metadata).filter(|owner| {
        group_of(&owner.api_version) == primary.gvr.group && owner.kind == primary.kind
    });
    let request = owner.map(|owner| Request {
        namespace: metadata.namespace.clone().filter(|_| primary.namespaced),
        name: owner.name.clone(),
    });
    request.into_iter().collect()
}

/// Accepts the changes of a primary object that may end a failure: the object was added or deleted,
/// its desired state or labels changed, or its deletion was requested. Accepts each change of an
/// object without a generation.
pub(super) fn may_mend<K: Resource + 'static>() -> Predicate<K> {
    Predicate::new(|old: Option<&K>, new: Option<&K>| {
        let (Some(old), Some(new)) = (old, new) else {
            return true;
        };
        let (old, new) = (old.meta(), new.meta());
        match new.generation {
            Some(_) => {
                old.generation != new.generation
                    || old.labels != new.labels
                    || old.deletion_timestamp.is_some() != new.deletion_timestamp.is_some()
            }
            None => old.resource_version != new.resource_version,
        }
    })
}
