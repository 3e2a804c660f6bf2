//! The chart in `deploy/helm/kubefan`: what it renders in each mode, with Helm 3 and 4, is what the
//! API server's OpenAPI describes and what the API server accepts, and wrong values are refused.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::readme;
use crate::repository::{document, read, root};
use crate::support::programs::apiserver::{ApiServer, shared};
use crate::support::programs::chart::{NAMESPACE, Tools, chart, objects, succeeded};
use crate::support::programs::kubectl::Kubectl;
use crate::support::programs::kubefan::binary;

/// The kinds that only the CRDs of other projects define.
const FOREIGN: [&str; 3] = ["Certificate", "PrometheusRule", "ServiceMonitor"];

/// Returns the chart's files of values, one for each mode, and its examples.
fn modes() -> Vec<PathBuf> {
    let files = ["ci", "examples"].into_iter().flat_map(|folder| {
        let entries = fs::read_dir(chart().join(folder)).expect("a folder");
        entries.map(|entry| entry.expect("an entry").path())
    });
    let mut files: Vec<_> = files
        .filter(|path| path.extension().is_some_and(|e| e == "yaml"))
        .collect();
    files.sort();
    assert!(files.len() > 5, "{files:?}");
    files
}

fn rendered(tools: &Tools, values: &Path) -> Vec<Value> {
    let text = tools.render("helm", &[values.to_owned()]);
    objects(&text.unwrap_or_else(|error| panic!("{}: {error}", values.display())))
}

fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object
        .pointer(pointer)
        .and_then(Value::as_str)
        .unwrap_or_default()
}

/// Returns the objects by kind and name, without the random parts of a certificate.
fn comparable(rendered: &str) -> BTreeMap<String, Value> {
    let mut objects = objects(rendered);
    for object in &mut objects {
        if object["kind"] == "Secret" {
            let data = object["data"].as_object_mut().expect("data");
            assert_eq!(data.len(), 3, "a certificate, its key and its authority");
            data.values_mut().for_each(|value| *value = Value::Null);
        }
        if let Some(authority) = object.pointer_mut("/data/ca.crt") {
            *authority = Value::Null;
        }
    }
    let name = |object: &Value| {
        format!(
            "{} {}",
            text(object, "/kind"),
            text(object, "/metadata/name")
        )
    };
    objects
        .into_iter()
        .map(|object| (name(&object), object))
        .collect()
}

#[test]
#[cfg_attr(not(deploy_tools), ignore = "needs Helm: see CONTRIBUTING.md")]
fn both_helms_render_every_mode_alike() {
    let tools = Tools::find();
    for values in modes() {
        let [four, three] = ["helm", "helm3"].map(|helm| {
            let rendered = tools.render(helm, std::slice::from_ref(&values));
            comparable(
                &rendered.unwrap_or_else(|error| panic!("{helm}, {}: {error}", values.display())),
            )
        });
        assert!(four.len() > 5, "{four:?}");
        assert_eq!(four, three, "{}: Helm 4 (left) and 3", values.display());
    }
}

/// The commands of the documents install into a cluster; here Helm only renders them.
#[test]
#[cfg_attr(not(deploy_tools), ignore = "needs Helm: see CONTRIBUTING.md")]
fn the_documents_commands_render_the_values_that_they_set() {
    let tools = Tools::find();
    let commands = readme::commands_run_by(readme::CHART);
    assert!(!commands.is_empty(), "no document installs the chart");
    let folder = chart().display().to_string();
    for command in commands {
        let flags = command.strip_prefix("helm install kubefan deploy/helm/kubefan ");
        let flags = flags.unwrap_or_else(|| panic!("another command: {command}"));
        let arguments = ["template", "kubefan", &folder].into_iter();
        let arguments: Vec<_> = arguments.chain(flags.split(' ')).collect();
        let rendered = succeeded(&tools.run("helm", &arguments));
        let rendered = rendered.unwrap_or_else(|error| panic!("{command}: {error}"));
        let image = |name: &str| {
            let set = format!("image.{name}=");
            let value = arguments.iter().find_map(|flag| flag.strip_prefix(&set));
            value.unwrap_or_else(|| panic!("{command} sets no {set}"))
        };
        let image = format!("{}:{}", image("repository"), image("tag"));
        let is_used =
            |object: &Value| text(object, "/spec/template/spec/containers/0/image") == image;
        assert!(
            objects(&rendered).iter().any(is_used),
            "{image}: {rendered}"
        );
    }
}

