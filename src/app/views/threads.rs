//! Processes and threads: a tree, with where their time went.

use crate::app::recording::Recording;
use pg_event::{Ns, ProcessId, ThreadId};
use pg_graph::{LANE_STATES, LaneState, Share};
use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use tui_tree_widget::TreeState;

/// A node of the tree.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Node {
    /// A process.
    Process(ProcessId),
    /// A thread of a process with several.
    Thread(ThreadId),
}

/// Order of siblings.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Sort {
    /// The focus first, then by process id.
    #[default]
    Tree,
    /// Most time on a CPU first.
    OnCpu,
    /// Most time without a CPU first.
    Runnable,
    /// Most time blocked first.
    Blocked,
    /// By name.
    Name,
}

impl Sort {
    /// The next order.
    #[must_use]
    pub fn next(self) -> Self {
        match self {
            Self::Tree => Self::OnCpu,
            Self::OnCpu => Self::Runnable,
            Self::Runnable => Self::Blocked,
            Self::Blocked => Self::Name,
            Self::Name => Self::Tree,
        }
    }

    /// In a word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Tree => "focus",
            Self::OnCpu => "on-CPU time",
            Self::Runnable => "runnable time",
            Self::Blocked => "blocked time",
            Self::Name => "name",
        }
    }
}

/// Where time went, ns by [`LaneState`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Times([u64; LANE_STATES]);

impl Times {
    fn add(&mut self, share: &Share) {
        for s in LaneState::ALL {
            self.0[s as usize] += share.get(s);
        }
    }

    /// Time in a state.
    pub fn get(&self, s: LaneState) -> u64 {
        self.0[s as usize]
    }

    /// On a CPU.
    pub fn running(&self) -> u64 {
        self.get(LaneState::Running)
    }

    /// It existed, and nothing was seen of it.
    pub fn unseen(&self) -> u64 {
        self.get(LaneState::Lost)
    }

    /// Without a CPU though it could run.
    pub fn runnable(&self) -> u64 {
        self.get(LaneState::Runnable)
    }

    /// Waiting, in whatever way.
    pub fn blocked(&self) -> u64 {
        [LaneState::Blocked, LaneState::Disk, LaneState::Stopped, LaneState::Throttled, LaneState::Idle]
            .map(|s| self.get(s))
            .iter()
            .sum()
    }

    /// While it existed.
    pub fn total(&self) -> u64 {
        self.running() + self.runnable() + self.blocked() + self.unseen()
    }
}

/// A node with what is under it.
#[derive(Clone, Debug)]
pub struct Branch {
    /// Which.
    pub node: Node,
    /// Its name, clean.
    pub name: String,
    /// Where its time went; of a process, all its threads' time.
    pub times: Times,
    /// How many threads that is.
    pub threads: usize,
    /// From when to when the first and the last of them were seen.
    pub seen: (Ns, Ns),
    /// It or something under it is in the focus.
    pub focus: bool,
    /// Its threads, then its child processes.
    pub children: Vec<Branch>,
}

/// The tree as shown.
#[derive(Debug, Default)]
pub struct ThreadsState {
    /// The tree.
    pub roots: Vec<Branch>,
    /// Order.
    pub sort: Sort,
    /// What is open and selected. The tree widget keeps its scroll offset in here too: that is the one
    /// thing that drawing may change.
    pub tree: RefCell<TreeState<Node>>,
}

impl ThreadsState {
    /// Makes the tree of a recording.
    pub fn open(&mut self, r: &Recording) {
        self.roots = tree(r);
        self.order();
        let tree = self.tree.get_mut();
        let any_focus = self.roots.iter().any(|b| b.focus);
        unfold(tree, &mut Vec::new(), &self.roots, any_focus);
        // What was asked to be recorded is looked at first.
        let first = r.groups().first().map(|g| Node::Process(g.process));
        if let Some(node) = first.filter(|_| self.tree.get_mut().selected().is_empty()) {
            self.select(node);
        }
    }

