//! Hooks: functions of a program that informers call.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use serde_json::{Map, Value};

use super::{Cause, Error};
use crate::api::{Object, ObjectValues, Resource};

/// The members of `metadata` that a transform cannot change.
const IDENTITY: [&str; 4] = ["name", "namespace", "uid", "resourceVersion"];

type TransformFunction = dyn Fn(&Resource, &mut Value) + Send + Sync;
type OnFailure = dyn Fn(&Failure<'_>) + Send + Sync;

/// Functions of a program that informers call. Default is none. Clones share the functions.
#[derive(Clone, Default)]
pub struct Hooks {
    transform: Option<Transform>,
    on_failure: Option<Arc<OnFailure>>,
}

#[derive(Clone)]
struct Transform {
    id: TransformId,
    function: Arc<TransformFunction>,
}

/// Identifies a transform in this process.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TransformId(u64);

/// A failed list or watch of an informer, which tries again or ends.
#[derive(Debug)]
pub struct Failure<'a> {
    /// The resource of the informer.
    pub resource: &'a Resource,
    /// The call that failed: `watch-list`, `list`, `watch`, or `proof`, which is the request for
    /// the current version before a watch is resumed.
    pub during: &'static str,
    /// The error.
    pub error: &'a Error,
}

/// The hooks of one informer. Clones share its failure handlers.
#[derive(Clone)]
pub(super) struct ResourceHooks {
    /// The hooks of the set. If the informer has its own transform, it replaces the set's.
    hooks: Hooks,
    resource: Arc<Resource>,
    /// The failure handlers of the informer's users, as long as these exist.
    handlers: Arc<Mutex<Vec<Weak<OnFailure>>>>,
}

// === impl Hooks ===

impl Hooks {
    /// Calls `transform` with each object that is received as JSON before it is stored. So a
    /// program can remove what it does not read, such as `metadata.managedFields`.
    ///
    /// It must be a pure function, because an object that is received again must lead to equal
    /// bytes. It cannot change `metadata.name`, `namespace`, `uid` and `resourceVersion`, and
    /// selectors see the labels and fields that the API server sent. If it panics, or leaves no
    /// JSON object, the object is stored as it was received, and
    /// [`ReflectorMetrics::transform_failures`](super::ReflectorMetrics::transform_failures) counts
    /// the failure: a larger cache is better than a cache without the object.
    #[must_use]
    pub fn with_transform(
        mut self,
        transform: impl Fn(&Resource, &mut Value) + Send + Sync + 'static,
    ) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        self.transform = Some(Transform {
            id: TransformId(NEXT.fetch_add(1, Ordering::Relaxed)),
            function: Arc::new(transform),
        });
        self
    }

    /// Calls `function` when a list or watch has failed, from the informer's task. It is not called
    /// when the API server ends a watch as planned. A panic of `function` is logged.
    #[must_use]
    pub fn with_failure_handler(
        mut self,
        function: impl Fn(&Failure<'_>) + Send + Sync + 'static,
    ) -> Self {
        self.on_failure = Some(Arc::new(function));
        self
    }

    /// Returns the ID of the transform, if there is one. Clones share the transform.
    #[doc(hidden)]
    pub fn transform_id(&self) -> Option<TransformId> {
        self.transform.as_ref().map(|transform| transform.id)
    }

    /// Returns these hooks without those that `common` has too.
    pub(super) fn without(&self, common: &Self) -> Self {
        let mut own = self.clone();
        if own.transform_id() == common.transform_id() {
            own.transform = None;
        }
        if let (Some(handler), Some(known)) = (&own.on_failure, &common.on_failure)
            && std::ptr::addr_eq(Arc::as_ptr(handler), Arc::as_ptr(known))
        {
            own.on_failure = None;
        }
        own
    }

    pub(super) fn of(&self, resource: &Arc<Resource>) -> ResourceHooks {
        ResourceHooks {
            hooks: self.clone(),
            resource: Arc::clone(resource),
            handlers: Arc::default(),
        }
    }

    /// Returns these hooks for an informer with the additional hooks `own`. If `own` has a
    /// transform, it replaces the transform of these hooks.
    pub(super) fn for_informer(&self, own: &Self, resource: &Arc<Resource>) -> ResourceHooks {
        let mut hooks = self.clone();
        hooks.transform = own.transform.clone().or(hooks.transform);
        let hooks = hooks.of(resource);
        hooks.add_failure_handler(own);
        hooks
    }
}

