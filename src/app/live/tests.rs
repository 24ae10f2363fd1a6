//! The live list: order, filter, words.

use super::*;

fn row(tid: u32, doing: Doing, since: u64, holders: usize) -> Row {
    let holder = pg_tracer::live::Holder {
        pid: 7,
        process: "payd\u{1b}[2J".into(),
        tid: 7,
        relation: Relation::Writes,
    };
    Row {
        pid: tid,
        tid,
        process: "shop\u{1b}]0;x\u{7}".into(),
        thread: "shop".into(),
        cmdline: String::new(),
        doing,
        since,
        longer: true,
        cpu: if doing == Doing::Runs { 0.5 } else { 0.0 },
        call: "read".into(),
        object: "pipe:[7]".into(),
        members: Vec::new(),
        holders: vec![holder; holders],
        parent: 0,
        opens: false,
        circle: Vec::new(),
        likely: false,
    }
}

#[test]
fn who_idles_is_shown_on_request_only() {
    let mut s = LiveState::default();
    s.set(vec![
        Row { call: "epoll_wait".into(), ..row(1, Doing::Waits, 5 * LONG, 0) },
        row(2, Doing::Waits, 2 * LONG, 1),
        row(3, Doing::Runs, 0, 0),
        row(4, Doing::Stopped, LONG, 0),
        row(5, Doing::Waits, 9 * LONG, 1),
    ]);
    let order = |s: &LiveState| s.rows.iter().map(|r| r.tid).collect::<Vec<_>>();
    assert_eq!(order(&s), [4, 5, 2, 3]);
    assert_eq!(s.selected, Some(4));
    s.go(Move::By(2), 10);
    assert_eq!(s.run(Cmd::LiveAll, 10), None);
    assert_eq!((order(&s), s.selected), (vec![4, 5, 2, 3, 1], Some(2)));
    s.go(Move::Last, 10);
    // That it is idle is no hang: who wants it recorded will make it hang.
    assert_eq!(s.run(Cmd::RecordThis, 10), Some(Left::Record { pid: 1, hangs: false }));
    for (move_, hangs) in [(Move::First, true), (Move::By(1), true), (Move::By(2), false)] {
        s.go(move_, 10);
        let Some(Left::Record { hangs: told, .. }) = s.run(Cmd::RecordThis, 10) else { panic!() };
        assert_eq!(told, hangs, "{:?}", s.selected);
    }
    assert_eq!(s.run(Cmd::Quit, 10), Some(Left::Quit));
}

#[test]
fn threads_are_filtered_by_name_id_and_wait() {
    let named = |tid, name: &str, object: &str, holders| Row {
        process: name.into(),
        object: object.into(),
        ..row(tid, Doing::Waits, u64::from(tid) * LONG, holders)
    };
    let mut s = LiveState::default();
    s.set(vec![
        named(11, "nginx", "socket:[4]", 0),
        named(12, "Postgres", "pipe:[8]", 1),
        named(13, "shopd", "file:/srv/orders", 1),
    ]);
    let order = |s: &LiveState| s.rows.iter().map(|r| r.tid).collect::<Vec<_>>();
    assert_eq!((order(&s), s.context()), (vec![13, 12], Context::Live));
    assert_eq!(s.run(Cmd::LiveFilter, 10), None);
    assert_eq!(s.context(), Context::Text);
    // Who idles is found by name, too.
    s.type_in("nGinx");
    assert_eq!((order(&s), s.selected), (vec![11], Some(11)));
    s.run(Cmd::EraseWord, 10);
    s.type_in("read pipe");
    assert_eq!(order(&s), [12], "every word must be there, in the wait as well");
    s.run(Cmd::EraseAll, 10);
    s.type_in("1");
    assert_eq!(order(&s).len(), 3);
    s.type_in("3");
    assert_eq!(order(&s), [13]);
    // What quits elsewhere is text here; the filter stays when it is done, also for the next look.
    assert_eq!(s.run(Cmd::Quit, 10), None);
    s.run(Cmd::Accept, 10);
    assert_eq!(s.context(), Context::Live);
    s.set(vec![named(12, "postgres", "pipe:[8]", 1), named(13, "shopd", "file:/srv/orders", 1)]);
    assert_eq!(order(&s), [13]);
    assert_eq!(s.run(Cmd::Cancel, 10), None, "esc takes the filter away first");
    assert_eq!(order(&s), [13, 12]);
    assert_eq!(s.run(Cmd::Cancel, 10), None, "as everywhere, q quits");
    s.run(Cmd::LiveFilter, 10);
    s.type_in("zzz");
    assert!(s.rows.is_empty() && s.current().is_none());
    s.run(Cmd::CloseText, 10);
    assert_eq!((order(&s), s.typing), (vec![13, 12], false));
}

