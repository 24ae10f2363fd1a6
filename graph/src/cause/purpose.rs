//! What a wait was for, by its stack: wrappers around system calls have many callers, what they wait for has one.

use super::Writer;
use crate::diagnose::SliceNode;
use crate::initialise::is_initialiser;
use crate::words::{Named, is_interpreter, is_plumbing, named, of_language, own_named, telling};
use pg_event::{Catalog, StackId};
use std::collections::HashMap;

/// Most wrappers skipped.
const WRAPPERS: usize = 6;
/// Most stacks of a recording looked at.
const MAX_STACKS: usize = 100_000;

/// Who calls a function, as far as that is told apart: nobody known, one function, or several.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Callers {
    One(String),
    Several,
}

/// Functions (with their modules) and who calls them in the recording's stacks.
#[derive(Default, Debug)]
pub(super) struct CallersOf(HashMap<(String, String), Callers>);

impl CallersOf {
    /// Of the modules that `stacks` are in.
    fn of(catalog: &Catalog) -> Self {
        let mut out = Self::default();
        for i in 0..catalog.stacks.len().min(MAX_STACKS) {
            let frames = outside(catalog, StackId(i as u32));
            for pair in frames.windows(2) {
                let [f, by] = pair else { continue };
                let by = by.function.clone();
                out.0
                    .entry((f.module.clone(), f.function.clone()))
                    .and_modify(|c| {
                        if *c != Callers::One(by.clone()) {
                            *c = Callers::Several;
                        }
                    })
                    .or_insert(Callers::One(by));
            }
        }
        out
    }

    fn several(&self, f: &Named) -> bool {
        self.0.get(&(f.module.clone(), f.function.clone())) == Some(&Callers::Several)
    }
}

/// The frames outside the C library and the kernel; of Python programs the Python functions.
fn outside(catalog: &Catalog, stack: StackId) -> Vec<Named> {
    own_named(&named(catalog, stack)).cloned().collect()
}

/// Is it a function a person asks for?
fn asked_for(f: &Named) -> bool {
    f.symbolised && (f.python.is_some() || !is_plumbing(&f.module) && !is_interpreter(&f.module))
}

impl Writer<'_> {
    /// The function in which a step waited: the first one from the leaf that is no wrapper, of the program itself
    /// rather than of its language.
    pub(super) fn purpose(&self, n: &SliceNode) -> Option<Named> {
        let stack = self.g.vertex(n.vertex).user_stack;
        let callers = self.callers.get_or_init(|| CallersOf::of(self.c));
        let frames = outside(self.c, stack);
        let tells = |f: &&Named| f.symbolised && (!callers.several(f) || is_initialiser(&f.function));
        let program = frames.iter().filter(|f| !of_language(&f.function)).take(WRAPPERS).find(tells);
        let own = program.or_else(|| frames.iter().take(WRAPPERS).find(tells));
        own.cloned().or_else(|| telling(&named(self.c, stack)).cloned())
    }

    /// Is nothing known of where it waited but how the interpreter of its language is made? That tells nobody anything.
    pub(super) fn in_interpreter(&self, n: &SliceNode) -> bool {
        let frames = named(self.c, self.g.vertex(n.vertex).user_stack);
        telling(&frames).is_some_and(|f| f.python.is_none() && is_interpreter(&f.module))
    }

    /// Its name, where it has one outside the C library.
    pub(super) fn called_from(&self, n: &SliceNode) -> Option<String> {
        if n.state != "blocked" {
            return n.function.clone();
        }
        self.purpose(n).filter(asked_for).map(|f| f.function)
    }
}
