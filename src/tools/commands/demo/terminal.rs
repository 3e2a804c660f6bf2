//! The terminal of the demo: a block of lines that is drawn again and again, and single keys.

use std::io::IsTerminal;
use std::io::Read;

use rustix::process::getpgrp;
use rustix::termios::LocalModes;
use rustix::termios::OptionalActions;
use rustix::termios::Termios;
use rustix::termios::tcgetattr;
use rustix::termios::tcgetpgrp;
use rustix::termios::tcgetwinsize;
use rustix::termios::tcsetattr;
use tokio::sync::mpsc;

use crate::process::print;

const HIDE_CURSOR: &str = "\x1b[?25l";
const SHOW_CURSOR: &str = "\x1b[?25h";
const CLEAR_SCREEN: &str = "\x1b[2J\x1b[H";
const CLEAR_BELOW: &str = "\r\x1b[J";

/// The terminal that standard input and output are. Dropping it restores its modes.
pub(super) struct Terminal {
    before: Termios,
    /// The number of lines that were drawn last.
    drawn: usize,
    /// The columns and rows of the last drawing.
    size: (usize, usize),
}

impl Terminal {
    /// Takes the terminal; `None` if standard input or output is none, or if this process is in its
    /// background.
    pub(super) fn open() -> Option<Self> {
        let input = std::io::stdin();
        if !input.is_terminal() || !std::io::stdout().is_terminal() {
            return None;
        }
        // A background process that changes the terminal is stopped.
        if tcgetpgrp(&input).ok()? != getpgrp() {
            return None;
        }
        let before = tcgetattr(&input).ok()?;
        let mut modes = before.clone();
        // Keys arrive at once and are not shown. Ctrl-C is still a signal.
        modes
            .local_modes
            .remove(LocalModes::ICANON | LocalModes::ECHO);
        tcsetattr(&input, OptionalActions::Now, &modes).ok()?;
        print(HIDE_CURSOR);
        Some(Self {
            before,
            drawn: 0,
            size: (0, 0),
        })
    }

    /// Starts to read keys, on a thread of its own that ends with the process.
    ///
    /// # Errors
    ///
    /// If the thread cannot be started.
    pub(super) fn keys(&self) -> std::io::Result<mpsc::UnboundedReceiver<u8>> {
        let (sender, keys) = mpsc::unbounded_channel();
        std::thread::Builder::new()
            .name("keys".to_owned())
            .spawn(move || {
                for key in std::io::stdin().lock().bytes() {
                    let Ok(key) = key else { return };
                    if sender.send(key).is_err() {
                        return;
                    }
                }
            })?;
        Ok(keys)
    }

    /// Draws `lines` in place of those of the last time. What does not fit is cut off.
    pub(super) fn draw(&mut self, lines: &[String]) {
        let size = tcgetwinsize(std::io::stdout()).map_or((80, 24), |size| {
            (size.ws_col.max(1).into(), size.ws_row.max(2).into())
        });
        print(&drawing(lines, self.drawn, self.size, size));
        self.drawn = lines.len().min(size.1 - 1);
        self.size = size;
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        print(SHOW_CURSOR);
        if let Err(error) = tcsetattr(std::io::stdin(), OptionalActions::Now, &self.before) {
            tracing::debug!(%error, "cannot restore the terminal");
        }
    }
}

/// The text that draws `lines` over `drawn` earlier ones. After a change of the size (columns and
/// rows) the earlier ones are somewhere else, so the screen is cleared.
fn drawing(lines: &[String], drawn: usize, before: (usize, usize), size: (usize, usize)) -> String {
    let (columns, rows) = size;
    let mut text = match (drawn, before == size) {
        (0, _) => String::new(),
        (_, false) => CLEAR_SCREEN.to_owned(),
        (_, true) => format!("\x1b[{drawn}A{CLEAR_BELOW}"),
    };
    for line in lines.iter().take(rows - 1) {
        text.extend(line.chars().take(columns));
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drawing_replaces_the_last_one_and_fits() {
        let lines = ["first".to_owned(), "second".to_owned(), "third".to_owned()];
        let size = (80, 24);
        let first = drawing(&lines, 0, (0, 0), size);
        assert_eq!(first, "first\nsecond\nthird\n");
        assert_eq!(
            drawing(&lines, 3, size, size),
            format!("\x1b[3A\r\x1b[J{first}")
        );
        let resized = drawing(&lines, 3, size, (4, 3));
        assert_eq!(resized, "\x1b[2J\x1b[Hfirs\nseco\n");
    }
}
