//! Locks of a database server whose sessions are threads of one process (MariaDB, MySQL): which of them may have one.

use crate::draw::{Drawing, slice};
use crate::sessions::{Pair, connection};
use pg_event::{Direction, ObjectKind, OffState, Relation};
use pg_graph::report::Report;

/// Threads of one process: only that they wait for the next statement is known.
fn threads(idle: usize) -> Report {
    threads_told(idle, 0, None)
}

/// The same: one of them has been told more than the others, though its thread served no client before; and of their clients
/// `kept` reads from somebody, while the others nap.
fn threads_told(idle: usize, more: usize, kept: Option<usize>) -> Report {
    let mut d = Drawing::new(9.0);
    let server = d.process("mariadbd", "mariadbd", None, 0.0);
    d.wait(server, 0.1, 9.0, "pause").open();
    let waits = d.stack(&["pthread_cond_timedwait (libc.so.6)", "lock_wait(que_thr_t*) (mariadbd)"]);
    let reads = d.stack(&["poll (libc.so.6)", "vio_read (mariadbd)", "do_command(THD*, bool) (mariadbd)"]);
    for n in 0..=idle {
        let client = d.process(&format!("client{n}"), &format!("client{n}"), None, 0.0);
        let session = d.thread(server, "one_connection", 0.0);
        let p = Pair { client, session, ends: connection(&mut d, n as u64) };
        if n == 0 {
            let futex = d.object(ObjectKind::Futex, 0x7000, 1, "");
            d.message(p.client, p.ends.0, Direction::Send, 2.9, 9);
            d.wait(p.client, 2.95, 9.0, "poll").on(p.ends.0).open();
            d.message(p.session, p.ends.1, Direction::Receive, 2.96, 9);
            d.wait(p.session, 3.0, 9.0, "futex").on(futex).stack(waits).open();
        } else {
            d.message(p.client, p.ends.0, Direction::Send, 0.9, 9);
            d.message(p.session, p.ends.1, Direction::Receive, 0.91, 9);
            if n == more {
                d.message(p.session, p.ends.1, Direction::Receive, 0.95, 9);
            }
            let before = connection(&mut d, 40 + n as u64).1;
            for i in 0..if n == more { 0 } else { 5 } {
                d.message(p.session, before, Direction::Receive, 0.1 + 0.1 * f64::from(i), 9);
            }
            d.wait(p.session, 1.0, 9.0, "poll").on(p.ends.1).stack(reads).open();
            d.hold(p.client, p.session, p.ends.1, Relation::Peer, 6.0);
            let pipe = d.object(ObjectKind::Pipe, 70 + n as u64, 70 + n as u64, "");
            if kept.is_none_or(|k| k == n) {
                d.wait(p.client, 1.0, 9.0, "read").on(pipe).open();
            } else {
                d.wait(p.client, 1.0, 4.0, "clock_nanosleep").times_out();
                d.wait(p.client, 4.1, 8.0, "clock_nanosleep").times_out();
            }
        }
    }
    d.diagnose("^client0$")
}

/// No other session is there: who accepts connections has nothing to do with a lock of rows.
#[test]
fn a_lock_of_a_server_without_another_session_may_belong_to_a_prepared_transaction() {
    let r = threads(0);
    assert_eq!(slice(&r), ["mariadbd"], "{r:#?}");
    let why = &r.root_causes[0].why;
    assert!(why.contains("a prepared transaction can have it"), "{why}");
}

/// Who waits for a page of a table, with nobody beside, waits for the disk.
#[test]
fn a_session_that_reads_a_page_waits_for_no_lock() {
    let mut d = Drawing::new(9.0);
    let server = d.process("mariadbd", "mariadbd", None, 0.0);
    d.wait(server, 0.1, 9.0, "pause").open();
    let client = d.process("client", "client", None, 0.0);
    let session = d.thread(server, "one_connection", 0.0);
    let ends = connection(&mut d, 0);
    let reads = d.stack(&["pread64 (libc.so.6)", "handler::ha_rnd_next(unsigned char*) (mariadbd)"]);
    let file = d.object(ObjectKind::File, 5, 0, "/data/t.ibd");
    d.message(client, ends.0, Direction::Send, 2.9, 9);
    d.wait(client, 2.95, 9.0, "poll").on(ends.0).open();
    d.message(session, ends.1, Direction::Receive, 2.96, 9);
    d.wait(session, 3.0, 9.0, "pread64").state(OffState::Uninterruptible).on(file).stack(reads).open();
    let r = d.diagnose("^client$");
    assert!(!r.root_causes[0].why.contains("prepared transaction"), "{r:#?}");
}

