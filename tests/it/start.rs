//! The start of `kubefan serve`. It waits if waiting can solve a problem. Any other problem ends
//! the start with one line of output. A signal ends the start at any time.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::clients::client::Client;
use crate::support::clients::connector::Connector;
use crate::support::poll::eventually;
use crate::support::programs::apiserver::free_port;
use crate::support::programs::certificates::Authority;
use crate::support::programs::kubefan::{binary, listening, start_in};
use crate::support::programs::process::Process;
use crate::support::proxies::listener::Listener;

/// Beside other load a start takes longer than alone.
const LIMIT: Duration = Duration::from_secs(20);
/// How soon a signal ends a start.
const END: Duration = Duration::from_secs(1);
const ANYWHERE: &str = "127.0.0.1:0";

/// The behaviour of a server that is not an API server.
#[derive(Clone, Copy, Debug)]
enum Fault {
    /// The server accepts connections and sends nothing.
    Silent,
    /// The server closes each connection after the request.
    Closes,
    /// The server sends no HTTP.
    Garbage,
    /// The server answers the first bytes like an HTTP server that gets a TLS handshake.
    SpeaksHttp,
    /// The server answers each request with this status, and a body that is no Status.
    Answers(u16),
}

/// The expected course of a start.
enum Expected {
    /// The start ends by itself with code 1, and prints this.
    Ends(&'static [&'static str]),
    /// The start waits for what the first text names, and logs the second text.
    Waits(&'static str, &'static str),
    /// The start waits before its listeners are open.
    Blocks,
}

/// One kind of start.
struct Kind {
    name: &'static str,
    kubeconfig: PathBuf,
    flags: Vec<String>,
    expected: Expected,
}

/// All kinds of starts, and what they need while they run.
struct Kinds {
    all: Vec<Kind>,
    folder: TempDir,
    _servers: Vec<Listener>,
    _port: std::net::TcpListener,
}

/// A starting kubefan.
struct Start {
    process: Process,
    folder: TempDir,
}

async fn misbehave(fault: Fault, mut tcp: TcpStream) {
    if let Fault::Silent = fault {
        return std::future::pending().await;
    }
    let mut received = Vec::new();
    while !received.windows(4).any(|end| end == b"\r\n\r\n") && received.len() < 16 << 10 {
        if !tcp
            .read_buf(&mut received)
            .await
            .is_ok_and(|count| count > 0)
        {
            return;
        }
        if let Fault::SpeaksHttp = fault {
            break;
        }
    }
    let answer = match fault {
        Fault::Silent | Fault::Closes => return,
        Fault::Garbage => "\u{1}garbage\r\n\r\n".to_owned(),
        Fault::SpeaksHttp => "HTTP/1.0 400 Bad Request\r\n\r\n".to_owned(),
        Fault::Answers(code) => format!(
            "HTTP/1.1 {code} Code\r\ncontent-type: text/html\r\ncontent-length: 6\r\n\
             connection: close\r\n\r\n<html>"
        ),
    };
    // The client may have gone.
    tcp.write_all(answer.as_bytes()).await.ok();
}

impl Kinds {
    async fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let port = std::net::TcpListener::bind(ANYWHERE).expect("a port");
        let mut kinds = Self {
            all: Vec::new(),
            folder,
            _servers: Vec::new(),
            _port: port,
        };
        kinds.add_servers().await;
        kinds.add_plugins();
        kinds.add_files();
        kinds
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn fifo(&self, name: &str) -> PathBuf {
        let path = self.path(name);
        let made = Command::new("mkfifo").arg(&path).status();
        assert!(made.expect("mkfifo").success());
        path
    }

