//! The processes given with `-p`: once all of them have ended there is nothing more to wait for.

use crate::cli::args::Record;
use pg_tracer::procfs::{Stat, read_stat};
use std::time::{Duration, Instant};

/// Time between two looks.
const EVERY: Duration = Duration::from_millis(250);

/// Watches for the end of processes or threads.
pub struct Targets {
    /// Number and start: a number alone may pass on to another process.
    alive: Vec<(u32, u64)>,
    looked: Instant,
}

impl Targets {
    /// Those of the command line, when they alone are what the recording is about.
    pub fn of(args: &Record) -> Self {
        let alone = args.cgroup.is_empty() && args.comm.is_empty() && args.command.is_empty();
        let pids = if alone { args.pid.as_slice() } else { &[] };
        let known = |&pid: &u32| Some((pid, running(pid)?.start_ticks));
        Self { alive: pids.iter().filter_map(known).collect(), looked: Instant::now() }
    }

    /// Have all of them ended? Never, if there were none.
    pub fn ended(&mut self) -> bool {
        if self.alive.is_empty() || self.looked.elapsed() < EVERY {
            return false;
        }
        self.looked = Instant::now();
        self.alive.retain(|&(pid, start)| running(pid).is_some_and(|s| s.start_ticks == start));
        self.alive.is_empty()
    }
}

/// A zombie has ended, though nobody has taken note yet.
fn running(pid: u32) -> Option<Stat> {
    read_stat(pid).filter(|s| !matches!(s.state, b'Z' | b'X' | b'x'))
}
