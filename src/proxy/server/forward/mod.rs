//! Forwards requests to the API server.

mod long_reads;
mod permit_body;
mod read_key;
mod right;
mod shared_reads;

use std::future::poll_fn;
use std::net::IpAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Extensions, HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode, header};
use kubefan_core::api::Status;
use kubefan_core::body::{Body, BodyGuard, guarded};
use kubefan_core::shutdown::{Shutdown, WatchEnd};
use kubefan_core::upstream;
use kubefan_core::upstream::{Forwarder, Identity, PendingUpgrade};
use read_key::{AUDIT_ID, ReadKey};
pub(super) use right::Right;
use right::RightToCreate;
pub(super) use shared_reads::Room;
use shared_reads::{ForwardError, SharedReads};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::in_flight::{Seat, is_long_running};
use super::request::RequestInfo;
use super::rescue;
use super::rescue::{FailedForward, FailureLog};
use super::shares::{RequestShare, Shares};
use crate::identity::{AccessControl, Caller, UnacceptedPermit, impersonate};
use crate::ledger::{Account, Charge, Kind, Short, closed};
use crate::net::{Abort, ClientConnection, FileSlot, NoFileSlot, Peer};

/// The policy that makes browsers treat a page as one of another origin, and run none of its
/// scripts. A proxied page could otherwise read and write through kubefan, which has rights that
/// the page's author lacks. `filters/web_pages.rs` refuses all that such a page still requests.
const SANDBOX: HeaderValue = HeaderValue::from_static("sandbox");

/// Forwards requests. Identical reads that wait at the same time share a call.
pub(super) struct Forwarding {
    access: AccessControl,
    forwarder: Forwarder,
    shared_reads: SharedReads,
    shares: Shares,
    failures: FailureLog,
    shutdown: Shutdown,
}

/// The addresses of a request's client and of the proxies before this one.
const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// Bytes that an upgraded connection holds: the buffers in which bytes are copied both ways, those
/// of both connections, and the task.
const UPGRADE_BYTES: u64 = 48 << 10;

/// What an upgraded connection holds until it ends.
struct HeldByUpgrade {
    _charge: Option<Charge>,
    _share: Option<RequestShare>,
    _file: Option<FileSlot>,
}

/// Bytes that an HTTP/1.1 connection to the API server holds: the buffers of TLS and HTTP, and the
/// task.
const CONNECTION_BYTES: u64 = 48 << 10;

/// What a request holds that has a connection to the API server to itself, because the API server has
/// not accepted its caller yet.
struct Unaccepted {
    permit: Option<UnacceptedPermit>,
    connection: Option<ClientConnection>,
    file: Option<FileSlot>,
    _charge: Option<Charge>,
}

impl BodyGuard for Unaccepted {}

impl Unaccepted {
    /// The API server has accepted the caller of a request that may last. Others need the permit, and
    /// the connection to the API server counts as one of a client.
    fn stay_open(&mut self) -> Result<(), NoFileSlot> {
        let connection = self.connection.as_ref();
        let file = connection.map(ClientConnection::take_file).transpose()?;
        self.file = file.flatten();
        self.permit = None;
        Ok(())
    }
}

/// What a forwarded watch, or another request without an end, holds until it ends.
struct ForwardedWatch {
    /// Set for a watch.
    end: Option<WatchEnd>,
    /// Set if the caller's right is judged again.
    right: Option<Right>,
    /// Set if the caller's right to create the connection is judged again, too.
    to_create: Option<RightToCreate>,
    _permit: Option<OwnedSemaphorePermit>,
}

/// What limits a forwarded request.
#[derive(Default)]
pub(super) struct ForwardedWith<'a> {
    /// If it is set, the request is sent only with a permit.
    pub(super) limit: Option<Arc<Semaphore>>,
    /// The place among the requests of its user. An upgraded connection holds it until it ends.
    pub(super) share: Option<RequestShare>,
    /// The request has none while it waits for its turn among reads with long answers.
    pub(super) seat: Option<&'a mut Seat>,
}

