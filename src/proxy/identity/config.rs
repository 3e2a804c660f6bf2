//! The settings of access control.

use std::fmt;
use std::num::{NonZeroU32, NonZeroUsize};
use std::time::Duration;

use clap::ValueEnum;
use kubefan_core::concurrency::Asker;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::asking::queue::{AskQueue, QueueMetrics};

/// How many questions may wait or be in flight, for each question that may be in flight. An asker
/// waits for ten seconds at most, so further questions would wait in vain, unless answers arrive
/// within 150 ms.
const QUESTIONS_PER_SLOT: usize = 64;

/// How callers are authenticated.
// The comments are the texts of a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(rename = "AuthMode")]
pub enum Mode {
    /// Not at all; kubefan answers with its own rights
    None,
    /// With their own credentials; the API server is asked with the caller's token
    Caller,
    /// With kubefan's rights to review tokens and access
    Delegated,
}

/// The settings of [`AccessControl`](super::AccessControl).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// How callers are authenticated. Default is not at all.
    pub mode: Mode,
    /// Whether a request without credentials may read from a cache what the user `system:anonymous`
    /// may read. Default is false.
    pub anonymous: bool,
    /// How long the owner of a token is remembered, unless the token itself expires earlier.
    /// Default is 60 s.
    pub token_ttl: Duration,
    /// How long a yes of the authorizers is remembered. Default is 10 s.
    pub allowed_ttl: Duration,
    /// How long a no of the authorizers is remembered, except for nodes. Default is 2 s.
    pub denied_ttl: Duration,
    /// How long a yes of the authorizers, and the owner of a token, count while the API server does
    /// not answer. Default is 0, so that they count no longer than they are remembered.
    pub stale: Duration,
    /// The longest time until the right to an open watch is judged again, if the rate of the
    /// questions permits it. Default is 60 s.
    pub reauthorize: Duration,
    /// Highest number of questions about open watches per second, on average. Default is 50.
    pub max_reviews_per_second: NonZeroU32,
    /// The longest time until the token of an open watch is asked about again. Default is ten
    /// minutes.
    pub reauthenticate: Duration,
    /// Highest number of questions about tokens in flight, and also of questions about rights in
    /// requests. Of each kind, 64 times as many may wait or be in flight. Default is 64: if answers
    /// take 10 ms, 6,400 questions per second.
    pub max_reviews_in_flight: NonZeroUsize,
    /// How many authentications of a source address may fail per second, on average. The failures
    /// of ten seconds may happen at once. Default is 100.
    pub max_failed_per_second: NonZeroU32,
    /// Whether the right to read all objects of a resource covers each object by its name. If it
    /// does not, kubefan asks about each name. Default is `None`: the API server is asked whether one
    /// of its authorizers may forbid single names.
    pub names_covered: Option<bool>,
    /// Keys of the users' `extra` that no authorizer reads. Users that differ only in these keys
    /// share decisions. Default is none.
    pub ignored_extra: Vec<String>,
    /// Upper limit, in bytes, of what the remembered decisions hold. Default is
    /// [`Config::DEFAULT_DECISION_BYTES`].
    pub decision_bytes: usize,
    /// Upper limit, in bytes, of what the remembered owners of tokens hold. Default is
    /// [`Config::DEFAULT_TOKEN_BYTES`].
    pub token_bytes: usize,
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "none",
            Self::Caller => "caller",
            Self::Delegated => "delegated",
        })
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            mode: Mode::None,
            anonymous: false,
            token_ttl: Duration::from_secs(60),
            allowed_ttl: Duration::from_secs(10),
            denied_ttl: Duration::from_secs(2),
            stale: Duration::ZERO,
            reauthorize: Duration::from_secs(60),
            max_reviews_per_second: NonZeroU32::new(50).expect("50 is not 0"),
            reauthenticate: Duration::from_secs(600),
            max_reviews_in_flight: NonZeroUsize::new(64).expect("64 is not 0"),
            max_failed_per_second: NonZeroU32::new(100).expect("100 is not 0"),
            names_covered: None,
            ignored_extra: Vec::new(),
            decision_bytes: Self::DEFAULT_DECISION_BYTES,
            token_bytes: Self::DEFAULT_TOKEN_BYTES,
        }
    }
}

impl Config {
    /// The default of [`Config::decision_bytes`]: 64 MiB, about 100,000 decisions.
    pub const DEFAULT_DECISION_BYTES: usize = 64 << 20;

    /// The default of [`Config::token_bytes`]: 128 MiB, about 70,000 tokens of pods.
    pub const DEFAULT_TOKEN_BYTES: usize = 128 << 20;

    /// Returns a queue of questions of one kind.
    pub(super) fn queue<K: Asker>(&self, metrics: QueueMetrics) -> AskQueue<K> {
        let in_flight = self.max_reviews_in_flight.get();
        let capacity = in_flight.saturating_mul(QUESTIONS_PER_SLOT);
        AskQueue::new(in_flight, capacity, metrics)
    }
}
