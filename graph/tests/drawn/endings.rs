//! Waits that end because the program is told to end: that answers nothing.

use crate::draw::{Drawing, ns, what};
use pg_event::{Direction, ObjectId, ObjectKind, Relation, ThreadId};
use pg_graph::{Options, Selection, VictimOptions, run_with_policy, select};

const TERM: u8 = 15;

/// A client gives up; the script that ends everything afterwards wakes the server's thread by its signal. The
/// thread owes an answer and waits for a signal within the server, not for requests; the main process idles with
/// the other end of a pipe that only tells of its death.
#[test]
fn a_signal_to_end_is_no_answer() {
    let mut d = Drawing::new(12.0);
    let script = d.process("bash", "bash run", None, 0.0);
    let client = d.process("client", "client insert", Some(script), 0.5);
    let main = d.process("server", "server main", Some(script), 0.1);
    let backend = d.process("server", "server: INSERT waiting", Some(main), 0.5);
    let timer = d.process("timeout", "timeout 8 client", Some(script), 0.4);
    let a = d.object(ObjectKind::UnixStream, 1, 2, "");
    let b = d.object(ObjectKind::UnixStream, 2, 1, "/run/s");
    let signals = d.object(ObjectKind::SignalFd, 3, 0, "");
    let death = d.object(ObjectKind::Pipe, 4, 4, "");
    let watched = d.set(&[signals, death]);
    let listens = d.object(ObjectKind::Epoll, 9, 0, "");
    let any = d.object(ObjectKind::Child, 0, 0, "");
    let latch = d.stack(&["WaitLatch (server)", "SyncRepWaitForLSN (server)", "commit (server)"]);
    d.message(client, a, Direction::Send, 0.9, 92);
    d.message(backend, b, Direction::Receive, 0.9, 92);
    d.wait(backend, 1.0, 9.1, "epoll_wait").on(watched).stack(latch).by(script, "kill", ObjectId::NONE);
    d.wait(client, 1.0, 9.0, "poll").on(a).open();
    d.wait(main, 0.6, 9.2, "epoll_wait").on(listens).by(script, "kill", ObjectId::NONE);
    d.wait(timer, 0.6, 8.99, "rt_sigsuspend").times_out();
    d.wait(script, 0.6, 9.05, "wait4").on(any).by(timer, "exit_group", ObjectId::NONE);
    d.hold(backend, client, a, Relation::Peer, 2.0);
    d.hold(main, backend, death, Relation::Writes, 2.0);
    // The kernel tells of a signal a moment after it has woken who reads it.
    d.signal(script, backend, TERM, 9.1001);
    d.signal(script, main, TERM, 9.2001);
    d.exit(timer, 9.04);
    d.exit(backend, 9.15);
    d.exit(main, 9.3);
    let r = d.diagnose("^client");
    let c = &r.root_causes[0];
    assert_eq!(c.cmdline.as_deref(), Some("server: INSERT waiting"), "{r:#?}");
    assert!(what(c).contains("SyncRepWaitForLSN"), "{c:#?}");
    // Who is missing only the server knows.
    assert!(r.coverage.notes.iter().any(|n| n.contains("pg_stat_replication")), "{:?}", r.coverage.notes);
    let named: Vec<_> = r.slice.iter().map(|n| n.process.as_str()).collect();
    assert!(!named.contains(&"bash") && !named.contains(&"timeout"), "{named:?}");
}

