//! Waits as they are: a look at `/proc`, now and again, without recording anything.
//!
//! Nothing is attached and nobody is slowed: what a thread waits in is read from `/proc/TID/syscall` (proc(5);
//! the own processes, or root), and how long from how long it has not been switched; for waits that are older than
//! the first look, from when the thread last ran (`/proc/TID/sched`). Who could end a wait is looked up only once it
//! is long, as for a recording.

mod circle;
mod clock;
mod waited;

use crate::focus::Focus;
use crate::holders::{Holders, LongWait};
use crate::identity::Identity;
use crate::patience::Patience;
use crate::procfs;
use clock::Clocks;
use pg_event::{Ns, Object, ObjectId, OffState, Relation, Sysno};
use std::collections::HashMap;
use std::time::{Duration, Instant};
use waited::{Waited, call, waited_for};

/// From when on a wait is long enough to ask who could end it.
pub const LONG: Ns = 1_000_000_000;
/// How long an answer to that is believed.
const BELIEVED: Ns = 5_000_000_000;
/// Most bytes of a small file.
const SMALL: usize = 8 << 10;

/// What a thread does at the moment of the look.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Doing {
    /// On the CPU, or waits for one.
    Runs,
    /// Waits uninterruptibly: a disk, the kernel.
    Disk,
    /// Stopped by a signal or its tracer.
    Stopped,
    /// Waits.
    Waits,
    /// Has ended and nobody has asked for its status.
    Ended,
}

/// Who could end a wait.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Holder {
    /// Its process.
    pub pid: u32,
    /// Name of the process.
    pub process: String,
    /// The thread.
    pub tid: u32,
    /// How it is tied to what is waited for.
    pub relation: Relation,
}

/// A thread.
#[derive(Clone, PartialEq, Debug)]
pub struct Row {
    /// Its process.
    pub pid: u32,
    /// The thread.
    pub tid: u32,
    /// Name of the process.
    pub process: String,
    /// Name of the thread.
    pub thread: String,
    /// Command line of the process; read of those that run or wait for long only, else empty.
    pub cmdline: String,
    /// What it does.
    pub doing: Doing,
    /// For how long, ns: since it last ran, as far as that is known, else at least this long: since it was first seen.
    pub since: Ns,
    /// It did this already when it was first looked at, for an unknown time.
    pub longer: bool,
    /// Share of one CPU since the look before, 0 to 1.
    pub cpu: f64,
    /// The system call it waits in; empty when it is in none, or that may not be read.
    pub call: String,
    /// What it waits for; empty when not known.
    pub object: String,
    /// What the set it polls consists of; empty when it waits for one thing.
    pub members: Vec<String>,
    /// Who could end a long wait.
    pub holders: Vec<Holder>,
    /// The process that made its process.
    pub parent: u32,
    /// It opens a FIFO, `object`, whose other end nobody has open: who was to open that is written nowhere.
    pub opens: bool,
    /// Threads that wait for one another in a circle which this one waits for, or is part of, in the order of
    /// who waits for whom.
    pub circle: Vec<u32>,
    /// The circle is a likely one: it leads by way of FIFOs that are opened.
    pub likely: bool,
}

/// What is remembered of a thread from one look to the next.
#[derive(Default)]
struct Seen {
    start_ticks: u64,
    switches: u64,
    ticks: u64,
    since: Ns,
    /// For how long it had slept then.
    already: Ns,
    longer: bool,
    looked: Option<Ns>,
    waited: Option<Waited>,
    holders: Vec<Holder>,
    cmdline: String,
    now: u64,
}

/// Looks at threads again and again.
pub struct Live {
    pids: Vec<u32>,
    begin: Instant,
    before: Ns,
    looks: u64,
    own: u32,
    holders: Holders,
    /// Who reads command lines.
    patience: Patience,
    identity: Identity,
    seen: HashMap<u32, Seen>,
    tick: Ns,
}

/// `voluntary_ctxt_switches` and its counterpart of `/proc/TID/status`, added up.
fn switches(status: &[u8]) -> u64 {
    let text = String::from_utf8_lossy(status);
    let lines = text.lines().filter(|l| l.contains("ctxt_switches:"));
    lines.filter_map(|l| l.rsplit(':').next()?.trim().parse::<u64>().ok()).sum()
}

