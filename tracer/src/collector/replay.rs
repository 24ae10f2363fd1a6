//! Translation of records without a kernel, for measuring it (feature `replay`).

use super::pipeline::Pipeline;
use crate::focus::Focus;
use crate::identity::Identity;
use pg_event::Item;

/// Translates records as the collector does.
pub struct Replay(Pipeline);

impl Default for Replay {
    fn default() -> Self {
        Self(Pipeline::new(0, Identity::new(0, &Focus::default(), std::process::id()), 99))
    }
}

impl Replay {
    /// Take a record as it comes from the ring.
    pub fn record(&mut self, bytes: &[u8]) {
        self.0.record(bytes);
    }

    /// What can go out when everything up to `now` was taken; `all` keeps nothing back.
    pub fn release(&mut self, now: u64, all: bool) -> Vec<Item> {
        self.0.release(now, all)
    }
}
