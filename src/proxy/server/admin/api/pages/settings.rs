//! The page of the effective configuration.

use kubefan_core::api::Status;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use crate::server::admin::api::page::{Page, now};
use crate::server::admin::api::sources::Sources;

/// The settings that are in use. No setting is a secret: those of the kubeconfig are not shown.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::server::admin::api) struct Settings {
    /// When the page was made, by RFC 3339.
    time: String,
    /// Every setting, in the order of the configuration file.
    settings: Vec<EffectiveSetting>,
}

/// A setting that is in use.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Setting")]
pub struct EffectiveSetting {
    /// The key in the configuration file, such as listen.address.
    pub key: String,
    /// The value that is in use, as in a configuration file. References to environment variables
    /// are not expanded.
    pub value: Value,
    /// Where the value is from.
    pub origin: SettingOrigin,
    /// The file and line, the environment variable or the flag; absent for a default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub place: Option<String>,
    /// Whether a change needs a restart.
    pub needs_restart: bool,
    /// Whether the configuration has another value, which is used after a restart.
    pub waits_for_restart: bool,
}

/// Where the value of a setting is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum SettingOrigin {
    /// The default.
    Default,
    /// The configuration file.
    File,
    /// An environment variable.
    Environment,
    /// A flag.
    Flag,
}

impl Page for Settings {
    const NAME: &'static str = "config";
    const SUMMARY: &'static str = "The effective configuration: each setting and its origin.";

    fn read(sources: &Sources) -> Result<Self, Status> {
        let settings = sources.settings().ok_or_else(|| {
            let message = "this kubefan was started without a configuration that it could show";
            Status::failure(404, "NotFound", message)
        })?;
        Ok(Self {
            time: now(),
            settings,
        })
    }
}
