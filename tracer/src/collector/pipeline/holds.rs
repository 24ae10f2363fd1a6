//! Looks up who holds what long waits wait for, and tells it as events.

use super::{Long, MAX_LONG, Pipeline};
use crate::holders::{Found, LongWait};
use pg_event::{Event, Hold, Kind, Object, ObjectKind, OffCpu, OffState, POLLS, Relation, ThreadId};

impl Pipeline {
    /// Looks up who holds what long waits wait for: a few waits at a time, since it reads much of `/proc`.
    /// `now` is of `CLOCK_MONOTONIC`.
    pub fn look_up_holders(&mut self, now: u64) {
        const AT_ONCE: usize = 8;
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
        for _ in 0..AT_ONCE {
            let Some(long) = self.long.pop_front() else { return };
            let object = self.objects.row(long.off.object);
            let members: Vec<_> = object
                .map_or(&[][..], |o| &o.members)
                .iter()
                .filter_map(|&m| Some((m, self.objects.row(m)?)))
                .collect();
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
            let holders = self.holders.find(&wait, &mut self.identity, time);
            let file = |o: &&Object| matches!(o.kind, ObjectKind::File | ObjectKind::FileLock);
            let nameless = object.filter(file).is_some_and(|o| o.name.is_empty());
            let path = nameless.then(|| self.holders.path_of_file(long.tid, long.off.syscall)).flatten();
            // An end that its own process has (a pipe by which it is told to end) is not what it waits for.
            let own = self.identity.row(long.thread).map(|t| t.process);
            let theirs =
                |f: &Found| self.identity.row(f.holder).map(|t| t.process) != own || f.relation.has_lock();
            if !holders.iter().any(theirs)
                && long.first
                && self.later.len() < MAX_LONG
                && let Some(at) = self.holders.ask_again(long.off.start)
            {
                self.later.push_back((at, Long { first: false, ..long }));
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
                for found in &holders {
                    self.identity.reach(found.holder);
                }
            }
            // What was asked before the recording was not seen: who has the other end may wait for an answer itself, or
            // have a thread of it that does.
            if long.off.begun_before && long.first {
                const THREADS: usize = 64;
                let peers = holders.iter().filter(|f| f.relation == Relation::Peer);
                let mut threads: Vec<ThreadId> = peers
                    .flat_map(|f| self.identity.threads_with(f.holder).into_iter().take(THREADS))
                    .collect();
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
