//! All protocols and TLS modes for clients, shutdown, and an outage of the API server.

use std::fs;
use std::time::Duration;

use serde_json::json;

use crate::support::clients::client::Client;
use crate::support::clients::connector::Connector;
use crate::support::clients::frames::Event;
use crate::support::clients::frames::Format;
use crate::support::clients::frames::WatchReader;
use crate::support::clients::watcher::Start;
use crate::support::clients::watcher::Watcher;
use crate::support::poll::eventually;
use crate::support::poll::within;
use crate::support::programs::apiserver::shared;
use crate::support::programs::kubeconfig::User;
use crate::support::programs::kubectl::Kubectl;
use crate::support::programs::kubefan::Kubefan;
use crate::support::programs::kubefan::run;

const STEP: Duration = Duration::from_secs(20);

#[tokio::test(flavor = "multi_thread")]
async fn each_protocol_serves_reads_writes_and_watches() {
    let Some(server) = shared() else { return };
    let directory = tempfile::tempdir().expect("a temporary directory");
    let tls_dir = directory.path().display().to_string();
    let plain = Kubefan::start(server, &[]).await;
    let secure = Kubefan::start(server, &["--tls-self-signed", "--tls-dir", &tls_dir]).await;
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
async fn the_printed_kubeconfig_works() {
    let Some(server) = shared() else { return };
    let directory = tempfile::tempdir().expect("a temporary directory");
    let tls_dir = directory.path().display().to_string();
    let plain = Kubefan::start(server, &[]).await;
    let secure = Kubefan::start(server, &["--tls-self-signed", "--tls-dir", &tls_dir]).await;
    for (kubefan, more) in [
        (&plain, vec![]),
        (&secure, vec!["--tls-self-signed", "--tls-dir", &tls_dir]),
    ] {
        let address = kubefan.url().split("//").nth(1).expect("an address");
        let printed = run(&[&["kubeconfig", "--listen", address][..], &more].concat());
        assert_eq!((printed.code, printed.stderr.as_str()), (Some(0), ""));
        let config = directory.path().join("config");
        fs::write(&config, &printed.stdout).expect("a file");
        let kubectl = Kubectl::new(server.assets(), &config, "default");
        let output = kubectl
            .run(&["get", "namespace", "default", "-o", "name"].map(str::to_owned))
            .await;
        assert_eq!(
            (output.code, output.stdout.as_str()),
            (Some(0), "namespace/default\n"),
            "{}",
            output.stderr
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signal_drains_open_watches_and_ends_with_success() {
    let Some(server) = shared() else { return };
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
async fn the_cache_survives_an_api_server_outage() {
    let Some(server) = crate::support::programs::apiserver::private().await else {
        return;
    };
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
