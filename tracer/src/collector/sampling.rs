//! The clock that takes on-CPU samples: a software perf event on every CPU, with the BPF program attached.
#![allow(unsafe_code)] // perf_event_open(2) and its ioctls have no safe wrapper.

use crate::error::Error;
use perf_event_open_sys as sys;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// CPUs in a list like `0-3,5`.
fn cpus(list: &str) -> Vec<i32> {
    /// More CPUs than Linux supports.
    const MOST: i32 = 16384;
    list.trim()
        .split(',')
        .filter_map(|part| {
            let (a, b) = part.split_once('-').unwrap_or((part, part));
            Some((a.parse::<i32>().ok()?, b.parse::<i32>().ok()?))
        })
        .flat_map(|(a, b)| a.max(0)..=b.min(MOST))
        .collect()
}

/// CPUs that are online.
pub fn online() -> Vec<i32> {
    let list = fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    let cpus = cpus(&list);
    if cpus.is_empty() { vec![0] } else { cpus }
}

/// Sampling goes on while this lives.
pub struct Sampling {
    _events: Vec<OwnedFd>,
}

/// Start `program` `hz` times a second on every CPU that is online.
///
/// # Errors
/// The kernel's refusal.
pub fn start(program: BorrowedFd, hz: u32) -> Result<Sampling, Error> {
    let refused = |e: io::Error| Error::Refused { what: "the sampling clock".into(), reason: e.to_string() };
    let mut events = Vec::new();
    for cpu in online() {
        let mut attr = sys::bindings::perf_event_attr {
            size: size_of::<sys::bindings::perf_event_attr>() as u32,
            type_: sys::bindings::PERF_TYPE_SOFTWARE,
            config: u64::from(sys::bindings::PERF_COUNT_SW_CPU_CLOCK),
            ..Default::default()
        };
        attr.__bindgen_anon_1.sample_freq = u64::from(hz);
        attr.set_freq(1);
        attr.set_disabled(1);
        // SAFETY: `attr` is a valid attribute block of the size it names.
        let fd = unsafe {
            sys::perf_event_open(&raw mut attr, -1, cpu, -1, sys::bindings::PERF_FLAG_FD_CLOEXEC.into())
        };
        if fd < 0 {
            return Err(refused(io::Error::last_os_error()));
        }
        // SAFETY: `fd` was just opened and is owned by nobody else.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        // SAFETY: both descriptors are open; the ioctls take a number.
        let failed = unsafe {
            sys::ioctls::SET_BPF(fd.as_raw_fd(), program.as_raw_fd() as u32) < 0
                || sys::ioctls::ENABLE(fd.as_raw_fd(), 0) < 0
        };
        if failed {
            return Err(refused(io::Error::last_os_error()));
        }
        events.push(fd);
    }
    Ok(Sampling { _events: events })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cpus() {
        assert_eq!(cpus("0-2,5\n"), [0, 1, 2, 5]);
        assert_eq!(cpus("0"), [0]);
        assert_eq!(cpus("junk,7-x"), Vec::<i32>::new());
        assert!(cpus("0-999999999").len() < 20_000);
        assert!(!online().is_empty());
    }
}
