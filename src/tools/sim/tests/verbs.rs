//! Tests of each verb, of definitions and of discovery.

use http::{Method, Request};
use kubefan_proxy::server::full;
use serde_json::{Value, json};

use super::support::{Answer, get, send, simulator};
use crate::sim::Simulator;
use crate::sim::kinds::discovery::AGGREGATED;

async fn post(simulator: &Simulator, path: &str, object: Value) -> Answer {
    let body = object.to_string();
    send(simulator, Method::POST, path, "application/json", body).await
}

async fn put(simulator: &Simulator, path: &str, object: &Value) -> Answer {
    let body = object.to_string();
    send(simulator, Method::PUT, path, "application/json", body).await
}

async fn patch(simulator: &Simulator, path: &str, kind: &str, change: Value) -> Answer {
    let content_type = format!("application/{kind}+json");
    send(
        simulator,
        Method::PATCH,
        path,
        &content_type,
        change.to_string(),
    )
    .await
}

async fn delete(simulator: &Simulator, path: &str, options: Value) -> Answer {
    let body = options.to_string();
    send(simulator, Method::DELETE, path, "application/json", body).await
}

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";

fn deployment(name: &str) -> Value {
    json!({
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [{"name": "c", "image": "i"}]},
            },
        },
        "status": {"replicas": 7},
    })
}

#[tokio::test]
async fn created_objects_are_stored_and_validated() {
    let simulator = simulator();
    let made = post(
        &simulator,
        CONFIG_MAPS,
        json!({"metadata": {"name": "a"}, "data": {"k": "v"}}),
    )
    .await;
    assert_eq!(made.code, 201, "{made:?}");
    let metadata = &made.body["metadata"];
    for key in ["uid", "resourceVersion", "creationTimestamp"] {
        assert!(metadata[key].is_string(), "{key}: {made:?}");
    }
    assert_eq!(metadata["namespace"], "default");
    let keys: Vec<_> = made.body.as_object().expect("an object").keys().collect();
    assert_eq!(keys, ["kind", "apiVersion", "metadata", "data"]);
    assert_eq!(
        get(&simulator, &format!("{CONFIG_MAPS}/a")).await.body,
        made.body
    );

    let generated = post(
        &simulator,
        CONFIG_MAPS,
        json!({"metadata": {"generateName": "g-"}}),
    )
    .await;
    let name = generated.body["metadata"]["name"].as_str().expect("a name");
    assert!(name.len() == 7 && name.starts_with("g-"), "{name}");

    let refused = [
        (
            CONFIG_MAPS,
            json!({"metadata": {"name": "a"}}),
            409,
            "AlreadyExists",
        ),
        (
            CONFIG_MAPS,
            json!({"metadata": {"name": "A_b"}}),
            422,
            "Invalid",
        ),
        (CONFIG_MAPS, json!({"metadata": {}}), 422, "Invalid"),
        (
            CONFIG_MAPS,
            json!({"kind": "Pod", "metadata": {"name": "b"}}),
            400,
            "BadRequest",
        ),
        (
            CONFIG_MAPS,
            json!({"metadata": {"name": "b", "namespace": "x"}}),
            400,
            "BadRequest",
        ),
        (CONFIG_MAPS, json!({"metadata": "x"}), 400, "BadRequest"),
        (
            CONFIG_MAPS,
            json!({"metadata": {"name": "b", "labels": 5}}),
            400,
            "BadRequest",
        ),
        (CONFIG_MAPS, json!([]), 400, "BadRequest"),
        (
            "/api/v1/namespaces/no/configmaps",
            json!({"metadata": {"name": "b"}}),
            404,
            "NotFound",
        ),
        (
            "/api/v1/namespaces/no/nothing",
            json!({"metadata": {"name": "b"}}),
            404,
            "NotFound",
        ),
    ];
    for (path, object, code, reason) in refused {
        let answer = post(&simulator, path, object).await;
        assert_eq!(
            (answer.code, &answer.body["reason"]),
            (code, &reason.into()),
            "{answer:?}"
        );
    }
}

#[tokio::test]
async fn updates_change_status_and_generation_separately() {
    let simulator = simulator();
    let made = post(&simulator, DEPLOYMENTS, deployment("web")).await;
    assert_eq!(made.code, 201, "{made:?}");
    assert_eq!(made.body["metadata"]["generation"], 1);
    assert_ne!(
        made.body["status"]["replicas"], 7,
        "a client cannot set the status of a new object"
    );
    let path = format!("{DEPLOYMENTS}/web");

    let unchanged = put(&simulator, &path, &made.body).await;
    assert_eq!(
        unchanged.body, made.body,
        "an update without a change has no effect"
    );

    let mut changed = made.body.clone();
    changed["spec"]["replicas"] = 3.into();
    changed["status"] = json!({"replicas": 9});
    let changed = put(&simulator, &path, &changed).await;
    assert_eq!(changed.code, 200);
    assert_eq!(changed.body["metadata"]["generation"], 2);
    assert_eq!(changed.body["status"], made.body["status"]);

    let stale = put(&simulator, &path, &made.body).await;
    assert_eq!(
        (stale.code, &stale.body["reason"]),
        (409, &"Conflict".into())
    );

    let mut status = changed.body.clone();
    status["status"] = json!({"replicas": 4});
    status["spec"]["replicas"] = 100.into();
    let status = put(&simulator, &format!("{path}/status"), &status).await;
    assert_eq!(status.body["status"]["replicas"], 4);
    assert_eq!(status.body["spec"]["replicas"], 3);
    assert_eq!(status.body["metadata"]["generation"], 2);
}

