//! Measures the header block of an HTTP/2 request while it arrives.
//!
//! The HTTP library stores the decoded fields of a block until the block's last frame has arrived.
//! A field of one byte, which refers to a table of fields (RFC 7541, 6.1), takes a hundred bytes
//! then. So the fields are counted, and the bytes of their strings. Nothing is decoded.

/// Bytes that the HTTP library stores for a field, without its strings.
const FIELD_BYTES: u64 = 104;
/// A field counts with at least this many bytes in the limit of all fields (RFC 9113, 6.5.2).
/// Beyond the limit, the library stores no more fields.
const LEAST_COUNTED: u64 = 32;
/// A character has at least this many bits in the Huffman code.
const BITS_OF_CHARACTER: u64 = 5;
const BITS_OF_BYTE: u64 = 8;

/// The part of a header block that has arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HeaderBlock {
    fields: u64,
    max_fields: u64,
    /// The bits of the characters of all strings, if each character has as few bits as the Huffman
    /// code permits.
    string_bits: u64,
    next: Next,
    /// The number of strings that follow the integer that is being read.
    strings: u8,
}

/// The meaning of the next byte.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Next {
    /// The first byte of a field.
    Field,
    /// The rest of the index of a field in the table, or of a new size of the table.
    Index,
    /// The first byte of a string's length.
    Length,
    /// The rest of the length of a string: the length so far, how far the next seven bits are
    /// shifted, and whether the string is compressed.
    RestOfLength(u64, u32, bool),
    /// A byte of a string: how many bytes of the string are left, and whether the string is
    /// compressed.
    String(u64, bool),
}

// === impl HeaderBlock ===

impl HeaderBlock {
    /// Creates an empty block. Its fields may count `max_bytes`.
    pub(super) fn new(max_bytes: u32) -> Self {
        Self {
            fields: 0,
            max_fields: u64::from(max_bytes) / LEAST_COUNTED,
            string_bits: 0,
            next: Next::Field,
            strings: 0,
        }
    }

    /// Returns about how many bytes the HTTP library holds for the block.
    pub(super) fn held(&self) -> u64 {
        self.fields.min(self.max_fields) * FIELD_BYTES + self.string_bits / BITS_OF_CHARACTER
    }

    /// Measures `data`, which continues the block. An invalid block may be measured wrongly,
    /// because it ends the connection.
    pub(super) fn receive(&mut self, mut data: &[u8]) {
        while let Some((first, rest)) = data.split_first() {
            if let Next::String(left, is_compressed) = self.next {
                let count = left.min(data.len() as u64);
                let bits = if is_compressed {
                    BITS_OF_BYTE
                } else {
                    BITS_OF_CHARACTER
                };
                self.string_bits = self.string_bits.saturating_add(count * bits);
                self.begin_string(left - count, is_compressed);
                data = &data[usize::try_from(count).unwrap_or(data.len())..];
                continue;
            }
            self.step(*first);
            data = rest;
        }
    }

    fn step(&mut self, byte: u8) {
        /// The bits of an integer's later bytes (RFC 7541, 5.1).
        const VALUE: u8 = 0x7f;
        const HAS_MORE: u8 = 0x80;
        const IS_COMPRESSED: u8 = 0x80;
        match self.next {
            Next::Field => self.begin_field(byte),
            Next::Index if byte & HAS_MORE == 0 => self.next = self.after_integer(),
            Next::Index => {}
            Next::Length => {
                let is_compressed = byte & IS_COMPRESSED != 0;
                match byte & VALUE {
                    VALUE => self.next = Next::RestOfLength(u64::from(VALUE), 0, is_compressed),
                    length => self.begin_string(u64::from(length), is_compressed),
                }
            }
            Next::RestOfLength(length, shift, is_compressed) => {
                let more = u64::from(byte & VALUE).checked_shl(shift).unwrap_or(0);
                let length = length.saturating_add(more);
                self.next = Next::RestOfLength(length, shift.saturating_add(7), is_compressed);
                if byte & HAS_MORE == 0 {
                    self.begin_string(length, is_compressed);
                }
            }
            // `receive` takes the bytes of a string together.
            Next::String(..) => {}
        }
    }

