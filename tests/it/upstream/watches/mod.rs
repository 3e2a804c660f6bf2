//! Watches, message by message.

mod live_streams;
mod resume;
mod websocket;
