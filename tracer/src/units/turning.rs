//! Which steps of threads from stack to stack prove that their event loop turned: a thread whose next piece of work is
//! there already turns its loop without a wait that would show it.

use super::place::LoopAt;
use super::seen::{Step, ThreadSeen};
use pg_event::{StackId, ThreadId};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Most steps that are remembered, of all threads.
const MAX_STEPS: usize = 1 << 22;

/// Steps of threads, and the event loops that they prove to have turned.
#[derive(Default)]
pub struct Turning {
    steps: HashMap<(ThreadId, StackId, StackId), Vec<LoopAt>>,
    /// By waits without functions of Python: the stack with those that it was given.
    instead: HashMap<(ThreadId, StackId), StackId>,
}

impl Turning {
    /// Whether an event loop of a thread must have turned between two stacks of it, one after the other.
    pub fn turned(&self, thread: ThreadId, from: StackId, to: StackId, of: LoopAt) -> bool {
        let given = |s| self.instead.get(&(thread, s)).copied().unwrap_or(s);
        self.steps.get(&(thread, given(from), given(to))).is_some_and(|all| all.contains(&of))
    }

    /// By stack: loops that steps to it prove to have turned, and how many different steps do, whichever thread made them.
    pub fn turned_before(&self, to: &BTreeSet<StackId>) -> HashMap<StackId, HashMap<LoopAt, usize>> {
        let mut all: HashMap<StackId, HashMap<LoopAt, usize>> = HashMap::new();
        for ((_, _, stack), loops) in self.steps.iter().filter(|s| to.contains(&s.0.2)) {
            if let Some(at) = loops.first() {
                *all.entry(*stack).or_default().entry(*at).or_default() += 1;
            }
        }
        all
    }

    /// Takes over what the stacks of a thread prove. `turned`: by a step's number, the innermost loop that explains it;
    /// `around`: the loops around a stack, outer ones first.
    pub(super) fn add<'a>(
        &mut self,
        thread: ThreadId,
        seen: &ThreadSeen,
        turned: &[Option<LoopAt>],
        around: impl Fn(StackId) -> &'a [(usize, LoopAt)],
    ) {
        for (&(stack, _), given) in &seen.given {
            self.instead.extend(given.iter().filter(|g| g.0 != stack).map(|g| ((thread, g.0), stack)));
        }
        self.instead.extend(seen.given_blocked.iter().map(|&(stack, given)| ((thread, stack), given)));
        for ((Step { from, to, .. }, _), at) in seen.steps.iter().zip(turned) {
            let (Some(from), Some(at)) = (*from, *at) else { continue };
            if self.steps.len() >= MAX_STEPS {
                return;
            }
            let around = around(*to);
            // Loops within the one that turned were left and are begun anew.
            let here = around.iter().position(|a| a.1 == at).unwrap_or(around.len());
            let mut all: Vec<LoopAt> = around[here..].iter().map(|a| a.1).collect();
            if all.is_empty() {
                all.push(at);
            }
            self.steps.insert((thread, from, *to), all);
        }
    }
}

/// The event loops of each thread, and what proves that they turned.
pub type Found = (BTreeMap<ThreadId, Vec<super::EventLoop>>, Turning);
