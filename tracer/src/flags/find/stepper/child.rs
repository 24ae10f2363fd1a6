//! The process that follows a thread: steps and stops.
//!
//! The kernel leaves the trap flag of a thread set when its tracer is killed between two steps; the next instruction
//! then ends the whole target with SIGTRAP. So the tracer is a child that nobody has a reason to kill: in a session of its
//! own, with a name and command line of its own, deaf to every signal it can be deaf to. It looks at each step whether its parent is still there, and lets go of the thread if not.
//!
//! Were it killed all the same, the target would die only if it had to take a step just then: while it is in a system
//! call (PTRACE_SYSCALL) and while it sleeps in one the trap flag is not set, and a stop at a call's begin or end leaves
//! nothing behind.
//!
//! For steps within the program this cannot be helped. PTRACE_SINGLESTEP sets the flag in the thread's registers and a
//! trap at the end of its system calls; both stay until the tracer itself continues or leaves it (kernel:
//! `user_disable_single_step` is called by requests, not by `exit_ptrace`, which only unlinks). What becomes of a thread
//! whose tracer is killed by SIGKILL, ten times each (Linux 6.18, x86-64):
//!
//! | killed | computes | makes system calls |
//! |---|---|---|
//! | while it executes a step | dead | dead |
//! | stopped after a step, waited for or not | dead | dead |
//! | the same, the flag taken from its registers (PTRACE_SETREGS, twice) | lives | dead: the trap after calls |
//! | the same, then continued by PTRACE_CONT into a PTRACE_INTERRUPT | lives | lives |
//! | stopped at a system call | - | lives |
//!
//! The fourth does it for all but the moment of the step itself, but that moment is half of the time: tried here, 9 of
//! 20 targets that compute died instead of 20 of 20, and the traces were a third shorter. Not done: it costs every trace,
//! and mends no case. Hardware breakpoints in place of the flag trap as well when nobody traces (those of ptrace stay in
//! the thread, those of perf with `sigtrap` may be on their way), and nobody can take a tracer's place: its last deed
//! must be done by the task that traces, and SIGKILL ends all threads of a process at once.
#![allow(unsafe_code)] // ptrace(2), waitpid(2) and the like have no safe wrapper in std.

use super::{CODE, End, RawStep, STACK, Shared};
use crate::clock::monotonic;
use std::sync::atomic::Ordering;

/// The thread is waited for so long until it stops for the first time, ns: there may be others that run.
const FIRST: i64 = 1_000_000_000;
/// The parent and the time are looked at this often while the thread sleeps, ns.
const LOOK: i64 = 10_000_000;

/// A session, a name and a command line of its own: `Ctrl-C`, `killall pg-tui` and `pkill -f pg-tui` do not mean it.
///
/// # Safety
/// To be called in a forked child; `arguments` is where the arguments of the process lie.
pub(super) unsafe fn disguise((start, len): (usize, usize)) {
    // SAFETY: system calls with valid arguments; the arguments' memory is this process's own copy.
    unsafe {
        libc::setsid();
        libc::prctl(libc::PR_SET_NAME, c"pg-stepper".as_ptr());
        if len > 11 {
            let at = start as *mut u8;
            for i in 0..len {
                at.add(i).write_volatile(0);
            }
            for (i, b) in b"pg-stepper".iter().enumerate() {
                at.add(i).write_volatile(*b);
            }
        }
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const all, std::ptr::null_mut());
        libc::signal(libc::SIGCHLD, libc::SIG_DFL);
        // The last to be killed when memory is short. Needs rights; without them it stays as it is.
        let file = libc::open(c"/proc/self/oom_score_adj".as_ptr(), libc::O_WRONLY);
        if file >= 0 {
            libc::write(file, c"-1000".as_ptr().cast(), 5);
            libc::close(file);
        }
    }
}

/// What the forked process needs.
pub(super) struct Child {
    pub shared: *mut Shared,
    pub tid: i32,
    pub memory: i32,
    pub parent: i32,
    /// How long the thread may sleep in all, ns.
    pub patience: i64,
    /// How long it is followed, ns, and until when: that is known once it has stopped for the first time.
    pub time: i64,
    pub until: i64,
}

