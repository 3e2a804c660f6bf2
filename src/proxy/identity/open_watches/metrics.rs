//! Metrics of open watches and of the questions about them.

use kubefan_core::telemetry::{Registry, Samples};
use prometheus::{IntCounter, IntCounterVec};
use tokio::time::Instant;

use super::register::Register;
use crate::identity::asking::reviews::{Judgement, TokenOwner};

/// Counts of questions about open watches.
pub(super) struct Metrics {
    pub(super) questions: IntCounterVec,
    pub(super) ended: IntCounter,
    pub(super) broken_off: IntCounter,
}

impl Metrics {
    pub(super) fn new(registry: &Registry) -> Self {
        Self {
            questions: registry.counter_vec(
                "kubefan_open_watch_reviews_total",
                "Questions about the rights and tokens of open watches, by result (allowed, denied, accepted, refused, unclear).",
                &["result"],
            ),
            ended: registry.counter(
                "kubefan_open_watches_ended_total",
                "Watches that ended because their users lost the right, their tokens were refused, or their client certificates expired.",
            ),
            broken_off: registry.counter(
                "kubefan_open_watches_broken_off_total",
                "Those of kubefan_open_watches_ended_total whose clients read nothing, so that their streams were reset.",
            ),
        }
    }
}

/// Adds the size and the age of `register` to a scrape.
pub(super) fn sample(register: &Register, samples: &mut Samples) {
    let (rights, tokens) = register.questions();
    samples.gauge(
        "kubefan_open_watches",
        "Open watches and upgraded connections of authenticated callers.",
        &[],
        register.watches() as f64,
    );
    samples.gauge(
        "kubefan_open_watches_held",
        "Those of kubefan_open_watches whose events are held back until the API server has answered, because their right is probably lost.",
        &[],
        register.held() as f64,
    );
    for (about, count) in [("right", rights), ("token", tokens)] {
        samples.gauge(
            "kubefan_open_watch_questions",
            "Different questions that are asked again and again for open watches, by what they are about (right, token).",
            &[("about", about)],
            count as f64,
        );
    }
    samples.gauge(
        "kubefan_open_watch_review_age_seconds",
        "Longest time since the right to an open watch was judged. Above authorization.reauthorize, the questions exceed authorization.maxReviewsPerSecond, or the API server does not answer them.",
        &[],
        register.oldest_judgement(Instant::now()).as_secs_f64(),
    );
}

impl Judgement {
    /// Returns the value of the metric label `result`.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Denied => "denied",
            Self::Refused => "refused",
            Self::Unclear | Self::NoAnswer | Self::Busy => "unclear",
        }
    }
}

impl<U> TokenOwner<U> {
    /// Returns the value of the metric label `result`.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::User(_) | Self::MayNotAsk => "accepted",
            Self::Refused => "refused",
            Self::Unclear | Self::NoAnswer => "unclear",
        }
    }
}
