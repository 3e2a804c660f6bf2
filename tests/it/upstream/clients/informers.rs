//! Informers of client-go and kube-rs that watch through kubefan reach the
//! state of a LIST at the API server.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::StreamExt;
use kube::Api;
use kube::api::{ApiResource, DynamicObject};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::watcher;
use kube::runtime::watcher::{Event, InitialListStrategy};
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::support::clients::frames::{Format, decode_list};
use crate::support::clients::watcher::{Start, Watcher};
use crate::support::cluster::define_widgets;
use crate::support::outcomes::request_count;
use crate::support::poll::eventually;
use crate::support::programs::apiserver::{ADMIN, private_with, shared};
use crate::support::programs::informers;
use crate::support::programs::informers::Informers;
use crate::support::programs::kubeconfig::User;
use crate::support::programs::kubefan::Kubefan;

const SETTLE: Duration = Duration::from_secs(30);
const CBOR_RESOURCES: &str = "configmaps:dynamic,widgets:dynamic";

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn shared_informers_fold_what_a_list_shows() {
    let server = shared();
    define_widgets(server).await;
    let namespace = server.namespace("informers").await;
    let plain = Kubefan::start(server, &[]).await;
    let secure = Kubefan::start(server, &["--tls-self-signed", "--cache-secrets"]).await;
    let without = plain.kubeconfig(&User::Anonymous);
    let with_token = secure.kubeconfig_named("token", &User::Token(ADMIN));
    let certificate = server.certificate("informed", "system:masters");
    let with_certificate = secure.kubeconfig_named("certificate", &User::Certificate(&certificate));
    let direct = server.kubeconfig("admin");
    let assets = server.assets();
    let start = async |kubeconfig, mode| {
        let arguments = ["--namespace", &namespace, "--mode", mode];
        Informers::start(assets, kubeconfig, &arguments).await
    };
    let (mut rv0, mut watchlist, mut token, mut certified) = tokio::join!(
        start(&without, "rv0"),
        start(&without, "watchlist"),
        start(&with_token, "rv0"),
        start(&with_certificate, "watchlist"),
    );
    // Go's HTTP client asks for gzip and decompresses the events by itself.
    let metrics = plain.metrics().await;
    let compressed = r#"kubefan_gzip_initial_chunks_total{how="compressed"}"#;
    let is_compressed = server.compresses_watch_lists();
    assert_eq!(metrics.contains(compressed), is_compressed, "{metrics}");
    let churn = [
        "churn",
        "--namespace",
        &namespace,
        "--writes",
        "1000",
        "--seed",
        "7",
    ];
    informers::run(assets, &direct, &churn).await;
    let list = informers::run(assets, &direct, &["list", "--namespace", &namespace]).await;
    assert!(sources(&list) >= 6, "{list}");
    for (mode, program) in [
        ("rv0", &mut rv0),
        ("watchlist", &mut watchlist),
        ("rv0 with a token", &mut token),
        ("watchlist with a certificate", &mut certified),
    ] {
        eventually(mode, SETTLE, async || {
            difference(&list, &program.send_command("dump").await)
        })
        .await;
        let errors = program.send_command("errors").await;
        assert_eq!(
            errors["watchErrors"]["count"].as_u64().unwrap_or(0),
            0,
            "{mode}: {errors}"
        );
    }
    let metrics = secure.metrics().await;
    // client-go checks a watch-list by a LIST of its version, which may be past by then.
    let lines = metrics.lines();
    let lines = lines.filter(|line| !line.contains("reason=\"past_state\""));
    let metrics = lines.collect::<Vec<_>>().join("\n");
    for (verb, count) in [("list", 6.0), ("watch", 12.0)] {
        let found = request_count(&metrics, "cache", verb);
        assert!(found >= count, "{verb}: {metrics}");
        assert_eq!(
            request_count(&metrics, "forwarded", verb),
            0.0,
            "{verb}: {metrics}"
        );
    }
}

