//! The FlowSchemas of the chart: which requests they match, and what they do under load.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::future::join_all;
use http::{HeaderMap, Method};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::identities::grant;
use super::shipped;
use crate::support::clients::client::Client;
use crate::support::clients::connector::Connector;
use crate::support::poll::eventually;
use crate::support::programs::apiserver::{ApiServer, private_with_tokens};
use crate::support::programs::chart::Tools;
use crate::support::programs::kubefan::Kubefan;
use crate::support::settings::setting;

const LIMIT: Duration = Duration::from_secs(20);
const SCHEMAS: &str = "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas";
const SCHEMA_OF_ANSWER: &str = "x-kubernetes-pf-flowschema-uid";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const ACCESS_REVIEWS: &str = "/apis/authorization.k8s.io/v1";
const REVIEWS: &str = "/apis/authentication.k8s.io/v1";
/// Values of the chart without the FlowSchemas.
const WITHOUT: &str =
    "{config: {authentication: {clientCertificates: true}}, priorityAndFairness: {enabled: false}}";
/// Values of the chart with the FlowSchemas.
const WITH: &str = "config: {authentication: {clientCertificates: true}}";

/// Returns the names of all FlowSchemas, by uid.
async fn schemas(server: &ApiServer) -> BTreeMap<String, String> {
    let list = server.client().get(SCHEMAS).await.ok().json();
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    let schemas = list["items"].as_array().expect("a list").iter();
    schemas
        .map(|schema| &schema["metadata"])
        .map(|metadata| (text(&metadata["uid"]), text(&metadata["name"])))
        .collect()
}

/// Returns how many requests the API server has dispatched by a FlowSchema.
async fn dispatched(server: &ApiServer, schema: &str) -> f64 {
    let name = "apiserver_flowcontrol_dispatched_requests_total";
    server.metric(name, &[("flow_schema", schema)]).await
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(
    not(all(apiserver, deploy_tools)),
    ignore = "needs kube-apiserver and Helm: see CONTRIBUTING.md"
)]
async fn each_kind_of_call_matches_its_flow_schema() {
    let server = private_with_tokens("jane-token,jane,1\n", &[]).await;
    let tools = Tools::find();
    shipped::install(&server, &tools, WITH);
    let names = schemas(&server).await;
    let own = server
        .anonymous()
        .as_token(&shipped::token(&server, "kubefan").await);
    let impersonating = own.with("impersonate-user", "jane");
    let jane = server.anonymous().as_token("jane-token");
    let (get, post) = (Method::GET, Method::POST);
    let review = json!({"spec": {}});
    let access = json!({"spec": {"user": "jane", "resourceAttributes": {"verb": "get"}}});
    let rows = [
        (
            &own,
            &get,
            "/api/v1/pods".to_owned(),
            &Value::Null,
            "kubefan",
        ),
        (&own, &get, "/apis".to_owned(), &Value::Null, "kubefan"),
        (
            &own,
            &get,
            "/api/v1/pods?watch=1&timeoutSeconds=1".to_owned(),
            &Value::Null,
            "kubefan",
        ),
        (
            &own,
            &post,
            format!("{REVIEWS}/tokenreviews"),
            &review,
            "kubefan",
        ),
        (
            &own,
            &post,
            format!("{ACCESS_REVIEWS}/subjectaccessreviews"),
            &access,
            "kubefan",
        ),
        // What is forwarded by impersonation counts for the user.
        (
            &impersonating,
            &get,
            MAPS.to_owned(),
            &Value::Null,
            "global-default",
        ),
        (
            &jane,
            &post,
            format!("{REVIEWS}/selfsubjectreviews"),
            &review,
            "kubefan-reviews",
        ),
        (
            &jane,
            &post,
            format!("{ACCESS_REVIEWS}/selfsubjectaccessreviews"),
            &access,
            "kubefan-reviews",
        ),
        (&jane, &get, MAPS.to_owned(), &Value::Null, "global-default"),
    ];
    for (client, method, path, body, expected) in rows {
        let body = match body {
            Value::Null => Bytes::new(),
            body => Bytes::from(body.to_string()),
        };
        let mut headers = HeaderMap::new();
        headers.insert("content-type", "application/json".parse().expect("a value"));
        // The API server learns FlowSchemas a moment after they are created.
        eventually(&path, LIMIT, async || {
            let answer = client.send(method.clone(), &path, &headers, body.clone());
            let answer = answer.await;
            let uid = answer.header(SCHEMA_OF_ANSWER).unwrap_or_default();
            match names.get(uid).map(String::as_str) {
                Some(found) if found == expected => Ok(()),
                found => Err(format!("{found:?}, not {expected}: {answer}")),
            }
        })
        .await;
    }

    // The calls from above, as kubefan makes them.
    let everything = ["kubefan", "kubefan-reviews", "service-accounts"];
    let mut before = Vec::new();
    for schema in everything {
        before.push(dispatched(&server, schema).await);
    }
    let config = shipped::kubeconfig(&server, "kubefan-caller").await;
    let flags = ["--auth", "caller", "-r", "configmaps"];
    let kubefan = Kubefan::start_with(&config, &flags).await;
    let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]}]);
    let subject = json!({"kind": "User", "name": "jane"});
    grant(&server.client(), None, "jane", &rules, &subject).await;
    let client = kubefan.client().as_token("jane-token");
    eventually("the right", LIMIT, async || {
        client.get(MAPS).await.is(200).map(|_| ())
    })
    .await;
    let mut grown = Vec::new();
    for (schema, before) in everything.into_iter().zip(before) {
        grown.push(dispatched(&server, schema).await - before);
    }
    println!("{everything:?}: {grown:?}");
    let [own, reviews, others] = grown[..] else {
        unreachable!("three FlowSchemas")
    };
    assert!(own > 4.0, "discovery, lists and watches: {own}");
    assert!(reviews >= 2.0, "the token, and the right: {reviews}");
    assert_eq!(
        others, 0.0,
        "calls of service accounts that match no schema"
    );
}

