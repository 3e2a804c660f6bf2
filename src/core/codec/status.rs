//! Decodes and encodes a Status in both wire formats.

use super::json::Scanner;
use super::protobuf::{Fields, put_bytes, put_number, texts, texts_of};
use super::{Error, protobuf};
use crate::api::{Status, StatusCause, StatusDetails, WireFormat, escape_as_go};

/// If an error answer is not a Status, its message is cut to at most this number of bytes.
const MESSAGE_LIMIT: usize = 2048;

/// Reads the body of an error answer with HTTP status `code`.
///
/// A body that is not a Status, such as a load balancer's error page, becomes a Status with the
/// start of the body as its message.
pub fn decode_status(content_type: &str, code: u16, body: &[u8]) -> Status {
    let is_protobuf = content_type.starts_with(WireFormat::Protobuf.media_type());
    let decoded = if is_protobuf {
        decode_enveloped(body).ok()
    } else {
        decode_json(body)
    };
    let mut status = decoded.unwrap_or_else(|| Status::failure(code, "", excerpt(body)));
    if status.code == 0 {
        status.code = code;
    }
    status
}

/// Returns the first `MESSAGE_LIMIT` bytes of `body` as text.
fn excerpt(body: &[u8]) -> String {
    let start = &body[..body.len().min(MESSAGE_LIMIT)];
    String::from_utf8_lossy(start).trim().to_owned()
}

/// Reads the object of a JSON ERROR event; an object that is not a Status becomes the message.
pub(super) fn decode_json_or_text(object: &[u8]) -> Status {
    decode_json(object).unwrap_or_else(|| Status::failure(500, "", excerpt(object)))
}

fn decode_json(body: &[u8]) -> Option<Status> {
    if !is_status(body).unwrap_or(false) {
        return None;
    }
    serde_json::from_slice(body).ok()
}

fn is_status(body: &[u8]) -> Result<bool, Error> {
    let mut scanner = Scanner::new(body);
    let mut members = scanner.object()?;
    Ok(scanner.find(&mut members, "kind")? && scanner.string()?.is("Status"))
}

fn decode_enveloped(body: &[u8]) -> Result<Status, Error> {
    let envelope = protobuf::envelope(body)?;
    match envelope.kind {
        "Status" => decode_message(envelope.raw),
        _ => Err(Error::Protobuf("not a Status")),
    }
}

/// Reads a protobuf Status message that has no envelope.
pub(super) fn decode_message(message: &[u8]) -> Result<Status, Error> {
    let mut status = Status::failure(0, "", "");
    for field in Fields::new(message) {
        let field = field?;
        match field.number {
            1 => {
                let [token] = texts_of(field.bytes()?, [3])?;
                status.metadata.continue_token = token.to_owned();
            }
            2 => status.status = field.text()?.to_owned(),
            3 => status.message = field.text()?.to_owned(),
            4 => status.reason = Some(field.text()?.to_owned()).filter(|text| !text.is_empty()),
            5 => status.details = Some(decode_details(field.bytes()?)?),
            6 => status.code = u16::try_from(field.number_value()?).unwrap_or(0),
            _ => {}
        }
    }
    Ok(status)
}

fn decode_details(message: &[u8]) -> Result<StatusDetails, Error> {
    let mut details = StatusDetails::default();
    for field in Fields::new(message) {
        let field = field?;
        match field.number {
            1 => details.name = field.text()?.to_owned(),
            2 => details.group = field.text()?.to_owned(),
            3 => details.kind = field.text()?.to_owned(),
            4 => details.causes.push(decode_cause(field.bytes()?)?),
            5 => details.retry_after_seconds = u32::try_from(field.number_value()?).unwrap_or(0),
            6 => details.uid = field.text()?.to_owned(),
            _ => {}
        }
    }
    Ok(details)
}

fn decode_cause(message: &[u8]) -> Result<StatusCause, Error> {
    let [reason, message, field] = texts_of(message, [1, 2, 3])?.map(str::to_owned);
    Ok(StatusCause {
        reason,
        message,
        field,
    })
}

/// Encodes a Status as one line of JSON without a line break at the end.
pub(super) fn encode_json(status: &Status) -> String {
    // Serializing a struct of strings and numbers into memory cannot fail.
    escape_as_go(&serde_json::to_string(status).expect("a Status serializes to JSON"))
}

/// Encodes a Status as protobuf in an envelope.
pub(super) fn encode_enveloped(status: &Status) -> Vec<u8> {
    let metadata = texts(["", "", &status.metadata.continue_token]);
    let mut message = Vec::new();
    put_bytes(&mut message, 1, &metadata);
    put_bytes(&mut message, 2, status.status.as_bytes());
    put_bytes(&mut message, 3, status.message.as_bytes());
    let reason = status.reason.as_deref().unwrap_or_default();
    put_bytes(&mut message, 4, reason.as_bytes());
    if let Some(details) = &status.details {
        put_bytes(&mut message, 5, &encode_details(details));
    }
    put_number(&mut message, 6, status.code.into());
    protobuf::enveloped("v1", "Status", &message)
}

fn encode_details(details: &StatusDetails) -> Vec<u8> {
    let mut message = texts([&details.name, &details.group, &details.kind]);
    for cause in &details.causes {
        let cause = texts([&cause.reason, &cause.message, &cause.field]);
        put_bytes(&mut message, 4, &cause);
    }
    put_number(&mut message, 5, details.retry_after_seconds.into());
    put_bytes(&mut message, 6, details.uid.as_bytes());
    message
}
