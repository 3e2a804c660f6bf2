//! A client cannot read anything through kubefan that its own credentials do not allow.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method};

use crate::support::clients::client::Client;
use crate::support::programs::apiserver::{ADMIN, READER, shared};
use crate::support::programs::kubefan::Kubefan;

const SECRETS: &str = "/api/v1/namespaces/kube-system/secrets?resourceVersion=0";

fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
    let pair = |(name, value): &(&str, &str)| {
        let name: HeaderName = name.parse().expect("a header name");
        (name, HeaderValue::from_str(value).expect("a header value"))
    };
    pairs.iter().map(pair).collect()
}

async fn status(client: &Client, path: &str, pairs: &[(&str, &str)]) -> u16 {
    let answer = client
        .open(Method::GET, path, &headers(pairs), Bytes::new())
        .await;
    answer.expect("a response").status().as_u16()
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn a_web_page_gets_nothing() {
    let server = shared();
    let kubefan = Kubefan::start(server, &[]).await;
    let client = kubefan.client();
    let host = kubefan
        .url()
        .strip_prefix("http://")
        .expect("plain")
        .to_owned();
    let upgrade = [
        ("connection", "Upgrade"),
        ("upgrade", "websocket"),
        ("sec-websocket-version", "13"),
        ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
    ];
    let watch = "/api/v1/secrets?watch=true";
    for foreign in [
        &[("host", "evil.example.com")][..],
        &[("host", "evil.example.com:8001")],
        &[("origin", "https://evil.example.com")],
        &[("origin", "null")],
        &[("origin", "http://localhost.evil.example.com")],
        &[("sec-fetch-site", "cross-site")],
        &[("sec-fetch-site", "same-site")],
    ] {
        assert_eq!(status(&client, SECRETS, foreign).await, 403, "{foreign:?}");
        assert_eq!(
            status(&client, "/version", foreign).await,
            403,
            "{foreign:?}"
        );
        let upgrading = [&upgrade[..], foreign].concat();
        assert_eq!(
            status(&client, watch, &upgrading).await,
            403,
            "{upgrading:?}"
        );
        // The same-origin policy does not cover WebSockets, so a page could run commands over them.
        for stream in [
            "exec?command=sh&stdin=true",
            "attach",
            "portforward?ports=80",
        ] {
            let path = format!("/api/v1/namespaces/kube-system/pods/any/{stream}");
            assert_eq!(
                status(&client, &path, &upgrading).await,
                403,
                "{path} {upgrading:?}"
            );
        }
        let writing = client
            .send(Method::DELETE, SECRETS, &headers(foreign), Bytes::new())
            .await;
        assert_eq!(writing.status, 403, "{foreign:?}");
    }
    let port = host.rsplit(':').next().expect("a port");
    for own in [
        vec![],
        vec![("host", format!("localhost:{port}"))],
        vec![("host", host.clone())],
        vec![("origin", format!("http://{host}"))],
        vec![("sec-fetch-site", "same-origin".to_owned())],
        vec![("sec-fetch-site", "none".to_owned())],
    ] {
        let own: Vec<(&str, &str)> = own
            .iter()
            .map(|(name, value)| (*name, value.as_str()))
            .collect();
        assert_eq!(status(&client, SECRETS, &own).await, 200, "{own:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn a_proxied_page_has_no_rights() {
    let server = shared();
    let kubefan = Kubefan::start(server, &[]).await;
    let client = kubefan.client();
    let policy = async |path: &str| {
        let answer = client.get(path).await;
        answer.header("content-security-policy").map(str::to_owned)
    };
    // Without scripts, and with a separate origin (`Origin: null`), which is refused.
    for proxied in [
        "/api/v1/namespaces/kube-system/services/any/proxy/",
        "/api/v1/namespaces/kube-system/pods/any/proxy/index.html",
        "/api/v1/nodes/any/proxy/",
    ] {
        assert_eq!(
            policy(proxied).await.as_deref(),
            Some("sandbox"),
            "{proxied}"
        );
    }
    assert_eq!(policy(SECRETS).await, None);
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn a_connection_header_restricts_no_caller_less() {
    let server = shared();
    let kubefan = Kubefan::start(server, &[]).await;
    let client = kubefan.client();
    let admin = format!("Bearer {ADMIN}");
    let impersonating = [
        ("authorization", admin.as_str()),
        ("impersonate-user", "reader"),
    ];
    assert_eq!(status(&client, SECRETS, &impersonating).await, 403);
    for (option, expected) in [
        ("close", 403),
        ("Impersonate-User", 400),
        ("close, Impersonate-User", 400),
        ("Authorization", 400),
    ] {
        let headers = [&impersonating[..], &[("connection", option)]].concat();
        assert_eq!(
            status(&client, SECRETS, &headers).await,
            expected,
            "{option}"
        );
    }
    let listing_accept = [("accept", "application/yaml"), ("connection", "Accept")];
    assert_eq!(status(&client, SECRETS, &listing_accept).await, 400);
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn callers_credentials_are_checked_by_the_api_server() {
    let server = shared();
    let namespace = server.namespace("security").await;
    server
        .allow_reader(&namespace, &["get", "list", "watch"], &["configmaps"])
        .await;
    let allowed = format!("/api/v1/namespaces/{namespace}/configmaps?resourceVersion=0");
    let (admin, reader) = (format!("Bearer {ADMIN}"), format!("Bearer {READER}"));
    let bearer = ("authorization", admin.as_str());
    // If a connection has a client certificate, the API server ignores all other credentials. So
    // kubefan must not use its own certificate for requests with the client's credentials.
    for identity in ["admin", "certificate"] {
        let kubefan = Kubefan::start_with(&server.kubeconfig(identity), &[]).await;
        let client = kubefan.client();
        for (credentials, secrets, configmaps) in [
            (&[][..], 200, 200),
            (&[("authorization", "Bearer garbage")], 401, 401),
            (&[("authorization", "bearer garbage")], 401, 401),
            (&[("authorization", "Basic Zm9vOmJhcg==")], 403, 403),
            (&[("authorization", "")], 403, 403),
            (&[("authorization", &reader)], 403, 200),
            (&[bearer], 200, 200),
            (&[bearer, ("impersonate-user", "reader")], 403, 200),
            // A client without credentials acts as whom kubefan may impersonate.
            (&[("impersonate-user", "reader")], 403, 200),
            (
                &[
                    ("x-remote-user", "admin"),
                    ("x-remote-group", "system:masters"),
                ],
                403,
                403,
            ),
        ] {
            let what = format!("{identity} {credentials:?}");
            assert_eq!(
                status(&client, SECRETS, credentials).await,
                secrets,
                "{what}"
            );
            assert_eq!(
                status(&client, &allowed, credentials).await,
                configmaps,
                "{what}"
            );
            let watch = format!("{SECRETS}&watch=1&timeoutSeconds=1");
            assert_eq!(
                status(&client, &watch, credentials).await,
                secrets,
                "{what}"
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn a_websocket_protocol_token_is_a_credential_too() {
    let server = shared();
    let kubefan = Kubefan::start_with(&server.kubeconfig("certificate"), &[]).await;
    // Browsers cannot set Authorization on a WebSocket, so they send the token as a subprotocol;
    // this token is "garbage" in base64url.
    let upgrade = [
        ("connection", "Upgrade"),
        ("upgrade", "websocket"),
        ("sec-websocket-version", "13"),
        ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
        (
            "sec-websocket-protocol",
            "base64url.bearer.authorization.k8s.io.Z2FyYmFnZQ, base64.binary.k8s.io",
        ),
    ];
    let watch = "/api/v1/secrets?watch=true&timeoutSeconds=1";
    let direct = status(&server.anonymous(), watch, &upgrade).await;
    assert_eq!(direct, 401);
    assert_eq!(status(&kubefan.client(), watch, &upgrade).await, direct);
}
