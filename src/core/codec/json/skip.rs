//! Finds the ends of strings, objects and arrays without reading what is in them.
//!
//! Most bytes of an object are in parts that no selector reads, so a container is examined in
//! blocks: a mask has a bit for each byte of a block.

use memchr::memchr2;
use wide::u8x16;

const BLOCK: usize = 64;
const LANE: usize = 16;

/// What the blocks up to now have left open.
#[derive(Default)]
struct OpenParts {
    /// The number of containers that are not closed yet.
    depth: usize,
    /// All bits are set if the next block begins in a string.
    in_string: u64,
    /// True if the last byte was a backslash that escapes the next one.
    is_escaped: bool,
}

/// The bytes of a block that matter.
#[derive(Default)]
struct Marks {
    quotes: u64,
    backslashes: u64,
    opening: u64,
    closing: u64,
}

/// A backslash outside of a string, which JSON does not allow.
struct StrayBackslash;

/// Returns the index behind the container with its opening bracket at `start`. Brackets of both
/// kinds count alike.
///
/// # Errors
/// If the container or a string in it has no end: returns what was expected there.
pub(super) fn container_end(text: &[u8], start: usize) -> Result<usize, &'static str> {
    let (blocks, rest) = text[start..].as_chunks::<BLOCK>();
    let mut last = [b' '; BLOCK];
    last[..rest.len()].copy_from_slice(rest);
    let mut open = OpenParts::default();
    for (index, block) in blocks.iter().chain([&last]).enumerate() {
        match open.read(block) {
            Ok(None) => {}
            Ok(Some(end)) => return Ok(start + index * BLOCK + end),
            Err(StrayBackslash) => return container_end_by_bytes(text, start),
        }
    }
    Err(if open.in_string == 0 {
        "a closing bracket"
    } else {
        "a string's end"
    })
}

/// Does what [`container_end`] does, for any text.
fn container_end_by_bytes(text: &[u8], start: usize) -> Result<usize, &'static str> {
    let mut depth = 0_usize;
    let mut at = start;
    while let Some(byte) = text.get(at) {
        at += 1;
        match byte {
            b'"' => at = string_end(text, at).ok_or("a string's end")?,
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Ok(at);
        }
    }
    Err("a closing bracket")
}

/// Returns the index behind the closing quote of a string, if it has one. The content of the string
/// starts at `at`.
pub(super) fn string_end(text: &[u8], mut at: usize) -> Option<usize> {
    loop {
        let found = quote_or_backslash(text, at)?;
        match text[found] {
            b'"' => return Some(found + 1),
            _ => at = found + 2,
        }
    }
}

/// Returns the index of the next quote or backslash at or after `at`.
///
/// Most strings are short, so the first 32 bytes are checked in words, without a call of memchr.
fn quote_or_backslash(text: &[u8], mut at: usize) -> Option<usize> {
    for _ in 0..4 {
        let Some(word) = text.get(at..)?.first_chunk() else {
            break;
        };
        let word = u64::from_le_bytes(*word);
        let hits = bytes_equal(word, b'"') | bytes_equal(word, b'\\');
        if hits != 0 {
            return Some(at + hits.trailing_zeros() as usize / 8);
        }
        at += 8;
    }
    Some(at + memchr2(b'"', b'\\', text.get(at..)?)?)
}

/// Sets the top bit of each byte of `word` that equals `byte`; only the lowest set bit is reliable.
fn bytes_equal(word: u64, byte: u8) -> u64 {
    const LOW: u64 = u64::from_ne_bytes([0x01; 8]);
    const HIGH: u64 = u64::from_ne_bytes([0x80; 8]);
    let difference = word ^ (LOW * u64::from(byte));
    difference.wrapping_sub(LOW) & !difference & HIGH
}

// === impl OpenParts ===

impl OpenParts {
    /// Reads a block. Returns the offset behind the end of the outermost container, if it is there.
    fn read(&mut self, block: &[u8; BLOCK]) -> Result<Option<usize>, StrayBackslash> {
        let marks = Marks::of(block);
        let quotes = marks.quotes & !self.escaped(marks.backslashes);
        // From each opening quote up to the closing one, which is not included.
        let in_string = odd_before(quotes) ^ self.in_string;
        if marks.backslashes & !in_string != 0 {
            return Err(StrayBackslash);
        }
        self.in_string = if in_string >> 63 == 0 { 0 } else { u64::MAX };
        let (opening, closing) = (marks.opening & !in_string, marks.closing & !in_string);
        let closed = closing.count_ones() as usize;
        if closed < self.depth {
            self.depth += opening.count_ones() as usize;
            self.depth -= closed;
            return Ok(None);
        }
        let mut brackets = opening | closing;
        while brackets != 0 {
            let at = brackets.trailing_zeros();
            if opening >> at & 1 == 1 {
                self.depth += 1;
            } else {
                self.depth -= 1;
            }
            if self.depth == 0 {
                return Ok(Some(at as usize + 1));
            }
            brackets &= brackets - 1;
        }
        Ok(None)
    }

