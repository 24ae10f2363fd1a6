//! Loops of a shell in which nothing fails, drawn: it looks again and again, or does a job every now and then.

use crate::draw::Drawing;
use pg_event::{ObjectId, ObjectKind, ThreadId};
use pg_graph::{BlockType, VictimOptions, victims};

/// A child of `parent` that lives from `start` to `end` and sleeps or works, and the parent's wait for it.
fn child(d: &mut Drawing, parent: ThreadId, line: &str, (start, end): (f64, f64)) -> ThreadId {
    let t = d.process(line.split(' ').next().unwrap(), line, Some(parent), start);
    let p = d.catalog.threads[t.index()].process;
    let row = &mut d.catalog.processes[p.index()];
    (row.end, row.exit_status) = (Some(crate::draw::ns(end)), Some(0));
    d.spawn(parent, t, start);
    d.exit(t, end);
    let any = d.object(ObjectKind::Child, 0, 0, "");
    d.wait(parent, start + 0.000_1, end + 0.000_1, "wait4").on(any).by(t, "exit_group", ObjectId::NONE);
    if line.starts_with("sleep") {
        d.wait(t, start + 0.001, end - 0.001, "clock_nanosleep").times_out();
    }
    t
}

/// `sleep` so many times one after the other, from 1 s on; when the shell goes on in between.
fn sleeps(d: &mut Drawing, shell: ThreadId, turns: usize, seconds: f64) -> Vec<f64> {
    let mut between = Vec::new();
    let mut t = 1.0;
    for _ in 0..turns {
        child(d, shell, &format!("sleep {seconds}"), (t, t + seconds));
        between.push(t + seconds + 0.001);
        t += seconds + 0.002;
    }
    between
}

/// `while [ -e lock ]; do sleep 1; done`; a burst recorded one turn.
#[test]
fn what_the_shell_looks_at_is_named() {
    for (result, words) in
        [(0, "until that is gone or changes"), (-2, "(ENOENT): it waits until that is there")]
    {
        let mut d = Drawing::new(22.0);
        let shell = d.process("sh", "sh job", None, 0.0);
        let between = sleeps(&mut d, shell, 20, 1.0);
        let file = |d: &mut Drawing, id, name| d.object(ObjectKind::File, id, 0, name);
        let (lock, program) = (file(&mut d, 1, "/run/job.lock"), file(&mut d, 2, "/opt/bin/sleep"));
        d.call(shell, between[6], "newfstatat", lock, result);
        d.call(shell, between[6] + 0.000_1, "newfstatat", program, -2);
        d.call(shell, between[6] + 0.000_2, "newfstatat", program, -2);
        let r = d.diagnose("^sh job$");
        assert_eq!(r.victim.block_type, BlockType::RepeatedYield);
        assert!(r.victim.duration_ns > 19_000_000_000, "{}", r.victim.duration_ns);
        let c = &r.root_causes[0];
        assert_eq!((c.process.as_deref(), c.block_type), (Some("sh"), Some(BlockType::RepeatedYield)));
        assert_eq!((c.syscall.as_deref(), c.object.as_deref()), (Some("newfstatat"), Some("/run/job.lock")));
        assert!(c.why.contains("ran `sleep 1` 20 times") && c.why.contains(words), "{}", c.why);
    }
}

/// `kill PID; while [ -e pidfile ]; do sleep 1; done`: whom the shell told to end has not done so.
#[test]
fn who_was_told_to_end_is_what_its_file_is_looked_at_for() {
    for signal in [15, 1] {
        let mut d = Drawing::new(22.0);
        let shell = d.process("sh", "sh restart", None, 0.0);
        let server = d.process("server", "server", None, 0.0);
        let report = d.stack(&["report (server)", "main (server)"]);
        d.runs(server, 0.5, 21.0, report);
        d.signal(shell, server, signal, 0.9);
        let between = sleeps(&mut d, shell, 20, 1.0);
        let lock = d.object(ObjectKind::File, 1, 0, "/run/server.pid");
        d.call(shell, between[6], "newfstatat", lock, 0);
        d.exit(server, 21.0);
        let p = d.catalog.threads[server.index()].process;
        d.catalog.processes[p.index()].end = Some(crate::draw::ns(21.0));
        let r = d.diagnose("^sh restart$");
        let found = r.root_causes.iter().position(|c| c.process.as_deref() == Some("server"));
        assert_eq!(found, (signal == 15).then_some(0), "{r:#?}");
        assert!(r.root_causes.iter().any(|c| c.why.contains("newfstatat")), "{r:#?}");
    }
}

