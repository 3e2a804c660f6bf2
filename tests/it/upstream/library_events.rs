//! The library's event recorder against a real API server: Events and their series are read back.

use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::events::v1::Event;
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{Api, ResourceExt};
use kubefan::event_recorder::{Note, Recorder, Severity};
use kubefan::shutdown::{Outcome, Shutdown};
use kubefan::upstream::ClientConfig;
use kubefan::{shutdown, upstream};
use serde_json::json;
use tokio::time::timeout;

use crate::support::poll::eventually;
use crate::support::programs::apiserver::shared;

const STEP: Duration = Duration::from_secs(30);

/// Returns the count of the series of `event`; 1 if the event has no series.
fn count(event: &Event) -> i32 {
    event.series.as_ref().map_or(1, |series| series.count)
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn events_and_their_series_are_in_the_api_server() {
    let server = shared();
    let namespace = server.namespace("events").await;
    let client = upstream::Client::connect(ClientConfig {
        kubeconfig: Some(server.kubeconfig("admin")),
        ..ClientConfig::default()
    });
    let client = client.await.expect("a client").to_kube();
    let maps = Api::<ConfigMap>::namespaced(client.clone(), &namespace);
    let map = serde_json::from_value(json!({ "metadata": { "name": "subject" } }));
    let map = map.expect("a config map");
    let created = maps.create(&PostParams::default(), &map).await;
    let map = created.expect("the config map is created");

    let shutdown = Shutdown::new(shutdown::Config::default());
    let recorder = Recorder::start(client.clone(), "example.com/tests", &shutdown);
    let record = |reason: &str| {
        let note = Note {
            severity: Severity::Warning,
            reason: reason.to_owned(),
            action: "Reconcile".to_owned(),
            text: format!("{reason} ä"),
        };
        recorder.record(&map, note);
    };
    let events = Api::<Event>::namespaced(client, &namespace);
    let of = async |reason: &str, expected: i32| {
        let selector = format!("reason={reason}");
        let parameters = ListParams::default().fields(&selector);
        let what = format!("{expected} times {reason}");
        eventually(&what, STEP, async || {
            let found = events.list(&parameters).await.expect("a list").items;
            match found.as_slice() {
                [event] if count(event) == expected => Ok(event.clone()),
                found => Err(format!("{found:?}")),
            }
        })
        .await
    };

    record("Made");
    let first = of("Made", 1).await;
    assert_eq!(first.note.as_deref(), Some("Made ä"));
    assert_eq!(first.type_.as_deref(), Some("Warning"));
    let controller = first.reporting_controller.as_deref();
    assert_eq!(controller, Some("example.com/tests"));
    let regarding = first.regarding.clone().expect("an object");
    assert_eq!(
        (regarding.uid, regarding.kind),
        (map.uid(), Some("ConfigMap".into()))
    );
    record("Made");
    let second = of("Made", 2).await;
    assert_eq!(
        (second.uid(), &second.event_time),
        (first.uid(), &first.event_time)
    );

    // The Event expires. The series goes on, and is written in the drain.
    let name = first.name_any();
    let deleted = events.delete(&name, &DeleteParams::default()).await;
    deleted.expect("the Event is deleted");
    record("Made");
    record("Changed");
    let drained = timeout(STEP, shutdown.drain()).await;
    assert_eq!(drained, Ok(Outcome::Drained));
    let third = of("Made", 3).await;
    assert_eq!(
        (third.name_any(), &third.event_time),
        (first.name_any(), &first.event_time)
    );
    assert_ne!(third.uid(), first.uid());
    of("Changed", 1).await;
    assert_eq!(recorder.dropped(), 0);
}
