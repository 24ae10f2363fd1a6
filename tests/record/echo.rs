//! The progress line in a (pseudo-)terminal: what is typed does not stand in it, and the terminal is given back.
#![cfg(target_os = "linux")]

use crate::common::skipped;
use portable_pty::{Child, CommandBuilder, MasterPty, PtySize, native_pty_system};
use std::io::{Read, Write};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// How long anything may take before a test gives up. Nothing is measured by it.
const PATIENCE: Duration = Duration::from_secs(60);

struct Recorder {
    child: Box<dyn Child + Send + Sync>,
    master: Box<dyn MasterPty + Send>,
    keys: Box<dyn Write + Send>,
    seen: Arc<Mutex<Vec<u8>>>,
}

impl Recorder {
    fn start(dir: &std::path::Path, args: &[&str]) -> Self {
        let size = PtySize { rows: 24, cols: 80, pixel_width: 0, pixel_height: 0 };
        let pair = native_pty_system().openpty(size).expect("a pseudo-terminal");
        let mut command = CommandBuilder::new(env!("CARGO_BIN_EXE_pg-tui"));
        command.cwd(dir);
        command.args(["record", "--no-tui", "-o", "a.pgs", "-p", &std::process::id().to_string()]);
        command.args(args);
        let child = pair.slave.spawn_command(command).expect("it starts");
        drop(pair.slave);
        let mut reader = pair.master.try_clone_reader().expect("a reader");
        let keys = pair.master.take_writer().expect("a writer");
        let seen = Arc::new(Mutex::new(Vec::new()));
        let into = seen.clone();
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(n @ 1..) = reader.read(&mut buffer) {
                into.lock().expect("not poisoned").extend_from_slice(&buffer[..n]);
            }
        });
        Self { child, master: pair.master, keys, seen }
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.seen.lock().expect("not poisoned")).into_owned()
    }

    fn wait(&self, what: &str, test: impl Fn(&Self) -> bool) {
        let begin = Instant::now();
        while !test(self) {
            assert!(begin.elapsed() < PATIENCE, "{what} never came; it printed:\n{}", self.text());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// How often the line was drawn.
    fn drawn(&self) -> usize {
        self.text().matches("recording 0:").count()
    }

    fn echoes(&self) -> bool {
        let flags = self.master.get_termios().expect("terminal settings").local_flags;
        format!("{flags:?}").split(" | ").any(|f| f.ends_with("(ECHO") || f == "ECHO" || f.ends_with("ECHO)"))
    }

    fn signal(&self, name: &str) {
        let pid = self.child.process_id().expect("a process").to_string();
        let kill = std::process::Command::new("kill").args([name, &pid]).status();
        assert!(kill.expect("kill runs").success());
    }

    fn ended(&mut self) {
        let begin = Instant::now();
        while self.child.try_wait().expect("it can be waited for").is_none() {
            assert!(begin.elapsed() < PATIENCE, "it does not end; it printed:\n{}", self.text());
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn keys_typed_at_a_recorder_do_not_stand_in_its_line() {
    if skipped("keys_typed_at_a_recorder_do_not_stand_in_its_line") {
        return;
    }
    // By Ctrl-C, by a signal that is counted, and by one that ends it at once.
    for end in ["\u{3}", "-TERM", "-QUIT"] {
        let dir = tempfile::tempdir().expect("a folder");
        let mut r = Recorder::start(dir.path(), &[]);
        r.wait("the line", |r| r.drawn() > 0);
        assert!(!r.echoes());
        r.keys.write_all(b"xyzzy\r").and_then(|()| r.keys.flush()).expect("keys can be typed");
        let before = r.drawn();
        r.wait("the line again", |r| r.drawn() > before + 1);
        assert!(!r.text().contains("xyzzy"), "{}", r.text());
        if end.starts_with('-') {
            r.signal(end);
        } else {
            r.keys.write_all(end.as_bytes()).and_then(|()| r.keys.flush()).expect("keys can be typed");
        }
        r.ended();
        assert!(r.echoes(), "after {end:?} nothing is echoed");
    }
}
