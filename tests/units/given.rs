//! Units that a person says where they begin and end: a function, static probes, system calls; guarded without a
//! profile, and learnt.

use super::common::{Guard, can_trace_and_compile, pg_tui, text};
use serde_json::Value;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// How long it may take until probes are set, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(40);

/// The program that is asked, compiled.
fn built(dir: &Path) -> PathBuf {
    let exe = dir.join("given");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/units/given.c");
    let args = ["-O1", "-g", "-fno-optimize-sibling-calls", "-Wl,--build-id", "-o"];
    let built = Command::new("gcc").args(args).arg(&exe).arg(source).status();
    assert!(built.is_ok_and(|s| s.success()));
    exe
}

struct Server(Child);

impl Server {
    /// Its libraries are mapped when it has answered.
    fn start(dir: &Path) -> Self {
        let child = Command::new(built(dir)).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut server = Self(child.unwrap());
        assert!(!server.ask(b'q'), "somebody listens already");
        server
    }

    fn pid(&self) -> String {
        self.0.id().to_string()
    }

    /// Has it do something; whether somebody listened to its static probes when that was done.
    fn ask(&mut self, what: u8) -> bool {
        let mut done = [0];
        self.0.stdin.as_mut().unwrap().write_all(&[what]).unwrap();
        self.0.stdout.as_mut().unwrap().read_exact(&mut done).unwrap();
        done[0] == b'y'
    }

