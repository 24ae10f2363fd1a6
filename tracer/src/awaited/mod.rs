//! Files that loops ask for until somebody makes them, or removes them: `while [ ! -e ready ]; do sleep 1; done`. No
//! wake-up tells who that is. Once a call of such a loop was recorded, the folder that it asks in is watched
//! (fanotify(7)), which costs those that make or remove files there 3 us each (benches/README.md), and nobody else anything.
//!
//! A thread of its own does so: to look at the folder of a file system that hangs may take for ever.

mod group;

use crate::clock;
use crate::holders::path_seen_by;
use crossbeam_channel::{Receiver, Sender, bounded};
use group::{Change, Folder, Group};
use pg_event::{ObjectId, ThreadId};
use std::collections::HashMap;
use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

/// Most folders watched at a time.
const MAX_FOLDERS: usize = 32;
/// Most files asked for of which it is known.
const MAX_FILES: usize = 256;
/// Most requests not dealt with yet.
const MAX_REQUESTS: usize = 64;
/// A folder in which so many other files come and go is not watched any more.
const BUSY: u32 = 20_000;
/// How long nobody looks after a change that nobody asked for: many of these are then read at once.
const PAUSE: Duration = Duration::from_millis(10);

/// A file that a loop asks for.
#[derive(Clone, Debug)]
pub struct Request {
    /// Threads that see the file by this path: the one that asks, and one for when that has ended.
    pub tids: [u32; 2],
    /// As the loop names it.
    pub path: String,
    /// That file, as the loop's calls have it.
    pub object: ObjectId,
    /// Who asks.
    pub subject: ThreadId,
}

/// Somebody made or removed a file that was asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Told {
    /// `CLOCK_MONOTONIC`, ns, some microseconds late.
    pub time: u64,
    /// Who did.
    pub tid: u32,
    pub object: ObjectId,
    pub subject: ThreadId,
    /// Made, or renamed to that; else removed, or renamed to something else.
    pub made: bool,
}

/// Watches folders. The thread ends when this is dropped.
pub struct Awaited {
    requests: Sender<Request>,
    bell: UnixStream,
}

impl Awaited {
    /// Watch nothing yet; what happens to files that are asked for is sent to `tell`.
    ///
    /// # Errors
    /// No right to watch (`CAP_SYS_ADMIN`), or a kernel that cannot.
    pub fn start(tell: Sender<Told>) -> io::Result<Self> {
        let group = Group::new()?;
        let (bell, rings) = UnixStream::pair()?;
        rings.set_nonblocking(true)?;
        bell.set_nonblocking(true)?;
        let (requests, asked) = bounded(MAX_REQUESTS);
        let watch = Watch { group, folders: Vec::new(), files: HashMap::new(), tell };
        std::thread::Builder::new().name("awaited".into()).spawn(move || watch.run(&rings, &asked))?;
        Ok(Self { requests, bell })
    }

    /// Have it told who makes or removes this file. Forgotten when there is too much to do.
    pub fn watch(&self, request: Request) {
        if self.requests.try_send(request).is_ok() {
            let _ = (&self.bell).write(&[0]);
        }
    }
}

struct Watched {
    folder: Folder,
    path: PathBuf,
    others: u32,
}

/// A folder, and a name in it.
type Place = (Folder, Vec<u8>);

/// What the thread has.
struct Watch {
    group: Group,
    folders: Vec<Watched>,
    /// Who asks for what, by folder and name.
    files: HashMap<Place, Vec<(ObjectId, ThreadId)>>,
    tell: Sender<Told>,
}

impl Watch {
    fn run(mut self, rings: &UnixStream, asked: &Receiver<Request>) {
        let mut changes = Vec::new();
        loop {
            wait(&self.group, rings);
            let now = clock::monotonic();
            self.group.changes(&mut changes);
            let none = !changes.is_empty() && !changes.iter().any(|c| self.is_asked_for(c));
            if changes.drain(..).any(|c| !self.take(c, now)) {
                return;
            }
            if none {
                std::thread::sleep(PAUSE);
            }
            // Closed: nobody wants to know any more.
            if matches!((&*rings).read(&mut [0; 64]), Ok(0)) {
                return;
            }
            asked.try_iter().for_each(|r| self.ask(&r));
        }
    }

