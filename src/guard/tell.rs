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
mod tests {
    use super::*;
    use pg_event::UnitTypeRow;
    use pg_graph::HotPath;
    use pg_graph::units::{KnownTypes, LoopKey};

    fn shown() -> Shown {
        let info = ViolationInfo {
            number: 3,
            pid: 7,
            tid: 8,
            process: "shop".into(),
            thread: "worker".into(),
            unit_type: "sort".into(),
            elapsed_ns: 41_000_000,
            threshold_ns: 10_000_000,
            excess: 4.1,
            at: "sample".into(),
            stack: ["do_page_fault ([kernel])", "swap (shop)", "sort (shop)", "serve (shop)", "main (shop)"]
                .map(String::from)
                .into(),
            distance: Some(2),
            on_cpu_ns: 40_000_000,
            ready_ns: 900_000,
            asleep_ns: 100_000,
            ..ViolationInfo::default()
        };
        let (of_loop, starved, stopped, given) = ("serve".into(), false, false, None);
        Shown {
            info,
            seen: 0,
            of_loop,
            kernel: 1,
            starved,
            goes_on: false,
            slow_before: false,
            stopped,
            given,
        }
    }

    fn over(took: Ns) -> Over {
        Over { shown: Box::new(shown()), took, halted: 0, mostly: None }
    }

    fn mostly() -> MostlyInfo {
        let frames = ["sort (shop)", "serve (shop)"].map(String::from).into();
        MostlyInfo::from(&HotPath { frames, share: 0.9377, stacks: 11 })
    }

    #[test]
    fn where_most_of_the_time_went_is_told() {
        let mut with_mostly = shown();
        with_mostly.info.mostly = Some(mostly());
        let said = text(&with_mostly);
        let line = said.lines().nth(1).map(str::trim);
        assert_eq!(line, Some("most of that time: 94 % in sort (shop) and what it calls (11 stacks)"));
        // Also when it took little longer than was told.
        let o = Over { mostly: Some(mostly()), ..over(45_000_000) };
        assert_eq!(
            over_text(&o).as_deref(),
            Some(
                "shop/8 worker: a unit of type sort that ran for 41 ms took 45 ms in all, 94 % in sort (shop) and what it \
                 calls (11 stacks)"
            )
        );
        let line = over_json(&o);
        assert_eq!(
            (&line["mostly"]["function"], &line["mostly"]["share"]),
            (&json!("sort (shop)"), &json!(0.938))
        );
        assert!(over_json(&over(1)).get("mostly").is_none());
    }