#[test]
#[cfg_attr(not(deploy_tools), ignore = "needs Helm: see CONTRIBUTING.md")]
fn the_charts_unit_tests_and_lints_pass() {
    let tools = Tools::find();
    let chart = chart().display().to_string();
    let ended = tools.run("helm-unittest", &["--strict", &chart]);
    let output = succeeded(&ended).unwrap_or_else(|error| panic!("{error}"));
    let files = fs::read_dir(format!("{chart}/tests")).expect("a folder");
    let suites = files
        .filter_map(|file| file.expect("an entry").file_name().into_string().ok())
        .filter(|name| name.ends_with("_test.yaml"))
        .count();
    let all = format!("Test Suites: {suites} passed, {suites} total");
    assert!(output.contains(&all), "{output}");
    for helm in ["helm", "helm3"] {
        for values in modes() {
            let values = values.display().to_string();
            let ended = tools.run(helm, &["lint", "--strict", &chart, "--values", &values]);
            succeeded(&ended).unwrap_or_else(|error| panic!("{helm}, {values}: {error}"));
        }
    }
}

#[test]
#[cfg_attr(not(deploy_tools), ignore = "needs Helm: see CONTRIBUTING.md")]
fn the_package_has_kubefans_version() {
    let version = env!("CARGO_PKG_VERSION");
    let metadata: Value = serde_saphyr::from_str(&read(&chart().join("Chart.yaml"))).expect("YAML");
    assert_eq!(metadata["version"], version, "Chart.yaml and Cargo.toml");
    assert_eq!(metadata["appVersion"], version, "Chart.yaml and Cargo.toml");
    let tools = Tools::find();
    let directory = tempfile::tempdir().expect("a temporary directory");
    let into = directory.path().display().to_string();
    let chart = chart().display().to_string();
    for helm in ["helm", "helm3"] {
        let ended = tools.run(helm, &["package", &chart, "--destination", &into]);
        succeeded(&ended).unwrap_or_else(|error| panic!("{helm}: {error}"));
        let package = directory.path().join(format!("kubefan-{version}.tgz"));
        let shown = tools.run(
            helm,
            &["show".as_ref(), "values".as_ref(), package.as_os_str()],
        );
        let shown = succeeded(&shown).unwrap_or_else(|error| panic!("{helm}: {error}"));
        assert_eq!(
            shown.trim(),
            read(&root().join("deploy/helm/kubefan/values.yaml")).trim()
        );
        fs::remove_file(package).expect("a file");
    }
}

#[test]
#[cfg_attr(not(deploy_tools), ignore = "needs Helm: see CONTRIBUTING.md")]
fn kubefan_accepts_every_rendered_configuration() {
    let tools = Tools::find();
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("kubefan.yaml");
    for values in modes() {
        let objects = rendered(&tools, &values);
        let mut maps = objects.iter().filter(|one| one["kind"] == "ConfigMap");
        let config = maps.find_map(|map| map["data"]["kubefan.yaml"].as_str());
        fs::write(&path, config.expect("a configuration")).expect("room");
        let checked = Command::new(binary())
            .args(["config", "check"])
            .arg(&path)
            .env("NODE_NAME", "n1")
            .output()
            .expect("kubefan runs");
        succeeded(&checked).unwrap_or_else(|error| panic!("{}: {error}", values.display()));
    }
}

// === the schema of the values ===

