//! The builder on tiny drawn recordings.

use pg_event::{Ns, OffState, ThreadId};
use pg_graph::sim::{Recording, TICK, draw};
use pg_graph::{Edge, EdgeKind, EventGraph, LaneState, VertexId, Weak};

fn drawn(text: &str) -> (Recording, EventGraph) {
    let r = draw(text).expect("a drawing");
    let g = r.graph();
    (r, g)
}

/// Times of all vertices of a thread in ticks: start, woken, run, end.
fn times(g: &EventGraph, t: ThreadId) -> Vec<[Ns; 4]> {
    g.vertices_of(t)
        .map(|v| g.vertex(v))
        .map(|v| [v.start, v.woken, v.run, v.end].map(|x| x / TICK))
        .collect()
}

/// The edge that woke the nth vertex of a thread, and who did.
fn waking(r: &Recording, g: &EventGraph, name: &str, n: usize) -> Option<(Edge, String)> {
    let v = g.vertices_of(r.thread(name)).nth(n)?;
    let e = g.edge(g.waking(v)?);
    let from = g.vertex(e.from).thread;
    Some((e, r.catalog.threads[from.index()].name.clone()))
}

#[test]
fn a_wait_leads_in_and_being_put_off_does_not_split() {
    let (r, g) = drawn(
        "A ==....-==--==
         B =============
         B wakes A 6 cond",
    );
    let a = r.thread("A");
    assert_eq!(times(&g, a), [[0, 0, 0, 2], [2, 6, 7, 13]]);
    let v = g.vertex(g.vertices_of(a).nth(1).unwrap());
    assert_eq!((v.preempted, v.waited(), v.queued(), v.ran()), (2 * TICK, 4 * TICK, TICK, 4 * TICK));
    assert_eq!(v.state, OffState::Interruptible);
    let (e, from) = waking(&r, &g, "A", 1).unwrap();
    assert_eq!((e.kind, e.weak, from.as_str()), (EdgeKind::Futex, None, "B"));
    assert_eq!((e.from_time, e.to_time), (6 * TICK, 6 * TICK));
    assert_eq!(g.outgoing(e.from).count(), 1);
}

#[test]
fn a_thread_that_waited_from_the_beginning_has_no_vertex_before() {
    let (r, g) = drawn(
        "A ....==
         B ======
         B wakes A 4 pipe",
    );
    assert_eq!(times(&g, r.thread("A")), [[0, 4, 4, 6]]);
    let first = g.vertices_of(r.thread("A")).next().unwrap();
    assert!(g.vertex(first).begun_before);
    assert_eq!(waking(&r, &g, "A", 0).unwrap().0.kind, EdgeKind::Ipc);
}

#[test]
fn an_open_wait_lasts_until_the_recording_ends() {
    let (r, g) = drawn("A ==......");
    let v = g.vertex(g.vertices_of(r.thread("A")).last().unwrap());
    assert!(v.open);
    assert_eq!((v.woken, v.end), (8 * TICK, 8 * TICK));
    assert_eq!(g.edge_count(), 0);
}

#[test]
fn a_created_thread_begins_at_its_creation() {
    let (r, g) = drawn(
        "A ========
         B    --===
         A spawns B 3",
    );
    assert_eq!(times(&g, r.thread("B")), [[3, 3, 5, 8]]);
    let (e, from) = waking(&r, &g, "B", 0).unwrap();
    assert_eq!((e.kind, from.as_str()), (EdgeKind::Spawn, "A"));
}

#[test]
fn an_exit_ends_the_last_vertex_and_wakes_the_parent() {
    let (r, g) = drawn(
        "A =.....==
         B ======
         B wakes A 6 exit",
    );
    assert_eq!(times(&g, r.thread("B")), [[0, 0, 0, 6]]);
    assert_eq!(g.exited(r.thread("B")), Some((6 * TICK, 0)));
    assert_eq!(waking(&r, &g, "A", 1).unwrap().0.kind, EdgeKind::Exit);
    assert_eq!(g.vertex_at(r.thread("B"), 7 * TICK), None);
}

