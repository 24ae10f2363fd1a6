//! The catalogue: everything that events refer to by id, kept apart from the rolling events so that
//! identities survive when events are dropped or overwritten.

use crate::lookup::Lookup;
use crate::{
    FrameId, MAX_UNIT_TYPES, ModuleId, Ns, Object, ObjectId, ProcessId, Scheduling, StackId, ThreadId, Trace,
    TraceId, UnitTypeId, UnitTypeRow, bounded,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One thread.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Thread {
    /// Thread id in the initial pid namespace.
    pub tid: u32,
    /// Thread id in its own pid namespace (as its user knows it).
    pub ns_tid: u32,
    /// Its process.
    pub process: ProcessId,
    /// The thread's name (comm), the latest seen. Untrusted bytes, made valid UTF-8.
    pub name: String,
    /// When it began; 0 when it began before the recording.
    pub start: Ns,
    /// When it ended, if it did while recorded.
    pub end: Option<Ns>,
    /// A kernel thread.
    pub kernel: bool,
    /// Belongs to the recorder itself: never a cause.
    pub own: bool,
    /// Within the focus of the recording.
    pub focus: bool,
    /// How it is scheduled, as seen last; `None` as usual, or not known.
    pub scheduling: Option<Scheduling>,
}

/// A command line and since when the process had it.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Cmdline {
    /// From this time on.
    pub time: Ns,
    /// argv joined by spaces. Untrusted.
    pub text: String,
}

/// One process (thread group).
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Process {
    /// Process id in the initial pid namespace.
    pub pid: u32,
    /// Process id in its own pid namespace.
    pub ns_pid: u32,
    /// The process that created it (or adopted it before the recording).
    pub parent: ProcessId,
    /// Name of its main thread, the latest seen.
    pub name: String,
    /// Path of the executable, empty if unknown.
    pub exe: String,
    /// Command lines in order of time: after each exec, and as rewritten later.
    pub cmdlines: Vec<Cmdline>,
    /// Path of its cgroup, empty if unknown.
    pub cgroup: String,
    /// Container it runs in, short id, empty if none.
    pub container: String,
    /// User id.
    pub uid: u32,
    /// When it began; 0 when it began before the recording.
    pub start: Ns,
    /// How long it had lived when the recording began, in steps of 10 ms; 0 when it began later, or that is not known.
    pub age: Ns,
    /// When it ended, if it did while recorded.
    pub end: Option<Ns>,
    /// Exit status as of wait(2) (`code << 8 | signal`), when it ended.
    pub exit_status: Option<u32>,
    /// A kernel thread's process.
    pub kernel: bool,
    /// The recorder itself.
    pub own: bool,
    /// Within the focus.
    pub focus: bool,
}

impl Process {
    /// Latest command line, or the name when there is none.
    pub fn cmdline(&self) -> &str {
        self.cmdlines.last().map_or("", |c| c.text.as_str())
    }
}

/// A call stack: frames, the leaf first.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Stack {
    /// Leaf first, outermost last.
    pub frames: Vec<FrameId>,
    /// A kernel stack.
    pub kernel: bool,
    /// Unwinding stopped before the outermost frame (copy too short, no unwind rows, ...).
    pub truncated: bool,
}

/// Name of the place to which the handlers of signals return ([`Frame::function`]): the functions above it in a stack are a
/// handler's, those below were interrupted.
pub const SIGNAL_RETURN: &str = "__restore_rt";

/// What the loop of machine code around a place does in a turn, where that was looked into: of places where threads were
/// found again and again.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
pub enum LoopTurn {
    /// The code does not tell.
    #[default]
    Unknown,
    /// A turn begins with what the one before has changed: it computes.
    Works,
    /// All turns are alike until somebody else changes what it reads: it asks. The variables that it reads, as far as the
    /// code names them.
    Asks(#[serde(deserialize_with = "bounded::sequence::<MAX_ASKED, _, _>")] Vec<String>),
    /// Nothing in it leads out.
    Endless,
}

/// The innermost frames of a stack in which the loop is looked for that a thread is in.
pub const LOOP_FRAMES: usize = 4;
/// Most variables of a [`LoopTurn::Asks`] that are read.
const MAX_ASKED: usize = 64;

/// A place in a module.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Frame {
    /// The module, [`ModuleId::NONE`] when no mapping covers the address.
    pub module: ModuleId,
    /// Virtual address within the module as its ELF file counts (for symbolising later), the
    /// absolute address when the module is unknown, the kernel or a perf-map.
    pub address: u64,
    /// Demangled function name, empty when not (yet) symbolised.
    pub function: String,
    /// Offset of the address within the function: also within one without a name, where unwind tables tell its begin.
    pub offset: u32,
    /// Source file, empty if unknown.
    pub file: String,
    /// Source line, 0 if unknown.
    pub line: u32,
    /// Names of functions inlined at this address, innermost first.
    pub inlined: Vec<String>,
}

