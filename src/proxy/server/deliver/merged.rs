//! Merges the frames of a burst into one buffer. Watches that send the same burst share the buffer.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use bytes::Bytes;

use crate::ledger;
use crate::ledger::{Account, Charge, MemoryKind};
use crate::net::pieces;

/// Largest size, in bytes, of merged frames: as much as an HTTP/2 DATA frame or a TLS record holds.
pub(crate) const MAX_MERGED: usize = 16 << 10;

/// How many merged bursts a thread keeps. Watches that are behind take one burst after another, and
/// some of them are one burst ahead of others. Not more, because a burst keeps its events in memory.
const KEPT: usize = 2;

/// The frames of the burst that is being merged.
#[derive(Default)]
struct Burst {
    frames: Vec<Bytes>,
    length: usize,
}

/// The results of the last merges on this thread.
#[derive(Default)]
struct LastMerged {
    bursts: [Merged; KEPT],
    /// The one that the next merge replaces.
    oldest: usize,
}

/// A merged burst.
#[derive(Default)]
struct Merged {
    frames: Vec<Bytes>,
    whole: Bytes,
    /// The charge for `whole` while a watch sends it.
    charge: Weak<Charge>,
}

thread_local! {
    static BURST: RefCell<Burst> = RefCell::default();
    static MERGED: RefCell<LastMerged> = RefCell::default();
}

/// Merges `first` and the frames that `next` returns into one buffer of up to `limit` bytes, at
/// most [`MAX_MERGED`]. `next` gets the number of bytes that are free in the buffer. Returns the
/// buffer and the number of frames in it. Frames that do not fit are appended to `leftover`, which
/// must be empty.
///
/// Watches on one thread that are equally far behind get the same buffer, copied once. It is
/// charged once, to the `account` of the first of them. If memory is short, nothing is merged.
pub(crate) fn merge(
    first: Bytes,
    mut next: impl FnMut(usize) -> Option<Bytes>,
    limit: usize,
    leftover: &mut VecDeque<Bytes>,
    account: Option<&Arc<Account>>,
) -> (Bytes, usize) {
    // The value is taken, not borrowed, because `next` may run any code, even another merge.
    let mut burst = BURST.take();
    burst.length = first.len();
    burst.frames.push(first);
    let mut too_long = None;
    while burst.length < limit
        && let Some(frame) = next(limit - burst.length)
    {
        if burst.length + frame.len() > limit {
            too_long = Some(frame);
            break;
        }
        burst.length += frame.len();
        burst.frames.push(frame);
    }
    let mut count = burst.frames.len();
    let whole = match count {
        1 => None,
        _ => MERGED.with_borrow_mut(|merged| merged.whole(&mut burst, account)),
    };
    let frame = whole.unwrap_or_else(|| {
        leftover.extend(burst.frames.drain(1..));
        count = 1;
        burst.frames.pop().unwrap_or_default()
    });
    leftover.extend(too_long);
    burst.frames.clear();
    BURST.set(burst);
    (frame, count)
}

impl LastMerged {
    /// Returns all frames of `burst` in one buffer, or `None` if the ledger refuses the memory for it.
    fn whole(&mut self, burst: &mut Burst, account: Option<&Arc<Account>>) -> Option<Bytes> {
        let is_kept = |merged: &Merged| are_same_slices(&burst.frames, &merged.frames);
        let kept = self.bursts.iter().position(is_kept);
        let merged = &mut self.bursts[kept.unwrap_or(self.oldest)];
        let charge = match account {
            None => None,
            Some(account) => {
                let shared = merged.charge.upgrade().filter(|_| kept.is_some());
                let bytes = burst.length as u64;
                let charge = || account.charge(MemoryKind::Burst, bytes).ok().map(Arc::new);
                Some(shared.or_else(charge)?)
            }
        };
        if kept.is_none() {
            let mut whole = Vec::with_capacity(burst.length);
            for frame in &burst.frames {
                pieces::append(&mut whole, frame);
            }
            merged.whole = whole.into();
            merged.charge = Weak::new();
            std::mem::swap(&mut burst.frames, &mut merged.frames);
            self.oldest = (self.oldest + 1) % KEPT;
        }
        let whole = merged.whole.clone();
        Some(match charge {
            None => whole,
            Some(charge) => {
                merged.charge = Arc::downgrade(&charge);
                ledger::charged(whole, charge)
            }
        })
    }
}