/// What the thread does after a step.
#[derive(Clone, Copy)]
enum State {
    /// It stopped after its step.
    Stepped,
    /// It stopped at the begin or the end of a system call.
    AtCall,
    /// It stopped, since this signal is to be delivered.
    Signal(i32),
    /// It was stopped otherwise.
    Stopped,
    Exited,
    /// It is still on its way, and that takes too long, or nobody wants to know any more.
    Away(End),
}

fn errno() -> i32 {
    // SAFETY: the calling thread's own.
    unsafe { *libc::__errno_location() }
}

fn now() -> i64 {
    monotonic() as i64
}

/// A stop at the begin or end of a system call, since PTRACE_O_TRACESYSGOOD is set.
const AT_CALL: i32 = libc::SIGTRAP | 0x80;

/// Calls not to be stepped over: vfork, execve, exit, exit_group and execveat, since nothing that follows has to do with
/// the loop; msgrcv, msgsnd, semop, semtimedop, rt_sigtimedwait, pause, rt_sigsuspend, io_getevents and epoll_pwait2,
/// since they fail with EINTR if the thread must be stopped while it waits in them.
const NEVER: [u64; 14] = [58, 59, 60, 231, 322, 70, 69, 65, 220, 128, 34, 130, 208, 441];
/// epoll_wait and epoll_pwait fail, too, but say how long they wait.
const EPOLL: [u64; 2] = [232, 281];

/// Must the instruction not be stepped over? `pushf` stores the trap flag, and a later `popf` would set it again
/// when nobody traces any more; `int3` and the like stop by themselves.
fn unfit(code: &[u8; CODE], regs: &libc::user_regs_struct, patience: i64) -> bool {
    // Prefixes of operand size and REX.
    let at = code.iter().position(|b| *b != 0x66 && !(0x40..=0x4f).contains(b)).unwrap_or(0);
    match (code[at], code.get(at + 1)) {
        // pushf, int3, int, int1
        (0x9c | 0xcc | 0xcd | 0xf1, _) => true,
        (0x0f, Some(0x05)) => {
            // In ms, negative for ever.
            let timeout = i64::from(regs.r10 as i32);
            let long = timeout < 0 || timeout * 1_000_000 > patience;
            NEVER.contains(&regs.rax) || EPOLL.contains(&regs.rax) && long
        }
        _ => false,
    }
}

impl Child {
    fn shared(&self) -> &Shared {
        // SAFETY: mapped for as long as this process lives.
        unsafe { &*self.shared }
    }

    fn ptrace(&self, request: libc::c_uint, address: usize, data: usize) -> i64 {
        // SAFETY: the requests used here take numbers, or the address of room that is large enough.
        unsafe { libc::ptrace(request, self.tid, address, data) }
    }

    /// Does anybody still want to know?
    fn unwanted(&self) -> bool {
        // SAFETY: getppid cannot fail.
        self.shared().stop.load(Ordering::Acquire) != 0 || unsafe { libc::getppid() } != self.parent
    }

    /// Why it should be followed no longer.
    fn over(&self) -> Option<End> {
        if self.unwanted() {
            Some(End::Enough)
        } else if now() >= self.until {
            Some(End::Time)
        } else {
            None
        }
    }

    fn finish(&self, end: End, errno: i32) -> ! {
        self.shared().left.store(now(), Ordering::Release);
        self.shared().errno.store(errno, Ordering::Release);
        self.shared().end.store(end as u32, Ordering::Release);
        // SAFETY: ends this process without running anything of its parent's.
        unsafe { libc::_exit(0) }
    }

