//! Finds the flag that a spinning thread asks (Argus, section 5.3, does this by hand in a debugger): follow the
//! thread for a turn or two of its loop, find the branch that would leave the loop, and what its condition was
//! read from.

mod analyse;
mod meaning;
mod source;
pub(crate) mod stepper;
mod trace;

pub use source::Ground;
pub use stepper::{End, Limits, Stepper};

use super::FlagError;
use super::memory::{Area, areas, word};
use super::variables::{Binary, binaries, name_of};
use crate::procfs::{path_of, read_bounded, shown_by, threads_of};
use crate::stacks::StackTable;
use analyse::{Analysis, analyse};
use iced_x86::{Formatter, GasFormatter, Register};
use meaning::{Info, Local, Meaning};
use pg_event::Catalog;
use source::Source;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};
use trace::{Step, Trace};

/// Flags told, most likely first.
const MOST: usize = 5;
/// Copy of a stack, bytes.
const STACK: usize = 16 << 10;
/// Longest time for the names of functions.
const NAMES: Duration = Duration::from_secs(5);
/// Calls that fail with EINTR when their thread is stopped (signal(7)): epoll_wait, epoll_pwait, epoll_pwait2, msgrcv,
/// msgsnd, semop, semtimedop, pause, rt_sigtimedwait, rt_sigsuspend, io_getevents.
const FRAGILE: [u64; 11] = [232, 281, 441, 70, 69, 65, 220, 34, 128, 130, 208];

/// Whom to look at, and for how long.
#[derive(Clone, Copy, Debug)]
pub struct Ask {
    /// The process.
    pub pid: u32,
    /// The thread; `None`: the one that used the CPU most lately.
    pub tid: Option<u32>,
    /// Instructions to follow at most.
    pub steps: u32,
    /// How long the thread may sleep in between, in all.
    pub patience: Duration,
}

/// A flag that was found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FoundFlag {
    /// Its address.
    pub address: u64,
    /// Bytes that are read of it.
    pub len: u8,
    /// What is there now.
    pub value: Option<u64>,
    /// Its symbol, with offset; empty when there is none.
    pub symbol: String,
    /// What the source calls it, with the pointers that lead there.
    pub variable: Option<String>,
    /// Where that is declared: file and line.
    pub declared: Option<(String, u64)>,
    /// The mapping it lies in: a path, `[heap]`; empty without a name.
    pub mapping: String,
    /// In memory that other processes may share.
    pub shared: bool,
    /// What kind of memory it is.
    pub ground: Ground,
    /// The loop changes it itself: a counter rather than a flag.
    pub own: bool,
    /// It can be what the loop waits for.
    pub flag: bool,
    /// The branch that leaves the loop, as an instruction, and its address.
    pub branch: (String, u64),
    /// The instruction that reads the flag.
    pub load: (String, u64),
    /// Functions around the branch, innermost first: `wait_painted (shell)`.
    pub stack: Vec<String>,
    /// Source file and line of the branch.
    pub line: Option<(String, u32)>,
}

/// What was found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Found {
    /// The process.
    pub pid: u32,
    /// The thread.
    pub tid: u32,
    /// Its name.
    pub thread: String,
    /// Instructions followed.
    pub steps: usize,
    /// How long that took.
    pub took: Duration,
    /// How often the loop was gone round, at least; 0: no loop was seen.
    pub turns: u32,
    /// As those of a loop that only asks the turns are about equally long, and its way out depends on no data that it walks
    /// through.
    pub alike: bool,
    /// Most likely first.
    pub flags: Vec<FoundFlag>,
    /// Numbers of system calls whose results the loop asks.
    pub calls: Vec<u64>,
    /// Why following ended, when not since enough was seen.
    pub end: Option<End>,
}

impl Found {
    /// The flag, when one was found that somebody else can set.
    pub fn flag(&self) -> Option<&FoundFlag> {
        self.flags.first().filter(|f| f.flag)
    }
}

pub(crate) fn comm(pid: u32, tid: u32) -> String {
    let bytes = read_bounded(&path_of(pid, &format!("task/{tid}/comm")), 64).unwrap_or_default();
    crate::procfs::lossy(bytes.trim_ascii_end(), 64)
}

