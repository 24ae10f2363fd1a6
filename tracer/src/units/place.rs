//! The functions that frames of a recording lie in, with their loops.

use super::binary::Binary;
use super::python::PythonFunction;
use crate::flow::LoopId;
use crate::flow::Source;
use crate::flow::{Function, Way};
use pg_event::{Catalog, Frame, FrameId, Module, ModuleId, ModuleKind};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// Most functions kept.
const MAX_FUNCTIONS: usize = 100_000;

/// A loop: its module, where its turns begin and where its function is entered (addresses as the module's file counts
/// them; lines in a file of Python).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LoopAt {
    /// The binary.
    pub module: ModuleId,
    /// Every turn passes here.
    pub head: u64,
    /// Begin of the function.
    pub function: u64,
}

/// What is known of the function that a frame is in.
#[derive(Clone)]
pub(super) enum Place {
    /// Of the C library, or the loader: its loops around a wait only repeat what was interrupted.
    Library,
    /// Machine code.
    Code(Rc<Function>),
    /// A function of Python, as its source tells.
    Python(Rc<PythonFunction>),
    /// Code of a just-in-time compiler, an interpreter's own loop, or a file that is not there.
    Unknown,
}

impl Place {
    /// Where the function begins: an address, or a line.
    pub fn entry(&self) -> u64 {
        match self {
            Self::Code(f) => f.entry(),
            Self::Python(f) => f.first().into(),
            Self::Library | Self::Unknown => 0,
        }
    }

    /// Are both the same function? (Of the same module, that is.)
    pub fn same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Code(a), Self::Code(b)) => Rc::ptr_eq(a, b),
            (Self::Python(a), Self::Python(b)) => Rc::ptr_eq(a, b),
            _ => false,
        }
    }

    /// The loops around a place in it, the innermost first.
    pub fn around(&self, at: u64) -> Vec<LoopId> {
        match self {
            Self::Code(f) => f.around(at),
            Self::Python(f) => f.around(at),
            Self::Library | Self::Unknown => Vec::new(),
        }
    }

    /// Where a loop's turns begin.
    pub fn head(&self, id: LoopId) -> u64 {
        match self {
            Self::Code(f) => f.head(id),
            Self::Python(f) => f.head(id),
            Self::Library | Self::Unknown => 0,
        }
    }

    /// Is it a cycle with several entries?
    pub fn is_merged(&self, id: LoopId) -> bool {
        matches!(self, Self::Code(f) if f.is_merged(id))
    }

    /// A loop with its module.
    pub fn at(&self, module: ModuleId, id: LoopId) -> LoopAt {
        LoopAt { module, head: self.head(id), function: self.entry() }
    }

    /// How a thread got from one place in it to another.
    pub fn way(&self, from: u64, to: u64) -> Way {
        match self {
            Self::Code(f) => f.way(from, to),
            Self::Python(f) => f.way(from, to),
            Self::Library => Way::Not,
            Self::Unknown => Way::Unknown,
        }
    }
}

/// The C library and the loader, by their file names.
fn is_c_library(module: &Module) -> bool {
    let name = module.short();
    ["libc.so", "libc-", "libc.musl", "libpthread", "ld-linux", "ld-musl", "ld-2."]
        .iter()
        .any(|p| name.starts_with(p))
}

/// The function of Python's interpreter that runs code of Python. Every function of Python turns its loop.
pub(super) fn is_interpreter(frame: &Frame) -> bool {
    frame.function.starts_with("_PyEval_EvalFrame")
}

/// Functions of the binaries on this machine, read when they are asked for first.
#[derive(Default)]
pub struct Places {
    dirs: Vec<PathBuf>,
    binaries: HashMap<ModuleId, Option<Binary>>,
    functions: HashMap<ModuleId, Vec<Rc<Function>>>,
    sources: HashMap<ModuleId, Option<Vec<String>>>,
    python: HashMap<(ModuleId, u32), Option<Rc<PythonFunction>>>,
    known: HashMap<FrameId, Place>,
}

impl Places {
    /// Binaries are looked for where they were when they were recorded, and in these directories. One whose build-id is
    /// another is none.
    pub fn new(dirs: Vec<PathBuf>) -> Self {
        Self { dirs, ..Self::default() }
    }

