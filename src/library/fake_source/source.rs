//! FakeSource: a test's handle to script the API server.

use std::sync::Arc;

use kubefan_core::api::{
    ListPage, Object, ObjectKey, ResourceVersion, SelectableFields, Status, WireFormat,
};
use kubefan_core::codec::Decoder;
use kubefan_core::upstream;
use kubefan_core::upstream::{ListCall, ListerWatcher, WatchCall};
use parking_lot::Mutex;
use serde::Serialize;
use tokio::sync::Notify;

use super::error::Error;
use super::state::{Ending, Request, Shared, State, answer};
use super::watch::FakeWatch;
use crate::work_queue::until_some;

/// A programmable API server with one resource; see the [module's documentation](super). Clones are
/// handles of one source.
#[derive(Clone)]
pub struct FakeSource(Arc<Shared>);

// === impl FakeSource ===

impl FakeSource {
    /// Creates a source without objects, at resource version 1.
    pub fn new() -> Self {
        Self::with_selectable_fields(SelectableFields::default())
    }

    /// Creates a source like [`FakeSource::new`], but its objects have these selectable fields.
    pub fn with_selectable_fields(fields: SelectableFields) -> Self {
        let decoder = Decoder::new(WireFormat::Json, Arc::new(fields));
        Self(Arc::new(Shared {
            state: Mutex::new(State::new(decoder)),
            changed: Notify::new(),
        }))
    }

    /// Adds an object, such as a `k8s_openapi` type or a [`serde_json::Value`], at the next
    /// resource version, and returns the version. An object without a `uid` gets one.
    ///
    /// # Errors
    ///
    /// [`Error::AlreadyExists`], or an error if `object` is not an object with a name.
    pub fn add(&self, object: &impl Serialize) -> Result<ResourceVersion, Error> {
        let json = serde_json::to_value(object)?;
        self.change(|state| state.add(json))
    }

    /// Replaces an object at the next resource version, and returns the version. An object without
    /// a `uid` gets the uid of the replaced object.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`], or an error if `object` is not an object with a name.
    pub fn modify(&self, object: &impl Serialize) -> Result<ResourceVersion, Error> {
        let json = serde_json::to_value(object)?;
        self.change(|state| state.modify(json))
    }

    /// Deletes an object at the next resource version, and returns the version.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`].
    pub fn delete(&self, key: &ObjectKey) -> Result<ResourceVersion, Error> {
        self.change(|state| state.delete(key))
    }

    /// Sends a bookmark with the current resource version to all open watches.
    pub fn bookmark(&self) {
        self.change(State::bookmark);
    }

    /// Returns the present objects, ordered by key.
    pub fn objects(&self) -> Vec<Object> {
        self.0.state.lock().objects().cloned().collect()
    }

    /// Returns the current resource version.
    pub fn resource_version(&self) -> ResourceVersion {
        self.0.state.lock().version()
    }

    /// Ends all open watches without an error, as the API server does after their timeout.
    pub fn end_watches(&self) {
        self.change(|state| state.end_watches(Ending::Clean));
    }

    /// Ends all open watches with an error, as a broken connection does.
    pub fn break_watches(&self) {
        self.change(|state| state.end_watches(Ending::Broken));
    }

    /// Forgets the history, as a compaction does, and ends all open watches with 410. Watches from
    /// older versions, and the next pages of lists, get 410 too.
    pub fn expire(&self) {
        self.change(|state| {
            state.forget_history();
            state.end_watches(Ending::Expired);
        });
    }

    /// Answers all calls with `status` until [`FakeSource::recover`]. Open watches continue.
    pub fn fail(&self, status: Status) {
        self.change(|state| state.failure = Some(status));
    }

    /// Answers calls again after [`FakeSource::fail`].
    pub fn recover(&self) {
        self.change(|state| state.failure = None);
    }

    /// Answers one more call with `error`: the first call after those of earlier errors.
    pub fn fail_next(&self, error: upstream::Error) {
        self.change(|state| state.next_failures.push_back(error));
    }

    /// Answers no call, and delivers no events, until [`FakeSource::release`].
    pub fn hold(&self) {
        self.change(|state| state.is_held = true);
    }

    /// Continues after [`FakeSource::hold`]. Watches deliver the events that they missed since
    /// then, except watches that were ended.
    pub fn release(&self) {
        self.change(|state| state.is_held = false);
    }

    /// Returns the calls received so far, including held and failed ones.
    pub fn requests(&self) -> Vec<Request> {
        self.0.state.lock().requests.clone()
    }

    /// Counts the open watches.
    pub fn watchers(&self) -> usize {
        self.0.state.lock().watchers
    }

    /// Waits until `condition` is true for this source. It is evaluated after each change and each
    /// call. Cancel safe.
    pub async fn until(&self, condition: impl Fn(&Self) -> bool) {
        until_some(&self.0.changed, move || condition(self).then_some(())).await;
    }

    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let result = change(&mut self.0.state.lock());
        self.0.changed.notify_waiters();
        result
    }

    /// Records a call, and answers it as soon as the source is not held.
    async fn call<T>(
        &self,
        request: Request,
        answer_with: impl FnOnce(&mut State) -> Result<T, upstream::Error>,
    ) -> Result<T, upstream::Error> {
        self.change(|state| state.requests.push(request));
        self.until(|source| !source.0.state.lock().is_held).await;
        self.change(|state| {
            if let Some(error) = state.next_failures.pop_front() {
                return Err(error);
            }
            match &state.failure {
                Some(status) => Err(answer(status.clone())),
                None => answer_with(state),
            }
        })
    }
}

impl ListerWatcher for FakeSource {
    type Events = FakeWatch;

    async fn list(&self, request: ListCall) -> Result<ListPage, upstream::Error> {
        self.call(Request::List(request.clone()), |state| state.page(&request))
            .await
    }

    async fn watch(&self, request: WatchCall) -> Result<FakeWatch, upstream::Error> {
        let start = request.start;
        self.call(Request::Watch(request), |state| {
            Ok(FakeWatch::open(Arc::clone(&self.0), state, start))
        })
        .await
    }

    async fn barrier(&self) -> Result<ResourceVersion, upstream::Error> {
        self.call(Request::Barrier, |state| Ok(state.version()))
            .await
    }
}

impl Default for FakeSource {
    fn default() -> Self {
        Self::new()
    }
}

debug_fields!([] FakeSource, |it| resource_version: it.resource_version());
