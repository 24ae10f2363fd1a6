//! Names of code that a just-in-time compiler makes, by the perf-map it writes, also within a container.

mod gather;

use gather::gathered;
use pg_event::{Catalog, Event, Kind, Sample};
use pg_tracer::{Collector, Options, check_permission};
use std::process::{Child, Command, Stdio};

const PROGRAM: &str = "
function burn(n) { let s = 0; for (let i = 0; i < n; i++) s += Math.sqrt(i) * (i % 7); return s; }
function serve() { let t = 0; const end = Date.now() + 2500; while (Date.now() < end) t += burn(100000); return t; }
serve();
";

/// The samples of a program's process named `node`, recorded until it ends.
fn record(mut command: Command) -> (Catalog, Vec<Sample>) {
    let (sender, items) = crossbeam_channel::unbounded();
    let collector = Collector::start(Options::default(), sender).unwrap();
    let mut child: Child = command.stdout(Stdio::null()).spawn().unwrap();
    collector.focus_on(child.id());
    assert!(child.wait().unwrap().success());
    collector.stop().unwrap();
    let (catalog, events) = gathered(items);
    let own = |e: &&Event| catalog.thread(e.thread).is_some_and(|t| t.focus && t.name == "node");
    let sample = |e: &Event| if let Kind::Sample(s) = e.kind { Some(s) } else { None };
    let samples = events.iter().filter(own).filter_map(sample).collect();
    (catalog, samples)
}

fn check(command: Command) {
    let (catalog, samples) = record(command);
    let within = |s: &&Sample, name: &str| {
        catalog.show_stack(s.user_stack).iter().any(|f| f.contains(name) && f.ends_with("([jit])"))
    };
    let serves = samples.iter().filter(|s| within(s, "serve")).count();
    let burns = samples.iter().filter(|s| within(s, "burn")).count();
    // Starting takes its time, and after a second functions are compiled anew.
    assert!(samples.len() >= 20, "{} samples", samples.len());
    assert!(
        serves * 2 > samples.len() && burns * 2 > samples.len(),
        "{burns}, {serves} of {}",
        samples.len()
    );
}

fn node() -> Option<Command> {
    let found = Command::new("node").arg("--version").stdout(Stdio::null()).status();
    if let Err(e) = check_permission() {
        println!("skipped: recording is not possible: {e}");
        return None;
    }
    if !found.is_ok_and(|s| s.success()) {
        println!("skipped: node is not installed");
        return None;
    }
    Some(Command::new("node"))
}

/// Without inlining: on a quiet machine `burn` is soon compiled into `serve`, and is no function any more.
const ARGS: [&str; 5] =
    ["--no-turbo-inlining", "--perf-basic-prof", "--interpreted-frames-native-stack", "-e", PROGRAM];

#[test]
fn compiled_functions_of_node_have_names() {
    let Some(mut node) = node() else { return };
    let folder = tempfile::tempdir().unwrap();
    // Other files than the map are written to the folder it runs in.
    node.args(ARGS).current_dir(folder.path());
    check(node);
}

#[test]
fn compiled_functions_in_a_container_have_names() {
    let unshare = ["--fork", "--pid", "--mount", "--mount-proc"];
    let may = Command::new("unshare").args(unshare).arg("true").stderr(Stdio::null()).status();
    if !may.is_ok_and(|s| s.success()) {
        println!("skipped: unshare(1) may not make namespaces here");
        return;
    }
    if node().is_none() {
        return;
    }
    let mut command = Command::new("unshare");
    command.args(unshare);
    // A file system of its own for the map, which is gone with the last process.
    command.args(["sh", "-c", "mount -t tmpfs none /tmp && cd /tmp && exec node \"$@\"", "sh"]).args(ARGS);
    check(command);
}
