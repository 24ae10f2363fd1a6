//! Threads, a moment of the timeline, and notes as Markdown, ready for a ticket.

use super::recording::Recording;
use super::state::State;
use super::text::{code, escape};
use super::time;
use super::views::threads::{Branch, Node};
use crate::clean::clean;
use crate::frames::condensed;
use crate::ui::detail;
use crate::ui::parts::Ui;
use pg_event::ThreadId;
use pg_graph::{LaneState, Share};
use std::fmt::Write;

/// Most lines of a table: whoever reads a ticket reads no more.
const MOST: usize = 200;

/// The selected process or thread with all that is under it.
pub fn threads(state: &State) -> String {
    let Some(r) = &state.recording else { return String::new() };
    let Some(branch) = state.threads.selected().and_then(|n| state.threads.find(n)) else {
        return String::new();
    };
    let mut out = String::from(
        "| process or thread | ids | on CPU | runnable | blocked | command |\n|---|---|---|---|---|---|\n",
    );
    let mut rows = Vec::new();
    list(branch, &mut rows);
    for b in rows.iter().take(MOST) {
        let (name, first, command) = match b.node {
            Node::Thread(t) => (r.thread_name(t).to_owned(), Some(t), String::new()),
            Node::Process(p) => {
                let first =
                    r.groups().iter().find(|g| g.process == p).and_then(|g| g.threads.first().copied());
                (b.name.clone(), first, first.map_or_else(String::new, |t| r.cmdline(t, 400)))
            }
        };
        let share = |part| time::percent(part, b.lasted());
        let command = if command.is_empty() { command } else { code(&command).replace('|', "\\|") };
        // Writing to a string does not fail.
        let _ = writeln!(
            out,
            "| {} | {} | {} | {} | {} | {command} |",
            escape(&name),
            first.map_or_else(String::new, |t| ids(r, b, t)),
            share(b.times.running()),
            share(b.times.runnable()),
            share(b.times.blocked() - b.times.get(LaneState::Idle)),
        );
    }
    if rows.len() > MOST {
        let _ = writeln!(out, "\n{} more are left out.", rows.len() - MOST);
    }
    let _ = writeln!(out, "\nOf {} in {}.", time::length(r.graph.duration()), code(&state.file));
    out
}

/// What a row of the table is known by on the machine; a process by its own number, whatever its first thread's is.
fn ids(r: &Recording, b: &Branch, first: ThreadId) -> String {
    let all = r.ids(first);
    match b.node {
        Node::Process(_) => all.split(" tid ").next().unwrap_or_default().to_owned(),
        Node::Thread(_) => all,
    }
}

fn list<'a>(b: &'a Branch, out: &mut Vec<&'a Branch>) {
    out.push(b);
    for c in &b.children {
        list(c, out);
    }
}

/// What is under the cursor of the timeline, and the marked span.
pub fn timeline(state: &State) -> String {
    let s = &state.timeline;
    let (Some(r), Some(t)) = (&state.recording, s.thread) else { return String::new() };
    let ui = Ui::new(state);
    let mut out = format!(
        "**{}** ({}) at {}{}: ",
        escape(r.thread_name(t)),
        r.ids(t),
        time::moment(s.cursor, 1_000),
        r.clock(s.cursor)
    );
    let mut stack = Vec::new();
    match s.vertex(r) {
        None => out.push_str("it does not exist at this moment\n"),
        Some(id) => {
            let v = r.graph.vertex(id);
            let (now, words) = detail::doing(&ui, r, id, s.cursor);
            let _ = writeln!(out, "{}\n", escape(&words));
            // The functions that tell most can be far down in the stack.
            let inside = if v.waited() > 0 { r.wait_line(id, ui.g.from, 6) } else { String::new() };
            if !inside.is_empty() {
                let _ = writeln!(out, "- in {}", escape(&inside));
            }
            if let Some(line) = detail::woken(&ui, r, id) {
                let line: String = line.spans.iter().map(|s| s.content.as_ref()).collect();
                let _ = writeln!(out, "- {}", escape(line.trim()));
            }
            let kernel = if now == LaneState::Running { Vec::new() } else { r.frames(v.kernel_stack) };
            stack = kernel;
            stack.extend(r.frames(detail::stack_of(r, &v, now, s.cursor)));
        }
    }
    if let Some((a, b)) = s.marked() {
        let share = r.graph.share(t, a..b);
        let _ = writeln!(
            out,
            "- marked: {} from {} on, {}",
            time::length(b - a),
            time::moment(a, 1_000),
            shares(&share, b - a)
        );
    }
    // As in the lines below the timeline.
    let step = s.step(crate::ui::timeline_columns(state));
    for n in state.notes.notes.iter().filter(|n| n.thread == t && n.time.abs_diff(s.cursor) <= step) {
        if !n.text.is_empty() {
            let _ = writeln!(out, "- note at {}: {}", time::moment(n.time, 1_000), escape(&n.text));
        }
    }
    if !stack.is_empty() {
        out.push_str("\n```\n");
        for f in condensed(&stack) {
            let _ = writeln!(out, "{}", clean(&f));
        }
        out.push_str("```\n");
    }
    let _ = writeln!(out, "\n{}", code(&state.file));
    out
}

