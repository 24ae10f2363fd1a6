//! What writer and reader both expect to come next, so that only the difference is written.

use pg_event::{Direction, Ns};

/// The last stream position seen in a slot that an object and a direction share with others: positions
/// are kept as differences from it. Writer and reader replace slots in the same order.
pub(super) struct Positions([u64; 256]);

impl Default for Positions {
    fn default() -> Self {
        Self([0; 256])
    }
}

impl Positions {
    pub(super) fn slot(&mut self, object: u32, direction: Direction) -> &mut u64 {
        &mut self.0[(object.wrapping_mul(2).wrapping_add(direction as u32) & 255) as usize]
    }

    pub(super) fn replace(&mut self, object: u32, direction: Direction, position: u64) -> u64 {
        std::mem::replace(self.slot(object, direction), position)
    }
}

/// A thread leaves a CPU at the moment the next one comes onto it: where each CPU's switches are known,
/// the start of an interval need not be written. Threads and CPUs share slots with others; writer and
/// reader fill them in the same order, so that a wrong guess only costs bytes.
pub(super) struct Switches {
    /// Times at which somebody came onto a CPU.
    cpus: Vec<Vec<Ns>>,
    /// Thread, CPU slot, and which of its switches comes next after the thread came.
    threads: Vec<(u32, u8, u32)>,
}

impl Default for Switches {
    fn default() -> Self {
        Self { cpus: vec![Vec::new(); 256], threads: vec![(u32::MAX, 0, u32::MAX); 4096] }
    }
}

impl Switches {
    pub(super) fn clear(&mut self) {
        self.cpus.iter_mut().for_each(Vec::clear);
        self.threads.fill((u32::MAX, 0, u32::MAX));
    }

    /// When a thread left the CPU it came onto last.
    #[inline]
    pub(super) fn left(&self, thread: u32) -> Option<Ns> {
        let (t, cpu, next) = self.threads[(thread & 4095) as usize];
        if t == thread { self.cpus[usize::from(cpu)].get(next as usize).copied() } else { None }
    }

    #[inline]
    pub(super) fn came(&mut self, thread: u32, cpu: u16, time: Ns) {
        let slot = cpu as u8;
        let switches = &mut self.cpus[usize::from(slot)];
        switches.push(time);
        self.threads[(thread & 4095) as usize] = (thread, slot, switches.len() as u32);
    }
}
