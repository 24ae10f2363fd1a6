//! Where a unit was, as the guards saw it from the time it was told on.

use pg_event::{Catalog, Ns, SeenBy, StackId};
use pg_graph::{HotPath, Moment, hot_path};

/// Most stacks of one unit: they are taken less and less often.
const MOST: usize = 1000;

/// Stacks of one unit, in their order.
#[derive(Clone, Default, Debug)]
pub struct Moments {
    all: Vec<Moment>,
    /// How long it had taken at the last one, ns, and of that how long it was stopped, which is spent nowhere.
    elapsed: Ns,
    halted: Ns,
}

impl Moments {
    /// It was seen once more, after `elapsed` ns, of which it was stopped for `halted` ns. `loop_at`: which frame of the stack
    /// is the loop's.
    pub fn add(&mut self, stack: StackId, loop_at: Option<usize>, (elapsed, halted): (Ns, Ns), seen: SeenBy) {
        let since = halted.saturating_sub(self.halted);
        let time = elapsed.saturating_sub(self.elapsed).saturating_sub(since);
        if stack.is_some() && self.all.len() < MOST && (time > 0 || since == 0) {
            self.all.push(Moment { stack, loop_at, time, fair: seen.is_fair() });
        }
        (self.elapsed, self.halted) = (self.elapsed.max(elapsed), self.halted.max(halted));
    }

    /// How long it was stopped, ns, when it was seen last.
    pub fn halted(&self) -> Ns {
        self.halted
    }

    /// Where it spent most of its time, once the names of functions are known.
    pub fn path(&self, catalog: &Catalog) -> Option<HotPath> {
        hot_path(catalog, &self.all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stop_is_spent_nowhere() {
        let mut of = Moments::default();
        for (elapsed, halted) in [(10, 0), (310, 300), (315, 300), (415, 390)] {
            of.add(StackId(1), None, (elapsed, halted), SeenBy::Sample);
        }
        assert_eq!(of.all.iter().map(|m| m.time).collect::<Vec<_>>(), [10, 5, 10]);
        assert_eq!(of.halted(), 390);
    }
}
