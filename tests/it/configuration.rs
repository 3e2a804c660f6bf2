//! Runs `kubefan config`, and `kubefan serve --config`, with the built binary.

use std::fs;

use crate::readme;
use crate::repository::root;
use crate::support::programs::apiserver::shared;
use crate::support::programs::kubefan::ExitedProgram;
use crate::support::programs::kubefan::Kubefan;
use crate::support::programs::kubefan::run;

const USAGE: i32 = 64;

#[test]
fn readme_commands_work_on_the_samples() {
    let commands = readme::commands();
    let ours: Vec<_> = commands
        .iter()
        .filter_map(|command| command.strip_prefix("kubefan config "))
        .collect();
    assert!(
        !ours.is_empty(),
        "README.md shows no `kubefan config` command"
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
async fn resources_named_in_the_file_are_cached_from_the_start() {
    let Some(server) = shared() else { return };
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("kubefan.yaml");
    fs::write(
        &path,
        "cache:\n  resources: [configmaps]\nlog: {format: json}\n",
    )
    .expect("a file");
    let path = path.to_str().expect("UTF-8");
    let kubefan = Kubefan::start(server, &["--config", path]).await;
    let metrics = kubefan.metrics().await;
    assert!(metrics.contains("resource=\"configmaps\""), "{metrics}");
    let log = kubefan.log();
    assert!(log.starts_with('{'), "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_samples_serve() {
    let Some(server) = shared() else { return };
    for name in ["config/kubefan.yaml", "config/sidecar.yaml"] {
        let sample = root().join(name);
        let sample = sample.to_str().expect("UTF-8");
        let kubefan = Kubefan::start(server, &["--config", sample]).await;
        let pods = kubefan.client().get("/api/v1/pods?resourceVersion=0").await;
        assert!(pods.status.is_success(), "{name}: {pods}");
    }
}
