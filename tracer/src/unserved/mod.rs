//! Connections that their owners do not serve: what came over them waits, and nobody receives it.
//!
//! For a program with windows that is the sign of a hang: the display server sends events, and they pile up. A
//! server shows it by the requests of its clients. A thread of its own looks a few times a second how much waits
//! in the sockets of the focus ([`queues`]), and how many connections wait to be accepted, asking the kernel and
//! nobody else; [`track`] (pure) goes from these
//! readings, and from what was received meanwhile, to the connections that were not served.
//!
//! Pipes, FIFOs and terminals are not looked at: how much is in them is told (FIONREAD) to those who have them open
//! only. To open somebody's pipe through /proc would make us one who reads or writes: its owner would not learn that the
//! other end was closed, and a FIFO's opener would no longer wait. `/proc/PID/fdinfo` does not tell, either. That a
//! writer waits for room, or a reader for bytes, is recorded as a wait.

mod queues;
mod track;

pub use queues::Reading;
pub use track::{Look, Told, Tracker, Who};

use crate::clock::{monotonic, thread_cpu};
use crate::collector::lower_priority;
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded, unbounded};
use queues::Queues;
use std::io;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Time between two looks at most and at least; a quarter of what is too long, within these.
const SLOWEST: Duration = Duration::from_millis(250);
const FASTEST: Duration = Duration::from_millis(50);
/// Which sockets there are is looked at this often.
const FIND: Duration = Duration::from_secs(1);
/// After a look there is none for this many times as long as it took: one percent of a CPU at most. Mostly it takes far less;
/// but where a socket is new, or connections wait to be accepted, the kernel goes through its whole table of connections,
/// which takes more than two milliseconds where that is large or the machine slow: with less, what waits for a second would
/// be looked at once.
const REST: u32 = 100;
/// Most processes looked after.
const MAX_PROCESSES: usize = 256;

/// Processes that came into the focus, and those that are no more.
type Change = (Vec<u32>, Vec<u32>);

/// The thread that looks. Ends when dropped.
pub struct Observer {
    changes: Option<Sender<Change>>,
    /// What it sees: only when something waits, or waited the last time.
    pub looks: Receiver<Look>,
    thread: Option<JoinHandle<()>>,
}

impl Observer {
    /// Start it; `limit` (ns) is too long. `receptions`: they are recorded, else more looks are needed.
    ///
    /// # Errors
    /// When there can be no further thread.
    pub fn start(limit: u64, receptions: bool) -> io::Result<Self> {
        let (changes, changed) = unbounded();
        let (out, looks) = bounded(64);
        let looks_within = if receptions { 4 } else { track::BLIND_READINGS };
        let period = (Duration::from_nanos(limit) / looks_within).clamp(FASTEST, SLOWEST);
        let thread = std::thread::Builder::new().name("pg-queues".into()).spawn(move || {
            lower_priority();
            observe(period, &changed, &out);
        })?;
        Ok(Self { changes: Some(changes), looks, thread: Some(thread) })
    }

    /// The focus has changed.
    pub fn focus(&self, add: &[u32], remove: &[u32]) {
        if let Some(changes) = self.changes.as_ref().filter(|_| !add.is_empty() || !remove.is_empty()) {
            let _ = changes.send((add.to_vec(), remove.to_vec()));
        }
    }
}

impl Drop for Observer {
    fn drop(&mut self) {
        self.changes = None;
        if let Some(thread) = self.thread.take() {
            // A look takes a few milliseconds.
            let _ = thread.join();
        }
    }
}

fn observe(period: Duration, changes: &Receiver<Change>, out: &Sender<Look>) {
    let (mut pids, mut queues): (Vec<u32>, _) = (Vec::new(), Queues::default());
    let (mut find, mut pause, mut quiet) = (Instant::now(), period, true);
    loop {
        // Nobody to look after: nothing to do.
        let change = if pids.is_empty() {
            changes.recv().map_err(|_| RecvTimeoutError::Disconnected)
        } else {
            changes.recv_timeout(pause)
        };
        match change {
            Ok((add, remove)) => {
                pids.retain(|pid| !remove.contains(pid));
                for pid in add {
                    if pids.len() < MAX_PROCESSES && !pids.contains(&pid) {
                        pids.push(pid);
                    }
                }
                continue;
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        // By CPU time: beside a busy target the clock says little of what a look costs.
        let rest = |since: u64| Duration::from_nanos(thread_cpu().saturating_sub(since)) * REST;
        if Instant::now() >= find {
            let began = thread_cpu();
            queues.find(&pids);
            find = Instant::now() + FIND.max(rest(began));
        }
        let before = monotonic();
        let began = thread_cpu();
        let readings = queues.look();
        pause = period.max(rest(began));
        // What was empty a moment ago and is not any more is of `before`, what the other way round of later.
        if !(readings.is_empty() && quiet) {
            quiet = readings.is_empty();
            // A collector that is far behind knows soon enough.
            if out.try_send(Look { time: before, readings }).is_err_and(|e| e.is_disconnected()) {
                return;
            }
        }
    }
}
