//! Where all that could act wait for one another nothing is asked: a person is told of the circle as a script is.

use crate::draw::Drawing;
use pg_event::{ObjectId, ObjectKind, Relation, ThreadId};
use pg_graph::report::Report;
use pg_graph::{Diagnosis, Options, Selection, Step, VictimOptions, run_with_policy, select};
use proptest::prelude::*;

const PRIVATE_WAIT: u32 = 128 | 9;

/// Diagnose the hang at `at` as a person would who has not answered yet: the verdict must come without a question, and be that of the
/// policy.
fn told(d: Drawing, tid: u32, at: f64) -> Report {
    let (g, c) = d.build();
    let s = Selection { tid: Some(tid), at: Some(crate::draw::ns(at)), ..Selection::default() };
    let v = select(&g, &c, &s, &VictimOptions::default()).unwrap();
    let mut person = Diagnosis::new(&g, &c, v.clone(), Options::default());
    let report = loop {
        match person.next() {
            Step::Ask(q) => panic!("asked {:?}: {}", q.key.kind, q.text),
            Step::Progress(_) => {}
            Step::Done(r) => break *r,
        }
    };
    assert_eq!(report, run_with_policy(&g, &c, v, Options::default()));
    report
}

fn is_circle(r: &Report) {
    assert!(r.root_causes[0].why.starts_with("circular wait"), "{r:#?}");
    assert!(r.circle.len() > 1, "{r:#?}");
}

/// Locks of a language, whose owners nobody writes down. Before, each was handed on by several threads: that tells
/// who acts when it goes well, and none of them can.
fn locks(threads: usize, rounds: usize, works_until: f64) -> Drawing {
    let mut d = Drawing::new(20.0);
    let main = d.process("py", "py jobs.py", None, 0.0);
    let all: Vec<_> = (0..threads).map(|i| d.thread(main, &format!("job-{i}"), 0.1)).collect();
    let words: Vec<_> = (0..=threads).map(|i| d.object(ObjectKind::Futex, 0x100 + i as u64, 1, "")).collect();
    let lock = d.stack(&["sem_wait (libc.so.6)", "PyThread_acquire_lock_timed (python3)", "eval (python3)"]);
    let own = words[threads];
    let mut t = 0.2;
    for round in 0..rounds {
        let by = all[round % threads];
        let wait = d.wait(main, t, t + 0.05, "futex").on(own).stack(lock).op(PRIVATE_WAIT, 0);
        wait.by(by, "futex", own);
        t += 0.1;
    }
    d.wait(main, t, 20.0, "futex").on(own).stack(lock).op(PRIVATE_WAIT, 0).open();
    for (i, &thread) in all.iter().enumerate() {
        let begin = t.max(works_until) + 0.1 * i as f64;
        d.wait(thread, begin, 20.0, "futex").on(words[i]).stack(lock).op(PRIVATE_WAIT, 0).open();
    }
    d
}

/// `n` processes read from pipes, each from the one that the next one is to fill. Their parent and whoever else
/// inherited them have all the ends open, too.
fn pipes(n: usize, inherited: bool) -> Drawing {
    let mut d = Drawing::new(12.0);
    let parent = d.process("sh", "sh both.sh", None, 0.0);
    let all: Vec<_> = (0..n).map(|i| d.process("cat", &format!("cat {i}"), Some(parent), 0.1)).collect();
    let pipes: Vec<_> = (0..n as u64).map(|i| d.object(ObjectKind::Pipe, 70 + i, 70 + i, "")).collect();
    let any = d.object(ObjectKind::Child, 0, 0, "");
    for &t in &all {
        d.spawn(parent, t, 0.1);
    }
    d.wait(parent, 0.2, 12.0, "wait4").on(any).open();
    for i in 0..n {
        d.wait(all[i], 0.5, 12.0, "read").on(pipes[i]).open();
        d.hold(all[i], parent, any, Relation::ChildOf, 1.2);
        for (j, &holder) in all.iter().enumerate() {
            if j == (i + 1) % n || (inherited && j != i) {
                d.hold(holder, all[i], pipes[i], Relation::Writes, 1.6);
            }
        }
        if inherited {
            d.hold(parent, all[i], pipes[i], Relation::Writes, 1.5);
        }
    }
    d
}