/// client-go's dynamic clients with the features `ClientsAllowCBOR` and `ClientsPreferCBOR`, with an
/// API server that has CBOR and one that does not.
#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn informers_that_prefer_cbor_read_json_from_the_cache() {
    const ACCEPT: &str = "application/json;q=0.9,application/cbor";
    for (gate, offered) in [("true", "application/cbor"), ("false", "application/json")] {
        let flag = format!("--feature-gates=CBORServingAndStorage={gate}");
        let server = private_with(&[&flag]).await;
        define_widgets(&server).await;
        let namespace = server.namespace("cbor").await;
        let kubefan = Kubefan::start(&server, &[]).await;
        let (assets, direct) = (server.assets(), server.kubeconfig("admin"));
        let only = ["--namespace", &namespace, "--resources", CBOR_RESOURCES];
        let kubeconfig = kubefan.kubeconfig(&User::Anonymous);
        let mut programs = Vec::new();
        for mode in ["rv0", "watchlist"] {
            let arguments = [&only[..], &["--mode", mode]].concat();
            let program = Informers::start_preferring_cbor(assets, &kubeconfig, &arguments);
            programs.push(program.await);
        }
        let churn = [
            "churn",
            "--namespace",
            &namespace,
            "--writes",
            "300",
            "--seed",
            "9",
        ];
        informers::run(assets, &direct, &churn).await;
        let list = informers::run(assets, &direct, &[&["list"][..], &only].concat()).await;
        assert_eq!(sources(&list), 2, "{list}");
        for program in &mut programs {
            eventually(gate, SETTLE, async || {
                difference(&list, &program.send_command("dump").await)
            })
            .await;
            let errors = program.send_command("errors").await;
            let count = errors["watchErrors"]["count"].as_u64();
            assert_eq!(count.unwrap_or(0), 0, "{gate}: {errors}");
        }
        let path = format!("/api/v1/namespaces/{namespace}/configmaps?resourceVersion=0");
        let clients = [
            (server.client(), offered),
            (kubefan.client(), "application/json"),
        ];
        for (client, media_type) in clients {
            let answer = client.with("accept", ACCEPT).get(&path).await.ok();
            assert_eq!(answer.header("content-type"), Some(media_type), "{gate}");
        }
        let metrics = kubefan.metrics().await;
        let counted = r#"outcome="cache",reason="media_type",resource="configmaps",verb="watch""#;
        assert!(metrics.contains(counted), "{metrics}");
        let forwarded = r#"outcome="forwarded",reason="media_type""#;
        assert!(!metrics.contains(forwarded), "{metrics}");
        for verb in ["list", "watch"] {
            assert!(request_count(&metrics, "cache", verb) >= 2.0, "{metrics}");
        }
    }
}

/// Returns the number of sources in a dump.
fn sources(dump: &Value) -> usize {
    dump["resources"]
        .as_object()
        .map_or(0, serde_json::Map::len)
}

