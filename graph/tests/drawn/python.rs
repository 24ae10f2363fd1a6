//! Verdicts on Python programs: they name Python functions, not those of the interpreter.

use crate::draw::Drawing;
use crate::draw::middle::epoll;
use pg_event::{ObjectId, ObjectKind, ThreadId};
use pg_graph::report::RootCause;
use pg_graph::{Options, Selection, VictimOptions, run_with_policy, select};

const SLEEP: [&str; 3] = ["clock_nanosleep (libc.so.6)", "time_sleep (python3.11)", "call (python3.11)"];

/// A client waits for an answer; `server` says what the server does until then.
fn asked(server: impl FnOnce(&mut Drawing, pg_event::ThreadId)) -> RootCause {
    let mut d = Drawing::new(14.0);
    let worker = d.process("python3", "python3 shop.py", None, 0.0);
    let client = d.process("curl", "curl shop", None, 0.5);
    let socket = d.object(ObjectKind::UnixStream, 7, 8, "");
    server(&mut d, worker);
    d.wait(client, 1.0, 11.0, "recvfrom").on(socket).by(worker, "sendto", socket);
    d.wait(worker, 11.1, 14.0, "pause").open();
    d.diagnose("curl").root_causes.remove(0)
}

#[test]
fn a_wait_is_in_the_python_function_of_the_program() {
    let cause = asked(|d, worker| {
        let own = ["wait (python3.11/threading.py:320)", "find_offers (shop.py:12)", "main (shop.py:40)"];
        let stack = d.stack(&[&SLEEP[..], &own].concat());
        d.wait(worker, 1.1, 10.9, "clock_nanosleep").stack(stack).times_out();
    });
    assert_eq!(cause.function.as_deref(), Some("find_offers"), "{cause:#?}");
    assert!(cause.why.contains("called from find_offers"), "{}", cause.why);
    assert!(cause.stack.iter().any(|f| f == "find_offers (shop.py:12)"), "{:?}", cause.stack);
}

#[test]
fn without_own_functions_one_of_the_library_is_named() {
    let cause = asked(|d, worker| {
        let stack = d.stack(&[&SLEEP[..], &["serve (python3.11/http/server.py:9)"]].concat());
        d.wait(worker, 1.1, 10.9, "clock_nanosleep").stack(stack).times_out();
    });
    assert_eq!(cause.function.as_deref(), Some("serve"), "{cause:#?}");
}

#[test]
fn of_many_short_waits_one_that_was_looked_at_is_shown() {
    let cause = asked(|d, worker| {
        let unread = [&SLEEP[..], &["_PyEval_EvalFrameDefault (python3.11)"]].concat();
        let (unread, read) = (d.stack(&unread), d.stack(&[&SLEEP[..], &["poll_rate (shop.py:7)"]].concat()));
        d.naps(worker, 1.1, 4.0, 0.05, unread);
        d.naps(worker, 4.0, 4.1, 0.05, read);
        d.naps(worker, 4.1, 10.9, 0.05, unread);
    });
    assert_eq!(cause.function.as_deref(), Some("poll_rate"), "{cause:#?}");
}

/// A timer of the program's own (`threading.Timer`) answers once its time is over. Elsewhere an event was waited for in nearly
/// the same way, and set by a thread that sleeps now.
#[test]
fn a_timer_waits_for_time_and_for_nobody() {
    let waits = |of: &'static [&'static str]| {
        let library = ["futex_wait (libc.so.6)", "sem_clockwait (libc.so.6)", "acquire (python3.11)"];
        [&library[..], &["Condition.wait (python3.11/threading.py:331)"], of].concat()
    };
    for timer in [
        &["Event.wait (python3.11/threading.py:629)", "Timer.run (python3.11/threading.py:1397)"][..],
        &["wait (python3.9/threading.py:581)", "call (python3.9)", "run (python3.9/threading.py:1307)"][..],
    ] {
        let cause = asked(|d, worker| {
            let (later, other) = (d.thread(worker, "timer", 0.0), d.thread(worker, "other", 0.0));
            let loader = d.thread(worker, "loader", 0.0);
            let event = d.object(ObjectKind::Futex, 0x7f00, 1, "");
            let set = d.object(ObjectKind::Futex, 0x7f80, 1, "");
            let stack = d.stack(&waits(&["Event.wait (python3.11/threading.py:629)", "work (shop.py:8)"]));
            d.wait(other, 0.3, 0.5, "futex").on(set).op(128 | 9, 0).stack(stack).by(loader, "futex", set);
            d.wait(loader, 0.6, 12.0, "clock_nanosleep").times_out();
            let stack = d.stack(&waits(timer));
            d.wait(later, 1.1, 10.9, "futex").on(event).op(128 | 9, 0).stack(stack).times_out();
            d.wait(worker, 1.05, 10.95, "read").by(later, "write", ObjectId::NONE);
        });
        assert_eq!(cause.thread.as_deref(), Some("timer"), "{cause:#?}");
        assert!(cause.why.contains("slept"), "{}", cause.why);
    }
}

