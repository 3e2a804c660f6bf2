//! Decides when the socket of an HTTP/2 connection is read, so that its requests leave time for the
//! requests of other connections.
//!
//! One read from the socket can bring hundreds of requests, and one poll of the connection reads
//! until the socket is empty. A client that resets its streams at once can send any number of
//! requests (RFC 9113 §5.1.2 does not count closed streams). Each request is a task, and the tasks
//! of other connections wait for it. So a poll does not read any more after it has started some
//! requests, and the socket of a peer that resets streams too fast is read later.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use tokio::time::{Sleep, sleep};

use super::received_frames::ControlFrames;
use super::resets::PeerLimit;

/// The number of requests after which one poll of a connection does not read any more. One read may
/// bring more requests.
const MAX_STARTS: usize = 32;

/// The number of control frames that take about as long as one request.
const CONTROLS_PER_START: u32 = 16;

/// The number of requests that a connection has started in the current poll. A control frame counts
/// as a part of a request.
#[derive(Debug, Default)]
pub(in crate::net) struct Starts(AtomicUsize);

/// Decides when a socket may be read: not while too many requests have been started or reset.
pub(in crate::net) struct PacedReads {
    starts: Arc<Starts>,
    resets: Arc<PeerLimit>,
    /// Runs while the peer has reset too many streams.
    pause: Option<Pin<Box<Sleep>>>,
}

// === impl Starts ===

impl Starts {
    /// Counts a request that was started.
    pub(in crate::net) fn record(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts control frames that were received.
    pub(super) fn record_control(&self, control: ControlFrames) {
        let starts = (control.updates + control.others) / CONTROLS_PER_START;
        self.0.fetch_add(starts as usize, Ordering::Relaxed);
    }

    /// Resets the counts when a poll of the connection has ended.
    pub(in crate::net) fn renew(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    fn are_too_many(&self) -> bool {
        self.0.load(Ordering::Relaxed) >= MAX_STARTS
    }
}

// === impl PacedReads ===

impl PacedReads {
    pub(in crate::net) fn new(starts: Arc<Starts>, resets: Arc<PeerLimit>) -> Self {
        Self {
            starts,
            resets,
            pause: None,
        }
    }

    /// Notes that `bytes` were sent to the peer.
    pub(in crate::net) fn record_sent(&self, bytes: usize) {
        self.resets.record_sent(bytes);
    }

    /// Waits until the socket may be read.
    pub(in crate::net) fn poll_turn(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.starts.are_too_many() {
            // The next poll continues, after the tasks that are ready now.
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        while let Some(pause) = self.resets.pause() {
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
    use crate::net::input::resets::Unanswered;

    fn reads() -> (PacedReads, Arc<Starts>, Arc<PeerLimit>) {
        let two = NonZeroU32::new(2).expect("not zero");
        let (starts, resets) = (Arc::default(), Arc::new(PeerLimit::new(two, two)));
        let reads = PacedReads::new(Arc::clone(&starts), Arc::clone(&resets));
        (reads, starts, resets)
    }

    fn may_read(reads: &mut PacedReads) -> bool {
        let mut cx = Context::from_waker(Waker::noop());
        reads.poll_turn(&mut cx).is_ready()
    }

    #[tokio::test]
    async fn a_connection_that_has_started_many_requests_reads_in_its_next_poll() {
        let (mut reads, starts, _) = reads();
        (1..MAX_STARTS).for_each(|_| starts.record());
        assert!(may_read(&mut reads));
        starts.record();
        assert!(!may_read(&mut reads));
        starts.renew();
        assert!(may_read(&mut reads));
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_sends_many_control_frames_is_read_later() {
        let pings = |others| ControlFrames { updates: 0, others };
        let updates = |updates| ControlFrames { updates, others: 0 };
        // Two at once, and two a second.
        for (control, sent, expected) in [
            (pings(2), 0, None),
            (pings(4), 0, Some(1_000)),
            (updates(20), 0, None),
            (updates(40), 0, Some(1_000)),
            (updates(40), 40 << 10, None),
        ] {
            let (mut reads, starts, limit) = reads();
            limit.record_sent(sent);
            limit.record_control(control);
            let pause = limit.pause().map(|pause| pause.as_millis());
            assert_eq!(pause, expected, "{control:?} {sent}");
            assert_eq!(may_read(&mut reads), expected.is_none(), "{control:?}");
            // Without a pause, other connections have a turn first.
            starts.record_control(pings(CONTROLS_PER_START * MAX_STARTS as u32));
            assert!(!may_read(&mut reads));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_resets_too_fast_is_read_later() {
        let (mut reads, _, resets) = reads();
        let reset = |count: usize| {
            (0..count).for_each(|_| drop(Unanswered::new(Some(Arc::clone(&resets)))));
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
