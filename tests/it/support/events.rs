//! Events: how tests make them, delete several at one version, and read a state of them.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::support::clients::client::Client;
use crate::support::clients::connector::Connector;
use crate::support::clients::frames::{
    Event, Format, Item, List, WatchReader, decode_list, split_list,
};
use crate::support::comparable::decoded;
use crate::support::faulty::{next, next_change};
use crate::support::programs::apiserver::ApiServer;

/// The number of items of a page.
pub(crate) const PAGE: usize = 3;

/// Returns the paths of the Events of a namespace, in both API groups.
pub(crate) fn collections(namespace: &str) -> [String; 2] {
    ["/api/v1", "/apis/events.k8s.io/v1"]
        .map(|group| format!("{group}/namespaces/{namespace}/events"))
}

/// Returns an Event of `v1` about the pod `about`. Its frames have more than 500 bytes.
pub(crate) fn event(namespace: &str, name: &str, about: &str) -> Value {
    json!({
        "metadata": { "name": name },
        "involvedObject": { "kind": "Pod", "namespace": namespace, "name": about },
        "reason": "Signal",
        "message": "m".repeat(300),
        "type": "Normal",
        "source": { "component": "kubelet" },
        "reportingComponent": "kubelet",
    })
}

/// Creates an Event like [`event`], and returns its resourceVersion.
pub(crate) async fn create_event(
    client: &Client,
    namespace: &str,
    name: &str,
    about: &str,
) -> String {
    let [path, _] = collections(namespace);
    let made = client.create(&path, &event(namespace, name, about)).await;
    text(&made.ok().json()["metadata"]["resourceVersion"])
}

/// Deletes the Events of a namespace that have names with this prefix, all at one version, as etcd
/// does when their lease expires. Returns the version and the number of Events.
pub(crate) async fn delete_at_once(
    server: &ApiServer,
    namespace: &str,
    prefix: &str,
) -> (String, usize) {
    let first = format!("/registry/events/{namespace}/{prefix}").into_bytes();
    let mut end = first.clone();
    *end.last_mut().expect("a key") += 1;
    let range = json!({ "key": STANDARD.encode(first), "range_end": STANDARD.encode(end) });
    let etcd = Client::new(&server.etcd_url(), Connector::plain());
    let deleted = etcd.create("/v3/kv/deleterange", &range).await.ok().json();
    let count = text(&deleted["deleted"]).parse().expect("a number");
    (text(&deleted["header"]["revision"]), count)
}

/// Fills kubefan's caches of both groups and both formats.
pub(crate) async fn fill_caches(through: &Client, namespace: &str) {
    for path in collections(namespace) {
        for format in [Format::Json, Format::Protobuf] {
            through
                .list(&format!("{path}?resourceVersion=0"), format)
                .await;
        }
    }
}

/// Returns the object of a change.
///
/// # Panics
/// Panics for a bookmark or an error.
pub(crate) fn changed(event: &Event) -> &Item {
    match event {
        Event::Added(item) | Event::Modified(item) | Event::Deleted(item) => item,
        other => panic!("{other:?} is no change"),
    }
}

/// Returns true if `event` is a change of the object `name`.
pub(crate) fn is_of(event: &Event, name: &str) -> bool {
    changed(event).key.rsplit('/').next() == Some(name)
}

/// Reads the changes up to the first one of the object `name`.
pub(crate) async fn changes_until(stream: &mut WatchReader, name: &str) -> Vec<Event> {
    let mut changes = Vec::new();
    loop {
        let event = next_change(stream).await;
        let is_last = is_of(&event, name);
        changes.push(event);
        if is_last {
            return changes;
        }
    }
}

/// Returns a resourceVersion as a number.
pub(crate) fn number(resource_version: &str) -> u64 {
    resource_version.parse().expect("a number")
}

/// Opens a watch that starts at the resourceVersion `from`. `selector` is empty or begins with `&`.
pub(crate) async fn watch_from(
    client: &Client,
    path: &str,
    from: u64,
    selector: &str,
    format: Format,
) -> WatchReader {
    let target = format!("{path}?watch=1&resourceVersion={from}{selector}");
    client.watch(&target, format).await.expect("a stream")
}

