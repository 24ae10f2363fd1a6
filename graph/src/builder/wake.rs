//! What a wake-up was: kind and strength of its edge, or why it makes none.

use super::calls::{
    self, CHILD, EXEC, EXIT, FILE_LOCK, FUTEX, KILL, POLL, RECV, SEND, SIGWAIT, SLEEP, SPAWN,
};
use super::related::{Fit, fit};
use super::thread::Role;
use crate::{EdgeKind, Weak};
use pg_event::{Catalog, Context, Ns, ObjectKind, OffCpu, OffState};

/// Who woke, as far as it matters.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waker {
    pub role: Role,
    /// It had already begun to exit.
    pub exiting: bool,
    /// Thread id as its own namespace counts (what a join waits for).
    pub ns_tid: u32,
    /// Whom it woke is of its process.
    pub kin: bool,
}

/// What came of a wake-up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    /// An edge from the waker.
    Edge(EdgeKind, Option<Weak>),
    /// The wakee's own time-out.
    TimedOut,
    /// A timer that somebody armed: look for him.
    Armed,
    /// A packet came in: look for its sender.
    Packet,
    /// An interrupt without a known origin.
    Interrupt,
    /// Keeps the scheduler going.
    Maintenance,
    /// By the recorder.
    Own,
    /// Nobody known.
    Unknown,
}

/// Judge the wake-up that ended `o`; `waker` is whoever was on the CPU.
pub(crate) fn judge(o: &OffCpu, wakee: Role, waker: Option<Waker>, catalog: &Catalog) -> Verdict {
    let interrupted = matches!(o.waker_context, Context::SoftIrq | Context::HardIrq);
    if wakee == Role::Maintenance {
        return Verdict::Maintenance;
    }
    if o.waker_context == Context::Timer {
        return timer(o, catalog);
    }
    let Some(w) = waker else {
        return match o.waker_context {
            Context::NetRx => Verdict::Packet,
            _ if interrupted => Verdict::Interrupt,
            _ if own_time_out(o) => Verdict::TimedOut,
            _ => Verdict::Unknown,
        };
    };
    match o.waker_context {
        Context::NetRx => {
            // On loopback the softirq runs inside the sender's call; else the thread only happened to be there.
            let sends = calls::is(o.waker_syscall, SEND | RECV);
            match fit(o.object, o.waker_object, catalog) {
                Fit::Same if sends || w.exiting => return Verdict::Edge(EdgeKind::Ipc, None),
                Fit::Open if calls::is(o.waker_syscall, SEND) && is_network(o, catalog) => {
                    return Verdict::Edge(EdgeKind::Ipc, Some(Weak::InterruptInferred));
                }
                _ => return Verdict::Packet,
            }
        }
        Context::Task => {}
        // The waker is who submitted the disk request that was completed.
        _ if interrupted && by_disk(o, catalog) => {
            let kind = if w.role == Role::Worker { EdgeKind::Work } else { EdgeKind::WakeUp };
            return Verdict::Edge(kind, Some(Weak::InterruptInferred));
        }
        _ if interrupted => return Verdict::Interrupt,
        _ if own_time_out(o) => return Verdict::TimedOut,
        _ => return Verdict::Unknown,
    }
    match w.role {
        Role::Maintenance => return Verdict::Maintenance,
        Role::Own => return Verdict::Own,
        _ => {}
    }
    let (kind, weak) = by_task(o, wakee, w, catalog);
    Verdict::Edge(kind, weak)
}

/// Is the waker's object a socket that crosses the network stack?
fn is_network(o: &OffCpu, catalog: &Catalog) -> bool {
    catalog
        .object(o.waker_object)
        .is_none_or(|x| matches!(x.kind, ObjectKind::Tcp | ObjectKind::Udp | ObjectKind::Socket))
}

/// Did the completion of a disk request end the wait?
fn by_disk(o: &OffCpu, catalog: &Catalog) -> bool {
    catalog.object(o.waker_object).is_some_and(|x| x.kind == ObjectKind::BlockDevice)
}

fn has_time_out(o: &OffCpu) -> bool {
    o.timeout != 0 && o.timeout != u64::MAX
}

/// Without a recorded waker: did it wait as long as it wanted to?
fn own_time_out(o: &OffCpu) -> bool {
    calls::is(o.syscall, SLEEP) || (has_time_out(o) && o.woken.saturating_sub(o.start) >= o.timeout)
}

