//! Windows and what is saved of them.

use super::trigger::Fired;
use super::window::{Snapshot, Window};
use super::*;
use crate::session::{self, Header};
use pg_event::{
    CatalogDelta, Display, Event, Forgotten, Frame, FrameId, Hold, Item, Kind, LoopTurn, Module, ModuleId,
    Ns, Object, ObjectId, ObjectKind, OffCpu, OffState, Process, ProcessId, Relation, SeenBy, Stack, StackId,
    Sysno, Thread, ThreadId, UnitTypeId, UnitTypeRow, Unserved, Violation, syscall_number,
};
use std::ops::ControlFlow;

const S: Ns = 1_000_000_000;
const MS: Ns = 1_000_000;

fn catalog(threads: u32) -> Item {
    let process = |i: u32| Process { pid: 100 + i, name: format!("p{i}"), focus: true, ..Process::default() };
    let thread = |i: u32| Thread {
        tid: 100 + i,
        process: ProcessId(i),
        name: format!("t{i}"),
        focus: true,
        ..Thread::default()
    };
    let object = |i: u32| Object::new(ObjectKind::Pipe, u64::from(i), 0);
    let frame = |i: u32| Frame { module: ModuleId(i), function: format!("f{i}"), ..Frame::default() };
    Item::Catalog(CatalogDelta {
        threads: (0..threads).map(|i| (ThreadId(i), thread(i))).collect(),
        processes: (0..threads).map(|i| (ProcessId(i), process(i))).collect(),
        objects: (0..threads).map(|i| (ObjectId(i), object(i))).collect(),
        stacks: (0..threads)
            .map(|i| (StackId(i), Stack { frames: vec![FrameId(i)], ..Stack::default() }))
            .collect(),
        frames: (0..threads).map(|i| (FrameId(i), frame(i))).collect(),
        turns: (0..threads).map(|i| (FrameId(i), LoopTurn::Asks(vec![format!("v{i}")]))).collect(),
        modules: (0..threads)
            .map(|i| (ModuleId(i), Module { path: format!("/m{i}"), ..Module::default() }))
            .collect(),
        ..CatalogDelta::default()
    })
}

fn wait(thread: u32, start: Ns, time: Ns, call: &str, open: bool) -> Event {
    let o = OffCpu {
        open,
        syscall: syscall_number(call).unwrap_or(Sysno::NONE),
        object: ObjectId(thread),
        user_stack: StackId(thread),
        ..OffCpu::new(start, if open { 0 } else { time }, OffState::Interruptible)
    };
    Event { time, thread: ThreadId(thread), cpu: 0, kind: Kind::OffCpu(o) }
}

fn limit(text: &str) -> Limit {
    Limit::parse(text).unwrap()
}

fn saved(window: &Window) -> session::Loaded {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.pgs");
    let header = Header { start_wall: 1000 * S, ..Header::default() };
    let done = save(window, &path, &header, "it hung", window.latest(), ThreadId(1))
        .unwrap()
        .join()
        .unwrap()
        .unwrap();
    assert_eq!(done.path, path);
    session::load(&path, |_| ControlFlow::Continue(())).unwrap()
}

fn events(l: &session::Loaded) -> Vec<Event> {
    l.session.items().flat_map(|i| if let Item::Events(e) = i { e } else { Vec::new() }).collect()
}

#[test]
fn limits_are_read() {
    assert_eq!(limit("60s").span, 60 * S);
    assert_eq!(limit("5m").span, 300 * S);
    assert_eq!(limit("500MB").bytes, 500 << 20);
    assert_eq!((limit("500M").bytes, limit("5m").span), (500 << 20, 300_000_000_000));
    for wrong in ["", "x", "0s", "5", "-3s", "48h", "1kb", "nan s", "1e9s"] {
        assert!(Limit::parse(wrong).is_err(), "{wrong}");
    }
}

