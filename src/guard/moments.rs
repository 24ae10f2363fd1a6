//! Where a unit was, as the guards saw it from the time it was told on.

use pg_event::{Catalog, Ns, SeenBy, StackId};
use pg_graph::{HotPath, Moment, hot_path};

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
    /// It was seen once more, after `elapsed` ns. `loop_at`: which frame of the stack is the loop's.
    pub fn add(&mut self, stack: StackId, loop_at: Option<usize>, elapsed: Ns, seen: SeenBy) {
        if stack.is_some() && self.all.len() < MOST {
            let time = elapsed.saturating_sub(self.elapsed);
            self.all.push(Moment { stack, loop_at, time, fair: seen.is_fair() });
        }
        self.elapsed = self.elapsed.max(elapsed);
    }

    /// Where it spent most of its time, once the names of functions are known.
    pub fn path(&self, catalog: &Catalog) -> Option<HotPath> {
        hot_path(catalog, &self.all)
    }
}
