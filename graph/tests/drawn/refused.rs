//! What a thread tries between its sleeps, drawn.

use crate::draw::{Drawing, slice};
use pg_event::{Direction, ObjectId, ObjectKind, Relation, ThreadId, endpoint_v4};
use pg_graph::report::Report;
use pg_graph::{Options, Selection, VictimOptions, run_with_policy, select, victims};

/// The thread sleeps that long each time, and calls in between.
fn sleeps(d: &mut Drawing, t: ThreadId, lengths: &[f64], call: (&str, ObjectId, i64)) -> f64 {
    let mut at = 1.0;
    for l in lengths {
        d.call(t, at, call.0, call.1, call.2);
        d.wait(t, at + 0.001, at + l, "clock_nanosleep").times_out();
        at += l + 0.001;
    }
    at
}

const TWICE: [f64; 4] = [1.0, 2.0, 4.0, 8.0];

fn job(call: &str, object: Option<(ObjectKind, u64, &str)>, result: i64) -> Report {
    let mut d = Drawing::new(17.0);
    let job = d.process("job", "job", None, 0.0);
    let object = object.map_or(ObjectId::NONE, |(kind, peer, name)| d.object(kind, 3, peer, name));
    sleeps(&mut d, job, &TWICE, (call, object, result));
    d.diagnose("^job$")
}

#[test]
fn what_fails_between_sleeps_is_told() {
    let to = endpoint_v4(0x7f00_0001, 5432);
    let tcp = Some((ObjectKind::Tcp, to, ""));
    let far = Some((ObjectKind::Tcp, endpoint_v4(0xc000_0201, 80), ""));
    let unix = Some((ObjectKind::UnixStream, 0, "/run/db.sock"));
    for (call, object, result, words) in [
        (
            "connect",
            tcp,
            -111,
            "connect to tcp 127.0.0.1:5432 failed each time (ECONNREFUSED: nobody listens",
        ),
        (
            "connect",
            unix,
            -2,
            "connect to unix:/run/db.sock failed each time (ENOENT: there is no such socket",
        ),
        (
            "connect",
            tcp,
            -115,
            "connect to tcp 127.0.0.1:5432 was refused each time, as nobody listens there:",
        ),
        ("connect", far, -115, "connect to tcp 192.0.2.1:80 did not come about"),
        ("clone", None, -11, "clone failed each time (EAGAIN): no further process"),
        (
            "flock",
            Some((ObjectKind::FileLock, 1, "/run/lock")),
            -11,
            "flock of /run/lock failed each time (EAGAIN)",
        ),
        (
            "openat",
            Some((ObjectKind::File, 1, "/run/pid")),
            -17,
            "openat of /run/pid failed each time (EEXIST)",
        ),
    ] {
        let r = job(call, object, result);
        let c = &r.root_causes[0];
        assert!(c.why.contains(words), "{}", c.why);
        assert!(c.why.contains("slept 4 times"), "{}", c.why);
    }
    // What succeeds once, or says nothing, is no reason.
    for (call, object, result) in [
        ("connect", tcp, 0),
        ("read", Some((ObjectKind::Pipe, 0, "")), -11),
        ("openat", Some((ObjectKind::File, 1, "/etc/job.conf")), -2),
        ("newfstatat", Some((ObjectKind::File, 1, "/etc/localtime")), 0),
    ] {
        let r = job(call, object, result);
        assert!(!r.root_causes[0].why.contains("in between"), "{}", r.root_causes[0].why);
        assert!(!r.root_causes[0].why.contains("localtime"), "{}", r.root_causes[0].why);
    }
}

/// A connection that came about was used.
#[test]
fn a_connection_that_was_under_way_and_is_used_is_no_failure() {
    let mut d = Drawing::new(17.0);
    let job = d.process("job", "job", None, 0.0);
    let tcp = d.object(ObjectKind::Tcp, 3, endpoint_v4(0x7f00_0001, 80), "");
    let end = sleeps(&mut d, job, &TWICE, ("connect", tcp, -115));
    d.message(job, tcp, pg_event::Direction::Send, end, 10);
    let r = d.diagnose("^job$");
    assert!(!r.root_causes[0].why.contains("connect"), "{}", r.root_causes[0].why);
}

