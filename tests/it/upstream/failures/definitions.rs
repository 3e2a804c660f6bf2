//! Changes of the definitions of custom resources, and of the server that has them, while kubefan
//! has their caches and clients' watches.

use std::time::Duration;

use futures_util::future::join_all;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until};

use crate::support::clients::client::{Answer, Client};
use crate::support::clients::frames::{Event, Format, WatchReader};
use crate::support::clients::watcher::{Start, Watcher};
use crate::support::cluster::create_patiently;
use crate::support::faulty::FaultyUpstream;
use crate::support::poll::{eventually, within};
use crate::support::programs::apiserver::{private, private_with, shared};
use crate::support::programs::kubeconfig;
use crate::support::programs::kubeconfig::User;
use crate::support::programs::kubefan::Kubefan;
use crate::support::programs::sibling::Sibling;
use crate::support::proxies::balancer::Balancer;

const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
const SERVICES: &str = "/apis/apiregistration.k8s.io/v1/apiservices";
const SOON: Duration = Duration::from_secs(60);

/// Creates a definition of `things` in the API group `group`.
fn things(group: &str) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": format!("things.{group}") },
        "spec": {
            "group": group, "scope": "Namespaced",
            "names": { "plural": "things", "singular": "thing", "kind": "Thing" },
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": { "openAPIV3Schema": {
                    "type": "object",
                    "properties": { "spec": { "type": "object", "default": {}, "properties": {
                        "color": { "type": "string" }, "size": { "type": "integer" },
                    } } },
                } },
            }],
        },
    })
}

async fn define(direct: &Client, definition: &Value) {
    let group = definition["spec"]["group"].as_str().expect("a group");
    let plural = &definition["spec"]["names"]["plural"];
    let plural = plural.as_str().expect("a plural");
    direct.create(CRDS, definition).await.ok();
    let path = format!("/apis/{group}/v1/namespaces/default/{plural}");
    eventually(&path, SOON, async || direct.get(&path).await.is(200)).await;
}

/// Returns the definition of `things` with a default of `spec.size`.
fn with_default(group: &str, size: i64) -> Value {
    let properties = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties";
    let mut definition = things(group);
    let properties = definition.pointer_mut(properties).expect("properties");
    properties["size"]["default"] = size.into();
    definition
}

/// Replaces the spec of a definition of `things`.
async fn redefine(direct: &Client, definition: &Value) {
    let name = definition["metadata"]["name"].as_str().expect("a name");
    let change = json!({ "spec": definition["spec"] });
    direct.merge(&format!("{CRDS}/{name}"), &change).await.ok();
}

/// Waits until the API server shows the default `size` in the object `one`.
async fn shows(direct: &Client, path: &str, size: i64) {
    eventually("the default", SOON, async || {
        let shown = direct.get(&format!("{path}/one")).await.json();
        let is_shown = shown["spec"]["size"] == size;
        is_shown.then_some(()).ok_or(shown)
    })
    .await;
}

fn named(group: &str, kind: &str, name: &str) -> Value {
    json!({
        "apiVersion": format!("{group}/v1"), "kind": kind,
        "metadata": { "name": name }, "spec": { "color": "red" },
    })
}

/// Returns the comparable parts of an answer: its status, and a list without its resource version.
fn comparable(answer: &Answer) -> (u16, Value) {
    let mut body: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
    if let Some(metadata) = body["metadata"].as_object_mut() {
        metadata.remove("resourceVersion");
    }
    let status = answer.status.as_u16();
    (status, if status == 200 { body } else { Value::Null })
}

/// Reads `path` again while the answer is 429, and returns the first other answer.
async fn answer(client: &Client, path: &str) -> (u16, Value) {
    let answer = eventually(path, SOON, async || {
        let answer = client.get(path).await;
        match answer.status.as_u16() {
            429 => Err(answer),
            _ => Ok(answer),
        }
    });
    comparable(&answer.await)
}

