//! Requests of users that try to read more than they may. The oracle is the API server: through
//! kubefan no user sees a secret that it does not see directly, and gets no other status, except
//! that kubefan may refuse what it will not interpret or forward (400 or 403).

use std::fs;
use std::net::Ipv4Addr;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, Method};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use super::identities::{TOKENS, grant};
use crate::support::clients::client::Client;
use crate::support::clients::connector::Connector;
use crate::support::poll::eventually;
use crate::support::programs::apiserver::{ApiServer, private_with_tokens};
use crate::support::programs::certificates::Authority;
use crate::support::programs::kubefan::Kubefan;

/// The value of a secret that none of the attackers may read.
const MARKER: &str = "bWFya2VyLW9mLWEtc2VjcmV0";
const LIMIT: Duration = Duration::from_secs(20);
const ADMIN: &str = "Authorization: Bearer admin-token";
const READER: &str = "Authorization: Bearer ns-reader-token";

/// An API server with a secret in the namespace `closed`, and kubefans with the identity of an
/// admin with a client certificate. So a request that is sent by mistake with kubefan's
/// identity may read everything.
struct Scene {
    server: ApiServer,
    /// One kubefan for each way to authenticate callers.
    targets: Vec<Target>,
}

/// A kubefan under attack.
struct Target {
    mode: &'static str,
    kubefan: Kubefan,
    authority: String,
    /// Another user, with the right to read everything.
    honest: Client,
}

impl Target {
    async fn start(server: &ApiServer, mode: &'static str, flags: &[&str]) -> Self {
        let mut all = vec![
            "--auth",
            mode,
            "--tls-self-signed",
            "--all",
            "--cache-secrets",
        ];
        all.extend(flags);
        let kubefan = Kubefan::start_with(&server.kubeconfig("certificate"), &all).await;
        let authority = kubefan.authority().expect("kubefan's CA");
        let connector = Connector::tls(&authority, None, &["h2"]);
        let honest = Client::http2(kubefan.url(), connector).as_token("admin-token");
        Self {
            mode,
            kubefan,
            authority,
            honest,
        }
    }

    /// Checks that the honest user can read the secret that others may not read.
    async fn serves_the_honest(&self) {
        let path = "/api/v1/namespaces/closed/secrets?resourceVersion=0";
        let answer = timeout(LIMIT, self.honest.get(path)).await;
        let answer = answer.expect("an answer in time").ok();
        let body = String::from_utf8_lossy(&answer.body);
        assert!(body.contains(MARKER), "{}: {body}", self.mode);
    }
}

impl Scene {
    async fn start(flags: &[&str]) -> Self {
        Self::start_with(flags, &[]).await
    }

