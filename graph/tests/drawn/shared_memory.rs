//! Memory that processes share: who may write there what another one asks for, or is to wake who waits there, drawn.

use crate::draw::middle::waits;
use crate::draw::{Drawing, PRIVATE_WAIT};
use pg_event::{ModuleKind, ObjectId, ObjectKind, Relation, SHARED_FUTEX};
use pg_graph::report::Report;

/// A reader asks every millisecond, or by sched_yield; the writer reads a file from a slow disk.
fn asks(mapped: bool, by_sleep: bool) -> Report {
    let mut d = Drawing::new(6.0);
    let reader = d.process("reader", "reader", None, 0.0);
    let writer = d.process("writer", "writer", None, 0.0);
    let bystander = d.process("bystander", "bystander", None, 0.0);
    let ring = d.object(ObjectKind::File, 77, 5, "/dev/shm/ring");
    let asks =
        d.stack(&[if by_sleep { "usleep (libc.so.6)" } else { "sched_yield (libc.so.6)" }, "next (reader)"]);
    if by_sleep {
        d.naps(reader, 0.0, 6.0, 0.001, asks);
    } else {
        d.runs(reader, 0.0, 6.0, asks);
    }
    let file = d.object(ObjectKind::File, 3, 0, "/srv/prices");
    waits(&mut d, writer, "pread64", file);
    waits(&mut d, bystander, "clock_nanosleep", ObjectId::NONE);
    if mapped {
        d.hold(writer, reader, ring, Relation::Maps, 0.5);
    }
    d.diagnose("^reader")
}

#[test]
fn who_alone_has_the_memory_of_a_loop_mapped_may_let_it_go_on() {
    for by_sleep in [true, false] {
        let r = asks(true, by_sleep);
        let first = &r.root_causes[0];
        assert_eq!(first.process.as_deref(), Some("writer"), "{by_sleep} {r:#?}");
        let why = r.slice.iter().find_map(|n| n.why_weak.as_deref()).unwrap();
        assert!(why.contains("has its shared memory mapped (/dev/shm/ring)"), "{why}");
        assert!(r.questions.is_empty() && r.slice.iter().all(|n| n.process != "bystander"), "{r:#?}");
        let r = asks(false, by_sleep);
        assert_eq!(r.root_causes[0].process.as_deref(), Some("reader"), "{by_sleep} {r:#?}");
    }
}

/// A semaphore whose other users have all ended, and one of which that is not known.
#[test]
fn a_semaphore_that_nobody_else_has_mapped() {
    for known in [true, false] {
        let mut d = Drawing::new(6.0);
        let app = d.process("app", "app", None, 0.0);
        let word = d.object(ObjectKind::Futex, 0, SHARED_FUTEX | 0x77, "/dev/shm/sem.gate");
        let stack = d.stack(&["sem_wait (libc.so.6)", "enter (app)"]);
        d.wait(app, 0.2, 6.0, "futex").on(word).stack(stack).op(265, 0).open();
        if known {
            d.hold(app, app, word, Relation::Maps, 1.0);
        }
        let why = &d.diagnose("^app").root_causes[0].why;
        assert_eq!(why.contains("no other process has that memory mapped"), known, "{why}");
    }
}

/// Another process of the same program was killed: it may have had the semaphore.
#[test]
fn who_was_killed_may_have_had_a_semaphore() {
    for (program, named) in [("/usr/bin/app", true), ("/usr/bin/other", false)] {
        let mut d = Drawing::new(6.0);
        let app = d.process("app", "app", None, 0.0);
        let other = d.process("first", "first", None, 0.0);
        for (t, exe) in [(app, "/usr/bin/app"), (other, program)] {
            let p = d.catalog.thread(t).unwrap().process;
            d.catalog.processes[p.index()].exe = exe.into();
        }
        d.wait(other, 0.1, 1.9, "clock_nanosleep").times_out();
        let p = d.catalog.thread(other).unwrap().process;
        d.catalog.processes[p.index()].end = Some(2_000_000_000);
        d.catalog.processes[p.index()].exit_status = Some(9);
        let word = d.object(ObjectKind::Futex, 0, SHARED_FUTEX | 0x77, "/dev/shm/sem.gate");
        let stack = d.stack(&["sem_wait (libc.so.6)", "enter (app)"]);
        d.wait(app, 1.0, 6.0, "futex").on(word).stack(stack).op(265, 0).open();
        d.hold(app, app, word, Relation::Maps, 2.5);
        let why = &d.diagnose("^app").root_causes[0].why;
        assert_eq!(why.contains("first (pid 1001), which was killed (signal 9) at 2.000 s"), named, "{why}");
    }
}

