//! The files in `deploy/` work as `deploy/README.md` describes: the API server accepts the
//! manifests, kubefan works with exactly the RBAC permissions that they grant, and the image and
//! the systemd unit are complete.

use std::collections::BTreeSet;
use std::fs;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::OnceCell;

use crate::repository::{document, read, root, rust_files};
use crate::support::clients::client::Client;
use crate::support::clients::connector::Connector;
use crate::support::clients::frames::{Event, Format, decode_list};
use crate::support::cluster::define_widgets;
use crate::support::poll::{eventually, within};
use crate::support::programs::apiserver::{ApiServer, shared};
use crate::support::programs::kubeconfig;
use crate::support::programs::kubeconfig::User;
use crate::support::programs::kubectl::Kubectl;
use crate::support::programs::kubefan::{Kubefan, admin_client};
use crate::support::programs::process::Process;

const NAMESPACE: &str = "kubefan-example";
const ACCOUNT: &str = "kube-state-metrics";
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const LIMIT: Duration = Duration::from_secs(20);
const SECRETS: &str = "/api/v1/secrets?resourceVersion=0";
const PODS: &str = "/api/v1/pods?resourceVersion=0";
const WIDGETS: &str = "/apis/example.kubefan.io/v1/widgets?resourceVersion=0";

// === parsed files ===

fn sidecar(name: &str) -> PathBuf {
    root().join("deploy/sidecar").join(name)
}

/// Parses the YAML documents of a file.
fn documents(path: &Path) -> Vec<Value> {
    let parse = |text: &str| {
        serde_saphyr::from_str(text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    };
    read(path).split("\n---\n").map(parse).collect()
}

fn deployment() -> Value {
    documents(&sidecar("deployment.yaml")).remove(0)
}

/// Returns the pod that the Deployment's template describes.
fn pod() -> Value {
    let template = &deployment()["spec"]["template"];
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "sidecar", "namespace": NAMESPACE, "labels": template["metadata"]["labels"],
        },
        "spec": template["spec"],
    })
}

/// Returns the container named `kubefan` of the pod.
fn container() -> Value {
    let pod = pod();
    let sidecars = pod["spec"]["initContainers"].as_array().expect("sidecars");
    let kubefan = sidecars.iter().find(|one| one["name"] == "kubefan");
    kubefan.expect("a container named kubefan").clone()
}

fn strings(list: &Value) -> Vec<String> {
    let items = list.as_array().into_iter().flatten();
    items
        .map(|item| item.as_str().expect("text").to_owned())
        .collect()
}

/// Returns the flags of the sidecar's container, with a free port for the admin listener.
fn flags() -> Vec<String> {
    let mut flags = strings(&container()["args"]);
    assert_eq!(flags.remove(0), "serve");
    let admin = flags.iter_mut().find(|flag| *flag == "0.0.0.0:8002");
    *admin.expect("an address that probes reach") = "0.0.0.0:0".to_owned();
    flags
}

/// Returns the (API group, resource, verb) of every permission in the example's ClusterRoles.
fn rights() -> BTreeSet<(String, String, String)> {
    let mut rights = BTreeSet::new();
    let roles = documents(&sidecar("rbac.yaml"));
    for role in roles.iter().filter(|one| one["kind"] == "ClusterRole") {
        for rule in role["rules"].as_array().expect("rules") {
            for group in strings(&rule["apiGroups"]) {
                for resource in strings(&rule["resources"]) {
                    for verb in strings(&rule["verbs"]) {
                        rights.insert((group.clone(), resource.clone(), verb));
                    }
                }
            }
        }
    }
    rights
}

/// Returns the instructions of the Dockerfile with their arguments, in order.
fn instructions() -> Vec<(String, String)> {
    let text = read(&root().join("deploy/Dockerfile"));
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    let joined = lines.join("\n").replace("\\\n", " ");
    let instruction = |line: &str| {
        let (name, rest) = line.split_once(' ').expect("an instruction");
        (name.to_owned(), rest.trim().to_owned())
    };
    let lines = joined.lines().filter(|line| !line.trim().is_empty());
    lines.map(instruction).collect()
}

fn all_of(name: &str) -> Vec<String> {
    let named = instructions().into_iter().filter(|(own, _)| own == name);
    named.map(|(_, rest)| rest).collect()
}

/// Returns the paths that the Dockerfile copies from the checkout.
fn copied() -> Vec<String> {
    let copies = all_of("COPY")
        .into_iter()
        .filter(|copy| !copy.starts_with("--"));
    let sources = copies.flat_map(|copy| {
        let words: Vec<String> = copy.split_whitespace().map(str::to_owned).collect();
        words[..words.len() - 1].to_vec()
    });
    sources.collect()
}

// === the image ===

