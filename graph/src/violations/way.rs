//! The transaction that a slow unit is the end of: in which of its units, or of the waits between them, most time went.

use super::candidates::{span_victim, violation_victim};
use super::record::containing;
use super::{UnitFact, ViolationFact};
use crate::transactions::{HandOver, WorkUnit};
use crate::victim::tell;
use crate::words::{short_who, span};
use crate::{EventGraph, Victim};
use pg_event::{Catalog, Ns, ThreadId};

/// A part of a transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WayPart {
    /// Who worked on it then, or took it in the end.
    pub thread: ThreadId,
    /// From when, ns.
    pub start: Ns,
    /// To when, ns.
    pub end: Ns,
    /// It was in no unit then: handed on, and not taken yet.
    pub queued: bool,
}

impl WayPart {
    /// Length, ns.
    pub fn duration(&self) -> Ns {
        self.end.saturating_sub(self.start)
    }
}

/// The transaction of a slow unit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SlowWay {
    /// Its parts, in their order: units up to where they handed on, and the waits between them. The last is the slow unit.
    pub parts: Vec<WayPart>,
    /// The longest of them; of equals the first.
    pub longest: usize,
    /// The unit that handed the slow one on.
    pub by: WorkUnit,
    /// How it was handed on.
    pub hand_over: HandOver,
}

impl SlowWay {
    /// The longest part.
    pub fn part(&self) -> &WayPart {
        &self.parts[self.longest]
    }

    /// From the begin of its first unit to the end of the slow one, ns.
    pub fn duration(&self) -> Ns {
        self.parts.iter().map(WayPart::duration).sum()
    }

    /// In words: how long it took, and where most of that went.
    pub fn words(&self, catalog: &Catalog) -> String {
        let (part, all) = (self.part(), span(self.duration()));
        let (who, took) = (short_who(catalog, part.thread), span(part.duration()));
        let of = match () {
            () if part.queued => format!("handed on, until {who} took it"),
            () if self.longest + 1 == self.parts.len() => format!("in the slow unit, {who}"),
            () => format!("in the unit of {who}, before it was handed on"),
        };
        format!("the transaction took {all}, {took} of that {of}")
    }
}

impl EventGraph {
    /// The transaction of a slow unit; `None` when it is not known who handed it on.
    pub fn slow_way(&self, catalog: &Catalog, v: &ViolationFact) -> Option<SlowWay> {
        let handed_on = self.handed_on(catalog, v.thread, v.time)?;
        let t = &self.recorded(catalog).joined;
        let way = t.way_to(t.first_into(t.unit_at(v.thread, v.time)?)?);
        let mut parts = Vec::with_capacity(way.units.len() * 2);
        let mut since = way.start;
        for &h in &way.hand_overs {
            let h = &t.hand_overs[h];
            let (by, to) = (t.units[h.from].thread, t.units[h.to].thread);
            parts.push(WayPart { thread: by, start: since, end: h.time.max(since), queued: false });
            parts.push(WayPart { thread: to, start: h.time, end: h.taken.max(h.time), queued: true });
            since = h.taken;
        }
        parts.push(WayPart { thread: v.thread, start: since, end: v.until.max(since), queued: false });
        let longest =
            (0..parts.len()).reduce(|a, b| if parts[b].duration() > parts[a].duration() { b } else { a })?;
        Some(SlowWay { parts, longest, by: handed_on.by, hand_over: handed_on.hand_over })
    }

    /// The unit that a guard saw begin at this moment of a thread.
    fn recorded_unit(&self, thread: ThreadId, start: Ns) -> Option<&UnitFact> {
        containing(&self.units, thread, start).filter(|u| u.start == start)
    }
}

/// What to diagnose of a slow transaction: its longest part. A unit that was too slow itself is one with all of its time.
/// `None` when nothing was recorded of that thread meanwhile.
pub fn way_victim(graph: &EventGraph, catalog: &Catalog, v: &ViolationFact, way: &SlowWay) -> Option<Victim> {
    let part = way.part();
    if way.longest + 1 == way.parts.len() {
        return violation_victim(graph, catalog, v);
    }
    let slow = graph.violations().iter().filter(|x| !part.queued && x.thread == part.thread);
    let mut within = slow.filter(|x| x.start <= part.start && part.end <= x.until);
    if let Some(slow) = within.next() {
        return violation_victim(graph, catalog, slow);
    }
    // A unit that began it is compared with others of its type.
    let unit_type =
        graph.recorded_unit(part.thread, part.start).filter(|_| !part.queued).map(|u| u.unit_type);
    let mut victim = span_victim(graph, catalog, part.thread, (part.start, part.end), unit_type)?;
    tell(graph, catalog, &mut victim);
    Some(victim)
}
