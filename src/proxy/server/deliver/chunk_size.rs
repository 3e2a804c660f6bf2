//! ChunkSize: decides how many bytes of a body are taken together to be sent.

/// Size, in bytes, of a body's first chunks.
pub(super) const FIRST: usize = 4 << 10;
/// Largest size, in bytes, of a chunk.
pub(super) const LARGEST: usize = 64 << 10;

/// The size of the next chunk of a body. It grows as the reader takes chunks.
///
/// A chunk is taken before there is room for it, and can't be given back. So a reader that takes
/// nothing must cost little, and a reader that has taken much may cost more.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ChunkSize {
    /// Bytes that were passed on.
    sent: usize,
}

impl ChunkSize {
    /// Returns the size of the next chunk: half of what was sent, within the limits.
    pub(super) fn next(self) -> usize {
        (self.sent / 2).clamp(FIRST, LARGEST)
    }

    /// Records that `bytes` more were passed on.
    pub(super) fn record(&mut self, bytes: usize) {
        self.sent = self.sent.saturating_add(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_grow_slowly_and_to_a_limit() {
        let mut size = ChunkSize::default();
        let mut held = Vec::new();
        for _ in 0..16 {
            held.push(size.next() >> 10);
            size.record(size.next());
        }
        let expected = [4, 4, 4, 6, 9, 13, 20, 30, 45, 64, 64, 64, 64, 64, 64, 64];
        assert_eq!(held, expected);
        size.record(usize::MAX);
        assert_eq!(size.next(), LARGEST);
    }
}