/// A thread that has hung since long before the window is in it, with who holds what it waits for; those that
/// are gone are not; times and ids begin at 0.
#[test]
fn identities_and_open_waits_survive() {
    let mut w = Window::new(limit("10s"));
    w.item(catalog(4));
    let hold = Kind::Hold(Hold { object: ObjectId(3), subject: ThreadId(3), relation: Relation::Owns });
    w.item(Item::Events(vec![
        wait(3, S, 2 * S, "futex", true),
        Event { time: 2 * S, thread: ThreadId(2), cpu: 0, kind: hold },
        // This one went on since.
        wait(2, S, 3 * S, "futex", true),
        wait(2, S, 4 * S, "futex", false),
    ]));
    for i in 5..1000 {
        w.item(Item::Events(vec![wait(1, i * S - 500 * MS, i * S, "read", false)]));
    }
    assert!(w.span() >= 9 * S && w.span() <= 12 * S, "{}", w.span());
    let l = saved(&w);
    assert!(l.warnings.is_empty(), "{:?}", l.warnings);
    assert_eq!(l.header.start_wall, 1000 * S + 999 * S - w.span());
    let all = events(&l);
    let open: Vec<_> = all.iter().filter(|e| matches!(e.kind, Kind::OffCpu(o) if o.open)).collect();
    let [open] = open[..] else { panic!("{open:?}") };
    let Kind::OffCpu(o) = open.kind else { panic!() };
    assert!(open.time == 0 && o.start == 0 && o.begun_before, "{o:?}");
    assert_eq!(l.catalog.thread(open.thread).unwrap().name, "t3");
    let holder = all.iter().find(|e| matches!(e.kind, Kind::Hold(h) if h.subject == open.thread)).unwrap();
    assert_eq!(l.catalog.thread(holder.thread).unwrap().name, "t2");
    assert_eq!(l.catalog.object(o.object).unwrap().id, 3);
    assert_eq!(l.catalog.show_stack(o.user_stack), ["f3 (m3)"]);
    assert_eq!(*l.catalog.turn_of(o.user_stack).0, LoopTurn::Asks(vec!["v3".into()]));
    let closed: Vec<_> = all.iter().filter(|e| matches!(e.kind, Kind::OffCpu(o) if !o.open)).collect();
    assert!(
        closed.len() >= 10 && closed.len() <= 13 && closed.windows(2).all(|p| p[1].time - p[0].time == S)
    );
    assert!(closed.iter().all(|e| l.catalog.thread(e.thread).unwrap().name == "t1"));
    let notes = l.session.notes();
    assert_eq!((notes.len(), notes[0].text.as_str()), (1, "it hung"));
    assert_eq!(l.catalog.thread(notes[0].thread).unwrap().name, "t1");
    // And where to look.
    let at = w.span() as f64 / 1e9;
    let told = format!("kept by the flight recorder: it hung (--tid 101 --at {at:.3})");
    assert!(l.coverage.notes.contains(&told), "{told}: {:?}", l.coverage.notes);
}

/// Of a file that could not be written whole nothing stays, but what was there before does.
#[test]
fn what_was_there_before_a_file_that_fails_is_left_alone() {
    let mut w = Window::new(limit("10s"));
    w.item(catalog(1));
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("full");
    std::os::unix::fs::symlink("/dev/full", &path).unwrap();
    assert!(
        save(&w, &path, &Header::default(), "it hung", 0, ThreadId::NONE).unwrap().join().unwrap().is_err()
    );
    assert!(path.is_symlink());
}

/// What ended before the window began leaves no rows.
#[test]
fn rows_of_those_who_are_gone_are_left_out() {
    let mut w = Window::new(limit("2s"));
    w.item(catalog(50));
    let gone = |i: u32| Thread { tid: 100 + i, process: ProcessId(i), end: Some(S), ..Thread::default() };
    w.item(Item::Events((0..50).map(|i| wait(i, 0, S, "read", false)).collect()));
    w.item(Item::Catalog(CatalogDelta {
        threads: (2..50).map(|i| (ThreadId(i), gone(i))).collect(),
        ..CatalogDelta::default()
    }));
    for i in 2..20 {
        w.item(Item::Events(vec![wait(1, i * S - MS, i * S, "read", false)]));
    }
    let l = saved(&w);
    assert_eq!((l.catalog.threads.len(), l.catalog.processes.len()), (2, 2));
    assert_eq!((l.catalog.objects.len(), l.catalog.frames.len(), l.catalog.modules.len()), (1, 1, 1));
    assert_eq!(l.catalog.turns.len(), 1);
}

