//! Functions of Python given to stacks that were taken without them.
//!
//! The interpreter's frames are read of samples and of long waits; short waits show only the call of the interpreter
//! that runs Python. Where a process's waits with the same native frames were all in the same functions of Python as far
//! as they were read, the others are taken to be, too.
//!
//! A thread that has got what it waited for waits for the interpreter's lock next. That is a wait for nobody's signal, and
//! too short to be read: it is left out, since it would stand between two stacks that say where the thread was.

use super::boundary::BoundaryPath;
use super::eyes::{At, Eyes};
use super::place::{LoopAt, is_interpreter};
use super::seen::ThreadSeen;
use pg_event::{Catalog, Frame, FrameId, ModuleId, ModuleKind, ProcessId, StackId, ThreadId};
use std::collections::{BTreeSet, HashMap};

/// Frames of the C library and of the lock itself around a wait for it.
const NEAR: usize = 8;
/// What takes the interpreter's lock, as programs that embed it call it (Python's C API).
const LOCK: [&str; 5] =
    ["take_gil", "PyEval_RestoreThread", "PyEval_AcquireThread", "PyEval_AcquireLock", "PyGILState_Ensure"];

/// Tells waits for the interpreter's lock by their stacks.
#[derive(Default)]
pub struct InterpreterLock {
    /// So many stacks of the catalog were looked at.
    looked: usize,
    /// Where what takes the lock begins, by the file it is in: a distribution's interpreter has no name for it, but what calls it
    /// there has. The interpreter calls it from where it executes functions, too.
    taken_in: BTreeSet<(ModuleId, u64)>,
}

impl InterpreterLock {
    /// Is a stack that of a wait for the interpreter's lock?
    pub fn waits(&mut self, catalog: &Catalog, stack: StackId) -> bool {
        for row in catalog.stacks.get(self.looked..).unwrap_or_default().iter().filter(|s| !s.kernel) {
            let frames = row.frames.iter().take(NEAR).filter_map(|id| catalog.frames.get(id.index()));
            let frames: Vec<&Frame> = frames.collect();
            let calls = frames
                .windows(2)
                .filter(|w| takes_lock(w[1]) && w[0].module == w[1].module && w[0].entry() != 0);
            self.taken_in.extend(calls.map(|w| (w[0].module, w[0].entry())));
        }
        self.looked = catalog.stacks.len();
        let mut near = catalog.frames_of(stack).take(NEAR);
        near.any(|f| takes_lock(f) || self.taken_in.contains(&(f.module, f.entry())))
    }
}

fn takes_lock(f: &Frame) -> bool {
    LOCK.contains(&f.function.as_str())
}

/// Is it a file of Python?
pub(super) fn is_python(catalog: &Catalog, module: ModuleId) -> bool {
    catalog.modules.get(module.index()).is_some_and(|m| m.kind == ModuleKind::Python)
}

/// A native frame; `None` for the functions of Python that one call of the interpreter runs.
type Native = Vec<Option<FrameId>>;

/// The native frames of a stack, and whether it has functions of Python, or calls that should have some.
fn native(catalog: &Catalog, stack: StackId) -> (Native, bool, bool) {
    let (mut all, mut python, mut bare) = (Native::new(), false, false);
    let frames = catalog.stacks.get(stack.index()).map(|s| s.frames.as_slice()).unwrap_or_default();
    for &id in frames {
        let frame = catalog.frames.get(id.index());
        let module = frame.and_then(|f| catalog.modules.get(f.module.index()));
        let is_python = module.is_some_and(|m| m.kind == ModuleKind::Python);
        let is_call = frame.is_some_and(is_interpreter);
        (python, bare) = (python || is_python, bare || is_call);
        if !is_python {
            all.push((!is_call).then_some(id));
        } else if all.last() != Some(&None) {
            all.push(None);
        }
    }
    (all, python, bare)
}

/// The stacks with which a thread waited, for whatever.
fn waited(seen: &ThreadSeen) -> BTreeSet<StackId> {
    seen.waits.keys().map(|k| k.0).chain(seen.blocked.iter().copied()).collect()
}