    /// Starts kubefans with `flags`, and an API server with `server_flags`.
    async fn start_with(flags: &[&str], server_flags: &[&str]) -> Self {
        let server = private_with_tokens(TOKENS, server_flags).await;
        let admin = server.client();
        for namespace in ["open", "closed"] {
            let object = json!({"metadata": {"name": namespace}});
            admin.create("/api/v1/namespaces", &object).await.ok();
        }
        let secret = json!({"metadata": {"name": "s"}, "data": {"key": MARKER}});
        let secrets = "/api/v1/namespaces/closed/secrets";
        admin.create(secrets, &secret).await.ok();
        let harmless = json!({"metadata": {"name": "s"}, "data": {"key": "aGFybWxlc3M="}});
        let secrets = "/api/v1/namespaces/open/secrets";
        admin.create(secrets, &harmless).await.ok();
        let rules = json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]);
        for name in ["ns-reader", "certified"] {
            let group = "rbac.authorization.k8s.io";
            let subject = json!({"apiGroup": group, "kind": "User", "name": name});
            grant(&admin, Some("open"), name, &rules, &subject).await;
        }
        let targets = vec![
            Target::start(&server, "caller", flags).await,
            Target::start(&server, "delegated", flags).await,
        ];
        Self { server, targets }
    }

    /// Returns the API server's URL and a connector for it.
    fn direct(&self, has_certificate: bool, protocol: &str) -> (String, Connector) {
        let authority = self.server.authority();
        let connector = self.connector(authority, has_certificate, protocol);
        (self.server.url(), connector)
    }

    /// Returns the URL of a kubefan and a connector for it.
    fn through(
        &self,
        target: &Target,
        has_certificate: bool,
        protocol: &str,
    ) -> (String, Connector) {
        let connector = self.connector(&target.authority, has_certificate, protocol);
        (target.kubefan.url().to_owned(), connector)
    }

    fn connector(&self, authority: &str, has_certificate: bool, protocol: &str) -> Connector {
        let certificate = self.server.certificate("certified", "any");
        Connector::tls(
            authority,
            has_certificate.then_some(&certificate),
            &[protocol],
        )
    }

    /// Sends `bytes` to all servers on new connections. The attack has failed if kubefan's answers
    /// have the marker only if the direct answers have it, and the first status is equal or 400.
    async fn attack(&self, name: &str, has_certificate: bool, bytes: &str) {
        let (url, connector) = self.direct(has_certificate, "http/1.1");
        let direct = exchange(&url, &connector, bytes).await;
        for target in &self.targets {
            let (url, connector) = self.through(target, has_certificate, "http/1.1");
            let attack = exchange(&url, &connector, bytes);
            let (ours, ()) = tokio::join!(attack, target.serves_the_honest());
            failed(&format!("{name}, {}", target.mode), &ours, &direct);
        }
    }

    /// Sends a GET over HTTP/2 to all servers, and checks the answers like [`Scene::attack`].
    async fn attack_http2(&self, name: &str, has_certificate: bool, path: &str, headers: &[&str]) {
        let mut all = HeaderMap::new();
        for line in headers {
            let (name, value) = line.split_once(": ").expect("a header");
            let name = HeaderName::try_from(name).expect("a name");
            all.append(name, value.parse().expect("a value"));
        }
        let send = async |(url, connector): (String, Connector)| {
            let client = Client::http2_unshared(&url, connector);
            let sent = client.try_send(Method::GET, path, &all, Bytes::new());
            match timeout(LIMIT, sent).await.expect("an answer in time") {
                Ok(answer) => format!(
                    "HTTP/2 {} {}",
                    answer.status.as_u16(),
                    String::from_utf8_lossy(&answer.body)
                ),
                // The server may reset a stream instead of an answer.
                Err(error) => format!("HTTP/2 none {error}"),
            }
        };
        let direct = send(self.direct(has_certificate, "h2")).await;
        for target in &self.targets {
            let attack = send(self.through(target, has_certificate, "h2"));
            let (ours, ()) = tokio::join!(attack, target.serves_the_honest());
            failed(
                &format!("{name} {path}, {}, HTTP/2", target.mode),
                &ours,
                &direct,
            );
        }
    }
}

/// Asserts that an attack has failed by the answers of kubefan and of the API server.
fn failed(name: &str, ours: &str, direct: &str) {
    assert!(!direct.contains(MARKER), "{name}: not an attack: {direct}");
    assert!(!ours.contains(MARKER), "{name}: {ours}");
    let (our_status, status) = (status_of(ours), status_of(direct));
    assert!(
        our_status == status
            || ["400", "403"].contains(&our_status)
            || our_status.starts_with('5') && !status.starts_with('2'),
        "{name}: {our_status} instead of {status}\n{ours}\n{direct}"
    );
}

/// Returns everything that a server answers to `bytes` until it closes the connection.
async fn exchange(url: &str, connector: &Connector, bytes: &str) -> String {
    let dialed = connector.dial(url, Ipv4Addr::LOCALHOST).await;
    let mut stream = dialed.expect("a connection");
    stream.write_all(bytes.as_bytes()).await.expect("room");
    let mut answer = Vec::new();
    // A server may close the connection without TLS's end.
    let read = timeout(LIMIT, stream.read_to_end(&mut answer)).await;
    assert!(read.is_ok(), "no end within {LIMIT:?}: {bytes}");
    String::from_utf8_lossy(&answer).into_owned()
}

