//! Algorithm 1 of Argus as a state machine without I/O: [`Diagnosis::next`] asks, [`Diagnosis::answer`]
//! answers, and in the end there is a [`Report`].
//!
//! Every step is recomputed from the decisions so far. That makes undo and replay trivial and keeps the
//! screen, an answers file and the policy on one path; a walk looks only at the threads on its way.

mod activity;
mod all_stuck;
mod answerless;
mod ask;
mod asked;
mod background;
mod busy;
mod by_baseline;
mod changed;
mod closed;
mod data_flag;
mod deaf;
mod ending;
mod feeder;
mod fifos;
mod finding;
mod frozen;
mod gdbus;
mod goroutines;
mod grab;
mod handed;
mod holders;
mod input;
mod inside;
mod its_thread;
mod late;
mod lives;
mod makers;
mod monitors;
mod node;
mod paused;
mod poller;
mod pool;
mod pose;
mod queue;
mod readers;
mod rescued;
mod ring;
mod runtime;
mod session_client;
mod sessions;
mod span;
mod standby;
mod started;
mod stopped_peer;
mod stuck;
mod tokens;
mod told;
mod tries;
pub(crate) mod unread;
mod wakers;
mod walk;
mod which_holder;
mod worker;
mod write_back;

pub(crate) use activity::{Activity, Group, Mostly, activity, merged, total as spans_total};
pub(crate) use all_stuck::WORKERS;
pub(crate) use answerless::{main_thread, relation_words};
pub(crate) use background::calls_terminal;
pub(crate) use closed::left_alone;
pub(crate) use data_flag::DATA_FLAG;
pub(crate) use finding::{Finding, FindingKind, Outcome};
pub(crate) use grab::GRAB;
pub(crate) use holders::made_file;
pub use node::{Keeps, SliceNode};
pub(crate) use paused::seen_paused;
pub(crate) use ring::keeps_itself;
pub(crate) use sessions::{MARIADB_LOCKS, NEXT_STATEMENT, executes, waits_for_lock};
pub use span::path_of_span;
pub(crate) use standby::FOR_STANDBY;
pub(crate) use started::{KILLED, STARTED, last_killed, meant, sent_by};
pub(crate) use tokens::killed_beside;
pub(crate) use told::{SHORTLY, TOLD, told};
pub(crate) use wakers::only_reacts;

use crate::cause;
use crate::report::{CoverageInfo, QuestionInfo, Report, SessionInfo};
use crate::{By, Decision, EventGraph, Question, Victim};
use pg_event::Catalog;
use walk::Walk;

/// What a diagnosis needs besides graph and victim.
#[derive(Clone, PartialEq, Debug)]
pub struct Options {
    /// The recording, for the report.
    pub session: SessionInfo,
    /// What the recording did not see, for the report.
    pub coverage: CoverageInfo,
    /// Most questions asked; beyond it the recommendation is taken and a note says so.
    pub max_questions: usize,
    /// Most root causes in the report.
    pub top: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { session: SessionInfo::default(), coverage: CoverageInfo::default(), max_questions: 3, top: 5 }
    }
}

/// What the diagnosis wants next.
#[derive(Clone, PartialEq, Debug)]
pub enum Step {
    /// An answer; give it by [`Diagnosis::answer`].
    Ask(Box<Question>),
    /// Nothing: it got a step further. Call again.
    Progress(String),
    /// Nothing more: the report.
    Done(Box<Report>),
}

/// A diagnosis under way.
#[derive(Debug)]
pub struct Diagnosis<'g> {
    graph: &'g EventGraph,
    catalog: &'g Catalog,
    victim: Victim,
    options: Options,
    decisions: Vec<Decision>,
    /// The walk with the decisions so far; `None` when they changed.
    walked: Option<Outcome>,
    /// How many slice nodes [`Step::Progress`] has told of.
    told: usize,
}

impl<'g> Diagnosis<'g> {
    /// Begin at a victim.
    pub fn new(graph: &'g EventGraph, catalog: &'g Catalog, victim: Victim, options: Options) -> Self {
        Self::with_decisions(graph, catalog, victim, options, Vec::new())
    }

