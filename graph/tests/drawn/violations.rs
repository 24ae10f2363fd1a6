//! Units that took too long: as victims, and beside a normal unit of their type.

use crate::draw::{Drawing, ns};
use pg_event::{ObjectKind, OffState, SeenBy, StackId, ThreadId, UnitTypeId};
use pg_graph::report::Report;
use pg_graph::{
    BlockType, Diagnosis, Options, Selection, Step, Victim, VictimOptions, ViolationFact, compare,
    run_with_policy, select, victims,
};

/// Two workers of a server. Each unit asks a database (20 ms, as always) and takes a lock; in the last one of the first
/// worker the lock is held by the second for 60 ms, and the disk takes 15 ms.
struct Server {
    d: Drawing,
    workers: [ThreadId; 2],
    get: UnitTypeId,
    query: StackId,
}

fn server(slow_lock: f64) -> Server {
    let mut d = Drawing::new(5.0);
    let main = d.process("shopd", "shopd -D", None, 0.0);
    let one = d.thread(main, "worker-1", 0.0);
    let two = d.thread(main, "worker-2", 0.0);
    let db = d.process("db", "db", None, 0.0);
    let get = d.unit_type("GET /", 0.022, 0.04);
    let query = d.stack(&["recv (libc.so.6)", "query (shopd)", "serve (shopd)", "loop (shopd)"]);
    let lock = d.stack(&["futex (libc.so.6)", "Cache::get (shopd)", "serve (shopd)", "loop (shopd)"]);
    let idle = d.stack(&["epoll_wait (libc.so.6)", "loop (shopd)"]);
    let evict = d.stack(&["evict_all (shopd)", "serve (shopd)", "loop (shopd)"]);
    let disk = d.stack(&["fsync (libc.so.6)", "save (shopd)", "serve (shopd)", "loop (shopd)"]);
    let word = d.object(ObjectKind::Futex, 0x40, 1, "");
    let file = d.object(ObjectKind::File, 9, 9, "/srv/shop/data");
    d.wait(main, 0.1, 5.0, "pause").open();
    let mut at = [0.1, 0.15];
    for n in 0..9 {
        let w = n % 2;
        let (t, mine) = ([one, two][w], d.object(ObjectKind::Tcp, 50 + n as u64, 60 + n as u64, ""));
        let (start, slow) = (0.3 + 0.1 * n as f64, n == 8);
        d.wait(t, at[w], start, "epoll_wait").stack(idle).timer();
        d.wait(t, start + 0.001, start + 0.021, "recvfrom").on(mine).stack(query).by(db, "sendto", mine);
        let had = if slow { slow_lock } else { 0.0012 };
        d.wait(t, start + 0.0215, start + 0.0215 + had, "futex").on(word).stack(lock).by(
            if slow { two } else { t },
            "futex",
            word,
        );
        let mut end = start + 0.0225 + had;
        if slow {
            let fsync = d.wait(t, end, end + 0.015, "fsync").on(file).stack(disk);
            fsync.state(OffState::Uninterruptible).interrupted();
            end += 0.016;
            d.wait(two, at[1], start + 0.0205, "epoll_wait").stack(idle).timer();
            d.runs(two, start + 0.0206, start + 0.0215 + had, evict);
            d.wait(two, start + 0.0225 + had, 5.0, "epoll_wait").stack(idle).open();
            d.violation(t, get, (start, start + 0.041), (lock, 3), SeenBy::Asleep);
        }
        d.unit(t, get, (start, end));
        at[w] = end;
    }
    d.wait(one, at[0], 5.0, "epoll_wait").stack(idle).open();
    Server { d, workers: [one, two], get, query }
}

fn worst(d: Drawing) -> (Report, Victim) {
    let (g, c) = d.build();
    let v = select(&g, &c, &Selection::default(), &VictimOptions::default()).unwrap();
    (run_with_policy(&g, &c, v.clone(), Options::default()), v)
}