#[test]
fn a_size_bounds_the_memory() {
    let mut w = Window::new(limit("1MB"));
    w.item(catalog(4));
    let mut random = 1u64;
    let mut time = 0;
    for _ in 0..400 {
        let batch = (0..2000).map(|_| {
            random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            time += random >> 50;
            wait((random >> 20) as u32 % 4, time.saturating_sub(random >> 40), time, "read", false)
        });
        w.item(Item::Events(batch.collect()));
        assert!(w.bytes() <= 1 << 20, "{}", w.bytes());
    }
    assert!(w.bytes() > 500 << 10 && w.events() == 800_000);
    let Snapshot { chunks, from, to, .. } = w.snapshot();
    assert!(from > 0 && to == time && chunks.len() > 1);
}

fn fired(t: &mut Triggers, w: &mut Window, events: Vec<Event>) -> Option<Fired> {
    let f = t.events(&events, w.catalog());
    w.item(Item::Events(events));
    f
}

/// Look again when something else has happened at `time`.
fn tick(t: &mut Triggers, w: &mut Window, time: Ns) -> Option<Fired> {
    let kind = Kind::Lost { since: time, count: 0, ring: 0 };
    w.item(Item::Events(vec![Event { time, thread: ThreadId::NONE, cpu: 0, kind }]));
    t.tick(w)
}

#[test]
fn waits_that_are_no_waits_for_work_fire() {
    let mut w = Window::new(limit("60s"));
    w.item(catalog(4));
    let mut t = Triggers::new(Limits { wait: Some(S), ..Limits::default() });
    let idle = vec![
        wait(0, 0, 5 * S, "epoll_wait", false),
        wait(1, 0, 5 * S, "clock_nanosleep", false),
        wait(2, 5 * S - 900 * MS, 5 * S, "futex", false),
    ];
    assert_eq!(fired(&mut t, &mut w, idle), None);
    let f = fired(&mut t, &mut w, vec![wait(2, 5 * S, 6 * S + 1, "futex", false)]).unwrap();
    assert_eq!(f.thread, ThreadId(2));
    assert!(f.why.contains("p2") && f.why.contains("futex took 1.00 s, more than 1.00 s"), "{}", f.why);
    // One that goes on fires while it does, and once.
    assert_eq!(fired(&mut t, &mut w, vec![wait(3, 7 * S, 7 * S + 500 * MS, "flock", true)]), None);
    assert_eq!(tick(&mut t, &mut w, 7 * S + 600 * MS), None);
    assert!(tick(&mut t, &mut w, 8 * S + 1).unwrap().why.contains("flock"));
    assert_eq!(tick(&mut t, &mut w, 9 * S), None);
    assert_eq!(fired(&mut t, &mut w, vec![wait(3, 7 * S, 10 * S, "flock", false)]), None);
}

