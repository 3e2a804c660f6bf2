//! Frames that go out together: one buffer for a burst, shared by all who send the same burst.

use std::cell::RefCell;

use bytes::Bytes;
use bytes::BytesMut;

/// Bytes of frames that are merged at most: a DATA frame and a TLS record hold as much.
pub(crate) const LIMIT: usize = 16 << 10;

/// The frames of one burst of one watch, and the last that was merged on this thread.
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

/// What `first` and the frames of `next` come to in one buffer, and how many they are. A frame that
/// doesn't fit any more is given back as the third.
///
/// Watches that are equally far behind get the same buffer: nothing is copied for them.
pub(crate) fn merge(
    first: Bytes,
    next: impl FnMut() -> Option<Bytes>,
) -> (Bytes, usize, Option<Bytes>) {
    // Taken and not borrowed, as anything may happen in `next`.
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
        let mut held = None;
        while self.length < LIMIT
            && let Some(frame) = next()
        {
            if self.length + frame.len() > LIMIT {
                held = Some(frame);
                break;
            }
            self.length += frame.len();
            self.frames.push(frame);
        }
        let count = self.frames.len();
        if count == 1 {
            let only = self.frames.pop().unwrap_or_default();
            return (only, 1, held);
        }
        if !same(&self.frames, &self.merged) {
            let mut whole = BytesMut::with_capacity(self.length);
            for frame in &self.frames {
                whole.extend_from_slice(frame);
            }
            self.whole = whole.freeze();
            std::mem::swap(&mut self.frames, &mut self.merged);
        }
        self.frames.clear();
        (self.whole.clone(), count, held)
    }
}

/// The very same bytes: those merged before are still held, so nothing else can lie there.
fn same(frames: &[Bytes], others: &[Bytes]) -> bool {
    let place = |frame: &Bytes| (frame.as_ptr(), frame.len());
    frames.iter().map(place).eq(others.iter().map(place))
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
    fn a_frame_alone_is_given_as_it_is() {
        for length in [1, LIMIT - 1, LIMIT, LIMIT + 1] {
            let frames = [frame(length)];
            let (whole, count, held) = merged(&frames);
            assert_eq!((count, held), (1, None));
            assert_eq!(whole.as_ptr(), frames[0].as_ptr(), "{length} was copied");
        }
    }

    #[test]
    fn frames_keep_their_order_and_none_is_lost() {
        let frames: Vec<_> = (0..100).map(|n| Bytes::from(format!("{n}\n"))).collect();
        let (whole, count, held) = merged(&frames);
        assert_eq!((count, held), (100, None));
        assert_eq!(whole, frames.concat());
    }

    #[test]
    fn what_does_not_fit_is_held() {
        let rows = [
            (vec![LIMIT / 2, LIMIT / 2, 1], 2, None),
            (vec![LIMIT / 2, LIMIT / 2 + 1, 1], 1, Some(LIMIT / 2 + 1)),
            (vec![1, LIMIT], 1, Some(LIMIT)),
            (vec![LIMIT + 1, 1], 1, None),
            (vec![1, 1, LIMIT], 2, Some(LIMIT)),
        ];
        for (lengths, expected, expected_held) in rows {
            let frames: Vec<_> = lengths.iter().map(|length| frame(*length)).collect();
            let (whole, count, held) = merged(&frames);
            assert_eq!(count, expected, "{lengths:?}");
            assert_eq!(held.map(|held| held.len()), expected_held, "{lengths:?}");
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
