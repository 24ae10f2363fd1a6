//! Views as text: the verdict in words, and Markdown for a ticket.

use super::layer::Layer;
use super::state::{LogLine, State, View};
use super::time;
use super::views::diagnosis::cause_step;
use crate::clean::{clean, clean_to};
use crate::config::Look;
use crate::frames::{call_on, condensed, own_function};
use crate::wall;
use pg_graph::report::{Report, RootCause, SliceStep};
use pg_graph::words::short_command;
use std::fmt::Write;

/// A paragraph.
#[derive(Clone, PartialEq, Debug)]
pub struct Paragraph {
    /// How it is shown.
    pub look: Look,
    /// Clean text.
    pub text: String,
    /// Columns of indentation.
    pub indent: usize,
    /// Later lines are indented more.
    pub hang: bool,
    /// It has one line, and what does not fit is cut off.
    pub cut: bool,
}

fn p(look: Look, indent: usize, text: impl Into<String>) -> Paragraph {
    Paragraph { look, text: text.into(), indent, hang: false, cut: false }
}

/// The victim in a sentence.
fn victim(r: &Report) -> String {
    let v = &r.victim;
    let thread = match v.thread.as_str() {
        _ if v.tid == v.pid => String::new(),
        // It has no name of its own.
        name if name == v.process => format!(", thread {}", v.tid),
        name => format!(", thread {} ({})", clean(name), v.tid),
    };
    let did = match v.block_type {
        pg_graph::BlockType::LongWait => "waited",
        pg_graph::BlockType::RepeatedYield => "polled again and again",
        pg_graph::BlockType::LongRunning => "kept running",
    };
    let unit = v.unit.as_ref().map_or_else(String::new, |u| format!(" {}.", capital(&clean(&u.words))));
    let unserved = v.unserved.as_ref().map_or_else(String::new, |u| format!(" {}.", clean(u)));
    let clock = wall::time_of_day(r.session.start_unix_ns, v.start_ns);
    let clock = if clock.is_empty() { clock } else { format!("{clock}; ") };
    let outside = if v.outside_focus { " It is outside of the focus of the recording." } else { "" };
    format!(
        "{} (pid {}{thread}) {did} for {} from {} on ({clock}{}){}.{outside}{unit}{unserved}",
        clean(&v.process),
        v.pid,
        time::length(v.duration_ns),
        time::at(v.start_ns),
        v.words(),
        v.cut()
    )
}

/// As the first word of a sentence.
pub fn capital(text: &str) -> String {
    let mut rest = text.chars();
    rest.next().map_or_else(String::new, |c| c.to_uppercase().chain(rest).collect())
}

/// The function, and the call and object it waits in: `audit (bank), futex 0x10`.
fn place(c: &RootCause) -> String {
    let mut parts = Vec::new();
    // An address of nothing known tells nobody anything.
    if let Some(f) = c.function.as_ref().filter(|_| c.module.as_deref() != Some("[unknown]")) {
        let module = c.module.as_ref().map_or_else(String::new, |m| format!(" ({})", clean(m)));
        parts.push(format!("{}{module}", clean(f)));
    }
    let call = call_on(c.syscall.as_deref(), c.object.as_deref());
    parts.extend(Some(call).filter(|c| !c.is_empty()));
    parts.join(", ")
}

fn named(c: &RootCause) -> String {
    let Some(process) = &c.process else { return "no process".into() };
    let mut out = clean(process).into_owned();
    if let Some(pid) = c.pid {
        let _ = write!(out, " (pid {pid}");
        match (&c.thread, c.tid) {
            (Some(t), Some(tid)) if tid != pid => {
                let _ = write!(out, ", thread {} {tid}", clean(t));
            }
            _ => {}
        }
        out.push(')');
    }
    out
}

/// Process and thread of a step: `payd/tick`.
fn step_name(s: &SliceStep) -> String {
    match s.thread.as_str() {
        t if t == s.process => t.to_owned(),
        t => format!("{}/{t}", s.process),
    }
}

/// Columns of a command line beside a step.
const COMMAND: usize = 48;
/// Of a function's name.
const FUNCTION: usize = 60;