#[test]
fn the_schema_of_the_values_has_that_of_the_configuration() {
    let path = chart().join("values.schema.json");
    let mut schema: Value = serde_json::from_str(&read(&path)).expect("JSON");
    let configuration: Value =
        serde_json::from_str(&document("config/kubefan.schema.json")).expect("JSON");
    let mut embedded = json!({ "$id": "kubefan.schema.json" });
    let keys = embedded.as_object_mut().expect("an object");
    keys.extend(configuration.as_object().expect("an object").clone());
    schema["$defs"]["config"] = embedded;
    let wanted = serde_json::to_string_pretty(&schema).expect("JSON") + "\n";
    if std::env::var_os("KUBEFAN_WRITE_GOLDEN").is_some() {
        fs::write(&path, &wanted).expect("a file can be written");
    }
    assert!(
        read(&path) == wanted,
        "regenerate it: KUBEFAN_WRITE_GOLDEN=1 cargo test --test it -- the_schema_of_the_values"
    );
}

#[test]
#[cfg_attr(not(deploy_tools), ignore = "needs Helm: see CONTRIBUTING.md")]
fn wrong_values_are_refused_with_the_reason() {
    let tools = Tools::find();
    for (values, reasons) in [
        ("replicsa: 3", &["replicsa"][..]),
        (
            "kind: StatefulSet",
            &["/kind", "'Deployment', 'DaemonSet', 'Sidecar'"],
        ),
        ("replicas: two", &["/replicas", "integer"]),
        ("image: {digest: sha256:abc}", &["/image/digest", "sha256"]),
        (
            "config: {cache: {resourcs: [pods]}}",
            &["/config/cache", "resourcs"],
        ),
        (
            "config: {authentication: {mode: any}}",
            &["/config/authentication/mode", "delegated"],
        ),
        (
            "config: {authentication: {mode: none}}",
            &["config.authentication.mode: none is for a Sidecar"],
        ),
        ("tls: {source: secret}", &["/tls/secretName"]),
        ("tls: {source: certManager}", &["/tls/issuerRef", "name"]),
        ("service: {port: 0}", &["/service/port"]),
        ("cachedResources: [Pods]", &["/cachedResources/0", "Pods"]),
        (
            "cachedResources: [secrets]",
            &["config.cache.secrets: true"],
        ),
    ] {
        let refused = tools.render_text(values).expect_err(values);
        for reason in reasons {
            assert!(
                refused.contains(reason),
                "{values}: no {reason} in {refused}"
            );
        }
    }
}

#[test]
fn every_value_is_in_the_readme() {
    let readme = read(&chart().join("README.md"));
    let values = read(&chart().join("values.yaml"));
    let parsed: Value = serde_saphyr::from_str(&values).expect("YAML");
    let table = table(&values, &parsed);
    let (before, rest) = readme
        .split_once("<!-- values -->\n")
        .expect("the table's begin");
    let (_, after) = rest.split_once("<!-- end -->").expect("the table's end");
    let wanted = format!("{before}<!-- values -->\n{table}<!-- end -->{after}");
    if std::env::var_os("KUBEFAN_WRITE_GOLDEN").is_some() {
        fs::write(chart().join("README.md"), &wanted).expect("a file can be written");
    }
    assert!(
        read(&chart().join("README.md")) == wanted,
        "regenerate it: KUBEFAN_WRITE_GOLDEN=1 cargo test --test it -- every_value_is_in_the_readme"
    );
}

/// A key of values.yaml, and the comment above it.
struct Key {
    path: Vec<String>,
    description: String,
}

impl Key {
    fn contains(&self, other: &Key) -> bool {
        other.path.len() > self.path.len() && other.path.starts_with(&self.path)
    }

    fn value<'a>(&self, values: &'a Value) -> Option<&'a Value> {
        let mut path = self.path.iter();
        path.try_fold(values, |value, key| value.get(key))
    }
}

