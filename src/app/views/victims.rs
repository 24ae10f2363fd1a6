//! Victims: what hung.

use super::Move;
use crate::app::recording::Recording;
use crate::app::time;
use crate::clean::clean_to;
use crate::frames::call_on;
use pg_event::{Ns, ProcessId, UnitTypeId};
use pg_graph::{BlockType, VertexId, Victim};
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

/// From how many victims of one kind on they are shown as one line.
const ALIKE: usize = 4;

/// What makes victims alike.
type Kind = (ProcessId, BlockType, Option<UnitTypeId>, String);

/// What tells victims from each other. Their last vertex does not: a vertex can hold several slow units.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VictimKey {
    vertex: VertexId,
    start: Ns,
    /// It is a slow unit.
    unit: bool,
}

/// A line of the list.
#[derive(Clone, Debug)]
pub struct Row {
    /// The victim.
    pub victim: Victim,
    /// Its process.
    pub process: ProcessId,
    /// How many more like it stand behind this line.
    pub alike: usize,
    /// It stands behind the line of one like it, which is unfolded.
    pub behind: bool,
    /// What it waited on, or what it did on the CPU.
    pub waits: String,
    /// The recording saw only a part of it: it had begun before, or was not over when that ended.
    pub cut: bool,
    /// Of one that was on the CPU: the functions that it was most in, the innermost first.
    pub ran_in: Option<Vec<String>>,
    /// Of a slow unit: how many standard deviations above the mean of its type.
    pub sigmas: Option<f64>,
    /// Who is to be looked at.
    pub suspects: String,
}

impl Row {
    /// With the words for a victim.
    pub fn new(r: &Recording, victim: Victim) -> Self {
        let profile =
            || pg_graph::profile(&r.graph, &r.catalog, victim.thread, &[(victim.start, victim.end())]);
        let on_cpu = victim.block_type == BlockType::LongRunning
            || victim.waits_on.is_none() && victim.episode.key.is_none();
        let ran_in = on_cpu.then(|| {
            let names = profile().stack;
            let names = names.iter().map(|f| f.rsplit_once(" (").map_or(f.as_str(), |x| x.0));
            names.take(8).map(|n| clean_to(n, 300)).collect()
        });
        let waits = match (&victim.waits_on, victim.block_type) {
            // Where it waited is known, what for is not.
            (None, BlockType::LongWait) if victim.episode.key.is_some() => {
                r.wait(&r.graph.vertex(victim.vertex))
            }
            (_, BlockType::LongRunning) | (None, _) => {
                let (p, ran) = (profile(), time::percent(victim.episode.ran, victim.duration));
                match p.function {
                    // On a busy machine one can want the CPU for long and hardly get it.
                    Some(f) if starved(&victim) => format!("ran {ran}, in {}", clean_to(&f, 80)),
                    None if starved(&victim) => format!("ran {ran}"),
                    Some(f) => {
                        let share = share_of_time(p.share, victim.episode.ran, victim.duration);
                        format!("on CPU {} {share}", clean_to(&f, 80))
                    }
                    None => format!("on CPU {ran}"),
                }
            }
            (Some(on), _) => {
                let object = victim.object.map(|o| r.object(o));
                call_on(Some(on), object.as_deref())
            }
        };
        // By what it was found, which it may not have been by its wait.
        let waits = if victim.unserved.is_some() { format!("unserved, {waits}") } else { waits };
        let sigmas = victim.violation.and_then(|v| v.sigmas(&r.catalog));
        let mut names: Vec<Cow<'_, str>> = Vec::new();
        let then = victim.start + victim.duration / 2;
        for t in &victim.suspects {
            let name = if *t == victim.thread { "itself".into() } else { r.thread_name_at(*t, then) };
            if !names.contains(&name) {
                names.push(name);
            }
        }
        let suspects = match (names.is_empty(), victim.block_type) {
            (true, BlockType::RepeatedYield) => "? find it".into(),
            (true, _) if victim.waits_on.as_deref() == Some("sleep") => "itself".into(),
            (true, _) => "? nobody seen".into(),
            (false, _) => names.join(", "),
        };
        let process = r.catalog.thread(victim.thread).map_or_else(ProcessId::default, |t| t.process);
        let (before, open) = victim.cut(&r.graph);
        let cut = before || open;
        Self { victim, process, alike: 0, behind: false, waits, cut, ran_in, sigmas, suspects }
    }

    /// Which victim it is.
    pub fn key(&self) -> VictimKey {
        let v = &self.victim;
        VictimKey { vertex: v.vertex, start: v.start, unit: v.violation.is_some() }
    }

    /// What makes victims alike: the process, and what it waits on; of slow units also their type.
    fn kind(&self) -> Kind {
        let unit_type = self.victim.violation.map(|v| v.unit_type);
        (self.process, self.victim.block_type, unit_type, without_share(&self.waits).to_owned())
    }
}

/// How much of its whole time something ran in a function that has this share of its samples.
pub fn share_of_time(share: f64, ran: Ns, whole: Ns) -> String {
    let on_cpu = if ran == 0 || whole == 0 { 1.0 } else { (ran as f64 / whole as f64).min(1.0) };
    format!("{:.0} %", share * on_cpu * 100.0)
}

/// Did it want the CPU most of the time, and not have it?
pub fn starved(v: &Victim) -> bool {
    v.block_type == BlockType::LongRunning
        && v.episode.key.is_none()
        && v.episode.ran.saturating_mul(2) < v.duration
}

