//! The errors of calls to the API server.

use std::io;
use std::time::Duration;

use kube::client::AuthError;

use super::connect::transport::replay::BrokenBody;
use super::connect::{PluginError, ServerCertificateError, causes, credentials_problem};
use crate::api::Status;

/// A failed call to the API server.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The API server answered with a failure. A body that is not a `Status` is converted to one.
    #[error("the API server answered {}: {}", .status.code, .status.message)]
    Answer {
        /// The failure that the API server reported.
        status: Box<Status>,
        /// The `Retry-After` header; `None` if it is absent or not a number of seconds.
        retry_after: Option<Duration>,
    },
    /// The API server has provably not received the request: no connection could be opened, or the
    /// server does not respond to pings, so the request was not sent. Any request may be repeated.
    #[error("cannot reach the API server")]
    Unreachable(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The connection to the API server broke before the end of the answer. For a request that
    /// changes something, this is used only after the answer's headers have arrived.
    #[error("the connection to the API server broke")]
    Transport(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The connection broke before the answer to a request that changes something, and the API
    /// server may have executed the request.
    #[error("the API server may have executed the request, but the connection broke")]
    InDoubt(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The API server answered 401 to a forwarded request that had kubefan's credentials.
    #[error("the API server does not accept kubefan's credentials")]
    CredentialsRefused,
    /// kubefan's credentials can't be obtained, so the request was not sent. The text contains no
    /// secrets: neither the command nor the environment nor the output of an exec plugin.
    #[error("cannot get credentials for the API server: {0}")]
    Credentials(String),
    /// The answer or its next bytes did not arrive within this time, or a watch lasted longer.
    #[error("the API server did not answer within {0:?}")]
    Timeout(Duration),
    /// The answer's body ended in the middle of a frame, or is malformed.
    #[error("the API server's answer can't be decoded")]
    Decode(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The answer has another media type than requested, such as JSON for custom resources.
    #[error("the API server answered with {received:?} to a request for {requested}")]
    MediaType {
        /// The media types in the request's `Accept` header.
        requested: &'static str,
        /// The answer's `Content-Type`.
        received: String,
    },
    /// The upstream is a kubefan, and its answer to a read of the most recent state may be older
    /// than the request, by its freshness policy.
    #[error("the upstream is a kubefan, and its answer may be older than the request ({method})")]
    Unproven {
        /// How the upstream has proven the answer: `recent` or `any`.
        method: String,
    },
    /// The answer's body is larger than the limit for this kind of answer.
    #[error("the API server's answer is larger than {limit} bytes")]
    TooLarge {
        /// The largest accepted body, in bytes.
        limit: usize,
    },
    /// The request is invalid, for example its URI, or its body broke off, so it was not sent.
    #[error("the request to the API server is invalid")]
    Request(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl Error {
    /// Returns the error of a request that was provably not sent.
    pub(super) fn unsent(error: Box<dyn std::error::Error + Send + Sync>) -> Self {
        if let Some(error) = error.downcast_ref::<PluginError>() {
            return Self::Credentials(format!("exec plugin: {error}"));
        }
        match error.downcast_ref::<AuthError>() {
            Some(error) => Self::Credentials(credentials_problem(error)),
            None if error.is::<BrokenBody>() => Self::Request(error),
            None => Self::Unreachable(error),
        }
    }

    /// Returns the error of an answer with this status.
    pub(crate) fn answered(status: Status) -> Self {
        Self::Answer {
            status: Box::new(status),
            retry_after: None,
        }
    }

    /// Returns the failure that the API server answered with, or `None` for all other errors.
    pub fn status(&self) -> Option<&Status> {
        match self {
            Self::Answer { status, .. } => Some(status),
            _ => None,
        }
    }

    /// Returns the time to wait before a retry, if the `Retry-After` header or the `Status`
    /// contains one.
    pub fn retry_after(&self) -> Option<Duration> {
        let Self::Answer {
            status,
            retry_after,
        } = self
        else {
            return None;
        };
        retry_after.or_else(|| Some(Duration::from_secs(status.retry_after()?.into())))
    }

    /// Returns true if the connection was refused, because no process listens at
    /// the server's address.
    pub fn is_connection_refused(&self) -> bool {
        self.is_unreachable_because(|error: &io::Error| {
            error.kind() == io::ErrorKind::ConnectionRefused
        })
    }

    /// Returns true if the API server's certificate can't be verified, and waiting does not help:
    /// it is of an unknown authority, or for another name.
    pub fn is_untrusted_server(&self) -> bool {
        self.is_unreachable_because(|error: &ServerCertificateError| error.is_lasting)
    }

    /// Returns true if the server can't be reached because of an error of type `E`, and `is_cause`
    /// returns true for this error.
    fn is_unreachable_because<E: std::error::Error + 'static>(
        &self,
        is_cause: impl Fn(&E) -> bool,
    ) -> bool {
        let Self::Unreachable(error) = self else {
            return false;
        };
        causes(&**error).any(|error| error.downcast_ref().is_some_and(&is_cause))
    }

    /// Returns true for 410: the resource version or token is older than the API server's history.
    pub fn is_expired(&self) -> bool {
        self.status().is_some_and(Status::is_expired)
    }

    /// Returns true if the requested resource version is newer than the API server's current one.
    pub fn is_too_large_resource_version(&self) -> bool {
        self.status().is_some_and(|status| {
            let causes = status.details.iter().flat_map(|details| &details.causes);
            let named = |reason: &str| reason == "ResourceVersionTooLarge";
            causes.into_iter().any(|cause| named(&cause.reason))
                || status.message.contains("Too large resource version")
        })
    }

    /// Returns true for 429: the API server rejects the request because it is overloaded.
    pub fn is_too_many_requests(&self) -> bool {
        self.has_code(429)
    }

    /// Returns true for 403: the identity may not do what the request says.
    pub fn is_forbidden(&self) -> bool {
        self.has_code(403)
    }

    /// Returns true for 404: the object or resource does not exist.
    pub fn is_not_found(&self) -> bool {
        self.has_code(404)
    }

    fn has_code(&self, code: u16) -> bool {
        self.status().is_some_and(|status| status.code == code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{StatusCause, StatusDetails};

    fn answer(status: Status) -> Error {
        Error::Answer {
            status: Box::new(status),
            retry_after: None,
        }
    }

    #[test]
    fn distinguishes_failures() {
        let expired = answer(Status::failure(410, "Expired", "too old resource version"));
        assert!(expired.is_expired() && !expired.is_not_found());
        assert!(answer(Status::failure(404, "NotFound", "")).is_not_found());
        assert!(answer(Status::failure(403, "Forbidden", "")).is_forbidden());
        assert!(answer(Status::failure(429, "", "")).is_too_many_requests());
        let details = StatusDetails {
            causes: vec![StatusCause {
                reason: "ResourceVersionTooLarge".into(),
                ..StatusCause::default()
            }],
            retry_after_seconds: 1,
            ..StatusDetails::default()
        };
        let too_large = answer(Status::failure(504, "Timeout", "").with_details(details));
        assert!(too_large.is_too_large_resource_version());
        assert_eq!(too_large.retry_after(), Some(Duration::from_secs(1)));
        assert!(!expired.is_too_large_resource_version());
        assert_eq!(expired.retry_after(), None);
    }

    #[test]
    fn finds_a_refused_connection_behind_other_errors() {
        #[derive(Debug, thiserror::Error)]
        #[error("outer")]
        struct WrappedError(#[source] io::Error);
        let error = |kind| Error::Unreachable(Box::new(WrappedError(io::Error::from(kind))));
        assert!(error(io::ErrorKind::ConnectionRefused).is_connection_refused());
        assert!(!error(io::ErrorKind::ConnectionReset).is_connection_refused());
    }
}
