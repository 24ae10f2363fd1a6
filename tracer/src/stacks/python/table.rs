//! Which processes run Python, and stacks with their Python functions in the table of stacks.

use super::locate::{Image, Unread, may_be_python};
use super::mix::{inside, mix};
use super::sampled::{Known, Place};
use super::{Calls, Function, Interpreter};
use crate::collector::hash::FastMap;
use crate::patience::Patience;
use crate::procfs::has_ended;
use crate::stacks::StackTable;
use crate::stacks::module::file_address;
use pg_event::{FrameId, Stack, StackId};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a process is taken to have no interpreter when it was looked at first, which may have been before its
/// program was executed, and twice as long each time after that ...
const NONE_FOR: Duration = Duration::from_millis(500);
/// ... up to this: it may be loaded later.
const NONE_FOR_LONG: Duration = Duration::from_secs(8);
/// Most processes remembered.
const MAX_PROCESSES: usize = 1 << 15;
/// Most different places in Python code: names come from the target.
const MAX_PLACES: usize = 1 << 18;
/// How long a read of a target's memory may take.
const READ_LIMIT: Duration = Duration::from_millis(250);

/// The Python frames of a thread at a time at which it waited.
#[derive(Clone, Debug)]
pub struct PythonStack {
    pub(super) calls: Calls,
    /// Where the loop is that executes them.
    pub(super) module: u32,
    pub(super) image: Arc<Image>,
    /// `CLOCK_MONOTONIC` before and after it was read; it did not run in between.
    pub read: (u64, u64),
}

/// The functions of a thread, whichever table has them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PythonCalls(Calls);

impl From<&PythonStack> for PythonCalls {
    fn from(stack: &PythonStack) -> Self {
        Self(stack.calls.clone())
    }
}

/// The interpreter of a process, with the module it is in.
#[derive(Clone)]
pub(super) struct Found {
    pub interpreter: Interpreter,
    pub module: u32,
    pub image: Arc<Image>,
}

/// What is known of Python in the processes.
pub(in crate::stacks) struct Pythons {
    /// By module.
    images: FastMap<u32, Option<Arc<Image>>>,
    /// By process; when none was found, since when, and for how long that is believed.
    processes: FastMap<u32, Result<Found, (Instant, Duration)>>,
    pub(in crate::stacks) places: HashMap<Function, FrameId>,
    unread: BTreeSet<Unread>,
    pub(super) functions: FastMap<(u32, Place), Known>,
    pub(super) patience: Patience,
}

impl Default for Pythons {
    fn default() -> Self {
        Self {
            images: FastMap::default(),
            processes: FastMap::default(),
            places: HashMap::new(),
            unread: BTreeSet::new(),
            functions: FastMap::default(),
            patience: Patience::new(READ_LIMIT),
        }
    }
}

impl Pythons {
    /// The process has another program, or is no more.
    pub fn forget(&mut self, pid: u32) {
        self.processes.remove(&pid);
    }

    /// Which interpreters were not read, and why: one sentence each.
    pub fn notes(&self) -> impl Iterator<Item = String> {
        self.unread.iter().map(|u| {
            let what = match u {
                Unread::Memory => {
                    "the memory of a Python program could not be read (root is needed, and one that just starts or ends has none to read)".to_owned()
                }
                Unread::Version(Some(minor)) => format!("this build of Python 3.{minor} is not known"),
                Unread::Version(None) => "a Python of unknown version ran".to_owned(),
            };
            format!("{what}: its stacks show the interpreter instead of Python functions")
        })
    }
}

impl StackTable {
    /// The Python frames of a thread that waits; `None` when it does not, or is in no Python function.
    pub fn python(&mut self, pid: u32, tid: u32) -> Option<PythonStack> {
        let Found { interpreter, module, image } = self.interpreter(pid)?;
        let (calls, read) = self.pythons.patience.run(pid, move || interpreter.read(pid, tid))??;
        Some(PythonStack { calls, module, image, read })
    }

    /// Is the process known to run Python?
    pub fn runs_python(&self, pid: u32) -> bool {
        self.pythons.processes.get(&pid).is_some_and(Result::is_ok)
    }

