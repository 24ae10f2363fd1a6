//! From blocks to calls: one pass over a trace with a stack of the functions that are being executed.

use super::fold::{looped, push, shape};
use super::{DEEPEST, Function, Node, Walk, What};
use pg_event::trace::{Flow, Instruction, MarkKind};
use pg_event::{Catalog, FrameId, ModuleId, Trace};
use std::collections::HashMap;

/// A place in the code: module and address.
type Place = (ModuleId, u64);

/// A function that is being executed.
struct Active {
    frame: FrameId,
    /// Where its return leads.
    back: Option<Place>,
    jumped: bool,
    signal: u8,
    first: u32,
    items: Vec<Node>,
    /// Instructions of its own, and with those called.
    own: u64,
    total: u64,
    function: usize,
}

/// Goes over a trace.
pub(super) struct Walker<'a> {
    trace: &'a Trace,
    catalog: &'a Catalog,
    stack: Vec<Active>,
    /// Calls deeper than are told apart.
    over: u64,
    functions: Vec<Function>,
    /// Numbers in `functions`; of code without a name by its first instruction.
    known: HashMap<(ModuleId, &'a str, u64), usize>,
    depth: u32,
    /// Marks before this one were used.
    mark: usize,
    roots: Vec<Node>,
}

/// Number of `rt_sigreturn` (x86-64): the end of a signal's handler.
const SIGRETURN: u16 = 15;

impl<'a> Walker<'a> {
    pub(super) fn new(trace: &'a Trace, catalog: &'a Catalog) -> Self {
        Self {
            trace,
            catalog,
            stack: Vec::new(),
            over: 0,
            functions: Vec::new(),
            known: HashMap::new(),
            depth: 0,
            mark: 0,
            roots: Vec::new(),
        }
    }

    fn place(&self, frame: FrameId) -> Place {
        self.catalog.frames.get(frame.index()).map_or((ModuleId::NONE, u64::MAX), |f| (f.module, f.address))
    }

    fn name(&self, frame: FrameId) -> (ModuleId, &'a str) {
        self.catalog
            .frames
            .get(frame.index())
            .map_or((ModuleId::NONE, ""), |f| (f.module, f.function.as_str()))
    }

    /// Are two instructions of the same function, as far as is known? Parts of one function that a compiler put
    /// elsewhere have its name and a suffix.
    fn same(&self, a: FrameId, b: FrameId) -> bool {
        let ((m, a), (n, b)) = (self.name(a), self.name(b));
        let part = |whole: &str, part: &str| part.strip_prefix(whole).is_some_and(|r| r.starts_with('.'));
        m == n && (a == b || a.is_empty() || b.is_empty() || part(a, b) || part(b, a))
    }

    pub(super) fn run(mut self) -> Walk {
        let trace = self.trace;
        let mut step = 0u64;
        // How the last block ended: its flow, and where the one after it in memory begins.
        let mut last: Option<(Flow, Option<Place>)> = None;
        for run in &trace.runs {
            let code = trace.block(run.block);
            let (Some(head), Some(tail)) = (code.first(), code.last()) else { continue };
            let mut left = run.times;
            while left > 0 {
                // All turns of a loop of one block at once.
                let simple =
                    matches!(tail.flow, Flow::Next | Flow::Jump) && !self.marked(step, code.len(), left);
                let turns = if simple { left } else { 1 };
                self.enter(last.take(), head, step as u32);
                self.block(run.block, code, step as u32, turns);
                step += code.len() as u64 * u64::from(turns);
                left -= turns;
                last = Some((tail.flow, self.behind(tail)));
            }
        }
        self.finish(0, step as u32);
        let roots = self.roots;
        let mut functions = self.functions;
        functions.sort_by_key(|f| (std::cmp::Reverse((f.own, f.total)), f.frame));
        Walk { roots, functions, steps: step, depth: self.depth }
    }

    /// Is anything told of one of these steps?
    fn marked(&mut self, step: u64, len: usize, times: u32) -> bool {
        let marks = &self.trace.marks;
        while marks.get(self.mark).is_some_and(|m| u64::from(m.step) < step) {
            self.mark += 1;
        }
        marks.get(self.mark).is_some_and(|m| u64::from(m.step) < step + len as u64 * u64::from(times))
    }

