//! When a diagnosis asks, what the question carries, and what answers, undo and replay do.

use crate::draw::Drawing;
use pg_event::{Catalog, Direction, ObjectKind, OffState};
use pg_graph::{
    By, Diagnosis, EventGraph, Options, Question, QuestionKind, Selection, Step, Victim, VictimOptions,
    parse_answers, path_of_span, select, take_answer, victims,
};

/// A worker is woken by an unlock of `evict`, but the job it waited for came from `submit`.
fn two_ways_in() -> (EventGraph, Catalog) {
    let mut d = Drawing::new(10.0);
    let worker = d.process("shop", "shop worker", None, 0.0);
    let evict = d.process("evict", "evict", None, 0.0);
    let submit = d.process("submit", "submit", None, 0.0);
    let pipe = d.object(ObjectKind::Pipe, 5, 5, "");
    let busy = d.stack(&["evict_all (evict)", "main (evict)"]);
    let fill = d.stack(&["fill_queue (submit)", "main (submit)"]);
    d.runs(evict, 1.0, 8.0, busy);
    d.runs(submit, 1.0, 8.0, fill);
    // Both wrote into the pipe: one ended the wait, the other's bytes were read in the same turn.
    d.wait(worker, 1.0, 8.0, "read").on(pipe).by(evict, "write", pipe);
    d.message(submit, pipe, Direction::Send, 7.9, 10);
    d.message(evict, pipe, Direction::Send, 7.99, 10);
    d.message(worker, pipe, Direction::Receive, 8.01, 20);
    d.wait(evict, 8.1, 10.0, "pause").open();
    d.wait(submit, 8.1, 10.0, "pause").open();
    d.wait(worker, 8.2, 10.0, "read").on(pipe).open();
    d.build()
}

fn victim(g: &EventGraph, c: &Catalog, process: &str) -> Victim {
    let s = Selection { process: Some(regex::Regex::new(process).unwrap()), ..Selection::default() };
    select(g, c, &s, &VictimOptions::default()).unwrap()
}

fn to_question(d: &mut Diagnosis<'_>) -> Option<Box<Question>> {
    loop {
        match d.next() {
            Step::Ask(q) => return Some(q),
            Step::Progress(text) => assert!(!text.is_empty()),
            Step::Done(_) => return None,
        }
    }
}

fn done(d: &mut Diagnosis<'_>) -> pg_graph::report::Report {
    loop {
        match d.next() {
            Step::Done(r) => return *r,
            Step::Ask(q) => panic!("{}", q.text),
            Step::Progress(_) => {}
        }
    }
}

#[test]
fn several_edges_are_asked_about() {
    let (g, c) = two_ways_in();
    let v = victim(&g, &c, "shop");
    let mut d = Diagnosis::new(&g, &c, v, Options::default());
    let q = to_question(&mut d).expect("two threads may be the cause: a question");
    assert_eq!((q.key.kind, q.number), (QuestionKind::Edge, 1));
    assert_eq!(q.choices.len(), 2);
    assert!(q.why.contains("2 edges"), "{}", q.why);
    assert!((1..=2).contains(&q.recommended) && !q.reason.is_empty());
    for o in &q.choices {
        assert!(!o.label.is_empty() && !o.detail.is_empty() && o.vertex.is_some());
        assert!(!o.nearby.is_empty(), "{o:?}");
        assert!(o.nearby.windows(2).all(|w| w[0].time <= w[1].time));
    }
    assert_eq!(d.slice().len(), 1, "the victim is shown while it asks");

    // Each answer leads elsewhere; undo takes it back; stopping blames the victim.
    let mut ends = Vec::new();
    for answer in [1, 2, 0] {
        d.answer(answer, By::User);
        let r = done(&mut d);
        assert_eq!(r.questions.len(), 1);
        assert_eq!((r.questions[0].answer, r.questions[0].by.as_str()), (answer, "user"));
        ends.push(r.root_causes[0].process.clone().unwrap());
        assert!(d.undo());
        assert_eq!(to_question(&mut d).as_ref(), Some(&q));
    }
    ends[..2].sort();
    assert_eq!(ends, ["evict", "submit", "shop"]);
    assert!(!d.undo(), "nothing left to undo");
}

