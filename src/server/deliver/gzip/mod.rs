//! Gzip: bodies compressed while they are sent, and lists compressed once for several clients.

mod compress;
mod rendering;
mod renderings;

pub(crate) use compress::Gzip;
pub(crate) use compress::announced;
pub(crate) use compress::is_accepted;
pub(crate) use renderings::Found;
pub(crate) use renderings::ListKey;
pub use renderings::RenderingMetrics;
pub(crate) use renderings::Renderings;
