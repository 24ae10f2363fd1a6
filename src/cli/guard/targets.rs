//! Processes by number and by name, also those that come later.

use crate::cli::diagnose::regex;
use crate::cli::exit::Failure;
use pg_tracer::procfs::{Stat, family, processes, read_stat};
use regex::Regex;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// How often new processes are looked for.
const EVERY: Duration = Duration::from_secs(1);

/// Processes by number and by name.
pub struct Targets {
    named: Vec<Regex>,
    /// Start of each.
    known: HashMap<u32, u64>,
    looked: Instant,
}

impl Targets {
    /// Those of the command line that are there.
    pub fn of(pids: &[u32], comm: &[String]) -> Result<Self, Failure> {
        if pids.is_empty() && comm.is_empty() {
            return Err(Failure::Usage("whose units? Name the processes (-p PID, --comm REGEX)".into()));
        }
        let named = comm.iter().map(|r| regex("--comm", r)).collect::<Result<_, _>>()?;
        let mut all = Self { named, known: HashMap::new(), looked: Instant::now() };
        for &pid in pids {
            let stat = running(pid).ok_or_else(|| Failure::Usage(format!("there is no process {pid}")))?;
            all.known.insert(pid, stat.start_ticks);
        }
        all.look();
        if all.known.is_empty() {
            return Err(Failure::Usage(format!("no process is called {}", comm.join(", "))));
        }
        Ok(all)
    }

    /// All so far, and those that descend from them, ascending.
    pub fn pids(&self) -> Vec<u32> {
        family(&self.known.keys().copied().collect::<Vec<_>>())
    }

    /// Those that came since the last look.
    pub fn arrived(&mut self) -> Vec<u32> {
        if self.named.is_empty() || self.looked.elapsed() < EVERY {
            return Vec::new();
        }
        self.looked = Instant::now();
        self.look()
    }

    fn look(&mut self) -> Vec<u32> {
        if self.named.is_empty() {
            return Vec::new();
        }
        let wanted = |s: &Stat| {
            let name = String::from_utf8_lossy(&s.comm);
            !s.kernel && self.named.iter().any(|n| n.is_match(&name))
        };
        let own = std::process::id();
        let all: Vec<Stat> =
            processes().into_iter().filter(|p| *p != own).filter_map(running).filter(wanted).collect();
        let mut is_new = |s: &Stat| self.known.insert(s.pid, s.start_ticks) != Some(s.start_ticks);
        all.into_iter().filter_map(|s| is_new(&s).then_some(s.pid)).collect()
    }

    /// Have all of those that were named by number ended? Others may come.
    pub fn ended(&mut self) -> bool {
        let there = |(pid, start): (&u32, &u64)| running(*pid).is_some_and(|s| s.start_ticks == *start);
        self.named.is_empty() && !self.known.iter().any(there)
    }
}

fn running(pid: u32) -> Option<Stat> {
    read_stat(pid).filter(|s| !s.has_ended())
}
