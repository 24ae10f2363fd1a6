//! Yield loops: a thread that asks again and again whether it may go on, and how that shows (Argus, section
//! 2.2, repeated yield).
//!
//! Loops that sleep, poll or wait with a time-out are waits: [`Episode::block_type`](crate::Episode) knows
//! them. Those that stay on the CPU are told here from a thread that works.

use crate::builder::{POLL, call_is};
use crate::profile::Profile;
use crate::words::{clean, is_kernel, is_plumbing, short_label};
use crate::{EventGraph, flag};
use pg_event::{Catalog, LoopTurn, ModuleId, Ns, ObjectId, ObjectKind, Process, ProcessId, Sysno, ThreadId};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

/// How a thread on the CPU shows that it only asks.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum YieldLoop {
    /// sched_yield(2) again and again.
    GivesUp,
    /// Looks at descriptors again and again without waiting.
    Polls(&'static str),
    /// A call that fails again and again.
    Fails { call: Sysno, error: i64, count: u64, object: ObjectId },
    /// Reads a data flag again and again.
    Reads { reads: usize },
    /// Asks without waiting whether a child has ended, until one has.
    Child { count: u64 },
    /// Stays within a few bytes of a function; or within a loop of which is known that it asks, and which variables.
    Spins { function: String, bytes: u64, asks: Option<Vec<String>> },
}

/// What a yield loop means, for a sentence.
pub(crate) const ASKS: &str = "it asks again and again whether it may go on, and all that time nobody let it; the data flag it asks for was not recorded";

/// Share of the samples that must lie in the call.
const SHARE: f64 = 0.3;
/// A tight loop is no longer than this: load, test, pause, jump.
const TIGHT: u64 = 16;
/// Least samples to tell a loop by.
const SAMPLES: usize = 20;
/// Least failures.
const FAILURES: u64 = 20;

/// Does the thread, on the CPU within `spans`, only ask whether it may go on?
pub(crate) fn yield_loop(
    g: &EventGraph,
    c: &Catalog,
    thread: ThreadId,
    spans: &[(Ns, Ns)],
    p: &Profile,
) -> Option<YieldLoop> {
    let in_call = |name: &str| p.functions.iter().any(|(f, share)| f.contains(name) && *share >= SHARE);
    if in_call("sched_yield") || yielded(g, thread, spans) {
        return Some(YieldLoop::GivesUp);
    }
    if let Some(f) = failing(g, thread, spans) {
        return Some(f);
    }
    if let Some(count) = asks_for_child(g, c, thread, spans) {
        return Some(YieldLoop::Child { count });
    }
    let reads = reads(g, thread, spans);
    if reads > 0 {
        return Some(YieldLoop::Reads { reads });
    }
    if let Some(call) = polls(p) {
        return Some(YieldLoop::Polls(call));
    }
    if let Some(call) = polled(g, thread, spans) {
        return Some(YieldLoop::Polls(call));
    }
    spin(g, c, thread, spans)
}

/// Was it put off the CPU by its own wish once in ten milliseconds and more?
fn yielded(g: &EventGraph, thread: ThreadId, spans: &[(Ns, Ns)]) -> bool {
    let total: Ns = spans.iter().map(|s| s.1.saturating_sub(s.0)).sum();
    let count: usize = spans.iter().map(|s| g.yields_of(thread, s.0..s.1).len()).sum();
    count >= SAMPLES && count as u64 * 10_000_000 >= total
}

/// The call that failed most often, if that was all the time.
fn failing(g: &EventGraph, thread: ThreadId, spans: &[(Ns, Ns)]) -> Option<YieldLoop> {
    let mut counts: BTreeMap<(u16, i64, u32), u64> = BTreeMap::new();
    let mut worked = 0u64;
    for s in spans {
        for u in g.syscalls_of(thread, s.0..s.1) {
            let u = &u.what;
            if (-4095..0).contains(&u.result) {
                *counts.entry((u.nr.0, u.result, u.object.0)).or_default() += u64::from(u.count.max(1));
            } else if !call_is(u.nr, POLL) {
                // To see that there is something to be accepted, which then fails, is no work.
                worked += u64::from(u.count.max(1));
            }
        }
    }
    let ((nr, error, object), count) = counts.into_iter().max_by_key(|c| c.1)?;
    // A server's non-blocking reads end with a failure each, after others that did something.
    (count >= FAILURES && count > worked * 2).then_some(YieldLoop::Fails {
        call: Sysno(nr),
        error,
        count,
        object: ObjectId(object),
    })
}

