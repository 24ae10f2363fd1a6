//! Rows that have left, and records that come late: nothing of it may panic, and the tables stay true.

use super::*;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

/// Numbers that no thread of the kernel can have: `/proc` never knows them.
const FREE: u32 = 0x7000_0000;
const PARENT: u32 = FREE;
const CHILD: u32 = FREE + 1;
const WORKER: u32 = FREE + 2;

fn small(focus: &Focus, room: Room) -> Identity {
    let mut i = Identity::new(clock::monotonic(), focus, std::process::id());
    i.patience = Patience::new(Duration::from_secs(60));
    i.room = room;
    i
}

/// What holds of the tables between any two calls.
fn check(i: &Identity) {
    let mut living: BTreeMap<ProcessId, BTreeSet<ThreadId>> = BTreeMap::new();
    let mut rows: BTreeMap<ProcessId, u32> = BTreeMap::new();
    for (id, t) in i.threads.iter() {
        let id = ThreadId(id);
        assert!(i.process(t.row.process).is_some(), "{:?} is of a process that has left", t.row);
        *rows.entry(t.row.process).or_default() += 1;
        if t.row.end.is_none() {
            living.entry(t.row.process).or_default().insert(id);
        }
        assert_eq!(t.dirty, i.dirty_threads.contains(&id), "{:?}", t.row);
        assert_eq!(t.row.end.is_some(), i.ended_threads.contains(&id), "{:?} would never leave", t.row);
    }
    for (id, p) in i.processes.iter() {
        let id = ProcessId(id);
        let members: BTreeSet<ThreadId> = p.members.iter().copied().collect();
        assert_eq!(members.len(), p.members.len(), "{:?}", p.row);
        assert_eq!(members, living.remove(&id).unwrap_or_default(), "{:?}", p.row);
        assert_eq!(p.rows, rows.get(&id).copied().unwrap_or(0), "{:?}", p.row);
        assert_eq!(p.row.end.is_some(), p.members.is_empty(), "{:?}", p.row);
        assert!(p.queued || p.row.end.is_none(), "{:?} would never leave", p.row);
        assert_eq!(p.dirty, i.dirty_processes.contains(&id), "{:?}", p.row);
    }
    for (&tid, &id) in &i.by_tid {
        assert_eq!(i.row(id).expect("a row that has not left").tid, tid);
    }
    for (&pid, &id) in &i.by_pid {
        assert_eq!(i.process(id).expect("a row that has not left").pid, pid);
    }
    for seen in i.lately.iter().filter(|l| l.tid != NOBODY.tid) {
        let t = i.row(seen.id).expect("a row that has not left");
        assert_eq!((t.tid, t.end), (seen.tid, None));
        assert_eq!(i.process_of(seen.id).expect("a process").pid, seen.tgid);
    }
    let queued: BTreeSet<ProcessId> = i.ended_processes.iter().copied().collect();
    assert_eq!(queued.len(), i.ended_processes.len(), "one is told as ended twice");
}

/// Give out what is known and let everybody leave who ended.
fn leave(i: &mut Identity) {
    // Processes leave after their threads.
    i.drain();
    i.drain();
    check(i);
}

fn in_focus(pid: u32) -> Focus {
    Focus { pids: vec![pid], ..Focus::default() }
}

/// A parent with a child that has a worker, all of which ended and have left.
fn gone() -> (Identity, [ThreadId; 3]) {
    let mut i = small(&in_focus(PARENT), Room { threads: 0, processes: 0 });
    let parent = i.thread(PARENT, PARENT, 1);
    let child = i.fork(PARENT, CHILD, CHILD, b"child", 2);
    let worker = i.fork(CHILD, WORKER, CHILD, b"worker", 3);
    i.refresh(4);
    for tid in [WORKER, CHILD, PARENT] {
        i.exit(tid, 0, 10);
    }
    leave(&mut i);
    assert_eq!(i.counts(), (0, 0));
    (i, [parent, child, worker])
}

