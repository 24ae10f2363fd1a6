//! A line of text being typed.

/// Text and a cursor in it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Line {
    text: String,
}

/// Longest text that can be typed or pasted, characters.
const MAX: usize = 500;

impl Line {
    /// With a text in it.
    pub fn new(text: &str) -> Self {
        let mut line = Self::default();
        line.insert(text);
        line
    }

    /// The text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Adds what was typed or pasted; line breaks become spaces, other unsafe characters are left out.
    pub fn insert(&mut self, text: &str) {
        for c in text.chars() {
            let c = if matches!(c, '\n' | '\r' | '\t') { ' ' } else { c };
            let safe =
                matches!(crate::clean::clean(c.encode_utf8(&mut [0; 4])), std::borrow::Cow::Borrowed(_));
            if safe && self.text.chars().count() < MAX {
                self.text.push(c);
            }
        }
    }

    /// Takes the last character away.
    pub fn erase(&mut self) {
        self.text.pop();
    }

    /// Takes the last word away.
    pub fn erase_word(&mut self) {
        let kept = self.text.trim_end().rfind(' ').map_or(0, |i| i + 1);
        self.text.truncate(kept);
    }

    /// Takes everything away.
    pub fn clear(&mut self) {
        self.text.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn typing() {
        let mut l = Line::new("ab  cd\n\x1be");
        assert_eq!(l.text(), "ab  cd e");
        l.erase_word();
        assert_eq!(l.text(), "ab  cd ");
        l.erase_word();
        assert_eq!(l.text(), "ab  ");
        l.erase();
        l.erase_word();
        assert_eq!(l.text(), "");
        l.erase();
        l.insert(&"x".repeat(2000));
        assert_eq!(l.text().len(), MAX);
    }
}