    /// The selected node.
    pub fn selected(&self) -> Option<Node> {
        self.tree.borrow().selected().last().copied()
    }

    /// Is there nothing below the selected line?
    pub fn is_leaf(&self) -> bool {
        self.selected().and_then(|n| self.find(n)).is_none_or(|b| b.children.is_empty())
    }

    /// The thread selected, or the first one of the process selected.
    pub fn thread(&self, r: &Recording) -> Option<ThreadId> {
        match self.selected()? {
            Node::Thread(t) => Some(t),
            Node::Process(p) => r.groups().iter().find(|g| g.process == p)?.threads.first().copied(),
        }
    }

    /// Selects a node and opens what is above it.
    pub fn select(&mut self, node: Node) {
        fn find(branches: &[Branch], node: Node, path: &mut Vec<Node>) -> bool {
            branches.iter().any(|b| {
                path.push(b.node);
                let found = b.node == node || find(&b.children, node, path);
                if !found {
                    path.pop();
                }
                found
            })
        }
        let mut path = Vec::new();
        if find(&self.roots, node, &mut path) {
            let tree = self.tree.get_mut();
            for n in 1..path.len() {
                tree.open(path[..n].to_vec());
            }
            tree.select(path);
        }
    }

    /// Changes the order.
    pub fn next_order(&mut self) {
        self.sort = self.sort.next();
        self.order();
    }

    fn order(&mut self) {
        fn sort(branches: &mut [Branch], by: Sort) {
            let most = std::cmp::Reverse::<u64>;
            match by {
                Sort::Tree => branches.sort_by_key(|b| (!b.focus, b.node_key())),
                Sort::OnCpu => branches
                    .sort_by_key(|b| (matches!(b.node, Node::Process(_)), most(b.deep(Times::running)))),
                Sort::Runnable => {
                    branches
                        .sort_by_key(|b| (matches!(b.node, Node::Process(_)), most(b.deep(Times::runnable))));
                }
                Sort::Blocked => {
                    branches
                        .sort_by_key(|b| (matches!(b.node, Node::Process(_)), most(b.deep(Times::blocked))));
                }
                Sort::Name => branches.sort_by(|a, b| a.name.cmp(&b.name)),
            }
            for b in branches {
                sort(&mut b.children, by);
            }
        }
        sort(&mut self.roots, self.sort);
    }

    /// Finds a node.
    pub fn find(&self, node: Node) -> Option<&Branch> {
        fn look(branches: &[Branch], node: Node) -> Option<&Branch> {
            branches.iter().find_map(|b| if b.node == node { Some(b) } else { look(&b.children, node) })
        }
        look(&self.roots, node)
    }
}

impl Branch {
    fn node_key(&self) -> (bool, u32) {
        // Threads before child processes, each in the order of their first sight.
        match self.node {
            Node::Thread(t) => (false, t.0),
            Node::Process(p) => (true, p.0),
        }
    }

    /// Its child processes; threads are part of it already.
    fn processes(&self) -> impl Iterator<Item = &Self> {
        self.children.iter().filter(|c| matches!(c.node, Node::Process(_)))
    }

    /// A time of it and of everything under it.
    fn deep(&self, of: fn(&Times) -> u64) -> u64 {
        of(&self.times) + self.processes().map(|c| c.deep(of)).sum::<u64>()
    }

    /// It with all processes under it as one line, and how many these are.
    pub fn whole(&self) -> (Self, usize) {
        let mut one = Self { name: self.name.clone(), children: Vec::new(), ..*self };
        let mut below = 0;
        for c in self.processes() {
            let (all, more) = c.whole();
            one.times.0.iter_mut().zip(all.times.0).for_each(|(a, b)| *a += b);
            one.threads += all.threads;
            one.seen = (one.seen.0.min(all.seen.0), one.seen.1.max(all.seen.1));
            below += 1 + more;
        }
        (one, below)
    }

