//! A proxy between kubefan and the API server that injects faults when a test asks for them.
//!
//! It speaks plain HTTP/1.1 on loopback and forwards every request as an admin. So it suits the
//! requests of informers; it supports no upgrades, and clients' credentials are replaced.

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::BodyExt;
use hyper::body::{Body, Frame, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{Instant, Sleep, sleep};

use crate::support::clients::client::Client;
use crate::support::programs::apiserver::ApiServer;
use crate::support::proxies::listener::Listener;
use crate::support::proxies::missing_feature::MissingFeature;
use crate::support::proxies::relay::{collect_body, forward_request, forwarded_body};
use crate::support::proxies::replies::{
    Reply, expired_list, expired_watch, plain, too_many_requests,
};

/// The kind of a request to the API server. LIST, WATCH and GET count only for resources.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum RequestKind {
    List,
    Watch,
    Get,
    Other,
}

/// The position in a watch's bytes where the proxy breaks the connection.
#[derive(Clone, Copy, Debug)]
pub(crate) enum CutPoint {
    /// Immediately; between two frames if no frame is in flight.
    Now,
    /// After at most this many bytes of the next chunk, and before the chunk's end.
    Within(usize),
    /// After this many bytes, however many chunks they are.
    After(usize),
}

/// A running fault proxy; it and all its connections end when this is dropped.
#[derive(Debug)]
pub(crate) struct FaultProxy {
    listener: Listener,
    control: Arc<Control>,
}

#[derive(Debug)]
struct Control {
    upstream: Client,
    plan: Mutex<FaultPlan>,
    /// The number of calls of `cut_watches`, and the cut point of the last call.
    cuts: watch::Sender<(u64, CutPoint)>,
    is_silent: watch::Sender<bool>,
    counts: Mutex<BTreeMap<(RequestKind, String), u32>>,
}

/// For each kind of request, a part of the path and the number of the next requests that get the
/// fault if their path contains this part.
type PlannedFaults = BTreeMap<RequestKind, (String, u32)>;

#[derive(Debug, Default)]
struct FaultPlan {
    expire: PlannedFaults,
    refuse: PlannedFaults,
    delay: Duration,
    /// The delay of each request other than a watch.
    slowness: Duration,
    missing_features: Vec<MissingFeature>,
    /// For each path, the number of complete LISTs in flight now, and the highest number so far.
    whole_lists: BTreeMap<String, (u32, u32)>,
}

impl FaultProxy {
    pub(crate) async fn start(server: &ApiServer) -> Self {
        let control = Arc::new(Control {
            upstream: server.client(),
            plan: Mutex::default(),
            cuts: watch::Sender::new((0, CutPoint::Now)),
            is_silent: watch::Sender::new(false),
            counts: Mutex::default(),
        });
        let serving = control.clone();
        Self {
            listener: Listener::start(move |_, tcp| serve(tcp, serving.clone())).await,
            control,
        }
    }

    pub(crate) fn url(&self) -> &str {
        self.listener.http_url()
    }

    /// Breaks the connections of all open watches, without the final chunk that HTTP requires.
    pub(crate) fn cut_watches(&self, cut: CutPoint) {
        self.control.cuts.send_modify(|(count, at)| {
            *count += 1;
            *at = cut;
        });
    }

    /// Answers the next `count` requests of a kind with 410 if their path contains `part`: LISTs
    /// with the status 410, watches with an ERROR event.
    pub(crate) fn expire(&self, kind: RequestKind, part: &str, count: u32) {
        self.control
            .plan
            .lock()
            .expire
            .insert(kind, (part.to_owned(), count));
    }

    /// Answers the next `count` requests of a kind with 429 if their path contains `part`.
    pub(crate) fn refuse(&self, kind: RequestKind, part: &str, count: u32) {
        self.control
            .plan
            .lock()
            .refuse
            .insert(kind, (part.to_owned(), count));
    }

    /// Delays all bytes of watches by this time from now on.
    pub(crate) fn delay_watches(&self, by: Duration) {
        self.control.plan.lock().delay = by;
    }

    /// Delays each request other than a watch by this time from now on.
    pub(crate) fn slow_down(&self, by: Duration) {
        self.control.plan.lock().slowness = by;
    }

    /// Behaves from now on like an API server without these features, and with all others.
    pub(crate) fn remove_features(&self, unknown: &[MissingFeature]) {
        self.control.plan.lock().missing_features = unknown.to_vec();
    }

    /// Returns the highest number of LISTs of a collection that were in flight concurrently. LISTs
    /// of metadata and LISTs with `limit=1` are not counted.
    pub(crate) fn most_concurrent_whole_lists(&self, path: &str) -> u32 {
        let plan = self.control.plan.lock();
        plan.whole_lists.get(path).map_or(0, |(_, most)| *most)
    }

