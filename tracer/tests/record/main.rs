//! Records small real programs and holds the recording to what the programs know of themselves.
//! Needs the right to trace; says so and skips otherwise.

mod clock;
mod connections;
mod datagrams;
mod disk;
mod futexes;
mod holds;
mod long;
mod programs;
mod quota;
mod spins;
mod timers;
mod until;
mod work;

use pg_event::{Catalog, Context, Event, Item, Kind, Object, ObjectKind, OffCpu, OffState, ThreadId};
use pg_tracer::{Collector, Focus, Level, Options, check_permission};
use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::process::{Child, Command, Stdio};

const PROGRAM: &str = "PG_TEST_PROGRAM";

/// Not a test by itself: the programs run here, in a process of their own.
#[test]
fn program() {
    if let Ok(name) = std::env::var(PROGRAM) {
        programs::run(&name);
    }
}

#[derive(Default)]
struct Recording {
    catalog: Catalog,
    events: Vec<Event>,
    facts: HashMap<String, String>,
    /// What it says is missing from it; `None`: it did not end.
    notes: Option<Vec<String>>,
}

fn spawn(name: &str) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "program", "--nocapture", "--test-threads", "1"])
        .env(PROGRAM, name)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Hands over what a program tells of itself, until it ends or `each` has enough.
fn tell_facts(out: impl std::io::Read, mut each: impl FnMut(String, String) -> bool) {
    for line in BufReader::new(out).lines() {
        let line = line.unwrap();
        // The test harness prints the test's name without a line break before the first fact.
        let Some((_, rest)) = line.split_once("fact ") else { continue };
        let (name, value) = rest.split_once(' ').unwrap();
        if !each(name.to_owned(), value.to_owned()) {
            break;
        }
    }
}

fn facts(child: &mut Child, until: Option<&str>) -> HashMap<String, String> {
    let mut facts = HashMap::new();
    tell_facts(child.stdout.take().unwrap(), |name, value| {
        let goes_on = until != Some(name.as_str());
        facts.insert(name, value);
        goes_on
    });
    facts
}

fn allowed(test: &str) -> bool {
    match check_permission() {
        Ok(()) => true,
        Err(e) => {
            println!("skipped: {test}: {e}");
            false
        }
    }
}

fn options(level: Level) -> Options {
    let focus = Focus { command: true, ..Focus::default() };
    Options { level, focus, ..Options::default() }
}

/// The same where the kernel is asked in what interrupt a CPU is, as far as it can be, and where programs follow it.
fn both_ways(level: Level) -> [Options; 2] {
    [false, true].map(|follow_interrupts| Options { follow_interrupts, ..options(level) })
}

fn collect(items: crossbeam_channel::Receiver<Item>, facts: HashMap<String, String>) -> Recording {
    let mut r = Recording { facts, ..Recording::default() };
    items.into_iter().for_each(|item| r.take(item));
    r.check();
    r
}

fn record(name: &str, options: Options) -> Recording {
    let (sender, items) = crossbeam_channel::unbounded();
    let collector = Collector::start(options, sender).unwrap();
    let mut child = spawn(name);
    collector.focus_on(child.id());
    let facts = facts(&mut child, None);
    assert!(child.wait().unwrap().success());
    collector.stop().unwrap();
    collect(items, facts)
}

/// A recording that begins when the program has said who it is and waits, and ends before that wait does.
fn joined(name: &str) -> Recording {
    let mut child = spawn(name);
    let facts = facts(&mut child, Some("self"));
    std::thread::sleep(std::time::Duration::from_millis(100));
    let (sender, items) = crossbeam_channel::unbounded();
    let focus = Focus { pids: vec![child.id()], ..Focus::default() };
    let collector = Collector::start(Options { focus, ..Options::default() }, sender).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(300));
    collector.stop().unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    collect(items, facts)
}