/// Who made the file is followed, when it was recorded.
#[test]
fn who_made_what_it_looks_at_is_followed() {
    let mut d = Drawing::new(22.0);
    let shell = d.process("sh", "sh job", None, 0.0);
    let other = d.process("backup", "backup --all", None, 0.0);
    let between = sleeps(&mut d, shell, 20, 1.0);
    let lock = d.object(ObjectKind::File, 1, 0, "/run/job.lock");
    d.call(other, 0.5, "openat", lock, 3);
    let hash = d.stack(&["compress (backup)", "main (backup)"]);
    d.wait(other, 0.0, 0.4, "clock_nanosleep").before().times_out();
    d.runs(other, 0.4, 21.9, hash);
    d.call(shell, between[6], "newfstatat", lock, 0);
    let r = d.diagnose("^sh job$");
    let names: Vec<_> = r.slice.iter().map(|s| s.process.as_str()).collect();
    assert_eq!(names, ["sh", "backup"], "{r:#?}");
    let why = r.slice[1].why_weak.as_deref().unwrap_or_default();
    assert!(why.contains("made or opened the file, at 0.500 s"), "{why}");
    assert_eq!(r.root_causes[0].process.as_deref(), Some("backup"));
    assert!(r.root_causes[1].why.contains("backup:1001 made or opened it last"), "{}", r.root_causes[1].why);
}

/// `while os.path.exists(lock): time.sleep(1)`: without children.
#[test]
fn a_program_that_sleeps_itself_looks_too() {
    let mut d = Drawing::new(12.0);
    let python = d.process("python3", "python3 job.py", None, 0.0);
    let lock = d.object(ObjectKind::File, 1, 0, "/run/job.lock");
    for i in 0..10 {
        let t = 1.0 + f64::from(i) * 1.001;
        d.wait(python, t, t + 1.0, "clock_nanosleep").times_out();
    }
    d.call(python, 1.0 + 4.0 * 1.001 - 0.000_5, "newfstatat", lock, 0);
    let r = d.diagnose("^python3 ");
    let why = &r.root_causes[0].why;
    assert!(
        why.contains("slept 10 times") && why.contains("newfstatat of /run/job.lock succeeded each time"),
        "{why}"
    );
    assert!(why.ends_with("until that is gone or changes."), "{why}");
}

/// Nothing of what it looks at was recorded: that is said.
#[test]
fn pauses_alone_are_told_too() {
    let mut d = Drawing::new(22.0);
    let shell = d.process("sh", "sh job", None, 0.0);
    sleeps(&mut d, shell, 20, 1.0);
    let r = d.diagnose("^sh job$");
    assert_eq!(r.victim.block_type, BlockType::RepeatedYield);
    assert!(r.root_causes[0].why.contains("what it looks at was not recorded"), "{}", r.root_causes[0].why);
}

/// `while pgrep backup; do sleep 1; done`: the child's success is the answer.
#[test]
fn a_program_that_succeeds_again_and_again() {
    let mut d = Drawing::new(30.0);
    let shell = d.process("sh", "sh job", None, 0.0);
    for i in 0..20 {
        let t = 1.0 + f64::from(i);
        child(&mut d, shell, "pgrep backup", (t, t + 0.01));
        child(&mut d, shell, "sleep 0.9", (t + 0.011, t + 0.999));
    }
    let r = d.diagnose("^sh job$");
    let c = &r.root_causes[0];
    assert_eq!((c.process.as_deref(), c.block_type), (Some("sh"), Some(BlockType::RepeatedYield)));
    assert!(c.why.contains("ran `pgrep backup` 20 times") && c.why.contains("`sleep 0.9`"), "{}", c.why);
    assert!(c.why.contains("succeeded each time"), "{}", c.why);
}