/// Returns true if both have the same slices of memory: equal addresses and lengths. [`Merged`]
/// holds its frames, so no other bytes can have their addresses.
fn are_same_slices(frames: &[Bytes], others: &[Bytes]) -> bool {
    let address = |frame: &Bytes| (frame.as_ptr(), frame.len());
    frames.iter().map(address).eq(others.iter().map(address))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::{Ledger, Limits};

    fn frame(length: usize) -> Bytes {
        Bytes::from(vec![b'x'; length])
    }

    fn merged(frames: &[Bytes]) -> (Bytes, usize, Option<Bytes>) {
        let (whole, count, mut leftover) = merged_for(frames, None);
        assert!(leftover.len() <= 1);
        (whole, count, leftover.pop())
    }

    fn merged_for(frames: &[Bytes], account: Option<&Arc<Account>>) -> (Bytes, usize, Vec<Bytes>) {
        let mut rest = frames[1..].iter().cloned();
        let mut leftover = VecDeque::new();
        let (whole, count) = merge(
            frames[0].clone(),
            |_| rest.next(),
            MAX_MERGED,
            &mut leftover,
            account,
        );
        (whole, count, leftover.into())
    }

    #[test]
    fn a_burst_is_charged_once_while_a_watch_sends_it() {
        let ledger = Ledger::new(Limits::new(Some(1 << 30), None, 0));
        let (one, other) = (ledger.open_account(), ledger.open_account());
        let charged = || {
            let usage = ledger.usage();
            let bursts = usage.iter().find(|(kind, _)| *kind == "burst");
            bursts.map_or(0, |(_, bytes)| *bytes)
        };
        let frames = [frame(1_000), frame(2_000)];
        let (first, count, _) = merged_for(&frames, Some(&one));
        assert_eq!((count, charged()), (2, 3_000));
        let (second, _, _) = merged_for(&frames, Some(&other));
        assert_eq!((second.as_ptr(), charged()), (first.as_ptr(), 3_000));
        drop(first);
        assert_eq!(charged(), 3_000);
        drop(second);
        assert_eq!(charged(), 0);
        let again = merged_for(&frames, Some(&other));
        assert_eq!(charged(), 3_000);
        drop((again, one, other));
        assert_eq!(ledger.leased(), 0);
    }

    #[test]
    fn nothing_is_merged_while_memory_is_short() {
        let limits = Limits {
            connection_memory: 20 << 10,
            ..Limits::new(Some(1 << 30), None, 0)
        };
        let ledger = Ledger::new(limits);
        let account = ledger.open_account();
        let frames = [frame(4_000), frame(5_000), frame(6_000), frame(7_000)];
        let (alone, count, leftover) = merged_for(&frames, Some(&account));
        assert_eq!((alone.as_ptr(), count), (frames[0].as_ptr(), 1));
        assert_eq!(leftover, frames[1..]);
        // Events go on without it, so it is no sign that the process is short of memory.
        let mut was_short = true;
        assert_eq!(
            ledger
                .sweep(tokio::time::Instant::now(), &mut was_short)
                .connections,
            0
        );
        assert!(!was_short);
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

    #[test]
    fn watches_at_different_bursts_share_them() {
        let bursts: [_; KEPT] = std::array::from_fn(|number| [frame(10 + number), frame(20)]);
        let first = bursts.each_ref().map(|frames| merged(frames).0);
        let again = bursts.each_ref().map(|frames| merged(frames).0);
        let addresses = |bursts: &[Bytes; KEPT]| bursts.each_ref().map(|burst| burst.as_ptr());
        assert_eq!(addresses(&first), addresses(&again));
    }
}
