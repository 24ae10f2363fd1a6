//! Recordings of programs that go on until what is looked for was recorded: how long a recorder takes to look
//! something up depends on what else the machine does.

use crate::{Recording, recorded_by, spawn, tell_facts};
use pg_tracer::{Collector, Options};
use std::io::Read;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// So long it is waited for; then the program goes on, and the test says what is missing.
const PATIENCE: Duration = Duration::from_secs(60);
/// What has come is looked at this often.
const LOOK: Duration = Duration::from_millis(100);

/// In a program: ends when the recording has what is looked for.
pub fn told() -> JoinHandle<()> {
    thread::spawn(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
    })
}

fn record(name: &str, options: Options, enough: &impl Fn(&Recording) -> bool) -> Recording {
    let (sender, items) = crossbeam_channel::unbounded();
    let collector = Collector::start(options, sender).unwrap();
    let mut child = spawn(name);
    collector.focus_on(child.id());
    let goes_on = child.stdin.take();
    let (tell, facts) = std::sync::mpsc::channel();
    let out = child.stdout.take().unwrap();
    let reader = thread::spawn(move || tell_facts(out, |name, value| tell.send((name, value)).is_ok()));
    let mut r = Recording::default();
    let (since, mut looked) = (Instant::now(), Instant::now());
    while since.elapsed() < PATIENCE && !reader.is_finished() {
        if let Ok(item) = items.recv_timeout(LOOK) {
            r.take(item);
        }
        if looked.elapsed() >= LOOK {
            r.facts.extend(facts.try_iter());
            if enough(&r) {
                break;
            }
            looked = Instant::now();
        }
    }
    drop(goes_on);
    reader.join().unwrap();
    assert!(child.wait().unwrap().success());
    collector.stop().unwrap();
    r.facts.extend(facts.try_iter());
    items.into_iter().for_each(|item| r.take(item));
    r.check();
    r
}

/// As [`crate::recorded`], of a program that ends when it is `told`: as soon as there is `enough`.
pub fn recorded_until(
    name: &str,
    options: &Options,
    enough: impl Fn(&Recording) -> bool,
    test: impl Fn(&Recording),
) {
    recorded_by(|| record(name, options.clone(), &enough), test);
}
