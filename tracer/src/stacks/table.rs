//! The table of stacks: what the collector calls.

use super::cfi::Row;
use super::module::{Modules, file_address};
use super::python::Pythons;
use super::regs::{FrameRegs, Regs};
use super::room::Room;
use super::space::Spaces;
use super::symbol::Symbols;
use super::unwind::{Code, Place, Step, walk};
use crate::collector::hash::{FastHash, FastMap};
use gimli::UnwindContext;
use pg_event::{CatalogDelta, Frame, FrameId, ModuleId, ModuleKind, Stack, StackId};
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;

/// Most rows cached before the cache begins anew (about 60 bytes each).
const MAX_ROWS: usize = 1 << 18;
/// Most different rows of those; real programs share a few thousand.
const MAX_DISTINCT: usize = 1 << 16;
/// Most different frames of a recording.
const MAX_FRAMES: usize = 8 << 20;
/// Most frames of compiled code that wait for a name.
const MAX_NAMELESS: usize = 4096;
/// Most frames in all different stacks together.
const MAX_STACKED: usize = 64 << 20;

/// How much of the stacks is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Coverage {
    /// Different user and kernel stacks that reach their outermost frame.
    pub stacks_complete: usize,
    /// All different stacks.
    pub stacks_total: usize,
    /// Different frames with a function name.
    pub symbols_resolved: usize,
    /// All different frames.
    pub symbols_total: usize,
}

/// One frame of a user stack with its registers, for reading variables.
#[derive(Clone, Debug)]
pub struct UserFrame {
    /// Absolute address: exact in the leaf, else that of the calling instruction's last byte.
    pub address: u64,
    /// The frame in the catalogue.
    pub frame: FrameId,
    /// Registers as far as they could be recovered.
    pub regs: FrameRegs,
}

/// Row cache: row numbers by place. The same rows recur all over a binary.
#[derive(Default)]
struct Rows {
    by_place: FastMap<(u32, u64), Option<Arc<Row>>>,
    distinct: HashSet<Arc<Row>, FastHash>,
    context: UnwindContext<usize>,
}

impl Rows {
    fn get(&mut self, modules: &mut Modules, place: Place) -> Option<Arc<Row>> {
        let key = (place.module, place.address);
        if let Some(row) = self.by_place.get(&key) {
            return row.clone();
        }
        let row = modules.cfi(place.module)?.row(&mut self.context, place.address).map(|row| {
            if let Some(same) = self.distinct.get(&row) {
                return same.clone();
            }
            let row = Arc::new(row);
            self.distinct.insert(row.clone());
            row
        });
        if self.by_place.len() >= MAX_ROWS || self.distinct.len() >= MAX_DISTINCT {
            self.by_place.clear();
            self.distinct.clear();
        }
        self.by_place.insert(key, row.clone());
        row
    }
}

/// The code of one process at one time.
struct Process<'a> {
    spaces: &'a mut Spaces,
    modules: &'a mut Modules,
    rows: &'a mut Rows,
    pid: u32,
    now: Instant,
}

impl Code for Process<'_> {
    fn place(&mut self, address: u64) -> Option<Place> {
        let m = self.spaces.find(self.modules, self.pid, address, self.now)?;
        let entry = self.modules.entries.get(m.module as usize)?;
        if entry.row.kind == ModuleKind::Anonymous
            && let Some(map) = self.spaces.perf_map(self.pid, address, self.now)
        {
            return Some(Place { module: self.modules.perf_map(self.pid, &map.path), address });
        }
        Some(Place { module: m.module, address: file_address(entry, m.start, m.offset, address) })
    }

    fn row(&mut self, place: Place) -> Option<Arc<Row>> {
        self.rows.get(self.modules, place)
    }
}

/// What is kept of a frame once it was handed over.
#[derive(Clone, Copy)]
pub(super) struct Known {
    pub module: u32,
    pub id: ModuleId,
    pub address: u64,
}

