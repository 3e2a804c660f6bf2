//! Why a request is forwarded.

use kubefan_core::upstream::NotCacheable;
use schemars::JsonSchema;

/// Why a request is forwarded. [`Reason::name`] gives the metric label.
///
/// `decide` returns the reasons up to `ShardSelector`, which depend on the request alone, and
/// `PastState` for a `continue` token that kubefan did not issue. `OutOfScope` is also returned
/// after `decide`, for a GET of an object that the cache does not have. The others depend on the
/// state of the cache, and are returned by the stages after `decide`.
///
/// `docs/reasons.md` documents each reason, and says what to do about it.
// The comments are the texts of the page and of `Reason::meaning`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, JsonSchema)]
#[schemars(rename_all = "snake_case")]
pub enum Reason {
    /// The request acts with an identity that only the API server can check.
    CallerIdentity,
    /// The request is an upgrade: exec, attach, port-forward, or a WebSocket handshake that only
    /// the API server can refuse in its own words.
    Upgrade,
    /// The method is not GET.
    NotGet,
    /// The path does not name a resource: discovery, OpenAPI, `/version`.
    NonResource,
    /// The path has an empty segment (`//`).
    EmptySegment,
    /// The path names a subresource.
    Subresource,
    /// The path has the deprecated form `/proxy/…` or `/watch/…`, or the plural of the resource is
    /// one of these words.
    DeprecatedPath,
    /// The `Accept` header asks for a Table that kubefan does not print: of this kind, of this
    /// version of the API server, or in YAML.
    Table,
    /// The `Accept` header asks for a Table. kubefan has not yet compared the Tables that it prints
    /// of this kind with those of the API server.
    TableUnchecked,
    /// The `Accept` header asks for a Table of a kind that kubefan has printed differently from the
    /// API server in a comparison, or for which it could not print an object.
    TableDiffers,
    /// The `Accept` header asks for metadata only, in the rarely used version `v1beta1`, or of
    /// autoscaling/v1 HorizontalPodAutoscalers: their complete objects have other annotations.
    PartialMetadata,
    /// The `Accept` header prefers a media type that no cache has, such as YAML or CBOR, and allows
    /// no JSON, or the API server refuses it. With the outcome `cache`: it allows JSON, and the
    /// client got JSON.
    MediaType,
    /// The query parameters are invalid or contradict each other; the API server words the error.
    Malformed,
    /// The API server has no such resource, as after a mistake in its name.
    Unknown,
    /// The path names a namespace for a resource that has none, or no namespace for an object that
    /// is in one, or a name that no object can have.
    WrongPath,
    /// The API server can't both list and watch the resource.
    NotWatchable,
    /// Another API server serves the resource, or perhaps does: kubefan can't read APIServices.
    Aggregated,
    /// The resource is Secrets, and TLS is served without `--cache-secrets`.
    Secrets,
    /// The configuration says that the resource is never cached.
    Never,
    /// A field selector uses a field that kubefan does not recognize as selectable.
    UnknownField,
    /// The configuration limits which objects of the resource are cached, and the request may
    /// select others.
    OutOfScope,
    /// The request has a `shardSelector`, and kubefan does not serve shards.
    ShardSelector,
    /// No informer that could answer is ready, and this request starts none; or the resource's
    /// definition has just changed.
    NotCached,
    /// The API server does not let the caller read this, or has given no clear answer.
    NotAuthorized,
    /// kubefan's identity may not list and watch the resource.
    Forbidden,
    /// The API server does not serve the resource in this format.
    NoSuchFormat,
    /// The request is for the most recent state of one object, of a Table without objects, or of
    /// events. The API server is asked for it.
    Consistent,
    /// The request is for the most recent state, and the cache could not be proven to have it.
    Unproven,
    /// The cache and the API server lastingly have different objects of the request's selection.
    CacheDiffers,
    /// The request is for a resource version that the cache has not reached.
    AheadOfCache,
    /// The request is for a past state that the cache does not retain.
    PastState,
    /// kubefan is shutting down and starts no more informers.
    ShuttingDown,
}

// === impl Reason ===

impl Reason {
    /// Returns the value of the metric label `reason`.
    pub fn name(self) -> &'static str {
        match self {
            Self::CallerIdentity => "caller_identity",
            Self::Upgrade => "upgrade",
            Self::NotGet => "not_get",
            Self::NonResource => "non_resource",
            Self::EmptySegment => "empty_segment",
            Self::Subresource => "subresource",
            Self::DeprecatedPath => "deprecated_path",
            Self::Table => "table",
            Self::TableUnchecked => "table_unchecked",
            Self::TableDiffers => "table_differs",
            Self::PartialMetadata => "partial_metadata",
            Self::MediaType => "media_type",
            Self::Malformed => "malformed",
            Self::Unknown => "unknown",
            Self::WrongPath => "wrong_path",
            Self::NotWatchable => "not_watchable",
            Self::Aggregated => "aggregated",
            Self::Secrets => "secrets",
            Self::Never => "never",
            Self::UnknownField => "unknown_field",
            Self::OutOfScope => "out_of_scope",
            Self::ShardSelector => "shard_selector",
            Self::NotCached => "not_cached",
            Self::NotAuthorized => "not_authorized",
            Self::Forbidden => "forbidden",
            Self::NoSuchFormat => "no_such_format",
            Self::Consistent => "consistent",
            Self::Unproven => "unproven",
            Self::CacheDiffers => "cache_differs",
            Self::AheadOfCache => "ahead_of_cache",
            Self::PastState => "past_state",
            Self::ShuttingDown => "shutting_down",
        }
    }
}

impl From<NotCacheable> for Reason {
    fn from(why: NotCacheable) -> Self {
        match why {
            NotCacheable::Unknown => Self::Unknown,
            NotCacheable::Verbs => Self::NotWatchable,
            NotCacheable::DeprecatedPath => Self::DeprecatedPath,
            NotCacheable::Aggregated | NotCacheable::PerhapsAggregated => Self::Aggregated,
            // The only resource that `App` excludes.
            NotCacheable::Excluded => Self::Secrets,
            // Events are excluded only for library programs.
            NotCacheable::Never | NotCacheable::Events => Self::Never,
        }
    }
}
