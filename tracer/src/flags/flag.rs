//! One watched flag: where it is mapped, in which threads it is watched, and what its accesses were.

use super::access::{Access, access};
use super::breakpoints::Breakpoint;
use super::hit::Hit;
use super::memory::{Area, areas};
use super::rate::{Rate, Watched};
use super::variables::Located;
use super::{FlagError, FlagRow, Touch};
use crate::procfs::{processes, threads_of};
use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// Most threads watched.
const MAX_THREADS: usize = 20_000;
/// A process is looked at this often for whether it maps a shared flag.
const LOOKS: u8 = 5;
/// Two accesses of a thread that are nearer than this are one, seen by two breakpoints, ns: after an access the
/// thread needs longer to come to the next.
const SAME: u64 = 2_000;

/// What a shared flag lies in: file, and where in it.
type Shared = (((u32, u32), u64), u64);

/// A flag in one process.
struct Place {
    pid: u32,
    address: u64,
    breakpoints: HashMap<u32, Breakpoint>,
}

/// A watched flag.
pub struct Flag {
    row: Arc<FlagRow>,
    rate: Rate,
    /// What is watched holds for accesses after this.
    changed: u64,
    places: Vec<Place>,
    shared: Option<Shared>,
    looked_at: HashMap<u32, u8>,
    value: Option<u64>,
    last: HashMap<u32, u64>,
    accesses: u64,
    /// Threads that cannot be watched, since their breakpoints are in use.
    full: HashSet<u32>,
    refused: Option<String>,
}

impl Area {
    /// Where in its file an address of it lies, when it is shared.
    fn shared_at(&self, address: u64) -> Option<Shared> {
        (self.shared && self.file.1 != 0).then(|| (self.file, self.offset.wrapping_add(address - self.start)))
    }

    /// The address at which it maps this place of a file.
    fn maps(&self, (file, at): Shared) -> Option<u64> {
        let into = at.checked_sub(self.offset)?;
        (self.shared && self.file == file && into < self.end - self.start).then(|| self.start + into)
    }
}

impl Flag {
    /// A flag of a process, watched in none of its threads yet.
    ///
    /// # Errors
    /// The process is gone.
    pub fn new(pid: u32, at: &Located, now: u64) -> Result<Self, FlagError> {
        let shared = areas(pid)?.iter().find(|a| a.has(at.address)).and_then(|a| a.shared_at(at.address));
        let peer = shared.map_or(u64::from(pid), |((_, inode), _)| inode | 1 << 63);
        let row = FlagRow { address: at.address, peer, len: at.len, name: at.name.clone() };
        Ok(Self {
            row: Arc::new(row),
            rate: Rate::new(now),
            changed: now,
            places: Vec::new(),
            shared,
            looked_at: HashMap::new(),
            value: super::memory::word(pid, at.address, at.len),
            last: HashMap::new(),
            accesses: 0,
            full: HashSet::new(),
            refused: None,
        })
    }

    /// What it is.
    pub fn row(&self) -> &Arc<FlagRow> {
        &self.row
    }

    /// Is this address of a process this flag?
    pub fn is_at(&self, pid: u32, address: u64) -> bool {
        self.places.iter().any(|p| p.pid == pid && p.address == address)
    }

    /// Threads in which a breakpoint was set.
    pub fn threads(&self) -> usize {
        self.places.iter().map(|p| p.breakpoints.len()).sum()
    }

    /// Watch it in all threads of a process that has it at `address`.
    ///
    /// # Errors
    /// The first thread's refusal; those of others are told in [`Self::notes`].
    pub fn attach(&mut self, pid: u32, address: u64, program: BorrowedFd) -> io::Result<()> {
        let mut place = Place { pid, address, breakpoints: HashMap::new() };
        let mut first: Option<io::Error> = None;
        // Once more for those that were created meanwhile by a thread that was not watched yet.
        for _ in 0..3 {
            let mut new = false;
            for tid in threads_of(pid) {
                if place.breakpoints.contains_key(&tid) || self.full.contains(&tid) {
                    continue;
                }
                if self.threads() + place.breakpoints.len() >= MAX_THREADS {
                    self.refused.get_or_insert_with(|| format!("more than {MAX_THREADS} threads"));
                    break;
                }
                match Breakpoint::set(tid, address, self.row.len, program) {
                    Ok(b) => {
                        new = true;
                        place.breakpoints.insert(tid, b);
                    }
                    Err(e) if e.raw_os_error() == Some(libc::ESRCH) => {}
                    Err(e) => {
                        self.full.insert(tid);
                        if e.raw_os_error() != Some(libc::ENOSPC) {
                            self.refused.get_or_insert_with(|| e.to_string());
                        }
                        first.get_or_insert(e);
                    }
                }
            }
            if !new {
                break;
            }
        }
        if place.breakpoints.is_empty() {
            return Err(first.unwrap_or_else(|| io::Error::from_raw_os_error(libc::ESRCH)));
        }
        let watched = self.rate.watched();
        if watched != Watched::All {
            for b in place.breakpoints.values() {
                let _ = b.change(watched);
            }
        }
        self.places.push(place);
        Ok(())
    }