/// Two that open FIFOs for each other again and again, each for several others, too; in the end crosswise.
#[test]
fn fifos_that_were_opened_before() {
    let mut d = Drawing::new(12.0);
    let fifos: Vec<_> =
        ["/run/x/a", "/run/x/b"].iter().map(|n| d.object(ObjectKind::Fifo, 0, 0, n)).collect();
    let server = d.process("server", "server", None, 0.0);
    let client = d.process("client", "client", None, 0.0);
    let others: Vec<_> = (0..3).map(|_| d.process("other", "other", None, 0.0)).collect();
    let mut t = 0.2;
    for by in others.iter().chain([&client]) {
        d.wait(server, t, t + 0.1, "openat").on(fifos[0]).by(*by, "openat", fifos[0]);
        t += 0.2;
    }
    d.wait(server, t, 12.0, "openat").on(fifos[0]).open();
    d.wait(client, t, 12.0, "openat").on(fifos[1]).open();
    for &o in &others {
        d.wait(o, t, 12.0, "read").on(fifos[1]).open();
    }
    is_circle(&told(d, 1000, 11.0));
}

/// Somebody outside of the circle has an end, too: whoever is not stuck may act, and it is no circle.
#[test]
fn who_may_still_act_is_asked_about() {
    let mut d = pipes(2, true);
    let pipe = ObjectId(0);
    let (left, busy) = (ThreadId(1), d.process("busy", "busy", None, 0.0));
    let stack = d.stack(&["compute (busy)", "main (busy)"]);
    d.runs(busy, 0.4, 12.0, stack);
    d.hold(busy, left, pipe, Relation::Writes, 1.6);
    let r = d.diagnose("^cat 0$");
    assert!(r.circle.is_empty(), "{r:#?}");
    assert_eq!(r.root_causes[0].process.as_deref(), Some("busy"), "{r:#?}");
}

/// The threads of a process waited for one another for the last seconds only; before, they worked while the main
/// thread waited for them.
#[test]
fn a_circle_that_closed_late() {
    is_circle(&told(locks(3, 0, 15.0), 1000, 19.0));
    let r = told(locks(3, 0, 15.0), 1001, 19.0);
    assert_eq!(r.slice.len(), 4, "{r:#?}");
}

/// Waits with time-outs end by themselves: no circle is certain.
#[test]
fn time_outs_open_a_circle() {
    let mut d = Drawing::new(12.0);
    let main = d.process("app", "app", None, 0.0);
    let one = d.thread(main, "one", 0.1);
    let words: Vec<_> = (0..2).map(|i| d.object(ObjectKind::Futex, 0x100 + i, 1, "")).collect();
    let lock = d.stack(&["sem_wait (libc.so.6)", "acquire_lock (app)"]);
    d.wait(one, 0.5, 11.9, "futex").on(words[0]).stack(lock).op(PRIVATE_WAIT, 0).times_out();
    d.wait(main, 0.5, 11.9, "futex").on(words[1]).stack(lock).op(PRIVATE_WAIT, 0).times_out();
    let r = d.diagnose("^app$");
    assert!(!r.root_causes[0].why.starts_with("circular wait (deadlock)"), "{r:#?}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases / 4, ..ProptestConfig::default() })]
    #[test]
    fn circles_are_told_without_a_question(
        n in 2usize..6, rounds in 0usize..8, until in 0.0f64..17.0, inherited in any::<bool>(), who in 0u32..6,
    ) {
        let tid = 1000 + who % (n as u32 + 1);
        is_circle(&told(locks(n, rounds, until), tid, 19.0));
        is_circle(&told(pipes(n, inherited), tid, 11.0));
    }
}
