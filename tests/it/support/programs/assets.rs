//! Finds the binaries for the tests against a real API server.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

const SERVERS: [&str; 3] = ["kube-apiserver", "etcd", "kubectl"];
const HELPERS: [&str; 5] = [
    "stub-kubelet",
    "informers",
    "manager",
    "configmaps",
    "uncached",
];

/// The two directories with the servers (kube-apiserver, etcd, kubectl) and with the helper
/// programs of `tests/upstream`.
#[derive(Clone, Debug)]
pub(crate) struct Assets {
    servers: PathBuf,
    helpers: PathBuf,
}

impl Assets {
    /// Takes the servers from the directory in `KUBEBUILDER_ASSETS`, and the
    /// helpers from the directory in `KUBEFAN_TEST_ASSETS`. If only one of them is
    /// set, its directory has all programs.
    ///
    /// # Panics
    /// Panics if a program is missing. The message says what to do.
    pub(crate) fn find() -> Self {
        let [servers, helpers] = ["KUBEBUILDER_ASSETS", "KUBEFAN_TEST_ASSETS"]
            .map(|name| env::var_os(name).map(PathBuf::from));
        let (servers, helpers) = match (servers, helpers) {
            (Some(servers), Some(helpers)) => (servers, helpers),
            (Some(all), None) | (None, Some(all)) => (all.clone(), all),
            (None, None) => panic!("no variable names the directory of kube-apiserver; {REMEDY}"),
        };
        for (directory, names) in [(&servers, &SERVERS[..]), (&helpers, &HELPERS)] {
            for name in names {
                require(&directory.join(name));
            }
        }
        Self { servers, helpers }
    }

    pub(crate) fn kube_apiserver(&self) -> PathBuf {
        self.servers.join("kube-apiserver")
    }

    /// Returns the minor version of Kubernetes 1 that kube-apiserver prints, such as 37.
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

    /// Returns the path of kube-controller-manager.
    ///
    /// # Panics
    /// Panics if the program is missing: a directory in `KUBEBUILDER_ASSETS` need not have it.
    pub(crate) fn kube_controller_manager(&self) -> PathBuf {
        let program = self.servers.join("kube-controller-manager");
        require(&program);
        program
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

    pub(crate) fn uncached(&self) -> PathBuf {
        self.helpers.join("uncached")
    }
}

fn require(program: &Path) {
    assert!(
        program.is_file(),
        "{} is missing; {REMEDY}",
        program.display()
    );
}

const REMEDY: &str = "set KUBEBUILDER_ASSETS to the directory that tests/upstream/build prints \
                      (it needs Go; see CONTRIBUTING.md)";
