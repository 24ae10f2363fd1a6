//! Probes that may cost little: what is told while they are not set is true, and what takes too long is seen all the same.

use super::{LIMIT, Learnt, MS, Server, guarding, known, learn, wait_for};
use pg_event::SeenBy;
use pg_tracer::guards::{Guards, Plan, Told, Violation};
use std::io::{Read, Write};
use std::time::{Duration, Instant};

/// Of the CPU time; units of a few microseconds with a probe each cost several times as much. (With less a window in which
/// a unit of [`LIMIT`] is seen comes seldom.)
const BUDGET: f64 = 0.15;

/// Threads that others have waited for without a CPU may be told as such.
fn slow(told: Told) -> Option<Violation> {
    match told {
        Told::Violation(v) if !v.is_starved() => Some(*v),
        _ => None,
    }
}

/// Units of a few microseconds for so long, between which the server never sleeps.
fn flood(server: &mut Server, guards: &mut Guards, time: Duration) -> Vec<Violation> {
    let lines = format!("{:<16}", "t 1").repeat(256);
    let (mut stdin, mut stdout) = (server.child.stdin.take().unwrap(), server.child.stdout.take().unwrap());
    let end = Instant::now() + time;
    let writer = std::thread::spawn(move || {
        let mut asked = 0;
        while Instant::now() < end {
            stdin.write_all(lines.as_bytes()).unwrap();
            asked += 256;
        }
        (stdin, asked)
    });
    let reader = std::thread::spawn(move || {
        let (mut answers, mut room) = (0, [0; 4096]);
        // As long as there are some; the last ones are taken when it is known how many there are.
        while Instant::now() < end {
            answers += stdout.read(&mut room).unwrap();
        }
        (stdout, answers)
    });
    let mut found = Vec::new();
    while !writer.is_finished() || !reader.is_finished() {
        found.extend(guards.poll(Duration::from_millis(10)).into_iter().filter_map(slow));
    }
    let ((stdin, asked), (mut stdout, answers)) = (writer.join().unwrap(), reader.join().unwrap());
    stdout.read_exact(&mut vec![0; asked - answers]).unwrap();
    (server.child.stdin, server.child.stdout) = (Some(stdin), Some(stdout));
    found
}

fn start(server: &mut Server) -> (Learnt, Guards) {
    let learnt = learn(server);
    let plan = Plan { budget: BUDGET, ..guarding(server, &learnt, LIMIT) };
    let mut guards = server.guards_with(plan, learnt.calls.clone());
    known(server, &mut guards);
    (learnt, guards)
}

#[test]
fn what_passes_unseen_is_no_long_unit() {
    let Some(mut server) = Server::start() else { return };
    let (_learnt, mut guards) = start(&mut server);
    // Many times as long as a unit may take, without a sleep.
    let told = flood(&mut server, &mut guards, Duration::from_secs(4));
    assert!(told.is_empty(), "{told:?}");
    let seen = guards.sight();
    println!("{seen:?}");
    assert!(seen.share() < 0.8 && seen.cpu > 1000 * MS, "{seen:?}");
    // In windows with probes units are counted.
    assert!(guards.counts(0).iter().map(|c| c.units).sum::<u64>() > 1000, "{:?}", guards.counts(0));
}

#[test]
fn a_slow_unit_is_seen_without_probes() {
    let Some(mut server) = Server::start() else { return };
    let (_learnt, mut guards) = start(&mut server);
    let told = flood(&mut server, &mut guards, Duration::from_secs(3));
    assert!(told.is_empty(), "{told:?}");
    for (what, us, function) in [('f', 1_500_000, "fetch"), ('t', 5_000_000, "stick")] {
        // Short ones until there are no probes.
        let since = Instant::now();
        let before = guards.sight();
        while since.elapsed() < Duration::from_millis(100) {
            server.serve("t 1");
            guards.poll(Duration::ZERO);
        }
        assert!(guards.sight().cpu > before.cpu);
        // Before it is asked: on a busy machine the unit begins before asking has returned.
        let mut asked = Instant::now();
        // One on the CPU is seen when there are probes again, which the budget may put off by more than it takes.
        let seen = (0..4).find_map(|_| {
            asked = Instant::now();
            server.ask(&format!("{what} {us}"));
            let seen = wait_for(&mut guards, slow);
            if seen.is_none() {
                server.answer();
                // What is told of its end is of no use here.
                for _ in 0..10 {
                    guards.poll(Duration::from_millis(20));
                }
            }
            seen
        });
        let v = seen.unwrap_or_else(|| panic!("{what}: {:?}", guards.sight()));
        let late = asked.elapsed();
        guards.symbolize();
        assert!(late < Duration::from_micros(us), "{what}: told after {late:?}, not while the unit ran");
        // Never longer than it took.
        assert!(
            v.elapsed > LIMIT && u128::from(v.elapsed) <= late.as_nanos(),
            "{what}: {v:?} after {late:?}"
        );
        assert!(what == 't' || v.seen == SeenBy::Asleep || v.seen == SeenBy::Switch, "{v:?}");
        let frames = guards.catalog().show_stack(v.user_stack);
        assert!(frames.iter().any(|f| f.starts_with(function)), "{what}: {frames:?}");
        server.answer();
        let ended = wait_for(&mut guards, |told| match told {
            Told::Ended(e) if e.number == v.number && e.violated => Some(e.elapsed),
            _ => None,
        });
        if let Some(elapsed) = ended {
            assert!(elapsed >= LIMIT && elapsed <= asked.elapsed().as_nanos() as u64, "{what}: {elapsed}");
        }
        println!("{what}: {} ms told after {late:?}, {:?}", v.elapsed / MS, guards.sight());
    }
}