/// Does another process on the way have the name of this step's?
pub fn namesakes(slice: &[SliceStep], s: &SliceStep) -> bool {
    slice.iter().any(|x| x.process == s.process && x.pid != s.pid)
}

fn missing(r: &Report) -> String {
    let c = &r.coverage;
    let mut parts = Vec::new();
    if c.lost_events == 0 {
        parts.push("no event was lost".to_owned());
    } else {
        parts.push(format!("{} events were lost within {}", c.lost_events, time::length(c.lost_ns)));
    }
    if c.stacks_complete < 0.995 {
        parts.push(format!("{:.0} % of the stacks are cut off", (1.0 - c.stacks_complete) * 100.0));
    }
    if c.symbols_resolved < 0.995 {
        parts
            .push(format!("{:.0} % of the frames have no function name", (1.0 - c.symbols_resolved) * 100.0));
    }
    parts.join(", ") + "."
}

/// The verdict in paragraphs.
pub fn verdict(state: &State) -> Vec<Paragraph> {
    let Some(r) = state.diagnosis.verdict() else { return Vec::new() };
    let blank = || p(Look::Text, 0, "");
    let mut out = vec![p(Look::Strong, 0, victim(r)), blank()];
    // Whoever opens the file of a colleague did not give them.
    if let n @ 1.. = state.diagnosis.kept {
        let own = state.diagnosis.kept_own();
        let how = match own {
            0 => ", taken as recommended,".to_owned(),
            own if own == n => String::new(),
            own => format!(" ({own} of them chosen, the others taken as recommended)"),
        };
        let text = format!(
            "{} kept in this file from before{how} led here; u takes the last one back.",
            time::counted(n, "answer")
        );
        out.extend([p(Look::Warning, 0, text), blank()]);
    }
    let first = r.root_causes.first();
    match first {
        None => out.push(p(
            Look::Warning,
            0,
            "No cause was found: the way back ended where nothing more is known.",
        )),
        Some(first) => {
            out.push(p(Look::Cause, 0, format!("Root cause: {}", named(first))));
            out.push(p(Look::Text, 2, clean(&first.why)));
            let mut fact = |name: &str, text: String| {
                if !text.is_empty() {
                    let text = format!("{name:<9}{}", text.chars().take(400).collect::<String>());
                    out.push(Paragraph { hang: true, ..p(Look::Dim, 2, text) });
                }
            };
            fact("sure", format!("{:.0} %", first.confidence * 100.0));
            fact("in", place(first));
            fact("command", clean(first.cmdline.as_deref().unwrap_or_default()).into_owned());
        }
    }
    out.push(blank());
    let (cause, star) = (cause_step(r), state.config.glyphs.cause);
    let marked = if cause.is_some() { format!(" ({star} the root cause)") } else { String::new() };
    out.push(p(Look::Title, 0, format!("The way there{marked}")));
    for (i, s) in r.slice.iter().enumerate() {
        let edge = match (&s.edge, &s.strength) {
            (Some(e), Some(strength)) => format!(" [{e}, {strength}]"),
            _ => String::new(),
        };
        let what = call_on(s.syscall.as_deref().or(s.waits_on.as_deref()), s.object.as_deref());
        let what = if what.is_empty() { what } else { format!(" in {what}") };
        let at =
            own_function(&s.stack).map_or_else(String::new, |f| format!(", in {}", clean_to(f, FUNCTION)));
        let before = r.slice.iter().take(i).position(|x| x.tid == s.tid && x.pid == s.pid);
        let again = before.map_or_else(String::new, |b| format!(": step {b} again, a circle"));
        let command = if namesakes(&r.slice, s) {
            format!(", `{}`", clean(&short_command(&s.cmdline, COMMAND)))
        } else {
            String::new()
        };
        let (look, mark) = if cause == Some(i) { (Look::Cause, star) } else { (Look::Text, "") };
        let text = format!(
            "{i}{mark} {} (tid {}{command}) {} {}{what}{at}{edge}{again}",
            clean(&step_name(s)),
            s.tid,
            if s.seen { s.state.as_str() } else { "not seen" },
            time::part(s.spent_ns, s.duration_ns)
        );
        out.push(Paragraph { hang: true, ..p(look, 2, text) });
    }
    out.push(blank());
    let frames = first.map(|c| condensed(&c.stack)).unwrap_or_default();
    if !frames.is_empty() {
        out.push(p(Look::Title, 0, "Its stack"));
        out.extend(frames.iter().map(|f| Paragraph { cut: true, ..p(Look::Dim, 2, clean(f)) }));
        out.push(blank());
    }
    let rest = r.root_causes.get(1..).unwrap_or_default();
    if !rest.is_empty() {
        out.push(p(Look::Title, 0, "Less likely"));
        for c in rest {
            let text = format!("{}. {}, {:.0} %: {}", c.rank, named(c), c.confidence * 100.0, clean(&c.why));
            out.push(Paragraph { hang: true, ..p(Look::Text, 2, text) });
        }
        out.push(blank());
    }
    let by = |who: &str| r.questions.iter().filter(|q| q.by == who).count();
    let answers = if r.questions.is_empty() {
        "no question came up".to_owned()
    } else {
        let all = time::counted(r.questions.len(), "answer");
        let own = by("user") + by("answers");
        match by("policy") {
            0 => format!("{all}, chosen by a person"),
            _ if own == 0 => format!("{all}, taken as recommended"),
            taken => format!("{all}: {own} chosen by a person, {taken} taken as recommended"),
        }
    };
    let steps = time::counted(r.slice.len(), "step");
    let evidence = format!("Evidence: {steps}, {answers}.  Not seen: {}", missing(r));
    out.push(p(Look::Text, 0, evidence));
    for n in r.coverage.notes.iter().take(12) {
        out.push(Paragraph { hang: true, ..p(Look::Warning, 2, format!("note: {}", clean(n))) });
    }
    out
}

