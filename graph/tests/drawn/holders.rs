//! Waits without a waker: who could have ended them, from what is known of resources and processes.

use crate::draw::{Drawing, slice};
use pg_event::{Direction, ObjectId, ObjectKind, OffState, Relation, TTY_PAUSED};
use pg_graph::{BlockType, Options, VictimOptions, run_with_policy, victims};

/// A writer waits for room; the reader was stopped by a signal and continued much later.
#[test]
fn a_stopped_reader() {
    for continued in [true, false] {
        let mut d = Drawing::new(9.0);
        let shell = d.process("bash", "bash run", None, 0.0);
        let cat = d.process("cat", "cat f", Some(shell), 0.0);
        let head = d.process("head", "head -c 300000 /dev/zero", Some(shell), 0.5);
        let fifo = d.object(ObjectKind::Fifo, 5, 5, "/tmp/f");
        d.signal(shell, cat, 19, 0.6);
        if continued {
            d.wait(cat, 0.6, 6.0, "read").state(OffState::Stopped).by(shell, "kill", ObjectId::NONE);
            d.wait(head, 0.7, 6.1, "write").on(fifo).by(cat, "read", fifo);
            d.wait(shell, 0.61, 5.9, "clock_nanosleep").times_out();
            d.wait(cat, 6.2, 9.0, "pause").open();
            d.wait(head, 6.2, 9.0, "pause").open();
        } else {
            d.wait(cat, 0.6, 9.0, "read").state(OffState::Stopped).open();
            d.wait(head, 0.7, 9.0, "write").on(fifo).open();
            d.wait(shell, 0.61, 9.0, "clock_nanosleep").open();
            d.hold(cat, head, fifo, Relation::Reads, 1.5);
        }
        let r = d.diagnose("^head");
        assert_eq!(r.slice[1].state, "stopped", "{r:#?}");
        let c = &r.root_causes[0];
        assert_eq!(c.process.as_deref(), Some("cat"), "{r:#?}");
        assert!(c.why.contains("SIGSTOP sent by bash (pid 1000) at 0.600 s"), "{}", c.why);
        assert_eq!(c.why.contains("nobody continued"), !continued, "{}", c.why);
    }
}

/// A program that limits what another one may use of a CPU stops it again and again.
#[test]
fn one_that_is_stopped_again_and_again() {
    let mut d = Drawing::new(9.0);
    let limiter = d.process("cpulimit", "cpulimit -l 10", None, 0.0);
    let gzip = d.process("gzip", "gzip -c", None, 0.0);
    let head = d.process("head", "head -c 9", None, 0.5);
    let pipe = d.object(ObjectKind::Pipe, 5, 5, "");
    for i in 1..9 {
        let at = f64::from(i);
        d.signal(limiter, gzip, 19, at);
        d.wait(gzip, at, at + 0.9, "write").state(OffState::Stopped).by(limiter, "kill", ObjectId::NONE);
        d.wait(limiter, at + 0.01, at + 0.9, "clock_nanosleep").times_out();
    }
    d.wait(head, 0.7, 8.95, "read").on(pipe).by(gzip, "write", pipe);
    let r = d.diagnose("^head");
    let c = &r.root_causes[0];
    assert!(c.why.contains("SIGSTOP sent 8 times by cpulimit (pid 1000), from 1.000 s to 8.000 s"), "{r:#?}");
}

/// The child that was to write into the pipe failed; only the parent itself still has it open.
#[test]
fn a_child_that_failed() {
    let mut d = Drawing::new(9.0);
    let parent = d.process("py", "py q.py", None, 0.0);
    let child = d.process("py", "py q.py", Some(parent), 0.4);
    let good = d.process("sh", "sh -c true", Some(parent), 0.4);
    let pipe = d.object(ObjectKind::Pipe, 5, 5, "");
    d.spawn(parent, child, 0.4);
    d.spawn(parent, good, 0.4);
    d.wait(child, 0.45, 1.0, "clock_nanosleep").times_out();
    d.exit(child, 1.001);
    d.exit(good, 2.0);
    let end = |d: &mut Drawing, i: usize, at: u64, status: u32| {
        (d.catalog.processes[i].end, d.catalog.processes[i].exit_status) = (Some(at), Some(status));
    };
    end(&mut d, 1, 1_001_000_000, 9 << 8);
    end(&mut d, 2, 2_000_000_000, 0);
    d.wait(parent, 0.5, 9.0, "read").on(pipe).open();
    let r = d.diagnose("^py q.py$");
    assert_eq!(r.slice[1].state, "exited", "{r:#?}");
    let c = &r.root_causes[0];
    assert_eq!(c.tid, Some(1001));
    assert!(c.why.contains("ended at 1.001 s") && c.why.contains("pipe:[5]"), "{}", c.why);
}