fn status_of(answer: &str) -> &str {
    answer.split(' ').nth(1).unwrap_or("none")
}

/// Formats a GET of `target` on a connection that ends after the answer.
fn get(target: &str, headers: &[&str]) -> String {
    let headers: String = headers.iter().map(|line| format!("{line}\r\n")).collect();
    format!("GET {target} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n{headers}\r\n")
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn no_spelling_of_a_path_shows_what_another_may_read() {
    let scene = Scene::start(&[]).await;
    let targets = [
        "/api/v1/namespaces/closed/secrets",
        "/api/v1/namespaces/closed/secrets?resourceVersion=0",
        "/api/v1/namespaces/closed/secrets/s",
        "/api/v1/namespaces/closed/secrets/s?resourceVersion=0",
        "/api/v1/secrets?resourceVersion=0",
        "/api/v1/namespaces/open/../closed/secrets",
        "/api/v1/namespaces/open/%2e%2e/closed/secrets",
        "/api/v1/namespaces/open%2F..%2Fclosed/secrets",
        "/api/v1/namespaces/open/secrets/..%2f..%2fclosed%2fsecrets%2fs",
        "/api/v1/namespaces/closed%2Fsecrets",
        "//api/v1/namespaces/closed/secrets?resourceVersion=0",
        "/api/v1//namespaces/closed/secrets?resourceVersion=0",
        "/api/v1/namespaces//closed/secrets?resourceVersion=0",
        "/api/v1/namespaces/closed/secrets/?resourceVersion=0",
        "/./api/v1/namespaces/closed/secrets?resourceVersion=0",
        "/API/v1/namespaces/closed/secrets",
        "/api/V1/namespaces/closed/secrets",
        "/api/v1/Namespaces/closed/secrets",
        "/api/v1/namespaces/closed/Secrets",
        "/api/v1/namespaces/CLOSED/secrets",
        "/api/v1/namespaces/clos%65d/secrets?resourceVersion=0",
        "/api/v1/namespaces/closed/secret%73?resourceVersion=0",
        "/api/v1/namespaces/closed/secrets/%73?resourceVersion=0",
        "/api/v1/namespaces/closed/secrets/s%00",
        "/api/v1/namespaces/open/secrets;/../../closed/secrets",
        "/api/v1/namespaces/closed;a=b/secrets",
        "/api/v1/namespaces/closed/secrets;a=b?resourceVersion=0",
        "/api/v1/namespaces/open/secrets?namespace=closed",
        "/api/v1/namespaces/closed/secrets?namespace=open&resourceVersion=0",
        "/api/v1/namespaces/open/secrets?fieldSelector=metadata.namespace%3Dclosed",
        "/api/v1/secrets?fieldSelector=metadata.namespace%3Dopen&fieldSelector=metadata.namespace%3Dclosed",
        "/api/v1/secrets?resourceVersion=0&fieldSelector=metadata.namespace%3Dclosed",
        "/api/v1/secrets?resourceVersion=0;fieldSelector=metadata.namespace%3Dopen",
        "/api/v1/namespaces/closed/secrets?watch=0&watch=1&timeoutSeconds=1&resourceVersion=0",
        "/api/v1/namespaces/closed/secrets?watch=1&watch=0&timeoutSeconds=1&resourceVersion=0",
        "/api/v1/namespaces/closed/secrets?watch=true;watch=0&timeoutSeconds=1",
        "/api/v1/watch/namespaces/closed/secrets?timeoutSeconds=1",
        "/api/v1/watch/namespaces/closed/secrets/s?timeoutSeconds=1",
        "/api/v1/namespaces/closed/secrets?watch=1&timeoutSeconds=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true",
        "/api/v1/namespaces/closed/secrets?limit=1&resourceVersion=0",
        "/api/v1/proxy/namespaces/closed/secrets",
        "/apis//v1/namespaces/closed/secrets",
        "http://127.0.0.1/api/v1/namespaces/closed/secrets?resourceVersion=0",
        "https://127.0.0.1/api/v1/namespaces/closed/secrets/s",
        "http://127.0.0.1/api/v1/namespaces/open/../closed/secrets",
    ];
    for path in targets {
        // What the admin has been answered, and what the user has been answered before, must
        // change nothing. The first two attacks are without remembered answers.
        scene.attack(path, false, &get(path, &[READER])).await;
        scene.attack(path, false, &get(path, &[])).await;
        for target in &scene.targets {
            let (url, connector) = scene.through(target, false, "http/1.1");
            exchange(&url, &connector, &get(path, &[ADMIN])).await;
        }
        scene.attack(path, false, &get(path, &[READER])).await;
        scene.attack(path, true, &get(path, &[])).await;
        scene.attack(path, true, &get(path, &[ADMIN])).await;
        // HTTP/2 has no absolute form.
        if path.starts_with('/') {
            scene.attack_http2("", false, path, &[READER]).await;
            scene.attack_http2("", true, path, &[]).await;
        }
    }
    // A refusal of one user is not the answer to another.
    for target in &scene.targets {
        target.serves_the_honest().await;
        let (url, connector) = scene.through(target, false, "http/1.1");
        let own = "/api/v1/namespaces/open/secrets?resourceVersion=0";
        let own = exchange(&url, &connector, &get(own, &[READER])).await;
        assert_eq!(status_of(&own), "200", "{}: {own}", target.mode);
    }
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn no_header_gives_another_identity() {
    let scene = Scene::start(&[]).await;
    // The subprotocol has the admin's token.
    let protocol = "Sec-WebSocket-Protocol: base64url.bearer.authorization.k8s.io.YWRtaW4tdG9rZW4, v4.channel.k8s.io";
    let rows: &[(&[&str], bool)] = &[
        (
            &["X-Remote-User: admin", "X-Remote-Group: system:masters"],
            false,
        ),
        (
            &[
                READER,
                "X-Remote-User: admin",
                "X-Remote-Group: system:masters",
            ],
            false,
        ),
        (
            &["X-Remote-User: admin", "X-Remote-Group: system:masters"],
            true,
        ),
        (&[READER, "Impersonate-User: admin"], false),
        (&[READER, "Impersonate-Group: system:masters"], false),
        (
            &[
                READER,
                "Impersonate-User: ns-reader",
                "Impersonate-Group: system:masters",
            ],
            false,
        ),
        (
            &[
                "Impersonate-User: admin",
                "Impersonate-Group: system:masters",
            ],
            false,
        ),
        (
            &[
                "Impersonate-User: admin",
                "Impersonate-Group: system:masters",
            ],
            true,
        ),
        (&["Impersonate-Uid: 1"], true),
        (&["Impersonate-Extra-Scopes: a"], true),
        (&[READER, "Impersonate-User: admin"], true),
        // Of an admin with fewer rights for this request, the restriction must stay.
        (&[ADMIN, "Impersonate-User: ns-reader"], false),
        (
            &[
                ADMIN,
                "Impersonate-User: ns-reader",
                "Connection: Impersonate-User",
            ],
            false,
        ),
        (
            &[
                ADMIN,
                "Impersonate-User: ns-reader",
                "Connection: close, impersonate-user",
            ],
            false,
        ),
        (&[READER, "Connection: Authorization"], false),
        (&["Connection: Accept", READER], false),
        (&[READER, ADMIN], false),
        (&["Authorization: Basic YWRtaW46YWRtaW4="], false),
        (&["Authorization: Bearer"], false),
        (&["Authorization: Bearer  admin-token"], false),
        (&["Authorization: Bearer\tadmin-token"], false),
        (&["Proxy-Authorization: Bearer admin-token"], false),
        (
            &["Authorization: Bearer ns-reader-token admin-token"],
            false,
        ),
        (&["Cookie: token=admin-token"], false),
        (&["X-Forwarded-User: admin"], false),
        (
            &["X-Forwarded-Client-Cert: Subject=\"O=system:masters,CN=admin\""],
            false,
        ),
        (&["X-HTTP-Method-Override: GET", READER], false),
        (&[protocol], false),
        (&[READER, protocol], false),
        (&[protocol], true),
    ];
    for target in [
        "/api/v1/namespaces/closed/secrets?resourceVersion=0",
        "/api/v1/namespaces/closed/secrets/s",
        "/api/v1/namespaces/closed/secrets?watch=1&timeoutSeconds=1&resourceVersion=0",
    ] {
        for (headers, has_certificate) in rows {
            let name = format!("{headers:?}, certificate: {has_certificate}");
            for _ in 0..2 {
                let request = get(target, headers);
                scene.attack(&name, *has_certificate, &request).await;
            }
            // HTTP/2 has no such header.
            if !headers.iter().any(|line| line.starts_with("Connection")) {
                let attack = scene.attack_http2(&name, *has_certificate, target, headers);
                attack.await;
            }
        }
    }
}

/// A user with a certificate would be impersonated, so a request that names another
/// user must not be sent at all.
#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn impersonation_with_a_certificate_is_refused_before_anything_is_sent() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let [policy, log] = ["policy", "log"].map(|name| directory.path().join(name));
    let rules = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]\n";
    fs::write(&policy, rules).expect("room");
    let flags = [
        format!("--audit-policy-file={}", policy.display()),
        format!("--audit-log-path={}", log.display()),
        "--audit-log-mode=blocking".to_owned(),
    ];
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let scene = Scene::start_with(&[], &flags).await;
    let rows: [&[(&str, &str)]; 6] = [
        &[
            ("impersonate-user", "admin"),
            ("impersonate-group", "system:masters"),
        ],
        &[("impersonate-user", "certified")],
        &[("impersonate-group", "system:masters")],
        &[("impersonate-uid", "1")],
        &[("impersonate-extra-scopes", "a")],
        &[
            ("impersonate-user", "admin"),
            ("authorization", "Bearer admin-token"),
        ],
    ];
    for target in &scene.targets {
        for protocol in ["http/1.1", "h2"] {
            let (url, connector) = scene.through(target, true, protocol);
            let client = match protocol {
                "h2" => Client::http2(&url, connector),
                _ => Client::new(&url, connector),
            };
            for headers in rows {
                let pairs = headers.iter().map(|(name, value)| {
                    let name = HeaderName::try_from(*name).expect("a name");
                    (name, value.parse().expect("a value"))
                });
                let headers: HeaderMap = pairs.collect();
                for path in [
                    "/api/v1/namespaces/open/secrets/impersonated",
                    "/api/v1/namespaces/open/secrets/impersonated?resourceVersion=0",
                    "/api/v1/namespaces/open/services/impersonated/proxy/",
                    "/impersonated",
                ] {
                    let sent = client.send(Method::GET, path, &headers, Bytes::new());
                    let answer = sent.await;
                    assert_eq!(answer.status, 403, "{} {headers:?} {path}", target.mode);
                }
            }
            // This request is sent, and is in the log before its answer.
            let own = "/api/v1/namespaces/open/secrets/sent";
            assert_eq!(client.get(own).await.status, 404);
        }
    }
    let log = fs::read_to_string(&log).expect("an audit log");
    assert!(log.matches("/secrets/sent").count() >= 4, "{log}");
    let found = log
        .lines()
        .find(|line| line.contains("impersonated\"") || line.contains("impersonated/"));
    assert_eq!(found, None);
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn no_request_is_smuggled_in_another() {
    let scene = Scene::start(&[]).await;
    let hidden = "GET /api/v1/namespaces/closed/secrets HTTP/1.1\r\nHost: x\r\n\r\n";
    let chunked = format!("{:x}\r\n{hidden}\r\n0\r\n\r\n", hidden.len());
    let length = hidden.len();
    let last = get("/version", &[]);
    // The user of the certificate is impersonated: these requests travel with kubefan's own
    // identity, which may read everything.
    let post = "POST /api/v1/namespaces/open/configmaps HTTP/1.1\r\nHost: 127.0.0.1\r\n\
                Content-Type: application/json\r\n";
    for (name, request) in [
        (
            "in a body",
            format!("{post}Content-Length: {length}\r\n\r\n{hidden}{last}"),
        ),
        (
            "in a chunk",
            format!("{post}Transfer-Encoding: chunked\r\n\r\n{chunked}{last}"),
        ),
        (
            "both lengths",
            format!("{post}Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n{chunked}{last}"),
        ),
        (
            "both lengths, the other way around",
            format!(
                "{post}Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n{hidden}{last}"
            ),
        ),
        (
            "two lengths",
            format!("{post}Content-Length: 0\r\nContent-Length: {length}\r\n\r\n{hidden}{last}"),
        ),
        (
            "a list of lengths",
            format!("{post}Content-Length: 0, {length}\r\n\r\n{hidden}{last}"),
        ),
        (
            "a signed length",
            format!("{post}Content-Length: +{length}\r\n\r\n{hidden}{last}"),
        ),
        (
            "another encoding",
            format!("{post}Transfer-Encoding: xchunked\r\n\r\n{chunked}{last}"),
        ),
        (
            "chunked twice",
            format!("{post}Transfer-Encoding: chunked, chunked\r\n\r\n{chunked}{last}"),
        ),
        (
            "chunked before identity",
            format!("{post}Transfer-Encoding: chunked, identity\r\n\r\n{chunked}{last}"),
        ),
        (
            "a space before the colon",
            format!(
                "{post}Transfer-Encoding : chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n{hidden}{last}"
            ),
        ),
        (
            "a folded header",
            format!(
                "{post}X-A: b\r\n Transfer-Encoding: chunked\r\nContent-Length: 0\r\n\r\n{hidden}{last}"
            ),
        ),
        (
            "a chunk size that is too long",
            format!(
                "{post}Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n{hidden}\r\n0\r\n\r\n{last}"
            ),
        ),
        (
            "a length with a GET",
            format!(
                "GET /api/v1/namespaces/open/configmaps HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n{hidden}{last}"
            ),
        ),
        (
            "an upgrade that is not granted",
            format!(
                "GET /api/v1/namespaces/open/pods/p/exec HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n{last}"
            ),
        ),
    ] {
        for has_certificate in [true, false] {
            scene.attack(name, has_certificate, &request).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn a_certificate_of_a_replaced_authority_ends_with_it() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let file = directory.path().join("ca.pem");
    let (old, new) = (Authority::new(), Authority::new());
    fs::write(&file, &old.certificate).expect("room");
    let file_flag = file.to_str().expect("a path").to_owned();
    let scene = Scene::start(&["--client-ca-file", &file_flag]).await;
    let target = &scene.targets[0];
    // The client remembers TLS sessions, and resumes them where the server lets it.
    let of = |authority: &Authority| {
        let certificate = authority.client("certified", "any");
        Connector::tls(&target.authority, Some(&certificate), &["http/1.1"])
    };
    let (first, second) = (of(&old), of(&new));
    let url = target.kubefan.url();
    let path = "/api/v1/namespaces/open/secrets?resourceVersion=0";
    let status = async |connector: &Connector| {
        let answer = exchange(url, connector, &get(path, &[])).await;
        status_of(&answer).to_owned()
    };
    // This connection is open all the time.
    let open = Client::new(url, first.clone());
    open.get(path).await.ok();
    for _ in 0..2 {
        assert_eq!(status(&first).await, "200");
        assert_eq!(status(&second).await, "401");
    }
    fs::write(&file, &new.certificate).expect("room");
    eventually(
        "the new authority",
        Duration::from_secs(30),
        async || match status(&second).await.as_str() {
            "200" => Ok(()),
            other => Err(other.to_owned()),
        },
    )
    .await;
    assert_eq!(status(&first).await, "401");
    assert_eq!(open.get(path).await.status, 401);
}
