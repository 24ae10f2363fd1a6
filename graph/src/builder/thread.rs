//! The state of one thread while its graph is built.

use super::channel::Segment;
use crate::columns::{BEGUN_BEFORE, Detail, OPEN, Times};
use crate::{At, SamplePoint};
use pg_event::{Catalog, IpcUse, Ns, OffCpu, OffState, SyscallUse, Thread, ThreadId, Work};

/// What a thread is to the graph.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Role {
    /// Not looked up yet.
    #[default]
    Unknown,
    /// A thread of a program.
    User,
    /// A kernel thread that does work for others (kworker, jbd2, loop, ...).
    Worker,
    /// A kernel thread that keeps the scheduler going: its wake-ups mean nothing.
    Maintenance,
    /// The recorder.
    Own,
}

const MAINTENANCE: &[&str] = &[
    "migration/",
    "ksoftirqd/",
    "rcu",
    "cpuhp/",
    "idle_inject/",
    "watchdog/",
    "swapper/",
    "ktimers/",
    "posixcputmr",
];

impl Role {
    pub fn of(t: &Thread) -> Self {
        if t.own {
            Self::Own
        } else if !t.kernel {
            Self::User
        } else if t.tid == 0 || MAINTENANCE.iter().any(|m| t.name.starts_with(m)) {
            Self::Maintenance
        } else {
            Self::Worker
        }
    }
}

/// One vertex while it is built.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    /// Its number among all, in the order they began; `u32::MAX` until the builder gives it.
    pub number: u32,
    pub times: Times,
    pub detail: Detail,
}

/// One thread while it is built.
#[derive(Debug, Default)]
pub(crate) struct ThreadState {
    pub role: Role,
    pub rows: Vec<Row>,
    pub put_off: Vec<(Ns, Ns)>,
    /// On which CPU it went on, where that was another one than before.
    pub cpus: Vec<(Ns, u16)>,
    /// When it gave the CPU up by itself.
    pub yields: Vec<Ns>,
    pub samples: Vec<SamplePoint>,
    pub ipc: Vec<At<IpcUse>>,
    pub syscalls: Vec<At<SyscallUse>>,
    /// What it did last for others, when it is a kernel worker.
    pub work: Option<At<Work>>,
    /// Latest moment at which it is known to have existed.
    pub seen: Ns,
    pub exited: Option<(Ns, u32)>,
    /// Who ended the process, where that ended this thread.
    pub ended_by: Option<Segment>,
    /// An interval that had not ended when the recording did is its last.
    pub open: bool,
    /// When the wait reported last as going on had begun, as the report said.
    reported: Option<Ns>,
}

impl ThreadState {
    /// Begin the first vertex if there is none: at `born` if known, else at the recording's begin or
    /// as the catalogue has it.
    pub fn begin(&mut self, id: ThreadId, born: Option<Ns>, now: Ns, catalog: &Catalog) {
        if !self.rows.is_empty() {
            return;
        }
        let start = born.or_else(|| catalog.thread(id).map(|t| t.start)).unwrap_or(0).min(now);
        self.seen = self.seen.max(start);
        self.rows.push(Row {
            number: u32::MAX,
            times: Times { start, woken: start, run: start },
            detail: Detail::running(id, 0, 0),
        });
    }

    /// A long wait is reported while it goes on, in case the recording is cut off; what came of it, or a
    /// later report, replaces that.
    fn replace_report(&mut self, o: &OffCpu) {
        match &mut self.rows[..] {
            [.., last] if last.detail.flags & OPEN == 0 || self.reported != Some(o.start) => {}
            [only] => {
                let start = only.times.start;
                only.times = Times { start, woken: start, run: start };
                only.detail.flags &= !(OPEN | BEGUN_BEFORE);
            }
            _ => drop(self.rows.pop()),
        }
    }

    /// It has been on `cpu` since `time`.
    pub fn on_cpu(&mut self, time: Ns, cpu: u16) {
        if self.cpus.last().is_none_or(|x| x.1 != cpu && x.0 <= time) {
            self.cpus.push((time, cpu));
        }
    }

