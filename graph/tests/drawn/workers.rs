//! Kernel workers: what they do is for others.

use crate::draw::{Drawing, slice};
use pg_event::{Direction, ObjectKind, OffState, ThreadId};
use pg_graph::EdgeKind;

/// A line goes from a writer to a reader through a worker of the kernel, which did nothing of its own.
#[test]
fn the_requester_is_carried_on_to_whom_the_worker_wakes() {
    let mut d = Drawing::new(10.0);
    let reader = d.process("reader", "reader", None, 0.0);
    let writer = d.process("writer", "writer", None, 0.0);
    let (worker, other) = (d.kernel("kworker/u8:1"), d.kernel("kworker/u8:2"));
    let pty = d.object(ObjectKind::Pipe, 5, 5, "");
    let flush = d.object(ObjectKind::Work, 1, 0, "flush_to_ldisc");
    let work = d.stack(&["crunch (writer)", "main (writer)"]);
    d.runs(writer, 0.0, 6.0, work);
    // Another worker of the same pool woke it: that says nothing.
    d.wait(worker, 0.0, 6.000_1, "read").in_no_call().state(OffState::Idle).by_kernel(other);
    d.work(worker, flush, writer, 6.0, 6.000_2);
    d.wait(reader, 1.0, 6.000_2, "read").on(pty).by_kernel(worker);
    let (g, c) = d.build();
    let woken = g.vertices_of(reader).last().unwrap();
    let e = g.edge(g.waking(woken).unwrap());
    assert_eq!((g.vertex(e.from).thread, e.kind, e.weak), (writer, EdgeKind::Work, None));
    assert_eq!((e.from_time, e.to_time), (6_000_000_000, 6_000_200_000));
    let given: Vec<_> = g
        .incoming(g.vertices_of(worker).last().unwrap())
        .map(|id| g.vertex(g.edge(id).from).thread)
        .collect();
    assert!(given.contains(&writer), "{given:?}");
    assert_eq!(g.works_of(worker, 0..7_000_000_000).len(), 1);
    assert_eq!(c.thread(worker).map(|t| t.kernel), Some(true));
}

/// What the waiting thread itself asked a worker to do took long: the worker is a step, with what it waited for.
#[test]
fn a_worker_that_waits_for_another_program_is_a_step() {
    let mut d = Drawing::new(10.0);
    let program = d.process("program", "program", None, 0.0);
    let daemon = d.process("slowfs", "slowfs /mnt", None, 0.0);
    let worker = d.kernel("kworker/u8:1");
    let file = d.object(ObjectKind::File, 7, 8, "/mnt/f");
    let fuse = d.object(ObjectKind::CharDevice, 1, 2, "/dev/fuse");
    let lo = d.object(ObjectKind::Work, 1, 0, "loop_workfn");
    let disk = d.stack(&["folio_wait_writeback ([kernel])", "ext4_sync_file ([kernel])"]);
    let request = d.stack(&["request_wait_answer ([kernel])", "fuse_file_write_iter ([kernel])"]);
    d.wait(worker, 0.0, 1.0, "read").in_no_call().state(OffState::Idle).by_kernel(program);
    d.wait(daemon, 1.01, 8.0, "clock_nanosleep").times_out();
    d.wait(worker, 1.01, 8.001, "read").in_no_call().in_kernel(request).by(daemon, "writev", fuse);
    d.work(worker, lo, program, 1.0, 8.002);
    d.wait(program, 1.0, 8.002, "fsync")
        .on(file)
        .in_kernel(disk)
        .state(OffState::Uninterruptible)
        .by_kernel(worker);
    let r = d.diagnose("^program");
    assert_eq!(slice(&r), ["kworker/u8:1", "slowfs /mnt"]);
    assert_eq!(r.root_causes[0].process.as_deref(), Some("slowfs"));
    assert!(r.root_causes[0].why.contains("slept"), "{}", r.root_causes[0].why);
    let second = r.root_causes.iter().find(|c| c.process.as_deref() == Some("kworker/u8:1"));
    if let Some(c) = second {
        assert!(c.why.contains("executing loop_workfn for program"), "{}", c.why);
    }
}

