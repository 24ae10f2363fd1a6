//! The collector's thread: takes batches and commands, translates, and does what is due in between.

mod finish;
mod long;

use super::burst::{Bursts, Step};
use super::drain::{Batch, Drain};
use super::duty::{Duty, Turn};
use super::order::WINDOW_NS;
use super::pipeline::Pipeline;
use super::programs::{Pass, Programs};
use super::toll::Toll;
use super::unanswered::{self, Unanswered};
use super::{Command, LiveStats, prefer, raise_priority};
use crate::clock;
use crate::error::Error;
use crate::flags::{FlagError, FlagSpec, Touch, Watch};
use crate::identity::Identity;
use crate::options::{Level, Options};
use crate::procfs;
use crate::steps::{self, Steps, Taken};
use crate::unserved::{Look, Observer, Tracker};
use crossbeam_channel::{Receiver, Sender, never, select};
use long::LongWaits;
use pg_event::{Event, Item, Kind, Loss, ThreadId};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How long the collector waits at most for records or commands.
const PAUSE: u64 = 250 * MS;
/// What is to be done four times a second may be done so much sooner, ns.
const EARLY: u64 = 100 * MS;
/// With more batches than this waiting, only records are looked after.
const BEHIND: usize = 4;
/// ... but never longer than this, ns.
const PATIENCE: u64 = 2000 * MS;
const MS: u64 = 1_000_000;
/// So long after the last datagram another one is expected.
const DATAGRAMS_NS: u64 = 10_000 * MS;

/// The collector's thread.
pub(super) struct Run {
    programs: Programs,
    drain: Drain,
    pipeline: Pipeline,
    commands: Receiver<Command>,
    out: Sender<Item>,
    stats: Arc<Mutex<LiveStats>>,
    /// At the end, names are not waited for any longer.
    hurry: Arc<AtomicBool>,
    start: u64,
    /// For how long the host had had the CPUs by then, ns, where that can be read.
    stolen: Option<u64>,
    lost: [u64; 3],
    loss: Loss,
    /// Whether messages are recorded, where that is not always.
    duty: Option<Duty>,
    /// When losses were read last.
    checked: u64,
    /// Threads blocked with messages so far, and until when to collect those.
    left: (u64, u64),
    /// Events at the start of the current second.
    second: (u64, u64),
    rate: u64,
    /// It has fallen behind, and runs before everything else until it has caught up.
    pressed: bool,
    everything: bool,
    /// Names are looked up now, or only when a report was asked for.
    naming: bool,
    on_report: bool,
    /// The latest report asked for, when, and how many frames must be named for it; the latest of which everything was
    /// given out.
    asked: (u64, u64, Option<u64>),
    reported: u64,
    /// Watches data flags, once there is one to watch.
    flags: Option<Watch>,
    touches: Receiver<Vec<Touch>>,
    /// Follows threads, when that was asked for.
    steps: Option<Steps>,
    taken: Receiver<Taken>,
    /// Looks for connections that are not served, when there is a focus.
    observer: Option<Observer>,
    looks: Receiver<Look>,
    /// System calls that passed the programs of bursts.
    passed: u64,
    long: LongWaits,
}

/// The receiver of the items is gone.
struct Gone;

