//! One burst: from a thread to its trace, with addresses of its process.

use super::build::Build;
use super::{LONGEST, MOST};
use crate::clock::monotonic;
use crate::flags::FlagError;
use crate::flags::find::stepper::{End, Limits, RawStep, Stepper};
use crate::flags::find::{comm, refused, until_fit};
use crate::stacks::Regs;
use pg_event::Trace;
use pg_event::trace::BurstEnd;
use std::time::Duration;

/// Longest wait for a thread that must not be stopped where it is.
const FIT: Duration = Duration::from_secs(1);
/// A stepper that takes longer to let go than this beyond the time given waits for a thread that cannot be stopped.
const GRACE: Duration = Duration::from_secs(3);

/// A trace as it was taken: its frames are numbers in `places`.
#[derive(Clone, Debug)]
pub struct Taken {
    /// The process.
    pub pid: u32,
    /// The thread.
    pub tid: u32,
    /// Its name.
    pub name: String,
    /// The process that followed it: not one of the program's.
    pub stepper: u32,
    /// When it was stopped first and let go of (`CLOCK_MONOTONIC`), ns.
    pub span: (u64, u64),
    /// What it executed. `FrameId(n)` stands for the n-th of `places`; `stack` is not set.
    pub trace: Trace,
    /// Addresses of instructions in the process.
    pub places: Vec<u64>,
    /// Registers at the first step.
    pub regs: Regs,
    /// The stack then, from the stack pointer upward.
    pub stack: Vec<u8>,
}

/// Follow a thread for `time` and for `most` instructions at most; `enough`: no more is wanted.
///
/// # Errors
/// The thread is not there, may not be traced, or sleeps in a call that must not be disturbed.
pub fn follow(
    pid: u32,
    tid: u32,
    time: Duration,
    most: u32,
    enough: &dyn Fn() -> bool,
) -> Result<Taken, FlagError> {
    until_fit(pid, tid, FIT)?;
    let time = time.min(LONGEST);
    // Others may have the CPUs: that is no sleep.
    let limits = Limits { most: most.min(MOST), patience: Duration::MAX, time };
    let before = monotonic();
    let mut stepper =
        Stepper::start(pid, tid, limits).map_err(|e| FlagError::Process { pid, reason: e.to_string() })?;
    let child = u32::try_from(stepper.child()).unwrap_or(0);
    let mut build = Build::default();
    let mut first: Option<RawStep> = None;
    let mut n = 0;
    let end = loop {
        std::thread::sleep(Duration::from_millis(2));
        let end = stepper.end();
        while let Some(step) = stepper.step(n) {
            first.get_or_insert(step);
            build.push(&step);
            n += 1;
        }
        if let Some(end) = end {
            break end;
        }
        if enough() || Duration::from_nanos(monotonic().saturating_sub(before)) > time + GRACE {
            stepper.stop();
        }
    };
    stepper.wait(GRACE);
    if end.0 == End::Refused {
        return Err(refused(pid, tid, end.1));
    }
    let left = stepper.left().unwrap_or_else(monotonic);
    let (mut trace, places) = build.finish();
    trace.end = match end.0 {
        End::Enough if n >= limits.most as usize => BurstEnd::Steps,
        End::Enough | End::Refused => BurstEnd::Unknown,
        End::Time => BurstEnd::Time,
        End::Asleep => BurstEnd::Asleep,
        End::Exited => BurstEnd::Exited,
        End::Unfit => BurstEnd::Unfit,
        End::Stopped => BurstEnd::Stopped,
    };
    let Some(first) = first else {
        let reason = format!("{} before its first instruction", trace.end.words());
        return Err(FlagError::Refused { what: format!("follow thread {tid}"), reason });
    };
    let begin = u64::try_from(first.time).unwrap_or(before).max(before);
    Ok(Taken {
        pid,
        tid,
        name: comm(pid, tid),
        stepper: child,
        span: (begin, left.max(begin)),
        trace,
        places,
        regs: Regs::from(&first.regs),
        stack: stepper.stack(),
    })
}
