//! A quick hash for keys made of numbers: several are looked up for every record.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, Hasher, RandomState};

/// A map with [`FastHasher`].
pub type FastMap<K, V> = HashMap<K, V, FastHash>;

/// A set with [`FastHasher`].
pub type FastSet<K> = HashSet<K, FastHash>;

/// Seeds the hashers of one map at random, so that a target cannot choose addresses that collide.
#[derive(Clone)]
pub struct FastHash(u64);

impl Default for FastHash {
    fn default() -> Self {
        Self(RandomState::new().hash_one(0) | 1)
    }
}

impl BuildHasher for FastHash {
    type Hasher = FastHasher;

    fn build_hasher(&self) -> FastHasher {
        FastHasher(self.0)
    }
}

/// Folds each number in by a full multiplication.
pub struct FastHasher(u64);

impl Hasher for FastHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u8(&mut self, n: u8) {
        self.write_u64(n.into());
    }

    fn write_u32(&mut self, n: u32) {
        self.write_u64(n.into());
    }

    fn write_u64(&mut self, n: u64) {
        let wide = u128::from(self.0 ^ n) * 0x9e37_79b9_7f4a_7c15;
        self.0 = (wide as u64) ^ (wide >> 64) as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn neighbours_differ() {
        let hash = FastHash::default();
        let all: HashSet<u64> = (0u64..10_000).map(|n| hash.hash_one(n << 12)).collect();
        assert_eq!(all.len(), 10_000);
        let low: HashSet<u64> = (0u64..1000).map(|n| hash.hash_one(n << 32) & 0xffff).collect();
        assert!(low.len() > 900, "{}", low.len());
    }
}