    /// Wait for the thread to stop; `forever`: whatever happens.
    fn wait(&mut self, forever: bool) -> State {
        loop {
            let mut status = 0;
            // SAFETY: `status` is a valid place for the result.
            let got = unsafe { libc::waitpid(self.tid, &raw mut status, libc::__WALL | libc::WNOHANG) };
            if got == self.tid {
                return self.state(status);
            }
            if got < 0 {
                return State::Exited;
            }
            let begin = now();
            // SAFETY: a set of signals and a time, both valid. SIGCHLD is blocked: it waits to be taken.
            unsafe {
                let mut set: libc::sigset_t = std::mem::zeroed();
                libc::sigemptyset(&raw mut set);
                libc::sigaddset(&raw mut set, libc::SIGCHLD);
                // No longer than there is time, or a thread that sleeps would be held over it.
                let left = if forever { LOOK } else { (self.until - begin).clamp(100_000, LOOK) };
                let most = libc::timespec { tv_sec: 0, tv_nsec: left };
                libc::sigtimedwait(&raw const set, std::ptr::null_mut(), &raw const most);
            }
            let waited = now() - begin;
            if waited >= LOOK / 2 || !forever && now() >= self.until {
                self.patience -= waited;
            }
            if !forever {
                if self.unwanted() {
                    return State::Away(End::Enough);
                }
                if self.patience <= 0 {
                    return State::Away(End::Asleep);
                }
                if now() >= self.until {
                    return State::Away(End::Time);
                }
            }
        }
    }

    fn state(&self, status: i32) -> State {
        if !libc::WIFSTOPPED(status) {
            return State::Exited;
        }
        let signal = libc::WSTOPSIG(status);
        if status >> 16 == libc::PTRACE_EVENT_STOP {
            return if signal == libc::SIGTRAP { State::Stepped } else { State::Stopped };
        }
        if signal == AT_CALL {
            return State::AtCall;
        }
        if signal != libc::SIGTRAP {
            return State::Signal(signal);
        }
        // A trap of the kernel's making is the step's; one that was sent is the program's own.
        // SAFETY: plain old data, filled by the kernel.
        let info: libc::siginfo_t = unsafe { std::mem::zeroed() };
        let got = self.ptrace(libc::PTRACE_GETSIGINFO, 0, &raw const info as usize);
        if got == 0 && info.si_code <= 0 { State::Signal(signal) } else { State::Stepped }
    }

    /// Is a trap of a step on its way to the thread, which is stopped for another reason?
    fn trap_pending(&self) -> bool {
        /// `struct ptrace_peeksiginfo_args` (ptrace(2)).
        #[repr(C)]
        struct Peek {
            offset: u64,
            flags: u32,
            count: i32,
        }
        const ROOM: usize = 16;
        let peek = Peek { offset: 0, flags: 0, count: ROOM as i32 };
        // SAFETY: plain old data, filled by the kernel.
        let mut infos: [libc::siginfo_t; ROOM] = unsafe { std::mem::zeroed() };
        let n = self.ptrace(libc::PTRACE_PEEKSIGINFO, &raw const peek as usize, infos.as_mut_ptr() as usize);
        let n = usize::try_from(n).unwrap_or(0).min(ROOM);
        infos[..n].iter().any(|i| i.si_signo == libc::SIGTRAP && i.si_code > 0)
    }

    /// Let go of the thread, which is stopped. A trap that is still on its way would kill it: that is taken first.
    fn let_go(&mut self, mut signal: i32, end: End) -> ! {
        while self.trap_pending() {
            self.ptrace(libc::PTRACE_CONT, 0, signal as usize);
            signal = match self.wait(true) {
                State::Signal(s) => s,
                State::Exited => self.finish(End::Exited, 0),
                _ => 0,
            };
        }
        self.ptrace(libc::PTRACE_DETACH, 0, signal as usize);
        self.finish(end, 0)
    }

    /// The thread is on its way: stop it, however long that takes, and let go of it.
    fn fetch(&mut self, end: End) -> ! {
        self.shared().errno.store(0, Ordering::Release);
        self.shared().end.store(end as u32, Ordering::Release);
        self.ptrace(libc::PTRACE_INTERRUPT, 0, 0);
        match self.wait(true) {
            State::Signal(s) => self.let_go(s, end),
            State::Exited => self.finish(End::Exited, 0),
            _ => self.let_go(0, end),
        }
    }

