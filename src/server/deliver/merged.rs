//! Merges the frames of a burst into one buffer, which watches share that send the same burst.

use std::cell::RefCell;

use bytes::Bytes;
use bytes::BytesMut;

/// Largest size, in bytes, of merged frames: as much as an HTTP/2 DATA frame or a TLS record holds.
pub(crate) const MAX_MERGED: usize = 16 << 10;

/// The frames of the burst that is being merged, and the result of the last merge on this thread.
#[derive(Default)]
pub(crate) struct Burst {
    frames: Vec<Bytes>,
    length: usize,
    merged: Vec<Bytes>,
    whole: Bytes,
}

thread_local! {
    static BURST: RefCell<Burst> = RefCell::default();
}

/// Merges `first` and the frames that `next` returns into one buffer. Returns the buffer, the
/// number of frames in it, and the frame that no longer fitted, if any.
///
/// Watches on one thread that are equally far behind get the same buffer, copied once.
pub(crate) fn merge(
    first: Bytes,
    next: impl FnMut() -> Option<Bytes>,
) -> (Bytes, usize, Option<Bytes>) {
    // The value is taken, not borrowed, because `next` may run any code, even another merge.
    let mut burst = BURST.take();
    let merged = burst.merge(first, next);
    BURST.set(burst);
    merged
}

impl Burst {
    fn merge(
        &mut self,
        first: Bytes,
        mut next: impl FnMut() -> Option<Bytes>,
    ) -> (Bytes, usize, Option<Bytes>) {
        self.length = first.len();
        self.frames.push(first);
        let mut leftover = None;
        while self.length < MAX_MERGED
            && let Some(frame) = next()
        {
            if self.length + frame.len() > MAX_MERGED {
                leftover = Some(frame);
                break;
            }
            self.length += frame.len();
            self.frames.push(frame);
        }
        let count = self.frames.len();
        if count == 1 {
            let only = self.frames.pop().unwrap_or_default();
            return (only, 1, leftover);
        }
        if !are_same_slices(&self.frames, &self.merged) {
            let mut whole = BytesMut::with_capacity(self.length);
            for frame in &self.frames {
                whole.extend_from_slice(frame);
            }
            self.whole = whole.freeze();
            std::mem::swap(&mut self.frames, &mut self.merged);
        }
        self.frames.clear();
        (self.whole.clone(), count, leftover)
    }
}

/// True if both have the same slices of memory. `Burst` holds its last frames, so no other bytes
/// can have their addresses.
fn are_same_slices(frames: &[Bytes], others: &[Bytes]) -> bool {
    let address = |frame: &Bytes| (frame.as_ptr(), frame.len());
    frames.iter().map(address).eq(others.iter().map(address))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(length: usize) -> Bytes {
        Bytes::from(vec![b'x'; length])
    }

    fn merged(frames: &[Bytes]) -> (Bytes, usize, Option<Bytes>) {
        let mut rest = frames[1..].iter().cloned();
        merge(frames[0].clone(), || rest.next())
    }

    #[test]
    fn a_single_frame_is_not_copied() {
        for length in [1, MAX_MERGED - 1, MAX_MERGED, MAX_MERGED + 1] {
            let frames = [frame(length)];
            let (whole, count, leftover) = merged(&frames);
            assert_eq!((count, leftover), (1, None));
            assert_eq!(whole.as_ptr(), frames[0].as_ptr(), "{length} was copied");
        }
    }

    #[test]
    fn frames_keep_their_order_and_none_is_lost() {
        let frames: Vec<_> = (0..100).map(|n| Bytes::from(format!("{n}\n"))).collect();
        let (whole, count, leftover) = merged(&frames);
        assert_eq!((count, leftover), (100, None));
        assert_eq!(whole, frames.concat());
    }

    #[test]
    fn a_frame_that_does_not_fit_is_given_back() {
        let rows = [
            (vec![MAX_MERGED / 2, MAX_MERGED / 2, 1], 2, None),
            (
                vec![MAX_MERGED / 2, MAX_MERGED / 2 + 1, 1],
                1,
                Some(MAX_MERGED / 2 + 1),
            ),
            (vec![1, MAX_MERGED], 1, Some(MAX_MERGED)),
            (vec![MAX_MERGED + 1, 1], 1, None),
            (vec![1, 1, MAX_MERGED], 2, Some(MAX_MERGED)),
        ];
        for (lengths, expected, expected_leftover) in rows {
            let frames: Vec<_> = lengths.iter().map(|length| frame(*length)).collect();
            let (whole, count, leftover) = merged(&frames);
            assert_eq!(count, expected, "{lengths:?}");
            assert_eq!(
                leftover.map(|leftover| leftover.len()),
                expected_leftover,
                "{lengths:?}"
            );
            assert_eq!(whole, frames[..count].concat());
        }
    }

    #[test]
    fn the_same_frames_are_copied_once() {
        let frames = [frame(10), frame(20)];
        let others = [frame(10), frame(20)];
        let first = merged(&frames).0;
        assert_eq!(first.as_ptr(), merged(&frames).0.as_ptr());
        assert_ne!(first.as_ptr(), merged(&others).0.as_ptr());
        assert_ne!(
            first.as_ptr(),
            merged(&[frames[0].clone(), others[1].clone()]).0.as_ptr()
        );
    }
}
