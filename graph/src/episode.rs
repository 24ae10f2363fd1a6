//! Episodes: one wait as a person sees it. A wait that its own time-out ended, and that is renewed at once,
//! has not ended: the vertices in between belong to one episode. So do the pieces of one transfer to a disk or a
//! file system.

use crate::class::{WaitClass, asked, class};
use crate::words::is_plumbing;
use crate::{BlockType, EventGraph, Retries, Vertex, VertexId};
use pg_event::{Catalog, Frame, Ns, ObjectId, ObjectKind, OffState, StackId, Sysno, ThreadId};
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};

/// What two waits of a thread have in common when they are the same wait.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct WaitKey {
    /// The system call, [`Sysno::NONE`] for a page fault or a kernel thread.
    pub syscall: Sysno,
    /// Stopped, traced, uninterruptible, ...
    pub state: OffState,
    /// Kind of the object.
    pub kind: ObjectKind,
    /// The object, [`ObjectId::NONE`] when it is a set (a set's members change while the wait is the same).
    pub object: ObjectId,
    /// Where in the program: a hash of the function outside the C library, 0 when unknown or not needed.
    pub site: u64,
}

/// The key of a vertex' leading wait.
pub fn wait_key(v: &Vertex, catalog: &Catalog) -> WaitKey {
    let kind = catalog.object(v.object).map_or(ObjectKind::Unknown, |o| o.kind);
    let several = matches!(kind, ObjectKind::Set | ObjectKind::Epoll);
    let condition = condition(v, catalog);
    let object = if several || condition.is_some() { ObjectId::NONE } else { v.object };
    let site = condition.unwrap_or_else(|| if object.is_none() { site(v, catalog) } else { 0 });
    let state = match v.state {
        OffState::Stopped | OffState::Traced | OffState::Uninterruptible | OffState::Frozen => v.state,
        _ => OffState::Interruptible,
    };
    WaitKey { syscall: v.syscall, state, kind, object, site }
}

/// Keys of waits one after the other: those of a loop are alike, and looked up once.
pub struct WaitKeys<'a> {
    catalog: &'a Catalog,
    last: Option<(Like, WaitKey)>,
}

/// What a key is made of.
type Like = (Sysno, OffState, ObjectId, u32, StackId);

impl<'a> WaitKeys<'a> {
    /// None yet.
    pub fn new(catalog: &'a Catalog) -> Self {
        Self { catalog, last: None }
    }

    /// As [`wait_key`].
    pub fn of(&mut self, v: &Vertex) -> WaitKey {
        let like = (v.syscall, v.state, v.object, v.op, v.user_stack);
        match self.last {
            Some((l, key)) if l == like => key,
            _ => self.last.insert((like, wait_key(v, self.catalog))).1,
        }
    }
}

/// Of waits for the same from `first` to `last`, the last one whose end was seen: one that the end of the recording or a
/// signal cut says less of how they go, unless it lasted longer. One that lasted nearly all the time stands for all.
pub(crate) fn typical(graph: &EventGraph, catalog: &Catalog, first: VertexId, last: VertexId) -> VertexId {
    const LOOKED_AT: usize = 64;
    if first >= last {
        return last;
    }
    let cut = graph.vertex(last);
    let (key, start) = (wait_key(&cut, catalog), graph.vertex(first).start);
    let before = graph.vertices_in(cut.thread, start..cut.start).rev().take(LOOKED_AT);
    let before = before.filter(|id| (first..last).contains(id)).map(|id| (id, graph.vertex(id)));
    let mut before = before.filter(|(_, v)| wait_key(v, catalog) == key);
    if !cut.open && !cut.interrupted {
        // Somebody ended the one that was nearly all of it: what came after that is no part of the hang.
        let all = cut.woken.saturating_sub(start);
        let ended = |id: VertexId, v: &Vertex| !v.timed_out && !v.interrupted && graph.waking(id).is_some();
        let nearly = before.find(|(_, v)| v.waited() * 100 >= all * 99);
        return nearly.filter(|(id, v)| ended(*id, v)).map_or(last, |w| w.0);
    }
    let whole = before.next();
    whole.filter(|(_, v)| v.waited() * 2 >= cut.waited()).map_or(last, |w| w.0)
}

