//! Threads that wait for what they have themselves, and files that lock others out.

use crate::draw::{Drawing, PRIVATE_WAIT, slice};
use pg_event::{ObjectKind, Relation, StackId};
use pg_graph::report::Report;

const PRIVATE_LOCK: u32 = 128;

/// What a handler's wait looks like: the lock is wanted in `report`, which interrupted `append`.
fn in_handler(d: &mut Drawing) -> StackId {
    d.stack(&["take (app)", "report (app)", "__restore_rt (libc.so.6)", "append (app)", "main (app)"])
}

fn app(owner: bool, handler: bool, busy: bool) -> Report {
    let mut d = Drawing::new(12.0);
    let app = d.process("app", "app --log", None, 0.0);
    let idle = d.thread(app, "ticker", 0.0);
    let lock = d.object(ObjectKind::Futex, 0x10, 1000, "");
    let stack = if handler { in_handler(&mut d) } else { d.stack(&["take (app)", "append (app)"]) };
    let spin = d.stack(&["rebuild (app)"]);
    if busy {
        d.runs(idle, 0.0, 12.0, spin);
    } else {
        d.naps(idle, 0.0, 12.0, 1.0, spin);
    }
    d.wait(app, 2.0, 12.0, "futex").on(lock).stack(stack).op(PRIVATE_LOCK, 2).open();
    if owner {
        d.hold(app, app, lock, Relation::Owns, 3.0);
    }
    d.diagnose("^app")
}

/// A handler that wants a lock which the code that it interrupted has. Whether the lock names its owner or not.
#[test]
fn a_handler_that_wants_a_lock_of_what_it_interrupted() {
    let r = app(true, true, false);
    let why = &r.root_causes[0].why;
    assert!(
        why.contains("waited for itself (deadlock)") && why.contains("a lock that it has already"),
        "{why}"
    );
    assert!(why.contains("in report, the handler of a signal that interrupted append"), "{why}");
    let r = app(false, true, false);
    let why = &r.root_causes[0].why;
    assert!(why.contains("waited for itself, as it seems (deadlock)"), "{why}");
    assert!(why.contains("in report, the handler of a signal that interrupted append: that has"), "{why}");
    assert_eq!(slice(&r), Vec::<String>::new());
}

/// Others want the same lock: they wait for the one in the handler, not for one another.
#[test]
fn who_wants_the_lock_of_a_handler_waits_for_that() {
    let mut d = Drawing::new(12.0);
    let app = d.process("app", "app --log", None, 0.0);
    let logs = d.thread(app, "logs", 0.0);
    let lock = d.object(ObjectKind::Futex, 0x10, 1000, "");
    let stack = in_handler(&mut d);
    let wants = d.stack(&["take (app)", "work (app)"]);
    d.wait(logs, 1.0, 12.0, "futex").on(lock).stack(stack).op(PRIVATE_LOCK, 2).open();
    d.wait(app, 2.0, 12.0, "futex").on(lock).stack(wants).op(PRIVATE_LOCK, 2).open();
    let r = d.diagnose("^app");
    let c = &r.root_causes[0];
    assert_eq!(c.thread.as_deref(), Some("logs"), "{r:#?}");
    assert!(c.why.contains("itself, as it seems (deadlock)") && c.why.contains("in report"), "{}", c.why);
}

/// Without a handler nothing says so, nor where another thread works that may have the lock.
#[test]
fn a_lock_is_not_ones_own_for_want_of_an_owner() {
    for (handler, busy) in [(false, false), (true, true)] {
        let r = app(false, handler, busy);
        let why = &r.root_causes[0].why;
        assert!(!why.contains("itself"), "{why}");
    }
}

/// A loop that tries to make a file which is there already: whose number it has in it is who keeps the loop from that.
fn dot_lock(alive: bool) -> Report {
    let mut d = Drawing::new(12.0);
    let mail = d.process("mail", "mail deliver", None, 0.0);
    let other = d.process("backup", "backup /var/mail", None, 0.0);
    let file = d.object(ObjectKind::File, 0, 0, "/var/mail/joe.lock");
    if alive {
        d.wait(other, 0.0, 12.0, "clock_nanosleep").before().open();
    } else {
        d.catalog.threads[other.index()].end = Some(0);
    }
    let mut t = 0.0;
    while t < 11.5 {
        d.wait(mail, t, t + 0.5, "clock_nanosleep").times_out();
        d.call(mail, t + 0.5005, "openat", file, -17);
        t += 0.501;
    }
    d.hold(other, mail, file, Relation::Owns, 2.0);
    d.diagnose("^mail")
}

