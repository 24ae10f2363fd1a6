//! Waits within the handler of a signal: the function that the signal interrupted goes on only when the handler returns, and
//! what it holds it keeps until then.

use crate::words::{Named, clean, is_plumbing, named};
use pg_event::{Catalog, SIGNAL_RETURN, StackId};

/// What a stack within a signal's handler shows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Handler {
    /// The handler's function.
    pub function: String,
    /// The function that the signal interrupted.
    pub interrupted: String,
}

impl Handler {
    /// `, in report, the handler of a signal that interrupted update_stats`.
    pub fn words(&self) -> String {
        let (function, interrupted) = (clean(&self.function, 40), clean(&self.interrupted, 80));
        format!(", in {function}, the handler of a signal that interrupted {interrupted}")
    }
}

/// The handler that a stack is in, if it is in one and both functions have names.
pub(crate) fn handler(c: &Catalog, stack: StackId) -> Option<Handler> {
    let frames = named(c, stack);
    let at = frames.iter().position(|f| f.function == SIGNAL_RETURN)?;
    let function = frames[..at].last().filter(|f| f.symbolised)?;
    let known = |f: &&Named| f.symbolised;
    let below = || frames[at + 1..].iter().filter(known);
    let (first, own) = (below().next()?, below().find(|f| !is_plumbing(&f.module)));
    let interrupted = match own.filter(|o| o.function != first.function) {
        Some(own) => format!("{}, called by {}", first.function, own.function),
        None => first.function.clone(),
    };
    Some(Handler { function: function.function.clone(), interrupted })
}
