//! What a thread executed: from the recording, or followed now if it still runs here.

use super::find_flag::still_there;
use super::recording::Recording;
use super::views::steps::Shown;
use crate::steps::Steps;
use crate::steps::source::Sources;
use pg_event::trace::How;
use pg_event::{Catalog, FrameId, ThreadId};
use pg_graph::BurstFact;
use pg_tracer::stacks::StackTable;
use std::time::Duration;

/// How long a thread is followed from here.
const TIME: Duration = Duration::from_millis(20);
/// Most instructions then.
const MOST: u32 = 20_000;
/// Longest time for the names of functions.
const NAMES: Duration = Duration::from_secs(10);

/// A burst of the recording.
///
/// # Errors
/// A sentence.
pub fn recorded(r: &Recording, b: BurstFact) -> Result<Box<Shown>, String> {
    let trace = r.catalog.trace(b.trace).filter(|t| t.steps() > 0);
    let trace = trace.ok_or("the instructions of this burst are not in the file (taken out, or damaged)")?;
    let steps = Steps::new(trace, &r.catalog);
    // What was redacted has no files of this machine's.
    let source = Sources::read(&if r.header.redacted.is_empty() { steps.files() } else { Vec::new() });
    Ok(Box::new(Shown { thread: b.thread, span: (b.start, b.end), how: b.how, now: false, steps, source }))
}

/// The same of a thread as it runs now. It is not kept in the file.
///
/// # Errors
/// A sentence.
pub fn now(r: &Recording, thread: ThreadId) -> Result<Box<Shown>, String> {
    let (pid, tid) =
        still_there(r, thread).map_err(|e| e.replace("find-flag -p PID", "record --steps -p PID"))?;
    let taken = pg_tracer::steps::follow(pid, tid, TIME, MOST, &|| false).map_err(|e| e.to_string())?;
    let mut table = StackTable::new();
    let frames = table.places(pid, &taken.places);
    let mut catalog = Catalog::default();
    catalog.apply(table.drain());
    catalog.apply(table.symbolize_some(NAMES));
    let mut trace = taken.trace;
    for i in &mut trace.code {
        i.frame = frames.get(i.frame.index()).copied().unwrap_or(FrameId::NONE);
    }
    let steps = Steps::new(&trace, &catalog);
    let source = Sources::read(&steps.files());
    let span = (0, taken.span.1.saturating_sub(taken.span.0));
    Ok(Box::new(Shown { thread, span, how: How::SingleSteps, now: true, steps, source }))
}
