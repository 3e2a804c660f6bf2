//! Kind: what the bytes of a charge are.

/// What the bytes of a charge are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The state and buffers of a connection that has or had a request.
    Connection,
    /// The state of a request and the head of both messages.
    Stream,
    /// Chunks of bodies that the HTTP library has taken and the client has not.
    Body,
    /// Items of lists that were converted before the list is sent.
    List,
    /// Chunks of watches, and events that a watch has fetched.
    Watch,
    /// The buffers of a WebSocket.
    WebSocket,
    /// A compressor that works for one client only.
    Gzip,
}

impl Kind {
    /// The number of kinds.
    pub(super) const COUNT: usize = Self::ALL.len();

    /// All kinds, in the order of their indexes.
    pub(super) const ALL: [Self; 7] = [
        Self::Connection,
        Self::Stream,
        Self::Body,
        Self::List,
        Self::Watch,
        Self::WebSocket,
        Self::Gzip,
    ];

    /// The value of the metric label `kind`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Connection => "connection",
            Self::Stream => "stream",
            Self::Body => "body",
            Self::List => "list",
            Self::Watch => "watch",
            Self::WebSocket => "websocket",
            Self::Gzip => "gzip",
        }
    }
}
