//! The same reads of the API server and of kubefan, compared to the byte.

use std::fs;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use futures::StreamExt;
use http::HeaderMap;
use http::HeaderName;
use http::HeaderValue;
use http::Method;
use serde_json::Value;
use serde_json::json;

use crate::support::apiserver::ApiServer;
use crate::support::apiserver::private;
use crate::support::apiserver::shared;
use crate::support::client::Answer;
use crate::support::client::Client;
use crate::support::frames::Event;
use crate::support::frames::Format;
use crate::support::frames::WatchReader;
use crate::support::kubefan::Kubefan;
use crate::support::normalise::mask_ages;
use crate::support::poll::within;
use crate::upstream::cluster::define_widgets;
use crate::upstream::cluster::fill_namespace;
use crate::upstream::comparable::comparable;

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
/// What client-go's metadata client accepts.
const METADATA: &str = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";
const RESOURCES: [&str; 6] = [
    "api/v1/pods",
    "api/v1/configmaps",
    "api/v1/secrets",
    "api/v1/services",
    "apis/apps/v1/deployments",
    "apis/example.kubefan.io/v1/widgets",
];
/// The headers that tell a client what it got; the rest are ids and dates.
const HEADERS: [&str; 6] = [
    "content-type",
    "content-encoding",
    "vary",
    "retry-after",
    "cache-control",
    "allow",
];

#[derive(Debug)]
struct Request {
    text: String,
    method: Method,
    path: String,
    headers: HeaderMap,
}

#[tokio::test(flavor = "multi_thread")]
async fn every_read_is_answered_alike() {
    let Some(server) = private().await else {
        return;
    };
    define_widgets(&server).await;
    let kubefan = Kubefan::start(&server, &[]).await;
    let through = kubefan.client();
    let namespace = server.namespace("golden").await;
    // The caches are there before the objects, so that both know the same history.
    for resource in RESOURCES {
        for format in [Format::Json, Format::Protobuf] {
            through
                .get_as(&format!("/{resource}?resourceVersion=0"), format)
                .await;
        }
    }
    let list = server
        .client()
        .get("/api/v1/configmaps?limit=1")
        .await
        .ok()
        .json();
    let before = list["metadata"]["resourceVersion"]
        .as_str()
        .expect("an RV")
        .to_owned();
    let _files = fill_namespace(&server, &namespace).await;
    create_rich(&server.client(), &namespace).await;

    let requests = requests(&server, &namespace, &before).await;
    assert!(requests.len() > 200, "{}", requests.len());
    let direct = server.client();
    let compared =
        futures::stream::iter(&requests).map(|request| compare(request, &direct, &through));
    let differences: Vec<String> = compared
        .buffered(12)
        .filter_map(std::future::ready)
        .collect()
        .await;
    let (count, all) = (differences.len(), requests.len());
    assert!(
        count == 0,
        "{count} of {all} answers differ:\n\n{}",
        differences.join("\n")
    );
}

async fn compare(request: &Request, direct: &Client, through: &Client) -> Option<String> {
    let send = async |client: &Client| {
        let answer = client.send(
            request.method.clone(),
            &request.path,
            &request.headers,
            Bytes::new(),
        );
        shown(
            request,
            &within(&request.text, Duration::from_secs(30), answer).await,
        )
    };
    let (wanted, got) = tokio::join!(send(direct), send(through));
    if wanted == got {
        return None;
    }
    let same = wanted
        .bytes()
        .zip(got.bytes())
        .take_while(|(a, b)| a == b)
        .count();
    let from = same.saturating_sub(60);
    let part = |text: &str| -> String { text.chars().skip(from).take(400).collect() };
    let (wanted, got) = (part(&wanted), part(&got));
    Some(format!(
        "{}\n--- directly\n{wanted}\n--- through kubefan\n{got}\n",
        request.text
    ))
}

fn shown(request: &Request, answer: &Answer) -> String {
    let headers = HEADERS
        .iter()
        .filter_map(|name| Some((name, answer.header(name)?)));
    let headers: Vec<String> = headers
        .map(|(name, value)| format!("{name}: {value}"))
        .collect();
    let watch = request.path.contains("watch") && answer.status == 200;
    let mut body = comparable(&answer.body, watch);
    if request.text.contains("{table}") {
        body = mask_ages(&body);
    }
    format!("{} {}\n{body}", answer.status.as_u16(), headers.join(", "))
}