#[test]
fn a_file_that_is_there_already_names_who_made_it() {
    let r = dot_lock(true);
    assert_eq!(slice(&r), ["backup /var/mail"]);
    let c = &r.root_causes[0];
    assert_eq!(c.process.as_deref(), Some("backup"));
    assert!(c.why.contains("tried openat of /var/mail/joe.lock again and again (EEXIST)"), "{}", c.why);
    let how = r.slice[1].why_weak.as_deref().unwrap_or_default();
    assert!(how.contains("its number is in the file"), "{how}");
}

#[test]
fn a_file_left_behind_by_who_has_ended_is_told_so() {
    let r = dot_lock(false);
    let c = &r.root_causes[0];
    assert_eq!(c.process.as_deref(), Some("backup"));
    assert!(
        c.why.contains(
            "ended before the recording began and left /var/mail/joe.lock behind, with its number in it"
        ),
        "{}",
        c.why
    );
}

/// How long it hung and how long it waited then are two numbers where it did something in between: each is said to be what
/// it is.
#[test]
fn two_durations_of_one_hang_are_told_apart() {
    for (pause, both) in [(0.001, false), (0.08, true)] {
        let mut d = Drawing::new(12.0);
        let job = d.process("job", "job", None, 0.0);
        let keeper = d.process("keeper", "keeper", None, 0.0);
        let file = d.object(ObjectKind::File, 0, 0, "/run/job.lock");
        let spin = d.stack(&["try_again (job)"]);
        d.wait(keeper, 0.0, 12.0, "clock_nanosleep").before().open();
        let mut t = 0.0;
        while t < 11.0 {
            d.wait(job, t, t + 0.5, "clock_nanosleep").times_out();
            d.call(job, t + 0.5005, "openat", file, -17);
            d.runs(job, t + 0.5006, t + 0.5 + pause, spin);
            t += 0.5 + pause;
        }
        d.hold(keeper, job, file, Relation::Owns, 2.0);
        let r = d.diagnose("^job$");
        let c = &r.root_causes[0];
        assert_eq!(c.process.as_deref(), Some("keeper"), "{}", c.why);
        assert_eq!(c.why.contains(" of it in waits)"), both, "{}", c.why);
        let spent = pg_graph::words::span(r.slice[0].spent_ns);
        assert_eq!(c.why.contains(&format!("({spent} of it")), both, "{spent}: {}", c.why);
    }
}

/// A thread that ended with a lock of the C library, which names it.
#[test]
fn an_owner_that_has_ended_is_named() {
    let mut d = Drawing::new(12.0);
    let app = d.process("app", "app", None, 0.0);
    let gone = d.thread(app, "gone", 0.0);
    let lock = d.object(ObjectKind::Futex, 0x10, 1000, "");
    d.catalog.threads[gone.index()].end = Some(0);
    d.wait(app, 0.0, 12.0, "futex").on(lock).op(PRIVATE_WAIT, 2).before().open();
    d.hold(gone, app, lock, Relation::Owns, 2.0);
    let why = d.diagnose("^app").root_causes.swap_remove(0).why;
    assert!(
        why.contains("ended before the recording began with futex") && why.contains("never gave it back"),
        "{why}"
    );
}

/// A program that reads nothing of what another one writes to it: the first thing to be said of its sleep.
#[test]
fn who_sleeps_instead_of_reading_is_told_so() {
    let mut d = Drawing::new(12.0);
    let tee = d.process("tee", "tee out", None, 0.0);
    let sleep = d.process("sleep", "sleep 60", None, 0.0);
    let pipe = d.object(ObjectKind::Pipe, 7, 7, "");
    d.wait(sleep, 0.5, 12.0, "clock_nanosleep").open();
    d.wait(tee, 1.0, 12.0, "write").on(pipe).open();
    d.hold(sleep, tee, pipe, Relation::Reads, 2.0);
    let why = d.diagnose("^tee").root_causes.swap_remove(0).why;
    assert!(why.contains("it has the reading end of pipe:[7] and did not read"), "{why}");
}

