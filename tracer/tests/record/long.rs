//! Waits that become long are reported while they last, though not every thread is looked at for that each time.

use crate::programs::{fact, tid};
use crate::{Recording, allowed, options, recorded};
use pg_tracer::{Level, Options};
use std::thread;
use std::time::Duration;

/// Until then all threads are looked at each time, and the next time some seconds later.
const FIRST: Duration = Duration::from_millis(1600);
const WAIT: Duration = Duration::from_millis(1300);

/// Two long waits of one thread, and two of new ones that do nothing else.
pub fn sleepers() {
    thread::sleep(FIRST);
    let sleeper = |name: &'static str, waits: usize| {
        thread::spawn(move || {
            fact(name, tid());
            (0..waits).for_each(|_| thread::sleep(WAIT));
        })
        .join()
        .unwrap();
    };
    sleeper("first", 2);
    sleeper("second", 1);
}

fn are_reported(r: &Recording) {
    for (name, count) in [("first", 2), ("second", 1)] {
        let waits = r.waits(name, "clock_nanosleep");
        let (open, ended): (Vec<_>, Vec<_>) = waits.iter().partition(|(_, o)| o.open);
        assert_eq!(ended.len(), count);
        for (end, wait) in ended {
            let told = open.iter().find(|(_, o)| o.start == wait.start);
            let (told, _) = told.expect("it was reported before it was over");
            assert!(told.time - wait.start >= Options::default().long_wait_ns && told.time < end.time);
        }
    }
}

#[test]
fn long_waits_are_reported_while_they_last() {
    if allowed("long_waits_are_reported_while_they_last") {
        recorded("sleepers", &options(Level::Waits), are_reported);
    }
}
