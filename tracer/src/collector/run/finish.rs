//! The end of a recording: what goes on is reported, the programs are detached, frames get their names.

use super::{MS, Run};
use crate::clock;
use crate::collector::burst::Bursts;
use crate::collector::duty::Duty;
use crate::collector::programs::Pass;
use crate::error::Error;
use crate::flags::Watch;
use crate::steps::Steps;
use pg_event::{Coverage, Item};
use std::sync::atomic::Ordering;

impl Run {
    /// End the recording.
    ///
    /// # Errors
    /// The kernel's refusal of the last pass over all threads: all else was sent.
    pub(super) fn finish(mut self) -> Result<(), Error> {
        // A burst under way ends first: its thread is let go of before anything takes time.
        let (taken, step_notes) = self.steps.take().map(Steps::finish).unwrap_or_default();
        let end = clock::monotonic();
        for t in &taken {
            self.pipeline.burst(t);
        }
        self.burst(end, true);
        self.pipeline.end_at(end);
        if let Some(since) = self.duty.as_ref().and_then(Duty::paused) {
            self.pipeline.unheard(since, Some(end));
        }
        let (touches, flag_notes) = self.flags.take().map(Watch::finish).unwrap_or_default();
        for touch in &touches {
            self.pipeline.touch(touch);
        }
        // Waits that became long since the last look, or that no look came to in time: who holds what they are for is
        // looked up below, while all of it goes on.
        let flushed = self.programs.pass(Pass::Long).and_then(|()| self.programs.pass(Pass::Flush));
        self.drain.stop();
        while let Ok(batch) = self.drain.batches.recv() {
            self.take(&batch);
            self.drain.give_back(batch);
        }
        self.account(clock::monotonic().max(self.checked + 100 * MS));
        self.pipeline.tell_unserved(u64::MAX, end, true);
        self.pipeline.tell_files(end);
        let mut notes = std::mem::take(&mut self.programs.notes);
        notes.extend(flag_notes);
        notes.extend(step_notes);
        notes.extend(self.duty.as_ref().and_then(|d| d.note(end)));
        notes.extend(self.pipeline.bursts.as_ref().and_then(Bursts::note));
        notes.extend(self.pipeline.asked.note());
        let unreported = self.programs.unreported();
        let since = self.stolen.zip(crate::stolen()).map_or(0, |(before, now)| now.saturating_sub(before));
        notes.extend(stood_still(since, end - self.start));
        let Self { mut pipeline, programs, out, loss, start, hurry, .. } = self;
        // Detaches everything: naming frames may take a while.
        drop(programs);
        let left = pipeline.look_up_rest(end, &|| hurry.load(Ordering::Relaxed));
        notes.extend(Coverage::not_looked_up(left.waits, &left.threads));
        let unread = pipeline.identity.note_all_scheduling(&|| hurry.load(Ordering::Relaxed));
        notes.extend((unread > 0).then(|| {
            format!("how they are scheduled was not read of {unread} threads: it is known of those that had no CPU for long")
        }));
        for item in pipeline.release(end, true) {
            if out.send(item).is_err() {
                return Ok(());
            }
        }
        // Now all of them are counted.
        if unreported > 0 {
            let s = if unreported == 1 { "" } else { "es" };
            notes.push(format!(
                "the kernel did not report {unreported} switch{s} of threads, beside {} events that were recorded: as many waits may be missing, or begin or end at another time than they did",
                pipeline.events
            ));
        }
        let names = pipeline.stacks.symbolize_unless(&|| hurry.load(Ordering::Relaxed));
        let unnamed = pipeline.stacks.pending() as u64;
        if !names.is_empty() && out.send(Item::Catalog(names)).is_err() {
            return Ok(());
        }
        let c = pipeline.stacks.coverage();
        let mut coverage = Coverage {
            loss,
            stacks_complete: c.stacks_complete as u64,
            stacks_total: c.stacks_total as u64,
            symbols_resolved: c.symbols_resolved as u64,
            symbols_total: c.symbols_total as u64,
            unnamed,
            notes,
        };
        if unnamed > 0 {
            let why = if hurry.load(Ordering::Relaxed) { "it was told to stop" } else { "it took too long" };
            coverage.notes.push(format!(
                "{} {why}: {unnamed} places in code were left, which are looked up when the file is opened",
                Coverage::LEFT_UNNAMED
            ));
        }
        coverage.notes.extend(pipeline.stacks.notes());
        coverage.notes.extend(pipeline.identity.notes());
        if pipeline.unnamed > 0 {
            let n = pipeline.unnamed;
            let s = if n == 1 { "" } else { "s" };
            coverage
                .notes
                .push(format!("of {n} UDP datagram{s} received the sender is inferred from order and size"));
        }
        coverage.notes.extend(missing(pipeline.dangling, pipeline.damaged));
        if flushed.is_err() {
            coverage.notes.push("waits that went on at the end are missing".into());
        }
        let _ = out.send(Item::End { duration: end - start, coverage });
        flushed
    }
}

/// What it means that the host of this machine had its CPUs for so long of a recording, all of them together, ns: from a
/// hundredth of it on.
fn stood_still(stolen: u64, duration: u64) -> Option<String> {
    (stolen >= 50 * MS && stolen >= duration / 100).then(|| {
        format!(
            "this machine is a guest, and its host gave the CPUs to others for {:.1} s meanwhile: what seems to have run may have stood still for that",
            stolen as f64 / 1e9
        )
    })
}

/// What is missing since records could not be used, and what that means to whoever reads it.
fn missing(dangling: u64, damaged: u64) -> impl Iterator<Item = String> {
    let waits = |n| if n == 1 { "1 wait is".to_owned() } else { format!("{n} waits are") };
    let dangling = (dangling > 0).then(|| {
        format!(
            "{} missing, of threads that had just begun or were about to end: they were told only to be like an \
             earlier one, which was not there. Of a thread that hung nothing is missing: that had waited before",
            waits(dangling)
        )
    });
    let damaged = (damaged > 0).then(|| {
        let records = if damaged == 1 { "1 record" } else { &format!("{damaged} records") };
        format!(
            "{records} of the kernel's side could not be read, and what they told is missing: a mistake in pg-tui, \
             please report it with the kernel's version"
        )
    });
    dangling.into_iter().chain(damaged)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_host_had_is_told_where_it_is_much() {
        assert_eq!(stood_still(100 * MS, 60_000 * MS), None);
        assert_eq!(stood_still(40 * MS, 1_000 * MS), None);
        let told = stood_still(1_250 * MS, 4_000 * MS).expect("a third");
        assert!(told.contains("gave the CPUs to others for 1.2 s meanwhile"), "{told}");
    }

    #[test]
    fn what_is_missing_says_what_that_means() {
        assert_eq!(missing(0, 0).count(), 0);
        let told: Vec<String> = missing(1, 12).collect();
        assert!(told[0].starts_with("1 wait is missing, of threads that had just begun"), "{told:?}");
        assert!(told[1].starts_with("12 records of the kernel's side"), "{told:?}");
    }
}
