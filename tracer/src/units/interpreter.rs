//! Functions of Python given to stacks that were taken without them.
//!
//! The interpreter's frames are read of samples and of long waits; short waits show only the call of the interpreter
//! that runs Python. Where a thread's waits with the same native frames were all in the same functions of Python as far as
//! they were read, the others are taken to be, too.

use super::place::is_interpreter;
use super::seen::ThreadSeen;
use pg_event::{Catalog, FrameId, ModuleKind, StackId};
use std::collections::HashMap;

/// A native frame; `None` for the functions of Python that one call of the interpreter runs.
type Native = Vec<Option<FrameId>>;

/// The native frames of a stack, and whether it has functions of Python, or calls that should have some.
fn native(catalog: &Catalog, stack: StackId) -> (Native, bool, bool) {
    let (mut all, mut python, mut bare) = (Native::new(), false, false);
    let frames = catalog.stacks.get(stack.index()).map(|s| s.frames.as_slice()).unwrap_or_default();
    for &id in frames {
        let frame = catalog.frames.get(id.index());
        let module = frame.and_then(|f| catalog.modules.get(f.module.index()));
        let is_python = module.is_some_and(|m| m.kind == ModuleKind::Python);
        let is_call = frame.is_some_and(is_interpreter);
        (python, bare) = (python || is_python, bare || is_call);
        if !is_python {
            all.push((!is_call).then_some(id));
        } else if all.last() != Some(&None) {
            all.push(None);
        }
    }
    (all, python, bare)
}

/// What was seen of a thread, with functions of Python for its waits that lack them; `None` when there is nothing to give.
pub(super) fn with_python(catalog: &Catalog, seen: &ThreadSeen) -> Option<ThreadSeen> {
    // By native frames: the stack with functions of Python; `None` when there are several.
    let mut known: HashMap<Native, Option<StackId>> = HashMap::new();
    let mut without: Vec<(StackId, Native)> = Vec::new();
    let mut stacks: Vec<StackId> = seen.waits.keys().map(|k| k.0).collect();
    stacks.dedup();
    for stack in stacks {
        match native(catalog, stack) {
            (frames, true, false) => {
                known.entry(frames).and_modify(|s| *s = None).or_insert(Some(stack));
            }
            (frames, false, true) => without.push((stack, frames)),
            _ => {}
        }
    }
    let given = without.into_iter().filter_map(|(s, frames)| Some((s, (*known.get(&frames)?)?)));
    let instead: HashMap<StackId, StackId> = given.collect();
    let of = |s: StackId| instead.get(&s).copied().unwrap_or(s);
    (!instead.is_empty()).then(|| seen.map_stacks(of))
}

#[cfg(test)]
mod tests {
    use super::super::seen::Seen;
    use super::super::waits::Wait;
    use super::*;
    use pg_event::{Frame, Module, ModuleId, Stack, Sysno, ThreadId};

    /// Frames 0 `epoll_wait`, 1 the interpreter, 2 `main`, 3 and 4 functions of Python, 5 another wait.
    fn catalog(stacks: &[&[u32]]) -> Catalog {
        let module = |kind| Module { kind, ..Module::default() };
        let frame = |module: u32, function: &str| Frame {
            module: ModuleId(module),
            function: function.into(),
            ..Frame::default()
        };
        let stack = |frames: &&[u32]| Stack {
            frames: frames.iter().map(|&f| FrameId(f)).collect(),
            ..Stack::default()
        };
        Catalog {
            modules: vec![module(ModuleKind::Elf), module(ModuleKind::Python)],
            frames: [
                (0, "epoll_wait"),
                (0, "_PyEval_EvalFrameDefault"),
                (0, "main"),
                (1, "select"),
                (1, "run"),
                (0, "read"),
            ]
            .map(|(m, f)| frame(m, f))
            .into(),
            stacks: stacks.iter().map(stack).collect(),
            ..Catalog::default()
        }
    }

    /// The stacks of a thread's waits, with functions of Python where they could be given.
    fn given(stacks: &[&[u32]]) -> Option<Vec<u32>> {
        let catalog = catalog(stacks);
        let mut seen = Seen::default();
        for i in 0..stacks.len() {
            seen.stack(&catalog, ThreadId(0), StackId(i as u32), Some((Wait::Input, Sysno(1))));
        }
        let new = with_python(&catalog, &seen.threads[&ThreadId(0)])?;
        Some(new.steps.iter().map(|s| s.0.to.0).collect())
    }

    #[test]
    fn short_waits_get_the_functions_of_long_ones() {
        let (short, long): (&[u32], &[u32]) = (&[0, 1, 2], &[0, 3, 4, 2]);
        assert_eq!(given(&[short, long]), Some(vec![1, 1]));
        // Another wait, another way to it: nobody knows.
        assert_eq!(given(&[&[5, 1, 2], long]), None);
        assert_eq!(given(&[&[0, 1, 5, 1, 2], long]), None);
        // In different functions.
        assert_eq!(given(&[short, long, &[0, 3, 2]]), None);
        assert_eq!(given(&[short]), None);
    }
}