    /// Adds a start with a kubeconfig for this cluster and user.
    fn add(&mut self, name: &'static str, cluster: Value, user: Value, expected: Expected) {
        let kubeconfig = self.path(&name.replace(' ', "-"));
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "test",
            "clusters": [{ "name": "test", "cluster": cluster }],
            "users": [{ "name": "test", "user": user }],
            "contexts": [{ "name": "test", "context": { "cluster": "test", "user": "test" } }],
        });
        fs::write(&kubeconfig, config.to_string()).expect("a kubeconfig");
        self.add_with(name, kubeconfig, &[], expected);
    }

    fn add_with(
        &mut self,
        name: &'static str,
        kubeconfig: PathBuf,
        flags: &[&str],
        expected: Expected,
    ) {
        let mut flags: Vec<_> = flags.iter().map(|&flag| flag.to_owned()).collect();
        for flag in ["--listen", "--admin-listen"] {
            if !flags.iter().any(|given| given == flag) {
                flags.extend([flag.to_owned(), ANYWHERE.to_owned()]);
            }
        }
        self.all.push(Kind {
            name,
            kubeconfig,
            flags,
            expected,
        });
    }

    async fn add_servers(&mut self) {
        let refused = format!("http://127.0.0.1:{}", free_port());
        let expected = Expected::Waits("the API server", "cannot reach the API server");
        self.add("refused", json!({ "server": refused }), json!({}), expected);
        for (name, fault, said) in [
            ("silent", Fault::Silent, ""),
            ("closes", Fault::Closes, "broke"),
            ("garbage bytes", Fault::Garbage, "broke"),
            ("garbage", Fault::Answers(200), "can't be decoded"),
            ("401", Fault::Answers(401), "answered 401"),
            ("403", Fault::Answers(403), "answered 403"),
            ("404", Fault::Answers(404), "answered 404"),
            ("429", Fault::Answers(429), "(429)"),
            ("500", Fault::Answers(500), "not ready (500)"),
            ("no TLS", Fault::SpeaksHttp, "does not answer with TLS"),
        ] {
            let server = Listener::start(move |_, tcp| misbehave(fault, tcp)).await;
            let url = server.http_url().to_owned();
            let secure = url.replace("http:", "https:");
            let secure = json!({ "server": secure, "insecure-skip-tls-verify": true });
            let cluster = match fault {
                Fault::SpeaksHttp => secure.clone(),
                _ => json!({ "server": url }),
            };
            let expected = Expected::Waits("the API server", said);
            self.add(name, cluster, json!({ "token": "t" }), expected);
            if let Fault::Silent = fault {
                let expected = Expected::Waits("the API server", "is not verified");
                self.add("silent over TLS", secure, json!({}), expected);
            }
            self._servers.push(server);
        }
    }

    fn add_plugins(&mut self) {
        let cluster = || json!({ "server": "http://127.0.0.1:1" });
        let plugin = |script: &str| {
            json!({ "exec": {
                "apiVersion": "client.authentication.k8s.io/v1",
                "command": "sh", "args": ["-c", script], "interactiveMode": "Never",
            }})
        };
        let runs = self.path("runs");
        let slow = format!("echo $$ >> {}; exec sleep 1000", runs.display());
        let expected = Expected::Waits(
            "the credentials that the kubeconfig names",
            "waiting for the exec plugin sh",
        );
        self.add("slow plugin", cluster(), plugin(&slow), expected);
        let failing = "echo 'login expired: run foo login' >&2; exit 3";
        let expected = &["login expired: run foo login", "failed with exit status: 3"];
        let expected = Expected::Ends(expected);
        self.add("failing plugin", cluster(), plugin(failing), expected);
        let expected = Expected::Ends(&["its output is not an ExecCredential"]);
        self.add("garbage of a plugin", cluster(), plugin("echo x"), expected);
        let mut missing = plugin("");
        missing["exec"]["command"] = "/no/such/plugin".into();
        missing["exec"]["installHint"] = "Get it at\nexample.com".into();
        let expected = Expected::Ends(&["does not exist; Get it at example.com"]);
        self.add("missing plugin", cluster(), missing, expected);
        let provider = json!({ "auth-provider": { "name": "gcp" } });
        let expected = Expected::Ends(&["\"gcp\"", "gke-gcloud-auth-plugin"]);
        self.add("auth-provider", cluster(), provider, expected);
    }

    fn add_files(&mut self) {
        let usable = self.all[0].kubeconfig.clone();
        let missing = self.path("no-such-file");
        let text = missing.to_str().expect("UTF-8").to_owned();
        let ends = Expected::Ends;
        self.add_with("missing kubeconfig", missing, &[], ends(&["no-such-file"]));
        let malformed = self.path("malformed");
        fs::write(&malformed, "clusters: [").expect("a file");
        self.add_with(
            "malformed kubeconfig",
            malformed,
            &[],
            ends(&["is malformed"]),
        );
        let context = &["--context", "nosuch"];
        let expected = ends(&["nosuch", "known contexts: test"]);
        self.add_with("unknown context", usable.clone(), context, expected);
        let cluster = json!({
            "server": "https://127.0.0.1:1", "certificate-authority-data": "bm9uZQ==",
        });
        let expected = ends(&["has no certificate (PEM)"]);
        self.add("no certificate", cluster, json!({}), expected);
        let cluster = json!({ "server": "https://127.0.0.1:1", "certificate-authority": text });
        self.add("missing CA", cluster, json!({}), ends(&["no-such-file"]));
        let held = self._port.local_addr().expect("an address").to_string();
        let busy = ends(&["--listen: cannot listen on"]);
        self.add_with("port in use", usable.clone(), &["--listen", &held], busy);
        let busy = ends(&["--admin-listen: cannot listen on"]);
        let flags = ["--admin-listen", &held];
        self.add_with("admin port in use", usable.clone(), &flags, busy);
        let flags = ["--tls-self-signed", "--client-ca-file", &text];
        let expected = ends(&["no-such-file"]);
        self.add_with("missing client CA", usable.clone(), &flags, expected);
        let pipe = self.fifo("pipe");
        let expected = Expected::Waits("the credentials that the kubeconfig names", "listening");
        self.add_with("kubeconfig in a pipe", pipe, &[], expected);
        let pipe = self.fifo("certificate").display().to_string();
        let flags = ["--tls-cert-file", &pipe, "--tls-private-key-file", &pipe];
        self.add_with("certificate in a pipe", usable, &flags, Expected::Blocks);
    }
}

