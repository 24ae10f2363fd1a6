//! Repeated yield: which data flag a loop asks for, and who lets it go on (algorithm 1, lines 6 to 11).

use crate::draw::{Drawing, ns};
use pg_event::{Catalog, LoopTurn, ObjectKind, OffState, Relation, StackId, ThreadId};
use pg_graph::report::Report;
use pg_graph::sim::{Act, Asking, Recording, Script, Setup};
use pg_graph::{
    BlockType, By, Diagnosis, EdgeKind, EventGraph, Options, Question, QuestionKind, Selection, Step, Victim,
    VictimOptions, parse_answers, run_with, run_with_policy, select, take_answer,
};
use proptest::prelude::*;

const MS: u64 = 1_000_000;

fn victim(g: &EventGraph, c: &Catalog, tid: u32) -> Victim {
    let s = Selection { tid: Some(tid), ..Selection::default() };
    select(g, c, &s, &VictimOptions::default()).unwrap()
}

fn next_question(d: &mut Diagnosis<'_>) -> Option<Box<Question>> {
    loop {
        match d.next() {
            Step::Ask(q) => return Some(q),
            Step::Progress(_) => {}
            Step::Done(_) => return None,
        }
    }
}

fn done(d: &mut Diagnosis<'_>) -> Report {
    if let Some(q) = next_question(d) {
        panic!("{q:#?}");
    }
    d.report()
}

/// A window naps until a painter has set `painted`; it reads a heartbeat too, which a clock writes all the time.
struct Painted {
    g: EventGraph,
    c: Catalog,
}

fn painted(written: bool) -> Painted {
    let mut d = Drawing::new(12.0);
    let window = d.process("shell", "shell", None, 0.0);
    let painter = d.thread(window, "painter", 0.0);
    let clock = d.thread(window, "clock", 0.0);
    let flag = d.object(ObjectKind::Memory, 0x5550_1000, 1, "painted");
    let beat = d.object(ObjectKind::Memory, 0x5550_2000, 1, "beat");
    let nap = d.stack(&["clock_nanosleep (libc.so.6)", "wait_painted (shell)", "main (shell)"]);
    let paint = d.stack(&["blur (shell)", "paint (shell)"]);
    let none = StackId::NONE;
    // It went well before: painted within 20 ms.
    d.flag(window, flag, 0.5, 0, false, none);
    d.wait(window, 0.5, 0.52, "clock_nanosleep").stack(nap).times_out();
    d.flag(painter, flag, 0.515, 1, true, paint);
    d.flag(window, flag, 0.5201, 1, false, none);
    d.flag(window, flag, 0.53, 0, true, none);
    d.runs(window, 0.53, 2.0, nap);
    d.naps(window, 2.0, 10.0, 0.02, nap);
    let mut t = 2.001;
    while t < 10.0 {
        d.flag(window, flag, t, 0, false, none);
        d.flag(window, beat, t + 0.000_01, (t * 10.0) as u64, false, none);
        d.flag(clock, beat, t + 0.000_02, (t * 10.0) as u64, true, none);
        t += 0.0201;
    }
    d.runs(painter, 1.0, 9.995, paint);
    if written {
        d.flag(painter, flag, 9.99, 1, true, paint);
        d.flag(window, flag, 10.001, 1, false, none);
    }
    d.wait(window, 10.1, 12.0, "pause").open();
    d.wait(painter, 10.0, 12.0, "pause").open();
    d.wait(clock, 10.0, 12.0, "pause").open();
    let (g, c) = d.build();
    Painted { g, c }
}

