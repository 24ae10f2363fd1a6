//! Connections that are not served, recorded for real: by servers and by clients of displays, beside others that are
//! busy all the time and serve. Needs python3, and Xvfb for a real display; says so and skips where it is missing.

#[path = "../common/mod.rs"]
mod common;

use common::{contract, pg_tui, text};
use pg_event::{Display, ThreadId};
use pg_tui::session::{Loaded, load};
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read};
use std::ops::ControlFlow;
use std::path::Path;
use std::process::{Child, Command, Stdio};

const S: u64 = 1_000_000_000;

/// What is missing, if anything.
fn missing(programs: &[&str]) -> Option<String> {
    if let Some(why) = common::cannot_trace() {
        return Some(why);
    }
    let there = |p: &&&str| {
        Command::new("sh")
            .args(["-c", &format!("command -v {p}")])
            .stdout(Stdio::null())
            .status()
            .is_ok_and(|s| s.success())
    };
    programs.iter().find(|p| !there(p)).map(|p| format!("there is no {p}"))
}

/// A process that ends with the test, and those it started with it.
struct Ours(Child);

impl Drop for Ours {
    fn drop(&mut self) {
        // Some lead a process group of their own.
        let _ = self.0.kill();
        let mut kill = Command::new("kill");
        let _ = kill.args(["-KILL", "--", &format!("-{}", self.0.id())]).stderr(Stdio::null()).status();
        let _ = self.0.wait();
    }
}

fn start(program: &str, args: &[&str]) -> Ours {
    use std::os::unix::process::CommandExt;
    let mut c = Command::new(program);
    c.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).process_group(0);
    Ours(c.spawn().unwrap_or_else(|e| panic!("{program}: {e}")))
}

/// What it says up to `ready`: who is who.
fn ready(child: &mut Ours) -> HashMap<String, u32> {
    let lines = BufReader::new(child.0.stdout.as_mut().expect("a pipe")).lines();
    let mut out = HashMap::new();
    for line in lines {
        let line = line.expect("text");
        if line == "ready" {
            return out;
        }
        let (role, pid) = line.split_once(' ').expect("role and pid");
        out.insert(role.to_owned(), pid.parse().expect("a pid"));
    }
    panic!("it ended before it was ready");
}

/// The connections of a process that were not served: how long, and of which display.
fn unserved(l: &Loaded, pid: u32) -> Vec<(u64, Display, ThreadId)> {
    let of = |t: ThreadId| l.catalog.process_of(t).map(|p| p.pid);
    let mine = l.graph.unserved().iter().filter(|u| u.matters() && of(u.thread) == Some(pid));
    mine.map(|u| (u.duration(), u.display, u.thread)).collect()
}

