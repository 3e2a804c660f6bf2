//! Serves one connection from its first request to its end, over any transport.

use std::error::Error;
use std::future::poll_fn;
use std::io;
use std::iter::successors;
use std::num::NonZeroU32;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body::Body;
use hyper::service::service_fn;
use tower::Service;

use crate::bill::CpuAccount;
use crate::ledger::{Account, Client};
use crate::net::input::incoming::Incoming;
use crate::net::input::paced_reads::PacedReads;
use crate::net::input::received::{Received, RequestBody};
use crate::net::input::resets::{PeerLimit, Unanswered};
use crate::net::output::abort::Answer;
use crate::net::output::answer_body::AnswerBody;
use crate::net::output::answer_slot::{AnswerSlot, permits_plain_chunks};
use crate::net::output::coalesce::{Flusher, coalesce};
use crate::net::output::http1;
use crate::net::output::http1::Http1;
use crate::net::output::http2::Http2;
use crate::net::output::part_waker::PartWaker;
use crate::net::output::streams::{OpenStreams, StreamHandle, Streams};
use crate::net::served_socket::{Meter, ServedSocket};
use crate::net::{Abort, ClientConnection, ClientHandle, Config, Peer, Protocol, Transport};

/// Any error of a body or a service.
pub type BoxError = Box<dyn Error + Send + Sync>;

/// A peer may send the resets of this many seconds at once.
const RESET_BURST_SECONDS: NonZeroU32 = NonZeroU32::new(2).expect("two is not zero");

/// A tower service that answers requests, and can be cloned for each request. It must always be
/// ready, because `poll_ready` is not called. A future that contains the request should be boxed: an
/// HTTP/2 stream keeps the memory of the future itself until its answer has ended.
pub trait HttpService<B>:
    Service<Request<RequestBody>, Response = Response<B>, Future: Send, Error: Into<BoxError>>
    + Clone
    + Send
    + 'static
{
}

/// The body of a response.
pub trait ResponseBody: Body<Data = Bytes, Error: Into<BoxError>> + Send + Unpin + 'static {}

/// The future of [`serve_connection`]. It is boxed because its size differs much between protocols.
pub type ConnectionFuture = Pin<Box<dyn Future<Output = Result<(), BoxError>> + Send>>;

/// The error of a connection that the ledger has closed.
const CLOSED_FOR_MEMORY: &str =
    "closed because its client reads too slowly, or memory is short and it holds the most";

/// What the requests of a connection share.
struct Requests<S> {
    service: S,
    protocol: Protocol,
    peer: Peer,
    client_connection: ClientConnection,
    account: Option<Arc<Account>>,
    received: Received,
    /// The limit of resets, control frames and started requests; `None` over HTTP/1.1.
    limit: Option<Arc<PeerLimit>>,
    /// `None` if the CPU time is not measured.
    cpu: Option<Arc<CpuAccount>>,
}

/// A connection with what ends it.
struct Driven<C, S> {
    connection: C,
    account: Option<Arc<Account>>,
    /// True if the account wakes the connection.
    is_registered: bool,
    stop: Pin<Box<S>>,
    /// Called when `stop` completes; `None` after that.
    finish: Option<fn(&mut C)>,
    /// The waker of `account` and `stop`, which are polled only if one of them has woken the task.
    ends: PartWaker,
}

/// Serves the requests of a connection until the connection ends or is upgraded. With `account`,
/// the connection ends if the ledger closes the account. Each request has a [`ClientHandle`] as an
/// extension. The bytes in the connection's buffers are measured in the account. The limit of writes
/// is that of `socket`, not `config.write_timeout`.
///
/// When `stop` completes, or [`ClientConnection::finish`] is called, an idle connection is closed,
/// and a busy one is closed after its last response. A request that has arrived by then is
/// answered. The future never completes before the end or the upgrade of the connection.
///
/// # Errors
/// If the peer breaks the protocol, or an error of the service or a body ends the connection. A
/// peer that leaves or stays silent is not an error: watches and idle connections end that way.
pub fn serve_connection<I, B: ResponseBody, S: HttpService<B>>(
    socket: ServedSocket<I>,
    protocol: Protocol,
    peer: Peer,
    service: S,
    config: &Config,
    account: Option<Arc<Account>>,
    stop: impl Future<Output = ()> + Send + 'static,
) -> ConnectionFuture
where
    I: Transport + Send + 'static,
{
    if let Some(account) = &account {
        account.set_client(Client::new(peer.address, protocol.name(), peer.tls));
    }
    let client_connection = ClientConnection::with_files(socket.file_slots());
    let stop = stopped(stop, client_connection.clone());
    let buffers = account.as_ref().map(|account| account.buffers());
    let buffers = buffers.map(Arc::clone).unwrap_or_default();
    let received = Received::new(Arc::clone(&buffers), protocol);
    let limit = (protocol == Protocol::Http2).then(|| Arc::new(peer_limit(config)));
    let reads = received.reads(config.max_header_bytes, limit.clone());
    let socket = socket.metered(Meter::new(Arc::clone(&buffers), reads));
    let socket = socket.paced(limit.clone().map(PacedReads::new));
    let cpu = config.measures_cpu.then(Arc::<CpuAccount>::default);
    let requests = Requests {
        service,
        protocol,
        peer,
        client_connection,
        account,
        received,
        limit,
        cpu,
    };
    match protocol {
        Protocol::Http1 => requests.serve_http1(socket, &http1::builder(config), stop),
        Protocol::Http2 => {
            let (io, flusher) = coalesce(socket, buffers);
            requests.serve_http2(Http2::new(config, io), flusher, stop)
        }
    }
}