/// A connection that nobody accepted, by the process that waits for an answer over it.
#[test]
fn a_connection_that_was_not_accepted() {
    let mut d = Drawing::new(9.0);
    let main = d.process("app", "app", None, 0.0);
    let worker = d.thread(main, "worker", 0.1);
    let (c, l) = (d.object(ObjectKind::Tcp, 4000, 80, ""), d.object(ObjectKind::Tcp, 80, 0, ""));
    let epoll = d.object(ObjectKind::Epoll, 9, 0, "");
    let _ = l;
    d.message(worker, c, Direction::Send, 0.9, 1);
    d.wait(worker, 1.0, 9.0, "recvfrom").on(c).open();
    d.hold(main, worker, c, Relation::Listens, 2.0);
    d.wait(main, 0.5, 9.0, "epoll_wait").on(epoll).open();
    let r = d.diagnose("^worker$");
    assert_eq!(r.victim.block_type, BlockType::LongWait);
    assert_eq!(r.slice.get(1).map(|n| n.tid), Some(1000), "{r:#?}");
    let said = r.root_causes.iter().any(|c| c.why.contains("did not accept the connection"));
    assert!(said, "{r:#?}");
}

/// Who listens waits for connections all that time, and would see one: what the client sends does not get there. Once the
/// client has written something it is connected, and it is the server that does not accept.
#[test]
fn a_connection_whose_packets_are_lost() {
    for wrote in [false, true] {
        let mut d = Drawing::new(9.0);
        let server = d.process("server", "server", None, 0.0);
        let client = d.process("client", "client", None, 0.9);
        let c = d.object(ObjectKind::Tcp, 0x7f00_0001_c350, 0x7f00_0001_0050, "");
        let l = d.object(ObjectKind::Tcp, 0x7f00_0001_0050, 0, "");
        let set = d.set(&[c]);
        if wrote {
            d.message(client, c, Direction::Send, 0.95, 1);
        }
        d.wait(client, 1.0, 9.0, "poll").on(set).open();
        d.hold(server, client, c, Relation::Listens, 2.0);
        d.wait(server, 0.5, 9.0, "accept4").on(l).open();
        let r = d.diagnose("^client$");
        let why = &r.root_causes[0].why;
        assert_eq!(why.contains("never came about: packets between the two are lost"), !wrote, "{why}");
    }
}

/// A connection that is not even made: on this machine the queue of who listens is full; of a host far away that is
/// not known. Nothing was written yet that nobody reads.
#[test]
fn a_connection_that_is_not_made() {
    for (kind, here) in [(ObjectKind::Tcp, true), (ObjectKind::Tcp, false), (ObjectKind::UnixStream, true)] {
        let mut d = Drawing::new(9.0);
        let server = d.process("server", "server", None, 0.0);
        let client = d.process("client", "client", None, 0.9);
        let c = d.object(kind, 4000, 80, "");
        let epoll = d.object(ObjectKind::Epoll, 9, 0, "");
        d.wait(client, 1.0, 9.0, "connect").on(c).open();
        if here {
            d.hold(server, client, c, Relation::Listens, 2.0);
        }
        d.wait(server, 0.5, 9.0, "epoll_wait").on(epoll).open();
        let r = d.diagnose("^client$");
        let why: Vec<_> = r.root_causes.iter().map(|c| c.why.as_str()).collect();
        let says = |what: &str| why.iter().any(|w| w.contains(what));
        assert_eq!(says("that wait to be accepted there is full"), here, "{why:?}");
        assert_eq!(says("was not answered"), !here, "{why:?}");
        assert!(!says("nobody reads"), "{why:?}");
    }
}

