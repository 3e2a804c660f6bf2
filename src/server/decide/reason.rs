//! Why a request is forwarded.

/// Why a request is forwarded. The names are metric labels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// It brings an identity of its own, for which only the API server can answer.
    CallerIdentity,
    /// It is an upgrade: exec, attach, port-forward, a handshake that only the API server can word
    /// the refusal of.
    Upgrade,
    /// It is no GET.
    NotGet,
    /// Its path is no resource: discovery, OpenAPI, /version.
    NonResource,
    /// Its path has an empty segment (`//`).
    EmptySegment,
    /// Its path names a subresource.
    Subresource,
    /// Its path is one of the deprecated `/proxy/` and `/watch/` ones.
    DeprecatedPath,
    /// It asks for a Table.
    Table,
    /// It asks for metadata only, of a kind in whose whole objects the API server shows other
    /// annotations, or in a version that hardly anybody asks for.
    PartialMetadata,
    /// It asks for YAML, CBOR or nothing that is served.
    MediaType,
    /// Its parameters can't be read or contradict each other: the API server words the refusal.
    Malformed,
    /// Discovery does not know the resource, or it is never cached.
    NotCacheable,
    /// It selects by a field that is not known to be selectable.
    UnknownField,
    /// No informer runs that could answer it, and this request starts none.
    NotCached,
    /// kubefan's identity may not list and watch the resource.
    Forbidden,
    /// The API server does not have the resource in this format.
    NoSuchFormat,
    /// It asks for the most recent state of one object, which only the API server has for certain.
    Consistent,
    /// It asks for the most recent state, and the cache could not be proven to have it.
    Unproven,
    /// It asks for a state that the cache has not reached.
    AheadOfCache,
    /// It asks for a past state that is not retained.
    PastState,
    /// kubefan is going down, and starts no informer any more.
    ShuttingDown,
}

// === impl Reason ===

impl Reason {
    /// The metric label.
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
            Self::PartialMetadata => "partial_metadata",
            Self::MediaType => "media_type",
            Self::Malformed => "malformed",
            Self::NotCacheable => "not_cacheable",
            Self::UnknownField => "unknown_field",
            Self::NotCached => "not_cached",
            Self::Forbidden => "forbidden",
            Self::NoSuchFormat => "no_such_format",
            Self::Consistent => "consistent",
            Self::Unproven => "unproven",
            Self::AheadOfCache => "ahead_of_cache",
            Self::PastState => "past_state",
            Self::ShuttingDown => "shutting_down",
        }
    }
}