#[test]
fn the_image_is_pinned_and_runs_unprivileged() {
    let stages = all_of("FROM");
    let toolchain = document("rust-toolchain.toml");
    let channel = toolchain.split('"').nth(1).expect("a channel");
    assert!(
        stages[0].starts_with(&format!("rust:{channel}-")),
        "{stages:?}, and rust-toolchain.toml says {channel}"
    );
    for stage in &stages {
        let image = stage.split_whitespace().next().expect("an image");
        let tag = image.rsplit_once(':').map(|(_, tag)| tag);
        assert!(tag.is_some_and(|tag| tag != "latest"), "{stage}: no tag");
    }
    let context = &container()["securityContext"];
    let user = format!("{}:{}", context["runAsUser"], context["runAsGroup"]);
    assert_eq!(all_of("USER"), [user.as_str()]);
    assert_eq!(user, "65532:65532");
    let port = container()["ports"][0]["containerPort"].to_string();
    assert_eq!(all_of("EXPOSE"), [port]);
    let installed = all_of("COPY").into_iter().find_map(|copy| {
        let binary = copy.strip_prefix("--from=build /kubefan ")?;
        Some(binary.to_owned())
    });
    let installed = installed.expect("the binary is taken from the build");
    assert_eq!(all_of("ENTRYPOINT"), [format!("[{installed:?}]")]);
}

#[test]
fn shipped_binaries_are_built_like_measured_ones() {
    let manifest = document("Cargo.toml");
    let settings = |profile: &str| -> BTreeSet<String> {
        let heading = format!("[profile.{profile}]\n");
        let (_, section) = manifest.split_once(&heading).expect("the profile");
        let lines = section.lines().take_while(|line| line.contains(" = "));
        lines.map(str::to_owned).collect()
    };
    let mut dist = settings("dist");
    assert!(dist.remove("inherits = \"release\""), "{dist:?}");
    assert_eq!(dist, settings("bench"), "dist (left) and bench");
    for place in [
        "deploy/Dockerfile",
        "deploy/README.md",
        "benches/side-by-side",
    ] {
        let text = document(place);
        for words in ["cargo build --profile dist", "target/dist/kubefan"] {
            assert!(text.contains(words), "{place}: {words}");
        }
        assert!(!text.contains("target/release"), "{place}");
    }
    // The tests of other packages turn on `test-support` in the crates that they share.
    let measures = document("benches/side-by-side");
    let builds = measures
        .lines()
        .filter(|line| line.contains("cargo test") || line.contains("cargo bench"));
    for line in builds {
        assert!(line.contains("--package kubefan-cli"), "{line}");
    }
}

#[test]
fn the_image_copies_whole_packages() {
    let copy = tempfile::tempdir().expect("a temporary directory");
    let allowed: Vec<String> = document(".dockerignore")
        .lines()
        .filter_map(|line| line.strip_prefix('!').map(str::to_owned))
        .collect();
    assert_eq!(
        copied().iter().collect::<BTreeSet<_>>(),
        allowed.iter().collect::<BTreeSet<_>>(),
        "COPY (left) and .dockerignore"
    );
    for source in copied() {
        let done = Command::new("cp")
            .arg("-R")
            .arg(root().join(&source))
            .arg(copy.path())
            .status();
        assert!(done.is_ok_and(|status| status.success()), "{source}");
    }
    // `cargo build` fails if the source of a target is missing; `cargo metadata` omits the target.
    assert_eq!(targets_in(copy.path()), targets_in(root()));
}

/// Returns the names and kinds of the targets of a workspace's packages. Checks that
/// libraries and binaries have sources.
fn targets_in(package: &Path) -> BTreeSet<(String, Vec<String>)> {
    let metadata = Command::new(env!("CARGO"))
        .args(["metadata", "--offline", "--no-deps", "--format-version=1"])
        .current_dir(package)
        .output()
        .expect("cargo runs");
    let output = String::from_utf8_lossy(&metadata.stderr);
    assert!(metadata.status.success(), "{output}");
    let metadata: Value = serde_json::from_slice(&metadata.stdout).expect("JSON");
    let packages = metadata["packages"].as_array().expect("packages");
    let targets = packages
        .iter()
        .filter_map(|package| package["targets"].as_array());
    let named = targets.flatten().map(|target| {
        let kind = strings(&target["kind"]);
        let path = target["src_path"].as_str().expect("a path");
        let is_built = kind.iter().any(|kind| kind == "lib" || kind == "bin");
        assert!(!is_built || Path::new(path).is_file(), "{path}");
        (target["name"].as_str().expect("a name").to_owned(), kind)
    });
    named.collect()
}

