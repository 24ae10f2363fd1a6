//! Threads that could run and had no CPU: by a quota, or since others had it.

use crate::draw::{Drawing, what};
use pg_event::{ObjectId, ObjectKind, OffState, Scheduling};

/// Somebody waits for a lock whose holder runs `slice` out of every `period`; `peers` compute meanwhile.
fn slow_holder(slice: f64, period: f64, peers: usize) -> Drawing {
    let mut d = Drawing::new(14.0);
    let holder = d.process("gzip", "gzip data", None, 0.0);
    let waiter = d.process("flock", "flock lock true", None, 0.9);
    let lock = d.object(ObjectKind::FileLock, 7, 8, "/tmp/lock");
    let work = d.stack(&["deflate (gzip)", "main (gzip)"]);
    d.catalog.processes[0].cgroup = "/box".into();
    let mut t = 1.0;
    while t < 11.0 {
        d.runs(holder, t, t + slice, work);
        d.put_off(holder, t + slice, t + period);
        t += period;
    }
    let hog = d.stack(&["burn (hog)", "main (hog)"]);
    // It has the CPU whenever the holder has not.
    for _ in 0..peers {
        let hogging = d.process("hog", "hog", None, 0.0);
        d.runs(hogging, 0.0, 12.0, hog);
        let mut t = 1.0;
        while t < 11.0 {
            d.put_off(hogging, t, t + slice);
            t += period;
        }
        d.wait(hogging, 12.0, 14.0, "pause").open();
    }
    // One that has a CPU of its own all the time.
    let beside = d.process("beside", "beside", None, 0.0);
    d.runs(beside, 0.0, 14.0, hog);
    d.wait(waiter, 1.0, t, "flock").on(lock).by(holder, "flock", ObjectId::NONE);
    d.wait(holder, t + 0.001, 14.0, "pause").open();
    d
}

#[test]
fn a_quota_keeps_it_off_idle_cpus() {
    let r = slow_holder(0.005, 0.1, 0).diagnose("^flock");
    let step = &r.slice[1];
    assert_eq!((step.state.as_str(), step.waits_on.as_deref()), ("throttled", Some("cpu-quota")), "{r:#?}");
    assert_eq!(step.object.as_deref(), Some("cgroup /box"));
    let c = &r.root_causes[0];
    assert_eq!(c.process.as_deref(), Some("gzip"));
    assert!(c.why.contains("quota") && c.why.contains("5.0 ms every 100 ms"), "{}", c.why);
    // A generous quota, too: it runs most of the time and is held up nevertheless.
    let r = slow_holder(0.05, 0.1, 0).diagnose("^flock");
    assert_eq!(r.slice[1].state, "throttled", "{r:#?}");
    assert!(r.root_causes[0].why.contains("50 ms every 100 ms"), "{}", r.root_causes[0].why);
}

#[test]
fn a_peer_that_has_the_cpu_is_named_first() {
    let r = slow_holder(0.005, 0.1, 1).diagnose("^flock");
    assert_eq!((r.slice[1].state.as_str(), r.slice[1].waits_on.as_deref()), ("runnable", Some("run-queue")));
    assert_eq!(r.root_causes[0].process.as_deref(), Some("hog"), "{r:#?}");
    assert!(what(&r.root_causes[0]).contains("burn"));
    assert_eq!(r.root_causes[1].process.as_deref(), Some("gzip"));
    assert!(r.root_causes[1].why.contains("taken by hog"), "{}", r.root_causes[1].why);
}

#[test]
fn how_threads_are_scheduled_is_told_of_who_had_no_cpu() {
    for set in [true, false] {
        let mut d = slow_holder(0.005, 0.1, 1);
        if set {
            let at = |d: &Drawing, name: &str| d.catalog.threads.iter().position(|t| t.name == name).unwrap();
            let (holder, hog) = (at(&d, "gzip"), at(&d, "hog"));
            let last = Scheduling { policy: 5, cpus: "1".into(), ..Scheduling::default() };
            let before = Scheduling { nice: -5, ..Scheduling::default() };
            d.catalog.threads[holder].scheduling = Some(last);
            d.catalog.threads[hog].scheduling = Some(before);
        }
        let r = d.diagnose("^flock");
        let why = &r.root_causes[1].why;
        assert_eq!(why.contains("; it comes last (SCHED_IDLE), may use CPU 1 only; the CPUs"), set, "{why}");
        assert_eq!(why.contains(" %, has nice -5)"), set, "{why}");
    }
}