/// A bus was asked for a service, made a helper and that the service, which never answers: the bus idles, and so
/// does its helper; another program of the bus was there long before.
#[test]
fn a_service_that_was_started_for_a_request() {
    let mut d = Drawing::new(12.0);
    let client = d.process("send", "send ping", None, 0.9);
    let bus = d.process("bus", "bus", None, 0.0);
    let older = d.process("other", "other", Some(bus), 0.1);
    let helper = d.process("bus", "bus", Some(bus), 1.01);
    let service = d.process("service", "service --dead", Some(helper), 1.02);
    let a = d.object(ObjectKind::UnixStream, 1, 2, "");
    let b = d.object(ObjectKind::UnixStream, 2, 1, "/run/bus");
    let (epoll, child) = (d.object(ObjectKind::Epoll, 9, 0, ""), d.object(ObjectKind::Child, 0, 0, ""));
    d.spawn(bus, helper, 1.01);
    d.spawn(helper, service, 1.02);
    d.message(client, a, Direction::Send, 0.99, 80);
    d.message(bus, b, Direction::Receive, 1.0, 80);
    d.wait(client, 1.0, 10.0, "poll").on(a).times_out();
    d.wait(bus, 1.03, 11.0, "epoll_wait").on(epoll).open();
    d.wait(helper, 1.03, 11.0, "wait4").on(child).open();
    d.wait(service, 1.05, 11.0, "clock_nanosleep").open();
    d.wait(older, 0.2, 11.0, "clock_nanosleep").open();
    d.hold(bus, client, a, Relation::Peer, 2.0);
    let r = d.diagnose("^send");
    let steps: Vec<_> = r.slice.iter().map(|n| n.cmdline.as_str()).collect();
    assert_eq!(steps, ["send ping", "bus", "service --dead"], "{r:#?}");
    assert_eq!(r.root_causes[0].process.as_deref(), Some("service"), "{r:#?}");
    assert!(r.root_causes[0].why.contains("had not finished then"), "{}", r.root_causes[0].why);
    assert!(r.slice[2].why_weak.as_deref().is_some_and(|w| w.contains("started it")), "{r:#?}");
    assert_eq!(r.root_causes[1].process.as_deref(), Some("bus"), "{r:#?}");
}

/// cron starts a job under flock(1), which is killed: the job has the lock by the descriptor that it inherited.
#[test]
fn a_lock_that_is_held_by_an_inherited_descriptor() {
    for ends in [false, true] {
        let mut d = Drawing::new(20.0);
        let job = d.process("sh", "sh /etc/cron.d/backup", None, 0.5);
        let next = d.process("flock", "flock /run/backup.lock backup", None, 2.0);
        let lock = d.object(ObjectKind::FileLock, 7, 8, "/run/backup.lock");
        if ends {
            d.wait(job, 0.6, 15.0, "clock_nanosleep").times_out();
            d.wait(next, 2.1, 15.1, "flock").on(lock).by(job, "exit_group", ObjectId::NONE);
            d.exit(job, 15.1);
        } else {
            d.wait(job, 0.6, 20.0, "pause").open();
            d.wait(next, 2.1, 20.0, "flock").on(lock).open();
        }
        d.hold(job, next, lock, Relation::Shares, 3.1);
        let r = d.diagnose("^flock");
        assert_eq!(slice(&r), ["sh /etc/cron.d/backup"]);
        let why = &r.root_causes[0].why;
        let how = if ends {
            "at the file lock /run/backup.lock, which it had by an inherited or shared descriptor"
        } else {
            "has /run/backup.lock by an inherited or shared descriptor and did not release it"
        };
        assert!(why.contains(how), "{why}");
    }
}

/// Who took a semaphore ended before the recording began: all that is known is the number.
#[test]
fn who_ended_before_the_recording_is_told_so() {
    let mut d = Drawing::new(9.0);
    let worker = d.process("worker", "worker --shared", None, 0.0);
    let gone = d.process("", "", None, 0.0);
    d.catalog.threads[gone.index()].end = Some(0);
    d.catalog.processes[1].end = Some(0);
    let set = d.object(ObjectKind::SysvIpc, 7, 1 << 63 | 5 << 2 | 1, "");
    d.wait(worker, 0.5, 9.0, "semtimedop").on(set).open();
    d.hold(gone, worker, set, Relation::Owns, 1.5);
    let r = d.diagnose("^worker");
    assert_eq!(r.slice[1].state, "exited", "{r:#?}");
    let why = &r.root_causes[0].why;
    assert!(
        why.starts_with("a process (pid 1001) ended before the recording began with semaphores:[7]"),
        "{why}"
    );
    assert!(why.contains("never gave it back"), "{why}");
    let c = &r.root_causes[0];
    assert_eq!((c.process.as_deref(), c.object.as_deref()), (None, Some("semaphores:[7]")), "{c:#?}");
}

