//! Reads what the answer to a write, or to a GET, shows of its object.

use std::borrow::Cow;

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::protobuf::{Fields, RESOURCE_VERSION, envelope};
use crate::api::{ResourceVersion, WireFormat};

/// The object in an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnsweredObject {
    /// The object's resource version; `None` if it was not stored.
    pub version: Option<ResourceVersion>,
    /// How far its deletion is.
    pub deletion: Deletion,
}

/// How far the deletion of an object is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deletion {
    /// It was not requested.
    None,
    /// It was requested. Finalizers, or the time that a pod has to end, still keep the object.
    Pending,
    /// It was requested, and nothing in the object keeps it any more. So the object may be gone,
    /// and the resource version may be that before its removal.
    Possible,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Json<'a> {
    #[serde(borrow)]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    metadata: Metadata<'a>,
    /// Only a list has items.
    items: Option<IgnoredAny>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Metadata<'a> {
    #[serde(borrow)]
    resource_version: Cow<'a, str>,
    #[serde(borrow)]
    deletion_timestamp: Option<Cow<'a, str>>,
    deletion_grace_period_seconds: Option<i64>,
    #[serde(borrow)]
    finalizers: Option<Vec<Cow<'a, str>>>,
}

/// The fields of `ObjectMeta` in protobuf.
const DELETION_TIMESTAMP: u32 = 9;
const DELETION_GRACE_PERIOD_SECONDS: u32 = 10;
const FINALIZERS: u32 = 14;

impl AnsweredObject {
    /// Reads the answer `body`. Returns `None` if it is not an object: a Status, a Table or a list, or
    /// bytes that can't be read.
    pub fn read(format: WireFormat, body: &[u8]) -> Option<Self> {
        match format {
            WireFormat::Json => Self::of(&serde_json::from_slice(body).ok()?),
            WireFormat::Protobuf => {
                let envelope = envelope(body).ok()?;
                let object = Json {
                    kind: envelope.kind.into(),
                    metadata: protobuf_metadata(envelope.raw)?,
                    items: None,
                };
                Self::of(&object)
            }
        }
    }

    fn of(object: &Json<'_>) -> Option<Self> {
        // The metadata of these is no object's.
        if matches!(object.kind.as_ref(), "Status" | "Table") || object.items.is_some() {
            return None;
        }
        let metadata = &object.metadata;
        let version: ResourceVersion = metadata.resource_version.parse().ok()?;
        let grace = metadata.deletion_grace_period_seconds.unwrap_or(0);
        let finalizers = metadata.finalizers.as_deref().unwrap_or_default();
        let deletion = match metadata.deletion_timestamp {
            None => Deletion::None,
            Some(_) if grace > 0 || !finalizers.is_empty() => Deletion::Pending,
            Some(_) => Deletion::Possible,
        };
        let version = Some(version).filter(|version| *version > ResourceVersion::ZERO);
        Some(Self { version, deletion })
    }
}

