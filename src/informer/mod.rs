//! Upstream → cache: a reflector keeps one resource's cache equal to what the API server has.
//!
//! A [`Reflector`] is a task: it lists, watches, and recovers from whatever ends a watch. It owns
//! the cache's writer and is its only user.

mod config;
mod freshness;
#[expect(clippy::module_inception, reason = "it holds `Informer`")]
mod informer;
mod live_rest_mapper;
mod reflector;
mod set;
mod spec;
mod wire_shape;

pub use config::Config;
pub use freshness::Freshness;
pub use freshness::FreshnessMetrics;
pub use freshness::FreshnessPolicies;
pub use freshness::FreshnessPolicy;
pub use freshness::Proof;
pub use freshness::ProofError;
pub use freshness::ProofMethod;
pub use freshness::ProofRequest;
pub use informer::Informer;
pub use live_rest_mapper::LiveRestMapper;
pub use reflector::Backoff;
pub use reflector::BackoffConfig;
pub use reflector::Cause;
pub use reflector::Error;
pub use reflector::Reflector;
pub use reflector::ReflectorConfig;
pub use reflector::ReflectorEnd;
pub use reflector::ReflectorMetrics;
pub use reflector::RelistHandle;
pub use reflector::RelistRequests;
pub use reflector::Signals;
pub use reflector::relist_channel;
pub use set::InformerSet;
pub use set::Requirement;
pub use set::StartError;
pub use spec::InformerSpec;
pub use wire_shape::WireShape;