/// It waited longest for the database, as always; what is not usual is the wait for the lock.
#[test]
fn what_is_unusual_counts_and_not_what_takes_longest() {
    let s = server(0.018);
    let (r, v) = worst(s.d);
    assert_eq!((v.thread, v.block_type), (s.workers[0], BlockType::LongWait));
    assert_eq!((v.waits_on.as_deref(), v.start), (Some("futex"), ns(1.1)), "{}", v.summary);
    assert!(v.summary.contains("slow unit (type GET /)"), "{}", v.summary);
    let way: Vec<_> = r.slice.iter().map(|n| n.thread.as_str()).collect();
    assert_eq!(way, ["worker-1", "worker-2"]);
    assert_eq!(r.root_causes[0].function.as_deref(), Some("evict_all"), "{:#?}", r.root_causes);

    let u = r.victim.unit.unwrap();
    let violation = &u.violation;
    assert_eq!(
        (violation.number, violation.unit_type.as_str(), violation.at.as_str()),
        (1, "GET /", "asleep")
    );
    assert!(violation.elapsed_ns.abs_diff(ns(0.041)) < 10 && violation.threshold_ns == ns(0.04));
    assert_eq!((violation.distance, violation.stack.len()), (Some(3), 4));
    assert!(
        violation.duration_ns.is_some() && violation.excess > 1.3 && violation.excess < 1.5,
        "{violation:?}"
    );
    let n = u.normal.as_ref().unwrap();
    assert!(n.of == 8 && n.duration_ns.abs_diff(ns(0.0237)) < 10, "{n:?}");
    let parts: Vec<_> =
        u.parts.iter().map(|p| (p.what.as_str(), p.function.as_deref().unwrap_or(""))).collect();
    assert_eq!(parts[..2], [("futex", "Cache::get"), ("disk", "save")], "{:?}", u.parts);
    let db = u.parts.iter().find(|p| p.what == "tcp").unwrap();
    assert!(db.ns.abs_diff(db.normal_ns.unwrap()) < 1000, "{db:?}");
    assert_eq!(
        u.words,
        "its unit (type GET /) took 56 ms and may take 40 ms (1000 that were learnt from took 22 ms on average); \
         a normal one, shopd/worker-1:1001 at 0.300 s, took 24 ms: this one spent 17 ms more in waits (futex) of \
         Cache::get, 15 ms more in waits (disk) of save"
    );
}

#[test]
fn a_slow_unit_is_told_once_and_others_stay() {
    let mut s = server(1.0);
    // A second report of the same unit, later, from elsewhere, is where it was seen; and a victim of another kind.
    s.d.violation(s.workers[0], s.get, (1.1, 1.9), (s.query, 1), SeenBy::Switch);
    let other = s.d.process("batch", "batch", None, 0.0);
    let far = s.d.object(ObjectKind::FileLock, 1, 1, "/lock");
    s.d.wait(other, 0.1, 4.0, "flock").on(far).timer();
    let (g, c) = s.d.build();
    let [v] = g.violations() else { panic!("{:?}", g.violations()) };
    assert_eq!((v.user_stack, v.depth, v.at, v.ended), (s.query, 1, SeenBy::Switch, true));
    assert!(v.duration() > ns(1.0) && v.sigmas(&c).unwrap() > 100.0);
    let all = victims(&g, &c, &VictimOptions::default());
    let kinds: Vec<_> = all.iter().map(|v| (v.thread, v.violation.is_some())).collect();
    // The wait for the lock, long enough to be found by itself, is part of the unit.
    assert_eq!(kinds, [(other, false), (s.workers[0], true), (s.workers[1], false)], "{all:#?}");
}

#[test]
fn without_a_normal_unit_it_is_said() {
    let mut d = Drawing::new(3.0);
    let t = d.process("shopd", "shopd", None, 0.0);
    let get = d.unit_type("GET /", 0.02, 0.04);
    let lock = d.object(ObjectKind::FileLock, 1, 1, "/run/shop.lock");
    let stack = d.stack(&["flock (libc.so.6)", "take (shopd)", "loop (shopd)"]);
    // A unit that began and did not end before the recording did, a slow one of which nobody told, and one of unknown
    // type: none of them is normal.
    d.unit(t, get, (0.1, 0.9));
    d.unit(t, UnitTypeId::NONE, (0.95, 0.96));
    d.wait(t, 1.01, 3.0, "flock").on(lock).stack(stack).open();
    d.violation(t, get, (1.0, 1.041), (stack, 2), SeenBy::Asleep);
    let (r, v) = worst(d);
    let unit = r.victim.unit.unwrap();
    assert_eq!((unit.normal, unit.violation.duration_ns), (None, None));
    assert!(
        unit.words.ends_with("no normal unit of this type was recorded to compare it with"),
        "{}",
        unit.words
    );
    assert!(unit.parts.iter().all(|p| p.normal_ns.is_none()));
    // Without an end that was seen, the wait in which it was found belongs to it.
    assert_eq!((v.start, v.end()), (ns(1.0), ns(3.0)));
    assert!(unit.words.contains("took at least 2.00 s"), "{}", unit.words);
    assert_eq!(v.waits_on.as_deref(), Some("file-lock"));
}