/// The last sleep is cut short by the end of a child, which has nothing to do with what is tried.
#[test]
fn what_cuts_a_sleep_short_is_not_what_was_waited_for() {
    let mut d = Drawing::new(13.1);
    let job = d.process("job", "job", None, 0.0);
    let child = d.process("child", "child", Some(job), 0.5);
    let at = sleeps(&mut d, job, &[1.0, 2.0, 4.0], ("clone", ObjectId::NONE, -11));
    d.call(job, at, "clone", ObjectId::NONE, -11);
    d.wait(child, 0.6, 13.0, "clock_nanosleep").times_out();
    d.exit(child, 13.0);
    d.wait(job, at + 0.001, 13.0, "clock_nanosleep").by(child, "exit_group", ObjectId::NONE);
    let r = d.diagnose("^job$");
    assert!(r.root_causes[0].why.contains("clone failed each time"), "{r:#?}");
}

/// A server that is asked sleeps between tries for a lock: who got it is who keeps them both.
#[test]
fn who_has_what_is_tried_for_in_the_middle_is_followed() {
    let mut d = Drawing::new(17.0);
    let client = d.process("ask", "ask", None, 0.0);
    let server = d.process("served", "served", None, 0.0);
    let owner = d.process("report", "report", None, 0.0);
    let (a, b) = (d.object(ObjectKind::UnixStream, 1, 2, ""), d.object(ObjectKind::UnixStream, 2, 1, ""));
    let lock = d.object(ObjectKind::FileLock, 7, 1, "/run/lock");
    let sha = d.stack(&["sha256 (report)", "main (report)"]);
    d.call(owner, 0.5, "flock", lock, 0);
    d.runs(owner, 0.6, 13.0, sha);
    d.message(client, a, pg_event::Direction::Send, 0.9, 10);
    d.message(server, b, pg_event::Direction::Receive, 0.95, 10);
    let end = sleeps(&mut d, server, &[4.0, 4.0, 4.0], ("flock", lock, -11));
    d.wait(client, 0.96, end + 0.01, "recvfrom").on(a).by(server, "sendto", b);
    let r = d.diagnose("^ask$");
    assert_eq!(slice(&r), ["served", "report"], "{r:#?}");
    let c = &r.root_causes[0];
    assert_eq!((c.process.as_deref(), c.function.as_deref()), (Some("report"), Some("sha256")), "{r:#?}");
    let via =
        "held up served (pid 1001), which tried flock of /run/lock again and again (EAGAIN), and in the end";
    assert!(c.why.contains(via), "{}", c.why);
}

/// What was tried in vain is named where somebody else is the cause: where it sleeps in between says little.
#[test]
fn what_is_tried_in_vain_is_named_with_who_has_it() {
    let mut d = Drawing::new(17.0);
    let (job, owner) = (d.process("job", "job", None, 0.0), d.process("report", "report", None, 0.0));
    let lock = d.object(ObjectKind::FileLock, 7, 1, "/run/lock");
    let sha = d.stack(&["sha256 (report)", "main (report)"]);
    d.runs(owner, 0.6, 16.9, sha);
    sleeps(&mut d, job, &TWICE, ("flock", lock, -11));
    d.hold(owner, job, lock, pg_event::Relation::Owns, 2.0);
    let r = d.diagnose("^job$");
    assert_eq!(slice(&r), ["report"], "{r:#?}");
    let why = &r.root_causes[0].why;
    assert!(why.contains(", which tried flock of /run/lock again and again (EAGAIN)"), "{why}");
}

/// A program that is all callbacks sleeps where it waits for events; who retries in that way is a victim, who merely
/// looks around now and then is none.
#[test]
fn a_loop_of_callbacks_that_tries_again_is_a_victim() {
    for fails in [true, false] {
        let mut d = Drawing::new(17.0);
        let app = d.process("app", "app", None, 0.0);
        let other = d.process("other", "other", None, 0.0);
        let tcp = d.object(ObjectKind::Tcp, 3, endpoint_v4(0x7f00_0001, 6379), "");
        let pipe = d.object(ObjectKind::Pipe, 4, 4, "");
        let set = d.set(&[pipe]);
        let mut at = 1.0;
        for _ in 0..10 {
            d.call(app, at, "connect", tcp, if fails { -111 } else { 0 });
            d.wait(app, at + 0.001, at + 1.5, "epoll_wait").on(set).times_out();
            at += 1.501;
        }
        d.wait(other, 2.0, 8.0, "read").on(pipe).open();
        let (g, c) = d.build();
        let all = victims(&g, &c, &VictimOptions::default());
        assert_eq!(all[0].thread == app, fails, "{all:#?}");
        let s = Selection { tid: Some(1000), ..Selection::default() };
        let v = select(&g, &c, &s, &VictimOptions::default()).unwrap();
        let r = run_with_policy(&g, &c, v, Options::default());
        let told = r.root_causes[0].why.contains("connect to tcp 127.0.0.1:6379 failed each time");
        assert_eq!(told, fails, "{r:#?}");
    }
}

