//! The progress of a run on standard error: one line that is overwritten on a terminal, and
//! separate lines elsewhere.

use std::io::{IsTerminal, Write};
use std::time::Duration;

use tokio::time::Instant;

const WIDTH: usize = 30;
/// The minimum time between two plain progress lines.
const PLAIN_PAUSE: Duration = Duration::from_secs(5);

/// Prints the progress of a run to standard error.
#[derive(Debug)]
pub struct Progress {
    is_terminal: bool,
    last_plain: Option<Instant>,
    has_open_line: bool,
}

impl Progress {
    /// Creates a `Progress` that prints to this process's standard error.
    pub fn to_stderr() -> Self {
        Self {
            is_terminal: std::io::stderr().is_terminal(),
            last_plain: None,
            has_open_line: false,
        }
    }

    /// Prints a line that later progress does not overwrite.
    pub(super) fn print_line(&mut self, text: &str) {
        self.close_line();
        self.write(&format!("{text}\n"));
        self.last_plain = Some(Instant::now());
    }

    /// Shows a progress bar or percentage for the phase `what`; `done` is between 0 and 1, and
    /// `more` is text that follows it.
    pub(super) fn show(&mut self, what: &str, done: f64, more: &str) {
        if self.is_terminal {
            self.has_open_line = true;
            return self.write(&format!("\r\x1b[K{what} {} {more}", bar(done)));
        }
        let is_due = self
            .last_plain
            .is_none_or(|last| last.elapsed() >= PLAIN_PAUSE);
        if is_due {
            self.print_line(&format!("{what} {:.0} % {more}", done * 100.0));
        }
    }

    fn close_line(&mut self) {
        if std::mem::take(&mut self.has_open_line) {
            self.write("\r\x1b[K");
        }
    }

    fn write(&self, text: &str) {
        let mut out = std::io::stderr().lock();
        if let Err(error) = out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
            tracing::debug!(%error, "standard error is closed");
        }
    }
}

fn bar(done: f64) -> String {
    // The cast is safe: the product is between 0 and `WIDTH`.
    let filled = (done.clamp(0.0, 1.0) * WIDTH as f64) as usize;
    format!("[{}{}]", "#".repeat(filled), "-".repeat(WIDTH - filled))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_progress_bar_has_the_right_length() {
        for (done, filled) in [(-1.0, 0), (0.0, 0), (0.5, 15), (1.0, 30), (7.0, 30)] {
            let bar = bar(done);
            assert_eq!(bar.matches('#').count(), filled, "{done}");
            assert_eq!(bar.len(), WIDTH + 2);
        }
    }
}
