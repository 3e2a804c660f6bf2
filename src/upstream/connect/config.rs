//! The configuration of the client: the API server's address and the credentials.

use std::path::PathBuf;

/// The sources of the API server's address and of kubefan's credentials.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientConfig {
    /// The kubeconfig file. If `None`, the files that `KUBECONFIG` lists; if it is unset,
    /// `~/.kube/config`; if that does not exist, the pod's service account.
    pub kubeconfig: Option<PathBuf>,
    /// The context in the kubeconfig. If `None`, the kubeconfig's `current-context`.
    pub context: Option<String>,
    /// The server's URL, in place of the server in the kubeconfig. If neither `kubeconfig` nor
    /// `context` is set, no kubeconfig is read: its credentials are meant for another server.
    pub server: Option<String>,
    /// A file with a bearer token, in place of the kubeconfig's credentials.
    pub token_file: Option<PathBuf>,
}