#[tokio::test]
async fn patches_scale_and_dry_runs_are_carried_out() {
    let simulator = simulator();
    post(&simulator, DEPLOYMENTS, deployment("web")).await;
    let path = format!("{DEPLOYMENTS}/web");
    let labels = json!({"metadata": {"labels": {"tier": "front"}}});
    for kind in ["merge-patch", "strategic-merge-patch"] {
        let patched = patch(&simulator, &path, kind, labels.clone()).await;
        assert_eq!(
            patched.body["metadata"]["labels"]["tier"], "front",
            "{kind} {patched:?}"
        );
    }
    let replace = json!([{"op": "replace", "path": "/spec/replicas", "value": 4}]);
    let tried = patch(
        &simulator,
        &format!("{path}?dryRun=All"),
        "json-patch",
        replace.clone(),
    )
    .await;
    assert_eq!(tried.body["spec"]["replicas"], 4);
    let stored = get(&simulator, &path).await;
    assert_eq!(
        stored.body["spec"]["replicas"], 2,
        "a dry run changes nothing"
    );
    let patched = patch(&simulator, &path, "json-patch", replace).await;
    assert_eq!(patched.body["spec"]["replicas"], 4);
    let applied = patch(&simulator, &path, "apply-patch", json!({})).await;
    assert_eq!(applied.code, 415);

    let scale = get(&simulator, &format!("{path}/scale")).await;
    assert_eq!(scale.body["kind"], "Scale");
    assert_eq!(scale.body["status"]["selector"], "app=web");
    let count = json!({"spec": {"replicas": 6}});
    let scaled = patch(&simulator, &format!("{path}/scale"), "merge-patch", count).await;
    assert_eq!(scaled.body["spec"]["replicas"], 6, "{scaled:?}");
    let stored = get(&simulator, &path).await;
    assert_eq!(stored.body["spec"]["replicas"], 6);
}

#[tokio::test]
async fn deletions_honour_preconditions_and_finalizers() {
    let simulator = simulator();
    let map = json!({"metadata": {"name": "a", "finalizers": ["x/y"]}});
    let made = post(&simulator, CONFIG_MAPS, map).await;
    let path = format!("{CONFIG_MAPS}/a");
    let wrong = delete(
        &simulator,
        &path,
        json!({"preconditions": {"uid": "other"}}),
    )
    .await;
    assert_eq!(wrong.code, 409);
    let tried = delete(&simulator, &path, json!({"dryRun": ["All"]})).await;
    assert_eq!(tried.code, 200);
    assert_eq!(get(&simulator, &path).await.body, made.body);
    let marked = delete(&simulator, &path, json!({})).await;
    assert!(
        marked.body["metadata"]["deletionTimestamp"].is_string(),
        "{marked:?}"
    );
    let freed = json!({"metadata": {"finalizers": null}});
    patch(&simulator, &path, "merge-patch", freed).await;
    assert_eq!(get(&simulator, &path).await.code, 404);

    for (name, app) in [("b", "x"), ("c", "x"), ("d", "y")] {
        let map = json!({"metadata": {"name": name, "labels": {"app": app}}});
        post(&simulator, CONFIG_MAPS, map).await;
    }
    let some = delete(
        &simulator,
        &format!("{CONFIG_MAPS}?labelSelector=app%3Dx"),
        json!({}),
    )
    .await;
    assert_eq!(
        some.body["items"].as_array().map(Vec::len),
        Some(2),
        "{some:?}"
    );
    let gone = delete(&simulator, "/api/v1/namespaces/default", json!({})).await;
    assert_eq!((gone.code, &gone.body["status"]), (200, &"Success".into()));
    assert_eq!(get(&simulator, &format!("{CONFIG_MAPS}/d")).await.code, 404);
    let late = post(&simulator, CONFIG_MAPS, json!({"metadata": {"name": "e"}})).await;
    assert_eq!(late.code, 404);
}

