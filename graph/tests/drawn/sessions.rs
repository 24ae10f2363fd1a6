//! Locks that a database server keeps in its own memory, while the wait for one goes on: which sessions may have it.

use crate::draw::middle::{epoll, tcp};
use crate::draw::{Drawing, slice, what};
use pg_event::{Direction, ObjectId, ObjectKind, Relation, ThreadId};
use pg_graph::report::Report;
use pg_graph::{Selection, VictimOptions, select};

/// A client and the session that serves it: the client's thread, the session's, and their ends of the connection.
pub(crate) struct Pair {
    pub(crate) client: ThreadId,
    pub(crate) session: ThreadId,
    pub(crate) ends: (ObjectId, ObjectId),
}

pub(crate) fn connection(d: &mut Drawing, n: u64) -> (ObjectId, ObjectId) {
    let mine = d.object(ObjectKind::UnixStream, 10 + n, 20 + n, "");
    (mine, d.object(ObjectKind::UnixStream, 20 + n, 10 + n, "/run/pg/s"))
}

fn postgres(d: &mut Drawing, server: ThreadId, n: u64, client: &str, title: &str) -> Pair {
    let client = d.process(client, client, None, 0.0);
    let session = d.process("postgres", title, Some(server), 0.0);
    Pair { client, session, ends: connection(d, n) }
}

/// The session waits for the next statement of its client, who waits for a pipe that nobody fills.
fn idles(d: &mut Drawing, p: &Pair, since: f64) {
    let stack = d.stack(&["epoll_wait (libc.so.6)", "WaitLatch (postgres)", "secure_read (postgres)"]);
    d.message(p.client, p.ends.0, Direction::Send, since - 0.1, 9);
    d.message(p.session, p.ends.1, Direction::Receive, since - 0.09, 9);
    d.wait(p.session, since, 9.0, "epoll_wait").on(p.ends.1).stack(stack).open();
    d.hold(p.client, p.session, p.ends.1, Relation::Peer, 6.0);
    let pipe = d.object(ObjectKind::Pipe, 77 + u64::from(p.client.0), 77 + u64::from(p.client.0), "");
    d.wait(p.client, since, 9.0, "read").on(pipe).open();
}

/// The session waits for a lock, and its client for the session.
fn queues(d: &mut Drawing, p: &Pair, since: f64) {
    let stack = d.stack(&["epoll_wait (libc.so.6)", "WaitLatch (postgres)", "ProcSleep (postgres)"]);
    let latch = d.object(ObjectKind::SignalFd, 900 + u64::from(p.session.0), 0, "");
    d.message(p.client, p.ends.0, Direction::Send, since - 0.1, 9);
    d.wait(p.client, since - 0.05, 9.0, "poll").on(p.ends.0).open();
    d.message(p.session, p.ends.1, Direction::Receive, since - 0.04, 9);
    d.wait(p.session, since, 9.0, "epoll_wait").on(latch).stack(stack).open();
}

fn shop(others: &[(&str, f64)]) -> Report {
    let mut d = Drawing::new(9.0);
    let server = d.process("postgres", "postgres -D /data", None, 0.0);
    d.wait(server, 0.1, 9.0, "pause").open();
    let victim = postgres(&mut d, server, 0, "shop", "postgres: ann shop [local] UPDATE waiting");
    for (i, (title, since)) in others.iter().enumerate() {
        let p = postgres(&mut d, server, i as u64 + 1, &format!("client{i}"), title);
        idles(&mut d, &p, *since);
    }
    queues(&mut d, &victim, 3.0);
    d.diagnose("^shop$")
}