    /// Reads the first byte of a field: the field's kind and the first bits of an index (RFC 7541,
    /// 6). Without an index of the complete field, one string follows, or two if the name has no
    /// index either.
    fn begin_field(&mut self, byte: u8) {
        let (index_bits, has_value) = match byte {
            0x80.. => (0x7f, false),
            0x40.. => (0x3f, true),
            // A new size of the table. It is not a field.
            0x20.. => (0x1f, false),
            _ => (0x0f, true),
        };
        let index = byte & index_bits;
        self.fields += u64::from(!(0x20..0x40).contains(&byte));
        self.strings = match (has_value, index) {
            (false, _) => 0,
            (true, 0) => 2,
            (true, _) => 1,
        };
        self.next = if index == index_bits {
            Next::Index
        } else {
            self.after_integer()
        };
    }

    fn after_integer(&self) -> Next {
        match self.strings {
            0 => Next::Field,
            _ => Next::Length,
        }
    }

    /// Begins, or continues, a string with `left` more bytes.
    fn begin_string(&mut self, left: u64, is_compressed: bool) {
        if left > 0 {
            self.next = Next::String(left, is_compressed);
            return;
        }
        self.strings = self.strings.saturating_sub(1);
        self.next = self.after_integer();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the bytes of a string's length. The string is compressed or not.
    fn length(bytes: usize, is_compressed: bool) -> Vec<u8> {
        let flag = if is_compressed { 0x80 } else { 0 };
        if bytes < 0x7f {
            return vec![flag | u8::try_from(bytes).expect("less than 127")];
        }
        let mut encoded = vec![flag | 0x7f];
        let mut rest = bytes - 0x7f;
        while rest >= 0x80 {
            encoded.push(0x80 | u8::try_from(rest & 0x7f).expect("seven bits"));
            rest >>= 7;
        }
        encoded.push(u8::try_from(rest).expect("seven bits"));
        encoded
    }

    fn string(bytes: usize, is_compressed: bool) -> Vec<u8> {
        [length(bytes, is_compressed), vec![0xff; bytes]].concat()
    }

    #[test]
    fn fields_and_their_strings_are_counted() {
        let rows: [(&str, Vec<u8>, u64, u64); 11] = [
            ("nothing", vec![], 0, 0),
            ("known fields", vec![0x82, 0x86, 0x84], 3, 0),
            ("a large index", vec![0xff, 0x80, 0x01, 0x82], 2, 0),
            ("a size of the table", vec![0x3f, 0xe1, 0x1f, 0x82], 1, 0),
            ("a value", [vec![0x41], string(5, false)].concat(), 1, 5),
            (
                "a new field",
                [vec![0x40], string(3, false), string(500, false)].concat(),
                1,
                503,
            ),
            (
                "one that is not kept",
                [vec![0x00], string(1, false), string(2, false)].concat(),
                1,
                3,
            ),
            (
                "one that is never kept",
                [vec![0x1f, 0x04], string(9, false)].concat(),
                1,
                9,
            ),
            (
                "an empty value",
                [vec![0x0f, 0x00], string(0, false), vec![0x82]].concat(),
                2,
                0,
            ),
            ("compressed", [vec![0x41], string(10, true)].concat(), 1, 16),
            (
                "a part of a value",
                [vec![0x41], length(70_000, false), vec![0; 69_000]].concat(),
                1,
                69_000,
            ),
        ];
        for (name, bytes, fields, strings) in rows {
            let mut block = HeaderBlock::new(256 << 10);
            block.receive(&bytes);
            assert_eq!(block.held(), fields * FIELD_BYTES + strings, "{name}");
        }
    }

    #[test]
    fn fields_beyond_the_limit_are_not_held() {
        let mut block = HeaderBlock::new(320);
        block.receive(&[0x82; 11]);
        assert_eq!(block.held(), 10 * FIELD_BYTES);
    }
}
