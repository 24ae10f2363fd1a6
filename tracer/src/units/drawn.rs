//! Stacks told by hand over a small program, for tests.

use super::event_loop::EventLoop;
use super::place::{Place, Places};
use super::seen::Seen;
use super::waits::Wait;
use crate::flow::Function;
use crate::flow::fake::Program;
use pg_event::{Catalog, Frame, FrameId, ModuleId, Stack, StackId, Sysno, ThreadId};
use std::rc::Rc;

/// The system calls of waits.
pub const POLL: Sysno = Sysno(7);
pub const FUTEX: Sysno = Sysno(202);

/// A program whose threads are seen.
pub struct Told {
    pub program: Program,
    pub catalog: Catalog,
    pub places: Places,
    pub seen: Seen,
    /// Whose stacks are told.
    pub thread: ThreadId,
    /// What comes is cut off.
    pub cut: bool,
    /// The outermost frames of all that comes.
    pub under: &'static str,
}

impl Told {
    /// A program (see [`Program::new`]) and the labels of the calls that occur in stacks; those that begin with `lib` are
    /// in another module.
    pub fn new(text: &str, calls: &[&str]) -> Self {
        let program = Program::new(text);
        let (mut catalog, mut places) = (Catalog::default(), Places::default());
        let mut functions: Vec<Rc<Function>> = Vec::new();
        for (i, name) in calls.iter().enumerate() {
            let address = program.at(name);
            let known = functions.iter().find(|f| f.contains(address)).map(Rc::clone);
            let function = known.unwrap_or_else(|| Rc::new(Function::read(&program, address).unwrap()));
            functions.push(Rc::clone(&function));
            places.know(FrameId(i as u32), Place::Code(function));
            catalog.frames.push(Frame {
                module: ModuleId(u32::from(name.starts_with("lib"))),
                address,
                function: (*name).into(),
                ..Frame::default()
            });
        }
        let (seen, thread) = (Seen::default(), ThreadId(0));
        Self { program, catalog, places, seen, thread, cut: false, under: "" }
    }

    /// A stack by the names of its frames, the outermost first; at its end `!`: a wait for input begins, `?`: one for a
    /// signal.
    pub fn stack(&mut self, names: &str) -> &mut Self {
        let wait = match names.chars().last() {
            Some('!') => Some((Wait::Input, POLL)),
            Some('?') => Some((Wait::Signal, FUTEX)),
            _ => None,
        };
        let frame =
            |n: &str| FrameId(self.catalog.frames.iter().position(|f| f.function == n).unwrap() as u32);
        let inner = names.trim_end_matches(['!', '?']).split_whitespace();
        let names = self.under.split_whitespace().chain(inner);
        let row = Stack { frames: names.rev().map(frame).collect(), truncated: self.cut, ..Stack::default() };
        let known = self.catalog.stacks.iter().position(|s| *s == row);
        let id = known.unwrap_or_else(|| {
            self.catalog.stacks.push(row);
            self.catalog.stacks.len() - 1
        });
        self.seen.stack(&self.catalog, self.thread, StackId(id as u32), wait);
        self
    }

    pub fn stacks(&mut self, all: &[&str]) -> &mut Self {
        for s in all {
            self.stack(s);
        }
        self
    }

    /// The event loops of the thread.
    pub fn found(&mut self) -> Vec<EventLoop> {
        self.seen.event_loops(&self.catalog, &mut self.places).remove(&self.thread).unwrap_or_default()
    }

    /// Head, turns and waits of each loop.
    pub fn heads(&mut self) -> Vec<(u64, u64, u64)> {
        self.found().into_iter().map(|l| (l.at.head, l.turns, l.waits)).collect()
    }
}