#[test]
fn sources_include_only_what_the_image_copies() {
    let copied: Vec<PathBuf> = copied().iter().map(|name| root().join(name)).collect();
    let mut seen = 0;
    for file in rust_files(&root().join("src")) {
        let text = read(&file);
        let mut parts = file.strip_prefix(root()).expect("below it").iter();
        let is_test =
            parts.any(|part| part == "tests" || part.to_string_lossy().ends_with("tests.rs"));
        let text = text.split("#[cfg(test)]").next().unwrap_or_default();
        seen += 1;
        for call in ["include_str!(\"", "include_bytes!(\""] {
            for rest in text.split(call).skip(1) {
                let name = rest.split('"').next().expect("a path");
                let folder = file.parent().expect("a folder");
                let included = folder.join(name).canonicalize().expect("a file");
                let is_copied = copied.iter().any(|copied| included.starts_with(copied));
                let at = file.display();
                assert!(is_test || is_copied, "{at} needs {name}: COPY it");
            }
        }
    }
    assert!(seen > 50, "only {seen} source files were found");
}

/// Extracts a file from a tar archive.
fn in_tar(archive: &Path, name: &str) -> Vec<u8> {
    let tar = Command::new("tar")
        .arg("-xOf")
        .arg(archive)
        .arg(name)
        .output();
    let tar = tar.expect("tar runs");
    assert!(tar.status.success(), "{name}: {tar:?}");
    tar.stdout
}

/// Assembles the image, with another program in the place of kubefan.
#[test]
fn the_assembled_image_is_that_of_the_dockerfile() {
    if Command::new("python3").arg("--version").output().is_err() {
        println!("no image is assembled, because there is no python3");
        return;
    }
    let directory = tempfile::tempdir().expect("a temporary directory");
    let [first, second] = ["first.tar", "second.tar"].map(|name| directory.path().join(name));
    for file in [&first, &second] {
        let assembled = Command::new("python3")
            .arg(root().join("deploy/image.py"))
            .args(["/bin/true", "kubefan:test"])
            .arg(file)
            .output()
            .expect("python3 runs");
        assert!(assembled.status.success(), "{assembled:?}");
    }
    let bytes = |file: &Path| fs::read(file).expect("the image");
    assert!(bytes(&first) == bytes(&second), "two builds differ");

    let json = |name: &str| -> Value { serde_json::from_slice(&in_tar(&first, name)).expect(name) };
    let image = &json("manifest.json")[0];
    let config = &json(image["Config"].as_str().expect("a path"))["config"];
    let of_the_file = |instruction: &str| -> Value {
        serde_json::from_str(&all_of(instruction)[0])
            .unwrap_or_else(|_| all_of(instruction)[0].as_str().into())
    };
    assert_eq!(config["User"], of_the_file("USER"));
    assert_eq!(config["Entrypoint"], of_the_file("ENTRYPOINT"));
    assert_eq!(config["Cmd"], of_the_file("CMD"));
    let port = format!("{}/tcp", all_of("EXPOSE")[0]);
    assert_eq!(config["ExposedPorts"], json!({ port: {} }));

    let layer = directory.path().join("layer.tar");
    fs::write(
        &layer,
        in_tar(&first, image["Layers"][0].as_str().expect("a path")),
    )
    .expect("a file");
    let program = config["Entrypoint"][0].as_str().expect("a path");
    assert_eq!(in_tar(&layer, &program[1..]), bytes(Path::new("/bin/true")));
    assert!(!in_tar(&layer, "etc/ssl/certs/ca-certificates.crt").is_empty());
}

#[test]
fn every_build_of_the_image_has_the_same_features() {
    let build = all_of("RUN").into_iter().find_map(|run| {
        let (_, build) = run.split_once("cargo build ")?;
        let (flags, _) = build.split_once(" &&")?;
        Some(flags.trim().to_owned())
    });
    let build = build.expect("the Dockerfile builds kubefan");
    assert!(
        build.contains("--package kubefan-cli --no-default-features"),
        "{build}"
    );
    for place in ["deploy/README.md", "deploy/image.py"] {
        assert!(
            document(place).contains(&build),
            "{place}: cargo build {build}"
        );
    }
}

// === the unit ===

#[test]
fn the_unit_starts_kubefan_with_its_credential() {
    let text = read(&root().join("deploy/systemd/kubefan.service"));
    let values = |key: &str| -> Vec<&str> {
        let set = text.lines().filter_map(|line| line.split_once('='));
        set.filter(|(name, _)| *name == key)
            .map(|(_, value)| value)
            .collect()
    };
    assert_eq!(values("Type"), ["exec"]);
    assert_eq!(values("DynamicUser"), ["yes"]);
    assert_eq!(values("ProtectSystem"), ["strict"]);
    assert_eq!(values("CapabilityBoundingSet"), [""]);
    let credential = values("LoadCredential")[0];
    let (name, _) = credential.split_once(':').expect("a name and a path");
    let start = values("ExecStart")[0];
    let file = format!("${{CREDENTIALS_DIRECTORY}}/{name}");
    assert!(start.contains(&file), "{start} does not read {file}");

    // kubefan fails only when it reads the credential's file, so it accepts the flags.
    let arguments: Vec<&str> = start.split_whitespace().skip(1).collect();
    let ended = crate::support::programs::kubefan::run(&with_free_ports(&arguments));
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.stderr.contains(&file), "{ended:?}");
}

