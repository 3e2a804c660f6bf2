//! A small HTTP server that replaces the API server in the tests of `upstream`.

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use futures_util::future::BoxFuture;
use http::{Request, Response};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rcgen::{CertificateParams, Issuer, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use rustls::server::WebPkiClientVerifier;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, watch};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::body::{Body, full};
use crate::upstream::{Client, ClientConfig, Dial};

/// The streams per HTTP/2 connection that the API server allows by default.
const MAX_STREAMS: u32 = 100;

/// A second host name that the server's certificate is valid for.
pub(in crate::upstream) const OTHER_NAME: &str = "kubernetes.test";

type Handler = Arc<dyn Fn(Request<Incoming>) -> BoxFuture<'static, Response<Body>> + Send + Sync>;

/// The connection on which the server received a request; stored in the request's extensions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::upstream) struct Peer {
    pub(in crate::upstream) connection: usize,
    pub(in crate::upstream) has_certificate: bool,
}

pub(in crate::upstream) struct TestServer {
    pub(in crate::upstream) url: String,
    /// The number of open connections.
    pub(in crate::upstream) open: watch::Receiver<usize>,
    /// `notify_waiters` makes each open connection close when its requests have ended.
    pub(in crate::upstream) drain: Arc<Notify>,
    certificates: Option<Certificates>,
}

struct Certificates {
    authority: String,
    authority_der: CertificateDer<'static>,
    client: String,
    client_key: String,
}

impl TestServer {
    async fn start(certificates: Option<(ServerConfig, Certificates)>, handler: Handler) -> Self {
        let (config, certificates) = certificates.unzip();
        let scheme = if config.is_some() { "https" } else { "http" };
        let (count, open) = watch::channel(0);
        let serving = ConnectionServer {
            tls: config.map(|config| TlsAcceptor::from(Arc::new(config))),
            handler,
            open: count,
            drain: Arc::default(),
        };
        let drain = Arc::clone(&serving.drain);
        let connections = AtomicUsize::new(0);
        let address = accept_each(move |tcp| {
            let peer = Peer {
                connection: connections.fetch_add(1, Ordering::Relaxed),
                has_certificate: false,
            };
            let serving = serving.clone();
            serving.open.send_modify(|open| *open += 1);
            async move {
                serving.serve(tcp, peer).await;
                serving.open.send_modify(|open| *open -= 1);
            }
        })
        .await;
        Self {
            url: format!("{scheme}://{address}"),
            open,
            drain,
            certificates,
        }
    }

    /// Starts a server that answers by `handler`, over HTTP/1.1 without TLS.
    pub(in crate::upstream) async fn plain<F, R>(handler: F) -> Self
    where
        F: Fn(Request<Incoming>) -> R + Send + Sync + 'static,
        R: Future<Output = Response<Body>> + Send + 'static,
    {
        Self::start(None, boxed_handler(handler)).await
    }

    /// Starts a server with HTTP/2, HTTP/1.1 and TLS; a client certificate is optional.
    pub(in crate::upstream) async fn tls<F, R>(handler: F) -> Self
    where
        F: Fn(Request<Incoming>) -> R + Send + Sync + 'static,
        R: Future<Output = Response<Body>> + Send + 'static,
    {
        Self::start(Some(certificates()), boxed_handler(handler)).await
    }

    /// A client whose kubeconfig has `user` as the user, and `settings` added to the cluster.
    pub(in crate::upstream) async fn client_as(&self, settings: Value, user: Value) -> Client {
        let mut cluster = json!({ "server": self.url });
        for (key, value) in settings.as_object().expect("an object") {
            cluster[key] = value.clone();
        }
        if let Some(certificates) = &self.certificates {
            let authority = BASE64_STANDARD.encode(&certificates.authority);
            cluster["certificate-authority-data"] = authority.into();
        }
        let kubeconfig = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "contexts": [{ "name": "test", "context": { "cluster": "c", "user": "u" } }],
            "clusters": [{ "name": "c", "cluster": cluster }],
            "users": [{ "name": "u", "user": user }],
        });
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), kubeconfig.to_string()).expect("a kubeconfig");
        let config = ClientConfig {
            kubeconfig: Some(file.path().to_owned()),
            context: None,
            ..ClientConfig::default()
        };
        Client::connect(config).await.expect("a client")
    }

    /// A client of this server without credentials.
    pub(in crate::upstream) async fn client(&self) -> Client {
        self.client_as(json!({}), json!({})).await
    }

    /// The CA of this server's certificate, as PEM.
    pub(in crate::upstream) fn authority(&self) -> &str {
        let certificates = self.certificates.as_ref().expect("a server with TLS");
        &certificates.authority
    }

    /// A user for a kubeconfig, with a client certificate that this server trusts.
    pub(in crate::upstream) fn certificate_user(&self) -> Value {
        let certificates = self.certificates.as_ref().expect("a server with TLS");
        json!({
            "client-certificate-data": BASE64_STANDARD.encode(&certificates.client),
            "client-key-data": BASE64_STANDARD.encode(&certificates.client_key),
        })
    }
}

