//! A unit's call tree and the paths in it: lines 1 to 10 of algorithm 1.

use super::path::{CallPath, FunctionId, MAX_FRAMES, PathSet};
use std::collections::BTreeMap;

/// The calling contexts of a unit, built from its stacks.
///
/// The paper records every call (with Pin); here a context is seen when a stack is taken in it. The tree is one
/// of calling contexts, as in figure 3: calls of the same function from the same context are one node. So a
/// stack that ends in a context which another stack goes on from adds no path (line 5: only a node without
/// children ends one).
#[derive(Clone, Debug, Default)]
pub struct CallTree {
    /// Children of each node by function; the first entry is above the roots.
    nodes: Vec<BTreeMap<FunctionId, usize>>,
}

impl CallTree {
    /// A tree without any node.
    pub fn new() -> Self {
        Self { nodes: vec![BTreeMap::new()] }
    }

    /// Adds a stack, outermost function first, which should be the one that the loop is in. Frames beyond
    /// [`MAX_FRAMES`] are left out.
    pub fn add(&mut self, outermost_first: impl IntoIterator<Item = FunctionId>) {
        if self.nodes.is_empty() {
            self.nodes.push(BTreeMap::new());
        }
        let mut at = 0;
        for function in outermost_first.into_iter().take(MAX_FRAMES) {
            let next = self.nodes.len();
            at = *self.nodes[at].entry(function).or_insert(next);
            if at == next {
                self.nodes.push(BTreeMap::new());
            }
        }
    }

    /// `GetPathSet`: the paths from a root to a node without children.
    pub fn paths(&self) -> PathSet {
        let mut paths = Vec::new();
        // Children that are still to be visited, per level: the recursion of `GetPath` without its stack.
        let mut path: Vec<FunctionId> = Vec::new();
        let Some(roots) = self.nodes.first() else { return PathSet::default() };
        let mut open = vec![roots.iter()];
        while let Some(children) = open.last_mut() {
            let Some((&function, &node)) = children.next() else {
                open.pop();
                path.pop();
                continue;
            };
            path.push(function);
            if self.nodes[node].is_empty() {
                paths.push(CallPath::new(path.iter().copied()));
                path.pop();
            } else {
                open.push(self.nodes[node].iter());
            }
        }
        PathSet::new(paths)
    }
}

/// The call paths of a unit from functions that it entered, in that order, each with how deep the stack was there in
/// bytes from the loop's frame: what guards tell of a unit, since they walk no stack (section 4.4). A function is
/// called by the latest one before it that is less deep. Functions between both that are not guarded are missing;
/// one that another ended with (a tail call) stands beside it; and one that returned before an equally shallow
/// caller that is not guarded began stands above what that calls.
pub fn unit_from_hits(hits: impl IntoIterator<Item = (FunctionId, u32)>) -> PathSet {
    let mut tree = CallTree::new();
    let mut open: Vec<(FunctionId, u32)> = Vec::new();
    for (function, depth) in hits {
        open.truncate(open.iter().rposition(|o| o.1 < depth).map_or(0, |i| i + 1));
        open.push((function, depth));
        tree.add(open.iter().map(|o| o.0));
    }
    tree.paths()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::tests::{path, paths};
    use proptest::prelude::*;

    fn hits(letters: &str, depths: &[u32]) -> PathSet {
        unit_from_hits(letters.chars().map(|l| FunctionId(l.into())).zip(depths.iter().copied()))
    }

    #[test]
    fn a_hit_is_called_by_the_latest_that_is_less_deep() {
        // A calls B, that calls C, that calls D (or B calls both); then A calls E.
        assert_eq!(hits("ABCDE", &[0, 10, 20, 24, 10]), paths(&["ABCD", "AE"]));
        assert_eq!(hits("ABCDE", &[0, 10, 20, 20, 10]), paths(&["ABC", "ABD", "AE"]));
        // B is not guarded; a tail call of C by B; the same again and recursion.
        assert_eq!(hits("AC", &[0, 20]), paths(&["AC"]));
        assert_eq!(hits("ABC", &[0, 10, 10]), paths(&["AB", "AC"]));
        assert_eq!(hits("ABAB", &[0, 10, 0, 10]), paths(&["AB"]));
        assert_eq!(hits("ABBB", &[0, 10, 20, 30]), paths(&["ABBB"]));
        assert_eq!(hits("", &[]), PathSet::default());
    }

    /// A call: which function, how many bytes its frame has, and what it calls.
    #[derive(Clone, Debug)]
    struct Call(u32, u32, Vec<Call>);

    fn any_call() -> impl Strategy<Value = Call> {
        let leaf = (0u32..6, 1u32..5).prop_map(|(f, size)| Call(f, size, Vec::new()));
        leaf.prop_recursive(5, 24, 4, |inner| {
            (0u32..6, 1u32..5, prop::collection::vec(inner, 0..4))
                .prop_map(|(f, size, all)| Call(f, size, all))
        })
    }

    fn run(
        call: &Call,
        depth: u32,
        stack: &mut Vec<FunctionId>,
        hits: &mut Vec<(FunctionId, u32)>,
        tree: &mut CallTree,
    ) {
        stack.push(FunctionId(call.0));
        hits.push((FunctionId(call.0), depth));
        tree.add(stack.iter().copied());
        for c in &call.2 {
            run(c, depth + call.1, stack, hits, tree);
        }
        stack.pop();
    }

    proptest! {
        /// Where every function is guarded, hits give the paths of the real stacks.
        #[test]
        fn units_from_hits_are_those_of_their_stacks(call in any_call()) {
            let (mut hits, mut tree) = (Vec::new(), CallTree::new());
            run(&call, 0, &mut Vec::new(), &mut hits, &mut tree);
            prop_assert_eq!(unit_from_hits(hits), tree.paths());
        }
    }

    fn tree(stacks: &[&str]) -> CallTree {
        let mut tree = CallTree::new();
        for s in stacks {
            tree.add(path(s).functions().iter().copied());
        }
        tree
    }

    #[test]
    fn figure_4_paths_end_in_leaves_only() {
        let all = tree(&["ABECF", "ABECDG", "ABEDH"]);
        assert_eq!(all.paths(), paths(&["ABECDG", "ABECF", "ABEDH"]));
        // Contexts on the way to a leaf are no paths of their own, and repetition adds nothing.
        let again = tree(&["A", "ABE", "ABECF", "ABECF", "ABEDH", "ABED", "ABECDG", "ABEC"]);
        assert_eq!(again.paths(), all.paths());
    }

    #[test]
    fn several_roots_and_none() {
        assert_eq!(CallTree::new().paths(), PathSet::default());
        assert_eq!(CallTree::default().paths(), PathSet::default());
        assert_eq!(tree(&["B", "A", "BC"]).paths(), paths(&["A", "BC"]));
    }

    #[test]
    fn recursion_is_cut_where_a_path_ends() {
        let mut tree = CallTree::new();
        tree.add((0..10_000).map(|_| FunctionId(7)));
        assert_eq!(tree.paths().paths()[0].len(), MAX_FRAMES);
    }
}
