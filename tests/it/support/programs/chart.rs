//! Renders the chart in `deploy/helm/kubefan` with the helm that `tests/deploy/build` builds, and runs
//! the other programs that it builds.

use std::ffi::OsStr;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::{env, fs};

use serde_json::Value;
use tempfile::TempDir;

use crate::repository::root;

/// The namespace for the chart in the tests.
pub(crate) const NAMESPACE: &str = "kubefan";

const REMEDY: &str = "there is no helm; set KUBEFAN_DEPLOY_TOOLS to the directory that \
                      tests/deploy/build prints (it needs Go)";

/// The programs that check `deploy/`.
#[derive(Clone, Debug)]
pub(crate) struct Tools {
    directory: PathBuf,
}

impl Tools {
    /// Finds the programs in the directory that `KUBEFAN_DEPLOY_TOOLS` names.
    ///
    /// # Panics
    /// Panics if there is no helm. The message says what to do.
    pub(crate) fn find() -> Self {
        let named = env::var_os("KUBEFAN_DEPLOY_TOOLS").map(PathBuf::from);
        let directory = named.filter(|directory| directory.join("helm").is_file());
        Self {
            directory: directory.expect(REMEDY),
        }
    }

    /// Runs one of the programs with an empty home directory.
    pub(crate) fn run<A: AsRef<OsStr>>(&self, program: &str, arguments: &[A]) -> Output {
        self.run_reading(program, arguments, Path::new("/dev/null"))
    }

    /// Runs one of the programs like [`Tools::run`], with a file as its standard input.
    pub(crate) fn run_reading<A: AsRef<OsStr>>(
        &self,
        program: &str,
        arguments: &[A],
        input: &Path,
    ) -> Output {
        let home = tempfile::tempdir().expect("a temporary directory");
        Command::new(self.directory.join(program))
            .args(arguments)
            .env("HOME", home.path())
            .env_remove("KUBECONFIG")
            .current_dir(home.path())
            .stdin(File::open(input).expect("a file"))
            .output()
            .unwrap_or_else(|error| panic!("{program}: {error}"))
    }

    /// Returns what `helm template` prints for the chart with these values, as release and
    /// namespace `kubefan`, with Helm 4 (`helm`) or 3 (`helm3`).
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

    /// Renders like [`Tools::render`] with Helm 4, for values as text.
    ///
    /// # Errors
    /// What helm prints if it fails.
    pub(crate) fn render_text(&self, values: &str) -> Result<String, String> {
        let directory = tempfile::tempdir().expect("a temporary directory");
        self.render("helm", &[file_with(&directory, values)])
    }
}

/// Returns the standard output of a program that has succeeded.
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

/// Returns the chart's folder.
pub(crate) fn chart() -> PathBuf {
    root().join("deploy/helm/kubefan")
}

/// Returns the objects in the YAML documents of a text.
pub(crate) fn objects(text: &str) -> Vec<Value> {
    let documents = text.split("\n---\n");
    let parse = |document: &str| -> Value {
        serde_saphyr::from_str(document).unwrap_or_else(|error| panic!("{error}: {document}"))
    };
    let objects = documents.map(|document| parse(document.trim_start_matches("---\n")));
    objects.filter(|object| !object.is_null()).collect()
}