#[test]
fn the_session_that_idles_in_a_transaction_is_followed_to_its_client() {
    let r = shop(&[
        ("postgres: ann shop [local] idle", 1.0),
        ("postgres: bob shop [local] idle in transaction", 2.0),
        ("postgres: eve other [local] idle in transaction", 1.5),
        ("postgres: eve shop [local] idle in transaction (aborted)", 1.5),
    ]);
    let way: Vec<_> = r.slice.iter().map(|s| s.cmdline.as_str()).collect();
    let titles =
        ["postgres: ann shop [local] UPDATE waiting", "postgres: bob shop [local] idle in transaction"];
    assert_eq!(way[..4], ["shop", titles[0], titles[1], "client1"], "{way:?}");
    assert!(r.questions.iter().all(|q| q.kind == "baseline"), "there is one session only: {:?}", r.questions);
    assert_eq!(r.root_causes[0].process.as_deref(), Some("client1"), "{}", what(&r.root_causes[0]));
    let session = &r.root_causes[1];
    let says = |w: &str| assert!(session.why.contains(w), "{}", session.why);
    says("may have the lock and was idle for 6.00 s");
    says("its client client1");
    let weak = r.slice[2].why_weak.as_deref().unwrap_or_default();
    assert!(weak.contains("the one session that may have this one"), "{weak}");
    assert!(r.coverage.notes.iter().any(|n| n.contains("pg_blocking_pids")), "{:?}", r.coverage.notes);
}

#[test]
fn of_several_sessions_a_person_is_asked_and_who_idled_before_comes_first() {
    let r = shop(&[
        ("postgres: ann shop [local] idle in transaction", 3.5),
        ("postgres: bob shop [local] idle in transaction", 2.0),
    ]);
    let q = &r.questions[0];
    assert!(q.text.starts_with("Which session has the lock") && q.options == 2, "{q:?}");
    assert!(slice(&r).iter().any(|s| s.contains("client1")), "{:?}", slice(&r));
}

/// An export whose client cannot go on is in the middle of a statement, and not idle.
#[test]
fn a_session_that_waits_for_its_client_within_a_statement_is_not_idle() {
    let r = shop(&[("postgres: bob shop [local] COPY", 2.0)]);
    let session = r.root_causes.iter().find(|c| c.process.as_deref() == Some("postgres"));
    let why = &session.expect("the session").why;
    assert!(why.contains("in the middle of a statement for its client client0"), "{why}");
}

#[test]
fn without_a_session_in_a_transaction_nobody_is_blamed() {
    let r = shop(&[("postgres: ann shop [local] idle", 1.0)]);
    let blamed: Vec<_> = r.root_causes.iter().filter_map(|c| c.process.as_deref()).collect();
    assert!(!blamed.contains(&"client0"), "{blamed:?}");
    assert!(r.coverage.notes.iter().any(|n| n.contains("pg_blocking_pids")), "{:?}", r.coverage.notes);
}

/// PostgreSQL looks for deadlocks after a second, by SIGALRM, and waits on: one wait, which the holder ended.
#[test]
fn a_wait_that_an_alarm_interrupts_goes_on() {
    let mut d = Drawing::new(9.0);
    let server = d.process("postgres", "postgres -D /data", None, 0.0);
    d.wait(server, 0.1, 9.0, "pause").open();
    let victim = postgres(&mut d, server, 0, "shop", "postgres: ann shop [local] UPDATE waiting");
    let holder = postgres(&mut d, server, 1, "owner", "postgres: bob shop [local] idle in transaction");
    let stack = d.stack(&["epoll_wait (libc.so.6)", "WaitLatch (postgres)", "ProcSleep (postgres)"]);
    let latch = d.object(ObjectKind::SignalFd, 900, 0, "");
    d.message(victim.client, victim.ends.0, Direction::Send, 2.9, 9);
    d.wait(victim.client, 2.95, 4.81, "poll").on(victim.ends.0).by(victim.session, "sendto", victim.ends.1);
    d.message(victim.session, victim.ends.1, Direction::Receive, 2.96, 9);
    d.wait(victim.session, 3.0, 4.0, "epoll_wait").on(latch).stack(stack).timer();
    d.wait(victim.session, 4.001, 4.8, "epoll_wait").on(latch).stack(stack).by(holder.session, "kill", latch);
    d.message(holder.session, holder.ends.1, Direction::Receive, 2.0, 9);
    d.wait(holder.session, 2.1, 4.79, "epoll_wait").on(holder.ends.1).by(
        holder.client,
        "sendto",
        holder.ends.0,
    );
    let pipe = d.object(ObjectKind::Pipe, 77, 77, "");
    let feeder = d.process("feeder", "feeder", None, 0.0);
    d.wait(holder.client, 2.1, 4.78, "read").on(pipe).by(feeder, "write", pipe);
    d.wait(feeder, 0.1, 4.77, "nanosleep").times_out();
    for t in [victim.client, victim.session, holder.session, holder.client, feeder] {
        d.wait(t, 0.01, if t == victim.client { 2.89 } else { 0.05 }, "pause").timer();
        d.wait(t, 4.82, 9.0, "pause").open();
    }
    let r = d.diagnose("^shop$");
    let edges: Vec<_> = r.slice.iter().map(|s| (s.process.as_str(), s.strength.as_deref())).collect();
    assert_eq!(edges[1..3], [("postgres", Some("strong")), ("postgres", Some("strong"))], "{edges:?}");
    assert!(
        r.root_causes.iter().any(|c| c.why.contains("had the lock and was idle")),
        "{:#?}",
        r.root_causes
    );
}

