//! ListText: the text of a list, made once for several clients.

use std::mem;
use std::sync::Arc;

use bytes::Bytes;
use kubefan_core::concurrency::CoopBudget;
use prometheus::IntGauge;

use crate::server::deliver::chunk_size;

/// Size, in bytes, of the chunks of a text. Only its last chunk is shorter.
const CHUNK: usize = chunk_size::LARGEST;

/// The text of a list. It does not hold the snapshot.
pub(crate) struct ListText {
    chunks: Vec<Bytes>,
    length: usize,
    /// Gauge of the bytes of all shared lists in memory.
    bytes_held: IntGauge,
}

/// An iterator over the chunks of a text. A clone returns the remaining ones.
#[derive(Clone)]
pub(crate) struct TextChunks {
    text: Arc<ListText>,
    next: usize,
}

impl ListText {
    /// Creates a text of `length` bytes, which are counted in `bytes_held` from now on, although
    /// the text is still empty.
    pub(super) fn new(length: usize, bytes_held: IntGauge) -> Self {
        bytes_held.add(length as i64);
        Self {
            chunks: Vec::new(),
            length,
            bytes_held,
        }
    }

    /// Returns the length of the text in bytes.
    pub(super) fn length(&self) -> usize {
        self.length
    }

    /// Copies `parts` into the text. An empty part means that the parts need more time. Other tasks
    /// run in between. Cancel safe.
    pub(super) async fn filled(mut self, parts: impl Iterator<Item = Bytes>) -> Self {
        let mut budget = CoopBudget::new();
        let mut left = self.length;
        let mut chunk = Vec::with_capacity(left.min(CHUNK));
        for mut part in parts {
            budget.charge(match part.len() {
                0 => CoopBudget::UNITS,
                length => length,
            });
            while !part.is_empty() {
                let taken = part.split_to(part.len().min(CHUNK - chunk.len()));
                chunk.extend_from_slice(&taken);
                left = left.saturating_sub(taken.len());
                if chunk.len() == CHUNK {
                    let next = Vec::with_capacity(left.min(CHUNK));
                    self.chunks.push(mem::replace(&mut chunk, next).into());
                }
            }
            budget.proceed().await;
        }
        if !chunk.is_empty() {
            self.chunks.push(chunk.into());
        }
        self
    }
}

impl Drop for ListText {
    fn drop(&mut self) {
        self.bytes_held.sub(self.length as i64);
    }
}

impl TextChunks {
    /// Returns all chunks of `text`.
    pub(super) fn new(text: Arc<ListText>) -> Self {
        Self { text, next: 0 }
    }

    /// Returns the length of the whole text in bytes.
    pub(crate) fn text_length(&self) -> u64 {
        self.text.length as u64
    }
}

impl Iterator for TextChunks {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        let chunk = self.text.chunks.get(self.next)?;
        self.next += 1;
        Some(chunk.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gauge() -> IntGauge {
        IntGauge::new("bytes", "bytes").expect("the name is valid")
    }

    #[tokio::test]
    async fn a_text_has_the_bytes_of_its_parts_in_chunks_of_one_size() {
        for lengths in [
            vec![],
            vec![1, 0, 2],
            vec![CHUNK],
            vec![CHUNK - 1, 1, CHUNK],
            vec![1, 3 * CHUNK, 0, 0, CHUNK / 2],
        ] {
            let parts = lengths.iter().zip(b'a'..);
            let parts: Vec<_> = parts
                .map(|(length, letter)| Bytes::from(vec![letter; *length]))
                .collect();
            let (whole, held) = (parts.concat(), gauge());
            let text = ListText::new(whole.len(), held.clone());
            assert_eq!(held.get(), whole.len() as i64);
            let text = Arc::new(text.filled(parts.into_iter()).await);
            assert_eq!(text.chunks.len(), whole.len().div_ceil(CHUNK));
            let full = text.chunks.iter().rev().skip(1);
            assert!(full.map(Bytes::len).all(|length| length == CHUNK));
            let mut chunks = TextChunks::new(Arc::clone(&text));
            assert_eq!(chunks.text_length(), whole.len() as u64);
            let first: Vec<_> = chunks.next().into_iter().collect();
            let rest: Vec<_> = chunks.clone().collect();
            assert!([first.concat(), rest.concat()].concat() == whole);
            assert!(chunks.eq(rest));
            drop(text);
            assert_eq!(held.get(), 0, "{lengths:?}");
        }
    }
}
