//! TypeMeta: how a resource names its kind, learnt from the first thing upstream sends.

use bytes::Bytes;

use super::Error;
use super::json;
use super::json::Scanner;
use super::protobuf;
use crate::api::WireFormat;

/// The kind of a resource's objects, and where JSON objects name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TypeMeta {
    /// Such as `Pod`.
    pub kind: String,
    /// Such as `apps/v1`.
    pub api_version: String,
    /// Kind of lists, such as `PodList`; a custom resource may name its own.
    pub list_kind: String,
    /// True when JSON objects carry them inside, among sorted keys, as custom resources do.
    pub is_embedded: bool,
}

#[derive(Default)]
struct Found {
    api_version: String,
    kind: String,
    is_list: bool,
    is_embedded: bool,
    event_object: Option<Vec<u8>>,
}

impl TypeMeta {
    /// Reads it from a LIST body or from a watch frame that carries an object or bookmark.
    ///
    /// From a frame the list's kind is taken to be the kind plus `List`, and from a list the kind
    /// is the list's kind without it.
    ///
    /// # Errors
    ///
    /// When `bytes` are neither, or name no kind (an ERROR frame names the wrong one).
    pub fn learn(format: WireFormat, bytes: &Bytes) -> Result<Self, Error> {
        let found = match format {
            WireFormat::Json => learn_json(bytes)?,
            WireFormat::Protobuf => learn_protobuf(bytes)?,
        };
        if found.kind.is_empty() || (found.kind == "Status" && !found.is_list) {
            return Err(Error::Missing("kind"));
        }
        let (kind, list_kind) = if found.is_list {
            let kind = found.kind.strip_suffix("List").unwrap_or(&found.kind);
            (kind.to_owned(), found.kind)
        } else {
            (found.kind.clone(), format!("{}List", found.kind))
        };
        Ok(Self {
            kind,
            api_version: found.api_version,
            list_kind,
            is_embedded: found.is_embedded,
        })
    }
}

fn learn_json(text: &[u8]) -> Result<Found, Error> {
    let top = read_json(text)?;
    match &top.event_object {
        Some(object) => read_json(object),
        None => Ok(top),
    }
}

/// Reads the members of an object, list or event that matter here.
fn read_json(text: &[u8]) -> Result<Found, Error> {
    let mut found = Found::default();
    let mut position = 0;
    let mut scanner = Scanner::new(text);
    let mut members = scanner.object()?;
    while let Some(key) = scanner.next_key(&mut members)? {
        match key.text.0 {
            b"kind" => {
                found.is_embedded |= position != 0;
                found.kind = scanner.string()?.unescape()?.into_owned();
            }
            b"apiVersion" => found.api_version = scanner.string()?.unescape()?.into_owned(),
            b"items" => {
                found.is_list = true;
                scanner.skip()?;
            }
            b"object" => found.event_object = Some(scanner.value()?.to_vec()),
            _ => {
                scanner.skip()?;
            }
        }
        position += 1;
    }
    // An object of some kind may have a member named `object`; an event has no kind.
    found.event_object = found.event_object.filter(|_| found.kind.is_empty());
    Ok(found)
}

fn learn_protobuf(bytes: &[u8]) -> Result<Found, Error> {
    let is_list = bytes.starts_with(protobuf::MAGIC);
    let envelope = if is_list {
        protobuf::envelope(bytes)?
    } else {
        protobuf::event(bytes)?.envelope
    };
    Ok(Found {
        api_version: envelope.api_version.to_owned(),
        kind: envelope.kind.to_owned(),
        is_list,
        ..Found::default()
    })
}

/// `{"kind":…,"apiVersion":…,` as it stands before the body of a built-in object.
pub(super) fn json_front(kind: &str, api_version: &str) -> String {
    let (kind, api_version) = (json::quoted(kind), json::quoted(api_version));
    format!("{{\"kind\":{kind},\"apiVersion\":{api_version},")
}