    /// Holds back all bytes of open and new watches (`true`), or sends them again (`false`).
    pub(crate) fn silence(&self, is_silent: bool) {
        self.control.is_silent.send_replace(is_silent);
    }

    /// Counts the requests of a kind so far that have a path with `part` in it.
    pub(crate) fn count(&self, kind: RequestKind, part: &str) -> u32 {
        let counts = self.control.counts.lock();
        let matching = counts
            .iter()
            .filter(|((k, path), _)| *k == kind && path.contains(part));
        matching.map(|(_, count)| count).sum()
    }
}

async fn serve(tcp: TcpStream, control: Arc<Control>) {
    let service = service_fn(move |request| answer(control.clone(), request));
    // The error is ignored: breaking a watch's connection on purpose causes one.
    let _ = http1::Builder::new()
        .serve_connection(TokioIo::new(tcp), service)
        .await;
}

async fn answer(control: Arc<Control>, request: Request<Incoming>) -> Result<Reply, Infallible> {
    let kind = kind_of(&request);
    let path = request.uri().path().to_owned();
    let planned = control.planned(kind, &path, request.headers());
    *control.counts.lock().entry((kind, path)).or_default() += 1;
    Ok(match planned {
        Some(reply) => reply,
        None => control.forward(kind, request).await,
    })
}

fn kind_of(request: &Request<Incoming>) -> RequestKind {
    let query = request.uri().query().unwrap_or_default();
    let path = request.uri().path();
    let resource = path.starts_with("/api/v1/") || path.starts_with("/apis/");
    if request.method() != Method::GET || !resource {
        return RequestKind::Other;
    }
    if form_urlencoded::parse(query.as_bytes())
        .any(|(name, value)| name == "watch" && value != "0" && value != "false")
    {
        return RequestKind::Watch;
    }
    let prefix = if path.starts_with("/apis/") { 3 } else { 2 };
    let parts: Vec<&str> = path.trim_matches('/').split('/').skip(prefix).collect();
    match parts.as_slice() {
        [] => RequestKind::Other,
        // A LIST of one object, such as a proof of a definition.
        [_] if query.contains("fieldSelector=metadata.name%3D") => RequestKind::Get,
        [_] | ["namespaces", _, _] => RequestKind::List,
        _ => RequestKind::Get,
    }
}

impl Control {
    fn planned(&self, kind: RequestKind, path: &str, headers: &HeaderMap) -> Option<Reply> {
        let mut plan = self.plan.lock();
        let ordered = |orders: &mut PlannedFaults| {
            let order = orders
                .get_mut(&kind)
                .filter(|(part, left)| *left > 0 && path.contains(part.as_str()));
            order.map(|(_, left)| *left -= 1).is_some()
        };
        if ordered(&mut plan.refuse) {
            return Some(too_many_requests());
        }
        ordered(&mut plan.expire).then(|| match kind {
            RequestKind::Watch => expired_watch(headers),
            _ => expired_list(),
        })
    }

    async fn forward(self: &Arc<Self>, kind: RequestKind, request: Request<Incoming>) -> Reply {
        let (mut parts, body) = request.into_parts();
        let (missing_features, slowness) = {
            let plan = self.plan.lock();
            (plan.missing_features.clone(), plan.slowness)
        };
        if let Some(reply) = missing_features
            .iter()
            .find_map(|feature| feature.answer(&mut parts))
        {
            return reply;
        }
        let _counted = (kind == RequestKind::List && is_whole(&parts))
            .then(|| WholeList::new(self, parts.uri.path()));
        // The upstream client adds the admin's token instead.
        parts.headers.remove("authorization");
        let body = collect_body(body).await;
        if kind != RequestKind::Watch && !slowness.is_zero() {
            sleep(slowness).await;
        }
        match forward_request(&self.upstream, parts, body).await {
            Err(problem) => plain(StatusCode::BAD_GATEWAY, &problem),
            Ok(response) if kind == RequestKind::Watch => {
                response.map(|body| FaultyBody::new(self.clone(), body).boxed_unsync())
            }
            Ok(response) => response.map(forwarded_body),
        }
    }
}

/// Returns true for a LIST that asks for complete objects and has no `limit=1`.
fn is_whole(parts: &Parts) -> bool {
    let accept = parts
        .headers
        .get("accept")
        .map(|accept| accept.to_str().unwrap_or_default());
    let metadata = accept.is_some_and(|accept| accept.contains("as=PartialObjectMetadata"));
    let query = parts.uri.query().unwrap_or_default();
    !metadata && !query.split('&').any(|part| part == "limit=1")
}

/// Counts a LIST as in flight from its request to the response's head.
struct WholeList<'a> {
    control: &'a Control,
    path: String,
}

impl<'a> WholeList<'a> {
    fn new(control: &'a Control, path: &str) -> Self {
        let mut plan = control.plan.lock();
        let (now, most) = plan.whole_lists.entry(path.to_owned()).or_default();
        *now += 1;
        *most = (*most).max(*now);
        Self {
            control,
            path: path.to_owned(),
        }
    }
}