/// A thread of a pool that waits for work by a condition variable, one that waits for a mutex, and one that waits otherwise
/// for a lock that somebody was found to have.
#[test]
fn workers_without_work_do_not_fire() {
    let mut w = Window::new(limit("60s"));
    w.item(catalog(4));
    let worker = |i: u32| {
        (ThreadId(i), Thread { tid: 100 + i, process: ProcessId(0), focus: true, ..Thread::default() })
    };
    w.item(Item::Catalog(CatalogDelta { threads: (4..6).map(worker).collect(), ..CatalogDelta::default() }));
    let mut t = Triggers::new(Limits { wait: Some(S), ..Limits::default() });
    let of = |thread, start, value, begun_before| {
        let mut e = wait(thread, start, start + 2 * S, "futex", false);
        if let Kind::OffCpu(o) = &mut e.kind {
            (o.op, o.value, o.begun_before) = (0x189, value, begun_before);
        }
        e
    };
    assert_eq!(
        fired(&mut t, &mut w, vec![of(4, 0, 7, false), of(0, 0, 7, true), of(0, 3 * S, 104, false)]),
        None
    );
    assert!(fired(&mut t, &mut w, vec![of(4, 6 * S, 2, false)]).unwrap().why.contains("futex"));
    assert!(
        fired(&mut t, &mut w, vec![of(0, 9 * S, 7, false)]).is_some(),
        "a main thread waits for a result"
    );
    let held = Kind::Hold(Hold { object: ObjectId(5), subject: ThreadId(5), relation: Relation::Owns });
    let held = Event { time: 12 * S + 1, thread: ThreadId(4), cpu: 0, kind: held };
    assert!(fired(&mut t, &mut w, vec![held, of(5, 12 * S, 7, false)]).is_some());
    assert_eq!(fired(&mut t, &mut w, vec![of(5, 15 * S, 7, false)]), None, "that was another wait");
}

#[test]
fn long_turns_of_event_loops_fire() {
    let mut w = Window::new(limit("60s"));
    w.item(catalog(4));
    let mut t = Triggers::new(Limits { turn: Some(200 * MS), ..Limits::default() });
    assert_eq!(fired(&mut t, &mut w, vec![wait(0, 0, S, "epoll_wait", false)]), None);
    // Nothing else has come yet: that may be under way.
    assert_eq!(t.tick(&w), None);
    // Within its turn it blocks elsewhere; the turn is short.
    let short =
        vec![wait(0, S + MS, S + 50 * MS, "futex", false), wait(0, S + 100 * MS, 2 * S, "epoll_wait", false)];
    assert_eq!(fired(&mut t, &mut w, short), None);
    let f = fired(&mut t, &mut w, vec![wait(0, 2 * S + 300 * MS, 3 * S, "epoll_wait", false)]).unwrap();
    assert!(f.why.contains("a turn of its event loop took 300 ms"), "{}", f.why);
    // One that does not come back.
    assert_eq!(tick(&mut t, &mut w, 3 * S + 100 * MS), None);
    assert!(tick(&mut t, &mut w, 3 * S + 201 * MS).is_some());
    assert_eq!(tick(&mut t, &mut w, 4 * S), None);
    assert_eq!(
        fired(&mut t, &mut w, vec![wait(0, 5 * S, 6 * S, "epoll_wait", false)]),
        None,
        "it was told already"
    );
}

#[test]
fn named_calls_and_run_times_fire() {
    let mut w = Window::new(limit("60s"));
    w.item(catalog(4));
    let calls = vec![(syscall_number("fsync").unwrap(), 100 * MS)];
    let mut t = Triggers::new(Limits { calls, runtime: Some(10 * S), ..Limits::default() });
    let quick = vec![wait(0, 0, 50 * MS, "fsync", false), wait(1, 0, S, "futex", false)];
    assert_eq!(fired(&mut t, &mut w, quick), None);
    assert!(fired(&mut t, &mut w, vec![wait(0, S, 2 * S, "fsync", false)]).unwrap().why.contains("fsync"));
    // All processes so far began before the recording.
    assert_eq!(tick(&mut t, &mut w, 100 * S), None);
    let young = Process { pid: 7, name: "job".into(), start: 95 * S, focus: true, ..Process::default() };
    w.item(Item::Catalog(CatalogDelta { processes: vec![(ProcessId(4), young)], ..CatalogDelta::default() }));
    assert_eq!(tick(&mut t, &mut w, 100 * S), None);
    assert!(tick(&mut t, &mut w, 106 * S).is_some() && tick(&mut t, &mut w, 107 * S).is_none());
    // The command was there before, too, but a moment only.
    let mut w = Window::new(limit("60s"));
    w.item(catalog(4));
    let mut t = Triggers::new(Limits { runtime: Some(10 * S), ..Limits::default() }).of_command(Some(102));
    assert_eq!(tick(&mut t, &mut w, 9 * S), None);
    assert_eq!(tick(&mut t, &mut w, 11 * S).map(|f| f.thread), Some(ThreadId(2)));
}