impl fmt::Debug for Hooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hooks")
            .field("transform", &self.transform.is_some())
            .field("on_failure", &self.on_failure.is_some())
            .finish()
    }
}

// === impl ResourceHooks ===

impl ResourceHooks {
    /// Adds the failure handler of `own`. It is called as long as `own` or a clone exists.
    pub(super) fn add_failure_handler(&self, own: &Hooks) {
        let Some(handler) = &own.on_failure else {
            return;
        };
        let mut handlers = self.handlers.lock();
        handlers.retain(|known| known.strong_count() > 0);
        let is_known = |known: &Weak<_>| std::ptr::addr_eq(known.as_ptr(), Arc::as_ptr(handler));
        if !handlers.iter().any(is_known) {
            handlers.push(Arc::downgrade(handler));
        }
    }

    /// Returns true if objects are stored otherwise than they were received.
    pub(super) fn has_transform(&self) -> bool {
        self.hooks.transform.is_some()
    }

    /// Returns the object to store. If the transform failed, returns `object`
    /// unchanged, as the error.
    pub(super) fn transform(&self, object: Object) -> Result<Object, Object> {
        let Some(transform) = &self.hooks.transform else {
            return Ok(object);
        };
        transformed(&object, |value| (transform.function)(&self.resource, value)).ok_or(object)
    }

    pub(super) fn failed(&self, during: &'static str, error: &Error) {
        if matches!(error.cause(), Cause::EndOfStream | Cause::RelistRequested) {
            return;
        }
        let failure = Failure {
            resource: &self.resource,
            during,
            error,
        };
        // The handlers are called without the lock, so that they may start informers.
        let handlers = self.handlers.lock().clone();
        let handlers = handlers.iter().filter_map(Weak::upgrade);
        for handler in self.hooks.on_failure.iter().cloned().chain(handlers) {
            if catch_unwind(AssertUnwindSafe(|| handler(&failure))).is_err() {
                tracing::error!("a failure handler has panicked");
            }
        }
    }
}

/// Returns `object` with the body that `transform` makes of it, or `None` if the transform fails.
fn transformed(object: &Object, transform: impl Fn(&mut Value)) -> Option<Object> {
    // The body of a built-in kind lacks the opening brace, see `Object`.
    let is_whole = object.body.first() == Some(&b'{');
    let mut value: Value = object.decode_json().ok()?;
    let identity = IDENTITY.map(|name| value["metadata"].get(name).cloned());
    catch_unwind(AssertUnwindSafe(|| transform(&mut value))).ok()?;
    let members = value.as_object_mut()?;
    let metadata = members.entry("metadata");
    let metadata = metadata.or_insert_with(|| Map::new().into());
    let metadata = metadata.as_object_mut()?;
    for (name, known) in IDENTITY.into_iter().zip(identity) {
        match known {
            Some(known) => drop(metadata.insert(name.to_owned(), known)),
            None => drop(metadata.shift_remove(name)),
        }
    }
    let mut body = serde_json::to_vec(&value).ok()?;
    if !is_whole {
        body.remove(0);
    }
    let values = ObjectValues {
        uid: object.uid().into(),
        labels: object
            .labels()
            .map(|(key, value)| (key.into(), value.into()))
            .collect(),
        fields: object.fields().map(Into::into).collect(),
    };
    let (key, version) = (object.key.clone(), object.resource_version);
    Some(Object::new(key, version, &values, body.into()))
}