#[test]
fn decisions_replay_to_the_same_report() {
    let (g, c) = two_ways_in();
    let v = victim(&g, &c, "shop");
    let mut d = Diagnosis::new(&g, &c, v.clone(), Options::default());
    assert!(to_question(&mut d).is_some());
    d.answer(2, By::Answers);
    let report = done(&mut d);
    let kept = d.decisions().to_vec();
    assert_eq!(kept.len(), 1);
    let mut again = Diagnosis::with_decisions(&g, &c, v.clone(), Options::default(), kept);
    assert_eq!(done(&mut again), report);
    // A decision about another question is ignored.
    let mut foreign = d.decisions().to_vec();
    foreign[0].question.start += 1;
    let mut other = Diagnosis::with_decisions(&g, &c, v, Options::default(), foreign);
    assert!(to_question(&mut other).is_some());
    assert!(other.decisions().is_empty());
}

#[test]
fn an_answers_file_answers() {
    let (g, c) = two_ways_in();
    let v = victim(&g, &c, "shop");
    let mut lines = parse_answers("1: 2\n").unwrap();
    let r = pg_graph::run_with(&g, &c, v, Options::default(), |q| match take_answer(&mut lines, q) {
        Some(a) => (a.unwrap_or(q.recommended), By::Answers),
        None => (q.recommended, By::Policy),
    });
    assert_eq!((r.questions[0].answer, r.questions[0].by.as_str()), (2, "answers"));
    assert!(lines.is_empty());
}

#[test]
fn no_more_questions_than_allowed() {
    let (g, c) = two_ways_in();
    let v = victim(&g, &c, "shop");
    let o = Options { max_questions: 0, ..Options::default() };
    let mut d = Diagnosis::new(&g, &c, v, o);
    let r = done(&mut d);
    assert!(r.questions.is_empty());
    assert!(r.coverage.notes.iter().any(|n| n.contains("recommended")), "{:?}", r.coverage.notes);
}

/// Nobody woke it this time; earlier ones were woken by a producer, which is now busy with something else.
#[test]
fn a_baseline_tells_who_is_missing() {
    let mut d = Drawing::new(20.0);
    let consumer = d.process("app", "app", None, 0.0);
    let producer = d.thread(consumer, "producer", 0.0);
    let helper = d.thread(consumer, "helper", 0.0);
    let word = d.object(ObjectKind::Futex, 0x2000, 1, "");
    let at = d.stack(&["pthread_cond_wait (libc.so.6)", "Queue::pop (app)", "consume (app)"]);
    let busy = d.stack(&["rebuild_index (app)", "produce (app)"]);
    for i in 0..8 {
        let t = 1.0 + f64::from(i) * 0.5;
        let (who, other) = if i % 4 == 3 { (helper, producer) } else { (producer, helper) };
        let _ = other;
        d.wait(consumer, t, t + 0.02, "futex").on(word).stack(at).by(who, "futex", word);
    }
    d.runs(producer, 5.0, 20.0, busy);
    d.wait(helper, 5.0, 20.0, "pause").open();
    d.wait(consumer, 5.5, 20.0, "futex").on(word).stack(at).open();
    let (g, c) = d.build();
    let s = Selection { tid: Some(1000), ..Selection::default() };
    let v = select(&g, &c, &s, &VictimOptions::default()).unwrap();
    let r = pg_graph::run_with_policy(&g, &c, v, Options::default());
    let c = &r.root_causes[0];
    assert_eq!(c.thread.as_deref(), Some("producer"), "{r:#?}");
    assert_eq!(c.function.as_deref(), Some("rebuild_index"));
    let step = &r.slice[1];
    assert_eq!(step.strength.as_deref(), Some("weak"));
    assert!(step.why_weak.as_ref().unwrap().contains("baseline"));
}