#[test]
fn units_on_the_cpu_are_told_by_their_profile() {
    let mut d = Drawing::new(3.0);
    let t = d.process("shopd", "shopd", None, 0.0);
    let get = d.unit_type("GET /", 0.02, 0.04);
    let idle = d.stack(&["epoll_wait (libc.so.6)", "loop (shopd)"]);
    let render = d.stack(&["render (shopd)", "serve (shopd)", "loop (shopd)"]);
    let regex = d.stack(&["backtrack (shopd)", "match_route (shopd)", "serve (shopd)", "loop (shopd)"]);
    d.wait(t, 0.1, 0.5, "epoll_wait").stack(idle).timer();
    d.runs(t, 0.5, 0.52, render);
    d.unit(t, get, (0.5, 0.52));
    d.wait(t, 0.52, 1.0, "epoll_wait").stack(idle).timer();
    d.runs(t, 1.0, 1.15, regex);
    d.violation(t, get, (1.0, 1.041), (regex, 3), SeenBy::Sample);
    d.unit(t, get, (1.0, 1.15));
    d.wait(t, 1.15, 3.0, "epoll_wait").stack(idle).open();
    let (g, c) = d.build();
    let v = select(&g, &c, &Selection::default(), &VictimOptions::default()).unwrap();
    assert_eq!((v.block_type, v.start, v.duration), (BlockType::LongRunning, ns(1.0), ns(1.15) - ns(1.0)));
    let r = run_with_policy(&g, &c, v, Options::default());
    assert_eq!(r.root_causes[0].function.as_deref(), Some("backtrack"));
    let both = compare(&g, &c, &g.violations()[0]);
    assert_eq!(
        (both.slow.function.as_deref(), both.normal.function.as_deref()),
        (Some("backtrack"), Some("render"))
    );
    assert_eq!(both.parts[0].what, "running");
}

/// A guard tells no ends: the unit goes on until the thread waits for events again, unless it was over when it was seen.
#[test]
fn units_end_where_the_thread_waits_for_events_again() {
    let mut d = Drawing::new(9.0);
    let t = d.process("shopd", "shopd", None, 0.0);
    let get = d.unit_type("GET /", 0.02, 0.04);
    let idle = d.stack(&["epoll_wait (libc.so.6)", "loop (shopd)"]);
    let work = d.stack(&["render (shopd)", "loop (shopd)"]);
    let (poll, lock) = (d.object(ObjectKind::Epoll, 7, 0, ""), d.object(ObjectKind::FileLock, 1, 1, "/lock"));
    d.wait(t, 0.1, 1.0, "epoll_wait").on(poll).stack(idle).timer();
    d.runs(t, 1.0, 1.5, work);
    d.wait(t, 1.5, 1.7, "flock").on(lock).stack(work).timer();
    d.runs(t, 1.7, 1.9, work);
    d.violation(t, get, (1.0, 1.041), (work, 1), SeenBy::Sample);
    d.wait(t, 1.9, 3.0, "epoll_wait").on(poll).stack(idle).timer();
    d.runs(t, 3.0, 3.1, work);
    d.violation(t, get, (3.0, 3.1), (work, 0), SeenBy::End);
    d.wait(t, 3.1, 9.0, "epoll_wait").on(poll).stack(idle).open();
    let (g, _) = d.build();
    let told: Vec<_> = g.violations().iter().map(|v| (v.until, v.ended)).collect();
    assert_eq!(told, [(ns(1.9), false), (ns(3.1), true)]);
}