/// Compares two dumps of the form `{"resources": {source: {key: state}}}`; the error has up to five
/// differences of the first source that differs.
fn difference(wanted: &Value, got: &Value) -> Result<(), String> {
    let sources = wanted["resources"].as_object().expect("a dump");
    for (source, wanted) in sources {
        let (wanted, none) = (wanted.as_object().expect("objects"), serde_json::Map::new());
        let got = got["resources"][source].as_object().unwrap_or(&none);
        let keys = wanted.keys().chain(got.keys());
        let differing = keys.filter(|key| wanted.get(*key) != got.get(*key)).take(5);
        let differing: Vec<_> = differing
            .map(|key| (key, got.get(key), wanted.get(key)))
            .collect();
        if !differing.is_empty() {
            return Err(format!("{source}: {differing:?}"));
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn kube_rs_watchers_fold_what_a_list_shows() {
    let server = shared();
    let namespace = server.namespace("kube-rs").await;
    let plain = Kubefan::start(server, &[]).await;
    let secure = Kubefan::start(server, &["--tls-self-signed"]).await;
    let certificate = server.certificate("watcher", "system:masters");
    let users = [
        plain.kubeconfig(&User::Anonymous),
        secure.kubeconfig_named("token", &User::Token(ADMIN)),
        secure.kubeconfig_named("certificate", &User::Certificate(&certificate)),
    ];
    let resource = ApiResource::erase::<k8s_openapi::api::core::v1::ConfigMap>(&());
    let mut clients = Vec::new();
    for path in &users {
        let kubeconfig = Kubeconfig::read_from(path).expect("a kubeconfig");
        let options = KubeConfigOptions::default();
        let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options).await;
        let client = kube::Client::try_from(config.expect("a config")).expect("a client");
        let api: Api<DynamicObject> = Api::namespaced_with(client, &namespace, &resource);
        clients.push((InitialListStrategy::ListWatch, api.clone()));
        clients.push((InitialListStrategy::StreamingList, api));
    }
    let folds: [Mutex<BTreeMap<String, String>>; 6] = Default::default();
    let following = clients
        .into_iter()
        .zip(&folds)
        .map(|((strategy, api), fold)| {
            let config = watcher::Config {
                initial_list_strategy: strategy,
                ..Default::default()
            };
            watcher(api, config).for_each(|event| {
                take(&mut fold.lock(), event.expect("no watch error"));
                std::future::ready(())
            })
        });
    let path = format!("/api/v1/namespaces/{namespace}/configmaps");
    let churn = async {
        let flags = [
            "churn",
            "--namespace",
            &namespace,
            "--writes",
            "300",
            "--resources",
        ];
        let flags = [&flags[..], &["configmaps", "--seed", "8"]].concat();
        informers::run(server.assets(), &server.kubeconfig("admin"), &flags).await;
        let list = decode_list(Format::Json, &server.client().get(&path).await.ok().body);
        let text = |body: &[u8]| String::from_utf8(body.to_vec()).expect("JSON");
        let wanted: BTreeMap<_, _> = list
            .items
            .into_iter()
            .map(|item| (item.key, text(&item.body)))
            .collect();
        for (index, fold) in folds.iter().enumerate() {
            eventually("the fold of kube-rs", SETTLE, async || {
                let got = fold.lock();
                if *got == wanted {
                    Ok(())
                } else {
                    Err(format!("{index}: {} objects", got.len()))
                }
            })
            .await;
        }
    };
    tokio::select! {
        _ = futures::future::join_all(following) => panic!("a watcher ended"),
        () = churn => {}
    }
    let metrics = secure.metrics().await;
    let watches = request_count(&metrics, "cache", "watch");
    assert!(watches >= 4.0, "{metrics}");
    assert_eq!(
        request_count(&metrics, "forwarded", "watch"),
        0.0,
        "{metrics}"
    );
}

fn take(fold: &mut BTreeMap<String, String>, event: Event<DynamicObject>) {
    let entry = |object: DynamicObject| {
        let mut value = serde_json::to_value(&object).expect("JSON");
        let fields = value.as_object_mut().expect("an object");
        fields.remove("kind");
        fields.remove("apiVersion");
        let name = |part: Option<String>| part.unwrap_or_default();
        let key = format!(
            "{}/{}",
            name(object.metadata.namespace),
            name(object.metadata.name)
        );
        value.sort_all_objects();
        (key, value.to_string())
    };
    match event {
        Event::Init => fold.clear(),
        Event::InitApply(object) | Event::Apply(object) => fold.extend([entry(object)]),
        Event::InitDone => {}
        Event::Delete(object) => drop(fold.remove(&entry(object).0)),
    }
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn two_hundred_clients_cost_upstream_one_watch_a_format() {
    let server = shared();
    let kubefan = Kubefan::start(server, &[]).await;
    let namespace = server.namespace("fan-out").await;
    // No other test uses this resource, so all its watches at the API server are kubefan's.
    let resource = "controllerrevisions";
    let path = format!("/apis/apps/v1/namespaces/{namespace}/{resource}");
    let revision = |number: u32| {
        let name = format!("revision-{}", number % 20);
        json!({ "metadata": { "name": name }, "data": { "a": "b" }, "revision": number })
    };
    for number in 0..20 {
        server.client().create(&path, &revision(number)).await.ok();
    }
    let before = server.open_watches(resource).await;
    let client = kubefan.client();
    let formats = [Format::Json, Format::Protobuf];
    let watchers: Vec<(Format, Watcher)> = formats
        .into_iter()
        .cycle()
        .take(200)
        .map(|format| {
            (
                format,
                Watcher::start(&client, &path, "", format, Start::Zero),
            )
        })
        .collect();
    for (_, watcher) in &watchers {
        watcher.synced().await;
    }
    for number in 20..40 {
        let object = format!("{path}/revision-{}", number % 20);
        if number % 5 == 0 {
            server.client().delete(&object).await.ok();
        } else {
            server.client().merge(&object, &revision(number)).await.ok();
        }
    }
    for format in formats {
        let list = server.client().list(&path, format).await;
        for (_, watcher) in watchers.iter().filter(|(watched, _)| *watched == format) {
            watcher.reaches("a client of many", &list, SETTLE).await;
            assert_eq!(watcher.counts().streams, 1, "{:?}", watcher.counts());
        }
    }
    assert_eq!(
        server.open_watches(resource).await - before,
        2.0,
        "watches at the API server"
    );
}
