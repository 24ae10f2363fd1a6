//! Address spaces: which executable mapping of a process covers an address. Read from `/proc/PID/maps`
//! at first need, inherited over fork, dropped at exec, kept for a while after the end.

use super::maps;
use super::module::Modules;
use super::perfmap::PerfMap;
use crate::collector::hash::FastMap;
use crate::procfs::{path_of, shown_by};
use std::collections::{HashSet, VecDeque};
use std::io::Read;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Not more often than this are the maps of one process read again because an address was not in them. The first time
/// that counts for nothing: a process may load a library right after its maps were read, and fork.
const MISS_PAUSE: Duration = Duration::from_millis(100);
/// Maps older than this are read again when used: libraries come and go.
const MAX_AGE: Duration = Duration::from_secs(10);
/// A process older than this is not taken to have the mappings of its parent.
const YOUNG: Duration = Duration::from_secs(1);
/// Pause between looks at a perf-map for a new name.
pub(super) const PERF_MAP_PAUSE: Duration = Duration::from_secs(1);
/// Most perf-maps kept open.
const MAX_OPEN: usize = 128;
/// Ended processes whose maps are kept for late records.
const KEEP_ENDED: usize = 4096;
/// Most processes kept at all.
const MAX_SPACES: usize = 1 << 17;
/// Generations of forks without exec that are followed up.
const MAX_GENERATIONS: u32 = 32;
/// Largest maps file read.
const MAX_MAPS: u64 = 64 << 20;

/// An executable mapping with its module.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mapping {
    pub start: u64,
    pub end: u64,
    pub offset: u64,
    pub module: u32,
    /// Device and inode as the maps show them: an unchanged mapping keeps its module.
    file: (u32, u32, u64),
}

/// Mappings sorted by address.
pub(super) type Mappings = Arc<[Mapping]>;

#[derive(Default, Debug)]
struct Space {
    mappings: Option<Mappings>,
    read: Option<Instant>,
    /// When they were read again because an address was not in them.
    missed: Option<Instant>,
    /// Parent whose maps hold for this process until it execs, and the parent's age then.
    parent: Option<(u32, u64)>,
    /// When its fork was seen.
    forked: Option<Instant>,
    /// Counts execs: a child's claim on its parent's maps ends with the parent's exec.
    age: u64,
    ended: bool,
    perf_map: Option<Arc<PerfMap>>,
    perf_map_read: Option<Instant>,
}

/// The address spaces of all processes.
#[derive(Default, Debug)]
pub(super) struct Spaces {
    by_pid: FastMap<u32, Space>,
    /// Processes that had a perf-map.
    perf_maps: usize,
    ended: VecDeque<u32>,
    /// Processes whose first thread has ended while others went on.
    headless: HashSet<u32>,
}

impl Spaces {
    /// A process replaced its program.
    pub fn exec(&mut self, pid: u32) {
        let age = self.by_pid.get(&pid).map_or(0, |s| s.age + 1);
        self.by_pid.insert(pid, Space { age, ..Space::default() });
    }

    /// A process was created: it shares its parent's mappings until it execs.
    pub fn fork(&mut self, parent: u32, child: u32) {
        self.bound();
        let p = self.by_pid.entry(parent).or_default();
        let space = Space {
            mappings: p.mappings.clone(),
            read: p.read,
            parent: Some((parent, p.age)),
            forked: Some(Instant::now()),
            perf_map: p.perf_map.clone(),
            ..Space::default()
        };
        self.headless.remove(&child);
        self.by_pid.insert(child, space);
    }

    /// A thread of a process ended, its `first` one or another. When it was the last one, the mappings stay for
    /// records that come late. `others`: the first one may not have been the last.
    pub fn exit(&mut self, pid: u32, first: bool, others: bool) {
        if !first && !self.headless.contains(&pid) {
            return;
        }
        if (others || !first) && shown_by(pid) != pid {
            self.headless.insert(pid);
            return;
        }
        self.headless.remove(&pid);
        self.bound();
        if !std::mem::replace(&mut self.by_pid.entry(pid).or_default().ended, true) {
            self.ended.push_back(pid);
        }
        while self.ended.len() > KEEP_ENDED {
            if let Some(old) = self.ended.pop_front()
                && self.by_pid.get(&old).is_some_and(|s| s.ended)
            {
                self.by_pid.remove(&old);
            }
        }
    }