/// A server with HTTP/2 and TLS in the same process, which can be stopped as by SIGSTOP. It uses no
/// sockets, so tokio's paused clock does not advance while a request is being processed.
pub(in crate::upstream) struct StoppableServer {
    pub(in crate::upstream) client: Client,
    /// While true, the server reads and writes nothing, and accepts connections without a handshake.
    pub(in crate::upstream) stopped: watch::Sender<bool>,
    /// Opens a connection to the server.
    pub(in crate::upstream) dial: Dial,
    /// The CA of the server's certificate, which no other server has.
    pub(in crate::upstream) authority: CertificateDer<'static>,
}

impl StoppableServer {
    pub(in crate::upstream) fn start<F, R>(handler: F) -> Self
    where
        F: Fn(Request<Incoming>) -> R + Send + Sync + 'static,
        R: Future<Output = Response<Body>> + Send + 'static,
    {
        let (config, certificates) = certificates();
        let serving = ConnectionServer {
            tls: Some(TlsAcceptor::from(Arc::new(config))),
            handler: boxed_handler(handler),
            open: watch::Sender::new(0),
            drain: Arc::default(),
        };
        let stopped = watch::Sender::new(false);
        let stops = stopped.clone();
        let connections = AtomicUsize::new(0);
        let dial: Dial = Arc::new(move || {
            let (near, far) = tokio::io::duplex(64 << 10);
            let peer = Peer {
                connection: connections.fetch_add(1, Ordering::Relaxed),
                has_certificate: false,
            };
            let (serving, mut stopped) = (serving.clone(), stops.subscribe());
            tokio::spawn(async move {
                let mut served = pin!(serving.serve(far, peer));
                loop {
                    let running = stopped.wait_for(|stopped| !stopped);
                    running.await.expect("the server lives");
                    tokio::select! {
                        () = served.as_mut() => return,
                        changed = stopped.wait_for(|stopped| *stopped) => changed.map(drop).expect("the server lives"),
                    }
                }
            });
            Ok(near)
        });
        let authority = certificates.authority_der;
        Self {
            client: Client::in_memory_tls(&dial, authority.clone()),
            stopped,
            dial,
            authority,
        }
    }
}

/// A client of a server with TLS and HTTP/2 in the same process, which serves each connection by
/// `serve`. The first connection has the number 0.
pub(in crate::upstream) fn in_memory_tls<F, R>(serve: F) -> Client
where
    F: Fn(usize, TlsStream<DuplexStream>) -> R + Clone + Send + Sync + 'static,
    R: Future<Output = ()> + Send + 'static,
{
    let (config, certificates) = certificates();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let connections = AtomicUsize::new(0);
    let dial: Dial = Arc::new(move || {
        let (near, far) = tokio::io::duplex(64 << 10);
        let number = connections.fetch_add(1, Ordering::Relaxed);
        let (acceptor, serve) = (acceptor.clone(), serve.clone());
        tokio::spawn(async move {
            if let Ok(stream) = acceptor.accept(far).await {
                serve(number, stream).await;
            }
        });
        Ok(near)
    });
    Client::in_memory_tls(&dial, certificates.authority_der)
}

/// Answers each request on an HTTP/2 connection by the length of its body.
pub(in crate::upstream) async fn serve_body_length<I>(io: I)
where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service = service_fn(|request: Request<Incoming>| async {
        let body = request.into_body().collect().await?;
        Ok::<_, hyper::Error>(Response::new(full(body.to_bytes().len().to_string())))
    });
    let builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
    let _ = builder.serve_connection(TokioIo::new(io), service).await;
}

