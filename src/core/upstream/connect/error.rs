//! The error for kubeconfigs that can't be used. Its message is one line, which contains the
//! problem, its place and what would be right.

use std::path::PathBuf;

use kube::client::AuthError;

/// The reason why a kubeconfig, or a file that it names, can't be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// No kubeconfig was found.
    #[error(
        "no kubeconfig: KUBECONFIG is not set, {} does not exist, and kubefan does not run in a \
         pod; name a file with --kubeconfig", .default_path.display()
    )]
    NoKubeconfig {
        /// The default path of the kubeconfig, which does not exist.
        default_path: PathBuf,
    },
    /// The kubeconfig file can't be read.
    #[error("cannot read kubeconfig {}", .path.display())]
    Read {
        /// The path of the kubeconfig file.
        path: PathBuf,
        /// The error of the operating system.
        #[source]
        source: std::io::Error,
    },
    /// The file is not a kubeconfig.
    #[error("kubeconfig {} is malformed: {problem}", .path.display())]
    Malformed {
        /// The path of the malformed file.
        path: PathBuf,
        /// The problem, with line and column if they are known.
        problem: String,
    },
    /// The chosen context does not exist in the kubeconfig.
    #[error("kubeconfig {origin} has no context {name:?}; {}", known_names("context", .known))]
    UnknownContext {
        /// The paths of the kubeconfig files, separated by colons.
        origin: String,
        /// The name of the chosen context.
        name: String,
        /// The names of the contexts that the kubeconfig has.
        known: Vec<String>,
    },
    /// No context was chosen.
    #[error(
        "kubeconfig {origin} sets no current-context; choose one with --context; {}",
        known_names("context", .known)
    )]
    NoCurrentContext {
        /// The paths of the kubeconfig files, separated by colons.
        origin: String,
        /// The names of the contexts that the kubeconfig has.
        known: Vec<String>,
    },
    /// The context names a cluster that does not exist in the kubeconfig.
    #[error(
        "context {context:?} of kubeconfig {origin} names cluster {name:?}, which does not exist; {}",
        known_names("cluster", .known)
    )]
    UnknownCluster {
        /// The paths of the kubeconfig files, separated by colons.
        origin: String,
        /// The name of the context.
        context: String,
        /// The name of the missing cluster.
        name: String,
        /// The names of the clusters that the kubeconfig has.
        known: Vec<String>,
    },
    /// A value in the kubeconfig can't be used.
    #[error("{origin}: {problem}")]
    Invalid {
        /// The source of the value: the context and its files, the service account, or the server.
        origin: String,
        /// The value and the problem with it, for people.
        problem: String,
    },
}

fn known_names(what: &str, known: &[String]) -> String {
    match known {
        [] => format!("it has no {what}s"),
        _ => format!("known {what}s: {}", known.join(", ")),
    }
}

/// Returns `error` and its causes.
pub(in crate::upstream) fn causes<'a>(
    error: &'a (dyn std::error::Error + 'static),
) -> impl Iterator<Item = &'a (dyn std::error::Error + 'static)> {
    std::iter::successors(Some(error), |&error| error.source())
}

/// Returns the messages of an error and its causes on one line; a message that is
/// already there is skipped.
pub(super) fn one_line(error: &(dyn std::error::Error + 'static)) -> String {
    let mut line = flatten(&error.to_string());
    for error in causes(error).skip(1) {
        let text = flatten(&error.to_string());
        if !line.contains(&text) {
            line = format!("{line}: {text}");
        }
    }
    line
}

/// Returns the problem with kubefan's credentials on one line, without the command, the environment
/// and the output of an exec plugin or auth provider: they may contain secrets.
pub(in crate::upstream) fn credentials_problem(error: &AuthError) -> String {
    match error {
        AuthError::AuthExecRun { out, .. } => format!("auth exec failed with {}", out.status),
        AuthError::AuthExecParse(_) => "the output of auth exec is not a credential".to_owned(),
        AuthError::AuthExec(_) => "the auth provider failed, or is not supported".to_owned(),
        error => one_line(error),
    }
}

fn flatten(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