/// Why the other candidates are not the cause.
pub fn why_not(state: &State) -> Vec<Paragraph> {
    let Some(o) = &state.diagnosis.outcome else { return Vec::new() };
    let mut out = Vec::new();
    out.push(p(Look::Title, 0, "Other candidates"));
    let others = o.report.root_causes.get(1..).unwrap_or_default();
    if others.is_empty() {
        out.push(p(Look::Dim, 2, "none: the way back led to one place only"));
    }
    for c in others {
        let first = o.report.root_causes.first().map_or(0.0, |c| c.confidence);
        let text = format!(
            "{}: {} {:.0} % sure, against {:.0} % for the first.",
            named(c),
            clean(&c.why),
            c.confidence * 100.0,
            first * 100.0
        );
        out.push(p(Look::Text, 2, text));
    }
    if !o.report.others.is_empty() {
        out.push(p(Look::Text, 0, ""));
        out.push(p(Look::Title, 0, "Looked at, and no cause"));
        for x in &o.report.others {
            let thread = if x.tid == x.pid {
                String::new()
            } else {
                format!(", thread {} {}", clean(&x.thread), x.tid)
            };
            let text = format!("{} (pid {}{thread}): {}", clean(&x.process), x.pid, clean(&x.why_not));
            out.push(Paragraph { hang: true, ..p(Look::Text, 2, text) });
        }
    }
    out.push(p(Look::Text, 0, ""));
    out.push(p(Look::Title, 0, "Answers that chose the way"));
    if o.asked.is_empty() {
        out.push(p(Look::Dim, 2, "none: there was only one way at each step"));
    }
    for q in &o.asked {
        let answer =
            if q.answer == 0 { "stop here".into() } else { format!("{} of {}", q.answer, q.options) };
        let by = match q.by.as_str() {
            "policy" => "taken as recommended",
            "answers" => "from the answers file",
            _ => "given here",
        };
        out.push(p(Look::Text, 2, format!("{} Answer: {answer}, {by}.", clean(&q.text))));
    }
    out.push(p(Look::Text, 0, ""));
    out.push(p(Look::Title, 0, "Weak edges on the way"));
    let weak: Vec<_> = o.slice.iter().filter_map(|n| Some((n, n.why_weak.as_ref()?))).collect();
    if weak.is_empty() {
        out.push(p(Look::Dim, 2, "none: every edge followed is strong"));
    }
    for (n, why) in weak {
        let who = state.recording.as_ref().map_or("?", |r| r.thread_name(n.thread));
        out.push(p(Look::Text, 2, format!("to {who}: {}", clean(why))));
    }
    out
}

