//! All threads of a process wait for each other's locks, or for work that nobody is left to bring.

use super::activity::Group;
use super::finding::{Finding, FindingKind};
use super::node::Entry;
use super::walk::Walk;
use crate::class::{WaitClass, class, joins};
use crate::python::takes_from_queue;
use crate::words::who;
use crate::{EdgeKind, Vertex};
use pg_event::{Ns, ThreadId};

/// How the way came to one of the workers of a pool: the end of it.
pub(crate) const WORKERS: &str = "in one place for work, as it seems";

impl Walk<'_> {
    /// The workers of a pool that have nothing to do, where all `others` are such, and what `group` waits for is no lock: two and
    /// more that wait for one condition in one place.
    fn pool_at_rest(&self, group: &Group, others: &[(ThreadId, Group)]) -> bool {
        let v = self.representative(group);
        let first = others.first().map(|(_, g)| self.representative(g));
        let place = |v: &Vertex| (v.object, v.user_stack);
        let rests = |(_, g): &(ThreadId, Group)| {
            let w = self.representative(g);
            class(&w, self.c) == WaitClass::Condition
                && w.user_stack.is_some()
                && (takes_from_queue(&w, self.c)
                    || others.len() > 1 && first.is_some_and(|first| place(&first) == place(&w)))
        };
        !others.is_empty()
            && first.is_some_and(|first| first.object != v.object && first.user_stack != v.user_stack)
            && !self.for_lock(group)
            && !joins(&v, self.c)
            && others.iter().all(rests)
    }

    /// All threads of the process wait: each one is shown, and whose wait began last closed the circle.
    pub(super) fn closed(&mut self, thread: ThreadId, group: &Group, mut others: Vec<(ThreadId, Group)>) {
        // Not only within what the way looks at.
        let begin = |g: &Group| g.clips.first().map_or(0, |c| self.g.vertex(c.first).start);
        let own = self.out.nodes.len().saturating_sub(1);
        // The thread that made the others mostly waits for them to end: it comes last.
        let main = |t: ThreadId| self.c.is_first(t);
        // Where all want the same lock, none of them has it: one of the others has.
        let object = |g: &Group| self.representative(g).object;
        let locks = |g: &Group| self.for_lock(g);
        let same = |g: &Group| object(g).is_some() && object(g) == object(group);
        let one_lock = locks(group) && others.iter().all(|(_, g)| !locks(g) || same(g));
        if one_lock && others.iter().any(|(_, g)| !locks(g)) {
            others.retain(|(_, g)| !locks(g));
        }
        // Where two and more are known to want locks, those are it: the others wait for them, or for work.
        let own_too = locks(group);
        if others.iter().filter(|(_, g)| locks(g)).count() + usize::from(own_too) > 1 {
            others.retain(|(_, g)| locks(g));
        }
        let initialises = |g: &Group| self.keeps_initialiser(g);
        let mutual =
            others.iter().filter(|(_, g)| initialises(g)).count() + usize::from(initialises(group)) > 1;
        if mutual {
            others.retain(|(_, g)| initialises(g));
        }
        // Who initialises nothing only waits for those.
        let own_too = own_too && (!mutual || initialises(group));
        others.retain(|(_, g)| !self.keeps_house(g, thread));
        if self.pool_at_rest(group, &others)
            && let Some((worker, g)) = others.iter().max_by_key(|(t, g)| (begin(g), *t))
        {
            let wait = match others.len() {
                1 => "one thread of the process waits".to_owned(),
                n => format!("{n} threads of the process wait"),
            };
            let why = format!("nobody else is left: {wait} {WORKERS}");
            let entry = Entry { edge: Some(EdgeKind::Holder), why_weak: Some(why), ..Entry::default() };
            self.push_wait(*worker, g, entry);
            let spans = |g: &Group| vec![g.extent()];
            let mut find = |thread, node, kind, g| {
                self.out.findings.push(Finding { thread, node, kind, spans: spans(g) });
            };
            find(thread, own, FindingKind::Unanswered, group);
            return find(*worker, own + 1, FindingKind::Idle, g);
        }
        others.sort_by_key(|(t, g)| (main(*t), std::cmp::Reverse(begin(g)), *t));
        let process = who(self.c, thread);
        let locks_of: Vec<ThreadId> =
            others.iter().filter(|(_, g)| locks(g)).map(|x| x.0).chain(own_too.then_some(thread)).collect();
        let mut found = Vec::new();
        // Who came to it when two others were stuck already is not who they wait for.
        let later = others.len() > 1 && self.came_later(thread, group, &others);
        if own_too && !later || others.iter().all(|(_, g)| !locks(g)) || others.len() < 2 {
            found.push((thread, own, main(thread), begin(group)));
        }
        for (t, g) in &others {
            // Some are on the way already.
            if let Some(at) = self.out.nodes.iter().position(|n| n.thread == *t) {
                found.push((*t, at, main(*t), begin(g)));
                continue;
            }
            let why = format!(
                "no owner of the futex is recorded; like {process} it waits for one, and no thread of the process is left that could wake them"
            );
            let entry =
                Entry { edge: Some(EdgeKind::Holder), id: None, why_weak: Some(why), ..Entry::default() };
            self.push_wait(*t, g, entry);
            found.push((*t, self.out.nodes.len() - 1, main(*t), begin(g)));
        }
        // Who wakes by its time-outs keeps nobody. Where all waited before the recording, a runtime's own threads are its oldest.
        let node = |f: &(ThreadId, usize, bool, Ns)| &self.out.nodes[f.1];
        let turns = |f: &(ThreadId, usize, bool, Ns)| {
            let n = node(f);
            let within = self.g.vertices_in(f.0, n.start..n.start + n.duration);
            let timed_out = within.filter(|v| self.g.vertex(*v).timed_out).count();
            n.waits > 2 && timed_out * 2 > n.waits && !locks_of.contains(&f.0)
        };
        let before = |f: &(ThreadId, usize, bool, Ns)| self.g.vertex(node(f).vertex).begun_before;
        // ... but not those of a pool, nor whom the one before waits for.
        let stack = |f: &(ThreadId, usize, bool, Ns)| self.g.vertex(node(f).vertex).user_stack;
        let stacks: Vec<_> = found.iter().map(&stack).filter(|s| s.is_some()).collect();
        let asked = |f: &(ThreadId, usize, bool, Ns)| {
            let pool = stacks.iter().filter(|s| **s == stack(f)).count() > 1;
            before(f) && (pool || (1..=own).contains(&f.1))
        };
        let age = |f: &(ThreadId, usize, bool, Ns)| {
            let t = self.c.thread(f.0).filter(|_| before(f));
            let since = if before(f) { 0 } else { f.3 };
            (since, asked(f), t.map_or(0, |t| t.start), t.map_or(0, |t| t.tid))
        };
        // Who comes for what another one waits for already only waits behind that one.
        let object = |f: &(ThreadId, usize, bool, Ns)| self.g.vertex(node(f).vertex).object;
        let firsts: Vec<_> = found.iter().map(|f| (object(f), f.3)).filter(|f| f.0.is_some()).collect();
        let behind = |f: &(ThreadId, usize, bool, Ns)| {
            !before(f) && firsts.iter().any(|first| first.0 == object(f) && first.1 < f.3)
        };
        found.sort_by_key(|f| (f.2, turns(f), behind(f), std::cmp::Reverse(age(f)), f.0));
        for (thread, node, ..) in found {
            let n = &self.out.nodes[node];
            let spans = vec![(n.start, n.start + n.duration)];
            self.out.findings.push(Finding { thread, node, kind: FindingKind::Closed, spans });
        }
    }
}
