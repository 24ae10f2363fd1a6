//! Names of code addresses, by blazesym, in a thread of its own.
//!
//! A thread, because reading debug information of a large binary takes seconds that nobody else should
//! wait, because blazesym's caches cannot move between threads, and because a panic or an endless loop over
//! a hostile file must end neither the recording nor the wait for it.

mod file;
mod loops;
mod worker;

pub(super) use file::SymbolFile;
pub(super) use worker::Worker;

use super::debugfile::Debuginfod;
use super::elf::Elf;
use super::module::{Entry, Source};
use crate::collector::lower_priority;
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded, never, select, unbounded};
use pg_event::{Frame, FrameId, LoopTurn, ModuleId, ModuleKind};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// While nobody waits for names, the thread rests this many times as long as it worked: reading debug
/// information must not take the CPU from what is recorded ...
const REST: u32 = 1600;
/// ... and new code waits this long; what is not named when the recording ends is named then.
const LATER: Duration = Duration::from_secs(15);

/// What is known of an address.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Symbol {
    pub function: String,
    pub offset: u32,
    pub file: String,
    pub line: u32,
    pub inlined: Vec<String>,
}

impl Symbol {
    pub fn into_frame(self) -> Frame {
        let Self { function, offset, file, line, inlined } = self;
        Frame { function, offset, file, line, inlined, ..Frame::default() }
    }
}

/// Addresses of one module to be named.
#[derive(Debug)]
pub(super) struct Job {
    module: u32,
    id: ModuleId,
    path: String,
    kernel: bool,
    elf: Option<Arc<Elf>>,
    source: Arc<Source>,
    root: Option<PathBuf>,
    addresses: Vec<(FrameId, u64)>,
    /// Not their names are asked, but what the loops around them do.
    loops: bool,
}

impl Job {
    /// `None` when no file has symbols for this module.
    pub fn new(module: u32, entry: &Entry, addresses: Vec<(FrameId, u64)>, loops: bool) -> Option<Self> {
        let kernel = entry.row.kind == ModuleKind::Kernel;
        if !kernel && entry.elf.is_none() {
            return None;
        }
        Some(Self {
            module,
            id: entry.id,
            path: entry.row.path.clone(),
            kernel,
            elf: entry.elf.clone(),
            source: entry.source.clone(),
            root: entry.root.clone(),
            addresses,
            loops,
        })
    }
}

/// What was found out about a frame.
#[derive(Debug)]
pub(super) enum Found {
    /// Its name.
    Symbol(Symbol),
    /// What the loop around it does.
    Turn(LoopTurn),
}

/// What was asked about a frame; `None` when it was not found.
#[derive(Debug)]
pub(super) struct Answer {
    pub frame: FrameId,
    pub module: ModuleId,
    pub address: u64,
    pub found: Option<Found>,
}

/// The thread that looks names up, started at the first question.
#[derive(Default)]
pub(super) struct Symbols {
    worker: Option<(Sender<Job>, Receiver<Vec<Answer>>)>,
    /// Gone once somebody waits.
    leisure: Option<Sender<()>>,
    hurried: bool,
    pending: usize,
    /// Addresses ever asked for.
    submitted: u64,
    dead: bool,
    kernel_hidden: bool,
    /// As the first look showed.
    kernel_readable: Option<bool>,
}

impl Symbols {
    /// Addresses asked for and not yet answered.
    pub fn pending(&self) -> usize {
        self.pending
    }

    /// Addresses answered, or given up, of those asked for: they are taken in turn.
    pub fn answered(&self) -> u64 {
        self.submitted - self.pending as u64
    }

    pub fn submit(&mut self, job: Job) {
        if job.kernel {
            let readable = || kernel_symbols_readable(Path::new("/proc/kallsyms"));
            if !*self.kernel_readable.get_or_insert_with(readable) {
                self.kernel_hidden = true;
                return;
            }
        }
        if self.worker.is_none() && !self.dead {
            let (leisure, rest) = bounded(0);
            self.worker = start(rest);
            self.leisure = (!self.hurried).then_some(leisure);
            self.dead = self.worker.is_none();
        }
        let count = job.addresses.len();
        if let Some((jobs, _)) = &self.worker
            && jobs.send(job).is_ok()
        {
            self.pending += count;
            self.submitted += count as u64;
        }
    }