/// Returns the output of `awaited`; panics if it takes more than 30 s.
pub(in crate::upstream) async fn in_time<T>(awaited: impl Future<Output = T>) -> T {
    let given = tokio::time::timeout(Duration::from_secs(30), awaited).await;
    given.expect("no answer within 30 s")
}

/// Listens on a free port, whose address it returns, and spawns `serve` for each connection.
pub(in crate::upstream) async fn accept_each<F, R>(serve: F) -> SocketAddr
where
    F: Fn(TcpStream) -> R + Send + 'static,
    R: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        while let Ok((tcp, _)) = listener.accept().await {
            tokio::spawn(serve(tcp));
        }
    });
    address
}

/// The connection on which the server received `request`.
pub(in crate::upstream) fn peer<B>(request: &Request<B>) -> Peer {
    *request.extensions().get().expect("set by the server")
}

fn boxed_handler<F, R>(handler: F) -> Handler
where
    F: Fn(Request<Incoming>) -> R + Send + Sync + 'static,
    R: Future<Output = Response<Body>> + Send + 'static,
{
    Arc::new(move |request| Box::pin(handler(request)))
}

#[derive(Clone)]
struct ConnectionServer {
    tls: Option<TlsAcceptor>,
    handler: Handler,
    open: watch::Sender<usize>,
    drain: Arc<Notify>,
}

impl ConnectionServer {
    async fn serve<I>(&self, io: I, mut peer: Peer)
    where
        I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let Some(acceptor) = &self.tls else {
            return self.serve_io(TokioIo::new(io), peer).await;
        };
        if let Ok(stream) = acceptor.accept(io).await {
            peer.has_certificate = stream.get_ref().1.peer_certificates().is_some();
            self.serve_io(TokioIo::new(stream), peer).await;
        }
    }

    async fn serve_io<I>(&self, io: I, peer: Peer)
    where
        I: hyper::rt::Read + hyper::rt::Write + Unpin + Send + 'static,
    {
        let service = service_fn(move |mut request: Request<Incoming>| {
            request.extensions_mut().insert(peer);
            let response = (self.handler)(request);
            async move { Ok::<_, std::convert::Infallible>(response.await) }
        });
        let mut builder = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
        builder.http2().max_concurrent_streams(MAX_STREAMS);
        let mut connection = pin!(builder.serve_connection_with_upgrades(io, service));
        // The result is ignored, because some tests close the connection on purpose.
        tokio::select! {
            _ = connection.as_mut() => {}
            () = self.drain.notified() => {
                connection.as_mut().graceful_shutdown();
                let _ = connection.await;
            }
        }
    }
}

fn certificates() -> (ServerConfig, Certificates) {
    let key = || KeyPair::generate().expect("a key");
    let mut authority = CertificateParams::new(Vec::new()).expect("parameters");
    authority.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let authority_key = key();
    let authority_certificate = authority.self_signed(&authority_key).expect("an authority");
    let issuer = Issuer::new(authority, authority_key);
    let (server_key, client_key) = (key(), key());
    let signed = |name: &str, key: &KeyPair| {
        let names = vec![name.to_owned(), OTHER_NAME.to_owned()];
        let parameters = CertificateParams::new(names).expect("parameters");
        parameters.signed_by(key, &issuer).expect("a certificate")
    };
    let server = signed("127.0.0.1", &server_key);
    let client = signed("kubefan", &client_key);

    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut roots = rustls::RootCertStore::empty();
    roots
        .add(authority_certificate.der().clone())
        .expect("a root");
    let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider.clone());
    let verifier = verifier
        .allow_unauthenticated()
        .build()
        .expect("a verifier");
    let server_key = PrivatePkcs8KeyDer::from(server_key.serialize_der());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("protocol versions")
        .with_client_cert_verifier(verifier)
        .with_single_cert(vec![server.der().clone()], server_key.into())
        .expect("a certificate");
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let certificates = Certificates {
        authority: authority_certificate.pem(),
        authority_der: authority_certificate.der().clone(),
        client: client.pem(),
        client_key: client_key.serialize_pem(),
    };
    (config, certificates)
}
