use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

const MAX_HEADER_BYTES: u32 = 256 << 10;
/// What a field without strings counts.
const FIELD: u64 = 104;

fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
    let [_, a, b, c] = u32::try_from(payload.len()).expect("short").to_be_bytes();
    [&[a, b, c, kind, flags, 0, 0, 0, 1][..], payload].concat()
}

fn connection() -> ReceivedFrames {
    let mut frames = ReceivedFrames::new(MAX_HEADER_BYTES);
    assert_eq!(frames.receive(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), 0);
    frames
}

/// A frame, and after it what is held for the unfinished head, and for the frame as a part of a body.
type Row = (Vec<u8>, u64, u64);

#[test]
fn a_head_is_unfinished_until_the_last_byte_of_its_last_frame() {
    let value = [&[0x41, 100][..], &[b'x'; 100]].concat();
    let rows: [Row; 13] = [
        (frame(4, 0, &[0; 6]), 0, 0),
        (frame(HEADERS, END_HEADERS | END_STREAM, &[0x82; 300]), 0, 0),
        (frame(HEADERS, 0, &[0x82; 3]), 3 * FIELD, 0),
        (frame(CONTINUATION, 0, &value), 4 * FIELD + 100, 0),
        (frame(CONTINUATION, 0, &[]), 4 * FIELD + 100, 0),
        // A field may begin in one frame and end in another.
        (frame(CONTINUATION, 0, &value[..50]), 5 * FIELD + 148, 0),
        (frame(CONTINUATION, 0, &value[50..]), 5 * FIELD + 200, 0),
        (frame(CONTINUATION, END_HEADERS, &[]), 0, 0),
        // The padding and the priority are no fields.
        (
            frame(HEADERS, PADDED, &[3, 0x82, 0x82, 0x82, 0x82]),
            FIELD,
            0,
        ),
        (frame(CONTINUATION, END_HEADERS, &[0x82]), 0, 0),
        (
            frame(HEADERS, PRIORITY | PADDED, &[1, 0, 0, 0, 0, 9, 0x82, 0]),
            FIELD,
            0,
        ),
        (frame(CONTINUATION, END_HEADERS, &[0x82]), 0, 0),
        // The payload of a PING frame is no header block.
        (frame(6, 0, &[0x82; 8]), 0, 0),
    ];
    let mut frames = connection();
    for (index, (bytes, head, body)) in rows.iter().enumerate() {
        assert_eq!(frames.receive(bytes), *body, "row {index}");
        assert_eq!(frames.unfinished_head(), *head, "row {index}");
    }
}

#[test]
fn the_last_frame_of_a_head_counts_while_it_arrives() {
    let mut frames = connection();
    let bytes = frame(CONTINUATION, END_HEADERS, &[0x82; 10]);
    frames.receive(&frame(HEADERS, 0, &[0x82]));
    frames.receive(&bytes[..FRAME_HEAD + 4]);
    assert_eq!(frames.unfinished_head(), 5 * FIELD);
    frames.receive(&bytes[FRAME_HEAD + 4..]);
    assert_eq!(frames.unfinished_head(), 0);
}

#[test]
fn the_data_of_bodies_counts_without_its_padding() {
    let rows: [Row; 5] = [
        (frame(DATA, 0, &[1; 1_000]), 0, 1_000 + DATA_FRAME_BYTES),
        (
            frame(DATA, PADDED, &[[9; 10], [0; 10]].concat()),
            0,
            10 + DATA_FRAME_BYTES,
        ),
        (frame(DATA, 0, &[]), 0, 0),
        (frame(DATA, END_STREAM, &[]), 0, DATA_FRAME_BYTES),
        (frame(3, 0, &[0; 4]), 0, 0),
    ];
    let mut frames = connection();
    for (index, (bytes, head, body)) in rows.iter().enumerate() {
        assert_eq!(frames.receive(bytes), *body, "row {index}");
        assert_eq!(frames.unfinished_head(), *head, "row {index}");
    }
}

proptest! {
    #[test]
    fn parts_of_any_size_count_as_the_whole(
        frames in vec((0..11_u8, any::<u8>(), vec(any::<u8>(), 0..300)), 0..12),
        cuts in vec(1..200_usize, 1..20),
    ) {
        let encoded = frames.iter().map(|(kind, flags, payload)| frame(*kind, *flags, payload));
        let bytes: Vec<u8> = encoded.flatten().collect();
        let mut whole = connection();
        let held = whole.receive(&bytes);
        let mut parts = connection();
        let mut held_of_parts = 0;
        let mut rest = &bytes[..];
        for cut in cuts.iter().cycle() {
            let (part, later) = rest.split_at(rest.len().min(*cut));
            held_of_parts += parts.receive(part);
            rest = later;
            if rest.is_empty() {
                break;
            }
        }
        prop_assert_eq!(held_of_parts, held);
        prop_assert_eq!(parts, whole);
    }

    #[test]
    fn any_bytes_are_accepted(bytes in vec(any::<u8>(), 0..3_000)) {
        let mut frames = connection();
        frames.receive(&bytes);
        prop_assert!(frames.unfinished_head() <= 3_000 * (FIELD + 2));
    }
}
