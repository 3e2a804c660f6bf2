//! All protocols and TLS modes for clients, shutdown, and an outage of the API server.

use std::fs;
use std::path::Path;
use std::time::Duration;

use serde_json::json;

use crate::support::clients::client::Client;
use crate::support::clients::connector::Connector;
use crate::support::clients::frames::{Event, Format, WatchReader};
use crate::support::clients::watcher::{Start, Watcher};
use crate::support::outcomes::request_count;
use crate::support::poll::{eventually, within};
use crate::support::programs::apiserver::shared;
use crate::support::programs::kubeconfig;
use crate::support::programs::kubeconfig::User;
use crate::support::programs::kubectl::Kubectl;
use crate::support::programs::kubefan::{Kubefan, run};

const STEP: Duration = Duration::from_secs(20);

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn each_protocol_serves_reads_writes_and_watches() {
    let server = shared();
    let directory = tempfile::tempdir().expect("a temporary directory");
    let tls_dir = directory.path().display().to_string();
    let plain = Kubefan::start(server, &[]).await;
    let secure = Kubefan::start(
        server,
        &["--auth", "none", "--tls-self-signed", "--tls-dir", &tls_dir],
    )
    .await;
    assert!(secure.url().starts_with("https://"), "{}", secure.url());
    let authority = fs::read_to_string(directory.path().join("ca.crt")).expect("the CA");
    let tls = |protocols: &[&str]| Connector::tls(&authority, None, protocols);
    for (name, client) in [
        ("http/1.1", Client::new(plain.url(), Connector::plain())),
        ("h2c", Client::http2(plain.url(), Connector::plain())),
        (
            "TLS http/1.1",
            Client::new(secure.url(), tls(&["http/1.1"])),
        ),
        ("TLS h2", Client::http2(secure.url(), tls(&["h2"]))),
        ("TLS, no ALPN", Client::new(secure.url(), tls(&[]))),
    ] {
        let namespace = server.namespace("protocol").await;
        let path = format!("/api/v1/namespaces/{namespace}/configmaps");
        let mut stream = client
            .watch(&format!("{path}?watch=1&resourceVersion=0"), Format::Json)
            .await
            .expect(name);
        client
            .create(&path, &json!({ "metadata": { "name": "one" } }))
            .await
            .ok();
        let event = within(name, STEP, stream.next()).await.expect(name);
        assert!(matches!(event, Some(Event::Added(_))), "{name}: {event:?}");
        let list = client.get(&path).await.ok().json();
        assert_eq!(list["items"].as_array().map(Vec::len), Some(1), "{name}");
        // More watches than 100, a common limit for the streams of an HTTP/2 connection.
        let watchers: Vec<Watcher> = (0..120)
            .map(|_| Watcher::start(&client, &path, "", Format::Json, Start::Zero))
            .collect();
        for watcher in &watchers {
            watcher.synced().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn the_printed_kubeconfig_works() {
    let server = shared();
    let directory = tempfile::tempdir().expect("a temporary directory");
    let tls_dir = directory.path().display().to_string();
    let tls = ["--tls-self-signed", "--tls-dir", &tls_dir];
    let open = [&["--auth", "none"][..], &tls].concat();
    // Clients on other machines would connect to this one by a name.
    let everywhere = [&["--listen", "0.0.0.0:0"][..], &tls].concat();
    let token = server.kubeconfig("admin").display().to_string();
    let certificate = directory.path().join("certificate").display().to_string();
    let reader = server.certificate("certified-reader", "system:masters");
    kubeconfig::write(
        Path::new(&certificate),
        &server.url(),
        None,
        &User::Certificate(&reader),
    );
    let output = directory.path().join("config").display().to_string();
    for (flags, more, user) in [
        (&[][..], vec![], None),
        (&open, open.clone(), None),
        (
            &everywhere,
            [&tls[..], &["--kubeconfig", &token]].concat(),
            Some("admin"),
        ),
        (
            &everywhere,
            [&tls[..], &["--kubeconfig", &certificate]].concat(),
            Some("certified-reader"),
        ),
    ] {
        let kubefan = Kubefan::start(server, flags).await;
        let url = kubefan.url().replace("0.0.0.0", "localhost");
        let arguments = ["kubeconfig", "--server", &url, "--output", &output];
        let printed = run(&[&arguments[..], &more].concat());
        let ended = (
            printed.code,
            printed.stdout.as_str(),
            printed.stderr.as_str(),
        );
        assert_eq!(ended, (Some(0), "", ""));
        let kubectl = Kubectl::new(server.assets(), Path::new(&output), "default");
        let prints = async |arguments: &[&str]| {
            let arguments: Vec<String> = arguments.iter().map(|word| word.to_string()).collect();
            let output = kubectl.run(&arguments).await;
            assert_eq!(output.code, Some(0), "{}", output.stderr);
            output.stdout
        };
        let namespaces = [
            "get",
            "namespaces",
            "-o",
            "jsonpath={.items[*].metadata.name}",
        ];
        assert!(prints(&namespaces).await.contains("default"), "{more:?}");
        let metrics = kubefan.metrics().await;
        assert_eq!(request_count(&metrics, "cache", "list"), 1.0, "{metrics}");
        if let Some(user) = user {
            let found = prints(&[
                "auth",
                "whoami",
                "-o",
                "jsonpath={.status.userInfo.username}",
            ]);
            assert_eq!(found.await, user);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn a_signal_drains_open_watches_and_ends_with_success() {
    let server = shared();
    let mut kubefan = Kubefan::start(server, &["--shutdown-grace-period", "3s"]).await;
    let namespace = server.namespace("drain").await;
    let path = format!("/api/v1/namespaces/{namespace}/configmaps");
    server
        .client()
        .create(&path, &json!({ "metadata": { "name": "one" } }))
        .await
        .ok();
    let kubectl = Kubectl::new(
        server.assets(),
        &kubefan.kubeconfig(&User::Anonymous),
        &namespace,
    );
    let _following = kubectl.start(&["get", "configmaps", "-w"].map(str::to_owned));
    let mut streams: Vec<WatchReader> = Vec::new();
    let http2 = Client::http2(kubefan.url(), Connector::plain());
    for client in [kubefan.client(), http2] {
        for format in [Format::Json, Format::Protobuf] {
            for _ in 0..10 {
                let query = format!("{path}?watch=1&resourceVersion=0");
                streams.push(client.watch(&query, format).await.expect("a stream"));
            }
        }
    }
    for stream in &mut streams {
        let event = within("the object", STEP, stream.next())
            .await
            .expect("a stream");
        assert!(matches!(event, Some(Event::Added(_))), "{event:?}");
    }
    kubefan.terminate();
    for stream in &mut streams {
        // The watch ends properly, without an ERROR event.
        let end = within("the end", STEP, stream.next())
            .await
            .expect("a clean end");
        assert!(end.is_none(), "{end:?}");
    }
    assert_eq!(kubefan.wait_for_exit().code(), Some(0), "{}", kubefan.log());
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn the_cache_survives_an_api_server_outage() {
    let server = crate::support::programs::apiserver::private().await;
    let kubefan = Kubefan::start(&server, &["--resource", "configmaps"]).await;
    let client = kubefan.client();
    let path = "/api/v1/namespaces/default/configmaps";
    server
        .client()
        .create(path, &json!({ "metadata": { "name": "one" } }))
        .await
        .ok();
    let watcher = Watcher::start(&client, path, "", Format::Json, Start::Zero);
    eventually("the object", STEP, async || {
        if watcher.fold().state().len() == 1 {
            Ok(())
        } else {
            Err("not yet")
        }
    })
    .await;
    server.stop();
    let cached = client
        .get(&format!("{path}?resourceVersion=0"))
        .await
        .ok()
        .json();
    assert_eq!(cached["items"].as_array().map(Vec::len), Some(1));
    // A read of the most recent state gets an error, because a stale answer would be wrong.
    let fresh = within("a refusal", STEP, client.get(path)).await;
    assert!(
        fresh.status.is_server_error() || fresh.status == 429,
        "{fresh}"
    );
    server.start_again().await;
    server
        .client()
        .create(path, &json!({ "metadata": { "name": "two" } }))
        .await
        .ok();
    eventually("the next object", Duration::from_secs(60), async || {
        let fold = watcher.fold();
        if fold.state().len() == 2 {
            Ok(())
        } else {
            Err(format!("{fold:?}"))
        }
    })
    .await;
    let fold = watcher.fold();
    assert_eq!((fold.errors, fold.faults), (vec![], vec![]));
    assert_eq!(watcher.counts().streams, 1);
}