/// `blocked 88 %, running 12 %`, the most first.
fn shares(share: &Share, whole: u64) -> String {
    let mut all: Vec<(u64, LaneState)> =
        LaneState::ALL.iter().map(|s| (share.get(*s), *s)).filter(|s| s.0 > 0).collect();
    all.sort_by_key(|s| std::cmp::Reverse(s.0));
    let words: Vec<String> =
        all.iter().map(|(ns, s)| format!("{} {}", word(*s), time::percent(*ns, whole))).collect();
    words.join(", ")
}

fn word(s: LaneState) -> &'static str {
    match s {
        LaneState::Absent => "not there",
        LaneState::Running => "running",
        LaneState::Runnable => "runnable",
        LaneState::Blocked => "blocked",
        LaneState::Disk => "disk",
        LaneState::Stopped => "stopped",
        LaneState::Throttled => "throttled",
        LaneState::Idle => "idle",
        LaneState::Lost => "not seen",
    }
}

/// The tree of what a thread executed.
pub fn steps(state: &State) -> String {
    let rows = &state.steps.rows;
    let line = |r: &crate::steps::Row| {
        let indent = "  ".repeat(r.indent);
        format!("{:>9}  {indent}{}  {}", crate::steps::grouped(r.steps), r.text, r.place)
            .trim_end()
            .to_owned()
    };
    let lines: Vec<String> = rows.iter().map(line).collect();
    if rows.is_empty() { String::new() } else { format!("```\n{}\n```\n", lines.join("\n")) }
}

/// The critical path as a table.
pub fn path(state: &State) -> String {
    let (Some(rec), Some(thread)) = (&state.recording, state.path.thread) else { return String::new() };
    let span = state.path.span;
    let mut out = format!(
        "What made these {} of {} from {} on:\n\n| for | thread | state | in |\n|---|---|---|---|\n",
        time::length(span.1.saturating_sub(span.0)),
        escape(rec.thread_name(thread)),
        time::at(span.0)
    );
    for n in &state.path.parts {
        let what = n.syscall.as_deref().or(n.function.as_deref()).unwrap_or("");
        let _ = writeln!(
            out,
            "| {} | {} | {} | {} |",
            time::length(n.spent),
            escape(rec.thread_name(n.thread)),
            n.state,
            escape(what)
        );
    }
    out
}

/// All bookmarks and notes.
pub fn notes(state: &State) -> String {
    let mut out = note_lines(state);
    if !out.is_empty() {
        let _ = writeln!(out, "\n{}", code(&state.file));
    }
    out
}

/// The same as lines of a list.
pub fn note_lines(state: &State) -> String {
    let Some(r) = &state.recording else { return String::new() };
    let mut out = String::new();
    for n in &state.notes.notes {
        let who =
            if n.thread.is_none() { String::new() } else { format!(", {}", escape(r.thread_name(n.thread))) };
        let text = if n.text.is_empty() { "bookmark".to_owned() } else { escape(&n.text) };
        let _ = writeln!(out, "- {}{who}: {text}", time::moment(n.time, 1_000));
    }
    out
}

#[cfg(test)]
mod tests {
    use crate::app::harness::Session;
    use crate::app::msg::Effect;

    /// What was copied last.
    fn copied(s: &Session) -> &str {
        match s.asked.last() {
            Some(Effect::Osc52(text)) => text,
            other => panic!("nothing was copied: {other:?}"),
        }
    }

    #[test]
    fn threads_are_copied_as_a_table() {
        let mut s = Session::new(100, 30, false);
        s.keys("T j y");
        let text = copied(&s);
        let row = |name: &str| text.lines().any(|l| l.starts_with(&format!("| {name} |")));
        assert!(row("payd") && row("payd/main") && row("payd/rebuild") && row("payd/7741"), "{text}");
        assert!(text.contains("| pid 7740 tid 7744 |") && text.contains("`payd /etc/payd.conf`"), "{text}");
        assert!(!text.contains("shopd |") && text.contains("`shop.pgs`"), "{text}");
        // A thread alone.
        s.keys("l j y");
        let text = copied(&s);
        assert_eq!(text.lines().filter(|l| l.starts_with("| payd")).count(), 1, "{text}");
    }

    #[test]
    fn what_is_under_the_cursor_is_copied() {
        let mut s = Session::new(100, 30, false);
        s.keys("t y");
        let text = copied(&s);
        assert!(text.starts_with("**shopd** (pid 812) at "), "{text}");
        assert!(text.contains("blocked") && text.contains("- woken by ") && text.contains("```\n"), "{text}");
        assert!(text.contains("- in pay_call"), "{text}");
        assert!(!text.contains("- marked"), "{text}");
        s.keys("M 'slow' enter v l l l l y");
        let text = copied(&s);
        assert!(text.contains("- marked: ") && text.contains(" from ") && text.contains(" %"), "{text}");
    }

    #[test]
    fn notes_are_copied_as_a_list() {
        let mut s = Session::new(100, 30, false);
        s.keys("' y");
        assert!(s.asked.is_empty(), "there is no note");
        let note = |id, time, text: &str| crate::session::Note {
            id,
            time,
            thread: pg_event::ThreadId(3),
            text: text.into(),
            bookmark: text.is_empty(),
            ..Default::default()
        };
        s.state.notes.set(vec![note(1, 1_500_000_000, ""), note(2, 2_000_000_000, "here <it> begins")]);
        s.keys("y");
        let text = copied(&s);
        assert_eq!(
            text,
            "- 1.500000 s, payd/rebuild: bookmark\n- 2.000000 s, payd/rebuild: here \\<it\\> begins\n\n`shop.pgs`\n"
        );
    }
}
