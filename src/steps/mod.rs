//! What a thread executed in a burst, made ready to be shown: as a tree of calls and loops, and step by step with
//! disassembly and source.
//!
//! Every text handed out here is clean.

mod code;
pub mod print;
mod rows;
pub mod source;

pub use code::{Line, LineKind};
pub use rows::{Row, RowKind};

use crate::clean::clean_to;
use pg_event::trace::Flow;
use pg_event::{Catalog, Frame, FrameId, Trace};
use pg_graph::steps::Walk;
use std::ops::Range;

/// Longest name of a function that is shown, columns.
const NAME: usize = 80;

/// A trace with the names it needs.
#[derive(Debug)]
pub struct Steps {
    /// What is executed.
    pub trace: Trace,
    /// Names; untrusted: use the methods here.
    catalog: Catalog,
    /// Calls and loops.
    pub walk: Walk,
    /// The first step of each block executed, and the block.
    starts: Vec<(u32, u32)>,
}

impl Steps {
    /// Of a trace and the catalogue that names its frames: those rows are copied, no others.
    pub fn new(trace: &Trace, catalog: &Catalog) -> Self {
        let mut trace = trace.clone();
        let mut own = Catalog::default();
        let mut frames = std::collections::HashMap::new();
        for i in &mut trace.code {
            let old = i.frame;
            i.frame = *frames.entry(old).or_insert_with(|| match catalog.frames.get(old.index()) {
                Some(f) => {
                    own.frames.push(f.clone());
                    FrameId(own.frames.len() as u32 - 1)
                }
                None => FrameId::NONE,
            });
        }
        own.modules.clone_from(&catalog.modules);
        let walk = pg_graph::steps::walk(&trace, &own);
        let starts = trace.walk().collect();
        Self { trace, catalog: own, walk, starts }
    }

    /// How many steps there are.
    pub fn len(&self) -> u32 {
        self.walk.steps as u32
    }

    /// Is there none?
    pub fn is_empty(&self) -> bool {
        self.walk.steps == 0
    }

    /// The instruction of a step.
    fn at(&self, step: u32) -> Option<&pg_event::trace::Instruction> {
        let n = self.starts.partition_point(|s| s.0 <= step).checked_sub(1)?;
        let (first, block) = self.starts[n];
        self.trace.block(block).get((step - first) as usize)
    }

    fn frame(&self, id: FrameId) -> Option<&Frame> {
        self.catalog.frames.get(id.index())
    }

    /// `function (module)`, clean.
    fn function(&self, id: FrameId) -> String {
        clean_to(&pg_graph::steps::function_name(&self.catalog, id), NAME)
    }

    /// `walk.c:31`, clean; empty when not known.
    fn line(&self, id: FrameId) -> String {
        let Some(f) = self.frame(id).filter(|f| f.line > 0) else { return String::new() };
        let name = f.file.rsplit('/').next().unwrap_or_default();
        clean_to(&format!("{name}:{}", f.line), NAME)
    }

    /// The next (or the last) step in a direction after `step` that leads this way.
    pub fn find(&self, step: u32, flow: Flow, back: bool) -> Option<u32> {
        let is = |s: &u32| self.at(*s).is_some_and(|i| i.flow == flow);
        if back { (0..step).rev().find(is) } else { (step.saturating_add(1)..self.len()).find(is) }
    }

    /// Source files that its instructions come from.
    pub fn files(&self) -> Vec<String> {
        let mut files: Vec<String> =
            self.catalog.frames.iter().filter(|f| f.line > 0).map(|f| f.file.clone()).collect();
        files.sort_unstable();
        files.dedup();
        files
    }

    /// The lines of steps, with `source` for what they were compiled from.
    pub fn lines(&self, steps: Range<u32>, source: &source::Sources) -> Vec<Line> {
        code::lines(self, steps, source)
    }

    /// The tree; what is in `closed` (by number) is folded.
    pub fn rows(&self, closed: &std::collections::HashSet<u32>) -> Vec<Row> {
        rows::rows(self, closed)
    }
}

/// `×1,204`.
pub fn times(n: u64) -> String {
    format!("x {}", grouped(n))
}

/// A number with its thousands apart.
pub fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (i, d) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(d);
    }
    out
}
