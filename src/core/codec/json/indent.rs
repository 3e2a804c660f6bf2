//! Indents JSON by two spaces, exactly as Go's `json.Indent` does.

use memchr::memchr2;

const BLANKS: &[u8] = &[b' '; 64];

/// Indents one JSON text that is pushed in pieces of any size.
///
/// The text is not validated. If it is not JSON, only white space is added or removed.
#[derive(Clone, Debug, Default)]
pub struct Indenter {
    depth: usize,
    state: StringState,
    /// True directly after an opening bracket. An empty pair of brackets stays on one line.
    is_just_open: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum StringState {
    #[default]
    Outside,
    InString,
    /// Inside a string, directly after a backslash.
    Escaped,
}

impl Indenter {
    /// Indents the next piece and appends it to `printed`. White space between tokens is replaced;
    /// the output does not end with a line break.
    pub fn push(&mut self, mut text: &[u8], printed: &mut Vec<u8>) {
        while let Some((&byte, rest)) = text.split_first() {
            text = match self.state {
                StringState::InString => self.copy_string(text, printed),
                StringState::Escaped => {
                    printed.push(byte);
                    self.state = StringState::InString;
                    rest
                }
                StringState::Outside => {
                    self.push_outside_string(byte, printed);
                    rest
                }
            };
        }
    }

    /// Copies string content up to and including its closing quote or the next backslash. Returns
    /// the rest of `text`.
    fn copy_string<'a>(&mut self, text: &'a [u8], printed: &mut Vec<u8>) -> &'a [u8] {
        let end = memchr2(b'"', b'\\', text).map_or(text.len(), |found| {
            self.state = match text[found] {
                b'"' => StringState::Outside,
                _ => StringState::Escaped,
            };
            found + 1
        });
        let (copied, rest) = text.split_at(end);
        printed.extend_from_slice(copied);
        rest
    }

    fn push_outside_string(&mut self, byte: u8, printed: &mut Vec<u8>) {
        let is_close = matches!(byte, b'}' | b']');
        match byte {
            b' ' | b'\t' | b'\r' | b'\n' => return,
            _ if self.is_just_open && !is_close => {
                self.depth += 1;
                self.break_line(printed);
            }
            _ if !self.is_just_open && is_close => {
                self.depth = self.depth.saturating_sub(1);
                self.break_line(printed);
            }
            _ => {}
        }
        self.is_just_open = matches!(byte, b'{' | b'[');
        printed.push(byte);
        match byte {
            b',' => self.break_line(printed),
            b':' => printed.push(b' '),
            b'"' => self.state = StringState::InString,
            _ => {}
        }
    }

    fn break_line(&self, printed: &mut Vec<u8>) {
        printed.push(b'\n');
        let mut blanks = self.depth * 2;
        while blanks > 0 {
            let part = blanks.min(BLANKS.len());
            printed.extend_from_slice(&BLANKS[..part]);
            blanks -= part;
        }
    }
}

/// Indents a complete JSON text.
pub fn indented(text: &[u8]) -> Vec<u8> {
    let mut printed = Vec::with_capacity(text.len() * 2);
    Indenter::default().push(text, &mut printed);
    printed
}

#[cfg(test)]
mod tests;