/// The strength of an edge comes from what both sides did.
#[test]
fn strength_and_kind_by_what_both_did() {
    for (how, kind, weak) in [
        ("mutex", EdgeKind::Futex, Some(Weak::MutexHandOff)),
        ("cond", EdgeKind::Futex, None),
        ("pipe", EdgeKind::Ipc, None),
        ("unix", EdgeKind::Ipc, None),
        ("tcp", EdgeKind::Ipc, None),
        ("signal", EdgeKind::WakeUp, Some(Weak::Signal)),
    ] {
        let (r, g) = drawn(&format!("A =....==\nB =======\nB wakes A 5 {how}"));
        let (e, from) = waking(&r, &g, "A", 1).unwrap_or_else(|| panic!("{how}"));
        assert_eq!((e.kind, e.weak, from.as_str()), (kind, weak, "B"), "{how}");
        assert_eq!(g.vertex(e.to).interrupted, how == "signal");
    }
}

#[test]
fn an_interrupted_thread_is_no_cause() {
    for how in ["irq", "timer", "packet"] {
        let (_, g) = drawn(&format!("A =....==\nB =======\nB wakes A 5 {how}"));
        assert_eq!(g.edge_count(), 0, "{how}");
        assert_eq!(g.culled().interrupt, 1, "{how}");
    }
}

#[test]
fn a_sleep_ends_by_itself() {
    let (r, g) = drawn("A =zzzz==");
    let v = g.vertex(g.vertices_of(r.thread("A")).nth(1).unwrap());
    assert!(v.timed_out);
    assert_eq!((g.edge_count(), g.culled().timer), (0, 1));
}

/// The packet came in while C was running; B had sent it.
#[test]
fn a_packet_leads_to_its_sender() {
    let (mut r, _) = drawn(
        "A =....==..==
         B ===========
         C ===========
         B wakes A 5 tcp
         C wakes A 9 packet",
    );
    // B's second message is on record, that it woke is not.
    let pg_event::Kind::OffCpu(o) = r.events[0].kind else { panic!("A's first wait") };
    let sent = pg_event::IpcUse {
        object: o.object,
        direction: pg_event::Direction::Send,
        count: 1,
        bytes: 10,
        first: 8 * TICK,
        position: 20,
    };
    let b = r.thread("B");
    r.events.push(pg_event::Event { time: 8 * TICK, thread: b, cpu: 0, kind: pg_event::Kind::Ipc(sent) });
    r.events.sort_by_key(|e| e.time);
    let g = r.graph();
    let (e, from) = waking(&r, &g, "A", 2).unwrap();
    assert_eq!((from.as_str(), e.from_time), ("B", 8 * TICK));
    assert_eq!((e.kind, e.weak), (EdgeKind::Ipc, Some(Weak::InterruptInferred)));
}

#[test]
fn a_message_is_an_edge_also_when_nobody_waited() {
    let (r, g) = drawn(
        "A =======
         B =======
         A sends B 2 5 100",
    );
    let v = g.vertices_of(r.thread("B")).next().unwrap();
    let e = g.edge(g.incoming(v).next().unwrap());
    assert_eq!((e.kind, e.weak), (EdgeKind::Ipc, None));
    assert_eq!((e.from_time / TICK, e.to_time / TICK), (2, 5));
    assert_eq!(g.vertex(e.from).thread, r.thread("A"));
    assert_eq!(g.waking(v), None);
}

#[test]
fn the_wakers_segment_is_the_one_it_ran_then() {
    // A gets a CPU only at 9; by then B has waited and gone on.
    let (r, g) = drawn(
        "A =..------=
         B ====..====
         C ==========
         B wakes A 3 cond
         C wakes B 6 cond",
    );
    let (e, _) = waking(&r, &g, "A", 1).unwrap();
    assert_eq!(e.from, g.vertices_of(r.thread("B")).next().unwrap());
}

#[test]
fn what_happened_while_events_were_lost_is_weak() {
    let (r, g) = drawn(
        "A =....==
         B =======
         B wakes A 5 cond
         lost 5 6",
    );
    assert_eq!(g.lost(), [(5 * TICK, 6 * TICK)]);
    assert_eq!(waking(&r, &g, "A", 1).unwrap().0.weak, Some(Weak::LostEvents));
    let lanes: Vec<_> =
        g.intervals(r.thread("B"), 0..7 * TICK).map(|i| (i.0 / TICK, i.1 / TICK, i.2)).collect();
    assert_eq!(lanes, [(0, 5, LaneState::Running), (5, 6, LaneState::Lost), (6, 7, LaneState::Running)]);
}

