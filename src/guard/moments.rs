//! Where a unit was, as the guards saw it from the time it was told on.

use pg_event::{Catalog, Ns};
use pg_graph::{HotPath, Moment, hot_path};
use pg_tracer::guards::Violation;

/// Most stacks of one unit: they are taken less and less often.
const MOST: usize = 1000;

/// Stacks of one unit, in their order.
#[derive(Clone, Default, Debug)]
pub struct Moments {
    all: Vec<Moment>,
    /// How long it had taken at the last one, ns.
    elapsed: Ns,
}

impl Moments {
    /// It was seen once more.
    pub fn add(&mut self, v: &Violation) {
        if v.user_stack.is_some() && self.all.len() < MOST {
            let time = v.elapsed.saturating_sub(self.elapsed);
            self.all.push(Moment { stack: v.user_stack, loop_at: v.distance, time });
        }
        self.elapsed = self.elapsed.max(v.elapsed);
    }

    /// Where it spent most of its time, once the names of functions are known.
    pub fn path(&self, catalog: &Catalog) -> Option<HotPath> {
        hot_path(catalog, &self.all)
    }
}
