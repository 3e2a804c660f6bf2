//! Why no client could be made: one line, with the error's source, that says what is wrong, where,
//! and what would be right.

use std::path::PathBuf;

/// A kubeconfig, or what it refers to, that can't be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// There is none.
    #[error(
        "no kubeconfig: KUBECONFIG is not set, {} does not exist, and this is no pod of a cluster; \
         name a file with --kubeconfig", .looked_at.display()
    )]
    NoKubeconfig {
        /// The default place.
        looked_at: PathBuf,
    },
    /// A file that can't be read.
    #[error("cannot read kubeconfig {}", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// A file that is no kubeconfig.
    #[error("kubeconfig {} is malformed: {problem}", .path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong, with line and column where known.
        problem: String,
    },
    /// A context that isn't there.
    #[error("kubeconfig {origin} has no context {name:?}; {}", known_names("context", .known))]
    UnknownContext {
        /// The files.
        origin: String,
        /// What was asked for.
        name: String,
        /// The contexts there are.
        known: Vec<String>,
    },
    /// No context chosen.
    #[error(
        "kubeconfig {origin} sets no current-context; choose one with --context; {}",
        known_names("context", .known)
    )]
    NoCurrentContext {
        /// The files.
        origin: String,
        /// The contexts there are.
        known: Vec<String>,
    },
    /// A context that names a cluster that isn't there.
    #[error(
        "context {context:?} of kubeconfig {origin} names cluster {name:?}, which is not there; {}",
        known_names("cluster", .known)
    )]
    UnknownCluster {
        /// The files.
        origin: String,
        /// The context.
        context: String,
        /// The cluster it names.
        name: String,
        /// The clusters there are.
        known: Vec<String>,
    },
    /// A value that can't be used.
    #[error("{origin}: {problem}")]
    Invalid {
        /// The files and the context, or the pod's service account.
        origin: String,
        /// What is wrong.
        problem: String,
    },
}

fn known_names(what: &str, known: &[String]) -> String {
    match known {
        [] => format!("there is no {what} in it"),
        _ => format!("{what}s there: {}", known.join(", ")),
    }
}

/// An error and its causes, on one line.
pub(super) fn one_line(error: &(dyn std::error::Error + 'static)) -> String {
    let mut line = flatten(&error.to_string());
    let mut cause = error.source();
    while let Some(error) = cause {
        let text = flatten(&error.to_string());
        if !line.contains(&text) {
            line = format!("{line}: {text}");
        }
        cause = error.source();
    }
    line
}

fn flatten(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