/// The functions of Python that were read, of all threads of each process.
pub(super) struct Read {
    /// By native frames: the stack with functions of Python; `None` when there are several.
    known: HashMap<(ProcessId, Native), Option<StackId>>,
    /// By native frames with such functions: the stacks as the kernel saw them, also those that no wait is left with
    /// since all were read.
    bare: HashMap<Native, Vec<StackId>>,
}

fn process(catalog: &Catalog, thread: ThreadId) -> ProcessId {
    catalog.thread(thread).map_or(ProcessId::NONE, |t| t.process)
}

impl Read {
    /// Of all that was seen.
    pub fn of<'a>(catalog: &Catalog, threads: impl Iterator<Item = (ThreadId, &'a ThreadSeen)>) -> Self {
        let mut known: HashMap<(ProcessId, Native), Option<StackId>> = HashMap::new();
        let frames = |s: StackId| catalog.stack(s).map(|s| &s.frames);
        for (thread, seen) in threads {
            for stack in waited(seen) {
                if let (native, true, false) = native(catalog, stack) {
                    let one = known.entry((process(catalog, thread), native)).or_insert(Some(stack));
                    *one = one.filter(|s| frames(*s) == frames(stack));
                }
            }
        }
        let wanted: BTreeSet<&Native> = known.keys().map(|k| &k.1).collect();
        let mut bare: HashMap<Native, Vec<StackId>> = HashMap::new();
        for stack in (0..catalog.stacks.len() as u32).map(StackId).filter(|_| !wanted.is_empty()) {
            if let (native, false, true) = native(catalog, stack)
                && wanted.contains(&native)
            {
                bare.entry(native).or_default().push(stack);
            }
        }
        Self { known, bare }
    }

    /// Does a stack show the interpreter, but none of the functions that it runs? Which loops turned before it nobody knows.
    pub fn is_bare(catalog: &Catalog, stack: StackId) -> bool {
        matches!(native(catalog, stack), (_, false, true))
    }

    /// The stacks without functions of Python that one with them may have been.
    pub fn bare(&self, catalog: &Catalog, stack: StackId) -> &[StackId] {
        if self.bare.is_empty() {
            return &[];
        }
        let (native, python, _) = native(catalog, stack);
        self.bare.get(&native).filter(|_| python).map_or(&[], Vec::as_slice)
    }

    /// What was seen of a thread, with functions of Python for its waits that lack them; `None` when there is nothing
    /// to give.
    pub fn give(&self, catalog: &Catalog, thread: ThreadId, seen: &ThreadSeen) -> Option<ThreadSeen> {
        if self.known.is_empty() {
            return None;
        }
        let of = process(catalog, thread);
        let instead = |stack: StackId| {
            let (native, false, true) = native(catalog, stack) else { return None };
            Some((stack, (*self.known.get(&(of, native))?)?))
        };
        let instead: HashMap<StackId, StackId> = waited(seen).into_iter().filter_map(instead).collect();
        let of = |s: StackId| instead.get(&s).copied().unwrap_or(s);
        (!instead.is_empty()).then(|| seen.map_stacks(of))
    }
}

/// The way to a wait in a stack without functions of Python: from the call of the interpreter that runs the loop.
/// `way`: the same from the loop inwards, with functions of Python.
pub(super) fn native_way(
    eyes: &Eyes,
    stack: StackId,
    way: &[(ModuleId, u64)],
) -> Option<Vec<(ModuleId, u64)>> {
    let kind = |m: &ModuleId| eyes.catalog.modules.get(m.index()).map(|m| m.kind);
    let python: Vec<bool> = way.iter().map(|f| kind(&f.0) == Some(ModuleKind::Python)).collect();
    // Functions of Python that follow each other are run by one call.
    let calls = python.chunk_by(|a, b| a == b).filter(|run| run[0]).count();
    let frames = eyes.frames(stack);
    let is_call = |f: &At| eyes.catalog.frames.get(f.0.index()).is_some_and(is_interpreter);
    let at = (0..frames.len()).rev().filter(|&i| is_call(&frames[i])).nth(calls.checked_sub(1)?)?;
    Some(frames[at..].iter().map(|f| (f.1, f.2)).collect())
}

