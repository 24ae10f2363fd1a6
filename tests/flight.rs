//! The flight recorder, for real. It needs the right to trace; without it the tests say that they are skipped.

mod common;

use common::{Ours, contract, pg_tui, skipped, text};
use pg_tui::session::{Session, load};
use std::io::{BufRead, BufReader, Read};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// A running flight recorder.
struct Recorder {
    child: Ours,
    lines: BufReader<std::process::ChildStderr>,
    dir: PathBuf,
}

impl Recorder {
    fn start(dir: &Path, args: &[&str]) -> Self {
        let mut child = pg_tui(dir)
            .env("PG_TUI_RUNTIME_DIR", dir)
            .args(["record", "--flight", "20s", "--after", "300ms", "-o"])
            .arg(dir)
            .args(args)
            .stderr(Stdio::piped())
            .spawn()
            .expect("pg-tui starts");
        let lines = BufReader::new(child.stderr.take().expect("a pipe"));
        let mut this = Self { child: Ours(child), lines, dir: dir.to_owned() };
        this.line_with("flight recorder is on");
        this
    }

    /// Read what it says up to a line that holds `what`.
    fn line_with(&mut self, what: &str) -> String {
        let mut all = String::new();
        loop {
            let mut line = String::new();
            assert!(self.lines.read_line(&mut line).expect("text") > 0, "no {what:?} in: {all}");
            all.push_str(&line);
            if line.contains(what) {
                return line;
            }
        }
    }

    fn signal(&self, name: &str) {
        let status = Command::new("kill").args([name, &self.child.0.id().to_string()]).status();
        assert!(status.expect("kill runs").success());
    }

    fn mark(&self, words: &[&str]) -> Output {
        let mut c = pg_tui(&self.dir);
        c.env("PG_TUI_RUNTIME_DIR", &self.dir).arg("mark").args(words).output().expect("starts")
    }

    fn end(mut self) {
        self.signal("-TERM");
        let mut rest = String::new();
        self.lines.read_to_string(&mut rest).expect("text");
        assert!(self.child.0.wait().expect("it ends").success(), "{rest}");
    }
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let all = std::fs::read_dir(dir).expect("a folder").map(|e| e.expect("an entry").path());
    let mut all: Vec<_> = all.filter(|p| p.extension().is_some_and(|e| e == "pgs")).collect();
    all.sort();
    all
}

/// Somebody who waits for a FIFO that nobody writes to.
fn stuck(dir: &Path) -> Ours {
    let fifo = dir.join("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().expect("mkfifo runs").success());
    Ours(Command::new("cat").arg(&fifo).stdout(Stdio::null()).spawn().expect("cat runs"))
}

/// The report on one process: others of the machine may be called like it.
fn report(dir: &Path, file: &Path, process: &str) -> serde_json::Value {
    let out = pg_tui(dir).arg("diagnose").arg(file).args(["--process", process, "--json"]).output();
    let out = out.expect("starts");
    assert!(out.status.success(), "{}", text(&out));
    serde_json::from_slice(&out.stdout).expect("JSON")
}

#[test]
fn a_mark_writes_what_was_kept() {
    if skipped("a_mark_writes_what_was_kept") {
        return;
    }
    let dir = tempfile::tempdir().expect("a folder");
    let hung = stuck(dir.path());
    let mut recorder = Recorder::start(dir.path(), &["-p", &hung.0.id().to_string()]);
    let out = recorder.mark(&["the", "page\u{7}", "hung"]);
    assert!(out.status.success(), "{}", text(&out));
    let path = PathBuf::from(text(&out).trim());
    assert_eq!(files(dir.path()), std::slice::from_ref(&path));
    let s = Session::open(&path).expect("it opens");
    assert!(s.is_closed() && s.warnings().is_empty(), "{:?}", s.warnings());
    assert_eq!(s.notes()[0].text, "the page  hung");
    let l = load(&path, |_| ControlFlow::Continue(())).expect("it loads");
    assert!(l.catalog.threads.iter().any(|t| t.tid == hung.0.id()), "who hangs is in it");
    let report = report(dir.path(), &path, &format!("^cat .*{}/fifo", dir.path().display()));
    contract::check(&report);
    assert_eq!(report["victim"]["pid"], hung.0.id());
    // SIGUSR1 does the same, and recording has gone on.
    recorder.line_with("written: ");
    recorder.signal("-USR1");
    recorder.line_with("SIGUSR1");
    // What is said while a file is to be written is in that file, too.
    let out = recorder.mark(&["and", "again"]);
    assert!(out.status.success(), "{}", text(&out));
    assert_eq!(files(dir.path()).len(), 2);
    let s = Session::open(&PathBuf::from(text(&out).trim())).expect("it opens");
    assert_eq!(s.notes()[0].text, "SIGUSR1; and again");
    // There is one at a time.
    let out = pg_tui(dir.path())
        .env("PG_TUI_RUNTIME_DIR", dir.path())
        .args(["record", "--flight", "5s"])
        .output()
        .expect("starts");
    assert_eq!(out.status.code(), Some(2), "{}", text(&out));
    assert!(text(&out).contains("running already"), "{}", text(&out));
    recorder.end();
    drop(hung);
    let out = pg_tui(dir.path()).env("PG_TUI_RUNTIME_DIR", dir.path()).arg("mark").output().expect("starts");
    if !Path::new("/run/pg-tui/flight.sock").exists() {
        assert_eq!(out.status.code(), Some(2), "{}", text(&out));
    }
}

#[test]
fn a_long_wait_writes_a_file_by_itself() {
    if skipped("a_long_wait_writes_a_file_by_itself") {
        return;
    }
    let dir = tempfile::tempdir().expect("a folder");
    let lock = dir.path().join("lock");
    let script = format!("flock {l} sleep 3 & sleep 0.5; exec flock {l} true", l = lock.display());
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("sleep 2; {script}")]).stdout(Stdio::null());
    let mut shell = Ours(shell.spawn().expect("sh runs"));
    let args = ["-p", &shell.0.id().to_string(), "--on-wait", "700ms", "--keep", "1", "--every", "0s"];
    let mut recorder = Recorder::start(dir.path(), &args);
    let why = recorder.line_with("more than 700 ms");
    assert!(why.contains("flock"), "{why}");
    recorder.line_with("written: ");
    let first = files(dir.path());
    assert_eq!(first.len(), 1);
    let report = report(dir.path(), &first[0], &format!("^flock .*{} true", lock.display()));
    let object = report["slice"][0]["object"].as_str().unwrap_or_default();
    assert_eq!(object, lock.to_str().expect("text"), "{report:#}");
    // Older files make room.
    std::thread::sleep(Duration::from_millis(1100));
    assert!(recorder.mark(&["again"]).status.success());
    let second = files(dir.path());
    assert!(second.len() == 1 && second != first, "{second:?}");
    recorder.end();
    assert!(shell.0.wait().expect("it ends").success());
}

