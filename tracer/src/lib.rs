//! Everything of pg-tui that touches the running system: the collector with its BPF programs, who threads
//! and processes are, their stacks and symbols. Yields [`pg_event::Item`]s; knows nothing of the graph.

mod awaited;
mod clock;
pub mod collector;
pub mod command;
mod error;
pub mod flags;
pub mod flow;
pub mod focus;
pub mod given;
pub mod guards;
pub mod holders;
pub mod identity;
pub mod live;
mod loading;
mod memory;
mod netns;
mod options;
mod patience;
pub mod procfs;
mod readable;
mod sockdiag;
pub mod stacks;
pub mod steps;
mod sys_bpf;
pub mod units;
mod unserved;

pub use collector::{Collector, Hurry, LiveStats, check_permission, lower_priority, prefer};
pub use error::Error;
pub use focus::Focus;
pub use options::{Level, Options};

/// Which start of this machine it is (`/proc/sys/kernel/random/boot_id`); empty when that cannot be read.
pub fn boot_id() -> String {
    let text = procfs::read_bounded(std::path::Path::new("/proc/sys/kernel/random/boot_id"), 64);
    text.map_or_else(|_| String::new(), |t| procfs::lossy(t.trim_ascii(), 64))
}

/// For how long so far the CPUs of this machine, all together, were wanted and had by others of the host that it is a guest
/// of, ns; 0 where the host does not tell. None when that cannot be read.
pub fn stolen() -> Option<u64> {
    stolen_in(&procfs::read_bounded(std::path::Path::new("/proc/stat"), 4096).ok()?)
}

/// The same of `/proc/stat`, in ticks: user, nice, system, idle, iowait, irq, softirq, steal (proc_stat(5)).
fn stolen_in(stat: &[u8]) -> Option<u64> {
    let all = stat.split(|&b| b == b'\n').next()?.strip_prefix(b"cpu ")?;
    let ticks: u64 = std::str::from_utf8(all).ok()?.split_ascii_whitespace().nth(7)?.parse().ok()?;
    Some(ticks.saturating_mul(clock::tick()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stolen_time_is_of_all_cpus() {
        let of = |text: &str| stolen_in(text.as_bytes()).map(|ns| ns / clock::tick());
        assert_eq!(of("cpu  10 2 3 40 5 0 7 8 9 0\ncpu0 1 1 1 1 1 1 1 1 1 1\n"), Some(8));
        assert_eq!(of("cpu  10 2 3 40 5 0 7\n"), None);
        assert_eq!(of("cpu0 1 1 1 1 1 1 1 1 1 1\n"), None);
        assert!(stolen().is_some());
    }
}
