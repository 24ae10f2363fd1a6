//! Everybody's descriptors, seen at once and kept for a while.

use crate::clock;
use crate::procfs::{self, AccessMode, FdInfo, FdLink, Stat};
use pg_event::Ns;
use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

/// Most descriptors looked at in one scan.
const MAX_DESCRIPTORS: usize = 400_000;
/// Most descriptors of one process looked at.
const MAX_OF_ONE: usize = 20_000;
/// A scan is good for at least this long ...
const FRESH_NS: Ns = 1_000_000_000;
/// ... for so long if nobody was born since ...
const RECENT_NS: Ns = 10_000_000_000;
/// ... and for this many times as long as it took, so that scanning never takes more than 1 % of a CPU ...
pub const REST: u32 = 100;
/// ... and of a quarter of a percent where everybody is recorded: then nobody waits for the answer of one.
pub const SELDOM: u32 = 400;

/// CPU time of this thread since a moment. To stand in the queue for a CPU costs nobody one: where everybody does, a look must
/// not pass for a dear one that serves for long.
struct Spent(u64);

impl Spent {
    fn begin() -> Self {
        Self(clock::thread_cpu())
    }

    fn until_now(&self) -> Duration {
        Duration::from_nanos(clock::thread_cpu().saturating_sub(self.0))
    }
}

/// One open descriptor of one process.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Opened {
    /// Process.
    pub pid: u32,
    /// Descriptor.
    pub fd: u32,
    /// Where `/proc` shows it ([`procfs::shown_by`]).
    shown_by: u32,
}

impl Opened {
    /// How it was opened, from the link's own mode; `None` when it is closed by now.
    pub fn mode(self) -> Option<AccessMode> {
        let link = std::fs::symlink_metadata(format!("/proc/{}/fd/{}", self.shown_by, self.fd)).ok()?;
        Some(match (link.mode() & 0o400 != 0, link.mode() & 0o200 != 0) {
            (true, false) => AccessMode::Read,
            (false, true) => AccessMode::Write,
            _ => AccessMode::Both,
        })
    }

    /// What the kernel tells of it; `None` when it is closed by now.
    pub fn info(self) -> Option<FdInfo> {
        procfs::read_fdinfo(self.shown_by, self.fd)
    }
}

/// What was seen of all processes.
#[derive(Default)]
pub struct OpenFiles {
    by_link: HashMap<FdLink, Vec<Opened>>,
    processes: Vec<Stat>,
    now: Ns,
    met: usize,
    met_then: usize,
    /// When the last look at the descriptors was, and what it took of the CPU: on a busy machine, where there is most to
    /// ask, it may have waited for that ten times as long.
    taken: Option<(Ns, Duration)>,
    /// The same of the processes, which are looked at alone when nobody asks for descriptors: a parent that
    /// waits for its children.
    counted: Option<(Ns, Duration)>,
    /// Everybody is recorded.
    seldom: bool,
}

impl OpenFiles {
    /// The time by which the next questions decide whether a new look is due, and how many processes the
    /// recording has met until then.
    pub fn set_time(&mut self, now: Ns, met: usize) {
        self.now = now;
        self.met = met;
    }

    /// Whether to look seldom.
    pub fn set_seldom(&mut self, seldom: bool) {
        self.seldom = seldom;
    }

    /// Who has what this link names open, as far as that still holds.
    pub fn of(&mut self, link: &FdLink) -> Vec<Opened> {
        if self.serves() {
            let known = self.still(link);
            if known.len() > 1 {
                return known;
            }
        }
        self.look();
        self.still(link)
    }

    /// Does the last look serve although there could be a new one? Those who wait for the same again and again
    /// (daemons at rest) need none each time: when nobody was born since, nobody new holds what they wait for.
    fn serves(&self) -> bool {
        let recent = self.taken.is_some_and(|(at, _)| self.now < at.saturating_add(RECENT_NS));
        recent && self.met == self.met_then
    }

    fn still(&self, link: &FdLink) -> Vec<Opened> {
        let Some(known) = self.by_link.get(link) else { return Vec::new() };
        let still = |o: &Opened| procfs::read_fd_link(o.shown_by, o.fd).as_ref() == Some(link);
        known.iter().copied().filter(still).collect()
    }

    /// All descriptors with a path that satisfies `fits`.
    pub fn with_path(&mut self, fits: impl Fn(&str) -> bool) -> Vec<Opened> {
        self.look();
        let mut out: Vec<Opened> = Vec::new();
        for (link, opened) in &self.by_link {
            if matches!(link, FdLink::Path(p) if fits(p)) {
                out.extend(opened);
            }
        }
        out.sort_unstable_by_key(|o| (o.pid, o.fd));
        out
    }