/// How often it asked whether a child had ended (`WNOHANG`, wait(2)) and none had: if it went on when one of its children had,
/// or did nothing else to the end of the recording. Whoever reaps children between other work goes on with that.
fn asks_for_child(g: &EventGraph, c: &Catalog, thread: ThreadId, spans: &[(Ns, Ns)]) -> Option<u64> {
    let (mut none, mut other, mut worked) = (0u64, 0u64, 0u64);
    for s in spans {
        for u in g.syscalls_of(thread, s.0..s.1) {
            let n = u64::from(u.what.count.max(1));
            if u.what.nr.is_any(&["wait4", "waitid"]) {
                if u.what.result == 0 { none += n } else { other += n }
            } else if !call_is(u.what.nr, POLL) {
                worked += n;
            }
        }
    }
    if none < FAILURES || none < other * 2 {
        return None;
    }
    let own = c.thread(thread)?.process;
    let span = (spans.first()?.0, spans.last()?.1);
    let alive = || living(g, c, own, span).filter(|_| none > worked * 2);
    ended_at_last(c, own, span).or_else(alive).is_some().then_some(none)
}

/// The one child of a process that ended just before the end of a span, and lived nearly all of it.
pub(crate) fn ended_at_last(c: &Catalog, own: ProcessId, (a, b): (Ns, Ns)) -> Option<ProcessId> {
    let soon = (b - a) / 100;
    let ends =
        |p: &Process| p.end.is_some_and(|e| e.saturating_add(soon) >= b && e <= b.saturating_add(soon));
    only_child(c, own, (a, b), ends)
}

/// The one child of a process that lived nearly all of a span which the end of the recording cut off.
pub(crate) fn living(g: &EventGraph, c: &Catalog, own: ProcessId, (a, b): (Ns, Ns)) -> Option<ProcessId> {
    let cut = b.saturating_add((b - a) / 100) >= g.duration();
    only_child(c, own, (a, b), |p| p.end.is_none()).filter(|_| cut)
}

fn only_child(
    c: &Catalog,
    own: ProcessId,
    (a, b): (Ns, Ns),
    fits: impl Fn(&Process) -> bool,
) -> Option<ProcessId> {
    let kept = |p: &Process| p.parent == own && p.start <= a + (b - a) / 10 && fits(p);
    let mut all = c.processes.iter().enumerate().filter(|(_, p)| kept(p)).map(|(i, _)| ProcessId(i as u32));
    all.next().filter(|_| all.next().is_none())
}

/// How often it read the flag it read most, if it did so nearly from begin to end.
fn reads(g: &EventGraph, thread: ThreadId, spans: &[(Ns, Ns)]) -> usize {
    let (Some(first), Some(last)) = (spans.first(), spans.last()) else { return 0 };
    let (a, b) = (first.0, last.1);
    let best = flag::flags_seen(g, thread, spans, SAMPLES).into_iter().max_by_key(|f| f.reads);
    let Some(f) = best.filter(|f| f.reads >= SAMPLES) else { return 0 };
    let mut of = g.flags_of(thread, a..b).filter(|x| x.object == f.object && !x.write);
    let from = of.next().map_or(b, |x| x.time);
    let to = of.next_back().map_or(from, |x| x.time);
    if (to - from) * 2 >= b.saturating_sub(a) { f.reads } else { 0 }
}

/// The call of the C library or the kernel that looks at descriptors, with most of the samples in it.
fn polls(p: &Profile) -> Option<&'static str> {
    const MOST: f64 = 0.5;
    const NAMES: [(&str, &[&str]); 3] = [
        ("poll", &["poll", "ppoll", "do_sys_poll", "x64_sys_poll"]),
        ("select", &["select", "pselect", "select64", "pselect64", "core_sys_select"]),
        ("epoll_wait", &["epoll_wait", "epoll_pwait", "do_epoll_wait"]),
    ];
    p.functions.iter().filter(|(_, share)| *share >= MOST).find_map(|(f, _)| {
        let (name, module) = f.rsplit_once(" (")?;
        let name = name.trim_start_matches("__GI_").trim_start_matches('_');
        let system = is_plumbing(module.trim_end_matches(')'));
        NAMES.iter().find(|n| system && n.1.contains(&name)).map(|n| n.0)
    })
}