    /// The mapping of a process that covers an address.
    pub fn find(&mut self, modules: &mut Modules, pid: u32, address: u64, now: Instant) -> Option<Mapping> {
        self.inherit(modules, pid, now, 0);
        let space = self.by_pid.get(&pid);
        let fresh = space.is_some_and(|s| {
            s.mappings.is_some() && (s.ended || s.read.is_some_and(|t| now.duration_since(t) < MAX_AGE))
        });
        if fresh {
            let found = space.and_then(|s| s.mappings.as_deref()).and_then(|m| within(m, address));
            if found.is_some() {
                return found;
            }
        }
        let just = |t: Option<Instant>| t.is_some_and(|t| now.saturating_duration_since(t) < MISS_PAUSE);
        let recent = space.is_some_and(|s| s.ended || just(s.missed) || s.mappings.is_none() && just(s.read));
        if !recent || space.is_some_and(|s| s.mappings.is_none() && s.read.is_none()) {
            let missed = space.is_some_and(|s| s.mappings.is_some());
            self.refresh(modules, pid, now, 0);
            if let Some(space) = self.by_pid.get_mut(&pid).filter(|_| missed) {
                space.missed = Some(now);
            }
        }
        within(self.by_pid.get(&pid)?.mappings.as_deref()?, address)
    }

    /// The executable mappings of a process.
    pub fn all(&mut self, modules: &mut Modules, pid: u32, now: Instant) -> Option<Mappings> {
        self.inherit(modules, pid, now, 0);
        let fresh = |s: &Space| s.ended || s.read.is_some_and(|t| now.saturating_duration_since(t) < MAX_AGE);
        if !self.by_pid.get(&pid).is_some_and(fresh) {
            self.refresh(modules, pid, now, 0);
        }
        self.by_pid.get(&pid)?.mappings.clone()
    }

    fn refresh(&mut self, modules: &mut Modules, pid: u32, now: Instant, depth: u32) {
        self.bound();
        let ended = self.by_pid.get(&pid).is_some_and(|s| s.ended);
        // The number of an ended process may already be another's.
        let text = if ended { None } else { read_maps(pid) };
        let shown_by = text.as_ref().map_or(pid, |t| t.0);
        if text.is_none() {
            // Gone before its maps were read: those of its parent hold, if that has not exec'ed since.
            self.inherit(modules, pid, now, depth);
        }
        let space = self.by_pid.entry(pid).or_default();
        space.read = Some(now);
        if let Some((_, text)) = text {
            let lines = maps::parse(&text);
            let old = space.mappings.take();
            let resolved = lines.iter().map(|m| {
                let file = (m.major, m.minor, m.inode);
                let same =
                    |o: &Mapping| (o.start, o.end, o.offset, o.file) == (m.start, m.end, m.offset, file);
                let known = old.as_deref().and_then(|o| within(o, m.start)).filter(same);
                let module = known.map_or_else(|| modules.of_mapping(shown_by, m, now), |o| o.module);
                Mapping { start: m.start, end: m.end, offset: m.offset, module, file }
            });
            space.mappings = Some(resolved.collect());
        }
    }

    /// Give a young process, or one that is gone, the mappings of its parent, if neither has exec'ed since
    /// the fork: of many workers, only their parent's maps need be read.
    fn inherit(&mut self, modules: &mut Modules, pid: u32, now: Instant, depth: u32) {
        let Some(space) = self.by_pid.get(&pid).filter(|s| s.mappings.is_none() && s.read.is_none()) else {
            return;
        };
        let young = space.ended || space.forked.is_some_and(|t| now.duration_since(t) < YOUNG);
        let Some((parent, age)) = space.parent.filter(|&(p, _)| young && p != pid) else { return };
        if !self.by_pid.get(&parent).is_some_and(|p| p.age == age && !p.ended) {
            return;
        }
        let unread = self.by_pid.get(&parent).is_some_and(|p| p.mappings.is_none() && p.read.is_none());
        if unread && depth < MAX_GENERATIONS {
            self.inherit(modules, parent, now, depth + 1);
            if self.by_pid.get(&parent).is_some_and(|p| p.mappings.is_none()) {
                self.refresh(modules, parent, now, depth + 1);
            }
        }
        let from = self.by_pid.get(&parent).map(|p| (p.mappings.clone(), p.read));
        if let (Some((Some(mappings), read)), Some(space)) = (from, self.by_pid.get_mut(&pid)) {
            (space.mappings, space.read) = (Some(mappings), read);
        }
    }

