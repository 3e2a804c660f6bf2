//! The signals that request the end of the process.

use std::fmt;
use std::future::pending;
use std::io;

use tokio::signal::unix::Signal;
use tokio::signal::unix::SignalKind;
use tokio::signal::unix::signal;
use tokio::sync::mpsc;

/// A source of signals: this process, or a channel.
pub struct Signals {
    source: Source,
}

enum Source {
    Process {
        terminate: Signal,
        interrupt: Signal,
    },
    Channel(mpsc::UnboundedReceiver<&'static str>),
}

// === impl Signals ===

impl Signals {
    /// SIGTERM and SIGINT of this process, from this call on.
    ///
    /// # Errors
    /// If the signal handlers cannot be installed.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn of_process() -> io::Result<Signals> {
        Ok(Signals {
            source: Source::Process {
                terminate: signal(SignalKind::terminate())?,
                interrupt: signal(SignalKind::interrupt())?,
            },
        })
    }

    /// Signals that the returned sender sends by name, for tests and embedders. After the sender is
    /// dropped, no further signal arrives.
    pub fn manual() -> (mpsc::UnboundedSender<&'static str>, Signals) {
        let (sender, receiver) = mpsc::unbounded_channel();
        let source = Source::Channel(receiver);
        (sender, Signals { source })
    }

    /// The name of the next signal. Cancel safe.
    pub async fn next(&mut self) -> &'static str {
        match &mut self.source {
            Source::Process {
                terminate,
                interrupt,
            } => tokio::select! {
                _ = terminate.recv() => "SIGTERM",
                _ = interrupt.recv() => "SIGINT",
            },
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