/// Draws a loop and says when its last turn ends.
type Draw = dyn Fn(&mut Drawing, ThreadId) -> f64;

/// A job that is done every now and then, for whatever time, comes after a wait of two seconds that nobody wants.
#[test]
fn what_somebody_surely_did_not_want_comes_first() {
    let loops: [&Draw; 4] = [
        &|d, shell| {
            // cron-like: a short job each minute.
            for i in 0..8 {
                let t = 1.0 + 60.1 * f64::from(i);
                child(d, shell, "report --daily", (t, t + 0.05));
                child(d, shell, "sleep 60", (t + 0.06, t + 60.06));
            }
            481.8
        },
        &|d, shell| {
            for i in 0..60 {
                let t = 1.0 + f64::from(i);
                let job = child(d, shell, "collect", (t, t + 0.3));
                d.wait(job, t + 0.2, t + 0.299, "read").times_out();
                child(d, shell, "sleep 0.6", (t + 0.31, t + 0.91));
            }
            61.0
        },
        &|d, shell| {
            sleeps(d, shell, 16, 30.0);
            481.1
        },
        &|d, shell| {
            sleeps(d, shell, 10, 1.0);
            11.1
        },
    ];
    for (i, draw_loop) in loops.into_iter().enumerate() {
        let mut d = Drawing::new(500.0);
        let shell = d.process("sh", "sh job", None, 0.99);
        let end = draw_loop(&mut d, shell);
        d.wait(shell, end, 500.0, "pause").open();
        let program = d.process("program", "program", None, 0.0);
        let lock = d.object(ObjectKind::FileLock, 1, 2, "/run/l");
        d.wait(program, 0.0, 4.0, "pause").before().timer();
        d.wait(program, 5.0, 7.0, "flock").on(lock).timer();
        d.wait(program, 7.1, 500.0, "pause").open();
        let (g, c) = d.build();
        let all = victims(&g, &c, &VictimOptions { everyone: true, ..VictimOptions::default() });
        assert_eq!(all[0].thread, program, "{i}: {:#?}", &all[..2]);
        let turning = all.iter().find(|v| v.thread == shell).expect("the loop is listed all the same");
        assert!(turning.summary.contains("turns"), "{i}: {}", turning.summary);
    }
}

/// Work is no loop: without a pause, or with another thing each time.
#[test]
fn what_is_no_loop() {
    let tries = |draw: &dyn Fn(&mut Drawing, ThreadId)| {
        let mut d = Drawing::new(40.0);
        let shell = d.process("sh", "sh job", None, 0.0);
        draw(&mut d, shell);
        let (g, _) = d.build();
        g.retries_of(shell).len()
    };
    let without_a_pause = |d: &mut Drawing, shell: ThreadId| {
        for i in 0..20 {
            let t = 1.0 + f64::from(i);
            child(d, shell, "step", (t, t + 0.98));
        }
    };
    assert_eq!(tries(&without_a_pause), 0);
    let one_after_another = |d: &mut Drawing, shell: ThreadId| {
        for i in 0..20 {
            let t = 1.0 + f64::from(i);
            child(d, shell, &format!("ping host{i}"), (t, t + 0.1));
            child(d, shell, "sleep 0.8", (t + 0.11, t + 0.91));
        }
    };
    assert_eq!(tries(&one_after_another), 0);
    let thrice = |d: &mut Drawing, shell: ThreadId| {
        sleeps(d, shell, 3, 1.0);
    };
    assert_eq!(tries(&thrice), 0);
}