/// One condition variable of the C library has two words side by side, and its waiters sleep on them in turns
/// (`__g_signals` of glibc): the same wait. A number that is the same for both.
fn condition(v: &Vertex, catalog: &Catalog) -> Option<u64> {
    const COMMAND: u32 = 0x7f;
    const WAIT_BITSET: u32 = 9;
    const OTHER_WORD: u64 = 4;
    let o = catalog.object(v.object).filter(|o| o.kind == ObjectKind::Futex)?;
    (v.op & COMMAND == WAIT_BITSET).then(|| (o.id & !OTHER_WORD).wrapping_add(o.peer.rotate_left(32)))
}

/// Called for every wait looked at: allocates nothing.
fn site(v: &Vertex, catalog: &Catalog) -> u64 {
    let outside = |f: &&Frame| catalog.modules.get(f.module.index()).is_none_or(|m| !is_plumbing(m.short()));
    let Some(f) = catalog.frames_of(v.user_stack).find(outside) else { return 0 };
    let mut h = DefaultHasher::new();
    f.module.hash(&mut h);
    if f.function.is_empty() {
        f.entry().hash(&mut h);
    } else {
        f.function.hash(&mut h);
    }
    h.finish()
}

/// A run of renewed waits of one thread, or one stretch on the CPU.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Episode {
    /// Whose.
    pub thread: ThreadId,
    /// First vertex.
    pub first: VertexId,
    /// Last vertex: the one whose leading wait ended the episode.
    pub last: VertexId,
    /// When it began.
    pub start: Ns,
    /// When it ended: made runnable, or off the CPU, or the recording's end.
    pub end: Ns,
    /// Time blocked within, ns.
    pub blocked: Ns,
    /// Time on the CPU within, ns.
    pub ran: Ns,
    /// Number of single waits.
    pub waits: usize,
    /// The longest single wait, ns.
    pub longest: Ns,
    /// What it waited on; `None` for a stretch on the CPU.
    pub key: Option<WaitKey>,
    /// How many equal children it ran, when it is a retry loop made of children ([`crate::Retries`]); else 0.
    pub tries: usize,
    /// Another one ended each of its waits, and it wanted more of the same at once: a transfer that comes in pieces.
    pub pieces: bool,
}

/// Kinds of waits of one thread that are added up.
const MOST_KEYS: usize = 64;

/// A single wait this long is a long wait by itself.
pub const LONG_SINGLE: Ns = 200_000_000;

impl Episode {
    /// Length, ns.
    pub fn duration(&self) -> Ns {
        self.end.saturating_sub(self.start)
    }

    /// By the words of algorithm 1. Short sleeps, polls and timed lock attempts, again and again, are a
    /// repeated yield; time-outs of [`LONG_SINGLE`] and more only renew one long wait.
    pub fn block_type(&self) -> BlockType {
        let Some(key) = &self.key else { return BlockType::LongRunning };
        if self.tries > 0 {
            return BlockType::RepeatedYield;
        }
        // In the kernel nobody merely asks.
        if key.state == OffState::Uninterruptible
            || self.pieces
            || self.waits <= 2
            || self.blocked / self.waits as u64 >= LONG_SINGLE
        {
            BlockType::LongWait
        } else {
            BlockType::RepeatedYield
        }
    }
}

/// Time blocked in the leading wait: to be kept off the CPU by a quota is none.
fn blocked(v: &Vertex) -> Ns {
    if v.state == OffState::Throttled { 0 } else { v.waited() }
}

/// May `next` renew the wait that `v` led in with? `v` ended by its own time-out (or a signal that did
/// not end the thread) and hardly ran.
fn renews(v: &Vertex) -> bool {
    // To stand in the queue for a CPU is no progress.
    (v.timed_out || v.interrupted) && v.ran() <= (v.waited() / 4).max(2_000_000)
}

/// May the next wait be for the next piece of what `v` waited for? It was for a disk or a file system, and as soon
/// as that had answered the thread wanted more.
fn in_pieces(v: &Vertex) -> bool {
    v.state == OffState::Uninterruptible && v.ran() <= v.waited() / 4
}

/// Shorter time-outs of a server are its own affair, ns.
const PUT_OFF: Ns = 50_000_000;