/// Nor does a thread that has ended.
#[test]
fn a_unit_ends_with_its_thread() {
    let mut d = Drawing::new(9.0);
    let main = d.process("shopd", "shopd", None, 0.0);
    let t = d.thread(main, "client", 0.5);
    let get = d.unit_type("GET /", 0.02, 0.04);
    let work = d.stack(&["render (shopd)", "serve (shopd)"]);
    d.wait(main, 0.1, 9.0, "accept").open();
    d.wait(t, 0.5, 1.0, "recvfrom").timer();
    d.violation(t, get, (1.0, 1.041), (work, 1), SeenBy::Asleep);
    d.unit_begins(t, 1.0);
    d.exit(t, 1.06);
    let (g, _) = d.build();
    let told: Vec<_> = g.violations().iter().map(|v| (v.until, v.ended)).collect();
    assert_eq!(told, [(ns(1.06), true)]);
}

/// Another thread had the CPU; and whoever may as well be idle does not come before what a guard told.
#[test]
fn units_that_had_no_cpu_blame_who_had_it() {
    let mut d = Drawing::new(5.0);
    let t = d.process("shopd", "shopd", None, 0.0);
    let pool = d.thread(t, "pool", 0.0);
    let hog = d.process("hog", "hog", None, 0.0);
    let get = d.unit_type("GET /", 0.02, 0.04);
    let idle = d.stack(&["epoll_wait (libc.so.6)", "loop (shopd)"]);
    let spin = d.stack(&["spin (hog)"]);
    let word = d.object(ObjectKind::Futex, 0x77, 2, "");
    d.wait(t, 0.1, 1.0, "epoll_wait").stack(idle).timer();
    d.put_off(t, 1.005, 1.3);
    d.unit(t, get, (1.0, 1.306));
    d.violation(t, get, (1.0, 1.041), (idle, 0), SeenBy::Switch);
    d.wait(t, 1.306, 5.0, "epoll_wait").stack(idle).open();
    d.wait(pool, 0.1, 5.0, "futex").on(word).op(9, 0).open();
    d.wait(hog, 0.1, 1.005, "pause").timer();
    d.runs(hog, 1.005, 1.3, spin);
    d.wait(hog, 1.301, 5.0, "pause").open();
    let (g, c) = d.build();
    let all = victims(&g, &c, &VictimOptions { innocents: true, ..VictimOptions::default() });
    let first = &all[0];
    assert!(first.violation.is_some() && first.thread == t, "{all:#?}");
    assert!(all.iter().any(|v| v.thread == pool && v.duration > first.duration), "{all:#?}");
    let r = run_with_policy(&g, &c, first.clone(), Options::default());
    assert_eq!((r.slice[0].state.as_str(), r.slice[0].waits_on.as_deref()), ("runnable", Some("run-queue")));
    assert_eq!(r.root_causes[0].process.as_deref(), Some("hog"), "{:#?}", r.root_causes);
}

/// Nobody woke it: the normal unit shows who should have, and no question is asked of which wait to compare with.
#[test]
fn the_normal_unit_is_the_baseline_without_a_question() {
    let mut d = Drawing::new(9.0);
    let app = d.process("app", "app", None, 0.0);
    let producer = d.thread(app, "producer", 0.0);
    let helper = d.thread(app, "helper", 0.0);
    let get = d.unit_type("job", 0.03, 0.1);
    let word = d.object(ObjectKind::Futex, 0x2000, 1, "");
    let at = d.stack(&["pthread_cond_wait (libc.so.6)", "Queue::pop (app)", "consume (app)"]);
    let busy = d.stack(&["rebuild_index (app)", "produce (app)"]);
    for i in 0..5 {
        let t = 1.0 + f64::from(i) * 0.5;
        // Waits like it outside of units ended by another thread, later than those within.
        d.wait(app, t, t + 0.02, "futex").on(word).stack(at).by(producer, "futex", word);
        d.unit(app, get, (t - 0.001, t + 0.021 + f64::from(i) * 0.001));
        d.wait(app, t + 0.2, t + 0.22, "futex").on(word).stack(at).by(helper, "futex", word);
    }
    let helping = d.stack(&["help (app)"]);
    d.runs(producer, 5.0, 9.0, busy);
    d.runs(helper, 5.0, 9.0, helping);
    d.wait(app, 5.5, 9.0, "futex").on(word).stack(at).open();
    d.violation(app, get, (5.49, 5.6), (at, 2), SeenBy::Asleep);
    let (g, c) = d.build();
    let of = |v: &Victim| {
        let mut d = Diagnosis::new(&g, &c, v.clone(), Options::default());
        let (mut asked, mut report) = (false, None);
        while report.is_none() {
            match d.next() {
                Step::Ask(q) => {
                    asked = true;
                    d.answer(q.recommended, pg_graph::By::Policy);
                }
                Step::Progress(_) => {}
                Step::Done(r) => report = Some(*r),
            }
        }
        (asked, report.unwrap())
    };
    let s = Selection { tid: Some(1000), ..Selection::default() };
    let v = select(&g, &c, &s, &VictimOptions::default()).unwrap();
    let (asked, r) = of(&v);
    assert!(!asked, "the normal unit is chosen by itself");
    assert_eq!(r.root_causes[0].thread.as_deref(), Some("producer"), "{r:#?}");
    // The same hang without the guard's word for it is a question of which similar wait counts.
    let plain = Victim { violation: None, ..v };
    assert!(of(&plain).0, "else it is asked");
}