/// `utime` and `stime` of `/proc/TID/stat`, in clock ticks.
fn cpu_ticks(stat: &[u8]) -> u64 {
    let Some(close) = stat.iter().rposition(|&b| b == b')') else { return 0 };
    let rest = String::from_utf8_lossy(stat.get(close + 1..).unwrap_or_default());
    rest.split_ascii_whitespace().skip(11).take(2).filter_map(|f| f.parse::<u64>().ok()).sum()
}

impl Live {
    /// Of these processes; of all when there is none.
    pub fn new(pids: &[u32]) -> Self {
        let focus = Focus { pids: pids.to_vec(), ..Focus::default() };
        let own = std::process::id();
        Self {
            pids: pids.to_vec(),
            begin: Instant::now(),
            before: 0,
            looks: 0,
            own,
            holders: Holders::new(),
            patience: Patience::new(Duration::from_millis(50)),
            identity: Identity::new(crate::clock::monotonic(), &focus, own),
            seen: HashMap::new(),
            tick: crate::clock::tick(),
        }
    }

    /// How it is now. Threads of the kernel and this process are left out.
    pub fn look(&mut self) -> Vec<Row> {
        let clocks = (self.looks == 0).then(Clocks::read);
        let now = self.begin.elapsed().as_nanos() as Ns;
        let between = now.saturating_sub(self.before).max(1);
        self.looks += 1;
        let mut out = Vec::new();
        let pids = if self.pids.is_empty() { procfs::processes() } else { self.pids.clone() };
        for pid in pids {
            if pid == self.own {
                continue;
            }
            let Some(leader) = procfs::read_stat(pid).filter(|s| !s.kernel) else { continue };
            let process = procfs::lossy(&leader.comm, procfs::MAX_NAME);
            for tid in procfs::threads_of(pid) {
                out.extend(self.thread((pid, leader.ppid), tid, &process, now, between, clocks.as_ref()));
            }
        }
        let looks = self.looks;
        self.seen.retain(|_, s| s.now == looks);
        self.before = now;
        circle::find(&mut out);
        out
    }

