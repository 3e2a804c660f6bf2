//! The settings of authentication and authorization.

use std::num::NonZeroU32;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config::values::units::Period;
use crate::identity;

/// How callers are authenticated.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(in crate::config) struct Authentication {
    /// How callers are authenticated: none (kubefan answers with its own rights), caller (the API
    /// server is asked with the caller's token), or delegated (it is asked with kubefan's rights to
    /// review tokens and access). Default: caller if TLS is served, otherwise none.
    #[schemars(extend(
        "x-flag" = "--auth MODE",
        "x-variable" = "KUBEFAN_AUTH",
        "x-help" = true,
        "x-page" = "access.md"
    ))]
    pub(in crate::config) mode: Option<identity::Mode>,
    /// Let requests without credentials read from the caches what the user system:anonymous may read.
    /// kubefan needs the right to review access for this. Otherwise they are only forwarded, without
    /// any identity.
    #[schemars(extend("x-flag" = "--anonymous-auth BOOL"))]
    pub(in crate::config) anonymous: bool,
    /// Accept client certificates, and those of authenticating proxies. kubefan needs the rights of
    /// an administrator to serve these callers; without them say false, which spares it the attempt.
    #[schemars(extend("x-help" = true))]
    pub(in crate::config) client_certificates: bool,
    /// Authorities (PEM) of the client certificates that are accepted. Default: those of the API
    /// server, from the ConfigMap kube-system/extension-apiserver-authentication, as far as kubefan
    /// may read it.
    #[schemars(extend("x-flag" = "--client-ca-file FILE"))]
    pub(in crate::config) client_ca_file: Option<PathBuf>,
    /// Authorities (PEM) of authenticating proxies, which name the user in headers X-Remote-User
    /// and so on. Default: as `authentication.clientCaFile`.
    #[schemars(extend("x-flag" = "--requestheader-client-ca-file FILE"))]
    pub(in crate::config) requestheader_client_ca_file: Option<PathBuf>,
    /// Common names of authenticating proxies with a certificate of
    /// `authentication.requestheaderClientCaFile`. Default: any.
    #[schemars(extend("x-flag" = "--requestheader-allowed-names NAME"))]
    pub(in crate::config) requestheader_allowed_names: Vec<String>,
    /// How long the owner of a token is remembered, unless it expires before.
    #[schemars(extend("x-flag" = "--authentication-token-cache-ttl DURATION"))]
    pub(in crate::config) token_ttl: Period,
    /// Longest time after which the token of an open watch is asked about again. A token that is
    /// revoked ends its watches then; deletions of service accounts and pods are noticed earlier.
    #[schemars(extend("x-flag" = "--authentication-reauthenticate DURATION"))]
    pub(in crate::config) reauthenticate: Period,
}

/// How long the API server's decisions about callers are remembered, and how often it is asked again
/// about open watches.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(in crate::config) struct Authorization {
    /// How long it is remembered that a user may read something.
    #[schemars(extend("x-flag" = "--authorization-cache-authorized-ttl DURATION"))]
    pub(in crate::config) allowed_ttl: Period,
    /// How long it is remembered that a user may not read something. Not remembered for nodes.
    #[schemars(extend("x-flag" = "--authorization-cache-unauthorized-ttl DURATION"))]
    pub(in crate::config) denied_ttl: Period,
    /// How long a permission, and the owner of a token, count while the API server does not answer,
    /// if that is longer than they are remembered. Such answers have a Warning.
    #[schemars(extend("x-flag" = "--authorization-stale DURATION"))]
    pub(in crate::config) stale: Period,
    /// Longest time after which the right to an open watch is judged again, if
    /// `authorization.maxReviewsPerSecond` permits it. Changes of roles and bindings that kubefan sees
    /// are judged at once.
    #[schemars(extend("x-flag" = "--authorization-reauthorize DURATION"))]
    pub(in crate::config) reauthorize: Period,
    /// The most questions about the rights and tokens of open watches per second, on average. The
    /// questions of two seconds may be asked at once. The metric
    /// kubefan_open_watch_review_age_seconds shows whether they are enough.
    #[schemars(extend("x-flag" = "--authorization-max-reviews COUNT"))]
    pub(in crate::config) max_reviews_per_second: NonZeroU32,
    /// Keys of users' extra attributes that no authorizer of the cluster reads, such as
    /// authentication.kubernetes.io/pod-name. Users that differ only in these share decisions.
    #[schemars(extend("x-flag" = "--authorization-ignore-extra KEY"))]
    pub(in crate::config) ignore_extra: Vec<String>,
    /// Let the permission to read all objects of a resource include each of them by its name, so that
    /// reads by name need no question each. Say true only if no authorizer of the cluster forbids
    /// single names. Default: found out from the API server; true with RBAC alone.
    #[schemars(extend(
        "x-flag" = "--authorization-names-covered BOOL",
        "x-page" = "access.md#reads-by-name"
    ))]
    pub(in crate::config) names_covered: Option<bool>,
}

// === Defaults ===

impl Default for Authentication {
    fn default() -> Self {
        let access = identity::Config::default();
        Self {
            mode: None,
            anonymous: access.anonymous,
            client_certificates: true,
            client_ca_file: None,
            requestheader_client_ca_file: None,
            requestheader_allowed_names: Vec::new(),
            token_ttl: Period(access.token_ttl),
            reauthenticate: Period(access.reauthenticate),
        }
    }
}

impl Default for Authorization {
    fn default() -> Self {
        let access = identity::Config::default();
        Self {
            allowed_ttl: Period(access.allowed_ttl),
            denied_ttl: Period(access.denied_ttl),
            stale: Period(access.stale),
            reauthorize: Period(access.reauthorize),
            max_reviews_per_second: access.max_reviews_per_second,
            ignore_extra: access.ignored_extra,
            names_covered: access.names_covered,
        }
    }
}
