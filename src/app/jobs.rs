//! Work in the background: each job is plain data in, plain data out.

use super::clipboard;
use super::msg::{Load, Msg};
use super::recording::Recording;
use super::search::{Hit, Index, Target, vertices};
use super::views::diagnosis::Outcome;
use super::views::steps::Shown;
use super::views::victims::Row;
use crate::session::{DecisionLog, GuardRule, Note, Symbols};
use pg_event::{Event, Ns, ThreadId};
use pg_graph::report::Report;
use pg_graph::{
    BurstFact, By, Comparison, Decision, Diagnosis, Options, SliceNode, Step, VertexId, Victim,
    VictimOptions, ViolationFact,
};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Something to compute.
#[derive(Debug)]
pub enum Job {
    /// Load the session file.
    Load(PathBuf, Symbols),
    /// Find the victims.
    Victims(Arc<Recording>, VictimOptions),
    /// List what can be searched for.
    Index(Arc<Recording>),
    /// Find what fits a query.
    Find {
        /// In what.
        index: Arc<Index>,
        /// What was typed.
        query: String,
        /// Number of the query.
        generation: u64,
        /// Number of the newest query.
        newest: Arc<AtomicU64>,
    },
    /// Find the vertices in a function or on an object.
    Places(Arc<Recording>, Target, String),
    /// Go on with a diagnosis.
    Diagnose {
        /// In what.
        recording: Arc<Recording>,
        /// Of what.
        victim: Box<Victim>,
        /// With these answers.
        decisions: Vec<Decision>,
        /// Take the recommended answer of everything that is asked.
        to_the_end: bool,
    },
    /// The victim that a vertex is, and then its diagnosis.
    VictimAt(Arc<Recording>, VertexId),
    /// The critical path of a span.
    Path(Arc<Recording>, ThreadId, (Ns, Ns)),
    /// The same of a vertex, or of the loop of waits that it is one turn of.
    PathOf(Arc<Recording>, VertexId),
    /// Read the events of a vertex.
    Events(Arc<Recording>, VertexId),
    /// Find the flag that a thread asks, in the thread itself.
    FindFlag(Arc<Recording>, ThreadId),
    /// Make a trace of the recording ready to be shown.
    Steps(Arc<Recording>, BurstFact),
    /// Follow a thread instruction by instruction, now.
    FollowSteps(Arc<Recording>, ThreadId),
    /// Hand a text to a local clipboard tool.
    Copy(String, Vec<String>, String),
    /// Write a report beside the session.
    Export(Arc<Recording>, Box<Report>, String),
    /// Keep decisions in the session.
    KeepDecisions(Arc<Recording>, DecisionLog),
    /// Compare a slow unit with the normal one of its type.
    Compare(Arc<Recording>, Box<ViolationFact>),
    /// Keep what was decided about a guard in the session.
    KeepRule(Arc<Recording>, GuardRule),
    /// Keep a note in the session, or remove it.
    KeepNote(Arc<Recording>, Note),
}

