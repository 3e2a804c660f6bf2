//! A proxy that records each request, and handles it as a test decides.
//!
//! It speaks plain HTTP/1.1 and HTTP/2 on loopback. It can change only
//! watches and documents in JSON.

use std::sync::Arc;
use std::{fmt, io, mem};

use bytes::Bytes;
use futures_util::stream;
use http::{HeaderMap, Method, Request, StatusCode, Version};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use parking_lot::Mutex;
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::support::clients::client::Client;
use crate::support::proxies::listener::Listener;
use crate::support::proxies::relay::{collect_body, forward_request, forwarded_body};
use crate::support::proxies::replies::{
    Reply, expired_list, plain, too_many_requests, unauthorized,
};

/// A running scripted proxy; it and all its connections end when this is dropped.
#[derive(Debug)]
pub(crate) struct ScriptedProxy {
    listener: Listener,
    control: Arc<Control>,
}

/// A request that the proxy received.
#[derive(Clone, Debug)]
pub(crate) struct SeenRequest {
    /// The number of the connection, from 1.
    pub(crate) connection: usize,
    pub(crate) version: Version,
    pub(crate) method: Method,
    pub(crate) path: String,
    /// The query parameters, percent-decoded, in order.
    pub(crate) query: Vec<(String, String)>,
    pub(crate) headers: HeaderMap,
    pub(crate) at: Instant,
}

/// Maps a line, which is a frame of a watch, to the lines that are sent
/// instead; `None` ends the answer.
pub(crate) type Change = Box<dyn FnMut(Vec<u8>) -> Option<Vec<Vec<u8>>> + Send>;

/// How the proxy handles a request.
pub(crate) enum RequestAction {
    Forward,
    /// Forwards the request with the second text in place of the first in its query.
    ReplaceInQuery(&'static str, &'static str),
    /// Forwards the request, and breaks the connection instead of answering.
    DropAnswer,
    /// Waits for the first `Notify`, forwards the request, notifies the second, and never answers.
    Hold(Arc<Notify>, Arc<Notify>),
    /// Forwards the request, and notifies this before the answer is sent.
    Notify(Arc<Notify>),
    /// Answers 410 without forwarding the request.
    Expire,
    /// Answers 401 without forwarding the request.
    Refuse,
    /// Answers 429 without forwarding the request.
    Throttle,
    /// Waits for this, and forwards the request.
    Wait(Arc<Notify>),
    /// Forwards a watch or another request for JSON, and changes the lines of the answer.
    ChangeFrames(Change),
}

type ChooseAction = Box<dyn Fn(&SeenRequest) -> RequestAction + Send + Sync>;

struct Control {
    upstream: Client,
    choose_action: ChooseAction,
    seen: Mutex<Vec<SeenRequest>>,
}

impl ScriptedProxy {
    pub(crate) async fn start(
        upstream: Client,
        choose_action: impl Fn(&SeenRequest) -> RequestAction + Send + Sync + 'static,
    ) -> Self {
        let control = Arc::new(Control {
            upstream,
            choose_action: Box::new(choose_action),
            seen: Mutex::default(),
        });
        let serving = control.clone();
        Self {
            listener: Listener::start(move |number, tcp| serve(tcp, number, serving.clone())).await,
            control,
        }
    }

    pub(crate) fn url(&self) -> &str {
        self.listener.http_url()
    }

    /// Returns all requests so far, in the order of their arrival.
    pub(crate) fn seen(&self) -> Vec<SeenRequest> {
        self.control.seen.lock().clone()
    }
}

impl fmt::Debug for Control {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Control").finish_non_exhaustive()
    }
}

impl SeenRequest {
    /// Returns the value of a query parameter; empty if the request does not have it.
    pub(crate) fn query(&self, name: &str) -> &str {
        let found = self.query.iter().find(|(key, _)| key == name);
        found.map_or("", |(_, value)| value)
    }

    /// Returns the value of a header; empty if the request does not have it.
    pub(crate) fn header(&self, name: &str) -> &str {
        let found = self.headers.get(name);
        found
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default()
    }

    pub(crate) fn is_watch(&self) -> bool {
        self.query("watch") == "true"
    }
}

async fn serve(tcp: TcpStream, number: usize, control: Arc<Control>) {
    let service = service_fn(move |request| answer(control.clone(), number, request));
    // The error is ignored: breaking a connection on purpose causes one.
    let _ = auto::Builder::new(TokioExecutor::new())
        .serve_connection(TokioIo::new(tcp), service)
        .await;
}

