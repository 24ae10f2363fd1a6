//! The collector: a thread of its own that drains the rings of the BPF programs and sends [`Item`]s.
//!
//! One thread empties the rings, four times a second or as often as they fill (the kernel wakes it for an
//! exec only), another one translates (`run.rs`). What is asked of a recording comes to that one as commands.

mod alarm;
mod asked_files;
mod burst;
mod compat;
mod drain;
mod duty;
pub(crate) mod hash;
mod lanes;
mod memory;
mod objects;
mod on_cpu;
mod order;
mod pace;
mod percpu;
mod permission;
mod pipeline;
mod priority;
mod programs;
mod python;
mod quota;
mod raw;
#[cfg(feature = "replay")]
pub mod replay;
mod retries;
mod run;
pub(crate) mod sampling;
mod semaphores;
mod stepped;
mod toll;
mod tries;
mod unanswered;
mod unserved;
mod words;

pub use permission::check_permission;
use priority::raise_priority;
pub use priority::{lower_priority, prefer};

use crate::error::Error;
use crate::flags::{FlagError, FlagSpec};
use crate::guards::{Ended, Look, Violation, Withdrawn};
use crate::options::Options;
use crate::steps;
use crossbeam_channel::{Sender, bounded, unbounded};
use pg_event::{Item, Loss, Ns, UnitTypeId};
use run::Run;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// What a progress line shows.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct LiveStats {
    /// Events recorded.
    pub events: u64,
    /// Events per second, over the last second.
    pub events_per_s: u64,
    /// What was lost.
    pub lost: Loss,
    /// Time since the recording began, ns.
    pub elapsed_ns: Ns,
    /// Up to which [`Collector::report_open`] all was reported, and all frames have the names that could be found.
    pub reported: u64,
}

enum Command {
    /// A process, which may be a command that waits to be started; whom to tell when it is done.
    Focus {
        pid: u32,
        unstarted: bool,
        done: Sender<()>,
    },
    /// Watch flags of a process; those not there yet later; whom to tell what came of it.
    Watch(u32, Vec<FlagSpec>, bool, Sender<Result<(), FlagError>>),
    /// Follow threads; whom to tell whether that began.
    Follow(steps::Ask, Sender<Result<(), Error>>),
    /// A unit took too long, and its type.
    Violation(Box<Violation>, UnitTypeId),
    /// Where one is that took too long, and its type.
    Look(Box<Look>, UnitTypeId),
    Withdrawn(Withdrawn, UnitTypeId),
    /// A unit ended, and its type.
    Unit(Ended, UnitTypeId),
    /// Report the waits that go on: the report with this number.
    Report(u64),
    Stop,
}

/// Cuts the end of a recording short, from another thread than the one that waits for it.
#[derive(Clone)]
pub struct Hurry(Arc<AtomicBool>);

