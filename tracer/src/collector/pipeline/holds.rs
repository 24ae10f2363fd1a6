//! Looks up who holds what long waits wait for, and tells it as events.

use super::{Long, MAX_LONG, Pipeline};
use crate::clock;
use crate::holders::{Found, LongWait};
use crate::procfs;
use pg_event::{
    Event, Hold, Kind, Ns, Object, ObjectId, ObjectKind, OffCpu, OffState, POLLS, Relation, ThreadId,
};
use std::time::{Duration, Instant};

/// So many waits are looked up at once, however long that takes ...
const AT_ONCE: usize = 8;
/// ... and more within this time: a recording that begins beside a thousand idle threads meets them all as long waits.
const TURN: Duration = Duration::from_millis(2);
/// What the end of a recording spends on those that are left, of the CPU: to stand in the queue for one costs nobody anything ...
const AT_END: Duration = Duration::from_millis(500);
/// ... and how long it waits for them at most.
const AT_MOST: Duration = Duration::from_secs(3);
/// When what could not be read is tried again, ns.
const AGAIN: Ns = 1_000_000_000;
/// The port in the identity of an end ([`pg_event::endpoint_v4`]).
const PORT: u64 = 0xffff;
/// Most threads named whose waits were not looked up.
const MAX_NAMED: usize = 64;

/// Long waits of which it was not found out who could end them.
#[derive(Default)]
pub struct Left {
    pub waits: usize,
    /// The numbers of their threads, of the focus first; not all when there are very many.
    pub threads: Vec<u32>,
}

impl Left {
    fn add(&mut self, tid: u32) {
        if self.threads.contains(&tid) {
            return;
        }
        self.waits += 1;
        if self.threads.len() < MAX_NAMED {
            self.threads.push(tid);
        }
    }
}

impl Pipeline {
    /// Looks up who holds what long waits wait for: a few waits at a time, since it reads much of `/proc`.
    /// `now` is of `CLOCK_MONOTONIC`.
    pub fn look_up_holders(&mut self, now: u64) {
        let time = self.time(now);
        while let Some((at, long)) = self.later.front()
            && *at <= time
        {
            // One that ended meanwhile has no holder any more.
            let ended = self.last.get_mut(&long.tid).is_some_and(|l| l.off.start == long.off.start);
            if !ended {
                self.long.push_back(*long);
            }
            self.later.pop_front();
        }
        let began = Instant::now();
        let mut done = 0;
        while (done < AT_ONCE || began.elapsed() < TURN)
            && let Some(long) = self.next_long()
        {
            self.look_up(&long, time);
            done += 1;
        }
    }

    /// At the end of a recording: looks up what was not yet, as long as nobody is in a hurry, and returns which long waits
    /// are left. `now` is of `CLOCK_MONOTONIC`.
    pub fn look_up_rest(&mut self, now: u64, hurry: &dyn Fn() -> bool) -> Left {
        let time = self.time(now);
        let (began, begun) = (Instant::now(), clock::thread_cpu());
        let spent = || Duration::from_nanos(clock::thread_cpu().saturating_sub(begun));
        // Nobody was found in a look from before the wait: it is the last moment for another one.
        let mut again: Vec<Long> = self.later.drain(..).map(|l| l.1).collect();
        again.retain(|l| {
            let goes_on = self.last.get(&l.tid).is_none_or(|last| last.off.start != l.off.start);
            goes_on && self.identity.in_reach(l.thread)
        });
        if !again.is_empty() && !hurry() {
            self.holders.look_anew();
        }
        self.long.extend(again);
        while spent() < AT_END
            && began.elapsed() < AT_MOST
            && !hurry()
            && let Some(long) = self.next_long()
        {
            self.look_up(&long, time);
        }
        let mut left = std::mem::take(&mut self.left);
        while let Some(long) = self.next_long() {
            left.add(long.tid);
        }
        left
    }

    /// Has it looked up who holds what this wait is for. Where too many are to be, those of the focus are.
    pub(super) fn ask(&mut self, long: Long) {
        let mut without = None;
        if self.long.len() >= MAX_LONG {
            without = if self.identity.in_reach(long.thread) { self.long.pop_back() } else { Some(long) };
        }
        if without.is_none_or(|w| w.thread != long.thread) {
            self.long.push_back(long);
        }
        if let Some(w) = without {
            self.left.add(w.tid);
        }
    }

    /// The wait to look up next: those of the focus, and of whom it waits for, come before all others.
    fn next_long(&mut self) -> Option<Long> {
        let first = self.long.iter().position(|l| self.identity.in_reach(l.thread)).unwrap_or(0);
        self.long.remove(first)
    }

