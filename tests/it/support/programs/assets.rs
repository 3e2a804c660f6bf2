//! Finds the binaries for the tests against a real API server, or reports which are missing.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

const SERVERS: [&str; 3] = ["kube-apiserver", "etcd", "kubectl"];
const HELPERS: [&str; 4] = ["stub-kubelet", "informers", "manager", "configmaps"];

/// The two directories with the servers (kube-apiserver, etcd, kubectl) and with the helper
/// programs of `tests/upstream`.
#[derive(Clone, Debug)]
pub(crate) struct Assets {
    servers: PathBuf,
    helpers: PathBuf,
}

impl Assets {
    /// Looks in `KUBEBUILDER_ASSETS` and `KUBEFAN_TEST_ASSETS`, then in the cache that
    /// `tests/upstream/build` fills.
    ///
    /// # Errors
    /// One line that names what is missing and how to build it.
    pub(crate) fn find() -> Result<Self, String> {
        let built = |label: &str| {
            newest_build(
                &cache_directory(),
                &format!("{label}-{}-", pinned_kubernetes()),
            )
        };
        let servers = match env::var_os("KUBEBUILDER_ASSETS").map(PathBuf::from) {
            Some(directory) => Some(directory),
            None => named_helpers()
                .filter(|d| has_all(d, &SERVERS))
                .or_else(|| built("all")),
        };
        let helpers = named_helpers()
            .or_else(|| built("all"))
            .or_else(|| built("helpers"));
        let assets = Self {
            servers: servers.ok_or(BUILD)?,
            helpers: helpers.ok_or(BUILD)?,
        };
        for (directory, names) in [(&assets.servers, &SERVERS[..]), (&assets.helpers, &HELPERS)] {
            if let Some(name) = names.iter().find(|name| !directory.join(name).is_file()) {
                return Err(format!("{} has no {name}", directory.display()));
            }
        }
        Ok(assets)
    }

    pub(crate) fn kube_apiserver(&self) -> PathBuf {
        self.servers.join("kube-apiserver")
    }

    /// The minor version of Kubernetes 1 that kube-apiserver says it has, such as 37.
    pub(super) fn minor(&self) -> u32 {
        let output = Command::new(self.kube_apiserver())
            .arg("--version")
            .output();
        let output = output.expect("kube-apiserver can be run");
        let text = String::from_utf8_lossy(&output.stdout);
        let minor = text
            .strip_prefix("Kubernetes v1.")
            .and_then(|rest| rest.split('.').next()?.parse().ok());
        minor.unwrap_or_else(|| panic!("not a version of kube-apiserver: {text}"))
    }

    pub(crate) fn etcd(&self) -> PathBuf {
        self.servers.join("etcd")
    }

    pub(crate) fn kubectl(&self) -> PathBuf {
        self.servers.join("kubectl")
    }

    /// The path of kube-controller-manager. `None`, with one line on stderr, if it is missing: a
    /// directory in `KUBEBUILDER_ASSETS` need not have it.
    ///
    /// # Panics
    /// Panics if it is missing and `KUBEFAN_REQUIRE_UPSTREAM` is 1.
    pub(crate) fn kube_controller_manager(&self) -> Option<PathBuf> {
        let program = self.servers.join("kube-controller-manager");
        if program.is_file() {
            return Some(program);
        }
        let reason = format!("{} is missing", program.display());
        let is_required = env::var_os("KUBEFAN_REQUIRE_UPSTREAM").is_some_and(|v| v == "1");
        assert!(
            !is_required,
            "KUBEFAN_REQUIRE_UPSTREAM is set, but {reason}"
        );
        let line = format!("skipped: the tests of the controller manager: {reason}\n");
        // Not eprintln!, because the test harness hides its output if the test passes.
        let _ = std::io::stderr().write_all(line.as_bytes());
        None
    }

    pub(crate) fn stub_kubelet(&self) -> PathBuf {
        self.helpers.join("stub-kubelet")
    }

    pub(crate) fn informers(&self) -> PathBuf {
        self.helpers.join("informers")
    }

    pub(crate) fn manager(&self) -> PathBuf {
        self.helpers.join("manager")
    }

    pub(crate) fn configmaps(&self) -> PathBuf {
        self.helpers.join("configmaps")
    }
}

const BUILD: &str = "no kube-apiserver was found; tests/upstream/build builds one (it needs Go)";

fn named_helpers() -> Option<PathBuf> {
    env::var_os("KUBEFAN_TEST_ASSETS").map(PathBuf::from)
}

fn cache_directory() -> PathBuf {
    let base = match env::var_os("XDG_CACHE_HOME") {
        Some(directory) => PathBuf::from(directory),
        None => PathBuf::from(env::var_os("HOME").unwrap_or_default()).join(".cache"),
    };
    base.join("kubefan/upstream")
}

/// The version of Kubernetes that `tests/upstream` builds, such as `v1.37.1`.
fn pinned_kubernetes() -> &'static str {
    include_str!("../../../upstream/go.mod")
        .lines()
        .find_map(|line| line.trim().strip_prefix("k8s.io/kubernetes "))
        .expect("go.mod requires k8s.io/kubernetes")
}

/// The newest finished build in the cache whose name starts with `prefix`.
fn newest_build(cache: &Path, prefix: &str) -> Option<PathBuf> {
    fs::read_dir(cache)
        .ok()?
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(prefix))
        .max_by_key(|entry| entry.metadata().and_then(|data| data.modified()).ok())
        .map(|entry| entry.path())
}

fn has_all(directory: &Path, names: &[&str]) -> bool {
    names.iter().all(|name| directory.join(name).is_file())
}