#[test]
fn the_flag_is_asked_for_and_its_writer_followed() {
    let Painted { g, c } = painted(true);
    let v = victim(&g, &c, 1000);
    assert_eq!(v.block_type, BlockType::RepeatedYield);
    let mut d = Diagnosis::new(&g, &c, v, Options::default());
    let q = next_question(&mut d).expect("which flag?");
    assert_eq!((q.key.kind, q.number, q.recommended), (QuestionKind::DataFlag, 1, 1));
    assert_eq!(q.choices.len(), 2, "both flags that the loop reads: {q:#?}");
    let best = &q.choices[0];
    assert!(best.label.contains("painted") && best.label.contains("0x55501000"), "{best:#?}");
    assert!(best.strong && best.time == ns(9.99) && best.edge.is_some());
    assert!(best.detail.contains("wrote 1 at 9.990 s"), "{}", best.detail);
    assert!(best.stack.iter().any(|f| f.starts_with("blur")), "{best:#?}");
    assert!(best.nearby.iter().any(|e| e.text.contains("writes 1")), "{best:#?}");
    assert!(best.nearby.windows(2).all(|w| w[0].time <= w[1].time));
    assert!(q.choices[1].label.contains("beat") && q.reason.contains("painted"), "{q:#?}");

    d.answer(1, By::User);
    let r = done(&mut d);
    assert_eq!(r.questions[0].kind, "data-flag");
    assert_eq!((r.questions[0].options, r.questions[0].answer, r.questions[0].by.as_str()), (2, 1, "user"));
    assert_eq!(r.slice.len(), 2, "{r:#?}");
    assert_eq!(
        (r.slice[0].waits_on.as_deref(), r.slice[1].edge.as_deref()),
        (Some("data-flag"), Some("data-flag"))
    );
    assert_eq!(r.slice[1].strength.as_deref(), Some("strong"));
    let cause = &r.root_causes[0];
    assert_eq!((cause.thread.as_deref(), cause.function.as_deref()), (Some("painter"), Some("blur")));
    assert_eq!(cause.block_type, Some(BlockType::LongRunning));
    assert!(cause.why.contains("painted"), "{}", cause.why);

    // Unknown: the loop itself is the cause; undo brings the question back; the decision replays.
    assert!(d.undo());
    assert_eq!(next_question(&mut d).as_deref(), Some(&*q));
    d.answer(0, By::User);
    let r = done(&mut d);
    assert_eq!(r.root_causes[0].tid, Some(1000));
    assert!(r.root_causes[0].why.contains("whether it may go on"), "{}", r.root_causes[0].why);
    let kept = d.decisions().to_vec();
    let v = victim(&g, &c, 1000);
    let mut again = Diagnosis::with_decisions(&g, &c, v, Options::default(), kept);
    assert_eq!(done(&mut again), r);
}

#[test]
fn the_policy_and_an_answers_file_answer() {
    let Painted { g, c } = painted(true);
    let r = run_with_policy(&g, &c, victim(&g, &c, 1000), Options::default());
    assert_eq!((r.questions[0].kind.as_str(), r.questions[0].by.as_str()), ("data-flag", "policy"));
    assert_eq!(r.root_causes[0].thread.as_deref(), Some("painter"));
    let mut lines = parse_answers("data-flag = 2\n").unwrap();
    let r =
        run_with(&g, &c, victim(&g, &c, 1000), Options::default(), |q| match take_answer(&mut lines, q) {
            Some(a) => (a.unwrap_or(q.recommended), By::Answers),
            None => (q.recommended, By::Policy),
        });
    assert_eq!((r.questions[0].answer, r.questions[0].by.as_str()), (2, "answers"));
    assert_eq!(r.root_causes[0].thread.as_deref(), Some("clock"), "who writes what was chosen: {r:#?}");
}

/// Nobody wrote the flag this time: as in a long wait, whoever did when it went well is looked at.
#[test]
fn a_write_that_never_came() {
    let Painted { g, c } = painted(false);
    let r = run_with_policy(&g, &c, victim(&g, &c, 1000), Options::default());
    assert_eq!(r.root_causes[0].thread.as_deref(), Some("painter"), "{r:#?}");
    let step = &r.slice[1];
    assert_eq!((step.edge.as_deref(), step.strength.as_deref()), (Some("data-flag"), Some("weak")));
    assert!(step.why_weak.as_ref().unwrap().contains("0.515 s"), "{step:?}");
}