pub(crate) fn run_ns(pid: u32, tid: u32) -> u64 {
    let text = read_bounded(&path_of(pid, &format!("task/{tid}/schedstat")), 128).unwrap_or_default();
    String::from_utf8_lossy(&text).split(' ').next().and_then(|n| n.parse().ok()).unwrap_or(0)
}

/// Threads of a process, the one that used the CPU most lately first.
fn busiest(pid: u32) -> Vec<u32> {
    let before: Vec<(u32, u64)> = threads_of(pid).into_iter().map(|t| (t, run_ns(pid, t))).collect();
    std::thread::sleep(Duration::from_millis(100));
    let mut used: Vec<(u64, u32)> =
        before.into_iter().map(|(t, was)| (run_ns(pid, t).saturating_sub(was), t)).collect();
    used.sort_by_key(|u| (std::cmp::Reverse(u.0), u.1));
    used.into_iter().map(|u| u.1).collect()
}

/// Find the flag.
///
/// # Errors
/// The thread is not there, may not be traced, or sleeps in a call that must not be disturbed.
pub fn find(ask: &Ask) -> Result<Found, FlagError> {
    let Ask { pid, .. } = *ask;
    let threads = match ask.tid {
        Some(tid) => vec![tid],
        None => busiest(pid).into_iter().take(4).collect(),
    };
    let mut best: Option<Found> = None;
    for tid in &threads {
        let found = find_in(ask, *tid)?;
        // Without a thread named, one that computes is passed over: it asks nothing of others. What lies on its own
        // stack it may have from its callers.
        if found.alike && found.flag().is_some_and(|f| f.ground == Ground::Data) {
            return Ok(found);
        }
        if best.as_ref().is_none_or(|b| b.flag().is_none() && found.flag().is_some()) {
            best = Some(found);
        }
    }
    best.ok_or(FlagError::NoSuchProcess(pid))
}

