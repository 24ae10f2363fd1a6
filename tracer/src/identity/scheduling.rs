//! How the kernel schedules threads: read of who waited long for a CPU, of who had one for long, and of who is there at
//! the end.

use super::Identity;
use crate::procfs;
use pg_event::{Ns, Scheduling, ThreadId};
use std::path::Path;

/// A thread is read again after so long: on a busy machine many wait for a CPU, again and again.
const AGAIN: Ns = 5_000_000_000;
/// Who had a CPU for so long, ns, may be why another one had none, and may have ended when that one has it.
const BUSY: Ns = 250_000_000;
/// Most threads that are read at the end; of others remains what was read of them before.
const MOST: usize = 16_384;

impl Identity {
    /// Read how a thread is scheduled at `now`, unless that was done lately. A thread that is gone keeps what is known of it.
    pub fn note_scheduling(&mut self, id: ThreadId, now: Ns) {
        let Some(slot) = self.threads.get_mut(id.index()) else { return };
        let lately = slot.scheduling_read.is_some_and(|at| now < at.saturating_add(AGAIN));
        if lately || slot.row.end.is_some() || slot.row.tid == 0 {
            return;
        }
        slot.scheduling_read = Some(now);
        if let Some(seen) = read(slot.row.tid, &online()) {
            self.set_scheduling(id, seen);
        }
    }

    /// It had a CPU for another `ran` ns until `now`.
    pub fn note_ran(&mut self, id: ThreadId, ran: Ns, now: Ns) {
        let Some(slot) = self.threads.get_mut(id.index()) else { return };
        slot.ran = slot.ran.saturating_add(ran);
        if slot.ran >= BUSY && !slot.row.kernel {
            slot.ran = 0;
            self.note_scheduling(id, now);
        }
    }

    /// The same of all threads of programs that live: of how many it was not read, since there are too many or `stop`
    /// said so.
    pub fn note_all_scheduling(&mut self, stop: &dyn Fn() -> bool) -> usize {
        let online = online();
        let alive = self.threads.iter().filter(|(_, t)| t.row.end.is_none() && !t.row.kernel && !t.row.own);
        let all: Vec<(ThreadId, u32)> = alive.map(|(id, t)| (ThreadId(id), t.row.tid)).collect();
        for (read_before, &(id, tid)) in all.iter().take(MOST).enumerate() {
            if stop() {
                return all.len() - read_before;
            }
            if let Some(now) = read(tid, &online) {
                self.set_scheduling(id, now);
            }
        }
        all.len().saturating_sub(MOST)
    }

    fn set_scheduling(&mut self, id: ThreadId, now: Scheduling) {
        let now = (!now.is_usual()).then_some(now);
        if self.row(id).is_some_and(|t| t.scheduling != now) {
            self.change_thread(id, |t| t.scheduling = now);
        }
    }
}

/// How a thread is scheduled; `None` when it is gone.
fn read(tid: u32, online: &[(u32, u32)]) -> Option<Scheduling> {
    let stat = procfs::read_thread_stat(tid)?;
    let cpus = procfs::read_status(tid)?.cpus;
    let all = covers(&ranges(&cpus), online);
    Some(Scheduling {
        policy: stat.policy,
        nice: stat.nice,
        priority: stat.priority,
        cpus: if all { String::new() } else { cpus },
    })
}

/// The CPUs that are in use.
fn online() -> Vec<(u32, u32)> {
    let list = procfs::read_bounded(Path::new("/sys/devices/system/cpu/online"), 4096).unwrap_or_default();
    ranges(&String::from_utf8_lossy(&list))
}

/// Parse the kernel's list of numbers (`0-3,8`): first and last of each range. What is no number is left out.
fn ranges(list: &str) -> Vec<(u32, u32)> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some((first.parse().ok()?, last.parse().ok()?))
    };
    list.trim().split(',').filter_map(range).collect()
}

