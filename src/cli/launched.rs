//! A command that runs on while several things are done with it, one after the other.

use super::exit::Failure;
use super::record::{end_of, not_started};
use crate::clean::clean;
use crate::guard::{Bounds, Located};
use pg_tracer::command::{Command, Interrupts};
use pg_tracer::procfs::family;
use pg_tracer::stacks::Binary;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::time::{Duration, Instant};

/// How long a place is looked for: programs load libraries as they start, and start others.
const PATIENCE: Duration = Duration::from_secs(10);
/// Between two looks.
const LOOK: Duration = Duration::from_millis(50);
/// Looks at which nothing new was loaded, until all is there.
const SETTLED: usize = 4;

/// The command. It is asked to end when this is dropped before it ended.
pub(super) struct Launched(RefCell<Command>);

impl Launched {
    /// Starts it, as the user who called.
    pub fn start(argv: &[OsString]) -> Result<Self, Failure> {
        let mut command = Command::spawn(argv).map_err(|e| Failure::Usage(e.to_string()))?;
        command.resume().map_err(|e| not_started(&e))?;
        Ok(Self(RefCell::new(command)))
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.0.borrow().pid()
    }

    /// Has it ended?
    pub fn has_ended(&self) -> bool {
        // An error means that somebody else reaped it.
        self.0.borrow_mut().try_wait().map_or(true, |s| s.is_some())
    }

    /// Where units begin and end, once it and what it started have loaded what they need.
    pub fn locate(&self, bounds: &Bounds) -> Result<Located, Failure> {
        let begun = Instant::now();
        let (mut loaded, mut looks) = (BTreeSet::new(), 0);
        loop {
            let pids = family(&[self.pid()]);
            let now: BTreeSet<(u64, u64)> =
                pids.iter().flat_map(|&p| Binary::of_process(p)).map(|b| b.id()).collect();
            looks = if now == loaded { looks + 1 } else { 0 };
            loaded = now;
            let late = begun.elapsed() > PATIENCE;
            // To look for the places takes longer.
            if looks == SETTLED || late {
                match Located::of(bounds, &pids) {
                    Ok(located) => return Ok(located),
                    Err(e) if late => {
                        let s = PATIENCE.as_secs();
                        return Err(Failure::Usage(format!("within {s} s of the command's begin: {e}")));
                    }
                    Err(_) => {}
                }
            }
            if self.has_ended() {
                return Err(too_short());
            }
            std::thread::sleep(LOOK);
        }
    }

    /// The exit code to end with. Asked to end, if it has not: that was foreseen, and is no failure.
    pub fn end(&self, interrupts: &Interrupts) -> u8 {
        let mut command = self.0.borrow_mut();
        let ours = command.try_wait().is_ok_and(|s| s.is_none());
        end_of(&mut command, ours, ours, interrupts)
    }
}

impl Drop for Launched {
    fn drop(&mut self) {
        let mut command = self.0.borrow_mut();
        if command.try_wait().is_ok_and(|s| s.is_none()) {
            let program = command.program().to_string_lossy().into_owned();
            say!("pg-tui: {} is asked to end", clean(&program));
            command.terminate();
        }
    }
}

/// It ended before it could be looked at.
pub(super) fn too_short() -> Failure {
    Failure::Nothing("the command ended before its units could be looked at: give it more to do".into())
}
