//! Waits of one thread that are alike: one that comes again and again, about as long each time, is a turn of a loop that
//! idles.

use crate::episode::{Episode, WaitKey};
use pg_event::Ns;
use std::collections::HashMap;

/// How long each wait of a thread lasted, by what they have in common.
pub(crate) struct Alike(HashMap<WaitKey, Vec<Ns>>);

impl Alike {
    pub(crate) fn of(all: &[Episode]) -> Self {
        let mut by_key: HashMap<WaitKey, Vec<Ns>> = HashMap::new();
        for e in all {
            if let Some(key) = e.key {
                by_key.entry(key).or_default().push(e.duration());
            }
        }
        for lengths in by_key.values_mut() {
            lengths.sort_unstable();
        }
        Self(by_key)
    }

    /// Is one of these waits, of this length, the same again and again and about as long each time: a loop that
    /// idles?
    pub(crate) fn idles(&self, key: WaitKey, length: Ns) -> bool {
        let Some(all) = self.0.get(&key) else { return false };
        // It is one of them itself, and near to itself unless it took no time.
        let others = all.len().saturating_sub(1);
        let near = all.len() - all.partition_point(|d| d.saturating_mul(3) < length);
        others >= 4 && (near - 1) * 2 >= others
    }
}
