//! Data flags of real programs: found, watched, recorded, diagnosed. Needs the right to trace and a C compiler; without
//! them it says that it is skipped.

#[path = "../common/mod.rs"]
mod common;

use common::{pg_tui, text};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// One at a time: each keeps two CPUs busy.
static ALONE: Mutex<()> = Mutex::new(());

struct Setup {
    dir: tempfile::TempDir,
    _alone: MutexGuard<'static, ()>,
}

fn setup(test: &str) -> Option<Setup> {
    if !common::can_trace_and_compile(test) {
        return None;
    }
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    Some(Setup { dir: tempfile::tempdir().expect("a folder"), _alone: alone })
}

impl Setup {
    fn path(&self) -> &Path {
        self.dir.path()
    }

    fn build(&self, level: &str) -> PathBuf {
        let exe = self.path().join(format!("spin{level}"));
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/flags/spin.c");
        let built = Command::new("gcc")
            .args([level, "-g", "-pthread", "-o"])
            .arg(&exe)
            .arg(source)
            .output()
            .expect("gcc runs");
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        exe
    }

    fn tool(&self, args: &[&str]) -> Command {
        let mut c = pg_tui(self.path());
        c.current_dir(self.path()).args(args);
        c
    }

    /// A `find-flag` that has begun to trace the main thread of a process, or has ended already.
    fn following(&self, pid: &str) -> Child {
        let mut find = self
            .tool(&["find-flag", "-p", pid, "-t", pid, "--steps", "20000"])
            .stdout(Stdio::null())
            .spawn()
            .expect("it starts");
        while tracer_of(pid) == 0 && find.try_wait().expect("ours").is_none() {
            std::thread::sleep(Duration::from_micros(200));
        }
        find
    }
}

/// Has a program taken 20 ms of CPU time, or does it sleep (proc(5))?
fn turns(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap_or_default().split(' ').collect();
    let ticks = |n: usize| fields.get(n).and_then(|f| f.parse::<u64>().ok()).unwrap_or(0);
    ticks(11) + ticks(12) >= 2 || fields.first() == Some(&"S")
}

/// A running program, killed in the end.
struct Spin {
    child: Child,
    lines: std::io::Lines<BufReader<ChildStdout>>,
    flag: String,
}

impl Spin {
    fn start(exe: &Path, variant: &str, seconds: u32) -> Self {
        let mut child = Command::new(exe)
            .args([variant, &seconds.to_string()])
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        let flag = lines.next().expect("a line").expect("text");
        // Into its loop: it has computed, or sleeps there. Beside others it may not have had the CPU yet.
        let pid = child.id().to_string();
        for _ in 0..200 {
            std::thread::sleep(Duration::from_millis(50));
            if turns(&pid) {
                break;
            }
        }
        Self { child, lines, flag }
    }

    fn pid(&self) -> String {
        self.child.id().to_string()
    }

    fn lives(&mut self) -> bool {
        self.child.try_wait().expect("ours").is_none()
    }

    /// It goes on when its flag is set, and ends well.
    fn goes_on(&mut self) {
        assert_eq!(self.lines.next().expect("a line").expect("text"), "went on");
        assert!(self.child.wait().expect("ours").success());
    }
}

