//! `pg-tui live`: waits as they are. Its own small loop: there is no recording to show here, only the last look.

use super::command::{Cmd, Context};
use super::input::Line;
use super::layer::{Help, Layer};
use super::msg::{Msg, Signal};
use super::runtime::{Options, RunError, Screen};
use super::state::{Phase, State};
use super::terminal::{self, Terminal};
use super::views::{Move, scrolled};
use super::{moves, nothing_here, run_command, signals, time};
use crate::clean::clean;
use crate::config::keys::show_sequence;
use crate::config::{Key, Look, Lookup};
use crossbeam_channel::RecvTimeoutError;
use crossterm::event::{Event, KeyCode, KeyEventKind, MouseButton, MouseEventKind};
use pg_event::Relation;
use pg_tracer::live::{Doing, LONG, Live, Row};
use standstill::standing_still;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// Between two looks.
const EVERY: Duration = Duration::from_secs(1);

/// What to use where there is no terminal.
const INSTEAD: &str =
    "`pg-tui live` needs a terminal; with --once 2 it prints the waits of two seconds as text";

/// What is shown.
#[derive(Debug, Default)]
pub struct LiveState {
    /// The last look, in the order shown.
    pub rows: Vec<Row>,
    /// How many threads there are.
    pub threads: usize,
    /// The selected thread.
    pub selected: Option<u32>,
    /// First line shown.
    pub offset: usize,
    /// Show those that only idle too.
    pub everybody: bool,
    /// No new looks.
    pub paused: bool,
    /// The person has chosen the thread that is selected; until then it is the first one.
    pub chosen: bool,
    /// What threads must have to be shown; without text it asks for nothing.
    pub filter: Line,
    /// The filter is being typed.
    pub typing: bool,
    /// The last look, whole.
    all: Vec<Row>,
    /// Threads of it that look as if they hung, though nobody is known to hold them up.
    still: BTreeSet<u32>,
}

/// Why the live view was left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Left {
    /// The person has seen enough.
    Quit,
    /// Record a process.
    Record {
        /// Which one.
        pid: u32,
        /// The thread that was looked at hangs already: some seconds of it tell all.
        hangs: bool,
    },
    /// A signal came.
    Signal(i32),
}

/// How a holder is tied to what is waited for, in words.
pub fn relation(r: Relation) -> &'static str {
    match r {
        Relation::Reads => "reads it",
        Relation::Writes => "can write it",
        Relation::Peer => "other end",
        Relation::Listens => "listens",
        Relation::Owns => "owns it",
        Relation::Shares => "has its descriptor",
        Relation::ChildOf => "child",
        Relation::Traces => "tracer",
        Relation::Serves => "serves it",
        Relation::Reader => "reader",
        Relation::Missing => "has not come",
        Relation::Maps => "maps it, too",
        Relation::Makes => "made it",
        Relation::Removes => "removed it",
    }
}

/// State, in a word of the report.
pub fn word(d: Doing) -> &'static str {
    match d {
        Doing::Runs => "running",
        Doing::Disk => "disk",
        Doing::Stopped => "stopped",
        Doing::Waits => "blocked",
        Doing::Ended => "ended",
    }
}

/// What a thread waits for, and who could end that, in words. `all` are the rows to take names of threads from.
pub fn waits(r: &Row, all: &[Row]) -> (String, String) {
    // A set of one is that one.
    let object = if let [only] = r.members.as_slice() { only } else { &r.object };
    let what = crate::frames::call_on(Some(r.call.as_str()).filter(|c| !c.is_empty()), Some(object));
    let mut names: Vec<String> = Vec::new();
    for h in &r.holders {
        let own = if h.pid != r.pid {
            format!("{}:{}", h.process, h.pid)
        } else if let Some(x) = all.iter().find(|x| x.tid == h.tid) {
            format!("{}:{}", x.thread, h.tid)
        } else {
            format!("thread {}", h.tid)
        };
        names.push(format!("{} ({})", clean(&own), relation(h.relation)));
    }
    if r.opens {
        names.push("nobody has opened the other end".into());
    }
    (what, names.join(", "))
}

/// Members of a polled set from which on it is that of an event loop: such a thread waits for work.
const LOOP: usize = 3;

/// Does it wait for whatever comes, rather than for somebody?
fn idles(r: &Row) -> bool {
    r.members.len() >= LOOP && r.circle.is_empty()
}