    /// The place behind an instruction.
    fn behind(&self, i: &Instruction) -> Option<Place> {
        let (module, address) = self.place(i.frame);
        // Code that was taken out has no length.
        (!i.code().is_empty()).then(|| (module, address.wrapping_add(i.code().len() as u64)))
    }

    fn signal_at(&self, step: u32) -> Option<u8> {
        let from = self.trace.marks.partition_point(|m| m.step < step);
        self.trace.marks[from..].iter().take_while(|m| m.step == step).find_map(|m| match m.what {
            MarkKind::Signal(n) => Some(n),
            _ => None,
        })
    }

    fn returned_at(&self, step: u32) -> Option<u64> {
        let from = self.trace.marks.partition_point(|m| m.step < step);
        self.trace.marks[from..].iter().take_while(|m| m.step == step).find_map(|m| match m.what {
            MarkKind::Returned(v) => Some(v),
            _ => None,
        })
    }

    /// A block begins, after one that ended so: bring the stack up to date.
    fn enter(&mut self, last: Option<(Flow, Option<Place>)>, head: &Instruction, step: u32) {
        let Some((flow, behind)) = last else {
            self.call(head.frame, None, false, 0, step);
            return;
        };
        if flow == Flow::Syscall && self.sigreturn_at(step.saturating_sub(1)) {
            // All that the handler did ends with it.
            self.over = 0;
            let handler = self.stack.iter().rposition(|a| a.signal != 0).unwrap_or(0);
            self.finish(handler, step);
        }
        if let Some(n) = self.signal_at(step) {
            self.call(head.frame, None, false, n, step);
            return;
        }
        match flow {
            Flow::Call => self.call(head.frame, behind, false, 0, step),
            Flow::Return => self.back(head.frame, step),
            Flow::Next | Flow::Jump | Flow::Syscall => self.jump(head.frame, step),
        }
    }

    fn sigreturn_at(&self, step: u32) -> bool {
        let from = self.trace.marks.partition_point(|m| m.step < step);
        let mut marks = self.trace.marks[from..].iter().take_while(|m| m.step == step);
        marks.any(|m| matches!(m.what, MarkKind::Syscall(nr, _) if nr.0 == SIGRETURN))
    }

    /// The functions from the `at`-th on end.
    fn finish(&mut self, at: usize, step: u32) {
        while self.stack.len() > at {
            self.leave(step, None);
        }
    }

    fn call(&mut self, frame: FrameId, back: Option<Place>, jumped: bool, signal: u8, first: u32) {
        let deep = self.stack.len() as u64 + self.over + 1;
        self.depth = self.depth.max(u32::try_from(deep).unwrap_or(u32::MAX));
        if self.stack.len() >= DEEPEST {
            // A jump has no return of its own.
            self.over += u64::from(!jumped);
            return;
        }
        let function = self.function(frame);
        self.functions[function].calls += 1;
        let items = Vec::new();
        self.stack.push(Active { frame, back, jumped, signal, first, items, own: 0, total: 0, function });
    }

    fn function(&mut self, frame: FrameId) -> usize {
        let (module, name) = self.name(frame);
        let address = if name.is_empty() { self.place(frame).1 } else { 0 };
        let next = self.functions.len();
        let n = *self.known.entry((module, name, address)).or_insert(next);
        if n == next {
            self.functions.push(Function { frame, calls: 0, own: 0, total: 0 });
        }
        n
    }

    /// A return led here.
    fn back(&mut self, frame: FrameId, step: u32) {
        if self.over > 0 {
            self.over -= 1;
            return;
        }
        let place = self.place(frame);
        let value = self.returned_at(step.saturating_sub(1));
        match self.stack.iter().rposition(|a| a.back == Some(place)) {
            Some(at) => {
                while self.stack.len() > at {
                    self.leave(step, value);
                }
            }
            // Into a function that was called before the burst began.
            // To the code that ends a signal's handler.
            None if self.stack.last().is_some_and(|a| a.signal != 0) => self.jump(frame, step),
            None if self.stack.iter().all(|a| a.back.is_none() && a.signal == 0) => {
                while self.stack.len() > 1 {
                    self.leave(step, value);
                }
                self.outward(frame, step, value);
            }
            // Somewhere else: a signal's handler ends, or the program changes its stack.
            None => {
                if self.stack.len() > 1 {
                    self.leave(step, value);
                }
                self.jump(frame, step);
            }
        }
    }