/// Without a recorded flag the question says how to record one.
#[test]
fn without_a_flag_it_says_how_to_record_one() {
    let mut d = Drawing::new(12.0);
    let lone = d.process("spin", "spin", None, 0.0);
    let nap = d.stack(&["clock_nanosleep (libc.so.6)", "wait_ready (spin)", "main (spin)"]);
    d.naps(lone, 1.0, 9.0, 0.01, nap);
    d.wait(lone, 9.5, 12.0, "pause").open();
    let (g, c) = d.build();
    let mut d = Diagnosis::new(&g, &c, victim(&g, &c, 1000), Options::default());
    let q = next_question(&mut d).expect("a question");
    assert_eq!((q.key.kind, q.choices.len(), q.recommended), (QuestionKind::DataFlag, 0, 0));
    assert!(q.why.contains("wait_ready") && q.why.contains("pg-tui find-flag -p 1000 -t 1000"), "{}", q.why);
    d.answer(3, By::User);
    let r = done(&mut d);
    assert_eq!((r.questions[0].options, r.questions[0].answer), (0, 0));
    assert_eq!(r.root_causes[0].block_type, Some(BlockType::RepeatedYield));
}

/// What the code of a loop was seen to do decides whether it asks or works, not how small it is.
#[test]
fn what_the_code_of_a_loop_does_tells_whether_it_asks() {
    let asks = |of: &[&str]| LoopTurn::Asks(of.iter().map(|v| (*v).to_owned()).collect());
    let (yields, works) = (BlockType::RepeatedYield, BlockType::LongRunning);
    for (turn, is, says) in [
        (LoopTurn::Unknown, yields, "asks a variable whether it may go on, or computes"),
        (asks(&["ready"]), yields, "which asks ready again and again"),
        (asks(&["ready"]), yields, "until another thread writes ready"),
        (asks(&[]), yields, "until another thread writes what it reads"),
        (LoopTurn::Works, works, "wait_ready"),
        (LoopTurn::Endless, works, "in a loop that no instruction leads out of"),
    ] {
        let mut d = Drawing::new(12.0);
        let lone = d.process("spin", "spin", None, 0.0);
        let at = d.stack(&["wait_ready (spin)", "main (spin)"]);
        d.loops(at, turn.clone());
        d.runs(lone, 1.0, 9.0, at);
        d.wait(lone, 9.5, 12.0, "pause").open();
        let (g, c) = d.build();
        let mut d = Diagnosis::new(&g, &c, victim(&g, &c, 1000), Options::default());
        if let Some(q) = next_question(&mut d) {
            let named = matches!(&turn, LoopTurn::Asks(of) if !of.is_empty());
            assert_eq!(q.why.contains("record -p 1000 --flag 'ready'"), named, "{}", q.why);
            assert_ne!(q.why.contains("find-flag"), named, "{}", q.why);
            d.answer(0, By::User);
        }
        let r = done(&mut d);
        let cause = &r.root_causes[0];
        assert!(cause.block_type == Some(is) && cause.why.contains(says), "{turn:?}: {}", cause.why);
    }
}

/// A loop asks what only its own process has: the one other thread of that which waits for somebody has to write it, and where
/// that waits for the loop's thread, each waits for the other.
#[test]
fn a_loop_that_asks_waits_for_the_one_thread_that_is_left() {
    for (other, circle) in [("connects", false), ("writes", true), ("idles", false)] {
        let mut d = Drawing::new(9.0);
        let lone = d.process("app", "app", None, 0.0);
        let setter = d.thread(lone, "setter", 0.0);
        let at = d.stack(&["wait_ready (app)", "main (app)"]);
        d.loops(at, LoopTurn::Asks(vec!["ready".into()]));
        d.runs(lone, 0.0, 9.0, at);
        let work = d.object(ObjectKind::EventFd, 5, 0, "");
        // With it, whoever is to read the pipe is not known.
        if !circle {
            let idle = d.thread(lone, "worker", 0.0);
            d.wait(idle, 0.1, 9.0, "epoll_wait").on(work).before().open();
        }
        let pipe = d.object(ObjectKind::Pipe, 55, 55, "");
        match other {
            "connects" => {
                let peer = d.object(ObjectKind::Tcp, 3, 4, "127.0.0.1:5->127.0.0.1:80");
                d.wait(setter, 0.1, 9.0, "connect").on(peer).open();
            }
            "writes" => {
                d.wait(setter, 0.1, 9.0, "write").on(pipe).open();
                d.hold(lone, setter, pipe, Relation::Reads, 1.0);
            }
            _ => d.wait(setter, 0.1, 9.0, "epoll_wait").on(work).before().open(),
        }
        let (g, c) = d.build();
        for tid in if circle { [1001, 1001] } else { [1000, 1000] } {
            let r = run_with_policy(&g, &c, victim(&g, &c, tid), Options::default());
            let cause = &r.root_causes[0];
            assert_eq!(r.circle.len(), if circle { 2 } else { 0 }, "{other} {tid}: {r:#?}");
            match other {
                "connects" => assert_eq!(cause.thread.as_deref(), Some("setter"), "{}", cause.why),
                "writes" => assert!(cause.why.contains("circular wait"), "{}", cause.why),
                _ => assert!(cause.why.contains("until another thread writes ready"), "{}", cause.why),
            }
        }
    }
}