/// A shell that waits for its command is the usual thing; a lock, a pipe, an answer are not.
fn held(r: &Row) -> bool {
    r.holders.iter().any(|h| h.relation != Relation::ChildOf) && !idles(r)
}

/// Is it known to hang: can it not go on, or does it wait for somebody for long?
fn hangs(r: &Row) -> bool {
    let long = r.since >= LONG;
    match r.doing {
        _ if r.circle.contains(&r.tid) => true,
        Doing::Stopped => true,
        Doing::Disk => long,
        Doing::Waits => long && held(r),
        Doing::Runs | Doing::Ended => false,
    }
}

/// Puts all rows of a look into the order in which they are shown: those that cannot go on first, then the longest waits
/// for somebody.
pub fn sort(all: &mut [Row]) {
    let still = standing_still(all);
    sort_some(all, &still);
}

fn sort_some(rows: &mut [Row], still: &BTreeSet<u32>) {
    let rank = |r: &Row| match r.doing {
        _ if r.circle.contains(&r.tid) => 0,
        Doing::Stopped => 0,
        Doing::Disk if r.since >= LONG => 1,
        Doing::Waits if held(r) || still.contains(&r.tid) => 2,
        Doing::Runs => 3,
        Doing::Disk => 4,
        // Of those that nobody is known to hold up, most have nothing to do.
        Doing::Waits if !r.holders.is_empty() && !idles(r) => 5,
        Doing::Waits => 6,
        Doing::Ended => 7,
    };
    rows.sort_by(|a, b| {
        let cpu = b.cpu.total_cmp(&a.cpu);
        let by = rank(a).cmp(&rank(b));
        let long = if a.doing == Doing::Runs { cpu } else { b.since.cmp(&a.since) };
        by.then(long).then(a.pid.cmp(&b.pid)).then(a.tid.cmp(&b.tid))
    });
}

/// Names of the threads of the circle that a thread is in or waits for: `a:1 -> b:2 -> a:1`; empty when there is
/// none. `all` are the rows to take names from.
pub fn circle(r: &Row, all: &[Row]) -> String {
    let name = |tid: &u32| {
        let known = all.iter().find(|x| x.tid == *tid);
        clean(&known.map_or_else(|| tid.to_string(), |x| format!("{}:{tid}", x.thread))).into_owned()
    };
    let Some(first) = r.circle.first() else { return String::new() };
    let names: Vec<String> = r.circle.iter().chain([first]).map(name).collect();
    let way = names.join(" -> ");
    let way = if r.likely { format!("as it seems: {way}") } else { way };
    if r.circle.contains(&r.tid) { way } else { format!("waits for it: {way}") }
}

/// `2.0 s`; `> 2.0 s` when it began before the first look, and when is not known.
pub fn since(r: &Row) -> String {
    if r.doing == Doing::Runs {
        return format!("{:.0} %", r.cpu * 100.0);
    }
    // It has run since the look before.
    if r.since == 0 {
        return format!("< {}", time::length(EVERY.as_nanos() as u64));
    }
    format!("{}{}", if r.longer { "> " } else { "" }, time::length(r.since))
}

/// Does a thread have all these words (in small letters) in its names, ids, command line, state or wait?
fn fits(r: &Row, words: &[String], all: &[Row]) -> bool {
    if words.is_empty() {
        return true;
    }
    let (what, who) = waits(r, all);
    let Row { pid, tid, process, thread, cmdline, .. } = r;
    let text =
        format!("{process} {pid} {thread} {tid} {cmdline}\n{} {what} {who}", word(r.doing)).to_lowercase();
    words.iter().all(|w| text.contains(w.as_str()))
}

impl LiveState {
    /// Takes a look over.
    pub fn set(&mut self, all: Vec<Row>) {
        self.still = standing_still(&all);
        self.all = all;
        self.order();
    }

    fn order(&mut self) {
        self.threads = self.all.len();
        // Without a holder, most threads of a machine just wait for something to do.
        let shown = |r: &&Row| {
            self.everybody
                || (!r.holders.is_empty() && !idles(r))
                || !r.circle.is_empty()
                || self.still.contains(&r.tid)
                || r.cpu >= 0.005
                || matches!(r.doing, Doing::Runs | Doing::Disk | Doing::Stopped)
        };
        let words: Vec<String> =
            self.filter.text().to_lowercase().split_whitespace().map(str::to_owned).collect();
        // Who is asked for by name is shown whatever it does.
        let asked = |r: &&Row| if words.is_empty() { shown(r) } else { fits(r, &words, &self.all) };
        self.rows = self.all.iter().filter(asked).cloned().collect();
        sort_some(&mut self.rows, &self.still);
        if !self.chosen || self.row().is_none() {
            self.selected = self.rows.first().map(|r| r.tid);
        }
    }