/// Nobody idles in a transaction: the lock can be that of a prepared one, which has no session any more.
#[test]
fn a_lock_that_no_session_has() {
    let r = shop(&[("postgres: ann shop [local] idle", 1.0)]);
    let c = &r.root_causes[0];
    assert!(c.why.contains("no session was found that could have the lock"), "{}", c.why);
    assert!(c.why.contains("pg_prepared_xacts"), "{}", c.why);
}

/// Who gave the lock back began only then (`rollback prepared`): it had not had it, nor had who started it.
#[test]
fn who_comes_in_the_end_to_let_a_lock_go_had_not_had_it() {
    let mut d = Drawing::new(9.0);
    let server = d.process("postgres", "postgres -D /data", None, 0.0);
    let victim = postgres(&mut d, server, 0, "shop", "postgres: ann shop [local] UPDATE waiting");
    let late = d.process("postgres", "postgres: root shop [local] ROLLBACK PREPARED", Some(server), 7.9);
    let stack = d.stack(&["epoll_wait (libc.so.6)", "WaitLatch (postgres)", "ProcSleep (postgres)"]);
    let (latch, death) =
        (d.object(ObjectKind::SignalFd, 900, 0, ""), d.object(ObjectKind::Pipe, 901, 901, ""));
    let set = d.set(&[latch, death]);
    d.wait(server, 0.1, 7.8, "pause").timer();
    d.spawn(server, late, 7.9);
    d.message(victim.client, victim.ends.0, Direction::Send, 2.9, 9);
    d.wait(victim.client, 2.95, 8.01, "poll").on(victim.ends.0).by(victim.session, "sendto", victim.ends.1);
    d.message(victim.session, victim.ends.1, Direction::Receive, 2.96, 9);
    d.wait(victim.session, 3.0, 8.0, "epoll_wait").on(set).stack(stack).by(late, "kill", ObjectId::NONE);
    for t in [server, victim.client, victim.session, late] {
        d.wait(t, 8.1, 9.0, "pause").open();
    }
    let r = d.diagnose("^shop$");
    let c = &r.root_causes[0];
    assert_eq!(slice(&r), ["postgres: ann shop [local] UPDATE waiting"], "{r:#?}");
    let says = |w: &str| assert!(c.why.contains(w), "{}", c.why);
    says("there since 7.900 s, let it go on at 8.000 s");
    says("pg_prepared_xacts");
    assert_eq!(r.slice[1].object, None, "it did not wait for the pipe that it watched, too");
}

/// A session that has the lock and sends a long answer waits until its client takes more of it; it does not idle.
#[test]
fn a_session_whose_client_takes_its_answer_slowly() {
    let mut d = Drawing::new(9.0);
    let server = d.process("postgres", "postgres -D /data", None, 0.0);
    d.wait(server, 0.1, 9.0, "pause").open();
    let victim = postgres(&mut d, server, 0, "shop", "postgres: ann shop [local] TRUNCATE TABLE waiting");
    let copy = postgres(&mut d, server, 1, "export", "postgres: bob shop [local] COPY");
    let locks = d.stack(&["epoll_wait (libc.so.6)", "WaitLatch (postgres)", "ProcSleep (postgres)"]);
    let writes =
        d.stack(&["epoll_wait (libc.so.6)", "WaitEventSetWait (postgres)", "secure_write (postgres)"]);
    let latch = d.object(ObjectKind::SignalFd, 900, 0, "");
    d.message(victim.client, victim.ends.0, Direction::Send, 2.9, 9);
    d.wait(victim.client, 2.95, 8.03, "poll").on(victim.ends.0).by(victim.session, "sendto", victim.ends.1);
    d.message(victim.session, victim.ends.1, Direction::Receive, 2.96, 9);
    d.wait(victim.session, 3.0, 8.02, "epoll_wait").on(latch).stack(locks).by(
        copy.session,
        "kill",
        ObjectId::NONE,
    );
    d.message(copy.session, copy.ends.1, Direction::Send, 1.0, 9000);
    d.wait(copy.session, 1.1, 8.01, "epoll_wait").on(copy.ends.1).stack(writes).by(
        copy.client,
        "recvfrom",
        copy.ends.0,
    );
    let compress = d.stack(&["deflate (libz.so.1)", "main (export)"]);
    d.runs(copy.client, 1.1, 8.0, compress);
    for t in [victim.client, victim.session, copy.session, copy.client] {
        d.wait(t, 8.2, 9.0, "pause").open();
    }
    let r = d.diagnose("^shop$");
    assert_eq!(r.root_causes[0].function.as_deref(), Some("deflate"), "{r:#?}");
    let why = &r.root_causes[1].why;
    assert!(why.contains("had the lock and waited 5.01 s until its client export"), "{why}");
    assert!(!why.contains("next statement"), "{why}");
}

