//! Probes are set and taken out again while guards run, as the [`Budget`] says, by a thread of its own: the kernel waits tens
//! of milliseconds for those that may be in a probe. (To disable the perf event of a probe would be quicker and help nothing:
//! the breakpoint stays, and is what costs.)

use super::budget::{Budget, Spent, Turn};
use super::layout::{Sight, Usage};
use super::multi::Link;
use super::probes::{Probes, Unset};
use super::program::Program;
use super::shared::Shared;
use super::told::Sight as Told;
use crate::clock::{monotonic, thread_cpu};
use crate::error::Error;
use crossbeam_channel::{Receiver, Sender, unbounded};
use std::mem::offset_of;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{Builder, JoinHandle};

/// How often the account is looked at, ns.
const LOOK: u64 = 10_000_000;

/// What the programs know of probes, in memory that both have: the map `sight`.
pub struct Lights(Shared<Sight>);

impl Lights {
    /// # Errors
    /// The kernel's refusal.
    pub fn of(fd: RawFd) -> Result<Self, Error> {
        let all = Shared::of(fd, 1).map(Self)?;
        all.ever();
        Ok(all)
    }

    fn on(&self) -> &AtomicU64 {
        self.0.u64(0, offset_of!(Sight, on))
    }

    /// No boundary passes unseen, or what does is not cared for.
    fn ever(&self) {
        self.on().store(1, Ordering::SeqCst);
    }

    /// Since when all probes are set, ns; 0: they are not, 1: they ever were.
    pub fn since(&self) -> u64 {
        self.on().load(Ordering::SeqCst)
    }

    fn suspects(&self) -> u64 {
        self.0.u64(0, offset_of!(Sight, suspects)).load(Ordering::Relaxed)
    }
}

enum Job {
    Light(Unset),
    Darken([Vec<Link>; 2]),
}

/// The links, none when they were taken out, and the CPU time that it took, ns.
struct Done {
    links: Option<[Vec<Link>; 2]>,
    took: u64,
}

/// The windows; dropping them waits for what is under way.
pub struct Windows {
    budget: Budget,
    jobs: Option<Sender<Job>>,
    done: Receiver<Done>,
    thread: Option<JoinHandle<()>>,
    used: Usage,
    suspects: u64,
    next: u64,
    /// So far; and probes are set.
    count: u64,
    lit: bool,
}

impl Windows {
    /// Probes that are set may take `share` of the CPU time of guarded threads, of which no unit may take longer than
    /// `limit` ns. `None` when there can be no such thread.
    pub fn new(share: f64, limit: u64) -> Option<Self> {
        let ((jobs, taken), (tell, done)) = (unbounded(), unbounded());
        let work = move || {
            for job in taken {
                let before = thread_cpu();
                let links = match job {
                    Job::Light(set) => Some(set.set(&mut Vec::new())),
                    Job::Darken(links) => {
                        drop(links);
                        None
                    }
                };
                if tell.send(Done { links, took: thread_cpu().saturating_sub(before) }).is_err() {
                    return;
                }
            }
        };
        let thread = Builder::new().name("pg-probes".into()).spawn(work).ok()?;
        let now = monotonic();
        Some(Self {
            budget: Budget::new(share, limit, now),
            jobs: Some(jobs),
            done,
            thread: Some(thread),
            used: Usage::default(),
            suspects: 0,
            next: now,
            count: 1,
            lit: true,
        })
    }

    /// Another limit, ns.
    pub fn limit(&mut self, ns: u64) {
        self.budget.limit(ns);
    }

    /// Are the probes set? Then they may be changed.
    pub fn are_open(&self) -> bool {
        self.lit
    }

    /// Look whether something is to be done, and do it.
    pub fn look(&mut self, now: u64, program: &Program, set: &mut Probes) {
        while let Ok(Done { links, took }) = self.done.try_recv() {
            self.turned(program, set, links, took);
        }
        if now < self.next {
            return;
        }
        self.next = now + LOOK;
        let (used, suspects) = (program.used(), program.lights.suspects());
        let since = |new: u64, old: u64| new.saturating_sub(old);
        let spent = Spent {
            cpu: since(used.cpu, self.used.cpu),
            lit: since(used.lit, self.used.lit),
            probed: since(used.probed, self.used.probed),
            suspected: suspects != self.suspects,
        };
        (self.used, self.suspects) = (used, suspects);
        let job = match self.budget.look(now, spent) {
            None => return,
            Some(Turn::Light) => Job::Light(set.unset()),
            Some(Turn::Darken) => {
                // Before the first is gone: from now on nothing is known that is not known otherwise.
                program.lights.on().store(0, Ordering::SeqCst);
                self.lit = false;
                Job::Darken(set.take())
            }
        };
        let _ = self.jobs.as_ref().map(|j| j.send(job));
    }

    fn turned(&mut self, program: &Program, set: &mut Probes, links: Option<[Vec<Link>; 2]>, took: u64) {
        // The links are there: whoever comes by a boundary from now on comes by a probe.
        let now = monotonic();
        let lit = links.is_some();
        if let Some(links) = links {
            set.put(links);
            program.lights.on().store(now, Ordering::SeqCst);
            self.count += 1;
            self.lit = true;
        }
        self.budget.turned(lit, now, took);
    }

    /// What was seen, after so much.
    pub fn told(&self, used: Usage) -> Told {
        let Usage { cpu, lit, in_time, unsure, .. } = used;
        Told { windows: self.count, cpu, lit, in_time, unsure }
    }
}

impl Drop for Windows {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
