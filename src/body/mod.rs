//! The one body type of requests and responses, and what bodies are wrapped in.

mod guard;
mod yielding;

use bytes::Bytes;
use http_body_util::BodyExt;
use http_body_util::Empty;
use http_body_util::Full;
use http_body_util::combinators::UnsyncBoxBody;

pub use guard::BodyGuard;
pub use guard::GuardedBody;
pub use guard::guarded;
pub use yielding::YieldingBody;

/// What a body may fail with.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A streaming body; dropping it gives up the rest.
pub type Body = UnsyncBoxBody<Bytes, BoxError>;

/// Boxes any body of bytes, such as hyper's `Incoming`.
pub fn boxed<B>(body: B) -> Body
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    body.map_err(Into::into).boxed_unsync()
}

/// No body.
pub fn empty() -> Body {
    boxed(Empty::new())
}

/// A body that is all there.
pub fn full(bytes: impl Into<Bytes>) -> Body {
    boxed(Full::new(bytes.into()))
}
