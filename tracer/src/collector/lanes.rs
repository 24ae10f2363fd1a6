//! Reads the lanes (`bpf/lane.h`): a ring for each CPU, of intervals off the CPU, each in the order of time.
#![allow(unsafe_code)] // Memory that the kernel's programs write: two positions are read and written as atomics.

use super::raw;
use crate::error::Error;
use aya::maps::MapData;
use memmap2::{MmapOptions, MmapRaw};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of a block: no record lies in two.
const BLOCK: u64 = 4096;
/// Blocks that a lane has at least: at 300,000 switches a second 50 ms.
const MIN_BLOCKS: u32 = 128;
/// Bytes of `struct lane`.
const LANE: usize = 128;
/// Where `tail` lies in it; `head` comes first.
const TAIL: usize = 64;

/// How many blocks each of `cpus` lanes has: a power of two, together about `bytes`.
pub fn blocks(bytes: u32, cpus: u32) -> u32 {
    let each = bytes / cpus.max(1) / BLOCK as u32;
    (1 << each.max(1).ilog2()).clamp(MIN_BLOCKS, 1 << 16)
}

/// The lanes of all CPUs, mapped.
pub struct Lanes {
    /// The programs find the maps by these while they are loaded.
    _maps: Vec<MapData>,
    positions: MmapRaw,
    blocks: MmapRaw,
    /// Bytes of a lane.
    size: u64,
    heads: Vec<Head>,
    /// Lanes with records to be given out: time of the first, and which.
    next: BinaryHeap<Reverse<(u64, usize)>>,
    /// Records are given out up to this time.
    until: u64,
}

/// How far a lane is read, and written as far as is known.
#[derive(Clone, Copy, Default)]
struct Head {
    read: u64,
    written: u64,
    /// Length of the record at `read`.
    len: usize,
}

