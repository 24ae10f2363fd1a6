//! The bundled recordings open, and their diagnosis is what their README says.

#[path = "hangs/report.rs"]
mod report;

use report::{Report, diagnose};
use std::path::{Path, PathBuf};

fn sessions() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("sessions")
}

/// A copy: diagnosing must not depend on a writable checkout.
fn report_of(name: &str, select: &[&str]) -> Report {
    let dir = tempfile::tempdir().expect("a folder");
    let copy = dir.path().join(name);
    std::fs::copy(sessions().join(name), &copy).expect("the session is there");
    diagnose(&copy, select)
}

#[test]
fn demo() {
    report_of("demo.pgs", &[])
        .victim("^shopd ", &["long-wait"], 3_000_000_000)
        .slice(&["^payd .* pay-[123]$", "^payd .* tick$"])
        .root(1, "^payd .* tick$", "rebuild_index|hash_rows")
        .block_type("long-running")
        .clean(3);
}

#[test]
fn redis_lua() {
    report_of("redis-lua.pgs", &["--process", "^redis-cli"])
        .victim("^redis-cli ", &["long-wait"], 1_000_000_000)
        .slice(&["^redis-server "])
        .root(1, "^redis-server ", "lua|eval|script")
        .block_type("long-running")
        .not_first("^redis-cli ")
        .clean(3);
}

#[test]
fn file_lock() {
    report_of("file-lock.pgs", &["--process", "^flock .* wc "])
        .victim("^flock .* wc ", &["long-wait"], 500_000_000)
        .slice(&["^flock .* xz ", "^xz "])
        .root(1, "^xz ", "lzma|xz")
        .block_type("long-running")
        .clean(3);
}

#[test]
fn every_recording_is_small_and_explained() {
    let mut seen = 0;
    for entry in std::fs::read_dir(sessions()).expect("a folder").flatten() {
        let path = entry.path();
        if path.extension().is_some_and(|e| e == "pgs") {
            seen += 1;
            assert!(path.with_extension("md").exists(), "{} has no README", path.display());
            let bytes = entry.metadata().expect("a file").len();
            assert!(bytes < 2_000_000, "{}: {bytes} bytes", path.display());
        }
    }
    assert_eq!(seen, 3);
}