/// Characters that mean something to Markdown, made plain. Where they cannot mean anything (an underscore
/// within a word) they stay, since many tickets are read as they are.
pub(super) fn escape(text: &str) -> String {
    let mut out = String::new();
    let text = clean(text);
    let mut chars = text.chars().peekable();
    let mut before = ' ';
    while let Some(c) = chars.next() {
        let within = before.is_alphanumeric() && chars.peek().is_some_and(|n| n.is_alphanumeric());
        let active = match c {
            '_' => !within,
            '#' => out.is_empty(),
            c => matches!(c, '\\' | '`' | '*' | '[' | ']' | '<' | '>' | '|'),
        };
        if active {
            out.push('\\');
        }
        out.push(c);
        before = c;
    }
    out
}

/// A sentence of the report: what it quotes in backticks (command lines) stays quoted.
fn sentence(text: &str) -> String {
    // Names may hold backticks themselves: then quoting cannot be trusted.
    if text.contains("``") || text.matches('`').count() % 2 == 1 {
        return escape(text);
    }
    let part = |(i, p): (usize, &str)| if i % 2 == 1 { code(p) } else { escape(p) };
    text.split('`').enumerate().map(part).collect()
}

/// Text within a code span.
pub(super) fn code(text: &str) -> String {
    format!("`{}`", clean(text).replace('`', "'"))
}

/// Paragraphs as Markdown: titles, and what stands below them as lists.
fn list_markdown(paragraphs: &[Paragraph]) -> String {
    let mut out = String::new();
    for p in paragraphs.iter().filter(|p| !p.text.is_empty()) {
        let _ = match p.look {
            Look::Title => {
                writeln!(out, "{}**{}**\n", if out.is_empty() { "" } else { "\n" }, escape(&p.text))
            }
            _ => writeln!(out, "- {}", sentence(&p.text)),
        };
    }
    out
}

/// What is on top, as Markdown: the layer if it has something to tell, else the view shown.
pub fn markdown(state: &State) -> String {
    match state.layers.last() {
        Some(Layer::WhyNot(_)) => return list_markdown(&why_not(state)),
        Some(Layer::Flag(lines, _)) => {
            let lines: Vec<_> = lines.iter().map(|l| clean(l)).collect();
            return format!("```\n{}\n```\n", lines.join("\n"));
        }
        _ => {}
    }
    match state.view {
        View::Verdict | View::Question => verdict_markdown(state),
        View::Slice if state.diagnosis.outcome.is_some() => slice_markdown(state),
        View::Log => {
            let mark = |l: &LogLine| if l.look == Look::Lost { "lost: " } else { "" };
            let line = |l: &LogLine| format!("- {}{}", mark(l), escape(&l.text));
            let lines: Vec<String> = state.log.iter().map(line).collect();
            lines.join("\n")
        }
        View::Vertex => {
            let rows = &state.vertex.rows;
            let lines: Vec<&str> = rows.iter().map(|r| r.text.as_str()).collect();
            if rows.is_empty() { String::new() } else { format!("```\n{}\n```\n", lines.join("\n")) }
        }
        View::Steps => super::copied::steps(state),
        View::Violations => super::unit_text::violations(state),
        View::Units => super::unit_text::units(state),
        View::Path => super::copied::path(state),
        View::Threads => super::copied::threads(state),
        View::Timeline => super::copied::timeline(state),
        View::Notes => super::copied::notes(state),
        View::Victims => {
            let mut out = String::from(
                "| what | thread | when | for | waits on | suspects |\n|---|---|---|---|---|---|\n",
            );
            let Some(rec) = &state.recording else { return String::new() };
            for row in &state.victims.all {
                let v = &row.victim;
                let _ = writeln!(
                    out,
                    "| {} | {} | {}{} | {} | {} | {} |",
                    v.words(),
                    escape(&rec.thread_name_at(v.thread, v.end())),
                    time::at(v.start),
                    rec.clock(v.start),
                    time::length(v.duration),
                    escape(&row.waits),
                    escape(&row.suspects)
                );
            }
            if state.victims.all.is_empty() { String::new() } else { out }
        }
        View::Slice => String::new(),
    }
}

