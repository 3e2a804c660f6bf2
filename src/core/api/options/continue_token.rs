//! The `continue` token of paged lists, in the API server's format.
//!
//! A token is the unpadded URL-safe base64 of `{"v":"meta.k8s.io/v1","rv":N,"start":"/KEY\u0000"}`.
//! kubefan and the API server accept each other's tokens, because they use one format.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};

use super::Malformed;
use crate::api::{ObjectKey, ResourceVersion, escape_as_go};

const VERSION: &str = "meta.k8s.io/v1";

/// The first key of the next page of a list, and the resource version that the page shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContinueToken {
    /// The resource version that all pages show. `None` (-1 on the wire) means the current state,
    /// which is inconsistent with the list's first page.
    pub resource_version: Option<ResourceVersion>,
    /// The smallest key that the next page may contain: `name` in a list of one namespace, else
    /// `namespace/name`. Usually the last key of the page before, followed by a NUL.
    pub start: String,
}

impl ContinueToken {
    /// Returns the token for the objects after `last` in a list of `namespace` (`None`: of
    /// everything).
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

    /// Returns the smallest [`ObjectKey`], as text, in the next page of a list of `namespace`
    /// (`None`: of everything).
    pub fn start_key(&self, namespace: Option<&str>) -> String {
        match namespace {
            Some(namespace) => format!("{namespace}/{}", self.start),
            None => self.start.clone(),
        }
    }

    /// Creates a token with this start key but for the current state, which
    /// resumes an expired list.
    pub fn inconsistent(&self) -> Self {
        Self {
            resource_version: None,
            ..self.clone()
        }
    }

    /// Encodes the token as the text that clients get.
    ///
    /// # Panics
    /// Never: structs of text and numbers can always be serialized.
    pub fn encode(&self) -> String {
        self.encode_after("/")
    }

    /// Encodes the token as the API server does for a resource that it reads from etcd.
    ///
    /// # Panics
    /// Never, as for [`ContinueToken::encode`].
    pub fn encode_of_etcd(&self) -> String {
        self.encode_after("")
    }

    fn encode_after(&self, prefix: &str) -> String {
        let fields = Fields {
            version: VERSION.to_owned(),
            // Resource versions are etcd revisions of 63 bits, so the cast does
            // not change the value.
            resource_version: self.resource_version.map_or(-1, |version| version.0 as i64),
            start: format!("{prefix}{}", self.start),
        };
        let json = serde_json::to_string(&fields).expect("plain structs always serialize");
        URL_SAFE_NO_PAD.encode(escape_as_go(&json))
    }

    /// Decodes a token that kubefan or the API server made.
    ///
    /// # Errors
    /// If the text is anything else, even a form that the API server would accept.
    pub fn decode(text: &str) -> Result<Self, Malformed> {
        let malformed = || Malformed::new("continue", "it is not the token of a list");
        let json = URL_SAFE_NO_PAD.decode(text).map_err(|_| malformed())?;
        // serde would also accept an array of the values; the API server accepts only an object.
        if json.trim_ascii_start().first() != Some(&b'{') {
            return Err(malformed());
        }
        let fields: Fields = serde_json::from_slice(&json).map_err(|_| malformed())?;
        Self::from_fields(&fields).ok_or_else(malformed)
    }

    fn from_fields(fields: &Fields) -> Option<Self> {
        let start = fields.start.strip_prefix('/').unwrap_or(&fields.start);
        // Refuses a start key that leaves the list's scope, or that is a second spelling of a key.
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

/// The JSON object in a token.
#[derive(Deserialize, Serialize)]
struct Fields {
    #[serde(rename = "v")]
    version: String,
    /// The resource version that all pages show; -1 for the current state.
    #[serde(rename = "rv")]
    resource_version: i64,
    start: String,
}

#[cfg(test)]
mod tests;
