//! Single steps as lines: source, disassembly, what came of them.

use super::Steps;
use super::rows::{outcome, value};
use super::source::Sources;
use crate::clean::clean_to;
use pg_event::trace::{Flow, MarkKind};
use pg_tracer::steps::code::show;
use std::ops::Range;

/// What a line is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LineKind {
    /// A function begins or is come back to.
    Function,
    /// A line of source.
    Source,
    /// An instruction: its step.
    Step(u32),
}

/// A line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Line {
    /// What it is.
    pub kind: LineKind,
    /// What is written, clean.
    pub text: String,
    /// What came of it: a value, a result, where it leads; clean.
    pub note: String,
}

pub(super) fn lines(s: &Steps, steps: Range<u32>, source: &Sources) -> Vec<Line> {
    let mut out = Vec::new();
    let (mut function, mut line) = (String::new(), (String::new(), 0));
    for step in steps.start..steps.end.min(s.len()) {
        let Some(i) = s.at(step) else { continue };
        let name = s.function(i.frame);
        if name != function {
            out.push(Line { kind: LineKind::Function, text: name.clone(), note: String::new() });
            (function, line) = (name, (String::new(), 0));
        }
        let f = s.frame(i.frame);
        if let Some(f) = f.filter(|f| f.line > 0 && (f.file.as_str(), f.line) != (line.0.as_str(), line.1)) {
            line = (f.file.clone(), f.line);
            let inlined = if f.inlined.is_empty() {
                String::new()
            } else {
                let names: Vec<String> = f.inlined.iter().take(4).map(|n| clean_to(n, 60)).collect();
                format!("inlined {}", names.join(" < "))
            };
            let text = source.line(&f.file, f.line).map_or_else(String::new, |t| format!("  {}", t.trim()));
            let text = clean_to(&format!("{}{text}", s.line(i.frame)), 300);
            out.push(Line { kind: LineKind::Source, text, note: inlined });
        }
        let address = f.map_or(0, |f| f.address);
        let shown = show(i.code(), address);
        out.push(Line {
            kind: LineKind::Step(step),
            text: format!("{address:>8x}  {}", clean_to(&shown.text, 100)),
            note: note(s, step, i.flow),
        });
    }
    out
}

/// What came of a step.
fn note(s: &Steps, step: u32, flow: Flow) -> String {
    let from = s.trace.marks.partition_point(|m| m.step < step);
    let mut parts: Vec<String> = Vec::new();
    for m in s.trace.marks[from..].iter().take_while(|m| m.step == step) {
        parts.push(match m.what {
            MarkKind::Syscall(nr, result) => {
                let name =
                    nr.name().map_or_else(|| format!("system call {}", nr.0), std::borrow::Cow::into_owned);
                format!("{name}{}", result.map_or_else(String::new, |r| format!(" = {}", outcome(r))))
            }
            MarkKind::Returned(v) => format!("returns {}", value(v)),
            MarkKind::Signal(n) => format!("signal {n}"),
        });
    }
    if flow == Flow::Call
        && let Some(next) = s.at(step + 1)
    {
        parts.push(format!("into {}", s.function(next.frame)));
    }
    parts.join(", ")
}
