//! Workers that began later than the others that their parent started: one of those may have ended before the recording,
//! and what it had to do with it. Pools start another one in its place and wait for the answer all the same.

use super::Writer;
use crate::diagnose::main_thread;
use crate::words::{span, who};
use pg_event::{Ns, ProcessId};

/// Fewer tell nothing of when they are started.
const LEAST: usize = 3;
/// They are started one after the other; one that comes so much later, ns, is not one of the first ...
const LATER: Ns = 100_000_000;
/// ... if that is so many times as long as between any of these.
const TIMES: Ns = 5;

impl Writer<'_> {
    /// Which of these processes began after the others, all of which had before the recording and are children of one.
    pub(super) fn stands_in(&self, all: &[ProcessId]) -> Option<String> {
        let row = |p: ProcessId| self.c.process(p);
        let first = row(*all.first()?)?;
        let alike = |p: ProcessId| {
            row(p).is_some_and(|p| p.age > 0 && p.parent == first.parent && p.name == first.name)
        };
        if all.len() < LEAST || !all.iter().all(|p| alike(*p)) {
            return None;
        }
        let mut born: Vec<(Ns, ProcessId)> = all.iter().filter_map(|p| Some((row(*p)?.age, *p))).collect();
        born.sort_unstable_by(|a, b| b.cmp(a));
        let gaps = || born.windows(2).map(|w| w[0].0 - w[1].0);
        let (at, gap) = gaps().enumerate().max_by_key(|g| g.1)?;
        let (early, late) = born.split_at(at + 1);
        let others = gaps().enumerate().filter(|g| g.0 != at).map(|g| g.1).max().unwrap_or(0);
        if late.len() >= early.len() || gap < LATER || gap < others.saturating_mul(TIMES) {
            return None;
        }
        let [(_, one), ..] = late else { return None };
        let whose = main_thread(self.g, self.c, *one).map(|t| who(self.c, t))?;
        Some(format!(
            "{whose} began {} after the other {}: it may stand in for one that ended before it had answered",
            span(gap),
            early.len()
        ))
    }
}
