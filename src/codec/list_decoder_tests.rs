//! Lists that come in pieces.

use std::sync::Arc;

use bytes::Bytes;

use super::Decoder;
use super::Error;
use crate::api::SelectableFields;
use crate::api::WireFormat;

const JSON: WireFormat = WireFormat::Json;
const PROTOBUF: WireFormat = WireFormat::Protobuf;

macro_rules! golden {
    ($name:literal) => {
        Bytes::from_static(include_bytes!(concat!("../../tests/golden/codec/", $name)))
    };
}

fn decoder(format: WireFormat) -> Decoder {
    Decoder::new(format, Arc::new(SelectableFields::default()))
}

#[test]
fn a_list_in_pieces_is_the_list() {
    for (format, body) in [
        (JSON, golden!("list-pods.json")),
        (JSON, golden!("cr-list.json")),
        (PROTOBUF, golden!("list-pods-pb.bin")),
    ] {
        let whole = decoder(format).list(&body).unwrap();
        for size in [1, 3, 100, 4_000, body.len()] {
            let mut list = decoder(format).list_decoder();
            for piece in body.chunks(size) {
                list.push(piece).unwrap();
            }
            assert_eq!(list.finish().unwrap(), whole, "pieces of {size}");
        }
        for end in 0..body.len() {
            let mut list = decoder(format).list_decoder();
            list.push(&body[..end]).unwrap();
            let cut = decoder(format).list(&body.slice(..end));
            assert_eq!(list.finish().ok(), cut.ok(), "{end} of {}", body.len());
        }
    }
}

#[test]
fn an_item_that_can_never_be_read_ends_a_list_in_pieces() {
    let mut list = decoder(JSON).list_decoder();
    list.push(br#"{"items":[{"metadata":{"resourceVersion":"1"}},"#)
        .unwrap();
    list.push(br#"7]}"#).unwrap();
    let error = list.finish().unwrap_err();
    assert_eq!(
        error.to_string(),
        Error::Missing("metadata.name").to_string()
    );
    let mut list = decoder(JSON).list_decoder();
    list.push(br#"{"items":[0],"metadata":{"resourceVersion":"1"}}"#)
        .unwrap();
    list.finish().unwrap_err();
    let mut list = decoder(PROTOBUF).list_decoder();
    let nameless = b"k8s\0\x12\x04\x12\x02\x0a\x00";
    list.push(nameless).unwrap_err();
}
