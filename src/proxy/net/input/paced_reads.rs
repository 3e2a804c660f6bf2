//! Decides when the socket of an HTTP/2 connection is read, so that its requests leave time for the
//! requests of other connections.
//!
//! One read from the socket can bring hundreds of requests, and one poll of the connection reads
//! until the socket is empty. A client that resets its streams at once can send any number of
//! requests (RFC 9113 §5.1.2 does not count closed streams). Each request takes time, and other
//! connections wait for it. So a turn of a connection does not read any more after it has started
//! some requests, and the socket of a peer that resets streams too fast is read later.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::time::{Sleep, sleep};

use super::resets::PeerLimit;

/// Decides when a socket may be read: not while too many requests have been started or reset.
pub(in crate::net) struct PacedReads {
    pub(in crate::net) limit: Arc<PeerLimit>,
    /// Runs while the peer has reset too many streams.
    pause: Option<Pin<Box<Sleep>>>,
}

// === impl PacedReads ===

impl PacedReads {
    pub(in crate::net) fn new(limit: Arc<PeerLimit>) -> Self {
        Self { limit, pause: None }
    }

    /// Waits until the socket may be read.
    pub(in crate::net) fn poll_turn(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.limit.has_many_starts() {
            // The next turn continues, after the tasks that are ready now.
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        while let Some(pause) = self.limit.pause() {
            let timer = self.pause.get_or_insert_with(|| Box::pin(sleep(pause)));
            ready!(timer.as_mut().poll(cx));
            self.pause = None;
        }
        self.pause = None;
        Poll::Ready(())
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;
    use std::task::Waker;
    use std::time::Duration;

    use tokio::time::advance;

    use super::*;
    use crate::net::input::received_frames::ControlFrames;
    use crate::net::input::resets::{CONTROLS_PER_START, MAX_STARTS, Unanswered};

    /// Returns the reads of a peer that may reset as many streams at once, and as many a second.
    fn reads(resets: u32) -> (PacedReads, Arc<PeerLimit>) {
        let resets = NonZeroU32::new(resets).expect("not zero");
        let limit = Arc::new(PeerLimit::new(resets, resets));
        (PacedReads::new(Arc::clone(&limit)), limit)
    }

    fn may_read(reads: &mut PacedReads) -> bool {
        let mut cx = Context::from_waker(Waker::noop());
        reads.poll_turn(&mut cx).is_ready()
    }

    #[tokio::test]
    async fn a_connection_that_has_started_many_requests_reads_in_its_next_poll() {
        let (mut reads, limit) = reads(2);
        (1..MAX_STARTS).for_each(|_| limit.record_start());
        assert!(may_read(&mut reads));
        limit.record_start();
        assert!(!may_read(&mut reads));
        limit.end_poll();
        assert!(may_read(&mut reads));
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_sends_many_control_frames_is_read_later() {
        let none = ControlFrames::default();
        let pings = |others| ControlFrames { others, ..none };
        let updates = |updates| ControlFrames { updates, ..none };
        let resets = |resets| ControlFrames { resets, ..none };
        // Two at once, and two a second.
        for (control, sent, expected) in [
            (pings(2), 0, None),
            (pings(4), 0, Some(1_000)),
            (updates(20), 0, None),
            (updates(40), 0, Some(1_000)),
            (updates(40), 40 << 10, None),
            (resets(400), 0, None),
        ] {
            let (mut reads, limit) = reads(2);
            limit.record_sent(sent);
            limit.record_control(control);
            let pause = limit.pause().map(|pause| pause.as_millis());
            assert_eq!(pause, expected, "{control:?} {sent}");
            assert_eq!(may_read(&mut reads), expected.is_none(), "{control:?}");
        }
        // Without a pause, other connections have a turn first.
        let many = CONTROLS_PER_START * MAX_STARTS as u32;
        for control in [pings(many), resets(many)] {
            let (mut reads, limit) = reads(1_000_000);
            limit.record_control(control);
            assert_eq!(limit.pause(), None, "{control:?}");
            assert!(!may_read(&mut reads), "{control:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_resets_too_fast_is_read_later() {
        let (mut reads, resets) = reads(2);
        let reset = |count: usize| {
            (0..count).for_each(|_| drop(Unanswered(Some(Arc::clone(&resets)))));
        };
        reset(2);
        assert!(may_read(&mut reads));
        reset(4);
        assert!(!may_read(&mut reads));
        advance(Duration::from_millis(1_900)).await;
        assert!(!may_read(&mut reads));
        advance(Duration::from_millis(101)).await;
        assert!(may_read(&mut reads));
    }
}
