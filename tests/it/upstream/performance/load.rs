//! Runs `kubefan load` against the real API server, and against kubefan in front of it.

use crate::load::LoadTest;
use crate::support::programs::apiserver::shared;
use crate::support::programs::kubefan::Kubefan;

const COMMON: [&str; 6] = ["--watchers", "40", "--duration", "2s", "--rate", "30"];

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn the_api_server_loses_nothing_in_any_form() {
    let server = shared();
    let config = server.kubeconfig("admin").display().to_string();
    let forms: [(&[&str], u64); 5] = [
        (&["--http", "1"], 40 * 60),
        (&["--format", "protobuf", "--watch-list"], 40 * 60),
        (
            &[
                "-r",
                "secrets",
                "--format",
                "protobuf",
                "--object-size",
                "10Ki",
            ],
            40 * 60,
        ),
        (
            &[
                "-r",
                "pods",
                "--selector-per-watcher",
                "spec.nodeName=node-{i}",
                "--objects",
                "40",
            ],
            60,
        ),
        (
            &[
                "-r",
                "leases",
                "--selector-per-watcher",
                "app=load-{i}",
                "--list-storm",
                "1",
            ],
            60,
        ),
    ];
    for (flags, delivered) in forms {
        let config = ["--kubeconfig", &config];
        let loaded = LoadTest::start(&[&config[..], &COMMON, flags].concat()).wait_for_exit();
        let run = loaded.only_clean_run();
        assert_eq!(run["events"]["delivered"], delivered, "{flags:?}: {run}");
        assert_eq!(run["writes"]["acknowledged"], 60, "{flags:?}: {run}");
        assert_eq!(run["watches"]["reconnects"], 0, "{flags:?}: {run}");
        // The API server's metrics report its memory.
        let needed = run["server"]["resident_bytes_peak"].as_u64();
        assert!(needed > Some(1 << 20), "{flags:?}: {run}");
        let namespace = run["settings"]["namespace"].as_str().expect("a namespace");
        let resource = run["settings"]["resource"].as_str().expect("a resource");
        let group = match resource {
            "leases" => "apis/coordination.k8s.io",
            _ => "api",
        };
        let path = format!("/{group}/v1/namespaces/{namespace}/{resource}");
        let left = server.client().get(&path).await.ok().json();
        let items = left["items"].as_array().map(Vec::len);
        let ours = left.to_string().contains("kubefan-load/run");
        assert!(!ours, "{items:?} left: {left}");
        // No controller removes the namespace's finalizer here, so the namespace stays in deletion.
        let path = format!("/api/v1/namespaces/{namespace}");
        let namespace = server.client().get(&path).await.json();
        assert!(
            namespace["metadata"]["deletionTimestamp"].is_string(),
            "{namespace}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn kubefan_is_compared_with_the_api_server() {
    let server = shared();
    let kubefan = Kubefan::start(server, &[]).await;
    let config = server.kubeconfig("admin").display().to_string();
    let places = ["--server", kubefan.url(), "--write-kubeconfig", &config];
    let compared = ["--compare-kubeconfig", &config];
    for format in ["json", "protobuf"] {
        let flags = [&places[..], &compared, &COMMON, &["--format", format]].concat();
        let loaded = LoadTest::start(&flags).wait_for_exit();
        let run = loaded.only_clean_run();
        let reason = run["server_unknown"].as_str().unwrap_or_default();
        assert!(reason.contains("give --metrics-url"), "{run}");
        assert_ne!(run["settings"]["server"], run["settings"]["write_server"]);
        assert_eq!(loaded.report["runs"].as_array().map(Vec::len), Some(2));
        assert!(
            loaded.report["ratios"]["events_per_second"].is_f64(),
            "{loaded:?}"
        );
    }
}