async fn requests(server: &ApiServer, namespace: &str, before: &str) -> Vec<Request> {
    let list = server
        .client()
        .get("/api/v1/configmaps?limit=1")
        .await
        .ok()
        .json();
    let now: u64 = list["metadata"]["resourceVersion"]
        .as_str()
        .expect("an RV")
        .parse()
        .expect("a number");
    let token = |rv: Value, start: &str| {
        let start = format!("{start}\0");
        URL_SAFE_NO_PAD
            .encode(json!({ "v": "meta.k8s.io/v1", "rv": rv, "start": start }).to_string())
    };
    let fillings = [
        ("{ns}", namespace.to_owned()),
        ("{rv}", before.to_owned()),
        ("{continue}", token(json!(now), "/first")),
        ("{inconsistent}", token(json!(-1), "first")),
        ("{table}", TABLE.to_owned()),
        ("{protobuf}", PROTOBUF.to_owned()),
        ("{metadata}", METADATA.to_owned()),
        (
            "{metadata-list}",
            METADATA.replace("Metadata;", "MetadataList;"),
        ),
        ("{partial}", partial("application/json", "")),
        ("{partial-list}", partial("application/json", "List")),
        ("{partial-protobuf}", partial(PROTOBUF, "")),
        ("{partial-protobuf-list}", partial(PROTOBUF, "List")),
    ];
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/requests.txt");
    let text = fs::read_to_string(path).expect("the list");
    let lines = text
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(|line| request(line, &fillings)).collect()
}

/// A pod and a widget with all that metadata can hold, on their way out; and kinds whose metadata
/// alone is not what stands in whole objects.
async fn create_rich(client: &Client, namespace: &str) {
    create_with_made_annotations(client, namespace).await;
    let owner = |name: &str, uid: u64| {
        let uid = format!("00000000-0000-0000-0000-{uid:012}");
        json!({ "apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": uid })
    };
    let mut controller = owner("o.o", 1);
    controller["controller"] = true.into();
    controller["blockOwnerDeletion"] = false.into();
    let metadata = json!({
        "name": "rich",
        "generateName": "ri",
        "labels": { "rich": "yes", "empty": "", "a/b": "1" },
        "annotations": { "z/z": "a & <b> \u{2028} é \" \\ \n tab\t\u{1}", "a": "", "b": "{\"x\": [1]}" },
        "finalizers": ["example.com/f", "example.com/e"],
        "ownerReferences": [controller, owner("p", 2)],
    });
    let pod = json!({ "spec": { "containers": [{ "name": "main", "image": "i" }] } });
    let running = json!({ "phase": "Running" });
    let widget = json!({
        "apiVersion": "example.kubefan.io/v1",
        "kind": "Widget",
        "spec": { "color": "<red>", "size": 7 },
    });
    let ready = json!({ "conditions": [{ "type": "Ready", "status": "<&>" }] });
    let widgets = format!("/apis/example.kubefan.io/v1/namespaces/{namespace}/widgets");
    for (path, mut object, status) in [
        (format!("/api/v1/namespaces/{namespace}/pods"), pod, running),
        (widgets, widget, ready),
    ] {
        object["metadata"] = metadata.clone();
        client.create(&path, &object).await.ok();
        let own = format!("{path}/rich");
        let manager = format!("{own}/status?fieldManager=%3Cme%3E%20%26%20you");
        let change = json!({ "status": status });
        client.merge(&manager, &change).await.ok();
        client.delete(&own).await.ok();
    }
}

async fn create_with_made_annotations(client: &Client, namespace: &str) {
    let labels = json!({ "app": "rich" });
    let spec = json!({
        "selector": { "matchLabels": labels },
        "template": {
            "metadata": { "labels": labels },
            "spec": { "containers": [{ "name": "main", "image": "i" }] },
        },
    });
    let annotations = json!({ "a": "1", "deprecated.deployment.rollback.revision": "3" });
    for (resource, annotations) in [("daemonsets", json!({})), ("deployments", annotations)] {
        let path = format!("/apis/apps/v1/namespaces/{namespace}/{resource}");
        let metadata = json!({ "name": "rich", "annotations": annotations });
        let object = json!({ "metadata": metadata, "spec": spec });
        client.create(&path, &object).await.ok();
    }
    let path = format!("/apis/autoscaling/v2/namespaces/{namespace}/horizontalpodautoscalers");
    let scaler = json!({
        "metadata": { "name": "rich" },
        "spec": {
            "scaleTargetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": "rich" },
            "maxReplicas": 3,
            "metrics": [{ "type": "Pods", "pods": {
                "metric": { "name": "m" },
                "target": { "type": "AverageValue", "averageValue": "1" },
            } }],
        },
    });
    client.create(&path, &scaler).await.ok();
}

fn partial(media_type: &str, list: &str) -> String {
    format!("{media_type};as=PartialObjectMetadata{list};g=meta.k8s.io;v=v1")
}