    /// An interval off the CPU, ended at `time`. Returns whether it began a new vertex.
    pub fn off_cpu(&mut self, id: ThreadId, time: Ns, o: &OffCpu) -> bool {
        self.replace_report(o);
        let Some(last) = self.rows.last_mut() else { return false };
        // Times come from outside: keep them in order whatever they say.
        let time = time.max(self.seen);
        let floor = last.times.run.max(self.put_off.last().map_or(0, |p| p.1));
        let start = o.start.clamp(floor.min(time), time);
        self.seen = time;
        if o.state == OffState::Dead {
            self.exited.get_or_insert((start, 0));
            return false;
        }
        self.open = o.open;
        self.reported = o.open.then_some(o.start);
        if o.state == OffState::Runnable {
            if super::call_is(o.syscall, super::YIELD) {
                self.yields.push(start);
            }
            if last.times.woken == last.times.run && start <= last.times.run && last.detail.flags & OPEN == 0
            {
                last.times.run = time;
            } else if time > start {
                last.detail.preempted += time - start;
                self.put_off.push((start, time));
            }
            return false;
        }
        let never = o.woken == 0 && o.open;
        let woken = if o.woken == 0 { time } else { o.woken.clamp(start, time) };
        let flags = u8::from(never) * OPEN + u8::from(o.begun_before) * BEGUN_BEFORE;
        let row = Row {
            number: u32::MAX,
            times: Times { start, woken, run: time },
            detail: Detail {
                preempted: 0,
                timeout: o.timeout,
                thread: id,
                object: o.object,
                user_stack: o.user_stack,
                kernel_stack: o.kernel_stack,
                op: o.op,
                value: o.value,
                syscall: o.syscall,
                state: o.state,
                flags,
            },
        };
        // A thread that was blocked from its first moment on leads in with that wait.
        match &mut self.rows[..] {
            [first]
                if o.begun_before && first.detail.flags & BEGUN_BEFORE == 0 && self.put_off.is_empty() =>
            {
                let start = first.times.start.min(start);
                *first = Row { number: first.number, times: Times { start, ..row.times }, ..row };
            }
            _ => self.rows.push(row),
        }
        true
    }

    /// Give the last vertex the next number, if it has none.
    pub fn number_last(&mut self, next: &mut u32) {
        if let Some(r) = self.rows.last_mut().filter(|r| r.number == u32::MAX) {
            r.number = *next;
            *next += 1;
        }
    }

    /// Index of the vertex that was running at `time` (the last one on the CPU by then).
    pub fn segment_at(&self, time: Ns) -> Option<u32> {
        let n = self.rows.len();
        // Nearly always among the last ones.
        for i in (n.saturating_sub(6)..n).rev() {
            if self.rows[i].times.run <= time {
                return Some(i as u32);
            }
        }
        let i = self.rows.partition_point(|r| r.times.run <= time);
        (n > 0).then(|| i.saturating_sub(1) as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waits(start: Ns, woken: Ns, open: bool) -> OffCpu {
        OffCpu { open, begun_before: true, ..OffCpu::new(start, woken, OffState::Interruptible) }
    }

    /// The first look at the threads comes a little after the recording's beginning; what is reported while
    /// the wait goes on and its end are one wait, which takes up the whole of it.
    #[test]
    fn a_wait_from_before_the_recording_stays_one() {
        let begun = || {
            let mut t = ThreadState::default();
            t.begin(ThreadId(1), Some(0), 20, &Catalog::default());
            t.off_cpu(ThreadId(1), 750, &waits(20, 0, true));
            t
        };
        let mut never = begun();
        never.off_cpu(ThreadId(1), 2000, &waits(20, 0, true));
        assert_eq!(never.rows.len(), 1);
        let row = never.rows[0];
        assert_eq!((row.times.start, row.times.woken, row.times.run), (0, 2000, 2000));
        assert_eq!(row.detail.flags & (OPEN | BEGUN_BEFORE), OPEN | BEGUN_BEFORE);

        let mut over = begun();
        over.off_cpu(ThreadId(1), 1010, &waits(20, 1000, false));
        assert_eq!(over.rows.len(), 1);
        let row = over.rows[0];
        assert_eq!((row.times.start, row.times.woken, row.times.run), (0, 1000, 1010));
        assert_eq!(row.detail.flags & OPEN, 0);
    }
}
