//! `kubefan top` in front of a real kubefan: its tables, its JSON, its credentials, and its screen.

use std::fs;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use super::admin::account;
use crate::support::clients::frames::Format;
use crate::support::poll::eventually;
use crate::support::programs::apiserver::{ADMIN, shared};
use crate::support::programs::kubefan::{Kubefan, binary, run};
use crate::support::programs::process::Process;

const LIMIT: Duration = Duration::from_secs(20);
const NAMESPACES: &str = "/api/v1/namespaces?watch=true&resourceVersion=0";
/// What a terminal gets when a program takes and leaves its second screen.
const ENTER_SCREEN: &str = "\u{1b}[?1049h";
const LEAVE_SCREEN: &str = "\u{1b}[?1049l";

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn tables_and_json_show_caches_and_clients() {
    let kubefan = Kubefan::start(shared(), &["--resource", "namespaces"]).await;
    let client = kubefan.client().with("user-agent", "watcher/v1");
    let watch = client.watch(NAMESPACES, Format::Json).await;
    let watch = watch.expect("a watch");
    let url = ["--admin-url", kubefan.admin_url()];

    // Without a terminal, --once is the default.
    for arguments in [&["top", "--once"][..], &["top"]] {
        let ended = run(&[arguments, &url].concat());
        assert_eq!(ended.code, Some(0), "{ended:?}");
        let mut lines = ended.stdout.lines();
        let first = format!(
            "kubefan {}  {}  the API server responds  ",
            env!("CARGO_PKG_VERSION"),
            kubefan.admin_url()
        );
        let is_summary = |line: &str| line.starts_with(&first) && line.ends_with(" caches live");
        assert!(lines.next().is_some_and(is_summary), "{}", ended.stdout);
        let has_row = |start: &str, word: &str| {
            let mut lines = ended.stdout.lines();
            lines.any(|line| line.starts_with(start) && line.contains(word))
        };
        assert!(has_row("memory ", " from caches"), "{}", ended.stdout);
        assert!(has_row("RESOURCE ", " OBJECTS "), "{}", ended.stdout);
        assert!(has_row("namespaces ", " live "), "{}", ended.stdout);
        assert!(has_row("127.0.0.1:", " watcher/v1 "), "{}", ended.stdout);
        assert!(has_row("ADVICE ", ""), "{}", ended.stdout);
    }

    let ended = run(&[&["top", "--once", "--json"][..], &url].concat());
    assert_eq!((ended.code, ended.stdout.lines().count()), (Some(0), 1));
    has_the_namespaces(&ended.stdout);
    drop(watch);
}

