//! What the pipeline still names: rows of stacks and objects that it does not name any more can leave the
//! recorder's memory, since they have been given out.

use super::Pipeline;
use pg_event::{Event, Forgotten, Kind, ObjectId, OffCpu, StackId};
use std::collections::HashSet;

/// Stacks and objects that are named.
#[derive(Default)]
struct Named {
    stacks: HashSet<StackId>,
    objects: HashSet<ObjectId>,
}

impl Named {
    fn off(&mut self, o: &OffCpu) {
        self.stacks.extend([o.user_stack, o.kernel_stack, o.waker_stack]);
        self.objects.extend([o.object, o.waker_object]);
    }

    fn event(&mut self, e: &Event) {
        match &e.kind {
            Kind::OffCpu(o) => self.off(o),
            Kind::Sample(s) => self.stacks.extend([s.user_stack, s.kernel_stack]),
            Kind::Violation(v) => self.stacks.extend([v.user_stack, v.kernel_stack]),
            Kind::DataFlag { object, stack, .. } => {
                self.stacks.insert(*stack);
                self.objects.insert(*object);
            }
            Kind::Ipc(i) => drop(self.objects.insert(i.object)),
            Kind::Syscall(s) => drop(self.objects.insert(s.object)),
            Kind::Hold(h) => drop(self.objects.insert(h.object)),
            Kind::Unserved(u) => drop(self.objects.insert(u.object)),
            Kind::Work(w) => drop(self.objects.insert(w.object)),
            _ => {}
        }
    }
}

impl Pipeline {
    /// Let rows of stacks, frames and objects leave that are not named any more, if there are many. Call it when all
    /// rows have been given out.
    pub(super) fn make_room(&mut self) -> Forgotten {
        let (stacks, objects) = (self.stacks.is_crowded(), self.objects.is_crowded());
        if !stacks && !objects {
            return Forgotten::default();
        }
        let named = self.named();
        let mut out = if stacks { self.stacks.let_go(&named.stacks) } else { Forgotten::default() };
        if objects {
            out.objects = self.objects.let_go(&named.objects);
        }
        out
    }

    fn named(&self) -> Named {
        let mut named = Named::default();
        for last in self.last.values() {
            named.off(&last.off);
        }
        for long in self.long.iter().chain(self.later.iter().map(|l| &l.1)) {
            named.off(&long.off);
        }
        named.stacks.extend(self.open.values().map(|o| o.1));
        named.stacks.extend(self.user.ids().chain(self.kernel.ids()));
        named.stacks.extend(self.touched.values());
        named.objects.extend(self.quotas.ids());
        self.order.events().for_each(|e| named.event(e));
        named
    }
}

#[cfg(test)]
mod tests {
    use super::super::recent::MAX_KEYS;
    use super::super::*;
    use crate::focus::Focus;
    use pg_event::{Stack, ThreadId};

    /// However many stacks and objects come, the tables stay bounded; what a record to come may name keeps its id.
    #[test]
    fn stacks_and_objects_that_no_record_can_name_leave() {
        let mut p = Pipeline::new(0, Identity::new(0, &Focus::default(), 1), 99);
        let pipe = |id| RawObject { kind: ObjectKind::Pipe as u8, id, peer: id };
        let stack = |p: &mut Pipeline, n: u64| p.stacks.kernel(&[0xffff_0000 + 8 * n, 0xfff0]);
        // A thread waits in this place, for this.
        let (waits_in, waits_for) = (stack(&mut p, 0), p.objects.id(pipe(0)));
        let off =
            OffCpu { user_stack: waits_in, object: waits_for, ..OffCpu::new(0, 0, OffState::Interruptible) };
        p.long.push_back(Long { thread: ThreadId(0), tid: 7, tgid: 7, off, first: true, error: 0 });
        let (mut most, mut forgotten) = ((0, 0, 0), (0, 0, 0));
        for n in 1..600_000u64 {
            let id = stack(&mut p, n);
            p.kernel.insert(n << 8 | 1, id);
            p.objects.id(pipe(n));
            if n % 1000 == 0 {
                let delta = p.drain();
                let f = &delta.forgotten;
                assert!(!f.stacks.contains(&waits_in) && !f.objects.contains(&waits_for));
                assert!(!f.stacks.contains(&id), "the latest can still be named");
                forgotten.0 += f.stacks.len();
                forgotten.1 += f.frames.len();
                forgotten.2 += f.objects.len();
                let (stacks, frames) = p.stacks.counts();
                most = (most.0.max(stacks), most.1.max(frames), most.2.max(p.objects.count()));
            }
        }
        assert!(
            most.0 <= 4 * MAX_KEYS + 1000 && most.1 <= 4 * MAX_KEYS + 1000 && most.2 < 300_000,
            "{most:?}"
        );
        assert!(forgotten.0 > 50_000 && forgotten.1 > 50_000 && forgotten.2 > 200_000, "{forgotten:?}");
        assert_eq!((stack(&mut p, 0), p.objects.id(pipe(0))), (waits_in, waits_for));
        let before: Vec<Stack> = p.drain().stacks.into_iter().map(|s| s.1).collect();
        assert!(before.len() < 1000, "known ones are not given out again");
    }
}
