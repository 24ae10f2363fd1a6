//! What a catalogue knows by other keys than its ids, found once and not for each question: a long recording
//! has hundreds of thousands of threads and objects.

use crate::{Catalog, Object, ObjectKind, Process, ProcessId};
use std::collections::HashSet;
use std::sync::OnceLock;

/// Keys of a catalogue's rows, made at the first question. Says nothing about a catalogue that has another length by now: then the rows
/// themselves are asked.
#[derive(Default)]
pub struct Lookup(OnceLock<Keys>);

struct Keys {
    threads: usize,
    objects: usize,
    /// Threads by process and by the number that they have in their own namespace.
    numbers: HashSet<(ProcessId, u32)>,
    /// Ends of channels: kind, own and other identity.
    ends: HashSet<(ObjectKind, u64, u64)>,
}

/// Never part of what a catalogue is.
impl Clone for Lookup {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl PartialEq for Lookup {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl std::fmt::Debug for Lookup {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Lookup")
    }
}

impl Catalog {
    fn keys(&self) -> Option<&Keys> {
        let keys = self.lookup.0.get_or_init(|| Keys {
            threads: self.threads.len(),
            objects: self.objects.len(),
            numbers: self.threads.iter().map(|t| (t.process, t.ns_tid)).collect(),
            ends: self.objects.iter().filter(|o| o.peer != 0).map(|o| (o.kind, o.id, o.peer)).collect(),
        });
        (keys.threads == self.threads.len() && keys.objects == self.objects.len()).then_some(keys)
    }

    /// Who started a process, who started that, and so on, nearest first. A damaged catalogue may go in circles: so many
    /// and no more.
    pub fn ancestors(&self, process: ProcessId) -> impl Iterator<Item = ProcessId> + '_ {
        const MOST: usize = 64;
        let parent = |p: &ProcessId| self.process(*p).map(|p| p.parent).filter(|p| p.is_some());
        std::iter::successors(parent(&process), parent).take(MOST)
    }

    /// Are both one process, or children of one process that execute the same program: workers, or sessions, of a server?
    pub fn serve_together(&self, a: ProcessId, b: ProcessId) -> bool {
        let alike = |a: &Process, b: &Process| {
            a.parent.is_some() && a.parent == b.parent && !a.exe.is_empty() && a.exe == b.exe
        };
        a == b || self.process(a).zip(self.process(b)).is_some_and(|(a, b)| alike(a, b))
    }

    /// Had this process a thread that is `ns_tid` in its own pid namespace?
    pub fn has_thread(&self, process: ProcessId, ns_tid: u32) -> bool {
        match self.keys() {
            Some(keys) => keys.numbers.contains(&(process, ns_tid)),
            None => self.threads.iter().any(|t| t.ns_tid == ns_tid && t.process == process),
        }
    }

    /// Is the other end of this channel an object of the recording, too?
    pub fn has_other_end(&self, o: &Object) -> bool {
        match self.keys() {
            _ if o.peer == 0 => false,
            // An end without identity is no end of anything.
            Some(keys) => o.id != 0 && keys.ends.contains(&(o.kind, o.peer, o.id)),
            None => self.objects.iter().any(|x| x.is_other_end_of(o)),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{Catalog, CatalogDelta, Object, ObjectId, ObjectKind, ProcessId, Thread, ThreadId};

    fn socket(id: u64, peer: u64) -> Object {
        Object::new(ObjectKind::UnixStream, id, peer)
    }

    fn all_agree(c: &Catalog) {
        for o in [socket(1, 2), socket(2, 1), socket(5, 0), socket(0, 5), socket(7, 8), socket(3, 3)] {
            assert_eq!(c.has_other_end(&o), c.objects.iter().any(|x| x.is_other_end_of(&o)), "{o:?}");
        }
        for (p, n) in [(0, 11), (1, 11), (0, 12), (3, 3)] {
            let there = c.threads.iter().any(|t| t.process == ProcessId(p) && t.ns_tid == n);
            assert_eq!(c.has_thread(ProcessId(p), n), there, "{p} {n}");
        }
    }

    #[test]
    fn answers_are_those_of_the_rows_also_when_rows_come_later() {
        let thread = |p, ns_tid| Thread { process: ProcessId(p), ns_tid, ..Thread::default() };
        let mut c = Catalog::default();
        all_agree(&c);
        c.apply(CatalogDelta {
            threads: vec![(ThreadId(0), thread(0, 11))],
            objects: vec![(ObjectId(0), socket(1, 2)), (ObjectId(1), socket(5, 0))],
            ..CatalogDelta::default()
        });
        all_agree(&c);
        // A row that is known better, of the same number.
        c.apply(CatalogDelta {
            threads: vec![(ThreadId(0), thread(1, 11))],
            objects: vec![(ObjectId(1), socket(2, 1))],
            ..CatalogDelta::default()
        });
        all_agree(&c);
        c.threads.push(thread(0, 12));
        c.objects.push(socket(3, 3));
        all_agree(&c);
    }
}