    /// `clocks` with the first look: who was there before it.
    fn thread(
        &mut self,
        (pid, parent): (u32, u32),
        tid: u32,
        process: &str,
        now: Ns,
        between: Ns,
        clocks: Option<&Clocks>,
    ) -> Option<Row> {
        // By way of its process: `/proc/TID/stat` adds up the times of all threads.
        let of_thread = procfs::path_of(pid, &format!("task/{tid}/stat"));
        let bytes = procfs::read_bounded(&of_thread, SMALL).ok()?;
        let stat = procfs::parse_stat(&bytes)?;
        let status = procfs::read_bounded(&procfs::path_of(tid, "status"), SMALL).unwrap_or_default();
        let (switches, ticks) = (switches(&status), cpu_ticks(&bytes));
        let looks = self.looks;
        let s = self.seen.entry(tid).or_default();
        let known = s.now != 0 && s.start_ticks == stat.start_ticks;
        let mut cpu = 0.0;
        if known {
            let ran = ticks.saturating_sub(s.ticks).saturating_mul(self.tick);
            cpu = (ran as f64 / between as f64).min(1.0);
        }
        if !known || s.switches != switches {
            // Who is new after the first look began then.
            let already = clocks.map(|c| c.asleep(pid, tid, stat.cpu as usize));
            *s = Seen {
                start_ticks: stat.start_ticks,
                switches,
                since: now,
                already: already.flatten().unwrap_or(0),
                longer: already == Some(None),
                ..Seen::default()
            };
        }
        (s.ticks, s.now) = (ticks, looks);
        let doing = match stat.state {
            b'R' => Doing::Runs,
            b'D' => Doing::Disk,
            b'T' | b't' => Doing::Stopped,
            b'Z' | b'X' => Doing::Ended,
            _ => Doing::Waits,
        };
        let since = now.saturating_sub(s.since).saturating_add(s.already);
        let waits = !matches!(doing, Doing::Runs | Doing::Ended);
        let in_call = if waits {
            procfs::read_bounded(&procfs::path_of(tid, "syscall"), 512).ok().and_then(|t| call(&t))
        } else {
            None
        };
        if waits && since >= LONG && s.looked.is_none_or(|t| now.saturating_sub(t) >= BELIEVED) {
            s.looked = Some(now);
            let holders = &mut self.holders;
            s.waited = in_call.and_then(|(nr, args)| waited_for(holders, now, (tid, pid), nr, args));
            let members: Vec<(ObjectId, &Object)> =
                s.waited.iter().flat_map(|w| &w.members).map(|m| (ObjectId::NONE, m)).collect();
            let (nr, args) = in_call.unwrap_or((Sysno::NONE, [0; 6]));
            let wait = LongWait {
                thread: self.identity.thread(tid, pid, now),
                tid,
                tgid: pid,
                syscall: nr,
                op: if nr.is_any(&["futex"]) { args[1] as u32 } else { 0 },
                state: match stat.state {
                    b'T' => OffState::Stopped,
                    b't' => OffState::Traced,
                    b'D' => OffState::Uninterruptible,
                    _ => OffState::Interruptible,
                },
                id: ObjectId::NONE,
                // Who has the same end open cannot let it go on.
                object: s.waited.as_ref().filter(|w| !w.opens).map(|w| &w.object),
                members: &members,
                error: 0,
            };
            let found = self.holders.find(&wait, &mut self.identity, now);
            let identity = &self.identity;
            // That it is a barrier only a stack tells for certain, and none is taken here.
            let found =
                found.into_iter().filter(|f| !matches!(f.relation, Relation::Missing | Relation::Maps));
            let named = found.filter_map(|f| {
                let (t, p) = (identity.row(f.holder)?, identity.process_of(f.holder)?);
                Some(Holder { pid: p.pid, process: p.name.clone(), tid: t.tid, relation: f.relation })
            });
            s.holders = named.filter(|h| h.tid != tid).collect();
        }
        if s.cmdline.is_empty() && (doing == Doing::Runs || s.looked.is_some()) {
            let argv = self.patience.run(pid, move || procfs::read_cmdline(pid));
            s.cmdline = argv.and_then(Result::ok).map(|a| procfs::join_argv(&a)).unwrap_or_default();
        }
        let waited = s.waited.as_ref().filter(|_| waits);
        Some(Row {
            pid,
            tid,
            process: process.to_owned(),
            thread: procfs::lossy(&stat.comm, procfs::MAX_NAME),
            cmdline: s.cmdline.clone(),
            doing,
            since,
            longer: s.longer,
            cpu,
            call: in_call.and_then(|(nr, _)| nr.name()).map(std::borrow::Cow::into_owned).unwrap_or_default(),
            object: waited.map(|w| w.object.label()).unwrap_or_default(),
            members: waited.map(|w| w.members.iter().map(Object::label).collect()).unwrap_or_default(),
            holders: if waits { s.holders.clone() } else { Vec::new() },
            parent,
            opens: waited.is_some_and(|w| w.opens),
            circle: Vec::new(),
            likely: false,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn files_of_proc_are_read() {
        assert_eq!(switches(b"Name:\tx\nvoluntary_ctxt_switches:\t7\nnonvoluntary_ctxt_switches:\t3\n"), 10);
        let stat = b"7 (a) b) S 1 7 7 0 -1 4194304 100 0 0 0 250 50 0 0 20 0 1 0 1000 0 0";
        assert_eq!(cpu_ticks(stat), 300);
        assert_eq!(call(b"running\n"), None);
        assert_eq!(call(b"-1 0x7ffd 0x7f\n"), None);
        let (nr, args) = call(b"0 0x3 0x7ffd 0x400 0x0 0x0 0x0 0x7ffd 0x7f\n").unwrap();
        assert_eq!((nr.name().as_deref(), args[0], args[2]), (Some("read"), 3, 0x400));
    }

    #[test]
    fn a_reader_of_a_pipe_waits_for_who_can_write() {
        use std::process::{Command, Stdio};
        // sleep has the writing end, cat waits for it.
        let mut sleep =
            Command::new("sleep").arg("60").stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let out = sleep.stdout.take().unwrap();
        let mut cat = Command::new("cat").stdin(out).stdout(Stdio::null()).spawn().unwrap();
        let pid = cat.id();
        let mut live = Live::new(&[pid]);
        let begin = Instant::now();
        let row = loop {
            let rows = live.look();
            let row = rows.into_iter().find(|r| r.process == "cat" && r.since >= LONG);
            if row.is_some() || begin.elapsed().as_secs() > 20 {
                break row;
            }
            std::thread::sleep(std::time::Duration::from_millis(100));
        };
        for child in [&mut cat, &mut sleep] {
            let _ = child.kill();
            let _ = child.wait();
        }
        let row = row.expect("cat is seen");
        assert_eq!((row.doing, row.pid, row.tid), (Doing::Waits, pid, pid));
        assert_eq!(row.cmdline, "cat");
        if row.call.is_empty() {
            println!("skipped: /proc/{pid}/syscall may not be read");
            return;
        }
        assert_eq!(row.call, "read");
        assert!(row.object.starts_with("pipe:["), "{}", row.object);
        assert!(row.holders.iter().any(|h| h.pid == sleep.id() && h.relation == Relation::Writes), "{row:?}");
    }

    #[test]
    fn waits_of_before_the_first_look_are_as_long_as_they_are() {
        use std::process::{Child, Command, Stdio};
        use std::time::Duration;
        let start = || Command::new("sleep").arg("60").stdin(Stdio::null()).spawn().unwrap();
        let asleep =
            |c: &Child| procfs::read_stat(c.id()).is_some_and(|s| s.comm == b"sleep" && s.state == b'S');
        let wait = |c: &Child| {
            while !asleep(c) {
                std::thread::yield_now();
            }
        };
        let mut first = start();
        wait(&first);
        std::thread::sleep(Duration::from_millis(1500));
        let mut second = start();
        wait(&second);
        std::thread::sleep(Duration::from_millis(300));
        let mut live = Live::new(&[first.id(), second.id()]);
        let rows = live.look();
        std::thread::sleep(Duration::from_millis(300));
        let later = live.look();
        for child in [&mut first, &mut second] {
            let _ = child.kill();
            let _ = child.wait();
        }
        if rows.iter().any(|r| r.longer) {
            println!("skipped: this kernel has no /proc/PID/sched, or this test may not use all CPUs");
            return;
        }
        let since = |rows: &[Row], c: &Child| rows.iter().find(|r| r.tid == c.id()).unwrap().since;
        let (long, short) = (since(&rows, &first), since(&rows, &second));
        assert!(long > short && long >= LONG && short > 0, "{long} {short}");
        assert!(since(&later, &first) >= long + 300_000_000, "it goes on from there");
    }

    #[test]
    fn a_thread_that_sleeps_has_none_of_the_time_of_one_that_runs() {
        use std::sync::atomic::{AtomicBool, Ordering};
        static STOP: AtomicBool = AtomicBool::new(false);
        let mut live = Live::new(&[std::process::id()]);
        live.own = 0;
        let tid = || {
            std::fs::read_link("/proc/thread-self")
                .unwrap()
                .file_name()
                .unwrap()
                .to_string_lossy()
                .parse::<u32>()
        };
        let (send, receive) = std::sync::mpsc::channel();
        let busy = std::thread::spawn(move || {
            send.send(tid().unwrap()).unwrap();
            while !STOP.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        });
        let (busy_tid, own) = (receive.recv().unwrap(), tid().unwrap());
        live.look();
        std::thread::sleep(std::time::Duration::from_millis(500));
        let rows = live.look();
        STOP.store(true, Ordering::Relaxed);
        busy.join().unwrap();
        let cpu = |tid: u32| rows.iter().find(|r| r.tid == tid).unwrap().cpu;
        assert!(cpu(busy_tid) > cpu(own) + 0.05, "{} {}", cpu(busy_tid), cpu(own));
    }

    proptest! {
        #[test]
        fn takes_anything(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            switches(&bytes);
            cpu_ticks(&bytes);
            call(&bytes);
        }
    }
}
