//! Tests of the test support itself, with an API server and without kubefan.

use std::time::Duration;

use serde_json::json;

use crate::support::clients::frames::Format;
use crate::support::clients::watcher::{Start, Watcher};
use crate::support::programs::apiserver::{private, shared};

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn a_fold_of_either_format_equals_the_list() {
    let server = shared();
    let client = server.client();
    let namespace = server.namespace("fold").await;
    let path = format!("/api/v1/namespaces/{namespace}/configmaps");
    let start = |format, from| Watcher::start(&client, &path, "", format, from);
    let watchers = [
        start(Format::Json, Start::Zero),
        start(Format::Protobuf, Start::Zero),
        start(Format::Json, Start::List),
        start(Format::Protobuf, Start::List),
    ];
    for number in 0..30 {
        let name = format!("object-{}", number % 10);
        match number / 10 {
            0 => client
                .create(&path, &json!({ "metadata": { "name": name } }))
                .await
                .ok(),
            1 => client
                .merge(
                    &format!("{path}/{name}"),
                    &json!({ "data": { "a": "<b>" } }),
                )
                .await
                .ok(),
            _ if number % 2 == 0 => client.delete(&format!("{path}/{name}")).await.ok(),
            _ => continue,
        };
        watchers[number % 4].cut();
    }
    for (watcher, format) in watchers
        .iter()
        .zip([Format::Json, Format::Protobuf].iter().cycle())
    {
        let list = client.list(&path, *format).await;
        assert_eq!(list.items.len(), 5);
        watcher
            .reaches("the fold", &list, Duration::from_secs(10))
            .await;
        let fold = watcher.fold();
        assert_eq!(
            (fold.errors, fold.faults),
            (vec![], vec![]),
            "{:?}",
            watcher.counts()
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn an_api_server_can_be_restored_compacted_and_counted() {
    let server = private().await;
    let client = server.client();
    let path = "/api/v1/namespaces/default/configmaps";
    let snapshot = server.snapshot().await;
    client
        .create(path, &json!({ "metadata": { "name": "later" } }))
        .await
        .ok();
    let before = server.open_watches("configmaps").await;
    let watcher = Watcher::start(&client, path, "", Format::Json, Start::Zero);
    watcher.synced().await;
    assert_eq!(server.open_watches("configmaps").await, before + 1.0);
    drop(watcher);
    server.restore(&snapshot).await;
    assert_eq!(client.get(&format!("{path}/later")).await.status, 404);
    let exact = format!("{path}?resourceVersion=2&resourceVersionMatch=Exact");
    assert_eq!(client.get(&exact).await.status, 200);
    assert!(server.compact().await > 2);
    assert_eq!(client.get(&exact).await.status, 410);
}
