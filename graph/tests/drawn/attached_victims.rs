//! Recordings that begin in the middle of a hang: which wait is the victim's.

use crate::draw::Drawing;
use crate::draw::middle::{epoll, tcp, unix, waits, way};
use pg_event::{Direction, ObjectKind, Relation, ThreadId};
use pg_graph::{Selection, VictimOptions, select, victims};
/// A program waits for its child, which writes into a full pipe that the program has the other end of.
fn full_pipe() -> (Drawing, ThreadId, ThreadId) {
    let mut d = Drawing::new(5.0);
    let program = d.process("program", "program", None, 0.0);
    let child = d.process("lister", "lister", Some(program), 0.0);
    let (ended, pipe) = (d.object(ObjectKind::Child, 1001, 0, ""), d.object(ObjectKind::Pipe, 7, 0, ""));
    d.wait(program, 0.0, 5.0, "wait4").on(ended).before().open();
    d.wait(child, 0.0, 5.0, "write").on(pipe).before().open();
    d.hold(child, program, ended, Relation::ChildOf, 0.7);
    d.hold(program, child, pipe, Relation::Reads, 0.7);
    (d, program, child)
}

#[test]
fn who_waits_for_a_child_all_the_time_hangs_when_it_is_meant() {
    let (d, program, child) = full_pipe();
    let (g, c) = d.build();
    let listed = |everyone| {
        let options = VictimOptions { everyone, ..VictimOptions::default() };
        victims(&g, &c, &options).into_iter().map(|v| v.thread).collect::<Vec<_>>()
    };
    assert_eq!(listed(false), [program, child], "of the focus");
    assert_eq!(listed(true), [child], "of everybody: a shell with its command is like that, too");
    let r = full_pipe().0.diagnose("^program$");
    assert_eq!((r.victim.tid, r.circle.len()), (1000, 2), "{r:#?}");
    assert_eq!(r.victim.cut(), ", begun before the recording and not over at its end");
}

#[test]
fn the_end_of_the_recording_cuts_no_loop() {
    // Of equal sleeps, and of a last one that lasts longer than the one before.
    for (each, last) in [(0.5, 4.9), (0.2, 4.4)] {
        let mut d = Drawing::new(5.0);
        let daemon = d.process("daemon", "daemon", None, 0.0);
        let stop = d.process("stop", "stop", None, 0.0);
        let mut t = 0.1;
        while t + each < last {
            d.wait(stop, t, t + each, "pselect6").times_out();
            d.asks_for(stop, t + each + 0.0005, 1000, 0);
            t += each + 0.001;
        }
        d.wait(stop, t, 5.0, "pselect6").open();
        let stack = d.stack(&["last_job (daemon)"]);
        d.runs(daemon, 0.0, 5.0, stack);
        let r = d.diagnose("^stop$");
        assert_eq!(way(&r), [1001, 1000], "{each}: {r:#?}");
    }
}

#[test]
fn an_event_loop_with_a_connection_that_it_made_hangs_when_it_is_named() {
    let asks = |by_unix: bool, made: bool| {
        let mut d = Drawing::new(5.0);
        let t = d.process("dig", "dig", None, 0.0);
        let ends = if by_unix { unix(&mut d, 4711) } else { tcp(&mut d, 40_000, 53) };
        let set = epoll(&mut d, &[if made { ends.0 } else { ends.1 }]);
        waits(&mut d, t, "epoll_wait", set);
        let (g, c) = d.build();
        let s = Selection { pid: Some(1000), ..Selection::default() };
        assert!(victims(&g, &c, &VictimOptions::default()).is_empty(), "nobody complains");
        select(&g, &c, &s, &VictimOptions::default()).is_ok()
    };
    assert!(asks(false, true) && !asks(false, false));
    assert!(asks(true, true) && !asks(true, false));
}

/// A program starts another one, watches its event loop for the end of that and does not read what it writes.
#[test]
fn who_is_named_and_leaves_a_writer_waiting_is_the_victim() {
    let mut d = Drawing::new(9.0);
    let program = d.process("program", "program", None, 0.0);
    let helper = d.thread(program, "helper", 0.0);
    let lister = d.process("lister", "lister", Some(program), 0.0);
    let (a, b) = (d.object(ObjectKind::UnixStream, 1, 2, ""), d.object(ObjectKind::UnixStream, 2, 1, ""));
    let counter = d.object(ObjectKind::EventFd, 3, 0, "");
    let (all, word) = (epoll(&mut d, &[a, counter]), d.object(ObjectKind::Futex, 0x10, 1, ""));
    d.message(lister, b, Direction::Send, 0.4, 196_608);
    let parked =
        d.stack(&["__new_sem_wait_slow64 (libc.so.6)", "uv_sem_wait (program)", "helper_main (program)"]);
    d.wait(helper, 0.1, 9.0, "futex").on(word).stack(parked).op(128 | 9, 0).open();
    d.wait(program, 0.3, 9.0, "epoll_wait").on(all).open();
    d.wait(lister, 0.5, 9.0, "write").on(b).open();
    d.hold(lister, program, a, Relation::Peer, 1.5);
    d.hold(program, lister, b, Relation::Peer, 1.5);
    let r = d.diagnose("^program$");
    assert_eq!(r.victim.tid, 1000);
    assert_eq!(way(&r), [1000, 1002], "{r:#?}");
    assert!(r.root_causes[0].why.contains("nobody reads the other end"), "{}", r.root_causes[0].why);
}

