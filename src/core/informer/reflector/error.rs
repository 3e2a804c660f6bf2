//! The errors that end a reflector's call or watch, and their causes, which decide about recovery.

use std::time::Duration;

use super::end::ReflectorEnd;
use super::signals::RelistReason;
use crate::api::Status;
use crate::cache::WentBack;
use crate::upstream;

/// Why a call to upstream or a watch ended. The reflector recovers from all errors except the
/// answers that end it (see [`ReflectorEnd`]).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Upstream answered with an error, the connection broke, or the answer cannot be decoded.
    #[error(transparent)]
    Upstream(#[from] upstream::Error),
    /// Upstream ended the watch cleanly, between two frames.
    #[error("upstream ended the watch")]
    EndOfStream,
    /// The watch delivered no frame, not even a bookmark, for this long.
    #[error("the watch was silent for {0:?}")]
    Silent(Duration),
    /// Upstream did not end the watch within 10 s after its deadline.
    #[error("the watch outlived its deadline")]
    Overdue,
    /// The answer to a watch-list has a bookmark before the one that ends the initial events:
    /// upstream answered with a plain watch.
    #[error("upstream does not mark the end of a watch-list's initial events")]
    NoInitialEventsEnd,
    /// A call was not answered within this limit.
    #[error("no answer within {0:?}")]
    NoAnswer(Duration),
    /// Upstream sent a version below the applied one: its history is not the cached one.
    #[error(transparent)]
    WentBack(#[from] WentBack),
    /// A relist was requested through a [`RelistHandle`](super::RelistHandle).
    #[error("a relist was requested: {0}")]
    RelistRequested(RelistReason),
}

/// The kind of an [`Error`]. Recovery depends on it, and metrics use it as a label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cause {
    /// 410: upstream no longer has the requested history.
    Expired,
    /// The reason `StorageReadError`: upstream cannot read an object, or has deleted one that it
    /// cannot read.
    StorageReadError,
    /// 504: the requested resource version is above upstream's current one.
    TooLarge,
    /// 429: upstream is overloaded.
    TooManyRequests,
    /// 401: upstream does not accept kubefan's credentials.
    Unauthorized,
    /// 403: kubefan may not list or watch the resource.
    Forbidden,
    /// 404: upstream does not have the resource.
    NotFound,
    /// 406, or an answer in another wire format than the requested one.
    NotAcceptable,
    /// Any other 4xx status code.
    Rejected,
    /// 5xx, or a Status without a code.
    ServerError,
    /// The connection could not be made, or broke.
    Transport,
    /// A frame or page was truncated, cannot be decoded, or is too large.
    Decode,
    /// A call was not answered in time.
    NoAnswer,
    /// Upstream ended the watch cleanly.
    EndOfStream,
    /// A watch delivered no frame for too long.
    Silent,
    /// Upstream did not end a watch after its deadline.
    Overdue,
    /// Upstream answered a watch-list with a plain watch.
    NoInitialEventsEnd,
    /// Upstream sent a version below the applied one: its history is not the cached one.
    WentBack,
    /// A relist was requested, which ends an open watch.
    RelistRequested,
}

/// Each cause with the value of the metric label `cause`, in the order of declaration.
const NAMES: [(Cause, &str); 19] = [
    (Cause::Expired, "expired"),
    (Cause::StorageReadError, "storage_read_error"),
    (Cause::TooLarge, "too_large"),
    (Cause::TooManyRequests, "too_many_requests"),
    (Cause::Unauthorized, "unauthorized"),
    (Cause::Forbidden, "forbidden"),
    (Cause::NotFound, "not_found"),
    (Cause::NotAcceptable, "not_acceptable"),
    (Cause::Rejected, "rejected"),
    (Cause::ServerError, "server_fault"),
    (Cause::Transport, "transport"),
    (Cause::Decode, "decode"),
    (Cause::NoAnswer, "no_answer"),
    (Cause::EndOfStream, "end_of_stream"),
    (Cause::Silent, "silent"),
    (Cause::Overdue, "overdue"),
    (Cause::NoInitialEventsEnd, "no_initial_events_end"),
    (Cause::WentBack, "went_back"),
    (Cause::RelistRequested, "relist_requested"),
];

impl Error {
    /// Returns the kind of this error.
    pub fn cause(&self) -> Cause {
        match self {
            Self::Upstream(error) => Cause::of(error),
            Self::EndOfStream => Cause::EndOfStream,
            Self::Silent(_) => Cause::Silent,
            Self::Overdue => Cause::Overdue,
            Self::NoInitialEventsEnd => Cause::NoInitialEventsEnd,
            Self::NoAnswer(_) => Cause::NoAnswer,
            Self::WentBack(_) => Cause::WentBack,
            Self::RelistRequested(_) => Cause::RelistRequested,
        }
    }

    /// Returns the `Retry-After` of upstream's answer, if it has one.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Upstream(error) => error.retry_after(),
            _ => None,
        }
    }

    /// Returns the end of the reflector, if this error is final: 403, 404 or
    /// 406, or 401 if it lasts.
    pub(super) fn end(&self) -> Option<ReflectorEnd> {
        let end = match self.cause() {
            Cause::Forbidden | Cause::Unauthorized => ReflectorEnd::Forbidden,
            Cause::NotFound => ReflectorEnd::Gone,
            Cause::NotAcceptable => ReflectorEnd::NotAcceptable,
            _ => return None,
        };
        Some(end(match self {
            Self::Upstream(upstream::Error::Answer { status, .. }) => status.clone(),
            error => Box::new(Status::failure(406, "NotAcceptable", error.to_string())),
        }))
    }
}