    /// Every thread, shown or not.
    pub fn all(&self) -> &[Row] {
        &self.all
    }

    /// Line of the selected thread.
    pub fn row(&self) -> Option<usize> {
        self.rows.iter().position(|r| Some(r.tid) == self.selected)
    }

    /// The selected thread.
    pub fn current(&self) -> Option<&Row> {
        self.rows.get(self.row()?)
    }

    /// Moves the selection.
    pub fn go(&mut self, by: Move, page: usize) {
        self.chosen = true;
        let at = by.from(self.row().unwrap_or(0), self.rows.len(), page);
        self.selected = self.rows.get(at).map(|r| r.tid);
    }

    /// Keeps the selected line within `height` lines.
    pub fn scroll(&mut self, height: usize) {
        self.offset = scrolled(self.offset, self.row().unwrap_or(0), self.rows.len(), height);
    }

    /// Is anything asked of the threads that are shown?
    pub fn is_filtered(&self) -> bool {
        !self.filter.text().trim().is_empty()
    }

    /// Where keys are looked up.
    pub fn context(&self) -> Context {
        if self.typing { Context::Text } else { Context::Live }
    }

    /// Adds to the filter what was typed or pasted.
    pub fn type_in(&mut self, text: &str) {
        self.filter.insert(text);
        self.order();
    }

    fn clear_filter(&mut self) {
        self.filter.clear();
        self.typing = false;
        self.order();
    }

    /// Runs a command while the filter is typed.
    fn edit(&mut self, cmd: Cmd, page: usize) {
        match cmd {
            Cmd::Accept => self.typing = false,
            Cmd::CloseText => return self.clear_filter(),
            Cmd::NextRow => self.go(Move::By(1), page),
            Cmd::PreviousRow => self.go(Move::By(-1), page),
            Cmd::EraseChar => self.filter.erase(),
            Cmd::EraseWord => self.filter.erase_word(),
            Cmd::EraseAll => self.filter.clear(),
            _ => return,
        }
        self.order();
    }

    /// Runs a command; `Some`: leave.
    pub fn run(&mut self, cmd: Cmd, page: usize) -> Option<Left> {
        if self.typing {
            self.edit(cmd, page);
            return None;
        }
        match cmd {
            Cmd::LiveFilter => self.typing = true,
            Cmd::Cancel if self.is_filtered() => self.clear_filter(),
            Cmd::Quit => return Some(Left::Quit),
            Cmd::RecordThis => {
                return self
                    .current()
                    .map(|r| Left::Record { pid: r.pid, hangs: hangs(r) || self.still.contains(&r.tid) });
            }
            Cmd::LiveAll => {
                self.everybody = !self.everybody;
                self.order();
            }
            Cmd::LivePause => self.paused = !self.paused,
            _ => {
                if let Some(by) = moves::of(cmd) {
                    self.go(by, page);
                }
            }
        }
        None
    }
}

/// Shows the waits of these processes (of all when there is none) until the person leaves.
///
/// # Errors
/// No terminal, a mistake in the configuration, or the terminal failed.
pub fn run(pids: &[u32], options: &Options) -> Result<Left, RunError> {
    let Screen { mut terminal, mut state, send: _send, receive } =
        Screen::open(options, "live".into(), INSTEAD)?;
    state.phase = Phase::Ready;
    let mut live = Live::new(pids);
    let mut shown = LiveState { everybody: !pids.is_empty(), ..LiveState::default() };
    shown.set(live.look());
    let mut next = Instant::now() + EVERY;
    loop {
        crate::ui::prepare_layers(&mut state);
        let height = usize::from(crate::ui::live::rows_area(state.size).height);
        shown.scroll(height);
        terminal.draw(|frame| crate::ui::live::draw(frame, &state, &shown))?;
        let left = match receive.recv_timeout(next.saturating_duration_since(Instant::now())) {
            Ok(msg) => take(&mut state, &mut shown, &mut terminal, msg, height)?,
            Err(RecvTimeoutError::Timeout) => {
                if !shown.paused {
                    shown.set(live.look());
                }
                next = Instant::now() + EVERY;
                None
            }
            Err(RecvTimeoutError::Disconnected) => Some(Left::Quit),
        };
        if let Some(left) = left {
            return Ok(left);
        }
    }
}