    /// Follow the thread until there is a reason to let go of it.
    pub(super) fn run(mut self) -> ! {
        if self.ptrace(libc::PTRACE_SEIZE, 0, libc::PTRACE_O_TRACESYSGOOD as usize) < 0 {
            self.finish(End::Refused, errno());
        }
        if self.ptrace(libc::PTRACE_INTERRUPT, 0, 0) < 0 {
            self.finish(End::Refused, errno());
        }
        // It may not get a CPU at once.
        let patience = self.patience;
        self.patience = patience.max(FIRST);
        self.until = now().saturating_add(self.patience);
        let mut state = self.wait(false);
        self.patience = patience;
        self.until = now().saturating_add(self.time);
        loop {
            let signal = match state {
                State::Stepped | State::AtCall => 0,
                State::Signal(s) => s,
                State::Stopped => self.let_go(0, End::Stopped),
                State::Exited => self.finish(End::Exited, 0),
                State::Away(end) => self.fetch(end),
            };
            let n = self.shared().count.load(Ordering::Relaxed);
            if n >= self.shared().most {
                self.let_go(signal, End::Enough);
            }
            if let Some(end) = self.over() {
                self.let_go(signal, end);
            }
            // SAFETY: plain old data.
            let mut step: RawStep = unsafe { std::mem::zeroed() };
            (step.time, step.signal) = (now(), signal);
            if self.ptrace(libc::PTRACE_GETREGS, 0, &raw mut step.regs as usize) < 0 {
                self.let_go(signal, End::Exited);
            }
            if n == 0 {
                self.keep_stack(step.regs.rsp);
            }
            // SAFETY: `code` has room for so many bytes; the descriptor is open. Fewer are there at the end of a page.
            unsafe {
                libc::pread(self.memory, step.code.as_mut_ptr().cast(), CODE, step.regs.rip as i64);
                let at = (&raw mut (*self.shared).steps).cast::<RawStep>().add(n as usize);
                at.write(step);
            }
            self.shared().count.store(n + 1, Ordering::Release);
            if unfit(&step.code, &step.regs, self.patience.min(self.time)) {
                self.let_go(signal, End::Unfit);
            }
            // With a signal on its way the next thing executed is its handler.
            state = if signal == 0 && is_call(&step.code) { self.call() } else { self.step(signal) };
        }
    }

    /// The stack as it is now, for who wants to know the callers.
    fn keep_stack(&self, from: u64) {
        // SAFETY: `stack` has room for so many bytes, and nobody reads them before `stacked` says how many there are.
        let n =
            unsafe { libc::pread(self.memory, (&raw mut (*self.shared).stack).cast(), STACK, from as i64) };
        self.shared().stacked.store(u32::try_from(n).unwrap_or(0), Ordering::Release);
    }

    /// One instruction within the program.
    fn step(&mut self, signal: i32) -> State {
        if self.ptrace(libc::PTRACE_SINGLESTEP, 0, signal as usize) < 0 {
            self.let_go(0, End::Exited);
        }
        self.wait(false)
    }

    /// A system call, without the trap flag: from before it to its end.
    fn call(&mut self) -> State {
        let mut entered = false;
        loop {
            if self.ptrace(libc::PTRACE_SYSCALL, 0, 0) < 0 {
                self.let_go(0, End::Exited);
            }
            match self.wait(false) {
                State::AtCall if !entered => entered = true,
                State::Away(End::Time) => return State::Away(End::Asleep),
                other => return other,
            }
        }
    }
}

/// Is it `syscall`, without prefixes that nobody writes?
fn is_call(code: &[u8; CODE]) -> bool {
    code[..2] == [0x0f, 0x05]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_stepped_over() {
        // SAFETY: plain old data.
        let mut regs: libc::user_regs_struct = unsafe { std::mem::zeroed() };
        let code = |bytes: &[u8]| {
            let mut c = [0x90; CODE];
            c[..bytes.len()].copy_from_slice(bytes);
            c
        };
        let unfit =
            |bytes: &[u8], regs: &libc::user_regs_struct| super::unfit(&code(bytes), regs, 1_000_000_000);
        assert!(unfit(&[0x9c], &regs) && unfit(&[0x66, 0x9c], &regs) && unfit(&[0xcc], &regs));
        assert!(!unfit(&[0x90], &regs) && !unfit(&[0x0f, 0x05], &regs), "nop; read");
        regs.rax = 59;
        assert!(unfit(&[0x0f, 0x05], &regs), "execve");
        (regs.rax, regs.r10) = (232, u64::MAX);
        assert!(unfit(&[0x0f, 0x05], &regs), "epoll_wait without a time-out");
        regs.r10 = 20;
        assert!(!unfit(&[0x0f, 0x05], &regs), "epoll_wait for 20 ms");
    }
}