fn request(line: &str, fillings: &[(&str, String)]) -> Request {
    let mut filled = line.to_owned();
    for (name, value) in fillings {
        filled = filled.replace(name, value);
    }
    let mut parts = filled.split(" | ");
    let (method, path) = parts
        .next()
        .and_then(|first| first.split_once(' '))
        .expect("a request");
    let mut headers = HeaderMap::new();
    headers.insert("accept", HeaderValue::from_static("application/json"));
    headers.insert("user-agent", HeaderValue::from_static("kubefan-it"));
    for header in parts {
        let (name, value) = header.split_once(": ").expect("a header");
        let name: HeaderName = name.parse().expect("a header name");
        headers.insert(name, value.parse().expect("a header value"));
    }
    Request {
        text: line.to_owned(),
        method: method.parse().expect("a method"),
        path: path.to_owned(),
        headers,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn live_streams_are_alike_to_the_byte() {
    let Some(server) = shared() else { return };
    let kubefan = Kubefan::start(server, &[]).await;
    define_widgets(server).await;
    let namespace = server.namespace("streams").await;
    for (resource, formats) in [
        ("api/v1", [Format::Json, Format::Protobuf].as_slice()),
        ("apis/example.kubefan.io/v1", &[Format::Json]),
    ] {
        let path = match resource {
            "api/v1" => format!("/{resource}/namespaces/{namespace}/configmaps"),
            _ => format!("/{resource}/namespaces/{namespace}/widgets"),
        };
        live_streams_are_alike(server, &kubefan, &path, formats).await;
    }
}

/// The objects come in `formats`, and their metadata in both.
async fn live_streams_are_alike(
    server: &ApiServer,
    kubefan: &Kubefan,
    path: &str,
    formats: &[Format],
) {
    let (direct, through) = (server.client(), kubefan.client());
    // Before the streams: the caches, and what the streams begin after.
    for format in formats {
        through
            .list(&format!("{path}?resourceVersion=0"), *format)
            .await;
    }
    direct
        .create(path, &colored(path, "first", "red"))
        .await
        .ok();
    let from = direct.list(path, Format::Json).await.resource_version;
    let mut pairs = Vec::new();
    let whole = formats
        .iter()
        .map(|format| (*format, format.media_type().to_owned()));
    let metadata = [Format::Json, Format::Protobuf]
        .into_iter()
        .flat_map(|format| {
            let accept = partial(format.media_type(), "");
            let beta = accept.replace("v=v1", "v=v1beta1");
            [(format, accept), (format, beta)]
        });
    for (format, accept) in whole.chain(metadata) {
        for selector in [
            "",
            "labelSelector=color%3Dred",
            "labelSelector=color%20notin%20(red)",
            "labelSelector=all%2Ccolor!%3Dblue",
            "fieldSelector=metadata.name!%3Dfirst",
        ] {
            let query = format!("{path}?watch=1&resourceVersion={from}&{selector}");
            let open = async |client: &Client| {
                let stream = client.watch_accepting(&query, format, &accept).await;
                stream.expect("a stream")
            };
            pairs.push((
                format!("{accept} {selector}"),
                open(&direct).await,
                open(&through).await,
            ));
        }
    }
    write_across_selectors(&direct, path).await;
    for (what, wanted, got) in &mut pairs {
        are_alike_to_the_last(what, wanted, got).await;
    }
}

fn colored(path: &str, name: &str, color: &str) -> Value {
    let (api_version, kind) = match path.ends_with("widgets") {
        true => ("example.kubefan.io/v1", "Widget"),
        false => ("v1", "ConfigMap"),
    };
    json!({
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {
            "name": name,
            "labels": { "color": color, "all": "yes" },
            "annotations": { "text": "<é&\u{2028}>" },
        },
        "data": { "text": "<é&\u{2028}>" },
    })
}

/// Brings objects into and out of every selector, and ends with one for each.
async fn write_across_selectors(direct: &Client, path: &str) {
    for (name, color) in [("second", "blue"), ("third", "red")] {
        direct.create(path, &colored(path, name, color)).await.ok();
    }
    for (name, color) in [
        ("first", "blue"),
        ("third", "green"),
        ("first", "red"),
        ("second", "red"),
    ] {
        let change = json!({ "metadata": { "labels": { "color": color } } });
        direct.merge(&format!("{path}/{name}"), &change).await.ok();
    }
    direct.delete(&format!("{path}/first")).await.ok();
    direct
        .create(path, &colored(path, "first", "red"))
        .await
        .ok();
    direct.delete(&format!("{path}/second")).await.ok();
    for color in ["red", "green"] {
        direct
            .create(path, &colored(path, &format!("last-{color}"), color))
            .await
            .ok();
    }
}

async fn are_alike_to_the_last(what: &str, wanted: &mut WatchReader, got: &mut WatchReader) {
    const LIMIT: Duration = Duration::from_secs(20);
    // Only reds come through one of the selectors.
    let last = if what.ends_with("Dred") {
        "/last-red"
    } else {
        "/last-green"
    };
    for events in 1.. {
        let wanted = within(what, LIMIT, wanted.next_frame())
            .await
            .expect("a frame");
        let got = within(what, LIMIT, got.next_frame())
            .await
            .expect("a frame");
        assert!(wanted == got, "{what}: {wanted:?} is not {got:?}");
        if let Some((Event::Added(item), _)) = wanted
            && item.key.ends_with(last)
        {
            assert!(events >= 3, "{what}: {events} events");
            break;
        }
    }
}
