//! Follows a thread instruction by instruction, in a process of its own: what the child shares with its parent, and
//! how it is begun and ended. Why it is a process of its own, and what it does, is in `child.rs`.
//!
//! The child is forked from a program with threads: it makes system calls on memory that was there before, and
//! nothing else.
#![allow(unsafe_code)] // fork(2), ptrace(2), mmap(2) and the like have no safe wrapper in std.

mod child;

use crate::procfs::{path_of, shown_by};
use child::{Child, disguise};
use std::io;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicI32, AtomicI64, AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Bytes of code kept at each step: more than the longest instruction has.
pub const CODE: usize = 16;

/// Bytes kept of the thread's stack as it was when it was stopped first.
const STACK: usize = 16 << 10;

/// How far a thread is followed.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Instructions.
    pub most: u32,
    /// How long it may sleep in all.
    pub patience: Duration,
    /// How long it is followed.
    pub time: Duration,
}

/// A thread before one of its instructions.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct RawStep {
    /// When (`CLOCK_MONOTONIC`), ns.
    pub time: i64,
    /// The signal that was delivered with the step before, 0 for none.
    pub signal: i32,
    /// Its registers.
    pub regs: libc::user_regs_struct,
    /// What lies at its instruction pointer.
    pub code: [u8; CODE],
}

/// Why the child ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum End {
    /// It was asked to, or has followed as many instructions as it may.
    Enough = 1,
    /// The kernel refused; with its error number.
    Refused = 2,
    /// The thread slept longer than was to be waited for.
    Asleep = 3,
    /// The thread ended.
    Exited = 4,
    /// The next instruction must not be stepped over: it would take the trap flag along.
    Unfit = 5,
    /// The thread was stopped (job control).
    Stopped = 6,
    /// The time was over.
    Time = 7,
}

#[repr(C)]
struct Shared {
    count: AtomicU32,
    /// The parent wants no more.
    stop: AtomicU32,
    /// [`End`], 0 while it goes on.
    end: AtomicU32,
    errno: AtomicI32,
    most: u32,
    /// Bytes in `stack`.
    stacked: AtomicU32,
    /// When the thread was let go of, ns.
    left: AtomicI64,
    stack: [u8; STACK],
    steps: [RawStep; 0],
}

/// A child that follows a thread. Dropped, it is asked to end, and waited for.
pub struct Stepper {
    shared: *mut Shared,
    bytes: usize,
    child: i32,
    ended: bool,
}

/// Begin and length of this process's arguments in memory: what `ps` and `pkill -f` see.
fn arguments() -> (usize, usize) {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after = stat.rsplit_once(") ").map_or("", |s| s.1);
    // Fields 48 and 49 of proc_pid_stat(5); what is left begins with field 3.
    let mut fields = after.split(' ').skip(45).map(|f| f.parse().unwrap_or(0usize));
    let (start, end) = (fields.next().unwrap_or(0), fields.next().unwrap_or(0));
    if start == 0 { (0, 0) } else { (start, end.saturating_sub(start)) }
}

impl Stepper {
    /// Follow a thread.
    ///
    /// # Errors
    /// There can be no further process, or the target's memory cannot be read.
    pub fn start(pid: u32, tid: u32, limits: Limits) -> io::Result<Self> {
        let memory = std::fs::File::open(path_of(shown_by(pid), "mem"))?;
        let bytes = size_of::<Shared>() + limits.most as usize * size_of::<RawStep>();
        // SAFETY: a fresh mapping; the kernel chooses where.
        let room = unsafe {
            let (rights, how) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
            libc::mmap(std::ptr::null_mut(), bytes, rights, how, -1, 0)
        };
        if room == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let shared: *mut Shared = room.cast();
        // SAFETY: zeroed memory of this process alone, large enough.
        unsafe { (*shared).most = limits.most };
        let arguments = arguments();
        // SAFETY: getpid cannot fail.
        let parent = unsafe { libc::getpid() };
        // SAFETY: the child calls nothing but system calls on memory made before, and never returns.
        let child = unsafe { libc::fork() };
        match child {
            -1 => {
                let e = io::Error::last_os_error();
                // SAFETY: mapped above, used by nobody.
                unsafe { libc::munmap(room, bytes) };
                Err(e)
            }
            0 => {
                let child = Child {
                    shared,
                    tid: tid as i32,
                    memory: memory.as_raw_fd(),
                    parent,
                    patience: i64::try_from(limits.patience.as_nanos()).unwrap_or(i64::MAX),
                    time: i64::try_from(limits.time.as_nanos()).unwrap_or(i64::MAX),
                    until: i64::MAX,
                };
                // SAFETY: this is the forked child; see there.
                unsafe {
                    disguise(arguments);
                    child.run()
                }
            }
            _ => Ok(Self { shared, bytes, child, ended: false }),
        }
    }

