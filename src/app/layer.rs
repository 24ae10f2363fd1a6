//! What lies over a view: help, palette, search, a prompt. A stack of one closed enum.

use super::command::{COMMANDS, Cmd, Command, Context};
use super::input::Line;
use super::search::Hit;
use super::views::Move;
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
    /// What the lines shown must have; without text it asks for nothing.
    pub find: Line,
    /// That is being typed.
    pub typing: bool,
}

impl Help {
    /// All of the help for a view.
    pub fn new(context: Context) -> Self {
        Self { context, offset: 0, find: Line::default(), typing: false }
    }

    /// Is anything asked of the lines shown, or about to be?
    pub fn is_searched(&self) -> bool {
        self.typing || !self.find.text().is_empty()
    }
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
    /// The first one is called as was typed, or the person has chosen one: taking it runs what was meant.
    pub sure: bool,
    /// A time was typed (`goto 2.5 s`, `goto 09:10:13`): that of the timeline is meant.
    pub time: Option<Ns>,
    /// When the recording began, ns since 1970 (0 where that is not known), and how long it is.
    span: (u64, Ns),
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
            Self::Help(h) if h.typing => Context::Text,
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
            Self::Help(h) if h.typing => Some(&mut h.find),
            Self::Help(_) | Self::WhyNot(_) | Self::Flag(..) => None,
        }
    }
}

impl Palette {
    /// Opened over a context.
    pub fn new(context: Context, keymap: &Keymap, span: (u64, Ns)) -> Self {
        let line = Line::default();
        let mut p = Self { line, context, rows: Vec::new(), selected: 0, sure: true, time: None, span };
        p.filter(keymap);
        p
    }

    /// What to type after `goto`.
    pub fn goto_help(&self) -> String {
        let (began, end) = self.span;
        let [from, to] = [0, end].map(|at| crate::wall::time_of_day(began, at));
        let typed = self.line.text().trim().strip_prefix("goto").and_then(crate::wall::second_of_day);
        match from.strip_suffix(" UTC") {
            Some(_) if typed.is_some() => format!("the recording is from {from} to {to}"),
            Some(clock) => format!("goto needs a time, such as goto 2.5 s or goto {clock} (UTC)"),
            None => "goto needs a time, such as goto 2.5 s".to_owned(),
        }
    }

    /// Finds what fits the text: what is called so or begins so, what has its letters in its name, then what does so.
    pub fn filter(&mut self, keymap: &Keymap) {
        let query = self.line.text().trim();
        // First those of this view; then those of others, which lead there.
        let elsewhere = |c: &Command| !c.applies(self.context);
        let all = COMMANDS.iter().filter(|c| !elsewhere(c) || c.cmd.home().is_some());
        self.selected = 0;
        self.sure = true;
        let time = query.strip_prefix("goto").map(str::trim).filter(|t| !t.is_empty());
        let (began, end) = self.span;
        let clock = |t| crate::wall::moment_of(began, crate::wall::second_of_day(t)?).filter(|at| *at <= end);
        self.time = time.and_then(|t| crate::unit_rule::duration(t).or_else(|| clock(t)));
        if self.time.is_some() {
            self.rows.clear();
            return;
        }
        if query.is_empty() {
            let (there, here): (Vec<&Command>, Vec<&Command>) = all.partition(|c| elsewhere(c));
            self.rows = here.into_iter().chain(there).map(|c| c.cmd).collect();
            return;
        }
        let matcher = SkimMatcherV2::default().ignore_case();
        let alias = Cmd::from_alias(query);
        let mut scored: Vec<(Fit, bool, i64, Cmd)> = all
            .filter_map(|c| {
                let name = matcher.fuzzy_indices(c.name, query);
                let key = || keymap.keys_for(self.context, c.cmd).iter().any(|k| k == query);
                let fit = if c.name == query || alias == Some(c.cmd) {
                    Fit::Exact
                } else if alias.is_none() && key() {
                    Fit::Key
                } else if c.name.starts_with(query) {
                    Fit::Begins
                } else if name.as_ref().is_some_and(|(_, at)| begins_a_word(c.name, at)) {
                    Fit::Name
                } else {
                    Fit::Words
                };
                let doc = has_words(c.doc, query).then_some(0);
                let score =
                    if fit == Fit::Words { name.map(|n| n.0 * 3).max(doc)? } else { name.map_or(0, |n| n.0) };
                Some((fit, elsewhere(c) && fit != Fit::Exact, -score, c.cmd))
            })
            .collect();
        scored.sort();
        self.sure = scored.first().is_some_and(|s| s.0 != Fit::Words);
        self.rows = scored.into_iter().map(|(_, _, _, c)| c).collect();
    }