fn timer(o: &OffCpu, catalog: &Catalog) -> Verdict {
    if calls::is(o.syscall, SLEEP) {
        return Verdict::TimedOut;
    }
    let waits_for_timer = |k: ObjectKind| matches!(k, ObjectKind::TimerFd | ObjectKind::Timer);
    let timers = catalog.object(o.object).is_some_and(|x| {
        waits_for_timer(x.kind)
            || x.members.iter().any(|m| catalog.object(*m).is_some_and(|m| waits_for_timer(m.kind)))
    });
    // Timers of the kernel are late, never early.
    if has_time_out(o) && (!timers || o.woken.saturating_sub(o.start) >= o.timeout) {
        return Verdict::TimedOut;
    }
    if timers || calls::is(o.syscall, SIGWAIT) { Verdict::Armed } else { Verdict::Interrupt }
}

/// Did a timer that sends a signal (setitimer, alarm) interrupt the wait? A call that has no time-out and waits for no
/// timer is ended by nothing else of the kind; connections have timers of the kernel's own.
pub(crate) fn by_alarm(o: &OffCpu, catalog: &Catalog) -> bool {
    o.waker_context == Context::Timer
        && o.state == OffState::Interruptible
        && o.syscall.is_some()
        && !has_time_out(o)
        && catalog.object(o.object).is_none_or(|x| x.kind != ObjectKind::Tcp)
}

fn by_task(o: &OffCpu, wakee: Role, w: Waker, catalog: &Catalog) -> (EdgeKind, Option<Weak>) {
    let waits_for_signal = calls::is(o.syscall, SIGWAIT)
        || matches!(o.state, OffState::Stopped | OffState::Traced)
        || catalog.object(o.object).is_some_and(|x| {
            let is = |k| k == ObjectKind::SignalFd;
            is(x.kind) || x.members.iter().any(|m| catalog.object(*m).is_some_and(|m| is(m.kind)))
        });
    if calls::is(o.waker_syscall, KILL) {
        return (EdgeKind::WakeUp, (!waits_for_signal).then_some(Weak::Signal));
    }
    let differs = |kind: EdgeKind| match fit(o.object, o.waker_object, catalog) {
        Fit::Differs => (kind, Some(Weak::ObjectMismatch)),
        _ => (kind, None),
    };
    // That kills the other threads of the process, whatever they wait for.
    if w.kin && calls::is(o.waker_syscall, EXIT) && o.waker_syscall.is_any(&["exit_group"]) {
        return (EdgeKind::Exit, Some(Weak::Signal));
    }
    if w.exiting || calls::is(o.waker_syscall, EXIT) {
        let futex = calls::is(o.syscall, FUTEX);
        // A join waits on the word that holds the thread's id; other words are freed as robust locks.
        let joined = o.value == w.ns_tid;
        return match () {
            () if futex && !joined => (EdgeKind::Futex, None),
            () => (EdgeKind::Exit, None),
        };
    }
    if calls::is(o.syscall, CHILD) {
        return (EdgeKind::WakeUp, None);
    }
    if calls::is(o.syscall, SPAWN) && calls::is(o.waker_syscall, EXEC) {
        return (EdgeKind::WakeUp, None);
    }
    if calls::is(o.syscall, FUTEX) || calls::is(o.waker_syscall, FUTEX) {
        return match (calls::is(o.syscall, FUTEX), calls::is(o.waker_syscall, FUTEX)) {
            (true, true) => differs(EdgeKind::Futex),
            // Only a futex call, an exit or a signal ends a futex wait.
            (true, false) if o.waker_syscall.is_some() => (EdgeKind::Futex, Some(Weak::ObjectMismatch)),
            (true, false) => (EdgeKind::Futex, None),
            (false, _) => differs(EdgeKind::WakeUp),
        };
    }
    // Who releases a file lock gives exactly what was waited for: strong, unlike a mutex' hand-off,
    // where the waiter is only one of those who may try next.
    if calls::is(o.syscall, FILE_LOCK) && is_lock(o, catalog) {
        return (EdgeKind::WakeUp, None);
    }
    let transfers = calls::is(o.waker_syscall, SEND | RECV);
    let takes = calls::is(o.syscall, SEND | RECV | POLL);
    let same = fit(o.object, o.waker_object, catalog) == Fit::Same;
    if w.role == Role::Worker || wakee == Role::Worker {
        return (EdgeKind::Work, None);
    }
    if same || (transfers && takes) {
        return differs(EdgeKind::Ipc);
    }
    differs(EdgeKind::WakeUp)
}

fn is_lock(o: &OffCpu, catalog: &Catalog) -> bool {
    catalog.object(o.object).is_none_or(|x| matches!(x.kind, ObjectKind::FileLock | ObjectKind::File))
}

/// Was the waker's time on the CPU at `woken` after its own exit began?
pub(crate) fn exiting(exited: Option<(Ns, u32)>, woken: Ns) -> bool {
    exited.is_some_and(|(t, _)| t <= woken)
}
