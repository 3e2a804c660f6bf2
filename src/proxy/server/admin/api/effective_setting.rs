//! EffectiveSetting: a setting that is in use, with its origin.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

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