#[test]
fn samples_name_python_functions_before_those_of_the_interpreter() {
    let busy = |leaf: &'static str| {
        asked(move |d, worker| {
            let stack = d.stack(&[leaf, "call (python3.11)", "prices (shop.py:3)", "main (shop.py:9)"]);
            d.runs(worker, 1.1, 10.9, stack);
            d.wait(worker, 10.95, 10.96, "sendto").by(worker, "sendto", ObjectId::NONE);
        })
    };
    let cause = busy("PyNumber_Multiply (libpython3.11.so.1.0)");
    assert_eq!((cause.function.as_deref(), cause.module.as_deref()), (Some("prices"), Some("shop.py")));
    // What a library computes is its own work.
    assert_eq!(busy("dgemm_kernel (libopenblas.so.0)").function.as_deref(), Some("dgemm_kernel"));
}

/// A request takes the interpreter's lock and never gives it back; the main thread asks for it every 5 ms. Once, when another
/// thread had it, that one gave it: it is no guide now.
#[test]
fn who_keeps_the_interpreters_lock_is_the_one_that_runs() {
    let mut d = Drawing::new(12.0);
    let main = d.process("python3", "python3 shop.py", None, 0.0);
    let (log, request) = (d.thread(main, "log", 0.0), d.thread(main, "request", 0.6));
    let lock = d.object(ObjectKind::Futex, 0xa5b8f0, 1, "");
    let queue = d.object(ObjectKind::Pipe, 9, 9, "");
    let take = d.stack(&["pthread_cond_timedwait (libc.so.6)", "take_gil (python3.11)", "loop (python3.11)"]);
    let wait = 128 | 9;
    d.wait(main, 0.5, 0.504, "futex").on(lock).op(wait, 0).stack(take).by(log, "futex", lock);
    d.wait(log, 0.505, 12.0, "read").on(queue).open();
    let mut at = 1.0;
    while at < 11.0 {
        d.wait(main, at, at + 0.005, "futex").on(lock).op(wait, 0).stack(take).times_out();
        at += 0.005_1;
    }
    let matches = d.stack(&["sre_ucs1_match (python3.11)", "H.validate (shop.py:7)"]);
    d.runs(request, 0.9, 11.5, matches);
    let r = d.diagnose("^python3");
    assert_eq!(r.root_causes[0].thread.as_deref(), Some("request"), "{r:#?}");
    assert!(r.questions.is_empty(), "{:?}", r.questions);
}

/// Where no function of Python was read, how the interpreter is made tells nobody anything.
#[test]
fn functions_of_the_interpreter_are_not_told_in_the_sentence() {
    for (call, wait) in [("clock_nanosleep", "slept"), ("read", "waited")] {
        let cause = asked(|d, worker| {
            let stack =
                d.stack(&["__libc_call (libc.so.6)", "pysleep (libpython3.11.so.1.0)", "call (python3.11)"]);
            let w = d.wait(worker, 1.1, 10.9, call).stack(stack);
            if call == "read" { w.by(ThreadId(1), "write", ObjectId::NONE) } else { w.times_out() }
        });
        assert!(cause.why.contains(wait) && !cause.why.contains("pysleep"), "{}", cause.why);
    }
}

