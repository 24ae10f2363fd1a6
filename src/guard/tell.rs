//! What is told of violations: text for people, JSON lines for scripts, metrics for Prometheus.

use super::guarding::Watched;
use crate::clean::clean;
use pg_event::{Catalog, Ns, SeenBy};
use pg_graph::report::{MostlyInfo, ViolationInfo};
use pg_graph::words::span;
use pg_tracer::guards::{Counts, Sight, Violation};
use pg_tracer::procfs::{lossy, read_stat};
use serde_json::{Value, json};
use std::fmt::Write;

/// Frames of a stack that people are shown.
const FRAMES: usize = 16;
const NAME: usize = 64;

/// A violation with its names.
#[derive(Clone, Debug)]
pub struct Shown {
    /// As in reports. Times are ns since the guards began.
    pub info: ViolationInfo,
    /// When it was seen, `CLOCK_MONOTONIC`, ns.
    pub seen: Ns,
    /// Name of the loop's function.
    pub of_loop: String,
    /// How many frames of the stack are the kernel's.
    pub kernel: usize,
    /// With a CPU whenever it was ready, it had taken no longer than it may.
    pub starved: bool,
    /// The same unit was told before: it goes on.
    pub goes_on: bool,
    /// And that not for want of a CPU.
    pub slow_before: bool,
    /// Its thread is stopped, by a signal or a debugger.
    pub stopped: bool,
    /// The unit is no turn of a loop: what units are, in words.
    pub given: Option<String>,
}

/// A unit that ended, and had been told while it ran.
#[derive(Clone, Debug)]
pub struct Over {
    /// As it was told last.
    pub shown: Box<Shown>,
    /// How long it took, ns.
    pub took: Ns,
    /// How long it was stopped when it was seen last, ns.
    pub halted: Ns,
    /// Where it spent most of that, if it was seen often enough.
    pub mostly: Option<MostlyInfo>,
}

impl Shown {
    /// Of a violation, the `number`th since `began`. Its stack comes with [`Self::name`].
    pub fn of(v: &Violation, number: usize, watched: &Watched, began: Ns) -> Self {
        let name = |pid| read_stat(pid).map_or_else(String::new, |s| lossy(&s.comm, NAME));
        let ready = v.ready.min(v.away);
        let info = ViolationInfo {
            number,
            time: v.time.saturating_sub(began),
            pid: v.pid,
            tid: v.tid,
            process: name(v.pid),
            thread: name(v.tid),
            unit_type: v.of.and_then(|t| watched.types.get(t)).map_or_else(String::new, |t| t.name.clone()),
            start_ns: v.start.saturating_sub(began),
            elapsed_ns: v.elapsed,
            duration_ns: (v.seen == SeenBy::End).then_some(v.elapsed),
            threshold_ns: v.threshold,
            excess: (v.elapsed as f64 / v.threshold.max(1) as f64 * 100.0).round() / 100.0,
            at: pg_graph::seen_by(v.seen).into(),
            stack: Vec::new(),
            distance: None,
            type_unknown: v.unknown.map(|why| watched.why_unknown(why)),
            on_cpu_ns: v.elapsed.saturating_sub(v.away).saturating_sub(v.stolen),
            stolen_ns: v.stolen,
            ready_ns: ready,
            stopped_ns: v.halted.min(v.away - ready),
            asleep_ns: (v.away - ready).saturating_sub(v.halted),
            // Who stopped it is in the recording.
            stopped_by: None,
            // Who woke whom is in the recording.
            handed_on: None,
            mostly: None,
            withdrawn: None,
        };
        let given = watched.given.clone();
        let of_loop = watched.function.clone();
        Self {
            info,
            seen: v.time,
            of_loop,
            kernel: 0,
            starved: v.is_starved(),
            goes_on: false,
            slow_before: false,
            stopped: v.halts,
            given,
        }
    }

    /// Its stack, once the names of functions are known.
    pub fn name(&mut self, v: &Violation, catalog: &Catalog) {
        let mut stack = pg_graph::kernel_frames(catalog, v.kernel_stack);
        self.kernel = stack.len();
        stack.extend(catalog.show_stack(v.user_stack));
        self.info.stack = stack;
        self.info.distance = v.distance.map(|d| catalog.shown_at(v.user_stack, d) as u32);
    }
}

/// Whose unit it is.
pub(super) fn who(s: &Shown) -> String {
    let v = &s.info;
    let thread = if v.thread == v.process { String::new() } else { format!(" {}", v.thread) };
    format!("{}/{}{thread}", v.process, v.tid)
}