/// Of a unit whose thread was not recorded there is nothing to diagnose, but it is listed.
#[test]
fn units_of_threads_that_were_not_recorded_are_listed() {
    let mut d = Drawing::new(3.0);
    let t = d.process("shopd", "shopd", None, 0.0);
    let get = d.unit_type("", 0.02, 0.04);
    let stack = d.stack(&["serve (shopd)"]);
    d.violation(t, get, (1.0, 1.041), (stack, 0), SeenBy::Context);
    d.violation(t, UnitTypeId(77), (2.0, 2.041), (stack, 0), SeenBy::Context);
    let (g, c) = d.build();
    assert_eq!(g.violations().len(), 2);
    assert!(victims(&g, &c, &VictimOptions::default()).is_empty());
    let words = |i: usize| pg_graph::words::unit_type(&c, g.violations()[i].unit_type);
    assert_eq!((words(0).as_str(), words(1).as_str()), ("type 0", "unknown type"));
    let info = pg_graph::violation_info(&g, &c, &g.violations()[0], 1);
    assert_eq!((info.distance, info.unit_type.as_str()), (None, ""));
}

/// What a slow unit did with its time, whether it ended or goes on.
#[test]
fn what_a_slow_unit_did_with_its_time_is_told() {
    let mut d = Drawing::new(4.0);
    let t = d.process("shopd", "shopd", None, 0.0);
    let (get, unknown) = (d.unit_type("GET /", 0.02, 0.04), d.unknown_type("nobody looked"));
    let stack = d.stack(&["serve (shopd)"]);
    d.wait(t, 0.5, 1.0, "epoll_wait").timer();
    d.wait(t, 1.1, 1.6, "fsync").queued(0.2).interrupted();
    d.unit(t, get, (1.0, 2.0));
    d.violation(t, get, (1.0, 1.7), (stack, 0), SeenBy::Sample);
    d.wait(t, 2.0, 2.5, "epoll_wait").timer();
    d.wait(t, 2.6, 4.0, "recvfrom").open();
    d.violation(t, unknown, (2.5, 3.5), (stack, 0), SeenBy::Asleep);
    let (g, c) = d.build();
    let spent = |i: usize| {
        let info = pg_graph::violation_info(&g, &c, &g.violations()[i], i + 1);
        // A drawn thread takes a microsecond to wake.
        let ms = |ns: u64| (ns + 500_000) / 1_000_000;
        ([info.on_cpu_ns, info.ready_ns, info.asleep_ns].map(ms), info.type_unknown)
    };
    assert_eq!(spent(0), ([300, 200, 500], None));
    assert_eq!(spent(1), ([100, 0, 1400], Some("nobody looked".into())));
    let words = |i: usize| g.spent(&c, &g.violations()[i]).words();
    assert_eq!(words(0), "300 ms on a CPU, 200 ms ready without a CPU, 500 ms asleep");
    assert_eq!(words(1), "100 ms on a CPU, 1.40 s asleep");
    let on_a_guest = ViolationFact { stolen: ns(0.2), ..g.violations()[0] };
    assert_eq!(
        g.spent(&c, &on_a_guest).words(),
        "100 ms on a CPU, 200 ms the host had its CPU, 200 ms ready without a CPU, 500 ms asleep"
    );
    assert_eq!(pg_graph::words::unit_type(&c, unknown), "unknown type");
}