/// The API server shows each change of the default before the list is sent. It answers 429 while it
/// builds the watch cache of the changed resource.
#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn proven_lists_and_watches_follow_many_changes_of_a_definition() {
    const CHANGES: i64 = 10;
    /// Far less than a wait with a backoff that has grown with each change.
    const LIMIT: Duration = Duration::from_secs(8);
    const PAUSE: Duration = Duration::from_secs(2);
    let server = shared();
    let direct = server.client();
    let group = "changes.defs.kubefan.io";
    let path = format!("/apis/{group}/v1/namespaces/default/things");
    define(&direct, &things(group)).await;
    create_patiently(&direct, &path, &named(group, "Thing", "one")).await;
    let kubefan = Kubefan::start(server, &[]).await;
    let client = kubefan.client();
    let watcher = Watcher::start(&client, &path, "", Format::Json, Start::Zero);
    watcher.synced().await;
    let mut next = Instant::now();
    let mut slowest = Duration::ZERO;
    for number in 1..=CHANGES {
        sleep_until(next).await;
        next += PAUSE;
        redefine(&direct, &with_default(group, number)).await;
        shows(&direct, &path, number).await;
        let shown = Instant::now();
        let (status, list) = answer(&client, &path).await;
        assert_eq!(status, 200);
        assert_eq!(size_of_one(&list), number, "change {number}: {list}");
        let name = format!("late-{number}");
        create_patiently(&direct, &path, &named(group, "Thing", &name)).await;
        let cached = format!("{path}?resourceVersion=0");
        eventually("the new default from the cache", SOON, async || {
            let (_, list) = comparable(&client.get(&cached).await);
            let is_new = size_of_one(&list) == number;
            is_new.then_some(()).ok_or(list)
        })
        .await;
        eventually("the new object in the open watch", SOON, async || {
            let fold = watcher.fold();
            let key = format!("default/{name}");
            fold.has(&key).then_some(()).ok_or("it is missing")
        })
        .await;
        slowest = slowest.max(shown.elapsed());
    }
    eprintln!("the slowest of {CHANGES} changes was followed within {slowest:?}");
    assert!(slowest < LIMIT, "{slowest:?}");
}

/// The API server shows each change of the default and of the columns before the lists are sent, and
/// kubefan gets the event of the changed definition a second later.
#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn proven_lists_follow_a_change_of_a_definition_whose_event_is_late() {
    const CHANGES: i64 = 3;
    let server = shared();
    let direct = server.client();
    let group = "events.defs.kubefan.io";
    let path = format!("/apis/{group}/v1/namespaces/default/things");
    define(&direct, &things(group)).await;
    create_patiently(&direct, &path, &named(group, "Thing", "one")).await;
    let faulty = FaultyUpstream::start(server).await;
    let client = faulty.kubefan.client();
    let tables = client.with("accept", TABLE);
    for reader in [&client, &tables] {
        proven(reader, &path).await;
    }
    faulty.proxy.delay_watches(Duration::from_secs(1));
    for number in 1..=CHANGES {
        let mut changed = with_default(group, number);
        let column = format!("Size {number}");
        changed["spec"]["versions"][0]["additionalPrinterColumns"] =
            json!([{ "name": column, "type": "integer", "jsonPath": ".spec.size" }]);
        redefine(&direct, &changed).await;
        shows(&direct, &path, number).await;
        let ((status, list), (table_status, table)) =
            tokio::join!(answer(&client, &path), answer(&tables, &path));
        assert_eq!((status, size_of_one(&list)), (200, number), "{list}");
        assert_eq!(table_status, 200, "{table}");
        assert_eq!(table["columnDefinitions"][1]["name"], column, "{table}");
        assert_eq!(table["rows"][0]["cells"][1], number, "{table}");
        // The lists above may have been forwarded. These are from the cache.
        let list = proven(&client, &path).await;
        assert_eq!(size_of_one(&list), number, "{list}");
        let table = proven(&tables, &path).await;
        assert_eq!(table["rows"][0]["cells"][1], number, "{table}");
    }
}