impl Drop for Spin {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn the_true_flag_is_found() {
    let Some(s) = setup("the_true_flag_is_found") else { return };
    for level in ["-O0", "-O1", "-O2"] {
        let exe = s.build(level);
        for (variant, names) in [
            ("plain", &["painted"][..]),
            ("struct", &["w->shown", "window->shown"]),
            ("call", &["painted"]),
            ("pause", &["painted"]),
            ("yield", &["painted"]),
            ("nap", &["painted"]),
            ("shared", &["grants->granted"]),
            ("lock", &["lock_word"]),
            ("time", &["painted"]),
        ] {
            let mut spin = Spin::start(&exe, variant, 60);
            let pid = spin.pid();
            let out = s.tool(&["find-flag", "-p", &pid, "-t", &pid, "--json"]).output().expect("it starts");
            let what = format!("{level} {variant}: {}", text(&out));
            assert!(out.status.success(), "{what}");
            let found: Value = serde_json::from_slice(&out.stdout).expect("JSON");
            let flag = &found["flag"];
            assert_eq!(flag["address"].as_str(), Some(spin.flag.as_str()), "{what}");
            assert_eq!((flag["bytes"].as_u64(), flag["kind"].as_str()), (Some(4), Some("flag")), "{what}");
            let name = flag["variable"].as_str().unwrap_or_default();
            assert!(names.contains(&name), "{name}: {what}");
            assert!(flag["line"]["file"].as_str().is_some_and(|f| f.ends_with("spin.c")), "{what}");
            assert_eq!(flag["shared"].as_bool(), Some(variant == "shared"), "{what}");
            let stack = flag["stack"].to_string();
            assert!(stack.contains("wait_until_set") || stack.contains("main"), "{what}");
            assert!(spin.lives(), "{what}");
        }
    }
}

#[test]
fn the_target_goes_on_after_it_was_followed() {
    let Some(s) = setup("the_target_goes_on_after_it_was_followed") else { return };
    let exe = s.build("-O1");
    for variant in ["plain", "yield", "nap", "shared"] {
        let mut spin = Spin::start(&exe, variant, 2);
        let pid = spin.pid();
        let out = s.tool(&["find-flag", "-p", &pid, "-t", &pid]).output().expect("it starts");
        let printed = text(&out);
        assert!(printed.contains(&format!("watch-flag -p {pid} {}:4", spin.flag)), "{printed}");
        spin.goes_on();
    }
}

/// Without a thread named: the one that computes uses more of the CPU, but asks nothing.
#[test]
fn the_thread_that_asks_is_found_among_those_that_compute() {
    let Some(s) = setup("the_thread_that_asks_is_found_among_those_that_compute") else { return };
    let exe = s.build("-O2");
    for variant in ["nap", "yield", "pause", "shared"] {
        let mut spin = Spin::start(&exe, variant, 60);
        let out = s.tool(&["find-flag", "-p", &spin.pid(), "--json"]).output().expect("it starts");
        let what = format!("{variant}: {}", text(&out));
        let found: Value = serde_json::from_slice(&out.stdout).unwrap_or_else(|e| panic!("{e}: {what}"));
        assert_eq!(found["tid"].as_u64(), Some(u64::from(spin.child.id())), "{what}");
        assert_eq!(found["flag"]["address"].as_str(), Some(spin.flag.as_str()), "{what}");
        assert!(spin.lives(), "{what}");
    }
}

fn tracer_of(pid: &str) -> u32 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    status.lines().find_map(|l| l.strip_prefix("TracerPid:")).and_then(|n| n.trim().parse().ok()).unwrap_or(0)
}

/// The kernel leaves a thread whose tracer is killed with the trap flag set: this kills it if nobody sees to it.
#[test]
fn the_target_lives_when_find_flag_is_killed() {
    let Some(s) = setup("the_target_lives_when_find_flag_is_killed") else { return };
    let exe = s.build("-O1");
    let mut amid = 0;
    for round in 0..24 {
        let mut spin = Spin::start(&exe, ["yield", "nap", "call"][round % 3], 60);
        let pid = spin.pid();
        let mut find = s.following(&pid);
        std::thread::sleep(Duration::from_micros(700 * round as u64));
        amid += u32::from(tracer_of(&pid) != 0);
        find.kill().expect("ours");
        find.wait().expect("ours");
        let mut free = false;
        for _ in 0..200 {
            std::thread::sleep(Duration::from_millis(10));
            free = tracer_of(&pid) == 0;
            if free {
                break;
            }
        }
        assert!(free, "round {round}: still traced");
        std::thread::sleep(Duration::from_millis(20));
        assert!(spin.lives(), "round {round}: the target died");
    }
    assert!(amid >= 6, "killed only {amid} times while the thread was traced");
}