/// A unit that took too long before the window and sleeps on is kept with its stacks and its type; one whose thread
/// went on is not, nor one that ended.
#[test]
fn units_that_hang_since_before_the_window_are_kept() {
    let mut w = Window::new(limit("5s"));
    w.item(catalog(5));
    let unit_type = |i: u32| (UnitTypeId(i), UnitTypeRow { name: format!("u{i}"), ..UnitTypeRow::default() });
    w.item(Item::Catalog(CatalogDelta {
        unit_types: (0..5).map(unit_type).collect(),
        ..CatalogDelta::default()
    }));
    let at = |time, t, kind| Event { time, thread: ThreadId(t), cpu: 0, kind };
    let seen = |t: u32, start, time, at: SeenBy| {
        let (unit_type, user_stack, kernel_stack) = (UnitTypeId(t), StackId(t), StackId(0));
        let elapsed = time - start;
        let v = Violation {
            start,
            elapsed,
            threshold: MS,
            unit_type,
            user_stack,
            kernel_stack,
            depth: 1,
            at,
            stolen: 0,
        };
        Event { time, thread: ThreadId(t), cpu: 0, kind: Kind::Violation(v) }
    };
    let violation = |t, start, time| seen(t, start, time, SeenBy::Asleep);
    w.item(Item::Events(vec![violation(2, S, 2 * S), violation(3, S, 2 * S), violation(4, S, 2 * S)]));
    let ended = Kind::UnitBoundary { unit_type: UnitTypeId(4), begin: false };
    w.item(Item::Events(vec![wait(3, S, 3 * S, "futex", false), at(3 * S, 4, ended)]));
    // A further look at it takes nobody's place.
    w.item(Item::Events(vec![seen(2, S, 4 * S, SeenBy::Look)]));
    let gone = Forgotten {
        stacks: (0..5).map(StackId).collect(),
        frames: (0..5).map(FrameId).collect(),
        ..Forgotten::default()
    };
    w.item(Item::Catalog(CatalogDelta { forgotten: gone, ..CatalogDelta::default() }));
    for i in 5..40 {
        w.item(Item::Events(vec![wait(1, i * S - 500 * MS, i * S, "read", false)]));
    }
    assert_eq!(w.catalog().counts()[3], 2, "only the stacks of what is kept stay");
    w.item(Item::Events(vec![violation(2, S, 40 * S)]));
    let l = saved(&w);
    let kept: Vec<_> = events(&l)
        .into_iter()
        .filter_map(|e| match e.kind {
            Kind::Violation(v) => {
                Some((e.time, v.elapsed, l.catalog.unit_type(v.unit_type)?.name.clone(), v.user_stack))
            }
            _ => None,
        })
        .collect();
    let [(time, elapsed, name, stack)] = &kept[..] else { panic!("{kept:?}") };
    assert_eq!((*elapsed, name.as_str()), (39 * S, "u2"));
    assert_eq!(*time, w.span());
    assert_eq!(l.catalog.show_stack(*stack), ["f2 (m2)"]);
}

fn unserved(object: u32, since: Ns, until: Ns, open: bool, display: Display) -> Event {
    let u = Unserved { object: ObjectId(object), since, until, bytes: 9, open, arrived: false, display };
    Event { time: until, thread: ThreadId(1), cpu: 0, kind: Kind::Unserved(u) }
}

#[test]
fn connections_that_are_not_served_fire_once() {
    let mut w = Window::new(limit("60s"));
    w.item(catalog(4));
    let mut t = Triggers::new(Limits { unserved: Some(S), ..Limits::default() });
    let none =
        vec![unserved(0, S, 3 * S, true, Display::None), unserved(1, S, 2 * S - 1, true, Display::X11)];
    assert_eq!(fired(&mut t, &mut w, none), None, "of no interest, and too short");
    let f = fired(&mut t, &mut w, vec![unserved(1, S, 2 * S, true, Display::X11)]).unwrap();
    assert!(
        f.thread == ThreadId(1) && f.why.contains("p1") && f.why.contains("its event queue"),
        "{}",
        f.why
    );
    assert_eq!(fired(&mut t, &mut w, vec![unserved(1, S, 9 * S, false, Display::X11)]), None);
    assert!(fired(&mut t, &mut w, vec![unserved(1, 10 * S, 12 * S, true, Display::X11)]).is_some());
}