/// Without a cache of the definitions, kubefan notices a change when the API server ends the watch,
/// and again when it reads discovery.
#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn a_changed_resource_is_proven_again_without_a_cache_of_the_definitions() {
    let server = shared();
    let direct = server.client();
    let group = "uncached.defs.kubefan.io";
    let path = format!("/apis/{group}/v1/namespaces/default/things");
    define(&direct, &things(group)).await;
    create_patiently(&direct, &path, &named(group, "Thing", "one")).await;
    let never = [
        "--never-cache",
        "customresourcedefinitions.apiextensions.k8s.io",
    ];
    let kubefan = Kubefan::start(server, &never).await;
    let client = kubefan.client();
    proven(&client, &path).await;
    redefine(&direct, &with_default(group, 5)).await;
    eventually("the new default from the cache", SOON, async || {
        let list = proven(&client, &path).await;
        (size_of_one(&list) == 5).then_some(()).ok_or(list)
    })
    .await;
    // Another definition that appears makes kubefan read discovery.
    let other = "other.defs.kubefan.io";
    define(&direct, &things(other)).await;
    let other = format!("/apis/{other}/v1/namespaces/default/things");
    proven(&client, &other).await;
    let list = proven(&client, &path).await;
    assert_eq!(size_of_one(&list), 5, "{list}");
}

/// Reads `path` until the answer is a proven one from the cache, and returns it.
async fn proven(client: &Client, path: &str) -> Value {
    let answer = eventually(path, SOON, async || {
        let answer = client.get(path).await;
        let is_proven = answer.header("x-kubefan-proof").is_some();
        is_proven
            .then(|| answer.json())
            .ok_or_else(|| answer.to_string())
    });
    answer.await
}

/// Returns the field `spec.size` of the object `one`. The other objects were written with the
/// default at the time of their creation.
fn size_of_one(list: &Value) -> i64 {
    let mut items = list["items"].as_array().into_iter().flatten();
    let one = items.find(|item| item["metadata"]["name"] == "one");
    let size = one.and_then(|one| one["spec"]["size"].as_i64());
    size.unwrap_or_default()
}

/// A change of a definition.
struct Change {
    name: &'static str,
    definition: fn(&mut Value),
    /// True if the old definition is deleted, and the changed one is created.
    is_recreated: bool,
    /// Added to the query of the lists.
    query: &'static str,
}

const CHANGES: [Change; 9] = [
    Change {
        name: "description",
        definition: |definition| {
            definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["description"] =
                "other".into();
        },
        is_recreated: false,
        query: "",
    },
    Change {
        name: "default",
        definition: |definition| {
            let properties = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties";
            let properties = definition.pointer_mut(properties).expect("properties");
            properties["size"]["default"] = 7.into();
        },
        is_recreated: false,
        query: "",
    },
    Change {
        name: "pruned",
        definition: |definition| {
            let properties = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties";
            let properties = definition.pointer_mut(properties).expect("properties");
            properties.as_object_mut().expect("a map").remove("color");
        },
        is_recreated: false,
        query: "",
    },
    Change {
        name: "list-kind",
        definition: |definition| definition["spec"]["names"]["listKind"] = "ThingBag".into(),
        is_recreated: false,
        query: "",
    },
    Change {
        name: "short-names",
        definition: |definition| definition["spec"]["names"]["shortNames"] = json!(["th"]),
        is_recreated: false,
        query: "",
    },
    Change {
        name: "selectable-fields",
        definition: |definition| {
            definition["spec"]["versions"][0]["selectableFields"] =
                json!([{ "jsonPath": ".spec.color" }]);
        },
        is_recreated: false,
        query: "fieldSelector=spec.color%3Dred",
    },
    Change {
        name: "recreated",
        definition: |_| {},
        is_recreated: true,
        query: "",
    },
    Change {
        name: "other-kind",
        definition: |definition| {
            definition["spec"]["names"]["kind"] = "Object".into();
            definition["spec"]["names"]["listKind"] = "ObjectBag".into();
            definition["spec"]["names"]["singular"] = "object".into();
        },
        is_recreated: true,
        query: "",
    },
    Change {
        name: "other-scope",
        definition: |definition| definition["spec"]["scope"] = "Cluster".into(),
        is_recreated: true,
        query: "",
    },
];

/// Each change is followed by a list from the cache, a proven list, a watch that is opened after
/// the change, and a watch that was open before, as at the API server.
#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn changes_of_definitions_show_as_at_the_api_server() {
    let server = shared();
    let direct = server.client();
    let kubefan = Kubefan::start(server, &[]).await;
    let client = kubefan.client();
    let changes = CHANGES
        .iter()
        .map(|change| follow_change(change, &direct, &client));
    join_all(changes).await;
}