/// Whose calls between the sleeps were not recorded still is told by the lock that somebody was found to have.
#[test]
fn a_lock_tried_for_between_sleeps_has_its_name_in_the_first_sentence() {
    let mut d = Drawing::new(8.0);
    let holder = d.process("upgrade", "upgrade", None, 0.0);
    let tries = d.process("install", "install", None, 0.0);
    let lock = d.object(ObjectKind::FileLock, 7, 0, "/run/lock-frontend");
    d.wait(holder, 0.1, 8.0, "clock_nanosleep").open();
    let mut t = 0.5;
    while t < 7.0 {
        d.wait(tries, t, t + 1.0, "clock_nanosleep").times_out();
        t += 1.001;
    }
    d.wait(tries, t, 8.0, "clock_nanosleep").open();
    d.hold(holder, tries, lock, pg_event::Relation::Owns, 1.6);
    let r = d.diagnose("^install$");
    assert_eq!(r.root_causes[0].process.as_deref(), Some("upgrade"), "{r:#?}");
    let why = &r.root_causes[0].why;
    assert!(why.contains("tried for the lock of /run/lock-frontend"), "{why}");
}

/// However long each of its sleeps: who tries again and again has a loop that yields.
#[test]
fn sleeps_between_tries_are_a_repeated_yield() {
    for (result, each, yields) in [(-11, 0.5, true), (-11, 0.05, true), (0, 0.5, false)] {
        let lengths = vec![each; (8.0 / each) as usize];
        let mut d = Drawing::new(1.0 + lengths.len() as f64 * (each + 0.001));
        let job = d.process("job", "job", None, 0.0);
        let lock = d.object(ObjectKind::FileLock, 3, 1, "/run/lock");
        sleeps(&mut d, job, &lengths, ("flock", lock, result));
        let r = d.diagnose("^job$");
        assert_eq!(r.victim.block_type == pg_graph::BlockType::RepeatedYield, yields, "{r:#?}");
    }
}

/// Nobody listens until a service comes. Where that was kept from it all the time, what kept it comes first; of one that idled
/// until then nothing is known but that nobody was there.
#[test]
fn what_keeps_a_service_from_coming_is_told_before_the_loop() {
    for computes in [true, false] {
        let mut d = Drawing::new(20.0);
        let to = endpoint_v4(0x7f00_0007, 8321);
        let client = d.process("curl", "curl --retry", None, 0.0);
        let service = d.process("service", "service --start", None, 0.0);
        let wanted = d.object(ObjectKind::Tcp, 3, to, "");
        let end = sleeps(&mut d, client, &[2.0; 6], ("connect", wanted, -111));
        let hash = d.stack(&["dhparam (service)", "main (service)"]);
        if computes {
            d.runs(service, 0.5, end - 0.02, hash);
        } else {
            let word = d.object(ObjectKind::EventFd, 9, 0, "");
            d.wait(service, 0.5, end - 0.02, "epoll_wait").on(word).times_out();
        }
        d.wait(service, end - 0.01, end, "accept4").times_out();
        let server = d.object(ObjectKind::Tcp, to, 3, "");
        d.message(client, wanted, Direction::Send, end + 0.001, 60);
        d.message(service, server, Direction::Receive, end + 0.002, 60);
        d.message(service, server, Direction::Send, end + 0.003, 60);
        d.message(client, wanted, Direction::Receive, end + 0.004, 60);
        d.wait(client, end + 0.005, 20.0, "pause").open();
        let r = d.diagnose("^curl");
        let first = if computes { "service" } else { "curl" };
        assert_eq!(r.root_causes[0].process.as_deref(), Some(first), "{r:#?}");
        assert_eq!(slice(&r).first().map(String::as_str), Some("service --start"), "{r:#?}");
    }
}

