//! A proxy between an API server and etcd that delays only watches. The API server's watch cache
//! then lags behind what the API server reads from etcd directly.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::{Body, Frame, Incoming};
use hyper::client::conn::http2::SendRequest;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};

use crate::support::proxies::listener::Listener;

const WATCH: &str = "/etcdserverpb.Watch/Watch";
/// The limit of concurrent HTTP/2 streams; higher than an API server needs on one connection.
const STREAMS: u32 = 10_000;

type Reply = Response<UnsyncBoxBody<Bytes, hyper::Error>>;

/// A running etcd proxy; it and all its connections end when this is dropped.
#[derive(Debug)]
pub(crate) struct LaggingEtcd {
    listener: Listener,
    lag: watch::Sender<Duration>,
}

impl LaggingEtcd {
    /// Starts a proxy to the etcd on this port of 127.0.0.1, without a delay at first.
    pub(crate) async fn start(etcd: u16) -> Self {
        let lag = watch::Sender::new(Duration::ZERO);
        let late = lag.subscribe();
        let serve = move |_, client| {
            let passed = pass(client, etcd, late.clone());
            // If either side ends, both connections end, and the API server reconnects.
            async move { drop(passed.await) }
        };
        Self {
            listener: Listener::start(serve).await,
            lag,
        }
    }

    pub(crate) fn url(&self) -> String {
        self.listener.http_url().to_owned()
    }

    /// Delays the frames of watches that arrive from now on by this time, in their order.
    pub(crate) fn lag(&self, by: Duration) {
        self.lag.send_replace(by);
    }
}

async fn pass(
    client: TcpStream,
    etcd: u16,
    lag: watch::Receiver<Duration>,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    client.set_nodelay(true)?;
    let server = TcpStream::connect(("127.0.0.1", etcd)).await?;
    server.set_nodelay(true)?;
    let (sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(server)).await?;
    let service = service_fn(move |request| forward(sender.clone(), request, lag.clone()));
    let serving = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
        .max_concurrent_streams(STREAMS)
        .serve_connection(TokioIo::new(client), service);
    tokio::select! {
        served = serving => served?,
        ended = connection => ended?,
    }
    Ok(())
}

async fn forward(
    mut etcd: SendRequest<Incoming>,
    request: Request<Incoming>,
    lag: watch::Receiver<Duration>,
) -> Result<Reply, hyper::Error> {
    let is_watch = request.uri().path() == WATCH;
    let response = etcd.send_request(request).await?;
    Ok(if is_watch {
        response.map(|body| Late::new(body, lag).map_err(never).boxed_unsync())
    } else {
        response.map(|body| body.boxed_unsync())
    })
}

fn never(never: Infallible) -> hyper::Error {
    match never {}
}

/// A body that delivers the frames of another body in order, each delayed by the lag at the time of
/// its arrival.
struct Late {
    frames: mpsc::UnboundedReceiver<Frame<Bytes>>,
    reading: JoinHandle<()>,
}

impl Late {
    fn new(mut body: Incoming, lag: watch::Receiver<Duration>) -> Self {
        let (arrived, mut waiting) = mpsc::unbounded_channel();
        let (sender, frames) = mpsc::unbounded_channel();
        let reading = async move {
            // If etcd's watch breaks, this body ends without gRPC trailers, which the API server
            // treats as an error.
            while let Some(Ok(frame)) = body.frame().await {
                let due = Instant::now() + *lag.borrow();
                if arrived.send((due, frame)).is_err() {
                    return;
                }
            }
        };
        let releasing = async move {
            while let Some((due, frame)) = waiting.recv().await {
                sleep_until(due).await;
                if sender.send(frame).is_err() {
                    return;
                }
            }
        };
        let reading = tokio::spawn(async move {
            tokio::join!(reading, releasing);
        });
        Self { frames, reading }
    }
}

impl Drop for Late {
    fn drop(&mut self) {
        self.reading.abort();
    }
}

impl Body for Late {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.frames.poll_recv(context).map(|frame| frame.map(Ok))
    }
}