/// Wait until the thread can be stopped without making a call of it fail.
pub(crate) fn until_fit(pid: u32, tid: u32, patience: Duration) -> Result<(), FlagError> {
    let begin = Instant::now();
    loop {
        let text = read_bounded(&path_of(pid, &format!("task/{tid}/syscall")), 512).map_err(|e| {
            let there = std::fs::exists(path_of(pid, "")).unwrap_or(true);
            if there && e.kind() == std::io::ErrorKind::NotFound {
                return FlagError::Process { pid, reason: format!("it has no thread {tid}") };
            }
            FlagError::of_process(pid, &e)
        })?;
        let call = String::from_utf8_lossy(&text).split(' ').next().and_then(|n| n.parse().ok());
        let Some(call) = call.filter(|c| FRAGILE.contains(c)) else { return Ok(()) };
        if begin.elapsed() > patience {
            return Err(FlagError::Refused {
                what: format!("stop thread {tid}"),
                reason: format!(
                    "it waits in {}, which would fail if the thread were stopped; a thread that waits there does not spin",
                    pg_event::syscall_name(call as u16).unwrap_or("a system call")
                ),
            });
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn ground_of(areas: &[Area]) -> impl Fn(u64, &Step) -> Ground {
    let area = |at: u64| {
        let i = areas.partition_point(|a| a.start <= at);
        i.checked_sub(1).map(|i| &areas[i]).filter(|a| a.has(at))
    };
    move |at, step| match area(at) {
        Some(a) if a.path.starts_with("[vvar") || a.path == "[vdso]" => Ground::Clock,
        // The red zone lies below the stack pointer.
        Some(a) if a.has(step.regs.sp) && at >= step.regs.sp.saturating_sub(128) => Ground::Stack,
        Some(a) if !a.writable && !a.shared => Ground::Constant,
        Some(_) => Ground::Data,
        None => Ground::Constant,
    }
}

/// Who traces a thread.
fn tracer_of(pid: u32, tid: u32) -> Option<u32> {
    let status = read_bounded(&path_of(pid, &format!("task/{tid}/status")), 8192).unwrap_or_default();
    String::from_utf8_lossy(&status)
        .lines()
        .find_map(|l| l.strip_prefix("TracerPid:")?.trim().parse::<u32>().ok())
        .filter(|t| *t != 0)
}

pub(crate) fn refused(pid: u32, tid: u32, errno: i32) -> FlagError {
    let reason = match tracer_of(pid, tid) {
        Some(t) => format!("process {t} traces it already (a debugger or strace): end that first"),
        None if errno == libc::EPERM => {
            "it is somebody else's, or kernel.yama.ptrace_scope forbids it: run it with \
                                         sudo"
                .to_owned()
        }
        None => std::io::Error::from_raw_os_error(errno).to_string(),
    };
    FlagError::Refused { what: format!("trace thread {tid}"), reason }
}

fn find_in(ask: &Ask, tid: u32) -> Result<Found, FlagError> {
    match follow(ask, tid) {
        // Who traced it a moment ago may have let go of it meanwhile.
        Err(FlagError::Refused { .. }) if tracer_of(ask.pid, tid).is_none() => follow(ask, tid),
        found => found,
    }
}

fn follow(ask: &Ask, tid: u32) -> Result<Found, FlagError> {
    let Ask { pid, steps, patience, .. } = *ask;
    until_fit(pid, tid, patience)?;
    let map = areas(pid)?;
    let ground = ground_of(&map);
    let mut stepper = Stepper::start(pid, tid, Limits { most: steps, patience, time: Duration::MAX })
        .map_err(|e| FlagError::Process { pid, reason: e.to_string() })?;
    let begin = Instant::now();
    let mut trace = Trace::default();
    let mut looked_at = 0;
    let end = loop {
        std::thread::sleep(Duration::from_millis(2));
        let end = stepper.end();
        while let Some(step) = stepper.step(trace.steps.len()) {
            trace.push(&step);
        }
        if let Some(end) = end {
            break Some(end);
        }
        if trace.steps.len() >= looked_at + looked_at / 4 + 100 {
            looked_at = trace.steps.len();
            if enough(&trace, &analyse(&trace, &ground)) {
                stepper.stop();
                break None;
            }
        }
    };
    let took = begin.elapsed();
    stepper.wait(Duration::from_secs(2));
    drop(stepper);
    if let Some((End::Refused, errno)) = end {
        return Err(refused(pid, tid, errno));
    }
    let analysis = analyse(&trace, &ground);
    let names = Names::new(pid);
    let flags = analysis.sources.iter().take(MOST).map(|s| names.flag(&trace, s, &map)).collect();
    Ok(Found {
        pid,
        tid,
        thread: comm(pid, tid),
        steps: trace.steps.len(),
        took,
        turns: analysis.turns,
        alike: analysis.alike,
        flags,
        calls: analysis.calls,
        end: end.map(|e| e.0).filter(|e| *e != End::Enough),
    })
}

/// Has a flag been found, and often enough?
fn enough(trace: &Trace, a: &Analysis) -> bool {
    let good = a.sources.first().is_some_and(|s| s.is_flag() && s.ground == Ground::Data);
    let n = trace.steps.len();
    good && (a.turns >= 3 && n >= 300 || a.turns >= 2 && n >= 600)
}

/// Names for what was found.
struct Names {
    pid: u32,
    binaries: Vec<Binary>,
}

fn dwarf_number(r: Register) -> Option<u16> {
    use Register as R;
    let all = [
        R::RAX,
        R::RDX,
        R::RCX,
        R::RBX,
        R::RSI,
        R::RDI,
        R::RBP,
        R::RSP,
        R::R8,
        R::R9,
        R::R10,
        R::R11,
        R::R12,
        R::R13,
        R::R14,
        R::R15,
    ];
    all.iter().position(|a| *a == r.full_register()).map(|n| n as u16)
}

fn show(step: &Step) -> (String, u64) {
    let mut text = String::new();
    let mut formatter = GasFormatter::new();
    let options = formatter.options_mut();
    options.set_uppercase_hex(false);
    options.set_branch_leading_zeros(false);
    formatter.format(&step.instruction, &mut text);
    (text, step.regs.ip)
}

impl Names {
    fn new(pid: u32) -> Self {
        Self { pid, binaries: binaries(pid).unwrap_or_default() }
    }

    fn binary(&self, address: u64) -> Option<&Binary> {
        self.binaries.iter().find(|b| b.has(address))
    }

    fn flag(&self, trace: &Trace, s: &Source, map: &[Area]) -> FoundFlag {
        let area = map.iter().find(|a| a.has(s.address));
        let symbol = name_of(self.pid, s.address).map_or_else(String::new, |(v, offset)| {
            if offset == 0 { v.name } else { format!("{}+0x{offset:x}", v.name) }
        });
        let meaning = self.meaning(trace, s);
        let (stack, line) = self.stack(&trace.steps[s.branch]);
        FoundFlag {
            address: s.address,
            len: s.size,
            value: word(self.pid, s.address, s.size),
            symbol,
            variable: meaning.as_ref().map(|m| m.expression.clone()),
            declared: meaning.and_then(|m| m.declared),
            mapping: area.map_or_else(String::new, |a| crate::procfs::lossy(a.path.as_bytes(), 4096)),
            shared: area.is_some_and(|a| a.shared),
            ground: s.ground,
            own: s.own,
            flag: s.is_flag(),
            branch: show(&trace.steps[s.branch]),
            load: show(&trace.steps[s.load]),
            stack,
            line,
        }
    }

    /// What the source calls it: a variable, or a member behind a pointer in one.
    fn meaning(&self, trace: &Trace, s: &Source) -> Option<Meaning> {
        if let Some(b) = self.binary(s.address) {
            return Info::of(b)?.global(s.address.wrapping_sub(b.bias));
        }
        if let Some((at, behind)) = s.pointer
            && let Some(b) = self.binary(at)
        {
            return Info::of(b)?.behind_global(at.wrapping_sub(b.bias), behind);
        }
        let load = &trace.steps[s.load];
        let code = self.binary(load.regs.ip)?;
        let info = Info::of(code)?;
        let pc = load.regs.ip.wrapping_sub(code.bias);
        // Functions that keep a frame pointer: the frame's address lies 16 bytes above where it points to.
        let frame = |at: u64| Some(at.wrapping_sub(load.regs.bp.wrapping_add(16)) as i64);
        if let Some((at, behind)) = s.pointer
            && let Some(m) = info.local(Local { pc, register: None, frame: frame(at) }, Some(behind))
        {
            return Some(m);
        }
        let base = load.instruction.memory_base();
        // The stack pointer is no variable; the frame pointer may be one in optimised code.
        if let Some(register) = dwarf_number(base).filter(|n| *n != 7)
            && let Some(pointer) = load.register(base)
        {
            let behind = s.address.wrapping_sub(pointer) as i64;
            let local = Local { pc, register: Some(register), frame: None };
            let found = info.local(local, Some(behind)).or_else(|| self.global_pointer(pointer, behind));
            if found.is_some() {
                return found;
            }
        }
        info.local(Local { pc, register: None, frame: frame(s.address) }, None)
    }

    /// What lies behind a global variable of the program that holds this pointer: optimised code loads it long before
    /// the loop, and debug information often no longer tells from where.
    fn global_pointer(&self, pointer: u64, behind: i64) -> Option<Meaning> {
        let program = self.binaries.first()?;
        let at = program.variables(8).into_iter().find(|v| word(self.pid, v.address, 8) == Some(pointer))?;
        Info::of(program)?.behind_global(at.address.wrapping_sub(program.bias), behind)
    }

    /// Functions around an instruction, and its line.
    fn stack(&self, step: &Step) -> (Vec<String>, Option<(String, u32)>) {
        let mut copy = vec![0; STACK];
        let read = std::fs::File::open(path_of(shown_by(self.pid), "mem"))
            .and_then(|f| f.read_at(&mut copy, step.regs.sp))
            .unwrap_or(0);
        copy.truncate(read);
        let mut table = StackTable::new();
        let id = table.user(self.pid, &step.regs, &copy);
        let mut catalog = Catalog::default();
        catalog.apply(table.drain());
        catalog.apply(table.symbolize_some(NAMES));
        let line = catalog.frames_of(id).next().filter(|f| f.line > 0).map(|f| (f.file.clone(), f.line));
        (catalog.show_stack(id), line)
    }
}
