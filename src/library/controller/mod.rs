//! Controllers: call a function for each object that may have to be changed.
//!
//! A [`Controller`] watches objects through shared informers, and turns their changes into
//! [`Request`]s: the names of the objects to reconcile. A [`Reconciler`] reads the present state
//! of the object from a lister, brings the world into the state that the object describes, and
//! returns an [`Action`].
//!
//! ```text
//!   primary resource ─ predicate ────────────────┐
//!   owned resource ─── predicate ─ owner ────────┼─► work queue ─► workers ─► Reconciler
//!   other resource ─── predicate ─ your function ┘        ▲                        │
//!                                                         └─ error, requeue ───────┘
//! ```
//!
//! ```no_run
//! use k8s_openapi::api::apps::v1::Deployment;
//! use k8s_openapi::api::core::v1::ConfigMap;
//! use kubefan::controller::{Action, Controller, Error, Predicate, Request};
//! use kubefan::shared_informer::SharedInformer;
//! use kubefan::shutdown::Shutdown;
//!
//! # async fn run(
//! #     deployments: SharedInformer<Deployment>,
//! #     config_maps: SharedInformer<ConfigMap>,
//! #     shutdown: Shutdown,
//! # ) -> Result<(), Error> {
//! let lister = deployments.lister();
//! let reconcile = move |request: Request| {
//!     let lister = lister.clone();
//!     async move {
//!         let found = lister.get(request.namespace.as_deref(), &request.name)?;
//!         println!("{request} exists: {}", found.is_some());
//!         Ok::<_, kubefan::shared_informer::DecodeError>(Action::Done)
//!     }
//! };
//! Controller::new("deployments", &deployments, shutdown.clone())
//!     .with_predicate(Predicate::generation_changed())
//!     .owns(&config_maps, None)
//!     .max_concurrent_reconciles(4)
//!     .run(reconcile, shutdown.draining())
//!     .await
//! # }
//! ```
//!
//! # Guarantees
//!
//! - No object is reconciled twice at once (`each_object_is_reconciled_after_its_last_change`).
//! - Each object is reconciled at least once after each change that the predicates accept. One
//!   reconcile covers all changes that happen before it begins.
//! - The first reconcile begins when all informers have a complete list. So a lister that a
//!   reconciler reads is never empty only because the program has just started.
//! - A reconcile that fails or panics is repeated after a backoff. The backoff grows with each
//!   failure of this object (5 ms to 1,000 s) and is reset after a success. Other objects do not
//!   wait. A change ends the backoff only if it may end the failure; see [`Controller::run`].
//! - The objects of the first list, and those of a resync, come after objects that changed
//!   ([`LOW_PRIORITY`]). They do not starve: see [`work_queue`](crate::work_queue).
//!
//! # Stop
//!
//! [`Controller::run`] ends when its `stop` completes or a drain of its [`Shutdown`] begins. It
//! starts no further reconcile, and waits for the running reconciles, 20 s by default.
//!
//! [`Shutdown`]: kubefan_core::shutdown::Shutdown

mod builder;
mod error;
mod finalizer;
mod metrics;
mod owner_reference;
mod predicate;
mod reconciler;
mod request;
mod run;
mod source;
#[cfg(test)]
pub(crate) mod tests;

pub use builder::Controller;
pub use error::Error;
pub use finalizer::{Finalize, FinalizerError, finalizer};
pub use metrics::Metrics;
pub use owner_reference::{
    OwnerError, controller_of, set_controller_reference, set_owner_reference,
};
pub use predicate::Predicate;
pub use reconciler::{Action, Reconciler};
pub use request::Request;
pub(crate) use run::stop_or_drain;
pub use source::LOW_PRIORITY;
