//! Authorities from files and from a scripted API server in memory, on paused time.

use std::convert::Infallible;
use std::io::Write;
use std::{fs, io};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use kubefan_core::shutdown;
use serde_json::json;
use tempfile::TempDir;
use tokio::io::duplex;
use tokio::time::sleep;
use tracing::subscriber::DefaultGuard;

use super::*;
use crate::identity::certificates::users::CertificateMemo;
use crate::identity::certificates::users::tests::{Ca, NOW};
use crate::net::CertificateChain;

/// The data of the ConfigMap; a refusal if there is none.
type Published = Arc<Mutex<Result<Value, u16>>>;

/// Writes to memory.
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Write::write(&mut *self.0.lock(), bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

struct Scene {
    published: Published,
    current: Arc<ArcSwap<Authorities>>,
    /// How often the authorities changed.
    changes: Arc<Mutex<usize>>,
    log: Arc<Mutex<Vec<u8>>>,
    directory: TempDir,
    _logging: DefaultGuard,
}

async fn config_map(published: Published) -> Result<Response<Full<Bytes>>, Infallible> {
    let (status, body) = match &*published.lock() {
        Ok(data) => (200, json!({"kind": "ConfigMap", "data": data})),
        Err(code) => (*code, json!({"kind": "Status", "code": code})),
    };
    let answer = Response::builder()
        .status(status)
        .header("content-type", "application/json")
        .body(Full::from(body.to_string()));
    Ok(answer.expect("a response"))
}

impl Scene {
    fn new(published: Result<Value, u16>) -> Self {
        let log = Arc::<Mutex<Vec<u8>>>::default();
        let written = Arc::clone(&log);
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(tracing::Level::INFO)
            .with_ansi(false)
            .with_writer(move || Log(Arc::clone(&written)))
            .finish();
        Self {
            published: Arc::new(Mutex::new(published)),
            current: Arc::default(),
            changes: Arc::default(),
            log,
            directory: tempfile::tempdir().expect("a temporary directory"),
            _logging: tracing::subscriber::set_default(subscriber),
        }
    }

    async fn load(&self, sources: AuthoritySources) {
        let published = Arc::clone(&self.published);
        let dial = move || {
            let (near, far) = duplex(64 << 10);
            let published = Arc::clone(&published);
            let answer = service_fn(move |_: Request<Incoming>| config_map(Arc::clone(&published)));
            tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(far), answer));
            Ok(near)
        };
        let client = Client::in_memory(&(Arc::new(dial) as _));
        let changes = Arc::clone(&self.changes);
        let on_change = move |_| *changes.lock() += 1;
        let current = Arc::clone(&self.current);
        let shutdown = Shutdown::new(shutdown::Config::default());
        let files = sources.read().await.expect("good files");
        let loaded = load(files, client, current, on_change, &shutdown);
        loaded.await.expect("good authorities");
    }

    fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.directory.path().join(name);
        fs::write(&path, text).expect("room");
        path
    }

    /// What was logged since the last call.
    fn logged(&self) -> String {
        let log = std::mem::take(&mut *self.log.lock());
        String::from_utf8(log).expect("text")
    }

    /// True if a certificate of `ca` names a user.
    fn accepts(&self, ca: &Ca) -> bool {
        let chain: CertificateChain = [ca.client(&["jane"], &[])].into();
        let memo = CertificateMemo::default();
        let current = self.current.load();
        let client = current.client.as_ref();
        client.is_some_and(|client| client.user(&chain, &memo, NOW).is_ok())
    }
}

#[tokio::test(start_paused = true)]
async fn a_warning_says_if_certificates_are_judged_in_another_way_than_by_the_api_server() {
    let (one, other) = (Ca::new("one"), Ca::new("other"));
    let both = json!({
        "client-ca-file": one.pem(),
        "requestheader-client-ca-file": other.pem(),
    });
    let unreadable = "kubefan may not read";
    // The files are read again until the test ends.
    let mut directories = Vec::new();
    for (published, client_ca, request_header_ca, expected) in [
        (None, None, None, Some(unreadable)),
        (None, Some(&one), None, Some(unreadable)),
        (Some(&both), None, None, None),
        (Some(&both), Some(&one), None, None),
        (Some(&both), Some(&one), Some(&other), None),
        (
            Some(&both),
            Some(&other),
            None,
            Some("--client-ca-file differs"),
        ),
        (
            Some(&both),
            None,
            Some(&one),
            Some("--requestheader-client-ca-file differs"),
        ),
    ] {
        let scene = Scene::new(published.cloned().ok_or(403));
        let sources = AuthoritySources {
            client_ca: client_ca.map(|ca| scene.file("client", ca.pem())),
            request_header_ca: request_header_ca.map(|ca| scene.file("proxy", ca.pem())),
            ..AuthoritySources::default()
        };
        scene.load(sources).await;
        let log = scene.logged();
        match expected {
            Some(expected) => assert!(log.contains(expected), "{expected} is not in {log:?}"),
            None => assert_eq!(log, ""),
        }
        let file = client_ca.or(published.map(|_| &one));
        let is_one = file.is_some_and(|ca| ca.pem() == one.pem());
        assert_eq!(scene.accepts(&one), is_one);
        directories.push(scene.directory);
    }
}

#[tokio::test(start_paused = true)]
async fn an_api_server_without_authorities_is_no_reason_for_a_warning() {
    for published in [Err(404), Ok(json!({}))] {
        let scene = Scene::new(published);
        scene.load(AuthoritySources::default()).await;
        let log = scene.logged();
        let expected = "the API server accepts no client certificates";
        assert!(log.contains(expected) && !log.contains("WARN"), "{log}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_published_is_asked_for_again_if_the_answer_is_not_clear() {
    let ca = Ca::new("one");
    let scene = Scene::new(Err(500));
    let published = Arc::clone(&scene.published);
    let pem = ca.pem().to_owned();
    tokio::spawn(async move {
        sleep(START_PAUSE * 2).await;
        *published.lock() = Ok(json!({"client-ca-file": pem}));
    });
    scene.load(AuthoritySources::default()).await;
    assert!(scene.accepts(&ca));
    assert_eq!(scene.logged(), "");
}

#[tokio::test(start_paused = true)]
async fn what_the_api_server_publishes_is_followed() {
    let (old, new) = (Ca::new("old"), Ca::new("new"));
    let of = |pem: &str| Ok(json!({"client-ca-file": pem}));
    let scene = Scene::new(of(old.pem()));
    scene.load(AuthoritySources::default()).await;
    assert!(scene.accepts(&old) && !scene.accepts(&new));
    assert_eq!(*scene.changes.lock(), 1);
    scene.logged();
    let minute = async || sleep(INTERVAL + Duration::from_secs(1)).await;
    minute().await;
    assert_eq!((*scene.changes.lock(), scene.logged().as_str()), (1, ""));
    *scene.published.lock() = of(new.pem());
    minute().await;
    assert!(scene.accepts(&new) && !scene.accepts(&old));
    assert_eq!(*scene.changes.lock(), 2);
    let log = scene.logged();
    assert!(
        log.contains("changed authorities of client certificates are in use"),
        "{log}"
    );
    // What can't be used, or not be read, changes nothing.
    *scene.published.lock() = of("no certificate");
    minute().await;
    let log = scene.logged();
    assert!(
        log.contains("changed authorities of client certificates are not used"),
        "{log}"
    );
    *scene.published.lock() = Err(403);
    minute().await;
    assert!(scene.accepts(&new));
    assert_eq!(*scene.changes.lock(), 2);
}