/// Returns the keys of values.yaml in order, without the keys in lists.
fn keys(text: &str, values: &Value) -> Vec<Key> {
    let (mut path, mut keys) = (Vec::new(), Vec::new());
    let mut description = String::new();
    for line in text.lines() {
        let content = line.trim_start();
        if let Some(more) = content.strip_prefix('#') {
            description += more;
            continue;
        }
        let description = std::mem::take(&mut description).trim().to_owned();
        let Some((key, _)) = content.split_once(':') else {
            continue;
        };
        path.truncate((line.len() - content.len()) / 2);
        path.push(key.to_owned());
        let path = path.clone();
        keys.push(Key { path, description });
    }
    keys.retain(|key| key.value(values).is_some());
    keys
}

/// Formats the table of the values with their defaults and descriptions. A value without a
/// description is part of a value above it.
fn table(text: &str, values: &Value) -> String {
    let (described, others): (Vec<_>, Vec<_>) = keys(text, values)
        .into_iter()
        .partition(|key| !key.description.is_empty());
    let is_divided = |key: &Key| described.iter().any(|other| key.contains(other));
    for key in others {
        let mut whole = described.iter().filter(|other| !is_divided(other));
        let is_explained = is_divided(&key) || whole.any(|other| other.contains(&key));
        assert!(is_explained, "values.yaml does not describe {:?}", key.path);
    }
    let mut table = "| value | default | description |\n|---|---|---|\n".to_owned();
    for key in &described {
        let default = match is_divided(key) {
            true => String::new(),
            false => format!("`{}`", key.value(values).expect("a value")),
        };
        let row = [&key.path.join("."), &default, &key.description];
        let [name, default, description] = row.map(|cell| cell.replace('|', "\\|"));
        table += &format!("| `{name}` | {default} | {description} |\n");
    }
    table
}

// === the API server ===

/// Creates schemas for kubeconform from the API server's OpenAPI. The schemas allow
/// no further fields in objects.
async fn schemas(server: &ApiServer) -> TempDir {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let admin = server.client();
    let index = admin.get("/openapi/v3").await.ok().json();
    for (path, entry) in index["paths"].as_object().expect("paths") {
        if !path.starts_with("api/") && !path.starts_with("apis/") {
            continue;
        }
        let url = text(entry, "/serverRelativeURL");
        let mut schema = admin.get(url).await.ok().json();
        let components = schema["components"].take();
        write_schemas(directory.path(), components);
    }
    directory
}