/// What a thread waits for while it ends, its descriptors being closed, is nothing that the call waited for during which it
/// was told to; and who usually comes by way of a thread of the kernel is not missing because that had nothing to do.
#[test]
fn neither_the_end_of_a_thread_nor_an_idle_thread_of_the_kernel_is_a_baseline() {
    for exits in [true, false] {
        let mut d = Drawing::new(20.0);
        let app = d.process("app", "app", None, 0.0);
        let helper = d.process("helper", "helper", None, 0.0);
        let kworker = d.kernel("kworker/u8:5");
        let o = d.object(ObjectKind::Inotify, 7, 0, "");
        let at = d.stack(&["await_upload (app)"]);
        let read = d.stack(&["inotify_read ([kernel])", "vfs_read ([kernel])"]);
        let exit = d.stack(&["fsnotify_destroy_group ([kernel])", "do_exit ([kernel])"]);
        let wait = |d: &mut Drawing, end, stack| {
            let v = d.wait(app, end - 0.02, end, "read").on(o).stack(at).in_kernel(stack);
            if exits { v.by(helper, "read", o) } else { v.by_kernel(kworker) }
        };
        wait(&mut d, 2.0, if exits { exit } else { read });
        d.wait(app, 3.0, 19.0, "read").on(o).stack(at).in_kernel(read).open();
        d.wait(kworker, 3.0, 19.0, "read").in_no_call().state(OffState::Idle).open();
        d.wait(helper, 3.0, 19.0, "futex").open();
        let r = d.diagnose("^app$");
        let named: Vec<_> = r.slice.iter().map(|n| n.process.as_str()).collect();
        assert_eq!((named, r.questions.len()), (vec!["app"], 0), "{exits}: {r:#?}");
    }
}

/// Who woke it the last time has executed another program since: that one was never going to.
#[test]
fn a_thread_that_became_another_program_is_not_missing() {
    let diagnose = |executes: bool| {
        let mut d = Drawing::new(20.0);
        let reader = d.process("app", "app", None, 0.0);
        let child = d.process("sleep", "sleep 60", Some(reader), 0.5);
        let ours = d.object(ObjectKind::UnixStream, 1, 2, "");
        let its = d.object(ObjectKind::UnixStream, 2, 1, "");
        let at = d.stack(&["recv (libc.so.6)", "take (app)"]);
        d.wait(reader, 1.0, 1.02, "recvfrom").on(ours).stack(at).by(child, "sendto", its);
        if executes {
            d.event(crate::draw::ns(1.1), child, pg_event::Kind::Exec);
        }
        d.wait(child, 1.2, 20.0, "clock_nanosleep").open();
        d.wait(reader, 1.5, 20.0, "recvfrom").on(ours).stack(at).open();
        d.diagnose("^app")
    };
    let blames =
        |r: &pg_graph::report::Report| r.root_causes.iter().any(|c| c.process.as_deref() == Some("sleep"));
    let (same, other) = (diagnose(false), diagnose(true));
    assert!(blames(&same), "{same:#?}");
    assert!(!blames(&other), "{other:#?}");
}

#[test]
fn victims_are_ranked_and_say_what_for() {
    let (g, c) = two_ways_in();
    let all = victims(&g, &c, &VictimOptions::default());
    assert!(all.len() >= 3);
    assert!(all.windows(2).all(|w| w[0].score >= w[1].score));
    let w = all.iter().find(|v| v.summary.starts_with("shop")).unwrap();
    assert_eq!(w.waits_on.as_deref(), Some("pipe"));
    assert!(!w.suspects.is_empty());
    let everyone = victims(&g, &c, &VictimOptions { innocents: true, ..VictimOptions::default() });
    assert!(everyone.len() > all.len(), "idle waits are listed when asked for");
}

