//! A first look at a recording: the stacks of the threads that are wanted, and what is missing.

use pg_event::{Catalog, Item, Kind, Ns, StackId, Sysno, ThreadId};
use pg_tracer::units::{Seen, Wait};
use std::collections::BTreeMap;
use std::ops::Range;

/// Ring number of [`Kind::Lost`] for samples.
const RING_SAMPLES: u8 = 2;

/// What a first look tells.
#[derive(Default)]
pub(super) struct Scanned {
    /// All of it.
    pub catalog: Catalog,
    /// The stacks of the threads that are wanted.
    pub seen: Seen,
    /// When events were lost that may have begun or ended a unit, by time.
    pub lost: Vec<Range<Ns>>,
    /// What the recording says that it lacks.
    pub notes: Vec<String>,
    /// Messages were not recorded all the time.
    pub unheard: bool,
    /// How often was waited with which stack, in which call, for what.
    pub waits: BTreeMap<(StackId, Sysno, Wait), u64>,
}

impl Scanned {
    /// Of a recording, from its beginning.
    pub fn of(items: impl Iterator<Item = Item>, wanted: &impl Fn(&Catalog, ThreadId) -> bool) -> Self {
        let mut all = Self::default();
        for item in items {
            match item {
                Item::Catalog(delta) => {
                    all.catalog.apply(delta);
                }
                Item::Events(events) => {
                    for e in &events {
                        match e.kind {
                            // Samples that were lost say nothing of where units begin.
                            Kind::Lost { since, ring, .. } if ring != RING_SAMPLES => {
                                all.lost.push(since..e.time);
                            }
                            Kind::Unheard { .. } => all.unheard = true,
                            kind if wanted(&all.catalog, e.thread) => {
                                let waited = all.seen.event(&all.catalog, e.thread, &kind);
                                if let (Some((wait, syscall)), Kind::OffCpu(w)) = (waited, kind) {
                                    *all.waits.entry((w.user_stack, syscall, wait)).or_default() += 1;
                                }
                            }
                            _ => {}
                        }
                    }
                }
                Item::End { coverage, .. } => all.notes = coverage.notes,
            }
        }
        all
    }
}
