//! Where the API server is, and whose credentials are shown to it.

use std::path::PathBuf;

/// Where the API server and the credentials for it are found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientConfig {
    /// The kubeconfig file. Default is what `KUBECONFIG` lists, then `~/.kube/config`, then the
    /// pod's service account.
    pub kubeconfig: Option<PathBuf>,
    /// The kubeconfig's context. Default is its `current-context`.
    pub context: Option<String>,
    /// Another server than the kubeconfig's, reached with its credentials. Where neither `kubeconfig` nor
    /// `context` is given, none is read: credentials go to nobody whom they were not meant for.
    pub server: Option<String>,
    /// A file with the bearer token to send, in place of the kubeconfig's credentials.
    pub token_file: Option<PathBuf>,
}
