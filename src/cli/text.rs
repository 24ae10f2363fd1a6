//! The report as text for people: what hung, why, the way back, what was not seen.

use super::page::Page;
use crate::app::text::namesakes;
use crate::clean::clean;
use crate::frames::{call_on, condensed, innermost};
use crate::ui::parts::{left, thread_name};
use crate::wall::{aside, date_time};
use pg_graph::report::{Report, RootCause, SliceStep};
use pg_graph::words::{moment, span};
use std::fmt::Write;

/// Columns of who made a step, at least.
const WHO: usize = 28;

/// A text as it is printed: in a locale of another character set only ASCII is understood.
pub fn shown(text: String) -> String {
    if crate::config::Environment::read().not_utf8 { crate::clean::ascii(&text) } else { text }
}

/// The whole report. `focus` says what was recorded, in words.
pub fn report(r: &Report, focus: &str) -> String {
    whole(r, focus, false, Page::FILE)
}

/// The same; `others`: also which threads are no cause, and why.
pub fn whole(r: &Report, focus: &str, others: bool, page: Page) -> String {
    let mut out = String::new();
    // Writing to a string does not fail.
    let _ = head(&mut out, r, focus, page);
    let _ = causes(&mut out, r, page);
    let _ = slice(&mut out, r, page);
    let _ = questions(&mut out, r, page);
    let _ = also(&mut out, r, page);
    if others {
        let _ = why_not(&mut out, r, page);
    }
    let _ = coverage(&mut out, r, focus, page);
    out
}

fn also(out: &mut String, r: &Report, page: Page) -> std::fmt::Result {
    if r.also_hung.is_empty() {
        return Ok(());
    }
    writeln!(out, "Also hung (--tid selects one)")?;
    for a in &r.also_hung {
        let on = a.waits_on.as_ref().map_or_else(String::new, |on| format!(" on {on}"));
        let alike = match a.alike {
            0 => String::new(),
            n => format!(", and {n} more of that name"),
        };
        let v = &a.victim;
        let (long, at) = (span(v.duration_ns), moment(v.start_ns));
        let who = who(&v.process, v.pid, &inside(v.container.as_deref(), v.container_pid), &v.thread, v.tid);
        let line = format!("{who}: {}{on} of {long} at {at}{alike}", v.words());
        page.wrap(out, &format!("  --tid {:<8}", v.tid), &line)?;
        if !v.cmdline.is_empty() {
            writeln!(out, "                {}", page.line(16, &v.cmdline))?;
        }
    }
    writeln!(out)
}

fn why_not(out: &mut String, r: &Report, page: Page) -> std::fmt::Result {
    writeln!(out, "Why not the others")?;
    if r.others.is_empty() {
        writeln!(out, "  no other thread came into question")?;
    }
    for o in &r.others {
        let who = who(&o.process, o.pid, "", &o.thread, o.tid);
        page.wrap(out, "  ", &format!("{who}: {}", o.why_not))?;
    }
    writeln!(out)
}

fn head(out: &mut String, r: &Report, focus: &str, page: Page) -> std::fmt::Result {
    let s = &r.session;
    let mut parts = vec![s.file.clone(), span(s.duration_ns), format!("{} events", count(s.events))];
    let date = if s.start_unix_ns == 0 { String::new() } else { date_time(s.start_unix_ns) };
    let about =
        [("", date), ("host ", s.host.clone()), ("Linux ", s.kernel.clone()), ("focus: ", focus.to_owned())];
    parts.extend(about.iter().filter(|(_, t)| !t.is_empty()).map(|(what, t)| format!("{what}{t}")));
    page.parts(out, &parts)?;
    writeln!(out)?;
    let v = &r.victim;
    writeln!(out, "What hung")?;
    let who = who(&v.process, v.pid, &inside(v.container.as_deref(), v.container_pid), &v.thread, v.tid);
    let (long, at) = (span(v.duration_ns), moment(v.start_ns));
    let clock = aside(s.start_unix_ns, v.start_ns);
    writeln!(out, "  {}: {} of {long} at {at}{clock}{}", clean(&who), v.words(), v.cut())?;
    if !v.cmdline.is_empty() {
        writeln!(out, "  {}", page.line(2, &v.cmdline))?;
    }
    if v.outside_focus {
        writeln!(out, "  outside of the focus of the recording")?;
    }
    if let Some(unit) = &v.unit {
        page.wrap(out, "  ", &unit.words)?;
    }
    if let Some(unserved) = &v.unserved {
        page.wrap(out, "  ", unserved)?;
    }
    writeln!(out)
}

fn causes(out: &mut String, r: &Report, page: Page) -> std::fmt::Result {
    writeln!(out, "Why")?;
    if r.root_causes.is_empty() {
        writeln!(out, "  no cause was found in what was recorded")?;
    }
    for c in &r.root_causes {
        let sure = format!("{:.0} % sure", c.confidence * 100.0);
        page.wrap(out, &format!("  {}. ", c.rank), &format!("{} ({sure})", c.why))?;
        if let Some(place) = place(c) {
            writeln!(out, "     {}", page.line(5, &place))?;
        }
        for frame in condensed(&c.stack) {
            writeln!(out, "       {}", page.line(7, &frame))?;
        }
    }
    writeln!(out)
}

