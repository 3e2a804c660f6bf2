//! Upstream → cache: a reflector keeps one resource's cache equal to what the API server has.
//!
//! A [`Reflector`] is a task: it lists, watches, and recovers from whatever ends a watch. It owns
//! the cache's writer and is its only user.

mod config;
mod freshness;
mod live_rest_mapper;
mod reflector;
mod running;
mod set;
mod subject;
mod wire_shape;

pub use config::Config;
pub use freshness::Asked;
pub use freshness::Freshness;
pub use freshness::FreshnessMetrics;
pub use freshness::FreshnessPolicies;
pub use freshness::FreshnessPolicy;
pub use freshness::Proof;
pub use freshness::ProofMethod;
pub use freshness::Unproven;
pub use live_rest_mapper::LiveRestMapper;
pub use reflector::Backoff;
pub use reflector::BackoffConfig;
pub use reflector::Cause;
pub use reflector::Ended;
pub use reflector::Error;
pub use reflector::Reflector;
pub use reflector::ReflectorConfig;
pub use reflector::ReflectorMetrics;
pub use reflector::RelistHandle;
pub use reflector::RelistRequests;
pub use reflector::Signals;
pub use reflector::relist_channel;
pub use running::Informer;
pub use set::InformerSet;
pub use set::Refused;
pub use set::Required;
pub use subject::Subject;
pub use wire_shape::WireShape;
