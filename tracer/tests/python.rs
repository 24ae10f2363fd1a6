//! Stacks of real Python programs, of every interpreter that is installed, against what the programs themselves
//! say of their frames.

mod gather;

use gather::gathered;
use pg_event::{Catalog, Event, Kind, ModuleKind, OffCpu, Sample, StackId};
use pg_tracer::stacks::StackTable;
use pg_tracer::{Collector, Focus, Options, check_permission};
use std::collections::{BTreeMap, VecDeque};
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

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

/// Those to record with, which takes its time: what their versions have in memory is tested without. The oldest and the
/// newest, and the first in which a Python function calls another without native code in between.
fn of_recordings() -> Vec<(PathBuf, u32)> {
    let mut all = interpreters();
    all.sort_by_key(|i| i.1);
    let (Some(&(_, oldest)), Some(&(_, newest))) = (all.first(), all.last()) else { return all };
    all.retain(|i| [oldest, 11, newest].contains(&i.1));
    all.dedup_by_key(|i| i.1);
    all
}

/// What a program says: by thread, its frames as `NAME LINE FILE`, innermost first.
type Truth = BTreeMap<u32, Vec<String>>;

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/python/waits.py");

fn spawn(python: &PathBuf, what: &str) -> Program {
    let mut command = Command::new(python);
    command.args([SCRIPT, what]).stdout(Stdio::piped()).process_group(0);
    Program(command.spawn().unwrap())
}

/// The same once its standard input ends.
fn spawn_when_told(python: &PathBuf, what: &str) -> Program {
    let mut command = Command::new("sh");
    command.args(["-c", "read line; exec \"$@\"", "sh"]).arg(python).args([SCRIPT, what]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0);
    Program(command.spawn().unwrap())
}

/// What the program says once it waits; nothing when it just ends.
fn truth(program: &mut Program) -> Truth {
    let lines = BufReader::new(program.0.stdout.take().unwrap()).lines();
    let mut truth = Truth::new();
    for line in lines.map_while(Result::ok).take_while(|l| l != "end") {
        let (tid, frame) = line.split_once(' ').unwrap();
        truth.entry(tid.parse().unwrap()).or_default().push(frame.to_owned());
    }
    truth
}

/// The stack of a thread as the table has it, in the same form.
fn read(table: &mut StackTable, catalog: &mut Catalog, pid: u32, tid: u32) -> Option<Vec<String>> {
    let python = table.python(pid, tid)?;
    let id = table.with_python(StackId::NONE, &python);
    catalog.apply(table.drain());
    Some(catalog.frames_of(id).map(|f| format!("{} {} {}", f.function, f.line, f.file)).collect())
}

/// Ways to wait (`waits.py`).
const WAYS: [&str; 15] = [
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
];

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
        // Each takes a moment until it waits: meanwhile the next ones start.
        let mut programs = WAYS.iter().map(|what| (what, spawn(&python, what)));
        let mut ahead: VecDeque<_> = programs.by_ref().take(4).collect();
        while let Some((what, mut program)) = ahead.pop_front() {
            let truth = truth(&mut program);
            assert!(!truth.is_empty(), "{what} of 3.{minor} said nothing");
            for (tid, want) in truth {
                let got = read(&mut table, &mut catalog, program.0.id(), tid).unwrap_or_default();
                let most = want.len().min(128);
                assert_eq!(got, want[..most], "{what} of 3.{minor}, thread {tid}");
            }
            ahead.extend(programs.next());
        }
    }
}