/// `while kill -0 PID; do sleep 1; done`: the process that is asked about is named, and what it does.
#[test]
fn the_process_that_is_asked_about_is_named_and_followed() {
    for gone in [false, true] {
        let mut d = Drawing::new(22.0);
        let shell = d.process("sh", "sh job", None, 0.0);
        let backup = d.process("backup", "backup --all", None, 0.0);
        let hash = d.stack(&["compress (backup)", "main (backup)"]);
        d.wait(backup, 0.0, 0.4, "clock_nanosleep").before().times_out();
        d.runs(backup, 0.4, 21.9, hash);
        let between = sleeps(&mut d, shell, 20, 1.0);
        let program = d.object(ObjectKind::File, 2, 0, "/opt/bin/sleep");
        d.call(shell, between[6], "newfstatat", program, 0);
        let (pid, result) = if gone { (4711, -3) } else { (1001, 0) };
        d.asks_for(shell, between[6] + 0.000_1, pid, result);
        // One that signals a group asks nothing.
        d.asks_for(shell, between[6] + 0.000_2, 0, 0);
        let r = d.diagnose("^sh job$");
        assert_eq!(r.victim.block_type, BlockType::RepeatedYield);
        let names: Vec<_> = r.slice.iter().map(|s| s.process.as_str()).collect();
        let of_loop = r.root_causes.iter().find(|c| c.process.as_deref() == Some("sh")).expect("the loop");
        assert_eq!(of_loop.syscall.as_deref(), Some("kill"));
        let words = if gone {
            "asked each time for process 4711 (by kill with signal 0), in vain (ESRCH): it waits until that is there"
        } else {
            "asked each time whether process 1001 (backup, by kill with signal 0) is there, which it is: it waits \
             until that has ended"
        };
        assert!(of_loop.why.contains(words), "{}", of_loop.why);
        if gone {
            assert_eq!(names, ["sh"]);
        } else {
            assert_eq!(names, ["sh", "backup"], "{r:#?}");
            assert_eq!(r.root_causes[0].process.as_deref(), Some("backup"));
            assert_eq!(r.root_causes[0].function.as_deref(), Some("compress"));
        }
    }
}

/// A program that stops another one sleeps for a moment again and again, and asks by `kill(pid, 0)` whether that is
/// still there: it waits for its end, and what it does is followed.
#[test]
fn who_sleeps_until_a_process_has_ended_waits_for_that() {
    for asks in [true, false] {
        let mut d = Drawing::new(14.0);
        let stop = d.process("stopper", "stopper --retry 40", None, 0.5);
        let daemon = d.process("syncd", "syncd", None, 0.0);
        let flush = d.stack(&["flush_all (syncd)", "main (syncd)"]);
        let loops = d.stack(&["pselect (libc.so.6)", "do_stop (stopper)", "main (stopper)"]);
        d.runs(daemon, 0.5, 12.99, flush);
        d.exit(daemon, 12.99);
        let p = d.catalog.threads[daemon.index()].process;
        d.catalog.processes[p.index()].end = Some(crate::draw::ns(12.99));
        d.naps(stop, 1.0, 13.0, 0.02, loops);
        if asks {
            for i in 0..5 {
                d.asks_for(stop, 3.0 + 0.0201 * f64::from(i), 1001, 0);
            }
        }
        d.exit(stop, 13.1);
        let r = d.diagnose("^stopper ");
        let first = &r.root_causes[0];
        if asks {
            let of = (first.process.as_deref(), first.function.as_deref());
            assert_eq!(of, (Some("syncd"), Some("flush_all")), "{r:#?}");
            let why = &r.root_causes[1].why;
            assert!(why.contains("whether process 1001") && why.contains("until that has ended"), "{why}");
            assert!(r.questions.is_empty(), "{r:#?}");
        } else {
            assert_eq!(first.process.as_deref(), Some("stopper"), "{r:#?}");
        }
    }
}