/// Two threads that ask for each other's flag.
#[test]
fn flags_make_a_circle_too() {
    let mut d = Drawing::new(10.0);
    let a = d.process("left", "left", None, 0.0);
    let b = d.process("right", "right", None, 0.0);
    let (fa, fb) = (
        d.object(ObjectKind::Memory, 0x10, 1, "left_done"),
        d.object(ObjectKind::Memory, 0x20, 1, "right_done"),
    );
    let none = StackId::NONE;
    for (who, own, other) in [(a, fa, fb), (b, fb, fa)] {
        d.flag(who, own, 0.5, 1, true, none);
        d.naps(who, 1.0, 10.0, 0.02, none);
        let mut t = 1.001;
        while t < 10.0 {
            d.flag(who, other, t, 0, false, none);
            t += 0.0201;
        }
    }
    let (g, c) = d.build();
    let r = run_with_policy(&g, &c, victim(&g, &c, 1000), Options::default());
    assert!(r.root_causes[0].why.contains("circular"), "{r:#?}");
}

#[test]
fn an_edge_leads_from_each_write_to_the_first_read_of_it() {
    let mut d = Drawing::new(10.0);
    let (a, b) = (d.process("a", "a", None, 0.0), d.process("b", "b", None, 0.0));
    let f = d.object(ObjectKind::Memory, 0x10, 1, "");
    let none = StackId::NONE;
    for (who, at, write) in
        [(a, 1.0, true), (a, 1.1, false), (b, 2.0, false), (b, 2.1, false), (a, 3.0, true), (b, 4.0, false)]
    {
        d.flag(who, f, at, 1, write, none);
    }
    let (g, _) = d.build();
    let edges: Vec<_> = g.edges().map(|e| g.edge(e)).collect();
    // Both reads of `b` lie in one vertex: the later message is the same edge.
    assert!(
        edges.iter().all(|e| e.kind == EdgeKind::DataFlag && e.weak.is_none() && e.from_time < e.to_time)
    );
    assert_eq!(edges.len(), 1, "{edges:?}");
    let writes: Vec<_> = g.flag_writes(f).map(|w| w.time).collect();
    assert_eq!(writes, [ns(1.0), ns(3.0)]);
    assert_eq!(g.flags_of(b, ns(2.05)..ns(3.9)).count(), 1);
    assert_eq!(g.flags_of(ThreadId(9), 0..u64::MAX).count(), 0);
}