    /// Looks up who holds what a wait is for. `time` is of the recording.
    fn look_up(&mut self, long: &Long, time: Ns) {
        let object = self.objects.row(long.off.object);
        let mut members: Vec<_> = object
            .map_or(&[][..], |o| &o.members)
            .iter()
            .filter_map(|&m| Some((m, self.objects.row(m)?)))
            .collect();
        // A socket for datagrams need not be connected: whom it waits for it was told when something was sent.
        let asked = self.asked_udp.get(&long.tid).and_then(|&o| Some((o, self.objects.row(o)?)));
        let by = |o: &Object, sent: &Object| {
            (o.kind, o.peer) == (ObjectKind::Udp, 0) && (o.id ^ sent.id) & PORT == 0
        };
        let waits =
            |sent: &Object| object.is_some_and(|o| by(o, sent)) || members.iter().any(|(_, o)| by(o, sent));
        if let Some(asked) = asked.filter(|(_, sent)| waits(sent)) {
            members.push(asked);
        }
        let wait = LongWait {
            thread: long.thread,
            tid: long.tid,
            tgid: long.tgid,
            syscall: long.off.syscall,
            op: long.off.op,
            state: long.off.state,
            id: long.off.object,
            object,
            members: &members,
            error: long.error,
        };
        let unread = self.holders.unread();
        let holders = self.holders.find(&wait, &mut self.identity, time);
        // What took too long to be read says nothing about who there is.
        let unknown = holders.is_empty() && self.holders.unread() != unread;
        let file = |o: &&Object| matches!(o.kind, ObjectKind::File | ObjectKind::FileLock);
        let nameless = object.filter(file).is_some_and(|o| o.name.is_empty());
        let path = nameless.then(|| self.holders.path_of_file(long.tid, long.off.syscall)).flatten();
        // An end that its own process has (a pipe by which it is told to end) is not what it waits for.
        let own = self.identity.row(long.thread).map(|t| t.process);
        let theirs =
            |f: &Found| self.identity.row(f.holder).map(|t| t.process) != own || f.relation.has_lock();
        if unknown {
            if long.first && self.later.len() < MAX_LONG {
                self.later.push_back((time.saturating_add(AGAIN), Long { first: false, ..*long }));
            } else {
                self.left.add(long.tid);
            }
        } else if !holders.iter().any(theirs)
            && long.first
            && self.later.len() < MAX_LONG
            && let Some(at) = self.holders.ask_again(long.off.start, object)
        {
            self.later.push_back((at, Long { first: false, ..*long }));
        }
        // Nobody owns it, but it may be known how many do.
        if holders.is_empty() {
            const MOST: u32 = 64;
            let hold = Hold { object: wait.id, subject: long.thread, relation: Relation::Reader };
            for _ in 0..self.holders.readers(&wait).min(MOST) {
                self.order.push(Event { time, thread: long.thread, cpu: 0, kind: Kind::Hold(hold) });
            }
        }
        if let Some(path) = path {
            self.objects.name_if_none(long.off.object, path);
        }
        if self.identity.in_reach(long.thread) {
            self.identity.read_title(long.thread, time);
            for found in &holders {
                self.identity.reach(found.holder);
            }
        }
        // What was asked before the recording was not seen: who has the other end may wait for an answer itself, or
        // have a thread of it that does.
        if long.off.begun_before && long.first {
            const THREADS: usize = 64;
            let peers = holders.iter().filter(|f| f.relation == Relation::Peer);
            let mut threads: Vec<ThreadId> =
                peers.flat_map(|f| self.identity.threads_with(f.holder).into_iter().take(THREADS)).collect();
            threads.sort_unstable();
            threads.dedup();
            let loops: Vec<Long> = threads.into_iter().filter_map(|t| self.turning(t)).collect();
            let room = MAX_LONG.saturating_sub(self.long.len());
            self.long.extend(loops.into_iter().take(room));
        }
        // The kernel's own threads are not looked at by themselves: what one waits for matters when somebody waits for it.
        for found in holders.iter().filter(|f| f.relation == Relation::Serves) {
            let Some(row) = self.identity.row(found.holder).filter(|t| t.kernel) else { continue };
            if self.long.len() < MAX_LONG && long.first {
                let off = OffCpu::new(long.off.start, 0, OffState::Uninterruptible);
                let (thread, tid) = (found.holder, row.tid);
                self.long.push_back(Long { thread, tid, tgid: tid, off, first: false, error: 0 });
            }
        }
        for found in holders {
            let hold = Hold { object: found.object, subject: long.thread, relation: found.relation };
            self.order.push(Event { time, thread: found.holder, cpu: 0, kind: Kind::Hold(hold) });
        }
    }