#[test]
fn idle_threads_of_a_server_may_have_the_lock() {
    let r = threads(1);
    let way: Vec<_> = r.slice.iter().map(|s| s.process.as_str()).collect();
    assert_eq!(way[..4], ["client0", "mariadbd", "mariadbd", "client1"], "{way:?}");
    assert!(r.root_causes[1].why.contains("may have the lock"), "{}", r.root_causes[1].why);
    assert!(r.coverage.notes.iter().any(|n| n.contains("innodb_trx")), "{:?}", r.coverage.notes);
}

/// Of several of which the same is known one is a guess: what its client waits for is not told as the cause before that.
#[test]
fn what_is_behind_a_guess_among_many_is_told_after_it() {
    let surely = threads(1).root_causes[0].confidence;
    let r = threads(5);
    let first = &r.root_causes[0];
    assert_eq!(first.process.as_deref(), Some("mariadbd"), "{r:#?}");
    assert!(first.why.contains("may have the lock") && first.confidence < surely, "{first:#?}");
}

/// Who has been told nothing since it connected has locked nothing.
#[test]
fn of_idle_threads_the_one_that_was_told_more_is_likelier_to_have_the_lock() {
    for more in 1..=3 {
        let r = threads_told(3, more, None);
        let named = format!("client{more}");
        assert_eq!(r.slice[3].process, named, "{r:#?}");
    }
}

#[test]
fn of_many_idle_threads_none_is_named() {
    let r = threads(9);
    assert!(slice(&r).iter().all(|s| !s.contains("client1")), "{:?}", slice(&r));
    assert!(r.root_causes[0].why.contains("any of 9 sessions that idle may have it"), "{r:#?}");
    assert!(r.coverage.notes.iter().any(|n| n.contains("innodb_trx")), "{:?}", r.coverage.notes);
}

/// Who is in the middle of a transaction is kept from going on by something else; the connections of a pool are in none.
#[test]
fn of_many_idle_threads_the_one_whose_client_waits_for_somebody_is_named() {
    for kept in [2, 7] {
        let r = threads_told(9, 0, Some(kept));
        assert_eq!(r.slice[3].process, format!("client{kept}"), "{r:#?}");
        let why = r.slice[2].why_weak.as_deref().unwrap_or_default();
        assert!(why.contains("one of 9 sessions") && why.contains("kept from going on"), "{why}");
    }
}

/// Its own transaction has the row locked, by another connection.
#[test]
fn who_waits_for_its_own_second_session_waits_in_a_circle() {
    let mut d = Drawing::new(9.0);
    let server = d.process("mariadbd", "mariadbd", None, 0.0);
    d.wait(server, 0.1, 9.0, "pause").open();
    let client = d.process("app", "app", None, 0.0);
    let (first, second) = (d.thread(server, "one_connection", 0.0), d.thread(server, "one_connection", 0.0));
    let waits = d.stack(&["pthread_cond_timedwait (libc.so.6)", "lock_wait(que_thr_t*) (mariadbd)"]);
    let reads = d.stack(&["poll (libc.so.6)", "vio_read (mariadbd)", "do_command(THD*, bool) (mariadbd)"]);
    let (one, two) = (connection(&mut d, 1), connection(&mut d, 2));
    d.message(client, one.0, Direction::Send, 0.9, 9);
    d.message(first, one.1, Direction::Receive, 0.91, 9);
    d.wait(first, 1.0, 9.0, "poll").on(one.1).stack(reads).open();
    d.hold(client, first, one.1, Relation::Peer, 6.0);
    d.message(client, two.0, Direction::Send, 2.9, 9);
    d.wait(client, 2.95, 9.0, "recvfrom").on(two.0).open();
    d.message(second, two.1, Direction::Receive, 2.96, 9);
    let futex = d.object(ObjectKind::Futex, 0x7000, 1, "");
    d.wait(second, 3.0, 9.0, "futex").on(futex).stack(waits).open();
    // Others of the server idle, too, and have been told more.
    let other = d.process("other", "other", None, 0.0);
    let (third, three) = (d.thread(server, "one_connection", 0.0), connection(&mut d, 3));
    for i in 0..5 {
        d.message(third, three.1, Direction::Receive, 0.1 + 0.1 * f64::from(i), 9);
    }
    d.wait(third, 1.0, 9.0, "poll").on(three.1).stack(reads).open();
    d.wait(other, 1.0, 9.0, "clock_nanosleep").open();
    d.hold(other, third, three.1, Relation::Peer, 6.0);
    let r = d.diagnose("^app$");
    assert!(r.root_causes[0].why.starts_with("circular wait"), "{r:#?}");
    assert!(slice(&r).iter().all(|s| !s.contains("other")), "{:?}", slice(&r));
}

/// No look at who has the other end came in time: messages tell which thread took the request.
#[test]
fn who_took_the_request_is_known_from_messages() {
    let r = threads(1);
    let weak = r.slice[1].why_weak.as_deref().unwrap_or_default();
    assert!(weak.contains("the last message at the other end"), "{weak}");
}

