//! Probes of units that a person gave the boundaries of: where they begin and end, and behind the calls of functions that
//! are units. Where a call returns to is told by the programs when it is made for the first time; so nothing need be
//! known of the function, nothing of the stack is changed, and a call that ends with a jump into another function ends
//! where that returns.

use super::layout::{
    ANYTHING, BY_FUNCTION, FRAMED, KIND_SHIFT, NO_ERROR, RESULT, RETURNS, SKIP, STEPPED, WAITS_FOR_RING,
    WAITS_FOR_WORD,
};
use super::multi::{Link, Probe, Program};
use super::plan::{GivenProbe, Plan};
use super::point::Point;
use crate::given::{AtCall, Gave, Waiting};
use crate::stacks::CodePlace;
use std::collections::{HashMap, HashSet};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Places that calls return to, at most.
const MAX_CALLERS: usize = 1024;
/// Processes in which probes of files are set that others execute, too, at most.
const MAX_PIDS: usize = 256;
/// Bytes that a cookie can tell from the return address to the probe.
const MAX_SKIP: u32 = 0x7fff;

/// A probe of a file, for a begin or an end.
struct Set {
    begins: bool,
    file: PathBuf,
    probe: Probe,
    shared: bool,
}

/// The probes that are set.
#[derive(Default)]
pub struct Given {
    all: Vec<Set>,
    /// Kept for as long as they are to stay.
    #[allow(dead_code)]
    links: Vec<Link>,
    /// By process.
    own: HashMap<u32, Vec<Link>>,
    pids: Vec<u32>,
    /// Return places that have one: file, offset, and the process where it is only there.
    callers: HashSet<((u64, u64), u64, Option<u32>)>,
    /// Whether others execute a file.
    shared: HashMap<(u64, u64), bool>,
    pub notes: Vec<String>,
}

impl Given {
    /// Sets those of a plan in these processes. Sentences about those that cannot be go to the notes.
    pub fn set([begin, end, _]: &[Program; 3], plan: &Plan, pids: &[u32]) -> Self {
        let mut all = Self::default();
        for (i, of) in plan.loops.iter().enumerate() {
            let Some(given) = &of.given else { continue };
            let returns = given.ends.is_empty();
            for p in given.begins.iter().chain(&given.ends) {
                if let Ok(meta) = std::fs::metadata(&p.file) {
                    all.shared.insert((meta.dev(), meta.ino()), p.shared);
                }
            }
            all.all.extend(given.begins.iter().map(|p| set(i, p, true, returns)));
            all.all.extend(given.ends.iter().map(|p| set(i, p, false, false)));
        }
        let files: HashSet<(PathBuf, bool)> =
            all.all.iter().filter(|s| !s.shared).map(|s| (s.file.clone(), s.begins)).collect();
        for (file, begins) in files {
            let of = |s: &&Set| !s.shared && s.file == file && s.begins == begins;
            let probes: Vec<Probe> = all.all.iter().filter(of).map(|s| s.probe).collect();
            let program = if begins { begin } else { end };
            match program.attach(&file, &probes, None) {
                Ok(link) => all.links.push(link),
                Err(e) => all.notes.push(format!("no probe where units {}: {e}", begin_or_end(begins))),
            }
        }
        for &pid in pids {
            all.add([begin, end], pid);
        }
        all
    }

    /// One more process.
    pub fn add(&mut self, [begin, end]: [&Program; 2], pid: u32) {
        if self.pids.contains(&pid) {
            return;
        }
        self.pids.push(pid);
        let mut links = Vec::new();
        let mut refused = Vec::new();
        for s in self.all.iter().filter(|s| s.shared) {
            if self.own.len() >= MAX_PIDS {
                self.note(format!("in more than {MAX_PIDS} processes no places in libraries are probed"));
                return;
            }
            let program = if s.begins { begin } else { end };
            match program.attach(&s.file, &[s.probe], Some(pid)) {
                Ok(link) => links.push(link),
                // It may have ended.
                Err(e) if e.raw_os_error() == Some(libc::ESRCH) => return,
                Err(e) => refused.push(format!("no probe where units {}: {e}", begin_or_end(s.begins))),
            }
        }
        for note in refused {
            self.note(note);
        }
        if !links.is_empty() {
            self.own.entry(pid).or_default().extend(links);
        }
    }