/// Completes when `stop` does, or when the requests of `connection` finish it.
async fn stopped(stop: impl Future<Output = ()>, connection: ClientConnection) {
    tokio::select! {
        () = stop => {}
        () = connection.finishing() => {}
    }
}

impl<S> Requests<S> {
    fn serve_http1<B: ResponseBody>(
        self,
        socket: ServedSocket<impl Transport + Send + 'static>,
        builder: &hyper::server::conn::http1::Builder,
        stop: impl Future<Output = ()> + Send + 'static,
    ) -> ConnectionFuture
    where
        S: HttpService<B>,
    {
        let (account, cpu) = (self.account.clone(), self.cpu.clone());
        let (is_upgraded, received) = (socket.is_upgraded(), self.received.clone());
        let slot = AnswerSlot::default();
        let answers = slot.clone();
        let service = service_fn(move |request: Request<hyper::body::Incoming>| {
            let (answers, is_permitted) = (answers.clone(), permits_plain_chunks(&request));
            let answer = self.answer::<B>(request.map(Incoming::Http1), None);
            async move {
                let answer = answer.await?;
                Ok::<_, S::Error>(answers.put(answer, is_permitted))
            }
        });
        let [ends, reads] = PartWaker::for_parts();
        let connection = Http1::new(builder, socket, service, slot, received, reads);
        let mut driven = Driven::new(connection, account, stop, Http1::finish, ends);
        Box::pin(async move {
            let poll = |cx: &mut Context<'_>| driven.poll(cx, |http1, cx| Pin::new(http1).poll(cx));
            let ended = drive(cpu, poll).await;
            is_upgraded.store(true, Ordering::Relaxed);
            ended
        })
    }

    fn serve_http2<B: ResponseBody, I: Transport + Send + 'static>(
        self,
        connection: Http2<I>,
        flusher: Flusher<I>,
        stop: impl Future<Output = ()> + Send + 'static,
    ) -> ConnectionFuture
    where
        S: HttpService<B>,
    {
        let (account, cpu) = (self.account.clone(), self.cpu.clone());
        let (limit, received) = (self.limit.clone(), self.received.clone());
        let mut answer = move |request: Request<Incoming>, stream: &Arc<StreamHandle>| {
            self.answer::<B>(request, Some(stream))
        };
        let mut streams = Streams::new();
        let [ends] = PartWaker::for_parts();
        let mut driven = Driven::new(connection, account, stop, Http2::finish, ends);
        let flush = move |cx: &mut Context<'_>, more_follows| {
            if let Some(limit) = &limit {
                limit.end_poll();
            }
            received.settle();
            flusher.poll_flush(cx, more_follows)
        };
        Box::pin(async move {
            let poll = |cx: &mut Context<'_>| {
                let connection = |cx: &mut Context<'_>, open: &mut OpenStreams| {
                    driven.poll(cx, |http2, cx| http2.poll(cx, open, &mut answer))
                };
                streams.poll(cx, connection, &flush)
            };
            let ended = drive(cpu, poll).await;
            // Closes the socket, before the streams take their time.
            drop((driven, flush));
            streams.end().await;
            ended
        })
    }

    /// Answers a request with the service, and measures the request and its answer until they end.
    /// `stream` is the request's over HTTP/2.
    fn answer<B: ResponseBody>(
        &self,
        request: Request<Incoming>,
        stream: Option<&Arc<StreamHandle>>,
    ) -> impl Future<Output = Result<Response<AnswerBody<B>>, S::Error>> + Send + use<B, S>
    where
        S: HttpService<B>,
    {
        let (mut request, in_progress) = self.received.begin_request(request);
        let upgradeable = (self.protocol == Protocol::Http1).then(|| self.received.clone());
        let (client, current) = self.client(stream);
        request.extensions_mut().insert(client);
        if let Some(limit) = &self.limit {
            limit.record_start();
        }
        let unanswered = Unanswered(self.limit.clone());
        let shown = self.account.as_ref().and_then(|account| account.client());
        let shown = shown.map(Client::begin_request);
        let answer = self.service.clone().call(request);
        async move {
            let answer = answer.await?;
            // An upgraded connection may be aborted until it ends.
            let is_upgrade = answer.status() == StatusCode::SWITCHING_PROTOCOLS;
            let current = current.filter(|_| !is_upgrade);
            if let Some(received) = upgradeable.filter(|_| is_upgrade) {
                received.end_connection();
            }
            let body =
                |body| AnswerBody::new(body, unanswered, current, in_progress).counted_as(shown);
            Ok(answer.map(body))
        }
    }

    /// Returns the client's side of the next request. Over HTTP/1.1 with an account, also returns
    /// the state of the answer that the abort changes.
    fn client(&self, stream: Option<&Arc<StreamHandle>>) -> (ClientHandle, Option<Answer>) {
        let mut current = None;
        let abort = self.account.as_ref().map(|account| match stream {
            None => {
                let answer = current.insert(Answer::default()).clone();
                Abort::of_answer(Arc::clone(account), answer)
            }
            Some(stream) => Abort::of_stream(Arc::clone(stream)),
        });
        let client = ClientHandle {
            peer: self.peer.clone(),
            connection: self.client_connection.clone(),
            account: self.account.clone(),
            abort,
            cpu: self.cpu.clone(),
        };
        (client, current)
    }
}

