//! The keys that the screen knows.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

/// A key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    Character(char),
    Up,
    Down,
    Left,
    Right,
    PageUp,
    PageDown,
    Home,
    End,
    Enter,
    Escape,
    Tab,
    /// Tab with Shift.
    BackTab,
    Backspace,
    /// Ctrl-C.
    Interrupt,
    /// Ctrl-Z.
    Suspend,
}

impl Key {
    /// Returns the key of `event`, or `None` if the screen does not know it, or it was released.
    pub(super) fn of(event: KeyEvent) -> Option<Self> {
        if event.kind == KeyEventKind::Release {
            return None;
        }
        if event.modifiers.contains(KeyModifiers::CONTROL) {
            return match event.code {
                KeyCode::Char('c') => Some(Self::Interrupt),
                KeyCode::Char('z') => Some(Self::Suspend),
                _ => None,
            };
        }
        Some(match event.code {
            KeyCode::Char(character) => Self::Character(character),
            KeyCode::Up => Self::Up,
            KeyCode::Down => Self::Down,
            KeyCode::Left => Self::Left,
            KeyCode::Right => Self::Right,
            KeyCode::PageUp => Self::PageUp,
            KeyCode::PageDown => Self::PageDown,
            KeyCode::Home => Self::Home,
            KeyCode::End => Self::End,
            KeyCode::Enter => Self::Enter,
            KeyCode::Esc => Self::Escape,
            KeyCode::Tab => Self::Tab,
            KeyCode::BackTab => Self::BackTab,
            KeyCode::Backspace => Self::Backspace,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_with_control_are_no_characters() {
        let with = |code, modifiers| Key::of(KeyEvent::new(code, modifiers));
        for (code, modifiers, expected) in [
            (
                KeyCode::Char('c'),
                KeyModifiers::CONTROL,
                Some(Key::Interrupt),
            ),
            (
                KeyCode::Char('z'),
                KeyModifiers::CONTROL,
                Some(Key::Suspend),
            ),
            (KeyCode::Char('q'), KeyModifiers::CONTROL, None),
            (
                KeyCode::Char('S'),
                KeyModifiers::SHIFT,
                Some(Key::Character('S')),
            ),
            (KeyCode::BackTab, KeyModifiers::SHIFT, Some(Key::BackTab)),
            (KeyCode::F(1), KeyModifiers::NONE, None),
        ] {
            assert_eq!(with(code, modifiers), expected, "{code:?}");
        }
        let mut released = KeyEvent::new(KeyCode::Enter, KeyModifiers::NONE);
        released.kind = KeyEventKind::Release;
        assert_eq!(Key::of(released), None);
    }
}
