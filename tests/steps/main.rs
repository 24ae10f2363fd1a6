//! Real programs followed instruction by instruction while they are recorded. Needs the right to trace and a C compiler;
//! without them it says that it is skipped.

#[path = "../common/mod.rs"]
mod common;

use common::{pg_tui, text};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// One at a time: each keeps a CPU busy.
static ALONE: Mutex<()> = Mutex::new(());

struct Setup {
    dir: tempfile::TempDir,
    exe: PathBuf,
    stripped: PathBuf,
    _alone: MutexGuard<'static, ()>,
}

fn setup(test: &str) -> Option<Setup> {
    if !common::can_trace_and_compile(test) {
        return None;
    }
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let dir = tempfile::tempdir().expect("a folder");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/steps/walk.c");
    let build = |name: &str, more: &[&str]| {
        let exe = dir.path().join(name);
        let mut gcc = Command::new("gcc");
        let built =
            gcc.args(["-O1", "-pthread", "-o"]).arg(&exe).arg(source).args(more).output().expect("gcc runs");
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        exe
    };
    let (exe, stripped) = (build("walk", &["-g"]), build("bare", &["-s"]));
    Some(Setup { dir, exe, stripped, _alone: alone })
}

impl Setup {
    fn path(&self) -> &Path {
        self.dir.path()
    }

    fn tool(&self, args: &[&str]) -> Command {
        let mut c = pg_tui(self.path());
        c.current_dir(self.path()).args(args);
        c
    }

    /// Records a program that does one kind of work, and follows it; what `diagnose --steps --json` says. On a busy
    /// machine a burst has few instructions: a few attempts.
    fn followed(&self, exe: &Path, kind: &str, enough: impl Fn(&Value) -> bool) -> Value {
        let mut last = Value::Null;
        for _ in 0..4 {
            let mut target = Target::start(exe, kind, "200");
            let pid = target.pid();
            let out = self
                .tool(&["record", "--no-tui", "-o", "a.pgs", "-p", &pid, "-d", "2.5"])
                .args(["--steps", "--steps-for", "200ms"])
                .output()
                .expect("it starts");
            assert!(out.status.success(), "{}", text(&out));
            assert!(target.lives(), "{kind}: {}", text(&out));
            let out = self.tool(&["diagnose", "a.pgs", "--steps", "--json"]).output().expect("it starts");
            last = serde_json::from_slice(&out.stdout).unwrap_or_else(|e| panic!("{e}: {}", text(&out)));
            let burst = &last["bursts"][0];
            if burst["instructions"].as_u64() > Some(200) && enough(burst) {
                assert_eq!(burst["pid"].as_u64(), Some(u64::from(target.child.id())), "{burst:#}");
                assert_eq!(burst["how"].as_str(), Some("single-steps"));
                return burst.clone();
            }
        }
        panic!("{kind}: {last:#}");
    }
}

struct Target {
    child: Child,
}

impl Target {
    fn start(exe: &Path, kind: &str, seconds: &str) -> Self {
        let child = Command::new(exe).args([kind, seconds]).stdout(Stdio::null()).spawn().expect("it starts");
        std::thread::sleep(Duration::from_millis(50));
        Self { child }
    }

    fn pid(&self) -> String {
        self.child.id().to_string()
    }

    fn lives(&mut self) -> bool {
        self.child.try_wait().expect("ours").is_none()
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn tree(burst: &Value) -> Vec<&str> {
    burst["tree"].as_array().into_iter().flatten().filter_map(|r| r["text"].as_str()).collect()
}

fn function<'a>(burst: &'a Value, name: &str) -> Option<&'a Value> {
    let all = burst["functions"].as_array()?;
    all.iter().find(|f| f["function"].as_str().is_some_and(|f| f.starts_with(name)))
}

#[test]
fn a_spin_loop_is_one_loop() {
    let Some(s) = setup("a_spin_loop_is_one_loop") else { return };
    let looped = |b: &Value| {
        // `loop x 144`: of a loop of five instructions, so most of what there is.
        tree(b)
            .iter()
            .any(|t| t.strip_prefix("loop x ").and_then(|n| n.parse().ok()).is_some_and(|n: u32| n > 20))
    };
    let burst = s.followed(&s.exe, "spin", looped);
    assert!(function(&burst, "spin (walk)").is_some(), "{burst:#}");
    let adds = burst["code"].as_array().into_iter().flatten();
    let add = adds.filter(|i| i["instruction"] == "add $1,%rax").max_by_key(|i| i["times"].as_u64());
    let line = add.and_then(|i| i["line"].as_str()).unwrap_or_default();
    assert!(line.starts_with("walk.c:"), "{burst:#}");
}

#[test]
fn recursion_is_told_by_depth() {
    let Some(s) = setup("recursion_is_told_by_depth") else { return };
    let burst = s.followed(&s.exe, "fib", |b| b["deepest"].as_u64() > Some(4));
    let fib = function(&burst, "fib (walk)").expect("it is followed");
    assert!(fib["calls"].as_u64() > Some(3), "{burst:#}");
    // What it is called for is not counted twice.
    assert!(fib["total"].as_u64() <= burst["instructions"].as_u64(), "{burst:#}");
    let values: Vec<u32> = tree(&burst)
        .iter()
        .filter_map(|t| t.strip_prefix("fib (walk) = ")?.split(' ').next()?.parse().ok())
        .collect();
    assert!(values.iter().any(|v| *v <= 1), "fib(0) and fib(1) return: {burst:#}");
}