/// What holds of a recording of a program. Some kernels do not report every switch (perf misses the same): what is
/// asked of one certain wait may then fail. It is recorded again, a few times, as long as the recording says so
/// itself; what fails otherwise fails.
fn recorded(name: &str, options: &Options, test: impl Fn(&Recording)) {
    recorded_by(|| record(name, options.clone()), test);
}

/// The same of a recording made in another way.
fn recorded_by(make: impl Fn() -> Recording, test: impl Fn(&Recording)) {
    const TRIES: usize = 6;
    for _ in 1..TRIES {
        let r = make();
        match catch_unwind(AssertUnwindSafe(|| test(&r))) {
            Ok(()) => return,
            Err(why) if !r.unreported() => resume_unwind(why),
            Err(_) => println!("again: the kernel did not report all switches"),
        }
    }
    test(&make());
}

impl Recording {
    fn take(&mut self, item: Item) {
        assert!(self.notes.is_none(), "an item after the end");
        match item {
            Item::Catalog(d) => assert_eq!(self.catalog.apply(d), 0, "rows were refused"),
            Item::Events(e) => self.events.extend(e),
            Item::End { coverage, .. } => self.notes = Some(coverage.notes),
        }
    }

    /// Does it say that the kernel left switches out?
    fn unreported(&self) -> bool {
        self.notes.iter().flatten().any(|n| n.starts_with("the kernel did not report"))
    }

    /// What holds of every recording.
    fn check(&self) {
        assert!(self.notes.is_some(), "it did not end");
        assert!(self.events.is_sorted_by_key(|e| e.time), "events are not in order");
        for e in &self.events {
            if let Kind::OffCpu(o) = e.kind {
                assert!(o.start <= e.time, "{e:?}");
                assert!(o.woken == 0 || (o.start <= o.woken && o.woken <= e.time), "{e:?}");
            }
            if let Some(t) = self.catalog.thread(e.thread) {
                assert!(
                    !t.own
                        || matches!(
                            e.kind,
                            Kind::Spawn { .. } | Kind::Signal { .. } | Kind::Exit { .. } | Kind::Hold(_)
                        ),
                    "{e:?}"
                );
            }
        }
    }

    fn fact(&self, name: &str) -> u64 {
        self.facts[name].parse().unwrap()
    }

    fn thread(&self, fact: &str) -> ThreadId {
        let tid = self.fact(fact) as u32;
        self.thread_of(tid).expect("the thread is not in the catalogue")
    }

    fn thread_of(&self, tid: u32) -> Option<ThreadId> {
        self.catalog.threads.iter().rposition(|t| t.tid == tid).map(|i| ThreadId(i as u32))
    }

    fn waits(&self, fact: &str, call: &str) -> Vec<(Event, OffCpu)> {
        let thread = self.thread(fact);
        self.events
            .iter()
            .filter(|e| e.thread == thread)
            .filter_map(|e| match e.kind {
                Kind::OffCpu(o) if o.syscall.is_any(&[call]) && o.blocked() => Some((*e, o)),
                _ => None,
            })
            .collect()
    }

    /// The longest wait of a thread in a system call.
    fn wait(&self, fact: &str, call: &str) -> OffCpu {
        let waits = self.waits(fact, call);
        waits.iter().max_by_key(|(e, o)| e.time - o.start).expect("no such wait").1
    }

    /// Who was seen to hold what a thread waited for, and how.
    fn holds(&self, subject: &str) -> Vec<(ThreadId, pg_event::Hold)> {
        let subject = self.thread(subject);
        let hold = |e: &Event| match e.kind {
            Kind::Hold(h) if h.subject == subject => Some((e.thread, h)),
            _ => None,
        };
        self.events.iter().filter_map(hold).collect()
    }

    /// The system calls of a thread that were recorded.
    fn calls(&self, fact: &str) -> Vec<pg_event::SyscallUse> {
        let thread = self.thread(fact);
        let call = |e: &Event| match e.kind {
            Kind::Syscall(s) if e.thread == thread => Some(s),
            _ => None,
        };
        self.events.iter().filter_map(call).collect()
    }