/// Threads that wake each other because the program was told to end do not explain what it waited for before.
#[test]
fn the_end_of_a_program_wakes_its_threads() {
    let mut d = Drawing::new(12.0);
    let timer = d.process("timeout", "timeout 9 app", None, 0.0);
    let main = d.process("app", "app", Some(timer), 0.1);
    let stopper = d.thread(main, "stopper", 0.1);
    let worker = d.thread(main, "worker", 0.1);
    let (done, work) = (d.object(ObjectKind::Futex, 0x10, 1, ""), d.object(ObjectKind::Futex, 0x20, 1, ""));
    let job = d.process("job", "job", Some(main), 0.5);
    let child = d.object(ObjectKind::Child, 1004, 0, "");
    let compute = d.stack(&["compute (job)"]);
    let wait = d.stack(&["pthread_cond_wait (libc.so.6)", "result (app)"]);
    d.wait(main, 1.0, 10.01, "futex").on(done).op(128 | 9, 0).stack(wait).by(stopper, "futex", done);
    d.wait(stopper, 1.0, 10.0, "futex").on(work).op(128 | 9, 0).stack(wait).by(main, "futex", work);
    d.runs(job, 0.5, 11.0, compute);
    d.wait(worker, 1.0, 10.05, "wait4").on(child).open();
    d.hold(job, worker, child, Relation::ChildOf, 2.0);
    d.signal(timer, main, TERM, 10.0);
    d.exit(stopper, 10.1);
    d.exit(worker, 10.1);
    d.exit(main, 10.2);
    let (g, c) = d.build();
    let main = Selection { tid: Some(1001), ..Selection::default() };
    let v = select(&g, &c, &main, &VictimOptions::default()).unwrap();
    let r = run_with_policy(&g, &c, v, Options::default());
    assert_eq!(r.slice[1].thread, "worker", "{r:#?}");
    assert_eq!(r.root_causes[0].process.as_deref(), Some("job"), "{r:#?}");
    assert!(r.slice.iter().all(|n| n.thread != "stopper"), "{r:#?}");
}

/// The server answered, and right after that it was told to end: its answer was one.
#[test]
fn who_is_told_to_end_after_it_answered_had_answered() {
    let mut d = Drawing::new(6.0);
    let script = d.process("bash", "bash run.sh", None, 0.0);
    let client = d.process("client", "client call", Some(script), 0.5);
    let bus = d.process("bus", "bus", Some(script), 0.1);
    let service = d.process("service", "service", Some(bus), 0.9);
    let a = d.object(ObjectKind::UnixStream, 1, 2, "");
    let b = d.object(ObjectKind::UnixStream, 2, 1, "/run/bus");
    let listens = d.object(ObjectKind::UnixStream, 3, 0, "/run/bus");
    let s = d.object(ObjectKind::UnixStream, 4, 3, "");
    d.message(client, a, Direction::Send, 0.98, 5);
    d.message(bus, b, Direction::Receive, 0.99, 5);
    d.wait(service, 1.0, 5.0, "clock_nanosleep").times_out();
    d.wait(bus, 1.0, 5.001, "accept4").on(listens).by(service, "connect", s);
    d.message(bus, b, Direction::Send, 5.0011, 5);
    d.wait(client, 0.99, 5.0012, "recvfrom").on(a).by(bus, "write", b);
    d.wait(bus, 5.0013, 5.0019, "clock_nanosleep").by(script, "kill", ObjectId::NONE);
    d.signal(script, bus, TERM, 5.0017);
    d.exit(bus, 5.002);
    let r = d.diagnose("^client ");
    assert_eq!(r.root_causes[0].process.as_deref(), Some("service"), "{:#?}", r.root_causes);
}

/// A script ended and left a program in the background, which sleeps and has the script's output open.
/// `over`: it ends before the recording does.
#[test]
fn a_pipe_that_somebody_asleep_has_open_is_told() {
    for over in [true, false] {
        let mut d = Drawing::new(if over { 7.0 } else { 5.0 });
        let caller = d.process("python3", "python3 deploy.py", None, 0.0);
        let script = d.process("sh", "sh -c 'sleep 5 &'", Some(caller), 0.1);
        let sleep = d.process("sleep", "sleep 5", Some(script), 0.2);
        let pipe = d.object(ObjectKind::Pipe, 55, 55, "");
        d.exit(script, 0.3);
        d.hold(sleep, caller, pipe, Relation::Writes, 1.0);
        if over {
            d.wait(sleep, 0.4, 5.4, "clock_nanosleep").times_out();
            d.wait(caller, 0.4, 5.41, "read").on(pipe).by(sleep, "exit_group", ObjectId::NONE);
            d.exit(sleep, 5.412);
            d.wait(caller, 5.42, 7.0, "pause").open();
        } else {
            d.wait(sleep, 0.4, 5.0, "clock_nanosleep").open();
            d.wait(caller, 0.4, 5.0, "read").on(pipe).open();
        }
        let r = d.diagnose("^python3 deploy");
        let c = &r.root_causes[0];
        assert_eq!(c.process.as_deref(), Some("sleep"), "{r:#?}");
        let told = if over {
            "it had the writing end of pipe:[55] open until it ended at 5.412 s"
        } else {
            "it has the writing end of pipe:[55] open"
        };
        assert!(c.why.contains(told), "{}", c.why);
    }
}

