//! Every user reads every resource in every way, directly and through kubefan: the answers are
//! equal, and no user sees more. kubefan has the rights that its manifests give, and needs them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::{HeaderMap, Method};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::identities::{NAMESPACE, TestUser};
use super::own_requests::{OwnRequests, rights};
use super::{identities, shipped};
use crate::support::clients::client::{Answer, Client};
use crate::support::clients::connector::Connector;
use crate::support::programs::apiserver::{ApiServer, metric, private_with_tokens};
use crate::support::programs::chart::Tools;
use crate::support::programs::kubefan::Kubefan;

/// The longest time that an answer may take.
const LIMIT: Duration = Duration::from_secs(30);

/// Parts of the messages of errors for requests that were not sent.
const UNSENT: [&str; 2] = ["not a result of an error", "dispatch task is gone"];

/// The users without good credentials.
const REFUSED: [&str; 4] = [
    "garbage token",
    "expired token",
    "foreign certificate",
    "none",
];

/// A way to read or write a resource.
struct Access {
    name: &'static str,
    method: Method,
    path: String,
    body: Value,
}

/// A resource of the matrix: the path of its list, and whether it is in the namespace.
const RESOURCES: [(&str, &str, bool); 8] = [
    ("pods", "/api/v1", true),
    ("configmaps", "/api/v1", true),
    ("secrets", "/api/v1", true),
    ("services", "/api/v1", true),
    ("deployments", "/apis/apps/v1", true),
    ("networkpolicies", "/apis/networking.k8s.io/v1", true),
    ("widgets", "/apis/example.com/v1", true),
    ("nodes", "/api/v1", false),
];

fn collection(resource: &str, base: &str, namespaced: bool) -> String {
    match namespaced {
        true => format!("{base}/namespaces/{NAMESPACE}/{resource}"),
        false => format!("{base}/{resource}"),
    }
}

/// The role with the resources that kubefan caches.
const CACHE_ROLE: &str = "kubefan-cache";

/// Returns all accesses to one resource.
fn accesses((resource, base, namespaced): (&str, &str, bool)) -> Vec<Access> {
    let list = collection(resource, base, namespaced);
    let everywhere = format!("{base}/{resource}");
    let (selector, field) = match resource {
        "pods" => ("labelSelector=app%3Da", "fieldSelector=spec.nodeName%3Dn1"),
        _ => ("labelSelector=app%3Da", "fieldSelector=metadata.name%3Da"),
    };
    let watch = "watch=1&timeoutSeconds=1&resourceVersion=0";
    let read = |name, path: String| Access {
        name,
        method: Method::GET,
        path,
        body: Value::Null,
    };
    vec![
        read("get", format!("{list}/a?resourceVersion=0")),
        read("get consistently", format!("{list}/b")),
        read(
            "get what is missing",
            format!("{list}/missing?resourceVersion=0"),
        ),
        read("list", format!("{list}?resourceVersion=0")),
        read("list consistently", list.clone()),
        read("list everywhere", format!("{everywhere}?resourceVersion=0")),
        read(
            "list by label",
            format!("{list}?resourceVersion=0&{selector}"),
        ),
        read(
            "list by field",
            format!("{everywhere}?resourceVersion=0&{field}"),
        ),
        read("watch", format!("{list}?{watch}")),
        read(
            "watch everywhere",
            format!("{everywhere}?{watch}&{selector}"),
        ),
        read("watch by field", format!("{everywhere}?{watch}&{field}")),
        read(
            "watch one",
            format!("{list}?{watch}&fieldSelector=metadata.name%3Da"),
        ),
        read("subresource", format!("{list}/a/status")),
        Access {
            name: "write",
            method: Method::POST,
            path: format!("{list}?dryRun=All"),
            body: object(resource, "new"),
        },
    ]
}

fn object(resource: &str, name: &str) -> Value {
    let metadata = json!({"name": name, "labels": {"app": name}});
    let container = json!({"name": "c", "image": "i"});
    match resource {
        "pods" => json!({
            "metadata": metadata,
            "spec": {"nodeName": "n1", "containers": [container]},
        }),
        "services" => json!({
            "metadata": metadata,
            "spec": {"clusterIP": "None", "ports": [{"port": 80}]},
        }),
        "deployments" => json!({
            "metadata": metadata,
            "spec": {
                "selector": {"matchLabels": {"app": name}},
                "template": {
                    "metadata": {"labels": {"app": name}},
                    "spec": {"containers": [container]},
                },
            },
        }),
        "networkpolicies" => json!({"metadata": metadata, "spec": {"podSelector": {}}}),
        "widgets" => json!({
            "apiVersion": "example.com/v1",
            "kind": "Widget",
            "metadata": metadata,
        }),
        _ => json!({"metadata": metadata}),
    }
}