/// A session has a lock and asks its own server for it over a second connection: no lock table of the server shows that.
#[test]
fn a_session_that_waits_for_its_own_lock_over_a_second_connection() {
    for seen in [true, false] {
        let mut d = Drawing::new(9.0);
        let server = d.process("postgres", "postgres -D /data", None, 0.0);
        d.wait(server, 0.1, 9.0, "pause").open();
        let victim = postgres(&mut d, server, 0, "shop", "postgres: ann shop [local] UPDATE waiting");
        let own = postgres(&mut d, server, 1, "job", "postgres: ann shop [local] SELECT");
        let second = d.process("postgres", "postgres: ann shop [local] UPDATE waiting", Some(server), 0.0);
        let (asks, answers) = connection(&mut d, 2);
        d.message(own.client, own.ends.0, Direction::Send, 0.9, 9);
        d.wait(own.client, 0.91, 9.0, "poll").on(own.ends.0).open();
        let stack =
            d.stack(&["epoll_wait (libc.so.6)", "WaitLatchOrSocket (postgres)", "dblink_exec (dblink.so)"]);
        let early = d.object(ObjectKind::UnixStream, 12, 0, "/run/pg/s");
        d.message(own.session, early, Direction::Send, 1.0, 9);
        d.message(second, answers, Direction::Receive, 1.01, 9);
        d.message(second, answers, Direction::Send, 1.02, 9);
        d.message(own.session, asks, Direction::Receive, 1.03, 9);
        d.message(own.session, asks, Direction::Send, 1.04, 9);
        let set = d.object(ObjectKind::Epoll, 44, 0, "");
        d.catalog.objects[set.index()].members = vec![asks];
        d.wait(own.session, 1.05, 9.0, "epoll_wait").on(set).stack(stack).open();
        d.hold(second, own.session, asks, Relation::Peer, 1.8);
        let sleep = d.stack(&["epoll_wait (libc.so.6)", "WaitLatch (postgres)", "ProcSleep (postgres)"]);
        let latch = d.object(ObjectKind::SignalFd, 901, 0, "");
        d.message(second, answers, Direction::Receive, 1.06, 9);
        d.wait(second, 1.1, 9.0, "epoll_wait").on(latch).stack(sleep).open();
        queues(&mut d, &victim, 3.0);
        if seen {
            d.hold(victim.session, victim.client, victim.ends.0, Relation::Peer, 4.0);
        }
        let r = d.diagnose("^shop$");
        let why = &r.root_causes[0].why;
        assert!(why.contains("circular wait"), "{r:#?}");
        assert_eq!(r.circle.len(), 2, "{r:#?}");
        assert!(!why.contains("pg_prepared_xacts"), "{why}");
    }
}

