//! A bus and its clients.

use super::Drawing;
use pg_event::{Direction, ObjectId, ObjectKind, ThreadId};
use pg_graph::report::Report;

/// A bus and its clients, each with its connection: the client's end and the bus'.
pub struct Bus {
    pub d: Drawing,
    pub daemon: ThreadId,
    pub epoll: ObjectId,
    pub ends: Vec<(ThreadId, ObjectId, ObjectId)>,
    /// Since when the daemon waits.
    pub idle: f64,
}

impl Bus {
    /// A backup computes until 12.99 and has a lock that `t` waits for.
    pub fn wants_lock_of_backup(&mut self, t: ThreadId, from: f64) {
        let holder = self.d.process("backup", "backup /data", None, 0.0);
        let lock = self.d.object(ObjectKind::FileLock, 70, 0, "/data/lock");
        self.d.wait(t, from, 12.99, "flock").on(lock).by(holder, "close", lock);
        let zip = self.d.stack(&["deflate (libz.so.1)", "main (backup)"]);
        self.d.runs(holder, 0.0, 12.99, zip);
    }

    /// All that are connected wait for whatever comes, from 13.1 to the end.
    pub fn idle_from_then_on(&mut self) {
        for (t, own, _) in self.ends.clone() {
            self.d.wait(t, 13.1, 20.0, "poll").on(own).open();
        }
    }

    pub fn new(clients: &[&str]) -> Self {
        let mut d = Drawing::new(20.0);
        let daemon = d.process("busd", "busd", None, 0.0);
        let mut ends = Vec::new();
        for (i, name) in clients.iter().enumerate() {
            let i = i as u64 * 2 + 1;
            let t = d.process(name.split(' ').next().unwrap(), name, None, 0.0);
            let own = d.object(ObjectKind::UnixStream, i, i + 1, "/run/bus");
            let far = d.object(ObjectKind::UnixStream, i + 1, i, "/run/bus");
            ends.push((t, own, far));
        }
        let all: Vec<ObjectId> = ends.iter().map(|e| e.2).collect();
        let other = d.object(ObjectKind::UnixStream, 90, 0, "/run/bus");
        let epoll = d.set(&[&all[..], &[other]].concat());
        Self { d, daemon, epoll, ends, idle: 0.0 }
    }

    /// A message from one client to another at `at`; it takes 3 ms to be there.
    pub fn send(&mut self, from: usize, to: usize, at: f64) {
        let ((a, own, far), (_, to_own, to_far)) = (self.ends[from], self.ends[to]);
        self.d.message(a, own, Direction::Send, at, 100);
        let idle = std::mem::replace(&mut self.idle, at + 0.0025);
        self.d.wait(self.daemon, idle, at + 0.001, "epoll_wait").on(self.epoll).by(a, "sendmsg", own);
        self.d.message(self.daemon, far, Direction::Receive, at + 0.0015, 100);
        self.d.message(self.daemon, to_far, Direction::Send, at + 0.002, 100);
        self.d.message(self.ends[to].0, to_own, Direction::Receive, at + 0.0035, 100);
    }

    /// Client `n` waits for a message that the bus brings at `end`.
    pub fn waits(&mut self, n: usize, start: f64, end: f64) {
        let (t, own, far) = self.ends[n];
        self.d.wait(t, start, end, "poll").on(own).by(self.daemon, "sendmsg", far);
    }

    pub fn diagnose(mut self, process: &str) -> Report {
        self.d.wait(self.daemon, self.idle, 20.0, "epoll_wait").on(self.epoll).open();
        self.d.diagnose(process)
    }
}
