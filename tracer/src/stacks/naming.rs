//! The names of frames: asked for as they are wanted, and given out as they are found.

use super::StackTable;
use super::space::PERF_MAP_PAUSE;
use super::symbol::{Answer, Found, Job};
use pg_event::{CatalogDelta, Frame, FrameId, LOOP_FRAMES, StackId};
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// How long frames of compiled code wait for a name.
const NAMELESS_FOR: Duration = Duration::from_secs(20);
/// Most places whose loops are looked into.
const MAX_LOOPED: usize = 512;
/// Whether to stop is asked so often.
const LOOK: Duration = Duration::from_millis(100);

impl StackTable {
    /// Somebody waits for the names: they are looked up without pauses.
    pub fn hurry(&mut self) {
        self.symbols.hurry();
    }

    /// Drop what was read to find names; it is read again when there are new frames to name.
    pub fn forget_symbols(&mut self) {
        if self.symbols.pending() == 0 {
            self.symbols.forget();
        }
    }

    /// Name frames for at most `budget`. Returns what [`Self::drain`] would have, then the rows that became
    /// known; an empty delta with [`Self::pending`] at 0 says that all is done.
    pub fn symbolize_some(&mut self, budget: Duration) -> CatalogDelta {
        let end = Instant::now() + budget;
        self.submit();
        if !budget.is_zero() {
            self.symbols.hurry();
        }
        self.name_until(end, &|| false)
    }

    /// Name what was submitted until this moment, or until it is told to stop.
    fn name_until(&mut self, end: Instant, stop: &dyn Fn() -> bool) -> CatalogDelta {
        // Rows that were not given out yet go first: given out later, they would take the names away again.
        let mut delta = self.drain();
        self.name_compiled(Instant::now(), &mut delta);
        while self.symbols.pending() > 0 && !stop() {
            let left = end.saturating_duration_since(Instant::now());
            match self.symbols.receive(left.min(LOOK)) {
                Some(answers) => answers.into_iter().for_each(|a| self.answer(a, &mut delta)),
                None if left <= LOOK => break,
                None => {}
            }
        }
        delta
    }

    /// Name all frames, at the end of a recording. Takes 30 seconds at most: what is not named by then
    /// stays without a name and can be named later from the build-ids.
    pub fn symbolize(&mut self) -> CatalogDelta {
        self.symbolize_unless(&|| false)
    }

    /// The same, until it is told to stop; [`Self::pending`] then tells how many have no name for that.
    pub fn symbolize_unless(&mut self, stop: &dyn Fn() -> bool) -> CatalogDelta {
        self.submit();
        self.symbols.hurry();
        let mut delta = self.name_until(Instant::now() + Duration::from_secs(30), stop);
        // What the perf-maps were given last.
        self.name_compiled(Instant::now() + PERF_MAP_PAUSE, &mut delta);
        self.nameless.clear();
        delta
    }

    /// Look once more for the names of compiled code: it is looked at in pauses, and code that is new then has
    /// none yet.
    fn name_compiled(&mut self, now: Instant, delta: &mut CatalogDelta) {
        let mut nameless = std::mem::take(&mut self.nameless);
        nameless.retain(|&(id, pid, address, since)| {
            let young = now.saturating_duration_since(since) < NAMELESS_FOR;
            let Some(map) = self.spaces.perf_map(pid, address, now) else { return young };
            let (Some((name, offset)), Some(k)) = (map.name(address), self.frames.get(&id)) else {
                return young;
            };
            self.coverage.symbols_resolved += 1;
            let (function, offset) = (name.to_owned(), offset as u32);
            let row = Frame { module: k.id, address: k.address, function, offset, ..Frame::default() };
            delta.frames.push((id, row));
            false
        });
        self.nameless = nameless;
    }

    /// Frames that were not yet looked up.
    pub fn pending(&self) -> usize {
        self.unnamed.len() + self.unlooked.len() + self.symbols.pending()
    }

    /// Of the frames that were ever asked for, in their order, so many were looked up; and all of them.
    pub fn looked_up(&self) -> (u64, u64) {
        let answered = self.symbols.answered();
        (answered, answered + self.symbols.pending() as u64)
    }

    /// A thread was found at this stack's innermost place, at it and few others, again and again: what the loop there does,
    /// or the one that calls what is there, is asked with the names.
    pub fn turns_at(&mut self, stack: StackId) {
        let Some(stack) = self.by_id.get(&stack) else { return };
        for f in stack.frames.iter().take(LOOP_FRAMES) {
            if self.looped.len() < MAX_LOOPED && self.looped.insert(*f) {
                self.unlooked.push(*f);
            }
        }
    }

    fn submit(&mut self) {
        let (names, loops) = (std::mem::take(&mut self.unnamed), std::mem::take(&mut self.unlooked));
        self.ask(names, false);
        self.ask(loops, true);
    }

    fn ask(&mut self, frames: Vec<FrameId>, loops: bool) {
        let mut by_module: HashMap<u32, Vec<(FrameId, u64)>> = HashMap::new();
        for id in frames {
            if let Some(k) = self.frames.get(&id) {
                by_module.entry(k.module).or_default().push((id, k.address));
            }
        }
        let mut modules: Vec<_> = by_module.into_iter().collect();
        modules.sort_unstable_by_key(|m| m.0);
        for (module, addresses) in modules {
            let Some(entry) = self.modules.entries.get(module as usize) else { continue };
            if let Some(job) = Job::new(module, entry, addresses, loops) {
                self.symbols.submit(job);
            }
        }
    }

    fn answer(&mut self, a: Answer, delta: &mut CatalogDelta) {
        let symbol = match a.found {
            Some(Found::Symbol(symbol)) => symbol,
            Some(Found::Turn(turn)) => return delta.turns.push((a.frame, turn)),
            None => return,
        };
        self.coverage.symbols_resolved += 1;
        let frame = Frame { module: a.module, address: a.address, ..symbol.into_frame() };
        delta.frames.push((a.frame, frame));
    }
}