impl Frame {
    /// Names of the functions at this address, the innermost first.
    pub fn names(&self) -> impl Iterator<Item = &String> {
        self.inlined.iter().chain([&self.function])
    }

    /// Where the function begins; the address itself where that is not known.
    pub fn entry(&self) -> u64 {
        self.address.saturating_sub(self.offset.into())
    }
}

/// What a [`Module`] is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
pub enum ModuleKind {
    /// An ELF file.
    #[default]
    Elf,
    /// The kernel or one of its modules.
    Kernel,
    /// The vdso.
    Vdso,
    /// Code of a just-in-time compiler, named by a perf-map file.
    PerfMap,
    /// Executable memory that nothing names.
    Anonymous,
    /// A file of Python code; addresses within it are lines.
    Python,
}

/// A binary that frames lie in.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Module {
    /// What it is.
    pub kind: ModuleKind,
    /// Path as the process saw it.
    pub path: String,
    /// GNU build-id in hexadecimal, empty if none.
    pub build_id: String,
}

impl Module {
    /// Last component of the path: what stacks show. Of Python's libraries, what follows their folder: `requests/api.py`,
    /// and of its own, with that: `python3.11/threading.py`.
    pub fn short(&self) -> &str {
        match self.kind {
            ModuleKind::Kernel => "[kernel]",
            ModuleKind::Vdso => "[vdso]",
            ModuleKind::PerfMap => "[jit]",
            ModuleKind::Anonymous => "[unknown]",
            ModuleKind::Python => python_file(&self.path),
            ModuleKind::Elf => self.last(),
        }
    }

    fn last(&self) -> &str {
        self.path.rsplit('/').next().filter(|s| !s.is_empty()).unwrap_or("[unknown]")
    }
}

/// A path of Python code without what is the same for all.
fn python_file(path: &str) -> &str {
    for folder in ["/site-packages/", "/dist-packages/"] {
        if let Some((_, rest)) = path.rsplit_once(folder) {
            return rest;
        }
    }
    let own = path.match_indices("/python3.").find_map(|(i, _)| {
        let from = &path[i + 1..];
        let (folder, file) = from.split_once('/')?;
        let digits = folder.strip_prefix("python3.")?;
        (!digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()) && !file.is_empty()).then_some(from)
    });
    own.or_else(|| path.rsplit('/').next().filter(|s| !s.is_empty())).unwrap_or("[python]")
}

/// All tables of a recording. Indexing by id is dense; a missing id yields `None`.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Catalog {
    /// By [`ThreadId`].
    pub threads: Vec<Thread>,
    /// By [`ProcessId`].
    pub processes: Vec<Process>,
    /// By [`ObjectId`].
    pub objects: Vec<Object>,
    /// By [`StackId`].
    pub stacks: Vec<Stack>,
    /// By [`FrameId`].
    pub frames: Vec<Frame>,
    /// By [`ModuleId`].
    pub modules: Vec<Module>,
    /// By [`UnitTypeId`].
    #[serde(deserialize_with = "bounded::sequence::<MAX_UNIT_TYPES, _, _>")]
    pub unit_types: Vec<UnitTypeRow>,
    /// What loops do, in the order of the places in them.
    pub turns: BTreeMap<FrameId, LoopTurn>,
    /// By [`TraceId`]. Not part of the serialised form: whoever keeps traces has a form of their own for them.
    #[serde(skip)]
    pub traces: Vec<Trace>,
    /// Keys of the rows, see [`Lookup`].
    #[serde(skip)]
    pub lookup: Lookup,
}

