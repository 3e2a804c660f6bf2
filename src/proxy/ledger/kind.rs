//! MemoryKind: the purpose of the bytes of a charge.

/// The purpose of the bytes of a charge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryKind {
    /// The state and buffers of a connection that has or had a request.
    Connection,
    /// The state of a request and the heads of the request and its answer.
    Stream,
    /// Bodies of requests that are buffered until the API server has answered.
    Request,
    /// Chunks of bodies that the HTTP library has taken, but the client has not.
    Body,
    /// Items of lists that were converted before the list is sent.
    List,
    /// The state of watches, and initial events that are being sent.
    Watch,
    /// Events of watches that were copied into one chunk.
    Burst,
    /// The buffers of a WebSocket.
    WebSocket,
    /// The buffers of an upgraded connection that was forwarded.
    Upgrade,
    /// The buffers of a connection to the API server that only one request uses, because the API
    /// server has not accepted its caller yet.
    Upstream,
    /// Answers of the API server that several callers share.
    Shared,
    /// A compressor that works for one client only.
    Gzip,
}

impl MemoryKind {
    /// The number of kinds.
    pub(super) const COUNT: usize = Self::ALL.len();

    /// All kinds, in the order of their indexes, with the values of the metric label `kind`.
    pub(super) const ALL: [(Self, &str); 12] = [
        (Self::Connection, "connection"),
        (Self::Stream, "stream"),
        (Self::Request, "request"),
        (Self::Body, "body"),
        (Self::List, "list"),
        (Self::Watch, "watch"),
        (Self::Burst, "burst"),
        (Self::WebSocket, "websocket"),
        (Self::Upgrade, "upgrade"),
        (Self::Upstream, "upstream"),
        (Self::Shared, "shared"),
        (Self::Gzip, "gzip"),
    ];

    /// Returns true if the work can also be done without this memory. A refusal is then no sign
    /// that memory is short.
    pub(super) fn is_optional(self) -> bool {
        matches!(self, Self::List | Self::Burst | Self::Shared)
    }

    /// Returns the value of the metric label `kind`.
    pub fn name(self) -> &'static str {
        Self::ALL[self as usize].1
    }
}
