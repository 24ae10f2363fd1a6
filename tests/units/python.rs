//! Units of an asyncio server: its loop is found, and handlers that hold it up are told while they do.

use super::RECORDER;
use super::common::{Guard, pg_tui, skipped, text};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// How long units may take, and for how long the slow ones hold up the loop.
const LIMIT: &str = "300ms";
const LONG_MS: u64 = 1500;
/// Clients that keep it busy.
const CLIENTS: usize = 3;
/// Recordings until one has what shows the loop.
const TRIES: usize = 3;

/// May this test record, and is there a Python whose frames can be read?
fn can_trace_python(test: &str) -> bool {
    if skipped(test) {
        return false;
    }
    let version = ["-c", "import sys; print(sys.version_info[0], sys.version_info[1])"];
    let version = Command::new("python3").args(version).output();
    let version = version.map(|o| String::from_utf8_lossy(&o.stdout).trim().to_owned()).unwrap_or_default();
    let known =
        version.strip_prefix("3 ").and_then(|v| v.parse().ok()).is_some_and(|v: u32| (9..=13).contains(&v));
    if !known {
        println!("skipped: {test}: there is no python3 of a version from 3.9 to 3.13 ({version:?})");
    }
    known
}

fn ask(client: &mut TcpStream, line: &str) -> bool {
    client.write_all(line.as_bytes()).is_ok() && client.read_exact(&mut [0; 2]).is_ok()
}

/// The server with its load.
struct Server {
    child: Child,
    port: u16,
    over: Arc<AtomicBool>,
    load: Vec<JoinHandle<()>>,
}

impl Server {
    fn start() -> Self {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/units/server.py");
        let mut child = Command::new("python3").arg(script).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let port = line.trim().parse().unwrap_or_else(|_| panic!("the server says no port: {line:?}"));
        let over = Arc::new(AtomicBool::new(false));
        let client = |i: usize| {
            let over = Arc::clone(&over);
            let mut client = TcpStream::connect(("127.0.0.1", port)).unwrap();
            std::thread::spawn(move || {
                let kinds = ["q 0\n", "c 3\n", "q 0\n", "q 0\n", "b 4\n", "q 0\n"];
                for line in kinds.into_iter().cycle().skip(i) {
                    if over.load(Ordering::Relaxed) || !ask(&mut client, line) {
                        return;
                    }
                    std::thread::sleep(Duration::from_millis(8));
                }
            })
        };
        let load = (0..CLIENTS).map(client).collect();
        Self { child, port, over, load }
    }

    fn pid(&self) -> String {
        self.child.id().to_string()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        let _ = self.child.kill();
        let _ = self.child.wait();
        self.load.drain(..).for_each(|t| drop(t.join()));
    }
}

fn lines(out: &[u8]) -> Vec<Value> {
    String::from_utf8_lossy(out).lines().filter_map(|l| serde_json::from_str(l).ok()).collect()
}

fn frames(v: &Value) -> Vec<&str> {
    v["stack"].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

/// Was it told while the function ran, with the loop where it is?
fn is_slow_in(v: &Value, function: &str) -> bool {
    let stack = frames(v);
    let at = |name: &str| stack.iter().position(|f| f.starts_with(name) && f.contains("server.py:"));
    let kernel = stack.iter().filter(|f| f.ends_with("([kernel])")).count();
    let of_loop = v["distance"].as_u64().and_then(|d| stack.get(kernel + d as usize));
    let in_time = v["elapsed_ns"].as_u64().is_some_and(|ns| ns < LONG_MS * 1_000_000);
    in_time
        && v["at"] != "end"
        && at(function).zip(at("serve")).is_some_and(|(inner, outer)| inner < outer)
        && of_loop.is_some_and(|f| f.contains("run_forever (") && f.contains("base_events.py"))
}

#[test]
fn a_handler_that_holds_up_asyncio_is_caught_in_the_act() {
    if !can_trace_python("a_handler_that_holds_up_asyncio_is_caught_in_the_act") {
        return;
    }
    let _turn = RECORDER.lock().unwrap_or_else(PoisonError::into_inner);
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start();
    let profile = dir.path().join("server.pgprof");
    let profile = profile.to_str().unwrap();
    let mut trained = String::new();
    // On a busy machine few of its waits may be read with their functions.
    let learnt = (0..TRIES).any(|_| {
        let args = ["train", "-p", &server.pid(), "-d", "4", "--measure", "3", "-o", profile];
        let out = pg_tui(dir.path()).args(args).output().unwrap();
        trained = text(&out);
        out.status.success()
    });
    assert!(learnt, "{trained}");
    let shown = pg_tui(dir.path()).args(["profile", "show", "--json", profile]).output().unwrap();
    let shown: Value = serde_json::from_slice(&shown.stdout).unwrap();
    let loops = shown["loops"].as_array().unwrap();
    let of = |l: &&Value| l["function"].as_str().is_some_and(|f| f.ends_with("run_forever"));
    let of_loop = loops.iter().find(of).unwrap_or_else(|| panic!("{trained}"));
    // By lines of Python, and as guards know it.
    let boundaries = of_loop["boundaries"].as_array().unwrap();
    assert!(boundaries.iter().all(|b| b["syscall"] == "epoll_wait"), "{boundaries:?}");
    assert!(boundaries.iter().any(|b| b["interpreter"].is_string()), "{boundaries:?}");

    let guard = Guard::start(
        pg_tui(dir.path())
            .args(["guard", "-p", &server.pid(), "--profile", profile, "--json", "-d", "120"])
            .args(["--threshold", LIMIT, "--on-violation", "record", "-o", dir.path().to_str().unwrap()]),
    );
    let mut client = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
    // On a busy machine one may have had no CPU, and be told for that.
    for _ in 0..3 {
        for what in ["c", "b"] {
            assert!(ask(&mut client, &format!("{what} {LONG_MS}\n")));
            std::thread::sleep(Duration::from_millis(700));
        }
    }
    let guarded = guard.end();
    let said = text(&guarded);
    assert_eq!(guarded.status.code(), Some(6), "{said}");
    let told = lines(&guarded.stdout);
    assert!(told.iter().any(|v| is_slow_in(v, "compute")), "{said}");
    assert!(told.iter().any(|v| is_slow_in(v, "block") && v["at"] == "asleep"), "{said}");
    // In what was recorded around it as well.
    let files = std::fs::read_dir(dir.path()).unwrap().flatten().map(|e| e.path());
    let files: Vec<_> = files.filter(|p| p.extension().is_some_and(|e| e == "pgs")).collect();
    let listed = |file| {
        let out = pg_tui(dir.path()).args(["violations", "--json"]).arg(file).output().unwrap();
        lines(&out.stdout)
    };
    let listed: Vec<Value> = files.iter().flat_map(listed).collect();
    let slow = |v: &Value| is_slow_in(v, "compute") || is_slow_in(v, "block");
    assert!(listed.iter().any(slow), "{files:?}: {listed:?}; {said}");
    // Waiting for the next request is no part of a unit, and quick ones are units of their own.
    let waits = |v: &Value| {
        frames(v).iter().any(|f| f.starts_with("EpollSelector.select") || f.starts_with("epoll_wait"))
    };
    assert!(!told.iter().any(|v| v["event"] == "violation" && v["at"] == "asleep" && waits(v)), "{said}");
    let summary = told.last().unwrap();
    assert!(summary["units"].as_u64().is_some_and(|n| n > 100), "{said}");
}