/// Rows that no later event refers to: who keeps only the last while of a recording can let them go along with
/// the events that did.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Forgotten {
    /// Threads.
    pub threads: Vec<ThreadId>,
    /// Processes.
    pub processes: Vec<ProcessId>,
    /// Objects.
    pub objects: Vec<ObjectId>,
    /// Stacks.
    pub stacks: Vec<StackId>,
    /// Frames.
    pub frames: Vec<FrameId>,
}

impl Forgotten {
    /// Nothing in it?
    pub fn is_empty(&self) -> bool {
        self.threads.is_empty()
            && self.processes.is_empty()
            && self.objects.is_empty()
            && self.stacks.is_empty()
            && self.frames.is_empty()
    }
}

/// New or changed rows of a catalogue: what travels between collector, file and graph.
/// Rows are upserts; a row may appear again with more known of it (a name, an end, a symbol).
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct CatalogDelta {
    /// Threads.
    pub threads: Vec<(ThreadId, Thread)>,
    /// Processes.
    pub processes: Vec<(ProcessId, Process)>,
    /// Objects.
    pub objects: Vec<(ObjectId, Object)>,
    /// Stacks.
    pub stacks: Vec<(StackId, Stack)>,
    /// Frames.
    pub frames: Vec<(FrameId, Frame)>,
    /// Modules.
    pub modules: Vec<(ModuleId, Module)>,
    /// Types of units of work. A profile has few of them; none is ever forgotten.
    #[serde(deserialize_with = "bounded::sequence::<MAX_UNIT_TYPES, _, _>")]
    pub unit_types: Vec<(UnitTypeId, UnitTypeRow)>,
    /// What the loops around these places do.
    pub turns: Vec<(FrameId, LoopTurn)>,
    /// Traces; left out when serialised, as in [`Catalog`].
    #[serde(skip)]
    pub traces: Vec<(TraceId, Trace)>,
    /// Rows that the source will not name again. A whole recording keeps them.
    #[serde(skip)]
    pub forgotten: Forgotten,
}

/// All rows of a catalogue.
impl From<Catalog> for CatalogDelta {
    fn from(all: Catalog) -> Self {
        fn rows<I, T>(all: Vec<T>, id: impl Fn(u32) -> I) -> Vec<(I, T)> {
            all.into_iter().enumerate().map(|(i, row)| (id(i as u32), row)).collect()
        }
        Self {
            threads: rows(all.threads, ThreadId),
            processes: rows(all.processes, ProcessId),
            objects: rows(all.objects, ObjectId),
            stacks: rows(all.stacks, StackId),
            frames: rows(all.frames, FrameId),
            modules: rows(all.modules, ModuleId),
            unit_types: rows(all.unit_types, UnitTypeId),
            turns: all.turns.into_iter().collect(),
            traces: rows(all.traces, TraceId),
            forgotten: Forgotten::default(),
        }
    }
}

impl CatalogDelta {
    /// Nothing in it?
    pub fn is_empty(&self) -> bool {
        self.threads.is_empty()
            && self.processes.is_empty()
            && self.objects.is_empty()
            && self.stacks.is_empty()
            && self.frames.is_empty()
            && self.modules.is_empty()
            && self.unit_types.is_empty()
            && self.turns.is_empty()
            && self.traces.is_empty()
            && self.forgotten.is_empty()
    }
}

/// Most rows a table may have: a hostile delta cannot make [`Catalog::apply`] allocate without bound.
const MAX_ROWS: usize = 64 << 20;

fn upsert<T: Clone>(table: &mut Vec<T>, rows: Vec<(usize, T)>, most: usize, blank: impl Fn() -> T) -> usize {
    let mut refused = 0;
    for (i, row) in rows {
        // A row far past the end is damage: ids are dense. Gaps of lost deltas stay bounded.
        if i >= most || i > table.len() + (1 << 20) {
            refused += 1;
            continue;
        }
        if i >= table.len() {
            table.resize_with(i + 1, &blank);
        }
        table[i] = row;
    }
    refused
}

