//! Runs the products, each with its ordinary configuration.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use kubefan_tools::workload::ObjectPath;
use serde_json::json;
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

use super::scene::NAMESPACE;
use crate::support::programs::apiserver::free_port;
use crate::support::programs::assets::Assets;
use crate::support::programs::informers::Informers;
use crate::support::programs::kubectl::Kubectl;
use crate::support::programs::kubefan::start_in;
use crate::support::programs::process::Process;

/// The pauses of a person between two commands of kubectl, and between two keys of k9s.
const BETWEEN_COMMANDS: Duration = Duration::from_millis(500);
const BETWEEN_KEYS: Duration = Duration::from_secs(4);

/// A product, under the name that the table has.
#[derive(Clone, Copy, Debug)]
pub(super) struct Product {
    pub(super) name: &'static str,
    way: Way,
}

/// How a product is run.
#[derive(Clone, Copy, Debug)]
enum Way {
    /// A program of the products' directory runs with these arguments. `{kubeconfig}` is the file
    /// with kubefan's address, and `{port}` a free port.
    Program(&'static [&'static str]),
    /// A person types commands.
    Kubectl,
    /// A person walks through the views.
    K9s,
    /// A controller of `tests/upstream`.
    Manager,
    /// It applies a repository with two manifests every 20 s.
    GitOps,
}

const fn product(name: &'static str, way: Way) -> Product {
    Product { name, way }
}

pub(super) const PRODUCTS: [Product; 9] = [
    product("kubectl", Way::Kubectl),
    product("k9s", Way::K9s),
    product("controller-runtime", Way::Manager),
    product(
        "kube-state-metrics",
        Way::Program(&[
            "--kubeconfig={kubeconfig}",
            "--host=127.0.0.1",
            "--port={port}",
            "--telemetry-host=127.0.0.1",
            "--telemetry-port={port}",
        ]),
    ),
    product("prometheus", Way::Program(&["--kubeconfig={kubeconfig}"])),
    product(
        "k8sattributes",
        Way::Program(&["--kubeconfig={kubeconfig}"]),
    ),
    product(
        "external-dns",
        Way::Program(&[
            "--kubeconfig={kubeconfig}",
            "--source=service",
            "--source=ingress",
            "--provider=inmemory",
            "--inmemory-zone=example.org",
            "--metrics-address=127.0.0.1:{port}",
        ]),
    ),
    product("cert-manager", Way::Program(&["--kubeconfig={kubeconfig}"])),
    product("gitops-engine", Way::GitOps),
];

/// What a person does with kubectl in one namespace, with the names of objects there.
const COMMANDS: [&str; 26] = [
    "get pods",
    "get pods -A",
    "get pods -o wide",
    "get deployments -A",
    "get services -A",
    "get nodes",
    "get nodes -o wide",
    "get events",
    "get pod {pod}",
    "get pod {pod} -o yaml",
    "describe pod {pod}",
    "describe deployment {deployment}",
    "describe node {node}",
    "get pods -o json",
    "get configmaps -o name",
    "get deployment {deployment} -o jsonpath={.spec.replicas}",
    "get all",
    "get pods -A --field-selector=status.phase=Running",
    "get certificates -A",
    "get ingress -A",
    "wait pod/{pod} --for=jsonpath={.metadata.name}={pod} --timeout=9s",
    "label pod {pod} --overwrite round=1",
    "scale deployment {deployment} --replicas=3",
    "api-resources",
    "explain pods.spec",
    "auth can-i list pods",
];

/// What a person types in k9s: describes a pod, shows its YAML, and goes from view to view.
const KEYS: [&str; 15] = [
    "d",
    "\x1b",
    "y",
    "\x1b",
    ":deploy\r",
    ":svc\r",
    ":node\r",
    ":events\r",
    ":ns\r",
    ":ing\r",
    ":certificates\r",
    ":cm\r",
    ":pulse\r",
    ":xray deploy\r",
    ":pods\r",
];

/// Where a product runs: behind a kubefan, with the programs and the objects of the API server.
pub(super) struct Place<'a> {
    pub(super) folder: &'a Path,
    pub(super) assets: &'a Assets,
    pub(super) kubeconfig: PathBuf,
    pub(super) objects: &'a [ObjectPath],
    pub(super) time: Duration,
}

