//! Which thread serves a connection, in a server that has a thread for each: while it executes what was asked for it does not
//! wait for the connection, so that nothing ties it to that. The others do, in a function that it has called, too.

use super::activity::{Group, Spans, activity, total};
use super::walk::Walk;
use crate::class::{WaitClass, class, members};
use crate::python::takes_from_queue;
use crate::words::is_plumbing;
use pg_event::{Object, ObjectKind, StackId, ThreadId};

/// Functions that it is in beyond those that it has in common with who waits for a client, at least: a thread that has been kept
/// for a client to come has few.
const DEEPER: usize = 3;
/// Functions in which one does something, where not all are known: those that only wait have few, and on a small stack.
const DEEP: usize = 4;

/// Where one begins, its name if it has one, and whether it is outside the C library.
type Function<'a> = (u64, &'a str, bool);

impl Walk<'_> {
    /// The thread of `listener`'s process that serves `client`, as far as that can be told: it waits for something else than a
    /// client, deeper in a function in which its siblings wait for theirs.
    pub(super) fn its_thread(&self, listener: ThreadId, client: ThreadId, spans: &Spans) -> Option<ThreadId> {
        let process = self.c.process_id_of(listener)?;
        if !self.takes_clients(listener, spans) {
            return None;
        }
        let (mut rest, mut others, mut executing) = (Vec::new(), Vec::new(), Vec::new());
        for t in self.g.threads_of(process).filter(|t| *t != listener && self.counts(*t)) {
            let act = activity(self.g, self.c, t, spans);
            // Who works is told apart otherwise.
            if (act.running + act.runnable) * 2 > total(spans) {
                return None;
            }
            let Some(g) = act.waiting().filter(|g| g.blocked * 10 >= total(spans) * 9) else { continue };
            let id = self.representative(g).user_stack;
            if self.in_statement(id) && !self.sends_log(id) && !self.rests_at_client(g) {
                executing.push(t);
            }
            let (stack, whole) = (self.functions_of(id), self.c.stack(id).is_some_and(|s| !s.truncated));
            if self.rests_at_client(g) { rest.push(stack) } else { others.push((t, stack, whole)) }
        }
        // Of MariaDB and MySQL it is known in which functions a thread executes what its client asked for.
        if let [one] = executing[..] {
            return Some(one);
        }
        // How many are the same, and how many of these are the program's own.
        let same = |s: &[Function<'_>], r: &[Function<'_>]| {
            let all = s.iter().zip(r).take_while(|(a, b)| a == b).count();
            (s[..all].iter().filter(|f| f.2).count(), all)
        };
        let common = |s: &[Function<'_>]| rest.iter().map(|r| same(s, r)).max();
        let mut best = Vec::new();
        // Threads are made for connections as these come: the numbers go up with those of the clients.
        let tid = |t: ThreadId| self.c.thread(t).map_or(0, |t| t.tid);
        let asks = tid(client);
        if rest.is_empty() {
            // No other client has a thread: the first one that was made after this client, and is in the middle of something.
            let made = others.iter().filter(|(t, s, _)| {
                tid(*t) > asks && s.iter().filter(|f| f.2).count() >= DEEPER && !self.takes_work(*t, spans)
            });
            if let Some((t, ..)) = made.min_by_key(|o| tid(o.0)) {
                return Some(*t);
            }
        }
        for (t, stack, whole) in others {
            let deep = |from: usize, least| stack[from..].iter().filter(|f| f.2).count() >= least;
            match common(&stack) {
                Some((own, all)) if own > 0 && deep(all, DEEPER) => best.push((own, t)),
                // How it was come to is not in the copy of the stack.
                _ if !whole && deep(0, DEEP) => best.push((0, t)),
                _ => {}
            }
        }
        let most = best.iter().map(|b| b.0).max()?;
        let best = best.into_iter().filter(|b| b.0 == most || b.0 == 0).map(|b| b.1);
        best.min_by_key(|t| (tid(*t) < asks, tid(*t).abs_diff(asks)))
    }

    /// Does it wait for the next piece of work of a queue?
    fn takes_work(&self, t: ThreadId, spans: &Spans) -> bool {
        let act = activity(self.g, self.c, t, spans);
        act.waiting().is_some_and(|g| takes_from_queue(&self.representative(g), self.c))
    }

    /// Does it wait for clients to come, if for something besides then for no client that has?
    fn takes_clients(&self, listener: ThreadId, spans: &Spans) -> bool {
        let act = activity(self.g, self.c, listener, spans);
        let set = |o: &Object| {
            let port = |m: &Object| matches!(m.kind, ObjectKind::Tcp | ObjectKind::UnixStream) && m.peer == 0;
            let client = |m: &Object| match m.kind {
                ObjectKind::Tcp => m.peer != 0,
                ObjectKind::UnixStream => m.connected,
                _ => false,
            };
            members(self.c, o).chain([o]).any(port) && !members(self.c, o).any(client)
        };
        let waits = act.waiting().map(|g| self.representative(g).object);
        self.accepts(listener, spans) || waits.and_then(|o| self.c.object(o)).is_some_and(set)
    }

    /// Does it wait for its end of a connection?
    fn rests_at_client(&self, group: &Group) -> bool {
        let v = self.representative(group);
        let peer = self.c.object(v.object).is_some_and(|o| match o.kind {
            ObjectKind::Tcp => o.peer != 0,
            ObjectKind::UnixStream => true,
            _ => false,
        });
        peer && class(&v, self.c) == WaitClass::Channel
    }

    /// The functions of a stack from the outermost one on, and which of them are outside the C library.
    fn functions_of(&self, stack: StackId) -> Vec<Function<'_>> {
        let own = |f: &pg_event::Frame| {
            self.c.modules.get(f.module.index()).is_some_and(|m| !is_plumbing(m.short()))
        };
        let mut all: Vec<_> =
            self.c.frames_of(stack).map(|f| (f.entry(), f.function.as_str(), own(f))).collect();
        all.reverse();
        all
    }
}