/// A device was slow; the workers that had a hand in it had nothing to do meanwhile.
#[test]
fn idle_workers_are_no_cause() {
    let mut d = Drawing::new(10.0);
    let program = d.process("program", "program", None, 0.0);
    let (worker, timer) = (d.kernel("kworker/u8:1"), d.kernel("kworker/u8:2"));
    let file = d.object(ObjectKind::File, 7, 8, "/mnt/f");
    let lo = d.object(ObjectKind::Work, 1, 0, "loop_workfn");
    let disk = d.stack(&["folio_wait_writeback ([kernel])", "ext4_sync_file ([kernel])"]);
    for (i, t) in [(0, 1.5), (1, 5.9)] {
        let since = if i == 0 { 0.0 } else { 1.6 };
        d.wait(timer, since, t, "read").in_no_call().state(OffState::Idle).timer();
        d.wait(worker, since + 0.01, t + 0.01, "read").in_no_call().state(OffState::Idle).by_kernel(timer);
    }
    d.work(worker, lo, ThreadId::NONE, 5.905, 5.92);
    d.wait(program, 1.0, 5.92, "fsync")
        .on(file)
        .in_kernel(disk)
        .state(OffState::Uninterruptible)
        .by_kernel(worker);
    let r = d.diagnose("^program");
    assert_eq!(slice(&r), Vec::<String>::new());
    let c = &r.root_causes[0];
    assert_eq!(c.process.as_deref(), Some("program"));
    assert!(c.why.contains("for the disk (/mnt/f)"), "{}", c.why);
    assert!(r.questions.is_empty());
    assert!(r.others.iter().any(|o| format!("{o:?}").contains("acts for others")), "{:?}", r.others);
}

/// A disk serves another program while somebody waits for it.
#[test]
fn whom_the_disk_served_meanwhile_is_said() {
    let mut d = Drawing::new(10.0);
    let small = d.process("small", "small", None, 0.0);
    let big = d.process("big", "big", None, 0.0);
    let file = d.object(ObjectKind::File, 7, 8, "/mnt/f");
    let (disk, other) = (
        d.object(ObjectKind::BlockDevice, 1, 0, "/dev/sda"),
        d.object(ObjectKind::BlockDevice, 2, 0, "/dev/sdb"),
    );
    let wait = d.stack(&["folio_wait_writeback ([kernel])", "ext4_sync_file ([kernel])"]);
    for i in 0..8 {
        d.message(big, disk, Direction::Send, 1.5 + f64::from(i) * 0.5, 1 << 20);
        d.message(big, other, Direction::Send, 1.6 + f64::from(i) * 0.5, 1 << 22);
    }
    d.message(small, disk, Direction::Send, 5.9, 1 << 20);
    d.wait(small, 1.0, 5.95, "fsync").on(file).in_kernel(wait).state(OffState::Uninterruptible).interrupted();
    let r = d.diagnose("^small");
    let why = &r.root_causes[0].why;
    assert!(r.questions.is_empty());
    assert!(why.contains("89 % of what /dev/sda did meanwhile was for big:"), "{why}");
}

/// A writer is put off again and again since what was written has not reached the disk. `served` draws a thread that
/// is the disk, `stuck` has the worker that writes back wait itself.
fn put_off(served: bool, stuck: bool) -> pg_graph::report::Report {
    let mut d = Drawing::new(10.0);
    let program = d.process("program", "program", None, 0.0);
    let daemon = d.process("slowfs", "slowfs /mnt", None, 0.0);
    let (flusher, server, other) =
        (d.kernel("kworker/u8:1"), d.kernel("kworker/u8:2"), d.kernel("kworker/u8:3"));
    let file = d.object(ObjectKind::File, 7, 8, "/mnt/f");
    let fuse = d.object(ObjectKind::CharDevice, 1, 2, "/dev/fuse");
    let (disk, vda) = (
        d.object(ObjectKind::BlockDevice, 1, 0, "/dev/loop0"),
        d.object(ObjectKind::BlockDevice, 2, 0, "/dev/vda"),
    );
    let pause = d.stack(&["balance_dirty_pages ([kernel])", "ext4_buffered_write_iter ([kernel])"]);
    let request = d.stack(&["request_wait_answer ([kernel])", "fuse_file_write_iter ([kernel])"]);
    let queue = d.stack(&["blk_mq_get_tag ([kernel])", "wb_workfn ([kernel])"]);
    for i in 0..20 {
        let at = 1.0 + f64::from(i) * 0.2;
        if stuck {
            d.wait(flusher, at + 0.001, at + 0.19, "read").in_no_call().in_kernel(queue).interrupted();
        } else {
            d.wait(flusher, at - 0.19, at, "read").in_no_call().state(OffState::Idle).by_kernel(program);
        }
        d.message_told(flusher, disk, Direction::Send, (at + 0.000_01, at + 0.15), 1 << 18);
        // Another disk has much more to do, which nobody waits for.
        d.message_told(other, vda, Direction::Send, (at + 0.000_01, at + 0.1), 1 << 24);
        if served {
            d.wait(server, at + 0.001, at + 0.149, "read")
                .in_no_call()
                .in_kernel(request)
                .by(daemon, "writev", fuse);
            d.message_told(server, disk, Direction::Receive, (at + 0.000_01, at + 0.15), 1 << 18);
        }
        d.wait(program, at, at + 0.199_9, "write")
            .on(file)
            .in_kernel(pause)
            .state(OffState::Uninterruptible)
            .timer();
    }
    d.wait(daemon, 1.01, 8.0, "clock_nanosleep").times_out();
    d.exit(program, 5.0);
    d.diagnose("^program")
}