impl Forwarding {
    /// Forwards through `forwarder`. Forwarded watches end when `shutdown` ends watches, and when
    /// `access` finds that their callers have lost the right.
    pub(super) fn new(
        access: AccessControl,
        forwarder: Forwarder,
        shares: Shares,
        shutdown: Shutdown,
    ) -> Self {
        Self {
            access,
            shares,
            shared_reads: SharedReads::new(forwarder.clone(), shutdown.clone()),
            failures: FailureLog::default(),
            forwarder,
            shutdown,
        }
    }

    /// The API server's answer to `request`. It is sent with the credentials of `caller`, or as
    /// kubefan: if callers are not authenticated and it has none, and if it has proven its identity
    /// only to kubefan, which then impersonates it. If `is_native` is true, the API server itself has
    /// the objects or the document, so that reads can be shared.
    ///
    /// # Errors
    ///
    /// If the API server gave no answer, or no permit was free.
    pub(super) async fn forward(
        &self,
        mut request: Request<Body>,
        info: &RequestInfo,
        caller: &Caller,
        is_native: bool,
        with: ForwardedWith<'_>,
    ) -> Result<Response<Body>, FailedForward> {
        let ForwardedWith { limit, share, seat } = with;
        let identity = prepare(request.headers_mut(), caller)?;
        if let Some(peer) = request.extensions().get::<Peer>() {
            let address = peer.address.ip();
            append_forwarded_for(request.headers_mut(), address);
        }
        let unaccepted = {
            let (headers, extensions) = (request.headers(), request.extensions());
            self.admit_unaccepted(headers, extensions, identity).await?
        };
        let may_share = is_native && matches!(caller, Caller::Trusted);
        let key = may_share.then(|| ReadKey::of(&request, info)).flatten();
        let answer = match (key, limit) {
            (Some(key), limit) => {
                let audit_id = request.headers().get(AUDIT_ID).cloned();
                let account = request.extensions().get().cloned();
                let reads = &self.shared_reads;
                reads.forward(key, limit, audit_id, account, seat).await
            }
            (None, Some(limit)) => {
                let forwarded = self.forward_limited(request, identity, info, caller, limit, share);
                forwarded.await
            }
            (None, None) => {
                let forwarded = self.forward_unshared(request, identity, info, caller, None, share);
                forwarded.await
            }
        };
        let answer = answer.map(|response| held_until_end(response, unaccepted, info));
        answer.map_err(|failed| match failed {
            ForwardError::TooManyUnproven => Status::too_many_consistent_reads().into(),
            ForwardError::TooManyLong => Status::too_many_long_reads().into(),
            ForwardError::Upstream(error) => {
                let unreachable_for = self.forwarder.client().unreachable_for();
                self.failures.forwarding_failed(&error, unreachable_for)
            }
        })
    }

    /// True if the API server has accepted the credentials in `headers`, so that their requests need no
    /// connection to themselves.
    pub(super) fn has_accepted(&self, headers: &HeaderMap) -> bool {
        self.forwarder.client().has_accepted(headers)
    }

    /// Waits for the permission to forward a request, if the API server has not accepted its caller
    /// yet. Then the request needs a connection to itself, whose buffers are charged.
    async fn admit_unaccepted(
        &self,
        headers: &HeaderMap,
        extensions: &Extensions,
        identity: Identity,
    ) -> Result<Option<Unaccepted>, Status> {
        let (Identity::Caller, Some(peer)) = (identity, extensions.get::<Peer>()) else {
            return Ok(None);
        };
        if self.has_accepted(headers) {
            return Ok(None);
        }
        let permit = self.access.admit_unaccepted(headers, peer).await?;
        let account = extensions.get::<Arc<Account>>();
        let charge = account.map(|account| account.charge(Kind::Upstream, CONNECTION_BYTES));
        let charge = charge.transpose();
        Ok(Some(Unaccepted {
            permit: Some(permit),
            connection: extensions.get().cloned(),
            file: None,
            _charge: charge.map_err(|_: Short| Status::too_many_unaccepted())?,
        }))
    }