impl Run {
    /// Load the programs, and see who is there.
    ///
    /// # Errors
    /// The kernel's refusals.
    pub(super) fn start(
        options: &Options,
        out: Sender<Item>,
        commands: Receiver<Command>,
        stats: Arc<Mutex<LiveStats>>,
        hurry: Arc<AtomicBool>,
    ) -> Result<Self, Error> {
        prefer();
        let own = std::process::id();
        let mut programs = Programs::start(options, own)?;
        let start = clock::monotonic();
        let mut identity = Identity::new(start, &options.focus, own);
        identity.seed_from_proc();
        let everything = options.focus.is_everything();
        // Flight recorders (whose names are looked up on reports) have windows that begin later.
        let unanswered = if options.names_on_report {
            Unanswered::new()
        } else {
            unanswered::connections(&procfs::processes())
        };
        programs.pass(Pass::Seed)?;
        let seeded = clock::monotonic();
        let mut pipeline = Pipeline::new(start, identity, options.sample_hz);
        pipeline.objects.set_unanswered(unanswered);
        pipeline.python.everybody = options.focus.is_everything();
        pipeline.holders.set_everybody(options.focus.is_everything());
        let cpus = aya::util::nr_cpus().ok().map(|n| n as u32);
        pipeline.bursts = (options.adaptive && options.level < Level::Syscalls).then(|| match cpus {
            Some(n) if everything => Bursts::new(true).with_toll(Toll::new(n, start)),
            _ => Bursts::new(everything),
        });
        let rings = programs.take_rings().ok_or_else(|| Error::Failed("no rings".into()))?;
        let drain = Drain::start(rings)?;
        if !everything {
            drain.look_sooner();
        }
        // Of everybody on the machine that would be much work, and nobody's answer.
        let observer = (!everything && options.unserved_ns > 0)
            .then(|| Observer::start(options.unserved_ns, programs.receptions).ok())
            .flatten();
        pipeline.queues = observer.as_ref().map(|_| Tracker::new(options.unserved_ns, programs.receptions));
        let looks = observer.as_ref().map_or_else(never, |o| o.looks.clone());
        let mut run = Self {
            programs,
            drain,
            pipeline,
            commands,
            out,
            stats,
            hurry,
            start,
            stolen: crate::stolen(),
            lost: [0; 3],
            loss: Loss::default(),
            duty: None,
            checked: start,
            left: (0, 0),
            second: (start, 0),
            rate: 0,
            pressed: false,
            everything,
            naming: !options.names_on_report,
            on_report: options.names_on_report,
            asked: (0, start, None),
            reported: 0,
            flags: None,
            touches: never(),
            steps: None,
            taken: never(),
            observer,
            looks,
            passed: 0,
            long: LongWaits::new(seeded, options.long_wait_ns, procfs::in_initial_pid_namespace()),
        };
        if options.thin_messages && options.level == Level::Messages {
            run.duty = cpus.map(|n| Duty::new(n, start));
        }
        // The focus must be known before the command's first instruction.
        let _ = run.give_out(start, false);
        Ok(run)
    }

    /// When it began, `CLOCK_MONOTONIC`, ns.
    pub(super) fn began(&self) -> u64 {
        self.start
    }