fn take(
    state: &mut State,
    shown: &mut LiveState,
    terminal: &mut Terminal,
    msg: Msg,
    page: usize,
) -> std::io::Result<Option<Left>> {
    let mut suspend = false;
    match msg {
        Msg::Input(Event::Key(k)) if k.kind != KeyEventKind::Release => {
            state.pending.push(Key::from(k));
            state.message = None;
            let context = state.layers.last().map_or_else(|| shown.context(), Layer::context);
            match state.config.keymap.lookup(context, &state.pending) {
                Lookup::Prefix => {}
                Lookup::Nothing => {
                    let pressed = std::mem::take(&mut state.pending);
                    if let KeyCode::Char(c) = k.code
                        && context == Context::Text
                        && Key::from(k).mods.is_empty()
                    {
                        let mut bytes = [0; 4];
                        let c = &*c.encode_utf8(&mut bytes);
                        match state.layers.last_mut().and_then(Layer::line) {
                            Some(line) => {
                                line.insert(c);
                                run_command::typed(state);
                            }
                            None => shown.type_in(c),
                        }
                    } else if context == Context::Live {
                        nothing_here::tell(state, context, &pressed);
                    }
                }
                Lookup::Command(cmd) => {
                    let pressed = std::mem::take(&mut state.pending);
                    match cmd {
                        Cmd::Cancel if context == Context::Live && !shown.is_filtered() => {
                            state.say_only(Look::Dim, "q quits");
                        }
                        cmd if context == Context::Live && !cmd.row().applies(context) => {
                            let keys = show_sequence(&pressed);
                            state.say_only(
                                Look::Warning,
                                format!("{keys}: nothing here; {} in a recording", cmd.row().name),
                            );
                        }
                        Cmd::Help if state.layers.is_empty() => {
                            state.layers.push(Layer::Help(Help::new(Context::Live)));
                        }
                        Cmd::Quit if state.layers.is_empty() => return Ok(Some(Left::Quit)),
                        Cmd::NextTheme => run_command::next_theme(state),
                        Cmd::Redraw => terminal.clear()?,
                        Cmd::Suspend => suspend = true,
                        cmd if !state.layers.is_empty() => in_help(state, cmd),
                        cmd => return Ok(shown.run(cmd, page)),
                    }
                }
            }
        }
        Msg::Input(Event::Mouse(m)) if !state.layers.is_empty() => match m.kind {
            MouseEventKind::ScrollDown => moves::up_down(state, Move::By(3)),
            MouseEventKind::ScrollUp => moves::up_down(state, Move::By(-3)),
            _ => {}
        },
        Msg::Input(Event::Mouse(m)) => match m.kind {
            MouseEventKind::ScrollDown => shown.go(Move::By(3), page),
            MouseEventKind::ScrollUp => shown.go(Move::By(-3), page),
            MouseEventKind::Down(MouseButton::Left) => {
                let area = crate::ui::live::rows_area(state.size);
                if m.row >= area.y && m.row < area.bottom() {
                    shown.chosen = true;
                    let at = shown.offset + usize::from(m.row - area.y);
                    shown.selected = shown.rows.get(at).map(|r| r.tid).or(shown.selected);
                }
            }
            _ => {}
        },
        Msg::Input(Event::Paste(text)) if shown.typing => shown.type_in(&text),
        Msg::Input(Event::Resize(w, h)) => state.size = (w, h),
        Msg::Signal(Signal::End(n)) => return Ok(Some(Left::Signal(n))),
        Msg::Signal(Signal::Stop) => suspend = true,
        Msg::Signal(Signal::Continue) => terminal.again()?,
        _ => {}
    }
    if suspend {
        terminal::restore();
        signals::stop();
        terminal.again()?;
        state.size = terminal.size()?;
    }
    Ok(None)
}

/// What keys do while the help lies over the list.
fn in_help(state: &mut State, cmd: Cmd) {
    match (cmd, moves::of(cmd)) {
        _ if state.context() == Context::Text => run_command::run_command(state, cmd),
        (Cmd::Search, _) => run_command::run_command(state, cmd),
        (Cmd::Cancel | Cmd::Quit | Cmd::Help, _) => state.layers.clear(),
        (_, Some(by)) => moves::up_down(state, by),
        _ => {}
    }
}

/// Ends this process as the signal would have.
pub fn die_of(signal: i32) {
    signals::die_of(signal);
}

mod standstill;
#[cfg(test)]
mod tests;
