//! The objects of tests/golden/table/states.json, more_states.json and newest_states.json: objects
//! of many kinds in many states, for comparing their Table rows.

use std::fs;
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::support::clients::client::Client;
use crate::support::poll::eventually;

const FILE: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/tests/golden/table/states.json"
);

const MORE: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/tests/golden/table/more_states.json"
);

const NEWEST: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/tests/golden/table/newest_states.json"
);

/// Returns the entries of states.json in order, with the namespace and the times filled in.
pub(crate) fn all(namespace: &str) -> Vec<Value> {
    let text = fs::read_to_string(FILE).expect("the states");
    serde_json::from_str(&with_times(&text, namespace)).expect("JSON")
}

/// Returns the entries of more_states.json: kinds that the simulator does not serve.
pub(crate) fn of_more_kinds(namespace: &str) -> Vec<Value> {
    let text = fs::read_to_string(MORE).expect("the states");
    serde_json::from_str(&with_times(&text, namespace)).expect("JSON")
}

/// Returns the entries of newest_states.json: kinds that kubefan prints
/// only for the newest API servers.
pub(crate) fn of_newest_kinds(namespace: &str) -> Vec<Value> {
    let text = fs::read_to_string(NEWEST).expect("the states");
    serde_json::from_str(&with_times(&text, namespace)).expect("JSON")
}

/// Creates the object of a state in the collection `path`, and sets its status if there is one.
pub(crate) async fn create(client: &Client, path: &str, state: &Value) {
    let object = &state["object"];
    // The server answers 404 until it serves a custom resource that was just defined.
    eventually(path, Duration::from_secs(20), async || {
        match client.create(path, object).await {
            made if made.status == 404 => Err(made.to_string()),
            made => Ok(made),
        }
    })
    .await
    .ok();
    if !state["status"].is_null() {
        let name = object["metadata"]["name"].as_str().expect("a name");
        let change = json!({ "status": state["status"] });
        let own = format!("{path}/{name}/status");
        client.merge(&own, &change).await.ok();
    }
}

/// Replaces `{ns}` by the namespace, and `{now-N}` by the time N seconds ago.
fn with_times(text: &str, namespace: &str) -> String {
    let text = text.replace("{ns}", namespace);
    let mut parts = text.split("{now-");
    let mut filled = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (seconds, rest) = part.split_once('}').expect("a closing brace");
        let ago = Duration::from_secs(seconds.parse().expect("a number"));
        let time = Timestamp::try_from(SystemTime::now() - ago).expect("a time of our days");
        filled.push_str(&format!("{time:.0}"));
        filled.push_str(rest);
    }
    filled
}

#[test]
fn times_are_whole_seconds() {
    let filled = with_times("{ns} {now-60}.", "here");
    let time = filled
        .strip_prefix("here ")
        .and_then(|rest| rest.strip_suffix('.'));
    let time = time.expect("the namespace before it");
    let parsed: Timestamp = time.parse().expect("a time");
    let age = Timestamp::now().as_second() - parsed.as_second();
    assert!((60..70).contains(&age), "{filled}");
    assert_eq!(time.len(), "2026-01-01T00:00:00Z".len());
}
