//! Cycles with several entries made into natural loops where only a merged tail keeps them from being one.
//!
//! Compilers merge equal ends of blocks, also of one before a loop with one inside it (the main loop of a PostgreSQL
//! backend: `send_ready_for_query = true` on both ways to the head). The cycle then has two entries and no head. A block
//! without calls by which a cycle is entered is doubled: the copy is for those who come from outside. What the program
//! does stays the same, and addresses of calls keep one block each (node splitting: Aho, Sethi and Ullman, section 10.9).

// Not Tarjan's, which calls itself as deep as the graph is.
use petgraph::algo::kosaraju_scc;
use petgraph::graph::{DiGraph, NodeIndex};
use std::collections::BTreeSet;

/// Most copies made.
const MAX_COPIES: usize = 64;
/// Most graphs looked at: cycles, and what is left of them without their heads.
const MAX_LOOKS: usize = 4096;
/// Most edges that all those graphs may have together, each counted as often as it is looked at: an interpreter's main loop
/// leads from each of its operations to each.
const MAX_WORK: usize = 2_000_000;

/// Double the blocks, at the end of the list. `may(b)`: block `b` may be doubled.
pub(super) fn split(next: &mut Vec<Vec<usize>>, root: usize, may: impl Fn(usize) -> bool) {
    let blocks = next.len();
    let may = |b: usize| b < blocks && b != root && may(b);
    let mut copies = 0;
    let mut spent = 0;
    let mut work: Vec<Vec<usize>> = vec![reached(next, root)];
    // Heads of loops that are looked into: edges to them are those of the loop around.
    let mut heads = BTreeSet::new();
    for _ in 0..MAX_LOOKS {
        let Some(mut nodes) = work.pop() else { return };
        let size = edges(next, &nodes);
        spent += size;
        if spent > MAX_WORK {
            return;
        }
        let cycles = cycles(next, &nodes, &heads);
        let mut found = entries(next, root, &cycles, &nodes, &heads);
        for (i, cycle) in cycles.iter().enumerate() {
            while found[i].len() > 1 && copies < MAX_COPIES && spent <= MAX_WORK {
                // The one that leads on to fewest, so that few new entries come of it.
                let tail = found[i].iter().copied().filter(|&e| may(e)).min_by_key(|&e| (next[e].len(), e));
                let Some(tail) = tail else { break };
                double(next, &nodes, cycle, tail);
                nodes.push(next.len() - 1);
                copies += 1;
                spent += size;
                found = entries(next, root, &cycles, &nodes, &heads);
            }
        }
        for (cycle, entries) in cycles.into_iter().zip(found) {
            if entries.len() == 1 {
                heads.extend(entries);
                work.push(cycle.into_iter().collect());
            }
        }
    }
}

/// Give each cycle that still has several entries (the main loop of libuv as gcc 12 turns it) one head: the entry that
/// comes first. Ways from outside to its other entries lead to the head instead. Who is in the cycle gets from one place
/// of it to another as before, and everybody leads to whom they led before, since a cycle's nodes lead to each other.
/// Returns those heads.
pub(super) fn merge(next: &mut [Vec<usize>], root: usize) -> BTreeSet<usize> {
    let mut merged = BTreeSet::new();
    let mut spent = 0;
    let mut work: Vec<Vec<usize>> = vec![reached(next, root)];
    let mut heads = BTreeSet::new();
    for _ in 0..MAX_LOOKS {
        let Some(nodes) = work.pop() else { break };
        spent += edges(next, &nodes);
        if spent > MAX_WORK {
            break;
        }
        let cycles = cycles(next, &nodes, &heads);
        let found = entries(next, root, &cycles, &nodes, &heads);
        for (cycle, mut entries) in cycles.into_iter().zip(found) {
            let first = if entries.contains(&root) { Some(root) } else { entries.first().copied() };
            let Some(head) = first else { continue };
            entries.remove(&head);
            merged.extend((!entries.is_empty()).then_some(head));
            for &from in nodes.iter().filter(|n| !cycle.contains(n)) {
                next[from].iter_mut().filter(|t| entries.contains(t)).for_each(|t| *t = head);
            }
            heads.insert(head);
            work.push(cycle.into_iter().collect());
        }
    }
    merged
}

/// How many edges lead from some nodes, and the nodes.
fn edges(next: &[Vec<usize>], nodes: &[usize]) -> usize {
    nodes.iter().map(|&n| next[n].len() + 1).sum()
}