/// The kernel tells of an end before it closes the files. Some programs read from pairs of sockets in place of pipes.
#[test]
fn an_output_that_is_closed_after_its_last_writer_ended_is_told() {
    for pair in [false, true] {
        let mut d = Drawing::new(7.0);
        let make = d.process("make", "make deploy", None, 0.0);
        let caller = d.process("node", "node deploy.js", Some(make), 0.0);
        let script = d.process("sh", "sh -c 'sleep 5 &'", Some(caller), 0.1);
        let sleep = d.process("sleep", "sleep 5", Some(script), 0.2);
        let ended = d.object(ObjectKind::Child, 1001, 0, "");
        let kind = if pair { ObjectKind::UnixStream } else { ObjectKind::Pipe };
        let output = d.object(kind, 55, if pair { 56 } else { 55 }, "");
        let stop = d.object(ObjectKind::EventFd, 5, 0, "");
        let set = d.set(&[output, stop]);
        d.exit(script, 0.3);
        d.hold(sleep, caller, output, if pair { Relation::Peer } else { Relation::Writes }, 1.0);
        d.wait(sleep, 0.4, 5.4, "clock_nanosleep").times_out();
        d.exit(sleep, 5.409);
        let call = if pair { "epoll_pwait" } else { "read" };
        let on = if pair { set } else { output };
        d.wait(caller, 0.4, 5.41, call).on(on).by(sleep, "exit_group", ObjectId::NONE);
        d.exit(caller, 5.42);
        d.wait(make, 0.1, 5.421, "wait4").on(ended).by(caller, "exit_group", ObjectId::NONE);
        d.wait(make, 5.43, 7.0, "pause").open();
        let r = d.diagnose("^make deploy");
        let c = &r.root_causes[0];
        assert_eq!(c.process.as_deref(), Some("sleep"), "{r:#?}");
        let told = if pair { "the other end of unix:[55]" } else { "the writing end of pipe:[55]" };
        assert!(c.why.contains(&format!("it had {told} open until it ended at 5.409 s")), "{}", c.why);
    }
}

/// The same while it still goes on.
#[test]
fn a_pipe_that_a_daemon_still_keeps_open_is_told_so() {
    let mut d = Drawing::new(5.0);
    let shell = d.process("bash", "bash deploy.sh", None, 0.0);
    let timer = d.process("timeout", "timeout 13 httpd", None, 0.0);
    let server = d.process("httpd", "httpd", Some(timer), 0.0);
    let pipe = d.object(ObjectKind::Pipe, 55, 55, "");
    let port = d.object(ObjectKind::Tcp, 80, 0, "127.0.0.1:80");
    d.wait(shell, 0.0, 5.0, "read").on(pipe).before().open();
    d.wait(timer, 0.0, 5.0, "rt_sigsuspend").before().open();
    d.wait(server, 0.0, 5.0, "poll").on(port).before().open();
    d.hold(timer, shell, pipe, Relation::Writes, 1.0);
    d.hold(server, shell, pipe, Relation::Writes, 1.0);
    d.hold(server, timer, ObjectId::NONE, Relation::ChildOf, 1.0);
    let r = d.diagnose("^bash deploy");
    let c = &r.root_causes[0];
    assert_eq!(c.process.as_deref(), Some("httpd"), "{r:#?}");
    assert!(
        c.why.contains("has the writing end of pipe:[55] open and wrote nothing, and so has timeout"),
        "{}",
        c.why
    );
    assert!(c.why.contains("when all that have it close it"), "{}", c.why);
}

/// A pool waits for what its workers write; one of them was killed before the recording, and another one stands in for it.
/// `ages`: how long each had lived when the recording began, s.
#[test]
fn a_worker_that_began_later_than_the_others_stands_in_for_one() {
    for (ages, stands_in) in [
        (&[60.0, 59.99, 59.98, 55.0][..], true),
        (&[60.0, 59.99, 59.98, 59.97], false),
        // As many as before: they are started as they are needed.
        (&[60.0, 59.99, 55.0, 54.99], false),
        (&[60.0, 50.0, 40.0, 29.0], false),
        (&[60.0, 55.0], false),
    ] {
        let mut d = Drawing::new(5.0);
        let pool = d.process("pool", "pool", None, 0.0);
        let pipe = d.object(ObjectKind::Pipe, 55, 55, "");
        d.wait(pool, 0.0, 5.0, "read").on(pipe).before().open();
        for age in ages {
            let worker = d.process("pool", "pool worker", Some(pool), 0.0);
            let p = d.catalog.threads[worker.index()].process;
            d.catalog.processes[p.index()].age = ns(*age);
            d.wait(worker, 0.0, 5.0, "futex").before().open();
            d.hold(worker, pool, pipe, Relation::Writes, 1.0);
        }
        let r = d.diagnose("^pool$");
        let why = &r.root_causes[0].why;
        assert!(why.contains("has the writing end of pipe:[55] open and wrote nothing"), "{r:#?}");
        let said = why.contains("began 4.98 s after the other 3: it may stand in for one that ended");
        assert_eq!(said, stands_in, "{ages:?}: {why}");
        assert_ne!(why.contains("when all that have it close it"), stands_in, "{ages:?}: {why}");
    }
}