/// Module number of frames outside of all known code.
const NOWHERE: u32 = u32::MAX;

/// All stacks of a recording: unwinds, tells equal ones, and names their frames.
///
/// Cost, measured with optimisation on two cores of a virtual server: 0.14 µs a frame once the rows of a
/// place are cached, 0.7 ms for the first stack of a new program with one library. The test `speed` prints
/// the figures of a machine.
#[derive(Default)]
pub struct StackTable {
    pub(super) spaces: Spaces,
    pub(super) modules: Modules,
    rows: Rows,
    pub(super) symbols: Symbols,
    pub(super) frames: FastMap<FrameId, Known>,
    pub(super) frame_ids: FastMap<(u32, u64), FrameId>,
    pub(super) stack_ids: FastMap<Arc<Stack>, StackId>,
    pub(super) by_id: FastMap<StackId, Arc<Stack>>,
    /// Ids given so far: they are never given twice.
    given: (u32, u32),
    pub(super) room: Room,
    pub(super) pythons: Pythons,
    new: CatalogDelta,
    /// Frames not yet given to the symboliser.
    pub(super) unnamed: Vec<FrameId>,
    /// Places that threads were found at again and again, and those of them whose loops were not asked about yet.
    pub(super) looped: HashSet<FrameId>,
    pub(super) unlooked: Vec<FrameId>,
    /// Frames in code of a just-in-time compiler, with process and address, that the perf-map did not name yet.
    pub(super) nameless: Vec<(FrameId, u32, u64, Instant)>,
    modules_given: u32,
    /// Frames in all stacks, and whether some were refused.
    pub(super) stacked: usize,
    full: bool,
    pub(super) coverage: Coverage,
    steps: Vec<Step>,
}

impl StackTable {
    /// An empty table. Starts no thread until the first symbol is asked for.
    pub fn new() -> Self {
        Self::default()
    }

    /// A user stack: registers of the thread and `copy`, the bytes from its stack pointer upward.
    /// [`StackId::NONE`] when the table is full (64 million frames in different stacks).
    pub fn user(&mut self, pid: u32, regs: &Regs, copy: &[u8]) -> StackId {
        let (steps, complete) = self.walk(pid, regs, copy);
        let now = Instant::now();
        let frames = steps.iter().map(|s| self.frame(pid, s, now)).collect();
        self.steps = steps;
        let stack = Stack { frames, kernel: false, truncated: !complete };
        self.insert_stack(stack, !copy.is_empty())
    }

    /// The user stack of a thread whose callers cannot be found: the place where it is.
    pub fn leaf(&mut self, pid: u32, regs: &Regs) -> StackId {
        // Without a copy of the stack nothing can be followed.
        let (steps, _) = self.walk(pid, &Regs { bp: 0, ..*regs }, &[]);
        let now = Instant::now();
        let frames = steps.iter().take(1).map(|s| self.frame(pid, s, now)).collect();
        self.steps = steps;
        self.stack(Stack { frames, kernel: false, truncated: true })
    }

    /// As [`Self::user`], but gives the frames with the registers that each had, the leaf first, and
    /// whether the outermost frame was reached.
    pub fn unwind(&mut self, pid: u32, regs: &Regs, copy: &[u8]) -> (Vec<UserFrame>, bool) {
        let (steps, complete) = self.walk(pid, regs, copy);
        let now = Instant::now();
        let frames = steps
            .iter()
            .map(|s| UserFrame { address: s.address, frame: self.frame(pid, s, now), regs: s.regs })
            .collect();
        self.steps = steps;
        (frames, complete)
    }

    /// The id of a stack that [`Self::unwind`] gave.
    pub fn keep(&mut self, frames: &[UserFrame], complete: bool) -> StackId {
        let frames = frames.iter().map(|f| f.frame).collect();
        self.stack(Stack { frames, kernel: false, truncated: !complete })
    }

