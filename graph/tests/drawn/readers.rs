//! A writer waits for readers of a read-write lock: the C library counts them and does not record who they are.

use crate::draw::{Drawing, ns};
use pg_event::{Hold, Kind, ObjectKind, Relation};
use pg_graph::report::Report;

/// `writer` waits from 3 s on and is not woken; two readers have the lock. Two threads were seen to get it before by
/// waiting; one of them has woken somebody for it since.
fn drawn(seen: bool) -> (Report, Option<usize>) {
    drawn_in(&["pthread_rwlock_wrlock (libc.so.6)", "save (srv)"], seen)
}

/// The same with these functions around the wait.
fn drawn_in(functions: &[&str], seen: bool) -> (Report, Option<usize>) {
    let mut d = Drawing::new(9.0);
    let main = d.process("srv", "srv", None, 0.0);
    let (writer, reader, other) =
        (d.thread(main, "writer", 0.0), d.thread(main, "reader", 0.0), d.thread(main, "other", 0.0));
    // The words that readers and writers of one lock sleep on.
    let (phase, writers) =
        (d.object(ObjectKind::Futex, 0x1008, 1, ""), d.object(ObjectKind::Futex, 0x100c, 1, ""));
    let stack = d.stack(&[&["__GI___futex_abstimed_wait64 (libc.so.6)"], functions].concat());
    let busy = d.stack(&["render (srv)"]);
    d.wait(main, 0.1, 9.0, "pause").open();
    if seen {
        d.wait(reader, 0.5, 1.0, "futex").on(phase).by(main, "futex", phase);
        d.wait(other, 0.5, 1.1, "futex").on(phase).by(main, "futex", phase);
        d.wait(main, 0.05, 0.06, "futex").on(writers).by(other, "futex", writers);
    }
    d.wait(reader, 1.2, 3.4, "clock_nanosleep").times_out();
    d.runs(reader, 3.4, 8.9, busy);
    d.wait(other, 1.2, 9.0, "epoll_wait").open();
    d.wait(writer, 0.1, 2.9, "clock_nanosleep").times_out();
    d.wait(writer, 3.0, 9.0, "futex").op(0, 3).on(phase).stack(stack).open();
    for _ in 0..2 {
        let hold = Hold { object: phase, subject: writer, relation: Relation::Reader };
        d.event(ns(4.0), writer, Kind::Hold(hold));
    }
    let (g, _) = {
        let mut copy = Drawing::new(9.0);
        let main = copy.process("srv", "srv", None, 0.0);
        let w = copy.thread(main, "writer", 0.0);
        for (at, n) in [(2.0, 3), (4.0, 2)] {
            for _ in 0..n {
                let hold = Hold { object: phase, subject: w, relation: Relation::Reader };
                copy.event(ns(at), w, Kind::Hold(hold));
            }
        }
        copy.build()
    };
    let last = g.readers(writer, 0..ns(9.0)).map(|r| r.1);
    (d.diagnose("^srv$"), last)
}

#[test]
fn how_many_readers_there_are_is_said() {
    let (r, last) = drawn(false);
    assert_eq!(last, Some(2), "as it was read last");
    assert_eq!(r.victim.thread, "writer");
    let note = "2 readers have the lock that srv/writer:1001 wants to write (at 4.000 s)";
    assert!(r.coverage.notes.iter().any(|n| n.starts_with(note)), "{:?}", r.coverage.notes);
}

#[test]
fn who_was_seen_to_get_it_is_offered_as_a_weak_cause() {
    let (r, _) = drawn(true);
    let way: Vec<_> = r.slice.iter().map(|s| (s.thread.as_str(), s.why_weak.as_deref())).collect();
    assert_eq!(way[0], ("writer", None), "{way:?}");
    let weak = way.iter().find(|w| w.0 == "reader").and_then(|w| w.1).unwrap_or_default();
    assert!(weak.starts_with("2 readers have the lock, and the C library does not record who"), "{way:?}");
    assert_eq!(r.root_causes[0].thread.as_deref(), Some("reader"), "{:?}", r.root_causes[0]);
}

/// Who has it for reading and wants to write it has nobody to wait for, where it is the only thread.
#[test]
fn a_reader_that_wants_to_write() {
    for (others, told) in
        [(false, "it itself, as there is no other thread (deadlock)"), (true, "slept 8.00 s")]
    {
        let mut d = Drawing::new(9.0);
        let main = d.process("cache", "cache", None, 0.5);
        if others {
            let t = d.thread(main, "other", 0.6);
            d.wait(t, 0.7, 9.0, "clock_nanosleep").open();
        }
        let writers = d.object(ObjectKind::Futex, 0x100c, 1000, "");
        let stack = d.stack(&["pthread_rwlock_wrlock (libc.so.6)", "refresh (cache)", "look_up (cache)"]);
        d.wait(main, 1.0, 9.0, "futex").op(128, 3).on(writers).stack(stack).open();
        d.event(
            ns(4.0),
            main,
            Kind::Hold(Hold { object: writers, subject: main, relation: Relation::Reader }),
        );
        let c = d.diagnose("^cache$").root_causes.swap_remove(0);
        assert!(c.why.contains(told), "{}", c.why);
        assert_eq!(c.why.contains("it itself"), !others, "{}", c.why);
    }
}

