//! Whom a process told to end, and who lives on: whoever stops a service waits for that, whatever it does meanwhile (asks,
//! sleeps, turns).

use super::activity::{Spans, extent};
use super::answerless::main_thread;
use super::ask::Candidate;
use super::walk::Walk;
use crate::{EventGraph, SignalFact};
use pg_event::{Catalog, Ns, ProcessId, Relation, ThreadId};

/// Signals that ask a process to end and nothing else (signal(7)): QUIT, KILL, TERM. By HUP and INT many are asked for
/// something else.
const ENDS: [u8; 3] = [3, 9, 15];

/// How one was found that was told to end.
pub(crate) const TOLD: &str = "no wake-up can tell; it was told to end, and lives on";

/// By which signal a process told another one to end, within a span: the first.
pub(crate) fn told(
    g: &EventGraph,
    c: &Catalog,
    by: ProcessId,
    whom: ProcessId,
    (from, until): (Ns, Ns),
) -> Option<SignalFact> {
    let process = |t: ThreadId| c.process_id_of(t);
    let within = g.signals().iter().filter(|s| (from..until).contains(&s.time) && ENDS.contains(&s.signal));
    let mut all = within.filter(|s| process(s.from) == Some(by) && process(s.to) == Some(whom));
    all.next().copied()
}

/// It is told to end at most so long before whoever told it waits, ns.
pub(crate) const SHORTLY: Ns = 1_000_000_000;

impl Walk<'_> {
    /// The process that the one of `thread` told to end as it began to wait, or while it did, and that lived on to the end of
    /// that. `None` where there are several.
    pub(super) fn lives_on(&self, thread: ThreadId, spans: &Spans) -> Option<Candidate> {
        let own = self.c.process_id_of(thread)?;
        let (a, b) = extent(spans);
        let within = (a.saturating_sub(SHORTLY), b);
        let late = b.saturating_sub((b - a) / 10);
        let lives = |i: &ProcessId| {
            let p = self.c.process(*i)?;
            let there =
                *i != own && p.end.is_none_or(|e| e >= late) && !self.c.ancestors(own).any(|x| x == *i);
            told(self.g, self.c, own, *i, within).filter(|_| there)
        };
        let named: Vec<ProcessId> = {
            let to = self.g.signals().iter().filter(|s| (within.0..b).contains(&s.time));
            let mut all: Vec<_> = to.filter_map(|s| self.c.process_id_of(s.to)).collect();
            all.sort_unstable();
            all.dedup();
            all
        };
        let mut all = named.into_iter().filter_map(|i| Some((i, lives(&i)?)));
        let ((process, signal), None) = (all.next()?, all.next()) else { return None };
        let main =
            main_thread(self.g, self.c, process).filter(|t| self.counts(*t) && !self.on_the_way(*t))?;
        let since = signal.time.max(a);
        let spans: Spans = spans.iter().map(|s| (s.0.max(since), s.1)).filter(|s| s.0 < s.1).collect();
        (!spans.is_empty()).then(|| self.keeping(main, Relation::ChildOf, signal.time, TOLD.into(), &spans))
    }
}
