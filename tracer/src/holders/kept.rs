//! Who keeps a thread within the kernel, whatever its system call is about: the supervisor that decides about the call
//! (seccomp user notifications), and the program that takes the memory of one that crashed (core(5)).

use super::candidates::others;
use super::{Holders, LongWait, Who};
use crate::procfs::{self, FdLink};
use pg_event::Relation;
use std::path::Path;

/// The kernel thread that is the parent of all programs which the kernel itself starts.
const KTHREADD: u32 = 2;
/// A file name, or a program and its arguments.
const CORE_PATTERN: &str = "/proc/sys/kernel/core_pattern";

impl Holders {
    /// Empty for a wait that is what its system call says.
    pub(super) fn keepers(&mut self, wait: &LongWait) -> Vec<(Who, Relation)> {
        if procfs::read_wchan(wait.tid).contains("seccomp") {
            return self.supervisors(wait);
        }
        // A process whose memory is written out waits in the call that the signal came in, or in none.
        let may = wait.object.is_none();
        if may && procfs::read_status(wait.tid).is_some_and(|s| s.core_dumping) {
            return self.core_handlers(wait);
        }
        Vec::new()
    }

    /// Who decides about system calls: mostly an ancestor; else which one of several it is, is not to be seen.
    fn supervisors(&mut self, wait: &LongWait) -> Vec<(Who, Relation)> {
        const GENERATIONS: usize = 64;
        let notified = self.open.anonymous("seccomp notify").into_iter().map(|o| o.pid).collect();
        let mut all: Vec<u32> = others(notified, wait).collect();
        let parent = |pid: &u32| procfs::read_status(*pid).map(|s| s.ppid).filter(|p| *p != 0);
        let line: Vec<u32> = std::iter::successors(Some(wait.tgid), parent).take(GENERATIONS).collect();
        if let Some(nearest) = line.into_iter().find(|p| all.contains(p)) {
            all = vec![nearest];
        }
        all.into_iter().map(|p| (Who::Process(p), Relation::Serves)).collect()
    }

    /// The program that the kernel started for this crash, or those that may be it.
    fn core_handlers(&mut self, wait: &LongWait) -> Vec<(Who, Relation)> {
        let pattern = procfs::read_bounded(Path::new(CORE_PATTERN), 4096).unwrap_or_default();
        let Some(program) = handler(&pattern) else { return Vec::new() };
        let reads_pipe = |pid: u32| {
            let links = procfs::read_fd_links(pid, 8);
            links.iter().any(|(fd, link)| *fd == 0 && matches!(link, FdLink::Pipe(_)))
        };
        let ours = |pid: u32| {
            let line = procfs::read_cmdline(pid).unwrap_or_default();
            line.split(|&b| b == 0).any(|word| word == program.as_bytes())
        };
        let begun = procfs::read_stat(wait.tgid).map_or(0, |s| s.start_ticks);
        let started: Vec<u32> = self
            .open
            .processes()
            .iter()
            .filter(|s| s.ppid == KTHREADD && !s.kernel && s.start_ticks >= begun)
            .map(|s| s.pid)
            .collect();
        let mut all: Vec<u32> = started.into_iter().filter(|&p| ours(p) && reads_pipe(p)).collect();
        // Told by its number which one it is for, it is known.
        let named: Vec<u32> = all
            .iter()
            .copied()
            .filter(|&p| names(&procfs::read_cmdline(p).unwrap_or_default(), wait.tgid))
            .collect();
        if !named.is_empty() {
            all = named;
        }
        others(all, wait).map(|p| (Who::Process(p), Relation::Reads)).collect()
    }
}

/// The program of a `core_pattern` that is a pipe.
fn handler(pattern: &[u8]) -> Option<String> {
    let command = std::str::from_utf8(pattern).ok()?.trim().strip_prefix('|')?;
    command.split_ascii_whitespace().next().map(str::to_owned)
}

/// Is this number one of the arguments?
fn names(cmdline: &[u8], pid: u32) -> bool {
    let pid = pid.to_string();
    cmdline.split(|&b| b == 0).skip(1).any(|word| word == pid.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_of_a_core_pattern() {
        assert_eq!(
            handler(b"|/usr/share/apport/apport -p%p -s%s\n").as_deref(),
            Some("/usr/share/apport/apport")
        );
        assert_eq!(
            handler(b"|/lib/systemd/systemd-coredump %P %u").as_deref(),
            Some("/lib/systemd/systemd-coredump")
        );
        assert_eq!(handler(b"core\n"), None);
        assert_eq!(handler(b"/var/crash/core.%p"), None);
        assert_eq!(handler(b"|"), None);
    }

    #[test]
    fn an_argument_that_is_the_number() {
        assert!(names(b"/bin/handler\x0042\x000\x00", 42));
        assert!(!names(b"42\x004\x00", 42));
        assert!(!names(b"", 42));
    }
}
