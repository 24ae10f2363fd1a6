//! Stacks of real Python programs, of every interpreter that is installed, against what the programs themselves
//! say of their frames.

use pg_event::{Catalog, StackId};
use pg_tracer::stacks::StackTable;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// Ends its program.
struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        // With its children. A program that is gone already is as good.
        let group = format!("-{}", self.0.id());
        let _ = Command::new("kill").args(["-9", "--", &group]).status();
        let _ = self.0.wait();
    }
}

/// Interpreters of Python 3.9 to 3.13 on this machine, with their minor version.
fn interpreters() -> Vec<(PathBuf, u32)> {
    let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    let mut candidates: Vec<PathBuf> = (9..=13).map(|m| format!("/usr/bin/python3.{m}").into()).collect();
    let versions = std::fs::read_dir(home.join(".pyenv/versions")).into_iter().flatten().flatten();
    candidates.extend(versions.map(|v| v.path().join("bin/python3")));
    let mut out = Vec::new();
    for c in candidates {
        let code = "import sys; print(sys.version_info[1])";
        let Ok(o) = Command::new(&c).args(["-c", code]).stderr(Stdio::null()).output() else { continue };
        let minor = String::from_utf8_lossy(&o.stdout).trim().parse().unwrap_or(0);
        if o.status.success() && (9..=13).contains(&minor) {
            out.push((c, minor));
        }
    }
    out
}

/// What a program says: by thread, its frames as `NAME LINE FILE`, innermost first.
type Truth = BTreeMap<u32, Vec<String>>;

fn start(python: &PathBuf, what: &str) -> (Program, Truth) {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/python/waits.py");
    let mut child =
        Command::new(python).args([script, what]).stdout(Stdio::piped()).process_group(0).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let program = Program(child);
    let mut truth = Truth::new();
    for line in lines.map_while(Result::ok).take_while(|l| l != "end") {
        let (tid, frame) = line.split_once(' ').unwrap();
        truth.entry(tid.parse().unwrap()).or_default().push(frame.to_owned());
    }
    (program, truth)
}

/// The stack of a thread as the table has it, in the same form.
fn read(table: &mut StackTable, catalog: &mut Catalog, pid: u32, tid: u32) -> Option<Vec<String>> {
    let python = table.python(pid, tid)?;
    let id = table.with_python(StackId::NONE, &python);
    catalog.apply(table.drain());
    Some(catalog.frames_of(id).map(|f| format!("{} {} {}", f.function, f.line, f.file)).collect())
}

#[test]
fn stacks_are_those_that_the_programs_tell() {
    let interpreters = interpreters();
    if interpreters.is_empty() {
        println!("skipped: no Python of 3.9 to 3.13 is installed");
    }
    for (python, minor) in interpreters {
        println!("{}: 3.{minor}", python.display());
        // One table for all programs of a version: names and places are shared.
        let (mut table, mut catalog) = (StackTable::new(), Catalog::default());
        for what in [
            "lock",
            "sleeps",
            "pipe",
            "loop",
            "coroutine",
            "generators",
            "callback",
            "replace",
            "deep",
            "too_deep",
            "text",
            "methods",
            "thread",
            "handler",
            "far_lines",
        ] {
            let (program, truth) = start(&python, what);
            assert!(!truth.is_empty(), "{what} of 3.{minor} said nothing");
            for (tid, want) in truth {
                let got = read(&mut table, &mut catalog, program.0.id(), tid).unwrap_or_default();
                let most = want.len().min(128);
                assert_eq!(got, want[..most], "{what} of 3.{minor}, thread {tid}");
            }
        }
    }
}

#[test]
fn a_thread_that_runs_has_no_stack() {
    let Some((python, _)) = interpreters().pop() else {
        println!("skipped: no Python of 3.9 to 3.13 is installed");
        return;
    };
    let mut child = Command::new(python);
    child.args(["-c", "print(1, flush=True)\nwhile True: pass"]);
    let mut child = child.stdout(Stdio::piped()).process_group(0).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let program = Program(child);
    let (mut table, pid) = (StackTable::new(), program.0.id());
    for _ in 0..1000 {
        // Preempted in the middle of a function it may wait for a CPU, which is no wait either.
        assert!(table.python(pid, pid).is_none());
    }
}