/// A program looks after its child by sleeping and `waitpid(WNOHANG)` in turns; a client waits for its answer. It waits
/// for the child that had ended when it went on, or that is seen to be asked for, not for one that lives on.
#[test]
fn who_sleeps_until_its_child_has_ended_waits_for_that() {
    for (ended, asked) in [(true, false), (false, true), (false, false)] {
        let mut d = Drawing::new(14.0);
        let client = d.process("ask", "ask", None, 0.0);
        let runner = d.process("runner", "runner", None, 0.0);
        let job = d.process("job", "job", Some(runner), 0.9);
        let (near, far) = (
            d.object(ObjectKind::UnixStream, 1, 2, ""),
            d.object(ObjectKind::UnixStream, 2, 1, "/run/runner"),
        );
        let work = d.stack(&["crunch (job)", "main (job)"]);
        let loops = d.stack(&["usleep (libc.so.6)", "reap (runner)", "main (runner)"]);
        d.spawn(runner, job, 0.9);
        d.runs(job, 0.9, if ended { 12.99 } else { 13.9 }, work);
        if ended {
            d.exit(job, 12.99);
            let p = d.catalog.threads[job.index()].process;
            d.catalog.processes[p.index()].end = Some(crate::draw::ns(12.99));
        }
        d.message(client, near, pg_event::Direction::Send, 1.0, 10);
        d.naps(runner, 1.0, 13.0, 0.05, loops);
        if asked {
            d.call(runner, 4.0, "wait4", ObjectId::NONE, 0);
        }
        d.wait(client, 1.001, 13.01, "read").on(near).by(runner, "write", far);
        let r = d.diagnose("^ask$");
        let first = r.root_causes[0].process.as_deref();
        assert_eq!(first, Some(if ended || asked { "job" } else { "runner" }), "{ended} {asked} {r:#?}");
    }
}

/// A program sleeps between looks at its child, from before the recording until after it; what it asks in between was not
/// recorded, since it was not asked for. With two children nobody knows.
#[test]
fn who_sleeps_from_beginning_to_end_is_likely_to_wait_for_its_only_child() {
    for children in [1, 2] {
        let mut d = Drawing::new(6.0);
        let client = d.process("ask", "ask", None, 0.0);
        let runner = d.process("runner", "runner", None, 0.0);
        let work = d.stack(&["crunch (job)", "main (job)"]);
        let near = d.object(ObjectKind::UnixStream, 1, 2, "");
        d.object(ObjectKind::UnixStream, 2, 1, "/run/runner");
        for _ in 0..children {
            let job = d.process("job", "job", Some(runner), 0.0);
            d.runs(job, 0.0, 6.0, work);
        }
        let mut t = 0.0;
        while t < 5.2 {
            d.wait(runner, t, t + 0.6, "clock_nanosleep").times_out();
            t += 0.601;
        }
        d.wait(runner, t, 6.0, "clock_nanosleep").open();
        d.wait(client, 0.0, 6.0, "read").on(near).before().open();
        d.hold(runner, client, near, pg_event::Relation::Peer, 1.0);
        let r = d.diagnose("^ask$");
        let first = r.root_causes[0].process.as_deref();
        assert_eq!(first, Some(if children == 1 { "job" } else { "runner" }), "{children} {r:#?}");
    }
}