    /// Record until it is told to stop, or nobody takes what it sends.
    ///
    /// # Errors
    /// The kernel's refusal of a pass over all threads.
    pub(super) fn run(mut self) -> Result<(), Error> {
        let mut next_slow = self.start;
        // Everything older than this has been read.
        let mut complete = self.start;
        loop {
            let now = clock::monotonic();
            let burst_due = self.pipeline.bursts.as_ref().and_then(|b| b.due(now)).unwrap_or(u64::MAX);
            let duty_due = self.duty.as_ref().map_or(u64::MAX, Duty::due);
            let due = self.long.due().min(burst_due).min(duty_due).min(now + PAUSE).saturating_sub(now);
            let batch = select! {
                recv(self.commands) -> command => match command {
                    Ok(Command::Focus { pid, unstarted, done }) => {
                        self.focus_on(pid);
                        self.pipeline.unstarted = unstarted.then_some(pid).or(self.pipeline.unstarted);
                        let _ = done.send(());
                        None
                    }
                    Ok(Command::Watch(pid, flags, later, done)) => {
                        let _ = done.send(self.watch(pid, &flags, later));
                        None
                    }
                    Ok(Command::Follow(ask, done)) => {
                        let _ = done.send(self.follow(ask));
                        None
                    }
                    Ok(Command::Unit(unit, of)) => {
                        self.pipeline.unit(&unit, of);
                        None
                    }
                    Ok(Command::Violation(v, of)) => {
                        self.pipeline.violation(&v, of);
                        None
                    }
                    Ok(Command::Look(l, of)) => {
                        self.pipeline.look(&l, of);
                        None
                    }
                    Ok(Command::Withdrawn(w, of)) => {
                        self.pipeline.withdrawn(&w, of);
                        None
                    }
                    Ok(Command::Report(number)) => {
                        self.programs.pass(Pass::Flush)?;
                        self.asked = (number, clock::monotonic(), None);
                        self.pipeline.tell_unserved(complete, self.asked.1, true);
                        self.naming = true;
                        if self.on_report {
                            self.pipeline.stacks.hurry();
                        }
                        None
                    }
                    Ok(Command::Stop) | Err(_) => return self.finish(),
                },
                recv(self.drain.batches) -> batch => match batch {
                    Ok(batch) => Some(batch),
                    // The draining thread is gone.
                    Err(_) => return self.finish(),
                },
                recv(self.touches) -> touches => {
                    match touches {
                        Ok(touches) => touches.iter().for_each(|t| self.pipeline.touch(t)),
                        Err(_) => self.touches = never(),
                    }
                    None
                }
                recv(self.taken) -> taken => {
                    match taken {
                        Ok(taken) => self.pipeline.burst(&taken),
                        Err(_) => self.taken = never(),
                    }
                    None
                }
                recv(self.looks) -> look => {
                    match (look, &mut self.pipeline.queues) {
                        (Ok(look), Some(queues)) => queues.look(look),
                        _ => self.looks = never(),
                    }
                    None
                }
                default(Duration::from_nanos(due)) => None,
            };
            let now = clock::monotonic();
            let had_batch = batch.is_some();
            if let Some(batch) = batch {
                self.take(&batch);
                complete = batch.time;
                self.drain.give_back(batch);
                self.pipeline.tell_unserved(complete, now, false);
                self.pipeline.tell_files(complete);
            }
            let behind = self.drain.batches.len() > BEHIND;
            if behind != self.pressed {
                self.pressed = behind;
                if behind { raise_priority() } else { prefer() }
            }
            // Rather a little early than woken once more.
            let due = self.long.due();
            let long = now >= due.saturating_sub(if had_batch { EARLY } else { 0 });
            if long && (!behind || now >= due + PATIENCE) {
                self.look_at_long_waits(now)?;
            }
            if !behind {
                self.pipeline.look_at_python(now);
                for (tgid, tid, python) in self.pipeline.python.changes.drain(..) {
                    self.programs.follow_python(tgid, tid, python);
                    self.drain.look_sooner();
                }
                self.pipeline.look_up_holders(now);
            }
            let slow = now >= next_slow && (!behind || now >= next_slow + PATIENCE);
            if slow {
                next_slow = now + 200 * MS;
                let time = self.pipeline.time(now);
                self.pipeline.identity.refresh(time);
            }
            let datagram = self.pipeline.datagram;
            self.programs.name_senders(datagram != 0 && now.saturating_sub(datagram) < DATAGRAMS_NS);
            self.burst(now, false);
            self.hear(now);
            self.collect_messages(now)?;
            self.account(now);
            // A focus must follow at once; the file is written in steps.
            let step = self.pipeline.is_step(complete);
            if (step || !self.everything) && self.give_out(complete, false).is_err() {
                return Ok(());
            }
            if step && self.naming {
                // Names after the rows they name: a nameless row sent later would take the name away.
                let names = self.pipeline.stacks.symbolize_some(Duration::ZERO);
                if !names.is_empty() && self.out.send(Item::Catalog(names)).is_err() {
                    return Ok(());
                }
                let (named, all) = self.pipeline.stacks.looked_up();
                // What is older than this went out.
                let out = complete.saturating_sub(WINDOW_NS);
                if out >= self.asked.1 && named >= *self.asked.2.get_or_insert(all) {
                    self.reported = self.asked.0;
                }
                let done = self.reported == self.asked.0 && self.pipeline.stacks.pending() == 0;
                if self.on_report && done {
                    self.naming = false;
                    self.pipeline.stacks.forget_symbols();
                }
            }
        }
    }

    /// Begin or end a burst of system call records. A kernel that refuses has none.
    fn burst(&mut self, now: u64, end: bool) {
        let Some(bursts) = &mut self.pipeline.bursts else { return };
        let passed = if bursts.running() { self.programs.passed() } else { self.passed };
        self.passed = passed;
        let done = match if end { bursts.end(now) } else { bursts.step(now, passed) } {
            None => return,
            Some(Step::Begin(tids)) => {
                self.pipeline.look_at_loops(&tids, now);
                self.programs.begin_burst(&tids, false)
            }
            Some(Step::BeginChildren(pid)) => self.programs.begin_burst(&[pid], true),
            Some(Step::End) => self.programs.end_burst(),
        };
        if let Err(e) = done {
            self.programs.notes.push(format!("no bursts of system calls: {e}"));
            self.pipeline.bursts = None;
        }
    }

    /// Record messages, or do not for a while. A kernel that refuses goes on as it is.
    fn hear(&mut self, now: u64) {
        let Some(duty) = &mut self.duty else { return };
        let done = match duty.step(now, self.programs.heard()) {
            None => return,
            Some(Turn::Pause) => {
                self.pipeline.unheard(now, None);
                let done = self.programs.hear(false);
                duty.began(clock::monotonic());
                done
            }
            Some(Turn::Resume(since)) => {
                let done = self.programs.hear(true);
                self.pipeline.unheard(since, Some(clock::monotonic()));
                done
            }
        };
        if let Err(e) = done {
            self.programs.notes.push(format!("messages: {e}"));
            self.duty = None;
        }
    }

