//! Readings and receptions, and what is told of them.

use super::*;
use pg_event::{Display, ObjectKind};

const LIMIT: u64 = 1000 * MS;
const TICK: u64 = 250 * MS;
const INODE: u64 = 77;

fn ends() -> Ends {
    Ends {
        kind: ObjectKind::UnixStream,
        id: INODE,
        peer: 78,
        name: "/tmp/.X11-unix/X0".into(),
        display: Display::X11,
    }
}

fn reading(waiting: u64, taken: Option<u64>) -> Reading {
    Reading { inode: INODE, pid: 9, new: false, waiting, taken, ends: ends() }
}

/// Looks every tick, at `waiting(i)` bytes each; what was told.
fn looks(
    t: &mut Tracker,
    ticks: std::ops::Range<u64>,
    waiting: impl Fn(u64) -> (u64, Option<u64>),
) -> Vec<Told> {
    let mut out = Vec::new();
    for i in ticks {
        let (n, taken) = waiting(i);
        let readings = if n == 0 { vec![] } else { vec![reading(n, taken)] };
        t.look(Look { time: i * TICK, readings });
        out.extend(t.due(i * TICK));
    }
    out
}

fn receive(t: &mut Tracker, at: u64) {
    t.received((ObjectKind::UnixStream as u8, INODE, 78), (11, 9), at, at);
}

#[test]
fn who_does_not_receive_is_told_once_and_again_when_it_goes_on() {
    let mut t = Tracker::new(LIMIT, true);
    receive(&mut t, 100 * MS);
    let told = looks(&mut t, 1..20, |i| (32 * i, None));
    let [told] = &told[..] else { panic!("{told:?}") };
    assert_eq!((told.since, told.open, told.arrived), (TICK, true, true));
    assert_eq!(told.who, Who::Thread(11, 9), "who received last");
    // A limit later, and late records must be in.
    assert!(told.until >= TICK + LIMIT + LATE - TICK && told.until <= TICK + LIMIT + 2 * TICK, "{told:?}");
    let open = t.open();
    assert!(
        open.len() == 1 && open[0].since == TICK && open[0].until == 19 * TICK && open[0].bytes == 32 * 19
    );
    // It receives: where it was seen to begin with that, not a tick later.
    receive(&mut t, 19 * TICK + 70 * MS);
    let told = looks(&mut t, 20..22, |_| (0, None));
    let [told] = &told[..] else { panic!("{told:?}") };
    assert_eq!((told.since, told.until, told.open), (TICK, 19 * TICK + 70 * MS, false));
}

#[test]
fn who_receives_is_not_told_however_full_the_queue_is() {
    let mut t = Tracker::new(LIMIT, true);
    let mut told = Vec::new();
    for i in 1..40 {
        // The record comes late.
        told.extend(looks(&mut t, i..i + 1, |_| (212_992, None)));
        receive(&mut t, i * TICK - 200 * MS);
    }
    assert!(told.is_empty(), "{told:?}");
    // The same, then it stops: since then.
    let told = looks(&mut t, 40..60, |_| (212_992, None));
    assert_eq!(told.iter().map(|t| t.since).collect::<Vec<_>>(), [39 * TICK - 200 * MS]);
}

#[test]
fn a_queue_that_shrinks_is_served() {
    for receptions in [true, false] {
        let mut t = Tracker::new(LIMIT, receptions);
        assert!(looks(&mut t, 1..60, |i| (100 + i % 4, None)).is_empty());
        assert!(looks(&mut t, 60..120, |i| (u64::from(i % 4 != 0), None)).is_empty(), "empty now and then");
    }
}

#[test]
fn where_the_kernel_counts_what_is_taken_that_decides() {
    let mut t = Tracker::new(LIMIT, false);
    assert!(looks(&mut t, 1..60, |i| (5000, Some(i))).is_empty());
    let told = looks(&mut t, 60..65, |_| (5000, Some(59)));
    assert!(told.len() == 1 && told[0].since == 59 * TICK && !told[0].arrived, "{told:?}");
}

#[test]
fn without_records_of_receptions_it_takes_longer() {
    let mut t = Tracker::new(LIMIT, false);
    assert!(looks(&mut t, 1..12, |_| (10, None)).is_empty());
    let told = looks(&mut t, 12..13, |_| (10, None));
    assert!(told.len() == 1 && told[0].who == Who::Process(9) && !told[0].arrived, "{told:?}");
}

#[test]
fn a_socket_opened_meanwhile_has_what_came_meanwhile() {
    let mut t = Tracker::new(LIMIT, true);
    let mut told = Vec::new();
    for i in 1..10 {
        t.look(Look { time: i * TICK, readings: vec![Reading { new: true, ..reading(4, None) }] });
        told.extend(t.due(i * TICK));
    }
    assert!(told.len() == 1 && told[0].arrived, "{told:?}");
    // Closed.
    t.look(Look { time: 10 * TICK, readings: vec![] });
    let told = t.due(10 * TICK);
    assert!(told.len() == 1 && !told[0].open && told[0].until == 9 * TICK);
    assert!(t.open().is_empty());
}

#[test]
fn what_had_been_there_is_told_anew_when_more_comes() {
    let mut t = Tracker::new(LIMIT, true);
    let told = looks(&mut t, 1..20, |_| (8, None));
    assert!(told.len() == 1 && !told[0].arrived, "{told:?}");
    let told = looks(&mut t, 20..30, |_| (9, None));
    assert!(told.len() == 1 && told[0].arrived && told[0].since == TICK, "{told:?}");
}