/// Writes one file for each kind, as KIND-GROUP-VERSION.json.
fn write_schemas(directory: &Path, mut components: Value) {
    let Some(all) = components["schemas"].as_object_mut() else {
        return;
    };
    for schema in all.values_mut() {
        if schema["properties"].is_object() && schema["additionalProperties"].is_null() {
            schema["additionalProperties"] = json!(false);
        }
    }
    for (name, schema) in components["schemas"].as_object().expect("schemas") {
        let kinds = schema["x-kubernetes-group-version-kind"].as_array();
        let [kind] = kinds.map(Vec::as_slice).unwrap_or_default() else {
            continue;
        };
        let group = text(kind, "/group").split('.').next().unwrap_or_default();
        let parts = [text(kind, "/kind"), group, text(kind, "/version")];
        let parts = parts.into_iter().filter(|part| !part.is_empty());
        let file = parts.collect::<Vec<_>>().join("-").to_lowercase();
        let whole = json!({
            "$ref": format!("#/components/schemas/{name}"), "components": components,
        });
        fs::write(directory.join(file + ".json"), whole.to_string()).expect("room");
    }
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(
    not(all(apiserver, deploy_tools)),
    ignore = "needs kube-apiserver and Helm: see CONTRIBUTING.md"
)]
async fn every_object_has_the_fields_of_the_api_servers_schema() {
    let server = shared();
    let tools = Tools::find();
    let schemas = schemas(server).await;
    let location = format!(
        "{}/{{{{.ResourceKind}}}}{{{{.KindSuffix}}}}.json",
        schemas.path().display()
    );
    let skip = FOREIGN.join(",");
    let check = |manifest: &Path| {
        let manifest = manifest.display().to_string();
        let flags = [
            "-strict",
            "-schema-location",
            &location,
            "-skip",
            &skip,
            &manifest,
        ];
        succeeded(&tools.run("kubeconform", &flags))
    };
    let file = schemas.path().join("rendered.yaml");
    for values in modes() {
        let rendered = tools
            .render("helm", std::slice::from_ref(&values))
            .expect("it renders");
        fs::write(&file, &rendered).expect("room");
        let checked = check(&file);
        checked.unwrap_or_else(|error| panic!("{}: {error}", values.display()));
    }
    let rendered = tools.render_text("").expect("it renders");
    fs::write(&file, rendered.replace("minReadySeconds", "minReadySecond")).expect("room");
    let refused = check(&file).expect_err("a field that does not exist");
    assert!(refused.contains("minReadySecond"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(
    not(all(apiserver, deploy_tools)),
    ignore = "needs kube-apiserver and Helm: see CONTRIBUTING.md"
)]
async fn the_api_server_accepts_every_object() {
    let server = shared();
    let tools = Tools::find();
    let namespace = restricted_namespace(server).await;
    for values in modes() {
        let all = rendered(&tools, &values);
        let known = all
            .into_iter()
            .filter(|one| !FOREIGN.contains(&text(one, "/kind")));
        // kubectl wants to know of objects in other namespaces than its own.
        let (system, own): (Vec<_>, Vec<_>) =
            known.partition(|one| text(one, "/metadata/namespace") == "kube-system");
        for object in &own {
            if let Some(template) = object.pointer("/spec/template") {
                admitted(server, &namespace, template).await;
            }
        }
        dry_run(server, NAMESPACE, own).await;
        dry_run(server, "kube-system", system).await;
    }
}

/// Checks that the API server would create objects of a namespace, or without one.
async fn dry_run(server: &ApiServer, namespace: &str, objects: Vec<Value>) {
    if objects.is_empty() {
        return;
    }
    let kubectl = Kubectl::new(server.assets(), &server.kubeconfig("admin"), namespace);
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    let count = objects.len();
    let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
    fs::write(file.path(), list.to_string()).expect("room");
    let path = file.path().display().to_string();
    let words = [
        "apply",
        "--server-side",
        "--dry-run=server",
        "--output=name",
        "-f",
        &path,
    ];
    let output = kubectl.run(&words.map(str::to_owned)).await;
    let is_fine = output.code == Some(0) && !output.stderr.contains("Warning");
    assert!(
        is_fine && output.stdout.lines().count() == count,
        "{list}: {output:?}"
    );
}

/// A pod of a chart that has kubefan's as a dependency, as the chart's README describes.
const PARENT: &str = r#"
apiVersion: v1
kind: Pod
metadata:
  name: client
spec:
  serviceAccountName: client
  securityContext:
    runAsNonRoot: true
    seccompProfile: {type: RuntimeDefault}
  containers:
    - name: client
      image: client
      securityContext:
        allowPrivilegeEscalation: false
        capabilities: {drop: [ALL]}
      volumeMounts:
        - name: kubefan-client
          mountPath: /etc/kubefan-client
"#;

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(
    not(all(apiserver, deploy_tools)),
    ignore = "needs kube-apiserver and Helm: see CONTRIBUTING.md"
)]
async fn a_chart_adds_the_sidecar_to_its_own_pod_as_the_readme_says() {
    let server = shared();
    let tools = Tools::find();
    let readme = read(&chart().join("README.md"));
    let (_, included) = readme.split_once("```yaml\n").expect("the templates");
    let (included, _) = included.split_once("```").expect("the templates' end");
    let parent = tempfile::tempdir().expect("a temporary directory");
    let write = |name: &str, text: &str| fs::write(parent.path().join(name), text).expect("room");
    fs::create_dir(parent.path().join("templates")).expect("a folder");
    fs::create_dir(parent.path().join("charts")).expect("a folder");
    write(
        "Chart.yaml",
        "{apiVersion: v2, name: parent, version: 1.0.0}",
    );
    write("values.yaml", "kubefan: {kind: Sidecar}");
    let indented = included
        .lines()
        .map(|line| format!("  {line}\n").replace("nindent 4", "nindent 6"));
    let indented: String = indented
        .collect::<String>()
        .replace("nindent 2", "nindent 4");
    write("templates/pod.yaml", &format!("{PARENT}{indented}"));
    let copied = Command::new("cp")
        .arg("-R")
        .arg(chart())
        .arg(parent.path().join("charts"))
        .status();
    assert!(copied.is_ok_and(|status| status.success()));
    let path = parent.path().display().to_string();
    let rendered = succeeded(&tools.run("helm", &["template", "release", &path]));
    let rendered = objects(&rendered.unwrap_or_else(|error| panic!("{error}")));
    let pod = rendered
        .iter()
        .find(|one| one["kind"] == "Pod")
        .expect("a pod");
    assert_eq!(pod["spec"]["initContainers"][0]["restartPolicy"], "Always");
    let namespace = restricted_namespace(server).await;
    let pods = format!("/api/v1/namespaces/{namespace}/pods?dryRun=All");
    server.client().create(&pods, pod).await.ok();

    // helm shows the same to operators without a chart of their own.
    let sidecar = chart().join("examples/sidecar.yaml").display().to_string();
    let chart = chart().display().to_string();
    let dry = [
        "install",
        "release",
        &chart,
        "--dry-run=client",
        "--values",
        &sidecar,
    ];
    let notes = succeeded(&tools.run("helm", &dry)).unwrap_or_else(|error| panic!("{error}"));
    let (_, notes) = notes
        .split_once("through kubefan:\n\n")
        .expect("what to add to the pod");
    let (shown, client) = notes
        .split_once("\n\nAnd this")
        .expect("what to add to the client");
    let shown: Value = serde_saphyr::from_str(shown).expect("YAML");
    let container = &pod["spec"]["initContainers"][0];
    assert_eq!(shown["initContainers"][0]["args"], container["args"]);
    assert_eq!(shown["serviceAccountName"], "kube-state-metrics");
    assert!(client.contains("name: KUBECONFIG"), "{client}");
}

/// Creates a namespace that enforces the Pod Security Standard `restricted`, and the chart's.
async fn restricted_namespace(server: &ApiServer) -> String {
    let name = "chart-restricted";
    let labels = json!({"pod-security.kubernetes.io/enforce": "restricted"});
    for metadata in [
        json!({"name": name, "labels": labels}),
        json!({"name": NAMESPACE}),
    ] {
        let namespace = json!({"metadata": metadata});
        let made = server
            .client()
            .create("/api/v1/namespaces", &namespace)
            .await;
        assert!([201, 409].contains(&made.status.as_u16()), "{made}");
    }
    name.to_owned()
}

/// Checks that the namespace admits a pod of the template, and not a looser one.
async fn admitted(server: &ApiServer, namespace: &str, template: &Value) {
    let mut pod = json!({
        "metadata": {"name": "one", "labels": template["metadata"]["labels"]},
        "spec": template["spec"],
    });
    // No controller creates service accounts here.
    pod["spec"]["serviceAccountName"] = Value::Null;
    pod["spec"]["automountServiceAccountToken"] = json!(false);
    let pods = format!("/api/v1/namespaces/{namespace}/pods?dryRun=All");
    server.client().create(&pods, &pod).await.ok();
    pod["spec"]["containers"][0]["securityContext"]["capabilities"] = Value::Null;
    let refused = server.client().create(&pods, &pod).await;
    assert_eq!(refused.status, 403, "{refused}");
}
