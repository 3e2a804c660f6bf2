//! Leader election: of several copies of a program, one at a time leads.
//!
//! The copies are *candidates* for one Lease of the API server. The leader renews the Lease. If the
//! leader does not renew it for [`Config::lease_duration`], another candidate takes it.
//!
//! ```no_run
//! use kubefan::leader_election::{Config, KubeLease, LeaderElector};
//! use kubefan::shutdown::Shutdown;
//!
//! # type Failure = Box<dyn std::error::Error>;
//! # async fn run(client: kube::Client, shutdown: Shutdown) -> Result<(), Failure> {
//! let lease = KubeLease::new(client, "default", "my-controller");
//! let elector = LeaderElector::start(lease, Config::default(), &shutdown)?;
//! if elector.elected().await {
//!     tokio::select! {
//!         () = elector.lost() => return Err("the lease was lost".into()),
//!         () = shutdown.draining() => {} // replace this by the work of the leader
//!     }
//! }
//! elector.leave().await?; // another candidate leads at once
//! # Ok(())
//! # }
//! ```
//!
//! # Guarantees
//!
//! - At most one candidate leads (`there_are_never_two_leaders`), if clocks run at similar speeds:
//!   the fastest may run faster than the slowest by less than [`Config::lease_duration`] divided by
//!   [`Config::renew_deadline`] (1.5 by default). Times of different clocks are never compared: a
//!   candidate measures with its monotonic clock how long ago it saw the Lease change, and ignores
//!   the times in the Lease.
//! - A leader stops leading [`Config::renew_deadline`] after it began its last successful renewal,
//!   even if the API server's answer is late. Another candidate takes the Lease later than that,
//!   because it waits for [`Config::lease_duration`] after it saw this renewal. In the time
//!   between, the leader's work must stop.
//! - A leader that lost the Lease never leads again. The program should end.
//!
//! The guarantee does not cover a Lease that is deleted or edited by others. It does not cover a
//! suspended machine either, because the monotonic clock stops there. A candidate that saw the
//! Lease before its deletion waits until the Lease would have expired.
//!
//! # Requests
//!
//! Each candidate makes an attempt per [`Config::retry_period`], with one request to renew or to
//! read the Lease. This is its rate limit: the election shares no limit with the program's other
//! requests, so they cannot delay a renewal. A request may take half of the renew deadline.
//!
//! The program needs the verbs `get`, `create` and `update` on `leases` in `coordination.k8s.io`.

mod config;
mod elector;
mod kube_lease;
mod lease;
mod machine;
mod metrics;
#[cfg(test)]
pub(crate) mod tests;

pub use config::{Config, InvalidConfig, unique_identity};
pub use elector::{LeaderElector, NotReleased, Status};
pub use kube_lease::KubeLease;
pub use lease::{LeaseRecord, LeaseStore, StoreError, Stored};
pub use metrics::Metrics;