#[test]
fn late_records_about_those_who_left() {
    type Late = fn(&mut Identity);
    let late: [(&str, Late); 9] = [
        ("a second exit", |i| i.exit(WORKER, 9, 20)),
        ("a name", |i| i.rename(CHILD, b"late")),
        ("a switch", |i| _ = i.thread(WORKER, CHILD, 20)),
        ("a program", |i| i.exec(CHILD, CHILD, b"late", b"late\0", b"/late", 20)),
        ("a program of another thread than the leader", |i| {
            i.exec(WORKER, CHILD, b"late", b"late\0", b"/late", 20);
        }),
        ("a fork by one that is gone", |i| _ = i.fork(WORKER, FREE + 9, FREE + 9, b"orphan", 20)),
        ("a thread by one that is gone", |i| _ = i.fork(CHILD, FREE + 9, CHILD, b"orphan", 20)),
        ("a focus", |i| i.focus_on(CHILD)),
        ("work for the recorder", |i| i.is_ours(CHILD, 20)),
    ];
    for (what, record) in late {
        let (mut i, [parent, child, worker]) = gone();
        record(&mut i);
        check(&i);
        // Ids that others kept answer that nobody is there, and stay so.
        for old in [parent, child, worker] {
            assert!(i.row(old).is_none() && i.process_of(old).is_none() && !i.in_focus(old), "{what}");
        }
        i.refresh(2_000_000_000);
        i.refresh(4_000_000_000);
        i.spread_focus();
        assert!(i.leader(CHILD, 4_000_000_000).index() > worker.index(), "{what}");
        leave(&mut i);
    }
}

#[test]
fn whoever_was_kept_over_a_look_may_have_left() {
    let (mut i, [parent, child, worker]) = gone();
    let processes = [ProcessId(0), ProcessId(1)];
    // As if a list had outlived the rows.
    i.round = processes.to_vec();
    i.refresh(20);
    for id in [parent, child, worker] {
        i.end_thread(id, 20);
        i.judge_thread(id);
        i.set_name(id, b"late");
        i.change_thread(id, |t| t.own = true);
        i.inherit_focus(processes[0], id);
    }
    let line = |path: &str| procfs::CgroupLine { controllers: String::new(), path: path.into() };
    for id in processes {
        i.end_process(id, 20);
        i.judge_process(id);
        i.mark_process(id);
        i.read_details(id, 20);
        i.take_cgroups(id, &[line("/late")]);
        i.take_cmdline(id, b"late\0", 20);
        i.take_exe(id, "/late".into());
    }
    check(&i);
    assert_eq!(i.counts(), (0, 0));
    assert!(i.drain().is_empty(), "nobody came back by it");
}

#[test]
fn a_thread_that_lives_brings_its_process_back() {
    let mut i = small(&Focus::default(), Room { threads: 0, processes: 0 });
    let leader = i.fork(PARENT, CHILD, CHILD, b"child", 1);
    i.exit(CHILD, 0, 2);
    assert_eq!(i.process_of(leader).and_then(|p| p.end), Some(2));
    // The fork of its worker was read after its own end.
    let worker = i.fork(CHILD, WORKER, CHILD, b"worker", 3);
    assert_eq!(i.process_of(worker).map(|p| (p.end, p.exit_status)), Some((None, None)));
    check(&i);
    leave(&mut i);
    assert!(i.row(leader).is_none() && i.process_of(worker).is_some(), "the worker keeps its process");
    i.exit(WORKER, 0, 4);
    leave(&mut i);
    assert!(i.row(worker).is_none());
}

#[test]
fn one_met_before_its_fork_stays_with_its_process() {
    let mut i = small(&Focus::default(), Room { threads: 1, processes: 1 });
    // A thread of a process nobody knows, of which then another record tells the leader.
    let early = i.thread(WORKER, CHILD, 50);
    i.thread(CHILD, CHILD, 51);
    assert_eq!(i.fork(CHILD, WORKER, CHILD, b"worker", 40), early);
    check(&i);
    i.exit(WORKER, 0, 60);
    i.exit(CHILD, 0, 61);
    for n in 0..5 {
        i.fork(PARENT, FREE + 10 + n, FREE + 10 + n, b"x", 70 + u64::from(n));
        i.exit(FREE + 10 + n, 0, 80 + u64::from(n));
        leave(&mut i);
    }
    i.focus_on(CHILD);
    check(&i);
}

/// Something that happens to a thread, by places in a short list of numbers.
#[derive(Clone, Copy, Debug)]
enum Step {
    Seen(usize, usize),
    Fork(usize, usize),
    Clone(usize, usize, usize),
    Exec(usize, usize),
    Rename(usize, bool),
    Exit(usize, u32),
    Leader(usize),
    Focus(usize),
    Ours(usize),
    Refresh,
    Drain,
}