impl Lanes {
    /// Map the maps `lanes` and `blocks`.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn map(lanes: MapData, blocks: MapData, cpus: u32, lane_blocks: u32) -> Result<Self, Error> {
        let map = |data: &MapData, len: usize| {
            MmapOptions::new()
                .len(len.next_multiple_of(BLOCK as usize))
                .map_raw(data.fd().as_fd().as_raw_fd())
                .map_err(|e| Error::Failed(format!("cannot map the rings of the CPUs: {e}")))
        };
        let size = u64::from(lane_blocks) * BLOCK;
        let positions = map(&lanes, cpus as usize * LANE)?;
        let memory = map(&blocks, cpus as usize * size as usize)?;
        Ok(Self { _maps: vec![lanes, blocks], ..Self::over(positions, memory, cpus as usize, size) })
    }

    /// Lanes of `size` bytes each in mapped memory.
    fn over(positions: MmapRaw, blocks: MmapRaw, cpus: usize, size: u64) -> Self {
        assert!(positions.len() >= cpus * LANE && blocks.len() as u64 >= cpus as u64 * size);
        let heads = vec![Head::default(); cpus];
        Self { _maps: Vec::new(), positions, blocks, size, heads, next: BinaryHeap::new(), until: 0 }
    }

    fn position(&self, lane: usize, at: usize) -> &AtomicU64 {
        assert!(lane < self.heads.len() && at < LANE);
        // SAFETY: within the mapping, by the assertion; aligned to 8; read and written as atomics on this side,
        // by single 8-byte instructions on the other.
        unsafe { AtomicU64::from_ptr(self.positions.as_mut_ptr().add(lane * LANE + at).cast()) }
    }

    /// See what is there of records up to `time`, of `CLOCK_MONOTONIC`, which must be in the past: a record is
    /// in its lane before any other CPU can have a later one that builds on it. Returns the bytes taken in the
    /// fullest lane.
    pub fn look(&mut self, time: u64) -> usize {
        self.until = time;
        self.next.clear();
        let mut most = 0;
        for lane in 0..self.heads.len() {
            let written = self.position(lane, 0).load(Ordering::Acquire);
            self.heads[lane].written = written;
            most = most.max(written.wrapping_sub(self.heads[lane].read).min(self.size));
            if let Some(time) = self.peek(lane) {
                self.next.push(Reverse((time, lane)));
            }
        }
        most as usize
    }

    /// Bytes of a lane.
    pub fn room(&self) -> usize {
        self.size as usize
    }

    /// What is written in a lane from `read` on, up to the end of the block.
    fn written(&self, lane: usize) -> &[u8] {
        let Head { read, written, .. } = self.heads[lane];
        let at = lane as u64 * self.size + read % self.size;
        let len = (BLOCK - read % BLOCK).min(written.saturating_sub(read));
        // SAFETY: within the mapping: `lane` is one, and a block ends within its lane. The programs do not write
        // between `read` and `written` before `tail` passes it, which it does not while `self` is borrowed.
        unsafe { std::slice::from_raw_parts(self.blocks.as_mut_ptr().add(at as usize), len as usize) }
    }

    /// The time of the next record of a lane, when it is to be given out.
    fn peek(&mut self, lane: usize) -> Option<u64> {
        loop {
            let rest = self.written(lane);
            if rest.is_empty() {
                return None;
            }
            let Some((time, len)) = raw::of_lane(rest) else {
                // The next block goes on.
                let head = &mut self.heads[lane];
                head.read = (head.read / BLOCK + 1) * BLOCK;
                continue;
            };
            if time > self.until {
                return None;
            }
            self.heads[lane].len = len;
            return Some(time);
        }
    }

    /// Give `each` the records up to `time`, `most` at most, in order of time over all lanes. Returns whether
    /// these were all.
    pub fn up_to(&mut self, time: u64, mut most: usize, mut each: impl FnMut(&[u8])) -> bool {
        while let Some(&Reverse((first, lane))) = self.next.peek() {
            if first > time || most == 0 {
                return first > time;
            }
            self.next.pop();
            // A CPU often has several before another one has its next.
            let limit = self.next.peek().map_or(time, |r| r.0.0.min(time));
            let mut next = Some(first);
            while next.is_some_and(|t| t <= limit) && most > 0 {
                let len = self.heads[lane].len;
                each(&self.written(lane)[..len]);
                self.heads[lane].read += len as u64;
                most -= 1;
                next = self.peek(lane);
            }
            if let Some(t) = next {
                self.next.push(Reverse((t, lane)));
            }
        }
        true
    }

    /// Give the room of what was read back to the programs.
    pub fn release(&self) {
        for (lane, head) in self.heads.iter().enumerate() {
            self.position(lane, TAIL).store(head.read, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use memmap2::MmapMut;

    const SIZE: u64 = 4 * BLOCK;

    fn lanes(cpus: usize) -> Lanes {
        let memory = |len| MmapRaw::from(MmapMut::map_anon(len).expect("memory"));
        Lanes::over(memory(BLOCK as usize), memory(cpus * SIZE as usize), cpus, SIZE)
    }

    /// Writes a record as `lane_reserve` and `lane_submit` do; false when there is no room.
    fn write(l: &mut Lanes, lane: usize, kind: u8, time: u64) -> bool {
        let len = match kind {
            1 => 128,
            2 => 48,
            15 => 32,
            _ => 72,
        };
        let (mut head, tail) =
            (l.position(lane, 0).load(Ordering::Acquire), l.position(lane, TAIL).load(Ordering::Acquire));
        if head - tail > SIZE - BLOCK - len {
            return false;
        }
        let put = |position: u64, bytes: &[u8]| {
            let at = lane as u64 * SIZE + position % SIZE;
            // SAFETY: within the mapping, which nothing else looks at now.
            unsafe {
                l.blocks.as_mut_ptr().add(at as usize).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
            }
        };
        if head % BLOCK + len > BLOCK {
            put(head, &[0; 8]);
            head = (head / BLOCK + 1) * BLOCK;
        }
        let mut record = vec![0; len as usize];
        record[0] = kind;
        record[8..16].copy_from_slice(&time.to_le_bytes());
        put(head, &record);
        l.position(lane, 0).store(head + len, Ordering::Release);
        true
    }

    fn times(l: &mut Lanes, now: u64, up_to: u64, most: usize) -> (Vec<u64>, bool) {
        l.look(now);
        let mut seen = Vec::new();
        let all = l.up_to(up_to, most, |r| seen.push(raw::of_lane(r).expect("a record").0));
        l.release();
        (seen, all)
    }

    #[test]
    fn records_of_all_cpus_come_in_order_of_time() {
        let mut l = lanes(3);
        for (lane, kind, time) in [(0, 1, 10), (0, 15, 40), (1, 2, 20), (1, 16, 30), (2, 15, 25), (2, 15, 50)]
        {
            assert!(write(&mut l, lane, kind, time));
        }
        assert_eq!(times(&mut l, 45, 30, 99), (vec![10, 20, 25, 30], true), "only up to the time asked for");
        assert_eq!(times(&mut l, 45, 99, 99), (vec![40], true), "nothing from after the look");
        assert_eq!(times(&mut l, 60, 99, 99), (vec![50], true));
        assert_eq!(times(&mut l, 60, 99, 99), (vec![], true));
    }

    #[test]
    fn a_limit_leaves_the_rest_for_the_next_time() {
        let mut l = lanes(2);
        for time in 1..=10 {
            write(&mut l, (time % 2) as usize, 15, time);
        }
        assert_eq!(times(&mut l, 99, 99, 4), (vec![1, 2, 3, 4], false));
        assert_eq!(times(&mut l, 99, 99, 6), (vec![5, 6, 7, 8, 9, 10], true));
    }

    #[test]
    fn rings_go_round_and_lose_nothing_but_what_has_no_room() {
        let mut l = lanes(2);
        let (mut time, mut written, mut read) = (0, Vec::new(), Vec::new());
        for round in 0..60 {
            // All lengths, so that blocks end at every place; sometimes more than there is room for.
            for n in 0..(round * 7) % 400 {
                time += 1;
                let kind = [1, 2, 15, 16][(n + round) % 4];
                if write(&mut l, (time % 3 == 0).into(), kind, time) {
                    written.push(time);
                }
            }
            read.extend(times(&mut l, time, time, usize::MAX).0);
        }
        assert_eq!(read, written);
        assert!(written.len() < time as usize && written.len() > 4000, "{} of {time}", written.len());
    }

    #[test]
    fn lanes_share_the_memory() {
        assert_eq!(blocks(16 << 20, 2), 2048);
        assert_eq!(blocks(16 << 20, 3), 1024);
        assert_eq!(blocks(16 << 20, 256), MIN_BLOCKS);
        assert_eq!(blocks(64 << 10, 1), MIN_BLOCKS);
    }
}
