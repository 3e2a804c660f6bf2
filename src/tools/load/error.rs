//! The errors that end a load test without a report.

use std::iter::successors;

use kubefan_core::upstream::ConnectError;

/// The reason why a load test has no report.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The kubeconfig, or a file that it refers to, cannot be used.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// A request to the server failed.
    #[error("cannot {what}")]
    Server {
        /// What the request was for; follows "cannot" in the message.
        what: String,
        /// Why the request failed.
        #[source]
        source: kubefan_core::upstream::Error,
    },
    /// Any other reason, as a complete message.
    #[error("{0}")]
    Refused(String),
    /// A thread or runtime could not be started, or ended early.
    #[error("cannot run the receiving threads")]
    Thread(#[source] std::io::Error),
    /// The process received a signal before the first write, so there is nothing to report.
    #[error("interrupted before the first write")]
    Interrupted,
}

/// Formats an error and its causes as one line, separated by colons.
pub(super) fn with_causes(error: &(dyn std::error::Error + 'static)) -> String {
    let causes = successors(Some(error), |&error| error.source());
    let texts: Vec<_> = causes.map(ToString::to_string).collect();
    texts.join(": ")
}