/// A job was killed with a semaphore; in the end a script gives it back for it. One that was alive when it was found to have
/// it may have given it to that script.
#[test]
fn who_gives_back_for_one_that_had_ended_never_had_it() {
    for killed in [true, false] {
        let mut d = Drawing::new(12.0);
        let script = d.process("bash", "bash repair", None, 0.0);
        let job = d.process("job", "job --long", Some(script), 0.0);
        let next = d.process("job", "job --short", Some(script), 0.3);
        let set = d.object(ObjectKind::SysvIpc, 7, 1 << 63 | 5 << 2 | 1, "");
        d.wait(job, 0.1, if killed { 0.2 } else { 3.0 }, "clock_nanosleep").times_out();
        d.exit(job, if killed { 0.21 } else { 3.1 });
        d.hold(job, next, set, Relation::Owns, 1.5);
        d.wait(script, 0.4, 10.0, "clock_nanosleep").times_out();
        d.wait(next, 0.5, 10.1, "semtimedop").on(set).by(script, "semtimedop", set);
        let r = d.diagnose("^job --short");
        let c = &r.root_causes[0];
        if killed {
            assert_eq!(c.cmdline.as_deref(), Some("job --long"), "{r:#?}");
            assert!(c.why.contains("never gave it back"), "{}", c.why);
        } else {
            assert_eq!(c.process.as_deref(), Some("bash"), "{r:#?}");
        }
    }
}

/// Ctrl-S in a terminal: the program waits to write, the terminal for what it writes. Without that it is the terminal
/// that is slow.
#[test]
fn a_terminal_whose_output_is_paused() {
    for paused in [true, false] {
        let mut d = Drawing::new(9.0);
        let make = d.process("make", "make all", None, 0.0);
        let xterm = d.process("xterm", "xterm", None, 0.0);
        let slave = d.object(ObjectKind::Tty, 0x8803, 1 << 63 | 0x8803, "/dev/pts/3");
        let master = d.object(ObjectKind::Tty, 1 << 63 | 0x8803, 0x8803, "/dev/ptmx");
        let display = d.object(ObjectKind::UnixStream, 5, 6, "");
        let both = [display, master];
        let asks = d.set(&both[..if paused { 2 } else { 1 }]);
        d.wait(make, 0.5, 9.0, "write").on(slave).open();
        d.wait(xterm, 0.4, 9.0, "poll").on(asks).open();
        d.hold(xterm, make, slave, Relation::Peer, 1.5);
        let r = d.diagnose("^make");
        let c = &r.root_causes[0];
        assert_eq!(c.why.contains("Ctrl-Q"), paused, "{}", c.why);
        assert_eq!(c.process.as_deref() == Some("make"), paused, "{}", c.why);
    }
}

/// The kernel said that output is paused: that is told, whatever who shows it does, and whoever lets it go on.
#[test]
fn a_terminal_whose_output_was_seen_to_be_paused() {
    for ends in [false, true] {
        let mut d = Drawing::new(9.0);
        let flock = d.process("flock", "flock job.lock", None, 0.0);
        let job = d.process("job", "job", None, 0.0);
        let expect = d.process("expect", "expect", None, 0.0);
        let slave = d.object(ObjectKind::Tty, 0x8803, 1 << 63 | 0x8803, "/dev/pts/3");
        let lock = d.object(ObjectKind::FileLock, 5, 6, "/job.lock");
        let end = if ends { 8.0 } else { 9.0 };
        let w = d.wait(job, 0.5, end, "write").on(slave).op(TTY_PAUSED, 8);
        if ends {
            w.by(expect, "write", slave);
        } else {
            w.open();
        }
        d.wait(expect, 0.4, 7.9, "clock_nanosleep").timer();
        d.wait(flock, 1.0, 9.0, "flock").on(lock).open();
        d.hold(expect, job, slave, Relation::Peer, 1.5);
        d.hold(job, flock, lock, Relation::Owns, 1.5);
        let r = d.diagnose("^flock");
        let c = &r.root_causes[0];
        assert_eq!(c.process.as_deref(), Some("job"), "{}", c.why);
        let words = if ends { "let it go on at 8.000 s" } else { "which expect (pid" };
        assert!(c.why.contains(words), "{}", c.why);
    }
}

