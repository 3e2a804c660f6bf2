//! The kind and apiVersion of a resource, read from the first list or event of the upstream.

use bytes::Bytes;

use super::json::Scanner;
use super::{Error, MetaVersion, json, protobuf};
use crate::api::WireFormat;

/// The kind and apiVersion of a resource's objects, and their position in JSON objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TypeMeta {
    /// The kind of the objects, such as `Pod`.
    pub kind: String,
    /// The group and version of the objects, such as `apps/v1`.
    pub api_version: String,
    /// The kind of lists, such as `PodList`. The definition of a custom resource may set any name.
    pub list_kind: String,
    /// True if the cached JSON body contains `kind` and `apiVersion`, as it does for custom
    /// resources, which have sorted keys. False for built-in kinds.
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
    /// Reads kind and apiVersion from a LIST body or a watch frame with an object or bookmark.
    ///
    /// A frame does not name the list's kind, so `list_kind` is the kind plus `List`. A list does
    /// not name the objects' kind, so `kind` is the list's kind without `List`.
    ///
    /// # Errors
    ///
    /// If `bytes` are malformed, have no kind, or are an ERROR event, which has the kind `Status`.
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

/// Reads the type and the `items` and `object` members of a JSON object, list or watch event.
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
            _ => scanner.skip()?,
        }
        position += 1;
    }
    // A watch event has `object` but no `kind`. If there is a kind, this is not a watch event but a
    // custom resource with a member called `object`, which is ignored.
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

/// Returns the start of a PartialObjectMetadata in JSON, up to the value of its metadata.
pub(crate) fn partial_front(version: MetaVersion) -> &'static str {
    match version {
        MetaVersion::V1 => {
            "{\"kind\":\"PartialObjectMetadata\",\"apiVersion\":\"meta.k8s.io/v1\",\"metadata\":"
        }
        MetaVersion::V1Beta1 => {
            "{\"kind\":\"PartialObjectMetadata\",\"apiVersion\":\"meta.k8s.io/v1beta1\",\"metadata\":"
        }
    }
}

/// Returns the bytes `{"kind":…,"apiVersion":…,`, which precede the cached body
/// of a built-in object.
pub(super) fn json_front(kind: &str, api_version: &str) -> String {
    let (kind, api_version) = (json::quoted(kind), json::quoted(api_version));
    format!("{{\"kind\":{kind},\"apiVersion\":{api_version},")
}