fn asking() -> impl Strategy<Value = Asking> {
    prop_oneof![
        (200u64..3_000).prop_map(|us| Asking::Spin(us * 1000)),
        (200u64..3_000).prop_map(|us| Asking::Yield(us * 1000)),
        (1u64..40).prop_map(|ms| Asking::Sleep(ms * MS)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases / 5, max_shrink_iters: 100, ..ProptestConfig::default() })]

    /// Thread 0 asks for a flag that thread 1 sets when it has computed, or when thread 2 has.
    #[test]
    fn the_known_writer_is_found(
        how in asking(),
        chain in any::<bool>(),
        cpus in 3usize..6,
        decoys in 0usize..3,
        recorded in any::<bool>(),
    ) {
        let hang = 3_000 * MS;
        let mut scripts = vec![
            Script::once([Act::Compute(MS), Act::Ask(0, 7, how), Act::Compute(MS), Act::Sleep(500 * MS)]),
            if chain {
                Script::once([Act::Receive(0), Act::Compute(MS), Act::Set(0, 7), Act::Sleep(500 * MS)])
            } else {
                Script::once([Act::Compute(hang), Act::Set(0, 7), Act::Sleep(500 * MS)])
            },
        ];
        if chain {
            scripts.push(Script::once([Act::Compute(hang), Act::Send(0, 8), Act::Sleep(500 * MS)]));
        }
        let cause = 1000 + scripts.len() as u32 - 1;
        for _ in 0..decoys {
            // Others ask for flags of their own all the time.
            scripts.push(Script::forever([Act::Set(1, 1), Act::Ask(1, 1, Asking::Sleep(MS)), Act::Sleep(7 * MS)]));
        }
        let setup = Setup { cpus, sample_every: 10 * MS, flags: recorded, ..Setup::default() };
        let (r, _) = Recording::of(setup, scripts, 4_500 * MS);
        let g = r.graph();
        let v = victim(&g, &r.catalog, 1000);
        if recorded || matches!(how, Asking::Sleep(_)) {
            prop_assert_eq!(v.block_type, BlockType::RepeatedYield);
        }
        let report = run_with_policy(&g, &r.catalog, v, Options::default());
        let first = &report.root_causes[0];
        if recorded {
            prop_assert_eq!(report.questions.len(), 1, "{:#?}", report);
            prop_assert_eq!(&report.questions[0].kind, "data-flag");
            prop_assert_eq!(report.questions[0].options, 1);
            prop_assert_eq!(first.tid, Some(cause), "{:#?}", report);
            prop_assert_eq!(first.block_type, Some(BlockType::LongRunning));
            prop_assert_eq!(report.slice[1].strength.as_deref(), Some("strong"));
        } else {
            // Nothing was recorded: the loop itself is shown, never somebody else.
            prop_assert_eq!(first.tid, Some(1000), "{:#?}", report);
        }
    }
}

/// What a loop asks for was not recorded: of the threads of its process it is the one that reads from a slow disk, by many waits,
/// until just before the loop ends, not one that goes on to. What was looked at may be a piece of the loop.
#[test]
fn who_did_something_until_a_loop_of_sleeps_ended() {
    for (pieces, told) in [(1, true), (2, true), (1, false)] {
        let mut d = Drawing::new(14.0);
        let main = d.process("app", "app", None, 0.0);
        let loader = d.thread(main, "loader", 0.1);
        let file = d.object(ObjectKind::File, 5, 0, "/mnt/index.db");
        let polls = d.stack(&["clock_nanosleep (libc.so.6)", "wait_ready (app)", "main (app)"]);
        let reads = d.stack(&["read (libc.so.6)", "load (app)"]);
        d.naps(main, 0.2, if pieces == 2 { 6.0 } else { 12.0 }, 0.002, polls);
        if pieces == 2 {
            d.runs(main, 6.0, 6.03, polls);
            d.naps(main, 6.03, 12.0, 0.002, polls);
        }
        let mut t = 0.2;
        while t < if told { 11.9 } else { 13.5 } {
            d.wait(loader, t, t + 0.05, "read")
                .on(file)
                .stack(reads)
                .state(OffState::Uninterruptible)
                .timer();
            t += 0.0501;
        }
        if told {
            d.wait(loader, 12.01, 14.0, "pause").open();
        }
        d.wait(main, 12.01, 14.0, "pause").open();
        let (g, c) = d.build();
        let r = run_with_policy(&g, &c, victim(&g, &c, 1000), Options::default());
        let named = r.slice.iter().any(|s| s.thread == "loader");
        assert_eq!(named, told, "{pieces} {r:#?}");
    }
}