fn place(c: &RootCause) -> Option<String> {
    let process = c.process.as_ref()?;
    let mut text = format!("{process} (pid {}{}", c.pid?, inside(c.container.as_deref(), c.container_pid));
    if let Some(tid) = c.tid.filter(|t| Some(*t) != c.pid) {
        let _ = write!(text, ", thread {tid}");
    }
    text.push(')');
    if let Some(cmdline) = c.cmdline.as_ref().filter(|s| !s.is_empty()) {
        let _ = write!(text, "  {cmdline}");
    }
    Some(text)
}

fn slice(out: &mut String, r: &Report, page: Page) -> std::fmt::Result {
    writeln!(out, "The way back")?;
    let names: Vec<String> = r.slice.iter().map(step_who).collect();
    let column = page.column(WHO, names.iter().map(String::as_str));
    for (i, s) in r.slice.iter().enumerate() {
        if let Some(edge) = &s.edge {
            let strength = s.strength.as_deref().unwrap_or("?");
            let rule = if strength == "weak" { "───" } else { "═══" };
            let why = s.why_weak.as_ref().map(|w| format!(": {w}")).unwrap_or_default();
            page.wrap(out, "  │  ↑ ", &format!("{edge} {rule} {strength}{why}"))?;
        }
        writeln!(out, "{}", page.line(0, &step(i, s, column)))?;
        if namesakes(&r.slice, s) && !s.cmdline.is_empty() {
            let line = if i + 1 == r.slice.len() { ' ' } else { '│' };
            writeln!(out, "  {line}  {}", page.line(5, &s.cmdline))?;
        }
    }
    writeln!(out)?;
    circle(out, r, page, column)
}

/// Who waits for whom, when that is a circle.
fn circle(out: &mut String, r: &Report, page: Page, column: usize) -> std::fmt::Result {
    let steps: Vec<(usize, &SliceStep)> =
        r.circle.iter().filter_map(|i| r.slice.get(*i).map(|s| (*i, s))).collect();
    if steps.len() < 2 {
        return Ok(());
    }
    // Without a known owner it is not known who waits for whom.
    let known = !r.root_causes.iter().any(|c| c.why.contains("wait for each other's locks"));
    writeln!(out, "The circle")?;
    for (k, (i, s)) in steps.iter().enumerate() {
        let side = if k == 0 { "┌─▶" } else { "│  " };
        writeln!(out, "  {side}{}", page.line(5, &step(*i, s, column)))?;
        let (more, whom) =
            if k + 1 == steps.len() { ("└──", steps[0].0) } else { ("│  ", steps[k + 1].0) };
        let whom = if known { whom.to_string() } else { "one of the others".to_owned() };
        writeln!(out, "  {more}       waits for {whom}")?;
    }
    writeln!(out)
}

fn step_who(s: &SliceStep) -> String {
    if s.tid == s.pid {
        format!("{}:{}", s.process, s.pid)
    } else if s.thread == s.process || s.thread.is_empty() {
        format!("{}:{}/{}", s.process, s.pid, s.tid)
    } else {
        format!("{}:{}/{}:{}", s.process, s.pid, s.thread, s.tid)
    }
}

/// A step, its name in a column of that width.
fn step(i: usize, s: &SliceStep, column: usize) -> String {
    let who = left(&thread_name(&clean(&step_who(s)), column), column);
    let inside = inside(s.container.as_deref(), s.container_pid);
    let glyph = match s.state.as_str() {
        _ if !s.seen => '!',
        "running" => '●',
        "runnable" => '◇',
        "blocked" => '◼',
        "throttled" => '▒',
        "stopped" => '▣',
        _ => '·',
    };
    let state = if s.seen { s.state.as_str() } else { "not seen" };
    let mut line = format!("{i:3}  {who} {glyph} {state:<8} {:>8}  ", span(s.spent_ns));
    let call = s.syscall.as_deref().or(s.waits_on.as_deref().filter(|_| s.object.is_none()));
    let what = call_on(call, s.object.as_deref());
    line.push_str(if what.is_empty() && s.state == "running" { "on the CPU" } else { &what });
    if !inside.is_empty() {
        let _ = write!(line, "  [{}]", inside.trim_start_matches([',', ' ']));
    }
    let stack = innermost(&s.stack, 3);
    if !stack.is_empty() {
        let _ = write!(line, "  {}", stack.join(" ← "));
    }
    line
}

fn questions(out: &mut String, r: &Report, page: Page) -> std::fmt::Result {
    if r.questions.is_empty() {
        return Ok(());
    }
    writeln!(out, "Questions on the way")?;
    for q in &r.questions {
        let answer =
            if q.answer == 0 { "stop here".to_owned() } else { format!("{} of {}", q.answer, q.options) };
        let by = match q.by.as_str() {
            "policy" => "taken as recommended",
            "answers" => "from the answers file",
            _ => "answered on the screen",
        };
        page.wrap(out, "  ", &format!("{} → {answer}, {by}", q.text))?;
    }
    writeln!(out)
}