/// What was waited for, or done, without the share of the time that it took: `on CPU regex_match 71 %`.
fn without_share(waits: &str) -> &str {
    let share = |c: char| c.is_ascii_digit() || c == ' ';
    waits.strip_suffix('%').map_or(waits, |w| w.trim_end_matches(share))
}

/// Order of the list.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Sort {
    /// Most suspicious first.
    #[default]
    Rank,
    /// In order of time.
    Time,
    /// Longest first.
    Length,
    /// By thread.
    Thread,
}

impl Sort {
    /// The next order.
    #[must_use]
    pub fn next(self) -> Self {
        match self {
            Self::Rank => Self::Time,
            Self::Time => Self::Length,
            Self::Length => Self::Thread,
            Self::Thread => Self::Rank,
        }
    }

    /// In a word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Rank => "rank",
            Self::Time => "time",
            Self::Length => "length",
            Self::Thread => "thread",
        }
    }
}

/// The list of victims.
#[derive(Debug, Default)]
pub struct VictimsState {
    /// The victims in the order shown; those behind a folded line are left out.
    pub rows: Vec<Row>,
    /// All of them.
    pub all: Vec<Row>,
    /// How many there are: of very many only the worst are listed.
    pub total: usize,
    /// Kinds whose lines are unfolded.
    unfolded: HashSet<Kind>,
    /// They have been looked for.
    pub known: bool,
    /// The selected one.
    pub selected: Option<VictimKey>,
    /// First one shown.
    pub offset: usize,
    /// Order.
    pub sort: Sort,
    /// Of everybody, not only of the focus.
    pub everyone: bool,
    /// Diagnose the worst one as soon as it is known: that was asked for before.
    pub then_diagnose: bool,
}

impl VictimsState {
    /// Takes over what was found; the selection stays where it is.
    pub fn set(&mut self, rows: Vec<Row>, total: usize) {
        self.all = rows;
        self.total = total;
        self.known = true;
        self.order();
        if self.selected_row().is_none() {
            self.selected = self.rows.first().map(Row::key);
        }
    }

    /// The line of the selected victim.
    pub fn current_row(&self) -> Option<&Row> {
        self.rows.get(self.selected_row()?)
    }

    /// Shows or hides the victims that are like the selected one; whether there are any.
    pub fn fold(&mut self, fold: bool) -> bool {
        let Some(row) = self.current_row().filter(|r| r.alike > 0 || r.behind) else { return false };
        let kind = row.kind();
        if fold {
            self.unfolded.remove(&kind);
        } else {
            self.unfolded.insert(kind);
        }
        self.show();
        true
    }

    /// Do those that are like this one stand below it?
    pub fn is_open(&self, row: &Row) -> bool {
        self.unfolded.contains(&row.kind())
    }

    /// The selected victim.
    pub fn current(&self) -> Option<&Victim> {
        self.rows.get(self.selected_row()?).map(|r| &r.victim)
    }

    /// Row of the selected victim.
    pub fn selected_row(&self) -> Option<usize> {
        self.rows.iter().position(|r| Some(r.key()) == self.selected)
    }

    /// Moves the selection.
    pub fn go(&mut self, by: Move, page: usize) {
        let row = by.from(self.selected_row().unwrap_or(0), self.rows.len(), page);
        self.selected = self.rows.get(row).map(Row::key);
    }

    /// Changes the order.
    pub fn next_order(&mut self) {
        self.sort = self.sort.next();
        self.order();
    }

    fn order(&mut self) {
        match self.sort {
            Sort::Rank => self.all.sort_by(|a, b| b.victim.score.total_cmp(&a.victim.score)),
            Sort::Time => self.all.sort_by_key(|r| r.victim.start),
            Sort::Length => self.all.sort_by_key(|r| std::cmp::Reverse(r.victim.duration)),
            Sort::Thread => self.all.sort_by_key(|r| (r.victim.thread, r.victim.start)),
        }
        self.show();
    }

    /// Puts victims that are alike behind the first of them.
    fn show(&mut self) {
        let mut kinds: HashMap<_, Vec<usize>> = HashMap::new();
        for (i, r) in self.all.iter().enumerate() {
            kinds.entry(r.kind()).or_default().push(i);
        }
        let selected = self.selected.and_then(|v| self.all.iter().find(|r| r.key() == v));
        let selected = selected.map(Row::kind);
        let mut rows = Vec::new();
        let mut head = None;
        for (i, r) in self.all.iter().enumerate() {
            let kind = r.kind();
            let Some(members) = kinds.get(&kind) else { continue };
            if members.len() < ALIKE {
                rows.push(r.clone());
                continue;
            }
            if members.first() != Some(&i) {
                continue;
            }
            if selected.as_ref() == Some(&kind) {
                head = Some(r.key());
            }
            rows.push(Row { alike: members.len() - 1, ..r.clone() });
            if self.unfolded.contains(&kind) {
                let others = members.iter().skip(1).filter_map(|m| self.all.get(*m));
                rows.extend(others.map(|r| Row { behind: true, ..r.clone() }));
            }
        }
        self.rows = rows;
        // A selected one that is hidden now is represented by its line.
        if self.selected_row().is_none() && head.is_some() {
            self.selected = head;
        }
    }
}