/// What came of it.
#[derive(Debug)]
pub enum Done {
    /// The victims, and how many there are with those that are not listed.
    Victims(Vec<Row>, usize),
    /// What can be searched for.
    Index(Arc<Index>),
    /// What fits a query, and how many fit in all.
    Hits(u64, Vec<Hit>, usize),
    /// Vertices found.
    Places(String, Vec<VertexId>),
    /// How far a diagnosis got.
    Diagnosis(Box<Outcome>),
    /// The victim that a vertex is; none when nothing is suspicious there.
    VictimAt(Option<Box<Victim>>),
    /// A critical path.
    Path(ThreadId, (Ns, Ns), Vec<SliceNode>),
    /// Events of a vertex; are these all?
    Events(VertexId, Vec<Event>, bool),
    /// The flag that a thread asks, in lines; or why it cannot be found.
    Flag(Result<Vec<String>, String>),
    /// What a thread executed; or why that cannot be known.
    Steps(Result<Box<Shown>, String>),
    /// A clipboard tool took the text, or there is none, or it failed.
    Copied(String, Result<Option<String>, String>),
    /// Files that were written.
    Exported(Result<Vec<PathBuf>, String>),
    /// Decisions are kept.
    DecisionsKept(Result<(Vec<Decision>, Option<DecisionLog>), String>),
    /// A slow unit beside the normal one.
    Compared(Box<(ViolationFact, Comparison)>),
    /// What was decided about a guard is kept.
    RuleKept(Result<(), String>),
    /// A note is kept: all notes now.
    NoteKept(Result<Vec<Note>, String>),
    /// A job died: which one.
    Died(&'static str, String),
}

/// Most events of one vertex that are shown.
const MOST_EVENTS: usize = 2_000;
/// Most vertices that a search lists.
const MOST_PLACES: usize = 5_000;

/// Jobs of one lane run one after the other.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Lane {
    /// Computing.
    Work,
    /// Searching, which must not wait for computing.
    Search,
    /// Writing files, which must be done before the program ends.
    Keep,
}

impl Job {
    /// Where it runs.
    pub fn lane(&self) -> Lane {
        match self {
            Self::Index(_) | Self::Find { .. } => Lane::Search,
            Self::KeepDecisions(..) | Self::KeepNote(..) | Self::KeepRule(..) | Self::Export(..) => {
                Lane::Keep
            }
            _ => Lane::Work,
        }
    }

    /// What it does, in words.
    pub fn words(&self) -> &'static str {
        match self {
            Self::Load(..) => "loading",
            Self::Victims(..) => "looking for victims",
            Self::Index(_) => "listing names",
            Self::Find { .. } => "searching",
            Self::Places(..) => "looking for places",
            Self::Diagnose { .. } => "diagnosing",
            Self::VictimAt(..) => "looking at the vertex",
            Self::Path(..) | Self::PathOf(..) => "computing the critical path",
            Self::Events(..) => "reading events",
            Self::FindFlag(..) => "following the thread",
            Self::Steps(..) => "reading the trace",
            Self::FollowSteps(..) => "following the thread step by step",
            Self::Copy(..) => "copying",
            Self::Export(..) => "exporting",
            Self::KeepDecisions(..) => "saving decisions",
            Self::Compare(..) => "comparing the units",
            Self::KeepRule(..) => "saving what was decided",
            Self::KeepNote(..) => "saving the note",
        }
    }

    /// Does it.
    pub fn run(self, send: &dyn Fn(Msg)) {
        let done = match self {
            Self::Load(path, symbols) => {
                let progress = |what, share| send(Msg::Load(Load::Progress { what, share }));
                let loaded = super::load::load(&path, &symbols, &progress);
                send(Msg::Load(match loaded {
                    Ok(r) => Load::Ready(Arc::new(r)),
                    Err(e) => Load::Failed(e),
                }));
                return;
            }
            Self::Victims(r, options) => {
                let (found, total) = pg_graph::victims_of_all(&r.graph, &r.catalog, &options);
                Done::Victims(found.into_iter().map(|v| Row::new(&r, v)).collect(), total)
            }
            Self::Index(r) => Done::Index(Arc::new(Index::new(&r))),
            Self::Find { index, query, generation, newest } => {
                let stale = || newest.load(Ordering::Relaxed) != generation;
                let (hits, total) = index.find(&query, &stale);
                if stale() {
                    return;
                }
                Done::Hits(generation, hits, total)
            }
            Self::Places(r, target, what) => Done::Places(what, vertices(&r, &target, MOST_PLACES)),
            Self::Diagnose { recording, victim, decisions, to_the_end } => {
                Done::Diagnosis(Box::new(diagnose(&recording, *victim, decisions, to_the_end)))
            }
            Self::VictimAt(r, v) => {
                Done::VictimAt(pg_graph::victim_of(&r.graph, &r.catalog, v).map(Box::new))
            }
            Self::Path(r, thread, span) => {
                let parts = pg_graph::path_of_span(&r.graph, &r.catalog, thread, span.0..span.1);
                Done::Path(thread, span, parts)
            }
            Self::PathOf(r, id) => {
                let (thread, span) = whole_wait(&r, id);
                let parts = pg_graph::path_of_span(&r.graph, &r.catalog, thread, span.0..span.1);
                Done::Path(thread, span, parts)
            }
            Self::Events(r, id) => {
                let v = r.graph.vertex(id);
                let events = r.events_in(v.start..v.end.saturating_add(1), v.thread, MOST_EVENTS + 1);
                let all = events.len() <= MOST_EVENTS;
                let mut events = events;
                events.truncate(MOST_EVENTS);
                Done::Events(id, events, all)
            }
            Self::FindFlag(r, thread) => Done::Flag(super::find_flag::run(&r, thread)),
            Self::Steps(r, b) => Done::Steps(super::steps::recorded(&r, b)),
            Self::FollowSteps(r, thread) => Done::Steps(super::steps::now(&r, thread)),
            Self::Copy(text, tool, what) => Done::Copied(what, clipboard::local(&text, &tool)),
            Self::Export(r, report, markdown) => Done::Exported(super::export::write(&r, &report, &markdown)),
            Self::KeepDecisions(r, log) => {
                let kept = log.decisions.clone();
                Done::DecisionsKept(match r.session() {
                    Some(mut s) => {
                        s.append_decisions(log).map(|others| (kept, others)).map_err(|e| e.to_string())
                    }
                    None => Err("this recording has no file".into()),
                })
            }
            Self::Compare(r, v) => {
                let comparison = pg_graph::compare(&r.graph, &r.catalog, &v);
                Done::Compared(Box::new((*v, comparison)))
            }
            Self::KeepRule(r, rule) => Done::RuleKept(match r.session() {
                Some(mut s) => s.append_guard_rule(rule).map_err(|e| e.to_string()),
                None => Err("this recording has no file".into()),
            }),
            Self::KeepNote(r, note) => Done::NoteKept(keep_note(&r, note)),
        };
        send(Msg::Job(done));
    }
}

