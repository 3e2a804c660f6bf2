//! The terminal of the demo: a screen that is drawn again and again, and
//! keys that are read one by one.

use std::io::{IsTerminal, Read};

use kubefan_proxy::process::print;
use rustix::process::getpgrp;
use rustix::termios::{
    LocalModes, OptionalActions, Termios, tcgetattr, tcgetpgrp, tcgetwinsize, tcsetattr,
};
use tokio::sync::mpsc;

const HIDE_CURSOR: &str = "\x1b[?25l";
const SHOW_CURSOR: &str = "\x1b[?25h";
const TOP: &str = "\x1b[H";
const CLEAR_RIGHT: &str = "\x1b[K";
const CLEAR_BELOW: &str = "\x1b[J";

/// The terminal of standard input and output. Dropping this value restores the terminal's modes.
pub(super) struct Terminal {
    before: Termios,
}

impl Terminal {
    /// Takes the terminal; `None` if standard input or output is not a terminal, or if this process
    /// is in the background of the terminal.
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
        Some(Self { before })
    }

    /// Starts a thread that reads keys until the process ends.
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

    /// Draws `lines` from the top of the screen, over its present content, such as a line of the
    /// log. What does not fit is cut off.
    pub(super) fn draw(&self, lines: &[String]) {
        let (columns, rows) = tcgetwinsize(std::io::stdout()).map_or((80, 24), |size| {
            (size.ws_col.max(1).into(), size.ws_row.max(2).into())
        });
        print(&drawing(lines, columns, rows));
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

/// Returns the text that draws `lines` on a screen of this size. The text
/// leaves the cursor below the lines.
fn drawing(lines: &[String], columns: usize, rows: usize) -> String {
    let mut text = TOP.to_owned();
    for line in lines.iter().take(rows - 1) {
        // First, because after a character in the last column it would delete that character.
        text.push_str(CLEAR_RIGHT);
        text.extend(line.chars().take(columns));
        text.push('\n');
    }
    text + CLEAR_BELOW
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drawing_begins_at_the_top_and_fits() {
        let lines = ["first".to_owned(), "second".to_owned(), "third".to_owned()];
        assert_eq!(
            drawing(&lines, 80, 24),
            "\x1b[H\x1b[Kfirst\n\x1b[Ksecond\n\x1b[Kthird\n\x1b[J"
        );
        assert_eq!(
            drawing(&lines, 4, 3),
            "\x1b[H\x1b[Kfirs\n\x1b[Kseco\n\x1b[J"
        );
    }
}
