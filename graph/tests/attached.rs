//! Recordings that begin in the middle of the hang and end before it does: whoever waits had begun before, and goes on.

mod draw;

use draw::Drawing;
use pg_event::{Direction, ObjectKind, Relation, ThreadId};
use pg_graph::{VictimOptions, victims};

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
}

/// A main thread that waits, by time-outs of its own, on a pair of sockets of its own process; `others`: what else runs
/// there, besides idle workers. What it is to be told was asked before the recording.
fn own_pair(lookups: usize, idle: usize) -> (Drawing, Vec<ThreadId>, ThreadId) {
    let mut d = Drawing::new(5.0);
    let main = d.process("fetch", "fetch", None, 0.0);
    let names = d.process("names", "names", None, 0.0);
    let (a, b) = (d.object(ObjectKind::UnixStream, 1, 2, ""), d.object(ObjectKind::UnixStream, 2, 1, ""));
    let pair = d.set(&[a, b]);
    let mut looking = Vec::new();
    for i in 0..lookups {
        let t = d.thread(main, "fetch", 0.0);
        let udp = d.object(ObjectKind::Udp, 100 + i as u64, 53, "");
        d.wait(t, 0.0, 1.4, "poll").on(udp).before().times_out();
        d.message(t, udp, Direction::Send, 1.401, 30);
        d.wait(t, 1.402, 5.0, "poll").on(udp).open();
        d.hold(names, t, udp, Relation::Peer, 2.0);
        looking.push(t);
    }
    let word = d.object(ObjectKind::Futex, 0x10, 1, "");
    let work = d.stack(&["pthread_cond_wait (libc.so.6)", "next_job (fetch)"]);
    for _ in 0..idle {
        let t = d.thread(main, "pool", 0.0);
        d.wait(t, 0.0, 5.0, "futex").on(word).stack(work).op(128 | 9, 0).before().open();
    }
    let mut t = 0.0;
    while t + 0.25 < 5.0 {
        d.wait(main, t, t + 0.25, "poll").on(pair).times_out();
        t += 0.2502;
    }
    d.wait(main, t, 5.0, "poll").on(pair).open();
    d.hold(main, main, a, Relation::Peer, 1.0);
    d.hold(main, main, b, Relation::Peer, 1.0);
    let any = d.set(&[]);
    d.wait(names, 0.0, 5.0, "pselect6").on(any).before().open();
    (d, looking, names)
}

#[test]
fn who_waits_for_its_own_process_waits_for_the_other_thread_of_that() {
    for idle in [0, 3] {
        let (d, looking, _) = own_pair(1, idle);
        let r = d.diagnose("^fetch$");
        let tids: Vec<_> = r.slice.iter().map(|n| (n.process.as_str(), n.tid)).collect();
        assert_eq!(looking.len(), 1);
        assert_eq!(tids.get(1).map(|t| t.0), Some("fetch"), "{idle} {r:#?}");
        assert_eq!(tids.get(2).map(|t| t.0), Some("names"), "{idle} idle: {tids:?}");
        assert!(r.questions.is_empty(), "{r:#?}");
    }
}

#[test]
fn of_several_threads_at_work_none_is_picked() {
    let (d, ..) = own_pair(2, 0);
    let r = d.diagnose("^fetch$");
    assert!(r.slice.iter().all(|n| n.process == "fetch"), "{r:#?}");
    let (d, ..) = own_pair(0, 2);
    let r = d.diagnose("^fetch$");
    assert_eq!(r.slice.len(), 1, "idle workers are no cause: {r:#?}");
}