#[test]
fn who_is_traced_already_is_told() {
    let Some(s) = setup("who_is_traced_already_is_told") else { return };
    let exe = s.build("-O1");
    let spin = Spin::start(&exe, "nap", 60);
    let pid = spin.pid();
    let mut first = s.following(&pid);
    let out = s.tool(&["find-flag", "-p", &pid, "-t", &pid]).output().expect("it starts");
    // The first one may have ended meanwhile.
    assert!(out.status.success() || text(&out).contains("traces it already"), "{}", text(&out));
    first.wait().expect("ours");
    let out = s.tool(&["find-flag", "-p", &pid, "-t", "1"]).output().expect("it starts");
    assert_eq!(out.status.code(), Some(2), "{}", text(&out));
    assert!(text(&out).contains("no thread 1"), "{}", text(&out));
}

#[test]
fn writers_and_values_are_seen() {
    let Some(s) = setup("writers_and_values_are_seen") else { return };
    let exe = s.build("-O1");
    for (variant, writer, value) in
        [("nap", "painter", 1), ("plain", "painter", 1), ("struct", "painter", 1), ("shared", "granter", 7)]
    {
        let mut spin = Spin::start(&exe, variant, 2);
        let pid = spin.pid();
        let flag = if variant == "nap" { "painted" } else { spin.flag.as_str() };
        let out = s.tool(&["watch-flag", "-p", &pid, flag, "-d", "4"]).output().expect("it starts");
        let printed = text(&out);
        assert!(out.status.success(), "{variant}: {printed}");
        let write = printed
            .lines()
            .find(|l| l.contains(" writes "))
            .unwrap_or_else(|| panic!("{variant}: {printed}"));
        assert!(write.contains(writer) && write.contains(&format!("writes {value}")), "{variant}: {write}");
        assert!(write.contains("set (spin-O1)"), "{variant}: {write}");
        assert!(printed.contains(" reads  0"), "{variant}: {printed}");
        if variant == "plain" {
            assert!(printed.contains("touched too often"), "{printed}");
        }
        spin.goes_on();
    }
}

#[test]
fn four_flags_and_no_more() {
    let Some(s) = setup("four_flags_and_no_more") else { return };
    let exe = s.build("-O1");
    let mut spin = Spin::start(&exe, "nap", 60);
    let pid = spin.pid();
    let four = ["painted", "heartbeat", "window", "grants"];
    let watch = |more: &[&str], seconds: &str| {
        s.tool(&["watch-flag", "-p", &pid, "-d", seconds]).args(four).args(more).output().expect("it starts")
    };
    let out = watch(&["lock_word"], "1");
    assert_eq!(out.status.code(), Some(2), "{}", text(&out));
    assert!(
        text(&out).contains("lock_word cannot be watched") && text(&out).contains("four"),
        "{}",
        text(&out)
    );
    // Killed, it leaves nothing behind that would be in the way.
    let mut killed =
        s.tool(&["watch-flag", "-p", &pid]).args(four).stdout(Stdio::null()).spawn().expect("it starts");
    std::thread::sleep(Duration::from_millis(700));
    killed.kill().expect("ours");
    killed.wait().expect("ours");
    std::thread::sleep(Duration::from_millis(200));
    let out = watch(&[], "1");
    assert!(out.status.success() && text(&out).contains("reads  0 painted"), "{}", text(&out));
    assert!(spin.lives());
    for (flag, says) in [
        ("no_such_variable", "no variable `no_such_variable`"),
        ("0x10", "no memory at 0x10"),
        ("painted+1:4", "no multiple of 4"),
        ("painted:3", "names no variable"),
    ] {
        let out = s.tool(&["watch-flag", "-p", &pid, flag]).output().expect("it starts");
        assert_eq!(out.status.code(), Some(2), "{flag}: {}", text(&out));
        assert!(text(&out).contains(says), "{flag}: {}", text(&out));
    }
}

/// The kernel does not report one switch in some hundred here, and a loop in which one is missing looks like two:
/// a few attempts.
fn names_the_writer(s: &Setup, what: &str, writer: &str, mut record: impl FnMut() -> Value) {
    let mut last = Value::Null;
    for _ in 0..5 {
        last = record();
        let cause = &last["root_causes"][0];
        let named = cause["thread"].as_str() == Some(writer) || cause["process"].as_str() == Some(writer);
        let step = |n: usize, key: &str| last["slice"][n][key].as_str();
        if named
            && step(0, "waits_on") == Some("data-flag")
            && (step(1, "edge"), step(1, "strength")) == (Some("data-flag"), Some("strong"))
        {
            return;
        }
    }
    panic!("{what}: no strong step to {writer} in {}: {last:#}", s.path().display());
}