impl Catalog {
    /// Take over a delta. Returns how many rows were refused because their id makes no sense.
    pub fn apply(&mut self, d: CatalogDelta) -> usize {
        fn rows<I, T>(v: Vec<(I, T)>, f: impl Fn(I) -> usize) -> Vec<(usize, T)> {
            v.into_iter().map(|(i, t)| (f(i), t)).collect()
        }
        self.lookup = Lookup::default();
        self.turns.extend(d.turns);
        let blank_object = || Object::new(crate::ObjectKind::Unknown, 0, 0);
        upsert(&mut self.threads, rows(d.threads, ThreadId::index), MAX_ROWS, Thread::default)
            + upsert(&mut self.processes, rows(d.processes, ProcessId::index), MAX_ROWS, Process::default)
            + upsert(&mut self.objects, rows(d.objects, ObjectId::index), MAX_ROWS, blank_object)
            + upsert(&mut self.stacks, rows(d.stacks, StackId::index), MAX_ROWS, Stack::default)
            + upsert(&mut self.frames, rows(d.frames, FrameId::index), MAX_ROWS, Frame::default)
            + upsert(&mut self.modules, rows(d.modules, ModuleId::index), MAX_ROWS, Module::default)
            + upsert(&mut self.traces, rows(d.traces, TraceId::index), MAX_ROWS, Trace::default)
            + upsert(
                &mut self.unit_types,
                rows(d.unit_types, UnitTypeId::index),
                MAX_UNIT_TYPES,
                UnitTypeRow::default,
            )
    }

    /// The thread, if the id is in the table.
    pub fn thread(&self, id: ThreadId) -> Option<&Thread> {
        self.threads.get(id.index())
    }

    /// The process, if the id is in the table.
    pub fn process(&self, id: ProcessId) -> Option<&Process> {
        self.processes.get(id.index())
    }

    /// Which process a thread is of, if its id is in the table.
    pub fn process_id_of(&self, id: ThreadId) -> Option<ProcessId> {
        self.thread(id).map(|t| t.process)
    }

    /// The row of that process.
    pub fn process_of(&self, id: ThreadId) -> Option<&Process> {
        self.process(self.thread(id)?.process)
    }

    /// Is it the first thread of its process, the one that `main` runs in?
    pub fn is_first(&self, id: ThreadId) -> bool {
        self.thread(id).zip(self.process_of(id)).is_some_and(|(t, p)| t.tid == p.pid)
    }

    /// The object, if the id is in the table.
    pub fn object(&self, id: ObjectId) -> Option<&Object> {
        self.objects.get(id.index())
    }

    /// The stack, if the id is in the table.
    pub fn stack(&self, id: StackId) -> Option<&Stack> {
        self.stacks.get(id.index())
    }

    /// The trace, if the id is in the table.
    pub fn trace(&self, id: TraceId) -> Option<&Trace> {
        self.traces.get(id.index())
    }

    /// The type of units, if the id is in the table and stands for one.
    pub fn unit_type(&self, id: UnitTypeId) -> Option<&UnitTypeRow> {
        self.unit_row(id).filter(|t| t.unknown.is_empty())
    }

    /// Its row, if the id is in the table: that of a type, or of units of no known one.
    pub fn unit_row(&self, id: UnitTypeId) -> Option<&UnitTypeRow> {
        self.unit_types.get(id.index())
    }

    /// Why the type of units is not known, where the id stands for that.
    pub fn why_unknown(&self, id: UnitTypeId) -> Option<&str> {
        self.unit_row(id).map(|t| t.unknown.as_str()).filter(|why| !why.is_empty())
    }

    /// What the loop does that the innermost place of a stack is in, or that calls the small functions which that is in;
    /// and which frame of the stack has it.
    pub fn turn_of(&self, id: StackId) -> (&LoopTurn, usize) {
        let inner = self.stack(id).into_iter().flat_map(|s| s.frames.iter().take(LOOP_FRAMES).enumerate());
        let mut known = inner.filter_map(|(i, f)| Some((self.turns.get(f)?, i)));
        known.find(|t| *t.0 != LoopTurn::Unknown).unwrap_or((&LoopTurn::Unknown, 0))
    }

    /// The frames of a stack, leaf first.
    pub fn frames_of(&self, id: StackId) -> impl Iterator<Item = &Frame> {
        self.stack(id).into_iter().flat_map(|s| &s.frames).filter_map(|f| self.frames.get(f.index()))
    }

