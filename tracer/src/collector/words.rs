//! Futex words whose mapping the programs could not look at (`bpf/mapping.h`): another recorder held the only lock
//! that a CPU can give back at a time, or the mappings were just being changed. What is mapped there is read from
//! `/proc/PID/maps` instead.

use super::hash::FastMap;
use super::raw::RawObject;
use crate::flags::memory::{Area, areas};
use pg_event::{ObjectKind, SHARED_FUTEX};
use std::time::{Duration, Instant};

/// In the peer of a futex: it was not looked at.
const BUSY: u64 = 1 << 62;
/// So long is an answer believed: as the programs do.
const BELIEVED: Duration = Duration::from_secs(1);
/// Most answers kept.
const MOST: usize = 4096;

/// What is known of words that were looked at here.
#[derive(Default)]
pub struct Words {
    known: FastMap<(u64, u64), (Instant, RawObject)>,
}

/// `mix` of `bpf/state.h`.
fn mix(h: u64, v: u64) -> u64 {
    let h = (h ^ v).wrapping_mul(0xff51_afd7_ed55_8ccd);
    h ^ (h >> 32)
}

/// As the kernel numbers devices within itself.
pub(super) fn device((major, minor): (u32, u32)) -> u64 {
    u64::from(major) << 20 | u64::from(minor)
}

/// What words of a mapped file (device, inode) are known by.
pub(super) fn peer_of((dev, inode): ((u32, u32), u64)) -> u64 {
    mix(inode, device(dev)) | SHARED_FUTEX
}

/// The word at this address as all see it who map the same; `None`: it is of the process alone.
fn shared(areas: &[Area], address: u64) -> Option<(RawObject, &str)> {
    let a = areas.iter().find(|a| a.has(address)).filter(|a| a.shared && a.file.1 != 0)?;
    let id = (address - a.start).wrapping_add(a.offset);
    let peer = peer_of(a.file);
    let path = a.path.strip_suffix(" (deleted)").unwrap_or(&a.path);
    Some((RawObject { kind: ObjectKind::Futex as u8, id, peer }, path))
}

impl Words {
    /// Is this one that must be looked at here?
    #[inline]
    pub fn open(raw: RawObject) -> bool {
        raw.kind == ObjectKind::Futex as u8 && raw.peer & (BUSY | SHARED_FUTEX) == BUSY
    }

    /// The object that such a word is of, and the path of what is mapped there, when that is news.
    pub fn find(&mut self, raw: RawObject) -> (RawObject, Option<String>) {
        let pid = raw.peer & !BUSY;
        let now = Instant::now();
        if let Some((at, known)) = self.known.get(&(pid, raw.id))
            && now.duration_since(*at) < BELIEVED
        {
            return (*known, None);
        }
        let mapped = areas(pid as u32).unwrap_or_default();
        let private = RawObject { peer: pid, ..raw };
        let (found, path) = match shared(&mapped, raw.id) {
            Some((object, path)) => (object, Some(path.to_owned())),
            None => (private, None),
        };
        if self.known.len() >= MOST {
            self.known.clear();
        }
        self.known.insert((pid, raw.id), (now, found));
        (found, path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn area(start: u64, shared: bool, offset: u64, inode: u64) -> Area {
        let file = ((0xfe, 3), inode);
        let path = "/dev/shm/queue (deleted)".to_owned();
        Area { start, end: start + 0x2000, writable: true, shared, offset, file, path }
    }

    #[test]
    fn one_word_in_two_mappings_is_one_object() {
        let (a, b) = ([area(0x1000, true, 0x4000, 77)], [area(0x9000, true, 0x3000, 77)]);
        let (one, path) = shared(&a, 0x1010).unwrap();
        assert_eq!((one.id, path), (0x4010, "/dev/shm/queue"));
        assert_eq!(shared(&b, 0xa010).unwrap().0, one);
        assert_ne!(shared(&[area(0x1000, true, 0x4000, 78)], 0x1010).unwrap().0, one, "another file");
        assert_eq!(one.peer, mix(77, 0xfe0_0003) | SHARED_FUTEX);
        assert_eq!(shared(&[area(0x1000, false, 0x4000, 77)], 0x1010), None);
        assert_eq!(shared(&a, 0x3000), None, "behind its end");
    }

    #[test]
    fn only_what_was_not_looked_at_is_open() {
        let raw = |kind: ObjectKind, peer| RawObject { kind: kind as u8, id: 8, peer };
        assert!(Words::open(raw(ObjectKind::Futex, 7 | BUSY)));
        assert!(!Words::open(raw(ObjectKind::Futex, 7)));
        assert!(!Words::open(raw(ObjectKind::Futex, BUSY | SHARED_FUTEX)));
        assert!(!Words::open(raw(ObjectKind::Pipe, BUSY)));
        // A process that is gone: its own.
        let (found, path) = Words::default().find(raw(ObjectKind::Futex, u64::from(u32::MAX) | BUSY));
        assert_eq!((found.peer, path), (u64::from(u32::MAX), None));
    }
}