fn program(name: &str) -> String {
    format!("{}/tests/unserved/{name}", env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn who_stops_receiving_is_told_and_who_is_busy_is_not() {
    if let Some(why) = missing(&["python3"]) {
        println!("skipped: who_stops_receiving_is_told_and_who_is_busy_is_not: {why}");
        return;
    }
    let dir = tempfile::tempdir().expect("a folder");
    let mut all = start("python3", &[&program("served.py"), &dir.path().to_string_lossy()]);
    let roles = ready(&mut all);
    for level in ["messages", "waits"] {
        let file = dir.path().join("a.pgs");
        let out = pg_tui(dir.path())
            .args([
                "record",
                "--no-tui",
                "--duration",
                "9",
                "--level",
                level,
                "-p",
                &all.0.id().to_string(),
                "-o",
            ])
            .arg(&file)
            .output()
            .expect("it starts");
        assert!(out.status.success(), "{}", text(&out));
        let l = load(&file, |_| ControlFlow::Continue(())).expect("it loads");
        // Of TCP the kernel counts what is taken. Of unix sockets only receptions tell for sure: without them it
        // takes many looks, which may not fit into two seconds.
        let stops =
            [("stops-tcp", Display::None), ("stops-unix", Display::None), ("window", Display::Wayland)];
        let blind = level == "waits" || l.coverage.notes.iter().any(|n| n.contains("sock_recv_length"));
        for &(role, display) in if blind { &stops[..1] } else { &stops } {
            let found = unserved(&l, roles[role]);
            // Two seconds of service, two and a half without, and nothing else: whole ones, and cut off ones.
            assert!(!found.is_empty() && found.len() <= 3, "{level}, {role}: {:?}", l.graph.unserved());
            for (length, of, thread) in &found {
                assert!(
                    *length >= S && *length < 35 * S / 10 && *of == display,
                    "{level}, {role}: {found:?}"
                );
                assert!(l.catalog.thread(*thread).is_some_and(|t| t.tid == roles[role]), "its main thread");
            }
        }
        // Who is accepted is counted by the kernel's own list: at any level.
        for role in ["accepts-unix", "accepts-tcp"] {
            let all = l.graph.unserved().iter().filter(|u| u.matters() && u.listens(&l.catalog));
            let of = |t: ThreadId| l.catalog.process_of(t).map(|p| p.pid);
            let found: Vec<_> = all.filter(|u| of(u.thread) == Some(roles[role])).collect();
            assert!(!found.is_empty() && found.len() <= 3, "{level}, {role}: {:?}", l.graph.unserved());
            for u in found {
                assert!(u.duration() >= S && u.duration() < 35 * S / 10, "{level}, {role}: {u:?}");
                assert!((1..=40).contains(&u.bytes), "{level}, {role}: {u:?}");
                assert!(u.words(&l.catalog).contains("connections to it were not accepted for"), "{u:?}");
            }
        }
        for role in ["busy-unix", "busy-tcp", "stale", "accepts-busy"] {
            assert!(unserved(&l, roles[role]).is_empty(), "{level}, {role}: {:?}", unserved(&l, roles[role]));
        }
        if blind {
            continue;
        }
        // The window is what a person complains about.
        let report = report(dir.path(), &file);
        assert_eq!(report.victim.pid, roles["window"], "{:?}", report.victim);
        let said = report.victim.unserved.unwrap_or_default();
        assert!(said.contains("event queue was not served") && said.contains("Wayland compositor"), "{said}");
        // Only what of the sleep the window waited for counts: that may begin a little later.
        let why = &report.root_causes[0].why;
        let slept = why.split_once("slept ").and_then(|(_, s)| s.split(' ').next()?.parse::<f64>().ok());
        assert!(slept.is_some_and(|s| (2.4..2.6).contains(&s)), "{why}");
    }
}

fn report(dir: &Path, file: &Path) -> pg_graph::report::Report {
    let out = pg_tui(dir).arg("diagnose").arg(file).arg("--json").output().expect("it starts");
    assert!(out.status.success(), "{}", text(&out));
    let json: serde_json::Value = serde_json::from_slice(&out.stdout).expect("JSON");
    contract::check(&json);
    serde_json::from_value(json).expect("a report")
}

/// A real display, and the flight recorder.
#[test]
fn a_window_without_answer_writes_a_file() {
    if let Some(why) = missing(&["python3", "Xvfb"]) {
        println!("skipped: a_window_without_answer_writes_a_file: {why}");
        return;
    }
    let dir = tempfile::tempdir().expect("a folder");
    // It finds a free number and says which.
    let mut server = start("Xvfb", &["-displayfd", "1", "-nolisten", "tcp", "-screen", "0", "320x200x24"]);
    let mut display = String::new();
    BufReader::new(server.0.stdout.as_mut().expect("a pipe")).read_line(&mut display).expect("text");
    let mut client = start("python3", &[&program("xclient.py"), display.trim()]);
    ready(&mut client);
    let pid = client.0.id().to_string();
    let mut recorder = pg_tui(dir.path());
    recorder.env("PG_TUI_RUNTIME_DIR", dir.path());
    recorder.args(["record", "--flight", "20s", "--after", "2s", "--on-unserved", "600ms", "-p", &pid, "-o"]);
    let mut recorder = Ours(recorder.arg(dir.path()).stderr(Stdio::piped()).spawn().expect("it starts"));
    let mut lines = BufReader::new(recorder.0.stderr.take().expect("a pipe"));
    let mut said = String::new();
    let mut line_with = |what: &str| loop {
        let at = said.len();
        assert!(lines.read_line(&mut said).expect("text") > 0, "no {what:?} in {said}");
        if said[at..].contains(what) {
            return said[at..].to_owned();
        }
    };
    line_with("flight recorder is on");
    std::thread::sleep(std::time::Duration::from_secs(2));
    assert!(Command::new("kill").args(["-USR1", &pid]).status().expect("kill runs").success());
    let why = line_with("event queue");
    assert!(why.contains("its event queue was not served") && why.contains("X server"), "{why}");
    line_with(" written: ");
    assert!(Command::new("kill").arg(recorder.0.id().to_string()).status().expect("kill runs").success());
    let mut rest = String::new();
    lines.read_to_string(&mut rest).expect("text");
    let files = std::fs::read_dir(dir.path()).expect("a folder").map(|e| e.expect("an entry").path());
    let files: Vec<_> = files.filter(|p| p.extension().is_some_and(|e| e == "pgs")).collect();
    let [file] = &files[..] else { panic!("{files:?}: {why} {rest}") };
    let l = load(file, |_| ControlFlow::Continue(())).expect("it loads");
    let found = unserved(&l, client.0.id());
    assert!(found.len() == 1 && found[0].1 == Display::X11 && found[0].0 >= 6 * S / 10, "{found:?}");
    let report = report(dir.path(), file);
    assert_eq!(report.victim.pid, client.0.id(), "{:?}", report.victim);
    assert!(report.victim.unserved.is_some_and(|u| u.contains("X server")));
}
