//! Follows threads instruction by instruction while they are recorded (Argus, section 5.4): one after the other, each
//! for a short while and a bounded number of instructions.
//!
//! The stepper of the search for data flags does it ([`crate::flags::Stepper`]: a process of its own that lets go of the
//! thread whatever happens to the recorder). Here a thread is chosen, its steps are made into a trace, and the stops that
//! this makes are told from those of other tracers, so that a recording shows what the program did.

mod build;
mod choose;
pub mod code;
mod follow;

pub use follow::{Taken, follow};

use crate::clock::monotonic;
use choose::Choice;
use crossbeam_channel::{Receiver, Sender, unbounded};
use regex::Regex;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// Longest burst.
pub const LONGEST: Duration = Duration::from_secs(2);
/// Most instructions of a burst.
pub const MOST: u32 = 100_000;
/// Between two looks for a thread that is not there yet.
const LOOK: Duration = Duration::from_millis(50);

/// Whom to follow.
#[derive(Clone, Debug)]
pub enum Who {
    /// The thread of the focus that uses the CPU most.
    Busiest,
    /// This thread.
    Tid(u32),
    /// The threads whose names match, each once, the busiest first.
    Name(Regex),
}

impl std::fmt::Display for Who {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Busiest => f.write_str("the busiest thread"),
            Self::Tid(tid) => write!(f, "thread {tid}"),
            Self::Name(name) => write!(f, "a thread called {name}"),
        }
    }
}

/// What to do.
#[derive(Clone, Debug)]
pub struct Ask {
    /// Whom to follow, one after the other.
    pub who: Vec<Who>,
    /// How long each ([`LONGEST`] at most).
    pub time: Duration,
    /// How many instructions each ([`MOST`] at most).
    pub most: u32,
    /// How long to wait before the first.
    pub after: Duration,
}

/// Processes of the focus, as far as they are known yet; `None`: everybody is.
pub type Focus = Option<BTreeSet<u32>>;

/// When which thread was followed (`CLOCK_MONOTONIC`, ns): its stops within are of our making.
#[derive(Debug, Default)]
pub struct Followed(Mutex<Vec<(u32, u64, u64)>>);

impl Followed {
    /// Was the thread followed at some time of a span?
    pub fn within(&self, tid: u32, start: u64, end: u64) -> bool {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().any(|(t, from, to)| *t == tid && start <= *to && end >= *from)
    }

    fn begin(&self, tid: u32) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push((tid, monotonic(), u64::MAX));
    }

    fn end(&self, tid: u32) {
        let now = monotonic();
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter_mut().filter(|f| f.0 == tid && f.2 == u64::MAX).for_each(|f| f.2 = now);
    }
}

/// Follows threads while this lives.
pub struct Steps {
    taken: Receiver<Taken>,
    followed: Arc<Followed>,
    focus: Arc<Mutex<Focus>>,
    notes: Arc<Mutex<Vec<String>>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Steps {
    /// Begin. Whoever is followed is of the focus, unless it is named by its number.
    ///
    /// # Errors
    /// There is no further thread.
    pub fn start(ask: Ask, focus: Focus) -> std::io::Result<Self> {
        let (send, taken) = unbounded();
        let own = Run {
            ask,
            followed: Arc::default(),
            focus: Arc::new(Mutex::new(focus)),
            notes: Arc::default(),
            stop: Arc::default(),
        };
        let (followed, focus) = (Arc::clone(&own.followed), Arc::clone(&own.focus));
        let (notes, stop) = (Arc::clone(&own.notes), Arc::clone(&own.stop));
        let thread = std::thread::Builder::new().name("pg-steps".into()).spawn(move || own.run(&send))?;
        Ok(Self { taken, followed, focus, notes, stop, thread: Some(thread) })
    }

    /// Traces, as they come.
    pub fn taken(&self) -> &Receiver<Taken> {
        &self.taken
    }

    /// Which stops are of our making.
    pub fn followed(&self) -> Arc<Followed> {
        Arc::clone(&self.followed)
    }

    /// Processes came into the focus or ended.
    pub fn focus(&self, add: &[u32], remove: &[u32]) {
        let mut focus = self.focus.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(focus) = focus.as_mut() {
            focus.extend(add);
            for pid in remove {
                focus.remove(pid);
            }
        }
    }

    /// End: a burst under way ends at once. What was not taken before, and sentences about what could not be followed.
    pub fn finish(mut self) -> (Vec<Taken>, Vec<String>) {
        self.end();
        let notes = std::mem::take(&mut *self.notes.lock().unwrap_or_else(PoisonError::into_inner));
        (self.taken.try_iter().collect(), notes)
    }

    fn end(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for Steps {
    fn drop(&mut self) {
        self.end();
    }
}

/// The thread.
struct Run {
    ask: Ask,
    followed: Arc<Followed>,
    focus: Arc<Mutex<Focus>>,
    notes: Arc<Mutex<Vec<String>>>,
    stop: Arc<AtomicBool>,
}

impl Run {
    fn over(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    /// Sleep, unless it is over before.
    fn rest(&self, time: Duration) {
        let until = std::time::Instant::now() + time;
        while !self.over() {
            let left = until.saturating_duration_since(std::time::Instant::now());
            if left.is_zero() {
                return;
            }
            std::thread::sleep(left.min(LOOK));
        }
    }

    fn note(&self, text: String) {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner).push(text);
    }

    fn run(&self, send: &Sender<Taken>) {
        self.rest(self.ask.after);
        let mut done: BTreeSet<u32> = BTreeSet::new();
        for who in &self.ask.who {
            let mut choice = Choice::new(who.clone());
            let mut any = false;
            loop {
                if self.over() {
                    if !any {
                        self.note(format!("{who} was not followed: {}", choice.why_not()));
                    }
                    return;
                }
                let focus = self.focus.lock().unwrap_or_else(PoisonError::into_inner).clone();
                match choice.next(&focus, &done) {
                    choose::Next::Thread(pid, tid) => {
                        any = true;
                        done.insert(tid);
                        self.one(pid, tid, send);
                    }
                    choose::Next::Later => self.rest(LOOK),
                    choose::Next::Never if any => break,
                    choose::Next::Never => {
                        self.note(format!("{who} was not followed: {}", choice.why_not()));
                        break;
                    }
                }
            }
        }
    }

    fn one(&self, pid: u32, tid: u32, send: &Sender<Taken>) {
        self.followed.begin(tid);
        let taken = follow(pid, tid, self.ask.time, self.ask.most, &|| self.over());
        self.followed.end(tid);
        match taken {
            Ok(taken) => {
                tracing::info!("thread {tid} of {pid}: {} instructions", taken.trace.steps());
                // The collector has ended: nobody wants to know.
                let _ = send.send(taken);
            }
            Err(e) => self.note(format!("thread {tid} was not followed: {e}")),
        }
    }
}