fn protobuf_metadata(message: &[u8]) -> Option<Metadata<'_>> {
    let mut metadata = Metadata::default();
    for field in Fields::new(message) {
        let field = field.ok()?;
        if field.number != 1 {
            continue;
        }
        for field in Fields::new(field.bytes().ok()?) {
            let field = field.ok()?;
            match field.number {
                RESOURCE_VERSION => metadata.resource_version = field.text().ok()?.into(),
                DELETION_TIMESTAMP => metadata.deletion_timestamp = Some("".into()),
                DELETION_GRACE_PERIOD_SECONDS => {
                    metadata.deletion_grace_period_seconds =
                        i64::try_from(field.number_value().ok()?).ok();
                }
                FINALIZERS => {
                    let finalizers = metadata.finalizers.get_or_insert_default();
                    finalizers.push(field.text().ok()?.into());
                }
                _ => {}
            }
        }
    }
    Some(metadata)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(metadata: &str) -> Option<(Option<u64>, Deletion)> {
        let body = format!(r#"{{"kind":"Pod","metadata":{{{metadata}}},"spec":{{"a":[1]}}}}"#);
        let read = AnsweredObject::read(WireFormat::Json, body.as_bytes());
        read.map(|object| (object.version.map(|version| version.0), object.deletion))
    }

    /// Encodes a field with a length.
    fn bytes_field(number: u8, content: &[u8]) -> Vec<u8> {
        let length = u8::try_from(content.len()).expect("it is short");
        [&[number << 3 | 2, length], content].concat()
    }

    fn protobuf(kind: &str, metadata: &[Vec<u8>]) -> Option<(Option<u64>, Deletion)> {
        let types = [bytes_field(1, b"v1"), bytes_field(2, kind.as_bytes())].concat();
        let raw = bytes_field(1, &metadata.concat());
        let body = [bytes_field(1, &types), bytes_field(2, &raw)].concat();
        let body = [b"k8s\0".as_slice(), &body].concat();
        let read = AnsweredObject::read(WireFormat::Protobuf, &body);
        read.map(|object| (object.version.map(|version| version.0), object.deletion))
    }

    #[test]
    fn an_object_tells_its_version_and_how_far_its_deletion_is() {
        const DELETED: &str = r#""resourceVersion":"7","deletionTimestamp":"2026-01-01T00:00:00Z""#;
        for (metadata, expected) in [
            (
                r#""resourceVersion":"7""#.to_owned(),
                Some((Some(7), Deletion::None)),
            ),
            (
                r#""resourceVersion":"7","finalizers":["a"]"#.to_owned(),
                Some((Some(7), Deletion::None)),
            ),
            (DELETED.to_owned(), Some((Some(7), Deletion::Possible))),
            (
                format!(r#"{DELETED},"finalizers":[]"#),
                Some((Some(7), Deletion::Possible)),
            ),
            (
                format!(r#"{DELETED},"finalizers":["a"]"#),
                Some((Some(7), Deletion::Pending)),
            ),
            (
                format!(r#"{DELETED},"deletionGracePeriodSeconds":30"#),
                Some((Some(7), Deletion::Pending)),
            ),
            (
                format!(r#"{DELETED},"deletionGracePeriodSeconds":0"#),
                Some((Some(7), Deletion::Possible)),
            ),
            (r#""name":"x""#.to_owned(), Some((None, Deletion::None))),
            (r#""resourceVersion":"x""#.to_owned(), None),
        ] {
            assert_eq!(json(&metadata), expected, "{metadata}");
        }
        let version = || bytes_field(6, b"7");
        let deleted = || bytes_field(9, b"");
        let grace = |seconds| vec![10 << 3, seconds];
        let finalizer = || bytes_field(14, b"a");
        for (metadata, expected) in [
            (vec![version()], Some((Some(7), Deletion::None))),
            (
                vec![version(), deleted()],
                Some((Some(7), Deletion::Possible)),
            ),
            (
                vec![version(), deleted(), grace(30)],
                Some((Some(7), Deletion::Pending)),
            ),
            (
                vec![version(), deleted(), grace(0)],
                Some((Some(7), Deletion::Possible)),
            ),
            (
                vec![version(), deleted(), finalizer()],
                Some((Some(7), Deletion::Pending)),
            ),
            (vec![finalizer()], Some((None, Deletion::None))),
        ] {
            assert_eq!(protobuf("Pod", &metadata), expected, "{metadata:?}");
        }
    }

    #[test]
    fn an_answer_that_is_no_object_tells_nothing() {
        for body in [
            r#"{"kind":"Status","metadata":{"resourceVersion":"7"}}"#,
            r#"{"kind":"Table","metadata":{"resourceVersion":"7"}}"#,
            r#"{"kind":"PodList","metadata":{"resourceVersion":"7"},"items":[]}"#,
            r#"{"kind":"Pod","metadata":{"resourceVersion":"7"}"#,
            "",
        ] {
            assert_eq!(
                AnsweredObject::read(WireFormat::Json, body.as_bytes()),
                None,
                "{body}"
            );
        }
        assert_eq!(protobuf("Status", &[bytes_field(6, b"7")]), None);
        assert_eq!(AnsweredObject::read(WireFormat::Protobuf, b"k8s"), None);
    }
}