/// A wait of the chosen process that lasted as long as the recording comes before one that was over after a while.
#[test]
fn who_waits_all_the_time_comes_before_who_waited_at_first() {
    let mut d = Drawing::new(5.0);
    let job = d.process("job", "job", None, 0.0);
    let writer = d.thread(job, "writer", 0.0);
    let reader = d.process("reader", "reader", None, 0.0);
    let fifo = d.object(ObjectKind::Fifo, 7, 7, "/ev");
    let word = d.object(ObjectKind::Futex, 0x100, 1, "");
    let lock = d.stack(&["sem_clockwait (libc.so.6)", "_enter_buffered_busy (python3)"]);
    d.wait(job, 0.0, 5.0, "futex").on(word).op(393, 0).stack(lock).before().open();
    d.wait(writer, 0.0, 1.4, "write").on(fifo).before().by(reader, "read", fifo);
    d.wait(writer, 1.41, 5.0, "clock_nanosleep").open();
    let r = d.diagnose("^job$");
    assert_eq!((r.victim.tid, r.victim.duration_ns), (1000, crate::draw::ns(5.0)), "{r:#?}");
}

/// A runtime waits for the end of what a script printed; a program that the script left behind has the other end open. Beside
/// that, a thread of the runtime waits all the time for the day when it is needed.
#[test]
fn who_waits_for_the_output_of_others_comes_before_the_parked() {
    for (known, on) in [(true, ""), (false, ""), (true, "sem")] {
        let mut d = Drawing::new(5.0);
        let node = d.process("node", "node app.js", None, 0.0);
        let parked = d.thread(node, "inspector", 0.0);
        let left = d.process("perl", "perl -e 'sleep 9'", None, 0.0);
        let output = d.object(ObjectKind::UnixStream, 55, 56, "");
        let counter = d.object(ObjectKind::EventFd, 5, 0, "");
        let poll = epoll(&mut d, &[counter, output]);
        let word = d.object(ObjectKind::Futex, 0x5660_0460, 77, "");
        let frames: &[&str] = if on.is_empty() {
            &["start_inspector (node)"]
        } else {
            &["__new_sem_wait_slow64 (libc.so.6)", "uv_sem_wait (node)", "start_inspector (node)"]
        };
        let stack = d.stack(frames);
        d.wait(node, 0.0, 5.0, "epoll_pwait").on(poll).before().open();
        let bits = crate::draw::PRIVATE_WAIT;
        d.wait(parked, 0.0, 5.0, "futex").on(word).op(bits, 0).stack(stack).before().open();
        d.wait(left, 0.0, 5.0, "clock_nanosleep").before().open();
        if known {
            d.hold(left, node, output, Relation::Peer, 1.0);
        }
        let r = d.diagnose("^node app.js$");
        assert_eq!(r.victim.tid, if known { 1000 } else { 1001 }, "{r:#?}");
        if known {
            let c = &r.root_causes[0];
            assert_eq!(c.process.as_deref(), Some("perl"), "{r:#?}");
            assert!(c.why.contains("it has the other end of unix:[55] open"), "{}", c.why);
        }
    }
}

/// A thread of a runtime waits for the output of a command, and the first thread for that one: the first is what hangs.
#[test]
fn who_waits_for_a_thread_that_reads_output_is_still_the_victim() {
    let mut d = Drawing::new(5.0);
    let node = d.process("node", "node app.js", None, 0.0);
    let parked = d.thread(node, "inspector", 0.0);
    let worker = d.thread(node, "worker", 0.0);
    let command = d.process("sleep", "sleep 60", Some(node), 0.0);
    let output = d.object(ObjectKind::UnixStream, 55, 56, "");
    let poll = epoll(&mut d, &[output]);
    let words = [0x10, 0x900].map(|w| d.object(ObjectKind::Futex, w, 77, ""));
    let stack =
        d.stack(&["__new_sem_wait_slow64 (libc.so.6)", "uv_sem_wait (node)", "start_inspector (node)"]);
    for (t, word) in [(node, words[0]), (parked, words[1])] {
        let w = d.wait(t, 0.0, 5.0, "futex").on(word).op(crate::draw::PRIVATE_WAIT, 0);
        (if t == parked { w.stack(stack) } else { w }).before().open();
    }
    d.wait(worker, 0.0, 5.0, "epoll_pwait").on(poll).before().open();
    d.wait(command, 0.0, 5.0, "clock_nanosleep").before().open();
    d.hold(command, worker, output, Relation::Peer, 1.0);
    let r = d.diagnose("^node app.js$");
    assert_eq!(r.victim.tid, 1000, "{r:#?}");
}

/// An agent reads each second what the kernel tells of its devices: that adds up, and is no hang.
#[test]
fn who_reads_what_the_kernel_tells_now_and_then_does_not_hang() {
    let mut d = Drawing::new(9.0);
    let agent = d.process("agent", "agent", None, 0.0);
    let job = d.process("job", "job", None, 0.0);
    for n in 0..8 {
        let at = f64::from(n) + 0.5;
        d.wait(agent, at, at + 0.999, "read").timer();
    }
    d.wait(agent, 8.5, 9.0, "pause").open();
    let lock = d.object(ObjectKind::FileLock, 7, 0, "/run/lock");
    d.wait(job, 4.0, 9.0, "flock").on(lock).open();
    let (g, c) = d.build();
    let all = victims(&g, &c, &VictimOptions::default());
    assert_eq!(all.first().map(|v| v.thread), Some(job), "{all:#?}");
}
