//! From the events of units to facts.

use super::{UnitFact, ViolationFact, WithdrawnFact};
use crate::Moment;
use pg_event::{Event, Kind, Ns, SeenBy, ThreadId, UnitTypeId};
use std::collections::{HashMap, HashSet};

/// Units and violations while events come.
#[derive(Debug, Default)]
pub(crate) struct Units {
    /// Since when a thread is in a unit, and of which type if that is known.
    open: HashMap<ThreadId, (Ns, UnitTypeId)>,
    closed: Vec<UnitFact>,
    violations: Vec<ViolationFact>,
}

/// Units, slow ones, and by thread and begin of these where they were seen.
pub(crate) struct Finished {
    /// By thread and begin.
    pub(crate) units: Vec<UnitFact>,
    /// By time, one for each unit.
    pub(crate) violations: Vec<ViolationFact>,
    /// By time, one for each unit that is none of these.
    pub(crate) withdrawn: Vec<WithdrawnFact>,
    pub(crate) moments: HashMap<(ThreadId, Ns), Vec<Moment>>,
}

impl Units {
    /// Take an event at `time`; whether it was one of a unit.
    pub(crate) fn event(&mut self, e: &Event, time: Ns) -> bool {
        match e.kind {
            Kind::UnitBoundary { unit_type, begin } => self.boundary(e.thread, unit_type, begin, time),
            // Its unit ends with it; what else the event tells is not of a unit.
            Kind::Exit { .. } => {
                self.exits(e.thread, time);
                return false;
            }
            Kind::Violation(v) => self.violations.push(ViolationFact::new(e.thread, &v, time)),
            _ => return false,
        }
        true
    }

    fn boundary(&mut self, thread: ThreadId, unit_type: UnitTypeId, begin: bool, time: Ns) {
        let before = self.open.remove(&thread);
        if begin {
            // The end of the one before was not recorded, so how long it took is not known.
            self.open.insert(thread, (time, unit_type));
        } else if let Some((start, at_begin)) = before {
            let unit_type = unit_type.some().unwrap_or(at_begin);
            self.closed.push(UnitFact { thread, unit_type, start, end: time, open: false });
        }
    }

    fn exits(&mut self, thread: ThreadId, time: Ns) {
        if let Some((start, unit_type)) = self.open.remove(&thread) {
            self.closed.push(UnitFact { thread, unit_type, start, end: time, open: false });
        }
    }

    /// All of them, once everything has come.
    pub(crate) fn finish(mut self, duration: Ns) -> Finished {
        let open = self.open.into_iter();
        let rest = open.map(|(thread, (start, unit_type))| UnitFact {
            thread,
            unit_type,
            start,
            end: duration,
            open: true,
        });
        self.closed.extend(rest);
        self.closed.sort_by_key(|u| (u.thread, u.start));
        let mut all = self.violations;
        all.sort_by_key(|v| (v.thread, v.start, v.time));
        let mut moments = moments(&all);
        // The last one of a unit counts, and what was told of it since then.
        let of = |v: &ViolationFact| (v.thread, v.start);
        let withdrawn: HashMap<_, _> =
            all.iter().filter(|v| v.at == SeenBy::Withdrawn).map(|v| (of(v), *v)).collect();
        all.retain(|v| !matches!(v.at, SeenBy::Look | SeenBy::Withdrawn));
        let holds = |v: &ViolationFact| withdrawn.get(&of(v)).is_none_or(|w| v.time > w.time);
        let (mut all, mut before): (Vec<_>, Vec<_>) = all.into_iter().partition(holds);
        let told: HashSet<_> = all.iter().map(of).collect();
        before.retain(|v| !told.contains(&of(v)));
        for v in [&mut all, &mut before] {
            one_of_each(v, &self.closed);
        }
        let taken_back = |told: ViolationFact| {
            let w = withdrawn.get(&of(&told))?;
            Some(WithdrawnFact { told, unit_type: w.unit_type, threshold: w.threshold })
        };
        let withdrawn = before.into_iter().filter_map(taken_back).collect();
        // Of some, only what came later was recorded.
        let told: HashSet<_> = all.iter().map(|v| (v.thread, v.start)).collect();
        moments.retain(|unit, _| told.contains(unit));
        Finished { units: self.closed, violations: all, withdrawn, moments }
    }
}

/// Of what was told of units, by thread and begin, one for each unit; then by time.
fn one_of_each(all: &mut Vec<ViolationFact>, units: &[UnitFact]) {
    // A unit that goes on is told of again. When it was seen first counts, but where it was then may not be yet what takes
    // long: its stack is the one that was seen last.
    all.dedup_by(|later, first| {
        let same = (later.thread, later.start) == (first.thread, first.start);
        if same {
            first.until = first.until.max(later.until);
            if later.user_stack.is_some() && later.at != SeenBy::End {
                first.looked_at(later);
            }
        }
        same
    });
    for v in all.iter_mut() {
        if let Some(u) = containing(units, v.thread, v.time) {
            v.until = v.until.max(u.end);
            v.ended = !u.open;
        }
    }
    all.sort_by_key(|v| (v.time, v.thread));
}

/// Where units were when they were seen, of violations and looks by thread, begin and time.
fn moments(all: &[ViolationFact]) -> HashMap<(ThreadId, Ns), Vec<Moment>> {
    let mut out: HashMap<(ThreadId, Ns), Vec<Moment>> = HashMap::new();
    for unit in all.chunk_by(|a, b| (a.thread, a.start) == (b.thread, b.start)) {
        let mut before = 0;
        // What was over when it was seen was somewhere else.
        for v in unit.iter().filter(|v| v.at != SeenBy::End && v.user_stack.is_some()) {
            let loop_at = (v.depth > 0).then_some(v.depth as usize);
            let moment = Moment {
                stack: v.user_stack,
                loop_at,
                time: v.elapsed.saturating_sub(before),
                fair: v.at.is_fair(),
            };
            before = before.max(v.elapsed);
            out.entry((v.thread, v.start)).or_default().push(moment);
        }
    }
    out
}

/// The unit that a thread is in at a moment. What is seen at its very end belongs to it.
pub(super) fn containing(units: &[UnitFact], thread: ThreadId, time: Ns) -> Option<&UnitFact> {
    let after = units.partition_point(|u| (u.thread, u.start) <= (thread, time));
    let u = units.get(after.checked_sub(1)?)?;
    (u.thread == thread && u.end >= time).then_some(u)
}