/// A poll that returned at once, again and again.
fn polled(g: &EventGraph, thread: ThreadId, spans: &[(Ns, Ns)]) -> Option<&'static str> {
    let (mut empty, mut other) = (0u64, 0u64);
    for s in spans {
        for u in g.syscalls_of(thread, s.0..s.1) {
            let n = u64::from(u.what.count.max(1));
            if call_is(u.what.nr, POLL) && u.what.result == 0 {
                empty += n;
            } else {
                other += n;
            }
        }
    }
    (empty >= FAILURES && empty > other * 2).then_some("poll")
}

/// All samples within a few bytes, or in a function whose name says that it spins.
fn spin(g: &EventGraph, c: &Catalog, thread: ThreadId, spans: &[(Ns, Ns)]) -> Option<YieldLoop> {
    const NAMES: [&str; 4] = ["spin", "cpu_relax", "busy_wait", "busywait"];
    let mut at: BTreeMap<(ModuleId, u64), u64> = BTreeMap::new();
    let (mut samples, mut all, mut named, mut name) = (0, 0u64, 0u64, String::new());
    let (mut asking, mut works, mut asked, mut loops) = (0u64, 0u64, BTreeSet::new(), None);
    for s in spans {
        for x in g.samples_of(thread, s.0..s.1) {
            let w = x.weight.max(1);
            all += w;
            samples += 1;
            let Some(f) = c.frames_of(x.user_stack).next().filter(|f| !is_kernel(c, f)) else { continue };
            if x.kernel_stack.is_some() {
                continue;
            }
            let (turn, frame) = c.turn_of(x.user_stack);
            match turn {
                LoopTurn::Asks(of) => {
                    asking += w;
                    asked.extend(of.iter());
                    // Not what it calls to look.
                    loops = c.frames_of(x.user_stack).nth(frame).map(|f| f.function.as_str());
                }
                LoopTurn::Works | LoopTurn::Endless => works += w,
                LoopTurn::Unknown => {}
            }
            if f.address != 0 {
                *at.entry((f.module, f.address)).or_default() += w;
            }
            let spins = f.names().find(|n| {
                let n = n.to_ascii_lowercase();
                NAMES.iter().any(|s| n.contains(s))
            });
            if let Some(n) = spins {
                named += w;
                name.clone_from(n);
            } else if named == 0 && name.is_empty() {
                name.clone_from(&f.function);
            }
        }
    }
    if samples < SAMPLES {
        return None;
    }
    if named * 10 < all * 8 && at.is_empty() {
        return None;
    }
    let most = |w: u64| w * 10 >= all * 8;
    let unknown = (ModuleId::NONE, 0);
    let (low, high) = (at.keys().next().unwrap_or(&unknown), at.keys().next_back().unwrap_or(&unknown));
    let whole = at.values().sum::<u64>() * 100 >= all * 98;
    let library = |m: ModuleId| c.modules.get(m.index()).is_none_or(|m| is_plumbing(m.short()));
    let near = whole && low.0 == high.0 && high.1 - low.1 <= TIGHT && !library(low.0);
    // What its code was seen to do counts, not how small it is.
    let tight = near && !most(works);
    let name = loops.filter(|f| most(asking) && !f.is_empty()).map_or(name, str::to_owned);
    (tight || most(named) || most(asking)).then(|| YieldLoop::Spins {
        function: if name.is_empty() { format!("0x{:x}", low.1) } else { name },
        bytes: high.1.saturating_sub(low.1),
        asks: most(asking).then(|| asked.into_iter().cloned().collect()),
    })
}

/// Is the thread, on the CPU within `spans`, in a loop that nothing leads out of?
pub(crate) fn endless(g: &EventGraph, c: &Catalog, thread: ThreadId, spans: &[(Ns, Ns)]) -> bool {
    let (mut samples, mut of) = (0, 0);
    for x in spans.iter().flat_map(|s| g.samples_of(thread, s.0..s.1)) {
        samples += 1;
        of += usize::from(*c.turn_of(x.user_stack).0 == LoopTurn::Endless);
    }
    samples >= SAMPLES && of * 10 >= samples * 8
}