/// Readers that overlap all the time let no writer in: one of them lets it go on in the end, and that there were several is said.
#[test]
fn readers_that_had_it_by_turns_are_told() {
    for many in [2, 1] {
        let mut d = Drawing::new(9.0);
        let main = d.process("cfgd", "cfgd", None, 0.0);
        let (writer, reader) = (d.thread(main, "reload", 0.0), d.thread(main, "reader", 0.0));
        let lock = d.object(ObjectKind::Futex, 0x1008, 1000, "");
        let stack = d.stack(&["pthread_rwlock_wrlock (libc.so.6)", "reload (cfgd)"]);
        let serves = d.stack(&["clock_nanosleep (libc.so.6)", "serve (cfgd)"]);
        d.wait(main, 0.1, 9.0, "futex").open();
        d.naps(reader, 0.1, 8.9, 0.25, serves);
        d.wait(writer, 0.5, 8.95, "futex").op(128, 3).on(lock).stack(stack).by(reader, "futex", lock);
        for _ in 0..many {
            let hold = Hold { object: lock, subject: writer, relation: Relation::Reader };
            d.event(ns(1.5), writer, Kind::Hold(hold));
        }
        let c = d.diagnose("^reload$").root_causes.swap_remove(0);
        assert_eq!(c.thread.as_deref(), Some("reader"), "{c:#?}");
        let told = "for a lock that 2 readers had at 1.500 s: a writer waits until none has it";
        assert_eq!(c.why.contains(told), many == 2, "{}", c.why);
    }
}

#[test]
fn a_condition_variable_has_no_readers() {
    // What lies beside the word of one looks like their number.
    let told = |functions: &[&str]| {
        let (r, _) = drawn_in(functions, true);
        let told = |s: &str| s.contains("readers have the lock");
        let note = r.coverage.notes.iter().any(|n| told(n));
        (note, r.slice.iter().any(|s| s.why_weak.as_deref().is_some_and(told)))
    };
    assert_eq!(told(&["pthread_cond_timedwait (libc.so.6)", "save (srv)"]), (false, false));
    assert_eq!(told(&["syscall (libc.so.6)", "event_wait (srv)"]), (false, false), "locks of its own");
    // What is nearest to the wait decides.
    assert_eq!(told(&["pthread_rwlock_wrlock (libc.so.6)", "after_cond_wait (srv)"]), (true, true));
}

/// Readers that did not wait for it are not seen to get it: who does something else is one of them, most likely, and neither the
/// writer that queues for the lock nor the readers behind that are a circle.
#[test]
fn who_sleeps_with_the_lock_is_no_circle_of_those_that_want_it() {
    for (victim, sleeping) in [("main", 1), ("writer", 1), ("writer", 2)] {
        let mut d = Drawing::new(9.0);
        let main = d.process("srv", "srv", None, 0.0);
        let writer = d.thread(main, "writer", 0.0);
        let (readers, phase) =
            (d.object(ObjectKind::Futex, 0x1000, 1000, ""), d.object(ObjectKind::Futex, 0x1008, 1000, ""));
        let read = d.stack(&["pthread_rwlock_rdlock (libc.so.6)", "look (srv)"]);
        let write = d.stack(&["pthread_rwlock_wrlock (libc.so.6)", "update (srv)"]);
        let report = d.stack(&["nanosleep (libc.so.6)", "report (srv)"]);
        for _ in 0..sleeping {
            let t = d.thread(main, "report", 0.0);
            d.wait(t, 0.0, 9.0, "clock_nanosleep").stack(report).before().open();
        }
        let begun = if victim == "main" { (0.6, 0.5) } else { (0.5, 0.6) };
        d.wait(main, begun.1, 9.0, "futex").op(128, 12).on(readers).stack(read).open();
        d.wait(writer, begun.0, 9.0, "futex").op(128, 3).on(phase).stack(write).open();
        let hold = Hold { object: phase, subject: writer, relation: Relation::Reader };
        d.event(ns(2.0), writer, Kind::Hold(hold));
        let r = d.diagnose("^srv$");
        assert!(r.circle.is_empty(), "{r:#?}");
        let first = &r.root_causes[0];
        let report = first.thread.as_deref() == Some("report");
        assert_eq!(report, sleeping == 1, "{r:#?}");
        if sleeping > 1 {
            assert!(first.why.contains("1 reader has the lock"), "{}", first.why);
        }
    }
}