/// Who has the memory of a barrier mapped does not have the barrier.
#[test]
fn who_does_not_come_to_a_barrier_of_two_processes() {
    for barrier in [true, false] {
        let mut d = Drawing::new(6.0);
        let early = d.process("early", "early", None, 0.0);
        let late = d.process("late", "late", None, 0.0);
        let word = d.object(ObjectKind::Futex, 0x5c, SHARED_FUTEX | 0x77, "/dev/shm/b");
        let f = if barrier { "pthread_barrier_wait (libc.so.6)" } else { "sem_wait (libc.so.6)" };
        let stack = d.stack(&[f, "step (early)"]);
        d.wait(early, 0.0, 6.0, "futex").on(word).stack(stack).op(0, 0).before().open();
        d.hold(late, early, word, Relation::Writes, 1.0);
        let client = d.object(ObjectKind::Pipe, 9, 9, "");
        waits(&mut d, late, "read", client);
        let r = d.diagnose("^early");
        let first = &r.root_causes[0];
        assert_eq!(first.process.as_deref(), Some("late"), "{r:#?}");
        assert_eq!(first.why.contains("did not come to the barrier"), barrier, "{}", first.why);
        assert!(!first.why.contains("did not release it"), "{}", first.why);
    }
}

/// A semaphore: others that have it mapped wait for it, too; then somebody does who has it mapped and reads from a server.
#[test]
fn who_does_not_wait_for_the_semaphore_that_the_others_wait_for() {
    for (fellows, able) in [(1, 0), (2, 0), (1, 1), (0, 2)] {
        let mut d = Drawing::new(6.0);
        let app = d.process("app", "app", None, 0.0);
        let word = d.object(ObjectKind::Futex, 0x18, SHARED_FUTEX | 0x77, "/dev/shm/sem.gate");
        let enter = d.stack(&["sem_wait (libc.so.6)", "enter (app)"]);
        d.wait(app, 0.2, 6.0, "futex").on(word).stack(enter).op(265, 0).open();
        if able == 0 {
            d.hold(app, app, word, Relation::Maps, 1.0);
        }
        for i in 0..fellows {
            let other = d.process(&format!("fellow{i}"), "fellow", None, 0.0);
            d.wait(other, 0.0, 6.0, "futex").on(word).stack(enter).op(265, 0).before().open();
            d.hold(other, app, word, Relation::Maps, 1.0);
        }
        let client = d.object(ObjectKind::Pipe, 9, 9, "");
        for i in 0..able {
            let other = d.process(&format!("able{i}"), "able", None, 0.0);
            waits(&mut d, other, "read", client);
            d.hold(other, app, word, Relation::Writes, 1.0);
        }
        let r = d.diagnose("^app");
        let first = &r.root_causes[0];
        let expected = match (fellows, able) {
            (1, 0) => {
                "the one other process that has that memory mapped, fellow0 (pid 1001), waits for the same"
            }
            (2, 0) => "the 2 other processes that have that memory mapped wait for the same",
            (1, 1) => "is the only process not waiting there itself that has mapped what app",
            _ => "is one of 2 other processes that have mapped what app",
        };
        assert!(first.why.contains(expected), "{}", first.why);
        assert_eq!(first.process.as_deref(), Some(if able == 0 { "app" } else { "able0" }), "{r:#?}");
    }
}

