//! Informers: caches that follow the API server ("upstream" in these files).
//!
//! An [`Informer`] is a reflector and its cache, for one resource in one wire format and one
//! *scope*: the objects of one namespace or of all, or those of them that selectors select. This
//! room has five parts:
//!
//! - **Reflector** (`reflector/`): the task that lists and watches upstream, and recovers when a
//!   watch is lost. Each [`Reflector`] owns its cache's [`Writer`](crate::cache::Writer), which
//!   cannot be cloned, so no other code can change the cache. All others have a
//!   [`Reader`](crate::cache::Reader). When the reflector ends, it closes the cache, and all
//!   watches of the cache end.
//! - **Freshness** (`freshness/`): proves to a reader that a snapshot is at least as fresh as its
//!   request. [`Freshness`] only reads the cache. When it finds that the cache is wrong, or that
//!   etcd was restored, it requests a relist through a [`RelistHandle`].
//! - **Bridges** (`bridges.rs`): short upstream watches for clients with versions older than the
//!   event log, as after a restart of the process. They do not change the cache.
//! - **Set** (`set.rs`): [`InformerSet`] starts an informer at the first request that needs
//!   it, and has at most one per resource, wire format and scope. An informer that is not
//!   pinned stops after ten minutes without requests and watches. If upstream refuses the
//!   resource, the reflector ends, and the set remembers the refusal for a while instead of
//!   retrying with each request.
//! - **Live REST mapper** (`live_rest_mapper.rs`): [`LiveRestMapper`] is the current result of
//!   discovery. It watches CustomResourceDefinitions and APIServices through informers of the set.
//!   When a resource disappears, becomes aggregated, gets another definition, or when its names or
//!   selectable fields change, it stops the resource's informers
//!   (`a_custom_resource_comes_and_goes`); when the definition changes otherwise, it makes them
//!   relist (`a_new_default_of_a_custom_resource_reaches_every_client`), and they prove nothing
//!   before (`freshness/doubt.rs`). `live_rest_mapper/early_ends.rs` relists a custom resource after
//!   the API server ended its watch early, if the reason may have been a change of its definition.
//!
//! The module docs of `reflector` and `freshness` explain recovery and proofs. Their random models
//! are the main tests: `after_any_faults_the_cache_and_its_clients_equal_upstream` and
//! `consistent_answers_show_a_state_no_older_than_the_request`.

mod bridges;
mod cache_name;
mod config;
mod freshness;
mod hooks;
#[expect(clippy::module_inception, reason = "it holds `Informer`")]
mod informer;
mod live_rest_mapper;
mod reflector;
mod resource_rules;
mod set;
mod spec;
mod wire_shape;

pub use bridges::BridgeLimits;
pub use cache_name::CacheName;
pub use config::Config;
pub use freshness::{
    Freshness, FreshnessMetrics, FreshnessPolicies, FreshnessPolicy, Proof, ProofCall, ProofError,
    ProofMethod, ProofRequest,
};
pub use hooks::{Failure, Hooks, TransformId};
pub use informer::{Informer, InformerHold};
pub use live_rest_mapper::LiveRestMapper;
pub use reflector::{
    Activity, Backoff, BackoffConfig, Cause, Error, Interruption, RecentRecoveries, RecoveryEnd,
    RecoveryRecord, Reflector, ReflectorConfig, ReflectorEnd, ReflectorMetrics, RelistHandle,
    RelistReason, RelistRequests, Signals, relist_channel,
};
pub use resource_rules::{CacheSettings, ResourceRule, ResourceRules, RuleError};
pub use set::{InformerSet, Requirement, StartError};
pub use spec::{InformerSpec, ObjectContent};
pub use wire_shape::WireShape;
