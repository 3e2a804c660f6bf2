//! The format of a Status in an error answer; never converted to another kind, such as a Table.

use bytes::Bytes;

use super::negotiate::negotiate_status;
use super::{Encoder, Negotiated};
use crate::api::{Status, WireFormat, escape_as_go};

/// The format of a Status that is the body of an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum StatusFormat {
    /// One line of JSON.
    #[default]
    Json,
    /// Indented JSON without a line break at its end: for people, and for clients that accept no
    /// format which kubefan can write. Indented JSON is also valid YAML.
    IndentedJson,
    /// A protobuf message in an envelope.
    Protobuf,
}

impl StatusFormat {
    /// Chooses the format for a request with this Accept header.
    ///
    /// `is_pretty` returns whether JSON is indented; its argument is true if the chosen clause of
    /// the header has `;pretty=1`.
    pub fn negotiated(accept: Option<&str>, is_pretty: impl FnOnce(bool) -> bool) -> Self {
        match negotiate_status(accept) {
            Negotiated::Plain(WireFormat::Protobuf, _) => Self::Protobuf,
            Negotiated::Plain(WireFormat::Json, pretty) if !is_pretty(pretty) => Self::Json,
            _ => Self::IndentedJson,
        }
    }

    /// Returns the value of the answer's `Content-Type` header.
    pub fn media_type(self) -> &'static str {
        match self {
            Self::Json | Self::IndentedJson => WireFormat::Json.media_type(),
            Self::Protobuf => WireFormat::Protobuf.media_type(),
        }
    }

    /// Encodes `status` as the body of an answer.
    ///
    /// # Panics
    /// Never: a struct of strings and numbers always serializes.
    pub fn body(self, status: &Status) -> Bytes {
        match self {
            Self::Json => Encoder::status_body(WireFormat::Json, status),
            Self::Protobuf => Encoder::status_body(WireFormat::Protobuf, status),
            Self::IndentedJson => {
                let json = serde_json::to_string_pretty(status);
                escape_as_go(&json.expect("a Status serializes to JSON")).into()
            }
        }
    }
}

impl From<WireFormat> for StatusFormat {
    fn from(format: WireFormat) -> Self {
        match format {
            WireFormat::Json => Self::Json,
            WireFormat::Protobuf => Self::Protobuf,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::StatusDetails;

    const PEOPLE: fn(bool) -> bool = |_| true;
    const PROGRAM: fn(bool) -> bool = |accepted| accepted;

    #[test]
    fn only_clauses_without_conversion_count() {
        use StatusFormat::{IndentedJson, Json, Protobuf};
        let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
        let kubectl = format!("{table},application/json");
        for (accept, is_pretty, expected) in [
            (None, PROGRAM, Json),
            (None, PEOPLE, IndentedJson),
            (Some(""), PROGRAM, Json),
            (Some("*/*"), PROGRAM, Json),
            (Some("*/*"), PEOPLE, IndentedJson),
            (Some("application/json"), PROGRAM, Json),
            (Some("application/json;stream=watch"), PROGRAM, Json),
            (Some("application/json;pretty=1"), PROGRAM, IndentedJson),
            (Some("application/yaml"), PROGRAM, IndentedJson),
            (
                Some("application/vnd.kubernetes.protobuf"),
                PEOPLE,
                Protobuf,
            ),
            (
                Some("application/vnd.kubernetes.protobuf;stream=watch"),
                PROGRAM,
                Protobuf,
            ),
            (
                Some("application/vnd.kubernetes.protobuf,application/json"),
                PROGRAM,
                Protobuf,
            ),
            (Some(table), PROGRAM, IndentedJson),
            (Some(kubectl.as_str()), PROGRAM, Json),
            (
                Some(
                    "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json",
                ),
                PROGRAM,
                Json,
            ),
            (Some("application/json;sv=v1"), PROGRAM, IndentedJson),
            (Some("text/html"), PROGRAM, IndentedJson),
        ] {
            let format = StatusFormat::negotiated(accept, is_pretty);
            assert_eq!(format, expected, "{accept:?}");
        }
    }

    #[test]
    fn bodies() {
        let status = Status::failure(503, "ServiceUnavailable", "no \"<room>\"").with_details(
            StatusDetails {
                retry_after_seconds: 5,
                ..StatusDetails::default()
            },
        );
        let text = |format: StatusFormat| String::from_utf8(format.body(&status).to_vec());
        assert_eq!(
            text(StatusFormat::Json).as_deref(),
            Ok(concat!(
                r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","#,
                r#""message":"no \"\u003croom\u003e\"","reason":"ServiceUnavailable","#,
                r#""details":{"retryAfterSeconds":5},"code":503}"#,
                "\n"
            ))
        );
        assert_eq!(
            text(StatusFormat::IndentedJson).as_deref(),
            Ok(r#"{
  "kind": "Status",
  "apiVersion": "v1",
  "metadata": {},
  "status": "Failure",
  "message": "no \"\u003croom\u003e\"",
  "reason": "ServiceUnavailable",
  "details": {
    "retryAfterSeconds": 5
  },
  "code": 503
}"#)
        );
        let protobuf = StatusFormat::Protobuf.body(&status);
        assert!(protobuf.starts_with(b"k8s\0"));
    }
}