    /// For how long it was there: shares of its time are of that. Those of several threads add up, and may be more
    /// than the whole.
    pub fn lasted(&self) -> u64 {
        if self.threads > 1 { self.seen.1.saturating_sub(self.seen.0) } else { self.times.total() }
    }
}

fn alone(share: &Share) -> Times {
    let mut times = Times::default();
    times.add(share);
    times
}

/// Opens what leads to the focus; without a focus, whatever has child processes.
fn unfold(tree: &mut TreeState<Node>, path: &mut Vec<Node>, branches: &[Branch], any_focus: bool) {
    for b in branches {
        path.push(b.node);
        let processes = b.children.iter().any(|c| matches!(c.node, Node::Process(_)));
        if !b.children.is_empty() && if any_focus { b.focus } else { processes } {
            tree.open(path.clone());
        }
        unfold(tree, path, &b.children, any_focus);
        path.pop();
    }
}

/// A process with its child processes under it.
fn grow(
    p: ProcessId,
    made: &mut HashMap<ProcessId, Branch>,
    children: &HashMap<Option<ProcessId>, Vec<ProcessId>>,
    depth: usize,
) -> Option<Branch> {
    let mut b = made.remove(&p)?;
    if depth < 64 {
        for c in children.get(&Some(p)).into_iter().flatten() {
            if let Some(child) = grow(*c, made, children, depth + 1) {
                b.focus |= child.focus;
                b.children.push(child);
            }
        }
    }
    Some(b)
}

fn tree(r: &Recording) -> Vec<Branch> {
    let span = 0..r.graph.duration();
    let seen = |t| (r.graph.began(t).unwrap_or(0), r.graph.ended(t).unwrap_or(0));
    let mut made: HashMap<ProcessId, Branch> = HashMap::new();
    let mut order = Vec::new();
    for g in r.groups() {
        let mut times = Times::default();
        let mut children = Vec::new();
        let whole = g.threads.iter().map(|t| seen(*t)).reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)));
        for &t in &g.threads {
            let own = r.graph.share(t, span.clone());
            times.add(&own);
            if g.threads.len() > 1 {
                children.push(Branch {
                    seen: seen(t),
                    node: Node::Thread(t),
                    name: r.short_thread_name(t).to_owned(),
                    times: alone(&own),
                    threads: 1,
                    focus: r.in_focus(t),
                    children: Vec::new(),
                });
            }
        }
        let node = Node::Process(g.process);
        let name = g.threads.first().map_or("?", |t| {
            if g.threads.len() > 1 || g.process.is_none() {
                r.process_name(g.process)
            } else {
                r.thread_name(*t)
            }
        });
        let branch = Branch {
            node,
            name: name.to_owned(),
            times,
            threads: g.threads.len(),
            seen: whole.unwrap_or_default(),
            focus: g.focus,
            children,
        };
        order.push(g.process);
        made.insert(g.process, branch);
    }
    // A parent that was not seen itself passes its place on to its own parent.
    let known: HashSet<ProcessId> = made.keys().copied().collect();
    let parent = |p: ProcessId| {
        let mut at = p;
        for _ in 0..64 {
            at = r.catalog.process(at)?.parent;
            if at.is_none() || at == p {
                return None;
            }
            if known.contains(&at) {
                return Some(at);
            }
        }
        None
    };
    let mut children: HashMap<Option<ProcessId>, Vec<ProcessId>> = HashMap::new();
    for p in order {
        children.entry(parent(p)).or_default().push(p);
    }
    let roots = children.get(&None).cloned().unwrap_or_default();
    let mut out: Vec<Branch> = roots.into_iter().filter_map(|p| grow(p, &mut made, &children, 0)).collect();
    // Parents in a circle (a damaged file) leave processes over: they stand for themselves.
    let mut rest: Vec<_> = made.into_values().collect();
    rest.sort_by_key(Branch::node_key);
    out.extend(rest);
    out
}
