//! A server on io_uring: the turns of its loop are units, learnt, and guarded as found and as given.

use super::common::{Guard, can_trace_and_compile, pg_tui, text};
use super::fed::Fed;
use serde_json::Value;
use std::path::Path;
use std::process::Output;
use std::time::Duration;

const LIMIT: &str = "300ms";

/// The server, kept busy with work that takes 2 ms and some that takes none. `None` where the kernel lets nobody use io_uring.
fn server(dir: &Path) -> Option<Fed> {
    let started = Fed::start(dir, "tests/units/uring.c", b"qw".iter().map(|k| vec![*k]).collect());
    // Without io_uring it has ended.
    started.map_err(|code| assert_eq!(code, Some(77))).ok()
}

/// Guards the server while it is given slow work a few times. Returns what was told of such, and all that was said.
fn guarded(dir: &Path, server: &Fed, args: &[&str]) -> (Vec<Value>, Output) {
    let guard = Guard::start(
        pg_tui(dir).args(["guard", "--json", "-p", &server.pid().to_string(), "-d", "60"]).args(args),
    );
    for _ in 0..3 {
        server.ask(b"s");
        std::thread::sleep(Duration::from_millis(900));
    }
    let out = guard.end();
    let lines =
        String::from_utf8_lossy(&out.stdout).lines().filter_map(|l| serde_json::from_str(l).ok()).collect();
    let all: Vec<Value> = lines;
    let slow = all.into_iter().filter(|v| v["event"] == "violation");
    (slow.filter(|v| goes_by(v, "nap") && goes_by(v, "handle")).collect(), out)
}

fn goes_by(v: &Value, function: &str) -> bool {
    let frame = format!("{function} (uring)");
    v["stack"].as_array().is_some_and(|s| s.iter().any(|f| f.as_str().is_some_and(|f| f.starts_with(&frame))))
}

#[test]
fn turns_of_a_loop_on_io_uring() {
    if !can_trace_and_compile("turns_of_a_loop_on_io_uring") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let Some(server) = server(dir.path()) else {
        println!("skipped: the kernel has no io_uring, or refuses it (kernel.io_uring_disabled)");
        return;
    };
    let profile = dir.path().join("uring.pgprof");
    let profile = profile.to_str().unwrap();
    let run = |args: &[&str]| pg_tui(dir.path()).args(args).output().unwrap();
    let trained =
        run(&["train", "-p", &server.pid().to_string(), "-d", "1", "--measure", "1", "-o", profile]);
    let said = text(&trained);
    assert!(trained.status.success(), "{said}");
    let shown = run(&["profile", "show", "--json", profile]);
    let shown: Value = serde_json::from_slice(&shown.stdout).unwrap();
    // The wait is made by a function of the loop, which both hands in and waits.
    let of = &shown["loops"][0];
    assert_eq!(of["function"], "serve", "{said}");
    let boundaries = of["boundaries"].as_array().unwrap();
    assert!(boundaries.iter().all(|b| b["syscall"] == "io_uring_enter"), "{of:#}");
    let types = of["types"].as_array().unwrap().len();
    for number in 1..=types {
        let set = run(&["profile", "threshold", profile, &number.to_string(), LIMIT]);
        assert!(set.status.success(), "{}", text(&set));
    }
    let (slow, out) = guarded(dir.path(), &server, &["--profile", profile]);
    let said = text(&out);
    assert_eq!(out.status.code(), Some(6), "{said}");
    // Seen while it ran.
    let early =
        |v: &Value| v["elapsed_ns"].as_u64().is_some_and(|ns| (300_000_000..600_000_000).contains(&ns));
    assert!(slow.iter().any(early), "{said}");

    // The call that only hands in, in the midst of the unit, neither ends it nor begins another.
    let bounds = ["--unit-begin", "syscall:io_uring_enter", "--unit-end", "syscall:io_uring_enter"];
    let (slow, out) = guarded(dir.path(), &server, &[&bounds[..], &["--threshold", "450ms"]].concat());
    let said = text(&out);
    assert_eq!(out.status.code(), Some(6), "{said}");
    assert!(!slow.is_empty(), "{said}");
}
