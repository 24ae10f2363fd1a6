use super::*;
use regex::Regex;
use std::process::{Command, Stdio};

/// Numbers that no thread of the kernel can have: `/proc` never knows them.
const FREE: u32 = 0x7000_0000;

fn empty(focus: &Focus) -> Identity {
    Identity::new(clock::monotonic(), focus, std::process::id())
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
    i.threads[now.index()].born = Some(1);
    i.exit(me, 0, 5);
    assert_eq!(i.thread(me, me, 6), now);
    let then = i.thread(me, me, 6 + GRACE_NS * 2);
    assert_ne!(now, then);
    assert!(process(&i, then).own);
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
    let mut child = Command::new("sleep").arg("1000").stdin(Stdio::null()).spawn().expect("sleep");
    let mut i = empty(&Focus::default());
    let wait = || std::fs::read(format!("/proc/{}/comm", child.id())).is_ok_and(|c| c == b"sleep\n");
    while !wait() {
        std::thread::yield_now();
    }
    i.seed_from_proc();
    let me = i.find(std::process::id()).expect("this process");
    assert!(process(&i, me).own && row(&i, me).own && !i.in_focus(me));
    let sleep = i.find(child.id()).expect("the child");
    let p = process(&i, sleep);
    assert_eq!((p.name.as_str(), p.cmdline()), ("sleep", "sleep 1000"));
    assert!(p.exe.contains("sleep") || p.exe.contains("coreutils"), "{}", p.exe);
    assert_eq!(p.parent, row(&i, me).process);
    assert!(!p.own && !p.kernel && i.in_focus(sleep));
    assert!(!p.cgroup.is_empty());
    let names: Vec<_> = i.drain().threads.into_iter().filter(|(_, t)| t.own).collect();
    assert_eq!(names.len(), procfs::threads_of(std::process::id()).len().max(names.len()));
    assert!(names.len() >= 2, "the test harness runs on threads of its own");
    child.kill().expect("kill");
    child.wait().expect("wait");
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
    let mut child = Command::new("bash")
        .args(["-c", "read -r _; exec -a 'worker: waiting' sleep 1000"])
        .stdin(Stdio::piped())
        .spawn()
        .expect("bash");
    let mut i = empty(&Focus::default());
    let id = i.thread(child.id(), child.id(), 0);
    i.refresh(1);
    drop(child.stdin.take());
    let mut now = 1;
    while process(&i, id).cmdline() != "worker: waiting 1000" {
        now += 2_000_000_000;
        i.refresh(now);
        std::thread::yield_now();
    }
    child.kill().expect("kill");
    child.wait().expect("wait");
    // Its exit was missed: two rounds without it are enough.
    i.refresh(now + 2_000_000_000);
    assert_eq!(process(&i, id).end, None);
    i.refresh(now + 4_000_000_000);
    assert!(process(&i, id).end.is_some() && row(&i, id).end.is_some());
}
