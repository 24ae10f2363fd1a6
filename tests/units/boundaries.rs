//! The event loops of a stripped program that is recorded for real, and which of their waits lie between two units.

use super::common::{can_trace_and_compile, pg_tui, text};
use pg_event::{Catalog, Item, ThreadId};
use pg_tracer::units::{EventLoop, Places, Seen, Wait};
use pg_tui::session::Session;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// How often each request is sent.
const ROUNDS: u64 = 60;

fn built(dir: &Path) {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/units/boundaries.c");
    let out = Command::new("gcc")
        .args(["-O2", "-s", "-pthread", "-o", "server", source])
        .current_dir(dir)
        .output()
        .expect("gcc starts");
    assert!(out.status.success(), "{}", text(&out));
}

/// The event loop with most waits of each thread, by the thread's name.
fn recorded(dir: &Path) -> BTreeMap<String, EventLoop> {
    let file = dir.join("a.pgs");
    let _ = std::fs::remove_file(&file);
    let out = pg_tui(dir)
        .args(["record", "--no-tui", "-o"])
        .arg(&file)
        .args(["--", "./server", &ROUNDS.to_string()])
        .current_dir(dir)
        .output()
        .expect("it starts");
    let session = Session::open(&file).unwrap_or_else(|e| panic!("{e}: {}", text(&out)));
    let (mut catalog, mut seen) = (Catalog::default(), Seen::default());
    for item in session.items() {
        match item {
            Item::Catalog(delta) => {
                catalog.apply(delta);
            }
            Item::Events(events) => {
                for e in events {
                    seen.event(&catalog, e.thread, &e.kind);
                }
            }
            Item::End { .. } => {}
        }
    }
    let name = |t: ThreadId| catalog.threads[t.index()].name.clone();
    let found = seen.event_loops(&catalog, &mut Places::default());
    found.into_iter().map(|(t, mut loops)| (name(t), loops.swap_remove(0))).collect()
}

/// One boundary, at nearly as many waits as there were units; at least so many other waits within them.
fn as_it_should_be(
    of: Option<&EventLoop>,
    wait: Wait,
    call: &str,
    units: u64,
    inside: u64,
) -> Result<(), String> {
    let l = of.ok_or("no loop")?;
    let [b] = l.boundary.as_slice() else { return Err(format!("not one boundary: {l:?}")) };
    let right = b.wait == wait && b.syscall.is_any(&[call]);
    let often = (units * 8 / 10..=units + units / 10).contains(&b.waits) && l.waits >= b.waits + inside;
    if right && often && l.turns > 0 { Ok(()) } else { Err(format!("{l:?}")) }
}

#[test]
fn requests_and_jobs_are_units_and_what_they_wait_for_is_inside() {
    if !can_trace_and_compile("requests_and_jobs_are_units_and_what_they_wait_for_is_inside") {
        return;
    }
    let dir = tempfile::tempdir().expect("a folder");
    built(dir.path());
    let mut why = String::new();
    // A switch of a thread may be missed now and then, and a busy machine may keep a thread from waiting.
    for _ in 0..3 {
        let found = recorded(dir.path());
        let of = |name| found.get(name);
        let server = as_it_should_be(of("server"), Wait::Input, "poll", 3 * ROUNDS, ROUNDS / 2);
        let worker = as_it_should_be(of("worker"), Wait::Signal, "futex", ROUNDS, ROUNDS / 2);
        match server.and(worker) {
            Ok(()) => return,
            Err(e) => why = e,
        }
    }
    panic!("{why}");
}