/// A program sleeps in turns, since it may send only so much a second; its child takes what it sends, and ends when that is
/// over. A parent waits for the program.
#[test]
fn who_sleeps_between_what_it_sends_a_child_does_not_wait_for_that() {
    for takes in [true, false] {
        let mut d = Drawing::new(14.0);
        let parent = d.process("job", "job", None, 0.0);
        let copy = d.process("copy", "copy --limit", Some(parent), 0.5);
        let taker = d.process("copy", "copy --limit", Some(copy), 0.9);
        let (near, far) =
            (d.object(ObjectKind::UnixStream, 1, 2, ""), d.object(ObjectKind::UnixStream, 2, 1, ""));
        let loops = d.stack(&["select (libc.so.6)", "sleep_for_limit (copy)", "main (copy)"]);
        let work = d.stack(&["crunch (copy)", "main (copy)"]);
        d.spawn(parent, copy, 0.5);
        d.spawn(copy, taker, 0.9);
        d.naps(copy, 1.0, 13.0, 0.16, loops);
        if takes {
            let mut t = 1.0;
            while t < 12.9 {
                d.wait(taker, t + 0.0001, t + 0.16, "poll").on(far).by(copy, "write", near);
                d.message(copy, near, pg_event::Direction::Send, t + 0.16, 4096);
                d.message(taker, far, pg_event::Direction::Receive, t + 0.1601, 4096);
                t += 0.1602;
            }
        } else {
            d.runs(taker, 1.0, 12.99, work);
        }
        d.exit(taker, 12.99);
        let p = d.catalog.threads[taker.index()].process;
        d.catalog.processes[p.index()].end = Some(crate::draw::ns(12.99));
        d.exit(copy, 13.01);
        d.wait(parent, 1.0, 13.02, "wait4").by(copy, "exit_group", ObjectId::NONE);
        let r = d.diagnose("^job$");
        let first = &r.root_causes[0];
        let tid = if takes { 1001 } else { 1002 };
        assert_eq!(first.tid, Some(tid), "{takes} {r:#?}");
    }
}

/// A program asks on the CPU, without a pause, whether a file is there: which one is told.
#[test]
fn a_loop_on_the_cpu_that_asks_for_a_file_names_it() {
    let mut d = Drawing::new(8.0);
    let spin = d.process("spin", "spin /run/job/ready", None, 0.0);
    let file = d.object(ObjectKind::File, 7, 0, "/run/job/ready");
    let loops = d.stack(&["newfstatat (libc.so.6)", "main (spin)"]);
    d.runs(spin, 0.5, 7.9, loops);
    for i in 0..50 {
        d.call(spin, 3.0 + 0.0001 * f64::from(i), "newfstatat", file, -2);
    }
    let r = d.diagnose("^spin ");
    let why = &r.root_causes[0].why;
    assert!(
        why.contains("tried newfstatat of /run/job/ready again and again: it failed 50 times (ENOENT)"),
        "{why}"
    );
}

/// A process that has ended is there for whoever asks by its number, as long as its parent does not take its exit status.
#[test]
fn who_does_not_reap_keeps_a_loop_that_waits_for_the_end_of_its_child() {
    for (ended, led) in [(Some(0.6), vec![1001, 1000]), (None, vec![1001, 1002])] {
        let mut d = Drawing::new(8.0);
        let parent = d.process("parent", "parent", None, 0.0);
        let stop = d.process("stop", "stop", None, 0.0);
        let job = d.process("job", "job", Some(parent), 0.0);
        match ended {
            Some(at) => {
                d.exit(job, at);
                let p = d.catalog.threads[job.index()].process;
                d.catalog.processes[p.index()].end = Some(crate::draw::ns(at));
            }
            None => d.wait(job, 0.1, 8.0, "clock_nanosleep").open(),
        }
        let at_work = d.stack(&["clock_nanosleep (libc.so.6)", "main_loop (parent)"]);
        d.wait(parent, 0.1, 8.0, "clock_nanosleep").stack(at_work).open();
        let mut t = 0.5;
        while t < 7.5 {
            d.wait(stop, t, t + 0.3, "pselect6").times_out();
            d.asks_for(stop, t + 0.3005, 1002, 0);
            t += 0.301;
        }
        d.wait(stop, t, 8.0, "pselect6").open();
        let r = d.diagnose("^stop$");
        assert_eq!(crate::draw::middle::way(&r), led, "{r:#?}");
        let why = &r.root_causes[0].why;
        assert_eq!(why.contains("has not taken the exit status"), ended.is_some(), "{why}");
    }
}