#[test]
fn lanes_are_what_was_drawn() {
    let text = "  ==..--==DD=--=zz==";
    let (r, g) = drawn(&format!("B {}\nA {text}", "=".repeat(20)));
    let a = r.thread("A");
    let signs: Vec<char> = text.chars().collect();
    let cells = g.cells(a, 0..signs.len() as u64 * TICK, signs.len());
    let expected: Vec<LaneState> = signs
        .iter()
        .map(|c| match c {
            '=' => LaneState::Running,
            '-' => LaneState::Runnable,
            'D' => LaneState::Disk,
            ' ' => LaneState::Absent,
            _ => LaneState::Blocked,
        })
        .collect();
    assert_eq!(cells.iter().map(|c| c.state).collect::<Vec<_>>(), expected);
    assert!(cells.iter().all(|c| !c.mixed && !c.lost));
    let s = g.share(a, 0..20 * TICK);
    assert_eq!([s.running(), s.runnable(), s.blocked()].map(|x| x / TICK), [8, 4, 6]);
    // Two ticks in a cell: mixed where they differ.
    let cells = g.cells(a, 0..8 * TICK, 4);
    assert_eq!(cells.iter().map(|c| c.mixed).collect::<Vec<_>>(), [false, false, false, false]);
    assert!(g.cells(a, TICK..5 * TICK, 2)[0].mixed);
}

#[test]
fn neighbours_and_times_of_vertices() {
    let (r, g) = drawn("A ==..==..==\nB ==========\nB wakes A 4 cond\nB wakes A 8 cond");
    let a = r.thread("A");
    let all: Vec<VertexId> = g.vertices_of(a).collect();
    assert_eq!(g.next(all[0]), Some(all[1]));
    assert_eq!(g.previous(all[1]), Some(all[0]));
    assert_eq!((g.previous(all[0]), g.next(all[2])), (None, None));
    assert_eq!(g.vertex_at(a, 3 * TICK), Some(all[1]));
    assert_eq!(g.vertex_at(a, 10 * TICK), Some(all[2]));
    assert_eq!(g.vertices_in(a, 3 * TICK..7 * TICK).collect::<Vec<_>>(), all[1..]);
    assert_eq!(g.vertex_at(ThreadId(99), 0), None);
    assert_eq!(g.vertex(VertexId(999)).thread, ThreadId::NONE);
}

#[test]
fn a_long_wait_reported_while_it_goes_on_is_one_wait() {
    let (mut r, plain) = drawn(
        "A ==....==
         B ========
         B wakes A 6 cond",
    );
    let a = r.thread("A");
    let wait = |e: &pg_event::Event| matches!(e.kind, pg_event::Kind::OffCpu(o) if e.thread == a && o.woken > o.start);
    let mut report = *r.events.iter().find(|e| wait(e)).expect("the wait");
    report.time = 4 * TICK;
    if let pg_event::Kind::OffCpu(o) = &mut report.kind {
        (o.open, o.woken, o.waker) = (true, 0, ThreadId::NONE);
    }
    let at = r.events.partition_point(|e| e.time <= report.time);
    r.events.insert(at, report);
    let g = r.graph();
    assert_eq!(times(&g, a), times(&plain, a));
    assert_eq!(waking(&r, &g, "A", 1), waking(&r, &plain, "A", 1));
    // Its end was never recorded: it lasts for as long as nothing tells otherwise.
    r.events.retain(|e| !wait(e));
    let cut = r.graph();
    assert_eq!(times(&cut, a)[1][..2], [2, 8]);
}

#[test]
fn what_a_replaced_report_sent_is_not_from_somebody_else() {
    let (mut r, _) = drawn(
        "C =..=====
         A ==....==
         B ========
         B wakes C 3 cond
         B wakes A 6 cond
         A sends B 4 5 100",
    );
    let a = r.thread("A");
    let wait = |e: &pg_event::Event| matches!(e.kind, pg_event::Kind::OffCpu(o) if e.thread == a && o.woken > o.start);
    let mut report = *r.events.iter().find(|e| wait(e)).expect("the wait");
    report.time = 3 * TICK;
    if let pg_event::Kind::OffCpu(o) = &mut report.kind {
        (o.open, o.woken, o.waker) = (true, 0, ThreadId::NONE);
    }
    let at = r.events.partition_point(|e| e.time <= report.time);
    r.events.insert(at, report);
    let g = r.graph();
    let c = g.vertices_of(r.thread("C")).next().unwrap();
    assert_eq!(c, VertexId(0));
    assert_eq!(g.outgoing(c).count(), 0);
}
