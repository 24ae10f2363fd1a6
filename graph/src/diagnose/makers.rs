//! Who keeps a loop of tries going, where no call of theirs was recorded: the process that had the lock file made by a
//! helper, the server that was not there yet, the thread of the same process that did something all that time.

use super::activity::{Clip, Group, Mostly, Spans, activity, extent, total};
use super::answerless::main_thread;
use super::ask::Candidate;
use super::node::{Entry, Keeps};
use super::walk::Walk;
use crate::HoldFact;
use crate::class::{WaitClass, class, joins};
use crate::episode::wait_key;
use crate::flag::flags_seen;
use crate::profile::profile;
use crate::refused::{Evidence, named_in};
use crate::retries::Retries;
use crate::words::{clean, moment, short_who};
use crate::yields::yield_loop;
use pg_event::{Direction, Ns, ObjectId, Process, ProcessId, Relation, ThreadId};

/// What a loop asks for may be there so much before it asks again, ns.
const SLACK: Ns = 100_000_000;

impl Walk<'_> {
    /// Programs like lockfile(1) and mkdir(1) make a lock file for who runs them, and end. Who asks for `file` by the same
    /// program, or runs the same command (`file` is `None`), waits for the process whose child made it before `until`: if that
    /// goes on.
    pub(super) fn had_it_made(
        &self,
        loops: ThreadId,
        asks: ProcessId,
        file: Option<&str>,
        until: Ns,
        within: &Spans,
    ) -> Option<Candidate> {
        let program = self.c.process(asks)?;
        let own = self.c.thread(loops)?.process;
        let (start, end) = (within.first()?.0, within.last()?.1);
        let same = |p: &Process| match file {
            Some(f) => named_in(p.cmdline(), f),
            None => !program.cmdline().is_empty() && p.cmdline() == program.cmdline(),
        };
        // It may have given it back since the last try.
        let lives = |p: &Process| p.start <= start && p.end.is_none_or(|t| t >= end - (end - start) / 4);
        let made = |p: &Process| {
            let over = p.exit_status == Some(0) && p.end.is_some_and(|t| t <= until);
            over && p.name == program.name && p.parent != own && same(p)
        };
        let by = |(i, p): (usize, &Process)| {
            let id = ProcessId(i as u32);
            let parent = self.c.process(p.parent).filter(|x| lives(x))?;
            let main = main_thread(self.g, self.c, p.parent).filter(|t| self.counts(*t))?;
            let free = id != asks && !self.comes_from(own, p.parent) && !self.on_the_way(main);
            free.then_some((p.end?, parent.start, i, main))
        };
        let all = self.c.processes.iter().enumerate().filter(|(_, p)| made(p));
        let (_, at, i, main) = all.filter_map(by).max()?;
        let helper = &self.c.processes[i];
        let why = format!(
            "who made the file was not recorded; {} (pid {}), run by it, asked for the same and ended well",
            clean(&helper.name, 40),
            helper.pid
        );
        Some(Candidate { relation: None, ..self.keeping(main, Relation::Owns, at.max(start), why, within) })
    }

    /// Who made the file that a loop asks for (`absent`: it was not there), or removed it, until which it went on.
    pub(super) fn changed_by(
        &self,
        thread: ThreadId,
        file: ObjectId,
        absent: bool,
        within: &Spans,
    ) -> Option<Candidate> {
        let (start, end) = (within.first()?.0, within.last()?.1);
        let own = self.c.thread(thread)?.process;
        let (relation, keeps, did) = if absent {
            (Relation::Makes, Keeps::Made, "made")
        } else {
            (Relation::Removes, Keeps::Removed, "removed")
        };
        let theirs = |h: &&HoldFact| {
            let process = self.c.process_id_of(h.holder);
            let tried = process.is_some_and(|p| p != own && self.comes_from(p, own));
            h.relation == relation && h.holder != thread && !tried && self.counts(h.holder)
        };
        // What was changed once the loop had been ended did not end it.
        let ended = self.g.exited(thread).map_or(Ns::MAX, |x| x.0);
        let after = self.loops_until(thread, end).saturating_add(SLACK).min(ended);
        let all = self.g.changed(file, start..after);
        let h = all.iter().rev().find(theirs).filter(|h| !self.on_the_way(h.holder))?;
        // A thread that was made for it has no past: whoever started it has.
        let before = self.g.vertex_at(h.holder, start).is_some();
        let parent = || {
            let p = self.c.process(self.c.process_id_of(h.holder)?)?;
            main_thread(self.g, self.c, p.parent).filter(|t| self.counts(*t) && !self.on_the_way(*t))
        };
        let (by, who) = match parent().filter(|_| !before) {
            Some(parent) => (parent, format!("{}, run by it,", short_who(self.c, h.holder))),
            None => (h.holder, "it".into()),
        };
        let why = format!("no wake-up can tell; {who} {did} the file, at {}", moment(h.time));
        let mut c = Candidate { relation: None, ..self.keeping(by, relation, start, why, within) };
        c.entry.keeps = keeps;
        Some(c)
    }

    /// Is it `from`, or does it descend from that?
    pub(super) fn comes_from(&self, p: ProcessId, from: ProcessId) -> bool {
        p == from || self.c.ancestors(p).any(|id| id == from)
    }

    /// A connection that was refused, or for which there was no socket, until somebody served it: what that process did
    /// before is what the loop waited for.
    pub(super) fn served_at_last(
        &self,
        thread: ThreadId,
        r: Option<&Retries>,
        e: &Evidence,
        within: &Spans,
    ) -> Option<Candidate> {
        if !e.connects() {
            return None;
        }
        let (start, end) = (within.first()?.0, within.last()?.1);
        let own = self.c.thread(thread)?.process;
        let (threads, from): (Vec<ThreadId>, Ns) = match r {
            Some(r) => {
                let last = r.tries.last().copied()?;
                let row = self.c.process(last)?;
                let again = |p: &Process| {
                    p.parent == own
                        && p.start > row.start
                        && p.exit_status == Some(0)
                        && p.cmdline() == row.cmdline()
                };
                let i = self.c.processes.iter().position(again)?;
                (self.g.threads_of(ProcessId(i as u32)).collect(), row.start)
            }
            None => (vec![thread], end.saturating_sub(SLACK)),
        };
        let wanted = self.c.object(e.object);
        let to = |o| {
            let (o, w) = (self.c.object(o), wanted);
            o.zip(w).is_none_or(|(o, w)| {
                o.kind == w.kind && (w.peer == 0 || o.name == w.name || o.peer == w.peer)
            })
        };
        let heard = threads.iter().find_map(|t| {
            let mut all = self.g.ipc_of(*t, from..Ns::MAX).iter();
            all.find(|m| m.what.direction == Direction::Receive && to(m.what.object))
                .map(|m| (m.time, m.what.object))
        });
        let (at, object) = heard?;
        let not = |t: &ThreadId| !threads.contains(t) && self.counts(*t);
        let served = self.last_at_other_end(self.g.threads().filter(not), &[object], Ns::MAX)?.1;
        let process = self.c.thread(served)?.process;
        // A thread made for the connection has no past.
        let before = self.g.vertex_at(served, start).is_some();
        let server = if before { served } else { main_thread(self.g, self.c, process)? };
        if process == own || self.on_the_way(server) {
            return None;
        }
        let cut = |s: &(Ns, Ns)| (s.0 < at).then(|| (s.0, s.1.min(at)));
        let spans: Spans = within.iter().filter_map(cut).collect();
        let why = format!("nobody listened there until it did, at {} at the latest", moment(at));
        let found = self.keeping(server, Relation::Listens, start, why, &spans);
        let mut c = Candidate { relation: None, ..found };
        c.entry.keeps = Keeps::Served;
        Some(c)
    }

    /// The one thread of the same process that did something else all the time that a loop asked for what was not recorded,
    /// until just before the loop ended: what it did is the best that can be told. `each`: how long the loop sleeps; `variable`:
    /// what it asks, if that is known.
    pub(super) fn let_go_on(
        &self,
        thread: ThreadId,
        spans: &Spans,
        each: Ns,
        variable: Option<&str>,
    ) -> Option<Candidate> {
        let process = self.c.thread(thread)?.process;
        // Where flags were recorded, a person was asked which it is.
        if !flags_seen(self.g, thread, spans, 0).is_empty() {
            return None;
        }
        // What others did in the moments between its sleeps belongs to it.
        let end = self.loops_until(thread, spans.last()?.1);
        let spans = &vec![(spans.first()?.0, end)];
        let open = end.saturating_add(SLACK) >= self.g.duration && self.g.exited(thread).is_none();
        let whole = |time: Ns| time.saturating_mul(5) >= total(spans).saturating_mul(4);
        let did = |t: &ThreadId| {
            let act = activity(self.g, self.c, *t, spans);
            match act.mostly() {
                Mostly::Running | Mostly::Runnable => {
                    let p = profile(self.g, self.c, *t, spans);
                    whole(act.running + act.runnable) && yield_loop(self.g, self.c, *t, spans, &p).is_none()
                }
                Mostly::Waiting(i) => act.groups.get(i).is_some_and(|g| {
                    let class = class(&self.representative(g), self.c);
                    let owed = [WaitClass::Child, WaitClass::Channel, WaitClass::Disk, WaitClass::Room];
                    // By many waits, too, after which it does no more of that.
                    let last = g.clips.last().filter(|c| {
                        owed.contains(&class) && whole(g.blocked) && self.no_more(*t, g, c.full_end)
                    });
                    let one = g
                        .longest()
                        .filter(|c| (owed.contains(&class) || class == WaitClass::Sleep) && whole(c.blocked));
                    let ends = |c: &Clip| {
                        c.full_end <= end.saturating_add(SLACK / 10)
                            && c.full_end.saturating_add(2 * each + SLACK) >= end
                    };
                    one.or(last).is_some_and(ends)
                        && !open
                        && !self.accepts(*t, spans)
                        && !self.only_counts(g)
                }),
                Mostly::Unborn | Mostly::Gone | Mostly::Unknown => false,
            }
        };
        let others =
            self.g.threads_of(process).filter(|t| *t != thread && self.counts(*t) && !self.on_the_way(*t));
        let mut all = others.filter(did);
        let (one, None) = (all.next()?, all.next()) else { return None };
        let unseen = variable.map_or_else(
            || "what the loop asks for was not recorded".to_owned(),
            |v| format!("who writes {}, which the loop asks, was not recorded", clean(v, 60)),
        );
        let why =
            format!("{unseen}; this is the only thread of its process that did something else all that time");
        Some(Candidate { relation: None, ..self.keeping(one, Relation::Owns, spans[0].0, why, spans) })
    }

    /// Until when a thread went on to wait as it did at `end`, with nothing longer between two waits than these are: what was
    /// looked at may be a piece of a loop.
    fn loops_until(&self, thread: ThreadId, end: Ns) -> Ns {
        let before = self.g.vertices_in(thread, 0..end.saturating_add(1)).rev().map(|id| self.g.vertex(id));
        let Some(v) = before.take(2).find(|v| v.waited() > 0 && v.woken <= end) else { return end };
        let key = wait_key(&v, self.c);
        let mut until = v.woken;
        for id in self.g.vertices_in(thread, v.woken..Ns::MAX) {
            let w = self.g.vertex(id);
            if w.waited() == 0 || w.start < until {
                continue;
            }
            if wait_key(&w, self.c) != key || w.start - until > v.waited().max(SLACK) {
                break;
            }
            until = w.woken;
        }
        until.max(end)
    }

    /// Has a thread no more of a group's waits within some time after `from`?
    fn no_more(&self, t: ThreadId, group: &Group, from: Ns) -> bool {
        let each = group.blocked / group.waits.max(1) as u64;
        let soon = from..from.saturating_add((4 * each).max(SLACK));
        let mut next = self.g.vertices_in(t, soon).map(|id| self.g.vertex(id));
        !next.any(|v| v.waited() > 0 && v.start >= from && wait_key(&v, self.c) == group.key)
    }

    /// The one other process that has shared memory of a loop mapped, which asks for nothing else that was recorded: what it
    /// waits for may be written there, and no event tells.
    pub(super) fn shares_memory(&self, thread: ThreadId, spans: &Spans) -> Option<Candidate> {
        if !flags_seen(self.g, thread, spans, 0).is_empty() {
            return None;
        }
        let (start, end) = extent(spans);
        let [found] = self.g.sharers(thread, start..end.saturating_add(1)) else { return None };
        if found.holder == thread {
            return None;
        }
        let one = self.busiest(found.holder, found.relation, spans);
        let own = self.c.process_id_of(thread);
        let free = self.counts(one) && self.c.process_id_of(one) != own && !self.on_the_way(one);
        let memory = self.c.object(found.object).map_or_else(String::new, |o| {
            if o.name.is_empty() { String::new() } else { format!(" ({})", clean(&o.name, 80)) }
        });
        let why = format!(
            "what the loop asks for was not recorded; this is the only other process that has its shared memory mapped{memory}"
        );
        let c = self.keeping(one, found.relation, found.time, why, spans);
        let entry = Entry { keeps: Keeps::May, ..c.entry };
        free.then_some(Candidate { relation: None, entry, ..c })
    }

    /// The one thread that a loop can wait for whose code asks memory that no other process has: of its own process, the others
    /// of which all have nothing to do. It may be on the way: then each waits for the other.
    pub(super) fn left_to_write(&self, thread: ThreadId, spans: &Spans) -> Option<Candidate> {
        let (start, end) = extent(spans);
        if !flags_seen(self.g, thread, spans, 0).is_empty()
            || !self.g.sharers(thread, start..end.saturating_add(1)).is_empty()
        {
            return None;
        }
        let process = self.c.process_id_of(thread)?;
        let spans = &vec![(start, end)];
        let waits = |t: &ThreadId| {
            let act = activity(self.g, self.c, *t, spans);
            match act.mostly() {
                Mostly::Waiting(i) => act.groups.get(i).is_some_and(|g| {
                    let v = self.representative(g);
                    let class = class(&v, self.c);
                    // Whoever waits for a thread's end goes on after it.
                    let parked = class.idle() || class == WaitClass::Condition || joins(&v, self.c);
                    !parked && !self.only_counts(g)
                }),
                Mostly::Running | Mostly::Runnable => true,
                Mostly::Unborn | Mostly::Gone | Mostly::Unknown => false,
            }
        };
        let mut all =
            self.g.threads_of(process).filter(|t| *t != thread && self.counts(*t)).filter(|t| waits(t));
        let (one, None) = (all.next()?, all.next()) else { return None };
        let why = "its loop asks what only another thread of its process can write, and the others of that have nothing to do";
        let c = self.keeping(one, Relation::Owns, start, why.into(), spans);
        let entry = Entry { keeps: Keeps::May, sole: true, ..c.entry };
        Some(Candidate { relation: None, entry, ..c })
    }

    /// Of the processes that one parent started with the same command (ranks of a parallel program, workers), the only one
    /// that does not ask in such a loop but waits for somebody, is stopped, or works: they may share memory, and what is
    /// written there no event tells.
    pub(super) fn kin_behind(&self, thread: ThreadId, spans: &Spans) -> Option<Candidate> {
        let own = self.c.process_id_of(thread)?;
        let line = |p: ProcessId| self.c.process(p).map_or("", Process::cmdline);
        let kin = |p: ProcessId| p != own && self.c.serve_together(p, own) && line(p) == line(own);
        let process = |t: ThreadId| self.c.process_id_of(t);
        let long = |time: Ns| time.saturating_mul(5) >= total(spans).saturating_mul(4);
        let keeps = |t: &ThreadId| {
            let act = activity(self.g, self.c, *t, spans);
            match act.mostly() {
                Mostly::Running | Mostly::Runnable => {
                    let p = profile(self.g, self.c, *t, spans);
                    long(act.running + act.runnable) && yield_loop(self.g, self.c, *t, spans, &p).is_none()
                }
                Mostly::Waiting(i) => act.groups.get(i).is_some_and(|g| {
                    let v = self.representative(g);
                    let turns = v.timed_out && g.waits > 2;
                    long(g.blocked) && (g.halts() || !turns && !class(&v, self.c).idle())
                }),
                Mostly::Unborn | Mostly::Gone | Mostly::Unknown => false,
            }
        };
        // Its other threads may wait to be told something.
        let main = |t: &ThreadId| process(*t).and_then(|p| main_thread(self.g, self.c, p)) == Some(*t);
        let free = |t: &ThreadId| self.counts(*t) && !self.on_the_way(*t) && process(*t).is_some_and(kin);
        let mut all = self.g.threads().filter(|t| free(t) && main(t)).filter(keeps);
        let (first, None) = (all.next()?, all.next()) else { return None };
        let why = "what the loop asks for was not recorded, and may be in memory that they share; of the processes that were started with the same command it is the only one that does something else";
        let at = spans.first()?.0;
        Some(Candidate { relation: None, ..self.keeping(first, Relation::Owns, at, why.into(), spans) })
    }
}