async fn follow_change(change: &Change, direct: &Client, client: &Client) {
    let row = change.name;
    let group = format!("{row}.defs.kubefan.io");
    let group = group.as_str();
    let before = things(group);
    define(direct, &before).await;
    let namespaced = format!("/apis/{group}/v1/namespaces/default/things");
    create_patiently(direct, &namespaced, &named(group, "Thing", "one")).await;
    // Lists of all namespaces have one path in either scope.
    let all = format!("/apis/{group}/v1/things");
    let open = format!("{all}?watch=1&resourceVersion=0&timeoutSeconds=300");
    let mut watches = Vec::new();
    for opened in [direct, client] {
        let watch = eventually(row, SOON, async || opened.watch(&open, Format::Json).await);
        let mut watch = watch.await;
        let first = within(row, SOON, watch.next()).await;
        assert!(
            matches!(first, Ok(Some(Event::Added(_)))),
            "{row}: {first:?}"
        );
        watches.push(watch);
    }

    let mut after = before.clone();
    (change.definition)(&mut after);
    let own = format!("{CRDS}/things.{group}");
    let kind = after["spec"]["names"]["kind"].as_str().expect("a kind");
    let collection = match after["spec"]["scope"] == "Cluster" {
        true => all.clone(),
        false => namespaced.clone(),
    };
    if change.is_recreated {
        direct.delete(&own).await.ok();
        eventually(row, SOON, async || direct.get(&own).await.is(404)).await;
        // The API server may still serve the old resource.
        direct.create(CRDS, &after).await.ok();
        eventually(row, SOON, async || {
            let made = direct.create(&collection, &named(group, kind, "one")).await;
            // The old resource may still have been served for the last try.
            let is_made = matches!(made.status.as_u16(), 201 | 409);
            is_made.then_some(()).ok_or(made)
        })
        .await;
    } else {
        redefine(direct, &after).await;
    }
    let list = match change.query {
        "" => all.clone(),
        query => format!("{all}?{query}"),
    };
    eventually(row, SOON, async || {
        is_shown(row, &comparable(&direct.get(&list).await))
    })
    .await;

    // A proven list that begins now, and a list from the cache.
    let shown = answer(direct, &list).await;
    assert_eq!(answer(client, &list).await, shown, "{row}: a proven list");
    let cached = format!("{all}?{}&resourceVersion=0", change.query);
    eventually(row, SOON, async || {
        let (directly, cached) = (direct.get(&cached).await, client.get(&cached).await);
        let (directly, cached) = (comparable(&directly), comparable(&cached));
        let is_same = directly == cached && cached.0 == 200;
        is_same
            .then_some(())
            .ok_or(format!("{directly:?} {cached:?}"))
    })
    .await;
    let mut first = Vec::new();
    for opened in [direct, client] {
        let watch = eventually(row, SOON, async || opened.watch(&open, Format::Json).await);
        let event = within(row, SOON, watch.await.next()).await;
        first.push(event.expect("the connection lasts").expect("an event"));
    }
    assert_eq!(first[0], first[1], "{row}: a watch that is opened after it");
    let late = named(group, kind, "late");
    create_patiently(direct, &collection, &late).await;
    let mut ends = Vec::new();
    for watch in &mut watches {
        ends.push(within(row, SOON, ends_or_has(watch, "late")).await);
    }
    println!("{row}: open watches: {ends:?}");
    // A watch may end at any time. A watch that the API server ends must not show what came later.
    assert!(
        ends[1] == End::Ended || ends[0] == End::HasLate || !change.is_recreated,
        "{row}"
    );
}

/// Checks whether the API server shows the change of this row.
fn is_shown(row: &str, now: &(u16, Value)) -> Result<(), String> {
    let item = &now.1["items"][0];
    let is_shown = match row {
        "default" => item["spec"]["size"] == 7,
        "pruned" => item["spec"].get("color").is_none(),
        "list-kind" => now.1["kind"] == "ThingBag",
        "other-kind" => now.1["kind"] == "ObjectBag",
        "other-scope" => item["metadata"].get("namespace").is_none(),
        "selectable-fields" => now.1["items"][0]["spec"]["color"] == "red",
        // The list does not show the changes of the other rows.
        _ => true,
    };
    let is_shown = is_shown && now.0 == 200 && item.is_object();
    is_shown.then_some(()).ok_or(format!("{now:?}"))
}

#[derive(Debug, PartialEq)]
enum End {
    HasLate,
    Ended,
}