/// A loop of asyncio that ticks each second seems to have nothing to do. Whoever points at a moment in which it hung is told
/// that, and how to ask it who waits for whom.
#[test]
fn who_waits_in_a_loop_of_asyncio_is_asked_for_by_a_moment() {
    let mut d = Drawing::new(12.0);
    let app = d.process("python3", "python3 app.py", None, 0.0);
    let own = d.object(ObjectKind::UnixStream, 7, 8, "");
    let watched = epoll(&mut d, &[own]);
    let stack = d.stack(&[
        "epoll_wait (libc.so.6)",
        "EpollSelector.select (python3.11/selectors.py:468)",
        "BaseEventLoop._run_once (python3.11/asyncio/base_events.py:1884)",
        "main (app.py:11)",
    ]);
    for at in 0..12 {
        let at = f64::from(at);
        d.wait(app, at + 0.0001, at + 1.0, "epoll_wait").on(watched).stack(stack).times_out();
    }
    let (g, c) = d.build();
    let named = Selection { process: regex::Regex::new("^python3").ok(), ..Selection::default() };
    let none = select(&g, &c, &named, &VictimOptions::default()).unwrap_err().to_string();
    assert!(none.contains("--at SECONDS"), "{none}");
    let s = Selection { at: Some(5_500_000_000), ..named };
    let v = select(&g, &c, &s, &VictimOptions::default()).unwrap();
    let r = run_with_policy(&g, &c, v, Options::default());
    let notes = r.coverage.notes.join("\n");
    assert!(notes.contains("only asyncio knows") && notes.contains("asyncio pstree 1000"), "{r:#?}");
}

/// Two take each other's lock, by a time-out; a third comes for one of these later. Waits of the library by a lock are none.
#[test]
fn locks_that_are_taken_crosswise_make_a_circle() {
    for lock in [true, false] {
        let mut d = Drawing::new(6.0);
        let main = d.process("python3", "python3 job.py", None, 0.0);
        let wait = |d: &mut Drawing, of: &str| {
            let library = [
                "futex_wait (libc.so.6)",
                "sem_clockwait (libc.so.6)",
                "PyThread_acquire_lock_timed (python3.11)",
            ];
            let beneath = if lock { &[][..] } else { &["Condition.wait (python3.11/threading.py:331)"] };
            d.stack(&[&library[..], beneath, &[of]].concat())
        };
        let (a, b) =
            (d.object(ObjectKind::Futex, 0x10, 1000, ""), d.object(ObjectKind::Futex, 0x50, 1000, ""));
        let [first, second, third] = ["one", "two", "three"].map(|n| d.thread(main, n, 0.0));
        let [of_first, of_second, of_third] =
            ["backup (job.py:6)", "rebuild (job.py:11)", "serve (job.py:15)"].map(|f| wait(&mut d, f));
        d.wait(third, 0.0, 0.6, "clock_nanosleep").times_out();
        d.wait(first, 0.3, 4.3, "futex").on(b).op(128 | 9, 0).stack(of_first).times_out();
        d.wait(second, 0.3, 4.31, "futex").on(a).op(128 | 9, 0).stack(of_second).by(first, "futex", a);
        d.wait(third, 0.6, 4.32, "futex").on(a).op(128 | 9, 0).stack(of_third).by(second, "futex", a);
        let none = ObjectId::NONE;
        let joins = d.object(ObjectKind::Futex, 0x90, 1000, "");
        d.wait(main, 0.1, 4.4, "futex").on(joins).op(128 | 9, 0).by(third, "futex", none);
        for t in [first, second, third] {
            d.exit(t, 4.5);
        }
        let r = d.diagnose(if lock { "python3" } else { "^one$" });
        let cause = &r.root_causes[0];
        assert_eq!(cause.why.contains("circular wait (until a time-out)"), lock, "{}", cause.why);
        if lock {
            assert!(["one", "two"].contains(&cause.thread.as_deref().unwrap()), "{cause:#?}");
            assert_eq!(r.root_causes.last().unwrap().thread.as_deref(), Some("three"), "came later: {r:#?}");
        }
    }
}
