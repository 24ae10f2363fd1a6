//! The tree of calls and loops, as lines.

use super::{Steps, grouped, times};
use pg_event::trace::Flow;
use pg_graph::steps::{Node, What};
use std::collections::HashSet;

/// Most lines of a tree.
const MANY: usize = 20_000;

/// What a line of the tree is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RowKind {
    /// A function.
    Call,
    /// A loop.
    Loop,
    /// Instructions without a call.
    Code,
    /// A system call.
    Syscall,
}

/// A line of the tree.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Row {
    /// What it is.
    pub kind: RowKind,
    /// How deep it stands.
    pub indent: usize,
    /// What is written, clean.
    pub text: String,
    /// Where it is in the source, clean; empty when not known.
    pub place: String,
    /// How many instructions, and of how many hundred.
    pub steps: u64,
    /// Its first step, and the first one after its first execution.
    pub span: (u32, u32),
    /// The number of its node; `None`: there is nothing to fold.
    pub node: Option<u32>,
    /// It is folded.
    pub closed: bool,
}

pub(super) fn rows(s: &Steps, closed: &HashSet<u32>) -> Vec<Row> {
    let mut out = Vec::new();
    let mut number = 0;
    for n in &s.walk.roots {
        add(s, n, 0, closed, &mut number, &mut out);
    }
    out
}

fn add(s: &Steps, n: &Node, indent: usize, closed: &HashSet<u32>, number: &mut u32, out: &mut Vec<Row>) {
    let own = *number;
    *number += 1;
    // A call into what only jumps on (a stub of the linker's) is shown as what it leads to.
    if let Some(inner) = stub(s, n) {
        // Numbers stay those of the whole tree.
        *number += count(n) - count(inner) - 1;
        let mut shown = inner.clone();
        if let What::Call { jumped, .. } = &mut shown.what {
            *jumped = false;
        }
        (shown.steps, shown.times, shown.first, shown.end) = (n.steps, n.times, n.first, n.end);
        add(s, &shown, indent, closed, number, out);
        return;
    }
    let folded = closed.contains(&own);
    let inner = !n.children.is_empty();
    if out.len() < MANY {
        let (kind, text, place) = describe(s, n);
        let node = inner.then_some(own);
        out.push(Row {
            kind,
            indent,
            text,
            place,
            steps: n.steps,
            span: (n.first, n.end),
            node,
            closed: folded,
        });
    }
    if folded {
        *number += count(n);
        return;
    }
    let mut rest = n.children.as_slice();
    while let Some((c, after)) = rest.split_first() {
        let code = |n: &Node| matches!(n.what, What::Code { .. });
        let more = after.iter().take_while(|x| code(c) && code(x) && x.times == c.times).count();
        if more > 0 {
            // Blocks between calls and loops are one line.
            let all = &rest[..=more];
            *number += all.len() as u32;
            if out.len() < MANY {
                out.push(straight(s, all, indent + 1));
            }
            rest = &rest[more + 1..];
            continue;
        }
        add(s, c, indent + 1, closed, number, out);
        rest = after;
    }
}

/// Several blocks, one after the other.
fn straight(s: &Steps, all: &[Node], indent: usize) -> Row {
    let steps: u64 = all.iter().map(|n| n.steps).sum();
    let often = all.first().map_or(1, |n| n.times).max(1);
    let each = steps / often;
    let times = if often > 1 { format!("  {}", times(often)) } else { String::new() };
    Row {
        kind: RowKind::Code,
        indent,
        text: format!("{} instructions{times}", grouped(each)),
        place: places(s, all),
        steps,
        span: (all.first().map_or(0, |n| n.first), all.last().map_or(0, |n| n.end)),
        node: None,
        closed: false,
    }
}

/// What a function without a name and with few instructions jumps to.
fn stub<'a>(s: &Steps, n: &'a Node) -> Option<&'a Node> {
    let What::Call { frame, signal: 0, .. } = n.what else { return None };
    let nameless = s.frame(frame).is_some_and(|f| f.function.is_empty());
    let (last, code) = n.children.split_last()?;
    let few = code.iter().all(|c| matches!(c.what, What::Code { .. }))
        && code.iter().map(|c| c.steps).sum::<u64>() <= 4 * n.times;
    (nameless && few && matches!(last.what, What::Call { jumped: true, .. })).then_some(last)
}

/// Nodes below one.
fn count(n: &Node) -> u32 {
    n.children.iter().map(|c| 1 + count(c)).sum()
}