/// Dead code enters no cycle.
fn reached(next: &[Vec<usize>], root: usize) -> Vec<usize> {
    let mut seen = vec![false; next.len()];
    let mut work = vec![root];
    while let Some(node) = work.pop() {
        if node < next.len() && !std::mem::replace(&mut seen[node], true) {
            work.extend(&next[node]);
        }
    }
    (0..next.len()).filter(|&n| seen[n]).collect()
}

/// Strongly connected parts of some nodes that are cycles, edges to heads left out.
fn cycles(next: &[Vec<usize>], nodes: &[usize], heads: &BTreeSet<usize>) -> Vec<BTreeSet<usize>> {
    let mut graph = DiGraph::<usize, (), u32>::with_capacity(nodes.len(), nodes.len() * 2);
    let mut index = vec![None; next.len()];
    for &n in nodes {
        index[n] = Some(graph.add_node(n));
    }
    let mut itself = BTreeSet::new();
    for &from in nodes {
        for &to in next[from].iter().filter(|t| !heads.contains(t)) {
            if let (Some(a), Some(b)) = (index[from], index.get(to).copied().flatten()) {
                graph.add_edge(a, b, ());
                itself.extend((from == to).then_some(from));
            }
        }
    }
    let named = |part: Vec<NodeIndex>| part.into_iter().map(|i| graph[i]).collect::<BTreeSet<usize>>();
    let all = kosaraju_scc(&graph).into_iter().map(named);
    all.filter(|c| c.len() > 1 || c.iter().any(|n| itself.contains(n))).collect()
}

/// Of each cycle, the nodes that others lead to. Edges into a cycle come from the nodes that it was found among.
fn entries(
    next: &[Vec<usize>],
    root: usize,
    cycles: &[BTreeSet<usize>],
    nodes: &[usize],
    heads: &BTreeSet<usize>,
) -> Vec<BTreeSet<usize>> {
    let mut of = vec![None; next.len()];
    for (i, cycle) in cycles.iter().enumerate() {
        for &n in cycle {
            of[n] = Some(i);
        }
    }
    let of = |node: usize| of.get(node).copied().flatten();
    let mut found = vec![BTreeSet::new(); cycles.len()];
    let all = nodes.iter().flat_map(|&from| next[from].iter().map(move |&to| (Some(from), to)));
    for (from, to) in all.chain([(None, root)]).filter(|(_, to)| !heads.contains(to)) {
        if let Some(cycle) = of(to)
            && from.and_then(of) != Some(cycle)
        {
            found[cycle].insert(to);
        }
    }
    found
}

/// A copy of a node for those who come from outside of the cycle.
fn double(next: &mut Vec<Vec<usize>>, nodes: &[usize], cycle: &BTreeSet<usize>, node: usize) {
    let copy = next.len();
    for &from in nodes.iter().filter(|n| !cycle.contains(n)) {
        next[from].iter_mut().filter(|t| **t == node).for_each(|t| *t = copy);
    }
    let leads = next[node].clone();
    next.push(leads);
}

#[cfg(test)]
mod tests {
    use super::super::natural::Loops;
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_merged_tail_is_doubled() {
        // 1 decides, 2 is the tail that both the way in and the loop 3, 4 pass; 3 is the head.
        let mut next = vec![vec![1], vec![2, 3], vec![3], vec![4, 5], vec![2, 3], vec![]];
        assert_eq!(Loops::find(&next, 0).loops.len(), 1);
        let before = Loops::find(&next, 0);
        assert_eq!(before.around(2).count(), 0);
        split(&mut next, 0, |b| b == 2);
        assert_eq!((next.len(), &next[1], &next[6]), (7, &vec![6, 3], &vec![3]));
        let after = Loops::find(&next, 0);
        assert_eq!(after.around(2).map(|id| after.loops[id].head).collect::<Vec<_>>(), [3]);
        // Dead code that jumps into a loop changes nothing.
        let mut next = vec![vec![1], vec![2, 3], vec![1], vec![], vec![2]];
        split(&mut next, 0, |_| true);
        assert_eq!(next.len(), 5);
        // Who holds calls is not doubled.
        let mut next = vec![vec![1, 2], vec![2], vec![1]];
        split(&mut next, 0, |_| false);
        assert_eq!(next, [vec![1, 2], vec![2], vec![1]]);
    }

