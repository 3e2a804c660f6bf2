//! Invalid flags, files and requests: kubefan reports each in one line with the documented exit
//! code, and requests with garbage do not harm it.

use std::fs;
use std::net::TcpListener;

use crate::support::programs::apiserver::{free_port, shared};
use crate::support::programs::certificates::Authority;
use crate::support::programs::kubeconfig;
use crate::support::programs::kubeconfig::User;
use crate::support::programs::kubefan::{ExitedProgram, Kubefan, run};

const USAGE: i32 = 64;
const FAILURE: i32 = 1;

fn refused(arguments: &[&str], code: i32, words: &[&str]) {
    let ExitedProgram {
        code: got,
        stdout,
        stderr,
    } = run(arguments);
    assert_eq!(got, Some(code), "{arguments:?}: {stderr}");
    assert_eq!(stdout, "", "{arguments:?}");
    assert!(!stderr.contains("panicked"), "{stderr}");
    for word in words {
        assert!(
            stderr.contains(word),
            "{arguments:?} should print {word:?}, but printed {stderr}"
        );
    }
    let output = stderr
        .lines()
        .filter(|line| !line.contains(" INFO ") && !line.contains(" WARN "));
    let faults: Vec<&str> = output
        .filter(|line| !line.starts_with("see kubefan "))
        .collect();
    assert_eq!(
        faults.len(),
        1,
        "{arguments:?} should print one line, but printed {stderr}"
    );
}

#[test]
fn an_invalid_command_line_is_a_usage_error() {
    for (arguments, words) in [
        (
            &["serve", "--listen", "0.0.0.0:8001"][..],
            &["--listen", "not loopback", "not loopback: with --auth none"][..],
        ),
        (
            &["serve", "--listen", "nowhere"],
            &["--listen", "ADDRESS:PORT"],
        ),
        (
            &["serve", "--admin-listen", "127.0.0.1:x"],
            &["--admin-listen"],
        ),
        (
            &["serve", "--admin-listen", "0.0.0.0:8002"],
            &["--admin-listen", "not loopback", "--admin-tls-self-signed"],
        ),
        (
            &["serve", "--all", "--resource", "pods"],
            &["--all", "--resource"],
        ),
        (
            &["serve", "--tls-cert-file", "x"],
            &["--tls-private-key-file"],
        ),
    ] {
        refused(arguments, USAGE, words);
    }
    for arguments in [
        &["serve", "--nosuch"][..],
        &["nosuch"],
        &["serve", "--idle-timeout", "soon"],
    ] {
        let ended = run(arguments);
        assert_eq!(ended.code, Some(USAGE), "{arguments:?}: {}", ended.stderr);
        assert!(
            ended.stderr.starts_with("error: "),
            "{arguments:?}: {}",
            ended.stderr
        );
    }
    let help = run(&["--help"]);
    assert_eq!((help.code, help.stderr.as_str()), (Some(0), ""));
}

#[test]
fn an_unusable_kubeconfig_is_reported() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = |name: &str| directory.path().join(name).display().to_string();
    let nobody_there = format!("127.0.0.1:{}", free_port());
    let write =
        |name: &str, text: &str| fs::write(directory.path().join(name), text).expect("a file");
    write("malformed", "clusters: [");
    write("empty", "");
    write("wrong", "apiVersion: v1\nkind: Config\nclusters: none\n");
    let server = format!("http://{nobody_there}");
    kubeconfig::write(
        &directory.path().join("unreachable"),
        &server,
        None,
        &User::Anonymous,
    );

    let serve = |name: &str, more: &[&str], words: &[&str]| {
        let file = path(name);
        let mut arguments = vec!["serve", "--kubeconfig", &file, "--listen", "127.0.0.1:0"];
        arguments.extend(["--admin-listen", "127.0.0.1:0"]);
        arguments.extend(more);
        refused(&arguments, FAILURE, words);
    };
    serve("missing", &[], &["missing"]);
    serve("malformed", &[], &["malformed"]);
    serve("empty", &[], &["empty"]);
    serve("wrong", &[], &["wrong"]);
    serve("unreachable", &["--context", "nosuch"], &["nosuch"]);
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn unusable_serve_settings_are_reported() {
    let server = shared();
    let directory = tempfile::tempdir().expect("a temporary directory");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let held = listener.local_addr().expect("an address").to_string();
    let free = "127.0.0.1:0";
    let admin = server.kubeconfig("admin").display().to_string();
    let serve = |listen: &str, admin_listen: &str, more: &[&str], word: &str| {
        let base = ["serve", "--kubeconfig", &admin];
        let addresses = ["--listen", listen, "--admin-listen", admin_listen];
        refused(&[&base[..], &addresses, more].concat(), FAILURE, &[word]);
    };
    serve(&held, free, &[], &held);
    serve(free, &held, &[], &held);
    serve(free, free, &["--resource", "nosuch"], "nosuch");
    serve(
        free,
        free,
        &["--resource", "pods,nosuch.example.com"],
        "nosuch.example.com",
    );

    let stranger = Authority::new();
    let config = directory.path().join("authority");
    let user = User::Token(crate::support::programs::apiserver::ADMIN);
    let authority = Some(stranger.certificate.as_str());
    kubeconfig::write(&config, &server.url(), authority, &user);
    let config = config.display().to_string();
    let base = ["serve", "--kubeconfig", &config];
    let addresses = ["--listen", free, "--admin-listen", free];
    let words = [&server.url(), "issued by"];
    refused(&[&base[..], &addresses].concat(), FAILURE, &words);
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn garbage_requests_do_no_harm() {
    let server = shared();
    let kubefan = Kubefan::start(server, &[]).await;
    let client = kubefan.client();
    let path = "/api/v1/namespaces/default/configmaps";
    for query in [
        "labelSelector=%00",
        "labelSelector=%ff%fe",
        "fieldSelector=%ff",
        "labelSelector=((((((",
        "resourceVersion=-9223372036854775809",
        "resourceVersion=99999999999999999999999",
        "limit=99999999999999999999",
        "continue=%00",
        "watch=true&timeoutSeconds=99999999999999999999",
        "watch=true&resourceVersion=0x10",
        "%",
        "&&&==&",
    ] {
        let path = format!("{path}?{query}");
        let (through, direct) = (client.get(&path).await, server.client().get(&path).await);
        assert_eq!(
            through.status, direct.status,
            "{query}: {through} not {direct}"
        );
    }
    let long = format!("{path}?labelSelector={}", "a%2C".repeat(15_000));
    assert!(client.get(&long).await.status.is_client_error());
    client.get(path).await.ok();
}