/// Which unit.
pub(super) fn what(s: &Shown) -> String {
    let of = &s.info.unit_type;
    if of.is_empty() {
        "a unit of no known type".into()
    } else if let Some(given) = s.given.as_ref().filter(|_| *of == s.of_loop) {
        // There is no other type.
        given
            .strip_prefix("calls of ")
            .map_or_else(|| format!("a unit from {given}"), |f| format!("a call of {f}"))
    } else {
        format!("a unit of type {of}")
    }
}

/// For people: what took too long, and where it was.
pub fn text(s: &Shown) -> String {
    let v = &s.info;
    let does = match v.at.as_str() {
        "end" => "took",
        _ if s.goes_on => "goes on for",
        _ => "runs for",
    };
    let mut out = format!(
        "{}: {} {does} {}, {:.1} times the {} it may",
        who(s),
        what(s),
        span(v.elapsed_ns),
        v.excess,
        span(v.threshold_ns)
    );
    out.push_str(&where_time_went(s));
    if let Some(why) = &v.type_unknown {
        let _ = write!(out, "\n    its type is not known: {why}");
    }
    if let Some(h) = &v.mostly {
        let _ = write!(out, "\n    most of that time: {}", h.words());
    }
    // What the kernel does for it is told by its innermost function.
    if let Some(frame) = v.stack.first().filter(|_| s.kernel > 0) {
        let _ = write!(out, "\n    {frame}");
    }
    let user = v.stack.get(s.kernel..).unwrap_or_default();
    let end = v.distance.map(|d| d as usize).filter(|d| *d < user.len());
    let inside = &user[..end.unwrap_or(user.len())];
    for frame in inside.iter().take(FRAMES) {
        let _ = write!(out, "\n    {frame}");
    }
    if inside.len() > FRAMES {
        let _ = write!(out, "\n    ... {} more", inside.len() - FRAMES);
    }
    // Whatever is left out on the way, the stack ends at the loop.
    if let Some(end) = end {
        let mark = if s.given.is_some() { "the unit" } else { "event loop" };
        let _ = write!(out, "\n    {}  <- {mark}", user[end]);
    }
    out
}

/// For people: how long a unit took in the end that was told while it ran, and where; `None` when that is what was told.
pub fn over_text(o: &Over) -> Option<String> {
    let (s, told) = (&o.shown, o.shown.info.elapsed_ns);
    let longer = o.took / 5 * 4 > told;
    if !longer && o.mostly.is_none() {
        return None;
    }
    let halted =
        if o.halted > o.took / 50 { format!(", stopped for {}", span(o.halted)) } else { String::new() };
    let where_ = o.mostly.as_ref().map_or_else(String::new, |h| format!(", {}", h.words()));
    Some(format!(
        "{}: {} that ran for {} took {} in all{halted}{where_}",
        who(s),
        what(s),
        span(told),
        span(o.took)
    ))
}

/// For scripts: one line. `event` is `ended`, `number` that of the violation told last of this unit.
pub fn over_json(o: &Over) -> Value {
    let v = &o.shown.info;
    let mut line = json!({
        "event": "ended",
        "number": v.number,
        "pid": v.pid,
        "tid": v.tid,
        "process": v.process,
        "thread": v.thread,
        "loop": o.shown.of_loop,
        "type": v.unit_type,
        "start_ns": v.start_ns,
        "duration_ns": o.took,
        "threshold_ns": v.threshold_ns,
    });
    if o.halted > 0 {
        line["stopped_ns"] = json!(o.halted);
    }
    if let Some(h) = &o.mostly {
        line["mostly"] = json!(h);
    }
    line
}

/// What the unit did with its time, as far as it is worth a word.
fn where_time_went(s: &Shown) -> String {
    let [cpu, ready, asleep, halted] =
        [s.info.on_cpu_ns, s.info.ready_ns, s.info.asleep_ns, s.info.stopped_ns];
    let stolen = s.info.stolen_ns;
    let least = s.info.elapsed_ns / 50;
    let parts = [
        (cpu, "on a CPU"),
        (stolen, "the host had its CPU"),
        (ready, "ready without a CPU"),
        (asleep, "asleep"),
        (halted, "stopped by a signal or a debugger"),
    ];
    let told =
        parts.into_iter().filter(|(ns, _)| *ns > least).map(|(ns, what)| format!("{} {what}", span(ns)));
    let told = told.collect::<Vec<_>>().join(", ");
    let others = match (s.stopped, s.starved) {
        (true, _) => "; it is stopped still",
        (_, true) if stolen > ready => "; it is the host's doing",
        (_, true) => "; others had the CPUs",
        _ => "",
    };
    if told.is_empty() { String::new() } else { format!(" ({told}{others})") }
}

