//! Natural loops of a flow graph: a back edge leads to a node that dominates its source, and the loop is what reaches
//! that source without passing the head (Aho, Sethi and Ullman, section 10.4). Back edges to one head make one loop. A
//! cycle with two entries (irreducible) has no head and is no natural loop.

use petgraph::algo::dominators::simple_fast;
use petgraph::graph::{DiGraph, NodeIndex};

/// Number of a loop in [`Loops`].
pub type LoopId = usize;

/// One loop.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Loop {
    /// The node that every turn passes.
    pub head: usize,
    /// The loop around it.
    pub parent: Option<LoopId>,
}

/// The loops of a graph and how they are nested.
#[derive(Clone, Debug, Default)]
pub struct Loops {
    /// Inner ones before those around them.
    pub loops: Vec<Loop>,
    innermost: Vec<Option<LoopId>>,
    /// In the tree of dominators: when a search from the root came to a node and when it left; `None` for nodes that the
    /// root does not reach.
    span: Vec<Option<(u32, u32)>>,
}

impl Loops {
    /// Find the loops of the graph in which node `i` leads to `next[i]`, entered at `root`. Edges to nodes that are not
    /// there are left out. Takes time as the dominators do (quadratic at worst): the caller bounds the graph.
    pub fn find(next: &[Vec<usize>], root: usize) -> Self {
        let n = next.len();
        if root >= n {
            return Self { innermost: vec![None; n], span: vec![None; n], ..Self::default() };
        }
        let mut graph = DiGraph::<(), (), u32>::with_capacity(n, n * 2);
        for _ in 0..n {
            graph.add_node(());
        }
        let mut before = vec![Vec::new(); n];
        for (from, to) in next.iter().enumerate().flat_map(|(i, all)| all.iter().map(move |&t| (i, t))) {
            if to < n {
                graph.add_edge(NodeIndex::new(from), NodeIndex::new(to), ());
                before[to].push(from);
            }
        }
        let dominators = simple_fast(&graph, NodeIndex::new(root));
        let mut below = vec![Vec::new(); n];
        for i in 0..n {
            if let Some(d) = dominators.immediate_dominator(NodeIndex::new(i)) {
                below[d.index()].push(i);
            }
        }
        let (span, order) = spans(&below, root);
        let mut found = Self { loops: Vec::new(), innermost: vec![None; n], span };
        // A node comes after those that dominate it, so inner heads come first here.
        for &head in order.iter().rev() {
            let latches: Vec<usize> =
                before[head].iter().copied().filter(|&b| found.dominates(head, b)).collect();
            if !latches.is_empty() {
                found.add(head, latches, &before);
            }
        }
        found
    }

    /// A loop whose inner loops are known already. Each of those is passed as a whole, so that all loops together take
    /// time in proportion to the edges and the depth.
    fn add(&mut self, head: usize, mut work: Vec<usize>, before: &[Vec<usize>]) {
        let id = self.loops.len();
        self.loops.push(Loop { head, parent: None });
        self.innermost[head] = Some(id);
        while let Some(node) = work.pop() {
            if self.span[node].is_none() || node == head {
                continue;
            }
            let Some(inner) = self.innermost[node] else {
                self.innermost[node] = Some(id);
                work.extend(&before[node]);
                continue;
            };
            let outer = self.outermost(inner);
            if outer != id {
                self.loops[outer].parent = Some(id);
                work.extend(&before[self.loops[outer].head]);
            }
        }
    }

    fn outermost(&self, mut id: LoopId) -> LoopId {
        while let Some(parent) = self.loops[id].parent {
            id = parent;
        }
        id
    }

    /// Does every way from the root to `b` pass `a`? Nodes that the root does not reach are dominated by nobody.
    pub fn dominates(&self, a: usize, b: usize) -> bool {
        match (self.span.get(a), self.span.get(b)) {
            (Some(Some(a)), Some(Some(b))) => a.0 <= b.0 && b.1 <= a.1,
            _ => false,
        }
    }

    /// Does the root reach it?
    pub fn reached(&self, node: usize) -> bool {
        self.span.get(node).is_some_and(Option::is_some)
    }

    /// The loops around a node, the innermost first.
    pub fn around(&self, node: usize) -> impl Iterator<Item = LoopId> + '_ {
        let first = self.innermost.get(node).copied().flatten();
        std::iter::successors(first, |&id| self.loops[id].parent)
    }

    /// The innermost loop that both are in.
    pub fn common(&self, a: usize, b: usize) -> Option<LoopId> {
        self.around(a).find(|&id| self.around(b).any(|other| other == id))
    }
}