/// The holder of a lock is bound to a CPU that two peers of higher priority share; another CPU idles.
#[test]
fn a_cpu_that_others_have_is_no_quota_though_another_one_idles() {
    let why = |bound: bool| {
        let mut d = Drawing::new(14.0);
        let holder = d.process("bzip2", "bzip2 data", None, 0.0);
        let waiter = d.process("flock", "flock lock true", None, 0.9);
        let hogs = [d.process("xz", "xz zero", None, 0.0), d.process("gzip", "gzip zero", None, 0.0)];
        let beside = d.process("beside", "beside", None, 0.0);
        let lock = d.object(ObjectKind::FileLock, 7, 8, "/tmp/lock");
        let work = d.stack(&["compress (bz2)", "main (bzip2)"]);
        let burn = d.stack(&["burn (hog)", "main (hog)"]);
        d.on_cpu(beside, 1);
        // Before they were bound all were elsewhere.
        for t in [holder, hogs[0], hogs[1]] {
            d.on_cpu(t, 1);
            d.put_off(t, 0.5, 0.6);
            d.on_cpu(t, u16::from(!bound && t != holder));
        }
        let mut t = 1.0;
        while t < 11.0 {
            d.runs(holder, t, t + 0.01, work);
            d.put_off(holder, t + 0.01, t + 0.8);
            let mut turn = t;
            while turn < t + 0.79 {
                for (hog, from) in [(hogs[0], turn), (hogs[1], turn + 0.005)] {
                    d.put_off(hog, from, from + 0.005);
                }
                turn += 0.01;
            }
            for hog in hogs {
                d.put_off(hog, t + 0.8, t + 0.81);
            }
            t += 0.8;
        }
        d.runs(beside, 1.0, 1.01, burn);
        d.wait(beside, 1.02, 14.0, "pause").open();
        d.wait(waiter, 1.0, t, "flock").on(lock).by(holder, "flock", ObjectId::NONE);
        for t0 in [holder, hogs[0], hogs[1]] {
            d.wait(t0, t + 0.01, 14.0, "pause").open();
        }
        let r = d.diagnose("^flock");
        (r.slice[1].state.clone(), r.root_causes.last().unwrap().why.clone())
    };
    let (state, says) = why(true);
    assert_eq!(state, "runnable", "{says}");
    assert!(says.contains("no CPU") && says.contains("xz") && says.contains("gzip"), "{says}");
    assert!(!says.contains("quota"), "{says}");
    // The same while its own CPU idled.
    assert!(why(false).1.contains("quota"), "{}", why(false).1);
}

/// A thread that turned at a barrier lost its CPU for good, to a peer of higher priority: that it ran for long before
/// does not make it busy.
#[test]
fn a_thread_passed_over_at_one_go_wants_a_cpu() {
    let mut d = Drawing::new(18.0);
    let main = d.process("blas", "blas", None, 0.0);
    let worker = d.thread(main, "worker", 0.0);
    let hog = d.process("gzip", "gzip zero", None, 4.9);
    let spin = d.stack(&["do_spin (gomp)", "start_thread (libc)"]);
    let burn = d.stack(&["deflate (gzip)", "main (gzip)"]);
    d.on_cpu(worker, 1);
    d.on_cpu(hog, 1);
    d.put_off(worker, 0.01, 0.011);
    d.runs(worker, 0.02, 5.0, spin);
    d.wait(hog, 4.95, 5.0, "read").before().times_out();
    d.runs(hog, 5.0, 17.5, burn);
    d.put_off(worker, 5.0, 17.5);
    d.wait(hog, 17.5, 18.0, "pause").open();
    d.runs(worker, 17.5, 17.6, spin);
    d.wait(worker, 17.6, 18.0, "futex").open();
    d.wait(main, 0.01, 18.0, "wait4").open();
    let (g, c) = d.build();
    let all = pg_graph::victims(&g, &c, &pg_graph::VictimOptions::default());
    let v = all.into_iter().find(|v| v.thread == worker).expect("it ran for long");
    let r = pg_graph::run_with_policy(&g, &c, v, pg_graph::Options::default());
    assert_eq!(r.root_causes[0].process.as_deref(), Some("gzip"), "{r:#?}");
    let own = &r.root_causes[1].why;
    assert!(own.contains("no CPU for 12.5 s") && own.contains("gzip"), "{own}");
}

#[test]
fn usual_turns_are_no_quota() {
    let r = slow_holder(0.003, 0.006, 2).diagnose("^flock");
    assert_eq!(r.slice[1].state, "running", "{r:#?}");
    assert_eq!(r.root_causes[0].function.as_deref(), Some("deflate"));
}

/// The recorder tells when a quota was used up: that is no wait of the program's, and the thread still computes.
#[test]
fn a_recorded_quota_is_named() {
    let mut d = Drawing::new(14.0);
    let holder = d.process("gzip", "gzip data", None, 0.0);
    let waiter = d.process("flock", "flock lock true", None, 0.9);
    let other = d.process("busy", "busy", None, 0.0);
    let lock = d.object(ObjectKind::FileLock, 7, 8, "/tmp/lock");
    let group =
        d.object(ObjectKind::Cgroup, 77, 0, "/sys/fs/cgroup/box (cpu.max 20000 100000 = 20.0 % of a CPU)");
    let work = d.stack(&["deflate (gzip)", "main (gzip)"]);
    d.runs(other, 0.0, 14.0, work);
    let mut t = 1.0;
    while t < 11.0 {
        d.runs(holder, t, t + 0.02, work);
        d.wait(holder, t + 0.02, t + 0.1, "read").on(group).state(OffState::Throttled).times_out();
        t += 0.1;
    }
    d.wait(waiter, 1.0, t, "flock").on(lock).by(holder, "flock", ObjectId::NONE);
    d.wait(holder, t + 0.001, 14.0, "pause").open();
    let (g, c) = d.build();
    let spans = pg_graph::episodes(&g, &c, holder, 200_000_000);
    assert!(spans.iter().any(|e| e.key.is_none() && e.duration() > 9_000_000_000), "{spans:?}");
    let s = pg_graph::Selection { pid: Some(1001), ..pg_graph::Selection::default() };
    let v = pg_graph::select(&g, &c, &s, &pg_graph::VictimOptions::default()).unwrap();
    let r = pg_graph::run_with_policy(&g, &c, v, pg_graph::Options::default());
    let step = &r.slice[1];
    assert_eq!((step.state.as_str(), step.waits_on.as_deref()), ("throttled", Some("cpu-quota")), "{r:#?}");
    let cause = &r.root_causes[0];
    assert!(cause.object.as_ref().unwrap().contains("20.0 % of a CPU"), "{cause:?}");
    assert!(cause.why.contains("throttled") && cause.why.contains("20 ms every 100 ms"), "{}", cause.why);
}