/// For scripts: one line. `event` is `violation`.
pub fn json(s: &Shown) -> Value {
    let mut line = serde_json::to_value(&s.info).unwrap_or_default();
    if let Some(map) = line.as_object_mut() {
        map.insert("event".into(), json!("violation"));
        map.insert("loop".into(), json!(s.of_loop));
        map.insert("starved".into(), json!(s.starved));
        map.insert("stopped".into(), json!(s.stopped));
        map.insert("goes_on".into(), json!(s.goes_on));
    }
    line
}

/// For Prometheus, in its text format. `counts` by loop and type, the last one of a loop for units of no known type.
pub fn metrics(loops: &[Watched], counts: &[Vec<Counts>], sight: &Sight) -> String {
    let mut out = String::new();
    let mut family = |name: &str, help: &str, value: &dyn Fn(&Counts) -> f64| {
        let _ = write!(out, "# HELP {name} {help}\n# TYPE {name} counter\n");
        for (l, counts) in loops.iter().zip(counts) {
            for (t, c) in counts.iter().enumerate().filter(|(_, c)| c.units + c.violations + c.withdrawn > 0)
            {
                let of = l.types.get(t).map_or("unknown", |t| t.name.as_str());
                let _ = writeln!(
                    out,
                    "{name}{{loop=\"{}\",type=\"{}\"}} {}",
                    label(&l.function),
                    label(of),
                    value(c)
                );
            }
        }
    };
    family("pg_tui_units_total", "Units of work that ended.", &|c| c.units as f64);
    family("pg_tui_unit_seconds_total", "Time that they took.", &|c| c.sum as f64 / 1e9);
    family("pg_tui_violations_total", "Units of work that took too long.", &|c| c.violations as f64);
    let help = "Of these, those that were ready without a CPU for what they took too long, or whose CPU the host had.";
    family("pg_tui_violations_starved_total", help, &|c| c.starved as f64);
    let help = "Others that seemed to, and turned out to be of another type, which may take as long.";
    family("pg_tui_violations_withdrawn_total", help, &|c| c.withdrawn as f64);
    if sight.windows == 0 {
        return out;
    }
    let seconds = |ns: u64| ns as f64 / 1e9;
    let mut family = |name: &str, help: &str, rows: &[(&str, f64)]| {
        let _ = write!(out, "# HELP {name} {help}\n# TYPE {name} counter\n");
        for (label, value) in rows {
            let _ = writeln!(out, "{name}{label} {value}");
        }
    };
    let help = "How often the probes were set.";
    family("pg_tui_probe_windows_total", help, &[("", sight.windows as f64)]);
    let (dark, lit) = (seconds(sight.cpu.saturating_sub(sight.lit)), seconds(sight.lit));
    let help = "CPU time of guarded threads, with the probes set and without.";
    family(
        "pg_tui_guarded_cpu_seconds_total",
        help,
        &[("{probes=\"set\"}", lit), ("{probes=\"out\"}", dark)],
    );
    let help =
        "Times between sleeps without probes, each a unit or several: none took too long, or one may have.";
    let rows =
        [("{outcome=\"in_time\"}", sight.in_time as f64), ("{outcome=\"unsure\"}", sight.unsure as f64)];
    family("pg_tui_unseen_total", help, &rows);
    out
}

/// For people: what was seen of units, where probes were not set all the time.
pub fn seen(s: &Sight) -> Option<String> {
    if s.windows == 0 || s.lit >= s.cpu || s.in_time + s.unsure == 0 {
        return None;
    }
    let plural = |n: u64| if n == 1 { "" } else { "s" };
    Some(format!(
        "these were seen in {} window{} with probes, {:.1} % of the CPU time of what is guarded (--budget); in between it \
         slept {} time{} with units before it of which none took longer than any may, and {} with units of which one may \
         have",
        s.windows,
        plural(s.windows),
        100.0 * s.share(),
        s.in_time,
        plural(s.in_time),
        s.unsure
    ))
}

/// A label's value, as the format wants it.
fn label(text: &str) -> String {
    let text = clean(text);
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests;