    /// A thread sent a datagram.
    pub(super) fn asked_by_datagram(&mut self, tid: u32, object: ObjectId) {
        if self.asked_udp.len() >= MAX_LONG && !self.asked_udp.contains_key(&tid) {
            self.asked_udp.clear();
        }
        self.asked_udp.insert(tid, object);
    }

    /// A loop may ask for what another process is to write into memory that they share, and no call of it tells that.
    pub(super) fn look_at_memory(&mut self, tid: u32, time: Ns) {
        // One that never left its CPU since it was met is known by its number only.
        let Some(tgid) = procfs::read_status(tid).map(|s| s.tgid) else { return };
        let subject = self.identity.thread(tid, tgid, time);
        let met = self.identity.counts().1;
        let Some(shared) = self.holders.shares_memory(tgid, time, met) else { return };
        let object = self.objects.mapped(shared.file, &shared.path);
        let holder = self.identity.leader(shared.pid, time);
        if self.identity.in_reach(subject) {
            self.identity.reach(holder);
        }
        let hold = Hold { object, subject, relation: Relation::Maps };
        self.order.push(Event { time, thread: holder, cpu: 0, kind: Kind::Hold(hold) });
    }

    /// The wait of a thread whose event loop turns by a timer of its own: no wait of that becomes long.
    fn turning(&self, thread: ThreadId) -> Option<Long> {
        let last = self.last.get(&self.identity.row(thread)?.tid)?;
        let turns = last.off.syscall.is_any(&POLLS) && last.off.object.is_some() && !last.off.begun_before;
        turns.then_some(Long {
            thread: last.thread,
            tid: last.raw.tid,
            tgid: last.raw.tgid,
            off: last.off,
            first: false,
            error: 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::focus::Focus;
    use crate::identity::Identity;
    use pg_event::ObjectId;

    /// Higher than any number of a process.
    const OTHERS: u32 = 1 << 23;

    fn waits(p: &mut Pipeline, tid: u32) -> ThreadId {
        let thread = p.identity.thread(tid, tid, 0);
        let off = OffCpu { object: ObjectId::NONE, ..OffCpu::new(0, 0, OffState::Interruptible) };
        p.long.push_back(Long { thread, tid, tgid: tid, off, first: true, error: 0 });
        thread
    }

    /// A recording of a few seconds that begins beside thousands of idle threads answers for those it is about.
    #[test]
    fn waits_of_the_focus_are_looked_up_first() {
        let own = std::process::id();
        let focus = Focus { pids: vec![own], ..Focus::default() };
        let mut p = Pipeline::new(0, Identity::new(0, &focus, 1), 99);
        let first = waits(&mut p, OTHERS);
        let second = waits(&mut p, OTHERS + 1);
        let chosen = waits(&mut p, own);
        let third = waits(&mut p, OTHERS + 2);
        let order: Vec<_> = std::iter::from_fn(|| p.next_long()).map(|l| l.thread).collect();
        assert_eq!(order, [chosen, first, second, third]);
    }

    #[test]
    fn what_is_left_at_the_end_is_looked_up_unless_somebody_is_in_a_hurry() {
        let mut p = Pipeline::new(0, Identity::new(0, &Focus::default(), 1), 99);
        for n in 0..3 * AT_ONCE as u32 {
            waits(&mut p, OTHERS + n);
        }
        let left = p.look_up_rest(1, &|| true);
        assert_eq!((left.waits, left.threads.len()), (3 * AT_ONCE, 3 * AT_ONCE));
        for n in 0..3 * AT_ONCE as u32 {
            waits(&mut p, OTHERS + n);
        }
        assert_eq!(p.look_up_rest(1, &|| false).waits, 0);
    }

    /// Where there is no room for more, those that the recording is about have it, and whoever has none is told of.
    #[test]
    fn a_wait_of_the_focus_is_kept_beside_very_many() {
        let own = std::process::id();
        let focus = Focus { pids: vec![own], ..Focus::default() };
        let mut p = Pipeline::new(0, Identity::new(0, &focus, 1), 99);
        for n in 0..MAX_LONG as u32 {
            waits(&mut p, OTHERS + n);
        }
        let last = OTHERS + MAX_LONG as u32;
        for tid in [last, own] {
            waits(&mut p, tid);
            let long = p.long.pop_back().expect("just put there");
            p.ask(long);
        }
        assert_eq!(p.long.len(), MAX_LONG);
        assert_eq!(p.next_long().map(|l| l.tid), Some(own));
        assert_eq!(p.left.threads, [last, last - 1]);
    }
}
