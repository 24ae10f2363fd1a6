use super::*;
use regex::Regex;
use std::process::{Command, Stdio};

/// Numbers that no thread of the kernel can have: `/proc` never knows them.
const FREE: u32 = 0x7000_0000;

fn empty(focus: &Focus) -> Identity {
    let mut i = Identity::new(clock::monotonic(), focus, std::process::id());
    // However busy the machine that tests.
    i.patience = Patience::new(Duration::from_secs(60));
    i
}

/// A child that is killed when the test is done, however it ends.
struct Killed(std::process::Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(program: &str, args: &[&str], stdin: Stdio) -> Option<Killed> {
    let mut command = Command::new(program);
    command.args(args).stdin(stdin).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().ok().map(Killed)
}

/// `sleep`, begun.
fn sleeper() -> Killed {
    let child = start("sleep", &["1000"], Stdio::null()).expect("sleep");
    while procfs::read_stat(child.0.id()).is_none_or(|s| s.comm != b"sleep") {
        std::thread::yield_now();
    }
    child
}

fn row(i: &Identity, t: ThreadId) -> &Thread {
    i.row(t).expect("a known thread")
}

fn process(i: &Identity, t: ThreadId) -> &Process {
    i.process_of(t).expect("a known process")
}

#[test]
fn fork_exec_rename_exit() {
    let mut i = empty(&Focus::default());
    let sh = i.thread(FREE, FREE, 1);
    i.rename(FREE, b"sh\0garbage");
    let child = i.fork(FREE, FREE + 1, FREE + 1, b"sh", 10);
    assert_eq!(process(&i, child).parent, row(&i, sh).process);
    i.exec(FREE + 1, FREE + 1, b"ls", b"ls\0-l\0", b"/bin/ls", 11);
    let worker = i.fork(FREE + 1, FREE + 2, FREE + 1, b"worker", 12);
    assert_eq!(row(&i, worker).process, row(&i, child).process);
    i.exit(FREE + 2, 0, 20);
    assert_eq!(process(&i, child).end, None);
    i.exit(FREE + 1, 3 << 8, 21);
    let p = process(&i, child);
    assert_eq!((p.name.as_str(), p.cmdline(), p.exe.as_str()), ("ls", "ls -l", "/bin/ls"));
    assert_eq!((p.start, p.end, p.exit_status), (10, Some(21), Some(3 << 8)));
    assert_eq!((row(&i, worker).name.as_str(), row(&i, worker).end), ("worker", Some(20)));
}

#[test]
fn numbers_come_back_identities_do_not() {
    let mut i = empty(&Focus::default());
    let a = i.fork(FREE, FREE + 1, FREE + 1, b"a", 10);
    // The last switch of an ended thread is still its own.
    i.exit(FREE + 1, 0, 20);
    assert_eq!(i.thread(FREE + 1, FREE + 1, 21), a);
    let b = i.fork(FREE, FREE + 1, FREE + 1, b"b", 30);
    assert_ne!(a, b);
    // This one's exit is missed.
    let c = i.fork(FREE, FREE + 1, FREE + 1, b"c", 40);
    assert_ne!(b, c);
    assert_eq!((row(&i, b).end, process(&i, b).end), (Some(40), Some(40)));
    // Now the number is seen in another process.
    let d = i.thread(FREE + 1, FREE + 9, 50);
    assert_ne!(c, d);
    assert_eq!(row(&i, c).end, Some(50));
    assert_eq!(row(&i, a).name, "a");
}

#[test]
fn a_reused_number_is_noticed_by_its_start() {
    let mut i = empty(&Focus::default());
    let me = std::process::id();
    let now = i.thread(me, me, 0);
    // As if the number had belonged to a thread that ended, long before this one began.
    i.threads.get_mut(now.index()).expect("a row").born = Some(1);
    i.exit(me, 0, 5);
    assert_eq!(i.thread(me, me, 6), now);
    let then = i.thread(me, me, 6 + GRACE_NS * 2);
    assert_ne!(now, then);
    assert!(process(&i, then).own);
}

#[test]
fn a_record_may_come_before_its_fork_event() {
    let mut i = empty(&Focus::default());
    // Numbers that no process can have: nothing is found in /proc.
    let (parent, child) = (1 << 30, (1 << 30) + 1);
    let early = i.thread(child, child, 50);
    let id = i.fork(parent, child, child, b"worker\0", 40);
    assert_eq!(id, early, "one thread, not two");
    assert_eq!((row(&i, id).name.as_str(), row(&i, id).start, row(&i, id).end), ("worker", 40, None));
    assert_eq!((process(&i, id).name.as_str(), process(&i, id).start), ("worker", 40));
    // One that was there before the fork is another.
    let other = i.fork(parent, child, child, b"next\0", 60);
    assert_ne!(other, id);
    assert_eq!(row(&i, id).end, Some(60));
}

#[test]
fn exec_of_another_thread_takes_the_leaders_number() {
    let mut i = empty(&Focus::default());
    let leader = i.fork(FREE, FREE + 1, FREE + 1, b"main", 1);
    let worker = i.fork(FREE + 1, FREE + 2, FREE + 1, b"worker", 2);
    i.exec(FREE + 2, FREE + 1, b"new", b"new\0", b"/new", 3);
    assert_eq!(i.thread(FREE + 1, FREE + 1, 4), worker);
    assert_eq!((row(&i, worker).tid, row(&i, worker).name.as_str()), (FREE + 1, "new"));
    assert_eq!(row(&i, leader).end, Some(3));
    assert_eq!((process(&i, worker).name.as_str(), process(&i, worker).end), ("new", None));
    assert_eq!(i.find(FREE + 2), None);
}

#[test]
fn exec_after_the_leaders_end_finds_the_survivor() {
    let mut i = empty(&Focus::default());
    let leader = i.fork(FREE, FREE + 1, FREE + 1, b"main", 1);
    let worker = i.fork(FREE + 1, FREE + 2, FREE + 1, b"worker", 2);
    i.exit(FREE + 1, 9, 3);
    // The kernel has renumbered the thread before it tells of the exec.
    i.exec(FREE + 1, FREE + 1, b"new", b"new\0", b"/new", 4);
    assert_eq!(i.thread(FREE + 1, FREE + 1, 5), worker);
    assert_eq!(row(&i, leader).end, Some(3));
    assert_eq!((process(&i, worker).exit_status, process(&i, worker).end), (None, None));
}

#[test]
fn drained_rows_are_new_or_changed() {
    let mut i = empty(&Focus::default());
    i.fork(FREE, FREE + 1, FREE + 1, b"a", 1);
    let first = i.drain();
    assert_eq!((first.threads.len(), first.processes.len()), (2, 2));
    assert!(i.drain().is_empty());
    i.rename(FREE + 1, b"a");
    assert!(i.drain().is_empty());
    i.rename(FREE + 1, b"b");
    let second = i.drain();
    assert_eq!((second.threads.len(), second.processes.len()), (1, 1));
    assert_eq!(second.threads[0].1.name, "b");
}

#[test]
fn everything_there_is() {
    let child = sleeper();
    let mut i = empty(&Focus::default());
    i.seed_from_proc();
    let me = i.find(std::process::id()).expect("this process");
    assert!(process(&i, me).own && row(&i, me).own && !i.in_focus(me));
    let sleep = i.find(child.0.id()).expect("the child");
    let p = process(&i, sleep);
    assert_eq!((p.name.as_str(), p.cmdline()), ("sleep", "sleep 1000"));
    assert!(p.exe.contains("sleep") || p.exe.contains("coreutils"), "{}", p.exe);
    assert_eq!(p.parent, row(&i, me).process);
    assert!(!p.own && !p.kernel && i.in_focus(sleep));
    assert!(!p.cgroup.is_empty());
    // A test runs on a thread of its own.
    let this = std::fs::read_link("/proc/thread-self").expect("link");
    let this = this.file_name().and_then(|n| n.to_str()?.parse().ok()).expect("a number");
    let this = i.find(this).expect("this thread");
    assert!(row(&i, this).own && !i.in_focus(this) && this != me);
    assert!(i.drain().threads.iter().all(|(_, t)| t.own == (t.process == row(&i, me).process)));
}

#[test]
fn who_ended_and_was_not_asked_for_has_ended() {
    let mut child = sleeper();
    child.0.kill().expect("ours");
    while !procfs::has_ended(child.0.id()) {
        std::thread::yield_now();
    }
    let mut i = empty(&Focus::default());
    i.seed_from_proc();
    let id = i.ended(child.0.id());
    assert_eq!((row(&i, id).end, process(&i, id).end), (Some(0), Some(0)));
}

#[test]
fn kernel_threads_are_known_as_such() {
    if procfs::read_stat(2).is_none_or(|s| !s.kernel) {
        eprintln!("skipped: no kernel threads visible in this pid namespace");
        return;
    }
    let mut i = empty(&Focus::default());
    let kthreadd = i.thread(2, 2, 0);
    assert!(row(&i, kthreadd).kernel && process(&i, kthreadd).kernel && !i.in_focus(kthreadd));
    let idle = i.thread(0, 0, 0);
    assert!(row(&i, idle).kernel);
    assert_eq!(i.thread(0, 0, 9), idle);
}

#[test]
fn focus_is_inherited() {
    let mut i = empty(&Focus { pids: vec![FREE], ..Focus::default() });
    let top = i.thread(FREE, FREE, 0);
    let other = i.thread(FREE + 50, FREE + 50, 0);
    assert!(i.in_focus(top) && !i.in_focus(other));
    let child = i.fork(FREE, FREE + 1, FREE + 1, b"c", 1);
    let grandchild = i.fork(FREE + 1, FREE + 2, FREE + 2, b"g", 2);
    let thread = i.fork(FREE + 2, FREE + 3, FREE + 2, b"t", 3);
    let stranger = i.fork(FREE + 50, FREE + 51, FREE + 51, b"s", 4);
    assert!([child, grandchild, thread].iter().all(|&t| i.in_focus(t)));
    assert!(!i.in_focus(stranger));
    i.focus_on(FREE + 50);
    assert!(i.in_focus(other) && i.in_focus(stranger));
}

#[test]
fn who_is_waited_for_is_in_reach_with_all_its_threads() {
    let mut i = empty(&Focus { pids: vec![FREE], ..Focus::default() });
    let top = i.thread(FREE, FREE, 1);
    let server = i.thread(FREE + 1, FREE + 1, 1);
    let worker = i.fork(FREE + 1, FREE + 2, FREE + 1, b"worker", 2);
    let other = i.thread(FREE + 3, FREE + 3, 1);
    assert!(i.in_reach(top) && ![server, worker, other].iter().any(|&t| i.in_reach(t)));
    i.reach(server);
    assert!(i.in_reach(server) && i.in_reach(worker) && !i.in_reach(other) && !i.in_focus(server));
    assert_eq!(i.threads_with(worker).len(), 2);
    for n in 10..100 {
        let t = i.thread(FREE + n, FREE + n, 3);
        i.reach(t);
    }
    let last = i.thread(FREE + 99, FREE + 99, 3);
    assert!(!i.in_reach(last), "some only");
    i.exit(FREE + 10, 0, 4);
    i.reach(last);
    assert!(i.in_reach(last), "who ended makes room");
}

#[test]
fn focus_by_name_of_thread_or_process() {
    let focus = Focus { comms: vec![Regex::new("^redis").expect("regex")], ..Focus::default() };
    let mut i = empty(&focus);
    let server = i.fork(FREE, FREE + 1, FREE + 1, b"sh", 1);
    assert!(!i.in_focus(server));
    i.exec(FREE + 1, FREE + 1, b"redis-server", b"redis-server\0", b"", 2);
    let background = i.fork(FREE + 1, FREE + 2, FREE + 1, b"bio_close", 3);
    assert!(i.in_focus(server) && i.in_focus(background));
    // One thread by its own name only.
    let java = i.fork(FREE, FREE + 5, FREE + 5, b"java", 4);
    let client = i.fork(FREE + 5, FREE + 6, FREE + 5, b"java", 5);
    i.rename(FREE + 6, b"redis-client");
    assert!(i.in_focus(client) && !i.in_focus(java));
}

#[test]
fn a_command_to_come_is_nobody_yet() {
    let mut i = empty(&Focus { command: true, ..Focus::default() });
    let other = i.thread(FREE, FREE, 0);
    assert!(!i.in_focus(other));
    let me = std::process::id();
    // The recorder forks the command: the child is not the recorder.
    let command = i.fork(me, FREE + 1, FREE + 1, b"pg-tui", 1);
    assert!(!row(&i, command).own && !i.in_focus(command));
    i.focus_on(FREE + 1);
    assert!(i.in_focus(command));
    let worker = i.fork(me, FREE + 2, me, b"pg-reader", 2);
    assert!(row(&i, worker).own && !i.in_focus(worker));
}

#[test]
fn rewritten_command_lines_are_kept() {
    let mut p = Process::default();
    push_cmdline(&mut p, "postgres: idle".into(), 1);
    push_cmdline(&mut p, "postgres: idle".into(), 2);
    push_cmdline(&mut p, "postgres: SELECT waiting".into(), 3);
    assert_eq!(p.cmdlines.len(), 2);
    for n in 0..1000 {
        push_cmdline(&mut p, format!("title {n}"), n);
    }
    assert_eq!(p.cmdlines.len(), 128);
    assert_eq!((p.cmdlines[0].text.as_str(), p.cmdline()), ("postgres: idle", "title 999"));
    // A copy that was cut off grows; a short one that is continued is another title.
    let mut p = Process::default();
    push_cmdline(&mut p, "x".repeat(127), 1);
    push_cmdline(&mut p, "x".repeat(300), 2);
    assert_eq!((p.cmdlines.len(), p.cmdline().len()), (1, 300));
}

#[test]
fn refresh_reads_what_a_process_wrote_over_its_arguments() {
    // bash cannot rewrite its arguments; exec -a gives a process another one while its pid stays.
    let script = "read -r _; exec -a 'worker: waiting' sleep 1000";
    let mut child = start("bash", &["-c", script], Stdio::piped()).expect("bash");
    let mut i = empty(&Focus::default());
    let id = i.thread(child.0.id(), child.0.id(), 0);
    i.refresh(1);
    drop(child.0.stdin.take());
    let mut now = 1;
    while process(&i, id).cmdline() != "worker: waiting 1000" {
        now += 2_000_000_000;
        i.refresh(now);
        std::thread::yield_now();
    }
    drop(child);
    // Its exit was missed. It does nothing any more, so this is noticed when it is its turn.
    for round in 1..=9 {
        i.refresh(now + round * 2_000_000_000);
    }
    assert!(process(&i, id).end.is_some() && row(&i, id).end.is_some());
}

#[test]
fn threads_whose_exit_was_missed() {
    let child = sleeper();
    let pid = child.0.id();
    let mut i = empty(&Focus::default());
    let leader = i.thread(pid, pid, 0);
    let ghost = i.fork(pid, FREE, pid, b"ghost", 1);
    i.refresh(2);
    assert_eq!(row(&i, ghost).end, None, "its exit may be under way");
    // Its process is counted when it is its turn, and believed in the round after that.
    for round in 1..=9 {
        i.refresh(round * 3_000_000_000);
    }
    assert!(row(&i, ghost).end.is_some());
    assert_eq!((row(&i, leader).end, process(&i, leader).end), (None, None));
}

fn root() -> bool {
    procfs::read_status(std::process::id()).is_some_and(|s| s.uid == 0)
}

#[test]
fn processes_of_another_pid_namespace() {
    let args = ["--pid", "--fork", "--kill-child", "sh", "-c", "sleep 1000; true"];
    let Some(mut outer) = start("unshare", &args, Stdio::null()) else {
        eprintln!("skipped: unshare(1) is not installed");
        return;
    };
    let child_of = |pid: u32| {
        procfs::processes().into_iter().find(|&p| procfs::read_stat(p).is_some_and(|s| s.ppid == pid))
    };
    let inner = loop {
        if outer.0.try_wait().expect("wait").is_some() {
            eprintln!("skipped: a pid namespace needs root");
            return;
        }
        let found = child_of(outer.0.id()).and_then(|sh| Some((sh, child_of(sh)?)));
        let named = |p: u32, name: &[u8]| procfs::read_stat(p).is_some_and(|s| s.comm == name);
        if let Some((sh, sleep)) = found.filter(|&(sh, sleep)| named(sh, b"sh") && named(sleep, b"sleep")) {
            break (sh, sleep);
        }
        std::thread::yield_now();
    };
    // Found alive, found at the start, and told of by a fork: all know the number inside.
    let mut i = empty(&Focus::default());
    let sh = i.thread(inner.0, inner.0, 0);
    assert_eq!((row(&i, sh).ns_tid, process(&i, sh).ns_pid), (1, 1));
    let sleep = i.fork(inner.0, inner.1, inner.1, b"sleep", 1);
    let inside = procfs::read_status(inner.1).and_then(|s| s.ns_pids.last().copied()).expect("a number");
    assert_ne!(inside, inner.1);
    assert_eq!((row(&i, sleep).ns_tid, process(&i, sleep).ns_pid), (inside, inside));
    let mut i = empty(&Focus::default());
    i.seed_from_proc();
    let sleep = i.find(inner.1).expect("there");
    assert_eq!((row(&i, sleep).ns_tid, process(&i, sleep).ns_pid), (inside, inside));
}

/// A new control group somewhere, as a folder and as the path the kernel has for it.
fn new_cgroup(name: &str) -> Option<(std::path::PathBuf, String)> {
    if !root() {
        eprintln!("skipped: making a control group needs root");
        return None;
    }
    let mounts = std::fs::read_to_string("/proc/self/mounts").ok()?;
    let mut hierarchies: Vec<_> = mounts
        .lines()
        .filter_map(|l| {
            let mut words = l.split(' ');
            let point = words.nth(1)?;
            matches!(words.next()?, "cgroup" | "cgroup2").then(|| std::path::PathBuf::from(point))
        })
        .collect();
    hierarchies.sort();
    // Some hierarchies want settings before processes may join (cpuset).
    for folder in hierarchies.into_iter().filter(|h| !h.ends_with("cpuset")).map(|h| h.join(name)) {
        if std::fs::create_dir(&folder).is_ok() {
            return Some((folder, format!("/{name}")));
        }
    }
    eprintln!("skipped: no control group hierarchy can be written to");
    None
}

#[test]
fn focus_by_control_group() {
    let id = "0123456789abcdef".repeat(4);
    let name = format!("libpod-{}{}.scope", &id[..56], &format!("{:08x}", std::process::id())[..8]);
    let Some((folder, path)) = new_cgroup(&name) else { return };
    let child = sleeper();
    let pid = child.0.id();
    for focus in [path.clone(), folder.to_string_lossy().into_owned()] {
        let mut i = empty(&Focus { cgroups: vec![focus.clone()], ..Focus::default() });
        // Known before it joins: noticed while it is young.
        let early = i.fork(std::process::id(), pid, pid, b"sleep", 1);
        assert!(!i.in_focus(early));
        // The fork was not just now.
        let slot = row(&i, early).process.index();
        i.processes.get_mut(slot).expect("a row").born = None;
        std::fs::write(folder.join("cgroup.procs"), pid.to_string()).expect("join");
        i.refresh(2);
        i.refresh(3_000_000_000);
        assert!(i.in_focus(early), "{focus}");
        // There already at the start.
        let mut i = empty(&Focus { cgroups: vec![focus.clone()], ..Focus::default() });
        i.seed_from_proc();
        let found = i.find(pid).expect("there");
        assert!(i.in_focus(found), "{focus}");
        assert_eq!(process(&i, found).container, "0123456789ab");
        let me = i.find(std::process::id()).expect("there");
        assert!(!i.in_focus(me));
        let up = folder.parent().expect("a hierarchy").join("cgroup.procs");
        std::fs::write(up, pid.to_string()).expect("leave");
    }
    drop(child);
    std::fs::remove_dir(&folder).expect("rmdir");
}

#[test]
fn whoever_ended_long_ago_has_left_and_whoever_lives_has_not() {
    const MANY: u64 = 30_000;
    let mut i = empty(&Focus::default());
    let parent = i.fork(FREE, FREE + 1, FREE + 1, b"make", 1);
    let line = "x".repeat(3000);
    let argv = format!("cc1\0{line}\0");
    let (mut given, mut gone, mut last) = (0, 0, ThreadId::NONE);
    for n in 0..MANY {
        let (now, pid) = (10 * n + 10, FREE + 2 + 2 * (n as u32 % 20_000));
        last = i.fork(FREE + 1, pid, pid, b"cc1", now);
        i.exec(pid, pid, b"cc1", argv.as_bytes(), b"/usr/bin/cc1", now + 1);
        i.fork(pid, pid + 1, pid, b"worker", now + 2);
        i.exit(pid + 1, 0, now + 3);
        i.exit(pid, 0, now + 4);
        if n % 100 == 99 {
            let delta = i.drain();
            // Rows go out before they leave.
            given += delta.processes.len();
            gone += delta.forgotten.processes.len();
            assert!(delta.forgotten.threads.iter().all(|t| i.row(*t).is_none()));
            let (threads, processes) = i.counts();
            assert!(
                threads <= ROOM.threads + 400 && processes <= ROOM.processes + 400,
                "{threads} {processes}"
            );
        }
    }
    assert_eq!(given, MANY as usize + 2, "all were given out");
    assert!(gone > MANY as usize / 2, "{gone}");
    assert_eq!(row(&i, parent).end, None);
    assert_eq!(process(&i, last).cmdline().len(), line.len() + 4, "records of the last ones may come late");
    // Numbers of those that have left mean somebody new.
    let pid = FREE + 2 + 2 * 12_000;
    let known = i.find(pid);
    assert_ne!(Some(i.fork(FREE + 1, pid, pid, b"new", 10 * MANY + 10)), known);
    assert!(i.drain().forgotten.threads.len() < 10);
}

/// `/proc` has a folder for the number of each thread, which is no process of its own.
#[test]
fn the_number_of_a_thread_leads_to_its_process() {
    let (tell, told) = std::sync::mpsc::channel();
    let (end, ended) = std::sync::mpsc::channel::<()>();
    let thread = std::thread::spawn(move || {
        let link = std::fs::read_link("/proc/thread-self").unwrap();
        tell.send(link.file_name().unwrap().to_string_lossy().parse::<u32>().unwrap()).unwrap();
        let _ = ended.recv();
    });
    let (pid, tid) = (std::process::id(), told.recv().unwrap());
    let mut identity = Identity::new(0, &Focus::default(), 1);
    let (first, other) = (identity.thread(pid, pid, 5), identity.thread(tid, pid, 5));
    assert_eq!(identity.leader(tid, 6), first);
    assert_eq!(identity.thread(tid, pid, 7), other, "it lives on");
    assert_eq!(identity.row(other).map(|t| t.end), Some(None));
    drop(end);
    thread.join().unwrap();
}

/// Somebody that nobody saw alive and that still holds something.
#[test]
fn who_ended_before_has_a_row_that_says_so() {
    let mut i = empty(&Focus::default());
    let gone = i.ended(FREE);
    assert_eq!(i.ended(FREE), gone, "once");
    assert_eq!(row(&i, gone).end, Some(0));
    assert_eq!(i.process_of(gone).map(|p| (p.pid, p.end)), Some((FREE, Some(0))));
    let given = i.drain();
    assert!(given.threads.iter().any(|(id, t)| *id == gone && t.end == Some(0)));
    // Its number is used again.
    let new = i.fork(FREE + 1, FREE, FREE, b"new", 9);
    assert_ne!(new, gone);
    assert_eq!((row(&i, new).end, i.find(FREE)), (None, Some(new)));
}
