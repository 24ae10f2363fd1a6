//! What the tests of this module share: functions are letters, call paths are words.

use super::*;
use proptest::prelude::*;

/// A call path of one-letter functions, outermost first.
pub(super) fn path(word: &str) -> CallPath {
    CallPath::new(word.bytes().map(|b| FunctionId(b.into())))
}

/// A set of such paths.
pub(super) fn paths(words: &[&str]) -> PathSet {
    PathSet::new(words.iter().map(|w| path(w)))
}

/// Small sets of short paths over few functions, so that much is common.
pub(super) fn any_set() -> impl Strategy<Value = PathSet> {
    let word = prop::collection::vec(0u32..6, 0..8);
    prop::collection::vec(word, 0..5).prop_map(|words| {
        PathSet::new(words.into_iter().map(|w| CallPath::new(w.into_iter().map(FunctionId))))
    })
}