impl YieldLoop {
    /// The one variable that it asks, where its code names it.
    pub fn variable(&self) -> Option<&str> {
        match self {
            Self::Spins { asks: Some(of), .. } => {
                of.first().filter(|v| of.len() == 1 && !v.starts_with("0x")).map(String::as_str)
            }
            _ => None,
        }
    }

    /// What that means, and what is not known of it.
    pub fn means(&self) -> Cow<'static, str> {
        let means = match self {
            Self::GivesUp => ASKS,
            Self::Child { .. } => "it waits for one to end",
            Self::Polls(_) => "nothing of what it looks at was ready",
            Self::Fails { error, .. } => {
                crate::refused::limit(*error).unwrap_or("who let it fail was not recorded")
            }
            Self::Reads { .. } => {
                "it asks whether it may go on; who should have written the flag is not known"
            }
            Self::Spins { asks: Some(of), .. } => {
                let of = variables(of).unwrap_or_else(|| "what it reads".into());
                return format!(
                    "no turn of this loop changes what it asks: it goes on until another thread writes {of}"
                )
                .into();
            }
            // Samples tell where it was, not what the instructions there do.
            Self::Spins { .. } => {
                "a loop this small asks a variable whether it may go on, or computes; which of both must be looked up"
            }
        };
        means.into()
    }

    /// The same with what a call that fails is about, where that has a name.
    pub fn words_with(&self, c: &Catalog) -> String {
        let words = self.words();
        let Self::Fails { call, object, .. } = self else { return words };
        let named = c.object(*object).filter(|o| o.kind == ObjectKind::File && !o.name.is_empty());
        let Some((o, call)) = named.zip(call.name()) else { return words };
        words.replacen(&*call, &format!("{call} of {}", clean(&short_label(&o.label()), 110)), 1)
    }

    /// What it did, for a sentence that begins with the thread.
    pub fn words(&self) -> String {
        match self {
            Self::GivesUp => "gave up the CPU again and again (sched_yield, a yield loop)".into(),
            Self::Polls(call) => format!("called {call} again and again without waiting (a yield loop)"),
            Self::Fails { call, error, count, .. } => format!(
                "tried {} again and again: it failed {count} times ({})",
                call.name().unwrap_or_else(|| "a call".into()),
                errno(*error)
            ),
            Self::Child { count } => {
                format!("asked {count} times over, without waiting, whether a child had ended (a yield loop)")
            }
            Self::Reads { reads } => format!("read a data flag {reads} times over (a yield loop)"),
            Self::Spins { function, asks: Some(of), .. } => {
                let of =
                    variables(of).map_or_else(String::new, |of| format!(", which asks {of} again and again"));
                format!("spun in {}{of}", clean(function, 60))
            }
            Self::Spins { function, bytes, .. } if *bytes <= TIGHT => {
                format!("spun in {} (within {} bytes)", clean(function, 60), (bytes + 1).max(2))
            }
            Self::Spins { function, .. } => format!("spun in {}", clean(function, 60)),
        }
    }
}

/// Variables, in words.
fn variables(of: &[String]) -> Option<String> {
    let names: Vec<String> = of.iter().take(3).map(|v| clean(v, 60)).collect();
    (!names.is_empty()).then(|| names.join(", "))
}

/// Names of the errors that callers retry on.
pub(crate) fn errno(result: i64) -> String {
    match -result {
        1 => "EPERM".into(),
        2 => "ENOENT".into(),
        3 => "ESRCH".into(),
        4 => "EINTR".into(),
        6 => "ENXIO".into(),
        11 => "EAGAIN".into(),
        12 => "ENOMEM".into(),
        13 => "EACCES".into(),
        16 => "EBUSY".into(),
        17 => "EEXIST".into(),
        20 => "ENOTDIR".into(),
        23 => "ENFILE".into(),
        24 => "EMFILE".into(),
        26 => "ETXTBSY".into(),
        28 => "ENOSPC".into(),
        35 => "EDEADLK".into(),
        39 => "ENOTEMPTY".into(),
        98 => "EADDRINUSE".into(),
        110 => "ETIMEDOUT".into(),
        111 => "ECONNREFUSED".into(),
        113 => "EHOSTUNREACH".into(),
        115 => "EINPROGRESS".into(),
        122 => "EDQUOT".into(),
        n => format!("error {n}"),
    }
}