/// Two transactions want each other's row, until the server gives one of them up, by a timer: that lets the other one go on.
#[test]
fn transactions_that_wait_for_each_other() {
    for (victim, server_of) in [("first", 0), ("second", 1)] {
        let mut d = Drawing::new(9.0);
        let server = d.process("postgres", "postgres -D /data", None, 0.0);
        d.wait(server, 0.1, 9.0, "pause").open();
        let title = "postgres: ann shop [local] UPDATE waiting";
        let pairs =
            [postgres(&mut d, server, 0, "first", title), postgres(&mut d, server, 1, "second", title)];
        let locks = d.stack(&["epoll_wait (libc.so.6)", "WaitLatch (postgres)", "ProcSleep (postgres)"]);
        let death = d.object(ObjectKind::Pipe, 901, 901, "");
        for (i, p) in pairs.iter().enumerate() {
            let (latch, at) = (d.object(ObjectKind::SignalFd, 910 + i as u64, 0, ""), 1.0 + i as f64);
            let set = d.set(&[latch, death]);
            d.message(p.client, p.ends.0, Direction::Send, at - 0.1, 9);
            d.message(p.session, p.ends.1, Direction::Receive, at - 0.04, 9);
            d.hold(server, p.session, death, Relation::Writes, 4.0);
            let wait = d.wait(p.session, at, 8.0 + 0.01 * i as f64, "epoll_wait").on(set).stack(locks);
            if i == 0 {
                wait.interrupted();
            } else {
                wait.by(pairs[0].session, "kill", ObjectId::NONE);
            }
            let end = 8.02 + 0.01 * i as f64;
            d.wait(p.client, at - 0.05, end, "poll").on(p.ends.0).by(p.session, "sendto", p.ends.1);
            d.wait(p.session, end + 0.01, 9.0, "pause").open();
        }
        let r = d.diagnose(&format!("^{victim}$"));
        let c = &r.root_causes[0];
        assert!(c.why.contains("circular wait (deadlock"), "{}", c.why);
        assert!(pairs.iter().all(|p| slice_has(&r, p.session)), "{victim} {server_of} {r:#?}");
        assert_eq!(r.circle.len(), 2, "{r:#?}");
    }
}

fn slice_has(r: &Report, t: ThreadId) -> bool {
    r.slice.iter().any(|s| s.tid == 1000 + t.0)
}

/// Any session may have an advisory lock, whatever it does.
#[test]
fn an_advisory_lock_is_told_to_be_one() {
    let mut d = Drawing::new(9.0);
    let server = d.process("postgres", "postgres -D /data", None, 0.0);
    d.wait(server, 0.1, 9.0, "pause").open();
    let p = postgres(&mut d, server, 0, "shop", "postgres: ann shop [local] SELECT waiting");
    let stack =
        d.stack(&["epoll_wait (libc.so.6)", "ProcSleep (postgres)", "pg_advisory_lock_int8 (postgres)"]);
    let latch = d.object(ObjectKind::SignalFd, 900, 0, "");
    d.message(p.client, p.ends.0, Direction::Send, 2.9, 9);
    d.wait(p.client, 2.95, 9.0, "poll").on(p.ends.0).open();
    d.message(p.session, p.ends.1, Direction::Receive, 2.96, 9);
    d.wait(p.session, 3.0, 9.0, "epoll_wait").on(latch).stack(stack).open();
    let c = d.diagnose("^shop$").root_causes.swap_remove(0);
    assert!(c.why.contains("it is an advisory lock, which any session may have"), "{}", c.why);
    assert!(!c.why.contains("pg_prepared_xacts"), "{}", c.why);
}

/// Recorded from the middle on, a server process alone: it waits for a lock of another session, or for its client.
#[test]
fn a_session_that_waits_for_a_lock_hangs_and_one_without_a_statement_does_not() {
    for waits in [true, false] {
        let mut d = Drawing::new(3.0);
        let server = d.process("postgres", "postgres: app shop 10.0.0.2(4711) SELECT", None, 0.0);
        let own = if waits { "ProcSleep (postgres)" } else { "secure_read (postgres)" };
        let stack = d.stack(&["epoll_wait (libc.so.6)", "WaitLatch (postgres)", own]);
        let (_, client) = tcp(&mut d, 4711, 5432);
        let latch = d.object(ObjectKind::EventFd, 9, 0, "");
        let set = epoll(&mut d, &[latch, client]);
        d.wait(server, 0.0, 3.0, "epoll_wait").on(set).stack(stack).before().open();
        let (g, c) = d.build();
        let found = select(&g, &c, &Selection::default(), &VictimOptions::default());
        assert_eq!(found.is_ok(), waits, "{found:?}");
    }
}
