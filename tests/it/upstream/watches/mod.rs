//! The events of watches: while objects change, after resuming, and over WebSockets.

mod live_streams;
mod resume;
mod websocket;
