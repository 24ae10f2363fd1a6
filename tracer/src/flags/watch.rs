//! Watches data flags: a thread that takes accesses from the BPF program, and keeps the cost down.

use super::flag::Flag;
use super::program::{Program, Ring};
use super::variables::{Located, locate};
use super::{FlagError, FlagRow, FlagSpec, Touch};
use crate::clock::monotonic;
use crossbeam_channel::{Receiver, Sender, unbounded};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Longest sleep of the thread.
const PAUSE: Duration = Duration::from_millis(50);
/// ... while a variable is waited for that is not there yet.
const SHORT: Duration = Duration::from_millis(10);
/// How often other processes are looked at, ns.
const AROUND: u64 = 1_000_000_000;
/// Hits taken at a time.
const AT_ONCE: usize = 256;
/// The processor's breakpoints.
pub const SLOTS: usize = 4;

struct State {
    program: Program,
    flags: Vec<Flag>,
    /// Variables of libraries that are not loaded yet.
    later: Vec<(u32, FlagSpec)>,
    notes: Vec<String>,
    start: u64,
}

/// Watching goes on while this lives.
pub struct Watch {
    state: Arc<Mutex<State>>,
    touches: Receiver<Vec<Touch>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    /// Get ready; nothing is watched yet.
    ///
    /// # Errors
    /// The kernel refuses the program.
    pub fn start() -> Result<Self, FlagError> {
        let (program, ring) = Program::load()?;
        let state =
            State { program, flags: Vec::new(), later: Vec::new(), notes: Vec::new(), start: monotonic() };
        let state = Arc::new(Mutex::new(state));
        let stop = Arc::new(AtomicBool::new(false));
        let (send, touches) = unbounded();
        let (shared, stopped) = (Arc::clone(&state), Arc::clone(&stop));
        let thread = thread::Builder::new()
            .name("pg-flags".into())
            .spawn(move || run(&shared, ring, &send, &stopped))
            .map_err(|e| FlagError::Refused { what: "start a thread".into(), reason: e.to_string() })?;
        Ok(Self { state, touches, stop, thread: Some(thread) })
    }

    /// Watch a flag of a process, in all its threads, in later ones, and in shared memory in whatever process maps
    /// it. `later`: a variable that is not there yet is waited for, since a library may bring it; then the answer
    /// is `None`.
    ///
    /// # Errors
    /// See [`FlagError`].
    pub fn add(&self, pid: u32, spec: &FlagSpec, later: bool) -> Result<Option<Arc<FlagRow>>, FlagError> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        match locate(pid, spec) {
            Ok(at) => state.add(pid, spec, &at).map(Some),
            Err(FlagError::NoSymbol { .. }) if later => {
                state.later.push((pid, spec.clone()));
                Ok(None)
            }
            Err(e) => Err(e),
        }
    }

    /// Accesses, as they come.
    pub fn touches(&self) -> &Receiver<Vec<Touch>> {
        &self.touches
    }

    /// In how many threads flags are watched (not counting those created later).
    pub fn threads(&self) -> usize {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).flags.iter().map(Flag::threads).sum()
    }

    /// End; what is left of accesses, and sentences about what was not recorded.
    pub fn finish(mut self) -> (Vec<Touch>, Vec<String>) {
        self.end();
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let mut notes = std::mem::take(&mut state.notes);
        for (pid, spec) in &state.later {
            notes.push(format!(
                "flag {spec} was never there: process {pid} has no such variable, nor its libraries"
            ));
        }
        notes.extend(state.flags.iter().flat_map(|f| f.notes(state.start)));
        let lost = state.program.lost();
        if lost > 0 {
            notes.push(format!("{lost} accesses to data flags were lost"));
        }
        // Nothing is watched any more.
        state.flags.clear();
        drop(state);
        (self.touches.try_iter().flatten().collect(), notes)
    }

    fn end(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.end();
    }
}

impl State {
    fn add(&mut self, pid: u32, spec: &FlagSpec, at: &Located) -> Result<Arc<FlagRow>, FlagError> {
        if let Some(known) = self.flags.iter().find(|f| f.is_at(pid, at.address)) {
            return Ok(Arc::clone(known.row()));
        }
        let mut flag = Flag::new(pid, at, monotonic())?;
        flag.attach(pid, at.address, self.program.fd()).map_err(|e| match e.raw_os_error() {
            Some(libc::ENOSPC) => {
                FlagError::TooMany { flag: spec.to_string(), ours: self.flags.len().min(SLOTS) }
            }
            Some(libc::ESRCH) => FlagError::Process { pid, reason: "it has ended".into() },
            _ => FlagError::Refused { what: format!("watch {spec} in process {pid}"), reason: e.to_string() },
        })?;
        flag.look_around(self.program.fd());
        let row = Arc::clone(flag.row());
        tracing::info!("flag {}: {} threads", row.label(), flag.threads());
        self.flags.push(flag);
        Ok(row)
    }

    /// Variables that are there by now.
    fn look_again(&mut self) {
        for (pid, spec) in std::mem::take(&mut self.later) {
            match locate(pid, &spec) {
                Ok(at) => match self.add(pid, &spec, &at) {
                    Ok(_) => {
                        let s = monotonic().saturating_sub(self.start) as f64 / 1e9;
                        self.notes.push(format!(
                            "flag {spec} is watched since {s:.2} s: its library was loaded then"
                        ));
                    }
                    Err(e) => self.notes.push(e.to_string()),
                },
                // Gone without it: told in the end.
                Err(FlagError::NoSymbol { .. } | FlagError::NoSuchProcess(_) | FlagError::Process { .. }) => {
                    self.later.push((pid, spec));
                }
                Err(e) => self.notes.push(e.to_string()),
            }
        }
    }
}

fn run(state: &Mutex<State>, mut ring: Ring, send: &Sender<Vec<Touch>>, stop: &AtomicBool) {
    let mut around = monotonic();
    let mut pause = PAUSE;
    loop {
        let ending = stop.load(Ordering::Acquire);
        if !ending {
            ring.wait(pause);
        }
        let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
        let hits = ring.take(AT_ONCE);
        let none = hits.is_empty();
        let now = monotonic();
        let mut touches = Vec::new();
        for hit in hits {
            if let Some(flag) = state.flags.iter_mut().find(|f| f.is_at(hit.tgid, hit.address)) {
                touches.extend(flag.touched(hit));
            }
        }
        if ending && none {
            return;
        }
        if !ending {
            for flag in &mut state.flags {
                flag.tick(now);
            }
            if !state.later.is_empty() {
                state.look_again();
            }
            pause = if state.later.is_empty() { PAUSE } else { SHORT };
            if now.saturating_sub(around) > AROUND {
                around = now;
                let State { flags, program, .. } = &mut *state;
                for flag in flags {
                    flag.look_around(program.fd());
                }
            }
        }
        drop(state);
        if !touches.is_empty() && send.send(touches).is_err() {
            return;
        }
    }
}
