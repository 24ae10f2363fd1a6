//! A big session: first frame, graph ready, slicing, keys. Not a test: it prints what it measures.
//!
//! `cargo bench --bench large` generates a session (once, into the target folder), loads it in a process of
//! its own, diagnoses its victims, and drives the real program in a pseudo-terminal.

mod generate;
mod screen;

use pg_graph::{By, Diagnosis, Options, Step, VictimOptions, victims};
use pg_tui::session::{Header, Writer, load};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [word, file] = &args[..]
        && word == "--load"
    {
        return load_and_slice(Path::new(file));
    }
    let file = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("large.pgs");
    generate_session(&file);
    println!("machine            {}", machine());
    let me = std::env::current_exe().expect("own file");
    let status = Command::new(me).arg("--load").arg(&file).status().expect("it starts");
    assert!(status.success(), "loading failed: {status}");
    screen::measure(&file);
}

fn generate_session(file: &Path) {
    let header = Header { version: "bench".into(), host: "bench".into(), cpus: 2, ..Header::default() };
    let mut writer = Writer::create(file, &header).expect("a file");
    generate::generate(generate::FULL, |item| writer.item(&item).expect("written"));
    let bytes = writer.finish().expect("written");
    println!("session            {:.1} MB", bytes as f64 / 1e6);
}

fn load_and_slice(file: &Path) {
    let start = Instant::now();
    let loaded = load(file, |_| ControlFlow::Continue(())).expect("it loads");
    let ready = start.elapsed();
    let graph = &loaded.graph;
    println!(
        "graph              {} events, {} vertices, {} edges, {} threads",
        graph.event_count(),
        graph.vertex_count(),
        graph.edge_count(),
        graph.threads().count()
    );
    println!("graph ready        {:.2} s, peak memory {:.2} GB", ready.as_secs_f64(), peak_memory());
    let start = Instant::now();
    let found = victims(graph, &loaded.catalog, &VictimOptions::default());
    println!("victims            {} in {:.1} ms", found.len(), ms(start.elapsed()));
    let mut steps = Vec::new();
    for victim in found.into_iter().take(10) {
        let mut diagnosis = Diagnosis::new(graph, &loaded.catalog, victim, Options::default());
        loop {
            let start = Instant::now();
            let step = diagnosis.next();
            let question = matches!(&step, Step::Ask(_));
            if let Step::Ask(q) = &step {
                diagnosis.answer(q.recommended, By::Policy);
            }
            steps.push(start.elapsed());
            if !question && matches!(step, Step::Done(_)) {
                break;
            }
        }
    }
    steps.sort_unstable();
    println!("slicing            {} steps, {}", steps.len(), spread(&steps));
}

/// Median and worst of sorted durations.
pub fn spread(sorted: &[Duration]) -> String {
    match (sorted.get(sorted.len() / 2), sorted.last()) {
        (Some(median), Some(worst)) => format!("median {:.2} ms, worst {:.2} ms", ms(*median), ms(*worst)),
        _ => "none".into(),
    }
}

/// Milliseconds.
pub fn ms(d: Duration) -> f64 {
    d.as_secs_f64() * 1e3
}

/// Highest resident size of this process, GB.
fn peak_memory() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let kb = status
        .lines()
        .find_map(|l| l.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB")?.parse::<f64>().ok());
    kb.unwrap_or(0.0) / 1e6
}

fn machine() -> String {
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    let cpuinfo = read("/proc/cpuinfo");
    let model = cpuinfo
        .lines()
        .find_map(|l| l.strip_prefix("model name"))
        .map_or("", |m| m.trim_start_matches(['\t', ':', ' ']));
    let cpus = std::thread::available_parallelism().map_or(0, usize::from);
    format!("{cpus} CPUs, {model}, Linux {}", read("/proc/sys/kernel/osrelease").trim())
}
