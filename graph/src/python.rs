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

/// Functions of the library in which a thread waits for the result of work that it gave to a pool.
const RESULTS: [(&str, &str); 6] = [
    ("result", "/concurrent/futures/_base.py"),
    ("exception", "/concurrent/futures/_base.py"),
    ("wait", "/concurrent/futures/_base.py"),
    ("as_completed", "/concurrent/futures/_base.py"),
    ("get", "/multiprocessing/pool.py"),
    ("wait", "/multiprocessing/pool.py"),
];

/// The function in which a pool's thread works, in the same files.
const POOLS: [(&str, &str); 2] =
    [("_worker", "/concurrent/futures/thread.py"), ("worker", "/multiprocessing/pool.py")];

/// Does a thread of a Python program wait for the result of work that it gave to a pool?
pub(crate) fn waits_for_result(v: &Vertex, catalog: &Catalog) -> bool {
    let mut script = catalog.frames_of(v.user_stack).filter_map(|f| script_frame(f, catalog));
    // What the wait is made of lies above.
    script.find(|f| !f.1.ends_with("/threading.py")).is_some_and(|f| is_one(f, &RESULTS))
}

/// Is a frame one of these functions, by name and end of the file?
fn is_one(frame: (&str, &str), known: &[(&str, &str)]) -> bool {
    known.iter().any(|(name, file)| frame.0 == *name && frame.1.ends_with(file))
}

/// The last part of a function's name and the file, of a frame that is of a Python program.
fn script_frame<'a>(f: &'a Frame, catalog: &'a Catalog) -> Option<(&'a str, &'a str)> {
    let module = catalog.modules.get(f.module.index()).filter(|m| m.kind == ModuleKind::Python)?;
    Some((f.function.rsplit('.').next().unwrap_or_default(), module.short()))
}

/// Does a thread of a Python program wait for the next item of a queue, as its workers do?
pub(crate) fn takes_from_queue(v: &Vertex, catalog: &Catalog) -> bool {
    let mut script = catalog.frames_of(v.user_stack).filter_map(|f| script_frame(f, catalog));
    let innermost = script.next();
    innermost.is_some_and(|f| is_one(f, &TAKERS))
        || innermost.into_iter().chain(script).any(|f| f.0 == "get" && f.1.ends_with("/queue.py"))
}

/// Is it a thread of a pool, at work or without?
pub(crate) fn is_of_pool(v: &Vertex, catalog: &Catalog) -> bool {
    let mut script = catalog.frames_of(v.user_stack).filter_map(|f| script_frame(f, catalog));
    script.any(|f| is_one(f, &POOLS))
}
