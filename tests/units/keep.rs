//! A server with a thread for each connection: its units are requests, and the waits for the next request of a connection
//! are no part of them.

use super::RECORDER;
use super::common::{Guard, can_trace_and_compile, pg_tui, text};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// Requests of a connection.
const REQUESTS: u64 = 8;
/// What a request may take.
const LIMIT: &str = "250ms";

/// The server, and a client that keeps it busy.
struct Server {
    child: Child,
    port: u16,
    over: Arc<AtomicBool>,
    asked: Arc<AtomicU64>,
    load: Option<JoinHandle<()>>,
}

impl Server {
    fn start(dir: &Path) -> Self {
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/units/keep.c");
        let args = ["-O1", "-g", "-fno-optimize-sibling-calls", "-Wl,--build-id", "-pthread", "-o", "keep"];
        let built = Command::new("gcc").current_dir(dir).args(args).arg(source).status();
        assert!(built.is_ok_and(|s| s.success()));
        let mut child = Command::new(dir.join("keep")).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let port = line.trim().parse().unwrap();
        let (over, asked) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (stop, count) = (Arc::clone(&over), Arc::clone(&asked));
        let load = std::thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                let mut to = Connection::to(port);
                for _ in 0..REQUESTS {
                    to.ask(&["1"]);
                    count.fetch_add(1, Ordering::Relaxed);
                    // The server waits, for one of many.
                    std::thread::sleep(Duration::from_millis(10));
                }
            }
        });
        Self { child, port, over, asked, load: Some(load) }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        let _ = self.load.take().map(JoinHandle::join);
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

struct Connection(TcpStream);

impl Connection {
    fn to(port: u16) -> Self {
        let to = TcpStream::connect(("127.0.0.1", port)).unwrap();
        to.set_nodelay(true).unwrap();
        Self(to)
    }

    /// Sends requests at once, and waits until all are answered.
    fn ask(&mut self, all: &[&str]) {
        let lines: String = all.iter().flat_map(|r| [r, "\n"]).collect();
        self.0.write_all(lines.as_bytes()).unwrap();
        self.0.read_exact(&mut vec![0; all.len()]).unwrap();
    }
}

/// Is some frame of what was told of this function?
fn is_in(told: &Value, function: &str) -> bool {
    let stack = told["stack"].as_array();
    stack.is_some_and(|s| s.iter().any(|f| f.as_str().is_some_and(|f| f.starts_with(function))))
}

#[test]
fn requests_of_kept_connections_are_units() {
    if !can_trace_and_compile("requests_of_kept_connections_are_units") {
        return;
    }
    let _turn = RECORDER.lock().unwrap_or_else(PoisonError::into_inner);
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path());
    let pid = server.child.id().to_string();
    let trained = pg_tui(dir.path())
        .current_dir(dir.path())
        .args(["train", "-p", &pid, "-d", "4", "--measure", "3", "-o", "keep.pgprof", "--keep", "keep.pgs"])
        .output()
        .unwrap();
    let said = text(&trained);
    assert!(trained.status.success() && said.contains("its units are requests"), "{said}");
    assert!(!said.contains("such a unit is a connection"), "{said}");
    let show = ["profile", "show", "--json", "keep.pgprof"];
    let shown = pg_tui(dir.path()).current_dir(dir.path()).args(show).output().unwrap();
    let shown: Value = serde_json::from_slice(&shown.stdout).unwrap();
    let boundaries = shown["loops"][0]["boundaries"].as_array().unwrap();
    let of = |call: &str, request: bool| {
        boundaries.iter().any(|b| b["syscall"] == call && b["request"].is_object() == request)
    };
    assert!(
        shown["loops"][0]["function"] == "serve" && of("accept", false) && of("recvfrom", true),
        "{shown}"
    );
    // Units of a recording are requests, too: mostly of 1 ms, and not of some 100.
    let units = pg_tui(dir.path()).current_dir(dir.path()).args(["units", "keep.pgs"]).output().unwrap();
    assert!(units.status.success() && text(&units).contains("serve"), "{}", text(&units));
    // How many there were it does not know.
    assert!(text(&units).contains("note: there may have been more units"), "{}", text(&units));

    let args = ["guard", "-p", &pid, "--profile", "keep.pgprof", "--threshold", LIMIT, "--json", "-d", "120"];
    let guard = Guard::start(pg_tui(dir.path()).current_dir(dir.path()).args(args));
    // Each thread's waits are known by now.
    std::thread::sleep(Duration::from_secs(1));
    let before = server.asked.load(Ordering::Relaxed);
    let mut kept = Connection::to(server.port);
    kept.ask(&["1"]);
    std::thread::sleep(Duration::from_millis(1200));
    // The next one comes in two pieces, then five at once, which take longer together than one may.
    kept.0.write_all(b"1").unwrap();
    std::thread::sleep(Duration::from_millis(600));
    kept.ask(&["0"]);
    kept.ask(&["80"; 5]);
    kept.ask(&["700"]);
    std::thread::sleep(Duration::from_millis(500));
    let asked = server.asked.load(Ordering::Relaxed) - before;
    let guarded = guard.end();
    let said = text(&guarded);
    assert_eq!(guarded.status.code(), Some(6), "{said}");
    let told: Vec<Value> = String::from_utf8_lossy(&guarded.stdout)
        .lines()
        .filter_map(|l| serde_json::from_str(l).ok())
        .collect();
    let summary = told.last().unwrap();
    // A while without a CPU is told apart.
    let slow =
        told.iter().filter(|v| v["event"] == "violation" && v["starved"] == false && v["goes_on"] == false);
    let slow: Vec<&Value> = slow.collect();
    // One request took too long, and no connection, whose requests were far apart or came at once.
    let [slow] = slow.as_slice() else { panic!("{said}") };
    assert!(is_in(slow, "nap (keep)") && is_in(slow, "serve (keep)"), "{said}");
    let elapsed = slow["elapsed_ns"].as_u64().unwrap();
    assert!((250_000_000..700_000_000).contains(&elapsed), "{said}");
    let mut ends = told.iter().filter(|v| v["event"] == "ended" && v["start_ns"] == slow["start_ns"]);
    let took = ends.next().and_then(|v| v["duration_ns"].as_u64());
    assert!(took.is_some_and(|ns| (690_000_000..1_500_000_000).contains(&ns)), "{said}");
    // Units are requests, of which a connection has several.
    assert!(summary["units"].as_u64().unwrap() > asked, "{asked} requests: {said}");
}
