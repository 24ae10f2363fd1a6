//! What the functions of a Python program on a stack tell of a wait.

use crate::Vertex;
use pg_event::{Catalog, Frame, ModuleKind, StackId};

/// Does a thread of Python wait for a lock of its program (`true`), or does the library wait by one for something else, as
/// conditions, events and queues do? `None`: no lock of Python, or who wants it is not known.
pub(crate) fn pythons_lock(stack: StackId, catalog: &Catalog) -> Option<bool> {
    /// Frames of the wait itself, and of those that the interpreter has beneath the program's, at most.
    const NEAR: usize = 10;
    const BENEATH: usize = 40;
    let acquires = |f: &Frame| f.function.starts_with("PyThread_acquire_lock");
    if !catalog.frames_of(stack).take(NEAR).any(acquires) {
        return None;
    }
    catalog.frames_of(stack).take(BENEATH).find_map(|f| {
        let module = catalog.modules.get(f.module.index()).filter(|m| m.kind == ModuleKind::Python)?.short();
        let function = f.function.rsplit('.').next().unwrap_or_default();
        let of = |file: &str| module == file || module.strip_suffix(file).is_some_and(|d| d.ends_with('/'));
        let library = of("threading.py")
            && matches!(function, "wait" | "_wait_for_tstate_lock" | "_shutdown")
            || of("queue.py") && matches!(function, "get" | "put")
            || TAKERS.iter().any(|(name, file)| function == *name && module.ends_with(file));
        Some(!library)
    })
}

/// Is it the wait of Python's `threading.Timer`? It is for an event that nobody but who cancels the timer sets: for time to
/// pass. Before Python 3.11 functions are told without their classes.
pub(crate) fn waits_for_timer(v: &Vertex, catalog: &Catalog) -> bool {
    /// Before 3.11 native frames are in between.
    const NEAR: usize = 40;
    let own = |f: &Frame| {
        let module = catalog.modules.get(f.module.index()).filter(|m| m.kind == ModuleKind::Python);
        module.is_some_and(|m| m.short().split_once('/').is_some_and(|(_, file)| file == "threading.py"))
    };
    let mut waits = false;
    for f in catalog.frames_of(v.user_stack).take(NEAR).filter(|f| own(f)) {
        match f.function.as_str() {
            "Timer.run" | "run" => return waits,
            name => waits = name.rsplit('.').next() == Some("wait"),
        }
    }
    false
}

/// Functions of the library that wait themselves for nothing but the next item of a queue that is made in C, by a lock of its
/// own.
const TAKERS: [(&str, &str); 2] =
    [("_worker", "/concurrent/futures/thread.py"), ("_handle_tasks", "/multiprocessing/pool.py")];

/// Does a thread of a Python program wait for the next item of a queue, as its workers do?
pub(crate) fn takes_from_queue(v: &Vertex, catalog: &Catalog) -> bool {
    let module = |f: &Frame| catalog.modules.get(f.module.index());
    let of = |f: &Frame, file: &str| module(f).is_some_and(|m| m.short().ends_with(file));
    let called = |f: &Frame, name: &str| f.function.rsplit('.').next() == Some(name);
    let mut script =
        catalog.frames_of(v.user_stack).filter(|f| module(f).is_some_and(|m| m.kind == ModuleKind::Python));
    let innermost = script.next();
    innermost.is_some_and(|f| TAKERS.iter().any(|(name, file)| called(f, name) && of(f, file)))
        || innermost.into_iter().chain(script).any(|f| called(f, "get") && of(f, "/queue.py"))
}
