//! Runs `kubefan config`, and `kubefan serve --config`, with the built binary.

use std::fs;
use std::path::Path;

use serde_json::json;

use crate::readme;
use crate::repository::root;
use crate::support::outcomes::request_count;
use crate::support::programs::apiserver::{ADMIN, ApiServer, shared};
use crate::support::programs::certificates::Authority;
use crate::support::programs::kubeconfig;
use crate::support::programs::kubeconfig::User;
use crate::support::programs::kubectl::Kubectl;
use crate::support::programs::kubefan::{ExitedProgram, Kubefan, run};

const USAGE: i32 = 64;

#[test]
fn the_documents_commands_work_on_the_samples() {
    let commands = readme::commands();
    let ours: Vec<_> = commands
        .iter()
        .filter_map(|command| command.strip_prefix("kubefan config "))
        .collect();
    assert!(
        !ours.is_empty(),
        "the documents show no `kubefan config` command"
    );
    for command in ours {
        let sample = |word: &str| match word.starts_with("config/") {
            true => root().join(word).display().to_string(),
            false => word.to_owned(),
        };
        let words: Vec<_> = command.split_whitespace().map(sample).collect();
        let arguments = ["config"]
            .into_iter()
            .chain(words.iter().map(String::as_str));
        let ended = run(&arguments.collect::<Vec<_>>());
        assert_eq!(ended.code, Some(0), "{command}: {}", ended.stderr);
        assert!(
            !ended.stdout.is_empty() && ended.stderr.is_empty(),
            "{command}"
        );
    }
}

#[test]
fn serve_and_check_report_all_problems_and_show_prints_nothing() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("kubefan.yaml");
    let text = "lisen: {}\nadmin:\n  address: nowhere\n  address: 127.0.0.1:0\n";
    fs::write(&path, text).expect("a written file");
    let path = path.to_str().expect("UTF-8");
    for arguments in [
        &["config", "check", path][..],
        &["config", "show", "--config", path],
        &["serve", "--config", path],
    ] {
        let ExitedProgram {
            code,
            stdout,
            stderr,
        } = run(arguments);
        assert_eq!(code, Some(USAGE), "{arguments:?}: {stderr}");
        assert_eq!(stdout, "", "{arguments:?}");
        for place in [
            ":1:1: lisen:",
            ":3:12: admin.address:",
            ":4:3: admin.address:",
        ] {
            let line = format!("{path}{place}");
            let is_reported = stderr.lines().any(|reported| reported.starts_with(&line));
            assert!(is_reported, "{line} is not in {stderr}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn resources_named_in_the_file_are_cached_from_the_start() {
    let server = shared();
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("kubefan.yaml");
    fs::write(
        &path,
        "cache:\n  resources: [configmaps]\nlog: {format: json}\n",
    )
    .expect("a file");
    let path = path.to_str().expect("UTF-8");
    let flags = ["--config", path, "--freshness", "podz=any"];
    let kubefan = Kubefan::start(server, &flags).await;
    let metrics = kubefan.metrics().await;
    assert!(metrics.contains("resource=\"configmaps\""), "{metrics}");
    let log = kubefan.log();
    assert!(log.starts_with('{'), "{log}");
    let mut lines = log.lines();
    let is_warned = lines.any(|line| line.contains("\"podz\"") && line.contains("\"pods\""));
    assert!(is_warned, "{log}");
}

/// Checks that kubectl sees equal services through a kubefan with each sample and directly.
#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn the_samples_serve() {
    let server = shared();
    let certificates = tempfile::tempdir().expect("a temporary directory");
    let file = |name: &str, text: &str| {
        let path = certificates.path().join(name);
        fs::write(&path, text).expect("a written file");
        path.to_str().expect("UTF-8").to_owned()
    };
    let authority = Authority::new();
    let served = authority.server();
    let (certificate, key) = (
        file("tls.crt", &served.certificate),
        file("tls.key", &served.key),
    );
    let namespace = server.namespace("samples").await;
    let service = json!({ "metadata": { "name": "web" }, "spec": { "ports": [{ "port": 80 }] } });
    let path = format!("/api/v1/namespaces/{namespace}/services");
    server.client().create(&path, &service).await.ok();
    let direct = server.kubeconfig("admin");
    assert_eq!(services(server, &direct, &namespace).await, "service/web\n");
    for name in ["kubefan", "sidecar", "node", "central"] {
        let sample = root().join(format!("config/{name}.yaml"));
        let sample = sample.to_str().expect("UTF-8");
        let mut flags = vec!["--config", sample];
        flags.extend(["--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"]);
        if name == "central" {
            flags.extend(["--tls-cert-file", &certificate]);
            flags.extend(["--tls-private-key-file", &key]);
        }
        let environment = [("NODE_NAME", "sample-node")];
        let kubeconfig = server.kubeconfig("admin");
        let kubefan = Kubefan::start_with_environment(&kubeconfig, &flags, &environment).await;
        let client = kubefan.file("client");
        let url = kubefan.url();
        match name {
            "central" => {
                let user = User::Token(ADMIN);
                kubeconfig::write(&client, url, Some(&authority.certificate), &user);
            }
            _ => kubeconfig::write(&client, url, None, &User::Anonymous),
        }
        let through = services(server, &client, &namespace).await;
        assert_eq!(through, "service/web\n", "{name}");
        let metrics = kubefan.metrics().await;
        assert!(
            request_count(&metrics, "cache", "list") > 0.0,
            "{name}: {metrics}"
        );
    }
}

/// Returns the names of the services in a namespace, as kubectl prints them.
async fn services(server: &ApiServer, kubeconfig: &Path, namespace: &str) -> String {
    let kubectl = Kubectl::new(server.assets(), kubeconfig, namespace);
    let arguments = ["get", "services", "-o", "name"].map(str::to_owned);
    let output = kubectl.run(&arguments).await;
    assert_eq!(output.code, Some(0), "{output:?}");
    output.stdout
}
