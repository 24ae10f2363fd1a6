//! Which thread is to be followed: by number, by name, or the busiest of the focus.

use super::{Focus, Who};
use crate::flags::find::{comm, run_ns};
use crate::procfs::{processes, read_status, threads_of};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// For so long the threads' use of the CPU is measured.
const MEASURE: Duration = Duration::from_millis(100);
/// A thread with this share of a CPU is busy.
const BUSY: u64 = 40;
/// So long a busy thread is waited for; then the one that runs most is taken, if it runs at all.
const PATIENCE: Duration = Duration::from_millis(500);
/// Most threads looked at.
const MANY: usize = 20_000;

/// What came of a look.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Next {
    /// Follow this one: process and thread.
    Thread(u32, u32),
    /// Nobody yet.
    Later,
    /// Nobody any more.
    Never,
}

/// The choice of one thread, or of those of a name.
pub(super) struct Choice {
    who: Who,
    /// When it began.
    since: Instant,
    /// Nobody else is to be followed.
    over: bool,
    /// Threads of the name, found already.
    left: Option<Vec<(u32, u32)>>,
}

/// The process of a thread.
fn process_of(tid: u32) -> Option<u32> {
    read_status(tid).map(|s| s.tgid).filter(|tgid| *tgid != 0)
}

/// Threads, with what each used of the CPU within a moment, ns: the one that used most first.
fn by_use(threads: Vec<(u32, u32)>) -> Vec<(u64, u32, u32)> {
    let before: Vec<_> = threads.into_iter().take(MANY).map(|(p, t)| (p, t, run_ns(p, t))).collect();
    std::thread::sleep(MEASURE);
    let mut used: Vec<_> =
        before.into_iter().map(|(p, t, was)| (run_ns(p, t).saturating_sub(was), p, t)).collect();
    used.sort_by_key(|u| (std::cmp::Reverse(u.0), u.2));
    used
}

fn all(focus: &Focus) -> Vec<(u32, u32)> {
    let of = |pid: u32| threads_of(pid).into_iter().map(move |tid| (pid, tid));
    match focus {
        None => {
            let own = std::process::id();
            processes().into_iter().filter(|pid| *pid != own).flat_map(of).collect()
        }
        Some(pids) => pids.iter().copied().flat_map(of).collect(),
    }
}

impl Choice {
    pub(super) fn new(who: Who) -> Self {
        Self { who, since: Instant::now(), over: false, left: None }
    }

    /// Why nobody was found.
    pub(super) fn why_not(&self) -> String {
        match &self.who {
            Who::Busiest => "no thread of the focus used the CPU".into(),
            Who::Tid(tid) => format!("there is no thread {tid}"),
            Who::Name(_) => "there is no such thread in the focus".into(),
        }
    }

    /// The next one to be followed; those in `done` were.
    pub(super) fn next(&mut self, focus: &Focus, done: &BTreeSet<u32>) -> Next {
        if self.over {
            return Next::Never;
        }
        match &self.who {
            Who::Tid(tid) => {
                self.over = true;
                process_of(*tid).map_or(Next::Never, |pid| Next::Thread(pid, *tid))
            }
            Who::Busiest => {
                let used = by_use(all(focus));
                let Some(most) = used.into_iter().find(|u| !done.contains(&u.2)) else { return Next::Later };
                let enough = MEASURE.as_nanos() as u64 * BUSY / 100;
                if most.0 < enough && (self.since.elapsed() < PATIENCE || most.0 == 0) {
                    return Next::Later;
                }
                self.over = true;
                Next::Thread(most.1, most.2)
            }
            Who::Name(name) => {
                if self.left.is_none() {
                    let named: Vec<_> =
                        all(focus).into_iter().filter(|(p, t)| name.is_match(&comm(*p, *t))).collect();
                    if named.is_empty() {
                        return Next::Later;
                    }
                    // The last one is followed first.
                    self.left = Some(by_use(named).into_iter().rev().map(|(_, p, t)| (p, t)).collect());
                }
                while let Some((pid, tid)) = self.left.as_mut().and_then(Vec::pop) {
                    if !done.contains(&tid) {
                        return Next::Thread(pid, tid);
                    }
                }
                self.over = true;
                Next::Never
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use regex::Regex;
    use std::io::Read;
    use std::process::{Child, Command, Stdio};

    #[test]
    fn by_number_and_by_name() {
        let own = std::process::id();
        let (focus, done) = (Some(BTreeSet::from([own])), BTreeSet::new());
        let mut c = Choice::new(Who::Tid(own));
        assert_eq!(c.next(&focus, &done), Next::Thread(own, own));
        assert_eq!(c.next(&focus, &done), Next::Never);
        assert_eq!(Choice::new(Who::Tid(u32::MAX)).next(&focus, &done), Next::Never);
        let nobody = Regex::new("^no such thread$").unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(Choice::new(Who::Name(nobody)).next(&focus, &done), Next::Later);
        let name = Regex::new(".").unwrap_or_else(|e| panic!("{e}"));
        let mut c = Choice::new(Who::Name(name));
        let mut seen = BTreeSet::new();
        while let Next::Thread(pid, tid) = c.next(&focus, &seen) {
            assert!(pid == own && seen.insert(tid));
        }
        assert!(seen.contains(&own));
    }

    /// A shell that has begun with `what`.
    fn shell(what: &str) -> Child {
        let mut sh = Command::new("sh");
        sh.args(["-c", &format!("echo; {what}")]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = sh.spawn().expect("a shell starts");
        let mut line = [0];
        child.stdout.as_mut().expect("its output").read_exact(&mut line).expect("it has begun");
        child
    }

    /// Programs of their own: threads of other tests run in this one.
    #[test]
    fn the_busiest_is_the_one_that_runs() {
        let mut children = [shell("read x"), shell("while :; do :; done")];
        let [idle, busy] = children.each_ref().map(Child::id);
        let mut c = Choice::new(Who::Busiest);
        let mut found = Next::Later;
        while found == Next::Later {
            found = c.next(&Some(BTreeSet::from([idle, busy])), &BTreeSet::new());
        }
        for child in &mut children {
            let _ = child.kill();
            let _ = child.wait();
        }
        assert_eq!(found, Next::Thread(busy, busy));
    }
}