impl BoundaryPath {
    /// Of a loop of Python the way as the kernel sees it: the interpreter's module, and the call that enters the C library
    /// to wait. `None` for a way by functions of Python, and of other loops.
    pub fn native_of(&self, catalog: &Catalog, of: LoopAt) -> Option<(ModuleId, (ModuleId, u64))> {
        let interpreter = self.frames.first()?.0;
        if !is_python(catalog, of.module) || self.frames.iter().any(|f| is_python(catalog, f.0)) {
            return None;
        }
        let leaf = self.frames.last()?;
        let caller = self.frames.iter().rfind(|f| f.0 != leaf.0).unwrap_or(leaf);
        Some((interpreter, *caller))
    }
}

#[cfg(test)]
mod tests {
    use super::super::boundary::is_boundary;
    use super::super::place::{Place, Places};
    use super::super::python::PythonFunction;
    use super::super::seen::Seen;
    use super::super::waits::Wait;
    use super::*;
    use crate::flow::Function;
    use crate::flow::fake::Program;
    use pg_event::{Frame, Kind, Module, OffCpu, OffState, Stack, Sysno};
    use std::rc::Rc;

    /// Frames 0 `epoll_wait`, 1 the interpreter, 2 `main`, 3 and 4 functions of Python, 5 another wait.
    fn catalog(stacks: &[&[u32]]) -> Catalog {
        let module = |kind| Module { kind, ..Module::default() };
        let frame = |module: u32, function: &str| Frame {
            module: ModuleId(module),
            function: function.into(),
            ..Frame::default()
        };
        let stack = |frames: &&[u32]| Stack {
            frames: frames.iter().map(|&f| FrameId(f)).collect(),
            ..Stack::default()
        };
        Catalog {
            modules: vec![module(ModuleKind::Elf), module(ModuleKind::Python)],
            frames: [
                (0, "epoll_wait"),
                (0, "_PyEval_EvalFrameDefault"),
                (0, "main"),
                (1, "select"),
                (1, "run"),
                (0, "read"),
            ]
            .map(|(m, f)| frame(m, f))
            .into(),
            stacks: stacks.iter().map(stack).collect(),
            ..Catalog::default()
        }
    }

    /// The first thread, with what was read of all.
    fn read(catalog: &Catalog, seen: &Seen) -> Option<ThreadSeen> {
        let all = Read::of(catalog, seen.threads.iter().map(|(&t, s)| (t, s)));
        all.give(catalog, ThreadId(0), &seen.threads[&ThreadId(0)])
    }

    /// The stacks of a thread's waits, with functions of Python where they could be given.
    fn given(stacks: &[&[u32]]) -> Option<Vec<u32>> {
        let catalog = catalog(stacks);
        let mut seen = Seen::default();
        for i in 0..stacks.len() {
            seen.stack(&catalog, ThreadId(0), StackId(i as u32), Some((Wait::Input, Sysno(1))));
        }
        let new = read(&catalog, &seen)?;
        Some(new.steps.iter().map(|s| s.0.to.0).collect())
    }

    #[test]
    fn short_waits_get_the_functions_of_long_ones() {
        let (short, long): (&[u32], &[u32]) = (&[0, 1, 2], &[0, 3, 4, 2]);
        assert_eq!(given(&[short, long]), Some(vec![1, 1]));
        // Another wait, another way to it: nobody knows.
        assert_eq!(given(&[&[5, 1, 2], long]), None);
        assert_eq!(given(&[&[0, 1, 5, 1, 2], long]), None);
        // In different functions.
        assert_eq!(given(&[short, long, &[0, 3, 2]]), None);
        assert_eq!(given(&[short]), None);
    }

    #[test]
    fn waits_for_no_event_get_them_too() {
        // Asleep within a unit, short and long; the loop waits for its next in between.
        let stacks: [&[u32]; 4] = [&[5, 1, 2], &[5, 3, 4, 2], &[0, 1, 2], &[0, 3, 4, 2]];
        let catalog = catalog(&stacks);
        let mut seen = Seen::default();
        let poll = pg_event::syscall_number("epoll_wait").unwrap();
        let nap = pg_event::syscall_number("nanosleep").unwrap();
        for (time, stack) in [2, 0, 3, 1, 2].into_iter().enumerate() {
            let off = OffCpu::new(time as u64, time as u64 + 1, OffState::Interruptible);
            let syscall = if stack < 2 { nap } else { poll };
            let wait = OffCpu { syscall, user_stack: StackId(stack), ..off };
            seen.event(&catalog, ThreadId(0), &Kind::OffCpu(wait));
        }
        let new = read(&catalog, &seen).unwrap();
        assert_eq!(new.given_blocked, [(StackId(0), StackId(1))]);
        let steps: Vec<u32> = new.order.iter().map(|&n| new.steps[n as usize].0.to.0).collect();
        assert_eq!(steps, [3, 1, 3, 1, 3]);
    }

