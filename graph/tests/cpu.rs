//! Threads that could run and had no CPU: by a quota, or since others had it.

mod draw;

use draw::{Drawing, what};
use pg_event::{ObjectId, ObjectKind, OffState};

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
