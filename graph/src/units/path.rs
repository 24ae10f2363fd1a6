//! Functions, call paths and units.

use super::inference::Context;
use pg_event::Ns;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Frames of a call path that are kept, the outermost. Deeper stacks are recursion as a rule, whose end says
/// nothing new about the type.
pub const MAX_FRAMES: usize = 256;

/// A function: an index into a table of functions that the caller keeps (in a profile its function table).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct FunctionId(pub u32);

/// A call path (section 4.3): functions from the root of a unit's call tree, which is the function that the
/// loop is in, to a leaf.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct CallPath(Box<[FunctionId]>);

impl CallPath {
    /// Of the functions on a stack, outermost first, beginning with the loop's own. What is deeper than
    /// [`MAX_FRAMES`] is left out.
    pub fn new(outermost_first: impl IntoIterator<Item = FunctionId>) -> Self {
        Self(outermost_first.into_iter().take(MAX_FRAMES).collect())
    }

    /// The functions, outermost first.
    pub fn functions(&self) -> &[FunctionId] {
        &self.0
    }

    /// Number of frames, |p| in equation 1; 0 to [`MAX_FRAMES`].
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether it has no frame at all.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The call paths of a unit, P in equation 2: distinct, in ascending order, so that equal sets are equal values
/// however they came about.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct PathSet(Box<[CallPath]>);

impl PathSet {
    /// Of any paths, in any order, with repetitions.
    pub fn new(paths: impl IntoIterator<Item = CallPath>) -> Self {
        let mut paths: Vec<CallPath> = paths.into_iter().collect();
        paths.sort_unstable();
        paths.dedup();
        Self(paths.into())
    }

    /// The paths, ascending.
    pub fn paths(&self) -> &[CallPath] {
        &self.0
    }

    /// Number of distinct paths.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether nothing is known of what the unit called.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether some path goes through `function`.
    pub fn calls(&self, function: FunctionId) -> bool {
        self.0.iter().any(|p| p.functions().contains(&function))
    }
}

/// What a unit called: its call tree, and where the functions of it were called with how deep a stack, as far as that is
/// known. Two units with the same paths may differ in the latter, where calls between are not seen.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Called {
    /// The paths.
    pub paths: PathSet,
    /// The contexts that it came by.
    pub contexts: BTreeSet<Context>,
}

impl From<PathSet> for Called {
    fn from(paths: PathSet) -> Self {
        Self { paths, contexts: BTreeSet::new() }
    }
}

/// A unit of work as it was recorded.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unit {
    /// From the return of the loop's wait call to the next call of it, in ns. Blocking in between counts,
    /// waiting for input does not (section 3).
    pub duration: Ns,
    /// What it called.
    pub paths: PathSet,
    /// Where the functions on its paths were called with how deep a stack, as far as that is known: what its type
    /// is recognised by at run time (section 4.4). Those of other functions are not kept.
    pub contexts: BTreeSet<Context>,
}