/// The number of a thread within its namespace.
fn ns_tid(tid: u32) -> u32 {
    let status = std::fs::read_to_string(format!("/proc/{tid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("NSpid:")).unwrap_or_default();
    line.split_whitespace().next_back().and_then(|n| n.parse().ok()).unwrap_or(0)
}

#[test]
fn threads_of_another_pid_namespace_are_found() {
    let unshare = ["--fork", "--pid", "--mount", "--mount-proc"];
    let may = Command::new("unshare").args(unshare).arg("true").stderr(Stdio::null()).status();
    if !may.is_ok_and(|s| s.success()) {
        println!("skipped: unshare(1) may not make a pid namespace here");
        return;
    }
    for (python, minor) in interpreters() {
        let mut command = Command::new("unshare");
        command.args(unshare).arg(python).args([SCRIPT, "thread"]).stdout(Stdio::piped()).process_group(0);
        let mut program = Program(command.spawn().unwrap());
        let truth = truth(&mut program);
        let outer = program.0.id();
        let children = std::fs::read_to_string(format!("/proc/{outer}/task/{outer}/children")).unwrap();
        let pid: u32 = children.trim().parse().unwrap();
        let (mut table, mut catalog, mut found) = (StackTable::new(), Catalog::default(), 0);
        for task in std::fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten() {
            let tid: u32 = task.file_name().to_str().unwrap().parse().unwrap();
            let Some(want) = truth.get(&ns_tid(tid)) else { continue };
            assert_eq!(read(&mut table, &mut catalog, pid, tid).as_ref(), Some(want), "3.{minor}");
            found += 1;
        }
        assert_eq!(found, truth.len(), "3.{minor}: {truth:?}");
    }
}

#[test]
fn a_child_of_fork_has_its_own_stack() {
    for (python, minor) in interpreters() {
        let mut program = spawn(&python, "forks");
        let truth = truth(&mut program);
        let (&pid, want) = truth.iter().next().unwrap();
        assert_ne!(pid, program.0.id());
        // It tells of itself before it waits: on a busy machine a while before.
        let read = || read(&mut StackTable::new(), &mut Catalog::default(), pid, pid);
        let later = || {
            std::thread::sleep(Duration::from_millis(100));
            read()
        };
        let got = read().or_else(|| (0..100).find_map(|_| later()));
        assert_eq!(got.as_ref(), Some(want), "3.{minor}");
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

/// When a wait is long, ns: shorter than what the programs do, longer than a start takes.
const LONG: u64 = 500_000_000;

/// A recording of a program: what it says, the catalogue, the waits and the samples of its main thread. A program that
/// waits without end is ended when its wait had been a long one for so long.
fn record(
    python: &PathBuf,
    what: &str,
    looked_at: Option<Duration>,
) -> (Truth, Catalog, Vec<OffCpu>, Vec<Sample>) {
    recorded(python, what, looked_at, false)
}

/// The same; `elsewhere`: the recording is about another program.
fn recorded(
    python: &PathBuf,
    what: &str,
    looked_at: Option<Duration>,
    elsewhere: bool,
) -> (Truth, Catalog, Vec<OffCpu>, Vec<Sample>) {
    let (sender, items) = crossbeam_channel::unbounded();
    let focus = Focus { command: elsewhere, ..Focus::default() };
    let options = Options { long_wait_ns: LONG, focus, ..Options::default() };
    let collector = Collector::start(options, sender).unwrap();
    let other = Program(Command::new("sleep").arg("1000").process_group(0).spawn().unwrap());
    // Nothing of it is to happen before it is in the focus: of others a small piece of the stack is copied.
    let mut program = spawn_when_told(python, what);
    collector.focus_on(if elsewhere { other.0.id() } else { program.0.id() });
    drop(program.0.stdin.take());
    let truth = truth(&mut program);
    match looked_at {
        Some(time) => std::thread::sleep(Duration::from_nanos(LONG) + time),
        // It ends by itself.
        None => drop(program.0.wait().unwrap()),
    }
    collector.stop().unwrap();
    let (catalog, events) = gathered(items);
    let main = |e: &&Event| catalog.thread(e.thread).is_some_and(|t| t.tid == program.0.id());
    let off = |e: &Event| if let Kind::OffCpu(o) = e.kind { Some(o) } else { None };
    let waits = events.iter().filter(main).filter_map(off).collect();
    let sample = |e: &Event| if let Kind::Sample(s) = e.kind { Some(s) } else { None };
    let samples = events.iter().filter(main).filter_map(sample).collect();
    (truth, catalog, waits, samples)
}

/// Frames of a stack: name, and whether it is a Python function.
fn frames(catalog: &Catalog, stack: StackId) -> Vec<(String, bool)> {
    let python =
        |m: pg_event::ModuleId| catalog.modules.get(m.index()).is_some_and(|m| m.kind == ModuleKind::Python);
    catalog.frames_of(stack).map(|f| (f.function.clone(), python(f.module))).collect()
}

#[test]
fn recorded_waits_have_python_functions_among_the_native_ones() {
    if let Err(e) = check_permission() {
        println!("skipped: recording is not possible: {e}");
        return;
    }
    for (python, minor) in of_recordings() {
        for what in ["callback", "sleeps"] {
            // How soon a long wait is looked at depends on what else the machine does.
            let mut looked_at = [700, 3_000, 15_000].map(Duration::from_millis).into_iter().peekable();
            let (truth, frames) = loop {
                let wait = looked_at.next().expect("the loop ends with the last");
                let (truth, catalog, waits, _) = record(&python, what, Some(wait));
                let last = waits.iter().rfind(|w| w.open).expect("it still waited");
                let frames = frames(&catalog, last.user_stack);
                if looked_at.peek().is_none() || frames.iter().any(|f| f.1) {
                    break (truth, frames);
                }
            };
            let got: Vec<&str> = frames.iter().filter(|f| f.1).map(|f| f.0.as_str()).collect();
            // The first thread to tell of is the main one: it has the lowest number.
            let told = truth.values().next().unwrap();
            let want: Vec<&str> = told.iter().map(|l| l.split(' ').next().unwrap()).collect();
            assert_eq!(got, want, "{what} of 3.{minor}");
            assert!(frames.iter().all(|f| f.0 != "_PyEval_EvalFrameDefault"), "{frames:#?}");
            // Native ones on both ends, and where Python was called by native code.
            let native = |i: usize| frames.get(i).is_some_and(|f| !f.1);
            let at = |name: &str| frames.iter().position(|f| f.0.ends_with(name)).unwrap();
            assert!(native(0) && native(frames.len() - 1), "{frames:#?}");
            if what == "callback" {
                assert!(native(at("key") + 1), "the key is called by sorted(): {frames:#?}");
            } else {
                // Since 3.11 a Python function calls another without native code in between.
                assert_eq!(native(at("a") + 1), minor < 11, "{frames:#?}");
            }
        }
    }
}

#[test]
fn a_stack_is_given_to_the_wait_it_was_read_in_and_to_no_other() {
    if let Err(e) = check_permission() {
        println!("skipped: recording is not possible: {e}");
        return;
    }
    let Some((python, _)) = interpreters().pop() else {
        println!("skipped: no Python of 3.9 to 3.13 is installed");
        return;
    };
    // About one switch in 200 is not reported by some kernels, and two waits are then one.
    for attempt in 0.. {
        let (_, catalog, waits, _) = record(&python, "twice", None);
        let of = |o: &OffCpu| {
            frames(&catalog, o.user_stack).into_iter().filter(|f| f.1).map(|f| f.0).next().unwrap_or_default()
        };
        let long: Vec<String> =
            waits.iter().filter(|w| !w.open && w.woken.saturating_sub(w.start) > LONG).map(of).collect();
        // The long one while it went on is no other.
        let short: Vec<String> =
            waits.iter().filter(|w| !w.open && w.woken.saturating_sub(w.start) < LONG / 2).map(of).collect();
        // A busy machine's recorder may come too late to look at it.
        let unseen = || long.iter().any(String::is_empty);
        if attempt < 3 && (long.len() != 1 || short.len() < 5 || unseen()) {
            continue;
        }
        assert_eq!(long.len(), 1, "{long:?}");
        assert!(long[0].ends_with("first"), "{long:?}");
        // Some short ones are read, too, each for itself.
        assert!(short.len() >= 5 && short.iter().all(|f| !f.ends_with("first")), "{short:?}");
        return;
    }
}

#[test]
fn samples_have_python_functions_in_ways_they_call_each_other() {
    if let Err(e) = check_permission() {
        println!("skipped: recording is not possible: {e}");
        return;
    }
    let of = of_recordings();
    let elsewhere = of.last().cloned();
    for ((python, minor), elsewhere) in of.into_iter().map(|i| (i, false)).chain(elsewhere.map(|i| (i, true)))
    {
        let (_, catalog, _, samples) = recorded(&python, "busy", None, elsewhere);
        let calls = |outer: &str, inner: &str| {
            let legal: &[&str] = match outer.rsplit('.').next().unwrap_or(outer) {
                "<module>" => &["busy"],
                "busy" => &["order", "plain"],
                "order" => &["items", "key"],
                "items" | "key" => &["leaf"],
                "plain" | "<listcomp>" => &["<listcomp>", "leaf"],
                "leaf" => &["<listcomp>"],
                _ => &[],
            };
            legal.contains(&inner.rsplit('.').next().unwrap_or(inner))
        };
        let (mut with, mut order, mut plain) = (0, 0, 0);
        let mut unknown = None;
        for (i, s) in samples.iter().enumerate() {
            let names: Vec<String> =
                frames(&catalog, s.user_stack).into_iter().filter(|f| f.1).map(|f| f.0).collect();
            // The interpreter's own start-up has functions of its own.
            if !names.iter().any(|n| n == "busy") {
                continue;
            }
            // It takes a moment until a thread is known to be one of Python's: longer when others want the CPU.
            unknown.get_or_insert(i);
            with += 1;
            order += usize::from(names.iter().any(|n| n.ends_with("order")));
            plain += usize::from(names.iter().any(|n| n.ends_with("plain")));
            for pair in names.windows(2) {
                assert!(calls(&pair[1], &pair[0]), "{} calls {} of 3.{minor}: {names:?}", pair[1], pair[0]);
            }
            assert_eq!(names.last().map(String::as_str), Some("<module>"), "{names:?}");
        }
        let unknown = unknown.unwrap_or(samples.len());
        let known = samples.len() - unknown;
        println!(
            "3.{minor}, outside of the focus {elsewhere}: {with} of {known} samples after {unknown}, {order} and {plain}"
        );
        assert!(
            with >= 20 && with * 10 > known * 9,
            "{with} of {known} samples of 3.{minor}, after {unknown}"
        );
        assert!(order > with / 5 && plain > with / 10, "{order} and {plain} of {with}");
    }
}