    /// A process ended, or has another program.
    pub fn forget(&mut self, pid: u32) {
        self.pids.retain(|p| *p != pid);
        self.own.remove(&pid);
        self.callers.retain(|c| c.2 != Some(pid));
    }

    /// A call of a function that is a unit returns to this address of a process.
    pub fn called_from(&mut self, program: &Program, pid: u32, address: u64) {
        let Some(CodePlace { binary, offset }) = CodePlace::of(pid, address) else {
            self.note(
                "called by code that is in no file (made while the program runs): such calls have no end"
                    .into(),
            );
            return;
        };
        let pids = &self.pids;
        let shared = *self.shared.entry(binary.id()).or_insert_with(|| binary.is_used_beside(pids));
        let only = shared.then_some(pid);
        if self.callers.contains(&(binary.id(), offset, only)) {
            return;
        }
        if self.callers.len() >= MAX_CALLERS {
            self.note(format!(
                "called from more than {MAX_CALLERS} places: calls from further ones have no end"
            ));
            return;
        }
        let file = binary.file();
        let mut at = Point::find(&file, offset);
        if at.skip > MAX_SKIP {
            at = Point::ENTRY;
        }
        let stepped = if at.stepped { STEPPED } else { 0 };
        let cookie = u64::from(at.skip) << SKIP | stepped | u64::from(at.lower) << 32;
        let probe = Probe { offset: offset + u64::from(at.skip), cookie, semaphore: 0 };
        match program.attach(&file, &[probe], only) {
            Ok(link) => {
                self.callers.insert((binary.id(), offset, only));
                match only {
                    Some(pid) => self.own.entry(pid).or_default().push(link),
                    None => self.links.push(link),
                }
            }
            Err(e) => self.note(format!("no probe behind a call in {}: {e}", binary.path)),
        }
    }

    fn note(&mut self, note: String) {
        if !self.notes.contains(&note) && self.notes.len() < 100 {
            self.notes.push(note);
        }
    }
}

fn begin_or_end(begins: bool) -> &'static str {
    if begins { "begin" } else { "end" }
}

fn set(of: usize, p: &GivenProbe, begins: bool, returns: bool) -> Set {
    let at = if p.entry { Point::find(&p.file, p.offset) } else { plain(&p.file, p.offset) };
    let flag = |is: bool, flag: u64| if is { flag } else { 0 };
    let framed = begins && p.entry;
    let cookie = of as u64
        | flag(framed, FRAMED)
        | flag(framed && returns, RETURNS)
        | p.call.map_or(0, of_call)
        | u64::from(p.kind & 15) << KIND_SHIFT
        | flag(at.stepped, STEPPED)
        | u64::from(at.lower) << 32;
    let probe = Probe { offset: p.offset + u64::from(at.skip), cookie, semaphore: p.semaphore };
    Set { begins, file: p.file.clone(), probe, shared: p.shared }
}

/// What of a cookie says what has to be so at a system call.
fn of_call(at: AtCall) -> u64 {
    let gave = match at.gave {
        None => 0,
        Some(Gave::Something) => RESULT,
        Some(Gave::NoError) => RESULT | NO_ERROR,
        Some(Gave::Anything) => RESULT | ANYTHING,
    };
    let waits = match at.waits {
        None => 0,
        Some(Waiting::Ring) => WAITS_FOR_RING,
        Some(Waiting::Futex) => WAITS_FOR_WORD,
    };
    gave | waits | if at.by_function { BY_FUNCTION } else { 0 }
}

/// At this very instruction.
fn plain(file: &Path, offset: u64) -> Point {
    let at = Point::find(file, offset);
    if at.skip == 0 { at } else { Point::ENTRY }
}
