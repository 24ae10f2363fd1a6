//! Sleeps that runtimes and servers make of the wait for a condition which nobody but time, or who cancels them, ends.

use crate::Vertex;
use pg_event::{Catalog, Frame};

/// Functions of the innermost ones that are looked at.
const NEAR: usize = 12;

/// Is it a sleep in a Java program, or that of `SLEEP()` in a statement of MariaDB or MySQL?
pub(crate) fn sleeps_by_lock(v: &Vertex, catalog: &Catalog) -> bool {
    const BEGIN: [&str; 3] = ["JavaThread::sleep", "Item_func_sleep::", "Interruptible_wait::"];
    let sleeps = |f: &Frame| f.function == "JVM_Sleep" || BEGIN.iter().any(|b| f.function.starts_with(b));
    catalog.frames_of(v.user_stack).take(NEAR).any(sleeps)
}