async fn create_objects(server: &ApiServer) {
    let admin = server.client();
    let namespace = json!({"metadata": {"name": NAMESPACE}});
    admin.create("/api/v1/namespaces", &namespace).await.ok();
    let definition = json!({
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
            }],
        },
    });
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    admin.create(path, &definition).await.ok();
    server.serves("/apis/example.com/v1/widgets").await;
    for (resource, base, namespaced) in RESOURCES {
        let path = collection(resource, base, namespaced);
        for name in ["a", "b"] {
            admin.create(&path, &object(resource, name)).await.ok();
        }
    }
}

/// Returns the part of an answer that must be equal.
fn comparable(access: &Access, answer: &Answer) -> String {
    let status = answer.status.as_u16();
    if !answer.status.is_success() {
        return format!("{status} {}", String::from_utf8_lossy(&answer.body));
    }
    let object = |object: &Value| {
        let metadata = &object["metadata"];
        let of = |key: &str| metadata[key].as_str().unwrap_or_default().to_owned();
        format!(
            "{}/{}@{}",
            of("namespace"),
            of("name"),
            of("resourceVersion")
        )
    };
    let text = String::from_utf8_lossy(&answer.body);
    let content: Vec<String> = if access.name.starts_with("watch") {
        let events = text.lines().map(|line| {
            let event: Value = serde_json::from_str(line).expect("an event");
            format!("{} {}", event["type"], object(&event["object"]))
        });
        events.collect()
    } else {
        let json = answer.json();
        match json["items"].as_array() {
            Some(items) => items.iter().map(object).collect(),
            None if access.name == "write" => Vec::new(),
            None => vec![text.into_owned()],
        }
    };
    let mut content = content;
    content.sort();
    format!("{status} {}", content.join("; "))
}

async fn send(client: &Client, access: &Access) -> String {
    let mut headers = HeaderMap::new();
    if !access.body.is_null() {
        let json = "application/json".parse().expect("a media type");
        headers.insert("content-type", json);
    }
    let body = match &access.body {
        Value::Null => Bytes::new(),
        body => body.to_string().into(),
    };
    let answer = async {
        loop {
            let (method, body) = (access.method.clone(), body.clone());
            match client.try_send(method, &access.path, &headers, body).await {
                Ok(answer) => return answer,
                // kubefan may close an HTTP/2 connection, for example after a 401. hyper has not
                // sent the requests that it reports with one of these errors.
                Err(error) if UNSENT.iter().any(|unsent| error.contains(unsent)) => {
                    println!("{client:?}, {}: sent again after {error}", access.path);
                }
                Err(error) => panic!("{client:?}: {error}"),
            }
        }
    };
    match timeout(LIMIT, answer).await {
        Ok(answer) => comparable(access, &answer),
        Err(_) => format!("no answer within {LIMIT:?}"),
    }
}

/// Sends all accesses by one user, and returns the answers in order.
async fn answers(client: &Client, accesses: &[Access]) -> Vec<String> {
    let sent = accesses.iter().map(|access| send(client, access));
    stream::iter(sent).buffered(accesses.len()).collect().await
}

async fn answers_from_cache(kubefan: &Kubefan) -> f64 {
    let labels = [("outcome", "cache")];
    metric(&kubefan.admin(), "kubefan_requests_total", &labels).await
}

/// Writes a kubeconfig of a service account with exactly the rights that the chart gives kubefan in
/// this mode with client certificates, and for caching the resources that the test reads.
async fn shipped_rights(server: &ApiServer, tools: &Tools, mode: &str) -> PathBuf {
    let cached = RESOURCES.map(|(resource, base, _)| match base.strip_prefix("/apis/") {
        Some(version) => format!("{resource}.{}", version.split('/').next().expect("a group")),
        None => resource.to_owned(),
    });
    let others = cached.iter().filter(|resource| *resource != "secrets");
    let values = json!({
        "config": {
            "authentication": {"mode": mode, "clientCertificates": true},
            "cache": {"secrets": true},
        },
        "cachedResources": others.collect::<Vec<_>>(),
    });
    shipped::grant_rights(server, tools, &values.to_string()).await;
    shipped::kubeconfig(server, &format!("kubefan-{mode}")).await
}