/// Did a server put its thread off: it had asked for something over a connection, and the answer came when a time-out of the
/// server's own had passed? To ask again is to wait on.
fn put_off(graph: &EventGraph, catalog: &Catalog, id: VertexId, v: &Vertex) -> bool {
    /// A server's time-out and its answer are one turn, ns.
    const TURN: Ns = 10_000_000;
    if v.waited() < PUT_OFF || v.ran() > v.waited() / 4 || class(v, catalog) != WaitClass::Channel {
        return false;
    }
    let socket = |k| matches!(k, ObjectKind::Tcp | ObjectKind::UnixStream);
    if !catalog.object(v.object).is_some_and(|o| socket(o.kind)) {
        return false;
    }
    let Some(e) = graph.waking(id).map(|e| graph.edge(e)) else { return false };
    let server = graph.vertex(e.from);
    let own = catalog.process_id_of(v.thread) != catalog.process_id_of(server.thread);
    // The time-out was for this request, and no tick of the server's that it answers others by.
    let for_it = server.start.saturating_add(TURN) >= v.start;
    let at_once = e.from_time.saturating_sub(server.woken) <= TURN;
    own && server.timed_out && for_it && at_once && asked(graph, catalog, id)
}

/// How many of its waits within a span that are for the same as `like` ended so.
pub(crate) fn times_put_off(
    graph: &EventGraph,
    catalog: &Catalog,
    like: &Vertex,
    (start, end): (Ns, Ns),
) -> usize {
    let key = wait_key(like, catalog);
    let within = graph.vertices_in(like.thread, start..end).map(|id| (id, graph.vertex(id)));
    let same = within.filter(|(_, v)| v.waited() >= PUT_OFF && wait_key(v, catalog) == key);
    same.filter(|(id, v)| put_off(graph, catalog, *id, v)).count()
}

/// The episodes of a thread in order of time: waits that last at least `min` (renewals added up) and
/// stretches on the CPU of at least `min`.
pub fn episodes(graph: &EventGraph, catalog: &Catalog, thread: ThreadId, min: Ns) -> Vec<Episode> {
    let mut out = waits(graph, catalog, thread, min);
    let loops: Vec<Episode> = retries(graph, catalog, thread, min);
    out.retain(|e| !loops.iter().any(|l| l.start <= e.start && e.end <= l.end));
    out.extend(loops);
    out.extend(stretches(graph, thread, min));
    out.sort_by_key(|e| (e.start, e.end));
    out
}

/// Retry loops made of children: all that the thread waited for within is one episode.
fn retries(graph: &EventGraph, catalog: &Catalog, thread: ThreadId, min: Ns) -> Vec<Episode> {
    let episode = |r: &Retries| {
        let all = graph.vertices_in(thread, r.start..r.end).map(|id| (id, graph.vertex(id)));
        let mut out: Option<Episode> = None;
        for (id, v) in all.filter(|(_, v)| blocked(v) > 0 && v.woken > r.start && v.start < r.end) {
            let e = out.get_or_insert(Episode {
                thread,
                first: id,
                last: id,
                start: r.start.min(v.start),
                end: r.end,
                blocked: 0,
                ran: 0,
                waits: 0,
                longest: 0,
                key: None,
                tries: r.tries.len(),
                pieces: false,
            });
            if blocked(&v) >= e.longest {
                e.key = Some(wait_key(&v, catalog));
            }
            e.last = id;
            e.end = e.end.max(v.woken);
            e.blocked += blocked(&v);
            e.ran += v.ran();
            e.waits += 1;
            e.longest = e.longest.max(blocked(&v));
        }
        out
    };
    graph.retries_of(thread).iter().filter_map(episode).filter(|e| e.duration() >= min).collect()
}

fn waits(graph: &EventGraph, catalog: &Catalog, thread: ThreadId, min: Ns) -> Vec<Episode> {
    let mut out: Vec<Episode> = Vec::new();
    let mut open: Option<Episode> = None;
    let (mut renewable, mut keys) = (false, WaitKeys::new(catalog));
    for id in graph.vertices_of(thread) {
        let v = graph.vertex(id);
        let waited = blocked(&v);
        if waited == 0 {
            // The first vertex, or one cut by something else than a wait.
            if v.ran() > 2_000_000 {
                renewable = false;
            }
            continue;
        }
        let key = keys.of(&v);
        if let Some(e) = &mut open
            && renewable
        {
            if e.key == Some(key) {
                e.last = id;
                e.end = v.woken;
                e.blocked += waited;
                e.ran += v.ran();
                e.waits += 1;
                e.longest = e.longest.max(waited);
                renewable = renews(&v) || in_pieces(&v) || put_off(graph, catalog, id, &v);
                continue;
            }
            // A short wait on the way (a page fault, a lock) does not make it another one.
            if waited <= (e.blocked / 50).min(5_000_000) && v.ran() <= 2_000_000 {
                continue;
            }
        }
        if let Some(e) = open.take() {
            keep(&mut out, e, min);
        }
        renewable = renews(&v) || in_pieces(&v) || put_off(graph, catalog, id, &v);
        open = Some(Episode {
            thread,
            first: id,
            last: id,
            start: v.start,
            end: v.woken,
            blocked: waited,
            ran: 0,
            waits: 1,
            longest: waited,
            key: Some(key),
            tries: 0,
            pieces: false,
        });
    }
    if let Some(e) = open {
        keep(&mut out, e, min);
    }
    out
}

