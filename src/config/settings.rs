//! Every setting of `kubefan serve` with its default, in the structure of the configuration file.
//!
//! The JSON Schema is made of these structs and their comments, so the comments are written for
//! whoever writes such a file. Nothing here is checked against anything else.

use std::num::NonZeroUsize;
use std::path::Path;
use std::path::PathBuf;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;
use serde::Serialize;

use crate::informer;

use super::LogFormat;
use super::freshness_rule::FreshnessRule;
use super::units::ByteSize;
use super::units::Period;

/// Configuration file of `kubefan serve --config`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
#[schemars(title = "kubefan configuration")]
pub(super) struct Settings {
    /// The API server whose objects are cached.
    pub(super) upstream: Upstream,
    /// Where clients connect.
    pub(super) listen: Listen,
    /// Where health and metrics are.
    pub(super) admin: Admin,
    /// What is cached, and how long.
    pub(super) cache: Cache,
    /// How kubefan ends.
    pub(super) shutdown: Shutdown,
    /// What is logged, to standard error.
    pub(super) log: Log,
}

/// The API server whose objects are cached.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Upstream {
    /// Kubeconfig of the cluster; without it $KUBECONFIG, ~/.kube/config, or the pod's service
    /// account. A relative path is relative to the configuration file.
    pub(super) kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig; without it the current one.
    pub(super) context: Option<String>,
}

/// Where clients connect.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Listen {
    /// ADDRESS:PORT; loopback only.
    pub(super) address: String,
    /// How connections are secured; plain HTTP without certFile and selfSigned.
    pub(super) tls: ListenTls,
    /// Threads that serve clients; without it one for each core.
    pub(super) threads: Option<NonZeroUsize>,
}

/// How connections are secured; plain HTTP without certFile and selfSigned.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct ListenTls {
    /// Certificate chain (PEM). A relative path is relative to the configuration file.
    pub(super) cert_file: Option<PathBuf>,
    /// Private key (PEM) of certFile. A relative path is relative to the configuration file.
    pub(super) key_file: Option<PathBuf>,
    /// Serve TLS with a certificate of a CA of its own, kept in the directory.
    pub(super) self_signed: bool,
    /// Where selfSigned keeps its CA and keys; without it kubefan/tls in the user's state
    /// directory. A relative path is relative to the configuration file.
    pub(super) directory: Option<PathBuf>,
}

/// Where health and metrics are.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Admin {
    /// ADDRESS:PORT of /livez, /readyz and /metrics.
    pub(super) address: String,
}

/// What is cached, and how long.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Cache {
    /// Resources to cache from the start, such as pods or deployments.apps. Others are cached once a
    /// client lists or watches them.
    pub(super) resources: Vec<String>,
    /// Cache every resource that can be cached from the start.
    pub(super) all: bool,
    /// Labels whose values are indexed, so that lists selecting by them touch only what they return.
    pub(super) index_labels: Vec<String>,
    /// How fresh answers to "the most recent state" have to be: strict (as fresh as the request, the
    /// default), bounded:5s (proven no longer ago), or any; of one resource pods=any. The later wins.
    pub(super) freshness: Vec<FreshnessRule>,
    /// Stop caching a resource that nobody used for so long, unless resources or all names it. A
    /// number and ms, s, m or h.
    pub(super) idle_timeout: Period,
    /// How long a resource's events are kept at least, memory allowing, for watches that come back.
    /// A number and ms, s, m or h.
    pub(super) retention_age: Period,
    /// Bytes of events that are kept of a resource at most, with Ki, Mi or Gi if wanted; without it
    /// the larger of 64Mi and twice the objects.
    pub(super) retention_bytes: Option<ByteSize>,
}

/// How kubefan ends.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Shutdown {
    /// How long running requests and watches have. A number and ms, s, m or h.
    pub(super) grace_period: Period,
}

/// What is logged, to standard error.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Log {
    /// Form of the lines.
    pub(super) format: LogFormat,
    /// 0 is info, 1 debug, 2 trace (in debug builds only). RUST_LOG overrides it.
    pub(super) verbosity: u8,
}

// === impl Settings ===

impl Settings {
    /// The settings that name files, each with its key.
    pub(super) fn paths(&mut self) -> [(&'static str, &mut Option<PathBuf>); 4] {
        let tls = &mut self.listen.tls;
        [
            ("upstream.kubeconfig", &mut self.upstream.kubeconfig),
            ("listen.tls.certFile", &mut tls.cert_file),
            ("listen.tls.keyFile", &mut tls.key_file),
            ("listen.tls.directory", &mut tls.directory),
        ]
    }

    /// Makes relative paths relative to a directory.
    pub(super) fn resolve(&mut self, directory: &Path) {
        for (_, path) in self.paths() {
            if let Some(path) = path {
                *path = directory.join(&*path);
            }
        }
    }
}

// === Defaults ===

impl Default for Listen {
    fn default() -> Self {
        Self {
            address: "127.0.0.1:8001".to_owned(),
            tls: ListenTls::default(),
            threads: None,
        }
    }
}

impl Default for Admin {
    fn default() -> Self {
        let address = "127.0.0.1:8002".to_owned();
        Self { address }
    }
}

impl Default for Cache {
    fn default() -> Self {
        Self {
            resources: Vec::new(),
            all: false,
            index_labels: Vec::new(),
            freshness: Vec::new(),
            idle_timeout: Period(informer::Config::DEFAULT_IDLE_TIMEOUT),
            retention_age: Period(informer::Config::DEFAULT_RETENTION_AGE),
            retention_bytes: None,
        }
    }
}

impl Default for Shutdown {
    fn default() -> Self {
        let grace_period = Period(Duration::from_secs(10));
        Self { grace_period }
    }
}

impl Default for Log {
    fn default() -> Self {
        Self {
            format: LogFormat::Text,
            verbosity: 0,
        }
    }
}