#[test]
fn a_command_recorded_with_its_flag_names_the_writer() {
    let Some(s) = setup("a_command_recorded_with_its_flag_names_the_writer") else { return };
    let exe = s.build("-O1");
    for variant in ["nap", "yield", "plain"] {
        names_the_writer(&s, variant, "painter", || {
            let out = s
                .tool(&["record", "-o", "a.pgs", "--no-tui", "--flag", "painted", "--"])
                .arg(&exe)
                .args([variant, "3"])
                .output()
                .expect("it starts");
            assert!(out.status.success() && text(&out).contains("went on"), "{}", text(&out));
            let tid = main_thread(&s, "a.pgs");
            let out = s.tool(&["diagnose", "a.pgs", "--json", "--tid", &tid]).output().expect("it starts");
            assert!(out.status.success(), "{}", text(&out));
            serde_json::from_slice(&out.stdout).expect("JSON")
        });
    }
}

fn main_thread(s: &Setup, file: &str) -> String {
    let path = s.path().join(file);
    let loaded = pg_tui::session::load(&path, |_| std::ops::ControlFlow::Continue(())).expect("it loads");
    let main = loaded
        .catalog
        .threads
        .iter()
        .find(|t| t.focus && t.name.starts_with("spin"))
        .expect("the main thread");
    main.tid.to_string()
}

#[test]
fn a_flag_in_shared_memory_names_the_other_process() {
    let Some(s) = setup("a_flag_in_shared_memory_names_the_other_process") else { return };
    let exe = s.build("-O1");
    names_the_writer(&s, "shared", "granter", || {
        let mut spin = Spin::start(&exe, "shared", 3);
        let pid = spin.pid();
        let flag = format!("{pid}:{}:4", spin.flag);
        let out = s
            .tool(&["record", "-o", "b.pgs", "--no-tui", "-p", &pid, "--flag", &flag])
            .output()
            .expect("it starts");
        assert!(out.status.success(), "{}", text(&out));
        spin.goes_on();
        let out = s.tool(&["diagnose", "b.pgs", "--json", "--tid", &pid]).output().expect("it starts");
        assert!(out.status.success(), "{}", text(&out));
        serde_json::from_slice(&out.stdout).expect("JSON")
    });
}

#[test]
fn a_flag_that_is_not_there_is_told() {
    let Some(s) = setup("a_flag_that_is_not_there_is_told") else { return };
    let out =
        s.tool(&["record", "--no-tui", "-o", "c.pgs", "--flag", "painted"]).output().expect("it starts");
    assert_eq!(out.status.code(), Some(2), "{}", text(&out));
    assert!(text(&out).contains("in which process"), "{}", text(&out));
    let own = std::process::id().to_string();
    let out = s
        .tool(&["record", "--no-tui", "-o", "c.pgs", "-p", &own, "--flag", "no_such_variable"])
        .output()
        .expect("it starts");
    assert_eq!(out.status.code(), Some(2), "{}", text(&out));
    assert!(text(&out).contains("no variable `no_such_variable`") && !s.path().join("c.pgs").exists());
    // A library of a command might bring it: that it did not is told in the end.
    let out = s
        .tool(&["record", "--no-tui", "-o", "c.pgs", "--flag", "no_such_variable", "--", "sleep", "0.5"])
        .output()
        .expect("it starts");
    assert!(out.status.success(), "{}", text(&out));
    assert!(text(&out).contains("no_such_variable was never there"), "{}", text(&out));
    let path = s.path().join("c.pgs");
    let loaded = pg_tui::session::load(&path, |_| std::ops::ControlFlow::Continue(())).expect("it loads");
    assert!(
        loaded.coverage.notes.iter().any(|n| n.contains("no_such_variable was never there")),
        "{:?}",
        loaded.coverage.notes
    );
}