impl Place<'_> {
    /// Runs a product for the time.
    ///
    /// # Panics
    /// Panics if the product ends earlier, or if a command of kubectl fails.
    pub(super) async fn run(&self, product: Product) {
        match product.way {
            Way::Program(arguments) => self.program(product.name, arguments).await,
            Way::Kubectl => self.kubectl().await,
            Way::K9s => self.k9s().await,
            Way::Manager => {
                let kubeconfig = &self.kubeconfig;
                let mut manager =
                    Informers::start_manager(self.assets, kubeconfig, NAMESPACE).await;
                sleep(self.time).await;
                let report = manager.send_command("report").await;
                assert_eq!(report["errors"], json!({}), "{report}");
            }
            Way::GitOps => {
                let repository = repository();
                let path = repository.path().display().to_string();
                let namespace = format!("--default-namespace={NAMESPACE}");
                let arguments = [
                    path.as_str(),
                    "--kubeconfig={kubeconfig}",
                    &namespace,
                    "--resync-seconds=20",
                    "--port={port}",
                ];
                self.program(product.name, &arguments).await;
            }
        }
    }

    async fn program(&self, name: &str, arguments: &[&str]) {
        let directory = directory();
        let kubeconfig = self.kubeconfig.display().to_string();
        let mut command = Command::new(self.folder.join(name));
        for argument in arguments {
            let argument = argument.replace("{kubeconfig}", &kubeconfig);
            command.arg(argument.replace("{port}", &free_port().to_string()));
        }
        let mut process = start_in(&mut command, directory.path());
        sleep(self.time).await;
        end(&mut process, name, directory.path());
    }

    async fn kubectl(&self) {
        let pod = self.object("pods", None);
        let namespace = pod.namespace.as_deref();
        let deployment = &self.object("deployments", namespace).name;
        let node = &self.object("nodes", None).name;
        let kubectl = Kubectl::new(self.assets, &self.kubeconfig, namespace.unwrap_or_default());
        // It ends when it is dropped.
        let _watch = kubectl.start(&["get", "pods", "--watch"].map(str::to_owned));
        let started = Instant::now();
        for command in COMMANDS.iter().cycle() {
            if started.elapsed() >= self.time {
                break;
            }
            let command = command
                .replace("{pod}", &pod.name)
                .replace("{deployment}", deployment)
                .replace("{node}", node);
            let arguments: Vec<_> = command.split(' ').map(str::to_owned).collect();
            let output = kubectl.run(&arguments).await;
            assert_eq!(output.code, Some(0), "{command}: {}", output.stderr);
            sleep(BETWEEN_COMMANDS).await;
        }
    }

    /// Returns the first object of a resource that is in the namespace, if one is given, and not
    /// in one of the cluster itself.
    fn object(&self, resource: &str, namespace: Option<&str>) -> &ObjectPath {
        let found = self.objects.iter().find(|path| {
            let own = path.namespace.as_deref();
            path.resource == resource
                && own != Some("kube-system")
                && (namespace.is_none() || own == namespace)
        });
        found.unwrap_or_else(|| panic!("there are no {resource} in {namespace:?}"))
    }

    async fn k9s(&self) {
        let directory = directory();
        let program = self.folder.join("k9s");
        let kubeconfig = self.kubeconfig.display();
        let line = format!(
            "stty rows 50 cols 200; exec {} --kubeconfig {kubeconfig} --all-namespaces",
            program.display()
        );
        let file = |name| File::create(directory.path().join(name)).expect("a file can be made");
        let mut command = Command::new("script");
        command
            .args(["-qfec", &line, "/dev/null"])
            .env("HOME", directory.path())
            .env("TERM", "xterm-256color")
            .stdin(Stdio::piped())
            .stdout(file("stdout"))
            .stderr(file("stderr"));
        let mut process = Process::start(&mut command, Some(directory.path()));
        let mut keyboard = process.child().stdin.take().expect("piped");
        let started = Instant::now();
        for keys in KEYS {
            sleep(BETWEEN_KEYS).await;
            if started.elapsed() >= self.time {
                break;
            }
            keyboard.write_all(keys.as_bytes()).expect("k9s reads keys");
        }
        sleep(self.time.saturating_sub(started.elapsed())).await;
        end(&mut process, "k9s", directory.path());
    }
}

fn directory() -> TempDir {
    tempfile::tempdir().expect("a temporary directory")
}

/// Ends a product that must still run. The directory has its output.
fn end(process: &mut Process, name: &str, directory: &Path) {
    if let Some(status) = process.wait(Duration::ZERO) {
        let output = ["stdout", "stderr"]
            .map(|file| fs::read_to_string(directory.join(file)).unwrap_or_default());
        panic!("{name} ended with {status}: {}", output.concat());
    }
    process.stop();
}

/// Returns a Git repository with the manifests of a ConfigMap and a Deployment.
fn repository() -> TempDir {
    let directory = directory();
    let labels = json!({ "app": "applied" });
    let containers = json!([{ "name": "main", "image": "example.com/applied" }]);
    let manifests = [
        json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": { "name": "applied" }, "data": { "key": "value" },
        }),
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": { "name": "applied" },
            "spec": {
                "selector": { "matchLabels": labels },
                "template": { "metadata": { "labels": labels }, "spec": { "containers": containers } },
            },
        }),
    ];
    for (number, manifest) in manifests.iter().enumerate() {
        let file = directory.path().join(format!("{number}.json"));
        fs::write(file, manifest.to_string()).expect("a file can be written");
    }
    for arguments in [
        &["init", "--quiet"][..],
        &["add", "."],
        &[
            "-c",
            "user.name=test",
            "-c",
            "user.email=test@example.org",
            "commit",
            "--quiet",
            "--message=manifests",
        ],
    ] {
        let mut git = Command::new("git");
        let status = git.args(arguments).current_dir(directory.path()).status();
        let is_done = status.is_ok_and(|status| status.success());
        assert!(is_done, "git {arguments:?} failed");
    }
    directory
}
