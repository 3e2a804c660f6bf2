//! Encodes spans in protobuf as OTLP does: `ExportTraceServiceRequest` of
//! `opentelemetry/proto/collector/trace/v1` and what it contains. Decodes the answer.
//!
//! OTLP promises that the numbers of fields never change.

use kubefan_core::codec::{ProtobufFields, put_bytes, put_fixed64, put_number};

use super::context::SpanContext;
use super::span::{Span, Value};

/// The code of a status that is an error.
const ERROR: u64 = 2;
/// The name of the library that has made the spans.
const SCOPE: &[u8] = b"kubefan";

/// Encodes the request for `spans` of the program that `resource` describes.
pub(super) fn request(resource: &[(&'static str, Value)], spans: &[Span]) -> Vec<u8> {
    let mut request = Vec::with_capacity(256 + 320 * spans.len());
    put_message(&mut request, 1, |resource_spans| {
        put_message(resource_spans, 1, |described| {
            put_attributes(described, 1, resource);
        });
        put_message(resource_spans, 2, |scope_spans| {
            put_message(scope_spans, 1, |scope| put_bytes(scope, 1, SCOPE));
            for span in spans {
                put_message(scope_spans, 2, |message| put_span(message, span));
            }
        });
    });
    request
}

/// Returns the number of spans that the collector has rejected, as its answer says. Returns 0 for
/// an answer that is not protobuf: a proxy may have written it.
pub(super) fn rejected(answer: &[u8]) -> u64 {
    let partial = field(answer, 1, |field| field.bytes().ok());
    partial
        .and_then(|partial| field(partial, 1, |field| field.number_value().ok()))
        .unwrap_or_default()
}

/// Reads the last field `number` of `message`.
fn field<'a, T>(
    message: &'a [u8],
    number: u32,
    read: impl Fn(&kubefan_core::codec::ProtobufField<'a>) -> Option<T>,
) -> Option<T> {
    let fields = ProtobufFields::new(message).map_while(Result::ok);
    let fields = fields.filter(|field| field.number == number);
    fields.filter_map(|field| read(&field)).last()
}

fn put_span(message: &mut Vec<u8>, span: &Span) {
    put_context(message, span.context);
    if let Some(parent) = span.parent {
        put_bytes(message, 4, &parent.get().to_be_bytes());
    }
    put_bytes(message, 5, span.name.as_bytes());
    put_number(message, 6, span.kind as u64);
    put_fixed64(message, 7, span.began);
    put_fixed64(message, 8, span.ended);
    put_attributes(message, 9, &span.attributes);
    for link in &span.links {
        put_message(message, 13, |message| put_context(message, *link));
    }
    if span.is_error {
        put_message(message, 15, |status| put_number(status, 3, ERROR));
    }
}

/// Appends the ids of a span or a link.
fn put_context(message: &mut Vec<u8>, context: SpanContext) {
    put_bytes(message, 1, &context.trace.get().to_be_bytes());
    put_bytes(message, 2, &context.span.get().to_be_bytes());
}

fn put_attributes(message: &mut Vec<u8>, number: u32, attributes: &[(&'static str, Value)]) {
    for (key, value) in attributes {
        put_message(message, number, |pair| {
            put_bytes(pair, 1, key.as_bytes());
            put_message(pair, 2, |any| match value {
                Value::Text(text) => put_bytes(any, 1, text.as_bytes()),
                Value::Number(number) => put_number(any, 3, u64::from(*number)),
            });
        });
    }
}

fn put_message(buffer: &mut Vec<u8>, number: u32, write: impl FnOnce(&mut Vec<u8>)) {
    let mut message = Vec::new();
    write(&mut message);
    put_bytes(buffer, number, &message);
}

#[cfg(test)]
mod tests {
    use opentelemetry_proto::tonic::collector::trace::v1::{
        ExportTracePartialSuccess, ExportTraceServiceRequest, ExportTraceServiceResponse,
    };
    use opentelemetry_proto::tonic::common::v1::any_value;
    use opentelemetry_proto::tonic::trace::v1::span::SpanKind as Kind;
    use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
    use prost::Message;

    use super::*;
    use crate::traces::context::{SpanId, TraceId};
    use crate::traces::span::SpanKind;

    #[test]
    fn the_official_types_decode_what_is_encoded() {
        let context = |span| SpanContext {
            trace: TraceId::new(7 << 96).expect("not zero"),
            span: SpanId::new(span).expect("not zero"),
        };
        let span = Span {
            context: context(1),
            parent: SpanId::new(2),
            name: "GET".into(),
            kind: SpanKind::Server,
            began: 1_700_000_000_000_000_001,
            ended: 1_700_000_000_000_000_002,
            attributes: vec![
                ("http.response.status_code", Value::Number(503)),
                ("kubefan.outcome", "cache".into()),
            ],
            links: vec![context(3), context(4)],
            is_error: true,
        };
        let inner = Span {
            parent: None,
            kind: SpanKind::Client,
            attributes: Vec::new(),
            links: Vec::new(),
            is_error: false,
            ..span.clone()
        };
        let resource = [("service.name", Value::from("kubefan"))];
        let bytes = request(&resource, &[span.clone(), inner]);
        let decoded = ExportTraceServiceRequest::decode(&bytes[..]).expect("a message");
        // The generated types know all fields, so nothing is lost if these are the same bytes.
        assert_eq!(decoded.encode_to_vec(), bytes);

        let [found] = &decoded.resource_spans[..] else {
            panic!("{decoded:?}");
        };
        let described = &found.resource.as_ref().expect("a resource").attributes;
        assert_eq!(described[0].key, "service.name");
        let [scope] = &found.scope_spans[..] else {
            panic!("{decoded:?}");
        };
        assert_eq!(scope.scope.as_ref().expect("a scope").name, "kubefan");
        let [outer, inner] = &scope.spans[..] else {
            panic!("{decoded:?}");
        };
        assert_eq!(outer.trace_id, [&[0_u8, 0, 0, 7][..], &[0; 12]].concat());
        assert_eq!(outer.span_id, [0, 0, 0, 0, 0, 0, 0, 1]);
        assert_eq!(outer.parent_span_id, [0, 0, 0, 0, 0, 0, 0, 2]);
        assert_eq!(outer.name, "GET");
        assert_eq!((outer.kind(), inner.kind()), (Kind::Server, Kind::Client));
        assert_eq!(outer.start_time_unix_nano, span.began);
        assert_eq!(outer.end_time_unix_nano, span.ended);
        let values: Vec<_> = outer
            .attributes
            .iter()
            .map(|pair| {
                let value = pair.value.clone().and_then(|value| value.value);
                (pair.key.as_str(), value.expect("a value"))
            })
            .collect();
        let expected = [
            ("http.response.status_code", any_value::Value::IntValue(503)),
            (
                "kubefan.outcome",
                any_value::Value::StringValue("cache".into()),
            ),
        ];
        assert_eq!(values, expected);
        let linked = outer.links.iter().map(|link| link.span_id[7]);
        assert_eq!(linked.collect::<Vec<_>>(), [3, 4]);
        assert_eq!(outer.links[0].trace_id, outer.trace_id);
        let status = outer.status.as_ref().expect("a status");
        assert_eq!(status.code(), StatusCode::Error);
        assert_eq!(
            (inner.status.as_ref(), inner.parent_span_id.len()),
            (None, 0)
        );
    }

    #[test]
    fn rejected_spans_are_read_from_the_answer() {
        let partial = |rejected_spans| ExportTraceServiceResponse {
            partial_success: Some(ExportTracePartialSuccess {
                rejected_spans,
                error_message: "too old".to_owned(),
            }),
        };
        for (answer, expected) in [
            (ExportTraceServiceResponse::default().encode_to_vec(), 0),
            (partial(0).encode_to_vec(), 0),
            (partial(17).encode_to_vec(), 17),
            (b"<html>OK</html>".to_vec(), 0),
            (b"\x0a\xff".to_vec(), 0),
        ] {
            assert_eq!(rejected(&answer), expected, "{answer:?}");
        }
    }
}
