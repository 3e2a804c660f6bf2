//! Pings of an HTTP/2 peer that is silent, even if it has no stream. A peer that does not answer is
//! gone.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use h2::{Ping, PingPong};
use tokio::time::{Instant, Sleep, sleep};

/// Sends a PING if the peer was silent for `interval`. The peer is gone if nothing comes from it for
/// `timeout` after that.
pub(super) struct KeepAlive {
    pings: PingPong,
    interval: Duration,
    timeout: Duration,
    /// When the next PING may be due, or when the answer to the last one is late.
    timer: Pin<Box<Sleep>>,
    /// When the last PING was sent; `None` once it was answered.
    pinged_at: Option<Instant>,
}

// === impl KeepAlive ===

impl KeepAlive {
    pub(super) fn new(pings: PingPong, interval: Duration, timeout: Duration) -> Self {
        Self {
            pings,
            interval,
            timeout,
            timer: Box::pin(sleep(interval)),
            pinged_at: None,
        }
    }

    /// Sends the pings that are due. Ready if the peer is gone. `received_at` returns when something
    /// last came from the peer: on a slow line, the answer to a PING comes after the upload before
    /// it, and each byte of that shows that the peer is there.
    pub(super) fn poll_late(
        &mut self,
        cx: &mut Context<'_>,
        received_at: impl Fn() -> Instant,
    ) -> Poll<()> {
        loop {
            // After an error there is no answer either: the connection has ended.
            if self.pinged_at.is_some() && self.pings.poll_pong(cx).is_ready() {
                self.pinged_at = None;
                self.timer.as_mut().reset(Instant::now() + self.interval);
            }
            ready!(self.timer.as_mut().poll(cx));
            let (now, received_at) = (Instant::now(), received_at());
            let due = match self.pinged_at {
                Some(pinged_at) => received_at.max(pinged_at) + self.timeout,
                None => received_at + self.interval,
            };
            if due > now {
                self.timer.as_mut().reset(due);
            } else if self.pinged_at.is_some() {
                return Poll::Ready(());
            } else if self.pings.send_ping(Ping::opaque()).is_ok() {
                self.pinged_at = Some(now);
                self.timer.as_mut().reset(now + self.timeout);
            } else {
                // The connection has ended, so there is no answer.
                self.timer.as_mut().reset(now + self.interval);
            }
        }
    }
}