/// A pool: its first process waits for results, the workers that are left wait for work, and one was killed.
fn pool(signal: u8, by_parent: bool) -> Report {
    pool_of("pool", signal.into(), by_parent)
}

/// The same: `worker`'s command line is the pool's or one of its own, and it ended with `status`.
fn pool_of(worker: &str, status: u32, by_parent: bool) -> Report {
    let signal = (status & 0x7f) as u8;
    let mut d = Drawing::new(12.0);
    let main = d.process("pool", "pool", None, 0.0);
    let workers: Vec<_> =
        (0..3).map(|i| d.process("pool", worker, Some(main), 0.1 * f64::from(i + 1))).collect();
    let (tasks, results) = (d.object(ObjectKind::Pipe, 7, 7, ""), d.object(ObjectKind::Pipe, 8, 8, ""));
    d.wait(main, 0.9, 12.0, "read").on(results).open();
    for (i, w) in workers.iter().enumerate().skip(1) {
        d.wait(*w, 1.0 + 0.1 * i as f64, 12.0, "read").on(tasks).open();
        d.hold(*w, main, results, Relation::Writes, 2.0);
        d.hold(main, *w, tasks, Relation::Writes, 2.0);
    }
    d.wait(workers[0], 1.0, 1.5, "clock_nanosleep").times_out();
    if by_parent {
        d.signal(main, workers[0], signal, 1.6);
    }
    d.exit(workers[0], 1.6);
    let p = d.catalog.threads[workers[0].index()].process;
    (d.catalog.processes[p.index()].end, d.catalog.processes[p.index()].exit_status) =
        (Some(crate::draw::ns(1.6)), Some(status));
    d.diagnose("^pool$")
}

/// A worker that gives up is missing as one that was killed is; a command that failed has said what it had to say.
#[test]
fn a_worker_that_failed_is_missing() {
    let c = pool_of("pool", 3 << 8, false).root_causes.swap_remove(0);
    assert_eq!(c.pid, Some(1001), "{c:#?}");
    assert!(c.why.contains("ended at 1.600 s") && c.why.contains("what it was to do for pool"), "{}", c.why);
    for (worker, status) in [("grep", 1 << 8), ("pool", 0)] {
        let r = pool_of(worker, status, false);
        assert!(r.root_causes.iter().all(|c| c.pid != Some(1001)), "{worker} {status} {r:#?}");
    }
}

#[test]
fn a_worker_that_was_killed_comes_before_those_that_are_left() {
    let r = pool(9, false);
    let c = &r.root_causes[0];
    assert_eq!(c.pid, Some(1001), "{r:#?}");
    assert!(c.why.contains("was killed by signal 9 at 1.600 s: what it was to do for pool"), "{}", c.why);
    assert!(r.circle.is_empty());
    let told = r.root_causes.iter().filter(|c| c.why.contains("killed by signal 9")).count();
    assert_eq!((r.slice.last().unwrap().state.as_str(), told), ("exited", 1));
    assert!(r.slice.iter().all(|s| s.spent_ns <= r.victim.duration_ns), "{r:#?}");
    for (signal, by_parent) in [(9, true), (13, false)] {
        let r = pool(signal, by_parent);
        assert_ne!(r.root_causes[0].pid, Some(1001), "it was meant: {r:#?}");
    }
}

/// A reader of several pipes that a program in the background keeps open: it is said of the one that it keeps.
#[test]
fn one_of_several_pipes_that_is_kept_open_is_named() {
    let mut d = Drawing::new(12.0);
    let run = d.process("run", "run.py", None, 0.0);
    let daemon = d.process("daemon", "daemon", None, 0.0);
    let pipes = [d.object(ObjectKind::Pipe, 7, 7, ""), d.object(ObjectKind::Pipe, 8, 8, "")];
    let set = d.set(&pipes);
    d.wait(daemon, 0.5, 12.0, "clock_nanosleep").open();
    d.wait(run, 1.0, 12.0, "poll").on(set).open();
    d.hold(daemon, run, pipes[1], Relation::Writes, 2.0);
    let why = d.diagnose("^run").root_causes.swap_remove(0).why;
    assert!(why.contains("it has the writing end of pipe:[8] open"), "{why}");
}

