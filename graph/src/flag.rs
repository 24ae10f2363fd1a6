//! Data flags: accesses that watchpoints recorded, and what they tell of a loop that asks for one
//! (Argus, sections 4.3 and 5.3).

use crate::EventGraph;
use pg_event::{Ns, ObjectId, StackId, ThreadId};
use std::ops::Range;

/// An access to a data flag.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlagAccess {
    /// When.
    pub time: Ns,
    /// By whom.
    pub thread: ThreadId,
    /// Which flag.
    pub object: ObjectId,
    /// Its value afterwards.
    pub value: u64,
    /// A write (else a read).
    pub write: bool,
    /// Where.
    pub stack: StackId,
}

/// The accesses of a recording, and the orders they are looked up by.
#[derive(Debug, Default)]
pub(crate) struct Flags {
    /// By time.
    all: Vec<FlagAccess>,
    /// Numbers of all, by thread and time.
    by_thread: Vec<u32>,
    /// Numbers of the writes, by object and time.
    writes: Vec<u32>,
}

impl Flags {
    /// `all` by time.
    pub fn new(all: Vec<FlagAccess>) -> Self {
        let numbers = 0..all.len() as u32;
        let mut by_thread: Vec<u32> = numbers.clone().collect();
        by_thread.sort_by_key(|i| all[*i as usize].thread);
        let mut writes: Vec<u32> = numbers.filter(|i| all[*i as usize].write).collect();
        writes.sort_by_key(|i| all[*i as usize].object);
        Self { all, by_thread, writes }
    }
}

impl EventGraph {
    /// Accesses to data flags, by time.
    pub fn flag_accesses(&self) -> &[FlagAccess] {
        &self.flags.all
    }

    /// What a thread did to data flags within a span, by time.
    pub fn flags_of(
        &self,
        thread: ThreadId,
        span: Range<Ns>,
    ) -> impl DoubleEndedIterator<Item = &FlagAccess> {
        let f = &self.flags;
        let key = |i: &u32| (f.all[*i as usize].thread, f.all[*i as usize].time);
        let from = f.by_thread.partition_point(|i| key(i) < (thread, span.start));
        let to = f.by_thread.partition_point(|i| key(i) < (thread, span.end)).max(from);
        f.by_thread[from..to].iter().map(|i| &f.all[*i as usize])
    }

    /// Who wrote a data flag, by time.
    pub fn flag_writes(&self, object: ObjectId) -> impl DoubleEndedIterator<Item = &FlagAccess> {
        let f = &self.flags;
        let from = f.writes.partition_point(|i| f.all[*i as usize].object < object);
        let to = f.writes.partition_point(|i| f.all[*i as usize].object <= object);
        f.writes[from..to].iter().map(|i| &f.all[*i as usize])
    }
}

/// What a loop of one thread had to do with a data flag.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct FlagSeen {
    pub object: ObjectId,
    /// How often the thread read it in the loop.
    pub reads: usize,
    /// How often it wrote it itself.
    pub own_writes: usize,
    /// How often others wrote it meanwhile.
    pub written: usize,
    /// Its last access in the loop.
    pub last: FlagAccess,
    /// The write of another thread after which it asked no more: the loop's end.
    pub ended_by: Option<FlagAccess>,
    /// Other threads that wrote it outside the loop, each with its write nearest to the loop (before it rather
    /// than after it), latest first.
    pub writers: Vec<FlagAccess>,
    /// How well it fits a loop that asks for it.
    pub score: f64,
}

/// After the loop's last wait it reads the flag once more, soon.
const SOON: Ns = 5_000_000;

/// Who asks more often than this is not recorded each time: that would slow it. So many reads are as good as all.
const MANY: usize = 300;

/// The data flags that `thread` read within `spans` (disjoint, by time), in which it went round about
/// `rounds` times: what fits best first.
pub(crate) fn flags_seen(
    g: &EventGraph,
    thread: ThreadId,
    spans: &[(Ns, Ns)],
    rounds: usize,
) -> Vec<FlagSeen> {
    let (Some(first), Some(last)) = (spans.first(), spans.last()) else { return Vec::new() };
    let (a, b) = (first.0, last.1.saturating_add(SOON));
    let mut out: Vec<FlagSeen> = Vec::new();
    for x in g.flags_of(thread, a..b) {
        let at = out.iter().position(|f| f.object == x.object).unwrap_or_else(|| {
            out.push(FlagSeen {
                object: x.object,
                reads: 0,
                own_writes: 0,
                written: 0,
                last: *x,
                ended_by: None,
                writers: Vec::new(),
                score: 0.0,
            });
            out.len() - 1
        });
        let f = &mut out[at];
        if x.write {
            f.own_writes += 1;
        } else {
            f.reads += 1;
        }
        f.last = *x;
    }
    // Who asks, reads.
    out.retain(|f| f.reads > 0);
    for f in &mut out {
        let others = || g.flag_writes(f.object).filter(|w| w.thread != thread);
        f.written = others().filter(|w| (a..b).contains(&w.time)).count();
        let write = others().rfind(|w| (a..b).contains(&w.time)).copied();
        f.ended_by = write.filter(|w| {
            let asked_on = g.flags_of(thread, w.time..b).filter(|x| x.object == f.object && !x.write).count();
            asked_on <= (f.reads / 10).max(2)
        });
        let mut writers: Vec<FlagAccess> = Vec::new();
        let outside = others().filter(|w| w.time < a).rev().chain(others().filter(|w| w.time >= b));
        for w in outside {
            if !writers.iter().any(|x| x.thread == w.thread) {
                writers.push(*w);
            }
        }
        let rounds = rounds.clamp(1, MANY) as f64;
        f.score = (f.reads as f64 / rounds).min(1.0)
            + f64::from(f.ended_by.is_some() && f.written < 3)
            + 0.3 * f64::from(!writers.is_empty())
            // What the thread itself changes all the time, or others without letting it go, is a counter.
            - 0.8 * f64::from(f.own_writes > 0 && f.own_writes * 2 >= f.reads)
            - 0.3 * f64::from(f.written >= 3);
        f.writers = writers;
    }
    out.sort_by(|x, y| y.score.total_cmp(&x.score).then(x.object.cmp(&y.object)));
    out
}
