//! A store in memory that a test scripts.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::leader_election::{LeaseRecord, LeaseStore, StoreError, Stored};

#[derive(Clone, Default)]
pub(crate) struct FakeStore(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    record: Option<LeaseRecord>,
    version: u64,
    delay: Duration,
    is_down: bool,
    /// Updates that are answered with a conflict although there is none.
    conflicts: usize,
    calls: Vec<(&'static str, Instant)>,
}

impl FakeStore {
    pub(crate) fn record(&self) -> Option<LeaseRecord> {
        self.0.lock().record.clone()
    }

    /// Changes the record, as another client of the API server does.
    pub(crate) fn put(&self, record: Option<LeaseRecord>) {
        let mut state = self.0.lock();
        state.version += 1;
        state.record = record;
    }

    /// Answers each call after `delay` from now on.
    pub(crate) fn delay(&self, delay: Duration) {
        self.0.lock().delay = delay;
    }

    /// Answers no call while `is_down` is true.
    pub(crate) fn set_down(&self, is_down: bool) {
        self.0.lock().is_down = is_down;
    }

    pub(crate) fn conflict_next(&self, updates: usize) {
        self.0.lock().conflicts = updates;
    }

    /// Returns the calls so far, with their times.
    pub(crate) fn calls(&self) -> Vec<(&'static str, Instant)> {
        self.0.lock().calls.clone()
    }

    async fn answer<T>(
        &self,
        call: &'static str,
        apply: impl FnOnce(&mut State) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let delay = {
            let mut state = self.0.lock();
            state.calls.push((call, Instant::now()));
            state.delay
        };
        tokio::time::sleep(delay).await;
        let mut state = self.0.lock();
        if state.is_down {
            return Err(StoreError::Other("the store is down".into()));
        }
        apply(&mut state)
    }
}

impl State {
    fn stored(&self) -> Option<Stored> {
        let version = self.version.to_string();
        let record = self.record.clone()?;
        Some(Stored { record, version })
    }

    fn write(&mut self, record: &LeaseRecord) -> Stored {
        self.version += 1;
        self.record = Some(record.clone());
        let version = self.version.to_string();
        let record = record.clone();
        Stored { record, version }
    }
}

impl LeaseStore for FakeStore {
    async fn get(&self) -> Result<Option<Stored>, StoreError> {
        self.answer("get", |state| Ok(state.stored())).await
    }

    async fn create(&self, record: &LeaseRecord) -> Result<Stored, StoreError> {
        self.answer("create", |state| match state.record {
            Some(_) => Err(StoreError::Conflict),
            None => Ok(state.write(record)),
        })
        .await
    }

    async fn update(&self, record: &LeaseRecord, version: &str) -> Result<Stored, StoreError> {
        self.answer("update", |state| {
            let has_conflict = state.conflicts > 0;
            state.conflicts = state.conflicts.saturating_sub(1);
            if has_conflict || state.record.is_none() || state.version.to_string() != version {
                return Err(StoreError::Conflict);
            }
            Ok(state.write(record))
        })
        .await
    }
}