    #[test]
    fn what_was_read_of_one_worker_is_given_to_the_other() {
        let (short, long): (&[u32], &[u32]) = (&[0, 1, 2], &[0, 3, 4, 2]);
        let catalog = catalog(&[short, long, &[0, 3, 2]]);
        let mut seen = Seen::default();
        let wait = |seen: &mut Seen, thread, stack| {
            seen.stack(&catalog, ThreadId(thread), StackId(stack), Some((Wait::Input, Sysno(1))));
        };
        wait(&mut seen, 0, 0);
        wait(&mut seen, 1, 1);
        assert_eq!(read(&catalog, &seen).unwrap().steps[0].0.to, StackId(1));
        // A third one waits elsewhere, by the same native frames.
        wait(&mut seen, 2, 2);
        assert!(read(&catalog, &seen).is_none());
    }

    /// What takes the lock has no name; it is called by what has one, and from where functions are executed.
    #[test]
    fn what_takes_the_lock_is_known_by_who_calls_it() {
        let mut catalog = catalog(&[&[0, 5, 1], &[0, 5, 2], &[0, 4, 1]]);
        catalog.frames[2].function = "PyEval_RestoreThread".into();
        catalog.frames[5] = Frame { address: 0x180, offset: 0x80, ..catalog.frames[5].clone() };
        assert!(InterpreterLock::default().waits(&catalog, StackId(0)), "it is called elsewhere, too");
        assert!(!InterpreterLock::default().waits(&catalog, StackId(2)), "another function");
        catalog.stacks.remove(1);
        assert!(!InterpreterLock::default().waits(&catalog, StackId(0)), "nothing tells");
    }

    #[test]
    fn waits_for_the_interpreter_are_left_out() {
        let mut catalog = catalog(&[&[0, 1, 2], &[5, 1, 2]]);
        catalog.frames[5].function = "PyEval_RestoreThread".into();
        let mut lock = InterpreterLock::default();
        assert!(!lock.waits(&catalog, StackId(0)) && lock.waits(&catalog, StackId(1)));
        let mut seen = Seen::default();
        let futex = pg_event::syscall_number("futex").unwrap();
        let mut tell = |stack| {
            let off = OffCpu::new(1, 2, OffState::Interruptible);
            let wait = OffCpu { syscall: futex, user_stack: StackId(stack), ..off };
            seen.event(&catalog, ThreadId(0), &Kind::OffCpu(wait)).is_some()
        };
        assert_eq!([tell(0), tell(1), tell(0)], [true, false, true]);
        assert_eq!(seen.threads[&ThreadId(0)].stacks.len(), 1);
    }

    #[test]
    fn the_interpreters_own_loop_around_a_nap_explains_nothing() {
        let text = "def run():\n    while True:\n        poll()\n        nap()\n";
        let source: Vec<String> = text.lines().map(str::to_owned).collect();
        // The loop polls, or naps over what is there already: by a function that naps again when it was interrupted.
        let mut catalog = catalog(&[&[0, 3, 2], &[5, 1, 4, 2]]);
        let program = Program::new("again: nop nap: call jne:again ret");
        for (i, f) in catalog.frames.iter_mut().enumerate() {
            f.address = [0x100, program.at("nap") - 1, 0x300, 3, 4, 0x400][i];
            f.module = ModuleId(u32::from(i == 3 || i == 4));
        }
        catalog.frames[1].function = "time_sleep".into();
        let run = Place::Python(Rc::new(PythonFunction::read(&source, 1).unwrap()));
        let again = Place::Code(Rc::new(Function::read(&program, program.at("again")).unwrap()));
        let mut places = Places::default();
        for (id, place) in [(0, Place::Library), (5, Place::Library), (1, again), (3, run.clone()), (4, run)]
        {
            places.know(FrameId(id), place);
        }
        let (mut seen, thread) = (Seen::default(), ThreadId(0));
        for stack in [0, 1, 1, 1, 0, 1, 0] {
            let wait = (stack == 0).then_some((Wait::Input, Sysno(1)));
            seen.stack(&catalog, thread, StackId(stack), wait);
        }
        let found = seen.event_loops(&catalog, &mut places).remove(&thread).unwrap();
        // Twice without a poll in between.
        assert_eq!((found.len(), found[0].at.head, found[0].turns), (1, 2, 4));
    }

