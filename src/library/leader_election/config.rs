//! The settings of a candidate.

use std::time::Duration;

use super::Metrics;

/// Settings of a [`LeaderElector`](super::LeaderElector). The defaults are those of
/// controller-runtime.
#[derive(Clone, Debug)]
pub struct Config {
    /// The name of this candidate in the Lease. It must be different for each process, even for a
    /// process and its successor. Default is [`unique_identity`].
    pub identity: String,
    /// How long other candidates wait after the last renewal that they saw before they take the
    /// Lease. Parts of a second are rounded up. Default is 15 s.
    pub lease_duration: Duration,
    /// How long the leader leads after it began its last successful renewal. Default is 10 s.
    pub renew_deadline: Duration,
    /// The time between two attempts. Candidates that do not lead add a random time of up to 1.2
    /// times the period, so that they do not all act at once. Default is 2 s.
    pub retry_period: Duration,
    /// The metrics that show whether this candidate leads. Default is `None`.
    pub metrics: Option<Metrics>,
}

/// Why the settings of a candidate are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidConfig {
    /// The identity is empty, but in a Lease an empty identity means that there is no leader.
    #[error("the identity is empty")]
    NoIdentity,
    /// The lease would be taken before its leader stops.
    #[error("the lease duration must be longer than the renew deadline")]
    LeaseTooShort,
    /// A leader would have no second attempt to renew.
    #[error("the renew deadline must be longer than 1.2 times the retry period")]
    DeadlineTooShort,
    /// The API server would get requests without a pause.
    #[error("the retry period must not be zero")]
    NoRetryPeriod,
    /// A Lease cannot express the duration.
    #[error("the lease duration must be at most 2^31 - 1 seconds")]
    LeaseTooLong,
}

impl Config {
    /// The longest random addition to the pause between attempts, as a multiple of the retry
    /// period.
    pub(super) const JITTER: f64 = 1.2;

    /// Returns how long a request may take.
    pub(super) fn call_limit(&self) -> Duration {
        self.renew_deadline / 2
    }

    /// Checks the settings.
    ///
    /// # Errors
    ///
    /// If the settings contradict each other.
    pub(super) fn validate(&self) -> Result<(), InvalidConfig> {
        if self.identity.is_empty() {
            return Err(InvalidConfig::NoIdentity);
        }
        if self.lease_duration <= self.renew_deadline {
            return Err(InvalidConfig::LeaseTooShort);
        }
        if self.lease_duration.as_secs() >= i32::MAX as u64 {
            return Err(InvalidConfig::LeaseTooLong);
        }
        if self.retry_period.is_zero() {
            return Err(InvalidConfig::NoRetryPeriod);
        }
        if self.renew_deadline <= self.retry_period.mul_f64(Self::JITTER) {
            return Err(InvalidConfig::DeadlineTooShort);
        }
        Ok(())
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            identity: unique_identity(),
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
            metrics: None,
        }
    }
}

/// Returns the name of this host (in a cluster, the pod's name) with a random number.
pub fn unique_identity() -> String {
    let kernel = std::fs::read_to_string("/proc/sys/kernel/hostname");
    let host = kernel.or_else(|_| std::env::var("HOSTNAME").map_err(std::io::Error::other));
    let host = host.unwrap_or_default();
    let host = match host.trim() {
        "" => "unknown",
        host => host,
    };
    format!("{host}_{:032x}", rand::random::<u128>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_contradict_each_other_are_refused() {
        let secs = Duration::from_secs;
        let config = |lease, deadline, retry| Config {
            lease_duration: lease,
            renew_deadline: deadline,
            retry_period: retry,
            ..Config::default()
        };
        let validated = |config: Config| config.validate();
        assert_eq!(validated(Config::default()), Ok(()));
        let table = [
            (secs(10), secs(10), secs(2), InvalidConfig::LeaseTooShort),
            (
                secs(1 << 31),
                secs(10),
                secs(2),
                InvalidConfig::LeaseTooLong,
            ),
            (
                secs(15),
                secs(12),
                secs(10),
                InvalidConfig::DeadlineTooShort,
            ),
            (secs(15), secs(10), secs(0), InvalidConfig::NoRetryPeriod),
        ];
        for (lease, deadline, retry, error) in table {
            assert_eq!(validated(config(lease, deadline, retry)), Err(error));
        }
        let unnamed = Config {
            identity: String::new(),
            ..Config::default()
        };
        assert_eq!(validated(unnamed), Err(InvalidConfig::NoIdentity));
    }

    #[test]
    fn identities_are_unique() {
        assert_ne!(unique_identity(), unique_identity());
    }
}
