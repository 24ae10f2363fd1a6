//! Units of work that took longer than units of their type may, as a guard recorded them, and normal ones to compare
//! them with.

mod candidates;
mod compare;
mod info;
mod mostly;
mod normal;
mod record;
mod spent;
mod way;

pub(crate) use candidates::add;
pub use candidates::violation_victim;
pub(crate) use compare::parts;
pub use compare::{Comparison, Part, Side, compare};
pub(crate) use info::unit_info;
pub use info::{kernel_frames, seen_by, violation_info, withdrawn_info};
pub use normal::NormalUnit;
pub(crate) use record::{Finished, Units};
pub use spent::Spent;
pub use way::{SlowWay, WayPart, way_victim};

use crate::EventGraph;
use crate::class::{WaitClass, class};
use pg_event::{Catalog, Ns, SeenBy, StackId, ThreadId, UnitTypeId, Violation};

/// Vertices of a thread that are looked at for the end of its unit.
const MOST_LOOKED_AT: usize = 100_000;

/// A unit of work of a thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UnitFact {
    /// Whose.
    pub thread: ThreadId,
    /// Its type; none when that was not known.
    pub unit_type: UnitTypeId,
    /// When it began, ns.
    pub start: Ns,
    /// When it ended, ns; the recording's end if it had not.
    pub end: Ns,
    /// It had not ended.
    pub open: bool,
}

impl UnitFact {
    /// Length, ns.
    pub fn duration(&self) -> Ns {
        self.end.saturating_sub(self.start)
    }
}

/// A unit took too long.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ViolationFact {
    /// When that was seen first, ns.
    pub time: Ns,
    /// Whose unit.
    pub thread: ThreadId,
    /// When the unit began, ns.
    pub start: Ns,
    /// How long it had taken when its stack was seen, the last time that it was, without what the guard took, ns.
    pub elapsed: Ns,
    /// How long it may take, ns.
    pub threshold: Ns,
    /// Its type.
    pub unit_type: UnitTypeId,
    /// Where the thread was then.
    pub user_stack: StackId,
    /// Where in the kernel.
    pub kernel_stack: StackId,
    /// How many frames of the user stack, from the innermost, lie inside of the loop's frame.
    pub depth: u32,
    /// What saw it.
    pub at: SeenBy,
    /// How long of it the thread had a CPU that the host of the machine had given to others, ns.
    pub stolen: Ns,
    /// Up to when the unit is known to have gone on, ns: its end, if that was seen.
    pub until: Ns,
    /// Its end was seen.
    pub ended: bool,
}

impl ViolationFact {
    /// From an event of `thread` at `time`.
    pub fn new(thread: ThreadId, v: &Violation, time: Ns) -> Self {
        let Violation { elapsed, threshold, unit_type, user_stack, kernel_stack, depth, at, stolen, .. } = *v;
        let (start, until, ended) = (v.start.min(time), time, v.at == SeenBy::End);
        Self {
            time,
            thread,
            start,
            elapsed,
            threshold,
            unit_type,
            user_stack,
            kernel_stack,
            depth,
            at,
            stolen,
            until,
            ended,
        }
    }

    /// A later look at the same unit: where it was then, and what it was taken for.
    fn looked_at(&mut self, later: &Self) {
        let Self { elapsed, threshold, unit_type, user_stack, kernel_stack, depth, at, stolen, .. } = *later;
        *self = Self { elapsed, threshold, unit_type, user_stack, kernel_stack, depth, at, stolen, ..*self };
    }

    /// How long the unit took, as far as is known, ns.
    pub fn duration(&self) -> Ns {
        self.until.saturating_sub(self.start).max(self.elapsed)
    }

    /// How many times as long as it may.
    pub fn excess(&self) -> f64 {
        self.duration() as f64 / self.threshold.max(1) as f64
    }

    /// How many standard deviations its duration lies above the mean of its type, when those are known.
    pub fn sigmas(&self, catalog: &Catalog) -> Option<f64> {
        let t = catalog.unit_type(self.unit_type).filter(|t| t.sigma > 0)?;
        Some((self.duration() as f64 - t.mean as f64) / t.sigma as f64)
    }
}

/// A unit seemed to take too long and turned out to be of another type, for which it did not.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct WithdrawnFact {
    /// As it was told: the evidence.
    pub told: ViolationFact,
    /// The type that it turned out to be.
    pub unit_type: UnitTypeId,
    /// How long such a unit may take, ns; 0: as long as it likes.
    pub threshold: Ns,
}

impl EventGraph {
    /// Once the vertices are there: what was recorded of units.
    pub(crate) fn take_units(&mut self, units: Units, catalog: &Catalog) {
        let Finished { units, violations: mut all, withdrawn, moments } = units.finish(self.duration);
        (self.units, self.moments, self.withdrawn) = (units, moments, withdrawn);
        for v in all.iter_mut().filter(|v| !v.ended) {
            // The wait in which a unit was found belongs to it.
            let asleep = self.vertex_at(v.thread, v.until).map(|id| self.vertex(id));
            if let Some(x) = asleep.filter(|x| x.start <= v.until && v.until < x.woken) {
                v.until = x.woken;
            }
            // So does all up to where the thread waits for events again: later than that it did not end.
            let after = self
                .vertices_in(v.thread, v.until..self.duration)
                .take(MOST_LOOKED_AT)
                .map(|id| self.vertex(id));
            let mut after = after.filter(|x| x.start >= v.until && x.waited() > 0);
            if let Some(x) = after.find(|x| class(x, catalog) == WaitClass::EventLoop) {
                v.until = x.start;
            }
        }
        self.normal_units = normal::normal_units(&self.units, &all, catalog);
        self.violations = all;
    }

    /// The units that a guard recorded, by thread and begin.
    pub fn units(&self) -> &[UnitFact] {
        &self.units
    }

    /// Units that took too long, by time. Numbers in messages count them from 1.
    pub fn violations(&self) -> &[ViolationFact] {
        &self.violations
    }

    /// Units that only seemed to take too long, by time. They are no violations.
    pub fn withdrawn(&self) -> &[WithdrawnFact] {
        &self.withdrawn
    }
}