#[test]
fn who_writes_back_is_no_wake_up() {
    // A thread is the disk: the way goes on there.
    let r = put_off(true, false);
    assert_eq!(r.slice[0].waits_on.as_deref(), Some("write-back"), "{r:#?}");
    assert_eq!(slice(&r), ["kworker/u8:2", "slowfs /mnt"]);
    assert_eq!((r.slice[1].edge.as_deref(), r.slice[1].strength.as_deref()), (Some("holder"), Some("weak")));
    let why = r.slice[1].why_weak.as_deref().unwrap();
    assert!(why.contains("kworker/u8:1") && why.contains("wrote back to /dev/loop0 meanwhile"), "{why}");
    assert_eq!(r.root_causes[0].process.as_deref(), Some("slowfs"));

    // A disk of its own: it is the cause, in the step of the writer.
    let r = put_off(false, false);
    assert_eq!(slice(&r), Vec::<String>::new());
    let why = &r.root_causes[0].why;
    assert!(why.contains("in write for written data to reach the disk (/mnt/f): too much that was"), "{why}");
    assert!(why.contains("wrote back to /dev/loop0 meanwhile"), "{why}");
    assert!(r.questions.is_empty());

    // Who writes back is held up itself: that is a step.
    let r = put_off(false, true);
    assert_eq!(slice(&r), ["kworker/u8:1"]);
}

/// A program waits for the journal of a file system, and that for what another program has written: a slow disk writes it
/// piece by piece. Whose data that is, is told by whoever goes on with each piece.
#[test]
fn a_journal_waits_for_whose_data_it_orders() {
    for together in [true, false] {
        let mut d = Drawing::new(14.0);
        let insert = d.process("insert", "insert", None, 0.0);
        let copy = d.process("copy", "copy data", None, 0.0);
        let (journal, worker) = (d.kernel("jbd2/loop0-8"), d.kernel("kworker/u8:1"));
        let (mine, theirs) =
            (d.object(ObjectKind::File, 7, 8, "/vol/db"), d.object(ObjectKind::File, 9, 8, "/vol/copy"));
        let commit = d.stack(&["jbd2_log_wait_commit ([kernel])", "ext4_sync_file ([kernel])"]);
        let pages = ["folio_wait_bit ([kernel])", "folio_wait_writeback ([kernel])"];
        let data = d.stack(&[pages[0], pages[1], "ext4_sync_file ([kernel])"]);
        let ordered = d.stack(&[pages[0], pages[1], "jbd2_journal_commit_transaction ([kernel])"]);
        for (from, to) in [(1.0, 3.0), (3.001, 6.0), (6.001, 11.0), (11.001, 12.9)] {
            let disk = OffState::Uninterruptible;
            d.wait(journal, from, to, "read").in_no_call().in_kernel(ordered).state(disk).by_kernel(worker);
            let idle = d.wait(worker, from - 0.000_5, to - 0.000_1, "read").in_no_call();
            idle.state(OffState::Idle).timer();
            let to = if together { to + 0.000_01 } else { to - 0.3 };
            d.wait(copy, from, to, "fsync").on(theirs).in_kernel(data).state(disk).by_kernel(worker);
        }
        let wait = d.wait(insert, 1.0, 13.0, "fdatasync").on(mine).in_kernel(commit);
        wait.state(OffState::Uninterruptible).by_kernel(journal);
        let r = d.diagnose("^insert$");
        let first = r.root_causes[0].process.as_deref();
        assert_eq!(first, Some(if together { "copy" } else { "insert" }), "{r:#?}");
    }
}