/// A signal stops the thread in the middle of a unit: that is no sleep, and where it met it is not where the time went.
#[test]
fn a_unit_that_was_stopped_is_told_as_such() {
    let mut d = Drawing::new(4.0);
    let (t, shell) = (d.process("shopd", "shopd", None, 0.0), d.process("bash", "bash", None, 0.0));
    let get = d.unit_type("GET /", 0.02, 0.04);
    let stack = d.stack(&["serve (shopd)", "main (shopd)"]);
    d.wait(t, 0.5, 1.0, "epoll_wait").timer();
    d.signal(shell, t, 19, 1.2);
    d.wait(t, 1.2, 1.7, "sendto").state(OffState::Stopped).interrupted();
    d.unit(t, get, (1.0, 2.0));
    for at in [1.1, 1.15, 1.8, 1.9] {
        d.violation(t, get, (1.0, at), (stack, 1), SeenBy::Sample);
    }
    d.wait(t, 2.0, 3.0, "epoll_wait").timer();
    d.unit(t, get, (3.0, 3.3));
    d.violation(t, get, (3.0, 3.1), (stack, 1), SeenBy::Sample);
    d.wait(t, 3.1, 3.2, "nanosleep").timer();
    d.wait(t, 3.3, 3.9, "epoll_wait").timer();
    let (g, c) = d.build();
    let of = |i: usize| pg_graph::violation_info(&g, &c, &g.violations()[i], i + 1);
    let ms = |ns: u64| (ns + 500_000) / 1_000_000;
    assert_eq!((ms(of(0).stopped_ns), ms(of(0).asleep_ns), of(0).mostly), (500, 0, None));
    assert_eq!(of(0).stopped_by.as_deref(), Some("by SIGSTOP of bash (pid 1001)"));
    let words = |i: usize| g.spent_words(&c, &g.violations()[i]);
    assert_eq!(words(0), "500 ms on a CPU, 500 ms stopped by SIGSTOP of bash (pid 1001)");
    // The signal was an earlier unit's.
    assert_eq!((of(1).stopped_ns, of(1).stopped_by, ms(of(1).asleep_ns)), (0, None, 100));
}

/// A worker finishes one unit, takes 10 ms to get a CPU for the next that a listener woke it for, and is slow.
#[test]
fn who_handed_a_slow_unit_on() {
    let mut d = Drawing::new(3.0);
    let listener = d.process("shopd", "shopd", None, 0.0);
    let worker = d.thread(listener, "worker", 0.0);
    let (accept, get) = (d.unit_type("accept", 0.001, 0.01), d.unit_type("GET /", 0.02, 0.04));
    let word = d.object(ObjectKind::Futex, 0x40, 1, "");
    let listens = d.object(ObjectKind::Tcp, 80, 0, "");
    let stack = d.stack(&["compute (shopd)", "loop (shopd)"]);
    d.wait(listener, 0.1, 1.0, "accept4").on(listens).timer();
    d.wait(worker, 0.1, 1.02, "futex").on(word).op(137, 0).queued(0.01).by(listener, "futex", word);
    d.unit(listener, accept, (1.0, 1.05));
    d.wait(listener, 1.05, 3.0, "accept4").on(listens).open();
    d.violation(worker, get, (1.03, 1.1), (stack, 1), SeenBy::Sample);
    d.unit(worker, get, (1.03, 1.2));
    d.wait(worker, 1.2, 3.0, "futex").on(word).op(137, 0).open();
    let (r, _) = worst(d);
    let unit = r.victim.unit.unwrap();
    let by = unit.violation.handed_on.as_ref().expect("the listener");
    assert_eq!(
        (by.unit_type.as_str(), by.time_ns, by.queued_ns, by.runnable_ns),
        ("accept", ns(1.02), ns(0.01), ns(0.01))
    );
    assert!(by.strong && by.busy_ns == 0);
    assert!(
        unit.words
            .contains("handed on by shopd:1000 10 ms before it was taken (10 ms without a CPU), at 1.020 s"),
        "{}",
        unit.words
    );
}