/// Numbers: some nobody has, the idle thread's, this process's own, and that of the first process.
fn numbers() -> [u32; 9] {
    let free = |n| FREE + n;
    [free(0), free(1), free(2), free(3), free(4), free(5), 0, std::process::id(), 1]
}

/// Those that may begin and end: the idle thread does neither.
const MORTAL: usize = 6;

fn steps() -> impl Strategy<Value = Vec<(Step, u64)>> {
    let who = 0..numbers().len();
    let mortal = 0..MORTAL;
    let step = prop_oneof![
        4 => (who.clone(), who.clone()).prop_map(|(a, b)| Step::Seen(a, b)),
        3 => (who.clone(), mortal.clone()).prop_map(|(a, b)| Step::Fork(a, b)),
        3 => (who.clone(), mortal.clone(), mortal.clone()).prop_map(|(a, b, c)| Step::Clone(a, b, c)),
        2 => (mortal.clone(), mortal.clone()).prop_map(|(a, b)| Step::Exec(a, b)),
        1 => (who.clone(), any::<bool>()).prop_map(|(a, b)| Step::Rename(a, b)),
        5 => (mortal.clone(), prop_oneof![Just(0), Just(9)]).prop_map(|(a, s)| Step::Exit(a, s)),
        1 => who.clone().prop_map(Step::Leader),
        1 => who.clone().prop_map(Step::Focus),
        1 => mortal.prop_map(Step::Ours),
        2 => Just(Step::Refresh),
        4 => Just(Step::Drain),
    ];
    // Within a moment, past the grace of one that ended, or past a round of looks; some records come late.
    let time = prop_oneof![4 => 0..1_000_000_u64, 2 => 0..2 * GRACE_NS, 1 => 0..3_000_000_000_u64];
    prop::collection::vec((step, time), 1..120)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases / 4, ..ProptestConfig::default() })]

    /// However threads come and go, and whatever is told of them late, the tables stay true and nobody is named
    /// that has left.
    #[test]
    fn any_order_of_records(
        steps in steps(),
        threads in 0..4_usize,
        processes in 0..3_usize,
        everybody: bool,
    ) {
        let focus = if everybody { Focus::default() } else { in_focus(FREE + 1) };
        let mut i = small(&focus, Room { threads, processes });
        let numbers = numbers();
        let (mut now, mut kept) = (1, Vec::new());
        for (step, time) in steps {
            // Every fourth is told with a time of before.
            let at = if time % 4 == 0 { now - (time % now).min(1_000_000) } else { now };
            match step {
                Step::Seen(a, 6) => kept.push(i.thread(numbers[a], 0, at)),
                Step::Seen(a, b) => kept.push(i.thread(numbers[a], if a == 6 { 0 } else { numbers[b] }, at)),
                Step::Fork(a, b) => kept.push(i.fork(numbers[a], numbers[b], numbers[b], b"child", at)),
                Step::Clone(a, b, c) => kept.push(i.fork(numbers[a], numbers[b], numbers[c], b"", at)),
                Step::Exec(a, b) => i.exec(numbers[a], numbers[b], b"new", b"new\0", b"/new", at),
                Step::Rename(a, long) => {
                    i.rename(numbers[a], if long { b"a name of 15 by\0" } else { b"x\0" });
                }
                Step::Exit(a, status) => i.exit(numbers[a], status, at),
                Step::Leader(a) => kept.push(i.leader(numbers[a], at)),
                Step::Focus(a) => i.focus_on(numbers[a]),
                Step::Ours(a) => i.is_ours(numbers[a], at),
                Step::Refresh => i.refresh(at),
                Step::Drain => {
                    let delta = i.drain();
                    for id in delta.forgotten.threads {
                        prop_assert!(i.row(id).is_none() && !i.in_focus(id));
                    }
                    let ended = i.threads.iter().filter(|(_, t)| t.row.end.is_some()).count();
                    prop_assert!(ended <= threads, "{ended} are remembered");
                }
            }
            now += time;
            check(&i);
            for &id in &kept {
                let (thread, process) = (i.row(id), i.process_of(id));
                prop_assert_eq!(thread.is_some(), process.is_some());
            }
        }
    }
}