    /// The same for a thread that was read by another table.
    pub fn python_read(&mut self, pid: u32, calls: PythonCalls) -> Option<PythonStack> {
        let Found { module, image, .. } = self.interpreter(pid)?;
        Some(PythonStack { calls: calls.0, module, image, read: (0, 0) })
    }

    /// A stack with its Python functions in place of the interpreter's loop; the stack itself where there is no
    /// room for more.
    pub fn with_python(&mut self, native: StackId, python: &PythonStack) -> StackId {
        self.with_python_inside(native, python, None, "").0
    }

    /// The same, and how many of its frames lie inside of the event loop's: of the function called `own` that native frame
    /// `frame` runs.
    pub fn with_python_inside(
        &mut self,
        native: StackId,
        python: &PythonStack,
        frame: Option<usize>,
        own: &str,
    ) -> (StackId, Option<usize>) {
        let mut owned = Vec::new();
        let mut calls = Vec::with_capacity(python.calls.len());
        for call in &python.calls {
            let mut frames = Vec::with_capacity(call.len());
            for f in call {
                let Some(id) = self.place(f) else { return (native, frame) };
                owned.extend((f.name == own).then_some(id));
                frames.push(id);
            }
            calls.push(frames);
        }
        let stack = self.by_id.get(&native).cloned();
        let (frames, truncated) = stack.as_deref().map_or((&[][..], true), |s| (&s.frames, s.truncated));
        let in_loop = |f: &FrameId| {
            let known = self.frames.get(f).filter(|k| k.module == python.module);
            known.is_some_and(|k| python.image.loops.iter().any(|&(a, b)| (a..b).contains(&k.address)))
        };
        let inside = frame.map(|frame| inside(frames, in_loop, &calls, frame, |f| owned.contains(f)));
        let frames = mix(frames, in_loop, &calls);
        match self.stack(Stack { frames, kernel: false, truncated }) {
            StackId::NONE => (native, frame),
            id => (id, inside),
        }
    }

    fn place(&mut self, f: &Function) -> Option<FrameId> {
        if let Some(&id) = self.pythons.places.get(f) {
            return Some(id);
        }
        if self.pythons.places.len() >= MAX_PLACES {
            return None;
        }
        let module = self.modules.python(&f.file);
        let id = self.insert_python(module, f.name.clone(), f.file.clone(), f.line);
        if id.is_none() {
            return None;
        }
        self.pythons.places.insert(f.clone(), id);
        Some(id)
    }

    pub(super) fn interpreter(&mut self, pid: u32) -> Option<Found> {
        let now = Instant::now();
        let believed = match self.pythons.processes.get(&pid) {
            Some(Ok(found)) => return Some(found.clone()),
            Some(Err((since, long))) if now.duration_since(*since) < *long => return None,
            Some(Err((_, long))) => (*long * 2).min(NONE_FOR_LONG),
            None => NONE_FOR,
        };
        let found = self.look_for_python(pid, now);
        if self.pythons.processes.len() >= MAX_PROCESSES {
            self.pythons.processes.clear();
        }
        self.pythons.processes.insert(pid, found.clone().ok_or((now, believed)));
        found
    }

    fn look_for_python(&mut self, pid: u32, now: Instant) -> Option<Found> {
        let mappings = self.spaces.all(&mut self.modules, pid, now)?;
        for (i, m) in mappings.iter().enumerate() {
            let Some(entry) = self.modules.entries.get(m.module as usize) else { continue };
            // A program with the interpreter in it may have any name.
            if i != 0 && !may_be_python(&entry.row.path) {
                continue;
            }
            let read = || entry.with_bytes(|elf, src| Image::read(elf, src, &entry.row.path)).map(Arc::new);
            let image = self.pythons.images.entry(m.module).or_insert_with(read).clone();
            let Some(image) = image else { continue };
            let bias = m.start.wrapping_sub(file_address(entry, m.start, m.offset, m.start));
            let at = image.clone();
            match self.pythons.patience.run(pid, move || at.in_process(pid, bias)) {
                Some(Ok(interpreter)) => return Some(Found { interpreter, module: m.module, image }),
                // One that has ended meanwhile is no news.
                Some(Err(Unread::Memory)) if has_ended(pid) => {}
                Some(Err(why)) => {
                    self.pythons.unread.insert(why);
                }
                None => {}
            }
        }
        None
    }
}