#[test]
fn event_loops_idle_and_circles_come_first() {
    let mut s = LiveState::default();
    let event_loop = Row { members: vec!["pipe:[1]".into(); 3], ..row(2, Doing::Waits, 3 * LONG, 1) };
    let ring = |tid, circle: &[u32]| Row { circle: circle.into(), ..row(tid, Doing::Waits, LONG, 1) };
    s.set(vec![
        row(1, Doing::Waits, 5 * LONG, 1),
        event_loop,
        ring(3, &[3, 4]),
        ring(4, &[4, 3]),
        ring(5, &[3, 4]),
    ]);
    assert_eq!(s.rows.iter().map(|r| r.tid).collect::<Vec<_>>(), [3, 4, 1, 5]);
    assert_eq!(circle(&s.rows[1], s.all()), "shop:4 -> shop:3 -> shop:4");
    assert_eq!(circle(&s.rows[3], s.all()), "waits for it: shop:3 -> shop:4 -> shop:3");
    assert_eq!(circle(&s.rows[2], s.all()), "");
    // FIFOs opened crosswise: nobody is known to hold anything, and the circle is a likely one.
    let fifo = |tid, circle: &[u32]| {
        let r = row(tid, Doing::Waits, 2 * LONG, 0);
        Row {
            circle: circle.into(),
            likely: true,
            opens: true,
            call: "openat".into(),
            object: "fifo:/a".into(),
            ..r
        }
    };
    s.set(vec![row(1, Doing::Waits, 5 * LONG, 1), fifo(6, &[6, 7]), fifo(7, &[7, 6])]);
    assert_eq!(s.rows.iter().map(|r| r.tid).collect::<Vec<_>>(), [6, 7, 1]);
    assert_eq!(circle(&s.rows[0], s.all()), "as it seems: shop:6 -> shop:7 -> shop:6");
    let both = ("openat fifo:/a".to_owned(), "nobody has opened the other end".to_owned());
    assert_eq!(waits(&s.rows[0], &[]), both);
}

#[test]
fn who_stands_still_is_shown_though_nobody_is_known_to_hold_it() {
    let thread = |pid, tid, call: &str| Row { pid, call: call.into(), ..row(tid, Doing::Waits, 9 * LONG, 0) };
    let idle = |pid, tid| Row { object: String::new(), ..thread(pid, tid, "epoll_wait") };
    let of_a_child = Row { pid: 30, ..row(30, Doing::Waits, 9 * LONG, 1) };
    let mut s = LiveState::default();
    s.set(vec![
        // Both threads wait for a word of memory.
        thread(10, 10, "futex"),
        thread(10, 11, "futex"),
        // So do a pool's, beside a thread that takes work.
        thread(20, 20, "futex"),
        thread(20, 21, "futex"),
        idle(20, 22),
        // What a main thread waits for is known: the others may have nothing to do.
        of_a_child,
        thread(30, 31, "futex"),
        // Nothing of it may be read.
        thread(40, 40, ""),
        // It has waited for a moment only, or for a person.
        Row { since: LONG / 2, ..thread(50, 50, "recvfrom") },
        Row { object: "/dev/pts/3".into(), ..thread(60, 60, "read") },
        // The computing one does not make it idle.
        thread(70, 70, "recvfrom"),
        Row { pid: 70, ..row(71, Doing::Runs, 0, 0) },
    ]);
    let shown: Vec<u32> = s.rows.iter().map(|r| r.tid).collect();
    assert_eq!(shown, [10, 11, 30, 70, 71]);
    s.go(Move::First, 10);
    assert_eq!(s.run(Cmd::RecordThis, 10), Some(Left::Record { pid: 10, hangs: true }));
}

#[test]
fn a_shell_that_waits_for_its_command_comes_after_a_lock_and_before_idlers() {
    let mut of_child = row(1, Doing::Waits, 9 * LONG, 1);
    let idle = Row { call: "accept4".into(), ..row(0, Doing::Waits, 20 * LONG, 0) };
    of_child.holders[0].relation = Relation::ChildOf;
    let mut rows = vec![idle, of_child, row(2, Doing::Waits, LONG, 1)];
    sort(&mut rows);
    assert_eq!(rows.iter().map(|r| r.tid).collect::<Vec<_>>(), [2, 1, 0]);
}

#[test]
fn what_is_waited_for_is_told_harmlessly() {
    let (what, who) = waits(&row(1, Doing::Waits, LONG, 1), &[]);
    assert_eq!(what, "read pipe:[7]");
    assert_eq!(who, "payd\u{fffd}[2J:7 (can write it)");
    // A thread of the same process is called by its name.
    let owner = Row { thread: "transfer".into(), ..row(7, Doing::Waits, LONG, 0) };
    let waiter = Row { pid: 7, ..row(8, Doing::Waits, LONG, 1) };
    assert_eq!(waits(&waiter, &[owner]).1, "transfer:7 (can write it)");
    assert_eq!(waits(&waiter, &[]).1, "thread 7 (can write it)");
    assert_eq!(since(&row(1, Doing::Waits, 2 * LONG, 0)), "> 2.00 s");
    assert_eq!(since(&row(1, Doing::Runs, 0, 0)), "50 %");
}
