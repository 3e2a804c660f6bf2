//! The record of a Lease, and where it is stored.

use std::future::Future;
use std::time::Duration;

use jiff::Timestamp;

/// What a Lease says about its leader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseRecord {
    /// The identity of the leader; empty if there is none.
    pub holder: String,
    /// How long the Lease is valid after a renewal. `None` if the Lease has no duration.
    pub lease_duration: Option<Duration>,
    /// When the leader took the Lease, by its own clock. For people only.
    pub acquired_at: Option<Timestamp>,
    /// When the leader renewed the Lease last, by its own clock. For people only.
    pub renewed_at: Option<Timestamp>,
    /// How often the leader has changed.
    pub transitions: i32,
}

/// A record as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// The record.
    pub record: LeaseRecord,
    /// The version of the record. Each change gives the record another version.
    pub version: String,
}

/// Why a store did not read or write the record.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The record to create already exists, or the record to update has another version.
    /// Nothing was changed.
    #[error("the lease was changed by another candidate")]
    Conflict,
    /// Any other failure. The record may or may not have been changed.
    #[error("the lease cannot be read or written")]
    Other(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// Where the record of an election is stored: [`KubeLease`](super::KubeLease), or another place
/// with equal atomicity.
pub trait LeaseStore: Send + Sync + 'static {
    /// Returns the name of the election in metrics. Default is `leader-election`.
    fn name(&self) -> &str {
        "leader-election"
    }

    /// Reads the record; `None` if there is none.
    ///
    /// # Errors
    ///
    /// If the store cannot find out whether there is a record.
    fn get(&self) -> impl Future<Output = Result<Option<Stored>, StoreError>> + Send;

    /// Writes the first record.
    ///
    /// # Errors
    ///
    /// [`StoreError::Conflict`] if there is a record already.
    fn create(
        &self,
        record: &LeaseRecord,
    ) -> impl Future<Output = Result<Stored, StoreError>> + Send;

    /// Replaces the record of this version.
    ///
    /// # Errors
    ///
    /// [`StoreError::Conflict`] if the record has another version.
    fn update(
        &self,
        record: &LeaseRecord,
        version: &str,
    ) -> impl Future<Output = Result<Stored, StoreError>> + Send;
}