/// A window that has hung for an hour is the one that is looked for.
#[test]
fn connections_not_served_since_before_the_window_are_kept() {
    let mut w = Window::new(limit("5s"));
    w.item(catalog(4));
    w.item(Item::Events(vec![
        unserved(2, S, 2 * S, true, Display::X11),
        unserved(3, S, 2 * S, true, Display::Wayland),
        unserved(3, S, 3 * S, false, Display::Wayland),
    ]));
    for i in 4..40 {
        w.item(Item::Events(vec![wait(1, i * S - MS, i * S, "read", false)]));
    }
    let l = saved(&w);
    let [u] = l.graph.unserved() else { panic!("{:?}", l.graph.unserved()) };
    assert_eq!((u.display, u.since, l.catalog.object(u.object).unwrap().id), (Display::X11, 0, 2));
}

/// Rows that the source does not name any more leave when the window has passed them, but for those of a wait that
/// goes on; all the others stay.
#[test]
fn rows_leave_with_the_events_that_named_them() {
    const STEP: u32 = 50;
    let mut w = Window::new(limit("10s"));
    let mut kept = Vec::new();
    for second in 0..200u32 {
        let from = second * STEP;
        let Item::Catalog(mut rows) = catalog(from + STEP) else { unreachable!() };
        rows.threads.retain(|r| r.0.0 >= from);
        rows.processes.retain(|r| r.0.0 >= from);
        rows.objects.retain(|r| r.0.0 >= from);
        rows.stacks.retain(|r| r.0.0 >= from);
        rows.frames.retain(|r| r.0.0 >= from);
        rows.turns.retain(|r| r.0.0 >= from);
        // What came ten seconds ago is not named any more.
        let gone = from.saturating_sub(10 * STEP)..from.saturating_sub(9 * STEP);
        rows.forgotten = Forgotten {
            threads: gone.clone().map(ThreadId).collect(),
            processes: gone.clone().map(ProcessId).collect(),
            objects: gone.clone().map(ObjectId).collect(),
            stacks: gone.clone().map(StackId).collect(),
            frames: gone.map(FrameId).collect(),
        };
        w.item(Item::Catalog(rows));
        let now = u64::from(second) * S;
        let mut events: Vec<_> =
            (from..from + STEP).map(|i| wait(i, now, now + MS, "futex", false)).collect();
        if second == 3 {
            // It hangs from here on.
            events.push(wait(from, now + 2 * MS, now + 500 * MS, "read", true));
        }
        w.item(Item::Events(events));
        kept.push(w.catalog().counts());
    }
    let most = kept.iter().flatten().max().unwrap();
    assert!(*most <= 31 * STEP as usize, "{kept:?}");
    let l = saved(&w);
    let all = events(&l);
    assert!(all.len() as u32 >= 10 * STEP);
    for e in &all {
        assert!(l.catalog.thread(e.thread).is_some_and(|t| t.tid >= 100), "{e:?}");
        if let Kind::OffCpu(o) = e.kind {
            assert_eq!(l.catalog.show_stack(o.user_stack).len(), 1, "{e:?}");
            assert!(l.catalog.object(o.object).is_some());
            assert_ne!(*l.catalog.turn_of(o.user_stack).0, LoopTurn::Unknown);
        }
    }
    let hangs =
        all.iter().find(|e| matches!(e.kind, Kind::OffCpu(o) if o.open)).expect("the wait that goes on");
    assert_eq!(l.catalog.thread(hangs.thread).unwrap().name, format!("t{}", 3 * STEP));
}
