//! Reads that may block for as long as a hanging target likes, made on a thread that can be left behind.
//!
//! `/proc/PID/cmdline`, `/proc/PID/maps` and process_vm_readv(2) take the target's memory lock or fault its
//! pages in. A process hung inside the kernel with that lock held blocks every reader, and a recorder of
//! hangs must not hang with it. The blocked thread waits killably, so it never outlives the recorder.

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, TryRecvError, bounded};
use std::time::Duration;

type Job = Box<dyn FnOnce() + Send>;

/// Most threads that may be stuck at a time; past that every question is answered "do not know".
const MAX_STUCK: usize = 8;

/// Runs blocking reads with a limit on how long they are waited for.
pub struct Patience {
    limit: Duration,
    worker: Option<Sender<Job>>,
    /// Of whom the read is stuck, and the end of a channel that closes when it is no more.
    stuck: Vec<(u32, Receiver<()>)>,
    unanswered: u64,
}

impl Patience {
    /// Wait at most `limit` for each read.
    pub fn new(limit: Duration) -> Self {
        Self { limit, worker: None, stuck: Vec::new(), unanswered: 0 }
    }

    /// Run `read`, which is about the process `pid`; `None` when it took too long (it goes on alone and its
    /// answer is dropped), when an earlier read of that process is still stuck, or too many are.
    pub fn run<T: Send + 'static>(
        &mut self,
        pid: u32,
        read: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let answer = self.answer(pid, read);
        self.unanswered += u64::from(answer.is_none());
        answer
    }

    /// How many questions had no answer by now.
    pub fn unanswered(&self) -> u64 {
        self.unanswered
    }

    fn answer<T: Send + 'static>(
        &mut self,
        pid: u32,
        read: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        // A finished reader has dropped its sender: disconnected.
        self.stuck.retain(|(_, r)| r.try_recv() == Err(TryRecvError::Empty));
        if self.stuck.len() >= MAX_STUCK || self.stuck.iter().any(|(p, _)| *p == pid) {
            return None;
        }
        let (answer_in, answer) = bounded(1);
        let (alive, done) = bounded::<()>(0);
        let job: Job = Box::new(move || {
            let _alive = alive;
            let _ = answer_in.send(read());
        });
        if self.worker()?.send(job).is_err() {
            // The reader panicked; the next question gets a new one.
            self.worker = None;
            return None;
        }
        match answer.recv_timeout(self.limit) {
            Ok(value) => Some(value),
            Err(RecvTimeoutError::Disconnected) => {
                // The reader panicked. A question sent to it while it ends might never be answered.
                self.worker = None;
                None
            }
            Err(RecvTimeoutError::Timeout) => {
                self.worker = None;
                self.stuck.push((pid, done));
                None
            }
        }
    }

    /// How many reads are stuck.
    pub fn stuck(&self) -> usize {
        self.stuck.len()
    }

    fn worker(&mut self) -> Option<&Sender<Job>> {
        if self.worker.is_none() {
            let (jobs_in, jobs) = bounded::<Job>(1);
            std::thread::Builder::new()
                .name("pg-reader".into())
                .spawn(move || jobs.into_iter().for_each(|job| job()))
                .ok()?;
            self.worker = Some(jobs_in);
        }
        self.worker.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stuck_read_does_not_stop_the_next() {
        let mut p = Patience::new(Duration::from_millis(20));
        let (gate_in, gate) = bounded::<()>(0);
        assert_eq!(p.run(1, move || gate.recv().is_err()), None);
        assert_eq!(p.stuck(), 1);
        p.limit = Duration::from_secs(60);
        assert_eq!(p.run(2, || 7), Some(7));
        assert_eq!(p.unanswered(), 1);
        assert_eq!(p.run(1, || 7), None, "one stuck read of a process is enough");
        assert_eq!(p.unanswered(), 2);
        drop(gate_in);
        // The stuck reader ends on its own and is forgotten.
        while p.run(1, || ()).is_none() {
            std::thread::yield_now();
        }
        assert_eq!(p.stuck(), 0);
    }

    #[test]
    fn stuck_reads_are_bounded() {
        let mut p = Patience::new(Duration::from_millis(1));
        let (_gate_in, gate) = bounded::<()>(0);
        for pid in 0..20 {
            let gate = gate.clone();
            assert!(p.run(pid, move || gate.recv().is_err()).is_none());
        }
        assert_eq!(p.stuck(), MAX_STUCK);
    }

    #[test]
    fn a_read_that_panics_is_an_answer_too() {
        let mut p = Patience::new(Duration::from_secs(60));
        assert_eq!(p.run(1, || -> u8 { panic!("on purpose") }), None);
        while p.run(1, || ()).is_none() {
            std::thread::yield_now();
        }
    }
}
