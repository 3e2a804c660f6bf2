//! Forwards requests to the API server.

mod forwarded_watch;
mod headers;
mod long_reads;
mod permit_body;
mod read_key;
mod right;
mod shared_reads;
mod unaccepted;
mod upgrade;

use std::sync::Arc;

use forwarded_watch::ForwardedWatch;
use headers::{append_forwarded_for, prepare};
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use kubefan_core::body::{Body, guarded};
use kubefan_core::shutdown::Shutdown;
use kubefan_core::upstream;
use kubefan_core::upstream::{Forwarder, Identity};
use read_key::{ReadKey, own_headers};
pub(in crate::server) use right::Right;
use right::RightToCreate;
pub(in crate::server) use shared_reads::{Beginning, beginning, rejoined};
use shared_reads::{ForwardError, SharedReads, SharingCaller};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use unaccepted::{Unaccepted, held_until_end};
use upgrade::{HeldByUpgrade, join_upgrade};

use crate::identity::{AccessControl, Caller};
use crate::limit::Limit;
use crate::server::answers::rescue::{FailedForward, FailureLog};
use crate::server::limits::in_flight::Seat;
use crate::server::limits::shares::Shares;
use crate::server::request::{Exchange, Verb};

/// The policy that makes browsers treat a page as one of another origin, and run none of its
/// scripts. A proxied page could otherwise read and write through kubefan, which has rights that
/// the page's author lacks. `filters/web_pages.rs` refuses all that such a page still requests.
const SANDBOX: HeaderValue = HeaderValue::from_static("sandbox");

/// Forwards requests. Identical reads that wait concurrently share a call.
pub(in crate::server) struct Forwarding {
    access: AccessControl,
    forwarder: Forwarder,
    shared_reads: SharedReads,
    shares: Shares,
    failures: FailureLog,
    shutdown: Shutdown,
}