    /// Somebody waits for names: no more rest.
    pub fn hurry(&mut self) {
        self.hurried = true;
        self.leisure = None;
    }

    /// End the thread, with all that it read.
    pub fn forget(&mut self) {
        self.worker = None;
        self.leisure = None;
        self.hurried = false;
    }

    /// Answers, waiting for them at most this long.
    pub fn receive(&mut self, wait: Duration) -> Option<Vec<Answer>> {
        let (_, answers) = self.worker.as_ref()?;
        match answers.recv_timeout(wait) {
            Ok(a) => {
                self.pending = self.pending.saturating_sub(a.len());
                Some(a)
            }
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => {
                self.worker = None;
                self.dead = true;
                self.pending = 0;
                None
            }
        }
    }

    pub fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.kernel_hidden {
            notes.push(format!(
                "kernel functions have no names: /proc/kallsyms shows no addresses ({})",
                kernel_symbols_remedy(&std::fs::read_to_string(KPTR_RESTRICT).unwrap_or_default())
            ));
        }
        if self.dead {
            notes.push("the thread that looks up symbols could not run; functions have no names".to_owned());
        }
        notes
    }
}

/// Who may see addresses of the kernel: kernel/kallsyms.c, `kallsyms_show_value`.
const KPTR_RESTRICT: &str = "/proc/sys/kernel/kptr_restrict";

/// What gives kernel functions their names, where that setting is as given.
fn kernel_symbols_remedy(kptr_restrict: &str) -> &'static str {
    match kptr_restrict.trim() {
        "" | "0" | "1" => "run as root, or with the capability cap_syslog as well",
        _ => "set kernel.kptr_restrict=1, and run as root or with the capability cap_syslog as well",
    }
}

/// Without privilege the kernel writes every address as zero.
fn kernel_symbols_readable(kallsyms: &Path) -> bool {
    let Ok(file) = File::open(kallsyms) else { return false };
    // Some first symbols (of per-cpu data) are at zero on other kernels.
    BufReader::new(file)
        .lines()
        .take(100_000)
        .map_while(Result::ok)
        .any(|l| l.split(' ').next().is_some_and(|a| a.bytes().any(|b| b != b'0')))
}

/// `rest` closes when there is no time to rest any more.
fn start(rest: Receiver<()>) -> Option<(Sender<Job>, Receiver<Vec<Answer>>)> {
    let (jobs_in, jobs) = unbounded::<Job>();
    let (answers, answers_out) = unbounded();
    std::thread::Builder::new()
        .name("pg-symbols".into())
        .spawn(move || {
            lower_priority();
            let mut worker = Worker::new(Debuginfod::from_env());
            // Closed when somebody waits: until then what is large is left for later.
            let mut leisure = rest.clone();
            loop {
                select! {
                    recv(jobs) -> job => {
                        let Ok(job) = job else { break };
                        // A program that has just begun is not to be disturbed.
                        let _ = rest.recv_timeout(LATER);
                        worker.run(job, &answers, &rest);
                        for job in jobs.try_iter() {
                            worker.run(job, &answers, &rest);
                        }
                    }
                    recv(leisure) -> _ => {
                        leisure = never();
                        for job in std::mem::take(&mut worker.large) {
                            worker.run(job, &answers, &rest);
                        }
                    }
                }
            }
            // Debug information read for names is hundreds of megabytes that the allocator would keep.
            drop(worker);
            worker::trim();
        })
        .ok()?;
    Some((jobs_in, answers_out))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hidden_kernel_symbols_are_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("kallsyms");
        std::fs::write(&path, "0000000000000000 T a\n0000000000000000 T b\n").unwrap();
        assert!(!kernel_symbols_readable(&path));
        std::fs::write(&path, "0000000000000000 A a\nffffffff81000000 T b\n").unwrap();
        assert!(kernel_symbols_readable(&path));
        // The setting hides them from root, too, when it is two.
        assert!(
            !kernel_symbols_remedy("1\n").contains("kptr")
                && kernel_symbols_remedy("2\n").contains("kptr_restrict=1")
        );
    }
}
