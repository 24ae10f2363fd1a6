//! Who keeps a thread within the kernel, whatever its system call is about: the supervisor that decides about the call
//! (seccomp user notifications), the program that takes the memory of one that crashed (core(5)), the daemon that mounts
//! what is looked for (autofs), and the kernel's own threads that write a journal or are a disk (a loop device).

use super::candidates::others;
use super::files::device_of;
use super::{Holders, LongWait, Who};
use crate::procfs::{self, FdLink};
use pg_event::{Object, ObjectKind, OffState, Relation};
use std::path::Path;

/// The kernel thread that is the parent of all programs which the kernel itself starts.
const KTHREADD: u32 = 2;
/// A file name, or a program and its arguments.
const CORE_PATTERN: &str = "/proc/sys/kernel/core_pattern";

impl Holders {
    /// Empty for a wait that is what its system call says.
    pub(super) fn keepers(&mut self, wait: &LongWait) -> Vec<(Who, Relation)> {
        let within = procfs::read_wchan(wait.tid);
        if within.contains("seccomp") {
            return self.supervisors(wait);
        }
        if within.starts_with("autofs_") {
            return Self::automounters(wait);
        }
        if wait.state == OffState::Uninterruptible {
            return self.of_disk(wait, &within);
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

    /// The daemon of the automount point that a path lies below.
    fn automounters(wait: &LongWait) -> Vec<(Who, Relation)> {
        let mount = wait.object.and_then(|o| Self::mount_of(wait, o));
        let leader = mount.and_then(|m| m.automounter()).filter(|p| *p != wait.tgid);
        leader.map(|p| (Who::Process(p), Relation::Serves)).into_iter().collect()
    }

    /// Who of the kernel's threads does what a wait for a disk is for: the one that writes the file system's journal,
    /// where that is waited for; else the one that is the disk at that moment.
    fn of_disk(&mut self, wait: &LongWait, within: &str) -> Vec<(Who, Relation)> {
        let own = procfs::read_thread_stat(wait.tid).filter(|s| s.kernel);
        let disk = match (&own, wait.object) {
            (Some(own), _) => journal_of(&procfs::lossy(&own.comm, procfs::MAX_NAME)).map(str::to_owned),
            (None, Some(o)) if o.kind == ObjectKind::File => Self::disk_below(wait, o),
            _ => None,
        };
        let Some(disk) = disk else { return Vec::new() };
        let journal = own.is_none() && JOURNAL.iter().any(|w| within.contains(w));
        let of = if journal { journal_of } else { works_for };
        let fits = |comm: &str| of(comm) == Some(&disk);
        let kernel: Vec<u32> = self.open.processes().iter().filter(|s| s.kernel).map(|s| s.pid).collect();
        // What a worker works for changes: its name is read anew.
        let now = |pid: &u32| {
            procfs::read_stat(*pid).is_some_and(|s| fits(&procfs::lossy(&s.comm, procfs::MAX_NAME)))
        };
        let found = kernel.into_iter().filter(|p| *p != wait.tid).filter(now);
        found.map(|p| (Who::Process(p), Relation::Serves)).collect()
    }

    /// The disk below the file system that a file lies on: `vda1`, `loop0`. `None` when there is none, or it is not known.
    fn disk_below(wait: &LongWait, file: &Object) -> Option<String> {
        let (major, minor) = match file.peer {
            0 => Self::mount_of(wait, file)?.device,
            _ => device_of(file),
        };
        let at = std::fs::read_link(format!("/sys/dev/block/{major}:{minor}")).ok()?;
        at.file_name()?.to_str().map(str::to_owned)
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

/// Where a thread waits for the journal of its file system (jbd2, of ext4) to be written.
const JOURNAL: [&str; 4] = ["jbd2_", "do_get_write_access", "wait_transaction", "add_transaction_credits"];

/// The disk whose journal the kernel's thread of this name writes: `jbd2/vda1-8`.
fn journal_of(comm: &str) -> Option<&str> {
    comm.strip_prefix("jbd2/")?.rsplit_once('-').map(|(disk, _)| disk)
}

/// The queue of work that the kernel's worker of this name is at: `kworker/u8:3+loop0`. One that is at nothing has a minus
/// sign there.
fn works_for(comm: &str) -> Option<&str> {
    comm.strip_prefix("kworker/")?.split_once('+').map(|(_, queue)| queue)
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
    fn names_of_threads_of_the_kernel() {
        assert_eq!(journal_of("jbd2/vda1-8"), Some("vda1"));
        assert_eq!(journal_of("jbd2/dm-0-8"), Some("dm-0"));
        assert_eq!(journal_of("kworker/u8:3+loop0"), None);
        assert_eq!(works_for("kworker/u8:3+loop0"), Some("loop0"));
        assert_eq!(works_for("kworker/u8:3-loop0"), None);
        assert_eq!(works_for("kworker/1:2H"), None);
    }

    #[test]
    fn an_argument_that_is_the_number() {
        assert!(names(b"/bin/handler\x0042\x000\x00", 42));
        assert!(!names(b"42\x004\x00", 42));
        assert!(!names(b"", 42));
    }
}
