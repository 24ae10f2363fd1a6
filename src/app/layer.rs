//! What lies over a view: help, palette, search, a prompt. A stack of one closed enum.

use super::command::{COMMANDS, Cmd, Command, Context};
use super::input::Line;
use super::search::Hit;
use crate::config::Keymap;
use fuzzy_matcher::FuzzyMatcher;
use fuzzy_matcher::skim::SkimMatcherV2;
use pg_event::{Ns, ThreadId, UnitTypeId};

/// One layer.
#[derive(Debug)]
pub enum Layer {
    /// All keys of a context.
    Help(Help),
    /// Finding a command.
    Palette(Palette),
    /// Finding a process, thread, function or file.
    Search(SearchBox),
    /// Typing a note.
    Note(NoteBox),
    /// Typing how long units of a type may take.
    Guard(GuardBox),
    /// Why the other candidates are not the cause: lines and the first one shown.
    WhyNot(usize),
    /// What was found of the flag that a thread asks: lines, and the first one shown.
    Flag(Vec<String>, usize),
}

/// The help.
#[derive(Debug)]
pub struct Help {
    /// For which view.
    pub context: Context,
    /// First line shown.
    pub offset: usize,
}

/// The command palette.
#[derive(Debug)]
pub struct Palette {
    /// What is typed.
    pub line: Line,
    /// Where the palette was opened.
    pub context: Context,
    /// Commands that fit, best first.
    pub rows: Vec<Cmd>,
    /// Which one is selected.
    pub selected: usize,
}

/// The search.
#[derive(Debug)]
pub struct SearchBox {
    /// What is typed.
    pub line: Line,
    /// Number of the query whose hits are awaited; hits of older ones are dropped.
    pub generation: u64,
    /// What fits, best first.
    pub hits: Vec<Hit>,
    /// How many fit in all.
    pub total: usize,
    /// Which one is selected.
    pub selected: usize,
    /// Hits are being looked for.
    pub busy: bool,
}

/// A note being typed.
#[derive(Debug)]
pub struct NoteBox {
    /// The text.
    pub line: Line,
    /// On which thread.
    pub thread: ThreadId,
    /// On which moment.
    pub time: Ns,
    /// The note that is changed, if there was one.
    pub id: Option<u32>,
    /// It was a bookmark too.
    pub bookmark: bool,
}

/// A threshold being typed.
#[derive(Debug)]
pub struct GuardBox {
    /// The text.
    pub line: Line,
    /// Of which type.
    pub unit_type: UnitTypeId,
}

impl Layer {
    /// Its keys.
    pub fn context(&self) -> Context {
        match self {
            Self::Help(_) | Self::WhyNot(_) | Self::Flag(..) => Context::Help,
            Self::Palette(_) | Self::Search(_) | Self::Note(_) | Self::Guard(_) => Context::Text,
        }
    }

    /// The line of text being typed in it.
    pub fn line(&mut self) -> Option<&mut Line> {
        match self {
            Self::Palette(p) => Some(&mut p.line),
            Self::Search(s) => Some(&mut s.line),
            Self::Note(n) => Some(&mut n.line),
            Self::Guard(g) => Some(&mut g.line),
            Self::Help(_) | Self::WhyNot(_) | Self::Flag(..) => None,
        }
    }
}

impl Palette {
    /// Opened over a context.
    pub fn new(context: Context, keymap: &Keymap) -> Self {
        let mut p = Self { line: Line::default(), context, rows: Vec::new(), selected: 0 };
        p.filter(keymap);
        p
    }

    /// Finds what fits the text: name first, then key, then what it does.
    pub fn filter(&mut self, keymap: &Keymap) {
        let query = self.line.text().trim();
        // First those of this view; then those of others, which lead there.
        let elsewhere = |c: &Command| !c.applies(self.context);
        let all = COMMANDS.iter().filter(|c| !elsewhere(c) || c.cmd.home().is_some());
        self.selected = 0;
        if query.is_empty() {
            let (there, here): (Vec<&Command>, Vec<&Command>) = all.partition(|c| elsewhere(c));
            self.rows = here.into_iter().chain(there).map(|c| c.cmd).collect();
            return;
        }
        let matcher = SkimMatcherV2::default().ignore_case();
        let mut scored: Vec<(bool, i64, Cmd)> = all
            .filter_map(|c| {
                let name = matcher.fuzzy_match(c.name, query).map(|s| s * 3);
                let doc = matcher.fuzzy_match(c.doc, query);
                let keys = keymap.keys_for(self.context, c.cmd);
                let key = keys.iter().any(|k| k == query).then_some(10_000);
                let exact = (c.name == query).then_some(20_000);
                let score = [name, doc, key, exact].into_iter().flatten().max()?;
                Some((elsewhere(c) && exact.is_none(), -score, c.cmd))
            })
            .collect();
        scored.sort();
        self.rows = scored.into_iter().map(|(_, _, c)| c).collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_palette_finds_by_name_key_and_words() {
        let keymap = Keymap::builtin().unwrap_or_else(|e| panic!("{e}"));
        let mut p = Palette::new(Context::Timeline, &keymap);
        assert!(p.rows.len() > 30);
        for (typed, first) in [
            ("zoom-in", Cmd::ZoomIn),
            ("twice as exactly", Cmd::ZoomIn),
            ("]", Cmd::FollowWakee),
            ("zin", Cmd::ZoomIn),
        ] {
            p.line = Line::new(typed);
            p.filter(&keymap);
            assert_eq!(p.rows.first(), Some(&first), "{typed}");
        }
        // From anywhere else it is found too, and leads to the timeline.
        let mut v = Palette::new(Context::Victims, &keymap);
        v.line = Line::new("zoom-in");
        v.filter(&keymap);
        assert_eq!(v.rows.first(), Some(&Cmd::ZoomIn));
        p.line = Line::new("qqqqq");
        p.filter(&keymap);
        assert!(p.rows.is_empty());
    }
}