    /// Forwards a read with a permit of `limit`, of which the caller may have only a share.
    async fn forward_limited(
        &self,
        request: Request<Body>,
        identity: Identity,
        info: &RequestInfo,
        caller: &Caller,
        limit: Arc<Semaphore>,
        share: Option<RequestShare>,
    ) -> Result<Response<Body>, ForwardError> {
        let permit_share = self.shares.permit(caller, &limit);
        let (Ok(permit_share), Ok(permit)) = (permit_share, limit.try_acquire_owned()) else {
            return Err(ForwardError::TooManyUnproven);
        };
        let response = match info.verb == "watch" {
            true => {
                self.forward_unshared(request, identity, info, caller, Some(permit), share)
                    .await?
            }
            false => {
                self.shared_reads
                    .forward_alone(request, identity, permit)
                    .await?
            }
        };
        Ok(guarded(response, permit_share))
    }

    /// Judges the right of `caller` again while the request lasts, if it may last without an end; also
    /// if a cache answers it. What is kept for this is charged to `account`.
    ///
    /// # Errors
    /// If the account has no room for it.
    pub(super) fn keep_judging(
        &self,
        info: &RequestInfo,
        caller: &Caller,
        abort: Option<&Abort>,
        account: Option<&Arc<Account>>,
    ) -> Result<Option<Right>, Short> {
        match info.is_resource_request && is_long_running(info) {
            true => Right::of(&self.access, info, caller, abort, account),
            false => Ok(None),
        }
    }

    /// Forwards any request, streaming both ways; a watch until a drain ends it, or until its caller
    /// has lost the right to it. A watch holds its `permit`, if it needs one, until it ends.
    async fn forward_unshared(
        &self,
        request: Request<Body>,
        identity: Identity,
        info: &RequestInfo,
        caller: &Caller,
        permit: Option<OwnedSemaphorePermit>,
        share: Option<RequestShare>,
    ) -> Result<Response<Body>, ForwardError> {
        let account = request.extensions().get::<Arc<Account>>().cloned();
        let is_upgrade = upstream::is_upgrade(request.headers());
        let charge = account.as_ref().filter(|_| is_upgrade);
        let charge = charge.map(|account| account.charge(Kind::Upgrade, UPGRADE_BYTES));
        let Ok(charge) = charge.transpose() else {
            return Ok(rescue::too_many_requests());
        };
        // The upgraded connection to the API server is a second file.
        let connection = request.extensions().get::<ClientConnection>();
        let file = connection
            .filter(|_| is_upgrade)
            .map(ClientConnection::take_file);
        let Ok(file) = file.transpose() else {
            return Ok(rescue::too_many_requests());
        };
        let abort = request.extensions().get::<Abort>().cloned();
        let forwarded = self.forwarder.forward(request, identity).await;
        let forwarded = forwarded.map_err(|error| ForwardError::Upstream(Arc::new(error)))?;
        let status = forwarded.response.status();
        // A refusal is passed on whole, although the user lacks the right.
        let has_begun = status.is_success() || status == StatusCode::SWITCHING_PROTOCOLS;
        let judge = || self.keep_judging(info, caller, abort.as_ref(), account.as_ref());
        let Ok(right) = has_begun.then(judge).transpose() else {
            return Ok(rescue::too_many_requests());
        };
        let right = right.flatten();
        let is_watch = info.verb == "watch";
        let create = || RightToCreate::of(&self.access, info, caller);
        let mut watch = (is_watch || right.is_some()).then(|| ForwardedWatch {
            end: is_watch.then(|| self.shutdown.watch_end()),
            right,
            to_create: forwarded.upgrade.is_some().then(create).flatten(),
            _permit: permit,
        });
        if let Some(upgrade) = forwarded.upgrade {
            let held = HeldByUpgrade {
                _charge: charge,
                _share: share,
                _file: file.flatten(),
            };
            self.join_upgrade(upgrade, watch.take(), account, held);
        }
        let mut response = forwarded.response;
        if is_proxied(info) {
            // The page is not the API server's, but has kubefan's origin.
            let headers = response.headers_mut();
            headers.append(header::CONTENT_SECURITY_POLICY, SANDBOX);
        }
        Ok(guarded(response, watch))
    }

