//! The terminal: takes it, draws, and gives it back in every case.

use std::io;
use std::io::stdout;

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::Event;
use ratatui::crossterm::terminal::{EnterAlternateScreen, enable_raw_mode};
use ratatui::crossterm::{event, execute};
use ratatui::layout::Size;
use rustix::process::{Signal, getpid, kill_process};
use tokio::sync::mpsc;

/// The terminal of standard input and output, on its alternate screen. Dropping this value restores
/// it, and so does a panic.
pub(super) struct Screen {
    terminal: DefaultTerminal,
}

// === impl Screen ===

impl Screen {
    /// Takes the terminal.
    ///
    /// # Errors
    /// If its modes can't be changed.
    pub(super) fn open() -> io::Result<Self> {
        // This also restores the terminal at a panic.
        let terminal = ratatui::try_init().inspect_err(|_| restore())?;
        Ok(Self { terminal })
    }

    /// Returns the terminal for drawing.
    pub(super) fn terminal(&mut self) -> &mut DefaultTerminal {
        &mut self.terminal
    }

    /// Returns the size of the terminal.
    ///
    /// # Errors
    /// If the system does not know it.
    pub(super) fn size(&self) -> io::Result<Size> {
        self.terminal.size()
    }

    /// Gives the terminal back, stops this process as Ctrl-Z does for others, and takes the terminal
    /// again when the process continues.
    ///
    /// # Errors
    /// If the modes of the terminal can't be changed.
    pub(super) fn suspend(&mut self) -> io::Result<()> {
        self.terminal.show_cursor()?;
        ratatui::try_restore()?;
        kill_process(getpid(), Signal::TSTP)?;
        enable_raw_mode()?;
        execute!(stdout(), EnterAlternateScreen)?;
        self.terminal.clear()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        if let Err(error) = self.terminal.show_cursor() {
            tracing::debug!(%error, "cannot show the cursor");
        }
        restore();
    }
}

fn restore() {
    if let Err(error) = ratatui::try_restore() {
        tracing::debug!(%error, "cannot restore the terminal");
    }
}

/// Starts a thread that reads keys and changes of the size until the process ends, or reading fails.
///
/// # Errors
/// If the thread can't be started.
pub(super) fn events() -> io::Result<mpsc::UnboundedReceiver<io::Result<Event>>> {
    let (sender, events) = mpsc::unbounded_channel();
    let thread = std::thread::Builder::new().name("keys".to_owned());
    thread.spawn(move || {
        loop {
            let event = event::read();
            let is_last = event.is_err();
            if sender.send(event).is_err() || is_last {
                return;
            }
        }
    })?;
    Ok(events)
}
