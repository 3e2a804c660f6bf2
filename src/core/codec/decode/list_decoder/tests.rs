//! Compares lists that are decoded in pieces with lists that are decoded as a whole.

use std::sync::Arc;

use proptest::collection::vec;
use proptest::prelude::any;
use proptest::{option, prop_assert_eq, proptest};

use crate::api::{ListPage, SelectableFields, WireFormat};
use crate::codec::tests::support::{JSON, PROTOBUF, golden};
use crate::codec::{Decoder, Error};

fn decoder(format: WireFormat) -> Decoder {
    Decoder::new(format, Arc::new(SelectableFields::default()))
}

#[test]
fn a_list_in_pieces_equals_the_whole_list() {
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

/// Encodes a list with one item for each element of `paddings`, which is the length of its padding
/// in bytes.
fn list_of(paddings: &[usize], format: WireFormat) -> Vec<u8> {
    let field = |number: u8, content: &[u8]| {
        let length = content.len();
        let length = [
            length as u8 | 0x80,
            (length >> 7) as u8 | 0x80,
            (length >> 14) as u8,
        ];
        [&[number << 3 | 2], length.as_slice(), content].concat()
    };
    let items = paddings.iter().enumerate().map(|(place, padding)| {
        let padding = "x".repeat(*padding);
        match format {
            WireFormat::Json => format!(
                r#"{{"metadata":{{"name":"p{place}","resourceVersion":"{place}1"}},"text":"\"{padding}{{"}}"#
            )
            .into_bytes(),
            WireFormat::Protobuf => {
                let name = field(1, format!("p{place}").as_bytes());
                let version = field(6, format!("{place}1").as_bytes());
                let metadata = field(1, &[name, version].concat());
                field(2, &[metadata, field(2, padding.as_bytes())].concat())
            }
        }
    });
    let items: Vec<_> = items.collect();
    match format {
        WireFormat::Json => [
            br#"{"metadata":{"resourceVersion":"7"},"items":["#.as_slice(),
            &items.join(b",".as_slice()),
            b"]}",
        ]
        .concat(),
        WireFormat::Protobuf => {
            let list = [field(1, &field(2, b"7")), items.concat()].concat();
            [b"k8s\0".to_vec(), field(2, &list)].concat()
        }
    }
}

fn in_pieces(body: &[u8], sizes: &[usize], format: WireFormat) -> Result<ListPage, Error> {
    let mut list = decoder(format).list_decoder();
    let mut rest = body;
    for size in sizes.iter().cycle() {
        let (piece, after) = rest.split_at((*size).min(rest.len()));
        list.push(piece)?;
        rest = after;
        if rest.is_empty() {
            break;
        }
    }
    list.finish()
}

proptest! {
    #[test]
    fn pieces_and_items_of_any_size_and_damage_make_no_difference(
        paddings in vec(0..3_000_usize, 0..12),
        sizes in vec(1..4_000_usize, 1..6),
        damage in option::of((any::<usize>(), any::<u8>())),
    ) {
        for format in [JSON, PROTOBUF] {
            let mut body = list_of(&paddings, format);
            if let Some((at, byte)) = damage {
                let at = at % body.len();
                body[at] = byte;
            }
            let whole = decoder(format).list(&body.clone().into());
            let pieces = in_pieces(&body, &sizes, format);
            if damage.is_none() {
                prop_assert_eq!(whole.as_ref().unwrap().items.len(), paddings.len());
            }
            prop_assert_eq!(pieces.ok(), whole.ok());
        }
    }
}

#[test]
fn an_unreadable_item_fails_a_list_in_pieces() {
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
