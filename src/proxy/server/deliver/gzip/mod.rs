//! Gzip: bodies that are compressed while they are sent, and watches with initial events that are
//! compressed once for several clients.

mod compress;
mod gzip_watch;
mod initial_chunk;
mod initial_chunk_cache;
mod initial_events;
mod member;

pub(crate) use compress::{
    COMPRESSOR_BYTES, GzipBody, GzipWriter, client_accepts_gzip, with_gzip_headers,
};
pub(crate) use gzip_watch::{GzipWatchBody, compressed_event};
pub(crate) use initial_chunk_cache::{InitialChunkCache, chunk_counter};
pub(crate) use initial_events::InitialEvents;