    fn object(&self, o: pg_event::ObjectId) -> &Object {
        self.catalog.object(o).expect("no object")
    }

    fn shown(&self, o: pg_event::StackId) -> String {
        self.catalog.show_stack(o).join(" < ")
    }
}

#[test]
fn a_file_lock_is_handed_over_by_its_owner() {
    if !allowed("a_file_lock_is_handed_over_by_its_owner") {
        return;
    }
    recorded("flock", &options(Level::Messages), |r| {
        std::fs::remove_file(&r.facts["path"]).unwrap();
        let w = r.wait("self", "flock");
        let o = r.object(w.object);
        assert_eq!(
            (o.kind, o.id, o.name.as_str()),
            (ObjectKind::FileLock, r.fact("inode"), r.facts["path"].as_str())
        );
        assert_eq!((w.op, w.waker, w.waker_object), (libc::LOCK_EX as u32, r.thread("other"), w.object));
    });
}

#[test]
fn a_file_has_the_name_that_it_got_last() {
    if !allowed("a_file_has_the_name_that_it_got_last") {
        return;
    }
    recorded("flock-renamed", &options(Level::Messages), |r| {
        std::fs::remove_file(&r.facts["path"]).unwrap();
        let w = r.wait("self", "flock");
        assert_eq!(r.object(w.object).name, r.facts["path"]);
    });
}

#[test]
fn a_mutex_is_handed_over_by_its_owner() {
    if !allowed("a_mutex_is_handed_over_by_its_owner") {
        return;
    }
    recorded("mutex", &options(Level::Messages), |r| {
        // Not the wait of join, whose word holds a thread id: 2 is a lock with waiters.
        let waits = r.waits("self", "futex");
        let w = waits.iter().find(|(_, o)| o.value == 2 && !o.open).expect("no wait for the lock").1;
        assert_eq!(r.object(w.object).kind, ObjectKind::Futex);
        assert_eq!((w.waker, w.waker_object), (r.thread("other"), w.object));
        assert!(w.waker_syscall.is_any(&["futex"]), "{w:?}");
        assert_eq!(w.timeout, u64::MAX);
    });
}

#[test]
fn a_condition_is_signalled() {
    if !allowed("a_condition_is_signalled") {
        return;
    }
    recorded("condvar", &options(Level::Waits), |r| {
        let w = r.wait("self", "futex");
        assert_eq!((w.waker, w.waker_object), (r.thread("other"), w.object));
    });
}

#[test]
fn poll_waits_on_a_set() {
    if !allowed("poll_waits_on_a_set") {
        return;
    }
    recorded("poll", &options(Level::Messages), |r| {
        let w = r.wait("self", "poll");
        let set = r.object(w.object);
        assert_eq!((set.kind, w.value), (ObjectKind::Set, 2));
        let members: Vec<u64> = set.members.iter().map(|m| r.object(*m).id).collect();
        assert_eq!(members, [r.fact("pipe"), r.fact("a")]);
        assert_eq!(w.timeout, 5_000_000_000);
        let by = r.object(w.waker_object);
        assert!(set.members.iter().any(|m| r.object(*m).is_other_end_of(by)), "{by:?}");
    });
}

#[test]
fn an_epoll_instance_has_members() {
    if !allowed("an_epoll_instance_has_members") {
        return;
    }
    recorded("epoll", &options(Level::Messages), |r| {
        let w = r.wait("self", "epoll_wait");
        let o = r.object(w.object);
        assert_eq!((o.kind, w.timeout), (ObjectKind::Epoll, u64::MAX));
        let mut members: Vec<u64> = o.members.iter().map(|m| r.object(*m).id).collect();
        members.sort_unstable();
        let mut expected = [r.fact("pipe"), r.fact("a")];
        expected.sort_unstable();
        assert_eq!(members, expected);
        assert_eq!(w.waker, r.thread("other"));
    });
}

