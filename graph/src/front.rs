//! The hang at the front: of the threads that hang together, the one that a person would complain about.

use crate::EventGraph;
use crate::class::{WaitClass, connected};
use crate::diagnose::threads_behind;
use crate::victim::{COMPLAINT, Victim};
use pg_event::{Catalog, Direction, ObjectId, ObjectKind, ProcessId, ThreadId};

/// Victims that are looked at together.
pub(crate) const LOOKED_AT: usize = 12;

/// What a person sees is the hang at the front: of threads that wait for each other, the one that no other
/// waits for comes first; of a circle, the one that started the others. Looks at the worst ones only, since it
/// walks from each. Of what a person named, a wait for a child is a hang like any other.
pub(crate) fn seen_first(graph: &EventGraph, catalog: &Catalog, all: &mut [(Victim, f64)], named: bool) {
    let n = all.len().min(LOOKED_AT);
    let of = |class: WaitClass| {
        move |v: &Victim| v.episode.key.is_some() && crate::class(&graph.vertex(v.vertex), catalog) == class
    };
    let (child, channel) = (of(WaitClass::Child), of(WaitClass::Channel));
    let looked = |(v, w): &(Victim, f64)| *w >= COMPLAINT || child(v) || channel(v);
    let behind = |x| if looked(x) { threads_behind(graph, catalog, &x.0) } else { Vec::new() };
    let behind: Vec<Vec<ThreadId>> = all[..n].iter().map(behind).collect();
    let wants = |(v, w): &(Victim, f64)| {
        *w >= COMPLAINT || (named && child(v)) || channel(v) && opened(graph, catalog, v)
    };
    let complains: Vec<bool> = all[..n].iter().map(wants).collect();
    let reads: Vec<bool> = all[..n].iter().map(|(v, _)| channel(v)).collect();
    // From the worst down: whoever waits for a worse one inherits its score and a bit.
    for _ in 0..n {
        let mut changed = false;
        for front in 0..n {
            for back in 0..n {
                let (f, b) = (&all[front].0, &all[back].0);
                let overlap = f.end().min(b.end()).saturating_sub(f.start.max(b.start));
                let same = overlap * 2 >= f.duration && overlap * 2 >= b.duration;
                let (there, back_again) =
                    (behind[front].contains(&b.thread), behind[back].contains(&f.thread));
                // Who reads what its own children write.
                let begat = || descends(catalog, b.thread, f.thread);
                let waits = (complains[front] || reads[front] && begat()) && there && !back_again
                    || complains[front] && queues_behind((f, &behind[front]), (b, &behind[back]))
                    || there && back_again && begat();
                if front != back && same && waits && f.score <= b.score {
                    all[front].0.score = b.score * 1.01;
                    changed = true;
                }
            }
        }
        if !changed {
            break;
        }
    }
}

/// Is the process of `young` a descendant of that of `old`?
fn descends(catalog: &Catalog, young: ThreadId, old: ThreadId) -> bool {
    let of = |t| catalog.thread(t).map_or(ProcessId::NONE, |t| t.process);
    let old = of(old);
    old.is_some() && catalog.ancestors(of(young)).any(|p| p == old)
}

/// Does it wait for somebody to whom it connected? Who connects wants something, though what came last may be a notice that
/// it did not ask for. Of TCP the ports tell; of unix sockets who has no address, or that it spoke first.
fn opened(graph: &EventGraph, catalog: &Catalog, v: &Victim) -> bool {
    let first = graph.vertex(v.first);
    let spoke_first = |id: ObjectId| {
        let over = graph.ipc_of(v.thread, 0..v.end()).iter().find(|m| m.what.object == id);
        over.is_some_and(|m| m.what.direction == Direction::Send)
    };
    let connected = |id: ObjectId| {
        catalog.object(id).is_some_and(|o| match o.kind {
            ObjectKind::Tcp => connected(catalog, id),
            ObjectKind::UnixStream => connected(catalog, id) || o.peer != 0 && spoke_first(id),
            _ => false,
        })
    };
    let members = catalog.object(first.object).map_or(&[][..], |o| &o.members);
    connected(first.object) || members.iter().any(|m| connected(*m))
}

/// Do both wait for the same in the end, and came `front` later? Then the other one is being served, however
/// long that takes, and `front` is who waits for nothing of its own.
fn queues_behind(front: (&Victim, &[ThreadId]), back: (&Victim, &[ThreadId])) -> bool {
    !back.1.is_empty()
        && front.1.ends_with(back.1)
        && front.0.start > back.0.start + back.0.duration / 50
        && !front.1.contains(&front.0.thread)
        && !back.1.contains(&front.0.thread)
}