/// A worker that is stopped where it waits for clients keeps the one waiting whose connection is there already.
#[test]
fn a_worker_stopped_where_it_accepts_is_not_idle() {
    let mut d = Drawing::new(12.0);
    let client = d.process("client", "client", None, 0.5);
    let worker = d.process("worker", "worker", None, 0.0);
    let conn = d.object(ObjectKind::Tcp, 50_930, 80, "");
    let stop = pg_event::OffState::Stopped;
    d.wait(worker, 0.1, 1.0, "accept4").interrupted();
    d.wait(worker, 1.0, 12.0, "accept4").state(stop).open();
    d.message(client, conn, pg_event::Direction::Send, 1.5, 3);
    d.wait(client, 1.501, 12.0, "read").on(conn).open();
    d.hold(worker, client, conn, Relation::Peer, 2.0);
    let r = d.diagnose("^client");
    let c = &r.root_causes[0];
    assert_eq!(c.process.as_deref(), Some("worker"));
    assert!(c.why.contains("stopped") && !c.why.contains("idle"), "{}", c.why);
}

/// A server that read a request and idles ever since has it: what it waits for for that is no thread or connection.
#[test]
fn a_request_that_was_read_and_never_answered() {
    for read in [0, 2, 3] {
        let mut d = Drawing::new(12.0);
        let client = d.process("client", "client", None, 0.5);
        let server = d.process("server", "server", None, 0.0);
        let (own, theirs) =
            (d.object(ObjectKind::UnixStream, 1, 2, ""), d.object(ObjectKind::UnixStream, 2, 1, "/run/s"));
        let set = d.object(ObjectKind::Epoll, 9, 0, "");
        d.wait(server, 0.1, 1.5, "epoll_wait").on(set).by(client, "sendto", own);
        d.message(client, own, pg_event::Direction::Send, 1.5, 3);
        if read > 0 {
            d.message(server, theirs, pg_event::Direction::Receive, 1.501, read);
        }
        d.wait(server, 1.51, 12.0, "epoll_wait").on(set).open();
        d.wait(client, 1.502, 12.0, "recvfrom").on(own).open();
        d.hold(server, client, own, Relation::Peer, 2.0);
        let why = d.diagnose("^client").root_causes.swap_remove(0).why;
        assert!(why.contains("and never answered"), "{why}");
        assert_eq!(why.contains("read it and never answered"), read == 3, "{why}");
        assert_eq!(why.contains("read only 2 B of the last 3 B and never answered"), read == 2, "{why}");
    }
}

/// What lies beside the word of a condition looks like readers of a lock at times.
#[test]
fn a_condition_has_no_readers() {
    let mut d = Drawing::new(12.0);
    let app = d.process("app", "app", None, 0.0);
    let word = d.object(ObjectKind::Futex, 0x10, 1000, "");
    let stack = d.stack(&["pthread_cond_wait (libc.so.6)", "next_task (app)"]);
    d.wait(app, 1.0, 12.0, "futex").on(word).stack(stack).op(PRIVATE_WAIT, 0).open();
    d.hold(app, app, word, Relation::Reader, 2.0);
    let why = d.diagnose("^app").root_causes.swap_remove(0).why;
    assert!(!why.contains("reader"), "{why}");
}