/// Of three processes one has not come to their barrier: it waits for a lock that a third has.
#[test]
fn the_process_that_has_not_come_to_a_barrier() {
    let mut d = Drawing::new(6.0);
    let app = d.process("app", "app", None, 0.0);
    let late = d.process("late", "app", Some(app), 0.1);
    let job = d.process("backup", "backup", None, 0.0);
    let word = d.object(ObjectKind::Futex, 0x4, SHARED_FUTEX | 0x77, "/dev/zero");
    let step = d.stack(&["pthread_barrier_wait (libc.so.6)", "step (app)"]);
    d.wait(app, 0.2, 6.0, "futex").on(word).stack(step).op(0, 0).open();
    d.hold(late, app, word, Relation::Missing, 1.2);
    let file = d.object(ObjectKind::File, 5, 5, "/srv/input");
    d.wait(late, 0.2, 6.0, "fcntl").on(file).open();
    d.hold(job, late, file, Relation::Owns, 1.2);
    waits(&mut d, job, "clock_nanosleep", ObjectId::NONE);
    let r = d.diagnose("^app");
    assert_eq!(r.root_causes[0].process.as_deref(), Some("backup"), "{r:#?}");
    assert!(r.slice.iter().any(|n| n.process == "late"), "{r:#?}");
}

/// A condition that the only other thread of the process never told, while it slept.
#[test]
fn what_the_other_thread_did_that_could_have_woken_it() {
    for others in [1, 2] {
        let mut d = Drawing::new(6.0);
        let app = d.process("app", "app", None, 0.0);
        let word = d.object(ObjectKind::Futex, 0x10, 1000, "");
        let stack = d.stack(&["pthread_cond_wait (libc.so.6)", "take (app)"]);
        let step = d.stack(&["clock_nanosleep (libc.so.6)", "produce (app)"]);
        for i in 0..others {
            let t = d.thread(app, &format!("producer{i}"), 0.0);
            d.naps(t, 0.0, 6.0, 1.0, step);
        }
        d.wait(app, 0.2, 6.0, "futex").on(word).stack(stack).op(PRIVATE_WAIT, 0).open();
        let why = &d.diagnose("^app").root_causes[0].why;
        assert!(why.contains("a notification that came before it waited is lost"), "{why}");
        assert_eq!(why.contains("called from produce"), others == 1, "{why}");
        assert!(!why.contains("no thread was found that could"), "{why}");
    }
}

/// The monitor thread of a runtime that schedules tasks itself waits for nobody.
#[test]
fn who_has_no_task_is_not_left_by_the_others() {
    let mut d = Drawing::new(6.0);
    let app = d.process("app", "app", None, 0.0);
    let word = d.object(ObjectKind::Futex, 0x10, 1000, "");
    let stack = d.stack(&["runtime.futex (app)", "runtime.sysmon (app)", "runtime.mstart1 (app)"]);
    let idle = d.thread(app, "app", 0.0);
    waits(&mut d, idle, "epoll_pwait", ObjectId::NONE);
    d.wait(app, 0.2, 6.0, "futex").on(word).stack(stack).op(PRIVATE_WAIT, 0).open();
    let r = d.diagnose("^app");
    assert!(r.coverage.notes.iter().any(|n| n.contains("goroutine")), "{r:#?}");
    assert!(!r.root_causes[0].why.contains("of its process"), "{r:#?}");
}

/// The number in a lock is less than that of the process: its thread was of the process that was copied.
#[test]
fn a_lock_that_names_a_thread_of_who_forked() {
    let mut d = Drawing::new(6.0);
    let parent = d.process("app", "app", None, 0.0);
    let gone = d.thread(parent, "", 0.0);
    let child = d.process("app", "app --child", Some(parent), 0.0);
    let lock = d.object(ObjectKind::Futex, 0x10, 1002, "");
    let stack = d.stack(&["pthread_mutex_lock (libc.so.6)", "log (app)"]);
    // The recorder finds no thread of that number any more, and takes it for one of the waiter's process.
    d.catalog.threads[gone.index()].process = d.catalog.threads[child.index()].process;
    d.event(0, gone, pg_event::Kind::Exit { status: u32::MAX });
    d.wait(child, 0.0, 6.0, "futex").on(lock).stack(stack).op(128, 2).before().open();
    d.hold(gone, child, lock, Relation::Owns, 1.0);
    let why = &d.diagnose("^app --child").root_causes[0].why;
    assert!(why.contains("is locked by thread 1001, which is none of app (pid 1002)"), "{why}");
    assert!(why.contains("fork copied the lock without the thread that has it"), "{why}");
}

