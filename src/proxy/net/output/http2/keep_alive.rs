//! Pings of an HTTP/2 peer that is silent, even if it has no stream. A peer that does not answer is
//! gone.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use h2::{Ping, PingPong};
use tokio::time::{Instant, Sleep, sleep};

/// Sends a PING after `interval` without a request, or without the answer to a PING, and waits for
/// its answer for `timeout`.
pub(super) struct KeepAlive {
    pings: PingPong,
    interval: Duration,
    timeout: Duration,
    /// When the next PING is due, or when the answer to the last one is late.
    timer: Pin<Box<Sleep>>,
    /// When the peer last sent a request or the answer to a PING.
    heard: Instant,
    /// True if a PING was sent that has no answer yet.
    is_pinged: bool,
}

// === impl KeepAlive ===

impl KeepAlive {
    pub(super) fn new(pings: PingPong, interval: Duration, timeout: Duration) -> Self {
        Self {
            pings,
            interval,
            timeout,
            timer: Box::pin(sleep(interval)),
            heard: Instant::now(),
            is_pinged: false,
        }
    }

    /// Notes that the peer has sent something.
    pub(super) fn hear(&mut self) {
        self.heard = Instant::now();
    }

    /// Sends the pings that are due. Ready if the answer to one is late.
    pub(super) fn poll_late(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            if self.is_pinged
                && let Poll::Ready(Ok(_)) = self.pings.poll_pong(cx)
            {
                self.is_pinged = false;
                self.hear();
                self.timer.as_mut().reset(self.heard + self.interval);
            }
            ready!(self.timer.as_mut().poll(cx));
            if self.is_pinged {
                return Poll::Ready(());
            }
            let now = Instant::now();
            let due = self.heard + self.interval;
            if due > now {
                self.timer.as_mut().reset(due);
            } else {
                // Fails only if the connection has ended, and then there is no answer.
                self.is_pinged = self.pings.send_ping(Ping::opaque()).is_ok();
                let next = if self.is_pinged {
                    self.timeout
                } else {
                    self.interval
                };
                self.timer.as_mut().reset(now + next);
            }
        }
    }
}