fn coverage(out: &mut String, r: &Report, focus: &str, page: Page) -> std::fmt::Result {
    let c = &r.coverage;
    let lost = if c.lost_events == 0 && c.lost_ns == 0 {
        "nothing was lost".to_owned()
    } else if c.lost_events == 0 {
        format!("no event was lost, but copies of stacks or samples within {}", span(c.lost_ns))
    } else {
        format!("{} events lost within {}", count(c.lost_events), span(c.lost_ns))
    };
    let percent = |share: f64| format!("{:.0} %", share * 100.0);
    let of = if ["", "everything"].contains(&focus) { "" } else { " of the focus" };
    writeln!(out, "Not seen")?;
    let text = format!(
        "{lost}; {} of the stacks{of} are whole, {} of their functions have names",
        percent(c.stacks_complete),
        percent(c.symbols_resolved)
    );
    page.wrap(out, "  ", &text)?;
    for note in &c.notes {
        page.wrap(out, "  ", note)?;
    }
    Ok(())
}

fn who(process: &str, pid: u32, inside: &str, thread: &str, tid: u32) -> String {
    if tid == pid {
        format!("{process} (pid {pid}{inside})")
    } else {
        format!("{process} (pid {pid}{inside}), thread {thread} ({tid})")
    }
}

/// What follows a process id of the machine: `, 7 in container 3f2a9b1c4d5e`, ` in container web`, or nothing.
fn inside(container: Option<&str>, pid: Option<u32>) -> String {
    match (container, pid) {
        (None, None) => String::new(),
        (Some(c), None) => format!(" in container {c}"),
        (Some(c), Some(pid)) => format!(", {pid} in container {c}"),
        (None, Some(pid)) => format!(", {pid} in its pid namespace"),
    }
}

/// A number as people write it: `1.24 M`.
pub fn count(n: u64) -> String {
    match n {
        0..10_000 => n.to_string(),
        10_000..1_000_000 => format!("{:.1} k", n as f64 / 1e3),
        _ => format!("{:.2} M", n as f64 / 1e6),
    }
}

/// A number of bytes as people write it.
pub fn bytes(n: u64) -> String {
    match n {
        0..10_000 => format!("{n} B"),
        10_000..1_000_000 => format!("{:.1} kB", n as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} MB", n as f64 / 1e6),
        _ => format!("{:.2} GB", n as f64 / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_container_is_named_beside_the_id() {
        assert_eq!(who("nginx", 812, "", "nginx", 812), "nginx (pid 812)");
        let inside = inside(Some("3f2a9b1c4d5e"), Some(7));
        assert_eq!(
            who("nginx", 812, &inside, "worker", 815),
            "nginx (pid 812, 7 in container 3f2a9b1c4d5e), thread worker (815)"
        );
    }

    #[test]
    fn steps_of_processes_with_one_name_have_their_command_lines() {
        let step = |pid: u32, process: &str, cmdline: &str| {
            serde_json::json!({
                "pid": pid, "tid": pid, "process": process, "cmdline": cmdline, "thread": process,
                "start_ns": 0, "duration_ns": 5, "spent_ns": 5, "state": "blocked", "stack": [], "seen": true,
            })
        };
        let mut r: Report = serde_json::from_value(serde_json::json!({
            "format": 1,
            "session": {"file": "a.pgs", "host": "", "kernel": "", "duration_ns": 9, "events": 0, "vertices": 0,
                "edges": 0},
            "victim": {"pid": 7, "tid": 7, "process": "curl", "cmdline": "", "thread": "curl", "start_ns": 0,
                "duration_ns": 5, "block_type": "long-wait"},
            "questions": [],
            "slice": [
                step(7, "curl", "curl -s http://127.0.0.1/"),
                step(8, "python3", "python3 shop.py"),
                step(9, "python3", "python3 rates.py\u{1b}[2J"),
            ],
            "root_causes": [],
            "coverage": {"lost_events": 0, "lost_ns": 0, "stacks_complete": 1.0, "symbols_resolved": 1.0,
                "notes": []},
        }))
        .unwrap();
        let mut out = String::new();
        slice(&mut out, &r, Page::FILE).unwrap();
        let lines: Vec<&str> = out.lines().collect();
        assert!(lines.contains(&"  │  python3 shop.py") && !out.contains("curl -s"), "{out}");
        assert!(
            lines.iter().any(|l| l.starts_with("     python3 rates.py")) && !out.contains('\u{1b}'),
            "{out}"
        );
        // One of a name needs none.
        r.slice.pop();
        out.clear();
        slice(&mut out, &r, Page::FILE).unwrap();
        assert!(!out.contains("shop.py"), "{out}");
    }

    #[test]
    fn numbers_have_units() {
        assert_eq!((count(999).as_str(), count(1_240_000).as_str()), ("999", "1.24 M"));
        assert_eq!((bytes(14_000_000).as_str(), bytes(12).as_str()), ("14.0 MB", "12 B"));
    }
}
