//! Runs the commands of README.md and `docs` that need a cluster, in their order, with a shell.
//!
//! Only the environment is prepared: a home directory with a kubeconfig, a `PATH` with `kubefan`
//! and kubectl, and free ports. One of the commands builds the release binary, which takes minutes.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use std::{env, fs};

use serde_json::json;

use crate::readme;
use crate::repository::root;
use crate::support::poll::eventually;
use crate::support::programs::apiserver::{ApiServer, free_port, shared};
use crate::support::programs::process::Process;

/// The longest time until kubefan is ready, including a full build of the release binary.
const START: Duration = Duration::from_secs(20 * 60);

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn readme_is_followed() {
    let server = shared();
    let pod = json!({
        "metadata": { "name": "readme" },
        "spec": { "containers": [{ "name": "main", "image": "example.com/none" }] },
    });
    let pods = "/api/v1/namespaces/default/pods";
    server.client().create(pods, &pod).await.ok();
    let reader = Reader::new(server);
    let commands = readme::commands_run_by(readme::README_COMMANDS);
    let (serve, others) = commands.split_first().expect("README.md has commands");
    let mut serving = reader.starts(serve);
    reader.waits_for_readiness(&mut serving).await;
    for command in others {
        match *command {
            watch if watch.ends_with("--watch") => {
                let (header, pod) = reader.sees_two_lines_of(watch);
                assert!(
                    header.starts_with("NAME") && pod.starts_with("readme"),
                    "{header}{pod}"
                );
            }
            command => {
                let output = reader.sees(command);
                assert_eq!(
                    output.is_empty(),
                    command.contains('>'),
                    "{command}: {output:?}"
                );
            }
        }
    }
    assert!(serving.stop().success());
}

/// The environment of a reader of README.md: a home directory, a `PATH`, and kubefan's addresses.
struct Reader {
    home: tempfile::TempDir,
    path: String,
    listen: String,
    admin: String,
}

impl Reader {
    fn new(server: &ApiServer) -> Self {
        let home = tempfile::tempdir().expect("a temporary directory");
        fs::create_dir(home.path().join(".kube")).expect("a directory");
        let config = home.path().join(".kube/config");
        fs::copy(server.kubeconfig("admin"), config).expect("a copy");
        // The commands after the first run in the home directory, where `config` links to the
        // checkout's samples.
        symlink(root().join("config"), home.path().join("config")).expect("a link");
        let kubectl = server.assets().kubectl();
        let kubectl = kubectl.parent().expect("kubectl is in a directory");
        let built = target_directory().join("release");
        let path = env::var("PATH").unwrap_or_default();
        Self {
            home,
            path: format!("{}:{}:{path}", built.display(), kubectl.display()),
            listen: format!("127.0.0.1:{}", free_port()),
            admin: format!("127.0.0.1:{}", free_port()),
        }
    }

    fn shell(&self, command: &str, directory: &Path) -> Command {
        let command = command.replace("127.0.0.1:8002", &self.admin);
        let own = |name: &str, folder: &str| match env::var_os(name) {
            Some(set) => PathBuf::from(set),
            None => PathBuf::from(env::var_os("HOME").unwrap_or_default()).join(folder),
        };
        let mut shell = Command::new("sh");
        shell
            .args(["-c", &format!("exec {command}")])
            .current_dir(directory)
            .stdin(Stdio::null())
            .env("CARGO_HOME", own("CARGO_HOME", ".cargo"))
            .env("RUSTUP_HOME", own("RUSTUP_HOME", ".rustup"))
            .env("HOME", self.home.path())
            .env("PATH", &self.path)
            .env("KUBEFAN_LISTEN", &self.listen)
            .env("KUBEFAN_ADMIN_LISTEN", &self.admin)
            .env_remove("KUBECONFIG");
        // The build script reads them, so the program would be built once more.
        for name in [
            "KUBEBUILDER_ASSETS",
            "KUBEFAN_TEST_ASSETS",
            "KUBEFAN_DEPLOY_TOOLS",
        ] {
            shell.env_remove(name);
        }
        shell
    }

    fn starts(&self, command: &str) -> Process {
        Process::start(&mut self.shell(command, root()), Some(self.home.path()))
    }

    async fn waits_for_readiness(&self, serving: &mut Process) {
        let probe = "curl -sf http://127.0.0.1:8002/readyz";
        eventually("README's first command", START, async || {
            let ended = serving.child().try_wait().expect("a child");
            assert!(ended.is_none(), "kubefan ended: {ended:?}");
            let output = self.shell(probe, self.home.path()).output().expect("curl");
            output.status.success().then_some(()).ok_or("not ready")
        })
        .await;
    }

    fn sees(&self, command: &str) -> String {
        let output = self.shell(command, self.home.path()).output().expect("sh");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{command}: {stderr}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn sees_two_lines_of(&self, command: &str) -> (String, String) {
        let mut shell = self.shell(command, self.home.path());
        let mut child = shell.stdout(Stdio::piped()).spawn().expect("sh");
        let mut lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
        let mut line = || lines.next().expect("a line").expect("UTF-8");
        let seen = (line(), line());
        child.kill().expect("a running child");
        child.wait().expect("a child");
        seen
    }
}

fn target_directory() -> PathBuf {
    let kubefan = Path::new(env!("CARGO_BIN_EXE_kubefan"));
    let profile = kubefan.parent().and_then(Path::parent);
    profile.expect("the binary is in target/PROFILE").to_owned()
}
