//! The configuration of the client: the API server's address and the credentials.

use std::path::PathBuf;
use std::time::Duration;

/// The sources of the API server's address and of kubefan's credentials, and
/// the limit of its calls.
#[derive(Clone, Debug, PartialEq, Eq)]
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
    /// A file with certificate authorities (PEM), in place of the kubeconfig's. Without both, those
    /// of the system are used. The file is read again from time to time.
    pub ca_file: Option<PathBuf>,
    /// Time limit for the headers of an answer to one of kubefan's own calls. It does not limit the
    /// requests of callers. Default is 10 s.
    pub answer_timeout: Duration,
    /// How long an HTTP/2 connection may be silent before it is pinged, with or without requests.
    /// So kubefan often knows that the API server is dead before a client's request needs it.
    /// Default is 3 s.
    pub ping_interval: Duration,
    /// Time limit for the answer to a ping; after it, the connection and its requests
    /// fail. Default is 5 s.
    pub ping_timeout: Duration,
}

/// A server that is not the one in the kubeconfig, but gets the same credentials, such as a kubefan;
/// and how its certificate is verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtherServer {
    /// The server's URL, which begins with `https://`, so that only this server gets the
    /// credentials.
    pub url: String,
    /// A file with the certificate authorities (PEM). If `None`, those of the kubeconfig; if it has
    /// none, those of the system.
    pub certificate_authority: Option<PathBuf>,
    /// The name for which the server's certificate must be. If `None`, the host of `url`.
    pub tls_server_name: Option<String>,
    /// True to accept every certificate, so that a stranger between the two may take the
    /// credentials. The same setting in the kubeconfig does not count: it is about its own server.
    pub insecure_skip_tls_verify: bool,
}

impl Default for ClientConfig {
    fn default() -> Self {
        Self {
            kubeconfig: None,
            context: None,
            server: None,
            token_file: None,
            ca_file: None,
            answer_timeout: Duration::from_secs(10),
            ping_interval: Duration::from_secs(3),
            ping_timeout: Duration::from_secs(5),
        }
    }
}