    /// Frames for addresses of instructions in a process.
    pub fn places(&mut self, pid: u32, addresses: &[u64]) -> Vec<FrameId> {
        let now = Instant::now();
        let mut of = |address| {
            let mut code = Process {
                spaces: &mut self.spaces,
                modules: &mut self.modules,
                rows: &mut self.rows,
                pid,
                now,
            };
            let place = code.place(address);
            self.frame(pid, &Step { address, place, regs: FrameRegs::default() }, now)
        };
        addresses.iter().map(|a| of(*a)).collect()
    }

    /// A user stack that somebody else has unwound: addresses in the process as [`UserFrame`] has them, the leaf first.
    pub fn at(&mut self, pid: u32, addresses: &[u64]) -> StackId {
        let frames = self.places(pid, addresses);
        self.stack(Stack { frames, kernel: false, truncated: false })
    }

    fn walk(&mut self, pid: u32, regs: &Regs, copy: &[u8]) -> (Vec<Step>, bool) {
        let mut steps = std::mem::take(&mut self.steps);
        let mut code = Process {
            spaces: &mut self.spaces,
            modules: &mut self.modules,
            rows: &mut self.rows,
            pid,
            now: Instant::now(),
        };
        let complete = walk(&mut code, regs, copy, &mut steps);
        (steps, complete)
    }

    /// A kernel stack: addresses as BPF or perf give them, the leaf first; the callers' are return
    /// addresses. Zeros at the end are not part of it.
    pub fn kernel(&mut self, addrs: &[u64]) -> StackId {
        let module = self.modules.kernel();
        let frames = addrs
            .iter()
            .take_while(|&&a| a != 0)
            .enumerate()
            .map(|(i, &a)| self.intern(module, if i == 0 { a } else { a.wrapping_sub(1) }))
            .collect();
        self.stack(Stack { frames, kernel: true, truncated: false })
    }

    /// The process replaced its program (execve): what is known of its memory no longer holds.
    pub fn exec(&mut self, pid: u32) {
        self.spaces.exec(pid);
        self.pythons.forget(pid);
    }

    /// The process was created by another and shares its memory map until it execs.
    pub fn fork(&mut self, parent: u32, child: u32) {
        self.spaces.fork(parent, child);
        self.pythons.forget(child);
    }

    /// A thread of the process ended, its `first` one or another. When it was the last one, the memory map is kept for
    /// records that come late. `others`: the first one may not have been the last.
    pub fn exit(&mut self, pid: u32, first: bool, others: bool) {
        self.spaces.exit(pid, first, others);
        if first {
            self.pythons.forget(pid);
        }
    }

    /// New stacks, frames and modules since the last call. Functions are empty except for code named by
    /// a perf-map; they come from [`Self::symbolize_some`].
    pub fn drain(&mut self) -> CatalogDelta {
        std::mem::take(&mut self.new)
    }

    /// How much of the stacks is known so far.
    pub fn coverage(&self) -> Coverage {
        self.coverage
    }