/// Times in milliseconds.
#[derive(Debug, Default)]
struct Times(Vec<u128>);

impl Times {
    /// Returns the median, the 99th percentile and the maximum.
    fn summary(&mut self) -> [u128; 3] {
        self.0.sort_unstable();
        let at = |part: usize| {
            let last = self.0.len().saturating_sub(1);
            self.0.get(last * part / 100).copied().unwrap_or_default()
        };
        [at(50), at(99), at(100)]
    }
}

/// What is measured while one user floods the API server.
struct Measured {
    /// Reads of another user that need a new decision.
    decisions: [u128; 3],
    /// Reads that need a proof, which kubefan fetches with its own credentials.
    proofs: [u128; 3],
    flood: u64,
}

/// Creates three service accounts, which may read ConfigMaps, and returns their tokens.
async fn accounts(server: &ApiServer) -> [String; 3] {
    let names = ["flood", "asker", "prover"];
    let mut tokens = Vec::new();
    for name in names {
        let path = "/api/v1/namespaces/kubefan/serviceaccounts";
        let account = json!({"metadata": {"name": name}});
        server.client().create(path, &account).await.ok();
        let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["*"]}]);
        let subject = json!({"kind": "ServiceAccount", "name": name, "namespace": "kubefan"});
        grant(&server.client(), None, name, &rules, &subject).await;
        tokens.push(shipped::token(server, name).await);
    }
    tokens.try_into().expect("three tokens")
}