/// Reads the list at version 0.
pub(crate) async fn list(client: &Client, path: &str, format: Format) -> List {
    client
        .list(&format!("{path}?resourceVersion=0"), format)
        .await
}

/// Reads the list at version 0 page by page. All pages and tokens must have one version.
pub(crate) async fn list_in_pages(client: &Client, path: &str, format: Format) -> List {
    let mut target = format!("{path}?resourceVersion=0&limit={PAGE}");
    let mut all = List {
        resource_version: String::new(),
        items: Vec::new(),
    };
    loop {
        let answer = client.get_as(&target, format).await.ok();
        let page = decode_list(format, &answer.body);
        if all.resource_version.is_empty() {
            all.resource_version = page.resource_version.clone();
        }
        assert_eq!(page.resource_version, all.resource_version, "{target}");
        all.items.extend(page.items);
        let token = continue_token(&answer.body, format);
        if token.is_empty() {
            return all;
        }
        assert_eq!(decoded(&token)["rv"].to_string(), all.resource_version);
        target = format!("{path}?limit={PAGE}&continue={token}");
    }
}

/// Returns the continue token of a list; empty if it has none.
pub(crate) fn continue_token(body: &[u8], format: Format) -> String {
    match format {
        Format::Json => {
            let list: Value = serde_json::from_slice(body).expect("JSON");
            let token = list["metadata"]["continue"].as_str();
            token.unwrap_or_default().to_owned()
        }
        Format::Protobuf => split_list(body).expect("a list").0,
    }
}

/// Opens a watch that begins with the objects at version 0. Returns the state at the bookmark after
/// them, and the stream of the changes.
pub(crate) async fn watch_list(client: &Client, path: &str, format: Format) -> (List, WatchReader) {
    let target = format!(
        "{path}?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan\
         &resourceVersion=0&allowWatchBookmarks=true"
    );
    let mut stream = client.watch(&target, format).await.expect("a stream");
    let mut items = Vec::new();
    loop {
        match next(&mut stream).await {
            Event::Added(item) => items.push(item),
            Event::Bookmark {
                resource_version,
                initial_events_end: true,
            } => {
                let state = List {
                    resource_version,
                    items,
                };
                return (state, stream);
            }
            other => panic!("{other:?} before the end of the initial events"),
        }
    }
}

/// Checks that `state`, which kubefan has shown, is the API server's at exactly its version.
pub(crate) async fn assert_existed(direct: &Client, path: &str, state: &List, format: Format) {
    let version = &state.resource_version;
    let target = format!("{path}?resourceVersion={version}&resourceVersionMatch=Exact");
    let wanted = direct.list(&target, format).await;
    assert_eq!(names(state), names(&wanted), "at {version} {format:?}");
    assert!(*state == wanted, "{state:?} is not {wanted:?}");
}

/// Returns the names of a list's objects, in order.
pub(crate) fn names(list: &List) -> Vec<&str> {
    let keys = list.items.iter().map(|item| item.key.as_str());
    keys.filter_map(|key| key.rsplit('/').next()).collect()
}

/// Returns how many of the changes are deletions at this version.
pub(crate) fn deleted_at(changes: &[Event], version: &str) -> usize {
    let is_deleted =
        |event: &&Event| matches!(event, Event::Deleted(item) if item.resource_version == version);
    changes.iter().filter(is_deleted).count()
}

/// Checks that both sequences have equal changes, byte by byte.
pub(crate) fn assert_same(got: &[Event], wanted: &[Event], what: &str) {
    let steps = |events: &[Event]| events.iter().map(step).collect::<Vec<_>>();
    assert_eq!(steps(got), steps(wanted), "{what}");
    assert!(got == wanted, "{what}: {got:?} is not {wanted:?}");
}

/// Returns type, name, uid and version of a change.
fn step(event: &Event) -> String {
    let kind = match event {
        Event::Added(_) => "ADDED",
        Event::Modified(_) => "MODIFIED",
        _ => "DELETED",
    };
    let item = changed(event);
    format!("{kind} {} {} {}", item.key, item.uid, item.resource_version)
}

fn text(value: &Value) -> String {
    value.as_str().expect("a text").to_owned()
}
