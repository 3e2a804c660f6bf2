//! The chunks of a body (RFC 9112, 7.1) that wait to be written.

use std::collections::VecDeque;
use std::io::{Cursor, IoSlice, Write};

use bytes::Buf;
use bytes::buf::{Chain, Take};

/// The most chunks that wait, so that one write takes all of them. Events that are due together are
/// one chunk already, so more than a few chunks are rare.
const MAX_CHUNKS: usize = 10;
/// No chunk is added if this number of bytes waits already. It is less than the 64 KiB that TLS takes
/// in one write, because the last chunk may exceed it.
const MAX_WAITING: usize = 48 << 10;
/// Enough slices for all chunks, each with its head and the end of its line, and for the last chunk.
pub(super) const MAX_SLICES: usize = 3 * MAX_CHUNKS + 1;

/// The length of a chunk in hexadecimal digits, and the end of its line.
const CHUNK_HEAD: usize = 18;
/// The end of a body of chunks.
const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

/// Chunks that wait to be written, as one buffer.
pub(super) struct Chunks<D> {
    /// Kept apart, so that a single chunk needs no allocation. If it is `None`, there are no more.
    first: Option<Chunk<D>>,
    more: VecDeque<Chunk<D>>,
    /// What is left of the last chunk, if the body has ended.
    last: &'static [u8],
    /// The bytes that wait.
    remaining: usize,
}

type Chunk<D> = Chain<Chain<Take<Cursor<[u8; CHUNK_HEAD]>>, D>, &'static [u8]>;

// === impl Chunks ===

impl<D: Buf> Chunks<D> {
    /// Returns true if another chunk may be added.
    pub(super) fn have_room(&self) -> bool {
        self.remaining < MAX_WAITING && self.more.len() + 1 < MAX_CHUNKS
    }

    /// Adds `data` as a chunk. Empty data is left out, because an empty chunk would end the body.
    pub(super) fn push(&mut self, data: D) {
        if !data.has_remaining() {
            return;
        }
        let chunk = chunk(data);
        self.remaining += chunk.remaining();
        if self.first.is_none() {
            self.first = Some(chunk);
        } else {
            self.more.push_back(chunk);
        }
    }

    /// Adds the end of the body.
    pub(super) fn end(&mut self) {
        self.last = LAST_CHUNK;
        self.remaining += LAST_CHUNK.len();
    }
}

impl<D> Default for Chunks<D> {
    fn default() -> Self {
        Self {
            first: None,
            more: VecDeque::new(),
            last: &[],
            remaining: 0,
        }
    }
}

impl<D: Buf> Buf for Chunks<D> {
    fn remaining(&self) -> usize {
        self.remaining
    }

    fn chunk(&self) -> &[u8] {
        match &self.first {
            Some(first) => first.chunk(),
            None => self.last,
        }
    }

    fn chunks_vectored<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        let mut count = 0;
        for chunk in self.first.iter().chain(&self.more) {
            count += chunk.chunks_vectored(&mut slices[count..]);
        }
        count + self.last.chunks_vectored(&mut slices[count..])
    }

    fn advance(&mut self, mut count: usize) {
        self.remaining -= count;
        while let Some(first) = &mut self.first {
            let length = first.remaining();
            if count < length {
                first.advance(count);
                return;
            }
            count -= length;
            self.first = self.more.pop_front();
        }
        self.last.advance(count);
    }
}

fn chunk<D: Buf>(data: D) -> Chunk<D> {
    let mut head = [0; CHUNK_HEAD];
    let mut left = &mut head[..];
    write!(left, "{:x}\r\n", data.remaining()).expect("the longest number fits");
    let length = CHUNK_HEAD - left.len();
    let head = Buf::take(Cursor::new(head), length);
    head.chain(data).chain(&b"\r\n"[..])
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn chunks() -> Chunks<Bytes> {
        let mut chunks = Chunks::default();
        for data in ["one", "", "xxxxxxxxxxxxxxxxx", "two"] {
            chunks.push(Bytes::from_static(data.as_bytes()));
        }
        chunks.end();
        chunks
    }

    #[test]
    fn all_parts_are_written_once_and_in_order_whatever_a_write_takes() {
        let expected = b"3\r\none\r\n11\r\nxxxxxxxxxxxxxxxxx\r\n3\r\ntwo\r\n0\r\n\r\n";
        for most in 1..=expected.len() {
            for max_slices in [1, 2, 4, MAX_SLICES] {
                let (mut chunks, mut written) = (chunks(), Vec::new());
                while chunks.has_remaining() {
                    let mut slices = [IoSlice::new(&[]); MAX_SLICES];
                    let count = chunks.chunks_vectored(&mut slices[..max_slices]);
                    let slices = slices[..count].iter();
                    let slices: Vec<u8> = slices.flat_map(|slice| slice.iter().copied()).collect();
                    assert!(!slices.is_empty());
                    assert!(slices.starts_with(chunks.chunk()));
                    let taken = most.min(slices.len());
                    written.extend_from_slice(&slices[..taken]);
                    chunks.advance(taken);
                    assert_eq!(chunks.remaining(), expected.len() - written.len());
                }
                assert_eq!(written, expected, "{most} bytes, {max_slices} slices");
            }
        }
    }

    #[test]
    fn there_is_room_for_few_bytes_and_chunks() {
        for (length, expected) in [(1, MAX_CHUNKS), (8 << 10, 6), (16 << 10, 3), (64 << 10, 1)] {
            let mut chunks = Chunks::default();
            let mut count = 0;
            while chunks.have_room() {
                chunks.push(Bytes::from(vec![b'x'; length]));
                count += 1;
            }
            assert_eq!(count, expected, "{length} bytes each");
            chunks.end();
            let mut slices = [IoSlice::new(&[]); MAX_SLICES];
            let count = chunks.chunks_vectored(&mut slices);
            let all: usize = slices[..count].iter().map(|slice| slice.len()).sum();
            assert_eq!(all, chunks.remaining(), "one write takes all");
        }
    }
}
