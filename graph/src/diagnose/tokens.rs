//! Tokens of a make jobserver that nobody gives back. They are bytes in a pipe: who runs a job reads one and writes it again
//! at its end; without one, jobs run one after another, and each wait for a token ends with the end of a job.
//! (GNU Make manual, POSIX jobserver.)

use super::activity::{Group, activity};
use super::finding::{Finding, FindingKind};
use super::started::last_killed;
use super::walk::{Walk, group_spans};
use crate::EventGraph;
use crate::class::{WaitClass, class};
use pg_event::{Catalog, Ns, Process, ProcessId, Relation, ThreadId};

/// Functions that wait for a token, by a part of their names.
const ACQUIRE: &str = "jobserver";

impl Walk<'_> {
    /// The thread waits for a token while fewer jobs run than there are tokens: some were taken by who has ended.
    pub(super) fn by_lost_tokens(&mut self, thread: ThreadId, group: &Group) -> bool {
        let Some((jobs, all)) = self.lost_tokens(thread, group) else { return false };
        let node = self.out.nodes.len().saturating_sub(1);
        let kind = FindingKind::Tokens(jobs, all);
        self.out.findings.push(Finding { thread, node, kind, spans: group_spans(group) });
        true
    }

    /// How many jobs ran meanwhile, of how many that may.
    fn lost_tokens(&self, thread: ThreadId, group: &Group) -> Option<(u32, u32)> {
        let v = self.representative(group);
        let acquires = || self.c.frames_of(v.user_stack).any(|f| f.function.contains(ACQUIRE));
        if class(&v, self.c) != WaitClass::Channel || !acquires() {
            return None;
        }
        let own = self.c.process_id_of(thread)?;
        let name = |p: ProcessId| self.c.process(p).map(|p| &p.name);
        let make = |p: ProcessId| name(p) == name(own);
        let top = topmost(self.c, own);
        let all = jobs_of(self.c.process(top)?.cmdline())?;
        let (a, b) = group.extent();
        let middle = a + (b - a) / 2;
        // Whoever else has the pipe may have the tokens.
        let kin = |p: ProcessId| {
            p == own || self.c.ancestors(own).any(|x| x == p) || self.c.ancestors(p).any(|x| x == own)
        };
        let mut holds =
            self.g.holds(thread, a..b.saturating_add(1)).filter(|h| h.relation == Relation::Writes);
        if holds.any(|h| self.c.process_id_of(h.holder).is_none_or(|p| !kin(p))) {
            return None;
        }
        let lives = |p: &Process| p.start <= middle && p.end.is_none_or(|e| e > middle);
        let family: Vec<ProcessId> = (0..self.c.processes.len())
            .map(|i| ProcessId(i as u32))
            .filter(|p| self.c.process(*p).is_some_and(lives) && self.c.ancestors(*p).any(|x| x == top))
            .collect();
        let starts = |p: ProcessId| family.iter().any(|x| make(*x) && self.c.ancestors(*x).any(|y| y == p));
        let job = |p: &&ProcessId| {
            let parent = self.c.process(**p).map(|p| p.parent);
            !make(**p) && parent.is_some_and(make) && !starts(**p)
        };
        let jobs = family.iter().filter(job).count() as u32;
        // A job that uses several at once (a link with LTO) has its threads or children run side by side.
        let spans = vec![(a, b)];
        let threads = family.iter().flat_map(|p| self.g.threads_of(*p));
        let ran: Ns =
            threads.map(|t| activity(self.g, self.c, t, &spans)).map(|x| x.running + x.runnable).sum();
        (jobs > 0 && jobs < all && ran <= (b - a) + (b - a) / 10).then_some((jobs, all))
    }
}

/// The number that a command line of make tells jobs to be at most: `-j4`, `-j 4`, `--jobs=4`. More than one.
fn jobs_of(cmdline: &str) -> Option<u32> {
    let mut words = cmdline.split_whitespace();
    while let Some(w) = words.next() {
        let number = match w.strip_prefix("--jobs=").or_else(|| w.strip_prefix("-j")) {
            Some("") => words.next().unwrap_or_default(),
            Some(n) => n,
            None => continue,
        };
        return number.parse().ok().filter(|n| *n > 1);
    }
    None
}

/// The topmost ancestor that executes the same program by name, or the process itself: it made the jobserver.
fn topmost(c: &Catalog, own: ProcessId) -> ProcessId {
    let name = |p: ProcessId| c.process(p).map(|p| &p.name);
    c.ancestors(own).filter(|p| name(*p) == name(own)).last().unwrap_or(own)
}

/// Who of those that have to do with a jobserver was killed last before `until`, by which signal and when.
pub(crate) fn killed_beside(
    g: &EventGraph,
    c: &Catalog,
    own: ProcessId,
    until: Ns,
) -> Option<(ThreadId, u32, Ns)> {
    let top = topmost(c, own);
    last_killed(g, c, until, |id, _| c.ancestors(id).any(|x| x == top))
}

#[cfg(test)]
mod tests {
    use super::jobs_of;

    #[test]
    fn how_many_jobs_a_command_line_allows() {
        for (line, n) in [
            ("make -j4 all", Some(4)),
            ("make -C d -j 8", Some(8)),
            ("make --jobs=3", Some(3)),
            ("make -j", None),
            ("make -j1", None),
            ("make all", None),
        ] {
            assert_eq!(jobs_of(line), n, "{line}");
        }
    }
}
