//! Units of work, their types, and how long each type may take: the pure core of PerfGuard (Kim, Rhee, Lee,
//! Zhang, Xu, FSE 2016). "Section" and "equation" in this module mean that paper.
//!
//! A *unit* is one turn of an event-processing loop, from the return of its wait call to the next call of it
//! (section 3). What is known of a unit is its duration and its *call paths* below the loop's frame. Units with
//! similar call paths are of one *type* (sections 4.2 and 4.3), and each type has a *threshold* learnt from its
//! durations (section 4.5), kept in a *profile*. A running unit's type is *inferred* from the contexts it comes
//! by, and a unit that runs longer than the threshold of its type is a violation (sections 4.4 and 4.6).
//!
//! | file | what |
//! |---|---|
//! | `path` | functions, call paths, sets of them, units |
//! | `tree` | call trees, and the paths in them (algorithm 1, lines 1 to 10) |
//! | `lcs` | the longest common subsequence, 64 cells at a time |
//! | `distance` | distance of paths and of units (equations 1 and 2; algorithm 1, lines 11 to 22) |
//! | `cluster` | hierarchical clustering of any distances |
//! | `types` | types of units, and where an unknown unit belongs |
//! | `refine` | types split by what explains their units' times, as far as guards can tell |
//! | `names` | names for types |
//! | `histogram`, `stats` | durations in figures that merge exactly |
//! | `thresholds` | how long a type may take (equation 3), and quantiles |
//! | `table` | the types by cost (table 5) |
//! | `profile` | what was learnt of a program, merged, written, read and shown |
//! | `inference` | the type of a running unit (figure 4) |
//! | `guard` | algorithm 2 as a state machine |
//! | `select` | which functions are guarded |

mod cluster;
mod distance;
mod few;
mod guard;
mod histogram;
mod inference;
mod lcs;
mod names;
mod path;
mod profile;
mod refine;
mod select;
mod stats;
mod table;
mod thresholds;
mod tree;
mod types;

pub use cluster::{Linkage, Merge, cut, merges};
pub use distance::{PathDistances, path_distance, unit_distance};
pub use guard::{Guard, Violation};
pub use histogram::{Histogram, LONGEST};
pub use inference::{Context, Contexts, Inference, TypeContexts};
pub use lcs::Lcs;
pub use names::type_names;
pub use path::{CallPath, Called, FunctionId, MAX_FRAMES, PathSet, Unit};
pub use profile::{
    Binary, Boundary, CONFIDENCE, DecodeError, EncodeError, Function, Given, KnownTypes, Limit, Listed,
    LoopFunction, LoopKey, LoopTypes, MAX_BUILD_ID, MAX_BYTES, MAX_TEXT, NativeWay, Place, Profile,
    RequestWay, VERSION,
};
pub use refine::{RefineOptions, Refined, TreeTimes, precedence, refine};
pub use select::{Candidate, MOST_SHARED, SelectOptions, candidates, guards, select, telling};
pub use stats::{Contradiction, UnitStats};
pub use table::{Row, average_relative, table};
pub use thresholds::{Caution, Rule, Threshold, needed, threshold};
pub use tree::{CallTree, unit_from_hits};
pub use types::{Belongs, Measure, Tree, TypeId, TypeOptions, UnitType, UnitTypes};

#[cfg(test)]
mod tests;