    #[test]
    fn a_cycle_with_several_entries_gets_a_head() {
        // 1 and 2 are entered from 0, and lead to each other; 3 and 4 are a cycle in that cycle, entered at both.
        let mut next = vec![vec![1, 2], vec![2], vec![3, 4, 5], vec![4], vec![3, 1], vec![]];
        assert_eq!(merge(&mut next, 0), BTreeSet::from([1, 3]));
        assert_eq!((&next[0], &next[2]), (&vec![1, 1], &vec![3, 3, 5]));
        let l = Loops::find(&next, 0);
        assert_eq!(l.around(4).map(|id| l.loops[id].head).collect::<Vec<_>>(), [3, 1]);
        // The root is the head of a cycle that it is in.
        let mut next = vec![vec![1], vec![0]];
        assert_eq!(merge(&mut next, 1), BTreeSet::new());
        assert_eq!(next, [vec![1], vec![0]]);
    }

    #[test]
    fn inner_cycles_too() {
        // 1 is the outer head; 2 and 3 are entered both, and are a cycle.
        let mut next = vec![vec![1], vec![2, 3], vec![3, 4], vec![2], vec![1, 5], vec![]];
        split(&mut next, 0, |b| b == 3);
        let l = Loops::find(&next, 0);
        assert_eq!(l.around(3).map(|id| l.loops[id].head).collect::<Vec<_>>(), [2, 1]);
    }

    /// Edges that lead back in a search by depth.
    fn visit(at: usize, old: &[Vec<usize>], depth: &mut [u8], back: &mut Vec<(usize, usize)>) {
        depth[at] = 1;
        for &to in &old[at] {
            match depth[to] {
                0 => visit(to, old, depth, back),
                1 => back.push((at, to)),
                _ => {}
            }
        }
        depth[at] = 2;
    }

    fn leads(next: &[Vec<usize>], from: usize) -> BTreeSet<usize> {
        let mut seen = BTreeSet::new();
        let mut work = next[from].clone();
        while let Some(node) = work.pop() {
            if seen.insert(node) {
                work.extend(&next[node]);
            }
        }
        seen
    }

    proptest! {
        /// Every cycle has a head, and everybody leads to whom they led before.
        #[test]
        fn merged_entries(n in 2usize..10, edges in proptest::collection::vec((0usize..10, 0usize..10), 0..25)) {
            let mut old = vec![Vec::new(); n];
            for (a, b) in edges {
                old[a % n].push(b % n);
            }
            let mut new = old.clone();
            merge(&mut new, 0);
            let live = reached(&old, 0);
            let loops = Loops::find(&new, 0);
            for &at in &live {
                prop_assert_eq!(leads(&new, at), leads(&old, at));
                prop_assert_eq!(loops.around(at).next().is_some(), leads(&old, at).contains(&at));
            }
        }

        /// Every way through the doubled graph is one of the old, and the other way round; loops that there were stay.
        #[test]
        fn nothing_else_changes(n in 2usize..10, edges in proptest::collection::vec((0usize..10, 0usize..10), 0..25), may in any::<u16>()) {
            let mut old = vec![Vec::new(); n];
            for (a, b) in edges {
                old[a % n].push(b % n);
            }
            let mut new = old.clone();
            split(&mut new, 0, |b| may & 1 << b != 0);
            // Which old node each new one is: walk both from the root side by side.
            let mut is = vec![None; new.len()];
            for (i, slot) in is.iter_mut().enumerate().take(n) { *slot = Some(i); }
            for (a, old_next) in old.iter().enumerate() {
                for (k, &b) in old_next.iter().enumerate() {
                    let copy = new[a][k];
                    prop_assert!(copy == b || (copy >= n && is[copy].is_none_or(|o| o == b)));
                    is[copy] = Some(b);
                }
            }
            for a in n..new.len() {
                let original = is[a];
                if let Some(o) = original {
                    prop_assert_eq!(new[a].len(), old[o].len());
                    for (k, &b) in new[a].iter().enumerate() {
                        prop_assert!(b == old[o][k] || is[b].is_none_or(|x| x == old[o][k]));
                        prop_assert!(may & 1 << o != 0);
                    }
                }
            }
            // A graph whose cycles all have heads is left alone: no edge leads back to where it does not come from.
            let loops = Loops::find(&old, 0);
            let mut depth = vec![0; n];
            let mut order = Vec::new();
            visit(0, &old, &mut depth, &mut order);
            if order.iter().all(|&(from, to)| loops.dominates(to, from)) {
                prop_assert_eq!(new.len(), n);
            }
            if new.len() == n {
                prop_assert_eq!(&new, &old);
            }
        }
    }
}
