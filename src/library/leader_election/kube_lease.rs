//! KubeLease: a Lease of the API server.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::Api;
use kube::api::PostParams;
use kube::core::ObjectMeta;
use parking_lot::Mutex;

use super::{LeaseRecord, LeaseStore, StoreError, Stored};

/// A `Lease` in `coordination.k8s.io/v1`. It is created if it does not exist. Updates preserve what
/// others wrote into its metadata.
pub struct KubeLease {
    api: Api<Lease>,
    name: String,
    namespace: String,
    /// The Lease as it was last read or written.
    last: Mutex<Option<Lease>>,
}

impl KubeLease {
    /// Returns a store in the Lease `name` in `namespace`.
    pub fn new(
        client: kube::Client,
        namespace: impl Into<String>,
        name: impl Into<String>,
    ) -> Self {
        let namespace = namespace.into();
        Self {
            api: Api::namespaced(client, &namespace),
            name: name.into(),
            namespace,
            last: Mutex::default(),
        }
    }

    /// Remembers `lease`, and returns its record and version.
    fn remember(&self, lease: Lease) -> Stored {
        let stored = Stored {
            record: record(lease.spec.as_ref()),
            version: version(&lease).to_owned(),
        };
        *self.last.lock() = Some(lease);
        stored
    }
}

impl LeaseStore for KubeLease {
    fn name(&self) -> &str {
        &self.name
    }

    async fn get(&self) -> Result<Option<Stored>, StoreError> {
        let lease = self.api.get_opt(&self.name).await;
        let lease = lease.map_err(|error| failure(error, &[]))?;
        Ok(lease.map(|lease| self.remember(lease)))
    }

    async fn create(&self, record: &LeaseRecord) -> Result<Stored, StoreError> {
        let lease = Lease {
            metadata: ObjectMeta {
                name: Some(self.name.clone()),
                namespace: Some(self.namespace.clone()),
                ..ObjectMeta::default()
            },
            spec: Some(spec(record, LeaseSpec::default())),
        };
        let created = self.api.create(&PostParams::default(), &lease).await;
        // 404 means that the namespace does not exist.
        let created = created.map_err(|error| failure(error, &[409]));
        created.map(|lease| self.remember(lease))
    }

    async fn update(&self, record: &LeaseRecord, expected: &str) -> Result<Stored, StoreError> {
        let last = self.last.lock().clone();
        // A candidate updates only the version that it has read. Otherwise it has to
        // read the record again.
        let last = last.filter(|lease| version(lease) == expected);
        let mut lease = last.ok_or(StoreError::Conflict)?;
        lease.spec = Some(spec(record, lease.spec.unwrap_or_default()));
        let params = PostParams::default();
        let replaced = self.api.replace(&self.name, &params, &lease).await;
        // 404 means that the Lease was deleted after it was read.
        let replaced = replaced.map_err(|error| failure(error, &[404, 409]));
        replaced.map(|lease| self.remember(lease))
    }
}

debug_fields!([] KubeLease, |it| namespace: it.namespace, name: it.name);

fn version(lease: &Lease) -> &str {
    let version = lease.metadata.resource_version.as_deref();
    version.unwrap_or_default()
}

/// Converts an error. `conflicts` are the statuses that mean that another candidate was faster.
fn failure(error: kube::Error, conflicts: &[u16]) -> StoreError {
    match error {
        kube::Error::Api(status) if conflicts.contains(&status.code) => StoreError::Conflict,
        error => StoreError::Other(error.into()),
    }
}

fn record(spec: Option<&LeaseSpec>) -> LeaseRecord {
    let spec = spec.cloned().unwrap_or_default();
    let seconds = spec.lease_duration_seconds;
    let seconds = seconds.and_then(|seconds| u64::try_from(seconds).ok());
    LeaseRecord {
        holder: spec.holder_identity.unwrap_or_default(),
        lease_duration: seconds.map(Duration::from_secs),
        acquired_at: spec.acquire_time.map(|time| time.0),
        renewed_at: spec.renew_time.map(|time| time.0),
        transitions: spec.lease_transitions.unwrap_or_default(),
    }
}

/// Replaces the values of `spec` by those of `record`.
fn spec(record: &LeaseRecord, spec: LeaseSpec) -> LeaseSpec {
    let seconds = |duration: Duration| {
        let up = u64::from(duration.subsec_nanos() > 0);
        i32::try_from(duration.as_secs() + up).unwrap_or(i32::MAX)
    };
    LeaseSpec {
        holder_identity: Some(record.holder.clone()),
        lease_duration_seconds: record.lease_duration.map(seconds),
        acquire_time: record.acquired_at.map(MicroTime),
        renew_time: record.renewed_at.map(MicroTime),
        lease_transitions: Some(record.transitions),
        ..spec
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_survives_the_lease() {
        let kept = LeaseSpec {
            strategy: Some("OldestEmulationVersion".to_owned()),
            ..LeaseSpec::default()
        };
        let time = "2026-11-24T01:02:03.000004Z".parse().expect("a time");
        let full = LeaseRecord {
            holder: "a".to_owned(),
            lease_duration: Some(Duration::from_secs(15)),
            acquired_at: Some(time),
            renewed_at: Some(time),
            transitions: 3,
        };
        let written = spec(&full, kept);
        assert_eq!(record(Some(&written)), full);
        assert_eq!(written.strategy.as_deref(), Some("OldestEmulationVersion"));
        let longer = LeaseRecord {
            lease_duration: Some(Duration::from_millis(15_001)),
            ..full
        };
        let seconds = spec(&longer, LeaseSpec::default()).lease_duration_seconds;
        assert_eq!(seconds, Some(16), "rounded up");
        assert_eq!(record(None).holder, "");
    }
}