fn describe(s: &Steps, n: &Node) -> (RowKind, String, String) {
    let often = if n.times > 1 { format!("  {}", times(n.times)) } else { String::new() };
    match &n.what {
        What::Call { frame, jumped, signal, returned } => {
            // Of a function that returns nothing the register holds anything.
            let small = returned.map(value).filter(|v| !v.starts_with("0x"));
            let result = small.map_or_else(String::new, |v| format!(" = {v}"));
            let how = match signal {
                0 if *jumped => "jumps to ".to_owned(),
                0 => String::new(),
                n => format!("signal {n}: "),
            };
            (RowKind::Call, format!("{how}{}{result}{often}", s.function(*frame)), s.line(*frame))
        }
        What::Loop { least, most } => {
            let turns = if least == most {
                times(u64::from(*least))
            } else {
                format!("x {} to {}", grouped(u64::from(*least)), grouped(u64::from(*most)))
            };
            let entered =
                if n.times > 1 { format!(", entered {} times", grouped(n.times)) } else { String::new() };
            (RowKind::Loop, format!("loop {turns}{entered}"), span(s, n))
        }
        What::Code { block } => {
            let code = s.trace.block(*block);
            let one = code.len();
            let text = format!("{one} instruction{}{often}", if one == 1 { "" } else { "s" });
            (RowKind::Code, text, span(s, n))
        }
        What::Syscall { nr, result } => {
            let name =
                nr.name().map_or_else(|| format!("system call {}", nr.0), std::borrow::Cow::into_owned);
            let result = result.map_or_else(String::new, |r| format!(" = {}", outcome(r)));
            (RowKind::Syscall, format!("{name}{result}{often}"), String::new())
        }
    }
}

/// The lines that the first instructions below a node come from, when they are of one file.
fn span(s: &Steps, n: &Node) -> String {
    places(s, std::slice::from_ref(n))
}

fn places(s: &Steps, nodes: &[Node]) -> String {
    fn collect<'a>(s: &'a Steps, n: &Node, out: &mut Vec<(&'a str, u32)>) {
        match n.what {
            What::Code { block } => {
                let frames = s.trace.block(block).iter().filter_map(|i| s.frame(i.frame));
                out.extend(frames.filter(|f| f.line > 0).map(|f| (f.file.as_str(), f.line)));
            }
            What::Loop { .. } => n.children.iter().for_each(|c| collect(s, c, out)),
            _ => {}
        }
    }
    let mut lines = Vec::new();
    for n in nodes {
        collect(s, n, &mut lines);
    }
    let Some(file) = lines.first().map(|l| l.0) else { return String::new() };
    let of_file = || lines.iter().filter(|l| l.0 == file).map(|l| l.1);
    let (from, to) = (of_file().min().unwrap_or(0), of_file().max().unwrap_or(0));
    let name = file.rsplit('/').next().unwrap_or_default();
    let text = if from == to { format!("{name}:{from}") } else { format!("{name}:{from}-{to}") };
    crate::clean::clean_to(&text, super::NAME)
}

/// A value that a function returned: small numbers as such, others as addresses are written.
pub(super) fn value(v: u64) -> String {
    match i64::from(v as i32) {
        small if (-4096..1 << 20).contains(&small) && v >> 32 == 0 => small.to_string(),
        _ if (-4096..0).contains(&(v as i64)) => (v as i64).to_string(),
        _ => format!("0x{v:x}"),
    }
}

/// The result of a system call.
pub(super) fn outcome(r: i64) -> String {
    match r {
        // Kernel: ERESTARTSYS, ERESTARTNOINTR, ERESTARTNOHAND, ERESTART_RESTARTBLOCK.
        -516..=-512 => "interrupted, to be begun again".into(),
        -4095..0 => {
            let text = std::io::Error::from_raw_os_error(-r as i32).to_string();
            format!("{r} ({})", text.split(" (os error").next().unwrap_or_default())
        }
        0..1_048_576 => r.to_string(),
        _ => format!("0x{r:x}"),
    }
}

/// Does a node's step lead into a call? Used to find the innermost line of a step.
pub fn innermost(rows: &[Row], step: u32) -> Option<usize> {
    let inside = |r: &Row| r.span.0 <= step && step < r.span.1;
    rows.iter()
        .enumerate()
        .filter(|(_, r)| inside(r))
        .max_by_key(|(i, r)| (r.indent, std::cmp::Reverse(*i)))
        .map(|(i, _)| i)
}

impl Steps {
    /// The line of the tree that a step belongs to: the innermost one shown.
    pub fn row_of(&self, rows: &[Row], step: u32) -> Option<usize> {
        // A system call is told by its own line at the step that is it.
        let call = self.at(step).is_some_and(|i| i.flow == Flow::Syscall);
        let own = |r: &Row| call && r.kind == RowKind::Syscall && r.span.0 == step;
        rows.iter().position(own).or_else(|| innermost(rows, step))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values() {
        assert_eq!((value(7), value(0xffff_ffff), value(u64::MAX)), ("7".into(), "-1".into(), "-1".into()));
        assert_eq!(value(0x7f00_1234_5678), "0x7f0012345678");
        assert_eq!(outcome(3), "3");
        assert!(outcome(-9).starts_with("-9 (Bad file descriptor"), "{}", outcome(-9));
        assert!(outcome(-512).contains("again"));
    }
}