    fn until_listened(&mut self, wanted: bool) {
        let begun = Instant::now();
        while self.ask(b'q') != wanted {
            assert!(begun.elapsed() < PATIENCE, "nobody began or ended to listen: {wanted}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn violations(out: &Output) -> Vec<Value> {
    let lines =
        String::from_utf8_lossy(&out.stdout).lines().filter_map(|l| serde_json::from_str(l).ok()).collect();
    let all: Vec<Value> = lines;
    all.into_iter().filter(|v| v["event"] == "violation").collect()
}

fn goes_by(v: &Value, function: &str) -> bool {
    let frame = format!("{function} (given)");
    v["stack"].as_array().is_some_and(|s| s.iter().any(|f| f.as_str().is_some_and(|f| f.starts_with(&frame))))
}

/// Guards these units while the server is asked; nothing is left when that has ended.
fn guarded(dir: &Path, server: &mut Server, bounds: &[&str], ask: impl FnOnce(&mut Server)) -> Output {
    let guard =
        Guard::start(pg_tui(dir).args(["guard", "--json", "-p", &server.pid(), "-d", "60"]).args(bounds));
    ask(server);
    guard.end()
}

#[test]
fn units_that_are_given_are_guarded() {
    if !can_trace_and_compile("units_that_are_given_are_guarded") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let mut server = Server::start(dir.path());
    let long = ["--threshold", "300ms"];

    // A static probe: that it is counted as listened to says when it is set.
    let bounds = ["--unit-begin", "usdt:shop:order-start", "--unit-end", "usdt:shop:order__done"];
    let told = guarded(dir.path(), &mut server, &[&bounds[..], &long].concat(), |s| {
        s.until_listened(true);
        // It may take until the guards look, on a busy machine.
        for _ in 0..6 {
            s.ask(b's');
            s.ask(b'q');
        }
    });
    let said = text(&told);
    assert_eq!(told.status.code(), Some(6), "{said}");
    assert!(violations(&told).iter().any(|v| goes_by(v, "serve") && goes_by(v, "nap")), "{said}");
    // The kernel counts down again.
    server.until_listened(false);

    // Calls of a function. One that was left by longjmp is over, whatever is done then.
    let told = guarded(dir.path(), &mut server, &[&["--unit-begin", "serve"][..], &long].concat(), |s| {
        // Nothing but its violations says that the probes are set.
        for _ in 0..12 {
            s.ask(b's');
            s.ask(b'q');
            s.ask(b'j');
        }
    });
    let said = text(&told);
    let slow = violations(&told);
    assert_eq!(told.status.code(), Some(6), "{said}");
    assert!(slow.iter().any(|v| goes_by(v, "serve") && goes_by(v, "nap")), "{said}");
    assert!(!slow.iter().any(|v| goes_by(v, "nap_after_jump")), "{said}");
    assert!(said.contains("their end was not come by"), "{said}");

    // System calls: from when there was something to read until the next wait.
    let bounds = ["--unit-begin", "syscall:read(fd=pipe)", "--unit-end", "syscall:poll"];
    let told = guarded(dir.path(), &mut server, &[&bounds[..], &long].concat(), |s| {
        for _ in 0..8 {
            s.ask(b's');
            s.ask(b'j');
        }
    });
    let said = text(&told);
    let slow = violations(&told);
    assert!(slow.iter().any(|v| goes_by(v, "serve") && goes_by(v, "nap")), "{said}");
    assert!(slow.iter().any(|v| goes_by(v, "nap_after_jump")), "{said}");
}

#[test]
fn units_that_are_given_are_learnt() {
    if !can_trace_and_compile("units_that_are_given_are_learnt") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let mut server = Server::start(dir.path());
    let file = dir.path().join("given.pgprof");
    let file = file.to_str().unwrap();
    let train = pg_tui(dir.path())
        .args([
            "train",
            "-p",
            &server.pid(),
            "--unit-begin",
            "serve",
            "-d",
            "4",
            "--measure",
            "8",
            "-o",
            file,
        ])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut train = train.unwrap();
    while train.try_wait().unwrap().is_none() {
        for what in b"qqs" {
            server.ask(*what);
        }
    }
    let trained = train.wait_with_output().unwrap();
    let said = text(&trained);
    assert!(trained.status.success() && said.contains("calls of serve, given, in serve (given+0x"), "{said}");
    let shown = pg_tui(dir.path()).args(["profile", "show", "--json", file]).output().unwrap();
    let shown: Value = serde_json::from_slice(&shown.stdout).unwrap();
    let of = &shown["loops"][0];
    assert_eq!((&of["given"]["begin"], &of["function"]), (&"serve".into(), &"serve".into()), "{said}");
    // The naps are a type of their own.
    let types = of["types"].as_array().unwrap();
    let nap = types.iter().find(|t| t["median_ns"].as_f64().unwrap() > 500e6);
    let nap = nap.unwrap_or_else(|| panic!("{said}"));
    assert!(nap["name"].as_str().unwrap().contains("nap"), "{said}");
    let number = nap["number"].to_string();
    let set = pg_tui(dir.path()).args(["profile", "threshold", file, &number, "300ms"]).output().unwrap();
    assert!(set.status.success(), "{}", text(&set));
    let told = guarded(dir.path(), &mut server, &["--profile", file], |s| {
        for _ in 0..10 {
            s.ask(b's');
            s.ask(b'q');
        }
    });
    let said = text(&told);
    assert_eq!(told.status.code(), Some(6), "{said}");
    assert!(violations(&told).iter().any(|v| goes_by(v, "nap") && v["type"] == nap["name"]), "{said}");
    // What the profile does not know is said.
    let other = pg_tui(dir.path())
        .args(["guard", "-p", &server.pid(), "--profile", file, "--unit-begin", "main"])
        .output()
        .unwrap();
    assert_eq!(other.status.code(), Some(2));
    assert!(text(&other).contains("calls of serve"), "{}", text(&other));
}

/// Trains with a command that is asked all the time, until pg-tui ends it.
fn train_with(dir: &Path, args: &[&str]) -> Output {
    let train = pg_tui(dir)
        .current_dir(dir)
        .args(["train", "--unit-begin", "serve"])
        .args(args)
        // What it answers is not looked at.
        .args(["--", "sh", "-c", "exec ./given > answers"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut train = train.unwrap();
    let mut asks = train.stdin.take().unwrap();
    while train.try_wait().unwrap().is_none() {
        // Nobody reads when the command has ended.
        let _ = asks.write_all(b"qqqqs");
        std::thread::sleep(Duration::from_millis(700));
    }
    train.wait_with_output().unwrap()
}

#[test]
fn units_that_are_given_are_learnt_of_a_command() {
    if !can_trace_and_compile("units_that_are_given_are_learnt_of_a_command") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    built(dir.path());
    let out = train_with(dir.path(), &["-d", "3", "--measure", "6", "-o", "a.pgprof"]);
    let said = text(&out);
    assert!(out.status.success() && said.contains("measured by probes"), "{said}");
    let file = dir.path().join("a.pgprof");
    let shown = pg_tui(dir.path()).args(["profile", "show", "--json"]).arg(file).output().unwrap();
    let shown: Value = serde_json::from_slice(&shown.stdout).unwrap();
    let types = shown["loops"][0]["types"].as_array().unwrap().clone();
    let nap = types.iter().find(|t| t["median_ns"].as_f64().unwrap() > 500e6);
    let nap = nap.unwrap_or_else(|| panic!("{said}"));
    assert!(nap["name"].as_str().unwrap().contains("nap"), "{said}");
    // It was asked to end.
    let exe = dir.path().join("given").canonicalize().unwrap();
    let runs = |p: std::fs::DirEntry| std::fs::read_link(p.path().join("exe")).is_ok_and(|e| e == exe);
    assert!(!std::fs::read_dir("/proc").unwrap().flatten().any(runs));
    // Where the command has ended before there was anything to be measured.
    let soon = pg_tui(dir.path()).args(["train", "--unit-begin", "serve", "--", "true"]).output().unwrap();
    assert!(soon.status.code() == Some(1) && text(&soon).contains("the command ended"), "{}", text(&soon));
}

#[test]
fn places_that_are_not_there_are_said() {
    if !can_trace_and_compile("places_that_are_not_there_are_said") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path());
    let says = |args: &[&str], words: &[&str]| {
        let out = pg_tui(dir.path())
            .args(["guard", "-p", &server.pid(), "--threshold", "1s"])
            .args(args)
            .output()
            .unwrap();
        let said = text(&out);
        assert_eq!(out.status.code(), Some(2), "{said}");
        assert!(words.iter().all(|w| said.contains(w)), "{args:?}: {said}");
    };
    says(&["--unit-begin", "srve"], &["no function", "serve"]);
    says(&["--unit-begin", "libnone:serve"], &["libnone", "libc.so"]);
    says(&["--unit-begin", "usdt:shop:order__start"], &["--unit-end"]);
    says(&["--unit-begin", "usdt:shop:order__strt", "--unit-end", "serve"], &["shop:order__start"]);
    says(&["--unit-begin", "given+0x1"], &["no function begins at 0x1"]);
}
