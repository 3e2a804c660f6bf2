//! The errors of requests to a running kubefan.

use std::time::Duration;

use http::StatusCode;
use kubefan_core::body::BoxError;
use kubefan_core::upstream;

/// Why a running kubefan did not give an answer that can be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// kubefan refused the request, or failed.
    #[error("kubefan answered {code}: {message}")]
    Answered {
        /// The status code.
        code: u16,
        /// kubefan's words.
        message: String,
    },
    /// No connection could be opened.
    #[error("cannot reach kubefan")]
    Unreachable(#[source] BoxError),
    /// The certificate is of an unknown authority, or for another name.
    #[error(
        "cannot verify the certificate of kubefan; see --certificate-authority, --tls-server-name \
         and --insecure-skip-tls-verify"
    )]
    Untrusted(#[source] BoxError),
    /// The connection broke.
    #[error("the connection to kubefan broke")]
    Broken(#[source] BoxError),
    /// There are no credentials to send. The text contains no secrets.
    #[error("cannot get the credentials for kubefan: {0}")]
    Credentials(String),
    /// Nothing arrived within this time.
    #[error("kubefan sent nothing within {0:?}")]
    Timeout(Duration),
    /// The answer is larger than this number of bytes.
    #[error("the answer is larger than {0} bytes")]
    TooLarge(usize),
    /// The answer is not JSON.
    #[error("the answer is not the JSON of a kubefan")]
    Malformed(#[source] serde_json::Error),
    /// The request could not be sent for another reason.
    #[error("cannot ask kubefan")]
    Failed(#[source] BoxError),
}

// === impl Error ===

impl Error {
    /// Returns the error of an answer with this status and body.
    pub(super) fn answered(status: StatusCode, body: &[u8]) -> Self {
        let json: Option<serde_json::Value> = serde_json::from_slice(body).ok();
        let message = json.as_ref().and_then(|status| status["message"].as_str());
        let text = String::from_utf8_lossy(body);
        let first_line = || text.lines().next().unwrap_or_default().trim();
        Self::Answered {
            code: status.as_u16(),
            message: message.unwrap_or_else(first_line).to_owned(),
        }
    }

    /// Returns true if this kubefan has no such page.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::Answered { code: 404, .. })
    }

    /// Returns true if the caller has no right to read the page, or is not known.
    pub fn is_refused(&self) -> bool {
        matches!(
            self,
            Self::Answered {
                code: 401 | 403,
                ..
            }
        )
    }
}

impl From<upstream::Error> for Error {
    fn from(error: upstream::Error) -> Self {
        let is_untrusted = error.is_untrusted_server();
        match error {
            upstream::Error::Unreachable(cause) if is_untrusted => Self::Untrusted(cause),
            upstream::Error::Unreachable(cause) => Self::Unreachable(cause),
            upstream::Error::Transport(cause) => Self::Broken(cause),
            upstream::Error::Credentials(problem) => Self::Credentials(problem),
            upstream::Error::Timeout(limit) => Self::Timeout(limit),
            upstream::Error::TooLarge { limit } => Self::TooLarge(limit),
            other => Self::Failed(other.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_has_the_words_of_kubefan() {
        let status = r#"{"kind":"Status","message":"forbidden: User \"jane\""}"#;
        for (code, body, expected) in [
            (403, status, "forbidden: User \"jane\""),
            (
                404,
                "not found; there are:\n/livez",
                "not found; there are:",
            ),
            (502, "", ""),
            (500, "[1]", "[1]"),
        ] {
            let code = StatusCode::from_u16(code).expect("a status code");
            let error = Error::answered(code, body.as_bytes());
            let expected = format!("kubefan answered {}: {expected}", code.as_u16());
            assert_eq!(error.to_string(), expected);
            assert_eq!(error.is_not_found(), code == 404);
            assert_eq!(error.is_refused(), code == 403);
        }
    }
}