/// The waits of a thread that were renewed after their own time-outs until somebody else ended them, in order of time.
pub(crate) fn renewed_waits(graph: &EventGraph, catalog: &Catalog, thread: ThreadId) -> Vec<Episode> {
    let mut all = waits(graph, catalog, thread, 0);
    all.retain(|e| e.waits > 1 && graph.waking(e.last).is_some() && graph.vertex(e.first).timed_out);
    all
}

/// What a thread waited for most of its time without a single wait of `min`: room in one channel, or data from it, that
/// came in pieces since the other side is slow; or a lock, which others take again and again; or one child after the other. A
/// pipeline and a script are like that on any day: it is no hang unless somebody asks.
pub(crate) fn in_small_pieces(
    graph: &EventGraph,
    catalog: &Catalog,
    thread: ThreadId,
    min: Ns,
) -> Option<Episode> {
    let mut all: Vec<Episode> = Vec::new();
    let mut keys = WaitKeys::new(catalog);
    for id in graph.vertices_of(thread) {
        let v = graph.vertex(id);
        let waited = blocked(&v);
        // A longer one is an episode of its own.
        let adds_up = || {
            use WaitClass::{Channel, Child, Lock, Room};
            matches!(class(&v, catalog), Room | Channel | Lock | Child)
        };
        if waited == 0 || waited >= min || !adds_up() {
            continue;
        }
        let key = keys.of(&v);
        let e = match all.iter().position(|e| e.key == Some(key)) {
            Some(i) => &mut all[i],
            None if all.len() < MOST_KEYS => {
                all.push(Episode {
                    thread,
                    first: id,
                    last: id,
                    start: v.start,
                    end: v.woken,
                    blocked: 0,
                    ran: 0,
                    waits: 0,
                    longest: 0,
                    key: Some(key),
                    tries: 0,
                    pieces: true,
                });
                all.last_mut()?
            }
            None => continue,
        };
        (e.last, e.end) = (id, v.woken);
        e.blocked += waited;
        e.ran += v.ran();
        e.waits += 1;
        e.longest = e.longest.max(waited);
    }
    let most = all.into_iter().max_by_key(|e| e.blocked)?;
    (most.blocked >= min && most.waits > 2 && most.blocked * 2 >= most.duration()).then_some(most)
}

fn keep(out: &mut Vec<Episode>, e: Episode, min: Ns) {
    if e.duration() >= min {
        out.push(e);
    }
}

/// Stretches in which the thread wanted the CPU nearly all the time: single waits below 2 ms, together
/// below a fifth.
fn stretches(graph: &EventGraph, thread: ThreadId, min: Ns) -> Vec<Episode> {
    let mut out = Vec::new();
    let mut cur: Option<Episode> = None;
    for id in graph.vertices_of(thread) {
        let v = graph.vertex(id);
        let waited = blocked(&v);
        if let Some(e) = &mut cur {
            let len = v.end.saturating_sub(e.start);
            // What was not seen is no stretch on the CPU.
            let seen = v.unseen * 5 <= v.end.saturating_sub(v.run);
            if seen && waited <= 2_000_000 && (e.blocked + waited) * 5 <= len {
                e.last = id;
                e.end = v.end;
                e.blocked += waited;
                e.ran += v.ran();
                e.waits += usize::from(waited > 0);
                e.longest = e.longest.max(waited);
                continue;
            }
            if e.duration() >= min {
                out.push(*e);
            }
            cur = None;
        }
        if v.unseen * 5 > v.end.saturating_sub(v.run) {
            continue;
        }
        cur = Some(Episode {
            thread,
            first: id,
            last: id,
            start: v.woken,
            end: v.end,
            blocked: 0,
            ran: v.ran(),
            waits: 0,
            longest: 0,
            key: None,
            tries: 0,
            pieces: false,
        });
    }
    if let Some(e) = cur
        && e.duration() >= min
    {
        out.push(e);
    }
    out
}