    /// Watch a shared flag in other processes that map it, and forget processes that have ended.
    pub fn look_around(&mut self, program: BorrowedFd) {
        let all: HashSet<u32> = processes().into_iter().collect();
        self.places.retain(|p| all.contains(&p.pid));
        let Some(shared) = self.shared else { return };
        self.looked_at.retain(|pid, _| all.contains(pid));
        for pid in all {
            let looks = self.looked_at.entry(pid).or_insert(0);
            if *looks >= LOOKS || pid == std::process::id() {
                continue;
            }
            *looks += 1;
            let Ok(areas) = areas(pid) else { continue };
            for address in areas.iter().filter_map(|a| a.maps(shared)) {
                if !self.is_at(pid, address)
                    && let Err(e) = self.attach(pid, address, program)
                    && e.raw_os_error() != Some(libc::ESRCH)
                {
                    tracing::warn!("flag {} in process {pid}: {e}", self.row.name);
                }
            }
        }
    }

    /// Take an access in, if it is one: once for each, with what it was.
    pub fn touched(&mut self, mut hit: Hit) -> Option<Touch> {
        let before = self.last.insert(hit.tid, hit.time);
        if before.is_some_and(|t| hit.time.abs_diff(t) < SAME) {
            return None;
        }
        if self.last.len() > MAX_THREADS {
            self.last.clear();
        }
        let mask = 1u64.checked_shl(u32::from(self.row.len) * 8).map_or(u64::MAX, |m| m - 1);
        hit.value &= mask;
        let changed = self.value != Some(hit.value);
        let settled = hit.time > self.changed;
        let write = if settled && self.rate.watched() == Watched::Writes {
            true
        } else if hit.in_kernel {
            changed
        } else {
            match access(&hit.code, &hit.regs, (hit.address, self.row.len)) {
                Some(Access::Read) => false,
                Some(Access::Write) => true,
                Some(Access::Perhaps) | None => changed,
            }
        };
        self.value = Some(hit.value);
        self.accesses += 1;
        if settled && let Some(watched) = self.rate.hit(hit.time) {
            self.change(watched);
        }
        Some(Touch { hit, write, flag: Arc::clone(&self.row) })
    }

    /// Time passed.
    pub fn tick(&mut self, now: u64) {
        if let Some(watched) = self.rate.tick(now) {
            self.change(watched);
        }
    }

    fn change(&mut self, watched: Watched) {
        for b in self.places.iter().flat_map(|p| p.breakpoints.values()) {
            if let Err(e) = b.change(watched)
                && e.raw_os_error() != Some(libc::ESRCH)
            {
                self.refused.get_or_insert_with(|| e.to_string());
            }
        }
        // What was on its way meanwhile is of before.
        self.changed = crate::clock::monotonic();
    }

    /// Sentences about what was not recorded of it. `start` is when the recording began (`CLOCK_MONOTONIC`).
    pub fn notes(&self, start: u64) -> Vec<String> {
        let mut notes = Vec::new();
        let name = self.row.label();
        if let Some((since, least)) = self.rate.limited() {
            let s = since.saturating_sub(start) as f64 / 1e9;
            let what = if least == Watched::Nothing { "was touched and written" } else { "was touched" };
            let then = if least == Watched::Nothing {
                "some of its writes are missing, too"
            } else {
                "every write is recorded, but reads only for a moment each second"
            };
            notes.push(format!(
                "flag {name} {what} too often to record every access without slowing the program: from {s:.1} s on \
                 {then} ({} accesses are recorded)",
                self.accesses
            ));
        }
        if !self.full.is_empty() {
            let why = self.refused.as_deref().unwrap_or("all four hardware breakpoints are in use there");
            notes.push(format!("flag {name} was not watched in {} threads: {why}", self.full.len()));
        }
        notes
    }
}
