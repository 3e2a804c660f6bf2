//! Tests of the injected faults: how they look to a client, and that a correct client recovers from
//! them.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request};
use http_body_util::BodyExt;
use kubefan_core::api::GroupVersionResource;
use kubefan_core::telemetry::Registry;
use kubefan_proxy::server::{Body, full};
use proptest::prelude::*;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::support::{get, send, simulator};
use crate::sim::Simulator;
use crate::sim::admin::Admin;
use crate::sim::faults::WatchFault;

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn maps() -> GroupVersionResource {
    GroupVersionResource::new("", "v1", "configmaps")
}

fn map(name: &str, value: u32) -> Value {
    json!({"metadata": {"name": name}, "data": {"value": value.to_string()}})
}

async fn post_to_admin(simulator: &Simulator, fault: &str) -> u16 {
    let admin = Admin::new(simulator.clone(), Registry::new());
    let request = Request::post(fault).body(()).expect("a request");
    let Ok(response) = admin.answer(request).await;
    response.status().as_u16()
}

async fn watch(simulator: &Simulator, query: &str) -> Body {
    let request = Request::get(format!("{CONFIG_MAPS}?watch=true&{query}"));
    let request = request.body(full("")).expect("a request");
    let response = simulator.clone().answer(request).await;
    assert_eq!(response.status(), 200);
    response.into_body()
}

/// Returns the next bytes of a watch: `Ok(None)` at a clean end, `Ok(Some(Err(())))` if the
/// connection broke, and `Err(())` if nothing arrives for ten minutes.
async fn next(body: &mut Body) -> Result<Option<Result<Bytes, ()>>, ()> {
    let frame = timeout(Duration::from_secs(600), body.frame()).await;
    let frame = frame.map_err(|_| ())?;
    Ok(frame.map(|frame| frame.map_err(|_| ()).map(|f| f.into_data().expect("data"))))
}

fn event(bytes: &Bytes) -> Value {
    serde_json::from_slice(bytes).expect("a whole frame")
}