    /// Begin with answers given before (from a session): those that still apply are taken, others ignored.
    pub fn with_decisions(
        graph: &'g EventGraph,
        catalog: &'g Catalog,
        victim: Victim,
        options: Options,
        decisions: Vec<Decision>,
    ) -> Self {
        Self { graph, catalog, victim, options, decisions, walked: None, told: 0 }
    }

    fn outcome(&mut self) -> &Outcome {
        let (graph, catalog) = (self.graph, self.catalog);
        let (victim, options, decisions) = (&self.victim, &self.options, &self.decisions);
        self.walked.get_or_insert_with(|| Walk::new(graph, catalog, victim, options, decisions).run())
    }

    /// Go on until something is to be said.
    #[allow(clippy::should_implement_trait)] // No iterator: it does not end, but waits for an answer.
    pub fn next(&mut self) -> Step {
        let told = self.told;
        let catalog = self.catalog;
        let o = self.outcome();
        if told < o.nodes.len() {
            let text = o.nodes[told].text(catalog);
            self.told += 1;
            return Step::Progress(text);
        }
        if let Some(q) = &o.ask {
            return Step::Ask(q.clone());
        }
        Step::Done(Box::new(self.report()))
    }

    /// Answer the question asked: from 1, 0 = stop here. An answer beyond the options means the
    /// recommendation. Without an open question nothing happens.
    pub fn answer(&mut self, answer: usize, by: By) {
        let Some(q) = self.outcome().ask.clone() else { return };
        let answer = if answer > q.choices.len() { q.recommended } else { answer };
        self.decisions.retain(|d| d.question != q.key);
        self.decisions.push(Decision { question: q.key, answer, by });
        self.walked = None;
        let after = self.outcome().nodes.len();
        self.told = self.told.min(after);
    }

    /// Take the last answer back. Returns whether there was one that mattered.
    pub fn undo(&mut self) -> bool {
        let Some(last) = self.outcome().used.last().copied() else { return false };
        self.decisions.retain(|d| d.question != last.question);
        self.walked = None;
        let after = self.outcome().nodes.len();
        self.told = self.told.min(after);
        true
    }

    /// The answers that apply, in the order of their questions.
    pub fn decisions(&mut self) -> &[Decision] {
        &self.outcome().used
    }

    /// The slice so far, from the victim backwards.
    pub fn slice(&mut self) -> &[SliceNode] {
        &self.outcome().nodes
    }

    /// The victim.
    pub fn victim(&self) -> &Victim {
        &self.victim
    }

    /// The questions answered so far.
    pub fn questions(&mut self) -> &[QuestionInfo] {
        &self.outcome().asked
    }

    /// The report as it stands (with an open question: as if one stopped there).
    pub fn report(&mut self) -> Report {
        self.outcome();
        let Some(o) = &self.walked else { unreachable!("outcome() has just filled it") };
        cause::report(self.graph, self.catalog, &self.victim, &self.options, o)
    }
}

/// The threads that a walk from the victim passes, by the recommended answers; the victim's own left out.
pub(crate) fn threads_behind(
    graph: &EventGraph,
    catalog: &Catalog,
    victim: &Victim,
) -> Vec<pg_event::ThreadId> {
    let options = Options::default();
    let mut walk = Walk::new(graph, catalog, victim, &options, &[]);
    walk.auto = true;
    let mut out: Vec<_> = walk.run().nodes.iter().map(|n| n.thread).collect();
    out.retain(|t| *t != victim.thread);
    out
}

/// Run to the end with the recommended answers.
pub fn run_with_policy(graph: &EventGraph, catalog: &Catalog, victim: Victim, options: Options) -> Report {
    run_with(graph, catalog, victim, options, |q| (q.recommended, By::Policy))
}

/// Run to the end; `answer` answers each question.
pub fn run_with(
    graph: &EventGraph,
    catalog: &Catalog,
    victim: Victim,
    options: Options,
    mut answer: impl FnMut(&Question) -> (usize, By),
) -> Report {
    let mut d = Diagnosis::new(graph, catalog, victim, options);
    loop {
        match d.next() {
            Step::Ask(q) => {
                let (a, by) = answer(&q);
                d.answer(a, by);
            }
            Step::Progress(_) => {}
            Step::Done(r) => return *r,
        }
    }
}