#[test]
fn a_sleep_is_ended_by_its_timer() {
    if !allowed("a_sleep_is_ended_by_its_timer") {
        return;
    }
    for options in both_ways(Level::Waits) {
        recorded("sleep", &options, |r| {
            let waits = r.waits("self", "clock_nanosleep");
            let w = waits.iter().find(|(_, o)| o.timeout <= 100_000_000).expect("the sleep is missing").1;
            assert_eq!(w.waker_context, Context::Timer);
            assert!(w.waker_syscall.is_none(), "whom the timer interrupts is no matter");
            assert!((55_000_000..=60_000_000).contains(&w.timeout), "{}", w.timeout);
        });
    }
}

#[test]
fn a_parent_waits_for_its_child() {
    if !allowed("a_parent_waits_for_its_child") {
        return;
    }
    recorded("wait", &options(Level::Messages), |r| {
        let w = r.wait("self", "wait4");
        let o = r.object(w.object);
        assert_eq!((o.kind, o.id), (ObjectKind::Child, r.fact("child")));
        let child = r.thread("child");
        assert_eq!(w.waker, child);
        assert!(r.events.iter().any(|e| e.thread == child && matches!(e.kind, Kind::Exit { status: 0 })));
        assert!(r.events.iter().any(|e| e.thread == child && matches!(e.kind, Kind::Exec)));
        assert!(r.events.iter().any(|e| matches!(e.kind, Kind::Spawn { child: c } if c == child)));
        assert_eq!(r.catalog.process_of(child).unwrap().cmdline(), "sleep 0.06");
    });
}

#[test]
fn a_wait_from_before_to_after_the_recording_is_open() {
    if !allowed("a_wait_from_before_to_after_the_recording_is_open") {
        return;
    }
    let make = || joined("hang");
    recorded_by(make, |r| {
        let (e, w) = *r.waits("self", "read").last().expect("the wait is missing");
        assert!(w.open && w.begun_before && w.woken == 0, "{w:?}");
        assert_eq!(e.time, r.events.last().unwrap().time, "it ends with the recording");
        let o = r.object(w.object);
        assert_eq!((o.kind, o.id), (ObjectKind::Pipe, r.fact("inode")));
        let stack = r.shown(w.user_stack);
        assert!(stack.contains("hang") && stack.contains("start_thread"), "{stack}");
    });
}

#[test]
fn a_busy_thread_is_sampled() {
    if !allowed("a_busy_thread_is_sampled") {
        return;
    }
    recorded("busy", &options(Level::Messages), |r| {
        let thread = r.thread("self");
        let samples: Vec<_> = r
            .events
            .iter()
            .filter(|e| e.thread == thread)
            .filter_map(|e| if let Kind::Sample(s) = e.kind { Some(s) } else { None })
            .collect();
        assert!(!samples.is_empty());
        assert!(samples.iter().any(|s| r.shown(s.user_stack).contains("busy")));
    });
}

#[test]
fn every_call_is_recorded_on_its_level() {
    if !allowed("every_call_is_recorded_on_its_level") {
        return;
    }
    recorded("pipe", &options(Level::Syscalls), |r| {
        let thread = r.thread("other");
        let calls: Vec<_> = r
            .events
            .iter()
            .filter(|e| e.thread == thread)
            .filter_map(|e| if let Kind::Syscall(s) = e.kind { Some(s) } else { None })
            .collect();
        let write =
            calls.iter().find(|s| s.nr.is_any(&["write"]) && s.result == 1).expect("the write is missing");
        assert_eq!(r.object(write.object).id, r.fact("inode"));
        let sent = r.events.iter().any(|e| {
            e.thread == thread && matches!(e.kind, Kind::Ipc(u) if u.bytes == 1 && u.object == write.object)
        });
        assert!(sent, "the byte through the pipe is missing");
    });
}

