//! Upstream → cache: a reflector keeps one resource's cache equal to what the API server has.
//!
//! A [`Reflector`] is a task: it lists, watches, and recovers from whatever ends a watch. It owns
//! the cache's writer and is its only user.

mod backoff;
mod error;
mod freshness;
mod freshness_metrics;
mod freshness_plan;
mod freshness_policy;
mod live_rest_mapper;
mod machine;
mod metrics;
mod proof;
mod reflector;
mod running;
mod session;
mod set;
mod signals;
mod verdict;
mod verification;
mod wire_shape;

#[cfg(test)]
mod freshness_model_tests;
#[cfg(test)]
mod freshness_tests;
#[cfg(test)]
mod model_tests;
#[cfg(test)]
mod recovery_tests;
#[cfg(test)]
mod reflector_tests;
#[cfg(test)]
mod script_tests;

pub use backoff::Backoff;
pub use backoff::BackoffConfig;
pub use error::Cause;
pub use error::Error;
pub use freshness::Freshness;
pub use freshness_metrics::FreshnessMetrics;
pub use freshness_plan::Asked;
pub use freshness_policy::FreshnessPolicies;
pub use freshness_policy::FreshnessPolicy;
pub use live_rest_mapper::LiveRestMapper;
pub use metrics::ReflectorMetrics;
pub use proof::Proof;
pub use proof::ProofMethod;
pub use proof::Unproven;
pub use reflector::Ended;
pub use reflector::Reflector;
pub use reflector::ReflectorConfig;
pub use running::Informer;
pub use set::Config;
pub use set::InformerSet;
pub use set::Refused;
pub use set::Required;
pub use set::Subject;
pub use signals::RelistHandle;
pub use signals::RelistRequests;
pub use signals::Signals;
pub use signals::relist_channel;
pub use wire_shape::WireShape;
