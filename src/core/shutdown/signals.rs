//! The signals that request the end of the process.

use std::future::pending;
use std::{fmt, io};

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;

use super::last_resort::LastResort;

/// A source of signals: this process, or a channel.
pub struct Signals {
    source: Source,
}

enum Source {
    Process {
        terminate: Signal,
        interrupt: Signal,
        last_resort: LastResort,
    },
    Channel(mpsc::UnboundedReceiver<&'static str>),
}

// === impl Signals ===

impl Signals {
    /// Takes over SIGTERM and SIGINT of this process. Before this call, they end
    /// the process at once.
    ///
    /// A signal waits until [`Signals::next`] takes it. If nothing has taken the signal within a
    /// second, because the program hangs or waits for something else, the next signal ends the
    /// process at once. The first signal after the value was dropped also ends the process at once.
    /// The exit code is then 143 for SIGTERM and 130 for SIGINT. So call this when the program has
    /// work to end in order.
    ///
    /// # Errors
    /// If the signal handlers cannot be installed, or the thread that watches
    /// them cannot be started.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn of_process() -> io::Result<Signals> {
        Ok(Signals {
            source: Source::Process {
                terminate: signal(SignalKind::terminate())?,
                interrupt: signal(SignalKind::interrupt())?,
                last_resort: LastResort::new()?,
            },
        })
    }

    /// Creates signals that are sent by name through the returned sender, for tests and embedders.
    /// After the sender is dropped, no further signal arrives.
    pub fn manual() -> (mpsc::UnboundedSender<&'static str>, Signals) {
        let (sender, receiver) = mpsc::unbounded_channel();
        let source = Source::Channel(receiver);
        (sender, Signals { source })
    }

    /// Returns the name of the next signal. Cancel safe.
    pub async fn next(&mut self) -> &'static str {
        match &mut self.source {
            Source::Process {
                terminate,
                interrupt,
                last_resort,
            } => {
                let name = tokio::select! {
                    _ = terminate.recv() => "SIGTERM",
                    _ = interrupt.recv() => "SIGINT",
                };
                last_resort.taken();
                name
            }
            Source::Channel(receiver) => match receiver.recv().await {
                Some(name) => name,
                None => pending().await,
            },
        }
    }
}

impl fmt::Debug for Signals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Signals")
    }
}