/// How many programs this process has attached to every system call's entry.
fn call_links() -> usize {
    std::fs::read_dir("/proc/self/fdinfo")
        .unwrap()
        .flatten()
        .filter_map(|f| std::fs::read_to_string(f.path()).ok())
        .filter(|info| info.lines().any(|l| l.starts_with("tp_name:") && l.ends_with("sys_enter")))
        .count()
}

#[test]
fn a_retry_loop_gets_a_burst() {
    if !allowed("a_retry_loop_gets_a_burst") {
        return;
    }
    let make = || {
        let (sender, items) = crossbeam_channel::unbounded();
        let collector = Collector::start(options(Level::default()), sender).unwrap();
        let mut child = spawn("retry");
        collector.focus_on(child.id());
        let goes_on = child.stdin.take();
        let watch = std::thread::spawn(move || {
            let seen = (0..3000).any(|_| {
                std::thread::sleep(std::time::Duration::from_millis(20));
                call_links() > 0
            });
            // So that the burst is of its own, too, should it have been another test's.
            std::thread::sleep(std::time::Duration::from_secs(4));
            drop(goes_on);
            seen
        });
        let facts = facts(&mut child, None);
        assert!(child.wait().unwrap().success());
        let seen = watch.join().unwrap();
        // Tests beside this one attach such programs, too: for them to go takes a while.
        let gone = (0..3000).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(20));
            call_links() == 0
        });
        collector.stop().unwrap();
        assert!(seen, "the programs of system calls were never attached");
        assert!(gone, "the programs of system calls stay attached");
        collect(items, facts)
    };
    recorded_by(make, |r| {
        let thread = r.thread("self");
        let calls: Vec<_> = r
            .events
            .iter()
            .filter_map(|e| if let Kind::Syscall(s) = e.kind { Some((e.thread, s)) } else { None })
            .collect();
        // Who arms a timer is recorded of everybody.
        let arms = ["timerfd_settime", "setitimer", "alarm", "timer_settime"];
        let of_others = calls.iter().find(|c| c.0 != thread && !c.1.nr.is_any(&arms));
        assert!(of_others.is_none(), "a burst is of the thread that retries only: {of_others:?}");
        let refused =
            calls.iter().filter(|(_, s)| s.nr.is_any(&["fcntl"]) && s.result == -i64::from(libc::EAGAIN));
        let tries: u32 = refused.clone().map(|(_, s)| s.count).sum();
        assert!(tries >= 3, "{tries} refused tries are recorded");
        let (_, first) = refused.clone().next().unwrap();
        assert_eq!(r.object(first.object).id, r.fact("inode"));
    });
}

#[test]
fn waiting_to_be_started_is_no_wait_of_the_command() {
    if !allowed("waiting_to_be_started_is_no_wait_of_the_command") {
        return;
    }
    let make = || {
        let (sender, items) = crossbeam_channel::unbounded();
        let collector = Collector::start(options(Level::Waits), sender).unwrap();
        let mut command = pg_tracer::command::Command::spawn(&["sleep".into(), "0.2".into()]).unwrap();
        collector.focus_on_command(command.pid());
        std::thread::sleep(std::time::Duration::from_millis(300));
        command.resume().unwrap();
        assert!(command.wait().unwrap().success());
        collector.stop().unwrap();
        collect(items, HashMap::from([("self".to_owned(), command.pid().to_string())]))
    };
    recorded_by(make, |r| {
        let thread = r.thread("self");
        let of_command = || r.events.iter().filter(|e| e.thread == thread);
        let exec = of_command().find(|e| matches!(e.kind, Kind::Exec)).expect("it was started");
        let waits = |e: &&Event| matches!(e.kind, Kind::OffCpu(o) if o.state != OffState::Runnable);
        let before: Vec<_> = of_command().filter(|e| e.time < exec.time).filter(waits).collect();
        assert!(before.is_empty(), "{before:?}");
        assert_eq!(r.catalog.thread(thread).map(|t| t.start), Some(exec.time));
        assert!(!r.waits("self", "clock_nanosleep").is_empty(), "what it did then is there");
    });
}
