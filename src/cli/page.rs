//! How wide a text is printed: as the terminal that shows it, or in a file, where nothing need be cut.

use crate::clean::{GLUE, clean, clean_to, glued};
use std::io::IsTerminal;
use unicode_width::UnicodeWidthStr;

/// Least columns of a terminal that a text is made for; a narrower one breaks lines by itself.
const LEAST: usize = 80;
/// Most: longer lines of sentences are hard to read.
const MOST: usize = 160;

/// What a text is printed on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Page {
    /// Sentences are broken at this width.
    pub columns: usize,
    /// Other lines are cut there.
    pub cuts: bool,
}

impl Page {
    /// A file, or another program.
    pub const FILE: Self = Self { columns: 110, cuts: false };

    /// What standard output is.
    pub fn of_output() -> Self {
        if !std::io::stdout().is_terminal() {
            return Self::FILE;
        }
        let columns = crossterm::terminal::size().map_or(110, |(columns, _)| usize::from(columns));
        Self { columns: columns.clamp(LEAST, MOST), cuts: true }
    }

    /// A line behind `before` columns, harmless.
    pub fn line(self, before: usize, text: &str) -> String {
        if self.cuts { clean_to(text, self.columns.saturating_sub(before)) } else { clean(text).into_owned() }
    }

    /// Parts in a line, or on a screen in as many as it takes.
    pub fn parts(self, out: &mut String, parts: &[String]) -> std::fmt::Result {
        use std::fmt::Write;
        let mut line = String::new();
        for part in parts {
            let room = self.columns.saturating_sub(line.width() + 2);
            if !line.is_empty() && self.cuts && clean(part).width() > room {
                writeln!(out, "{}", self.line(0, &line))?;
                line.clear();
            }
            line.push_str(if line.is_empty() { "" } else { "  " });
            line.push_str(part);
        }
        writeln!(out, "{}", self.line(0, &line))
    }

    /// As wide as the widest of a column of names, but not less than `least`, nor more than there is room for.
    pub fn column<'a>(self, least: usize, names: impl Iterator<Item = &'a str>) -> usize {
        let most = if self.cuts { least.max(self.columns / 4) } else { usize::MAX };
        names.map(|n| clean(n).width()).max().unwrap_or(0).clamp(least, most)
    }

    /// A sentence over several lines, the further ones as far in as the first one's text, beside the lines that lead down
    /// from `first`. No word is cut.
    pub fn wrap(self, out: &mut String, first: &str, text: &str) -> std::fmt::Result {
        use std::fmt::Write;
        let indent: String = first.chars().map(|c| if c == '│' { c } else { ' ' }).collect();
        let mut line = String::from(first);
        let mut used = 0;
        let text = clean(text).split_whitespace().collect::<Vec<_>>().join(" ");
        for word in glued(&text).split(' ') {
            let word = word.replace(GLUE, " ");
            let w = word.width();
            if used > 0 && used + 1 + w > self.columns.saturating_sub(indent.width()) {
                writeln!(out, "{line}")?;
                line.clone_from(&indent);
                used = 0;
            }
            if used > 0 {
                line.push(' ');
                used += 1;
            }
            line.push_str(&word);
            used += w;
        }
        writeln!(out, "{line}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences_wrap_and_stay_in() {
        for columns in [80, 110, 160] {
            let mut out = String::new();
            Page { columns, cuts: true }.wrap(&mut out, "  │ 1. ", &"word ".repeat(90)).unwrap();
            assert!(out.lines().count() > 2 && out.lines().all(|l| l.width() <= columns), "{out}");
            assert!(out.lines().skip(1).all(|l| l.starts_with("  │    word")), "{out}");
            assert_eq!(out.matches("word").count(), 90);
        }
        // Longer than a line: it is whole all the same.
        let (path, mut out) = (format!("/{}", "p".repeat(200)), String::new());
        Page::FILE.wrap(&mut out, "  ", &format!("open {path}\u{1b}[2J of")).unwrap();
        assert!(out.contains(&path) && !out.contains('\u{1b}') && out.lines().count() == 3, "{out}");
    }

    #[test]
    fn lines_are_cut_on_a_screen_only() {
        let long = "x".repeat(300);
        assert_eq!(Page::FILE.line(4, &long), long);
        assert_eq!(Page { columns: 80, cuts: true }.line(4, &long).width(), 76);
        assert_eq!(Page::FILE.line(0, "a\u{1b}b"), "a\u{fffd}b");
        let mut out = String::new();
        let parts = ["x".repeat(50), "8.00 s".into(), "focus: ".to_owned() + &"y".repeat(30)];
        Page { columns: 80, cuts: true }.parts(&mut out, &parts).unwrap();
        assert_eq!(out, format!("{}  8.00 s\n{}\n", parts[0], parts[2]));
        out.clear();
        Page::FILE.parts(&mut out, &[long.clone(), long.clone()]).unwrap();
        assert_eq!(out, format!("{long}  {long}\n"));
        let names = ["short", "ForkJoinPool.commonPool-worker-1:27164"];
        assert_eq!(Page::FILE.column(28, names.into_iter()), 38);
        assert_eq!(Page { columns: 80, cuts: true }.column(28, names.into_iter()), 28);
        assert_eq!(Page { columns: 160, cuts: true }.column(28, names.into_iter()), 38);
    }
}