    /// Text of a frame as the contract has it: `function (module)`; inlined functions are not listed. A Python
    /// function is shown as `function (file:line)`, a place in one without a name as `0xADDRESS (module)`.
    pub fn show_frame(&self, f: &Frame) -> String {
        let module = self.modules.get(f.module.index());
        let short = module.map_or("[unknown]", Module::short);
        if module.is_some_and(|m| m.kind == ModuleKind::Python) && !f.function.is_empty() {
            format!("{} ({short}:{})", f.function, f.line)
        } else if f.function.is_empty() {
            format!("{:#x} ({short})", f.address)
        } else {
            format!("{} ({short})", f.function)
        }
    }

    /// Text of a frame's function: as [`Self::show_frame`], but one without a name is the same wherever in it the frame is.
    pub fn show_function(&self, f: &Frame) -> String {
        if f.function.is_empty() {
            self.show_frame(&Frame { module: f.module, address: f.entry(), ..Frame::default() })
        } else {
            self.show_frame(f)
        }
    }

    /// Texts of all frames of a stack, leaf first; inlined functions are frames of their own.
    pub fn show_stack(&self, id: StackId) -> Vec<String> {
        self.show_by(id, Self::show_frame)
    }

    /// The same of the functions.
    pub fn show_functions(&self, id: StackId) -> Vec<String> {
        self.show_by(id, Self::show_function)
    }

    fn show_by(&self, id: StackId, show: impl Fn(&Self, &Frame) -> String) -> Vec<String> {
        let mut out = Vec::new();
        for f in self.frames_of(id) {
            let short = self.modules.get(f.module.index()).map_or("[unknown]", Module::short);
            out.extend(f.inlined.iter().map(|name| format!("{name} ({short})")));
            out.push(show(self, f));
        }
        out
    }

    /// Where in [`Self::show_stack`] the function of a stack's frame stands: the texts before it are inside of it, with
    /// those inlined into it.
    pub fn shown_at(&self, id: StackId, frame: usize) -> usize {
        let inlined = self.frames_of(id).take(frame.saturating_add(1)).map(|f| f.inlined.len());
        frame.saturating_add(inlined.sum())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inlined_functions_count_where_frames_are_shown() {
        let frame = |inlined: &[&str]| Frame {
            function: "f".into(),
            inlined: inlined.iter().map(|&i| i.into()).collect(),
            ..Frame::default()
        };
        let catalog = Catalog {
            modules: vec![Module::default()],
            frames: [frame(&["a", "b"]), frame(&[]), frame(&["c"])]
                .map(|f| Frame { module: ModuleId(0), ..f })
                .into(),
            stacks: vec![Stack { frames: [0, 1, 2].map(FrameId).into(), ..Stack::default() }],
            ..Catalog::default()
        };
        let shown = catalog.show_stack(StackId(0));
        assert_eq!((shown.len(), [0, 1, 2].map(|i| catalog.shown_at(StackId(0), i))), (6, [2, 3, 5]));
        assert!([2, 3, 5].iter().all(|&i| shown[i].starts_with("f (")), "{shown:?}");
        assert_eq!(catalog.shown_at(StackId::NONE, 4), 4);
    }

    #[test]
    fn python_files_are_shown_by_what_tells_them_apart() {
        let cases = [
            ("/srv/app/jobs.py", "jobs.py"),
            ("/usr/lib/python3.11/asyncio/base_events.py", "python3.11/asyncio/base_events.py"),
            ("/v/lib/python3.9/site-packages/requests/api.py", "requests/api.py"),
            ("/usr/lib/python3/dist-packages/apt/cache.py", "apt/cache.py"),
            ("/home/u/python3.x/a.py", "a.py"),
            ("<string>", "<string>"),
            ("", "[python]"),
        ];
        for (path, short) in cases {
            let m = Module { kind: ModuleKind::Python, path: path.into(), build_id: String::new() };
            assert_eq!(m.short(), short);
        }
    }

    #[test]
    fn python_functions_are_shown_with_their_line() {
        let m = Module { kind: ModuleKind::Python, path: "/srv/jobs.py".into(), build_id: String::new() };
        let c = Catalog { modules: vec![m], ..Catalog::default() };
        let f = Frame { module: ModuleId(0), function: "Job.run".into(), line: 7, ..Frame::default() };
        assert_eq!(c.show_frame(&f), "Job.run (jobs.py:7)");
    }
}
