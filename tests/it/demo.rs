//! Runs `kubefan demo`, the first command of the README: a changing simulated cluster behind a
//! kubefan.

use std::fs;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::support::clients::client::Client;
use crate::support::clients::connector::Connector;
use crate::support::clients::frames::Event;
use crate::support::clients::frames::Format;
use crate::support::poll::eventually;
use crate::support::poll::within;
use crate::support::programs::kubefan::binary;
use crate::support::programs::kubefan::run;
use crate::support::programs::kubefan::start_in;

const LIMIT: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread")]
async fn the_demo_cluster_changes_and_shuts_down_cleanly() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let file = |name: &str| directory.path().join(name);
    let mut command = Command::new(binary());
    command.args("demo --nodes 5 --pods 60 --churn 100 --listen 127.0.0.1:0".split(' '));
    command.arg("--kubeconfig-out").arg(file("config"));
    let mut process = start_in(&mut command, directory.path());
    let stdout = || fs::read_to_string(file("stdout")).unwrap_or_default();
    let url = eventually("the demonstration", LIMIT, async || {
        let stdout = stdout();
        let is_whole = stdout.contains("Ctrl-C stops it");
        let line = stdout
            .lines()
            .find_map(|line| line.strip_prefix("kubefan serves on "));
        line.filter(|_| is_whole).map(str::to_owned).ok_or(stdout)
    })
    .await;
    let kubeconfig = fs::read_to_string(file("config")).expect("a kubeconfig");
    assert!(kubeconfig.contains(&url), "{kubeconfig}");

    let client = Client::new(&url, Connector::plain());
    let count = async |path: &str| {
        let list = client.get(path).await.ok().json();
        list["items"].as_array().map_or(0, Vec::len)
    };
    assert_eq!(count("/api/v1/nodes?resourceVersion=0").await, 5);
    let pods = count("/api/v1/pods?resourceVersion=0").await;
    assert!((40..=90).contains(&pods), "{pods} pods");

    let leases = "/apis/coordination.k8s.io/v1/leases?watch=true&resourceVersion=0";
    let mut watch = client.watch(leases, Format::Json).await.expect("a watch");
    within("a change", LIMIT, async {
        loop {
            let event = watch.next().await.expect("a frame");
            if let Event::Modified(_) = event.expect("the watch goes on") {
                break;
            }
        }
    })
    .await;
    drop(watch);

    process.signal("INT");
    let status = process.wait(LIMIT).expect("it ends");
    let log = fs::read_to_string(file("stderr")).unwrap_or_default();
    assert_eq!(status.code(), Some(0), "{log}");
    assert!(!log.contains("panicked at"), "{log}");
    let _: Value = serde_json::from_str(&kubeconfig).expect("JSON is YAML");
}

#[test]
fn invalid_flags_are_reported() {
    let ended = run(&["demo", "--nodes", "0", "--listen", "0.0.0.0:1"]);
    assert_eq!(ended.code, Some(64), "{ended:?}");
    assert!(
        ended.stderr.contains("--nodes") && ended.stderr.contains("--listen"),
        "{ended:?}"
    );
}