/// A listener that hands a request on at `handed`, and a worker that waits for a CPU for `queued` then, and is slow.
fn transaction(handed: f64, queued: f64) -> Drawing {
    let mut d = Drawing::new(9.0);
    let listener = d.process("shopd", "shopd", None, 0.0);
    let worker = d.thread(listener, "worker", 0.0);
    let (accept, get) = (d.unit_type("accept", 0.001, 9.0), d.unit_type("GET /", 0.02, 0.04));
    let word = d.object(ObjectKind::Futex, 0x40, 1, "");
    let listens = d.object(ObjectKind::Tcp, 80, 0, "");
    let (parses, stack) = (d.stack(&["parse (shopd)"]), d.stack(&["compute (shopd)", "loop (shopd)"]));
    let taken = handed + queued;
    d.wait(listener, 0.1, 1.0, "accept4").on(listens).timer();
    d.wait(worker, 0.1, handed, "futex").on(word).op(137, 0).queued(queued).by(listener, "futex", word);
    d.unit(listener, accept, (1.0, handed + 0.005));
    d.runs(listener, 1.0, handed + 0.005, parses);
    d.wait(listener, handed + 0.005, 9.0, "accept4").on(listens).open();
    d.violation(worker, get, (taken, taken + 0.05), (stack, 1), SeenBy::Sample);
    d.unit(worker, get, (taken, taken + 0.1));
    d.runs(worker, taken, taken + 0.1, stack);
    d.wait(worker, taken + 0.1, 9.0, "futex").on(word).op(137, 0).open();
    d
}

#[test]
fn a_slow_transaction_is_diagnosed_where_most_of_its_time_went() {
    let of = |handed, queued| {
        let (g, c) = transaction(handed, queued).build();
        let v = g.violations()[0];
        let way = g.slow_way(&c, &v).expect("the listener handed it on");
        let name = |t| c.thread(t).unwrap().name.clone();
        let all: Vec<_> = way.parts.iter().map(|p| (name(p.thread), p.start, p.end, p.queued)).collect();
        let (taken, done) = (ns(handed + queued), ns(handed + queued + 0.1));
        let expected = [
            ("shopd".to_owned(), ns(1.0), ns(handed), false),
            ("worker".into(), ns(handed), taken, true),
            ("worker".into(), taken, done, false),
        ];
        assert_eq!(all, expected);
        let victim = pg_graph::way_victim(&g, &c, &v, &way).unwrap();
        (name(victim.thread), victim.start, victim.end(), victim.violation.is_some(), way.words(&c))
    };
    // The listener takes long before it hands on.
    let (thread, start, end, slow, words) = of(1.5, 0.02);
    assert_eq!((thread.as_str(), start, end, slow), ("shopd", ns(1.0), ns(1.5), false));
    assert_eq!(
        words,
        "the transaction took 620 ms, 500 ms of that in the unit of shopd:1000, before it was handed on"
    );
    // It lies in the queue.
    let (thread, start, end, slow, words) = of(1.05, 0.4);
    assert_eq!((thread.as_str(), start, end, slow), ("worker", ns(1.05), ns(1.45), false));
    assert!(words.contains("took 550 ms, 400 ms of that handed on, until shopd/worker"), "{words}");
    // The slow unit itself.
    let (thread, start, _, slow, words) = of(1.01, 0.01);
    assert_eq!((thread.as_str(), start, slow), ("worker", ns(1.02), true));
    assert!(words.contains("in the slow unit"), "{words}");
}

/// A unit that nobody is known to have handed on is no transaction.
#[test]
fn without_a_hand_over_there_is_no_transaction() {
    let mut d = Drawing::new(3.0);
    let t = d.process("shopd", "shopd", None, 0.0);
    let get = d.unit_type("GET /", 0.02, 0.04);
    let stack = d.stack(&["serve (shopd)"]);
    d.violation(t, get, (1.0, 1.041), (stack, 0), SeenBy::Context);
    d.unit(t, get, (1.0, 1.1));
    let (g, c) = d.build();
    assert_eq!(g.slow_way(&c, &g.violations()[0]), None);
}

