//! Keys and key sequences: how they are written and read.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use std::fmt;

/// One key press. Shift is part of the character, not a modifier, where there is a character.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Key {
    /// Which key.
    pub code: KeyCode,
    /// Held with it.
    pub mods: KeyModifiers,
}

impl Key {
    /// A plain character.
    pub const fn char(c: char) -> Self {
        Self { code: KeyCode::Char(c), mods: KeyModifiers::NONE }
    }

    /// A key without modifiers.
    pub const fn plain(code: KeyCode) -> Self {
        Self { code, mods: KeyModifiers::NONE }
    }
}

impl From<KeyEvent> for Key {
    fn from(e: KeyEvent) -> Self {
        let mut mods = e.modifiers & (KeyModifiers::CONTROL | KeyModifiers::ALT | KeyModifiers::SHIFT);
        let code = match e.code {
            KeyCode::Char(c) => {
                mods -= KeyModifiers::SHIFT;
                // Terminals disagree about the case of a letter held with control.
                KeyCode::Char(if mods.contains(KeyModifiers::CONTROL) { c.to_ascii_lowercase() } else { c })
            }
            KeyCode::BackTab => {
                mods -= KeyModifiers::SHIFT;
                KeyCode::BackTab
            }
            other => other,
        };
        Self { code, mods }
    }
}

const NAMED: &[(&str, KeyCode)] = &[
    ("enter", KeyCode::Enter),
    ("esc", KeyCode::Esc),
    ("space", KeyCode::Char(' ')),
    ("tab", KeyCode::Tab),
    ("backtab", KeyCode::BackTab),
    ("backspace", KeyCode::Backspace),
    ("delete", KeyCode::Delete),
    ("insert", KeyCode::Insert),
    ("up", KeyCode::Up),
    ("down", KeyCode::Down),
    ("left", KeyCode::Left),
    ("right", KeyCode::Right),
    ("home", KeyCode::Home),
    ("end", KeyCode::End),
    ("pgup", KeyCode::PageUp),
    ("pgdn", KeyCode::PageDown),
];

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.mods.contains(KeyModifiers::CONTROL) {
            f.write_str("ctrl-")?;
        }
        if self.mods.contains(KeyModifiers::ALT) {
            f.write_str("alt-")?;
        }
        if self.mods.contains(KeyModifiers::SHIFT) {
            f.write_str("shift-")?;
        }
        if let Some((name, _)) = NAMED.iter().find(|(_, c)| *c == self.code) {
            return f.write_str(name);
        }
        match self.code {
            KeyCode::Char(c) => write!(f, "{c}"),
            KeyCode::F(n) => write!(f, "f{n}"),
            _ => f.write_str("?"),
        }
    }
}

/// Reads one key: `q`, `ctrl-o`, `alt-x`, `space`, `f5`, `shift-up`.
///
/// # Errors
/// A sentence that says what is wrong.
pub fn parse_key(text: &str) -> Result<Key, String> {
    let mut rest = text;
    let mut mods = KeyModifiers::NONE;
    loop {
        let (found, tail) = if let Some(t) = rest.strip_prefix("ctrl-") {
            (KeyModifiers::CONTROL, t)
        } else if let Some(t) = rest.strip_prefix("alt-") {
            (KeyModifiers::ALT, t)
        } else if let Some(t) = rest.strip_prefix("shift-") {
            (KeyModifiers::SHIFT, t)
        } else {
            break;
        };
        mods |= found;
        rest = tail;
    }
    let mut chars = rest.chars();
    let code = match (chars.next(), chars.next()) {
        (Some(c), None) if !c.is_control() => KeyCode::Char(c),
        _ => {
            if let Some((_, code)) = NAMED.iter().find(|(name, _)| *name == rest) {
                *code
            } else if let Some(n) = rest.strip_prefix('f').and_then(|n| n.parse::<u8>().ok())
                && (1..=24).contains(&n)
            {
                KeyCode::F(n)
            } else {
                return Err(format!(
                    "no key is called `{text}` (write a character, or one of {}, f1 to f24; \
                     with ctrl-, alt- or shift- before it)",
                    NAMED.iter().map(|(n, _)| *n).collect::<Vec<_>>().join(", ")
                ));
            }
        }
    };
    if matches!(code, KeyCode::Char(c) if c != ' ') && mods.contains(KeyModifiers::SHIFT) {
        return Err(format!("`{text}`: write the character itself instead of shift- (`A`, not `shift-a`)"));
    }
    Ok(Key { code, mods })
}

/// Reads a sequence: keys separated by spaces, pressed one after the other.
///
/// # Errors
/// As [`parse_key`]; also for an empty text.
pub fn parse_sequence(text: &str) -> Result<Vec<Key>, String> {
    let keys = text.split_ascii_whitespace().map(parse_key).collect::<Result<Vec<_>, _>>()?;
    if keys.is_empty() { Err("a key is missing".into()) } else { Ok(keys) }
}

/// The text of a sequence.
pub fn show_sequence(keys: &[Key]) -> String {
    keys.iter().map(Key::to_string).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_and_read() {
        for text in
            ["q", "Q", "ctrl-o", "alt-x", "space", "f5", "shift-up", "g g", "?", "-", "ctrl-space", "é"]
        {
            let keys = parse_sequence(text).unwrap_or_else(|e| panic!("{text}: {e}"));
            assert_eq!(show_sequence(&keys), text);
        }
        for bad in ["", "shift-a", "hyper-x", "f99", "entre", "ctrl-"] {
            assert!(parse_sequence(bad).is_err(), "{bad} was accepted");
        }
    }

    #[test]
    fn shift_is_part_of_the_character() {
        let e = KeyEvent::new(KeyCode::Char('T'), KeyModifiers::SHIFT);
        assert_eq!(Key::from(e), Key::char('T'));
    }
}
