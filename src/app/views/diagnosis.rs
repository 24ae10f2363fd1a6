//! The diagnosis: its question, its slice, its verdict.

use pg_event::ThreadId;
use pg_graph::report::{QuestionInfo, Report, SliceStep};
use pg_graph::{By, Decision, Question, SliceNode, Victim};
use std::collections::HashSet;

/// How far a diagnosis got with the answers given.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The victim.
    pub victim: Victim,
    /// The answers that applied.
    pub decisions: Vec<Decision>,
    /// What is asked next; none when it is done.
    pub question: Option<Box<Question>>,
    /// The steps so far.
    pub slice: Vec<SliceNode>,
    /// What was asked and answered.
    pub asked: Vec<QuestionInfo>,
    /// The report as it stands.
    pub report: Box<Report>,
}

/// The diagnosis under way, or the last one.
#[derive(Debug, Default)]
pub struct DiagnosisState {
    /// What it came to.
    pub outcome: Option<Outcome>,
    /// The next step is being computed.
    pub running: bool,
    /// Selected option of the question; the one after the last stands for "stop here".
    pub choice: usize,
    /// First line of the options shown.
    pub choice_offset: usize,
    /// Selected step of the slice.
    pub step: usize,
    /// First line of the slice shown.
    pub offset: usize,
    /// First line of the verdict shown.
    pub verdict_offset: usize,
    /// Decisions that the session file holds for this victim.
    pub saved: Vec<Decision>,
    /// How many of the answers were in the file when the diagnosis began.
    pub kept: usize,
    /// How it stood before an answer was left out to choose another: until there is one, it counts.
    pub before: Option<Box<Before>>,
}

/// How a diagnosis stood before a branch.
#[derive(Clone, Debug)]
pub struct Before {
    /// What it had come to.
    outcome: Outcome,
    /// The step that was selected.
    step: usize,
    /// How many of the answers were in the file.
    kept: usize,
}

/// The step of the slice that is the root cause of a report, counted from 0: the last one of its thread.
pub fn cause_step(report: &Report) -> Option<usize> {
    let cause = report.root_causes.first()?;
    let same = |s: &SliceStep| Some(s.tid) == cause.tid && Some(s.pid) == cause.pid;
    // A circle ends where it began.
    let last = report.circle.iter().max().map_or(report.slice.len(), |l| l + 1);
    report.slice.iter().take(last).rposition(same)
}

impl DiagnosisState {
    /// The victim.
    pub fn victim(&self) -> Option<&Victim> {
        self.outcome.as_ref().map(|o| &o.victim)
    }

    /// The open question.
    pub fn question(&self) -> Option<&Question> {
        self.outcome.as_ref()?.question.as_deref()
    }

    /// The steps.
    pub fn slice(&self) -> &[SliceNode] {
        self.outcome.as_ref().map_or(&[], |o| &o.slice)
    }

    /// The report of a diagnosis that is done.
    pub fn verdict(&self) -> Option<&Report> {
        let o = self.outcome.as_ref()?;
        o.question.is_none().then_some(&*o.report)
    }

    /// Takes over how far it got.
    pub fn set(&mut self, outcome: Outcome) {
        self.running = false;
        // Where a verdict is, what it names; else where the way has come to.
        let cause = outcome.question.is_none().then(|| cause_step(&outcome.report)).flatten();
        self.step = cause.unwrap_or(outcome.slice.len().saturating_sub(1)).min(outcome.slice.len());
        self.offset = 0;
        self.verdict_offset = 0;
        self.choice_offset = 0;
        self.choice = outcome.question.as_ref().map_or(0, |q| match q.recommended {
            0 => q.choices.len(),
            n => n - 1,
        });
        self.outcome = Some(outcome);
    }

    /// How it stands, or stood before the branch that is under way.
    pub fn standing(&mut self) -> Option<Box<Before>> {
        let now = || {
            let outcome = self.outcome.clone()?;
            Some(Box::new(Before { outcome, step: self.step, kept: self.kept }))
        };
        self.before.take().or_else(now)
    }

    /// Gives a branch up: back to how it stood before. Is there one?
    pub fn give_up_branch(&mut self) -> bool {
        let Some(b) = self.before.take() else { return false };
        self.set(b.outcome);
        (self.step, self.kept) = (b.step, b.kept);
        true
    }

    /// The answer that the selected option stands for.
    pub fn selected_answer(&self) -> Option<usize> {
        let q = self.question()?;
        Some(if self.choice >= q.choices.len() { 0 } else { self.choice + 1 })
    }

    /// The decisions with one more answer by the person at the screen; as the policy's when they took what it recommends.
    pub fn answered(&self, answer: usize, by: By) -> Option<Vec<Decision>> {
        let o = self.outcome.as_ref()?;
        let q = o.question.as_ref()?;
        if answer > q.choices.len() {
            return None;
        }
        let mut decisions = o.decisions.clone();
        decisions.retain(|d| d.question != q.key);
        decisions.push(Decision { question: q.key, answer, by });
        Some(decisions)
    }

    /// How many of the answers that were in the file somebody chose, other than to take what was recommended.
    pub fn kept_own(&self) -> usize {
        let decisions = self.outcome.as_ref().map_or(&[][..], |o| &o.decisions);
        decisions.iter().take(self.kept).filter(|d| d.by != By::Policy).count()
    }

    /// The decisions without the last one.
    pub fn undone(&self) -> Option<Vec<Decision>> {
        let mut decisions = self.outcome.as_ref()?.decisions.clone();
        decisions.pop()?;
        Some(decisions)
    }

    /// The decisions before the one that led to the selected step.
    pub fn branched(&self) -> Option<Vec<Decision>> {
        let o = self.outcome.as_ref()?;
        let upto: HashSet<ThreadId> = o.slice.iter().take(self.step + 1).map(|n| n.thread).collect();
        let at = o.decisions.iter().rposition(|d| upto.contains(&ThreadId(d.question.thread)))?;
        Some(o.decisions.iter().take(at).copied().collect())
    }

    /// Threads on the way.
    pub fn threads(&self) -> HashSet<ThreadId> {
        let mut out: HashSet<ThreadId> = self.slice().iter().map(|n| n.thread).collect();
        if let Some(q) = self.question() {
            out.insert(ThreadId(q.key.thread));
        }
        out
    }
}
