//! Where most of a slow unit's time went.

use super::ViolationFact;
use crate::hot_path::{Function, function, hot_path};
use crate::{EventGraph, HotPath, Moment};
use pg_event::{Catalog, StackId};

/// Most stacks of one unit that are looked at.
const MOST: usize = 10_000;

impl EventGraph {
    /// Where a slow unit spent most of its time: by the looks of who told it, from when it took too long; where it looked too
    /// seldom, by the samples and sleeps of its thread. Nowhere, if that was to be stopped: then its stacks are where that met it.
    pub fn mostly(&self, catalog: &Catalog, v: &ViolationFact) -> Option<HotPath> {
        if self.spent(catalog, v).stopped * 2 >= v.duration() {
            return None;
        }
        let looks = self.moments.get(&(v.thread, v.start)).and_then(|m| hot_path(catalog, m));
        looks.or_else(|| hot_path(catalog, &self.recorded_moments(catalog, v)))
    }

    /// The stacks that the recording has of a unit.
    fn recorded_moments(&self, catalog: &Catalog, v: &ViolationFact) -> Vec<Moment> {
        let span = v.start..v.until;
        let samples = self.samples_of(v.thread, span.clone()).iter().map(|s| (s.user_stack, s.weight));
        let vertices = self.vertices_in(v.thread, span.clone()).map(|id| self.vertex(id));
        let sleeps = vertices.filter(|x| x.start >= span.start && x.waited() > 0);
        let sleeps = sleeps.map(|x| (x.user_stack, x.waited()));
        let known = loop_of(catalog, v);
        samples
            .chain(sleeps)
            .filter(|(stack, _)| stack.is_some())
            .take(MOST)
            .map(|(stack, time)| Moment { stack, loop_at: loop_in(catalog, stack, known), time, fair: true })
            .collect()
    }
}

/// How many frames lie outside of the loop's, and its function.
fn loop_of<'a>(catalog: &'a Catalog, v: &ViolationFact) -> Option<(usize, Function<'a>)> {
    let mut inside = catalog.frames_of(v.user_stack).skip(v.depth as usize);
    let found = inside.next().filter(|_| v.depth > 0)?;
    Some((inside.count(), function(found)))
}

/// Where it is in another stack of the same thread.
fn loop_in(catalog: &Catalog, stack: StackId, known: Option<(usize, Function)>) -> Option<usize> {
    let (outside, wanted) = known?;
    let at = catalog.frames_of(stack).count().checked_sub(outside + 1)?;
    catalog.frames_of(stack).nth(at).filter(|f| function(f) == wanted).map(|_| at)
}
