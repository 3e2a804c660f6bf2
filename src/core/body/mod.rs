//! The body type of all requests and responses, and wrappers that add behaviour to a body.

mod guard;
mod yielding;

use bytes::Bytes;
pub use guard::{BodyGuard, GuardedBody, guarded};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Empty, Full};
pub use yielding::YieldingBody;

/// The error of a body that fails while it is read.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A streaming body. Dropping it discards the part that was not read.
pub type Body = UnsyncBoxBody<Bytes, BoxError>;

/// Boxes any body of bytes, such as hyper's `Incoming`.
pub fn boxed<B>(body: B) -> Body
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    body.map_err(Into::into).boxed_unsync()
}

/// Returns a body of zero bytes.
pub fn empty() -> Body {
    boxed(Empty::new())
}

/// Returns a body with all its bytes in memory.
pub fn full(bytes: impl Into<Bytes>) -> Body {
    boxed(Full::new(bytes.into()))
}
