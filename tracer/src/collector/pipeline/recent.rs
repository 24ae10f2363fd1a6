//! Stacks by the keys that the programs give them.

use super::super::hash::FastMap;
use pg_event::StackId;

/// Most stack keys remembered at a time; older ones are forgotten by halves.
pub(super) const MAX_KEYS: usize = 1 << 17;

/// A cache that forgets the older half of its entries when it is full.
pub(super) struct Recent {
    /// Looked up lately, each at a place that few others share: most are found here. Key 0: nobody.
    front: Vec<(u64, StackId)>,
    new: FastMap<u64, StackId>,
    old: FastMap<u64, StackId>,
}

impl Recent {
    const FRONT: usize = 1024;

    pub fn new() -> Self {
        let front = vec![(0, StackId::NONE); Self::FRONT];
        Self { front, new: FastMap::default(), old: FastMap::default() }
    }

    /// Keys are mixed well by the programs, but for their lowest bit.
    fn place(key: u64) -> usize {
        (key >> 8) as usize % Self::FRONT
    }

    /// All stacks in it.
    pub fn ids(&self) -> impl Iterator<Item = StackId> {
        self.new.values().chain(self.old.values()).copied()
    }

    pub fn insert(&mut self, key: u64, id: StackId) {
        if self.new.len() >= MAX_KEYS {
            self.old = std::mem::take(&mut self.new);
        }
        self.new.insert(key, id);
        self.front[Self::place(key)] = (key, id);
    }

    #[inline]
    pub fn get(&mut self, key: u64) -> StackId {
        if key == 0 {
            return StackId::NONE;
        }
        let place = &mut self.front[Self::place(key)];
        if place.0 == key {
            return place.1;
        }
        let Some(&id) = self.new.get(&key).or_else(|| self.old.get(&key)) else { return StackId::NONE };
        *place = (key, id);
        id
    }
}
