//! Loops on the CPU, as samples show them: the same calls, or the same few instructions, all the time.

/// Samples looked at together: at the usual 99 Hz, of a quarter of a second.
pub(super) const SAMPLES: u32 = 24;
/// They must have come within this, else the thread does not spin.
const SAMPLES_NS: u64 = 3_000_000_000;
/// A loop without system calls is found in at most so many cache lines of code: its own, and those of a function
/// or two that it calls.
const LINES: usize = 8;
/// System calls in which a loop that waits for nothing is found (x86-64): poll, select, epoll_wait and their
/// kin, sched_yield, nanosleep, futex, locks, waits for children, non-blocking receptions, semaphores, stat.
const POLLS: &[u16] =
    &[4, 7, 23, 24, 35, 42, 43, 45, 47, 61, 72, 73, 202, 220, 230, 232, 247, 262, 270, 271, 281, 288, 441];
/// Those that most programs make to do something, and that a loop repeats when they fail at once (x86-64): to read, to
/// write and to send without blocking, to open, make and link files. A thread has one burst only for these.
const WORKS: &[u16] = &[0, 1, 2, 19, 20, 44, 46, 83, 86, 257];

/// Where a thread was found on the CPU.
#[derive(Default)]
pub(super) struct OnCpu {
    since: u64,
    count: u32,
    /// In the kernel, in calls that ask.
    in_call: u32,
    /// ... or that do something, or fail at once.
    in_work: u32,
    /// In other ones, or in none.
    elsewhere: u32,
    /// Cache lines of the instructions in user mode; `None`: more than a loop has.
    lines: Option<Vec<u64>>,
}

/// What samples show of a thread.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Turns {
    /// It asks again and again.
    Loops,
    /// It works, or tries in vain.
    May,
}

/// Where a sample was taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// In user mode, at this address.
    User(u64),
    /// In the kernel, in this system call.
    Call(u16),
    /// In the kernel otherwise.
    Kernel,
}

impl OnCpu {
    /// One more sample; whether it completes a number of them that shows a loop (`pauses`: also one that makes no
    /// calls), or what may be one.
    pub fn take(&mut self, place: Place, now: u64, pauses: bool) -> Option<Turns> {
        if self.count == 0 || now.saturating_sub(self.since) > SAMPLES_NS {
            *self = Self { since: now, lines: Some(Vec::new()), ..Self::default() };
        }
        self.count += 1;
        match place {
            Place::User(ip) => {
                let line = ip / 64;
                if let Some(lines) = &mut self.lines
                    && !lines.contains(&line)
                {
                    lines.push(line);
                    if lines.len() > LINES {
                        self.lines = None;
                    }
                }
            }
            // A loop may ask by two calls: poll, and then accept, which fails.
            Place::Call(nr) if POLLS.contains(&nr) => self.in_call += 1,
            Place::Call(nr) if WORKS.contains(&nr) => self.in_work += 1,
            Place::Call(_) | Place::Kernel => self.elsewhere += 1,
        }
        if self.count < SAMPLES {
            return None;
        }
        // Interrupts and page faults are everywhere.
        let few = self.elsewhere <= SAMPLES / 8;
        let polls = self.in_call >= SAMPLES / 4 && self.in_work <= SAMPLES / 8;
        let pauses = pauses && self.in_call + self.in_work == 0 && self.lines.is_some();
        let may = self.in_call + self.in_work >= SAMPLES / 4;
        *self = Self::default();
        match few {
            true if polls || pauses => Some(Turns::Loops),
            true if may => Some(Turns::May),
            _ => None,
        }
    }
}