    /// What the user should know of missing symbols: one sentence each.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = self.symbols.notes();
        notes.extend(self.pythons.notes());
        if self.full {
            notes.push(
                "there were more different stacks than are kept; later new ones are missing".to_owned(),
            );
        }
        if self.modules.is_full() {
            notes.push(
                "there were more different programs and libraries than are kept; functions of later ones have no names"
                    .to_owned(),
            );
        }
        notes
    }

    fn frame(&mut self, pid: u32, step: &Step, now: Instant) -> FrameId {
        let Some(place) = step.place else { return self.intern(NOWHERE, step.address) };
        if let Some(&id) = self.frame_ids.get(&(place.module, place.address)) {
            return id;
        }
        let jit = self
            .modules
            .entries
            .get(place.module as usize)
            .is_some_and(|e| e.row.kind == ModuleKind::PerfMap);
        let map = if jit { self.spaces.perf_map(pid, step.address, now) } else { None };
        let named = map.as_deref().and_then(|m| m.name(step.address));
        let (name, offset) = match named {
            Some((name, offset)) => (name.to_owned(), offset as u32),
            None if jit => (String::new(), 0),
            None => (String::new(), self.offset(place)),
        };
        let nameless = jit && name.is_empty();
        let frame = self.insert(place.module, place.address, name, offset);
        if nameless && frame.is_some() && self.nameless.len() < MAX_NAMELESS {
            self.nameless.push((frame, pid, step.address, now));
        }
        frame
    }

    /// How far into its function a place is, by the unwind tables, which stripped programs have as well. 0: not known.
    fn offset(&mut self, place: Place) -> u32 {
        let function = self.modules.cfi(place.module).and_then(|cfi| cfi.bounds(place.address));
        function.map_or(0, |f| u32::try_from(place.address - f.start).unwrap_or(0))
    }

    fn intern(&mut self, module: u32, address: u64) -> FrameId {
        match self.frame_ids.get(&(module, address)) {
            Some(&id) => id,
            None => self.insert(module, address, String::new(), 0),
        }
    }

    fn insert(&mut self, module: u32, address: u64, function: String, offset: u32) -> FrameId {
        if self.frames.len() >= MAX_FRAMES {
            self.full = true;
            return FrameId::NONE;
        }
        let frame = self.next_frame();
        let id = self.module_id(module);
        self.frames.insert(frame, Known { module, id, address });
        self.frame_ids.insert((module, address), frame);
        self.coverage.symbols_total += 1;
        if !function.is_empty() {
            self.coverage.symbols_resolved += 1;
        } else if module != NOWHERE {
            self.unnamed.push(frame);
        }
        let row = Frame { module: id, address, function, offset, ..Frame::default() };
        self.new.frames.push((frame, row));
        frame
    }

    /// A frame of a Python function: it is named at once.
    pub(super) fn insert_python(
        &mut self,
        module: u32,
        function: String,
        file: String,
        line: u32,
    ) -> FrameId {
        if self.frames.len() >= MAX_FRAMES {
            self.full = true;
            return FrameId::NONE;
        }
        let frame = self.next_frame();
        let (id, address) = (self.module_id(module), u64::from(line));
        self.frames.insert(frame, Known { module, id, address });
        self.coverage.symbols_total += 1;
        self.coverage.symbols_resolved += 1;
        let row = Frame { module: id, address, function, file, line, ..Frame::default() };
        self.new.frames.push((frame, row));
        frame
    }

    fn next_frame(&mut self) -> FrameId {
        self.given.0 += 1;
        FrameId(self.given.0 - 1)
    }

    fn module_id(&mut self, module: u32) -> ModuleId {
        let given = self.modules_given;
        let Some(entry) = self.modules.entries.get_mut(module as usize) else { return ModuleId::NONE };
        if entry.id.is_none() {
            entry.id = ModuleId(given);
            self.modules_given += 1;
            self.new.modules.push((entry.id, entry.row.clone()));
        }
        entry.id
    }

    pub(super) fn stack(&mut self, stack: Stack) -> StackId {
        self.insert_stack(stack, true)
    }

    /// `counted`: it tells how many stacks are whole. Where nobody wanted the callers none are missing.
    fn insert_stack(&mut self, stack: Stack, counted: bool) -> StackId {
        if let Some(&id) = self.stack_ids.get(&stack) {
            return id;
        }
        if self.stacked + stack.frames.len() > MAX_STACKED {
            self.full = true;
            return StackId::NONE;
        }
        self.stacked += stack.frames.len();
        let id = StackId(self.given.1);
        self.given.1 += 1;
        self.coverage.stacks_total += usize::from(counted);
        self.coverage.stacks_complete += usize::from(counted && !stack.truncated);
        self.new.stacks.push((id, stack.clone()));
        let stack = Arc::new(stack);
        self.by_id.insert(id, Arc::clone(&stack));
        self.stack_ids.insert(stack, id);
        id
    }
}