    /// Moves the selection. Where nothing is called as was typed, the first move chooses the first line.
    pub fn go(&mut self, by: Move) {
        if std::mem::replace(&mut self.sure, true) {
            self.selected = by.from(self.selected, self.rows.len(), 1);
        }
    }
}

/// How a command fits what was typed, best first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Fit {
    /// It is called so.
    Exact,
    /// It is on that key.
    Key,
    /// Its name begins so.
    Begins,
    /// Its name has these letters from the beginning of a word on.
    Name,
    /// Only the sentence on what it does has these words, or its name the letters here and there.
    Words,
}

/// Has a sentence all these words, or their beginnings?
fn has_words(sentence: &str, query: &str) -> bool {
    let sentence = sentence.to_lowercase();
    let begins = |word: &str| sentence.split(|c: char| !c.is_alphanumeric()).any(|w| w.starts_with(word));
    query.to_lowercase().split_whitespace().all(begins)
}

/// Is the first of these letters that of a word of the name?
fn begins_a_word(name: &str, letters: &[usize]) -> bool {
    letters.first().is_some_and(|&at| at == 0 || name.as_bytes().get(at - 1) == Some(&b'-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_palette_finds_by_name_key_and_words() {
        let keymap = Keymap::builtin().unwrap_or_else(|e| panic!("{e}"));
        let mut p = Palette::new(Context::Timeline, &keymap, (0, 0));
        assert!(p.rows.len() > 30);
        for (typed, first) in [
            ("zoom-in", Cmd::ZoomIn),
            ("twice as exactly", Cmd::ZoomIn),
            ("]", Cmd::FollowWakee),
            ("zin", Cmd::ZoomIn),
            // What it does has the word; letters of it are nearly everywhere.
            ("what was lost", Cmd::GoLog),
        ] {
            p.line = Line::new(typed);
            p.filter(&keymap);
            assert_eq!(p.rows.first(), Some(&first), "{typed}");
        }
        p.line = Line::new("lost");
        p.filter(&keymap);
        assert_eq!(p.rows, [Cmd::GoLog]);
        // From anywhere else it is found too, and leads to the timeline.
        let mut v = Palette::new(Context::Victims, &keymap, (0, 0));
        v.line = Line::new("zoom-in");
        v.filter(&keymap);
        assert_eq!(v.rows.first(), Some(&Cmd::ZoomIn));
        p.line = Line::new("qqqqq");
        p.filter(&keymap);
        assert!(p.rows.is_empty());
    }

    /// A habit from elsewhere runs what it means there, or nothing.
    #[test]
    fn names_come_before_what_commands_do() {
        let keymap = Keymap::builtin().unwrap_or_else(|e| panic!("{e}"));
        let first = |context, typed: &str| {
            let mut p = Palette::new(context, &keymap, (0, 0));
            p.line = Line::new(typed);
            p.filter(&keymap);
            (p.rows.first().copied(), p.sure)
        };
        for context in [Context::Victims, Context::Timeline, Context::Notes, Context::Verdict] {
            for (typed, cmd) in [
                ("q", Cmd::Quit),
                ("q!", Cmd::Quit),
                ("wq", Cmd::Quit),
                ("x", Cmd::Quit),
                ("w", Cmd::Write),
                ("h", Cmd::Help),
                ("find", Cmd::Search),
                ("thr", Cmd::GoThreads),
            ] {
                assert_eq!(first(context, typed), (Some(cmd), true), "{typed}");
            }
            assert!(!first(context, "nonsense").1 && !first(context, "shell").1);
        }
        assert!(!first(Context::Violations, "oto").1, "letters in the middle of a word");
    }
}