/// bash sleeps in the function that starts processes only after it was not allowed to; that its parent waits for a child has
/// nothing to do with it.
#[test]
fn a_shell_that_sleeps_where_it_starts_processes_may_start_none() {
    let mut d = Drawing::new(15.0);
    let run = d.process("bash", "bash run.sh", None, 0.0);
    let shell = d.process("bash", "bash spawn.sh", Some(run), 0.5);
    let nap = d.process("sleep", "sleep 100", Some(run), 0.6);
    let tries = d.stack(&["clock_nanosleep (libc.so.6)", "sleep (libc.so.6)", "make_child (bash)"]);
    for (from, to) in [(1.0, 2.0), (2.001, 4.0), (4.001, 8.0), (8.001, 15.0)] {
        let w = d.wait(shell, from, to, "clock_nanosleep").stack(tries);
        if to < 15.0 { w.times_out() } else { w.open() }
    }
    d.wait(nap, 0.7, 15.0, "clock_nanosleep").open();
    let child = d.object(ObjectKind::Child, 0, 0, "any child");
    d.wait(run, 0.7, 15.0, "wait4").on(child).open();
    d.hold(nap, run, child, Relation::ChildOf, 2.0);
    let r = d.diagnose("^bash spawn");
    assert_eq!(slice(&r), Vec::<String>::new(), "{r:#?}");
    assert!(r.root_causes[0].why.contains("no further process can be made"), "{r:#?}");
}

/// A program that sleeps and asks a server in between, which answers each time. It also looks for events over that
/// connection, of which there are none: that is no lock that the server keeps.
#[test]
fn a_server_that_answers_each_time_is_not_what_a_sleeping_loop_waits_for() {
    let mut d = Drawing::new(12.0);
    let server = d.process("display", "display :1", None, 0.0);
    let asks = d.process("search", "search --sync", None, 0.5);
    let (own, far) =
        (d.object(ObjectKind::UnixStream, 1, 2, "/run/d"), d.object(ObjectKind::UnixStream, 2, 1, "/run/d"));
    let set = d.set(&[far]);
    let mut idle = 0.0;
    for n in 0..10 {
        let at = 1.0 + f64::from(n);
        d.message(asks, own, Direction::Send, at, 24);
        d.wait(server, idle, at + 0.001, "epoll_wait").on(set).by(asks, "sendmsg", own);
        d.message(server, far, Direction::Receive, at + 0.002, 24);
        d.message(server, far, Direction::Send, at + 0.003, 32);
        d.message(asks, own, Direction::Receive, at + 0.004, 32);
        d.call(asks, at + 0.005, "recvmsg", own, -11);
        d.wait(asks, at + 0.006, at + 0.999, "clock_nanosleep").times_out();
        idle = at + 0.004;
    }
    d.wait(server, idle, 12.0, "epoll_wait").on(set).open();
    d.hold(server, asks, own, Relation::Peer, 3.5);
    let r = d.diagnose("^search");
    assert_eq!(slice(&r), Vec::<String>::new(), "{r:#?}");
    let why = &r.root_causes[0].why;
    assert!(why.contains("asked display (pid 1000)") && why.contains("which answered"), "{why}");
}

/// A select without descriptors is a sleep, also when a signal ended it; and of a wait that was on before anybody waited for it
/// the whole length is told.
#[test]
fn an_interrupted_select_is_a_sleep() {
    let mut d = Drawing::new(15.0);
    let sync = d.process("sync", "sync far", None, 0.0);
    let killer = d.process("kill", "kill sync", None, 0.0);
    d.signal(killer, sync, 15, 11.9999);
    d.wait(sync, 1.0, 12.0, "pselect6").by(killer, "kill", ObjectId::NONE);
    d.wait(sync, 12.1, 15.0, "pause").open();
    let r = d.diagnose("^sync");
    assert!(r.root_causes[0].why.contains("slept 11.0 s in pselect6"), "{}", r.root_causes[0].why);
}

/// A holder opens a FIFO that nobody else does, since long before its lock was wanted.
#[test]
fn of_a_wait_that_began_long_before_the_whole_length_is_told() {
    let mut d = Drawing::new(20.0);
    let holder = d.process("spool", "spool run", None, 0.0);
    let wants = d.process("print", "print it", None, 14.9);
    let fifo = d.object(ObjectKind::Fifo, 5, 5, "/run/job");
    let lock = d.object(ObjectKind::FileLock, 70, 0, "/run/lock");
    d.wait(holder, 1.0, 20.0, "openat").on(fifo).open();
    d.wait(wants, 15.0, 20.0, "flock").on(lock).open();
    d.hold(holder, wants, lock, Relation::Owns, 15.5);
    let r = d.diagnose("^print");
    assert!(
        r.root_causes[0].why.contains("waited 5.00 s (19.0 s in all) in openat"),
        "{}",
        r.root_causes[0].why
    );
}
