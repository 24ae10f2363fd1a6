//! Times of waits are of the clock that the thread itself reads, though the recorder reads another one at switches.

use crate::programs::{fact, tid};
use crate::{Recording, allowed, options, recorded};
use pg_tracer::Level;
use std::time::{Duration, Instant};

const SLEEPS: usize = 300;
/// One clock may be taken for so much ahead of the other one at most, ns; the time it takes to read both is in.
const APART: i64 = 20_000;

/// Sleeps, and tells when it went to and when it was back, ns since it began.
pub fn clocked() {
    let begin = Instant::now();
    let now = || begin.elapsed().as_nanos();
    let one = |_| {
        let before = now();
        std::thread::sleep(Duration::from_micros(700));
        format!("{before} {}", now())
    };
    let told: Vec<String> = (0..SLEEPS).map(one).collect();
    fact("self", tid());
    fact("sleeps", told.join(","));
}

/// Each wait lies between the two readings around it, for one and the same distance between the zero of both.
fn lie_between(r: &Recording) {
    let told = r.facts["sleeps"].split(',').map(|s| s.split_once(' ').expect("two"));
    let told: Vec<[i64; 2]> = told.map(|(a, b)| [a, b].map(|n| n.parse().expect("a number"))).collect();
    let waits = r.waits("self", "clock_nanosleep");
    let waits: Vec<_> = waits.iter().filter(|(_, o)| o.timeout == 700_000).collect();
    assert_eq!(waits.len(), told.len());
    let all = || waits.iter().zip(&told);
    let least = all().map(|((_, o), [before, _])| before - o.start as i64).max().expect("one");
    let most = all().map(|((e, _), [_, after])| after - e.time as i64).min().expect("one");
    assert!(least <= most + APART, "{least} {most}");
    println!("clocks: {} ns of room", most - least);
}

#[test]
fn waits_have_the_time_of_the_thread_that_waited() {
    if !allowed("waits_have_the_time_of_the_thread_that_waited") {
        return;
    }
    for options in crate::both_ways(Level::Waits) {
        recorded("clocked", &options, lie_between);
    }
    recorded("clocked", &options(Level::Messages), lie_between);
}