    /// Returns the bytes that a backslash escapes.
    fn escaped(&mut self, backslashes: u64) -> u64 {
        let mut escaped = u64::from(std::mem::take(&mut self.is_escaped));
        let mut left = backslashes & !escaped;
        while left != 0 {
            let backslash = left & left.wrapping_neg();
            self.is_escaped = backslash == 1 << 63;
            escaped |= backslash << 1;
            // The escaped byte may be a backslash too, which escapes nothing.
            left &= !(backslash | backslash << 1);
        }
        escaped
    }
}

// === impl Marks ===

impl Marks {
    fn of(block: &[u8; BLOCK]) -> Self {
        let mut marks = Self::default();
        let (lanes, _) = block.as_chunks::<LANE>();
        for (index, lane) in lanes.iter().enumerate() {
            let lane = u8x16::new(*lane);
            // Setting bit 0x20 maps `[` to `{` and `]` to `}`, and no other byte to either of them.
            let folded = lane | u8x16::splat(0x20);
            let first = index * LANE;
            marks.quotes |= equal(lane, b'"') << first;
            marks.backslashes |= equal(lane, b'\\') << first;
            marks.opening |= equal(folded, b'{') << first;
            marks.closing |= equal(folded, b'}') << first;
        }
        marks
    }
}

/// Returns the bytes of a lane that equal `byte`.
fn equal(lane: u8x16, byte: u8) -> u64 {
    let mask = lane.cmp_eq(u8x16::splat(byte)).move_mask();
    u64::from(mask as u16)
}

/// Sets each bit that has an odd number of set bits at or below it.
fn odd_before(mut bits: u64) -> u64 {
    for distance in [1, 2, 4, 8, 16, 32] {
        bits ^= bits << distance;
    }
    bits
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::{Just, ProptestConfig, Strategy, any};
    use proptest::{prop_assert_eq, prop_oneof, proptest};

    use super::*;

    /// Pieces that change what follows them, and others of lengths that move the ends of blocks.
    fn piece() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            vec(prop_oneof![Just(b'\\'), Just(b'"')], 1..8),
            vec(
                prop_oneof![Just(b'{'), Just(b'}'), Just(b'['), Just(b']')],
                1..4
            ),
            vec(b' '..=b'~', 0..70),
            vec(any::<u8>(), 0..10),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 4_000, ..ProptestConfig::default() })]

        #[test]
        fn blocks_and_bytes_give_one_end(
            before in vec(any::<u8>(), 0..70),
            pieces in vec(piece(), 0..40),
        ) {
            let text = [before.as_slice(), b"{", pieces.concat().as_slice()].concat();
            let found = container_end(&text, before.len());
            prop_assert_eq!(found, container_end_by_bytes(&text, before.len()));
        }
    }

    proptest! {
        #[test]
        fn a_container_with_strings_ends_at_its_bracket(
            strings in vec("[ -~\n]{0,80}", 0..12),
            depth in 1..40_usize,
        ) {
            let strings: Vec<_> = strings.iter().map(|text| format!("{text:?}")).collect();
            let inside = strings.join(",");
            let text = format!("{}{inside}{}", "[".repeat(depth), "]".repeat(depth));
            prop_assert_eq!(container_end(text.as_bytes(), 0), Ok(text.len()));
            let more = format!("{text}]}}\"");
            prop_assert_eq!(container_end(more.as_bytes(), 0), Ok(text.len()));
            let unclosed = &text.as_bytes()[..text.len() - 1];
            prop_assert_eq!(container_end(unclosed, 0), Err("a closing bracket"));
        }
    }

    #[test]
    fn an_open_string_is_reported() {
        for length in [0, 1, 60, 61, 62, 63, 64, 65, 130] {
            let text = format!("[\"{}", "x".repeat(length));
            assert_eq!(
                container_end(text.as_bytes(), 0),
                Err("a string's end"),
                "{length}"
            );
            let escaped = format!("{text}\\\"]");
            assert_eq!(
                container_end(escaped.as_bytes(), 0),
                Err("a string's end"),
                "{length}"
            );
            let closed = format!("{text}\\\\\"]");
            assert_eq!(
                container_end(closed.as_bytes(), 0),
                Ok(closed.len()),
                "{length}"
            );
        }
    }
}