/// A copy of a process that had more threads waits for a lock that one of those may have had when it was made. A program that
/// was executed since has locks of its own.
#[test]
fn a_lock_that_was_taken_when_the_process_was_forked() {
    for (copy, threads) in [(true, 2), (true, 1), (false, 2)] {
        let mut d = Drawing::new(12.0);
        let parent = d.process("app", "app --log", None, 0.0);
        for _ in 1..threads {
            let logger = d.thread(parent, "logger", 0.0);
            d.wait(logger, 1.0, 12.0, "pause").open();
        }
        let child = d.process("app", if copy { "app --log" } else { "app --child" }, Some(parent), 1.0);
        let of = d.object(ObjectKind::Child, u64::from(1000 + threads), 0, "");
        let lock = d.object(ObjectKind::Futex, 0x10, 1000 + u64::from(threads), "");
        let stack = d.stack(&["pthread_mutex_lock (libc.so.6)", "log_line (app)"]);
        d.spawn(parent, child, 1.0);
        d.wait(parent, 1.1, 12.0, "wait4").on(of).open();
        d.hold(child, parent, of, Relation::ChildOf, 2.0);
        d.wait(child, 1.1, 12.0, "futex").on(lock).stack(stack).op(PRIVATE_LOCK, 2).open();
        let r = d.diagnose("^app --log$");
        let first = &r.root_causes[0];
        assert_eq!(first.pid, Some(1000 + threads), "{r:#?}");
        assert!(first.why.contains("nobody is left to wake it: "), "{}", first.why);
        let forked = first.why.contains("from app (pid 1000), but not the other threads");
        assert_eq!(forked, copy && threads > 1, "{}", first.why);
    }
}

/// Who waits for a condition that was told before, and the others for its end.
#[test]
fn who_is_joined_by_all_others_is_left_alone() {
    for joined in [true, false] {
        let mut d = Drawing::new(12.0);
        let app = d.process("app", "app", None, 0.0);
        let worker = d.thread(app, "consumer", 0.0);
        let (end, word) =
            (d.object(ObjectKind::Futex, 0x90, 1000, ""), d.object(ObjectKind::Futex, 0x10, 1000, ""));
        let stack = d.stack(&["futex_wait (app)", "Condvar::wait (app)", "consume (app)"]);
        d.wait(app, 0.5, 12.0, "futex").on(end).op(9, 1001).open();
        d.hold(worker, app, end, Relation::Owns, 1.5);
        d.wait(worker, 0.6, 12.0, "futex").on(word).stack(stack).op(PRIVATE_WAIT, 0).open();
        if !joined {
            let signals = d.thread(app, "signals", 0.0);
            d.wait(signals, 0.1, 12.0, "rt_sigtimedwait").open();
        }
        let r = d.diagnose("^app$");
        let first = &r.root_causes[0];
        assert_eq!(first.tid, Some(1001), "{r:#?}");
        assert_eq!(first.why.contains("and those wait for it to end"), joined, "{}", first.why);
    }
}

/// A few short sleeps, and then a wait for a signal that has come before: who names the program means the wait, unless it is
/// as short as they are.
#[test]
fn a_wait_for_a_signal_is_meant_before_the_short_sleeps_that_led_to_it() {
    for (until, meant) in [(10.0, true), (3.5, false)] {
        let mut d = Drawing::new(until);
        let app = d.process("app", "app", None, 0.0);
        for n in 0..12 {
            let at = 0.1 + 0.2 * f64::from(n);
            d.wait(app, at, at + 0.19, "clock_nanosleep").times_out();
        }
        d.wait(app, 2.51, until, "rt_sigtimedwait").open();
        let r = d.diagnose("^app$");
        assert_eq!(r.victim.duration_ns > crate::draw::ns(7.0), meant, "{:?}", r.victim);
    }
}

/// A reader that has the other end open itself, and is alone, waits for itself.
#[test]
fn a_reader_that_has_the_other_end_itself() {
    for (alone, pair) in [(true, false), (true, true), (false, false)] {
        let mut d = Drawing::new(12.0);
        let reader = d.process("reader", "reader", None, 0.0);
        if !alone {
            let t = d.thread(reader, "other", 0.1);
            d.wait(t, 0.2, 12.0, "clock_nanosleep").open();
        }
        let (on, relation) = if pair {
            (d.object(ObjectKind::UnixStream, 7, 8, ""), Relation::Peer)
        } else {
            (d.object(ObjectKind::Pipe, 7, 7, ""), Relation::Writes)
        };
        d.wait(reader, 0.5, 12.0, "read").on(on).open();
        d.hold(reader, reader, on, relation, 1.0);
        let c = d.diagnose("^reader$").root_causes.swap_remove(0);
        let end = if pair { "other" } else { "writing" };
        let told = format!(
            "waited for itself (deadlock): it waited 11.5 s in read on {}",
            if pair { "unix:[7]" } else { "pipe:[7]" }
        );
        assert_eq!(c.why.contains(&told), alone, "{}", c.why);
        assert_eq!(c.why.contains(&format!("nobody but it has the {end} end open")), alone, "{}", c.why);
    }
}

