//! The official clients for Python and JavaScript read through kubefan with their own credentials.
//!
//! They are downloaded from the package registries, so this runs by hand:
//!
//! ```sh
//! python3 -m venv /tmp/clients && /tmp/clients/bin/pip install kubernetes
//! npm install --prefix /tmp/clients @kubernetes/client-node # with Node.js 20: @kubernetes/client-node@1
//! KUBEFAN_TEST_LANGUAGES=/tmp/clients cargo test --test it -- --ignored clients::languages
//! ```

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use std::{env, fs};

use serde_json::json;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;

use crate::repository::root;
use crate::support::outcomes::request_count;
use crate::support::poll::within;
use crate::support::programs::apiserver::{READER, shared};
use crate::support::programs::kubeconfig::User;
use crate::support::programs::kubefan::Kubefan;

const LIMIT: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread")]
#[ignore = "it needs downloaded clients"]
async fn python_and_javascript_read_with_their_own_credentials() {
    let server = shared();
    let installed = env::var_os("KUBEFAN_TEST_LANGUAGES").expect("the folder of the clients");
    let installed = PathBuf::from(installed);
    let directory = tempfile::tempdir().expect("a temporary directory");
    // Node.js looks for packages beside the program.
    symlink(
        installed.join("node_modules"),
        directory.path().join("node_modules"),
    )
    .expect("a link");
    let kubefan = Kubefan::start(server, &["--tls-self-signed"]).await;
    let certificate = server.certificate("reads-by-certificate", "system:masters");
    let mut watches = 0.0;
    for (interpreter, program) in [
        (installed.join("bin/python"), "list_and_watch.py"),
        (PathBuf::from("node"), "list_and_watch.mjs"),
    ] {
        let source = root().join("tests/upstream/languages").join(program);
        let program = directory.path().join(program);
        fs::copy(source, &program).expect("a copy");
        for user in [User::Token(READER), User::Certificate(&certificate)] {
            let namespace = server.namespace("languages").await;
            let verbs = ["list", "watch"];
            server
                .allow_reader(&namespace, &verbs, &["configmaps"])
                .await;
            let maps = format!("/api/v1/namespaces/{namespace}/configmaps");
            let create = async |name: &str| {
                let map = json!({ "metadata": { "name": name } });
                server.client().create(&maps, &map).await.ok();
            };
            create("first").await;
            let kubeconfig = kubefan.kubeconfig(&user);
            let lines = output(
                &interpreter,
                &program,
                &kubeconfig,
                &namespace,
                async || {
                    create("then").await;
                    create("last").await;
                },
            );
            let expected = ["listed 1", "then", "last"];
            assert_eq!(lines.await, expected, "{} {user:?}", program.display());
            watches += 1.0;
        }
    }
    let metrics = kubefan.metrics().await;
    for verb in ["list", "watch"] {
        assert_eq!(request_count(&metrics, "cache", verb), watches, "{metrics}");
    }
}

/// Returns the lines that the program prints. Runs `meanwhile` after the first line.
async fn output(
    interpreter: &Path,
    program: &Path,
    kubeconfig: &Path,
    namespace: &str,
    meanwhile: impl AsyncFnOnce(),
) -> Vec<String> {
    let mut child = Command::new(interpreter)
        .arg(program)
        .arg(kubeconfig)
        .arg(namespace)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("it starts");
    let mut stdout = BufReader::new(child.stdout.take().expect("piped")).lines();
    within("the client", LIMIT, async {
        let first = stdout.next_line().await.expect("text");
        let mut lines: Vec<String> = first.into_iter().collect();
        meanwhile().await;
        while let Some(line) = stdout.next_line().await.expect("text") {
            lines.push(line);
        }
        let ended = child.wait().await.expect("it ends");
        assert!(ended.success(), "{ended}: {lines:?}");
        lines
    })
    .await
}
