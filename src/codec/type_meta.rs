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
struct TypeFields {
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
    pub fn read(format: WireFormat, bytes: &Bytes) -> Result<Self, Error> {
        let fields = match format {
            WireFormat::Json => read_json_type(bytes)?,
            WireFormat::Protobuf => read_protobuf_type(bytes)?,
        };
        if fields.kind.is_empty() || (fields.kind == "Status" && !fields.is_list) {
            return Err(Error::Missing("kind"));
        }
        let (kind, list_kind) = if fields.is_list {
            let kind = fields.kind.strip_suffix("List").unwrap_or(&fields.kind);
            (kind.to_owned(), fields.kind)
        } else {
            (fields.kind.clone(), format!("{}List", fields.kind))
        };
        Ok(Self {
            kind,
            api_version: fields.api_version,
            list_kind,
            is_embedded: fields.is_embedded,
        })
    }
}

fn read_json_type(text: &[u8]) -> Result<TypeFields, Error> {
    let top = read_json_fields(text)?;
    match &top.event_object {
        Some(object) => read_json_fields(object),
        None => Ok(top),
    }
}

/// Reads the members of an object, list or event that matter here.
fn read_json_fields(text: &[u8]) -> Result<TypeFields, Error> {
    let mut fields = TypeFields::default();
    let mut position = 0;
    let mut scanner = Scanner::new(text);
    let mut members = scanner.object()?;
    while let Some(key) = scanner.next_key(&mut members)? {
        match key.text.0 {
            b"kind" => {
                fields.is_embedded |= position != 0;
                fields.kind = scanner.string()?.unescape()?.into_owned();
            }
            b"apiVersion" => fields.api_version = scanner.string()?.unescape()?.into_owned(),
            b"items" => {
                fields.is_list = true;
                scanner.skip()?;
            }
            b"object" => fields.event_object = Some(scanner.value()?.to_vec()),
            _ => {
                scanner.skip()?;
            }
        }
        position += 1;
    }
    // An object of some kind may have a member named `object`; an event has no kind.
    fields.event_object = fields.event_object.filter(|_| fields.kind.is_empty());
    Ok(fields)
}

fn read_protobuf_type(bytes: &[u8]) -> Result<TypeFields, Error> {
    let is_list = bytes.starts_with(protobuf::MAGIC);
    let envelope = if is_list {
        protobuf::envelope(bytes)?
    } else {
        protobuf::event(bytes)?.envelope
    };
    Ok(TypeFields {
        api_version: envelope.api_version.to_owned(),
        kind: envelope.kind.to_owned(),
        is_list,
        ..TypeFields::default()
    })
}

/// `{"kind":…,"apiVersion":…,` as it stands before the body of a built-in object.
pub(super) fn json_front(kind: &str, api_version: &str) -> String {
    let (kind, api_version) = (json::quoted(kind), json::quoted(api_version));
    format!("{{\"kind\":{kind},\"apiVersion\":{api_version},")
}
