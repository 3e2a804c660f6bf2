//! The kubeconfigs of the demo.

use std::path::{Path, PathBuf};

use anyhow::Context;

/// A kubeconfig for a server without authentication. Dropping the value deletes the file.
pub(super) struct Kubeconfig(PathBuf);

impl Kubeconfig {
    /// Writes a kubeconfig for `server`, a URL.
    ///
    /// # Errors
    ///
    /// If the file cannot be written.
    pub(super) fn write(file: &Path, server: &str) -> anyhow::Result<Self> {
        let kubeconfig = serde_json::json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "kubefan-demo",
            "clusters": [{"name": "kubefan-demo", "cluster": {"server": server}}],
            "users": [{"name": "kubefan-demo", "user": {}}],
            "contexts": [{
                "name": "kubefan-demo",
                "context": {"cluster": "kubefan-demo", "user": "kubefan-demo"},
            }],
        });
        // A kubeconfig is YAML, and JSON is valid YAML.
        std::fs::write(file, format!("{kubeconfig:#}\n"))
            .with_context(|| format!("cannot write {}", file.display()))?;
        Ok(Self(file.to_owned()))
    }

    /// Writes a kubeconfig like [`Kubeconfig::write`], to a new file with a unique name.
    ///
    /// # Errors
    ///
    /// If the file cannot be written.
    pub(super) fn temporary(server: &str) -> anyhow::Result<Self> {
        let name = format!("kubefan-demo-{}.kubeconfig", uuid::Uuid::new_v4());
        Self::write(&std::env::temp_dir().join(name), server)
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Kubeconfig {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_file(&self.0) {
            tracing::debug!(%error, file = %self.0.display(), "cannot delete the kubeconfig");
        }
    }
}
