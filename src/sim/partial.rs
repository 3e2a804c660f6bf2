//! Answers as metadata on its own: PartialObjectMetadata.

use bytes::Bytes;
use serde_json::Value;
use serde_json::json;

use crate::codec;

use super::forms::Convert;
use super::metadata;
use super::print;

const API_VERSION: &str = "meta.k8s.io/v1";

/// Leaves of objects what they are called, and by whom.
pub(super) struct Partial {
    /// Annotations that are no part of metadata on its own.
    pub(super) hidden: Option<&'static str>,
}

impl Partial {
    fn of(&self, object: &mut Value) -> Value {
        let mut own = object["metadata"].take();
        if let Some(hidden) = self.hidden {
            metadata::hide_annotation(&mut own, hidden);
        }
        json!({
            "kind": "PartialObjectMetadata", "apiVersion": API_VERSION,
            "metadata": metadata::declared(own),
        })
    }
}

impl Convert for Partial {
    fn list(&self, plain: &Bytes) -> Result<Bytes, codec::Error> {
        let mut list = parsed(plain)?;
        let mut items = list["items"].take();
        let items: Vec<_> = items
            .as_array_mut()
            .into_iter()
            .flatten()
            .map(|item| self.of(item))
            .collect();
        let mut own = serde_json::Map::new();
        for key in ["resourceVersion", "continue", "remainingItemCount"] {
            let value = &list["metadata"][key];
            if !value.is_null() && value != "" {
                own.insert(key.to_owned(), value.clone());
            }
        }
        Ok(print::line(&json!({
            "kind": "PartialObjectMetadataList", "apiVersion": API_VERSION,
            "metadata": own, "items": items,
        }))
        .into())
    }

    fn object(&self, plain: &Bytes) -> Result<Bytes, codec::Error> {
        Ok(print::line(&self.of(&mut parsed(plain)?)).into())
    }

    fn event(&mut self, plain: Bytes) -> Result<Bytes, codec::Error> {
        let mut event = parsed(&plain)?;
        if event["type"] == "ERROR" {
            // A Status is never converted.
            return Ok(plain);
        }
        let object = self.of(&mut event["object"]);
        Ok(print::line(&json!({"type": event["type"], "object": object})).into())
    }
}

fn parsed(plain: &Bytes) -> Result<Value, codec::Error> {
    serde_json::from_slice(plain).map_err(|error| codec::Error::Json {
        expected: "an answer of ours",
        offset: error.column(),
    })
}
