//! `pg-tui units`: units of work of a recording, and how work went from thread to thread.

use super::args::Units;
use super::chosen::Chosen;
use super::diagnose::harmless;
use super::exit::{Failure, Outcome};
use super::loading;
use super::page::Page;
use crate::clean::{clean, clean_to};
use crate::session::Loaded;
use crate::units::{self, Work};
use pg_event::Ns;
use pg_graph::BuildOptions;
use pg_graph::transactions::{Pair, Times, Ways, pair_words, pairs, ways};
use pg_graph::words::{moment, short_who, span};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::process::ExitCode;

/// Longest line, columns.
const WIDTH: usize = 160;
/// Lines of each table of the text at most.
const MOST: usize = 24;

/// What a recording cannot know of how many units there were.
const UNSEEN: &str = "note: there may have been more units than these, and some of these may be several: a wait that returns at once, \
                      since work is there already, leaves no trace in a recording. `pg-tui train` and `pg-tui guard` count \
                      each unit, with probes";

/// Run it. Code 1: there are none.
pub fn run(args: &Units, out: &mut dyn Write) -> Outcome {
    let loaded = loading::load(&args.file, BuildOptions::default())?;
    let chosen = Chosen::of(&args.pid, &args.comm)?;
    let c = &loaded.catalog;
    let focus = c.threads.iter().any(|t| t.focus) || !matches!(chosen, Chosen::Focus);
    let work =
        units::work(
            &loaded,
            |c, t| {
                if focus { chosen.wants(c, t) } else { c.thread(t).is_some_and(|t| !t.kernel) }
            },
        );
    let found = Found {
        pairs: pairs(&work.joined, &loaded.graph, c),
        ways: ways(&work.joined),
        kinds: kinds(&work),
        loaded: &loaded,
        work: &work,
    };
    if work.joined.units.is_empty() {
        return Err(Failure::Nothing(format!(
            "{}: no unit of work was found: did the program wait for its work in a loop, and are its files here?",
            clean(&args.file.display().to_string())
        )));
    }
    if args.json {
        found.lines(args.each, out)?;
    } else {
        found.text(args.each, out)?;
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// Units of one loop or type.
struct Kind {
    of: (u32, u32),
    threads: usize,
    count: usize,
    times: Times,
}

/// The units by loop or type, those that took most time together first.
fn kinds(work: &Work) -> Vec<Kind> {
    let mut all: BTreeMap<(u32, u32), (BTreeSet<u32>, Vec<u64>)> = BTreeMap::new();
    for u in &work.joined.units {
        let of = all.entry((u.kind, u.of_loop)).or_default();
        of.0.insert(u.thread.0);
        of.1.push(u.duration());
    }
    let kind = |(of, (threads, all)): (_, (BTreeSet<u32>, Vec<u64>))| Kind {
        of,
        threads: threads.len(),
        count: all.len(),
        times: Times::of(all),
    };
    let mut all: Vec<Kind> = all.into_iter().map(kind).collect();
    all.sort_by_key(|k| std::cmp::Reverse(k.times.sum));
    all
}

/// How certain the hand-overs of a pair are.
fn certain(p: &Pair) -> String {
    let inferred = match p.by_order {
        0 => String::new(),
        n => format!(", {n} put together by the order of the queue (no event shows them)"),
    };
    let weak = match p.count - p.strong - p.by_order {
        0 => String::new(),
        n => format!(", {n} weak"),
    };
    let unknown = match p.unknown {
        0 => String::new(),
        n => format!("; of {n} units of the latter it is not known who handed them on"),
    };
    format!("{} certain{inferred}{weak}; {} to {} threads{unknown}", p.strong, p.threads.0, p.threads.1)
}

/// A line of a table, and sentences below it.
struct Row {
    figures: Vec<String>,
    /// What they are of.
    of: String,
    below: Vec<String>,
}

/// How many, four times, and the share of the time that was spent waiting.
fn shares(count: usize, times: [Ns; 4], waiting: f64) -> Vec<String> {
    let mut figures = vec![count.to_string()];
    figures.extend(times.map(span));
    figures.push(format!("{:.0}%", waiting * 100.0));
    figures
}

fn put(out: &mut dyn Write, line: &str) -> std::io::Result<()> {
    writeln!(out, "{}", clean_to(line, WIDTH))
}

/// Figures below their heads, then what they are of; the first rows of many.
fn table(out: &mut dyn Write, heads: &[&str], of: &str, rows: Vec<Row>) -> std::io::Result<()> {
    let line = |figures: &mut dyn Iterator<Item = &str>, of: &str| -> String {
        let padded: Vec<String> = figures.map(|f| format!("{f:>8}")).collect();
        format!("{}  {of}", padded.join(" "))
    };
    put(out, &line(&mut heads.iter().copied(), of))?;
    for row in rows.iter().take(MOST) {
        put(out, &line(&mut row.figures.iter().map(String::as_str), &row.of))?;
        for words in &row.below {
            let mut lines = String::new();
            // Writing to a string does not fail.
            let _ = Page::FILE.wrap(&mut lines, &" ".repeat(10), words);
            lines.lines().try_for_each(|l| put(out, l))?;
        }
    }
    match rows.len().saturating_sub(MOST) {
        0 => Ok(()),
        n => put(out, &format!("and {n} others")),
    }
}

struct Found<'a> {
    loaded: &'a Loaded,
    work: &'a Work,
    kinds: Vec<Kind>,
    pairs: Vec<Pair>,
    ways: Vec<Ways>,
}

impl Found<'_> {
    fn name(&self, of: (u32, u32)) -> &str {
        self.work.name(of.0, of.1)
    }

    /// What a pair hands work over on.
    fn object(&self, p: &Pair) -> String {
        self.loaded.catalog.object(p.object).map_or_else(String::new, pg_event::Object::label)
    }

    /// Are there more than were seen?
    fn is_least(&self, k: &Kind) -> bool {
        self.work.turn_unseen.contains(&k.of.1)
    }

    fn way(&self, w: &Ways) -> Vec<&str> {
        w.way.iter().map(|k| self.name(*k)).collect()
    }

    fn text(&self, each: bool, out: &mut dyn Write) -> std::io::Result<()> {
        let kinds = self.kinds.iter().map(|k| self.kind_row(k)).collect();
        table(out, &["number", "threads", "mean", "median", "p99", "max"], "units of", kinds)?;
        let left = self.work.left;
        let n = left.edges + left.lost + left.other + left.empty;
        if n > 0 {
            put(out, &format!("left out: {n} units that were not whole (`pg-tui train --from` says why)"))?;
        }
        if self.kinds.iter().any(|k| self.is_least(k)) {
            let mut lines = String::new();
            // Writing to a string does not fail.
            let _ = Page::FILE.wrap(&mut lines, "", UNSEEN);
            lines.lines().try_for_each(|l| put(out, l))?;
        }
        if self.work.cut_short {
            put(out, "there are more units than are looked at: the rest is left out")?;
        }
        if self.pairs.is_empty() {
            put(out, "")?;
            return put(out, "no unit was seen to hand work on to another thread's");
        }
        put(out, "")?;
        let pairs = self.pairs.iter().map(|p| self.pair_row(p)).collect();
        table(out, &["number", "queued", "p99", "service", "p99", "waiting"], "work handed on", pairs)?;
        put(out, "")?;
        let ways = self.ways.iter().map(|w| self.way_row(w)).collect();
        table(out, &["number", "total", "p99", "queued", "service", "waiting"], "transactions", ways)?;
        let (several, most) = self.work.joined.fan_out();
        if several > 0 {
            let each = "each is told as a transaction";
            put(out, &format!("{several} units handed on to several, one to {most}: {each}"))?;
        }
        if each {
            put(out, "")?;
            self.each().try_for_each(|line| put(out, &line))?;
        }
        Ok(())
    }

    fn kind_row(&self, k: &Kind) -> Row {
        let t = &k.times;
        let mut figures = vec![k.count.to_string(), k.threads.to_string()];
        figures.extend([t.mean, t.median, t.p99, t.max].map(span));
        Row { figures, of: self.name(k.of).to_owned(), below: Vec::new() }
    }

    fn pair_row(&self, p: &Pair) -> Row {
        let times = [p.queued.mean, p.queued.p99, p.service.mean, p.service.p99];
        let object = self.object(p);
        let on = if object.is_empty() { String::new() } else { format!(", by {object}") };
        Row {
            figures: shares(p.count, times, p.share_queued()),
            of: format!("{} → {}{on}", self.name(p.from), self.name(p.to)),
            below: vec![certain(p), pair_words(p)],
        }
    }

    fn way_row(&self, w: &Ways) -> Row {
        let times = [w.total.mean, w.total.p99, w.queued.mean, w.service.mean];
        let waiting = w.queued.sum as f64 / w.total.sum.max(1) as f64;
        let back = if w.back { " (and back)" } else { "" };
        let of = self.way(w).join(" → ") + back;
        Row { figures: shares(w.count, times, waiting), of, below: Vec::new() }
    }

    fn each(&self) -> impl Iterator<Item = String> + '_ {
        let t = &self.work.joined;
        t.hand_overs.iter().map(|h| {
            let c = &self.loaded.catalog;
            let (from, to) = (&t.units[h.from], &t.units[h.to]);
            format!(
                "{:>11}  {} → {}  queued {}, service {}{}",
                moment(h.time),
                short_who(c, from.thread),
                short_who(c, to.thread),
                span(h.queued()),
                span(to.end.saturating_sub(h.taken)),
                if h.is_strong() { "" } else { "  (inferred)" }
            )
        })
    }

    fn lines(&self, each: bool, out: &mut dyn Write) -> Result<(), Failure> {
        let mut put = |line: Value| -> Result<(), Failure> {
            let plain = serde_json::to_string(&line).map_err(|e| Failure::Other(format!("JSON: {e}")))?;
            Ok(writeln!(out, "{}", harmless(&plain))?)
        };
        for k in &self.kinds {
            let t = &k.times;
            put(json!({"units": {
                "name": self.name(k.of), "count": k.count, "threads": k.threads,
                "mean_ns": t.mean, "median_ns": t.median, "p99_ns": t.p99, "max_ns": t.max,
                "count_is_least": self.is_least(k),
            }}))?;
        }
        if self.kinds.iter().any(|k| self.is_least(k)) {
            put(json!({"note": UNSEEN}))?;
        }
        for p in &self.pairs {
            let meanwhile = p.meanwhile.iter();
            let meanwhile: Vec<Value> =
                meanwhile.map(|d| json!({"what": d.what, "function": d.function, "ns": d.time})).collect();
            put(json!({"hand_over": {
                "from": self.name(p.from), "to": self.name(p.to), "on": self.object(p),
                "threads_from": p.threads.0, "threads_to": p.threads.1,
                "count": p.count, "strong": p.strong, "by_order": p.by_order, "unknown": p.unknown,
                "queued_mean_ns": p.queued.mean, "queued_median_ns": p.queued.median,
                "queued_p99_ns": p.queued.p99, "queued_max_ns": p.queued.max,
                "service_mean_ns": p.service.mean, "service_p99_ns": p.service.p99,
                "share_queued": p.share_queued(), "runnable_ns": p.runnable, "all_busy_ns": p.all_busy,
                "meanwhile": meanwhile, "saturated": p.saturated, "workers": p.workers, "held_up": p.held_up.0, "held_up_ns": p.held_up.1,
                "words": pair_words(p),
            }}))?;
        }
        for w in &self.ways {
            put(json!({"transaction": {
                "way": self.way(w), "count": w.count, "strong": w.strong, "back": w.back,
                "total_mean_ns": w.total.mean, "total_p99_ns": w.total.p99,
                "queued_mean_ns": w.queued.mean, "queued_p99_ns": w.queued.p99,
                "service_mean_ns": w.service.mean, "service_p99_ns": w.service.p99,
            }}))?;
        }
        let t = &self.work.joined;
        for h in t.hand_overs.iter().filter(|_| each) {
            let tid = |u: usize| self.loaded.catalog.thread(t.units[u].thread).map_or(0, |t| t.tid);
            put(json!({"each": {
                "from_tid": tid(h.from), "to_tid": tid(h.to), "time_ns": h.time, "taken_ns": h.taken,
                "queued_ns": h.queued(), "runnable_ns": h.runnable, "busy_ns": h.busy,
                "end_ns": t.units[h.to].end, "strong": h.is_strong(),
            }}))?;
        }
        Ok(())
    }
}