    /// Have messages sent that blocked threads were left with since there were too many at the time.
    fn collect_messages(&mut self, now: u64) -> Result<(), Error> {
        if now - self.checked < 100 * MS {
            return Ok(());
        }
        let left = self.programs.left();
        if left != self.left.0 {
            self.left = (left, now + 250 * MS);
        }
        if now < self.left.1 { self.programs.pass(Pass::Uses) } else { Ok(()) }
    }

    fn watch(&mut self, pid: u32, flags: &[FlagSpec], later: bool) -> Result<(), FlagError> {
        if self.flags.is_none() {
            let watch = Watch::start()?;
            self.touches = watch.touches().clone();
            self.flags = Some(watch);
        }
        let Some(watch) = &self.flags else { return Ok(()) };
        flags.iter().try_for_each(|f| watch.add(pid, f, later).map(|_| ()))
    }

    fn follow(&mut self, ask: steps::Ask) -> Result<(), Error> {
        let known = || self.pipeline.identity.focus_pids().into_iter().collect();
        let steps = Steps::start(ask, (!self.everything).then(known))
            .map_err(|e| Error::Failed(format!("cannot start a thread: {e}")))?;
        self.pipeline.stepped.followed = Some(steps.followed());
        self.taken = steps.taken().clone();
        self.steps = Some(steps);
        Ok(())
    }

    fn focus_on(&mut self, pid: u32) {
        self.everything = false;
        self.drain.look_sooner();
        self.pipeline.holders.set_everybody(false);
        self.programs.set_focus(&[pid], &[]);
        self.pipeline.identity.focus_on(pid);
    }

    /// Translate a batch.
    fn take(&mut self, batch: &Batch) {
        let life = batch.life.iter().filter_map(|&n| batch.events.get(n));
        self.pipeline.stacks_and_life(batch.stacks.iter(), life);
        for record in batch.samples.iter().chain(batch.events.iter()) {
            self.pipeline.record(record);
        }
    }

    /// Count losses and bring the statistics up to date.
    fn account(&mut self, now: u64) {
        if now - self.checked >= 100 * MS {
            let lost = self.programs.lost();
            let mut any = false;
            for (ring, (new, old)) in lost.iter().zip(self.lost).enumerate() {
                let count = new.saturating_sub(old);
                if count == 0 {
                    continue;
                }
                any = true;
                let since = self.pipeline.time(self.checked);
                let kind = Kind::Lost { since, count, ring: ring as u8 };
                let time = self.pipeline.time(now);
                self.pipeline.push(Event { time, thread: ThreadId::NONE, cpu: 0, kind });
            }
            if any {
                self.loss.ns += now - self.checked;
            }
            self.lost = lost;
            [self.loss.events, self.loss.stacks, self.loss.samples] = lost;
            self.checked = now;
        }
        if now - self.second.0 >= 1000 * MS {
            let events = self.pipeline.events - self.second.1;
            self.rate = events * 1_000_000_000 / (now - self.second.0);
            self.second = (now, self.pipeline.events);
        }
        let stats = LiveStats {
            events: self.pipeline.events,
            events_per_s: self.rate,
            lost: self.loss,
            elapsed_ns: now - self.start,
            reported: self.reported,
        };
        *self.stats.lock().unwrap_or_else(PoisonError::into_inner) = stats;
    }

    fn give_out(&mut self, now: u64, all: bool) -> Result<(), Gone> {
        for item in self.pipeline.release(now, all) {
            if let Item::Catalog(delta) = &item
                && !self.everything
            {
                let (mut add, mut remove) = (Vec::new(), Vec::new());
                for (_, p) in &delta.processes {
                    if p.focus && p.end.is_none() {
                        add.push(p.pid);
                    } else if p.focus {
                        remove.push(p.pid);
                    }
                }
                if let Some(observer) = &self.observer {
                    observer.focus(&add, &remove);
                }
                self.programs.set_focus(&add, &remove);
                if let Some(steps) = &self.steps {
                    steps.focus(&add, &remove);
                }
            }
            self.out.send(item).map_err(|_| Gone)?;
        }
        Ok(())
    }
}