impl<C, S: Future<Output = ()>> Driven<C, S> {
    fn new(
        connection: C,
        account: Option<Arc<Account>>,
        stop: S,
        finish: fn(&mut C),
        ends: PartWaker,
    ) -> Self {
        Self {
            connection,
            account,
            is_registered: false,
            stop: Box::pin(stop),
            finish: Some(finish),
            ends,
        }
    }

    /// Polls the connection with `poll`, unless its account was closed.
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        mut poll: impl FnMut(&mut C, &mut Context<'_>) -> Poll<Result<(), BoxError>>,
    ) -> Poll<Result<(), BoxError>> {
        let may_end = self.ends.take_due(cx);
        let mut ends = Context::from_waker(self.ends.waker());
        if may_end
            && let Some(account) = &self.account
            && account
                .poll_close(&ends, &mut self.is_registered)
                .is_ready()
        {
            return Poll::Ready(Err(CLOSED_FOR_MEMORY.into()));
        }
        // Polled before `stop`, so that a request that has arrived is answered.
        let polled = poll(&mut self.connection, cx);
        if may_end
            && polled.is_pending()
            && self.finish.is_some()
            && self.stop.as_mut().poll(&mut ends).is_ready()
            && let Some(finish) = self.finish.take()
        {
            finish(&mut self.connection);
            return poll(&mut self.connection, cx);
        }
        polled
    }
}

/// Calls `poll` until the connection has ended, and charges the calls to `cpu`.
async fn drive(
    cpu: Option<Arc<CpuAccount>>,
    mut poll: impl FnMut(&mut Context<'_>) -> Poll<Result<(), BoxError>>,
) -> Result<(), BoxError> {
    let ended = poll_fn(|cx| match &cpu {
        Some(cpu) => cpu.measure(|| poll(cx)),
        None => poll(cx),
    });
    match ended.await {
        Err(error) if !is_ordinary_end(error.as_ref()) => Err(error),
        _ => Ok(()),
    }
}

/// Returns true if the peer left, or was idle or silent for too long.
fn is_ordinary_end(error: &(dyn Error + 'static)) -> bool {
    let is_gone = |error: &io::Error| {
        matches!(
            error.kind(),
            io::ErrorKind::BrokenPipe
                | io::ErrorKind::ConnectionAborted
                | io::ErrorKind::ConnectionReset
                | io::ErrorKind::NotConnected
                | io::ErrorKind::UnexpectedEof
        )
    };
    let is_silent = |error: &hyper::Error| error.is_incomplete_message() || error.is_timeout();
    // `h2` does not name the error of the socket as the source of its own.
    let of_socket = error
        .downcast_ref::<h2::Error>()
        .and_then(h2::Error::get_io);
    error.downcast_ref().is_some_and(is_silent)
        || of_socket.is_some_and(is_gone)
        || successors(Some(error), |&cause| cause.source())
            .any(|cause| cause.downcast_ref().is_some_and(is_gone))
}

fn peer_limit(config: &Config) -> PeerLimit {
    let rate = config.max_resets_per_second;
    PeerLimit::new(rate.saturating_mul(RESET_BURST_SECONDS), rate)
}

impl<S, B> HttpService<B> for S where
    S: Service<Request<RequestBody>, Response = Response<B>, Future: Send, Error: Into<BoxError>>
        + Clone
        + Send
        + 'static
{
}

impl<B> ResponseBody for B where
    B: Body<Data = Bytes, Error: Into<BoxError>> + Send + Unpin + 'static
{
}
