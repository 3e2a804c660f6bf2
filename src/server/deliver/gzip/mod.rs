//! Gzip: bodies compressed while they are sent, and lists compressed once for several clients.

mod compress;
mod gzip_cache;
mod gzip_stream;

pub(crate) use compress::GzipBody;
pub(crate) use compress::OwnCompressor;
pub(crate) use compress::client_accepts_gzip;
pub(crate) use compress::with_gzip_headers;
pub(crate) use gzip_cache::GzipCache;
pub(crate) use gzip_cache::GzipCacheMetrics;
pub(crate) use gzip_cache::ListKey;
pub(crate) use gzip_cache::SharedList;