/// Looks at a unit that was told are no violations: they tell where most of its time went, and not where it was caught.
#[test]
fn looks_tell_where_most_of_a_slow_unit_went() {
    let mut s = server(1.0);
    let [compare, swap] = ["compare (shopd)", "swap (shopd)"]
        .map(|inner| s.d.stack(&[inner, "sort (shopd)", "serve (shopd)", "loop (shopd)"]));
    for (at, stack) in [(1.3, compare), (1.6, swap), (1.9, compare)] {
        s.d.violation(s.workers[0], s.get, (1.1, at), (stack, 3), SeenBy::Look);
    }
    // Of another unit only looks were recorded.
    s.d.violation(s.workers[1], s.get, (1.0, 1.05), (compare, 3), SeenBy::Look);
    let (g, c) = s.d.build();
    let [v] = g.violations() else { panic!("{:?}", g.violations()) };
    assert_eq!((v.at, v.depth, v.excess() > 20.0), (SeenBy::Asleep, 3, true));
    let most = g.mostly(&c, v).unwrap();
    assert_eq!(most.frames, ["sort (shopd)", "serve (shopd)", "loop (shopd)"]);
    assert_eq!((most.stacks, (most.share * 100.0).round()), (4, 95.0));
    let info = pg_graph::violation_info(&g, &c, v, 1);
    assert_eq!(info.mostly.unwrap().words(), "95 % in sort (shopd) and what it calls (4 stacks)");
}

/// What is withdrawn is no violation, and is there as evidence; what exceeds the limit of the type that it turned out to be
/// is one, seen then.
#[test]
fn what_turns_out_to_be_of_a_slower_type_is_no_violation() {
    let mut d = Drawing::new(9.0);
    let t = d.process("shopd", "shopd", None, 0.0);
    let [get, report] =
        [("GET /", 0.02, 0.04), ("report", 0.3, 0.5)].map(|(name, mean, most)| d.unit_type(name, mean, most));
    let [parse, print] =
        ["parse (shopd)", "print (shopd)"].map(|f| d.stack(&[f, "serve (shopd)", "loop (shopd)"]));
    for start in [1.0, 3.0, 5.0] {
        d.violation(t, get, (start, start + 0.041), (parse, 2), SeenBy::Sample);
        d.violation(t, get, (start, start + 0.06), (parse, 2), SeenBy::Look);
    }
    // Two turn out to be reports, one of which takes too long for that, too; the third does not.
    for start in [1.0, 3.0] {
        d.violation(t, report, (start, start + 0.1), (StackId::NONE, 0), SeenBy::Withdrawn);
    }
    d.violation(t, report, (3.0, 3.51), (print, 2), SeenBy::Switch);
    for (of, start, end) in [(report, 1.0, 1.35), (report, 3.0, 4.0), (get, 5.0, 5.2)] {
        d.unit(t, of, (start, end));
    }
    let (g, c) = d.build();
    let told: Vec<_> = g.violations().iter().map(|v| (v.start, v.time, v.unit_type, v.user_stack)).collect();
    assert_eq!(
        told,
        [(ns(3.0), ns(3.51), report, print), (ns(5.0), ns(5.041), get, parse)],
        "{:?}",
        g.violations()
    );
    let [w] = g.withdrawn() else { panic!("{:?}", g.withdrawn()) };
    assert_eq!((w.told.start, w.told.time, w.told.unit_type), (ns(1.0), ns(1.041), get));
    assert_eq!((w.told.user_stack, w.told.duration(), w.told.ended), (parse, ns(0.35), true));
    assert_eq!((w.unit_type, w.threshold), (report, ns(0.5)));
    let info = pg_graph::withdrawn_info(&g, &c, w);
    assert_eq!((info.number, info.stack.len()), (0, 3));
    assert_eq!(info.withdrawn.map(|w| w.unit_type).as_deref(), Some("report"));
    // It is a normal one of its type.
    assert_eq!(g.normal_unit(report).map(|n| n.unit.start), Some(ns(1.0)));
}

/// Without looks, what was recorded of its thread tells it: here three sleeps in what the loop calls.
#[test]
fn samples_and_sleeps_tell_where_most_of_a_slow_unit_went() {
    let s = server(0.018);
    let (g, c) = s.d.build();
    let most = g.mostly(&c, &g.violations()[0]).unwrap();
    assert_eq!((most.frames, most.stacks), (["serve (shopd)", "loop (shopd)"].map(String::from).into(), 3));
    let s = server(0.3);
    let (g, c) = s.d.build();
    let most = g.mostly(&c, &g.violations()[0]).unwrap();
    assert_eq!(most.frames[0], "Cache::get (shopd)", "most of it in one of them: {:?}", most.frames);
}
