//! Ends connections with a peer that reads nothing for a long time.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Sleep, sleep};

use crate::net::Transport;

/// A limit for the writes of a socket: a write fails if the peer takes no byte for `limit`.
pub(in crate::net) struct WriteTimeout {
    limit: Duration,
    /// Turns the limit off when the connection has been upgraded. The peer of an upgraded
    /// connection may pause for any time, for example while a person reads the output of exec in a
    /// pager.
    pub(in crate::net) is_upgraded: Arc<AtomicBool>,
    /// True if the kernel does not limit stalls any more.
    allows_stalls: bool,
    /// Runs while a write waits; `None` otherwise.
    timer: Option<Pin<Box<Sleep>>>,
}

impl WriteTimeout {
    pub(in crate::net) fn new(limit: Duration) -> WriteTimeout {
        WriteTimeout {
            limit,
            is_upgraded: Arc::default(),
            allows_stalls: false,
            timer: None,
        }
    }

    /// Removes the kernel's limit for `io` once the connection is upgraded. This must not wait for
    /// a pending write: output that fits into the socket's buffer is never pending, but the kernel
    /// would end the connection if the peer does not read the output.
    pub(in crate::net) fn lift_after_upgrade(&mut self, io: &impl Transport) -> io::Result<()> {
        if !self.allows_stalls && self.is_upgraded.load(Ordering::Relaxed) {
            io.allow_stalls()?;
            self.allows_stalls = true;
        }
        Ok(())
    }

    /// Returns the result of a write to `io`, or an error if it has waited for too long.
    pub(in crate::net) fn check<T>(
        &mut self,
        cx: &mut Context<'_>,
        io: &impl Transport,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        self.lift_after_upgrade(io)?;
        if written.is_ready() || self.allows_stalls {
            self.timer = None;
            return written;
        }
        let limit = self.limit;
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep(limit)));
        timer.as_mut().poll(cx).map(|()| {
            let message = format!("the peer read nothing for {limit:?}");
            Err(io::Error::new(io::ErrorKind::TimedOut, message))
        })
    }
}