impl Drop for WholeList<'_> {
    fn drop(&mut self) {
        let mut plan = self.control.plan.lock();
        if let Some((now, _)) = plan.whole_lists.get_mut(&self.path) {
            *now -= 1;
        }
    }
}

/// A part of a body, or `None` at its end.
type Arrival = Option<Result<Frame<Bytes>, String>>;

/// The body of a watch's response: passes the upstream's bytes on, unless a test has ordered a
/// delay, a silence or a cut.
struct FaultyBody {
    inner: Incoming,
    cut: Pin<Box<dyn Future<Output = CutPoint> + Send>>,
    /// How many bytes may still pass after a cut was ordered; `None` before.
    left: Option<usize>,
    /// True if these bytes may be several chunks.
    spans_chunks: bool,
    /// True if the connection may not have sent the last bytes that passed.
    has_unsent: bool,
    is_silent: watch::Receiver<bool>,
    silence_end: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    control: Arc<Control>,
    /// What has arrived and is not due yet. The delays do not add up, because frames that arrive
    /// during a delay wait beside each other.
    held: VecDeque<(Instant, Arrival)>,
    timer: Pin<Box<Sleep>>,
    is_over: bool,
}

impl FaultyBody {
    fn new(control: Arc<Control>, inner: Incoming) -> Self {
        let mut cuts = control.cuts.subscribe();
        let cut = Box::pin(async move {
            match cuts.changed().await {
                Ok(()) => cuts.borrow_and_update().1,
                Err(_) => std::future::pending().await,
            }
        });
        let is_silent = control.is_silent.subscribe();
        Self {
            inner,
            cut,
            left: None,
            spans_chunks: false,
            has_unsent: false,
            is_silent,
            silence_end: None,
            control,
            held: VecDeque::new(),
            timer: Box::pin(sleep(Duration::ZERO)),
            is_over: false,
        }
    }

    fn poll_unless_silenced(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let mut is_silent = self.is_silent.clone();
        let silence_end = self.silence_end.get_or_insert_with(|| {
            Box::pin(async move {
                let _ = is_silent.wait_for(|is_silent| !is_silent).await;
            })
        });
        let polled = silence_end.as_mut().poll(context);
        if polled.is_ready() {
            self.silence_end = None;
        }
        polled
    }

    fn poll_upstream(&mut self, context: &mut Context<'_>) -> Poll<Arrival> {
        let delay = self.control.plan.lock().delay;
        while !self.is_over
            && (self.held.is_empty() || !delay.is_zero())
            && let Poll::Ready(frame) = Pin::new(&mut self.inner).poll_frame(context)
        {
            self.is_over = !matches!(frame, Some(Ok(_)));
            let frame = frame.map(|frame| frame.map_err(|error| error.to_string()));
            self.held.push_back((Instant::now() + delay, frame));
        }
        match self.held.front() {
            Some((due, _)) if *due > Instant::now() => {
                self.timer.as_mut().reset(*due);
                std::task::ready!(self.timer.as_mut().poll(context));
            }
            Some(_) => {}
            None if self.is_over => return Poll::Ready(None),
            None => return Poll::Pending,
        }
        Poll::Ready(self.held.pop_front().and_then(|(_, frame)| frame))
    }

    fn shorten(&mut self, frame: Frame<Bytes>) -> Frame<Bytes> {
        let (Some(left), Ok(mut data)) = (self.left, frame.into_data()) else {
            return Frame::data(Bytes::new());
        };
        // Always cut a single chunk before its end, which may be the end of a frame.
        let most = data.len().saturating_sub(usize::from(!self.spans_chunks));
        data.truncate(left.min(most));
        self.left = Some(match self.spans_chunks {
            true => left - data.len(),
            false => 0,
        });
        self.has_unsent = true;
        Frame::data(data)
    }
}

impl Body for FaultyBody {
    type Data = Bytes;
    type Error = String;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, String>>> {
        let this = &mut *self;
        if this.left.is_none()
            && let Poll::Ready(cut) = this.cut.as_mut().poll(context)
        {
            this.spans_chunks = matches!(cut, CutPoint::After(_));
            this.left = Some(match cut {
                CutPoint::Now => 0,
                CutPoint::Within(bytes) | CutPoint::After(bytes) => bytes,
            });
        }
        if this.left == Some(0) {
            // The connection sends what has passed only while it waits for the body.
            if std::mem::take(&mut this.has_unsent) {
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            return Poll::Ready(Some(Err("cut".to_owned())));
        }
        std::task::ready!(this.poll_unless_silenced(context));
        let frame = std::task::ready!(this.poll_upstream(context));
        Poll::Ready(match frame {
            Some(Ok(frame)) if this.left.is_some() => Some(Ok(this.shorten(frame))),
            other => other,
        })
    }
}