    /// Copies bytes between both sides of an upgraded connection, in a task that owns `held`. A drain ends a watch
    /// at its scheduled moment; exec and similar upgrades may use the whole grace period. Both end
    /// when the right to them is lost.
    fn join_upgrade(
        &self,
        upgrade: PendingUpgrade,
        mut watch: Option<ForwardedWatch>,
        account: Option<Arc<Account>>,
        held: HeldByUpgrade,
    ) {
        self.shutdown.spawn(async move {
            let to_create = watch.as_mut().and_then(|watch| watch.to_create.take());
            let not_created = async {
                match to_create {
                    Some(right) => right.lost().await,
                    None => std::future::pending().await,
                }
            };
            let mut joined = pin!(upgrade.join());
            let joined = poll_fn(|cx| {
                if let Some(watch) = &mut watch {
                    if watch.poll_end(cx).is_ready() {
                        return Poll::Ready(Ok(()));
                    }
                    if watch.is_held() {
                        return Poll::Pending;
                    }
                }
                joined.as_mut().poll(cx).map_ok(drop)
            });
            tokio::select! {
                joined = joined => {
                    if let Err(error) = joined {
                        tracing::debug!(%error, "upgraded connection broke");
                    }
                }
                () = not_created => {}
                () = closed(account.as_deref()) => {
                    tracing::debug!("memory is short, and this upgraded connection holds the most");
                }
            }
            drop(held);
        });
    }
}

/// Makes the body of `response` own what its request holds if its caller was not accepted before.
fn held_until_end(
    response: Response<Body>,
    mut unaccepted: Option<Unaccepted>,
    info: &RequestInfo,
) -> Response<Body> {
    let may_last = response.status().is_success() && is_long_running(info);
    let unaccepted_that_lasts = unaccepted.as_mut().filter(|_| may_last);
    match unaccepted_that_lasts.map(Unaccepted::stay_open).transpose() {
        Ok(_) => guarded(response, unaccepted),
        Err(NoFileSlot) => rescue::too_many_requests(),
    }
}

/// Adds to `headers` what identifies `caller`, and returns whose credentials the request needs.
///
/// # Errors
/// A 403 if the caller's user cannot be impersonated.
fn prepare(headers: &mut HeaderMap, caller: &Caller) -> Result<Identity, Status> {
    match caller {
        Caller::Trusted | Caller::Impersonating => Ok(Identity::Kubefan),
        Caller::Known(known) if known.is_impersonated() => {
            let impersonated = impersonate(headers, known.user());
            impersonated.map_err(|error| Status::failure(403, "Forbidden", error.to_string()))?;
            Ok(Identity::Kubefan)
        }
        Caller::Known(_) | Caller::Unknown | Caller::Unnamed(_) | Caller::Refused => {
            Ok(Identity::Caller)
        }
    }
}

/// Appends the client's address to those of the proxies before it, as Go's reverse proxy does. The
/// API server's audit log has all of them as `sourceIPs`.
fn append_forwarded_for(headers: &mut HeaderMap, address: IpAddr) {
    let mut all = Vec::new();
    for line in headers.get_all(FORWARDED_FOR) {
        all.extend_from_slice(line.as_bytes());
        all.extend_from_slice(b", ");
    }
    all.extend_from_slice(address.to_canonical().to_string().as_bytes());
    let value = HeaderValue::from_bytes(&all);
    headers.insert(FORWARDED_FOR, value.expect("it is made of header values"));
}

