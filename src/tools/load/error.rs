//! The errors that end a load test without a report.

use kubefan_core::upstream::ConnectError;

/// The reason why a load test has no report.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The kubeconfig, or a file that it refers to, cannot be used.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The server is not on this machine, and no flag names it or its context.
    #[error(
        "{server} is the current context's server and is not on this machine: a load test may harm it; \
         name it with {flags} to test it"
    )]
    NotNamed {
        /// The server's URL.
        server: String,
        /// The flags that can name the server.
        flags: &'static str,
    },
    /// A request to the server failed.
    #[error("cannot {what}")]
    Server {
        /// What the request was for; follows "cannot" in the message.
        what: String,
        /// Why the request failed.
        #[source]
        source: kubefan_core::upstream::Error,
    },
    /// The resource is unknown, is not namespaced, or lacks a verb that the test needs.
    #[error("--resource: {0}")]
    Resource(String),
    /// Some watchers did not receive all objects in time.
    #[error("{synced} of {watchers} watchers have seen all objects after {seconds} s{}", .hint)]
    NotSynced {
        /// The number of watchers that received all objects.
        synced: usize,
        /// The number of all watchers.
        watchers: u32,
        /// The time limit, in seconds.
        seconds: u64,
        /// Advice at the end of the message; empty if there is none.
        hint: String,
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
pub(super) fn with_causes(error: &dyn std::error::Error) -> String {
    let mut line = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        line = format!("{line}: {error}");
        cause = error.source();
    }
    line
}
