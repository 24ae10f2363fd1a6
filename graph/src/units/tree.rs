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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::tests::{path, paths};

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
