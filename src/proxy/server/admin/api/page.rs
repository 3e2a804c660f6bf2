//! Page: what one path of the API shows.

use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;
use kubefan_core::api::Status;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Serialize;
use tokio::time::Instant;

use super::sources::Sources;

/// The path that all paths of the API begin with.
pub(super) const PREFIX: &str = "/admin/v1/";

/// What one path of the API shows. The type's comments are the texts of the OpenAPI document.
pub(super) trait Page: Sized + Serialize + JsonSchema {
    /// The last part of the path.
    const NAME: &'static str;
    /// What the page shows, in one sentence.
    const SUMMARY: &'static str;

    /// Reads the page.
    ///
    /// # Errors
    /// The Status of the answer, if there is nothing to show.
    fn read(sources: &Sources) -> Result<Self, Status>;
}

/// A page without its type.
pub(super) struct Endpoint {
    pub(super) name: &'static str,
    pub(super) summary: &'static str,
    /// Returns the schema of the page.
    pub(super) schema: fn(&mut SchemaGenerator) -> Schema,
    /// Returns the page as JSON.
    pub(super) render: fn(&Sources) -> Result<Bytes, Status>,
}

impl Endpoint {
    pub(super) fn of<P: Page>() -> Self {
        Self {
            name: P::NAME,
            summary: P::SUMMARY,
            schema: SchemaGenerator::subschema_for::<P>,
            render: |sources| {
                let page = P::read(sources)?;
                let text = serde_json::to_vec(&page);
                let text = text.map_err(|error| Status::internal_error(error.to_string()));
                Ok(text?.into())
            },
        }
    }
}

/// Returns the current time for a page, as RFC 3339 defines it, in milliseconds.
pub(super) fn now() -> String {
    format!("{:.3}", Timestamp::now())
}

/// Returns the seconds since `at`, in milliseconds.
pub(super) fn seconds_since(at: Instant) -> f64 {
    seconds(at.elapsed())
}

/// Returns `time` in seconds, rounded down to a millisecond.
pub(super) fn seconds(time: Duration) -> f64 {
    time.as_millis() as f64 / 1_000.0
}