#[tokio::test]
async fn lists_support_pages_and_versions() {
    let simulator = simulator();
    for name in ["a", "b", "c"] {
        post(&simulator, CONFIG_MAPS, json!({"metadata": {"name": name}})).await;
    }
    let all = get(&simulator, CONFIG_MAPS).await;
    let names = |answer: &Answer| -> Vec<String> {
        let items = answer.body["items"].as_array().expect("items");
        let name = |item: &Value| {
            item["metadata"]["name"]
                .as_str()
                .expect("a name")
                .to_owned()
        };
        items.iter().map(name).collect()
    };
    assert_eq!(names(&all), ["a", "b", "c"]);
    let first = get(&simulator, &format!("{CONFIG_MAPS}?limit=2")).await;
    assert_eq!(first.body["metadata"]["remainingItemCount"], 1);
    let token = first.body["metadata"]["continue"]
        .as_str()
        .expect("a token");
    delete(&simulator, &format!("{CONFIG_MAPS}/c"), json!({})).await;
    let second = get(
        &simulator,
        &format!("{CONFIG_MAPS}?limit=2&continue={token}"),
    )
    .await;
    assert_eq!(names(&second), ["c"], "all pages show the same state");
    let version = all.body["metadata"]["resourceVersion"]
        .as_str()
        .expect("a version");
    let exact = format!("{CONFIG_MAPS}?resourceVersion={version}&resourceVersionMatch=Exact");
    assert_eq!(names(&get(&simulator, &exact).await), ["a", "b", "c"]);
    simulator.compact();
    assert_eq!(get(&simulator, &exact).await.code, 410);
    let next = get(
        &simulator,
        &format!("{CONFIG_MAPS}?limit=2&continue={token}"),
    )
    .await;
    assert_eq!(next.code, 410);
    let unknown = get(&simulator, &format!("{CONFIG_MAPS}?fieldSelector=x%3Dy")).await;
    assert_eq!(unknown.code, 400, "{unknown:?}");
    // Lists of every kind have the newest revision of all kinds.
    let pods = get(&simulator, "/api/v1/pods").await;
    let maps = get(&simulator, CONFIG_MAPS).await;
    let version = |answer: &Answer| answer.body["metadata"]["resourceVersion"].clone();
    assert_eq!(version(&pods), version(&maps));
}

#[tokio::test(start_paused = true)]
async fn a_version_in_the_future_is_waited_for_and_refused() {
    let simulator = simulator();
    let future = get(&simulator, &format!("{CONFIG_MAPS}?resourceVersion=999999")).await;
    assert_eq!(future.code, 504, "{future:?}");
    let message = future.body["message"].as_str().expect("a message");
    assert!(
        message.contains("Too large resource version: 999999"),
        "{message}"
    );
}

#[tokio::test]
async fn definitions_add_and_remove_kinds() {
    let simulator = simulator();
    let definitions = include_str!(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../tests/upstream/widgets.yaml"
    ));
    simulator.define(definitions).expect("definitions");
    let path = "/apis/example.kubefan.io/v1/namespaces/default/widgets";
    let widget = json!({"spec": {"color": "red"}, "metadata": {"name": "w"}});
    let made = post(&simulator, path, widget).await;
    assert_eq!(made.code, 201, "{made:?}");
    let keys: Vec<_> = made.body.as_object().expect("an object").keys().collect();
    assert_eq!(keys, ["apiVersion", "kind", "metadata", "spec"], "sorted");
    let list = get(&simulator, path).await;
    assert_eq!(list.body["kind"], "WidgetList");
    let crd = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.example.kubefan.io";
    let definition = get(&simulator, crd).await;
    assert_eq!(
        definition.body["status"]["conditions"][1]["type"],
        "Established"
    );
    assert_eq!(delete(&simulator, crd, json!({})).await.code, 200);
    assert_eq!(get(&simulator, path).await.code, 404);
}

#[tokio::test]
async fn discovery_and_reviews_are_served_and_missing_paths_are_not_found() {
    let simulator = simulator();
    for (path, kind) in [
        ("/api", "APIVersions"),
        ("/apis", "APIGroupList"),
        ("/apis/apps", "APIGroup"),
        ("/api/v1", "APIResourceList"),
        ("/apis/batch/v1", "APIResourceList"),
    ] {
        assert_eq!(get(&simulator, path).await.body["kind"], kind, "{path}");
    }
    let aggregated = Request::builder()
        .uri("/apis")
        .header("accept", AGGREGATED)
        .body(full(""))
        .expect("a request");
    let aggregated = simulator.clone().answer(aggregated).await;
    assert_eq!(aggregated.headers()["content-type"], AGGREGATED);
    let review = json!({"spec": {"resourceAttributes": {"verb": "get"}}});
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let allowed = post(&simulator, path, review).await;
    assert_eq!(
        (allowed.code, &allowed.body["status"]["allowed"]),
        (201, &true.into())
    );
    let codes = [
        ("/openapi/v2", 501),
        ("/apis/none.example/v1", 404),
        ("/api/v1/namespaces/default/pods/x/log", 404),
        ("/api/v1/watch/pods?timeoutSeconds=-1", 200),
        ("/api/v1/watch", 500),
    ];
    for (path, code) in codes {
        assert_eq!(get(&simulator, path).await.code, code, "{path}");
    }
}