#[test]
fn system_calls_have_names_and_results() {
    let Some(s) = setup("system_calls_have_names_and_results") else { return };
    let has = |b: &Value, what: &str| tree(b).iter().any(|t| t.starts_with(what));
    let parent = format!("getppid = {}", std::process::id());
    s.followed(&s.exe, "calls", |b| {
        has(b, "close = -9 (Bad file descriptor)") && has(b, "read = 1") && has(b, &parent)
    });
}

#[test]
fn a_stripped_program_has_addresses() {
    let Some(s) = setup("a_stripped_program_has_addresses") else { return };
    let burst = s.followed(&s.stripped, "fib", |b| b["deepest"].as_u64() > Some(3));
    let nameless = function(&burst, "0x").expect("addresses");
    assert!(nameless["function"].as_str().is_some_and(|f| f.ends_with("(bare)")), "{burst:#}");
    assert!(tree(&burst).iter().any(|t| t.contains("(bare)")), "{burst:#}");
}

/// The stops are the recorder's: in the recording the thread ran.
#[test]
fn the_stops_are_not_shown_as_the_programs() {
    let Some(s) = setup("the_stops_are_not_shown_as_the_programs") else { return };
    s.followed(&s.exe, "spin", |_| true);
    let loaded = pg_tui::session::load(&s.path().join("a.pgs"), |_| std::ops::ControlFlow::Continue(()))
        .expect("loads");
    let burst = loaded.graph.bursts()[0];
    let stopped = |v: pg_graph::VertexId| loaded.graph.vertex(v).state == pg_event::OffState::Traced;
    let span = burst.start..burst.end + 1;
    assert_eq!(loaded.graph.vertices_in(burst.thread, span).filter(|v| stopped(*v)).count(), 0);
    // Other recorders may run, with steppers that are not ours.
    let processes = &loaded.catalog.processes;
    let ours = |p: &&pg_event::Process| processes.get(p.parent.index()).is_some_and(|parent| parent.own);
    let theirs = processes.iter().filter(ours).find(|p| p.name == "pg-stepper" && !p.own);
    assert!(theirs.is_none(), "{theirs:?}");
}

#[test]
fn who_cannot_be_followed_is_told() {
    let Some(s) = setup("who_cannot_be_followed_is_told") else { return };
    let target = Target::start(&s.exe, "nap", "20");
    let pid = target.pid();
    let out = s.tool(&["record", "--no-tui", "--steps", "-d", "1"]).output().expect("it starts");
    assert_eq!(out.status.code(), Some(2), "{}", text(&out));
    assert!(text(&out).contains("which thread?"), "{}", text(&out));
    let out = s
        .tool(&["record", "--no-tui", "-o", "b.pgs", "-p", &pid, "--steps", "^no-such-thread$", "-d", "1"])
        .output()
        .expect("it starts");
    assert!(out.status.success(), "{}", text(&out));
    let out = s.tool(&["diagnose", "b.pgs", "--steps"]).output().expect("it starts");
    assert_eq!(out.status.code(), Some(1), "{}", text(&out));
    assert!(text(&out).contains("there is no such thread in the focus"), "{}", text(&out));
}

/// Followed, a program still does what it is for: it checks that itself at its end.
#[test]
fn the_target_ends_as_it_should() {
    let Some(s) = setup("the_target_ends_as_it_should") else { return };
    let mut followed = Vec::new();
    for kind in ["fib", "calls", "deep", "signals", "nap", "inlined"] {
        let target = Target::start(&s.exe, kind, "4");
        let pid = target.pid();
        let out = s
            .tool(&[
                "record",
                "--no-tui",
                "-o",
                "e.pgs",
                "-p",
                &pid,
                "--steps",
                &pid,
                "--steps-for",
                "100ms",
                "-d",
                "1",
            ])
            .output()
            .expect("it starts");
        assert!(out.status.success(), "{}", text(&out));
        followed.push((kind, target, out));
    }
    for (kind, mut target, out) in followed {
        let ended = target.child.wait().expect("ours");
        assert!(ended.success(), "{kind}: {ended:?}: {}", text(&out));
    }
}

fn tracer_of(pid: &str) -> u32 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    status.lines().find_map(|l| l.strip_prefix("TracerPid:")).and_then(|n| n.trim().parse().ok()).unwrap_or(0)
}

/// SIGKILL of the recorder at any moment of a burst: the target goes on, and ends as it should.
#[test]
fn the_target_lives_when_the_recorder_is_killed() {
    let Some(s) = setup("the_target_lives_when_the_recorder_is_killed") else { return };
    let mut amid = 0;
    for round in 0..30 {
        let mut target = Target::start(&s.exe, ["spin", "nap", "fib", "calls", "yield"][round % 5], "60");
        let pid = target.pid();
        let mut record = s
            .tool(&["record", "--no-tui", "-o", "k.pgs", "-p", &pid, "--steps", &pid, "--steps-for", "500ms"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("it starts");
        for _ in 0..10_000 {
            if tracer_of(&pid) != 0 {
                break;
            }
            std::thread::sleep(Duration::from_micros(200));
        }
        std::thread::sleep(Duration::from_micros(900 * round as u64));
        amid += u32::from(tracer_of(&pid) != 0);
        record.kill().expect("ours");
        record.wait().expect("ours");
        for _ in 0..500 {
            if tracer_of(&pid) == 0 {
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(tracer_of(&pid), 0, "round {round}: still traced");
        std::thread::sleep(Duration::from_millis(20));
        let ended = target.child.try_wait().expect("ours");
        assert_eq!(ended, None, "round {round}: the target died");
    }
    assert!(amid >= 15, "killed only {amid} times while the thread was traced");
}
