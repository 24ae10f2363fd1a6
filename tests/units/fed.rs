//! A server of C that gets its work by standard input and answers each with a byte.

use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// A server that is kept busy.
pub struct Fed {
    child: Child,
    stdin: Arc<Mutex<ChildStdin>>,
    over: Arc<AtomicBool>,
    load: Option<JoinHandle<()>>,
}

impl Fed {
    /// Compiles it (the source's path begins at the repository) and gives it this work, piece by piece, again and again, with
    /// 2 ms in between, in which it waits.
    ///
    /// # Errors
    /// It ended before it answered: its exit code.
    pub fn start(dir: &Path, source: &str, work: Vec<Vec<u8>>) -> Result<Self, Option<i32>> {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(source);
        let exe = dir.join(source.file_stem().unwrap());
        let args = ["-O1", "-g", "-fno-optimize-sibling-calls", "-Wl,--build-id", "-o"];
        let built = Command::new("gcc").args(args).args([&exe, &source]).status();
        assert!(built.is_ok_and(|s| s.success()));
        let mut child = Command::new(&exe).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut stdout = child.stdout.take().unwrap();
        let stdin = Arc::new(Mutex::new(child.stdin.take().unwrap()));
        let mut done = [0];
        if !give(&stdin, &work[0]) || stdout.read_exact(&mut done).is_err() {
            return Err(child.wait().unwrap().code());
        }
        let over = Arc::new(AtomicBool::new(false));
        let (to, stop) = (Arc::clone(&stdin), Arc::clone(&over));
        let load = std::thread::spawn(move || {
            for piece in work.iter().cycle() {
                if stop.load(Ordering::Relaxed) || !give(&to, piece) || stdout.read_exact(&mut done).is_err()
                {
                    return;
                }
                std::thread::sleep(Duration::from_millis(2));
            }
        });
        Ok(Self { child, stdin, over, load: Some(load) })
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// One more piece of work, as soon as it waits.
    pub fn ask(&self, work: &[u8]) -> bool {
        give(&self.stdin, work)
    }
}

impl Drop for Fed {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = self.load.take().map(JoinHandle::join);
    }
}

fn give(stdin: &Mutex<ChildStdin>, work: &[u8]) -> bool {
    stdin.lock().unwrap_or_else(PoisonError::into_inner).write_all(work).is_ok()
}