    /// The loops around the call (or instruction) of a frame, the innermost first; `None` when nothing is known of its
    /// function.
    pub fn loops_around(&mut self, catalog: &Catalog, id: FrameId) -> Option<Vec<LoopAt>> {
        let frame = catalog.frames.get(id.index())?;
        let place = self.of(catalog, id);
        let known = !matches!(place, Place::Unknown | Place::Library);
        known.then(|| place.around(frame.address).iter().map(|&l| place.at(frame.module, l)).collect())
    }

    /// Where the function that a frame is in begins: address of its first byte as the module's file counts, or the line
    /// of a `def` of Python. `None` when nothing is known of it.
    pub fn entry(&mut self, catalog: &Catalog, id: FrameId) -> Option<u64> {
        match self.of(catalog, id) {
            Place::Code(f) => Some(f.entry()),
            Place::Python(f) => Some(f.first().into()),
            Place::Library | Place::Unknown => {
                let frame = catalog.frames.get(id.index())?;
                let module = catalog.modules.get(frame.module.index())?;
                if module.kind != ModuleKind::Elf {
                    return None;
                }
                if !frame.function.is_empty() {
                    return frame.address.checked_sub(frame.offset.into());
                }
                let binary = binary(&mut self.binaries, &self.dirs, frame.module, module)?;
                binary.part(frame.address).map(|part| part.start)
            }
        }
    }

    /// The function that a frame is in.
    pub(super) fn of(&mut self, catalog: &Catalog, id: FrameId) -> Place {
        if let Some(place) = self.known.get(&id) {
            return place.clone();
        }
        let place = self.find(catalog, id).unwrap_or(Place::Unknown);
        if self.known.len() < MAX_FUNCTIONS {
            self.known.insert(id, place.clone());
        }
        place
    }

    /// Tell what a frame is in.
    #[cfg(test)]
    pub(super) fn know(&mut self, id: FrameId, place: Place) {
        self.known.insert(id, place);
    }

    fn find(&mut self, catalog: &Catalog, id: FrameId) -> Option<Place> {
        let frame = catalog.frames.get(id.index())?;
        let module = catalog.modules.get(frame.module.index())?;
        match module.kind {
            ModuleKind::Python => self.python(frame, module).map(Place::Python),
            ModuleKind::Elf if is_c_library(module) => Some(Place::Library),
            ModuleKind::Elf if is_interpreter(frame) => None,
            ModuleKind::Elf => self.code(frame, module).map(Place::Code),
            _ => None,
        }
    }

    fn code(&mut self, frame: &Frame, module: &Module) -> Option<Rc<Function>> {
        let functions = self.functions.entry(frame.module).or_default();
        if let Some(known) = functions.iter().find(|f| f.contains(frame.address)) {
            return Some(Rc::clone(known));
        }
        let binary = binary(&mut self.binaries, &self.dirs, frame.module, module)?;
        let function = Function::read(binary, frame.address)
            .inspect_err(|e| tracing::debug!("{} {:#x}: {e}", module.short(), frame.address));
        let function = Rc::new(function.ok()?);
        functions.push(Rc::clone(&function));
        Some(function)
    }

    fn python(&mut self, frame: &Frame, module: &Module) -> Option<Rc<PythonFunction>> {
        let line = u32::try_from(frame.address).ok()?;
        let read = || super::python::source(Path::new(&module.path));
        let source = self.sources.entry(frame.module).or_insert_with(read).as_ref()?;
        let first = super::python::definition(source, line)?;
        let read = || PythonFunction::read(source, first).map(Rc::new);
        self.python.entry((frame.module, first)).or_insert_with(read).clone()
    }
}

/// The binary of a module, opened when it is asked for first.
fn binary<'a>(
    known: &'a mut HashMap<ModuleId, Option<Binary>>,
    dirs: &[PathBuf],
    id: ModuleId,
    module: &Module,
) -> Option<&'a Binary> {
    let open = || {
        // Of a file without a build-id nobody can tell whether it is the same.
        if module.build_id.is_empty() {
            return None;
        }
        let recorded = Path::new(&module.path);
        let named = recorded.file_name().into_iter().flat_map(|n| dirs.iter().map(move |d| d.join(n)));
        let mut all = recorded.is_absolute().then(|| recorded.to_owned()).into_iter().chain(named);
        all.find_map(|p| Binary::open(&p, &module.build_id))
    };
    known.entry(id).or_insert_with(open).as_ref()
}
