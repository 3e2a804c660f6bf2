//! Manager: runs the controllers of a program, with its caches and leader election.
//!
//! ```no_run
//! use k8s_openapi::api::core::v1::ConfigMap;
//! use kubefan::controller::{Action, Controller, Request};
//! use kubefan::leader_election::{self, KubeLease};
//! use kubefan::manager::Manager;
//! use kubefan::shared_informer::{self, Factory};
//! use kubefan::shutdown::{Shutdown, Signals};
//! use kubefan::upstream::Client;
//!
//! # type Failure = Box<dyn std::error::Error>;
//! # async fn run(client: Client, factory: Factory, shutdown: Shutdown) -> Result<(), Failure> {
//! let maps = factory.informer::<ConfigMap>(shared_informer::Config::default())?;
//! let reconcile = |request: Request| async move {
//!     println!("{request}");
//!     Ok::<_, std::io::Error>(Action::Done)
//! };
//! let lease = KubeLease::new(client.to_kube(), "default", "my-controller");
//! let mut signals = Signals::of_process()?;
//! let manager = Manager::new(shutdown.clone())
//!     .with_factory(factory)
//!     .with_leader_election(lease, leader_election::Config::default())
//!     .add(Controller::new("maps", &maps, shutdown.clone()), reconcile);
//! let (health, metrics) = (manager.health(), manager.registry().clone());
//! // Serve `health.healthz()`, `health.readyz()` and `metrics.render()` here.
//! manager.run(signals.next()).await?;
//! shutdown.drain().await;
//! # Ok(())
//! # }
//! ```
//!
//! # Order
//!
//! 1. The informers get their first lists.
//! 2. The candidate joins the election, and waits until it leads. So a candidate that takes over
//!    already has its caches.
//! 3. The controllers start together.
//! 4. At the stop, the controllers finish their running reconciles, while the Lease is renewed.
//! 5. The Lease is given back, and another candidate leads at once
//!    (`the_lease_is_given_back_after_the_last_reconcile`). If a reconcile reaches no await point
//!    within two seconds after the controller's stop timeout, the Lease is left to expire.
//!
//! If the Lease is lost, step 4 is left out: running reconciles are dropped at their next await
//! point, before another candidate can take the Lease
//! (`a_lost_lease_drops_the_reconciles_before_it_can_be_taken`). The program should then end,
//! because code that reaches no await point continues to run.
//!
//! # Health and metrics
//!
//! A manager owns the checks of [`Manager::health`] and the metrics of [`Manager::registry`]. A
//! manager has no HTTP server: the program serves both with its own.

mod error;
mod health;
mod run;
#[cfg(test)]
mod tests;

pub use error::Error;
pub use health::{Health, Report};
pub use run::Manager;