/// Reads a watch until it has the object `name`, or until it ends, properly or with an ERROR event.
async fn ends_or_has(watch: &mut WatchReader, name: &str) -> End {
    loop {
        match watch.next().await {
            Ok(Some(Event::Added(item))) if item.key.ends_with(name) => return End::HasLate,
            Ok(None | Some(Event::Error { .. })) => return End::Ended,
            Ok(Some(_)) => {}
            Err(error) => panic!("the watch broke: {error}"),
        }
    }
}

/// An APIService with a service takes over the group-version of a custom resource, and leaves it.
#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn a_custom_resource_that_becomes_aggregated_is_not_cached_any_more() {
    let server = private().await;
    let direct = server.client();
    let group = "taken.defs.kubefan.io";
    let path = format!("/apis/{group}/v1/namespaces/default/things");
    define(&direct, &things(group)).await;
    create_patiently(&direct, &path, &named(group, "Thing", "one")).await;
    let kubefan = Kubefan::start(&server, &[]).await;
    let client = kubefan.client();
    let open = format!("{path}?watch=1&resourceVersion=0&timeoutSeconds=300");
    let mut watch = client.watch(&open, Format::Json).await.expect("a watch");
    let first = within("the first event", SOON, watch.next()).await;
    assert!(matches!(first, Ok(Some(Event::Added(_)))), "{first:?}");

    let own = format!("{SERVICES}/v1.{group}");
    let taken = json!({
        "metadata": { "labels": { "kube-aggregator.kubernetes.io/automanaged": null } },
        "spec": {
            "service": { "namespace": "default", "name": "nothing" }, "insecureSkipTLSVerify": true,
        },
    });
    direct.merge(&own, &taken).await.ok();
    eventually("503", SOON, async || direct.get(&path).await.is(503)).await;
    let ended = within(
        "the end of the watch",
        SOON,
        ends_or_has(&mut watch, "none"),
    )
    .await;
    assert_eq!(ended, End::Ended);
    for query in ["", "?resourceVersion=0"] {
        let path = format!("{path}{query}");
        eventually(&path, SOON, async || client.get(&path).await.is(503)).await;
    }

    let left = json!({ "spec": { "service": null, "insecureSkipTLSVerify": null } });
    direct.merge(&own, &left).await.ok();
    eventually("200", SOON, async || direct.get(&path).await.is(200)).await;
    eventually("things from the cache", SOON, async || {
        let answer = client.get(&path).await;
        let proof = answer.header("x-kubefan-proof").map(str::to_owned);
        proof.ok_or_else(|| answer.to_string())
    })
    .await;
}

/// The watches of all resources end when an API server stops. The watches of custom resources could
/// also have ended because of a change of their definitions.
#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn custom_resources_resume_after_an_api_server_has_stopped() {
    const RESOURCES: usize = 5;
    /// An API server ends open watches after its request timeout.
    const STOPPED: Duration = Duration::from_secs(120);
    let server = private_with(&["--request-timeout=10s"]).await;
    let direct = server.client();
    let sibling = Sibling::start(&server, &server.etcd_url(), &[]).await;
    let group = |number| format!("stop{number}.defs.kubefan.io");
    let path = |number| format!("/apis/{}/v1/namespaces/default/things", group(number));
    for number in 0..RESOURCES {
        define(&direct, &things(&group(number))).await;
        create_patiently(
            &direct,
            &path(number),
            &named(&group(number), "Thing", "one"),
        )
        .await;
        let (other, path) = (sibling.client(), path(number));
        eventually("at the sibling", SOON, async || {
            other.get(&path).await.is(200)
        })
        .await;
    }
    let balancer = Balancer::start(&[server.port(), sibling.port()]).await;
    balancer.prefer(Some(0));
    let directory = tempfile::tempdir().expect("a temporary directory");
    let config = directory.path().join("config");
    let authority = Some(server.authority());
    let user = User::Token(crate::support::programs::apiserver::ADMIN);
    kubeconfig::write(&config, &balancer.url(), authority, &user);
    let kubefan = Kubefan::start_with(&config, &[]).await;
    let client = kubefan.client();
    let watchers: Vec<_> = (0..RESOURCES)
        .map(|number| Watcher::start(&client, &path(number), "", Format::Json, Start::Zero))
        .collect();
    for watcher in &watchers {
        watcher.synced().await;
    }
    // A watch that ends within seconds of its list may be one of an older definition.
    tokio::time::sleep(Duration::from_secs(4)).await;
    let lists = async || {
        let metrics = kubefan.metrics().await;
        let lines = metrics
            .lines()
            .filter(|line| line.contains(".defs.kubefan.io"));
        let lists = lines.filter(|line| {
            let names = [
                "kubefan_upstream_lists_total",
                "kubefan_upstream_watch_lists_total",
            ];
            names.iter().any(|name| line.starts_with(name))
        });
        let counts = lists.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
        counts.sum::<f64>()
    };
    let before = lists().await;
    assert!(before >= RESOURCES as f64, "{before} lists");
    let open_before = sibling.open_watches("things").await;
    balancer.prefer(Some(1));
    server.terminate();
    eventually("all watches at the sibling", STOPPED, async || {
        let open = sibling.open_watches("things").await - open_before;
        (open >= RESOURCES as f64).then_some(()).ok_or(open)
    })
    .await;
    let other = sibling.client();
    for (number, watcher) in watchers.iter().enumerate() {
        let late = named(&group(number), "Thing", "late");
        create_patiently(&other, &path(number), &late).await;
        eventually("the late object", SOON, async || {
            watcher
                .fold()
                .has("default/late")
                .then_some(())
                .ok_or("missing")
        })
        .await;
    }
    let after = lists().await;
    assert_eq!(after, before, "{}", kubefan.log());
    let log = kubefan.log();
    assert!(!log.contains("the definition may have changed"), "{log}");
}

