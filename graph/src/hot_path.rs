//! The hot path of a unit of work: down from its loop into the function that most of its time is spent in.
//!
//! One stack says where a thread was at one moment, mostly in something small that the cause calls. Of several stacks of one
//! unit, the function that more than half of the time is below of, and none of the functions that it calls has most of that
//! again, is where the time fans out: profilers call the way there the hot path.

use crate::words::is_plumbing;
use pg_event::{Catalog, Frame, ModuleId, Ns, StackId};
use std::collections::HashMap;

/// Fewer stacks tell nothing.
const FEWEST: usize = 3;

/// A stack of a unit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Moment {
    /// Of the thread.
    pub stack: StackId,
    /// Which frame of it, from the innermost, is the loop's; `None`: not known, the outermost stands for it.
    pub loop_at: Option<usize>,
    /// How long the thread was there, as far as that is known: since the stack before, ns.
    pub time: Ns,
    /// It was taken at no special place: by a clock, or of a sleep for the sleep's time. Where a thread leaves its CPU or
    /// calls a certain function it may be now and then only.
    pub fair: bool,
}

/// Where a unit spent most of its time.
#[derive(Clone, PartialEq, Debug)]
pub struct HotPath {
    /// The function, its callers, the loop: as [`Catalog::show_functions`] shows them; one that calls itself is there once.
    pub frames: Vec<String>,
    /// How much of the time of the stacks was spent there: more than 0.5, at most 1.
    pub share: f64,
    /// How many stacks there were.
    pub stacks: usize,
}

/// A function, wherever in it: its module, its name and, where it has none, its begin.
pub(crate) type Function<'a> = (ModuleId, &'a str, u64);

/// The function of a frame.
pub(crate) fn function(f: &Frame) -> Function<'_> {
    (f.module, &f.function, if f.function.is_empty() { f.entry() } else { 0 })
}

/// The functions of a frame, the outermost first: what was inlined into one is a function, too.
fn functions(f: &Frame) -> impl Iterator<Item = Function<'_>> {
    let inlined = f.inlined.iter().rev().map(|name| (f.module, name.as_str(), 0));
    std::iter::once(function(f)).chain(inlined)
}

/// Where enough of them are fair, these: the time of the others is that of the next fair one.
fn fair(moments: &[Moment]) -> Vec<Moment> {
    if moments.iter().filter(|m| m.fair).count() < FEWEST {
        return moments.to_vec();
    }
    let mut since = 0;
    let mut take = |m: &Moment| {
        since += m.time;
        m.fair.then(|| Moment { time: std::mem::take(&mut since), ..*m })
    };
    moments.iter().filter_map(&mut take).collect()
}