/// timeout(1) waits for its child by signals; that its own alarm came first does not make it the cause.
#[test]
fn a_wrapper_waits_for_its_child() {
    let mut d = Drawing::new(5.31);
    let shell = d.process("sh", "sh build.sh", None, 0.0);
    let timeout = d.process("timeout", "timeout 5 fetch", Some(shell), 0.1);
    let fetch = d.process("fetch", "fetch", Some(timeout), 0.2);
    d.wait(fetch, 0.3, 5.31, "clock_nanosleep").open();
    d.wait(timeout, 0.25, 5.2, "rt_sigsuspend").timer();
    d.exit(timeout, 5.3);
    d.wait(shell, 0.15, 5.3, "wait4").by(timeout, "exit_group", ObjectId::NONE);
    d.hold(fetch, timeout, ObjectId::NONE, Relation::ChildOf, 1.5);
    let r = d.diagnose("^sh");
    assert_eq!(r.root_causes[0].process.as_deref(), Some("fetch"), "{r:#?}");
}

/// A pool whose worker was killed: nobody brings its result, and that it was killed is told.
#[test]
fn a_worker_that_was_killed_is_told_of() {
    for (killed, own_memory) in [(true, false), (false, false), (true, true), (false, true)] {
        let mut d = Drawing::new(9.0);
        let pool = d.process("py", "py pool.py", None, 0.0);
        let results = d.thread(pool, "results", 0.1);
        let worker = d.process("py", "py pool.py", Some(pool), 0.2);
        let other = d.process("py", "py pool.py", Some(pool), 0.2);
        let oom = d.process("killer", "killer", None, 0.0);
        // Whose memory the word lies in: it is known, or not, whether another process could wake it.
        let memory = if own_memory { 1000 } else { 77 };
        let (word, pipe) =
            (d.object(ObjectKind::Futex, 64, memory, ""), d.object(ObjectKind::Pipe, 5, 5, ""));
        d.wait(results, 0.3, 9.0, "read").on(pipe).open();
        d.wait(pool, 0.4, 9.0, "futex").on(word).open();
        d.wait(other, 0.5, 9.0, "pause").open();
        if killed {
            d.signal(oom, worker, 9, 0.8);
            (d.catalog.processes[1].end, d.catalog.processes[1].exit_status) = (Some(800_100_000), Some(9));
        }
        d.exit(worker, 0.8001);
        let r = d.diagnose("^py pool.py$");
        let why = &r.root_causes[0].why;
        let told = why.contains("(pid 1002, `py pool.py`) was killed by signal 9 sent by killer");
        assert_eq!(told, killed, "{why}");
    }
}

/// A program ends a helper when it has no more use for that, and waits for an answer: that is no crash. `by_parent`: who sent the
/// signal.
#[test]
fn a_helper_that_its_parent_ended_is_no_crash() {
    for by_parent in [true, false] {
        let mut d = Drawing::new(9.0);
        let app = d.process("app", "app", None, 0.0);
        let helper = d.process("helper", "helper", Some(app), 0.1);
        let other = d.process("killer", "killer", None, 0.0);
        let server = d.process("srv", "srv 80", None, 0.0);
        let (own, far) = (d.object(ObjectKind::Tcp, 1, 2, ""), d.object(ObjectKind::Tcp, 2, 1, ""));
        let epoll = d.object(ObjectKind::Epoll, 9, 0, "");
        d.signal(if by_parent { app } else { other }, helper, 15, 0.8);
        let of = d.catalog.threads[helper.index()].process;
        let row = &mut d.catalog.processes[of.index()];
        (row.end, row.exit_status) = (Some(800_100_000), Some(15));
        d.exit(helper, 0.8001);
        d.message(app, own, Direction::Send, 0.9, 7);
        d.message(server, far, Direction::Receive, 0.95, 7);
        d.wait(server, 0.96, 9.0, "epoll_wait").on(epoll).open();
        d.wait(app, 1.0, 9.0, "read").on(own).open();
        d.hold(server, app, own, Relation::Peer, 2.0);
        let r = d.diagnose("^app$");
        let told = r.root_causes.iter().any(|c| c.why.contains("was killed by signal 15 sent by killer"));
        assert_eq!(told, !by_parent, "{r:#?}");
        assert!(r.root_causes.iter().all(|c| !c.why.contains("sent by app")), "{r:#?}");
    }
}