/// The thread and span of a vertex. A wait that its own time-out ended is renewed: then all of these waits.
fn whole_wait(r: &Recording, id: VertexId) -> (ThreadId, (Ns, Ns)) {
    let v = r.graph.vertex(id);
    let whole = v.timed_out.then(|| pg_graph::victim_of(&r.graph, &r.catalog, id)).flatten();
    let whole = whole.filter(|x| x.episode.waits > 1);
    (v.thread, whole.map_or((v.start, v.end), |x| (x.start, x.end())))
}

fn keep_note(r: &Recording, note: Note) -> Result<Vec<Note>, String> {
    {
        let Some(mut s) = r.session() else { return Err("this recording has no file".into()) };
        if note.deleted {
            s.remove_note(note.id).map_err(|e| e.to_string())?;
        } else {
            s.append_note(note).map_err(|e| e.to_string())?;
        }
    }
    Ok(r.notes())
}

fn diagnose(r: &Recording, victim: Victim, decisions: Vec<Decision>, to_the_end: bool) -> Outcome {
    let (session, coverage) = crate::session::info(&r.path, &r.header, &r.graph, &r.coverage);
    let options = Options { session, coverage, ..Options::default() };
    let mut d = Diagnosis::with_decisions(&r.graph, &r.catalog, victim.clone(), options, decisions);
    let question = loop {
        match d.next() {
            Step::Ask(q) if to_the_end => {
                let answer = q.recommended;
                d.answer(answer, By::Policy);
            }
            Step::Ask(q) => break Some(q),
            Step::Progress(_) => {}
            Step::Done(_) => break None,
        }
    };
    Outcome {
        victim,
        decisions: d.decisions().to_vec(),
        question,
        slice: d.slice().to_vec(),
        asked: d.questions().to_vec(),
        report: Box::new(d.report()),
    }
}