/// A pool whose task was lost with a worker: the parent has nothing to read, the worker neither.
#[test]
fn who_read_from_one_another_wait_for_one_another() {
    for mutual in [true, false] {
        let mut d = Drawing::new(6.0);
        let pool = d.process("pool", "pool", None, 0.0);
        let results = d.thread(pool, "results", 0.0);
        let keeper = d.thread(pool, "keeper", 0.0);
        d.naps(keeper, 0.0, 6.0, 0.1, pg_event::StackId::NONE);
        let worker = d.process("worker", "worker", Some(pool), 0.0);
        let (tasks, back) = (d.object(ObjectKind::Pipe, 5, 5, ""), d.object(ObjectKind::Pipe, 6, 6, ""));
        let word = d.object(ObjectKind::Futex, 0x10, 1000, "");
        let stack = d.stack(&["sem_wait (libc.so.6)", "map (pool)"]);
        d.wait(pool, 0.0, 6.0, "futex").on(word).stack(stack).op(PRIVATE_WAIT, 0).before().open();
        waits(&mut d, worker, "read", tasks);
        d.hold(pool, worker, tasks, Relation::Writes, 1.0);
        if mutual {
            waits(&mut d, results, "read", back);
            d.hold(worker, results, back, Relation::Writes, 1.0);
        } else {
            waits(&mut d, results, "pause", ObjectId::NONE);
        }
        let r = d.diagnose("^worker");
        let told = r.root_causes.iter().any(|c| c.why.contains("each waits for the other to send something"));
        assert_eq!(told, mutual, "{r:#?}");
    }
}

/// A program in a runtime that was told to end, which wakes one of the runtime's threads just before.
#[test]
fn a_deadlock_that_is_ended_by_a_signal_is_one() {
    let mut d = Drawing::new(9.0);
    let java = d.process("java", "java App", None, 0.0);
    let names = ["java", "worker", "signals", "sweeper"];
    let [first, worker, signals, sweeper] = names.map(|n| d.thread(java, n, 0.1));
    let program =
        d.stack(&["pthread_cond_wait (libc.so.6)", "park (libjvm.so)", "get (jit)", "run (libjvm.so)"]);
    let house = d.stack(&["pthread_cond_wait (libc.so.6)", "sweep (libjvm.so)", "run (libjvm.so)"]);
    d.catalog.modules.iter_mut().find(|m| m.path.ends_with("jit")).unwrap().kind = ModuleKind::Anonymous;
    let end = d.object(ObjectKind::Futex, 0x90_0000, 1000, "");
    let lock = |d: &mut Drawing, word| d.object(ObjectKind::Futex, word, 1000, "");
    d.wait(java, 0.2, 8.9, "futex").on(end).op(9, 1001).interrupted();
    d.hold(first, java, end, Relation::Owns, 1.5);
    for (i, (t, stack)) in [(first, program), (worker, program), (sweeper, house)].into_iter().enumerate() {
        let o = lock(&mut d, 0x10 + 0x40 * i as u64);
        if t != sweeper {
            d.wait(t, 0.3, 0.5, "futex").on(o).op(PRIVATE_WAIT, 0).stack(stack).by(sweeper, "futex", o);
        }
        d.wait(t, 1.0 + i as f64 / 10.0, 8.9, "futex").on(o).op(PRIVATE_WAIT, 0).stack(stack).interrupted();
    }
    let (one, other) = (lock(&mut d, 0x800), lock(&mut d, 0x900));
    let timer = d.kernel("ksoftirqd/0");
    d.wait(signals, 0.3, 8.85, "futex").on(one).op(PRIVATE_WAIT, 0).stack(program).by_kernel(timer);
    d.wait(signals, 8.86, 8.9, "futex").on(other).op(PRIVATE_WAIT, 0).stack(program).interrupted();
    for t in [java, first, worker, signals, sweeper] {
        d.exit(t, 8.91);
    }
    let r = d.diagnose("^java App");
    assert!(r.root_causes[0].why.contains("all threads of the process wait"), "{r:#?}");
    let named = |n: &str| r.root_causes.iter().any(|c| c.thread.as_deref() == Some(n));
    assert!(named("worker") && !named("sweeper"), "{r:#?}");
}