/// Who has what is waited for is a cause before its children, which it only waits for.
#[test]
fn who_has_the_lock_comes_before_the_children_that_it_waits_for() {
    let mut d = Drawing::new(12.0);
    let wants = d.process("wants", "wants", None, 0.0);
    let has = d.process("has", "has", None, 0.0);
    let script = d.process("script", "sh script", Some(has), 0.1);
    let nap = d.process("sleep", "sleep 13", Some(script), 0.2);
    let lock = d.object(ObjectKind::FileLock, 5, 0, "/var/lock/one");
    d.wait(wants, 0.5, 12.0, "flock").on(lock).open();
    d.hold(has, wants, lock, Relation::Owns, 1.0);
    for t in [has, script] {
        d.wait(t, 0.3, 12.0, "wait4").open();
    }
    d.wait(nap, 0.3, 12.0, "clock_nanosleep").open();
    let r = d.diagnose("^wants$");
    let named: Vec<_> = r.root_causes.iter().filter_map(|c| c.process.as_deref()).collect();
    assert_eq!(named, ["sleep", "has", "script"], "{r:#?}");
    let why = &r.root_causes[0].why;
    let told = "this held up has (pid 1001), which has the lock of /var/lock/one, and in the end wants";
    assert!(why.contains(told), "{why}");
}

/// A program opens and locks a file that it has locked by another opening of it already (flock(2)).
#[test]
fn who_opens_and_locks_a_file_twice_waits_for_itself() {
    let mut d = Drawing::new(12.0);
    let app = d.process("app", "app state", None, 0.0);
    let sweeper = d.thread(app, "sweeper", 0.0);
    let nap = d.stack(&["sweep (app)"]);
    d.naps(sweeper, 0.0, 12.0, 1.0, nap);
    let lock = d.object(ObjectKind::FileLock, 7, 0, "/run/app/state");
    d.wait(app, 1.0, 12.0, "flock").on(lock).op(2, 0).open();
    d.hold(app, app, lock, Relation::Owns, 2.0);
    let why = d.diagnose("^app").root_causes.remove(0).why;
    assert!(
        why.contains("waited for itself (deadlock)") && why.contains("by another opening of the file"),
        "{why}"
    );
}

/// The only thread of a server of a file system asks for a file on that.
#[test]
fn who_serves_a_file_system_and_asks_it_for_a_file_waits_for_itself() {
    for several in [false, true] {
        let mut d = Drawing::new(12.0);
        let cat = d.process("cat", "cat /mnt/a", None, 0.0);
        let server = d.process("fused", "fused /mnt", None, 0.0);
        if several {
            let other = d.thread(server, "worker", 0.0);
            d.wait(other, 0.0, 12.0, "read").before().open();
        }
        let a = d.object(ObjectKind::File, 7, 50, "/mnt/a");
        let b = d.object(ObjectKind::File, 8, 0, "/mnt/b");
        d.wait(cat, 1.0, 12.0, "read").on(a).state(pg_event::OffState::Uninterruptible).open();
        d.wait(server, 1.1, 12.0, "newfstatat").on(b).open();
        d.hold(server, cat, a, Relation::Serves, 2.0);
        d.hold(server, server, b, Relation::Serves, 2.1);
        let r = d.diagnose("^cat");
        let c = &r.root_causes[0];
        let itself = "waited for itself (deadlock)";
        assert_eq!(c.why.contains(itself) && c.why.contains("it serves that itself"), !several, "{}", c.why);
        assert_eq!(c.process.as_deref(), Some("fused"), "{r:#?}");
    }
}