/// The wait for a row ends by its time-out: a session that executes a statement all the while comes before one that idles.
#[test]
fn a_thread_that_executes_a_statement_may_have_the_lock() {
    let mut d = Drawing::new(9.0);
    let server = d.process("mariadbd", "mariadbd", None, 0.0);
    d.wait(server, 0.1, 9.0, "pause").open();
    let waits = d.stack(&[
        "pthread_cond_timedwait (libc.so.6)",
        "lock_wait(que_thr_t*) (mariadbd)",
        "dispatch_command(THD*) (mariadbd)",
    ]);
    let reads = d.stack(&["poll (libc.so.6)", "vio_read (mariadbd)", "do_command(THD*, bool) (mariadbd)"]);
    let runs = d.stack(&[
        "my_md5 (mariadbd)",
        "dispatch_command(THD*) (mariadbd)",
        "do_command(THD*, bool) (mariadbd)",
    ]);
    let mut pair = |name: &str| {
        let client = d.process(name, name, None, 0.0);
        let session = d.thread(server, "one_connection", 0.0);
        Pair { client, session, ends: connection(&mut d, u64::from(client.0)) }
    };
    let (victim, idle, busy) = (pair("shop"), pair("pool"), pair("report"));
    let futex = d.object(ObjectKind::Futex, 0x7000, 1, "");
    d.message(victim.client, victim.ends.0, Direction::Send, 2.9, 9);
    d.wait(victim.client, 2.95, 8.01, "poll").on(victim.ends.0).by(victim.session, "sendto", victim.ends.1);
    d.message(victim.session, victim.ends.1, Direction::Receive, 2.96, 9);
    d.wait(victim.session, 3.0, 8.0, "futex").on(futex).op(393, 0).stack(waits).times_out();
    d.wait(idle.session, 1.0, 9.0, "poll").on(idle.ends.1).stack(reads).open();
    d.hold(idle.client, idle.session, idle.ends.1, Relation::Peer, 6.0);
    let pipe = d.object(ObjectKind::Pipe, 70, 70, "");
    d.wait(idle.client, 1.0, 9.0, "read").on(pipe).open();
    d.wait(busy.client, 1.0, 9.0, "poll").on(busy.ends.0).open();
    d.runs(busy.session, 1.0, 9.0, runs);
    for t in [victim.client, victim.session] {
        d.wait(t, 8.2, 9.0, "pause").open();
    }
    let r = d.diagnose("^shop$");
    assert_eq!(r.root_causes[0].function.as_deref(), Some("my_md5"), "{r:#?}");
    let weak = r.slice[2].why_weak.as_deref().unwrap_or_default();
    assert!(weak.contains("one of 2 sessions") && weak.contains("executing a statement"), "{weak}");
}

/// Who has the row locked sleeps in the middle of a statement (`select sleep(9)`): a server makes that of a wait for a condition.
#[test]
fn a_statement_that_sleeps_has_the_lock() {
    let mut d = Drawing::new(9.0);
    let server = d.process("mariadbd", "mariadbd", None, 0.0);
    let listens = d.object(ObjectKind::Tcp, 3306, 0, "");
    d.wait(server, 0.1, 9.0, "poll").on(listens).open();
    let client = d.process("client", "client", None, 0.0);
    let (one, other) = (d.thread(server, "one_connection", 0.0), d.thread(server, "one_connection", 0.0));
    let ends = connection(&mut d, 1);
    let waits = d.stack(&["pthread_cond_timedwait (libc.so.6)", "lock_wait(que_thr_t*) (mariadbd)"]);
    let sleeps = d.stack(&[
        "pthread_cond_timedwait (libc.so.6)",
        "Interruptible_wait::wait(st_mysql_cond*, st_mysql_mutex*) (mariadbd)",
        "Item_func_sleep::val_int() (mariadbd)",
        "mysql_execute_command(THD*) (mariadbd)",
    ]);
    let (row, own) = (d.object(ObjectKind::Futex, 0x7000, 1, ""), d.object(ObjectKind::Futex, 0x9000, 1, ""));
    d.message(client, ends.0, Direction::Send, 0.9, 9);
    d.wait(client, 0.91, 8.1, "poll").on(ends.0).by(other, "sendto", ends.0);
    d.wait(other, 1.0, 8.0, "futex").on(row).stack(waits).by(one, "futex", row);
    d.wait(one, 0.5, 5.5, "futex").on(own).stack(sleeps).op(128 | 9, 0).times_out();
    d.wait(one, 5.501, 7.9, "futex").on(own).stack(sleeps).op(128 | 9, 0).times_out();
    let r = d.diagnose("^client");
    let why = &r.root_causes[0].why;
    assert!(r.root_causes[0].tid == Some(1002) && why.contains("slept"), "{r:#?}");
}