/// Where threads were taken out of a recording, nobody knows what the CPUs did.
#[test]
fn a_partial_recording_knows_no_idle_cpus() {
    let why = |partial: bool| {
        let mut d = Drawing::new(14.0);
        let gzip = d.process("gzip", "gzip data", None, 0.0);
        let group = d.object(ObjectKind::Cgroup, 77, 0, "/box (cpu.max 20000 100000 = 20.0 % of a CPU)");
        let work = d.stack(&["deflate (gzip)"]);
        let mut t = 1.0;
        while t < 11.0 {
            d.runs(gzip, t, t + 0.02, work);
            d.wait(gzip, t + 0.02, t + 0.1, "read").on(group).state(OffState::Throttled).times_out();
            t += 0.1;
        }
        d.wait(gzip, t + 0.001, 14.0, "pause").open();
        let options = pg_graph::BuildOptions { partial, ..pg_graph::BuildOptions::default() };
        let (g, c) = d.build_with(options);
        let v = pg_graph::victims(&g, &c, &pg_graph::VictimOptions::default()).remove(0);
        let r = pg_graph::run_with_policy(&g, &c, v, pg_graph::Options::default());
        r.root_causes[0].why.clone()
    };
    assert!(
        why(false).contains("throttled") && why(false).contains("though CPUs were idle"),
        "{}",
        why(false)
    );
    assert!(why(true).contains("throttled") && !why(true).contains("idle"), "{}", why(true));
}

/// Page faults, memory that must be freed first, and a disk: told apart by the kernel's functions.
#[test]
fn memory_is_told_from_the_disk() {
    for (leaf, word, says) in [
        (
            &["io_schedule (k)", "folio_wait (k)", "filemap_fault (k)", "exc_page_fault (k)"][..],
            "page-fault",
            "page",
        ),
        (
            &[
                "io_schedule (k)",
                "throttle_direct_reclaim (k)",
                "try_to_free_pages (k)",
                "exc_page_fault (k)",
            ][..],
            "memory-reclaim",
            "memory was short",
        ),
        (
            &["schedule_timeout (k)", "reclaim_throttle (k)", "try_to_free_mem_cgroup_pages (k)"][..],
            "memory-reclaim",
            "memory was short",
        ),
        (&["io_schedule (k)", "folio_wait (k)", "filemap_read (k)"][..], "disk", "device"),
    ] {
        let mut d = Drawing::new(9.0);
        let app = d.process("app", "app", None, 0.0);
        let kernel = d.stack(leaf);
        d.wait(app, 1.0, 5.0, "read").state(OffState::Uninterruptible).in_kernel(kernel).times_out();
        d.wait(app, 5.1, 9.0, "pause").open();
        let r = d.diagnose("^app$");
        assert_eq!(r.slice[0].waits_on.as_deref(), Some(word), "{r:#?}");
        assert!(r.root_causes[0].why.contains(says), "{}", r.root_causes[0].why);
    }
}

/// The engine of a script executes its own code for a function of it; who calls a small function all the time is told.
#[test]
fn a_function_of_a_script_comes_before_the_engines_and_a_caller_is_told() {
    for (frames, told) in [
        (
            &[
                "v8::base::Time::Now() (node)",
                "JS:*renderReport /app/report.js:3:1 (perf-7.map)",
                "node::Start (node)",
            ][..],
            "100 % of it in JS:*renderReport",
        ),
        (
            &["__strcmp_evex (libc.so.6)", "cmp_rows (app)", "find_dupes (app)", "main (app)"],
            "100 % of it in cmp_rows (app), called from find_dupes",
        ),
        (&["__strcmp_evex (libc.so.6)", "cmp_rows (app)", "main (app)"], "100 % of it in cmp_rows (app)."),
    ] {
        let mut d = Drawing::new(3.0);
        let app = d.process("app", "app", None, 0.0);
        let stack = d.stack(frames);
        d.runs(app, 0.1, 2.9, stack);
        let why = &d.diagnose("^app").root_causes[0].why;
        assert!(why.contains(told), "{why}");
    }
}
