//! For how long a thread has slept already when it is looked at for the first time.
//!
//! `/proc/TID/sched` tells until when a thread last ran (`se.exec_start`, kernels with CONFIG_SCHED_DEBUG; since 6.15
//! all), by the clock of the CPU it ran on. Each CPU has its own, which stands still while the hypervisor or
//! interrupts have that CPU. What these clocks show now is read of a thread of ours, which goes to each CPU it may
//! use for the moment that a switch takes; CPUs taken out of what programs may use (`isolcpus`) are left alone.
#![allow(unsafe_code)] // sched_getaffinity(2) and sched_setaffinity(2) have no safe wrapper in std.

use crate::procfs;
use pg_event::Ns;
use std::path::Path;

/// Most CPUs that are asked.
const CPUS: usize = 1024;
/// Most bytes of `/proc/TID/sched`.
const SIZE: usize = 16 << 10;

/// What the clocks of the CPUs show at one moment; none where that is not known.
pub struct Clocks(Vec<Option<Ns>>);

/// Set of CPUs, as the kernel takes it.
type Set = [u64; CPUS / 64];

impl Clocks {
    /// Read them, on a thread of its own: where the asking thread may run stays as it is.
    pub fn read() -> Self {
        let reader = std::thread::Builder::new().name("pg-clocks".into()).spawn(|| {
            let of =
                |cpu: usize| run_on(cpu).then(|| last_ran(Path::new("/proc/thread-self/sched"))).flatten();
            let may = allowed();
            (0..CPUS).map(|cpu| if has(&may, cpu) { of(cpu) } else { None }).collect()
        });
        Self(reader.ok().and_then(|r| r.join().ok()).unwrap_or_default())
    }

    /// For how long a thread had not run at the moment they were read; 0 for one that runs since. `cpu` is where it ran
    /// last. `None` when it cannot be told.
    pub fn asleep(&self, pid: u32, tid: u32, cpu: usize) -> Option<Ns> {
        let clock = (*self.0.get(cpu)?)?;
        Some(clock.saturating_sub(last_ran(&procfs::path_of(pid, &format!("task/{tid}/sched")))?))
    }
}

fn last_ran(path: &Path) -> Option<Ns> {
    parse(&procfs::read_bounded(path, SIZE).ok()?)
}

/// `se.exec_start`, which is printed in ms with six digits after the point.
fn parse(text: &[u8]) -> Option<Ns> {
    String::from_utf8_lossy(text).lines().find_map(|line| {
        let (ms, ns) =
            line.strip_prefix("se.exec_start")?.trim_start().strip_prefix(':')?.trim().split_once('.')?;
        if ns.len() != 6 {
            return None;
        }
        let at = ms.parse::<Ns>().ok()?.checked_mul(1_000_000)?.checked_add(ns.parse().ok()?)?;
        // One that has not run yet.
        (at > 0).then_some(at)
    })
}

fn has(set: &Set, cpu: usize) -> bool {
    set[cpu / 64] & (1 << (cpu % 64)) != 0
}

/// CPUs that the calling thread may use; none when there are more than we have room for.
fn allowed() -> Set {
    let mut set: Set = [0; CPUS / 64];
    // SAFETY: the kernel writes at most the size of `set`, which is plain numbers.
    if unsafe { libc::sched_getaffinity(0, size_of::<Set>(), set.as_mut_ptr().cast()) } < 0 {
        return [0; CPUS / 64];
    }
    set
}

/// Moves the calling thread to a CPU.
fn run_on(cpu: usize) -> bool {
    let mut set: Set = [0; CPUS / 64];
    set[cpu / 64] |= 1 << (cpu % 64);
    // SAFETY: the kernel reads `size_of::<Set>()` bytes of `set`; only the calling thread is concerned.
    unsafe { libc::sched_setaffinity(0, size_of::<Set>(), set.as_ptr().cast()) == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::process::{Command, Stdio};
    use std::time::{Duration, Instant};

    #[test]
    fn the_line_of_the_kernel_is_read_and_no_other() {
        let file = b"se.exec_start:1 (7, #threads: 1)\n-----\nse.exec_start                                :        \
                     36524461.978167\nse.vruntime                                  :        741561.533251\n";
        assert_eq!(parse(file), Some(36_524_461_978_167));
        assert_eq!(parse(b"se.exec_start : 0.000000\n"), None);
        assert_eq!(parse(b"se.exec_start : 99999999999999999999.000000\n"), None);
        assert_eq!(parse(b"x (1, #threads: 1)\n"), None);
    }

    /// For how long a child is told to have slept that has for at least `long`, and for how long it has.
    fn slept_at_least(long: Duration) -> Option<(Ns, Ns)> {
        let mut sleep = Command::new("sleep").arg("60").stdin(Stdio::null()).spawn().unwrap();
        let pid = sleep.id();
        let stat = || procfs::read_stat(pid).filter(|s| s.comm == b"sleep" && s.state == b'S');
        while stat().is_none() {
            std::thread::yield_now();
        }
        let begin = Instant::now();
        std::thread::sleep(long);
        let at_least = begin.elapsed().as_nanos() as Ns;
        let clocks = Clocks::read();
        let asleep = stat().and_then(|s| clocks.asleep(pid, pid, s.cpu as usize));
        let _ = sleep.kill();
        let _ = sleep.wait();
        Some((asleep?, at_least))
    }

    #[test]
    fn a_sleeper_has_slept_since_it_began_to() {
        if last_ran(Path::new("/proc/thread-self/sched")).is_none() {
            println!("skipped: this kernel has no /proc/PID/sched");
            return;
        }
        let own = allowed();
        // A sleeper that the kernel moves to another CPU once it sleeps (it may, from 6.12 on) has no time any more.
        let told = (0..5).find_map(|_| slept_at_least(Duration::from_millis(300)));
        let (asleep, at_least) = told.expect("where it runs, we may run too");
        // The clock stands still where the hypervisor has the CPU.
        assert!(asleep >= at_least / 2, "{asleep} {at_least}");
        assert!(asleep < at_least + 60_000_000_000, "{asleep}");
        assert!((0..CPUS).filter(|c| has(&own, *c)).count() >= 1, "the asking thread may run where it might");
        assert_eq!(own, allowed());
    }

    proptest! {
        #[test]
        fn takes_anything(bytes in prop::collection::vec(any::<u8>(), 0..200), n in any::<u64>()) {
            parse(&bytes);
            parse(format!("se.exec_start : {n}.{n:06}").as_bytes());
        }
    }
}
