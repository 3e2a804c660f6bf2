//! The settings of the listeners: addresses, TLS and threads.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config::values::network::Network;

/// The listener for clients.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(in crate::config) struct Listen {
    /// Address for clients; loopback only, unless TLS is served and callers are authenticated.
    #[schemars(extend(
        "x-flag" = "--listen ADDRESS:PORT",
        "x-variable" = "KUBEFAN_LISTEN",
        "x-help" = true
    ))]
    pub(in crate::config) address: String,
    /// Accept an address that is not loopback although callers are not authenticated or TLS is not
    /// served. Anyone who reaches it reads and writes with kubefan's rights, or can read the callers'
    /// tokens.
    #[schemars(extend("x-help" = true))]
    pub(in crate::config) insecure_expose_to_network: bool,
    /// TLS for clients. Default: plain HTTP. Set certFile and keyFile, or selfSigned.
    pub(in crate::config) tls: ListenTls,
    /// Networks of load balancers that begin each connection with a PROXY header (version 1 or 2),
    /// such as 10.0.0.0/8. The header's address is taken for the client's in the audit log, in
    /// X-Forwarded-For and in the limits of addresses. Connections from there without a header are
    /// closed, and those from elsewhere have none: list only addresses that no client has.
    /// Default: none.
    #[schemars(extend(
        "x-flag" = "--proxy-protocol-from CIDR",
        "x-page" = "operating.md#load-balancers"
    ))]
    pub(in crate::config) proxy_protocol_from: Vec<Network>,
    /// Say in the header Cache-Status (RFC 9211) of each answer how it was made: by a cache and by which
    /// proof, or why the request was forwarded.
    #[schemars(extend("x-page" = "reasons.md#in-each-answer"))]
    pub(in crate::config) cache_status: bool,
    /// Number of threads that serve clients. Default: one per core.
    #[schemars(extend("x-variable" = "KUBEFAN_THREADS", "x-help" = true))]
    pub(in crate::config) threads: Option<NonZeroUsize>,
}

/// TLS for clients. Default: plain HTTP. Set certFile and keyFile, or selfSigned.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(in crate::config) struct ListenTls {
    /// Certificate chain (PEM) with which TLS is served; needs `listen.tls.keyFile`. Default: none.
    #[schemars(extend("x-flag" = "--tls-cert-file FILE", "x-help" = true))]
    pub(in crate::config) cert_file: Option<PathBuf>,
    /// Private key (PEM) for `listen.tls.certFile`. Default: none.
    #[schemars(extend("x-flag" = "--tls-private-key-file FILE", "x-help" = true))]
    pub(in crate::config) key_file: Option<PathBuf>,
    /// Serve TLS with a certificate of kubefan's own CA, kept in `listen.tls.directory`. Clients must
    /// trust its ca.crt; `kubefan kubeconfig --tls-self-signed` writes a kubeconfig that does. The
    /// names in the certificate are localhost, the loopback addresses and `listen.address`.
    #[schemars(extend("x-flag" = "--tls-self-signed BOOL", "x-help" = true))]
    pub(in crate::config) self_signed: bool,
    /// Directory for the CA and keys of `listen.tls.selfSigned`. Default: kubefan/tls in the user's
    /// state directory.
    #[schemars(extend("x-flag" = "--tls-dir DIR", "x-help" = true))]
    pub(in crate::config) directory: Option<PathBuf>,
}

/// The listener for health and metrics.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(in crate::config) struct Admin {
    /// Address for /livez, /readyz, /metrics, the admin API (/admin/v1/) and its dashboard. If it is
    /// not loopback, TLS is served, and /metrics, /readyz?verbose and the admin API need a caller that
    /// may get the path /metrics of the API server (names of users and `kubefan why` have rules of
    /// their own). Probes of /livez and /readyz need no credentials.
    #[schemars(extend(
        "x-flag" = "--admin-listen ADDRESS:PORT",
        "x-variable" = "KUBEFAN_ADMIN_LISTEN",
        "x-help" = true,
        "x-page" = "operating.md#health-and-metrics"
    ))]
    pub(in crate::config) address: String,
    /// Answer everyone with the metrics although `admin.address` is not loopback, and serve plain HTTP
    /// there unless `admin.tls.certFile` or `admin.tls.selfSigned` is set. The metrics name resources
    /// and count objects. The admin API is closed there.
    #[schemars(extend("x-flag" = "--admin-insecure-expose-to-network BOOL"))]
    pub(in crate::config) insecure_expose_to_network: bool,
    /// Count what each client uses and what the caches save the API server, for /admin/v1/bill and
    /// /admin/v1/advice.
    #[schemars(extend("x-page" = "bill.md"))]
    pub(in crate::config) bill: bool,
    /// TLS for probes and metrics. Default: on loopback plain HTTP, elsewhere the certificate of the
    /// listener for clients.
    pub(in crate::config) tls: AdminTls,
}

/// TLS for probes and metrics. Default: on loopback plain HTTP, elsewhere the certificate of the
/// listener for clients.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(in crate::config) struct AdminTls {
    /// Certificate chain (PEM) with which TLS is served on `admin.address`; needs `admin.tls.keyFile`.
    /// Default: on loopback plain HTTP, elsewhere the certificate for clients.
    #[schemars(extend("x-flag" = "--admin-tls-cert-file FILE"))]
    pub(in crate::config) cert_file: Option<PathBuf>,
    /// Private key (PEM) for `admin.tls.certFile`. Default: none.
    #[schemars(extend("x-flag" = "--admin-tls-private-key-file FILE"))]
    pub(in crate::config) key_file: Option<PathBuf>,
    /// Serve TLS on `admin.address` with a new certificate, which is in memory only. Probes do not
    /// verify it, and scrapers must not.
    #[schemars(extend("x-flag" = "--admin-tls-self-signed BOOL"))]
    pub(in crate::config) self_signed: bool,
}

// === Defaults ===

impl Default for Listen {
    fn default() -> Self {
        Self {
            address: "127.0.0.1:8001".to_owned(),
            insecure_expose_to_network: false,
            tls: ListenTls::default(),
            proxy_protocol_from: Vec::new(),
            cache_status: true,
            threads: None,
        }
    }
}

impl Default for Admin {
    fn default() -> Self {
        Self {
            address: "127.0.0.1:8002".to_owned(),
            insecure_expose_to_network: false,
            bill: true,
            tls: AdminTls::default(),
        }
    }
}