fn with_free_ports<'a>(arguments: &[&'a str]) -> Vec<&'a str> {
    let ports = ["--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"];
    [arguments, &ports].concat()
}

/// Runs `systemd-analyze verify` on the unit, if systemd is installed.
#[test]
fn systemd_accepts_the_unit() {
    let text = read(&root().join("deploy/systemd/kubefan.service"));
    let directory = tempfile::tempdir().expect("a temporary directory");
    let unit = directory.path().join("kubefan.service");
    // systemd-analyze checks that the program exists.
    let here = text.replace("/usr/local/bin/kubefan", env!("CARGO_BIN_EXE_kubefan"));
    fs::write(&unit, here).expect("a file can be written");
    let Ok(verified) = Command::new("systemd-analyze")
        .args(["verify", "--man=no"])
        .arg(&unit)
        .output()
    else {
        println!("the unit is not verified, because there is no systemd-analyze");
        return;
    };
    let output = String::from_utf8_lossy(&verified.stderr);
    let own = output.lines().find(|line| line.contains("kubefan.service"));
    assert!(verified.status.success() && own.is_none(), "{output}");
}

// === the manifests ===

#[test]
fn the_sidecar_caches_what_the_client_reads_and_has_no_other_right() {
    let flags = flags();
    let after = |flag: &str| {
        let at = flags.iter().position(|own| own == flag).expect("the flag");
        flags[at + 1].clone()
    };
    let named = |list: &str| -> BTreeSet<String> {
        let short = |name: &str| name.split('.').next().unwrap_or_default().to_owned();
        list.split(',').map(short).collect()
    };
    let cached = named(&after("--resource"));
    let pod = pod();
    let client = strings(&pod["spec"]["containers"][0]["args"]);
    let read = client
        .iter()
        .find_map(|flag| flag.strip_prefix("--resources="));
    assert_eq!(named(read.expect("resources")), cached);
    let own = ["apiservices", "customresourcedefinitions"].map(str::to_owned);
    let mut wanted = BTreeSet::new();
    for resource in cached.iter().chain(&own) {
        for verb in ["list", "watch"] {
            wanted.insert((resource.clone(), verb.to_owned()));
        }
    }
    let given: BTreeSet<_> = rights().into_iter().map(|(_, r, v)| (r, v)).collect();
    assert_eq!(given, wanted, "rbac.yaml (left) and what is read");
}

