//! Checks that a test exercises every command of README.md and of the pages of `docs`;
//! a table names the test's file.

use std::path::Path;

use crate::documents::markdown_files;
use crate::repository::{document, read, root};

pub(crate) const README_COMMANDS: &str = "tests/it/upstream/operation/readme_commands.rs";
/// The documents with commands, in the order of the table.
const DOCUMENTS: [&str; 8] = [
    "README.md",
    "docs/clients.md",
    "docs/settings.md",
    "docs/operating.md",
    "docs/admin-api.md",
    "docs/troubleshooting.md",
    "docs/reasons.md",
    "docs/tools.md",
];
pub(crate) const CHART: &str = "tests/it/upstream/operation/chart.rs";
const COMMAND_LINE: &str = "tests/it/command_line.rs";
const CONFIGURATION: &str = "tests/it/configuration.rs";
const LOAD: &str = "tests/it/load.rs";
const SIM: &str = "tests/it/sim_end_to_end.rs";

/// (command of a document, file of the test that exercises it), in the order of the documents.
const COMMANDS: &[(&str, &str)] = &[
    ("cargo run -- demo", "tests/it/demo.rs"),
    ("cargo test", "tests/it/main.rs"),
    (
        "cargo run --release -- serve --kubeconfig ~/.kube/config",
        README_COMMANDS,
    ),
    ("kubefan kubeconfig > kubefan.kubeconfig", README_COMMANDS),
    (
        "kubectl --kubeconfig kubefan.kubeconfig get pods",
        README_COMMANDS,
    ),
    (
        "kubectl --kubeconfig kubefan.kubeconfig get pods --watch",
        README_COMMANDS,
    ),
    (
        "helm install kubefan deploy/helm/kubefan --namespace kubefan --create-namespace --set image.repository=registry.example.com/kubefan --set image.tag=dev",
        CHART,
    ),
    ("kubefan version", COMMAND_LINE),
    ("source <(kubefan completion bash)", COMMAND_LINE),
    ("kubefan config check config/kubefan.yaml", CONFIGURATION),
    (
        "kubefan config show --config config/sidecar.yaml --listen 127.0.0.1:9001",
        CONFIGURATION,
    ),
    (
        "curl 'http://127.0.0.1:8002/readyz?verbose'",
        README_COMMANDS,
    ),
    ("curl http://127.0.0.1:8002/metrics", README_COMMANDS),
    (
        "kubefan top --once --admin-url http://127.0.0.1:8002",
        README_COMMANDS,
    ),
    (
        "curl http://127.0.0.1:8002/admin/v1/caches",
        README_COMMANDS,
    ),
    (
        "curl http://127.0.0.1:8002/admin/v1/clients",
        README_COMMANDS,
    ),
    (
        "curl 'http://127.0.0.1:8002/readyz?verbose'",
        README_COMMANDS,
    ),
    ("curl http://127.0.0.1:8002/metrics", README_COMMANDS),
    (
        "curl -s http://127.0.0.1:8002/metrics | grep '^kubefan_requests_total.*forwarded' | sort -t' ' -k2 -rn",
        README_COMMANDS,
    ),
    (
        "kubefan why --admin-url http://127.0.0.1:8002 -H 'Accept: application/json' /api/v1/namespaces/default/pods",
        README_COMMANDS,
    ),
    (
        "cargo run --release -- sim --crd tests/upstream/widgets.yaml",
        SIM,
    ),
    ("curl http://127.0.0.1:8004/", SIM),
    (
        "curl -X POST http://127.0.0.1:8004/faults/drop-watches",
        SIM,
    ),
    (
        "kubefan load --server http://127.0.0.1:8003 --watchers 500 --rate 20 --duration 10s --html load.html",
        LOAD,
    ),
];

#[test]
fn every_command_has_something_that_exercises_it() {
    let shown = commands();
    let listed: Vec<_> = COMMANDS.iter().map(|(command, _)| *command).collect();
    assert_eq!(shown, listed, "the documents (left) and COMMANDS differ");
    for (command, place) in COMMANDS {
        let is_there = root().join(place).is_file();
        assert!(is_there, "{command}: {place} does not exist");
    }
}

/// Returns the commands that the documents show, in order.
pub(crate) fn commands() -> Vec<String> {
    let documents = DOCUMENTS.map(document);
    documents
        .iter()
        .flat_map(|text| commands_in(text))
        .collect()
}

/// No other page has commands.
#[test]
fn every_document_with_commands_is_listed() {
    let pages = markdown_files(&root().join("docs"));
    for page in pages {
        let name = page.strip_prefix(root()).expect("a file below the root");
        let is_listed = DOCUMENTS.iter().any(|listed| name == Path::new(listed));
        let has_none = commands_in(&read(&page)).is_empty();
        assert!(is_listed || has_none, "{} has commands", name.display());
    }
}

/// Returns the commands that the test file `place` exercises, in order.
pub(crate) fn commands_run_by(place: &str) -> Vec<&'static str> {
    let run = COMMANDS.iter().filter(|(_, by)| *by == place);
    run.map(|(command, _)| *command).collect()
}

/// Returns the command lines of all `sh` blocks, without comments and empty lines. Lines that end
/// with a backslash are joined with the next one.
fn commands_in(markdown: &str) -> Vec<String> {
    let mut commands = Vec::new();
    let mut in_block = false;
    let mut continued = String::new();
    for line in markdown.lines().map(str::trim) {
        if line.starts_with("```") {
            in_block = line == "```sh";
        } else if in_block && !line.is_empty() && !line.starts_with('#') {
            match line.strip_suffix('\\') {
                Some(part) => continued.push_str(part),
                None => commands.push(std::mem::take(&mut continued) + line),
            }
        }
    }
    commands
}

#[test]
fn blocks_are_read_line_by_line() {
    let markdown = "text\n```sh\n# why\na -b\n\nc \\\n  --d\n```\nno\n```yaml\nno: 1\n```\n  ```sh\n  e\n  ```\n";
    assert_eq!(commands_in(markdown), ["a -b", "c --d", "e"]);
}