    /// A loop that waits (stack 0 without functions of Python, 1 with them) and works (2; 3 without them).
    fn server() -> (Catalog, Places) {
        let text =
            "def select():\n    poll()\ndef run():\n    while True:\n        select()\n        work()\n";
        let source: Vec<String> = text.lines().map(str::to_owned).collect();
        let mut catalog = catalog(&[&[0, 1, 2], &[0, 3, 4, 2], &[5, 4, 2], &[5, 1, 2]]);
        for (i, f) in catalog.frames.iter_mut().enumerate() {
            f.address = [0x100, 0x200, 0x300, 2, 5, 0x400][i];
        }
        // Work is at the line behind the wait.
        catalog.frames.push(Frame { address: 6, ..catalog.frames[4].clone() });
        catalog.stacks[2].frames[1] = FrameId(6);
        let mut places = Places::default();
        let function = |first| Place::Python(Rc::new(PythonFunction::read(&source, first).unwrap()));
        let run = function(3);
        for (id, place) in
            [(0, Place::Library), (5, Place::Library), (3, function(1)), (4, run.clone()), (6, run)]
        {
            places.know(FrameId(id), place);
        }
        (catalog, places)
    }

    /// The loop that a thread with these stacks turns; those that wait are the first two.
    fn turned(stacks: &[u32]) -> (Catalog, super::super::EventLoop) {
        let (catalog, mut places) = server();
        let (mut seen, thread) = (Seen::default(), ThreadId(0));
        for &stack in stacks {
            let wait = (stack < 2).then_some((Wait::Input, Sysno(1)));
            seen.stack(&catalog, thread, StackId(stack), wait);
        }
        let found = seen.event_loops(&catalog, &mut places).remove(&thread).unwrap();
        assert_eq!((found.len(), found[0].at.head), (1, 4));
        (catalog, found.into_iter().next().unwrap())
    }

    #[test]
    fn a_loop_of_python_is_known_by_both_ways_to_its_wait() {
        let (catalog, of) = turned(&[0, 2, 0, 2, 1, 2, 0, 0]);
        let own = |i: usize| of.boundary[i].own().collect::<Vec<_>>();
        let waits = of.boundary.iter().map(|b| b.waits).collect::<Vec<_>>();
        // A short wait by the interpreter's call, the long one by lines.
        assert_eq!((own(0), own(1), waits, of.waits), (vec![0x200, 0xff], vec![5, 2], vec![4, 1], 5));
        let short = [(ModuleId(0), 0xff), (ModuleId(0), 0x200), (ModuleId(0), 0x300)];
        assert_eq!(is_boundary(&short, Sysno(1), &of.boundary), Some((0, 1)));
        let native: Vec<_> = of.boundary.iter().map(|b| b.native_of(&catalog, of.at)).collect();
        assert_eq!(native, [Some((ModuleId(0), (ModuleId(0), 0xff))), None]);
    }

    #[test]
    fn the_native_way_is_known_where_all_waits_were_read() {
        // The recording has the stack as the kernel saw it, too.
        let (catalog, of) = turned(&[1, 2, 1, 2, 1, 2, 1]);
        let native = of.boundary.iter().find(|b| b.native_of(&catalog, of.at).is_some()).unwrap();
        assert_eq!((native.waits, native.own().collect::<Vec<_>>()), (0, vec![0x200, 0xff]));
    }

    #[test]
    fn work_without_functions_of_python_does_not_say_that_no_loop_turned() {
        let (_, of) = turned(&[1, 2, 1, 3, 1, 3, 1, 2, 1, 3, 1, 2, 1, 3, 1]);
        assert!(!of.boundary.is_empty() && of.turns == 3, "{of:?}");
    }
}
