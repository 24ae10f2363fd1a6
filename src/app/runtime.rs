//! What runs the session in a real terminal: threads that send messages, and the loop that takes them.
//!
//! The loop blocks until something happens; idle, nothing runs at all. All messages that have come are
//! taken in before one frame is drawn, so that no frame is drawn that nobody would see.

use super::jobs::{Job, Lane};
use super::late_answer::LateAnswer;
use super::msg::{Effect, Msg};
use super::state::State;
use super::terminal::{self, Terminal};
use super::{clipboard, jobs, prepare, signals, update};
use crate::config::{Config, Environment, Overrides};
use crate::session::Symbols;
use crossbeam_channel::{Receiver, Sender, unbounded};
use std::collections::HashMap;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::Instant;

/// How the session is to look.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Only ASCII shapes.
    pub ascii: bool,
    /// Name of a theme; `None`: as configured, else as fits the terminal.
    pub theme: Option<String>,
    /// A configuration file instead of the user's.
    pub config: Option<PathBuf>,
    /// Where names of functions come from that the recording does not have.
    pub symbols: Symbols,
}

/// Why the session could not run.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// No terminal.
    #[error("{0}")]
    NoTerminal(String),
    /// A mistake in the configuration.
    #[error("configuration: {0}")]
    Config(#[from] crate::config::ConfigError),
    /// The terminal failed.
    #[error("the terminal: {0}")]
    Terminal(#[from] io::Error),
}

/// The terminal taken over, the state to be shown on it, and what comes from outside: keys, mouse, signals.
pub(super) struct Screen {
    pub(super) terminal: Terminal,
    pub(super) state: State,
    pub(super) send: Sender<Msg>,
    pub(super) receive: Receiver<Msg>,
}

impl Screen {
    /// Takes the terminal over, to show what is called `name`. Mistakes are told before that.
    /// `instead` says what to use where there is no terminal.
    pub(super) fn open(options: &Options, name: String, instead: &str) -> Result<Self, RunError> {
        terminal::check(instead).map_err(RunError::NoTerminal)?;
        let overrides = Overrides { theme: options.theme.clone(), ascii: options.ascii };
        let config = Config::load(options.config.as_deref(), &Environment::read(), &overrides)?;
        let (send, receive) = unbounded();
        signals::listen(send.clone())?;
        terminal::restore_on_panic();
        let terminal = Terminal::enter(config.mouse)?;
        let state = State::new(config, name, terminal.size()?);
        listen_to_keys(send.clone());
        Ok(Self { terminal, state, send, receive })
    }
}

/// What to use where there is no terminal to open a session in.
const INSTEAD: &str = "the interactive session needs a terminal; `pg-tui diagnose FILE` prints the result as text, \
                       with --json for programs";

/// Opens a session file in the terminal and returns when the person leaves.
///
/// # Errors
/// No terminal, a mistake in the configuration, or the terminal failed. A file that cannot be read is told
/// on the screen.
pub fn run(path: &Path, options: &Options) -> Result<(), RunError> {
    let name =
        path.file_name().map_or_else(String::new, |n| crate::clean::clean_to(&n.to_string_lossy(), 60));
    let Screen { mut terminal, mut state, send, receive } = Screen::open(options, name, INSTEAD)?;
    let mut workers = Workers::new(send);
    super::update::run_job(&mut state, Job::Load(path.to_owned(), options.symbols.clone()));
    let ended = session(&mut state, &mut terminal, &mut workers, &receive);
    drop(terminal);
    workers.finish();
    if let End::Signal(signal) = ended? {
        signals::die_of(signal);
    }
    tracing::debug!("left by the person");
    Ok(())
}

/// Why a session ended.
enum End {
    /// The person left.
    Left,
    /// A signal came.
    Signal(i32),
}

/// Takes messages until it is time to leave.
fn session(
    state: &mut State,
    terminal: &mut Terminal,
    workers: &mut Workers,
    receive: &Receiver<Msg>,
) -> io::Result<End> {
    loop {
        if let Some(end) = effects(state, terminal, workers)? {
            return Ok(end);
        }
        if state.dirty {
            prepare(state);
            terminal.draw(|frame| crate::ui::draw(frame, state))?;
            state.dirty = false;
        }
        let Ok(first) = receive.recv() else { return Ok(End::Left) };
        update(state, first);
        // What came meanwhile, but not for ever: a held key must not keep frames away.
        for msg in receive.try_iter().take(256) {
            update(state, msg);
            if !state.effects.is_empty() {
                break;
            }
        }
    }
}

/// Does what the state asks for. `Some`: leave.
fn effects(state: &mut State, terminal: &mut Terminal, workers: &mut Workers) -> io::Result<Option<End>> {
    for effect in std::mem::take(&mut state.effects) {
        match effect {
            Effect::Quit => return Ok(Some(End::Left)),
            Effect::Die(signal) => return Ok(Some(End::Signal(signal))),
            Effect::Suspend => {
                terminal::restore();
                signals::stop();
                // Here again once continued.
                terminal.again()?;
                state.size = terminal.size()?;
            }
            Effect::TakeTerminal => {
                terminal.again()?;
                state.size = terminal.size()?;
            }
            Effect::Redraw => terminal.clear()?,
            Effect::Run(job) => workers.run(job),
            Effect::Osc52(text) => {
                if let Some(sequence) = clipboard::osc52_here(&text) {
                    terminal::write_sequence(&sequence)?;
                }
            }
        }
        state.dirty = true;
    }
    Ok(None)
}

/// Keys, mouse and sizes become messages.
fn listen_to_keys(send: Sender<Msg>) {
    let mut answer = LateAnswer::new(Instant::now());
    let listen = move || {
        while let Ok(event) = crossterm::event::read() {
            if answer.is(&event, Instant::now()) {
                continue;
            }
            if send.send(Msg::Input(event)).is_err() {
                return;
            }
        }
        // The terminal is gone: as if the line had been hung up.
        let _ = send.send(Msg::Signal(super::msg::Signal::End(signal_hook::consts::SIGHUP)));
    };
    // Without this thread there are no keys; but then signals still end the session.
    let _ = std::thread::Builder::new().name("keys".into()).spawn(listen);
}

/// Threads that run jobs, one per lane, started when first needed.
struct Workers {
    send: Sender<Msg>,
    lanes: HashMap<Lane, (Sender<Job>, JoinHandle<()>)>,
}

impl Workers {
    fn new(send: Sender<Msg>) -> Self {
        Self { send, lanes: HashMap::new() }
    }

    fn run(&mut self, job: Job) {
        let lane = job.lane();
        let words = job.words();
        if !self.lanes.contains_key(&lane) {
            let (jobs, inbox) = unbounded::<Job>();
            let send = self.send.clone();
            let name = format!("{lane:?}").to_lowercase();
            match std::thread::Builder::new().name(name).spawn(move || work(&inbox, &send)) {
                Ok(thread) => {
                    self.lanes.insert(lane, (jobs, thread));
                }
                Err(e) => {
                    let _ = self.send.send(Msg::Job(jobs::Done::Died(words, e.to_string())));
                    return;
                }
            }
        }
        if let Some((jobs, _)) = self.lanes.get(&lane) {
            // A worker only ends when its inbox is dropped.
            let _ = jobs.send(job);
        }
    }

    /// Waits for what must be written; everything else may be left undone.
    fn finish(mut self) {
        if let Some((jobs, thread)) = self.lanes.remove(&Lane::Keep) {
            drop(jobs);
            let _ = thread.join();
        }
    }
}

fn work(inbox: &Receiver<Job>, send: &Sender<Msg>) {
    for job in inbox {
        let words = job.words();
        let tell = |msg| {
            // The session has ended: nobody wants to know.
            let _ = send.send(msg);
        };
        // Jobs own their data, and what they share is only read (or kept consistent by its own lock).
        let ended = catch_unwind(AssertUnwindSafe(|| job.run(&tell)));
        if let Err(panic) = ended {
            let why = panic
                .downcast_ref::<&str>()
                .map(|s| (*s).to_owned())
                .or_else(|| panic.downcast_ref::<String>().cloned())
                .unwrap_or_else(|| "a panic".into());
            tell(Msg::Job(jobs::Done::Died(words, why)));
        }
    }
}
