//! What is initialised once, by the first who comes, while the others wait: classes of Java (JVMS 5.5), static variables of C++
//! (Itanium C++ ABI 3.3.3), Rust's `Once`, `pthread_once`. Who does it is recorded nowhere; stacks tell.

use crate::Vertex;
use crate::class::tells_of;
use pg_event::{Catalog, Frame, StackId};

/// Frames between the one that waits and the leaf, at most.
const NEAR: usize = 12;
/// Waits for the initialisation of a class, in `HotSpot`.
const CLASS: &str = "klass::initialize_impl";
/// Runs that initialisation, there.
const RUNS_CLASS: &str = "call_class_initializer";
/// The others wait by a futex of their own.
const ONCE: [&str; 3] = ["cxa_guard_acquire", "once::futex", "pthread_once"];

/// Does a stack's leaf wait until another thread has initialised something?
pub(crate) fn waits_for_initialiser(v: &Vertex, catalog: &Catalog) -> bool {
    let near = || catalog.frames_of(v.user_stack).take(NEAR);
    let class = near().find(|f| tells(f, &[CLASS, RUNS_CLASS]));
    class.is_some_and(|f| !tells(f, &[RUNS_CLASS]))
        || near().take_while(|f| waits(f)).any(|f| tells(f, &ONCE))
}

/// Is it the function in which one waits for a class to be initialised?
pub(crate) fn is_initialiser(function: &str) -> bool {
    tells_of(function, &[CLASS])
}

/// Is what a stack shows part of such an initialisation? Of C++'s static variables that is not seen.
pub(crate) fn initialises(stack: StackId, catalog: &Catalog) -> bool {
    let above = catalog.frames_of(stack).skip_while(|f| waits(f));
    above.into_iter().any(|f| tells(f, &[RUNS_CLASS, "once::futex", "pthread_once"]))
}

/// Nothing of the program's own is in the frame.
fn waits(f: &Frame) -> bool {
    f.names().all(|n| tells_of(n, &["futex", "syscall"]) || tells_of(n, &ONCE))
}

fn tells(f: &Frame, words: &[&str]) -> bool {
    f.names().any(|n| tells_of(n, words))
}