/// A shell keeps the output of a script; a daemon that the script left behind has the pipe open and never writes.
/// `watched`: who has it open too was seen to wait for the daemon.
#[test]
fn a_pipe_that_a_daemon_keeps_open_is_told_so() {
    for watched in [false, true] {
        let mut d = Drawing::new(14.0);
        let shell = d.process("bash", "bash deploy.sh", None, 0.0);
        let timer = d.process("timeout", "timeout 13 httpd", None, 0.5);
        let server = d.process("httpd", "httpd", Some(timer), 0.6);
        let pipe = d.object(ObjectKind::Pipe, 55, 55, "");
        let port = d.object(ObjectKind::Tcp, 80, 0, "127.0.0.1:80");
        d.wait(timer, 0.7, 13.0, "rt_sigsuspend").times_out();
        let mut t = 0.7;
        while t < 12.4 {
            d.wait(server, t, t + 0.5, "poll").on(port).times_out();
            t += 0.5001;
        }
        d.wait(server, t, 14.0, "poll").on(port).open();
        d.hold(timer, shell, pipe, Relation::Writes, 2.0);
        d.hold(server, shell, pipe, Relation::Writes, 2.0);
        if watched {
            d.hold(server, timer, ObjectId::NONE, Relation::ChildOf, 2.0);
        }
        d.wait(shell, 1.0, 13.01, "read").on(pipe).by(timer, "exit_group", ObjectId::NONE);
        d.exit(timer, 13.011);
        d.wait(shell, 13.02, 14.0, "read").open();
        let r = d.diagnose("^bash deploy");
        let c = &r.root_causes[0];
        let (who, other) = if watched { ("httpd", "timeout") } else { ("timeout", "httpd") };
        assert_eq!(c.process.as_deref(), Some(who), "{r:#?}");
        assert!(c.why.contains("had the writing end of pipe:[55] open and wrote nothing"), "{}", c.why);
        assert!(c.why.contains(&format!("so had {other}")) && c.why.contains("ended at 13.0"), "{}", c.why);
    }
}

/// Who waits for room in a queue is let go on by a program that removes it in the end. Who read from it last was there all the
/// time, or came later, too.
#[test]
fn who_removes_a_full_queue_is_not_whom_the_writer_waited_for() {
    for late in [false, true] {
        let mut d = Drawing::new(9.0);
        let reader = d.process("take", "take", None, if late { 7.5 } else { 0.0 });
        let writer = d.process("put", "put", None, 0.1);
        let remover = d.process("ipcrm", "ipcrm -q 7", None, 8.0);
        let queue = d.object(ObjectKind::SysvIpc, 7, 0, "");
        let nap = d.stack(&["sleep (libc.so.6)", "work (take)"]);
        d.wait(reader, if late { 7.6 } else { 0.2 }, 8.9, "clock_nanosleep").stack(nap).open();
        d.hold(reader, writer, queue, Relation::Reads, if late { 7.7 } else { 2.0 });
        d.wait(writer, 0.5, 8.1, "msgsnd").on(queue).by(remover, "msgctl", queue);
        let r = d.diagnose("^put$");
        let first = r.root_causes[0].process.as_deref();
        assert_eq!(first == Some("take"), !late, "{r:#?}");
    }
}

