//! The page of the effective configuration.

use kubefan_core::api::Status;
use schemars::JsonSchema;
use serde::Serialize;

use crate::server::admin::api::effective_setting::EffectiveSetting;
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
