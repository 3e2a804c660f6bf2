//! Why there is no report.

use crate::upstream::ConnectError;

/// A load test that could not be carried out.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The kubeconfig, or what it refers to, can't be used.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// A server that nobody named.
    #[error(
        "{server} is the current context's server, and not on this machine: a load test may harm it; \
         name it with {flags} if it is meant"
    )]
    NotNamed {
        /// Its URL.
        server: String,
        /// What names it.
        flags: &'static str,
    },
    /// Something that the server refuses or can't do.
    #[error("cannot {what}")]
    Server {
        /// What was tried.
        what: String,
        /// Why not.
        #[source]
        source: crate::upstream::Error,
    },
    /// A resource that can't be tested with.
    #[error("--resource: {0}")]
    Resource(String),
    /// Watchers that did not get to see all objects.
    #[error("{synced} of {watchers} watchers have seen all objects after {seconds} s{}", .hint)]
    NotSynced {
        /// How many did.
        synced: usize,
        /// How many there are.
        watchers: u32,
        /// How long was waited.
        seconds: u64,
        /// What may help.
        hint: String,
    },
    /// Something else that can't be done as asked.
    #[error("{0}")]
    Refused(String),
    /// A thread or runtime that can't be started, or ended early.
    #[error("cannot run the receiving threads")]
    Thread(#[source] std::io::Error),
    /// A signal came before there was anything to report.
    #[error("interrupted before the first write")]
    Interrupted,
}

/// An error and its causes, on one line.
pub(super) fn with_causes(error: &dyn std::error::Error) -> String {
    let mut line = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        line = format!("{line}: {error}");
        cause = error.source();
    }
    line
}