    fn shared(&self) -> &Shared {
        // SAFETY: mapped until this is dropped; what changes in it are atomics, and steps below `count` do not.
        unsafe { &*self.shared }
    }

    /// How many steps there are.
    pub fn count(&self) -> usize {
        let s = self.shared();
        s.count.load(Ordering::Acquire).min(s.most) as usize
    }

    /// A step; `None` when there is none of that number yet.
    pub fn step(&self, n: usize) -> Option<RawStep> {
        // SAFETY: below `count` a step was written in full before `count` was raised, and lies in the mapping.
        (n < self.count()).then(|| unsafe { *(&raw const (*self.shared).steps).cast::<RawStep>().add(n) })
    }

    /// The thread's stack as it was at the first step, from the stack pointer upward.
    pub fn stack(&self) -> Vec<u8> {
        if self.count() == 0 {
            return Vec::new();
        }
        let s = self.shared();
        s.stack[..(s.stacked.load(Ordering::Acquire) as usize).min(STACK)].to_vec()
    }

    /// When the thread was let go of (`CLOCK_MONOTONIC`), ns; `None` as long as it was not.
    pub fn left(&self) -> Option<u64> {
        u64::try_from(self.shared().left.load(Ordering::Acquire)).ok().filter(|t| *t > 0)
    }

    /// Why it ended, and the error number for [`End::Refused`]; `None` while it goes on.
    pub fn end(&self) -> Option<(End, i32)> {
        let s = self.shared();
        let end = match s.end.load(Ordering::Acquire) {
            0 => return None,
            2 => End::Refused,
            3 => End::Asleep,
            4 => End::Exited,
            5 => End::Unfit,
            6 => End::Stopped,
            7 => End::Time,
            _ => End::Enough,
        };
        Some((end, s.errno.load(Ordering::Acquire)))
    }

    /// Ask it to let go of the thread.
    pub fn stop(&self) {
        self.shared().stop.store(1, Ordering::Release);
    }

    /// The child's number, for tests.
    pub fn child(&self) -> i32 {
        self.child
    }

    /// Has the child ended? Waits for it for so long.
    pub fn wait(&mut self, most: Duration) -> bool {
        let begin = Instant::now();
        while !self.ended {
            let mut status = 0;
            // SAFETY: `status` is a valid place for the result; the child is ours.
            let got = unsafe { libc::waitpid(self.child, &raw mut status, libc::WNOHANG) };
            self.ended = got == self.child
                || (got < 0 && io::Error::last_os_error().kind() != io::ErrorKind::Interrupted);
            if self.ended || begin.elapsed() > most {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        self.ended
    }
}

impl Drop for Stepper {
    fn drop(&mut self) {
        self.stop();
        // A thread in an uninterruptible sleep cannot be let go of before it wakes: its child then stays for so long.
        if self.wait(Duration::from_secs(2)) {
            // SAFETY: mapped in `start`; the child has ended, and no reference outlives this.
            unsafe { libc::munmap(self.shared.cast(), self.bytes) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_of_this_process() {
        let (start, len) = arguments();
        assert!(start > 0 && len > 4, "{start} {len}");
    }
}