impl From<Status> for Error {
    /// Returns the error of a watch that ended with an ERROR frame with this status.
    fn from(status: Status) -> Self {
        Self::Upstream(upstream::Error::answered(status))
    }
}

impl Cause {
    /// Every cause, in the order of declaration.
    pub const ALL: [Self; 19] = {
        let mut all = [Self::Expired; NAMES.len()];
        let mut position = 0;
        while position < all.len() {
            all[position] = NAMES[position].0;
            position += 1;
        }
        all
    };

    /// Returns the value of the metric label `cause`.
    pub fn name(self) -> &'static str {
        NAMES[self as usize].1
    }

    /// Returns true if watches of a healthy upstream end by this cause too. Such an end is logged
    /// at debug level if the retry needs no backoff.
    pub(super) fn is_routine(self) -> bool {
        matches!(
            self,
            Self::EndOfStream | Self::Silent | Self::Expired | Self::RelistRequested
        )
    }

    fn of(error: &upstream::Error) -> Self {
        match error {
            upstream::Error::Answer { .. } if error.is_expired() => Self::Expired,
            // The constant of this reason is called `StatusReasonStoreReadError`.
            upstream::Error::Answer { status, .. }
                if status.reason.as_deref() == Some("StorageReadError") =>
            {
                Self::StorageReadError
            }
            upstream::Error::Answer { .. } if error.is_too_large_resource_version() => {
                Self::TooLarge
            }
            upstream::Error::Answer { status, .. } => Self::of_code(status.code),
            upstream::Error::Timeout(_) => Self::NoAnswer,
            // An API server answers in some application format. Anything else, such as an HTML
            // page, is the answer of a proxy in between, and will not last.
            upstream::Error::MediaType { received, .. } if received.starts_with("application/") => {
                Self::NotAcceptable
            }
            upstream::Error::MediaType { .. }
            | upstream::Error::TooLarge { .. }
            | upstream::Error::Decode(_) => Self::Decode,
            _ => Self::Transport,
        }
    }

    fn of_code(code: u16) -> Self {
        match code {
            401 => Self::Unauthorized,
            403 => Self::Forbidden,
            404 => Self::NotFound,
            406 => Self::NotAcceptable,
            429 => Self::TooManyRequests,
            400..500 => Self::Rejected,
            _ => Self::ServerError,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{StatusCause, StatusDetails};

    #[test]
    fn statuses_have_the_cause_that_clients_read_from_them() {
        let too_large = "Timeout: Too large resource version: 9, current: 2";
        let rows = [
            (
                410,
                "Expired",
                "too old resource version: 1 (2)",
                Cause::Expired,
            ),
            (410, "Gone", "", Cause::Expired),
            (0, "Expired", "", Cause::Expired),
            (500, "StorageReadError", "", Cause::StorageReadError),
            (504, "Timeout", too_large, Cause::TooLarge),
            (
                504,
                "Timeout",
                "Timeout: request did not complete",
                Cause::ServerError,
            ),
            (429, "TooManyRequests", "", Cause::TooManyRequests),
            (401, "Unauthorized", "", Cause::Unauthorized),
            (403, "Forbidden", "", Cause::Forbidden),
            (404, "NotFound", "", Cause::NotFound),
            (406, "NotAcceptable", "", Cause::NotAcceptable),
            (422, "Invalid", "", Cause::Rejected),
            (405, "MethodNotAllowed", "", Cause::Rejected),
            (500, "InternalError", "", Cause::ServerError),
            (503, "", "", Cause::ServerError),
            (0, "", "", Cause::ServerError),
        ];
        for (code, reason, message, cause) in rows {
            let error = Error::from(Status::failure(code, reason, message));
            assert_eq!(error.cause(), cause, "{code} {reason} {message}");
        }
    }

    #[test]
    fn a_status_cause_alone_means_too_large() {
        let cause = StatusCause {
            reason: "ResourceVersionTooLarge".into(),
            ..StatusCause::default()
        };
        let details = StatusDetails {
            causes: vec![cause],
            retry_after_seconds: 1,
            ..StatusDetails::default()
        };
        let error = Error::from(Status::failure(504, "Timeout", "").with_details(details));
        assert_eq!(error.cause(), Cause::TooLarge);
        assert_eq!(error.retry_after(), Some(Duration::from_secs(1)));
    }

    #[test]
    fn an_answer_in_another_format_is_final_and_a_page_of_html_is_not() {
        let requested = "application/vnd.kubernetes.protobuf";
        let rows = [
            ("application/json", true),
            ("text/html", false),
            ("", false),
        ];
        for (received, is_final) in rows {
            let received = received.to_owned();
            let error = Error::from(upstream::Error::MediaType {
                requested,
                received,
            });
            let end = error.end();
            let ended = matches!(end, Some(ReflectorEnd::NotAcceptable(_)));
            assert_eq!(ended, is_final, "{end:?}");
        }
    }

    #[test]
    fn all_lists_every_cause_in_order_with_distinct_names() {
        let mut names = std::collections::BTreeSet::new();
        for (position, cause) in Cause::ALL.into_iter().enumerate() {
            assert_eq!(cause as usize, position);
            names.insert(cause.name());
        }
        assert_eq!(names.len(), Cause::ALL.len());
        assert_eq!(Cause::RelistRequested as usize, Cause::ALL.len() - 1);
    }
}
