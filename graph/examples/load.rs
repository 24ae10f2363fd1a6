//! Builds the graph of a simulated session and says how long it took:
//!
//! ```text
//! cargo run --release -p pg-graph --features sim --example load -- [EVENTS] [THREADS]
//! ```
//!
//! Measured once on two cores of a busy VM, CPU time of the one building thread: 19.0 M events (9 M of them
//! system call records), 2.61 M vertices, 3.57 M edges, 679 threads: built in 2.4 s, frozen in 1.6 s, peak
//! 1.22 GB; 60 lanes of 200 cells 0.9 ms over the whole session, 0.2 ms over a millisecond; the bounded path
//! of one thread over the whole session (65,928 steps) 12 ms.

use pg_graph::sim::{Load, Size};
use pg_graph::{BuildOptions, Builder};
use std::time::Duration;

/// CPU time of this thread so far: what counts on a machine where others work too.
fn cpu() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    Duration::from_nanos(text.split_whitespace().next().and_then(|n| n.parse().ok()).unwrap_or(0))
}

/// CPU time since.
fn since(start: Duration) -> Duration {
    cpu().saturating_sub(start)
}

fn peak_kb() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|l| l.starts_with("VmHWM"));
    line.map_or("?".into(), |l| l.trim_start_matches("VmHWM:").trim().to_string())
}

fn main() {
    let mut numbers = std::env::args().skip(1).filter_map(|a| a.parse::<u64>().ok());
    let events = numbers.next().unwrap_or(Size::ARGUS.events);
    let threads = numbers.next().map_or(Size::ARGUS.threads, |n| n as usize);
    let mut load = Load::new(Size { threads, events });
    let catalog = load.catalog().clone();
    let mut builder = Builder::new(BuildOptions::default());
    let (mut making, mut building) = (Duration::ZERO, Duration::ZERO);
    loop {
        let start = cpu();
        let Some(batch) = load.next_batch() else { break };
        making += since(start);
        let start = cpu();
        builder.events(batch, &catalog);
        building += since(start);
    }
    let start = cpu();
    let g = builder.finish(load.duration(), &catalog);
    let freezing = since(start);
    let n = g.event_count();
    println!("{n} events, {} vertices, {} edges, {threads} threads", g.vertex_count(), g.edge_count());
    println!("{:.1} s of session, made in {making:.1?}", g.duration() as f64 / 1e9);
    let rate = n as f64 / (building + freezing).as_secs_f64() / 1e6;
    println!("CPU time: built in {building:.2?}, frozen in {freezing:.2?}: {rate:.1} M events/s");
    println!("columns {} MB, peak {}", g.memory() >> 20, peak_kb());
    let lanes: Vec<_> = g.threads().take(60).collect();
    for (what, from, to) in [
        ("whole", 0, g.duration()),
        ("a tenth", g.duration() / 3, g.duration() / 3 + g.duration() / 10),
        ("a millisecond", g.duration() / 2, g.duration() / 2 + 1_000_000),
    ] {
        // The clock of CPU time is coarse: many turns, as a screen that is redrawn.
        let start = cpu();
        let turns = 50;
        let mut cells = 0;
        for _ in 0..turns {
            cells = lanes.iter().map(|t| g.cells(*t, from..to, 200).len()).sum();
        }
        println!("{cells} cells of {what}: {:.2?}", since(start) / turns);
    }
    let start = cpu();
    let thread = lanes[0];
    let path = pg_graph::path::bounded(&g, thread, 0..g.duration());
    println!("bounded path of the whole session: {} steps in {:.2?}", path.len(), since(start));
}