    #[test]
    fn for_people() {
        insta::assert_snapshot!(text(&shown()), @"
        shop/8 worker: a unit of type sort runs for 41 ms, 4.1 times the 10 ms it may (40 ms on a CPU, 900 µs ready without a CPU)
            do_page_fault ([kernel])
            swap (shop)
            sort (shop)
            serve (shop)  <- event loop
        ");
    }

    #[test]
    fn a_deep_stack_ends_at_its_loop() {
        let deep = |distance, frames: usize| {
            let mut s = shown();
            (s.kernel, s.info.distance) = (0, distance);
            s.info.stack = (0..frames).map(|i| format!("f{i} (shop)")).collect();
            text(&s).lines().skip(15).map(str::trim).map(String::from).collect::<Vec<_>>()
        };
        assert_eq!(deep(Some(16), 20), ["f14 (shop)", "f15 (shop)", "f16 (shop)  <- event loop"]);
        assert_eq!(
            deep(Some(18), 20),
            ["f14 (shop)", "f15 (shop)", "... 2 more", "f18 (shop)  <- event loop"]
        );
        assert_eq!(deep(None, 20), ["f14 (shop)", "f15 (shop)", "... 4 more"]);
        assert_eq!(deep(Some(30), 16), ["f14 (shop)", "f15 (shop)"], "a loop that is not in the stack");
    }

    #[test]
    fn why_its_type_is_not_known_is_told() {
        let mut unknown = shown();
        unknown.info.unit_type = String::new();
        unknown.info.type_unknown = Some("no types of this loop were learnt".into());
        let said = text(&unknown);
        assert!(said.contains("a unit of no known type") && said.contains("no types of this loop"), "{said}");
        assert_eq!(json(&unknown)["type_unknown"], "no types of this loop were learnt");
        assert!(json(&shown()).get("type_unknown").is_none());
    }

    #[test]
    fn what_it_took_in_the_end_is_told_where_that_is_more() {
        let said = over_text(&over(1_200_000_000));
        assert_eq!(
            said.as_deref(),
            Some("shop/8 worker: a unit of type sort that ran for 41 ms took 1.20 s in all")
        );
        assert_eq!(over_text(&over(45_000_000)), None);
        // A stop is no place where it was.
        let o = Over { halted: 1_100_000_000, ..over(1_200_000_000) };
        assert!(over_text(&o).is_some_and(|said| said.ends_with("took 1.20 s in all, stopped for 1.10 s")));
        assert_eq!(over_json(&o)["stopped_ns"], json!(1_100_000_000));
        let line = over_json(&over(45_000_000));
        assert_eq!(
            (&line["event"], &line["number"], &line["duration_ns"]),
            (&json!("ended"), &json!(3), &json!(45_000_000))
        );
    }

    #[test]
    fn where_its_time_went_is_told() {
        let spent = |[on_cpu_ns, ready_ns, asleep_ns]: [Ns; 3]| ViolationInfo {
            on_cpu_ns,
            ready_ns,
            asleep_ns,
            ..shown().info
        };
        let of = |ns, starved| where_time_went(&Shown { info: spent(ns), starved, ..shown() });
        assert_eq!(
            of([1_000_000, 40_000_000, 0], true),
            " (1.0 ms on a CPU, 40 ms ready without a CPU; others had the CPUs)"
        );
        assert_eq!(of([500_000, 0, 40_000_000], false), " (40 ms asleep)");
        let host = ViolationInfo { stolen_ns: 30_000_000, ..spent([10_000_000, 900_000, 0]) };
        assert_eq!(
            where_time_went(&Shown { info: host, starved: true, ..shown() }),
            " (10 ms on a CPU, 30 ms the host had its CPU, 900 µs ready without a CPU; it is the host's doing)"
        );
        let halted = ViolationInfo { stopped_ns: 39_000_000, ..spent([1_000_000, 0, 1_000_000]) };
        let stopped = Shown { info: halted, stopped: true, ..shown() };
        assert_eq!(
            where_time_went(&stopped),
            " (1.0 ms on a CPU, 1.0 ms asleep, 39 ms stopped by a signal or a debugger; it is stopped still)"
        );
        assert_eq!(of([0; 3], false), "");
    }

    #[test]
    fn for_scripts() {
        let line = json(&shown());
        assert_eq!((line["event"].as_str(), line["loop"].as_str()), (Some("violation"), Some("serve")));
        assert_eq!((line["type"].as_str(), line["threshold_ns"].as_u64()), (Some("sort"), Some(10_000_000)));
        let spent = ["on_cpu_ns", "ready_ns", "asleep_ns"].map(|k| line[k].as_u64());
        assert_eq!(
            (spent, line["starved"].as_bool()),
            ([Some(40_000_000), Some(900_000), Some(100_000)], Some(false))
        );
    }

    #[test]
    fn for_prometheus() {
        let types = vec![UnitTypeRow { name: "a \"b\"\\".into(), ..UnitTypeRow::default() }];
        let watched = Watched {
            key: LoopKey::default(),
            module: String::new(),
            function: "main".into(),
            types,
            known: KnownTypes::default(),
            limits: (Vec::new(), 0),
            guards: 0,
            given: None,
        };
        let counts =
            Counts { units: 4, sum: 2_500_000_000, violations: 1, starved: 1, withdrawn: 2, unsettled: 0 };
        let text = metrics(&[watched], &[vec![counts, Counts::default()]], &Sight::default());
        insta::assert_snapshot!(text, @r#"
        # HELP pg_tui_units_total Units of work that ended.
        # TYPE pg_tui_units_total counter
        pg_tui_units_total{loop="main",type="a \"b\"\\"} 4
        # HELP pg_tui_unit_seconds_total Time that they took.
        # TYPE pg_tui_unit_seconds_total counter
        pg_tui_unit_seconds_total{loop="main",type="a \"b\"\\"} 2.5
        # HELP pg_tui_violations_total Units of work that took too long.
        # TYPE pg_tui_violations_total counter
        pg_tui_violations_total{loop="main",type="a \"b\"\\"} 1
        # HELP pg_tui_violations_starved_total Of these, those that were ready without a CPU for what they took too long, or whose CPU the host had.
        # TYPE pg_tui_violations_starved_total counter
        pg_tui_violations_starved_total{loop="main",type="a \"b\"\\"} 1
        # HELP pg_tui_violations_withdrawn_total Others that seemed to, and turned out to be of another type, which may take as long.
        # TYPE pg_tui_violations_withdrawn_total counter
        pg_tui_violations_withdrawn_total{loop="main",type="a \"b\"\\"} 2
        "#);
    }
}