impl Start {
    fn new(kind: &Kind) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let mut command = Command::new(binary());
        command.arg("serve").arg("--kubeconfig");
        command.arg(&kind.kubeconfig).args(&kind.flags);
        Self {
            process: start_in(&mut command, folder.path()),
            folder,
        }
    }

    fn output(&self, name: &str) -> String {
        fs::read_to_string(self.folder.path().join(name)).unwrap_or_default()
    }

    /// Waits until the log has `text`.
    async fn says(&mut self, text: &str) {
        eventually(text, LIMIT, async || {
            if let Some(status) = self.process.wait(Duration::ZERO) {
                panic!("ended with {status}: {}", self.output("stderr"));
            }
            let log = self.output("stderr");
            log.contains(text).then_some(()).ok_or(log)
        })
        .await;
    }

    /// Returns the URLs of both listeners.
    async fn urls(&mut self) -> (String, String) {
        self.says("listening").await;
        listening(&self.output("stderr")).expect("addresses in the log")
    }

    /// Checks that the start ends by itself as expected.
    fn ends(mut self, name: &str, words: &[&str]) {
        let status = self.process.wait(LIMIT);
        let said = self.output("stderr");
        let status = status.unwrap_or_else(|| panic!("{name} does not end: {said}"));
        assert_eq!(status.code(), Some(1), "{name}: {said}");
        assert_eq!(self.output("stdout"), "", "{name}");
        let errors = said.lines().filter(|line| line.starts_with("error: "));
        assert_eq!(errors.count(), 1, "{name}: {said}");
        for word in words {
            assert!(said.contains(word), "{name}: {word:?} is not in {said}");
        }
        assert!(!said.contains("panicked"), "{name}: {said}");
    }

    /// Sends a signal, and checks that the start ends soon: with 0, or by the signal if the signal
    /// came before kubefan could handle it.
    fn stop(mut self, name: &str, signal: &str, limit: Duration) {
        self.process.signal(signal);
        let status = self.process.wait(limit);
        let said = self.output("stderr");
        let status = status.unwrap_or_else(|| panic!("{name} does not end: {said}"));
        let is_clean = status.code().is_none_or(|code| code == 0);
        assert!(is_clean, "{name}: {status}: {said}");
        assert_eq!(self.output("stdout"), "", "{name}");
        assert!(!said.contains("panicked"), "{name}: {said}");
    }
}

