//! `kubefan version`.

use anyhow::Context;
use kubefan_proxy::process::{Error, print};
use serde::Serialize;

use super::args::OutputFormat;

/// The text in place of the commit if the build did not record it.
const UNKNOWN_COMMIT: &str = if cfg!(debug_assertions) {
    "unknown (debug builds do not record it)"
} else {
    "unknown"
};

/// The version of this binary, and how it was built. `build.rs` records the data that cargo has.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Version {
    version: &'static str,
    /// The commit, if the variable `KUBEFAN_GIT_COMMIT` named it at the build, or if the binary is
    /// a release build of a checkout.
    #[serde(skip_serializing_if = "Option::is_none")]
    git_commit: Option<&'static str>,
    rustc: &'static str,
    target: &'static str,
    features: Vec<&'static str>,
}

/// Prints the version on standard output.
///
/// # Errors
///
/// [`Error::Failed`] if the version cannot be encoded.
pub(super) fn version(format: OutputFormat) -> Result<(), Error> {
    let version = Version {
        version: env!("CARGO_PKG_VERSION"),
        git_commit: option_env!("KUBEFAN_GIT_COMMIT").filter(|commit| !commit.is_empty()),
        rustc: env!("KUBEFAN_RUSTC"),
        target: env!("KUBEFAN_TARGET"),
        features: env!("KUBEFAN_FEATURES").split(',').collect(),
    };
    let text = match format {
        OutputFormat::Text => version.text(),
        OutputFormat::Json => {
            serde_json::to_string_pretty(&version).context("cannot print the version")? + "\n"
        }
        OutputFormat::Yaml => {
            serde_saphyr::to_string(&version).context("cannot print the version")?
        }
    };
    print(&text);
    Ok(())
}

impl Version {
    fn text(&self) -> String {
        format!(
            "kubefan {}\ncommit: {}\nrustc: {}\ntarget: {}\nfeatures: {}\n",
            self.version,
            self.git_commit.unwrap_or(UNKNOWN_COMMIT),
            self.rustc,
            self.target,
            self.features.join(", "),
        )
    }
}
