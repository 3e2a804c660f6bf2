//! The forms of answers: complete objects, Tables, or metadata only. All of them are JSON.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::Response;
use http_body::Frame;
use http_body_util::BodyExt;
use kubefan_core::api::{Resource, Status, WireFormat};
use kubefan_core::codec;
use kubefan_core::codec::{FrameSplitter, MetaVersion, Negotiated, ReadVerb, Representation, View};
use kubefan_proxy::server;
use kubefan_proxy::server::Body;

use super::tables::RowConverter;
use crate::sim::kinds::Kind;
use crate::sim::refusal;

/// The maximum length of a frame in bytes; longer than any object that the simulator accepts.
const FRAME_LIMIT: usize = 64 << 20;

/// The media types that a real API server supports and the simulator does not.
const NOT_SIMULATED: [&str; 3] = [
    "application/yaml",
    "application/vnd.kubernetes.protobuf",
    "application/cbor",
];

/// The form of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// Complete objects; indented if the flag is true.
    Whole(bool),
    /// A Table with one row per object.
    Table,
    /// Only the objects' metadata.
    Metadata(MetaVersion),
}

impl Form {
    /// Returns the representation that the serving code must produce for this form. Tables are
    /// converted from complete objects.
    pub(crate) fn representation(self) -> Representation {
        let plain = Representation::plain(WireFormat::Json);
        match self {
            Self::Whole(_) | Self::Table => plain,
            Self::Metadata(version) => Representation {
                view: View::Metadata(version),
                ..plain
            },
        }
    }
}

/// The body of a watch that converts its frames one by one.
struct ConvertedBody {
    body: Body,
    splitter: FrameSplitter,
    converter: RowConverter,
}

/// Converts the name of a verb. The verb decides which forms a client can ask for.
pub(crate) fn read_verb(verb: &str) -> ReadVerb {
    match verb {
        "watch" => ReadVerb::Watch,
        "list" => ReadVerb::List,
        _ => ReadVerb::Get,
    }
}

/// Chooses the form that `accept` asks for.
///
/// # Errors
///
/// 406 if the simulator supports none of the accepted forms.
pub(crate) fn negotiate(accept: &str, verb: ReadVerb, kind: &Kind) -> Result<Form, Status> {
    let media_type = |clause: &&str| {
        clause
            .split(';')
            .next()
            .unwrap_or_default()
            .trim()
            .to_owned()
    };
    let clauses = accept.split(',');
    let simulated = clauses.filter(|clause| !NOT_SIMULATED.contains(&media_type(clause).as_str()));
    let simulated = simulated.collect::<Vec<_>>().join(",");
    if simulated.is_empty() && !accept.is_empty() {
        return Err(refusal::not_acceptable());
    }
    match codec::negotiate(Some(&simulated), verb, kind.is_custom) {
        Negotiated::Plain(_, pretty) => Ok(Form::Whole(pretty)),
        Negotiated::Table(..) | Negotiated::YamlTable => Ok(Form::Table),
        Negotiated::PartialObjectMetadata(_, version, _) => Ok(Form::Metadata(version)),
        _ => Err(wrong_kind(&simulated, verb, kind).unwrap_or_else(refusal::not_acceptable)),
    }
}

/// Returns the refusal if the client asks for a list as the metadata of an object, or for an object
/// as the metadata of a list.
fn wrong_kind(accept: &str, verb: ReadVerb, kind: &Kind) -> Option<Status> {
    let accepts = |name: &str| {
        let mut parameters = accept.split([',', ';']).map(str::trim);
        parameters.any(|parameter| parameter.strip_prefix("as=") == Some(name))
    };
    let (wanted, is_list) = match verb {
        ReadVerb::List => ("PartialObjectMetadata", true),
        ReadVerb::Get => ("PartialObjectMetadataList", false),
        ReadVerb::Watch => return None,
    };
    accepts(wanted).then(|| {
        if kind.is_custom && !is_list {
            return Status::failure(500, "", "content is not a list");
        }
        let found = go_type(&kind.resource, kind.is_custom, is_list);
        let is = if is_list {
            "is a list"
        } else {
            "is not a list"
        };
        let message = format!("you requested {wanted}, but the requested object {is} ({found})");
        Status::failure(406, "NotAcceptable", message)
    })
}

/// Returns the Go type of the objects or lists of `resource` in the API server's code.
fn go_type(resource: &Resource, is_custom: bool, is_list: bool) -> String {
    let group = resource.gvr.group.split('.').next().unwrap_or_default();
    let (package, name) = match (is_custom, group) {
        (true, _) => ("unstructured", "Unstructured"),
        (false, "") => ("core", resource.kind.as_str()),
        (false, group) => (group, resource.kind.as_str()),
    };
    let list = if is_list { "List" } else { "" };
    format!("*{package}.{name}{list}")
}

/// Returns true if errors are encoded as indented JSON: if every clause of `Accept`
/// asks for a conversion (`as=`).
pub(crate) fn indents_errors(accept: &str) -> bool {
    !accept.is_empty() && accept.split(',').all(|clause| clause.contains("as="))
}

/// Converts the body of the response `plain` with `converter`.
///
/// # Errors
///
/// 500 if the plain body cannot be read or converted, which is a bug of the simulator.
pub(crate) async fn convert_body(
    plain: Response<Body>,
    verb: ReadVerb,
    converter: RowConverter,
) -> Result<Response<Body>, Status> {
    if verb == ReadVerb::Watch {
        return Ok(plain.map(|body| {
            server::boxed(ConvertedBody {
                body,
                splitter: FrameSplitter::new(WireFormat::Json, FRAME_LIMIT),
                converter,
            })
        }));
    }
    let (parts, body) = plain.into_parts();
    let plain = body.collect().await;
    let plain = plain.map_err(|error| Status::internal_error(error.to_string()))?;
    let converted = match verb {
        ReadVerb::List => converter.list(&plain.to_bytes()),
        ReadVerb::Get | ReadVerb::Watch => converter.object(&plain.to_bytes()),
    };
    let converted = converted.map_err(|error| Status::internal_error(error.to_string()))?;
    Ok(Response::from_parts(parts, server::full(converted)))
}

impl http_body::Body for ConvertedBody {
    type Data = Bytes;
    type Error = Box<dyn std::error::Error + Send + Sync>;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let this = self.get_mut();
        loop {
            if let Some(frame) = this.splitter.next() {
                let event = frame.and_then(|frame| this.converter.event(frame));
                return Poll::Ready(Some(event.map(Frame::data).map_err(Into::into)));
            }
            let Some(frame) = ready!(Pin::new(&mut this.body).poll_frame(cx)?) else {
                return Poll::Ready(None);
            };
            if let Ok(data) = frame.into_data() {
                this.splitter.push(data);
            }
        }
    }
}
