//! A stripped listener with workers, recorded for real: which worker took what the listener handed on, and how long that
//! had waited, compared with what the program itself says. Needs the right to trace and a C compiler; without them it says
//! that it is skipped.

use super::common::{can_trace_and_compile, pg_tui, text};
use serde_json::Value;
use std::collections::HashMap;
use std::path::Path;
use std::process::Command;

/// Requests; they come 1 and 4 ms apart, two workers take 3 ms for each and 9 ms for one in five.
const REQUESTS: &str = "240";
/// A wait's end as the recording has it and as the program sees it, ns.
const NEAR: i64 = 150_000;

/// Of one request, ns: put in, taken out, done; and the worker's thread id.
#[derive(Clone, Copy)]
struct Job {
    put: i64,
    taken: i64,
    done: i64,
    thread: i64,
}

/// Of one hand-over as told: to which thread, when taken, how long it waited, and when it was done.
struct Told {
    thread: i64,
    taken: i64,
    queued: i64,
    end: i64,
}

fn built(dir: &Path) {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/units/pool.c");
    let args = ["-O2", "-s", "-pthread", "-Wl,--build-id", "-o", "pool", source];
    let out = Command::new("gcc").current_dir(dir).args(args).output().expect("gcc starts");
    assert!(out.status.success(), "{}", text(&out));
}

fn jobs(out: &str) -> Vec<Job> {
    let job = |line: &str| {
        let n: Vec<i64> = line.strip_prefix("job ")?.split(' ').filter_map(|w| w.parse().ok()).collect();
        Some(Job { put: n[1], taken: n[2], done: n[3], thread: n[4] })
    };
    out.lines().filter_map(job).collect()
}

fn lines(dir: &Path) -> Vec<Value> {
    let out = pg_tui(dir).current_dir(dir).args(["units", "a.pgs", "--json", "--each"]).output();
    let out = out.expect("pg-tui starts");
    let line = |l: &str| serde_json::from_str(l).unwrap_or_else(|e| panic!("{e}: {l}"));
    String::from_utf8_lossy(&out.stdout).lines().map(line).collect()
}

/// The hand-over of each job, where there is one: both clocks run alike, so the shift between them that makes most fit.
fn side_by_side<'a>(jobs: &'a [Job], told: &'a [Told]) -> Vec<(&'a Job, &'a Told)> {
    let mut by_thread: HashMap<i64, Vec<&Told>> = HashMap::new();
    for t in told {
        by_thread.entry(t.thread).or_default().push(t);
    }
    let fits = |shift: i64| -> Vec<(&Job, &Told)> {
        let of = |j: &'a Job| {
            let near = by_thread.get(&j.thread)?.iter().min_by_key(|t| (t.taken + shift - j.taken).abs())?;
            ((near.taken + shift - j.taken).abs() <= NEAR).then_some((j, *near))
        };
        jobs.iter().filter_map(of).collect()
    };
    let first = jobs.iter().take(12);
    let shifts = first.flat_map(|j| told.iter().take(24).map(|t| j.taken - t.taken));
    shifts.map(fits).max_by_key(Vec::len).unwrap_or_default()
}

fn as_it_should_be(jobs: &[Job], lines: &[Value]) -> Result<(), String> {
    let number = |v: &Value, k: &str| v[k].as_i64().unwrap_or(0);
    let told: Vec<Told> = lines
        .iter()
        .filter_map(|l| l.get("each"))
        .map(|e| Told {
            thread: number(e, "to_tid"),
            taken: number(e, "taken_ns"),
            queued: number(e, "queued_ns"),
            end: number(e, "end_ns"),
        })
        .collect();
    let both = side_by_side(jobs, &told);
    if both.len() * 100 < jobs.len() * 85 || told.len() > jobs.len() + jobs.len() / 20 {
        return Err(format!("{} of {} jobs are among {} hand-overs", both.len(), jobs.len(), told.len()));
    }
    let median = |mut all: Vec<i64>| {
        all.sort_unstable();
        all[all.len() / 2]
    };
    let queued = median(both.iter().map(|(j, t)| (t.queued - (j.taken - j.put)).abs()).collect());
    let service = median(both.iter().map(|(j, t)| (t.end - t.taken - (j.done - j.taken)).abs()).collect());
    let mean = |of: &dyn Fn(&(&Job, &Told)) -> i64| both.iter().map(of).sum::<i64>() / both.len() as i64;
    let (truth, ours) = (mean(&|b| b.0.taken - b.0.put), mean(&|b| b.1.queued));
    if queued > 100_000 || service > 100_000 || (truth - ours).abs() > truth / 4 + 100_000 {
        return Err(format!("queued {ours} for {truth}; off by {queued}, service by {service} ns"));
    }
    let pair = lines.iter().find_map(|l| l.get("hand_over")).ok_or("no pair")?;
    let (from, to) = (pair["from"].as_str().unwrap_or(""), pair["to"].as_str().unwrap_or(""));
    let named = from.starts_with("listener: pool") && to.starts_with("worker: pool");
    let busy = pair["by_order"].as_u64().unwrap_or(0) > 20 && pair["strong"].as_u64().unwrap_or(0) > 20;
    // No tiny units of the mutex that the condition variable takes again.
    let units = lines.iter().filter_map(|l| l.get("units"));
    let works = units.filter(|u| u["name"] == pair["to"]).filter_map(|u| u["count"].as_u64()).sum::<u64>();
    let tiny = works as usize > jobs.len() + jobs.len() / 10;
    let least = lines.iter().filter_map(|l| l.get("units")).all(|u| u["count_is_least"] == true);
    if !least || lines.iter().all(|l| l.get("note").is_none()) {
        return Err("it is not said that there may be more units".into());
    }
    if named && busy && !tiny { Ok(()) } else { Err(format!("{works} units; {pair:#}")) }
}

#[test]
fn how_long_work_waited_for_a_worker() {
    if !can_trace_and_compile("how_long_work_waited_for_a_worker") {
        return;
    }
    let dir = tempfile::tempdir().expect("a folder");
    let dir = dir.path();
    built(dir);
    let mut why = String::new();
    // A switch of a thread may be missed now and then, and a listener that lacks a CPU takes several requests at once.
    for _ in 0..5 {
        let _ = std::fs::remove_file(dir.join("a.pgs"));
        let args = ["record", "--no-tui", "-o", "a.pgs", "--", "./pool", "2", REQUESTS, "4000", "3000"];
        let out = pg_tui(dir).current_dir(dir).args(args).output().expect("pg-tui starts");
        let jobs = jobs(&String::from_utf8_lossy(&out.stdout));
        assert_eq!(jobs.len().to_string(), REQUESTS, "{}", text(&out));
        match as_it_should_be(&jobs, &lines(dir)) {
            Ok(()) => return,
            Err(e) => why = e,
        }
    }
    panic!("{why}");
}
