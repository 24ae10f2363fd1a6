//! A unit whose thread is stopped by a signal.

use super::{LIMIT, LONG, MS, Server, guarding, known, learn, violation, wait_for};
use pg_tracer::guards::Told;
use std::process::Child;
use std::time::{Duration, Instant};

/// A signal stops the thread in the middle of a unit: it does not sleep.
#[test]
fn a_unit_that_is_stopped_by_a_signal_is_told_as_such() {
    // On a busy machine a unit may be told before this test comes to stop it: then another is.
    for _ in 0..10 {
        let Some(mut server) = Server::start() else { return };
        let learnt = learn(&mut server);
        let plan = guarding(&server, &learnt, LIMIT);
        let mut guards = server.guards_with(plan, learnt.calls.clone());
        known(&mut server, &mut guards);
        let asked = Instant::now();
        // Long enough to be looked at after the stop.
        server.ask(&format!("t {}", 5 * LONG));
        std::thread::sleep(Duration::from_millis(50));
        send_signal(&server.child, libc::SIGSTOP);
        let in_time = asked.elapsed() < Duration::from_nanos(LIMIT / 2);
        let v = in_time.then(|| violation(&mut guards));
        std::thread::sleep(Duration::from_millis(200));
        send_signal(&server.child, libc::SIGCONT);
        if let Some(v) = v {
            assert!(v.halts && v.halted > LIMIT / 4 && v.halted <= v.away, "{v:?}");
            let halted = wait_for(&mut guards, |told| match told {
                Told::Look(l) if l.number == v.number && !l.user.is_empty() => Some((l.halted, l.elapsed)),
                _ => None,
            });
            let (halted, elapsed) = halted.expect("a look at it as it goes on");
            assert!(halted > v.halted && halted < elapsed, "{halted} of {elapsed}");
            server.answer();
            return;
        }
        server.answer();
    }
    panic!("the server was never stopped within {} ms", LIMIT / 2 / MS);
}

fn send_signal(to: &Child, signal: i32) {
    #[expect(unsafe_code, reason = "the standard library sends no signal but to kill")]
    // SAFETY: a signal to a child that has not been waited for, so the number is still its own.
    let sent = unsafe { libc::kill(to.id().cast_signed(), signal) };
    assert_eq!(sent, 0);
}
