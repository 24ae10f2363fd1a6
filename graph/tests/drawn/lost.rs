//! Lost events: what was not seen is neither taken for running nor passed over in silence.

use crate::draw::{Drawing, ns, slice};
use pg_event::{Direction, ObjectKind, Relation};
use pg_graph::{BlockType, LaneState, VictimOptions, victims};

/// A client waits for a busy server. Its wait is told of while it lasts, then events are lost and with
/// them its end: it still waits, it does not run.
#[test]
fn the_end_of_a_wait_was_lost() {
    let mut d = Drawing::new(20.0);
    let server = d.process("keyd", "keyd *:0", None, 0.0);
    let get = d.process("cli", "cli get k", None, 1.9);
    let other = d.process("other", "other", None, 0.0);
    let (c, s) =
        (d.object(ObjectKind::UnixStream, 1, 2, ""), d.object(ObjectKind::UnixStream, 2, 1, "/run/k"));
    let lua = d.stack(&["luaV_execute (keyd)", "evalCommand (keyd)", "main (keyd)"]);
    d.runs(server, 0.5, 9.0, lua);
    d.runs(server, 14.0, 19.9, lua);
    d.wait(other, 0.1, 0.2, "read").times_out();
    d.message(get, c, Direction::Send, 2.0, 10);
    d.wait(get, 2.001, 18.0, "recvfrom").on(c).told(2.6);
    d.hold(server, get, c, Relation::Listens, 2.7);
    d.lost(9.0, 13.0, 1_000_000);
    let _ = s;
    let (g, catalog) = d.build();
    let v: Vec<_> = g.vertices_of(get).map(|v| g.vertex(v)).collect();
    assert!(v.last().unwrap().open && v.last().unwrap().waited() > ns(17.9), "{v:#?}");
    assert!(g.share(get, 0..ns(20.0)).running() < ns(0.2));
    let all = victims(&g, &catalog, &VictimOptions::default());
    assert_eq!((all[0].thread, all[0].block_type), (get, BlockType::LongWait), "{all:#?}");
    assert!(!all.iter().any(|v| v.thread == get && v.block_type == BlockType::LongRunning));
    let r = pg_graph::run_with_policy(&g, &catalog, all[0].clone(), pg_graph::Options::default());
    assert_eq!(slice(&r), ["keyd *:0"]);
    assert_eq!(r.root_causes[0].function.as_deref(), Some("luaV_execute"));
    assert!(r.coverage.notes.iter().any(|n| n.contains("lost")), "{:?}", r.coverage.notes);
    // The five seconds and a half in which nothing came from the server are not counted as running.
    let lost = g.share(server, 0..ns(20.0)).get(LaneState::Lost);
    assert!(lost.abs_diff(ns(5.5)) < ns(0.1), "{lost}");
    let dark: Vec<_> = g.intervals(server, 0..ns(20.0)).filter(|i| i.2 == LaneState::Lost).collect();
    assert!(dark.iter().any(|i| i.0 < ns(9.1) && i.1 > ns(12.9)), "{dark:?}");
}

/// Without a record and without a sample, though others were sampled: not a victim, and named as not seen.
#[test]
fn no_trace_is_no_proof_of_running() {
    let mut d = Drawing::new(20.0);
    let app = d.process("app", "app", None, 0.0);
    let helper = d.thread(app, "helper", 0.0);
    let busy = d.process("busy", "busy", None, 0.0);
    let word = d.object(ObjectKind::Futex, 0x10, 1, "");
    let spin = d.stack(&["spin (busy)"]);
    d.runs(busy, 0.0, 20.0, spin);
    d.wait(helper, 0.1, 0.2, "clock_nanosleep").times_out();
    d.wait(app, 1.0, 19.0, "futex").on(word).by(helper, "futex", word);
    let (g, c) = d.build();
    let seen: Vec<_> = g.unseen(helper, 0..ns(20.0)).collect();
    assert_eq!(seen.len(), 1, "{seen:?}");
    assert!(seen[0].0 < ns(0.3) && seen[0].1 == ns(20.0));
    let all = victims(&g, &c, &VictimOptions::default());
    assert!(!all.iter().any(|v| v.thread == helper), "{all:#?}");
    let v = all.into_iter().find(|v| v.thread == app).unwrap();
    let r = pg_graph::run_with_policy(&g, &c, v, pg_graph::Options::default());
    let last = r.slice.last().unwrap();
    assert_eq!((last.state.as_str(), last.seen), ("blocked", false), "the contract has no other word");
    assert!(r.coverage.notes.iter().any(|n| n.contains("not seen")), "{:?}", r.coverage.notes);
    let cause = &r.root_causes[0];
    assert!(cause.why.contains("not seen") && !cause.why.contains("on the CPU"), "{}", cause.why);
    assert!(cause.confidence < 0.5);
}

/// Without samples, silence is running: that is how a thread on the CPU looks.
#[test]
fn without_samples_silence_is_running() {
    let mut d = Drawing::new(20.0);
    let app = d.process("app", "app", None, 0.0);
    d.wait(app, 0.1, 0.2, "clock_nanosleep").times_out();
    d.wait(app, 15.0, 15.1, "clock_nanosleep").times_out();
    let (g, c) = d.build();
    assert_eq!(g.unseen(app, 0..ns(20.0)).count(), 0);
    let all = victims(&g, &c, &VictimOptions::default());
    assert_eq!(all[0].block_type, BlockType::LongRunning);
}

/// Messages were not recorded for part of the hang: the report says for how much of it.
#[test]
fn messages_that_were_not_recorded_are_said() {
    for (pauses, said) in [(&[(4.0, 8.0), (9.0, 30.0)][..], Some("92 %")), (&[(17.0, 20.0)], None)] {
        let mut d = Drawing::new(30.0);
        let (a, b) = (d.process("app", "app", None, 0.0), d.process("srv", "srv", None, 0.0));
        let o = d.object(ObjectKind::UnixStream, 1, 2, "");
        let spin = d.stack(&["compute (srv)"]);
        d.runs(b, 0.0, 16.0, spin);
        d.wait(a, 4.0, 16.0, "recvfrom").on(o).by(b, "sendto", o);
        for &(since, until) in pauses {
            d.unheard(since, until);
        }
        let (g, c) = d.build();
        let v = victims(&g, &c, &VictimOptions::default()).swap_remove(0);
        assert_eq!(v.thread, a);
        let notes = pg_graph::run_with_policy(&g, &c, v, pg_graph::Options::default()).coverage.notes;
        let told = notes.iter().find(|n| n.contains("messages between threads"));
        assert_eq!(told.is_some(), said.is_some(), "{notes:?}");
        assert!(said.is_none_or(|s| told.is_some_and(|t| t.contains(s))), "{told:?}");
    }
}
