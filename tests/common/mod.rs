//! What several tests need: the program, a small recording, the contract of the report.
// Each test binary that includes this file uses a part of it.
#![allow(dead_code)]

pub mod contract;
pub mod sample;

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// The program under test, with its log in `dir`.
pub fn pg_tui(dir: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pg-tui"));
    command.env("XDG_STATE_HOME", dir).env("NO_COLOR", "1").env_remove("PG_TUI_LOG");
    command.stdin(Stdio::null());
    command
}

/// All that a program printed.
pub fn text(out: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr))
}

/// Why nothing can be recorded here; `None` when it can.
pub fn cannot_trace() -> Option<String> {
    let missing = pg_tracer::check_permission().err()?.to_string();
    Some(missing.lines().next().unwrap_or_default().to_owned())
}

/// Can this test not record? Then it says why it is skipped.
pub fn skipped(test: &str) -> bool {
    let why = cannot_trace();
    if let Some(why) = &why {
        println!("skipped: {test}: {why}");
    }
    why.is_some()
}

/// A process that ends with the test, however that ends.
pub struct Ours(pub Child);

impl Ours {
    /// Its process id, to be typed.
    pub fn pid(&self) -> String {
        self.0.id().to_string()
    }
}

impl Drop for Ours {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// May this test record, and is there a C compiler? If not it says why it is skipped.
pub fn can_trace_and_compile(test: &str) -> bool {
    if skipped(test) {
        return false;
    }
    let found =
        Command::new("gcc").arg("--version").stdout(Stdio::null()).status().is_ok_and(|s| s.success());
    if !found {
        println!("skipped: {test}: there is no gcc");
    }
    found
}

/// `pg-tui guard` that runs, ended by a signal.
pub struct Guard {
    child: Child,
    said: std::thread::JoinHandle<String>,
    lines: mpsc::Receiver<String>,
}

impl Guard {
    /// Starts it, and waits until it says that it guards.
    pub fn start(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        let (tell, lines) = mpsc::channel();
        let said = std::thread::spawn(move || {
            let mut all = String::new();
            for line in stderr.lines().map_while(Result::ok) {
                all += &line;
                all.push('\n');
                let _ = tell.send(line);
            }
            all
        });
        let mut guard = Self { child, said, lines };
        if let Err(said) = guard.said_within(Duration::from_secs(60), "guarding ") {
            let _ = guard.child.kill();
            panic!("it does not guard: {said}");
        }
        guard
    }

    /// Waits until it says this, from where it was waited for last. A busy machine may take long for that.
    pub fn until(&mut self, what: &str) {
        if let Err(said) = self.said_within(Duration::from_secs(60), what) {
            panic!("it does not say {what:?}: {said}");
        }
    }

    /// What it said instead, if it did not say this.
    fn said_within(&mut self, most: Duration, what: &str) -> Result<(), String> {
        let (end, mut said) = (Instant::now() + most, String::new());
        while let Ok(line) = self.lines.recv_timeout(end.saturating_duration_since(Instant::now())) {
            if line.contains(what) {
                return Ok(());
            }
            said = said + &line + "\n";
        }
        Err(said)
    }

    /// Asks it to end; what it said.
    pub fn end(mut self) -> Output {
        let pid = self.child.id().to_string();
        let asked = Command::new("kill").args(["-INT", &pid]).status();
        assert!(asked.is_ok_and(|s| s.success()), "{:?}", self.child.try_wait());
        let mut stdout = Vec::new();
        self.child.stdout.take().unwrap().read_to_end(&mut stdout).unwrap();
        let stderr = self.said.join().unwrap().into_bytes();
        Output { status: self.child.wait().unwrap(), stdout, stderr }
    }
}