async fn answer(
    control: Arc<Control>,
    connection: usize,
    mut request: Request<Incoming>,
) -> io::Result<Reply> {
    let query = request.uri().query().unwrap_or_default();
    let seen = SeenRequest {
        connection,
        version: request.version(),
        method: request.method().clone(),
        path: request.uri().path().to_owned(),
        query: form_urlencoded::parse(query.as_bytes())
            .into_owned()
            .collect(),
        headers: request.headers().clone(),
        at: Instant::now(),
    };
    let action = (control.choose_action)(&seen);
    control.seen.lock().push(seen);
    match action {
        RequestAction::Forward => Ok(control.forward(request, None).await),
        RequestAction::ReplaceInQuery(from, to) => {
            let path = request.uri().path();
            let query = request.uri().query().unwrap_or_default();
            let uri = format!("{path}?{}", query.replace(from, to));
            *request.uri_mut() = uri.parse().expect("a path and a query");
            Ok(control.forward(request, None).await)
        }
        RequestAction::ChangeFrames(change) => Ok(control.forward(request, Some(change)).await),
        RequestAction::Expire => Ok(expired_list()),
        RequestAction::Refuse => Ok(unauthorized()),
        RequestAction::Throttle => Ok(too_many_requests()),
        RequestAction::Wait(released) => {
            released.notified().await;
            Ok(control.forward(request, None).await)
        }
        RequestAction::DropAnswer => {
            control.forward(request, None).await;
            Err(io::ErrorKind::ConnectionReset.into())
        }
        RequestAction::Notify(done) => {
            let reply = control.forward(request, None).await;
            done.notify_one();
            Ok(reply)
        }
        RequestAction::Hold(released, done) => {
            let (parts, body) = request.into_parts();
            let body = collect_body(body).await;
            // A separate task, because a server finishes its work even if the connection ends.
            tokio::spawn(async move {
                released.notified().await;
                let sent = forward_request(&control.upstream, parts, body).await;
                done.notify_one();
                sent.map(drop)
            });
            std::future::pending().await
        }
    }
}

impl Control {
    async fn forward(&self, request: Request<Incoming>, change: Option<Change>) -> Reply {
        let (parts, body) = request.into_parts();
        match forward_request(&self.upstream, parts, collect_body(body).await).await {
            Err(problem) => plain(StatusCode::BAD_GATEWAY, &problem),
            Ok(response) => response.map(|body| match change {
                None => forwarded_body(body),
                Some(change) => changed(body, change),
            }),
        }
    }
}

/// Returns a body with the lines of `body` after `change` was applied to each of them.
fn changed(
    body: Incoming,
    change: Change,
) -> http_body_util::combinators::UnsyncBoxBody<Bytes, String> {
    let start = (Some(body), change, Vec::new());
    let frames = stream::unfold(start, |(body, mut change, mut partial)| async move {
        let mut body = body?;
        loop {
            let frame: Frame<Bytes> = match body.frame().await {
                Some(Ok(frame)) => frame,
                Some(Err(error)) => return Some((Err(error.to_string()), (None, change, partial))),
                None if partial.is_empty() => return None,
                None => {
                    // A document may end without a line break.
                    let last = change(mem::take(&mut partial)).unwrap_or_default().concat();
                    return Some((Ok(Frame::data(Bytes::from(last))), (None, change, partial)));
                }
            };
            let Ok(data) = frame.into_data() else {
                continue;
            };
            partial.extend_from_slice(&data);
            let (mut output, mut is_end) = (Vec::new(), false);
            while let Some(end) = partial.iter().position(|byte| *byte == b'\n')
                && !is_end
            {
                match change(partial.drain(..=end).collect()) {
                    Some(lines) => output.extend(lines.concat()),
                    None => is_end = true,
                }
            }
            if is_end || !output.is_empty() {
                let output = Ok(Frame::data(Bytes::from(output)));
                let body = (!is_end).then_some(body);
                return Some((output, (body, change, partial)));
            }
        }
    });
    StreamBody::new(frames).boxed_unsync()
}

/// Chooses to forward every request unchanged.
pub(crate) fn forward_all(_: &SeenRequest) -> RequestAction {
    RequestAction::Forward
}