/// A handler of a signal writes to a pipe that only its own process reads: it waits for itself.
#[test]
fn who_alone_could_read_the_full_pipe_waits_for_itself() {
    for (threads, others) in [(1, 0), (2, 0), (1, 1)] {
        let mut d = Drawing::new(9.0);
        let app = d.process("app", "app", None, 0.0);
        for _ in 1..threads {
            let t = d.thread(app, "loop", 0.0);
            d.wait(t, 0.1, 9.0, "pause").open();
        }
        let pipe = d.object(ObjectKind::Pipe, 7, 7, "");
        let stack = d.stack(&["write (libc.so.6)", "notify (app)", "__restore_rt (libc.so.6)", "main (app)"]);
        d.wait(app, 0.5, 9.0, "write").on(pipe).stack(stack).open();
        d.hold(app, app, pipe, Relation::Reads, 2.0);
        for _ in 0..others {
            let t = d.process("reader", "reader", None, 0.0);
            d.hold(t, app, pipe, Relation::Reads, 2.0);
            d.wait(t, 0.1, 9.0, "clock_nanosleep").open();
        }
        let r = d.diagnose("^app$");
        let why = &r.root_causes[0].why;
        let itself = why.contains("waited for itself (deadlock)") && why.contains("for room in a pipe");
        assert_eq!(itself, threads == 1 && others == 0, "{why}");
    }
}

/// Nobody has the other end of a pipe, and yet its end does not come: that is told of pipes, since all who have one are found.
#[test]
fn an_end_that_nobody_has_is_on_its_way() {
    for (held, kind) in [(false, ObjectKind::Pipe), (true, ObjectKind::Pipe), (false, ObjectKind::UnixStream)]
    {
        let mut d = Drawing::new(9.0);
        let reader = d.process("reader", "reader", None, 0.0);
        let o = d.object(kind, 7, 7, "");
        d.wait(reader, 0.5, 9.0, "read").on(o).open();
        if held {
            d.hold(reader, reader, o, Relation::Writes, 2.0);
        }
        let r = d.diagnose("^reader$");
        let why = &r.root_causes[0].why;
        assert_eq!(why.contains("SCM_RIGHTS"), !held && kind == ObjectKind::Pipe, "{why}");
    }
}

/// A connection that is closed with SO_LINGER waits until the other end has taken everything.
#[test]
fn a_close_that_lingers_is_told_so() {
    for kernel in ["tcp_close", "__fput_sync"] {
        let mut d = Drawing::new(9.0);
        let app = d.process("app", "app", None, 0.0);
        let stack = d.stack(&[
            "wait_woken ([kernel])",
            &format!("{kernel} ([kernel])"),
            "__x64_sys_close ([kernel])",
        ]);
        d.wait(app, 0.5, 9.0, "close").in_kernel(stack).open();
        let r = d.diagnose("^app$");
        let why = &r.root_causes[0].why;
        assert_eq!(why.contains("SO_LINGER"), kernel == "tcp_close", "{why}");
    }
}

/// The first thread of a child has ended, and the child goes on by another one: that is whom its parent waits for.
#[test]
fn a_process_goes_on_without_its_first_thread() {
    let mut d = Drawing::new(9.0);
    let parent = d.process("parent", "parent", None, 0.0);
    let child = d.process("child", "child", Some(parent), 0.5);
    let idle = d.thread(child, "pool", 0.6);
    let rest = d.thread(child, "rest", 0.6);
    let any = d.object(ObjectKind::Child, 0, 0, "");
    let work = d.object(ObjectKind::Futex, 0x20, 1, "");
    let (waits, flush) = (d.stack(&["pthread_cond_wait (libc.so.6)"]), d.stack(&["flush_cache (child)"]));
    d.wait(parent, 0.6, 9.0, "wait4").on(any).open();
    d.wait(idle, 0.7, 9.0, "futex").on(work).stack(waits).open();
    d.wait(rest, 0.7, 9.0, "clock_nanosleep").stack(flush).open();
    d.hold(child, parent, any, Relation::ChildOf, 1.2);
    d.exit(child, 1.5);
    let r = d.diagnose("^parent$");
    assert_eq!(r.slice[1].thread, "rest", "{r:#?}");
    assert!(what(&r.root_causes[0]).contains("flush_cache"), "{:?}", r.root_causes[0]);
}