/// A worker answers a client late: it tries for parts of a file, gets some each time, gives them back and sleeps. Who has the
/// part that it does not get was read from the kernel's list of locks.
#[test]
fn a_server_that_tries_for_a_lock_in_vain_is_kept_out() {
    let mut d = Drawing::new(20.0);
    let (client, worker) = (d.process("ask", "ask page", None, 0.0), d.process("fpm", "fpm", None, 0.0));
    let holder = d.process("import", "import all", None, 0.0);
    let (own, far) = (d.object(ObjectKind::Tcp, 1, 2, ""), d.object(ObjectKind::Tcp, 2, 1, ""));
    let file = d.object(ObjectKind::FileLock, 7, 0, "/data/a.db");
    d.message(client, own, Direction::Send, 1.0, 50);
    d.message(worker, far, Direction::Receive, 1.001, 50);
    let busy = d.stack(&["usleep (libc.so.6)", "busy_handler (libdb.so)"]);
    d.naps(worker, 1.002, 14.0, 0.1, busy);
    for i in 0..4 {
        let at = 4.0 + f64::from(i);
        d.call(worker, at, "fcntl", file, 0);
        d.call(worker, at + 0.000_01, "fcntl", file, -11);
    }
    d.hold(holder, worker, file, Relation::Owns, 4.0);
    let sum = d.stack(&["sha256 (libcrypto.so)", "main (import)"]);
    d.runs(holder, 0.5, 13.99, sum);
    d.message(worker, far, Direction::Send, 14.01, 50);
    d.wait(client, 1.001, 14.02, "poll").on(own).by(worker, "write", far);
    let r = d.diagnose("^ask");
    assert_eq!(slice(&r), ["fpm", "import all"]);
    assert_eq!(r.root_causes[0].process.as_deref(), Some("import"));
}

/// Two of three came to a barrier; the third ended, and who made them waits for the first to end.
#[test]
fn a_barrier_to_which_nobody_is_left_to_come() {
    let mut d = Drawing::new(8.0);
    let main = d.process("solver", "solver", None, 0.0);
    let barrier = d.object(ObjectKind::Futex, 0x44, 1, "");
    let (at, joins) = (
        d.stack(&["___pthread_barrier_wait (libc.so.6)", "stage (solver)"]),
        d.stack(&["__pthread_clockjoin_ex (libc.so.6)", "main (solver)"]),
    );
    let threads = [0, 1, 2].map(|_| d.thread(main, "solver", 0.1));
    for t in threads {
        d.spawn(main, t, 0.1);
    }
    let ends = d.object(ObjectKind::Futex, 0x990, 1, "");
    d.wait(main, 0.2, 8.0, "futex").on(ends).op(265, 1001).stack(joins).open();
    d.hold(threads[0], main, ends, Relation::Owns, 0.7);
    for (n, t) in threads[..2].iter().enumerate() {
        d.wait(*t, 0.3 + n as f64 * 0.2, 8.0, "futex").on(barrier).op(128, 0).stack(at).open();
    }
    d.exit(threads[2], 0.15);
    let r = d.diagnose("^solver$");
    let why = &r.root_causes[0].why;
    assert!(why.contains("left that could come to the barrier; solver/1003 ended at"), "{why}");
}

/// Two wait at a barrier side by side, as idle workers of a pool do; who has not come is known.
#[test]
fn who_has_not_come_to_a_barrier() {
    for (known, stacked) in [(true, true), (true, false), (false, true)] {
        let mut d = Drawing::new(5.0);
        let main = d.process("solve", "solve", None, 0.0);
        let [first, second, absent] = ["first", "second", "absent"].map(|n| d.thread(main, n, 0.0));
        let barrier = d.object(ObjectKind::Futex, 0x44, 1, "");
        // What the words look like counts only where the stack tells of a barrier.
        let at = d.stack(&["___pthread_barrier_wait (libc.so.6)", "step (solve)"]);
        let parked = d.stack(&["syscall (libc.so.6)", "idle (solve)"]);
        d.wait(main, 0.0, 5.0, "pause").before().open();
        d.wait(absent, 0.0, 5.0, "pause").before().open();
        for t in [first, second] {
            d.wait(t, 0.0, 5.0, "futex")
                .on(barrier)
                .op(128, 0)
                .stack(if stacked { at } else { parked })
                .before()
                .open();
            if known {
                d.hold(absent, t, barrier, Relation::Missing, 0.7);
            }
        }
        let (g, c) = d.build();
        let all = victims(&g, &c, &VictimOptions::default());
        let waits = all.iter().find(|v| [first, second].contains(&v.thread));
        assert_eq!(waits.is_some(), known && stacked, "{all:?}");
        let Some(v) = waits else { continue };
        let r = run_with_policy(&g, &c, v.clone(), Options::default());
        let said = &r.root_causes[0];
        assert_eq!(said.tid, Some(1003), "{r:#?}");
        assert!(said.why.contains("did not come to the barrier (futex 0x44) at which"), "{r:#?}");
    }
}