    /// The outermost function returned: its caller is the outermost now.
    fn outward(&mut self, frame: FrameId, step: u32, value: Option<u64>) {
        let first = self.stack.first().map_or(step, |a| a.first);
        // Entered before the burst began: it was not called in it.
        let function = self.function(frame);
        let (items, own, total) = (Vec::new(), 0, 0);
        let caller =
            Active { frame, back: None, jumped: false, signal: 0, first, items, own, total, function };
        self.stack.insert(0, caller);
        self.leave(step, value);
    }

    /// A jump, or the end of a system call, led here.
    fn jump(&mut self, frame: FrameId, step: u32) {
        let Some(top) = self.stack.last() else {
            self.call(frame, None, false, 0, step);
            return;
        };
        if self.over > 0 || self.same(top.frame, frame) {
            return;
        }
        // Back in the function that was interrupted, or that jumped here.
        let near = self.stack.len().saturating_sub(4);
        let below = self.stack[near..].iter().rposition(|a| self.same(a.frame, frame)).map(|n| near + n);
        match below.filter(|n| self.stack[n + 1..].iter().all(|a| a.back.is_none())) {
            Some(n) => {
                while self.stack.len() > n + 1 {
                    self.leave(step, None);
                }
            }
            None => self.call(frame, None, true, 0, step),
        }
    }

    /// The innermost function ends.
    fn leave(&mut self, end: u32, value: Option<u64>) {
        let Some(a) = self.stack.pop() else { return };
        let total = a.total;
        let node = self.close(a, end, value);
        match self.stack.last_mut() {
            Some(top) => {
                top.total += total;
                push(&mut top.items, node);
            }
            None => push(&mut self.roots, node),
        }
    }

    fn close(&mut self, a: Active, end: u32, returned: Option<u64>) -> Node {
        // Called by itself, it would count twice.
        let again = self.stack.iter().any(|b| b.function == a.function);
        let f = &mut self.functions[a.function];
        f.own += a.own;
        f.total += if again { 0 } else { a.total };
        let parts =
            [a.function as u64, u64::from(a.signal)].into_iter().chain(a.items.iter().map(|n| n.shape));
        let shape = shape(2, parts);
        let what = What::Call { frame: a.frame, jumped: a.jumped, signal: a.signal, returned };
        let steps = a.total;
        Node { what, first: a.first, end, steps, times: 1, children: a.items, shape }
    }

    /// A block is executed, so many times.
    fn block(&mut self, block: u32, code: &[Instruction], step: u32, turns: u32) {
        let n = code.len() as u64 * u64::from(turns);
        let end = step + code.len() as u32 * turns;
        let call =
            code.last().filter(|i| i.flow == Flow::Syscall).map(|_| self.syscall(end.saturating_sub(1)));
        let Some(top) = self.stack.last_mut() else { return };
        top.own += n;
        top.total += n;
        let shape = shape(0, [u64::from(block)]);
        let what = What::Code { block };
        let first_end = step + code.len() as u32;
        let node = Node {
            what,
            first: step,
            end: first_end,
            steps: n,
            times: u64::from(turns),
            children: Vec::new(),
            shape,
        };
        let node = if turns > 1 { Node { end, ..looped(vec![node], turns) } } else { node };
        push(&mut top.items, node);
        if let Some(node) = call.flatten() {
            push(&mut top.items, node);
        }
    }

    fn syscall(&self, step: u32) -> Option<Node> {
        let from = self.trace.marks.partition_point(|m| m.step < step);
        let marks = self.trace.marks[from..].iter().take_while(|m| m.step == step);
        let (nr, result) = marks.into_iter().find_map(|m| match m.what {
            MarkKind::Syscall(nr, result) => Some((nr, result)),
            _ => None,
        })?;
        let shape = shape(3, [u64::from(nr.0)]);
        let what = What::Syscall { nr, result };
        Some(Node { what, first: step, end: step + 1, steps: 0, times: 1, children: Vec::new(), shape })
    }
}