/// The pod serves the admin listener over TLS.
#[test]
fn probes_use_tls() {
    for probe in ["startupProbe", "livenessProbe", "readinessProbe"] {
        assert_eq!(container()[probe]["httpGet"]["scheme"], "HTTPS", "{probe}");
    }
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn the_api_server_accepts_every_manifest() {
    let server = shared();
    let kubectl = example(server).await;
    let dry = ["apply", "--server-side", "--dry-run=server"];
    let customised = root().join("deploy/sidecar").display().to_string();
    let plain = plain_manifests();
    let plain = plain.path().display().to_string();
    for from in [["-k", &customised], ["-f", &plain]] {
        let output = run(&kubectl, &[&dry[..], &from].concat()).await;
        for made in [
            "namespace/kubefan-example",
            "serviceaccount/kube-state-metrics",
            "clusterrole.rbac.authorization.k8s.io/kubefan-discovery",
            "clusterrole.rbac.authorization.k8s.io/kubefan-example-client",
            "clusterrolebinding.rbac.authorization.k8s.io/kubefan-example-discovery",
            "clusterrolebinding.rbac.authorization.k8s.io/kubefan-example-client",
            "configmap/kubefan-kubeconfig",
            "deployment.apps/kube-state-metrics",
        ] {
            assert!(output.contains(made), "{from:?}: no {made} in {output}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn the_api_server_accepts_the_clients() {
    let server = shared();
    let kubectl = Kubectl::new(
        server.assets(),
        &server.kubeconfig("admin"),
        "kubefan-clients",
    );
    let clients = root().join("deploy/clients");
    // A dry run creates no namespace, which the other objects need.
    let namespace = clients.join("namespace.yaml").display().to_string();
    run(&kubectl, &["apply", "--server-side", "-f", &namespace]).await;
    let clients = clients.display().to_string();
    let output = run(
        &kubectl,
        &["apply", "--server-side", "--dry-run=server", "-k", &clients],
    )
    .await;
    for made in [
        "serviceaccount/kube-state-metrics ",
        "clusterrole.rbac.authorization.k8s.io/kubefan-clients ",
        "clusterrolebinding.rbac.authorization.k8s.io/kubefan-clients ",
        "configmap/kubefan-kubeconfig ",
        "deployment.apps/with-kubeconfig ",
        "deployment.apps/with-service-account ",
    ] {
        assert!(output.contains(made), "no {made} in {output}");
    }
}

/// Creates a directory with the manifests but without kustomization.yaml, which `kubectl apply -f`
/// would treat as a manifest.
fn plain_manifests() -> TempDir {
    let directory = tempfile::tempdir().expect("a temporary directory");
    for name in strings(&documents(&sidecar("kustomization.yaml"))[0]["resources"]) {
        fs::copy(sidecar(&name), directory.path().join(&name)).expect("a copy");
    }
    directory
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn the_pod_keeps_the_restricted_standard() {
    let server = shared();
    let _kubectl = example(server).await;
    let pods = format!("/api/v1/namespaces/{NAMESPACE}/pods?dryRun=All");
    server.client().create(&pods, &pod()).await.ok();
    // A pod that breaks the standard is refused, so the accepted pod was really checked.
    let mut loose = pod();
    loose["spec"]["initContainers"][0]["securityContext"]["allowPrivilegeEscalation"] = json!(true);
    let refused = server.client().create(&pods, &loose).await;
    assert_eq!(refused.status, 403, "{refused}");

    let spec = &pod()["spec"];
    let kubefan = &container();
    assert_eq!(kubefan["restartPolicy"], "Always");
    assert_eq!(kubefan["securityContext"]["readOnlyRootFilesystem"], true);
    assert_eq!(spec["automountServiceAccountToken"], false);
    let client = &spec["containers"][0]["volumeMounts"];
    assert_eq!(client.as_array().map(Vec::len), Some(1), "{client}");
    assert_eq!(client[0]["name"], "kubeconfig");
}

/// Returns a kubectl of an admin for the example's namespace, after the namespace and the RBAC
/// manifests were applied once.
async fn example(server: &ApiServer) -> Kubectl {
    static APPLIED: OnceCell<()> = OnceCell::const_new();
    let kubectl = Kubectl::new(server.assets(), &server.kubeconfig("admin"), NAMESPACE);
    let apply = async || {
        for name in ["namespace.yaml", "rbac.yaml"] {
            let file = sidecar(name).display().to_string();
            run(&kubectl, &["apply", "--server-side", "-f", &file]).await;
        }
    };
    APPLIED.get_or_init(apply).await;
    kubectl
}

/// Runs kubectl, checks that it succeeds without a warning, and returns its output.
async fn run(kubectl: &Kubectl, arguments: &[&str]) -> String {
    let arguments: Vec<String> = arguments.iter().map(|&word| word.to_owned()).collect();
    let output = kubectl.run(&arguments).await;
    let is_fine = output.code == Some(0) && !output.stderr.contains("Warning");
    assert!(is_fine, "{arguments:?}: {output:?}");
    output.stdout
}

// === kubefan with the example's permissions ===

/// Writes a kubeconfig with a token of a service account, and returns its path.
async fn account(kubectl: &Kubectl, server: &ApiServer, name: &str) -> PathBuf {
    let token = run(kubectl, &["create", "token", name]).await;
    let path = server.directory().join(format!("account-{name}"));
    let authority = Some(server.authority());
    kubeconfig::write(&path, &server.url(), authority, &User::Token(token.trim()));
    path
}

async fn start(kubeconfig: &Path, flags: &[String]) -> Kubefan {
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    Kubefan::start_with(kubeconfig, &flags).await
}

/// Returns the status and body of the admin listener's answer to a kubelet's probe of `path`.
async fn probe(kubefan: &Kubefan, path: &str) -> (u16, String) {
    assert!(kubefan.admin_url().starts_with("https:"), "{kubefan:?}");
    let client = Client::new(kubefan.admin_url(), Connector::unverified());
    let client = match path.contains('?') {
        // A kubelet has no token.
        false => client,
        true => kubefan.admin(),
    };
    // A kubelet sends the pod's address in the Host header.
    let answer = client.with("host", "10.42.0.7:8002").get(path).await;
    let text = String::from_utf8_lossy(&answer.body).into_owned();
    (answer.status.as_u16(), text)
}

/// Returns the (outcome, reason) pairs in kubefan's metrics for a verb and a resource.
async fn outcomes(kubefan: &Kubefan, verb: &str, resource: &str) -> BTreeSet<(String, String)> {
    let text = kubefan.metrics().await;
    let label = |line: &str, name: &str| {
        let (_, rest) = line.split_once(&format!("{name}=\""))?;
        Some(rest.split('"').next()?.to_owned())
    };
    let lines = text
        .lines()
        .filter(|line| line.starts_with("kubefan_requests_total{"));
    let own = lines.filter(|line| {
        label(line, "verb").as_deref() == Some(verb)
            && label(line, "resource").as_deref() == Some(resource)
    });
    own.filter_map(|line| Some((label(line, "outcome")?, label(line, "reason")?)))
        .collect()
}

fn outcome(outcome: &str, reason: &str) -> BTreeSet<(String, String)> {
    BTreeSet::from([(outcome.to_owned(), reason.to_owned())])
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn the_shipped_rights_are_sufficient_and_minimal() {
    let server = shared();
    let kubectl = example(server).await;
    let config = account(&kubectl, server, ACCOUNT).await;
    let kubefan = start(&config, &[flags(), vec!["-v".to_owned()]].concat()).await;

    reads_from_the_cache(server, &kubefan).await;
    for path in ["/livez", "/readyz"] {
        assert_eq!(probe(&kubefan, path).await.0, 200, "{path}");
    }
    eventually("all informers", LIMIT, async || {
        let (code, output) = probe(&kubefan, "/readyz?verbose").await;
        let is_listed = |(group, resource, _): &(String, String, String)| {
            let name = format!("[+]{resource}.v1");
            let mut lines = output.lines().filter(|line| line.starts_with(&name));
            lines.any(|line| line.contains(group.as_str()))
        };
        match code == 200 && rights().iter().all(is_listed) {
            true => Ok(()),
            false => Err(output),
        }
    })
    .await;
    let log = kubefan.log();
    // `"code":403` as JSON, because a time or an identifier may contain the digits 403.
    for bad in [
        "orbidden",
        "\"code\":403",
        "\"WARN\"",
        "\"ERROR\"",
        "refused",
    ] {
        assert!(!log.contains(bad), "{bad} in {log}");
    }

    // Clients without credentials act with kubefan's permissions, which do not include these.
    let client = kubefan.client();
    assert_eq!(client.get(SECRETS).await.status, 403);
    let made = json!({ "metadata": { "name": "made" } });
    let path = format!("/api/v1/namespaces/{NAMESPACE}/configmaps");
    let refused = client.create(&path, &made).await;
    assert_eq!(refused.status, 403, "{refused}");
    let who = format!("system:serviceaccount:{NAMESPACE}:{ACCOUNT}");
    assert!(refused.to_string().contains(&who), "{refused}");
}

/// Lists and watches every resource of the example as kube-state-metrics does, and checks that all
/// these requests are answered from the cache.
async fn reads_from_the_cache(server: &ApiServer, kubefan: &Kubefan) {
    let namespace = server.namespace("deploy").await;
    let client = kubefan.client();
    for (path, resource) in [
        ("/api/v1/pods", "pods"),
        ("/api/v1/nodes", "nodes"),
        ("/api/v1/services", "services"),
        ("/apis/apps/v1/deployments", "deployments"),
    ] {
        for format in [Format::Json, Format::Protobuf] {
            let list = format!("{path}?resourceVersion=0&limit=500");
            let answer = client.get_as(&list, format).await.ok();
            let version = decode_list(format, &answer.body).resource_version;
            let watch = format!("{path}?watch=1&resourceVersion={version}&timeoutSeconds=30");
            let stream = client.watch(&watch, format).await;
            let mut stream = stream.unwrap_or_else(|error| panic!("{resource}: {error}"));
            if resource == "services" {
                let services = format!("/api/v1/namespaces/{namespace}/services");
                let name = format!("made-{format:?}").to_lowercase();
                let new_object = json!({
                    "metadata": { "name": name }, "spec": { "ports": [{ "port": 80 }] },
                });
                server.client().create(&services, &new_object).await.ok();
                let key = format!("{namespace}/{name}");
                let seen = async {
                    while let Some(event) = stream.next().await.expect("a frame") {
                        if matches!(&event, Event::Added(item) if item.key == key) {
                            return true;
                        }
                    }
                    false
                };
                assert!(within("the new service", LIMIT, seen).await, "{key}");
            }
        }
        for verb in ["list", "watch"] {
            let counted = outcomes(kubefan, verb, resource).await;
            assert_eq!(counted, outcome("cache", ""), "{verb} {resource}");
        }
    }
}

/// Creates an account with the example's permissions plus `more` minus `less`, and its kubeconfig.
async fn changed_account(
    server: &ApiServer,
    name: &str,
    more: &[(&str, &str, &str)],
    less: &[(&str, &str)],
) -> PathBuf {
    let kubectl = example(server).await;
    let own = |(group, resource, verb): &(&str, &str, &str)| {
        [group, resource, verb].map(|&word| word.to_owned()).into()
    };
    let mut rights = rights();
    rights.extend(more.iter().map(own));
    for (resource, verb) in less {
        let before = rights.len();
        rights.retain(|(_, r, v)| (r.as_str(), v.as_str()) != (*resource, *verb));
        assert_eq!(
            rights.len(),
            before - 1,
            "rbac.yaml grants no {verb} {resource}"
        );
    }
    let rule = |(group, resource, verb): &(String, String, String)| json!({ "apiGroups": [group], "resources": [resource], "verbs": [verb] });
    let rules: Vec<Value> = rights.iter().map(rule).collect();
    let client = server.client();
    let account_path = format!("/api/v1/namespaces/{NAMESPACE}/serviceaccounts");
    let metadata = json!({ "name": name });
    client
        .create(&account_path, &json!({ "metadata": metadata }))
        .await
        .ok();
    let role = json!({ "metadata": metadata, "rules": rules });
    client
        .create(&format!("{RBAC}/clusterroles"), &role)
        .await
        .ok();
    let binding = json!({
        "metadata": metadata,
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name },
        "subjects": [{ "kind": "ServiceAccount", "name": name, "namespace": NAMESPACE }],
    });
    client
        .create(&format!("{RBAC}/clusterrolebindings"), &binding)
        .await
        .ok();
    account(&kubectl, server, name).await
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn the_sidecars_client_has_kubefans_identity() {
    let server = shared();
    let more = [("", "configmaps", "create")];
    let config = changed_account(server, "more", &more, &[]).await;
    let kubefan = start(&config, &flags()).await;

    let map = documents(&sidecar("kubeconfig.yaml")).remove(0);
    let given = map["data"]["kubeconfig"].as_str().expect("a kubeconfig");
    let default = "http://127.0.0.1:8001";
    assert!(given.contains(default), "kubefan's default --listen");
    let path = kubefan.file("client");
    fs::write(&path, given.replace(default, kubefan.url())).expect("a file");
    let client = Kubectl::new(server.assets(), &path, NAMESPACE);

    let who = run(&client, &["auth", "whoami", "-o", "json"]).await;
    let account = format!("system:serviceaccount:{NAMESPACE}:more");
    assert!(who.contains(&account), "{who}");
    let read = ["get", "pods,nodes,services,deployments", "-A", "-o", "name"];
    let services = run(&client, &read).await;
    assert!(services.contains("service/kubernetes"), "{services}");
    run(&client, &["create", "configmap", "made"]).await;
    let deletion = ["delete", "configmap", "made"].map(str::to_owned);
    let refused = client.run(&deletion).await;
    assert!(refused.stderr.contains(&account), "{refused:?}");
}

/// Sends a LIST, and returns the (outcome, reason) pairs of all LISTs of the resource.
async fn outcomes_after_list(
    kubefan: &Kubefan,
    path: &str,
    resource: &str,
) -> BTreeSet<(String, String)> {
    kubefan.client().get(path).await.ok();
    outcomes(kubefan, "list", resource).await
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn without_the_discovery_rights_less_is_cached() {
    let server = shared();
    define_widgets(server).await;
    let widgets = [
        ("example.kubefan.io", "widgets", "list"),
        ("example.kubefan.io", "widgets", "watch"),
    ];
    let services = [("apiservices", "list"), ("apiservices", "watch")];
    let definitions = [
        ("customresourcedefinitions", "list"),
        ("customresourcedefinitions", "watch"),
    ];
    let both = [services, definitions].concat();
    let watch_rights = [services[1], definitions[1]];
    let aggregated = outcome("forwarded", "aggregated");
    for (name, less, custom) in [
        ("all-there", &[][..], outcome("cache", "")),
        ("untold", &watch_rights, outcome("cache", "")),
        ("no-services", &services, outcome("cache", "")),
        ("no-definitions", &definitions, outcome("cache", "")),
        ("neither", &both, aggregated),
    ] {
        let config = changed_account(server, name, &widgets, less).await;
        let kubefan = start(&config, &flags()).await;
        assert_eq!(
            outcomes_after_list(&kubefan, WIDGETS, "widgets").await,
            custom,
            "{name}"
        );
        let red = format!("{WIDGETS}&fieldSelector=spec.color%3Dred");
        let unknown = outcomes_after_list(&kubefan, &red, "widgets").await;
        let unknown = unknown.contains(&("forwarded".to_owned(), "unknown_field".to_owned()));
        assert_eq!(unknown, name == "no-definitions", "{name}");
        let pods = outcomes_after_list(&kubefan, PODS, "pods").await;
        assert_eq!(pods, outcome("cache", ""), "{name}");
        assert_eq!(probe(&kubefan, "/readyz").await.0, 200, "{name}");
        for (resource, _) in less {
            eventually(
                "a log line about the missing permission",
                LIMIT,
                async || {
                    let log = kubefan.log();
                    let mut lines = log.lines().filter(|line| line.contains("reflector ended"));
                    match lines.any(|line| line.contains("forbidden: ") && line.contains(resource))
                    {
                        true => Ok(()),
                        false => Err(log),
                    }
                },
            )
            .await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn without_watch_of_a_resource_it_is_forwarded() {
    let server = shared();
    let config = changed_account(server, "no-watch", &[], &[("pods", "watch")]).await;
    let flags = vec!["--admin-listen".to_owned(), "127.0.0.1:0".to_owned()];
    let kubefan = start(&config, &flags).await;
    let pods = outcomes_after_list(&kubefan, PODS, "pods").await;
    assert_eq!(pods, outcome("forwarded", "forbidden"));
    let nodes = outcomes_after_list(&kubefan, "/api/v1/nodes?resourceVersion=0", "nodes").await;
    assert_eq!(nodes, outcome("cache", ""));
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn without_watch_of_a_named_resource_it_is_not_ready() {
    let server = shared();
    let less = [("pods", "watch")];
    let config = changed_account(server, "no-watch-named", &[], &less).await;
    let kubefan = Unready::start(&config, &flags()).await;
    let why = "[-]pods.v1 json: kubefan may not list and watch the resource";
    eventually("the reason", LIMIT, async || {
        let answer = kubefan.admin.get("/readyz?verbose").await;
        let output = String::from_utf8_lossy(&answer.body).into_owned();
        // The cache of nodes, which kubefan may list and watch, is still reported as ready.
        let is_explained = output.contains(why) && output.contains("[+]nodes.v1 json");
        match answer.status == 503 && is_explained {
            true => Ok(()),
            false => Err(output),
        }
    })
    .await;
    assert_eq!(kubefan.admin.get("/livez").await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn without_both_discovery_rights_a_named_custom_resource_is_refused() {
    let server = shared();
    define_widgets(server).await;
    let less = [
        ("apiservices", "list"),
        ("apiservices", "watch"),
        ("customresourcedefinitions", "list"),
        ("customresourcedefinitions", "watch"),
    ];
    let config = changed_account(server, "neither-named", &[], &less).await;
    let config = config.display().to_string();
    let arguments = ["serve", "--kubeconfig", &config, "--resource", "widgets"];
    let arguments = with_free_ports(&arguments).join(" ");
    let run = move || {
        let arguments: Vec<&str> = arguments.split(' ').collect();
        crate::support::programs::kubefan::run(&arguments)
    };
    let ended = tokio::task::spawn_blocking(run).await.expect("it ends");
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.stderr.contains("--resource widgets"), "{ended:?}");
    assert!(ended.stderr.contains("APIServices"), "{ended:?}");
}

/// A running kubefan that is not expected to become ready.
struct Unready {
    admin: Client,
    _process: Process,
    _directory: TempDir,
}

impl Unready {
    async fn start(kubeconfig: &Path, flags: &[String]) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let output = directory.path().join("stdout");
        let mut command = Command::new(env!("CARGO_BIN_EXE_kubefan"));
        command
            .args(["serve", "--listen", "127.0.0.1:0", "--kubeconfig"])
            .arg(kubeconfig)
            .args(flags)
            .stdin(Stdio::null())
            .stdout(File::create(&output).expect("a file"))
            .stderr(File::create(directory.path().join("stderr")).expect("a file"));
        let process = Process::start(&mut command, Some(directory.path()));
        let url = eventually("kubefan's addresses", LIMIT, async || {
            let text = read(&output);
            let lines = text.strip_suffix('\n').unwrap_or_default().lines();
            let mut urls = lines.filter_map(|line| line.strip_prefix("admin on "));
            urls.next().map(str::to_owned).ok_or(text.clone())
        })
        .await;
        Self {
            admin: admin_client(&url),
            _process: process,
            _directory: directory,
        }
    }
}

// === the README ===

#[test]
fn the_readme_names_every_file_and_no_other() {
    let readme = read(&root().join("deploy/README.md"));
    let linked = readme.split("](").skip(1).map(|rest| {
        let (target, _) = rest.split_once(')').expect("a link's end");
        let file = target.split_once('#').map_or(target, |(file, _)| file);
        file.to_owned()
    });
    let linked: BTreeSet<String> = linked.filter(|file| !file.is_empty()).collect();
    for link in &linked {
        assert!(root().join("deploy").join(link).exists(), "{link}");
    }
    for folder in ["", "sidecar/", "systemd/"] {
        let entries = fs::read_dir(root().join("deploy").join(folder)).expect("a folder");
        for entry in entries {
            let name = entry.expect("an entry").file_name();
            let path = format!("{folder}{}", name.display());
            let is_folder = root().join("deploy").join(&path).is_dir();
            let is_named = is_folder || path == "README.md" || linked.contains(&path);
            assert!(is_named, "deploy/README.md does not name {path}");
        }
    }
}