/// True if a node, pod or service behind the API server may answer the request.
pub(super) fn is_proxied(info: &RequestInfo) -> bool {
    info.is_resource_request && info.path.split('/').any(|segment| segment == "proxy")
}

/// A forwarded watch is ended cleanly during a drain, and when the right to it is lost, like a watch
/// from a cache.
impl BodyGuard for ForwardedWatch {
    fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let is_lost = self.right.as_mut().map(|right| right.poll_end(cx));
        if is_lost.is_some_and(|end| end.is_ready()) {
            return Poll::Ready(());
        }
        match &mut self.end {
            Some(end) => Pin::new(end).poll(cx),
            None => Poll::Pending,
        }
    }

    fn is_held(&self) -> bool {
        self.right.as_ref().is_some_and(BodyGuard::is_held)
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use http::{Method, StatusCode};
    use http_body_util::Empty;
    use hyper::body::Incoming;
    use hyper::client::conn::http1 as client;
    use hyper::server::conn::http1 as server;
    use hyper::service::service_fn;
    use hyper_util::rt::TokioIo;
    use kubefan_core::telemetry::Registry;
    use kubefan_core::upstream::Client;
    use kubefan_core::{body, shutdown};
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
    use tokio::time::Instant;

    use super::*;
    use crate::identity;
    use crate::ledger::{Ledger, Limits};
    use crate::server::shares::UserLimits;

    /// Grants an upgrade, and sends back what it gets then.
    async fn echo(request: Request<Incoming>) -> Result<Response<Empty<bytes::Bytes>>, Infallible> {
        tokio::spawn(async move {
            let upgraded = hyper::upgrade::on(request).await.expect("an upgrade");
            let (mut read, mut write) = tokio::io::split(TokioIo::new(upgraded));
            // The connection ends with an error if the test closes it.
            let _ = tokio::io::copy(&mut read, &mut write).await;
        });
        let granted = Response::builder()
            .status(StatusCode::SWITCHING_PROTOCOLS)
            .header("connection", "upgrade")
            .header("upgrade", "SPDY/3.1");
        Ok(granted.body(Empty::new()).expect("a response"))
    }

    /// A client's connection that `forwarding` serves, with `account`.
    fn connect(forwarding: &Arc<Forwarding>, account: &Arc<Account>) -> DuplexStream {
        let (near, far) = duplex(64 << 10);
        let (forwarding, account) = (Arc::clone(forwarding), Arc::clone(account));
        let service = service_fn(move |request: Request<Incoming>| {
            let forwarding = Arc::clone(&forwarding);
            let mut request = request.map(body::boxed);
            request.extensions_mut().insert(Arc::clone(&account));
            async move {
                let info = RequestInfo::parse(request.method(), request.uri().path(), "");
                let answer = forwarding
                    .forward(
                        request,
                        &info,
                        &Caller::Trusted,
                        false,
                        ForwardedWith::default(),
                    )
                    .await;
                Ok::<_, Infallible>(answer.expect("an answer"))
            }
        });
        let io = TokioIo::new(far);
        let connection = server::Builder::new().serve_connection(io, service);
        tokio::spawn(connection.with_upgrades());
        near
    }

    #[tokio::test]
    async fn an_upgraded_connection_is_charged_and_can_be_closed() {
        let client = Client::in_memory(
            &(Arc::new(|| {
                let (near, far) = duplex(64 << 10);
                let service = service_fn(echo);
                let io = TokioIo::new(far);
                let connection = server::Builder::new().serve_connection(io, service);
                tokio::spawn(connection.with_upgrades());
                Ok(near)
            }) as _),
        );
        let shutdown = Shutdown::new(shutdown::Config::default());
        let registry = Registry::new();
        let config = identity::Config::default();
        let metrics = identity::Metrics::new(&registry);
        let access = AccessControl::new(&config, client.clone(), metrics, &registry, &shutdown);
        let forwarding = Arc::new(Forwarding::new(
            access,
            Forwarder::new(client),
            Shares::for_tests(UserLimits::default(), 0),
            shutdown,
        ));
        let limits = Limits {
            memory: 4 * UPGRADE_BYTES,
            ..Limits::new(None, Some(1 << 30), 0)
        };
        let ledger = Ledger::new(limits);
        let account = ledger.open_account();
        let charged = || {
            let usage = ledger.usage();
            let upgrades = usage.iter().find(|(kind, _)| *kind == "upgrade");
            upgrades.map_or(0, |(_, bytes)| *bytes)
        };
        for is_closed_by_client in [true, false] {
            let io = TokioIo::new(connect(&forwarding, &account));
            let (mut sender, connection) = client::handshake(io).await.expect("HTTP/1.1");
            tokio::spawn(connection.with_upgrades());
            let request = Request::get("/api/v1/namespaces/n/pods/p/exec")
                .header("host", "localhost")
                .header("connection", "upgrade")
                .header("upgrade", "SPDY/3.1");
            let request = request
                .body(Empty::<bytes::Bytes>::new())
                .expect("a request");
            let answer = sender.send_request(request).await.expect("an answer");
            assert_eq!(answer.status(), StatusCode::SWITCHING_PROTOCOLS);
            let upgraded = hyper::upgrade::on(answer).await.expect("an upgrade");
            let mut upgraded = TokioIo::new(upgraded);
            upgraded.write_all(b"x").await.expect("room");
            let mut echoed = [0];
            upgraded.read_exact(&mut echoed).await.expect("the echo");
            assert_eq!(charged(), UPGRADE_BYTES);
            if is_closed_by_client {
                drop(upgraded);
            } else {
                // Another connection, which holds nothing, gets no memory.
                let full = account.charge(Kind::Stream, UPGRADE_BYTES);
                let refused = ledger
                    .open_account()
                    .charge(Kind::Stream, 2 * UPGRADE_BYTES);
                assert!(full.is_ok() && refused.is_err());
                let mut was_short = true;
                let swept = ledger.sweep(Instant::now(), &mut was_short);
                assert_eq!(swept.connections, 1);
                let mut rest = Vec::new();
                // The end may be a reset.
                let _ = upgraded.read_to_end(&mut rest).await;
            }
            while charged() > 0 {
                tokio::task::yield_now().await;
            }
        }
    }

    #[test]
    fn the_peer_is_appended_to_the_addresses_before_it() {
        for (lines, address, expected) in [
            (&[][..], "10.0.0.1", "10.0.0.1"),
            (&["192.0.2.1"][..], "::1", "192.0.2.1, ::1"),
            (&["a, b", "c"][..], "::ffff:10.0.0.1", "a, b, c, 10.0.0.1"),
        ] {
            let mut headers = HeaderMap::new();
            for line in lines {
                headers.append(FORWARDED_FOR, HeaderValue::from_static(line));
            }
            append_forwarded_for(&mut headers, address.parse().expect("an address"));
            let found: Vec<_> = headers.get_all(FORWARDED_FOR).iter().collect();
            assert_eq!(found, [expected]);
        }
    }

    #[test]
    fn answers_of_nodes_pods_and_services_are_proxied() {
        for (path, expected) in [
            ("/api/v1/namespaces/n/services/s/proxy", true),
            (
                "/api/v1/namespaces/n/services/http:s:web/proxy/index.html",
                true,
            ),
            ("/api/v1/namespaces/n/pods/p/proxy/a/b", true),
            ("/api/v1/namespaces/n/pods/p/%70roxy/", true),
            ("/api/v1/namespaces/n/pods/p//proxy/", true),
            ("/api/v1/nodes/n/proxy/logs/", true),
            ("/api/v1/proxy/namespaces/n/pods/p/", true),
            ("/api/v1/namespaces/n/pods/p", false),
            ("/api/v1/namespaces/n/pods/p/log", false),
            ("/openapi/v3/proxy", false),
        ] {
            let info = RequestInfo::parse(&Method::GET, path, "");
            assert_eq!(is_proxied(&info), expected, "{path}");
        }
    }
}