/// The verdict for a ticket.
pub fn verdict_markdown(state: &State) -> String {
    let Some(o) = &state.diagnosis.outcome else { return String::new() };
    let r = &o.report;
    let mut out = format!("## {}\n\n", escape(&victim(r)));
    for c in &r.root_causes {
        let title = if c.rank == 1 { "Root cause" } else { "Less likely" };
        let _ = writeln!(out, "**{title}: {}** ({:.0} %)  ", escape(&named(c)), c.confidence * 100.0);
        let _ = writeln!(out, "{}", sentence(&c.why));
        let at = place(c);
        if !at.is_empty() {
            let _ = writeln!(out, "\n{}", code(&at));
        }
        if c.rank == 1 && !c.stack.is_empty() {
            let _ = writeln!(out, "\n```");
            for f in condensed(&c.stack) {
                let _ = writeln!(out, "{}", clean(&f));
            }
            let _ = writeln!(out, "```");
        }
        out.push('\n');
    }
    out += &slice_markdown(state);
    let _ = writeln!(out, "\nNot seen: {}", escape(&missing(r)));
    for n in &r.coverage.notes {
        let _ = writeln!(out, "- {}", escape(n));
    }
    let notes = super::copied::note_lines(state);
    if !notes.is_empty() {
        let _ = write!(out, "\n**Notes**\n\n{notes}");
    }
    let s = &r.session;
    // A redacted recording tells neither.
    let host = if s.host.is_empty() { String::new() } else { format!(" on {}", escape(&s.host)) };
    let from = wall::date_time(s.start_unix_ns);
    let from = if from.is_empty() { from } else { format!(" from {from} on") };
    let kernel = if s.kernel.is_empty() { String::new() } else { format!(", Linux {}", escape(&s.kernel)) };
    let _ = writeln!(
        out,
        "\n{}{host}{kernel}, {} recorded{from}, {} events",
        code(&state.file),
        time::length(s.duration_ns),
        s.events
    );
    out
}

fn slice_markdown(state: &State) -> String {
    let Some(o) = &state.diagnosis.outcome else { return String::new() };
    let mut out = String::from(
        "| step | thread | command | state | for | in | edge |\n|---|---|---|---|---|---|---|\n",
    );
    let cause = cause_step(&o.report).filter(|_| o.question.is_none());
    for (i, s) in o.report.slice.iter().enumerate() {
        let what = call_on(s.syscall.as_deref().or(s.waits_on.as_deref()), s.object.as_deref());
        let edge = match (&s.edge, &s.strength) {
            (Some(e), Some(strength)) => format!("{e}, {strength}"),
            _ => String::new(),
        };
        let _ = writeln!(
            out,
            "| {i} | {} ({}){} | {} | {} | {} | {} | {edge} |",
            escape(&step_name(s)),
            s.tid,
            if cause == Some(i) { ", **root cause**" } else { "" },
            code(&short_command(&s.cmdline, COMMAND)).replace('|', "\\|"),
            if s.seen { s.state.as_str() } else { "not seen" },
            time::part(s.spent_ns, s.duration_ns),
            escape(&match own_function(&s.stack) {
                Some(f) if what.is_empty() => clean_to(f, FUNCTION),
                Some(f) => format!("{what}, in {}", clean_to(f, FUNCTION)),
                None => what,
            })
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tickets_are_readable_and_harmless() {
        assert_eq!(escape("clock_nanosleep, _x_ and *y*"), "clock_nanosleep, \\_x\\_ and \\*y\\*");
        assert_eq!(escape("![a](http://b) <c>"), "!\\[a\\](http://b) \\<c\\>");
        assert_eq!(sentence("cat (pid 7, `cat a_*`) waited"), "cat (pid 7, `cat a_*`) waited");
        // A name with backticks of its own gets out of no quotes.
        assert_eq!(sentence("x (`a` <b>`) y"), "x (\\`a\\` \\<b\\>\\`) y");
        assert_eq!(sentence("``<b>``"), "\\`\\`\\<b\\>\\`\\`");
    }
}
