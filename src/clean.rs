//! Makes text from outside safe to show: names, paths, symbols and command lines may hold anything,
//! escape sequences among it. Everything that reaches a terminal passes through here.

use std::borrow::Cow;
use unicode_width::UnicodeWidthChar;

/// What stands for a character that must not reach a terminal.
pub const REPLACEMENT: char = '\u{fffd}';

/// Could this character do more than show itself? Controls (C0, DEL, C1), bidirectional overrides,
/// invisible format characters, line separators, and the like.
pub fn is_unsafe(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{00ad}' | '\u{034f}' | '\u{061c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
            | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200f}' // zero width, direction marks
            | '\u{2028}'..='\u{202e}' // separators, embeddings, overrides
            | '\u{2060}'..='\u{206f}' // invisible operators, isolates
            | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}'
            | '\u{fff0}'..='\u{fffb}'
            | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e0fff}')
}

/// The text with every unsafe character replaced: tabs and line ends by a space, others by
/// [`REPLACEMENT`]. One line, as long as it is.
pub fn clean(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_unsafe) {
        return Cow::Borrowed(text);
    }
    let safe = |c| match c {
        '\t' | '\n' | '\r' => ' ',
        c if is_unsafe(c) => REPLACEMENT,
        c => c,
    };
    Cow::Owned(text.chars().map(safe).collect())
}

/// A space at which no line is broken.
pub const GLUE: char = '\u{a0}';

/// A number and its unit held together by [`GLUE`], for a text that is to be broken into lines.
pub fn glued(text: &str) -> String {
    const UNITS: [&str; 11] = ["%", "ns", "µs", "us", "ms", "s", "min", "h", "B", "kB", "MB"];
    let mut out = String::with_capacity(text.len());
    for (i, word) in text.split(' ').enumerate() {
        let bare = word.trim_end_matches([',', '.', ';', ':', ')', '\n']);
        let unit = UNITS.contains(&bare) && out.ends_with(|c: char| c.is_ascii_digit());
        if i > 0 {
            out.push(if unit { GLUE } else { ' ' });
        }
        out.push_str(word);
    }
    out
}

/// For terminals that show ASCII only: what has a likeness there becomes that, everything else a question mark.
pub fn ascii(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '←' => out.push_str("<-"),
            '→' => out.push_str("->"),
            '…' => out.push('~'),
            'µ' => out.push('u'),
            '–' | '—' | '─' => out.push('-'),
            '“' | '”' => out.push('"'),
            '’' => out.push('\''),
            '│' => out.push('|'),
            '═' | '■' | '◼' => out.push('='),
            '┌' | '└' => out.push('+'),
            '▶' => out.push('>'),
            '↑' => out.push('^'),
            '●' => out.push('#'),
            '◇' => out.push('r'),
            '▒' => out.push('q'),
            '▣' => out.push('T'),
            '·' => out.push('.'),
            'σ' => out.push_str("sigma"),
            c if c.is_ascii() => out.push(c),
            _ => out.push('?'),
        }
    }
    out
}

/// [`clean`], and at most `width` columns wide: what is longer ends in `…`.
pub fn clean_to(text: &str, width: usize) -> String {
    // Combining characters have no width: bound their number too.
    let mut out = String::new();
    let (mut used, mut chars) = (0, 0);
    let text = clean(text);
    for c in text.chars() {
        let w = c.width().unwrap_or(0);
        chars += 1;
        if used + w > width || chars > width.saturating_mul(4) {
            while used + 1 > width {
                let Some(c) = out.pop() else { return out };
                used -= c.width().unwrap_or(0);
            }
            out.push('…');
            return out;
        }
        out.push(c);
        used += w;
    }
    out
}

/// [`clean`] for text of several lines: line ends stay.
pub fn clean_lines(text: &str) -> String {
    text.lines().map(clean).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use unicode_width::UnicodeWidthStr;

    #[test]
    fn escapes_do_not_pass() {
        assert_eq!(clean("plain – ünï ✓"), "plain – ünï ✓");
        assert_eq!(clean("a\x1b[31mb\u{9b}2J\x07"), "a\u{fffd}[31mb\u{fffd}2J\u{fffd}");
        assert_eq!(clean("x\u{202e}gpj.exe"), "x\u{fffd}gpj.exe");
        assert_eq!(clean("two\nlines\tand a tab"), "two lines and a tab");
    }

    #[test]
    fn width_is_bounded() {
        assert_eq!(clean_to("abcdef", 6), "abcdef");
        assert_eq!(clean_to("abcdef", 5), "abcd…");
        assert_eq!(clean_to("日本語", 4), "日…");
        assert_eq!(clean_to("日本語", 5), "日本…");
        assert_eq!(clean_to("ab", 0), "");
        assert!(clean_to(&"e\u{301}".repeat(10_000), 10).chars().count() < 50);
    }

    proptest! {
        #[test]
        fn nothing_unsafe_and_never_too_wide(s in any::<String>(), w in 0usize..40) {
            let c = clean(&s);
            prop_assert!(!c.chars().any(char::is_control));
            prop_assert_eq!(clean(&c), &*c);
            prop_assert!(clean_to(&s, w).width() <= w);
        }
    }
}
