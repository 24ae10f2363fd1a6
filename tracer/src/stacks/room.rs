//! Bounds the tables of stacks and frames: those that nothing of the recorder names any more leave. They have been
//! given out; seen again, they get new ids.

use super::StackTable;
use pg_event::{Forgotten, FrameId, StackId};
use std::collections::HashSet;

/// Stacks and frames from which on it is looked which of them are still needed.
const STACKS: usize = 1 << 17;
const FRAMES: usize = 1 << 18;

/// How many there may be until the next look.
pub(super) struct Room {
    pub stacks: usize,
    pub frames: usize,
}

impl Default for Room {
    fn default() -> Self {
        Self { stacks: STACKS, frames: FRAMES }
    }
}

impl StackTable {
    /// Is it time for [`Self::let_go`]?
    pub fn is_crowded(&self) -> bool {
        self.stack_ids.len() >= self.room.stacks || self.frames.len() >= self.room.frames
    }

    /// How many stacks and frames there are.
    pub fn counts(&self) -> (usize, usize) {
        (self.stack_ids.len(), self.frames.len())
    }

    /// Let all stacks leave but `used`, and all frames but theirs.
    pub fn let_go(&mut self, used: &HashSet<StackId>) -> Forgotten {
        let mut out = Forgotten::default();
        let (by_id, stacked) = (&mut self.by_id, &mut self.stacked);
        self.stack_ids.retain(|stack, id| {
            let stays = used.contains(id);
            if !stays {
                *stacked -= stack.frames.len();
                by_id.remove(id);
                out.stacks.push(*id);
            }
            stays
        });
        let mut frames: HashSet<FrameId> =
            self.stack_ids.keys().flat_map(|s| s.frames.iter().copied()).collect();
        // These are looked up by other keys.
        frames.extend(self.pythons.places.values());
        frames.extend(self.nameless.iter().map(|n| n.0));
        self.frame_ids.retain(|_, id| frames.contains(id));
        self.frames.retain(|id, _| {
            let stays = frames.contains(id);
            if !stays {
                out.frames.push(*id);
            }
            stays
        });
        self.unnamed.retain(|id| frames.contains(id));
        self.stack_ids.shrink_to_fit();
        self.by_id.shrink_to_fit();
        self.frame_ids.shrink_to_fit();
        self.frames.shrink_to_fit();
        self.room =
            Room { stacks: STACKS.max(self.stack_ids.len() * 2), frames: FRAMES.max(self.frames.len() * 2) };
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stacks_that_nobody_names_leave_with_their_frames() {
        let mut t = StackTable::new();
        let kept = t.kernel(&[0xffff_0001, 0xffff_0002]);
        let row = t.drain().stacks[0].clone();
        assert_eq!(row.0, kept);
        let (mut most, mut gone, mut looks) = ((0, 0), 0, 0);
        for n in 0..1_000_000u64 {
            t.kernel(&[0xffff_1000 + 4 * n, 0xffff_0002]);
            if t.is_crowded() {
                looks += 1;
                let given = t.drain();
                assert!(!given.stacks.is_empty(), "rows go out before they leave");
                let f = t.let_go(&HashSet::from([kept]));
                gone += f.stacks.len();
                assert!(!f.stacks.contains(&kept) && row.1.frames.iter().all(|x| !f.frames.contains(x)));
            }
            let (stacks, frames) = t.counts();
            most = (most.0.max(stacks), most.1.max(frames));
        }
        assert!(most.0 <= STACKS && most.1 <= FRAMES, "{most:?}");
        assert!(gone > 800_000 && looks < 10, "{gone} {looks}");
        assert_eq!(t.kernel(&[0xffff_0001, 0xffff_0002]), kept, "what stays keeps its id");
        // What comes back is somebody new, with rows of its own.
        t.drain();
        let again = t.kernel(&[0xffff_1000, 0xffff_0002]);
        let delta = t.drain();
        assert!(again.0 > 1_000_000 && delta.stacks[0].0 == again && !delta.frames.is_empty());
    }
}