/// The hot path of a unit's stacks, in their order. `None`: there are too few, or the time is spread over what the loop itself calls.
pub fn hot_path(catalog: &Catalog, moments: &[Moment]) -> Option<HotPath> {
    if moments.len() < FEWEST {
        return None;
    }
    let moments = fair(moments);
    let whole: Ns = moments.iter().map(|m| m.time).sum();
    let path = |m: &Moment| -> Vec<Function> {
        let frames: Vec<&Frame> = catalog.frames_of(m.stack).collect();
        let inside = m.loop_at.map_or(frames.len(), |l| l.saturating_add(1).min(frames.len()));
        frames[..inside].iter().rev().flat_map(|f| functions(f)).collect()
    };
    let paths: Vec<(Vec<Function>, &Moment)> = moments.iter().map(|m| (path(m), m)).collect();
    let mut on_it: Vec<_> = paths.iter().collect();
    // Its functions, the outermost first, each with the time below it.
    let mut way: Vec<(Function, Ns)> = Vec::new();
    loop {
        let mut next: HashMap<Function, Ns> = HashMap::new();
        for (p, m) in &on_it {
            if let Some(f) = p.get(way.len()) {
                *next.entry(*f).or_default() += m.time;
            }
        }
        // No two can have more than half. The loop calls everything: its time may fan out.
        let above = way.last().filter(|_| way.len() > 1).map_or(0, |w| w.1);
        let goes_on = |t: Ns| t > whole / 2 && t >= above / 3 * 2;
        let Some((f, below)) = next.into_iter().find(|(_, t)| goes_on(*t)) else { break };
        on_it.retain(|(p, _)| p.get(way.len()) == Some(&f));
        way.push((f, below));
    }
    // Rather who called the C library. The loop alone says nothing.
    let own = |m: ModuleId| catalog.modules.get(m.index()).is_none_or(|m| !is_plumbing(m.short()));
    let innermost = way.iter().rposition(|(f, _)| own(f.0)).filter(|i| *i > 0);
    way.truncate(innermost.map_or(way.len(), |i| i + 1));
    let (&(_, time), depth) = (way.last()?, way.len());
    let (_, shown) = on_it.first().filter(|_| depth > 1)?;
    let mut frames = catalog.show_functions(shown.stack);
    if let Some(l) = shown.loop_at {
        frames.truncate(catalog.shown_at(shown.stack, l) + 1);
    }
    frames.drain(..frames.len().saturating_sub(depth));
    // One that calls itself is told once, where it began to.
    let mut outer = way.iter().rev().skip(1).map(|(f, _)| *f);
    let mut inner = way.last().map(|(f, _)| *f);
    frames.retain(|_| {
        let above = outer.next();
        std::mem::replace(&mut inner, above) != above
    });
    Some(HotPath { frames, share: time as f64 / whole as f64, stacks: moments.len() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use pg_event::{CatalogDelta, FrameId, Module, Stack};

    /// Stacks of functions, each a letter, the innermost first; a small letter is inlined into the next great one.
    fn catalog(stacks: &[&str]) -> Catalog {
        let mut frames: Vec<Frame> = Vec::new();
        let mut rows = Vec::new();
        for (i, s) in stacks.iter().enumerate() {
            let (mut ids, mut inlined) = (Vec::new(), Vec::new());
            for c in s.chars() {
                if c.is_lowercase() {
                    inlined.push(c.to_string());
                    continue;
                }
                ids.push(FrameId(frames.len() as u32));
                // Each call is another place in its function.
                let address = frames.len() as u64;
                frames.push(Frame {
                    function: if c == '?' { String::new() } else { c.into() },
                    address: if c == '?' { 7 } else { address },
                    inlined: std::mem::take(&mut inlined),
                    ..Frame::default()
                });
            }
            rows.push((StackId(i as u32), Stack { frames: ids, ..Stack::default() }));
        }
        let mut c = Catalog::default();
        let frames = (0..).map(FrameId).zip(frames).collect();
        c.apply(CatalogDelta { frames, stacks: rows, ..CatalogDelta::default() });
        c
    }

    fn path(stacks: &[(&str, Ns)]) -> Option<(String, u32)> {
        let texts: Vec<_> = stacks.iter().map(|s| s.0).collect();
        let c = catalog(&texts);
        let moments: Vec<_> = (0..)
            .map(StackId)
            .zip(stacks)
            .map(|(stack, (text, time))| {
                let great = text.chars().filter(|c| !c.is_lowercase());
                Moment { stack, fair: true, loop_at: great.clone().position(|c| c == 'L'), time: *time }
            })
            .collect();
        let h = hot_path(&c, &moments)?;
        assert_eq!(h.stacks, stacks.len());
        let frames: String = h.frames.iter().map(|f| f.split(' ').next().unwrap()).collect();
        Some((frames, (h.share * 100.0).round() as u32))
    }

    #[test]
    fn it_ends_where_the_time_fans_out() {
        // B calls three others.
        let found = path(&[("XBALM", 10), ("YBALM", 10), ("ZBALM", 10), ("QALM", 2)]);
        assert_eq!(found, Some(("BAL".into(), 94)));
        // Of these one takes most.
        let found = path(&[("XBALM", 40), ("YBALM", 10), ("ZBALM", 10)]);
        assert_eq!(found, Some(("XBAL".into(), 67)));
        // More than half, but there is much besides.
        let found = path(&[("XBALM", 30), ("YBALM", 10), ("ZBALM", 10)]);
        assert_eq!(found, Some(("BAL".into(), 100)));
        // What the loop calls besides is something else.
        let found = path(&[("XBALM", 30), ("YCLM", 10), ("ZDLM", 10)]);
        assert_eq!(found, Some(("XBAL".into(), 60)));
        // What was seen first is not where it goes on.
        let found = path(&[("PL", 3), ("BAL", 10), ("XBAL", 10), ("YBAL", 10)]);
        assert_eq!(found, Some(("BAL".into(), 91)));
    }

    #[test]
    fn itself_counts_where_it_is_the_innermost() {
        assert_eq!(path(&[("BAL", 10), ("BAL", 10), ("XBAL", 10)]), Some(("BAL".into(), 100)));
    }

    #[test]
    fn nothing_is_said_of_little() {
        assert_eq!(path(&[("BAL", 10), ("BAL", 10)]), None, "two stacks");
        assert_eq!(path(&[("AL", 10), ("BL", 10), ("CL", 10)]), None, "spread over what the loop calls");
        assert_eq!(path(&[("L", 10), ("L", 10), ("L", 10)]), None);
        assert_eq!(path(&[("", 0), ("", 0), ("", 0)]), None, "no time");
        assert_eq!(hot_path(&Catalog::default(), &[]), None);
    }

    #[test]
    fn inlined_functions_are_on_it() {
        assert_eq!(path(&[("XbAL", 10), ("YbAL", 10), ("ZbAL", 10)]), Some(("bAL".into(), 100)));
    }

    #[test]
    fn where_a_thread_leaves_its_cpu_counts_only_where_nothing_else_is_known() {
        let c = catalog(&["WL", "AL", "WL", "AL", "WL", "BL"]);
        let moment = |n: u32, fair| Moment { stack: StackId(n), loop_at: Some(1), time: 10, fair };
        let of = |fair: &[u32]| {
            let moments: Vec<_> = (0..6).map(|n| moment(n, fair.contains(&n))).collect();
            hot_path(&c, &moments).map(|h| (h.frames[0].clone(), (h.share * 100.0).round(), h.stacks))
        };
        // The time before the last three is theirs.
        assert_eq!(of(&[1, 3, 5]), Some(("A ([unknown])".into(), 67.0, 3)));
        assert_eq!(of(&[1, 3]), None, "too few: all of them, half of them there");
    }

    #[test]
    fn one_that_calls_itself_is_told_once() {
        assert_eq!(path(&[("XBBBAL", 10), ("YBBBAL", 10), ("ZBBBAL", 10)]), Some(("BAL".into(), 100)));
        assert_eq!(path(&[("XBABAL", 10), ("XBABAL", 10), ("XBABAL", 10)]), Some(("XBABAL".into(), 100)));
    }

    #[test]
    fn the_c_library_is_told_by_who_called_it() {
        let c = |mut c: Catalog| {
            c.modules = ["shopd", "libc.so.6"].map(|p| Module { path: p.into(), ..Module::default() }).into();
            for f in &mut c.frames {
                f.module = ModuleId(u32::from(f.function.starts_with('C')));
            }
            c
        };
        let own = |stacks: &[&str]| {
            let moment = |n: usize| Moment { stack: StackId(n as u32), loop_at: None, time: 10, fair: true };
            let moments: Vec<_> = (0..stacks.len()).map(moment).collect();
            hot_path(&c(catalog(stacks)), &moments).unwrap().frames
        };
        assert_eq!(own(&["CBAL"; 3]), ["B (shopd)", "A (shopd)", "L (shopd)"]);
        assert_eq!(own(&["CCL"; 3])[0], "C (libc.so.6)", "nobody else is there");
    }

    #[test]
    fn without_names_the_place_stands_for_the_function() {
        assert_eq!(path(&[("X?L", 10), ("Y?L", 10), ("?L", 10)]), Some(("0x7L".into(), 100)));
    }

    #[test]
    fn without_the_loop_it_begins_at_the_outermost() {
        assert_eq!(path(&[("XBA", 10), ("YBA", 10), ("ZBA", 10)]), Some(("BA".into(), 100)));
    }
}
