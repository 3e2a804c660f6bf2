//! Sources: the parts of kubefan that the pages read.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use kubefan_core::api::{GroupVersionResource, Status};
use kubefan_core::cache::Stats;
use kubefan_core::informer::Informer;
use parking_lot::Mutex;

use super::effective_setting::EffectiveSetting;
use crate::bill::Bill;
use crate::ledger::{Ledger, available_memory};
use crate::server::startup::{Started, Startup, Waiting};

/// The parts of kubefan that the pages read.
pub(super) struct Sources {
    startup: Startup,
    pub(super) ledger: Ledger,
    /// `None` if nothing is counted for the bill.
    pub(super) bill: Option<Arc<Bill>>,
    /// The memory that the process may use, in bytes.
    pub(super) available_bytes: u64,
    /// `None` before the program has passed the settings, or if it has none.
    settings: Mutex<Option<Vec<EffectiveSetting>>>,
    /// Numbers users. It has a random key, so numbers of two processes can't be compared.
    numbers: RandomState,
}

/// A cache, and its numbers at one time.
pub(super) struct ReadCache {
    pub(super) informer: Arc<Informer>,
    pub(super) stats: Stats,
}

impl Sources {
    pub(super) fn new(startup: Startup, ledger: Ledger, bill: Option<Arc<Bill>>) -> Self {
        Self {
            startup,
            ledger,
            bill,
            available_bytes: available_memory(),
            settings: Mutex::default(),
            numbers: RandomState::new(),
        }
    }

    /// Returns what there is once the API server has answered.
    ///
    /// # Errors
    /// A 503 if it has not answered yet.
    pub(super) fn started(&self) -> Result<&Started, Status> {
        self.startup.started().ok_or_else(|| {
            let Waiting { what, .. } = self.startup.waiting();
            Status::unreachable(format!("kubefan is starting: waiting for {what}"))
        })
    }

    /// Reads the numbers of all caches, which takes locks of each.
    ///
    /// # Errors
    /// As [`Sources::started`].
    pub(super) fn read_caches(&self) -> Result<Vec<ReadCache>, Status> {
        let informers = self.started()?.server.inner.caches.informers.all();
        let caches = informers.into_iter().map(|informer| ReadCache {
            stats: informer.reader().stats(),
            informer,
        });
        Ok(caches.collect())
    }

    /// Returns the bill.
    ///
    /// # Errors
    /// A 404 if nothing is counted.
    pub(super) fn bill(&self) -> Result<&Bill, Status> {
        self.bill.as_deref().ok_or_else(|| {
            let message = "not found: the bill is off (--bill=false)";
            Status::failure(404, "NotFound", message)
        })
    }

    /// Returns the resources with caches that serve sessions. Advice depends on them.
    pub(super) fn session_resources(&self) -> Vec<GroupVersionResource> {
        let started = self.startup.started();
        let informers = started.map(|started| started.server.inner.caches.informers.all());
        let informers = informers.into_iter().flatten();
        let of_sessions = informers.filter(|informer| informer.serves_sessions());
        of_sessions
            .map(|informer| informer.resource().gvr.clone())
            .collect()
    }

    /// Returns the settings that are in use, if the program has passed them.
    pub(super) fn settings(&self) -> Option<Vec<EffectiveSetting>> {
        self.settings.lock().clone()
    }

    pub(super) fn show_settings(&self, settings: Vec<EffectiveSetting>) {
        *self.settings.lock() = Some(settings);
    }

    /// Returns the number of the user with this name. It is the same as long as the process runs,
    /// and says nothing about the name. It has 53 bits, the most of a number in JavaScript: so two of
    /// 10,000 users have the same number with a probability of less than 1 in 100 million.
    pub(super) fn number_of(&self, user: &str) -> u64 {
        self.numbers.hash_one(user) >> 11
    }
}