/// Checks that kubefan was refused nothing since the last check, and needed all rights of its
/// roles, except those to impersonate, which the audit log does not show.
async fn check_rights(server: &ApiServer, mode: &str, own: &mut OwnRequests) {
    let delegated = (mode == "delegated").then_some("system:auth-delegator");
    let roles = [CACHE_ROLE, "kubefan"].into_iter().chain(delegated);
    let review = ("authorization.k8s.io", "subjectaccessreviews", "create");
    let authorities = ("", "configmaps", "get");
    // Every user has this right.
    let rules = ("authorization.k8s.io", "selfsubjectrulesreviews", "create");
    let others = [review, authorities, rules];
    own.check(server, mode, &roles.collect::<Vec<_>>(), &others)
        .await;
}

/// Sends everything through kubefan in one mode. Returns the number of compared cells, and of
/// answers from the cache by user.
async fn compare(
    server: &ApiServer,
    tools: &Tools,
    mode: &str,
    rounds: &[&str],
    users: &[TestUser],
    accesses: &[Access],
    expected: &BTreeMap<&str, Vec<String>>,
) -> (usize, BTreeMap<&'static str, f64>) {
    let kubeconfig = shipped_rights(server, tools, mode).await;
    let cached = rights(server, &[CACHE_ROLE]).await;
    let cached = cached.iter().map(|(group, resource, _)| match &**group {
        "" => resource.clone(),
        group => format!("{resource}.{group}"),
    });
    let cached = cached.collect::<BTreeSet<_>>();
    let cached = Vec::from_iter(cached).join(",");
    let flags = [
        "--auth",
        mode,
        "--tls-self-signed",
        "--resource",
        &cached,
        "--cache-secrets",
    ];
    let kubefan = Kubefan::start_with(&kubeconfig, &flags).await;
    let authority = kubefan.authority().expect("kubefan's CA");
    let mut cells = 0;
    let mut from_cache = BTreeMap::new();
    for user in users {
        let before = answers_from_cache(&kubefan).await;
        for protocol in ["http/1.1", "h2"] {
            let connector = Connector::tls(&authority, user.certificate.as_ref(), &[protocol]);
            let client = match protocol {
                // kubefan closes an HTTP/2 connection after a 401, or a
                // request without credentials.
                "h2" if REFUSED.contains(&user.name) => {
                    Client::http2_unshared(kubefan.url(), connector)
                }
                "h2" => Client::http2(kubefan.url(), connector),
                _ => Client::new(kubefan.url(), connector),
            };
            let client = user.authenticated(&client);
            // The first answer may need a review; later ones have a remembered decision.
            for round in rounds {
                let found = answers(&client, accesses).await;
                for ((access, found), expected) in
                    accesses.iter().zip(&found).zip(&expected[user.name])
                {
                    let (name, path) = (access.name, &access.path);
                    let cell = format!("{mode}, {}, {protocol}, {round}: {name} {path}", user.name);
                    assert_eq!(found, expected, "{cell}");
                    cells += 1;
                }
            }
        }
        let after = answers_from_cache(&kubefan).await;
        from_cache.insert(user.name, after - before);
    }
    (cells, from_cache)
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(
    not(all(apiserver, deploy_tools)),
    ignore = "needs kube-apiserver and Helm: see CONTRIBUTING.md"
)]
async fn every_user_gets_what_the_api_server_would_answer() {
    let tokens = identities::TOKENS;
    let mut own = OwnRequests::new();
    let mut flags = vec!["--authorization-mode=Node"];
    let audit = own.flags();
    flags.extend(audit.iter().map(String::as_str));
    let server = private_with_tokens(tokens, &flags).await;
    let tools = Tools::find();
    create_objects(&server).await;
    let users = identities::create(&server).await;
    let accesses: Vec<Access> = RESOURCES.into_iter().flat_map(accesses).collect();
    let mut expected = BTreeMap::new();
    for user in &users {
        let connector =
            Connector::tls(server.authority(), user.certificate.as_ref(), &["http/1.1"]);
        let client = user.authenticated(&Client::new(&server.url(), connector));
        expected.insert(user.name, answers(&client, &accesses).await);
    }
    for (mode, rounds) in [
        ("caller", &["first", "second"][..]),
        ("delegated", &["only"]),
    ] {
        let compared = compare(&server, &tools, mode, rounds, &users, &accesses, &expected);
        let (cells, from_cache) = compared.await;
        println!("{mode}: {cells} cells are equal; from the cache: {from_cache:?}");
        check_rights(&server, mode, &mut own).await;
        let cached = |name| from_cache[name];
        for name in [
            "cluster-admin",
            "namespace reader",
            "bound by its group",
            "service account",
            "client certificate",
            "certificate and token",
        ] {
            assert!(
                cached(name) > 20.0,
                "{mode}, {name}: {} from the cache",
                cached(name)
            );
        }
        for name in REFUSED {
            assert_eq!(cached(name), 0.0, "{mode}, {name}");
        }
    }
}