/// Are all of `some` in `of`? Both as the kernel prints them, ascending, neighbours in one range.
fn covers(of: &[(u32, u32)], some: &[(u32, u32)]) -> bool {
    some.iter().all(|s| of.iter().any(|o| o.0 <= s.0 && s.1 <= o.1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::focus::Focus;
    use proptest::prelude::*;
    use std::process::{Child, Command};

    #[test]
    fn lists_of_cpus() {
        assert_eq!(ranges("0-3,8\n"), [(0, 3), (8, 8)]);
        assert_eq!(ranges(""), []);
        assert!(covers(&ranges("0-127"), &ranges("0-1")));
        assert!(!covers(&ranges("1"), &ranges("0-1")));
        assert!(!covers(&ranges("0-3,8"), &ranges("0-4")));
        assert!(covers(&ranges("0-3,8"), &ranges("1-2,8")));
    }

    proptest! {
        #[test]
        fn takes_any_list(text in ".{0,40}") {
            ranges(&text);
        }
    }

    /// A sleeper that was set up like this, when it sleeps.
    fn sleeper(how: &[&str]) -> Option<Child> {
        let (program, args) = how.split_first()?;
        let child = Command::new(program).args(args).args(["sleep", "60"]).spawn().ok()?;
        loop {
            // What may not be set ends at once.
            let stat = procfs::read_stat(child.id()).filter(|s| !s.has_ended())?;
            if stat.comm == b"sleep" {
                return Some(child);
            }
            std::thread::yield_now();
        }
    }

    #[test]
    fn who_had_a_cpu_for_long_is_read() {
        let mut identity = Identity::new(0, &Focus::default(), 1);
        let mut child = sleeper(&["nice", "-n", "7"]).expect("coreutils");
        let id = identity.thread(child.id(), child.id(), 0);
        identity.note_ran(id, BUSY - 1, BUSY - 1);
        assert_eq!(identity.row(id).unwrap().scheduling, None, "it may have been a moment");
        identity.note_ran(id, 1, BUSY);
        let _ = child.kill();
        let _ = child.wait();
        let told = identity.row(id).unwrap().scheduling.clone().unwrap_or_default();
        assert!(told.nice >= 7, "{told:?}");
    }

    #[test]
    fn what_was_set_for_a_thread_is_read() {
        let mut identity = Identity::new(0, &Focus::default(), 1);
        let mut told = |how: &[&str]| {
            let mut child = sleeper(how)?;
            let id = identity.thread(child.id(), child.id(), 0);
            identity.note_scheduling(id, 0);
            let one = identity.row(id).map(|t| t.scheduling.clone());
            identity.change_thread(id, |t| t.scheduling = None);
            identity.note_scheduling(id, AGAIN - 1);
            assert_eq!(identity.row(id).unwrap().scheduling, None, "it was read lately");
            identity.note_all_scheduling(&|| false);
            assert_eq!(one, identity.row(id).map(|t| t.scheduling.clone()), "{how:?}");
            let _ = child.kill();
            let _ = child.wait();
            identity.note_scheduling(id, AGAIN);
            assert_eq!(one, identity.row(id).map(|t| t.scheduling.clone()), "one that is gone: {how:?}");
            one.map(Option::unwrap_or_default)
        };
        let nice = told(&["nice", "-n", "7"]).expect("coreutils");
        // What this test was started with is added to.
        assert!(nice.nice >= 7 && nice.policy == 0, "{nice:?}");
        let mut others = 0;
        if let Some(last) = told(&["chrt", "--idle", "0"]) {
            assert_eq!(last.policy, 5, "{last:?}");
            others += 1;
        }
        let cpus = procfs::read_status(std::process::id()).unwrap().cpus;
        let first = ranges(&cpus)[0].0.to_string();
        if online().iter().map(|r| r.1 - r.0 + 1).sum::<u32>() > 1
            && let Some(pinned) = told(&["taskset", "-c", &first])
        {
            assert_eq!(pinned.cpus, first);
            others += 1;
        }
        println!("{others} of 2 other programs (chrt, taskset) were there");
    }
}