    /// Descriptors of anonymous inodes with this name.
    pub fn anonymous(&mut self, name: &str) -> Vec<Opened> {
        let link = FdLink::Anon(name.to_owned());
        // Descriptors without a name come to others with a birth; the rare one that was sent to somebody who lived
        // already is found by the next look.
        if !self.serves() {
            self.look();
        }
        self.by_link.get(&link).cloned().unwrap_or_default()
    }

    /// All processes, as of the last look at them.
    pub fn processes(&mut self) -> &[Stat] {
        if !self.is_good(self.counted) {
            let began = Spent::begin();
            self.count();
            self.counted = Some((self.now, began.until_now()));
        }
        &self.processes
    }

    /// When the processes were looked at last.
    pub fn counted(&self) -> Option<Ns> {
        self.counted.map(|c| c.0)
    }

    /// When there can be a new look, if the last one was before `moment`: it did not see what was opened since.
    pub fn next_after(&self, moment: Ns) -> Option<Ns> {
        [self.taken, self.counted].into_iter().filter_map(|look| self.next_look(look, moment)).max()
    }

    /// The same of one look.
    pub fn next_look(&self, look: Option<(Ns, Duration)>, moment: Ns) -> Option<Ns> {
        look.filter(|&(at, _)| at < moment).map(|(at, took)| self.good_until(at, took))
    }

    /// The time by which that is decided.
    pub fn now(&self) -> Ns {
        self.now
    }

    /// Is a look of then, that took so long, still good?
    pub fn is_good(&self, look: Option<(Ns, Duration)>) -> bool {
        look.is_some_and(|(at, took)| self.now >= at && self.now < self.good_until(at, took))
    }

    fn good_until(&self, at: Ns, took: Duration) -> Ns {
        let rest = if self.seldom { SELDOM } else { REST };
        at.saturating_add(FRESH_NS.max((took * rest).as_nanos() as Ns))
    }

    /// Look again when the last look is too old.
    fn look(&mut self) {
        if self.is_good(self.taken) {
            return;
        }
        let began = Spent::begin();
        self.scan();
        self.met_then = self.met;
        self.taken = Some((self.now, began.until_now()));
    }

    /// Have the next question answered by a new look, however good the last one is.
    pub fn forget(&mut self) {
        self.taken = None;
        self.counted = None;
    }

    fn count(&mut self) {
        self.processes.clear();
        self.processes.extend(procfs::processes().into_iter().filter_map(procfs::read_stat));
    }

    fn scan(&mut self) {
        self.count();
        self.counted = Some((self.now, Duration::ZERO));
        self.by_link.clear();
        let mut budget = MAX_DESCRIPTORS;
        for stat in &self.processes {
            if stat.kernel {
                continue;
            }
            // A first thread that has ended has let go of its descriptors; the others have not.
            let pid = stat.pid;
            let shown_by = if stat.is_headless() { procfs::shown_by(pid) } else { pid };
            let links = procfs::read_fd_links(shown_by, budget.min(MAX_OF_ONE));
            budget -= links.len();
            for (fd, link) in links {
                self.by_link.entry(link).or_default().push(Opened { pid, fd, shown_by });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    #[test]
    fn to_be_off_the_cpu_makes_no_look_dear() {
        let spent = Spent::begin();
        std::thread::sleep(Duration::from_millis(50));
        assert!(spent.until_now() < Duration::from_millis(25), "{:?}", spent.until_now());
        let (begun, mut sum) = (clock::thread_cpu(), 0u64);
        while clock::thread_cpu() < begun + 2_000_000 {
            sum = sum.wrapping_mul(31).wrapping_add(7);
        }
        assert!(spent.until_now() >= Duration::from_millis(2), "{sum}");
    }

    /// What was opened since the last look is found when a new one is asked for, and else once that is due.
    #[test]
    fn a_look_that_is_good_can_be_forgotten() {
        let mut open = OpenFiles::default();
        open.set_time(1, 0);
        let own = std::process::id();
        assert!(open.processes().iter().any(|s| s.pid == own));
        let of = |open: &mut OpenFiles, inode| {
            open.of(&FdLink::Pipe(inode)).into_iter().filter(|o| o.pid == own).count()
        };
        assert_eq!(of(&mut open, u64::MAX), 0);
        let (reader, _writer) = std::io::pipe().expect("a pipe");
        let link = std::fs::read_link(format!("/proc/self/fd/{}", reader.as_raw_fd())).expect("a link");
        let text = link.to_string_lossy();
        let inode = text.trim_start_matches("pipe:[").trim_end_matches(']').parse().expect("a number");
        assert_eq!(of(&mut open, inode), 0, "seen before it was there");
        open.forget();
        assert_eq!(of(&mut open, inode), 2);
    }
}