/// The critical path of a span covers it without gaps, in the threads that took the time.
#[test]
fn path_of_a_span_covers_it() {
    let (g, c) = two_ways_in();
    let worker = g.threads().next().unwrap();
    let steps = path_of_span(&g, &c, worker, 1_000_000_000..8_150_000_000);
    let sum: u64 = steps.iter().map(|s| s.spent).sum();
    assert!(sum.abs_diff(7_150_000_000) < 10_000, "{sum} {steps:#?}");
    assert_eq!(steps[0].thread, worker);
    assert!(steps.iter().any(|s| s.state == "running" && s.thread != worker && s.spent > 6_900_000_000));
    assert!(path_of_span(&g, &c, worker, 5..5).is_empty());
}

/// A wait that its time-outs end and that is renewed counts as one, explained by whom it was for in the end; running and
/// queueing in short turns are one step each.
#[test]
fn path_of_a_span_follows_renewed_waits_and_adds_up_turns() {
    let mut d = Drawing::new(10.0);
    let client = d.process("curl", "curl shop", None, 0.0);
    let server = d.process("shop", "shop", None, 0.0);
    let (ours, its) =
        (d.object(ObjectKind::UnixStream, 1, 2, ""), d.object(ObjectKind::UnixStream, 2, 1, ""));
    for i in 0..3 {
        let at = 1.0 + f64::from(i);
        d.wait(client, at, at + 0.999, "poll").on(ours).times_out();
    }
    d.wait(client, 4.0, 5.0, "poll").on(ours).by(server, "sendto", its);
    let at = d.stack(&["find_dupes (shop)"]);
    for i in 0..100 {
        let start = 1.0 + f64::from(i) * 0.04;
        d.runs(server, start, start + 0.01, at);
        d.put_off(server, start + 0.01, start + 0.04);
    }
    let (g, c) = d.build();
    let steps = path_of_span(&g, &c, client, 1_000_000_000..5_000_000_000);
    let of = |state| steps.iter().filter(|s| s.thread == server && s.state == state).collect::<Vec<_>>();
    let ([ran], [queued]) = (&of("running")[..], &of("runnable")[..]) else { panic!("{steps:#?}") };
    assert!(ran.spent.abs_diff(1_000_000_000) < 20_000_000, "{steps:#?}");
    assert!(queued.spent.abs_diff(3_000_000_000) < 20_000_000, "{steps:#?}");
    assert_eq!(ran.function.as_deref(), Some("find_dupes"));
    let sum: u64 = steps.iter().map(|s| s.spent).sum();
    assert!(sum.abs_diff(4_000_000_000) < 10_000, "{sum} {steps:#?}");
}

/// An unlock wakes whoever waits: the edge is weak, so a person is asked whether to follow it.
#[test]
fn a_mutex_hand_off_is_asked_about() {
    let mut d = Drawing::new(10.0);
    let main = d.process("payd", "payd", None, 0.0);
    let ledger = d.thread(main, "ledger", 0.0);
    let word = d.object(ObjectKind::Futex, 0x3000, 1, "");
    let lock =
        d.stack(&["__lll_lock_wait (libc.so.6)", "pthread_mutex_lock (libc.so.6)", "Ledger::add (payd)"]);
    let sum = d.stack(&["fsum (payd)", "rebuild_index (payd)", "tick (payd)"]);
    d.runs(ledger, 1.0, 5.0, sum);
    d.wait(main, 1.0, 5.0, "futex").on(word).stack(lock).by(ledger, "futex", word);
    let (g, c) = d.build();
    let s = Selection { tid: Some(1000), ..Selection::default() };
    let v = select(&g, &c, &s, &VictimOptions::default()).unwrap();
    let mut d = Diagnosis::new(&g, &c, v, Options::default());
    let edge = g.edge(g.edges().next().unwrap());
    let asked = to_question(&mut d);
    assert_eq!(asked.is_some(), edge.weak.is_some(), "{edge:?}");
    if let Some(q) = asked {
        assert_eq!((q.choices.len(), q.recommended), (1, 1));
        assert!(q.why.contains("weak"), "{}", q.why);
        d.answer(q.recommended, By::User);
    }
    let r = done(&mut d);
    assert_eq!(r.root_causes[0].function.as_deref(), Some("fsum"));
}

