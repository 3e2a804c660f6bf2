//! Limit: why a request gets 429.
//!
//! Each limit has one row in `Limit::row`, with its name and its wording. Only the server turns a
//! limit into a response.

use kubefan_core::api::{Status, StatusCause};

/// A limit that a request would exceed. The request gets 429, with a `Retry-After` of 1 to 5 s.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// The GETs and LISTs in flight.
    RequestsInFlight,
    /// The requests in progress of one user.
    Streams,
    /// The watches and other long-running requests of one user.
    Watches,
    /// The memory of the process or of one connection.
    Memory,
    /// The open connections.
    Files,
    /// The scopes for which reads of one user wait for a proof.
    ProofScopes,
    /// The watched selections that no index finds, of all users or of one.
    UnindexedSelectors,
    /// The forwarded reads of one cache that could not be proven fresh.
    UnprovenReads,
    /// The reads with a long answer that wait for the API server.
    LongReads,
    /// The reviews of callers and their rights that wait for the API server. Also the wrong
    /// credentials from one address.
    Reviews,
    /// The requests of callers that the API server has not accepted.
    UnacceptedCallers,
    /// The open streams of the admin API.
    AdminStreams,
    /// The questions of one user about requests (`kubefan why`).
    Questions,
}

impl Limit {
    /// Returns the limit's name. Metrics of the limits of one user have it as their label `limit`.
    pub fn name(self) -> &'static str {
        self.row().0
    }

    /// Returns the Status for the client. Its message is worded like the API server's. Its only cause
    /// shows that it is kubefan's, and has the limit's name.
    pub fn status(self) -> Status {
        let (name, message) = self.row();
        let mut status = Status::too_many_requests(message.unwrap_or(PLAIN));
        if let Some(details) = &mut status.details {
            details.causes.push(StatusCause {
                reason: name.to_owned(),
                message: "a limit of kubefan".to_owned(),
                field: String::new(),
            });
        }
        status
    }

    /// Returns true if the client gets plain text instead of a Status, as from kube-apiserver's own
    /// limit of requests in flight.
    pub fn is_plain_text(self) -> bool {
        self.row().1.is_none()
    }

    /// Returns the limit's name, and the text of its Status. `None` if the client gets [`PLAIN`] as
    /// plain text.
    fn row(self) -> (&'static str, Option<&'static str>) {
        const UNPROVEN: &str = "the cache could not be proven up to date, and too many reads of \
                                the most recent state wait for the API server, please try again \
                                later";
        const UNINDEXED: &str = "clients already watch too many different selectors of this \
                                 resource that every change must be tested against, please try \
                                 again later";
        const LONG: &str =
            "too many reads with a long answer wait for the API server, please try again later";
        const REVIEWS: &str = "too many requests wait for their authentication or authorization, \
                               please try again later";
        const UNACCEPTED: &str = "too many requests without credentials, or with new ones, wait \
                                  for the API server, please try again later";
        const ADMIN: &str = "too many streams of the admin API are open, please try again later";
        const QUESTIONS: &str = "too many questions about requests: ten a second are answered, please \
                                 try again later";
        match self {
            Self::RequestsInFlight => ("requests_inflight", None),
            Self::Streams => ("streams", None),
            Self::Watches => ("watches", None),
            Self::Memory => ("memory", None),
            Self::Files => ("files", None),
            Self::ProofScopes => ("proof_scopes", Some(UNPROVEN)),
            Self::UnindexedSelectors => ("unindexed_selectors", Some(UNINDEXED)),
            Self::UnprovenReads => ("unproven_reads", Some(UNPROVEN)),
            Self::LongReads => ("long_reads", Some(LONG)),
            Self::Reviews => ("reviews", Some(REVIEWS)),
            Self::UnacceptedCallers => ("unaccepted_callers", Some(UNACCEPTED)),
            Self::AdminStreams => ("admin_streams", Some(ADMIN)),
            Self::Questions => ("questions", Some(QUESTIONS)),
        }
    }
}

/// The text of kube-apiserver's own limit.
const PLAIN: &str = "Too many requests, please try again later.";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_says_that_kubefan_refuses_and_why() {
        for (limit, name) in [
            (Limit::ProofScopes, "proof_scopes"),
            (Limit::UnindexedSelectors, "unindexed_selectors"),
            (Limit::UnprovenReads, "unproven_reads"),
            (Limit::LongReads, "long_reads"),
            (Limit::Reviews, "reviews"),
            (Limit::UnacceptedCallers, "unaccepted_callers"),
            (Limit::Questions, "questions"),
        ] {
            let status = limit.status();
            assert!(status.retry_after().is_some_and(|seconds| seconds > 0));
            let details = status.details.expect("details");
            let causes: Vec<_> = details.causes.iter().collect();
            let [cause] = causes[..] else {
                panic!("{causes:?}");
            };
            assert_eq!(cause.reason, name);
            assert!(cause.message.contains("kubefan"), "{cause:?}");
        }
    }
}