/// Checks that a line of JSON shows the cache of the namespaces.
fn has_the_namespaces(line: &str) {
    let json: Value = serde_json::from_str(line).expect("JSON");
    let caches = json["caches"]["items"].as_array().expect("caches");
    let mut names = caches.iter().map(|cache| &cache["cache"]["resource"]);
    assert!(names.any(|name| name == "namespaces"), "{line}");
    assert!(json["users"]["items"].is_array(), "{line}");
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn json_is_a_line_for_each_snapshot() {
    let kubefan = Kubefan::start(shared(), &["--resource", "namespaces"]).await;
    let mut command = Command::new(binary());
    command.args(["top", "--json", "--admin-url", kubefan.admin_url()]);
    command.stdout(Stdio::piped());
    let mut process = Process::start(&mut command, None);
    let stdout = process.child().stdout.take().expect("it is piped");
    let mut lines = BufReader::new(stdout).lines();
    let mut time = || {
        let line = lines.next().expect("a line").expect("UTF-8");
        has_the_namespaces(&line);
        let json: Value = serde_json::from_str(&line).expect("JSON");
        json["time"].as_str().expect("a time").to_owned()
    };
    let (first, second) = (time(), time());
    assert!(first < second, "{first} {second}");
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn credentials_are_sent_to_a_kubefan_whose_certificate_is_right() {
    let server = shared();
    let namespace = server.namespace("top").await;
    let stranger = account(server, &namespace, "stranger", &[]).await;
    let flags = ["--tls-self-signed", "--admin-listen", "0.0.0.0:0"];
    let kubefan = Kubefan::start(server, &flags).await;
    let file = |name: &str, text: &str| {
        let path = kubefan.file(name);
        fs::write(&path, text).expect("a file");
        path.display().to_string()
    };
    let url = kubefan.admin_url().replace("0.0.0.0", "127.0.0.1");
    let plain = url
        .replace("https:", "http:")
        .replace("127.0.0.1", "kubefan.example");
    let authority = file("authority", &kubefan.authority().expect("it serves TLS"));
    let authority = ["--certificate-authority", &authority];
    let kubeconfig = server.kubeconfig("admin").display().to_string();
    let kubeconfig = ["--kubeconfig", &kubeconfig];
    let (token, other) = (file("token", ADMIN), file("stranger", &stranger));
    let (token, other) = (["--token-file", &token], ["--token-file", &other]);
    let unverified = ["--insecure-skip-tls-verify"];
    let none: [&str; 0] = [];
    for (url, trust, credentials, code, expected) in [
        (&url, &authority[..], &kubeconfig[..], 0, "CACHES"),
        (&url, &authority, &token, 0, "CACHES"),
        (&url, &unverified, &token, 0, "CACHES"),
        (&url, &authority, &other, 1, "kubefan answered 403"),
        // The kubeconfig has the authority of the API server.
        (&url, &none, &kubeconfig, 1, "--certificate-authority"),
        (&url, &authority, &none, 1, "no kubeconfig"),
        (&plain, &none, &token, 64, "plain HTTP to another machine"),
    ] {
        let arguments = [
            &["top", "--once", "--admin-url", url][..],
            trust,
            credentials,
        ]
        .concat();
        let ended = run(&arguments);
        assert_eq!(ended.code, Some(code), "{arguments:?}: {ended:?}");
        let output = format!("{}{}", ended.stdout, ended.stderr);
        assert!(output.contains(expected), "{arguments:?}: {output}");
        assert!(!output.contains(ADMIN), "{arguments:?}: {output}");
    }
}

#[test]
fn a_kubefan_that_is_not_there_is_one_line() {
    for format in [&["--once"][..], &["--once", "--json"], &["--json"]] {
        let url = ["top", "--admin-url", "http://127.0.0.1:1"];
        let ended = run(&[&url[..], format].concat());
        assert_eq!(
            (ended.code, ended.stdout.as_str()),
            (Some(1), ""),
            "{ended:?}"
        );
        let is_one_line = ended.stderr.lines().count() == 1;
        assert!(
            is_one_line && ended.stderr.contains("cannot reach kubefan"),
            "{ended:?}"
        );
    }
}

/// In a terminal: keys and a signal end it, and the terminal is as before.
#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn the_screen_takes_keys_and_gives_the_terminal_back() {
    let kubefan = Kubefan::start(shared(), &["--resource", "namespaces"]).await;
    for ends_by_key in [true, false] {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let directory = directory.path();
        let shell = format!(
            "stty cols 80 rows 24; echo $$ > pid; exec {} top --admin-url {}",
            Path::new(&binary()).display(),
            kubefan.admin_url()
        );
        let mut command = Command::new("script");
        command.args([
            "--quiet",
            "--return",
            "--flush",
            "--command",
            &shell,
            "/dev/null",
        ]);
        command.current_dir(directory).env("TERM", "xterm-256color");
        command.stdin(Stdio::piped());
        command.stdout(File::create(directory.join("stdout")).expect("a file"));
        let mut process = Process::start(&mut command, Some(directory));
        let mut keys = process.child().stdin.take().expect("it is piped");
        let printed = || fs::read_to_string(directory.join("stdout")).unwrap_or_default();
        let shows = async |text: &str| {
            eventually(text, LIMIT, async || {
                let printed = printed();
                printed.contains(text).then_some(()).ok_or(printed)
            })
            .await;
        };
        shows(ENTER_SCREEN).await;
        shows("namespaces").await;
        keys.write_all(b"2").expect("a key");
        shows("[2 clients").await;
        if ends_by_key {
            keys.write_all(b"q").expect("a key");
        } else {
            let pid = fs::read_to_string(directory.join("pid")).expect("a pid");
            let sent = Command::new("kill")
                .args(["-s", "TERM", pid.trim()])
                .status();
            assert!(sent.is_ok_and(|status| status.success()));
        }
        let status = process.wait(LIMIT).expect("it ends");
        assert_eq!(status.code(), Some(0), "{}", printed());
        let printed = printed();
        let (_, after) = printed
            .rsplit_once(LEAVE_SCREEN)
            .expect("it leaves the screen");
        assert!(!after.contains("namespaces"), "{printed}");
    }
}