/// The shop waits for the payment service's answer, a worker of that for a mutex, and its reader for the next
/// request: what a person sees is the shop's hang.
#[test]
fn the_hang_at_the_front_is_the_victim() {
    let mut d = Drawing::new(10.0);
    let shop = d.process("shopd", "shopd", None, 0.0);
    let reader = d.process("payd", "payd", None, 0.0);
    let worker = d.thread(reader, "pay-1", 0.0);
    let idle = d.thread(reader, "pay-2", 0.0);
    let idle2 = d.thread(reader, "pay-3", 0.0);
    let tick = d.thread(reader, "tick", 0.0);
    let (c, s) = (d.object(ObjectKind::UnixStream, 1, 2, ""), d.object(ObjectKind::UnixStream, 2, 1, "pay"));
    let ledger = d.object(ObjectKind::Futex, 0x10, 1, "");
    let queue = d.object(ObjectKind::Futex, 0x20, 1, "");
    let lock =
        d.stack(&["__lll_lock_wait (libc.so.6)", "pthread_mutex_lock (libc.so.6)", "Ledger::add (payd)"]);
    let pop = d.stack(&["futex_wait (payd)", "Condvar::wait (payd)", "Queue::pop (payd)"]);
    let sum = d.stack(&["fsum (payd)", "rebuild_index (payd)"]);
    d.message(shop, c, Direction::Send, 2.0, 10);
    d.message(reader, s, Direction::Receive, 2.001, 10);
    d.wait(shop, 2.002, 6.01, "recvfrom").on(c).by(worker, "sendto", s);
    d.wait(reader, 2.003, 6.1, "recvfrom").on(s).by(shop, "sendto", c);
    d.wait(worker, 2.004, 6.0, "futex").on(ledger).stack(lock).by(tick, "futex", ledger);
    d.message(shop, c, Direction::Send, 6.1, 10);
    for t in [idle, idle2] {
        d.wait(t, 1.0, 10.0, "futex").on(queue).stack(pop).open();
    }
    d.runs(tick, 2.0, 6.0, sum);
    d.wait(tick, 6.001, 10.0, "clock_nanosleep").open();
    d.wait(shop, 6.2, 10.0, "clock_nanosleep").open();
    d.wait(reader, 6.2, 10.0, "recvfrom").on(s).open();
    d.wait(worker, 6.2, 10.0, "futex").on(queue).stack(pop).open();
    let (g, cat) = d.build();
    let v = select(&g, &cat, &Selection::default(), &VictimOptions::default()).unwrap();
    assert_eq!(v.thread, shop, "{}", v.summary);
    let r = pg_graph::run_with_policy(&g, &cat, v, Options::default());
    assert_eq!(r.root_causes[0].function.as_deref(), Some("fsum"));
    assert!(r.root_causes.iter().all(|c| c.tid != Some(1003)), "idle workers are left out");
    let all = victims(&g, &cat, &VictimOptions::default());
    let waits = |v: &Victim| v.episode.key.is_some() && v.thread == idle;
    assert!(!all.iter().any(waits), "a worker of a pool without work is no victim");
}