/// Something else of the focus hangs for longer; the file is diagnosed as what it was written for.
#[test]
fn a_file_is_diagnosed_as_what_it_was_written_for() {
    if skipped("a_file_is_diagnosed_as_what_it_was_written_for") {
        return;
    }
    let dir = tempfile::tempdir().expect("a folder");
    let (lock, fifo) = (dir.path().join("lock"), dir.path().join("fifo"));
    assert!(Command::new("mkfifo").arg(&fifo).status().expect("mkfifo runs").success());
    let (l, f) = (lock.display(), fifo.display());
    let script =
        format!("cat {f} & sleep 2; flock {l} sleep 3 & sleep 0.5; flock {l} true; echo > {f}; wait");
    let mut shell = Command::new("sh");
    shell.args(["-c", &script]).stdout(Stdio::null());
    let mut shell = Ours(shell.spawn().expect("sh runs"));
    let args = ["-p", &shell.0.id().to_string(), "--on-syscall", "flock=700ms"];
    let mut recorder = Recorder::start(dir.path(), &args);
    recorder.line_with("more than 700 ms");
    recorder.line_with("written: ");
    let out =
        pg_tui(dir.path()).args(["diagnose", "--json"]).args(files(dir.path())).output().expect("starts");
    let report: serde_json::Value =
        serde_json::from_slice(&out.stdout).unwrap_or_else(|e| panic!("{e}: {}", text(&out)));
    assert_eq!(report["victim"]["process"], "flock", "{:#}", report["victim"]);
    recorder.end();
    assert!(shell.0.wait().expect("it ends").success());
}

#[test]
fn a_command_that_runs_too_long_is_written_and_its_exit_code_passed_on() {
    let test = "a_command_that_runs_too_long_is_written_and_its_exit_code_passed_on";
    if skipped(test) {
        return;
    }
    let dir = tempfile::tempdir().expect("a folder");
    let begin = Instant::now();
    let out = pg_tui(dir.path())
        .env("PG_TUI_RUNTIME_DIR", dir.path())
        .args(["record", "--flight", "20s", "--after", "200ms", "--on-runtime", "500ms", "-o"])
        .arg(dir.path())
        .args(["--", "sh", "-c", "sleep 2.5; exit 3"])
        .output()
        .expect("starts");
    assert_eq!(out.status.code(), Some(3), "{}", text(&out));
    assert!(begin.elapsed() > Duration::from_secs(2));
    // The command itself, and not only what it starts.
    assert!(text(&out).contains("`sh -c") && text(&out).contains("more than 500 ms"), "{}", text(&out));
    let files = files(dir.path());
    assert_eq!(files.len(), 1, "{}", text(&out));
    let s = Session::open(&files[0]).expect("it opens");
    assert_eq!(s.header().command[0], "sh");
}
