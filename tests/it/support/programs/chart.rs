//! Renders the chart in `deploy/helm/kubefan` with the helm that `tests/deploy/build` builds.

use std::ffi::OsStr;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;
use std::{env, fs};

use serde_json::Value;
use tempfile::TempDir;

use crate::repository::root;
use crate::support::programs::assets::Assets;

/// The namespace in which the tests install the chart.
pub(crate) const NAMESPACE: &str = "kubefan";

const BUILD: &str = "there is no helm; tests/deploy/build builds it (it needs Go)";

/// The programs that check `deploy/`.
#[derive(Clone, Debug)]
pub(crate) struct Tools {
    directory: PathBuf,
}

impl Tools {
    /// Looks in `KUBEFAN_DEPLOY_TOOLS`, then in the cache that `tests/deploy/build` fills. `None` if
    /// they are missing, which is reported once, or if there is no API server, which its users report.
    ///
    /// # Panics
    /// Panics if they are missing and `KUBEFAN_REQUIRE_UPSTREAM` is 1.
    pub(crate) fn find() -> Option<Self> {
        static FOUND: OnceLock<Option<Tools>> = OnceLock::new();
        FOUND.get_or_init(Self::find_or_report).clone()
    }

    fn find_or_report() -> Option<Self> {
        let named = env::var_os("KUBEFAN_DEPLOY_TOOLS").map(PathBuf::from);
        if let Some(directory) = named.or_else(newest_build) {
            return Some(Self { directory });
        }
        let is_required = env::var_os("KUBEFAN_REQUIRE_UPSTREAM").is_some_and(|v| v == "1");
        assert!(!is_required, "KUBEFAN_REQUIRE_UPSTREAM is set, but {BUILD}");
        if Assets::find().is_ok() {
            // Not eprintln!, because the test harness hides its output if the test passes.
            let line = format!("skipped: the tests of the chart: {BUILD}\n");
            let _ = std::io::stderr().write_all(line.as_bytes());
        }
        None
    }

    /// Runs one of the programs with an empty home directory.
    pub(crate) fn run<A: AsRef<OsStr>>(&self, program: &str, arguments: &[A]) -> Output {
        let home = tempfile::tempdir().expect("a temporary directory");
        Command::new(self.directory.join(program))
            .args(arguments)
            .env("HOME", home.path())
            .env_remove("KUBECONFIG")
            .current_dir(home.path())
            .output()
            .unwrap_or_else(|error| panic!("{program}: {error}"))
    }

    /// What `helm template` prints for the chart with these values, as release and namespace
    /// `kubefan`, with Helm 4 (`helm`) or 3 (`helm3`).
    ///
    /// # Errors
    /// What helm prints if it fails.
    pub(crate) fn render(&self, helm: &str, values: &[PathBuf]) -> Result<String, String> {
        let mut arguments = vec!["template", "kubefan", "--namespace", NAMESPACE];
        let chart = chart().display().to_string();
        arguments.push(&chart);
        let values: Vec<String> = values.iter().map(|v| v.display().to_string()).collect();
        arguments.extend(values.iter().flat_map(|file| ["--values", file]));
        succeeded(&self.run(helm, &arguments))
    }

    /// As [`Tools::render`] of Helm 4, for values as text.
    ///
    /// # Errors
    /// What helm prints if it fails.
    pub(crate) fn render_text(&self, values: &str) -> Result<String, String> {
        let directory = tempfile::tempdir().expect("a temporary directory");
        self.render("helm", &[file_with(&directory, values)])
    }
}

/// The standard output of a program that has succeeded.
///
/// # Errors
/// All its output if it has failed.
pub(crate) fn succeeded(output: &Output) -> Result<String, String> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match output.status.success() {
        true => Ok(text(&output.stdout)),
        false => Err(text(&output.stdout) + &text(&output.stderr)),
    }
}

fn file_with(directory: &TempDir, text: &str) -> PathBuf {
    let path = directory.path().join("values.yaml");
    fs::write(&path, text).expect("a file can be written");
    path
}

/// The chart's folder.
pub(crate) fn chart() -> PathBuf {
    root().join("deploy/helm/kubefan")
}

/// The objects in the YAML documents of a text.
pub(crate) fn objects(text: &str) -> Vec<Value> {
    let documents = text.split("\n---\n");
    let parse = |document: &str| -> Value {
        serde_saphyr::from_str(document).unwrap_or_else(|error| panic!("{error}: {document}"))
    };
    let objects = documents.map(|document| parse(document.trim_start_matches("---\n")));
    objects.filter(|object| !object.is_null()).collect()
}

fn newest_build() -> Option<PathBuf> {
    let base = match env::var_os("XDG_CACHE_HOME") {
        Some(directory) => PathBuf::from(directory),
        None => Path::new(&env::var_os("HOME").unwrap_or_default()).join(".cache"),
    };
    let builds = fs::read_dir(base.join("kubefan/deploy")).ok()?.flatten();
    let tools = builds.filter(|entry| entry.file_name().to_string_lossy().starts_with("tools-"));
    tools
        .max_by_key(|entry| entry.metadata().and_then(|data| data.modified()).ok())
        .map(|entry| entry.path())
}