async fn measure(server: &ApiServer, tokens: &[String; 3], number: usize) -> Measured {
    let seconds: u64 = setting("KUBEFAN_SECONDS", 10);
    let config = shipped::kubeconfig(server, &format!("kubefan-{number}")).await;
    let flags = ["--auth", "caller", "-r", "configmaps"];
    let kubefan = Kubefan::start_with(&config, &flags).await;
    let connection = || Client::http2(kubefan.url(), Connector::plain());
    let direct = || {
        let connector = Connector::tls(server.authority(), None, &["h2"]);
        Client::http2(&server.url(), connector)
    };
    let [flood, asker, prover] = tokens;
    let end = Instant::now() + Duration::from_secs(seconds);
    let is_over = AtomicBool::new(false);
    let sent = AtomicU64::new(0);
    let yaml = {
        let mut headers = HeaderMap::new();
        headers.insert("accept", "application/yaml".parse().expect("a value"));
        headers
    };
    let attack = async |attacker: usize| {
        let (direct, through) = (direct().as_token(flood), connection());
        for request in 0.. {
            if is_over.load(Ordering::Relaxed) {
                return;
            }
            let outcome = match attacker % 3 {
                // Reviews of the kind that kubefan sends, without kubefan's own limits.
                0 => {
                    let name = format!("{attacker}-{request}");
                    let what = json!({"verb": "get", "resource": "pods", "name": name});
                    let review = json!({"spec": {"resourceAttributes": what}});
                    let path = format!("{ACCESS_REVIEWS}/selfsubjectaccessreviews");
                    let mut headers = HeaderMap::new();
                    headers.insert("content-type", "application/json".parse().expect("a value"));
                    let body = Bytes::from(review.to_string());
                    direct.try_send(Method::POST, &path, &headers, body).await
                }
                // Forwarded reads.
                1 => {
                    let client = through.as_token(flood);
                    let path = "/api/v1/configmaps";
                    client
                        .try_send(Method::GET, path, &yaml, Bytes::new())
                        .await
                }
                _ => {
                    let client = through.as_token(&format!("wrong-{attacker}-{request}"));
                    let none = HeaderMap::new();
                    client
                        .try_send(Method::GET, MAPS, &none, Bytes::new())
                        .await
                }
            };
            // A connection ends after a 401, with the other streams' answers.
            drop(outcome);
            sent.fetch_add(1, Ordering::Relaxed);
        }
    };
    let attacks = join_all((0..300).map(attack));
    let timed = async |token: &str, path: &dyn Fn(usize) -> String| {
        let client = connection().as_token(token);
        let mut times = Times::default();
        for number in 0.. {
            if Instant::now() > end {
                break;
            }
            let asked = Instant::now();
            let answer = client.get(&path(number)).await;
            assert_eq!(answer.status, 200, "{answer}");
            times.0.push(asked.elapsed().as_millis());
            sleep(Duration::from_millis(20)).await;
        }
        times
    };
    let honest = async {
        // Each namespace needs a separate decision.
        let elsewhere =
            |number| format!("/api/v1/namespaces/n{number}/configmaps?resourceVersion=0");
        let proven = |_| MAPS.to_owned();
        let times = tokio::join!(timed(asker, &elsewhere), timed(prover, &proven));
        is_over.store(true, Ordering::Relaxed);
        times
    };
    let (_, (mut decisions, mut proofs)) = tokio::join!(attacks, honest);
    Measured {
        decisions: decisions.summary(),
        proofs: proofs.summary(),
        flood: sent.load(Ordering::Relaxed),
    }
}

/// Prints what other users notice while one floods the API server, without the FlowSchemas and with
/// them.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "by hand: twice KUBEFAN_SECONDS (10)"]
async fn a_flood_of_one_user_delays_neither_kubefan_nor_the_reviews_of_others() {
    let flags = [
        "--max-requests-inflight=20",
        "--max-mutating-requests-inflight=10",
    ];
    let server = private_with_tokens("", &flags).await;
    let tools = Tools::find();
    shipped::install(&server, &tools, WITHOUT);
    for number in 0..200 {
        let map = json!({
            "metadata": {"name": format!("map-{number}")},
            "data": {"text": "x".repeat(5_000)},
        });
        server.client().create(MAPS, &map).await.ok();
    }
    let tokens = accounts(&server).await;
    let without = measure(&server, &tokens, 0).await;
    shipped::install(&server, &tools, WITH);
    let names = schemas(&server).await;
    let own = server
        .anonymous()
        .as_token(&shipped::token(&server, "kubefan").await);
    eventually("the FlowSchemas", LIMIT, async || {
        let answer = own.get(MAPS).await;
        let uid = answer.header(SCHEMA_OF_ANSWER).unwrap_or_default();
        match names.get(uid).is_some_and(|name| name == "kubefan") {
            true => Ok(()),
            false => Err(uid.to_owned()),
        }
    })
    .await;
    let with = measure(&server, &tokens, 1).await;
    for (what, measured) in [("without", &without), ("with", &with)] {
        println!(
            "{what} the FlowSchemas, ms (median, 99th, maximum): new decisions {:?}, proofs {:?}, \
             beside {} requests of the flood",
            measured.decisions, measured.proofs, measured.flood
        );
    }
    let wait = "apiserver_flowcontrol_request_wait_duration_seconds";
    let mut waits = Vec::new();
    for schema in ["kubefan", "kubefan-reviews"] {
        let labels = [("flow_schema", schema), ("execute", "true")];
        let sum = server.metric(&format!("{wait}_sum"), &labels).await;
        let count = server.metric(&format!("{wait}_count"), &labels).await;
        let milliseconds = sum / count * 1e3;
        println!("{schema}: {count} requests waited for {milliseconds:.1} ms on average");
        waits.push(milliseconds);
    }
    assert!(waits[0] < 100.0, "kubefan's own calls waited");
    // The rest of the times is the machine's: 300 attackers have two cores, too.
    let most = 5_000;
    assert!(with.decisions[1] < most && with.proofs[1] < most, "ms");
}
