//! Kinds with rows that depend on other objects, or with lists in a special order: the API server
//! answers all of them, and kubefan never prints them, not even after many reads.

use serde_json::{Value, json};

use super::printed_tables::{
    LIMIT, answered_from, initial_events, is_cached, is_later_bookmark, printed, table,
};
use crate::support::clients::client::Answer;
use crate::support::normalise::{mask_ages, normalise};
use crate::support::poll::eventually;
use crate::support::programs::apiserver::private;
use crate::support::programs::kubeconfig::User;
use crate::support::programs::kubectl::Kubectl;
use crate::support::programs::kubefan::Kubefan;

const CLASSES: &str = "/apis/storage.k8s.io/v1/storageclasses";
const SCHEMAS: &str = "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas";
const LEVELS: &str = "/apis/flowcontrol.apiserver.k8s.io/v1/prioritylevelconfigurations";
const DEFAULT: &str = "storageclass.kubernetes.io/is-default-class";
const WATCH_LIST: &str = "?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan\
                          &allowWatchBookmarks=true&timeoutSeconds=600";

/// Formats an answer without ages and versions. The initial events of a watch have no order.
fn shown(answer: &Answer) -> Vec<String> {
    let text = String::from_utf8_lossy(&answer.body);
    let mut lines: Vec<_> = text
        .lines()
        .filter_map(|line| {
            let mut value: Value = serde_json::from_str(line).expect("JSON");
            if is_later_bookmark(&value) {
                return None;
            }
            match value["type"].is_string() {
                true => {
                    let table = &mut value["object"];
                    // Only the first event has them.
                    table["columnDefinitions"] = Value::Null;
                    table["metadata"] = Value::Null;
                    if table["rows"][0]["object"]["metadata"]["name"].is_null() {
                        table["rows"][0]["object"]["metadata"] = Value::Null;
                    }
                }
                false => value["metadata"] = Value::Null,
            }
            Some(mask_ages(&value.to_string()))
        })
        .collect();
    lines.sort();
    lines
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn rows_that_depend_on_other_objects_are_the_api_servers() {
    let server = private().await;
    let direct = server.client();
    let class = |name: &str, is_default: &str| {
        json!({
            "metadata": { "name": name, "annotations": { DEFAULT: is_default } },
            "provisioner": "example.com/disks",
        })
    };
    // The times of creation have a resolution of a second. By these times,
    // the last object is the newest.
    direct.create(CLASSES, &class("first", "true")).await.ok();
    let created = async |name: &str| {
        let class = direct.get(&format!("{CLASSES}/{name}")).await.ok().json();
        class["metadata"]["creationTimestamp"].to_string()
    };
    let first = created("first").await;
    eventually("a newer class", LIMIT, async || {
        direct.delete(&format!("{CLASSES}/second")).await;
        direct.create(CLASSES, &class("second", "true")).await.ok();
        let second = created("second").await;
        (second != first).then_some(()).ok_or(second)
    })
    .await;
    direct.create(CLASSES, &class("third", "false")).await.ok();
    let kubefan = Kubefan::start(&server, &["--resource", "storageclasses"]).await;
    let through = kubefan.client();
    // The objects themselves are cached.
    let whole = through.get(&format!("{CLASSES}?resourceVersion=0")).await;
    assert!(is_cached(&whole.ok()));
    printed(&through, LEVELS).await;
    for (path, name, expected) in [
        (CLASSES, "first", false),
        (CLASSES, "second", false),
        (SCHEMAS, "exempt", false),
        (LEVELS, "exempt", true),
    ] {
        for query in [
            String::new(),
            "?resourceVersion=0".to_owned(),
            "?limit=1".to_owned(),
            "?resourceVersion=0&includeObject=None".to_owned(),
            format!("?fieldSelector=metadata.name%3D{name}"),
            format!("/{name}?resourceVersion=0"),
            format!("/{name}?resourceVersion=0&includeObject=Object"),
            WATCH_LIST.to_owned(),
            format!("{WATCH_LIST}&includeObject=Object"),
        ] {
            let target = format!("{path}{query}");
            let is_watch = query.starts_with(WATCH_LIST);
            let read = async |client| match is_watch {
                true => initial_events(client, &target).await,
                false => table(client, &target).await,
            };
            let got = answered_from(expected, async || read(&through).await);
            let (wanted, got) = tokio::join!(read(&direct), got);
            let (texts, others) = (shown(&got), shown(&wanted));
            assert_eq!(texts, others, "{target}");
            let rows: usize = texts
                .iter()
                .map(|text| text.matches("\"cells\":[\"").count())
                .sum();
            // There are three objects or more of each kind.
            let least = if is_watch || query.is_empty() { 3 } else { 1 };
            assert!(rows >= least, "{target}: {rows} rows");
            assert_eq!(is_cached(&got), expected, "{target}");
        }
    }
    let marked = async |query: &str| {
        let list = table(&through, &format!("{CLASSES}{query}")).await;
        list.json()["rows"].to_string().matches("(default)").count()
    };
    // The reason why kubefan can't print the kind: since 1.37, a row depends on the rows before it.
    let (of_list, of_object) = if server.minor() >= 37 { (1, 0) } else { (2, 1) };
    assert_eq!(marked("?resourceVersion=0").await, of_list);
    for name in ["first", "second"] {
        let query = format!("/{name}?resourceVersion=0");
        assert_eq!(marked(&query).await, of_object, "{name}");
    }
    let kubectl = |config| Kubectl::new(server.assets(), config, "default");
    let of_kubefan = kubefan.kubeconfig(&User::Anonymous);
    let of_server = server.kubeconfig("admin");
    for resource in [
        "storageclasses",
        "flowschemas",
        "prioritylevelconfigurations",
    ] {
        let arguments = ["get", resource].map(str::to_owned);
        let wanted = kubectl(&of_server).run(&arguments).await;
        let got = kubectl(&of_kubefan).run(&arguments).await;
        let texts = [&got, &wanted].map(|output| normalise(&output.stdout, &[]));
        assert_eq!(texts[0], texts[1], "{resource}");
        assert_eq!((got.code, got.stderr), (Some(0), wanted.stderr));
    }
}