/// Whatever is answered, and however much of it is taken back: no panic, undo leads to the question before,
/// and the decisions replay to the same report.
#[test]
fn any_answers_can_be_undone_and_replayed() {
    let (g, c) = two_ways_in();
    let mut seed = 7u64;
    let mut random = |n: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as usize % n
    };
    for v in victims(&g, &c, &VictimOptions { innocents: true, ..VictimOptions::default() }) {
        for _ in 0..20 {
            let mut d = Diagnosis::new(&g, &c, v.clone(), Options::default());
            let mut asked = Vec::new();
            while let Some(q) = to_question(&mut d) {
                let answer = random(q.choices.len() + 3);
                asked.push(q);
                d.answer(answer, By::User);
            }
            let report = done(&mut d);
            let kept = d.decisions().to_vec();
            assert_eq!(kept.len(), asked.len());
            let mut again = Diagnosis::with_decisions(&g, &c, v.clone(), Options::default(), kept);
            assert_eq!(done(&mut again), report);
            while let Some(q) = asked.pop() {
                assert!(d.undo());
                assert_eq!(to_question(&mut d), Some(q));
            }
            assert!(!d.undo());
        }
    }
}

/// Of two messages that were taken together, one was sent before the wait began: it is told so, and not as if
/// nothing had been recorded of its sender.
#[test]
fn a_message_of_before_the_wait() {
    let mut d = Drawing::new(20.0);
    let worker = d.process("shop", "shop worker", None, 0.0);
    let early = d.process("early", "early", None, 0.0);
    let late = d.process("late", "late", None, 0.0);
    let pipe = d.object(ObjectKind::Pipe, 5, 5, "");
    d.wait(early, 0.0, 1.0, "read").before().times_out();
    d.message(early, pipe, Direction::Send, 1.0, 10);
    d.wait(early, 1.1, 20.0, "pause").open();
    d.wait(late, 0.1, 15.0, "clock_nanosleep").before().times_out();
    d.wait(worker, 2.0, 15.01, "read").on(pipe).by(late, "write", pipe);
    d.message(late, pipe, Direction::Send, 15.0, 10);
    d.message(worker, pipe, Direction::Receive, 15.02, 20);
    d.wait(worker, 15.1, 20.0, "read").on(pipe).open();
    let (g, c) = d.build();
    let v = victim(&g, &c, "shop");
    let mut d = Diagnosis::new(&g, &c, v, Options::default());
    let q = to_question(&mut d).expect("two sent something");
    let at = q.choices.iter().position(|o| o.label.contains("early")).expect("it is one of them");
    d.answer(at + 1, By::User);
    let why = done(&mut d).root_causes.remove(0).why;
    assert!(why.starts_with("early (pid 1001) sent that before the wait began"), "{why}");
}

/// One name in all places: that of the program which ran while it hung, whatever was executed later.
#[test]
fn who_became_another_program_is_named_as_it_was_then() {
    let (g, mut c) = two_ways_in();
    let line = |time, text: &str| pg_event::Cmdline { time, text: text.into() };
    c.processes[0].cmdlines = vec![line(0, "/bin/sh run.sh"), line(8_100_000_000, "shop")];
    c.processes[1].cmdlines = vec![line(0, "bash job.sh"), line(7_900_000_000, "evict")];
    let s = Selection { pid: Some(1000), ..Selection::default() };
    let v = select(&g, &c, &s, &VictimOptions::default()).unwrap();
    let mut d = Diagnosis::new(&g, &c, v, Options::default());
    let q = to_question(&mut d).expect("two threads may be the cause: a question");
    assert!(q.text.starts_with("What made sh:1000 go on"), "{}", q.text);
    assert!(q.stop.contains("sh:1000 itself"), "{}", q.stop);
    let evict = q.choices.iter().find(|c| c.label.starts_with("evict:1001")).expect("it acted as evict");
    assert!(evict.detail.contains(" as bash; acted"), "{}", evict.detail);
    d.answer(0, By::User);
    let r = done(&mut d);
    assert_eq!((r.victim.process.as_str(), r.victim.cmdline.as_str()), ("sh", "/bin/sh run.sh"));
    assert_eq!((r.victim.thread.as_str(), r.slice[0].process.as_str()), ("sh", "sh"));
}