/// When a search through the tree comes to a node and leaves it, and the nodes in the order it comes to them.
fn spans(below: &[Vec<usize>], root: usize) -> (Vec<Option<(u32, u32)>>, Vec<usize>) {
    let mut spans = vec![None; below.len()];
    let mut order = Vec::new();
    let mut time = 0;
    let mut path = vec![(root, 0)];
    spans[root] = Some((0, 0));
    order.push(root);
    while let Some((node, done)) = path.last_mut() {
        time += 1;
        if let Some(&child) = below[*node].get(*done) {
            *done += 1;
            spans[child] = Some((time, time));
            order.push(child);
            path.push((child, 0));
        } else {
            if let Some(span) = &mut spans[*node] {
                span.1 = time;
            }
            path.pop();
        }
    }
    (spans, order)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::{BTreeMap, BTreeSet};

    /// Edges as `0>1 1>2`, entered at 0.
    fn drawn(edges: &str) -> Loops {
        let edges: Vec<(usize, usize)> = edges
            .split_whitespace()
            .map(|e| e.split_once('>').map(|(a, b)| (a.parse().unwrap(), b.parse().unwrap())).unwrap())
            .collect();
        let n = edges.iter().map(|e| e.0.max(e.1)).max().unwrap() + 1;
        let mut next = vec![Vec::new(); n];
        for (a, b) in edges {
            next[a].push(b);
        }
        Loops::find(&next, 0)
    }

    /// Heads of the loops around a node, innermost first.
    fn heads(l: &Loops, node: usize) -> Vec<usize> {
        l.around(node).map(|id| l.loops[id].head).collect()
    }

    #[test]
    fn while_and_do_while() {
        // while: 1 asks, 2 does; do-while: 4 does and asks.
        let l = drawn("0>1 1>2 2>1 1>3 3>4 4>4 4>5");
        assert_eq!((heads(&l, 1), heads(&l, 2), heads(&l, 3)), (vec![1], vec![1], vec![]));
        assert_eq!((heads(&l, 4), heads(&l, 5)), (vec![4], vec![]));
    }

    #[test]
    fn a_loop_with_continue_is_one_loop() {
        let l = drawn("0>1 1>2 2>1 2>3 3>1 1>4");
        assert_eq!(l.loops.len(), 1);
        assert_eq!((heads(&l, 3), heads(&l, 4)), (vec![1], vec![]));
    }

    #[test]
    fn nested_loops() {
        let l = drawn("0>1 1>2 2>3 3>2 3>4 4>1 4>5");
        assert_eq!((heads(&l, 3), heads(&l, 4), heads(&l, 5)), (vec![2, 1], vec![1], vec![]));
        assert_eq!(l.common(3, 4).map(|id| l.loops[id].head), Some(1));
        assert_eq!(l.common(0, 4), None);
    }

    #[test]
    fn a_cycle_with_two_entries_is_no_natural_loop() {
        let l = drawn("0>1 0>2 1>2 2>1 2>3");
        assert!(l.loops.is_empty());
        assert!(l.reached(3));
    }

    #[test]
    fn what_is_not_reached_is_in_no_loop() {
        // 2 is dead and jumps into the loop: the loop keeps its head.
        let l = drawn("0>1 1>1 2>1 1>3 2>2");
        assert_eq!((heads(&l, 1), heads(&l, 2)), (vec![1], vec![]));
        assert!(!l.reached(2));
        assert!(Loops::find(&[], 0).loops.is_empty());
    }

    fn reach(next: &[Vec<usize>], from: usize, without: Option<usize>) -> BTreeSet<usize> {
        let mut seen = BTreeSet::new();
        let mut work = vec![from];
        while let Some(node) = work.pop() {
            if Some(node) != without && seen.insert(node) {
                work.extend(&next[node]);
            }
        }
        seen
    }

    /// Head and body of each loop, word by word as they are defined.
    fn by_definition(next: &[Vec<usize>]) -> BTreeMap<usize, BTreeSet<usize>> {
        let live = reach(next, 0, None);
        // Without a, b is not reached.
        let dominates = |a: usize, b: usize| a == b || !reach(next, 0, Some(a)).contains(&b);
        let mut bodies: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
        for &latch in &live {
            for &head in next[latch].iter().filter(|&&h| dominates(h, latch)) {
                let body = bodies.entry(head).or_default();
                body.insert(head);
                body.extend(
                    live.iter().filter(|&&x| x != head && reach(next, x, Some(head)).contains(&latch)),
                );
            }
        }
        bodies
    }

    proptest! {
        #[test]
        fn as_defined(n in 1usize..12, edges in proptest::collection::vec((0usize..12, 0usize..12), 0..30)) {
            let mut next = vec![Vec::new(); n];
            for (a, b) in edges {
                next[a % n].push(b % n);
            }
            let found = Loops::find(&next, 0);
            let want = by_definition(&next);
            let heads: BTreeSet<usize> = found.loops.iter().map(|l| l.head).collect();
            prop_assert_eq!(heads.len(), found.loops.len());
            prop_assert_eq!(&heads, &want.keys().copied().collect());
            for node in 0..n {
                let mut around: Vec<(usize, usize)> =
                    want.iter().filter(|(_, body)| body.contains(&node)).map(|(h, body)| (body.len(), *h)).collect();
                around.sort_unstable();
                let ours: Vec<usize> = found.around(node).map(|id| found.loops[id].head).collect();
                let all: BTreeSet<usize> = ours.iter().copied().collect();
                prop_assert_eq!(&all, &around.iter().map(|a| a.1).collect());
                // Inner ones are smaller: two natural loops with different heads are nested or disjoint, or one's head
                // lies in the other.
                let sizes: Vec<usize> = ours.iter().map(|h| want[h].len()).collect();
                prop_assert!(sizes.is_sorted(), "{:?} {:?}", ours, sizes);
            }
        }
    }
}
