//! The `continue` token of paged lists, in the API server's own format.
//!
//! Unpadded URL-safe base64 of `{"v":"meta.k8s.io/v1","rv":N,"start":"/KEY\u0000"}`, so tokens
//! can be handed on to the API server and tokens of its making are understood.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use serde::Serialize;

use super::Malformed;
use crate::api::ObjectKey;
use crate::api::ResourceVersion;
use crate::api::escape_as_go;

const VERSION: &str = "meta.k8s.io/v1";

/// Where the next page of a list begins, and in which state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContinueToken {
    /// The state that all pages show; `None` (-1 on the wire) takes the current state, which
    /// makes the list inconsistent with its first page.
    pub resource_version: Option<ResourceVersion>,
    /// The least key that the page may show, relative to the list's scope and without a leading
    /// `/`; usually the last key shown and a NUL.
    pub start: String,
}

impl ContinueToken {
    /// The token for what follows `last` in a list of `namespace` (`None`: of all).
    pub fn after(
        last: &ObjectKey,
        namespace: Option<&str>,
        resource_version: ResourceVersion,
    ) -> Self {
        let key = match namespace {
            Some(_) => last.name(),
            None => last.as_str(),
        };
        Self {
            resource_version: Some(resource_version),
            start: format!("{key}\0"),
        }
    }

    /// The least [`ObjectKey`], as text, that the next page of a list of `namespace` may show.
    pub fn start_key(&self, namespace: Option<&str>) -> String {
        match namespace {
            Some(namespace) => format!("{namespace}/{}", self.start),
            None => self.start.clone(),
        }
    }

    /// The same place in the current state: what an expired list can be resumed with.
    pub fn inconsistent(&self) -> Self {
        Self {
            resource_version: None,
            start: self.start.clone(),
        }
    }

    /// The text for clients.
    ///
    /// # Panics
    ///
    /// Never: plain structs of text and numbers always serialize.
    pub fn encode(&self) -> String {
        let fields = Fields {
            version: VERSION.to_owned(),
            // Resource versions are revisions of etcd, which are 63 bits long.
            resource_version: self.resource_version.map_or(-1, |version| version.0 as i64),
            start: format!("/{}", self.start),
        };
        let json = serde_json::to_string(&fields).expect("plain structs always serialize");
        URL_SAFE_NO_PAD.encode(escape_as_go(&json))
    }

    /// Reads a client's token: one of ours, or of the API server.
    ///
    /// # Errors
    ///
    /// When it is something else, even what the API server would understand.
    pub fn decode(text: &str) -> Result<Self, Malformed> {
        let malformed = || Malformed::new("continue", "it is no token of a list");
        let json = URL_SAFE_NO_PAD.decode(text).map_err(|_| malformed())?;
        // An array of the same values is none to the API server.
        if json.trim_ascii_start().first() != Some(&b'{') {
            return Err(malformed());
        }
        let fields: Fields = serde_json::from_slice(&json).map_err(|_| malformed())?;
        Self::from_fields(&fields).ok_or_else(malformed)
    }

    fn from_fields(fields: &Fields) -> Option<Self> {
        let start = fields.start.strip_prefix('/').unwrap_or(&fields.start);
        // A start that leaves its scope, or spells one key in two ways, is refused.
        let is_plain = |segment: &str| !matches!(segment, "" | "." | "..");
        let resource_version = match fields.resource_version {
            0 => return None,
            number => u64::try_from(number).ok().map(ResourceVersion),
        };
        (fields.version == VERSION && start.split('/').all(is_plain)).then(|| Self {
            resource_version,
            start: start.to_owned(),
        })
    }
}

/// What stands in the token's JSON.
#[derive(Deserialize, Serialize)]
struct Fields {
    #[serde(rename = "v")]
    version: String,
    /// -1 for the current state.
    #[serde(rename = "rv")]
    resource_version: i64,
    start: String,
}

#[cfg(test)]
mod tests;