    /// The perf-map of a process, read again when the address is new to it.
    pub fn perf_map(&mut self, pid: u32, address: u64, now: Instant) -> Option<Arc<PerfMap>> {
        let space = self.by_pid.get_mut(&pid)?;
        let known = space.perf_map.as_ref().is_some_and(|p| p.name(address).is_some());
        let recent = space.perf_map_read.is_some_and(|t| now.duration_since(t) < PERF_MAP_PAUSE);
        if !known && !recent {
            space.perf_map_read = Some(now);
            if let Some(mut new) = PerfMap::read(pid, space.ended, space.perf_map.as_deref()) {
                if space.perf_map.is_none() {
                    self.perf_maps += 1;
                }
                if self.perf_maps > MAX_OPEN {
                    new.file = None;
                }
                space.perf_map = Some(Arc::new(new));
            }
        }
        space.perf_map.clone()
    }

    /// Keep the number of processes bounded even if exits were lost.
    fn bound(&mut self) {
        if self.by_pid.len() >= MAX_SPACES {
            self.by_pid.retain(|_, s| !s.ended);
            self.ended.clear();
            if self.by_pid.len() >= MAX_SPACES {
                self.by_pid.clear();
                self.headless.clear();
            }
        }
    }
}

fn within(mappings: &[Mapping], address: u64) -> Option<Mapping> {
    let i = mappings.partition_point(|m| m.start <= address).checked_sub(1)?;
    mappings.get(i).copied().filter(|m| address < m.end)
}

/// What a process has mapped, and the number under which `/proc` shows it.
fn read_maps(pid: u32) -> Option<(u32, Vec<u8>)> {
    let read = |who: u32| {
        let file = std::fs::File::open(path_of(who, "maps")).ok()?;
        let mut text = Vec::new();
        file.take(MAX_MAPS).read_to_end(&mut text).ok()?;
        // A process without memory (a zombie, a kernel thread) has no lines.
        (!text.is_empty()).then_some((who, text))
    };
    read(pid).or_else(|| Some(shown_by(pid)).filter(|&other| other != pid).and_then(read))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn what_a_child_has_and_its_parents_maps_have_not_is_looked_up_at_once() {
        // Another program plays the parent, as this one was before it loaded anything.
        let mut parent =
            Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("cat runs");
        let (mut spaces, mut modules) = (Spaces::default(), Modules::default());
        let (own, now) = (std::process::id(), Instant::now());
        spaces.refresh(&mut modules, parent.id(), now, 0);
        spaces.fork(parent.id(), own);
        let here = what_a_child_has_and_its_parents_maps_have_not_is_looked_up_at_once as *const () as u64;
        assert!(within(spaces.by_pid[&own].mappings.as_deref().expect("the parent's"), here).is_none());
        let found = spaces.find(&mut modules, own, here, now);
        drop(parent.stdin.take());
        parent.wait().expect("cat ends");
        assert!(found.is_some_and(|m| (m.start..m.end).contains(&here)));
        // What is in no mapping does not have them read with each look.
        let read = |s: &Spaces| s.by_pid[&own].read;
        let last = read(&spaces);
        assert!(spaces.find(&mut modules, own, 8, now + MISS_PAUSE / 2).is_none());
        assert_eq!(read(&spaces), last);
        assert!(spaces.find(&mut modules, own, 8, now + MISS_PAUSE).is_none());
        assert_ne!(read(&spaces), last);
    }
}