/// The conversion of the objects fails, so one version of the resource can't be listed.
#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn a_resource_that_can_not_be_listed_does_not_keep_kubefan_unready() {
    let server = private().await;
    let direct = server.client();
    let group = "broken.defs.kubefan.io";
    let mut definition = things(group);
    let mut old = definition["spec"]["versions"][0].clone();
    old["name"] = "v1beta1".into();
    old["storage"] = false.into();
    definition["spec"]["versions"]
        .as_array_mut()
        .expect("versions")
        .push(old);
    definition["spec"]["conversion"] = json!({
        "strategy": "Webhook",
        "webhook": {
            "conversionReviewVersions": ["v1"],
            // Nothing listens on this port.
            "clientConfig": { "url": "https://127.0.0.1:1/convert" },
        },
    });
    define(&direct, &definition).await;
    let path = format!("/apis/{group}/v1/namespaces/default/things");
    create_patiently(&direct, &path, &named(group, "Thing", "one")).await;
    let beta = format!("things.v1beta1.{group}");
    for flags in [
        &["--all"][..],
        &["--resource", &beta, "--resource", "configmaps"],
    ] {
        let kubefan = Kubefan::start(&server, flags).await;
        let details = kubefan
            .admin()
            .get("/readyz?verbose")
            .await
            .ok()
            .to_string();
        let line = details.lines().find(|line| line.contains("left out"));
        let line = line.unwrap_or_else(|| panic!("{details}"));
        assert!(line.contains(&beta), "{line}");
        let log = kubefan.log();
        assert!(
            log.contains("it is left out until it can be listed"),
            "{log}"
        );
        let configmaps = "/api/v1/configmaps?resourceVersion=0";
        kubefan.client().get(configmaps).await.ok();
    }
}

/// The API server reads `/apis/GROUP/v1/watch` as a deprecated path, but serves the resource in a
/// namespace.
#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn a_resource_named_like_a_deprecated_path_is_forwarded() {
    let server = shared();
    let direct = server.client();
    let kubefan = Kubefan::start(server, &[]).await;
    let client = kubefan.client();
    for plural in ["watch", "proxy"] {
        let group = format!("{plural}.defs.kubefan.io");
        let mut definition = things(&group);
        definition["metadata"]["name"] = format!("{plural}.{group}").into();
        definition["spec"]["names"]["plural"] = plural.into();
        define(&direct, &definition).await;
        let path = format!("/apis/{group}/v1/namespaces/default/{plural}");
        create_patiently(&direct, &path, &named(&group, "Thing", "one")).await;
        for query in ["", "?resourceVersion=0"] {
            let path = format!("{path}{query}");
            assert_eq!(answer(&client, &path).await, answer(&direct, &path).await);
        }
    }
}