impl Hurry {
    /// What has no name yet stays without one: the file is whole, and names can be looked up when it is opened.
    pub fn leave_names(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A running recording.
pub struct Collector {
    commands: Sender<Command>,
    stats: Arc<Mutex<LiveStats>>,
    hurry: Arc<AtomicBool>,
    /// Reports asked for.
    reports: AtomicU64,
    began: Ns,
    thread: Option<JoinHandle<Result<(), Error>>>,
}

impl Collector {
    /// Start recording. Items go to `out`; a receiver that is gone ends the recording.
    ///
    /// # Errors
    /// See [`check_permission`], and the kernel's refusals.
    pub fn start(options: Options, out: Sender<Item>) -> Result<Self, Error> {
        check_permission()?;
        let (commands, receiver) = unbounded();
        let (ready, started) = bounded(1);
        let stats = Arc::new(Mutex::new(LiveStats::default()));
        let shared = Arc::clone(&stats);
        let hurry = Arc::new(AtomicBool::new(false));
        let hurried = Arc::clone(&hurry);
        let thread = thread::Builder::new()
            .name("pg-collector".into())
            .spawn(move || match Run::start(&options, out, receiver, shared, hurried) {
                Ok(run) => {
                    let _ = ready.send(Ok(run.began()));
                    run.run()
                }
                Err(e) => {
                    let _ = ready.send(Err(e));
                    Ok(())
                }
            })
            .map_err(|e| Error::Failed(format!("cannot start a thread: {e}")))?;
        let began =
            started.recv().unwrap_or_else(|_| Err(Error::Failed("the collector's thread ended".into())))?;
        Ok(Self { began, commands, stats, hurry, reports: AtomicU64::new(0), thread: Some(thread) })
    }

    /// When the recording began, `CLOCK_MONOTONIC`, ns.
    pub fn began(&self) -> Ns {
        self.began
    }

    /// Make a process with its descendants the focus, too. Returns when that holds, or after a second.
    pub fn focus_on(&self, pid: u32) {
        self.focus(pid, false);
    }

    /// The same of a command that waits to be started: what its process does before it executes that is ours.
    pub fn focus_on_command(&self, pid: u32) {
        self.focus(pid, true);
    }

    fn focus(&self, pid: u32, unstarted: bool) {
        let (done, is_done) = bounded(1);
        if self.commands.send(Command::Focus { pid, unstarted, done }).is_ok() {
            let _ = is_done.recv_timeout(Duration::from_secs(1));
        }
    }

    /// Watch data flags of a process from now on. `later`: what its program does not have is waited for, since a
    /// library may bring it.
    ///
    /// # Errors
    /// See [`FlagError`]; those before the one it is about are watched.
    pub fn watch(&self, pid: u32, flags: &[FlagSpec], later: bool) -> Result<(), FlagError> {
        let (done, is_done) = bounded(1);
        let ended =
            || FlagError::Refused { what: "watch flags".into(), reason: "the recording has ended".into() };
        self.commands.send(Command::Watch(pid, flags.to_vec(), later, done)).map_err(|_| ended())?;
        is_done.recv().unwrap_or_else(|_| Err(ended()))
    }

    /// Follow threads instruction by instruction, one after the other.
    ///
    /// # Errors
    /// The recording has ended, or there is no further thread.
    pub fn follow(&self, ask: steps::Ask) -> Result<(), Error> {
        let (done, is_done) = bounded(1);
        let ended = || Error::Failed("the recording has ended".into());
        self.commands.send(Command::Follow(ask, done)).map_err(|_| ended())?;
        is_done.recv().unwrap_or_else(|_| Err(ended()))
    }

    /// A unit took too long, as guards beside this recording saw: have it recorded. One that was seen before it began is not.
    pub fn violation(&self, v: Violation, of: UnitTypeId) {
        let _ = self.commands.send(Command::Violation(Box::new(v), of));
    }

    /// Where a unit spends its time whose violation was recorded, as guards beside this recording saw: have it recorded.
    pub fn look(&self, l: Box<Look>, of: UnitTypeId) {
        let _ = self.commands.send(Command::Look(l, of));
    }

    /// A unit whose violation was recorded has turned out to be of this type, and not to have taken too long: have that recorded.
    pub fn withdrawn(&self, w: Withdrawn, of: UnitTypeId) {
        let _ = self.commands.send(Command::Withdrawn(w, of));
    }

    /// A unit ended, as guards beside this recording saw: have it recorded.
    pub fn unit(&self, unit: Ended, of: UnitTypeId) {
        let _ = self.commands.send(Command::Unit(unit, of));
    }

    /// Have all waits that go on reported now, as they would be at the end: for a copy of the recording so far. All that
    /// belongs to it was given out when [`LiveStats::reported`] is not less than this number.
    pub fn report_open(&self) -> u64 {
        let number = self.reports.fetch_add(1, Ordering::Relaxed) + 1;
        let _ = self.commands.send(Command::Report(number));
        number
    }

    /// How the recording goes.
    pub fn stats(&self) -> LiveStats {
        *self.stats.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// To cut short what [`Self::stop`] does.
    pub fn hurry(&self) -> Hurry {
        Hurry(Arc::clone(&self.hurry))
    }

    /// Has the recording ended by itself?
    pub fn is_finished(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// End the recording: report the waits that go on, detach, name all frames, and send [`Item::End`].
    ///
    /// # Errors
    /// What ended the recording before.
    pub fn stop(mut self) -> Result<(), Error> {
        let _ = self.commands.send(Command::Stop);
        let Some(thread) = self.thread.take() else { return Ok(()) };
        thread.join().unwrap_or_else(|_| Err(Error::Failed("the collector's thread panicked".into())))
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        let _ = self.commands.send(Command::Stop);
    }
}