impl Forwarding {
    /// Creates the forwarding through `forwarder`. Forwarded watches end when `shutdown` ends
    /// watches, and when `access` finds that their callers have lost the right.
    pub(in crate::server) fn new(
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

    /// Returns the API server's answer to the request of `exchange`, which is taken. The request is
    /// sent with the credentials of its caller, or with kubefan's identity in two cases: if callers
    /// are not authenticated and the caller has no credentials, and if the caller has proven its
    /// identity only to kubefan, which then impersonates the caller. If `is_native` is true, the
    /// API server itself has the objects or the document, so reads can be shared. If there is a
    /// `limit`, the request is sent only with a permit of it. The request gives up its `seat` while
    /// it waits for its turn among reads with long answers.
    ///
    /// # Errors
    /// If the API server gave no answer, or the request would exceed a limit.
    pub(in crate::server) async fn forward(
        &self,
        exchange: &mut Exchange,
        is_native: bool,
        limit: Option<Arc<Semaphore>>,
        seat: Option<&mut Seat>,
    ) -> Result<Response<Body>, FailedForward> {
        if let Some(trace) = &exchange.trace {
            trace.forwarded();
        }
        let answer = self.forward_with(exchange, is_native, limit, seat).await;
        if let Some(trace) = &exchange.trace {
            trace.answered();
        }
        exchange.call.status = answer.as_ref().ok().map(Response::status);
        answer.map_err(|failed| match failed {
            ForwardError::Refused(refused) => FailedForward::refused(refused),
            ForwardError::Upstream(error) => {
                let unreachable_for = self.forwarder.client().unreachable_for();
                self.failures.forwarding_failed(&error, unreachable_for)
            }
        })
    }

    /// Returns true if the API server has accepted the credentials in `headers`, so that requests
    /// with these credentials need no separate connection.
    pub(in crate::server) fn has_accepted(&self, headers: &HeaderMap) -> bool {
        self.forwarder.client().has_accepted(headers)
    }

    async fn forward_with(
        &self,
        exchange: &mut Exchange,
        is_native: bool,
        limit: Option<Arc<Semaphore>>,
        seat: Option<&mut Seat>,
    ) -> Result<Response<Body>, ForwardError> {
        let address = exchange.client.peer.address.ip();
        let headers = exchange.request.headers_mut();
        let identity = prepare(headers, &exchange.caller)?;
        append_forwarded_for(headers, address);
        if let Some(trace) = &exchange.trace {
            trace.set_headers(headers);
        }
        let unaccepted = match identity {
            Identity::Caller if !self.has_accepted(headers) => {
                Some(Unaccepted::admit(&self.access, headers, &exchange.client).await?)
            }
            _ => None,
        };
        let may_share = is_native && matches!(exchange.caller, Caller::Trusted);
        let key = may_share.then(|| ReadKey::of(&exchange.request, &exchange.info));
        let response = match (key.flatten(), limit) {
            (Some(key), limit) => {
                let caller = SharingCaller {
                    headers: own_headers(exchange.request.headers()),
                    trace: exchange.trace.clone(),
                    account: exchange.client.account.clone(),
                };
                let answer = self.shared_reads.forward(key, limit, caller, seat).await;
                let (response, is_shared) = answer?;
                exchange.call.is_shared = is_shared;
                response
            }
            (None, Some(limit)) => self.forward_limited(exchange, identity, limit).await?,
            (None, None) => self.forward_unshared(exchange, identity, None).await?,
        };
        Ok(held_until_end(response, unaccepted, &exchange.info)?)
    }

    /// Forwards a read with a permit of `limit`. The caller may have only a share of the permits.
    async fn forward_limited(
        &self,
        exchange: &mut Exchange,
        identity: Identity,
        limit: Arc<Semaphore>,
    ) -> Result<Response<Body>, ForwardError> {
        let permit_share = self.shares.permit(&exchange.caller, &limit)?;
        let permit = limit.try_acquire_owned();
        let permit = permit.map_err(|_| Limit::UnprovenReads)?;
        let response = if exchange.info.verb == Verb::Watch {
            self.forward_unshared(exchange, identity, Some(permit))
                .await?
        } else {
            let request = exchange.take_request();
            let reads = &self.shared_reads;
            reads.forward_alone(request, identity, permit).await?
        };
        Ok(guarded(response, permit_share))
    }

    /// Forwards any request, streaming both ways. A watch ends at a drain, or when its caller has
    /// lost the right to it. If a watch needs a `permit`, it holds the permit until it ends.
    async fn forward_unshared(
        &self,
        exchange: &mut Exchange,
        identity: Identity,
        permit: Option<OwnedSemaphorePermit>,
    ) -> Result<Response<Body>, ForwardError> {
        let held = if upstream::is_upgrade(exchange.request.headers()) {
            Some(HeldByUpgrade::of(exchange)?)
        } else {
            None
        };
        let forwarded = self.forwarder.forward(exchange.take_request(), identity);
        let forwarded = forwarded
            .await
            .map_err(|error| ForwardError::Upstream(Arc::new(error)))?;
        let status = forwarded.response.status();
        // A refusal is passed on unchanged, although the user lacks the right.
        let has_begun = status.is_success() || status == StatusCode::SWITCHING_PROTOCOLS;
        let right = if has_begun {
            Right::of(&self.access, exchange)?
        } else {
            None
        };
        let is_watch = exchange.info.verb == Verb::Watch;
        let is_upgraded = forwarded.upgrade.is_some();
        let create = || RightToCreate::of(&self.access, &exchange.info, &exchange.caller);
        let mut watch = (is_watch || right.is_some()).then(|| ForwardedWatch {
            end: is_watch.then(|| self.shutdown.watch_end()),
            right,
            to_create: is_upgraded.then(create).flatten(),
            _permit: permit,
        });
        if let Some(upgrade) = forwarded.upgrade {
            let account = exchange.client.account.clone();
            join_upgrade(&self.shutdown, upgrade, watch.take(), account, held);
        }
        let mut response = forwarded.response;
        if exchange.info.is_proxied() {
            // The page is not the API server's, but has kubefan's origin.
            let headers = response.headers_mut();
            headers.append(header::CONTENT_SECURITY_POLICY, SANDBOX);
        }
        Ok(guarded(response, watch))
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use http::Request;
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

    use super::upgrade::UPGRADE_BYTES;
    use super::*;
    use crate::identity;
    use crate::ledger::{Account, Ledger, Limits, MemoryKind};
    use crate::net::ClientHandle;
    use crate::server::limits::shares::UserLimits;

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

    /// Opens a client's connection with `account`, which `forwarding` serves.
    fn connect(forwarding: &Arc<Forwarding>, account: &Arc<Account>) -> DuplexStream {
        let (near, far) = duplex(64 << 10);
        let (forwarding, account) = (Arc::clone(forwarding), Arc::clone(account));
        let service = service_fn(move |request: Request<Incoming>| {
            let forwarding = Arc::clone(&forwarding);
            let client = ClientHandle::for_tests(Some(Arc::clone(&account)));
            let mut request = request.map(body::boxed);
            request.extensions_mut().insert(client);
            async move {
                let mut exchange = Exchange::of(request);
                exchange.caller = Caller::Trusted;
                let answer = forwarding.forward(&mut exchange, false, None, None).await;
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
                let full = account.charge(MemoryKind::Stream, UPGRADE_BYTES);
                let refused = ledger
                    .open_account()
                    .charge(MemoryKind::Stream, 2 * UPGRADE_BYTES);
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
}