    fn ask(&mut self, r: &Request) {
        for tid in r.tids {
            let Some((path, name)) = path_seen_by(tid, &r.path).and_then(parts) else { return };
            if self.files.len() >= MAX_FILES {
                self.forget();
            }
            let Ok(folder) = self.group.watch(&path) else { continue };
            if !self.folders.iter().any(|f| f.folder == folder) {
                if self.folders.len() >= MAX_FOLDERS {
                    self.forget();
                }
                self.folders.push(Watched { folder: folder.clone(), path, others: 0 });
            }
            let asks = self.files.entry((folder, name)).or_default();
            if !asks.iter().any(|a| a.0 == r.object) {
                asks.push((r.object, r.subject));
            }
            return;
        }
    }

    /// Recorders may run for months: what loops asked for long ago makes room.
    fn forget(&mut self) {
        for f in self.folders.drain(..) {
            self.group.leave(&f.path);
        }
        self.files.clear();
    }

    fn is_asked_for(&self, c: &Change) -> bool {
        self.files.contains_key(&(c.folder.clone(), c.name.clone()))
    }

    /// False when nobody listens any more.
    fn take(&mut self, c: Change, now: u64) -> bool {
        let Change { tid, folder, name, made } = c;
        let place = (folder, name);
        if let Some(asks) = self.files.get(&place) {
            return asks.iter().all(|&(object, subject)| {
                self.tell.send(Told { time: now, tid, object, subject, made }).is_ok()
            });
        }
        if let Some(f) = self.folders.iter_mut().find(|f| f.folder == place.0) {
            f.others = f.others.saturating_add(1);
            if f.others == BUSY {
                self.group.leave(&f.path);
            }
        }
        true
    }
}

/// The folder of a file, and its name there; none of what has no name of its own.
fn parts(path: PathBuf) -> Option<(PathBuf, Vec<u8>)> {
    let name = OsString::from(path.file_name()?).into_vec();
    Some((path.parent()?.to_owned(), name))
}

/// Sleep until something happened in a folder, or somebody asks.
fn wait(group: &Group, rings: &UnixStream) {
    group::poll([group.as_raw_fd(), rings.as_raw_fd()]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_asked_for_is_told() {
        let (tell, told) = crossbeam_channel::unbounded();
        let Ok(a) = Awaited::start(tell) else {
            eprintln!("skipped: no right to watch folders (CAP_SYS_ADMIN)");
            return;
        };
        let dir = tempfile::tempdir().expect("a folder");
        let own = std::process::id();
        let path = dir.path().join("ready").to_str().expect("text").to_owned();
        let (object, subject) = (ObjectId(7), ThreadId(3));
        // The child that asked has ended, but whose child it was sees the same.
        a.watch(Request { tids: [u32::MAX >> 1, own], path: path.clone(), object, subject });
        let first = (0..200).find_map(|i| {
            std::fs::write(dir.path().join("other"), "").expect("written");
            let _ = std::fs::remove_file(&path);
            std::fs::write(&path, "").expect("written");
            told.recv_timeout(Duration::from_millis(10 + i)).ok()
        });
        let Some(t) = first else {
            eprintln!("skipped: this file system has no handles");
            return;
        };
        assert_eq!((t.object, t.subject), (object, subject));
        assert!(t.time <= clock::monotonic());
        drop(a);
        // The thread is gone: nobody is left who could tell.
        while told.recv_timeout(Duration::from_secs(10)).is_ok() {}
        assert_eq!(told.try_recv(), Err(crossbeam_channel::TryRecvError::Disconnected));
    }
}
