//! Connections that were not served: for a program with windows the sign of a hang.

use crate::victim::INNOCENT;
use crate::words::{clean, moment, span};
use crate::{EventGraph, Victim};
use pg_event::{Catalog, Display, Ns, Object, ObjectId, ObjectKind, ThreadId, Unserved};

/// Bytes that waited in a connection, and that its owner did not receive between `since` and `until`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UnservedFact {
    /// When it was told, ns.
    pub time: Ns,
    /// Who should have received: who did it last, else the first thread of the process.
    pub thread: ThreadId,
    /// The connection.
    pub object: ObjectId,
    /// From when on, ns.
    pub since: Ns,
    /// Up to when, ns.
    pub until: Ns,
    /// How much waited in the end: bytes, or connections to a socket that listens.
    pub bytes: u64,
    /// The bytes came while it was looked at.
    pub arrived: bool,
    /// Whose events they are.
    pub display: Display,
}

impl UnservedFact {
    /// From an event of `thread` at `time`.
    pub fn new(thread: ThreadId, u: &Unserved, time: Ns) -> Self {
        let since = u.since.min(time);
        let until = u.until.clamp(since, time);
        let Unserved { object, bytes, arrived, display, .. } = *u;
        Self { time, thread, object, since, until, bytes, arrived, display }
    }

    /// How long nothing was received, ns.
    pub fn duration(&self) -> Ns {
        self.until - self.since
    }

    /// Is it a sign of a hang? What had been there before may be of interest to nobody: the last words of a
    /// connection that is kept for later, say. The events of a display are always to be received.
    pub fn matters(&self) -> bool {
        self.arrived || self.display != Display::None
    }

    /// In words: `its event queue was not served for 3.2 s from 1.0 s on: 96 B from the X server waited (unix ...)`.
    pub fn words(&self, catalog: &Catalog) -> String {
        let object =
            catalog.object(self.object).map_or_else(String::new, |o| format!(" ({})", clean(&o.label(), 80)));
        let (length, bytes) = (span(self.duration()), self.bytes);
        let from = moment(self.since);
        if self.listens(catalog) {
            let (s, were) = if bytes == 1 { ("", "was") } else { ("s", "were") };
            return format!(
                "{bytes} connection{s} to it {were} not accepted for {length} from {from} on{object}"
            );
        }
        match self.display {
            Display::None => {
                let were = if bytes == 1 { "was" } else { "were" };
                format!(
                    "{bytes} B that came over a connection {were} not received for {length} from {from} on{object}"
                )
            }
            Display::X11 => format!(
                "its event queue was not served for {length} from {from} on: {bytes} B from the X server waited{object}"
            ),
            Display::Wayland => format!(
                "its event queue was not served for {length} from {from} on: {bytes} B from the Wayland compositor waited{object}"
            ),
        }
    }

    /// Is it a queue of connections, of a socket that listens?
    pub fn listens(&self, catalog: &Catalog) -> bool {
        let socket = |o: &Object| matches!(o.kind, ObjectKind::Tcp | ObjectKind::UnixStream) && o.peer == 0;
        catalog.object(self.object).is_some_and(socket)
    }

    fn overlap(&self, v: &Victim) -> Ns {
        self.until.min(v.end()).saturating_sub(self.since.max(v.start))
    }
}

/// Of events that replace each other (the same connection and begin) the last ones, by begin.
pub(crate) fn latest(mut all: Vec<UnservedFact>) -> Vec<UnservedFact> {
    all.sort_by_key(|u| (u.since, u.object, u.time));
    all.dedup_by(|later, earlier| {
        let same = (later.since, later.object) == (earlier.since, earlier.object);
        if same {
            *earlier = *later;
        }
        same
    });
    all
}

/// Whoever left a connection unserved is what a person complains about: above all who left windows without answer,
/// whatever it waited in. A thread that idles beside a connection of another kind may have its reasons.
pub(crate) fn prefer(graph: &EventGraph, catalog: &Catalog, all: &mut [(Victim, f64)]) {
    let top = all.iter().map(|(v, _)| v.score).fold(0.0, f64::max);
    for u in graph.unserved().iter().filter(|u| u.matters()) {
        let Some(i) = whom(catalog, u, all) else { continue };
        let (v, weight) = &mut all[i];
        // Of several the display's, else the longest.
        let before = v.unserved.map_or((false, 0), |b| (b.display != Display::None, b.duration()));
        if before < (u.display != Display::None, u.duration()) {
            v.unserved = Some(*u);
        }
        let seconds = v.duration as f64 / 1e9;
        if u.display != Display::None {
            *weight = weight.max(1.0);
            v.score = v.score.max(top + seconds);
        } else if *weight >= INNOCENT {
            *weight = weight.max(0.9);
            v.score = v.score.max(2.0 * seconds);
        }
    }
}

/// The stretch of the thread (else of its process) that covers at least half of it, and most of all.
fn whom(catalog: &Catalog, u: &UnservedFact, all: &[(Victim, f64)]) -> Option<usize> {
    let covers = |v: &Victim| u.overlap(v) > 0 && u.overlap(v) * 2 >= u.duration();
    let best = |fits: &dyn Fn(&Victim) -> bool| {
        let some = all.iter().enumerate().filter(|(_, (v, _))| fits(v) && covers(v));
        some.max_by(|(_, a), (_, b)| {
            u.overlap(&a.0).cmp(&u.overlap(&b.0)).then(a.0.score.total_cmp(&b.0.score))
        })
        .map(|(i, _)| i)
    };
    best(&|v| v.thread == u.thread).or_else(|| {
        let process = catalog.thread(u.thread)?.process;
        best(&|v| catalog.thread(v.thread).is_some_and(|t| t.process == process))
    })
}

/// What waited for a victim over connections of its process: the longest during its stretch, a display's first.
pub(crate) fn of_victim<'g>(
    graph: &'g EventGraph,
    catalog: &Catalog,
    v: &Victim,
) -> Option<&'g UnservedFact> {
    let process = catalog.thread(v.thread)?.process;
    let same = |u: &&UnservedFact| {
        u.matters()
            && (u.overlap(v) * 2 >= u.duration() || u.overlap(v) * 2 >= v.duration)
            && catalog.thread(u.thread).is_some_and(|t| t.process == process)
    };
    graph
        .unserved()
        .iter()
        .filter(same)
        .max_by_key(|u| (u.display != Display::None, u.overlap(v), u.duration()))
}
