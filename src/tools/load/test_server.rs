//! A server with HTTP/2 in the process of the tests.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::{Request, Response};
use http_body::Frame;
use http_body_util::StreamBody;
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use kubefan_core::body;
use kubefan_core::body::Body;
use kubefan_core::upstream::{Client, Dial};
use tokio::io::DuplexStream;
use tokio::sync::Notify;

/// Bytes that a connection buffers in each direction.
const BUFFER: usize = 64 << 10;

/// Answers a request.
pub(super) type Handler = fn(&Request<Incoming>) -> Response<Body>;

/// Returns a client of a server that answers by `handler`. `drain` makes a connection close when its
/// requests have ended.
pub(super) fn client(handler: Handler, drain: &Arc<Notify>) -> Client {
    let drain = Arc::clone(drain);
    let dial: Dial = Arc::new(move || {
        let (near, far) = tokio::io::duplex(BUFFER);
        tokio::spawn(serve(far, handler, Arc::clone(&drain)));
        Ok(near)
    });
    Client::in_memory(&dial)
}

/// Serves a connection to its end.
pub(super) async fn serve(io: DuplexStream, handler: Handler, drain: Arc<Notify>) {
    let service = service_fn(move |request: Request<Incoming>| {
        let response = handler(&request);
        async move { Ok::<_, Infallible>(response) }
    });
    let builder = http2::Builder::new(TokioExecutor::new());
    let mut connection = pin!(builder.serve_connection(TokioIo::new(io), service));
    // The result is ignored, because some tests break the connection on purpose.
    tokio::select! {
        _ = connection.as_mut() => {}
        () = drain.notified() => {
            connection.as_mut().graceful_shutdown();
            let _ = connection.await;
        }
    }
}

/// Returns a body of these bytes that never ends.
pub(super) fn endless(first: Bytes) -> Body {
    let first = stream::iter([Ok::<_, Infallible>(Frame::data(first))]);
    body::boxed(StreamBody::new(first.chain(stream::pending())))
}

/// Returns the output of `awaited`; panics if it takes more than 30 s.
pub(super) async fn in_time<T>(awaited: impl Future<Output = T>) -> T {
    let given = tokio::time::timeout(Duration::from_secs(30), awaited).await;
    given.expect("no answer within 30 s")
}
