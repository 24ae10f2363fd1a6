//! Messages between threads: in windows where there are too many, and over connections that were accepted late.

use crate::common::{skipped, text};
use crate::{start, wait_for_events};
use pg_event::{Direction, IpcUse, Item, Kind, ThreadId};
use pg_graph::At;
use pg_tui::session::Session;
use std::io::{Read, Write};
use std::ops::Range;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
/// A thread that sends itself more messages than all can be recorded of, and never waits.
struct Chatter {
    stop: Arc<AtomicBool>,
    /// Sent and received so far.
    passed: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl Chatter {
    fn start() -> Self {
        let (mut a, mut b) = UnixStream::pair().expect("a pair of sockets");
        let (stop, passed) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (stopped, counted) = (Arc::clone(&stop), Arc::clone(&passed));
        let thread = std::thread::spawn(move || {
            let mut room = [0; 16];
            while !stopped.load(Ordering::Relaxed) {
                a.write_all(&[1; 16]).expect("there is room");
                b.read_exact(&mut room).expect("it is there");
                counted.fetch_add(2, Ordering::Relaxed);
            }
        });
        Self { stop, passed, thread: Some(thread) }
    }
}

impl Drop for Chatter {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[test]
fn too_many_messages_are_recorded_in_windows() {
    let test = "too_many_messages_are_recorded_in_windows";
    if skipped(test) {
        return;
    }
    let chatter = Chatter::start();
    let dir = tempfile::tempdir().expect("a folder");
    let record = |extra: &[&str]| {
        let pid = std::process::id().to_string();
        let mut args = vec!["--no-tui", "--duration", "5", "-o", "a.pgs", "-p", &pid];
        args.extend(extra);
        let out = start(dir.path(), &args).wait_with_output().expect("it ends");
        assert!(out.status.success(), "{}", text(&out));
        let s = Session::open(&dir.path().join("a.pgs")).expect("it opens");
        let (mut spans, mut messages, mut notes) = (Vec::new(), Vec::new(), Vec::new());
        for item in s.items() {
            match item {
                Item::Events(events) => events.iter().for_each(|e| match e.kind {
                    Kind::Unheard { since } => spans.push(since..e.time),
                    Kind::Ipc(u) => messages.push((u.first, e.time, u.count, e.thread, u.direction)),
                    _ => {}
                }),
                Item::End { coverage, .. } => notes = coverage.notes,
                Item::Catalog(_) => {}
            }
        }
        std::fs::remove_file(dir.path().join("a.pgs")).expect("it is there");
        // Bytes through others' pipes are known of from bursts of system calls.
        let busiest = messages.iter().max_by_key(|m| m.2).map(|m| m.3);
        messages.retain(|m| Some(m.3) == busiest);
        (spans, messages, notes)
    };
    let told = |notes: &[String]| notes.iter().any(|n| n.contains("--level messages"));

    let before = chatter.passed.load(Ordering::Relaxed);
    let (spans, messages, notes) = record(&[]);
    let passed = chatter.passed.load(Ordering::Relaxed) - before;
    let all: u64 = messages.iter().map(|m| u64::from(m.2)).sum();
    // A third of a percent of the time of the CPUs, for five seconds; and, however many there are, a short window in
    // each second, of some hundredths and what passes before it is noticed that there are too many.
    let cpus = std::thread::available_parallelism().map_or(1, |n| n.get() as u64).min(16);
    let allowed = 20_000 * cpus * 5;
    if passed < 2 * allowed {
        println!("skipped: {test}: the machine is so busy that only {passed} messages were passed");
        return;
    }
    assert!(all < allowed * 2 + passed / 5, "{all} of {passed} messages recorded, {allowed} allowed");
    assert!(spans.len() >= 3, "{passed} messages, {spans:?}");
    assert!(spans.iter().all(|s| s.end - s.start < 2_000_000_000), "{spans:?}");
    assert!(told(&notes), "{notes:?}");
    for pair in spans.windows(2) {
        let (from, to) = (pair[0].end, pair[1].start);
        assert!(from <= to);
        assert!(
            messages.iter().any(|m| m.1 >= from && m.0 <= to),
            "a window without messages: {from} to {to}"
        );
    }
    // A pause is a pause: what was counted within one had been sent before, or after. It ends when all is recorded
    // again: first what is sent, and beside other recorders a while later what is received.
    let received = messages.iter().any(|m| m.4 == Direction::Receive);
    let within = |m: &&(u64, u64, u32, ThreadId, Direction)| {
        let until = |s: &Range<u64>| match m.4 {
            Direction::Send if received => s.start + (s.end - s.start) / 2,
            _ => s.end,
        };
        spans.iter().any(|s| m.0 > s.start + 20_000_000 && m.1 + 20_000_000 < until(s))
    };
    assert_eq!(messages.iter().find(within), None, "{spans:?}");

    let (spans, messages, notes) = record(&["--level", "messages"]);
    assert!(spans.is_empty() && !told(&notes), "{spans:?} {notes:?}");
    let recorded: u64 = messages.iter().map(|m| u64::from(m.2)).sum();
    assert!(recorded > allowed, "{recorded}");
}

/// A client that asks before it was accepted, and again after that: both ends of a connection are known only then.
#[test]
fn a_message_after_the_connection_was_accepted_names_both_ends() {
    if skipped("a_message_after_the_connection_was_accepted_names_both_ends") {
        return;
    }
    let dir = tempfile::tempdir().expect("a folder");
    let listener = UnixListener::bind(dir.path().join("s")).expect("a socket");
    let path = dir.path().join("s");
    let pid = std::process::id().to_string();
    let args = ["--no-tui", "--duration", "6", "-o", "a.pgs", "-p", &pid, "--level", "messages"];
    let mut recorder = start(dir.path(), &args);
    wait_for_events(&dir.path().join("a.pgs"), &mut recorder);
    let name = "asks-early";
    let client = std::thread::Builder::new().name(name.into()).spawn(move || {
        for _ in 0..5 {
            let mut c = UnixStream::connect(&path).expect("it listens");
            c.write_all(b"first").expect("there is room");
            // The answer comes later: it was accepted before.
            let mut room = [0; 16];
            assert_eq!(c.read(&mut room).expect("an answer"), 2);
            c.write_all(b"second").expect("there is room");
            assert_eq!(c.read(&mut room).expect("an answer"), 3);
        }
    });
    for _ in 0..5 {
        std::thread::sleep(Duration::from_millis(50));
        let (mut s, _) = listener.accept().expect("a client");
        let mut room = [0; 16];
        assert_eq!(s.read(&mut room).expect("a request"), 5);
        s.write_all(b"ok").expect("there is room");
        assert_eq!(s.read(&mut room).expect("a request"), 6);
        std::thread::sleep(Duration::from_millis(100));
        s.write_all(b"yes").expect("there is room");
    }
    client.expect("a thread").join().expect("it ends");
    let out = recorder.wait_with_output().expect("it ends");
    assert!(out.status.success(), "{}", text(&out));
    let file = dir.path().join("a.pgs");
    let loaded = pg_tui::session::load(&file, |_| std::ops::ControlFlow::Continue(())).expect("it loads");
    let (g, c) = (&loaded.graph, &loaded.catalog);
    let thread = g.threads().find(|t| c.thread(*t).is_some_and(|t| t.name == name)).expect("the client");
    let sent = g.ipc_of(thread, 0..u64::MAX);
    let peer = |o| c.object(o).map_or(0, |o| o.peer);
    let second: Vec<_> =
        sent.iter().filter(|m| m.what.direction == Direction::Send && m.what.bytes == 6).collect();
    assert_eq!(second.len(), 5, "{sent:#?}");
    assert!(second.iter().all(|m| peer(m.what.object) != 0), "{second:#?}");
    // The kernel does not report every switch: most waits are there.
    let waits: Vec<_> = g.vertices_of(thread).map(|v| g.vertex(v)).collect();
    let awaited = |m: &&&At<IpcUse>| {
        waits.iter().any(|v| v.object == m.what.object && v.start >= m.time && v.waited() > 50_000_000)
    };
    assert!(second.iter().filter(awaited).count() >= 3, "{second:#?} {waits:#?}");
}
