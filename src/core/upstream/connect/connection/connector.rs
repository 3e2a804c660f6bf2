//! Opens connections to the API server: TCP or a proxy's tunnel, then TLS with the identity's
//! certificates. Each identity has one connector for HTTP/1.1 and one for HTTP/2.

use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::future::BoxFuture;
use http::Uri;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::proxy::{SocksV5, Tunnel};
use hyper_util::client::proxy::matcher::Intercept;
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::io::BufReader;
use tokio_rustls::TlsConnector;
use tower::ServiceExt;

use super::last_read::{Io, TimedIo};
use super::runtime_executor::RuntimeExecutor;
use super::{route, server_certificate};
use crate::body::BoxError;

const ALPN_HTTP2: &[u8] = b"h2";
/// Bytes that one system call reads from a connection with TLS: a record, which has 16 KiB and some
/// bytes at most. rustls itself asks for 4 KiB at a time.
const TLS_READ_BUFFER: usize = 17 << 10;

/// Opens connections with one identity's certificates and one choice of protocols; cheap to clone.
#[derive(Clone)]
pub(in crate::upstream) struct Connector {
    route: Route,
    tls: Arc<TlsSettings>,
    executor: RuntimeExecutor,
}

/// The settings of TLS, which is used if the server's URL is https.
pub(in crate::upstream) struct TlsSettings {
    config: Arc<rustls::ClientConfig>,
    /// The kubeconfig's `tls-server-name`; if `None`, the certificate must match the URL's host.
    server_name: Option<ServerName<'static>>,
}

/// Opens a connection in memory, or returns the error that a test injects.
#[cfg(any(test, feature = "test-support"))]
pub type Dial = Arc<dyn Fn() -> io::Result<tokio::io::DuplexStream> + Send + Sync>;

#[derive(Clone)]
enum Route {
    #[cfg(any(test, feature = "test-support"))]
    Memory(Dial),
    Direct(HttpConnector),
    Http(Tunnel<HttpConnector>),
    Https(Box<Tunnel<Connector>>),
    Socks(SocksV5<HttpConnector>),
}

/// An open connection, with TLS or without.
pub(in crate::upstream) type ConnectionStream = TokioIo<TimedIo>;

impl TlsSettings {
    pub(in crate::upstream) fn new(
        config: rustls::ClientConfig,
        server_name: Option<ServerName<'static>>,
    ) -> Self {
        Self {
            config: Arc::new(config),
            server_name,
        }
    }

    /// Returns these settings with an ALPN offer of HTTP/2 first, then HTTP/1.1.
    pub(in crate::upstream) fn with_http2(&self) -> Self {
        let mut config = rustls::ClientConfig::clone(&self.config);
        config.alpn_protocols = vec![ALPN_HTTP2.to_vec(), b"http/1.1".to_vec()];
        Self::new(config, self.server_name.clone())
    }

    async fn handshake(&self, uri: &Uri, io: Box<dyn Io>) -> Result<ConnectionStream, BoxError> {
        let name = match &self.server_name {
            Some(name) => name.clone(),
            None => ServerName::try_from(route::host(uri).to_owned())?,
        };
        let tls = TlsConnector::from(Arc::clone(&self.config));
        let io = BufReader::with_capacity(TLS_READ_BUFFER, io);
        let stream = tls.connect(name, io).await;
        let stream = stream.map_err(server_certificate::explain)?;
        let http2 = stream.get_ref().1.alpn_protocol() == Some(ALPN_HTTP2);
        Ok(TokioIo::new(TimedIo::new(Box::new(stream), http2)))
    }
}

impl Connector {
    /// Creates a connector that connects through `proxy`, or directly if that is `None`.
    pub(in crate::upstream::connect) fn new(tls: TlsSettings, proxy: Option<&Intercept>) -> Self {
        let route = match proxy {
            None => Route::Direct(route::tcp()),
            Some(proxy) => Route::through(proxy, &tls),
        };
        Self {
            route,
            tls: Arc::new(tls),
            executor: RuntimeExecutor::current(),
        }
    }

    /// Creates a connector; `dial` opens its connections.
    #[cfg(any(test, feature = "test-support"))]
    pub(in crate::upstream) fn in_memory(tls: TlsSettings, dial: Dial) -> Self {
        Self {
            route: Route::Memory(dial),
            tls: Arc::new(tls),
            executor: RuntimeExecutor::current(),
        }
    }

    /// Returns the executor of the runtime for the connector's connections.
    pub(in crate::upstream) fn executor(&self) -> RuntimeExecutor {
        self.executor.clone()
    }

    /// Opens a connection on the current runtime instead of the connector's executor.
    pub(in crate::upstream) async fn connect(self, uri: Uri) -> Result<ConnectionStream, BoxError> {
        let connecting = async {
            let io = self.route.open(uri.clone()).await?;
            if uri.scheme() != Some(&http::uri::Scheme::HTTPS) {
                return Ok(TokioIo::new(TimedIo::new(io, false)));
            }
            self.tls.handshake(&uri, io).await
        };
        match tokio::time::timeout(route::CONNECT_TIMEOUT, connecting).await {
            Ok(connected) => connected,
            Err(_) => Err(Box::new(io::Error::new(
                io::ErrorKind::TimedOut,
                format!("no connection within {:?}", route::CONNECT_TIMEOUT),
            ))),
        }
    }
}

impl Route {
    fn through(proxy: &Intercept, tls: &TlsSettings) -> Self {
        let uri = proxy.uri().clone();
        match uri.scheme_str() {
            Some("https") => {
                let tls = TlsSettings::new(rustls::ClientConfig::clone(&tls.config), None);
                let tunnel = Tunnel::new(uri, Connector::new(tls, None));
                Self::Https(Box::new(with_credentials(tunnel, proxy)))
            }
            Some(scheme) if scheme.starts_with("socks5") => {
                let socks = SocksV5::new(uri, route::tcp());
                Self::Socks(match proxy.raw_auth() {
                    Some((user, password)) => socks.with_auth(user.to_owned(), password.to_owned()),
                    None => socks,
                })
            }
            _ => Self::Http(with_credentials(Tunnel::new(uri, route::tcp()), proxy)),
        }
    }

    async fn open(self, uri: Uri) -> Result<Box<dyn Io>, BoxError> {
        Ok(match self {
            #[cfg(any(test, feature = "test-support"))]
            Self::Memory(dial) => Box::new(dial()?),
            Self::Direct(tcp) => Box::new(tcp.oneshot(uri).await?.into_inner()),
            Self::Http(tunnel) => Box::new(tunnel.oneshot(uri).await?.into_inner()),
            Self::Https(tunnel) => Box::new(tunnel.oneshot(uri).await?.into_inner()),
            Self::Socks(socks) => Box::new(socks.oneshot(uri).await?.into_inner()),
        })
    }
}

fn with_credentials<C>(tunnel: Tunnel<C>, proxy: &Intercept) -> Tunnel<C> {
    match proxy.basic_auth() {
        Some(credentials) => tunnel.with_auth(credentials.clone()),
        None => tunnel,
    }
}

impl tower::Service<Uri> for Connector {
    type Response = ConnectionStream;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<ConnectionStream, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let executor = self.executor();
        let connecting = self.clone().connect(uri);
        Box::pin(async move { executor.run(connecting).await? })
    }
}
