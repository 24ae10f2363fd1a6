//! How a running flight recorder is told to save: a socket that `pg-tui mark` writes to.

use crate::session::caller;
use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Longest words of a mark, bytes.
const MAX_WORDS: u64 = 1000;
/// A recorder answers once the file is written: the time after the mark, and some to write it.
const PATIENCE: Duration = Duration::from_secs(600);
const NAME: &str = "flight.sock";

/// Somebody asked for a file.
pub struct Mark {
    /// Why.
    pub words: String,
    /// Where to tell what became of it.
    pub answer: Sender<String>,
}

/// The socket of this recorder; gone when dropped.
pub struct Control {
    path: PathBuf,
    /// What was asked for.
    pub marks: Receiver<Mark>,
}

/// Folders where the socket may be, the best first.
fn folders() -> Vec<PathBuf> {
    let own = std::env::var_os("XDG_RUNTIME_DIR").filter(|v| !v.is_empty()).map(PathBuf::from);
    let all = [std::env::var_os("PG_TUI_RUNTIME_DIR").map(PathBuf::from), Some("/run".into()), own];
    all.into_iter().flatten().map(|d| d.join("pg-tui")).collect()
}

impl Control {
    /// Listen in the first folder where that is possible.
    ///
    /// # Errors
    /// When it is possible nowhere, or another recorder listens there.
    pub fn listen() -> io::Result<Self> {
        let mut last = io::Error::other("no folder");
        for dir in folders() {
            match Self::listen_in(&dir) {
                Ok(c) => return Ok(c),
                Err(e) if e.kind() == io::ErrorKind::AddrInUse => return Err(e),
                Err(e) => last = e,
            }
        }
        Err(last)
    }

    fn listen_in(dir: &Path) -> io::Result<Self> {
        if !dir.is_dir() {
            fs::create_dir(dir)?;
            fs::set_permissions(dir, fs::Permissions::from_mode(0o755))?;
        }
        let path = dir.join(NAME);
        if UnixStream::connect(&path).is_ok() {
            let what = format!("a flight recorder is running already: {}", path.display());
            return Err(io::Error::new(io::ErrorKind::AddrInUse, what));
        }
        // Left behind by one that was killed.
        let _ = fs::remove_file(&path);
        let listener = UnixListener::bind(&path)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600))?;
        if let Some((uid, gid)) = caller() {
            // Not root: the variables are left over from something else.
            let _ = std::os::unix::fs::chown(&path, Some(uid), Some(gid));
        }
        let (send, marks) = unbounded();
        std::thread::Builder::new().name("pg-control".into()).spawn(move || serve(&listener, &send))?;
        Ok(Self { path, marks })
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

fn serve(listener: &UnixListener, marks: &Sender<Mark>) {
    for stream in listener.incoming() {
        let Ok(stream) = stream else { continue };
        let marks = marks.clone();
        // One thread for each: nobody who is slow keeps others waiting.
        let _ = std::thread::Builder::new().name("pg-mark".into()).spawn(move || one(stream, &marks));
    }
}

fn one(mut stream: UnixStream, marks: &Sender<Mark>) -> Option<()> {
    stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
    let mut words = String::new();
    BufReader::new((&stream).take(MAX_WORDS)).read_line(&mut words).ok()?;
    if !words.ends_with('\n') {
        // Somebody looked whether we are there.
        return None;
    }
    let (answer, answers) = bounded(1);
    marks.send(Mark { words: words.trim().to_owned(), answer }).ok()?;
    let told = answers.recv_timeout(PATIENCE).unwrap_or_else(|_| "error: the recorder ended".into());
    stream.write_all(format!("{told}\n").as_bytes()).ok()
}

/// Ask the running flight recorder for a file. Returns what it says.
///
/// # Errors
/// When none is running, or it may not be asked by this user.
pub fn mark(words: &str) -> io::Result<String> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "no flight recorder is running");
    for dir in folders() {
        let path = dir.join(NAME);
        match UnixStream::connect(&path) {
            Ok(mut stream) => {
                let words: String = words.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
                let line = words.get(..MAX_WORDS as usize - 1).unwrap_or(&words);
                stream.write_all(format!("{line}\n").as_bytes())?;
                let mut answer = String::new();
                stream.set_read_timeout(Some(PATIENCE))?;
                BufReader::new(stream.take(1 << 16)).read_line(&mut answer)?;
                return Ok(answer.trim_end().to_owned());
            }
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {
                last = io::Error::new(e.kind(), format!("{}: {e}", path.display()));
            }
            Err(_) => {}
        }
    }
    Err(last)
}