/// A job that the hook left behind keeps the hook's output open, and waits for its own child: what it has to do with the reader
/// is said, too.
#[test]
fn who_keeps_a_pipe_open_and_waits_for_its_child() {
    let mut d = Drawing::new(9.0);
    let push = d.process("push", "push", None, 0.0);
    let hook = d.process("hook", "hook", Some(push), 0.2);
    let job = d.process("job", "job", Some(hook), 0.3);
    let nap = d.process("sleep", "sleep 3600", Some(job), 0.4);
    let pipe = d.object(ObjectKind::Pipe, 7, 7, "");
    d.exit(hook, 0.5);
    d.wait(push, 0.5, 9.0, "read").on(pipe).open();
    d.wait(job, 0.5, 9.0, "wait4").open();
    d.wait(nap, 0.5, 9.0, "clock_nanosleep").open();
    d.hold(job, push, pipe, Relation::Writes, 0.7);
    let r = d.diagnose("^push$");
    let why = &r.root_causes[0].why;
    let told = "this held up job (pid 1002), which has the writing end of pipe:[7] open, and in the end push";
    assert!(why.contains(told), "{why}");
}

/// How a sleep ended, and when it began.
#[test]
fn a_sleep_that_a_signal_ended_was_not_over() {
    for (before, killed, told) in [
        (false, false, "as long as it had asked for"),
        (true, false, "begun before the recording"),
        (false, true, "until a signal ended that"),
        (true, true, "until a signal ended that"),
    ] {
        let mut d = Drawing::new(3.0);
        let app = d.process("sleep", "sleep 30", None, 0.0);
        let flush = d.kernel("kworker/u8:7");
        d.wait(flush, 0.0, 2.49, "read").in_no_call().timer();
        d.wait(flush, 2.51, 3.0, "read").in_no_call().timer();
        let w = d.wait(app, 0.0, 2.5, "clock_nanosleep");
        let w = if before { w.before() } else { w };
        if killed {
            w.by_kernel(flush);
        } else {
            w.times_out();
        }
        d.exit(app, 2.6);
        let why = &d.diagnose("sleep").root_causes[0].why;
        assert!(why.contains(told), "{why}");
    }
}

/// The main thread waits for two that wait for each other's locks, until it gives up and ends the process: that ends their
/// waits, and lets nobody go on.
fn gives_up_on_a_deadlock() -> (Drawing, [ThreadId; 2]) {
    let mut d = Drawing::new(6.0);
    let main = d.process("app", "app", None, 0.0);
    let both = [d.thread(main, "one", 0.1), d.thread(main, "other", 0.1)];
    let join = d.stack(&[
        "do_futex_wait (libc.so.6)",
        "PyThread_acquire_lock_timed (python3.11)",
        "Thread._wait_for_tstate_lock (python3.11/threading.py:1100)",
        "<module> (app.py:9)",
    ]);
    let word = |d: &mut Drawing, n: u64| d.object(ObjectKind::Futex, n, 1, "");
    let (own, a, b) = (word(&mut d, 0x10), word(&mut d, 0x50), word(&mut d, 0x90));
    // Each had told that it was there.
    let started = d.stack(&[
        "do_futex_wait (libc.so.6)",
        "PyThread_acquire_lock_timed (python3.11)",
        "Thread.start (python3.11/threading.py:940)",
        "<module> (app.py:8)",
    ]);
    d.wait(main, 0.11, 0.12, "futex").on(own).stack(started).op(128 | 9, 0).by(both[0], "futex", own);
    d.wait(main, 0.13, 0.224, "futex").on(own).stack(started).op(128 | 9, 0).by(both[1], "futex", own);
    d.wait(main, 0.3, 5.0, "futex").on(own).stack(join).op(128 | 9, 0).times_out();
    for (t, lock) in both.into_iter().zip([a, b]) {
        let stack = d.stack(&[
            "do_futex_wait (libc.so.6)",
            "PyThread_acquire_lock_timed (python3.11)",
            "work (app.py:5)",
        ]);
        d.wait(t, 0.5, 5.001, "futex").on(lock).stack(stack).op(128 | 9, 0).by(
            main,
            "exit_group",
            ObjectId::NONE,
        );
    }
    (d, both)
}

#[test]
fn the_end_of_the_process_releases_no_lock() {
    let (d, both) = gives_up_on_a_deadlock();
    let (g, _) = d.build();
    for t in both {
        let wait = g.vertex(g.vertex_at(t, ns(3.0)).unwrap());
        assert!(wait.interrupted, "{wait:?}");
    }
    let r = gives_up_on_a_deadlock().0.diagnose("^app");
    assert_eq!(r.circle.len(), 2, "{r:#?}");
    assert!(r.root_causes[0].tid.is_some_and(|t| t != 1000), "{r:#?}");
}