/// Waits until kubefan waits for what is expected.
async fn waits_for(admin: &Client, what: &str) {
    eventually(what, LIMIT, async || {
        let ready = admin.get("/readyz").await;
        assert_eq!(ready.status, 503, "{ready}");
        let is_expected = ready.body == format!("waiting for {what}\n");
        is_expected.then_some(()).ok_or(ready)
    })
    .await;
}

/// Checks what a kubefan that waits answers.
async fn check_answers(urls: (String, String), what: &str) {
    let (clients, admin) = urls;
    let admin = Client::new(&admin, Connector::plain());
    waits_for(&admin, what).await;
    let clients = Client::new(&clients, Connector::plain());
    for (method, path) in [
        (Method::GET, "/api/v1/pods"),
        (Method::GET, "/api/v1/pods?watch=true"),
        (Method::GET, "/version"),
        (Method::POST, "/api/v1/namespaces/default/configmaps"),
    ] {
        let none = HeaderMap::new();
        let answer = clients.try_send(method, path, &none, Bytes::new()).await;
        let answer = answer.expect("an answer");
        assert_eq!(answer.status, 503, "{path}: {answer}");
        assert_eq!(answer.retry_seconds(), Some(1), "{path}: {answer}");
        let status = answer.json();
        assert_eq!(status["kind"], "Status", "{path}");
        let message = format!("kubefan is starting: waiting for {what}");
        assert_eq!(status["message"], message, "{path}");
    }
    assert_eq!(admin.get("/livez").await.status, 200);
    let answer = admin.get("/readyz?verbose").await;
    assert_eq!(answer.status, 503, "{answer}");
    let text = String::from_utf8_lossy(&answer.body).into_owned();
    assert!(
        text.starts_with(&format!("[-]waiting for {what}")),
        "{text}"
    );
    assert_eq!(admin.get("/metrics").await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn each_kind_of_start_waits_or_ends_and_a_signal_ends_it() {
    let kinds = Kinds::new().await;
    for (number, kind) in kinds.all.iter().enumerate() {
        let mut start = Start::new(kind);
        let signal = ["TERM", "INT"][number % 2];
        match kind.expected {
            Expected::Ends(words) => start.ends(kind.name, words),
            Expected::Waits(what, said) => {
                let urls = start.urls().await;
                start.says(said).await;
                check_answers(urls, what).await;
                start.stop(kind.name, signal, LIMIT);
            }
            Expected::Blocks => start.stop(kind.name, signal, LIMIT),
        }
    }
    // The plugin was run once, and has ended with kubefan.
    let runs = fs::read_to_string(kinds.path("runs")).expect("the plugin's runs");
    let plugins: Vec<_> = runs.lines().collect();
    assert_eq!(plugins.len(), 1, "{runs}");
    eventually("the plugin's end", LIMIT, async || {
        let process = Path::new("/proc").join(plugins[0]);
        let state = fs::read_to_string(process.join("stat")).unwrap_or_default();
        // Its parent is gone, so it may be a zombie until it is waited for.
        let is_gone = state.is_empty() || state.contains(") Z ");
        is_gone.then_some(()).ok_or(state)
    })
    .await;
}

/// The terminal sends SIGINT to all processes of its foreground group.
#[tokio::test(flavor = "multi_thread")]
async fn a_terminals_interrupt_ends_kubefan_and_its_plugin() {
    let kinds = Kinds::new().await;
    let mut all = kinds.all.iter();
    let kind = all.find(|kind| kind.name == "slow plugin").expect("a kind");
    let mut start = Start::new(kind);
    let runs = kinds.path("runs");
    eventually("a plugin", LIMIT, async || {
        let runs = fs::read_to_string(&runs).unwrap_or_default();
        runs.ends_with('\n').then_some(()).ok_or(runs)
    })
    .await;
    let group = format!("-{}", start.process.id());
    let sent = Command::new("kill")
        .args(["-s", "INT", "--", &group])
        .status();
    assert!(sent.is_ok_and(|status| status.success()));
    let ended = start.process.wait(LIMIT);
    assert!(ended.is_some(), "{}", start.output("stderr"));
    let runs = fs::read_to_string(&runs).expect("the plugin's runs");
    assert_eq!(runs.lines().count(), 1, "{runs}");
}

/// Checks that a kubefan that waits shows no details beyond loopback.
#[tokio::test(flavor = "multi_thread")]
async fn details_stay_closed_beyond_loopback_while_kubefan_waits() {
    let kinds = Kinds::new().await;
    let refused = &kinds.all[0];
    let flags = [
        "--listen",
        ANYWHERE,
        "--admin-listen",
        "0.0.0.0:0",
        "--admin-tls-self-signed",
    ];
    let mut start = Start::new(&Kind {
        name: "beyond loopback",
        kubeconfig: refused.kubeconfig.clone(),
        flags: flags.map(str::to_owned).into(),
        expected: Expected::Waits("the API server", ""),
    });
    let (_, admin) = start.urls().await;
    let admin = admin.replace("0.0.0.0", "127.0.0.1");
    let admin = Client::new(&admin, Connector::unverified()).as_token("any");
    assert_eq!(admin.get("/livez").await.status, 200);
    waits_for(&admin, "the API server").await;
    for path in ["/metrics", "/readyz?verbose"] {
        let answer = admin.get(path).await;
        let text = String::from_utf8_lossy(&answer.body).into_owned();
        assert_eq!(answer.status, 503, "{text}");
        assert!(
            text.starts_with("waiting for the API server, which"),
            "{text}"
        );
        assert!(!text.contains("127.0.0.1"), "{text}");
    }
    start.stop("beyond loopback", "TERM", LIMIT);
}

/// Runs each kind of start `KUBEFAN_STARTS` times (200), and ends those that wait at another moment
/// each time: `cargo test --test it -- --ignored every_start_ends`.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "by hand: takes about ten minutes"]
async fn every_start_ends_by_its_own_means_or_by_a_signal_within_a_second() {
    const LANES: u64 = 4;
    let starts = std::env::var("KUBEFAN_STARTS").ok();
    let starts: u64 = starts.map_or(200, |count| count.parse().expect("a number"));
    let kinds = Kinds::new().await;
    for kind in &kinds.all {
        let run = |lane: u64| {
            for number in (lane..starts).step_by(LANES as usize) {
                let start = Start::new(kind);
                if let Expected::Ends(words) = kind.expected {
                    start.ends(kind.name, words);
                    continue;
                }
                // From the first line on: any moment of the first second.
                std::thread::sleep(Duration::from_millis(number * 37 % 1_000));
                let signal = ["TERM", "INT"][usize::from(number % 2 == 0)];
                start.stop(kind.name, signal, END);
            }
        };
        std::thread::scope(|scope| {
            for lane in 0..LANES {
                scope.spawn(move || run(lane));
            }
        });
        println!("{}: {starts} starts ended", kind.name);
    }
}

/// Checks the start with a server that has a certificate of an
/// authority other than the kubeconfig's.
#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_authority_ends_the_start_and_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    let (ours, other) = (Authority::new(), Authority::new());
    let served = other.server();
    fs::write(path("crt"), &served.certificate).expect("a file");
    fs::write(path("key"), &served.key).expect("a file");
    // A kubefan that waits for its own API server is a server with this certificate.
    let kinds = Kinds::new().await;
    let text = |name: &str| path(name).display().to_string();
    let mut flags = vec!["--tls-cert-file".to_owned(), text("crt")];
    flags.extend(["--tls-private-key-file".to_owned(), text("key")]);
    for flag in ["--listen", "--admin-listen"] {
        flags.extend([flag.to_owned(), ANYWHERE.to_owned()]);
    }
    let mut server = Start::new(&Kind {
        name: "server",
        kubeconfig: kinds.all[0].kubeconfig.clone(),
        flags,
        expected: Expected::Blocks,
    });
    let (url, _) = server.urls().await;
    let user = crate::support::programs::kubeconfig::User::Anonymous;
    let kubeconfig = path("kubeconfig");
    let authority = Some(ours.certificate.as_str());
    crate::support::programs::kubeconfig::write(&kubeconfig, &url, authority, &user);
    let start = Start::new(&Kind {
        name: "unknown authority",
        kubeconfig,
        flags: kinds.all[0].flags.clone(),
        expected: Expected::Blocks,
    });
    // Both authorities of the test have one name, and different keys.
    let words = [
        &*url,
        "issued by \"CN=test authority\"",
        "authorities in use",
    ];
    start.ends("unknown authority", &words);
    server.stop("server", "TERM", LIMIT);
}