#[tokio::test(start_paused = true)]
async fn watches_break_as_injected() {
    let simulator = simulator();
    let create = |name: &str| {
        let made = simulator.create(&maps(), Some("default"), map(name, 1));
        made.expect("created")
    };
    let now = || get(&simulator, CONFIG_MAPS);

    for (index, fault) in ["drop-watches", "gone", "half-frame", "stall", "silence"]
        .into_iter()
        .enumerate()
    {
        let list = now().await;
        let version = list.body["metadata"]["resourceVersion"]
            .as_str()
            .expect("a version");
        let mut body = watch(&simulator, &format!("resourceVersion={version}")).await;
        create(&format!("before-{index}"));
        let first = next(&mut body)
            .await
            .expect("in time")
            .expect("a frame")
            .expect("intact");
        assert_eq!(event(&first)["type"], "ADDED", "{fault}");
        assert_eq!(
            post_to_admin(&simulator, &format!("/faults/{fault}")).await,
            200
        );
        create(&format!("after-{index}"));
        match fault {
            "drop-watches" => assert_eq!(next(&mut body).await, Ok(Some(Err(())))),
            "gone" => {
                let gone = next(&mut body).await.expect("in time").expect("a frame");
                let gone = event(&gone.expect("intact"));
                assert_eq!(
                    (&gone["type"], &gone["object"]["code"]),
                    (&"ERROR".into(), &410.into())
                );
                assert_eq!(next(&mut body).await, Ok(None));
            }
            "half-frame" | "stall" => {
                let half = next(&mut body).await.expect("in time").expect("a frame");
                let half = half.expect("intact");
                assert!(serde_json::from_slice::<Value>(&half).is_err(), "{half:?}");
                let end = if fault == "stall" {
                    Err(())
                } else {
                    Ok(Some(Err(())))
                };
                assert_eq!(next(&mut body).await, end, "{fault}");
            }
            _ => assert_eq!(next(&mut body).await, Err(()), "silence"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn requests_fail_as_injected() {
    let simulator = simulator();
    assert_eq!(
        post_to_admin(&simulator, "/faults/too-many-requests?retryAfter=7&count=2").await,
        200
    );
    for _ in 0..2 {
        let busy = get(&simulator, CONFIG_MAPS).await;
        assert_eq!(
            (busy.code, &busy.headers["retry-after"]),
            (429, &"7".parse().expect("text"))
        );
    }
    assert_eq!(get(&simulator, CONFIG_MAPS).await.code, 200);
    assert_eq!(post_to_admin(&simulator, "/faults/server-error").await, 200);
    assert_eq!(get(&simulator, CONFIG_MAPS).await.code, 500);
    assert_eq!(
        post_to_admin(&simulator, "/faults/wrong-content-type").await,
        200
    );
    let wrong = get(&simulator, CONFIG_MAPS).await;
    assert_eq!(
        (wrong.code, &wrong.headers["content-type"]),
        (200, &"text/html".parse().expect("text"))
    );
    assert_eq!(post_to_admin(&simulator, "/faults/none-such").await, 404);
    assert_eq!(
        post_to_admin(&simulator, "/faults/slow?milliseconds=x").await,
        400
    );

    let mut body = watch(&simulator, "resourceVersion=0").await;
    assert_eq!(
        post_to_admin(&simulator, "/faults/slow?milliseconds=5000").await,
        200
    );
    let started = tokio::time::Instant::now();
    simulator
        .create(&maps(), Some("default"), map("slow", 1))
        .expect("created");
    next(&mut body)
        .await
        .expect("in time")
        .expect("a frame")
        .expect("intact");
    assert_eq!(started.elapsed().as_secs(), 5);
}

#[tokio::test(start_paused = true)]
async fn history_can_be_compacted_and_restored() {
    let simulator = simulator();
    let made = simulator
        .create(&maps(), Some("default"), map("a", 1))
        .expect("created");
    let old = made["metadata"]["resourceVersion"]
        .as_str()
        .expect("a version")
        .to_owned();
    simulator
        .create(&maps(), Some("default"), map("b", 1))
        .expect("created");
    let mut open = watch(&simulator, "").await;
    for _ in ["a", "b"] {
        next(&mut open)
            .await
            .expect("in time")
            .expect("a frame")
            .expect("intact");
    }
    assert_eq!(post_to_admin(&simulator, "/compact").await, 200);
    let mut late = watch(&simulator, &format!("resourceVersion={old}")).await;
    let gone = next(&mut late)
        .await
        .expect("in time")
        .expect("a frame")
        .expect("intact");
    assert_eq!(event(&gone)["object"]["code"], 410);
    simulator
        .create(&maps(), Some("default"), map("c", 1))
        .expect("created");
    let added = next(&mut open)
        .await
        .expect("in time")
        .expect("a frame")
        .expect("intact");
    assert_eq!(event(&added)["type"], "ADDED", "a current watch continues");

    let before = get(&simulator, CONFIG_MAPS).await;
    assert_eq!(
        post_to_admin(&simulator, "/faults/revision-back").await,
        200
    );
    let gone = next(&mut open)
        .await
        .expect("in time")
        .expect("a frame")
        .expect("intact");
    assert_eq!(event(&gone)["object"]["code"], 410);
    let after = get(&simulator, CONFIG_MAPS).await;
    let version = |list: &Value| -> u64 {
        let version = list["metadata"]["resourceVersion"]
            .as_str()
            .expect("a version");
        version.parse().expect("a number")
    };
    assert!(version(&after.body) < version(&before.body));
    let count = |list: &Value| list["items"].as_array().map(Vec::len);
    assert_eq!(count(&after.body), count(&before.body));
}

/// A step of the random test.
#[derive(Clone, Debug)]
enum Step {
    Put(u8, u32),
    Delete(u8),
    Fault(WatchFault),
    Compact,
    RestoreBackup,
    /// The client reads until nothing more arrives.
    Read,
}

fn step() -> impl Strategy<Value = Step> {
    let faults = prop::sample::select(vec![
        WatchFault::Drop,
        WatchFault::Gone,
        WatchFault::HalfFrame,
        WatchFault::Stall,
        WatchFault::Silence,
    ]);
    prop_oneof![
        6 => (0..6_u8, any::<u32>()).prop_map(|(name, value)| Step::Put(name, value)),
        3 => (0..6_u8).prop_map(Step::Delete),
        4 => Just(Step::Read),
        2 => faults.prop_map(Step::Fault),
        1 => Just(Step::Compact),
        1 => Just(Step::RestoreBackup),
    ]
}

/// A correct client: it lists, watches from the list's version, and lists again after 410.
struct Client {
    objects: BTreeMap<String, Value>,
    version: Option<String>,
    stream: Option<Body>,
}

impl Client {
    /// Lists and watches as necessary, and applies events until none arrives for a second.
    async fn read(&mut self, simulator: &Simulator) {
        loop {
            let version = match self.version.clone() {
                Some(version) => version,
                None => self.list(simulator).await,
            };
            if self.stream.is_none() {
                let query = format!("resourceVersion={version}");
                self.stream = Some(watch(simulator, &query).await);
            }
            let stream = self.stream.as_mut().expect("just opened");
            let frame = timeout(Duration::from_secs(1), stream.frame()).await;
            match frame {
                // No more events, or a fault has silenced the stream.
                Err(_) => return,
                Ok(None | Some(Err(_))) => self.stream = None,
                Ok(Some(Ok(frame))) => {
                    let bytes = frame.into_data().expect("data");
                    match serde_json::from_slice::<Value>(&bytes) {
                        Ok(event) => self.apply(&event),
                        // Half of a frame is handled like a broken connection.
                        Err(_) => self.stream = None,
                    }
                }
            }
        }
    }

    async fn list(&mut self, simulator: &Simulator) -> String {
        let list = get(simulator, CONFIG_MAPS).await.body;
        let items = list["items"].as_array().expect("items").clone();
        self.objects = items.into_iter().map(|item| (name(&item), item)).collect();
        let version = list["metadata"]["resourceVersion"].as_str();
        let version = version.expect("a version").to_owned();
        self.version = Some(version.clone());
        version
    }

    fn apply(&mut self, event: &Value) {
        let mut object = event["object"].clone();
        let kind = event["type"].as_str().expect("a type");
        if kind == "ERROR" {
            (self.version, self.stream) = (None, None);
            return;
        }
        self.version = object["metadata"]["resourceVersion"]
            .as_str()
            .map(str::to_owned);
        if let Some(members) = object.as_object_mut() {
            members.shift_remove("kind");
            members.shift_remove("apiVersion");
        }
        match kind {
            "DELETED" => self.objects.remove(&name(&object)),
            _ => self.objects.insert(name(&object), object),
        };
    }
}

fn name(object: &Value) -> String {
    object["metadata"]["name"]
        .as_str()
        .expect("a name")
        .to_owned()
}

async fn run(steps: &[Step]) {
    let simulator = simulator();
    let mut client = Client {
        objects: BTreeMap::new(),
        version: None,
        stream: None,
    };
    for step in steps {
        match step {
            Step::Put(number, value) => {
                let object = map(&format!("m{number}"), *value);
                let made = simulator.create(&maps(), Some("default"), object.clone());
                if made.is_err() {
                    let updated = simulator.update(&maps(), Some("default"), object);
                    updated.expect("updated");
                }
            }
            // The object may not exist.
            Step::Delete(number) => {
                let _ = simulator.delete(&maps(), Some("default"), &format!("m{number}"));
            }
            Step::Fault(fault) => simulator.faults().fail_watches(*fault),
            Step::Compact => {
                simulator.compact();
            }
            Step::RestoreBackup => {
                simulator.restore_backup();
                // The client's versions belong to an earlier history, so it must list again.
                (client.version, client.stream) = (None, None);
            }
            Step::Read => client.read(&simulator).await,
        }
    }
    // The client drops the stream, which may be silent, as a client that misses bookmarks would.
    client.stream = None;
    client.read(&simulator).await;
    let list = get(&simulator, CONFIG_MAPS).await.body;
    let items = list["items"].as_array().expect("items");
    let now: BTreeMap<_, _> = items
        .iter()
        .map(|item| (name(item), item.clone()))
        .collect();
    assert_eq!(client.objects, now);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn a_list_and_its_watch_are_the_list_at_the_end(steps in prop::collection::vec(step(), 1..40)) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .expect("a runtime");
        runtime.block_on(run(&steps));
    }
}

#[tokio::test]
async fn a_body_beyond_the_limit_is_refused() {
    let simulator = simulator();
    let body = vec![b' '; 4 << 20];
    let refused = send(
        &simulator,
        Method::POST,
        CONFIG_MAPS,
        "application/json",
        body,
    )
    .await;
    assert_eq!(refused.code, 413);
}

/// Checks that the API server's objects may change while it is cut off, as in a
/// cluster with several API servers.
#[tokio::test(start_paused = true)]
async fn a_server_that_is_away_refuses_everything_and_comes_back() {
    let simulator = simulator();
    let mut body = watch(&simulator, "resourceVersion=0").await;
    assert_eq!(
        post_to_admin(&simulator, "/faults/away?seconds=5").await,
        200
    );
    assert_eq!(next(&mut body).await, Ok(Some(Err(()))));
    for path in [CONFIG_MAPS, "/api", "/readyz"] {
        assert_eq!(get(&simulator, path).await.code, 503, "{path}");
    }
    let made = simulator.create(&maps(), Some("default"), map("meanwhile", 1));
    made.expect("created");
    tokio::time::sleep(Duration::from_secs(5)).await;
    let list = get(&simulator, CONFIG_MAPS).await;
    assert_eq!(
        (list.code, list.body["items"].as_array().map(Vec::len)),
        (200, Some(1))
    );

    assert_eq!(
        post_to_admin(&simulator, "/faults/away?seconds=50").await,
        200
    );
    assert_eq!(
        post_to_admin(&simulator, "/faults/away?seconds=0").await,
        200
    );
    assert_eq!(get(&simulator, "/api").await.code, 200);
}

#[tokio::test]
async fn versions_are_those_of_the_selected_objects() {
    let simulator = simulator();
    let versions = |selector| simulator.versions(&maps(), selector);
    assert_eq!(versions(""), Ok(Vec::new()));
    for name in ["a", "b"] {
        let made = simulator.create(&maps(), Some("default"), map(name, 1));
        made.expect("created");
    }
    assert_eq!(versions("").map(|all| all.len()), Ok(2));
    let selected = versions("metadata.name=b").expect("a selector");
    let [(key, version)] = &selected[..] else {
        panic!("{selected:?}");
    };
    let b = simulator.get(&maps(), Some("default"), "b").expect("b");
    assert_eq!(key.name(), "b");
    assert_eq!(b["metadata"]["resourceVersion"], version.to_string());
    assert_eq!(versions("no such field=1").expect_err("refused").code, 400);
}
