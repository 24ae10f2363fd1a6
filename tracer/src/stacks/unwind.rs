//! Unwinding of a copied user stack without frame pointers.
//!
//! Memory is read from the copy only; nothing of the live process is touched. A register that cannot be
//! recovered is unknown from there on, which stops the walk only when it is needed.

use super::cfi::{CfaRule, Row, Rule};
use super::elf::u64_at;
use super::regs::{CALLEE_SAVED, FrameRegs, RA, RBP, RSP, Regs};
use gimli::{EvaluationResult, Expression, LittleEndian, Location, Value};
use std::sync::Arc;

/// Most frames of a stack: deeper ones are cut and marked so.
pub(super) const MAX_FRAMES: usize = 256;
/// Most steps of one DWARF expression.
const MAX_STEPS: u32 = 1000;

/// A place in code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Place {
    /// Index of the module in the table of modules.
    pub module: u32,
    /// Address as its file counts, or the absolute address where there is no file.
    pub address: u64,
}

/// What the walk needs to know of the code.
pub(super) trait Code {
    /// The executable mapping at an address.
    fn place(&mut self, address: u64) -> Option<Place>;
    /// The unwind row of a place.
    fn row(&mut self, place: Place) -> Option<Arc<Row>>;
}

/// One frame of a walk.
#[derive(Clone, Debug)]
pub(super) struct Step {
    /// Absolute address: exact in the leaf and where a signal interrupted, else that of the call's last
    /// byte, so that it lies within the calling line.
    pub address: u64,
    /// Where that is, `None` for a leaf outside of all known code.
    pub place: Option<Place>,
    /// Registers of the frame as far as known.
    pub regs: FrameRegs,
}

/// The copied stack.
struct Memory<'a> {
    start: u64,
    bytes: &'a [u8],
}

impl Memory<'_> {
    fn u64(&self, address: u64) -> Option<u64> {
        u64_at(self.bytes, usize::try_from(address.checked_sub(self.start)?).ok()?)
    }

    fn uint(&self, address: u64, size: u8) -> Option<u64> {
        let at = usize::try_from(address.checked_sub(self.start)?).ok()?;
        let b = self.bytes.get(at..at.checked_add(size.into())?)?;
        Some(b.iter().rev().fold(0, |v, &b| v << 8 | u64::from(b)))
    }
}

/// Walk a stack into `out`, the leaf first. Returns whether the outermost frame was reached.
pub(super) fn walk(code: &mut impl Code, regs: &Regs, copy: &[u8], out: &mut Vec<Step>) -> bool {
    out.clear();
    let memory = Memory { start: regs.sp, bytes: copy };
    let mut frame = FrameRegs::from(regs);
    // Is the address exact, not a return address?
    let mut exact = true;
    while out.len() < MAX_FRAMES {
        let Some(ip) = frame.ip() else { return false };
        if ip == 0 && !out.is_empty() {
            return true;
        }
        let address = if exact { ip } else { ip.wrapping_sub(1) };
        let place = code.place(address);
        if place.is_none() && !exact {
            // Not code: what was read there was no return address.
            return false;
        }
        let row = place.and_then(|p| code.row(p));
        let mut step = Step { address, place, regs: frame };
        if !exact && row.as_ref().is_some_and(|r| r.signal) {
            // Nobody called the trampoline of a signal handler: the handler returns to its beginning.
            (step.address, step.place) = (ip, code.place(ip));
        }
        out.push(step);
        let next = match (&row, place) {
            (Some(row), _) => match apply(row, &frame, exact, &memory) {
                Next::Frame(f) => Some(f),
                Next::Outermost => return true,
                Next::Lost => None,
            },
            (None, Some(_)) => match frame_pointer(&frame, &memory, code) {
                Next::Frame(f) => Some(f),
                Next::Outermost => return true,
                Next::Lost => None,
            },
            // A call to an address without code has pushed its return address and done nothing else.
            (None, None) if out.len() == 1 => called(&frame, &memory),
            (None, None) => None,
        };
        let Some(next) = next else { return false };
        exact = row.as_ref().is_some_and(|r| r.signal);
        // Callers' frames lie above; only a signal can have switched stacks.
        if !exact && next.sp() <= frame.sp() {
            return false;
        }
        frame = next;
    }
    false
}

enum Next {
    Frame(FrameRegs),
    Outermost,
    Lost,
}

fn apply(row: &Row, frame: &FrameRegs, exact: bool, memory: &Memory) -> Next {
    let cfa = match &row.cfa {
        CfaRule::Register(r, offset) => frame.get((*r).into()).map(|v| v.wrapping_add_signed(*offset)),
        CfaRule::Expression(e) => evaluate(e, None, frame, memory),
    };
    let Some(cfa) = cfa else { return Next::Lost };
    let mut next = FrameRegs::default();
    if row.signal {
        // Everything that has no rule is as it is.
        next = *frame;
    } else {
        for r in CALLEE_SAVED {
            next.set(r, frame.get(r));
        }
    }
    next.clear(RA);
    next.set(RSP, Some(cfa));
    for (column, rule) in &row.rules {
        let column = usize::from(*column);
        let value = match rule {
            Rule::Undefined if column == RA => return Next::Outermost,
            Rule::Undefined => None,
            Rule::Same => frame.get(column),
            Rule::At(n) => {
                let at = cfa.wrapping_add_signed(*n);
                // Within an epilogue compilers do not note that a register was popped; its slot then lies
                // below the stack pointer, where the copy has nothing, and the register has its value.
                let popped = exact && column != RA && frame.sp().is_some_and(|sp| at < sp);
                if popped { frame.get(column) } else { memory.u64(at) }
            }
            Rule::Is(n) => Some(cfa.wrapping_add_signed(*n)),
            Rule::Register(r) => frame.get((*r).into()),
            Rule::ExpressionAt(e) => evaluate(e, Some(cfa), frame, memory).and_then(|a| memory.u64(a)),
            Rule::ExpressionIs(e) => evaluate(e, Some(cfa), frame, memory),
        };
        next.clear(column);
        next.set(column, value);
    }
    if next.ip().is_some() { Next::Frame(next) } else { Next::Lost }
}

/// Code without rows, as just-in-time compilers make it, usually keeps frame pointers. Taken only when
/// what it points to looks like a frame: above the stack pointer and with a return address into code.
fn frame_pointer(frame: &FrameRegs, memory: &Memory, code: &mut impl Code) -> Next {
    let (Some(bp), Some(sp)) = (frame.get(RBP), frame.sp()) else { return Next::Lost };
    // The ABI marks the outermost frame by zero.
    if bp == 0 {
        return Next::Outermost;
    }
    let ret = memory.u64(bp.wrapping_add(8));
    let (Some(caller), Some(ret)) = (memory.u64(bp), ret) else { return Next::Lost };
    if bp < sp || !bp.is_multiple_of(8) || (ret != 0 && code.place(ret.wrapping_sub(1)).is_none()) {
        return Next::Lost;
    }
    let mut next = FrameRegs::default();
    next.set(RBP, Some(caller));
    next.set(RSP, Some(bp.wrapping_add(16)));
    next.set(RA, Some(ret));
    Next::Frame(next)
}

fn called(frame: &FrameRegs, memory: &Memory) -> Option<FrameRegs> {
    let sp = frame.sp()?;
    let mut next = *frame;
    next.set(RA, Some(memory.u64(sp)?));
    next.set(RSP, Some(sp.wrapping_add(8)));
    Some(next)
}

/// Evaluate a DWARF expression of call frame information; `first` is pushed beforehand.
fn evaluate(bytes: &[u8], first: Option<u64>, frame: &FrameRegs, memory: &Memory) -> Option<u64> {
    let encoding = gimli::Encoding { address_size: 8, format: gimli::Format::Dwarf64, version: 5 };
    let mut e = Expression(gimli::EndianSlice::new(bytes, LittleEndian)).evaluation(encoding);
    e.set_max_iterations(MAX_STEPS);
    if let Some(v) = first {
        e.set_initial_value(v);
    }
    let mut result = e.evaluate().ok()?;
    // Every request is one operation of the expression, and those are bounded.
    for _ in 0..=MAX_STEPS {
        result = match result {
            EvaluationResult::Complete => {
                return match e.as_result().first()?.location {
                    Location::Address { address } => Some(address),
                    Location::Value { value: Value::Generic(v) } => Some(v),
                    _ => None,
                };
            }
            EvaluationResult::RequiresMemory { address, size, space: None, .. } => {
                e.resume_with_memory(Value::Generic(memory.uint(address, size)?)).ok()?
            }
            EvaluationResult::RequiresRegister { register, .. } => {
                e.resume_with_register(Value::Generic(frame.get(register.0.into())?)).ok()?
            }
            _ => return None,
        };
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    /// Code made up: rows by address, everything between 0x1000 and 0x9000 is code.
    #[derive(Default)]
    struct Fake(HashMap<u64, Row>);

    impl Code for Fake {
        fn place(&mut self, address: u64) -> Option<Place> {
            (0x1000..0x9000).contains(&address).then_some(Place { module: 0, address })
        }

        fn row(&mut self, place: Place) -> Option<Arc<Row>> {
            self.0.get(&(place.address & !0xff)).cloned().map(Arc::new)
        }
    }

    fn row(cfa: CfaRule, rules: &[(u8, Rule)]) -> Row {
        Row { cfa, rules: rules.into(), signal: false }
    }

    fn at_sp(offset: i64) -> CfaRule {
        CfaRule::Register(RSP as u8, offset)
    }

    fn stack(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|w| w.to_le_bytes()).collect()
    }

    const RET: (u8, Rule) = (RA as u8, Rule::At(-8));

    fn run(code: &mut Fake, regs: Regs, words: &[u64]) -> (Vec<u64>, bool, Vec<Step>) {
        let mut out = Vec::new();
        let complete = walk(code, &regs, &stack(words), &mut out);
        (out.iter().map(|s| s.address).collect(), complete, out)
    }

    #[test]
    fn saved_registers_come_back() {
        // 0x1000: pushed rbx, CFA = rsp+16. 0x2000: outermost.
        let mut code = Fake::default();
        code.0.insert(0x1000, row(at_sp(16), &[(3, Rule::At(-16)), RET]));
        code.0.insert(0x2000, row(at_sp(8), &[(RA as u8, Rule::Undefined)]));
        let regs = Regs { ip: 0x1004, sp: 0x7000_0000, bx: 1, r12: 12, ..Regs::default() };
        let (addresses, complete, steps) = run(&mut code, regs, &[77, 0x2010]);
        assert_eq!((addresses, complete), (vec![0x1004, 0x200f], true));
        assert_eq!(steps[1].regs.get(3), Some(77));
        assert_eq!(steps[1].regs.get(12), Some(12));
        // A register that a call does not preserve is lost.
        assert_eq!(steps[1].regs.get(0), None);
        assert_eq!(steps[1].regs.sp(), Some(0x7000_0010));
    }

    #[test]
    fn a_popped_register_has_its_value() {
        // In the epilogue, rbx is popped already: its slot is below the stack pointer.
        let mut code = Fake::default();
        code.0.insert(0x1000, row(at_sp(8), &[(3, Rule::At(-16)), RET]));
        code.0.insert(0x2000, row(CfaRule::Register(3, 8), &[(RA as u8, Rule::Undefined)]));
        let regs = Regs { ip: 0x1004, sp: 0x7000, bx: 0x7100, ..Regs::default() };
        let (addresses, complete, steps) = run(&mut code, regs, &[0x2010]);
        assert_eq!((addresses, complete), (vec![0x1004, 0x200f], true));
        assert_eq!(steps[1].regs.get(3), Some(0x7100));
    }

    #[test]
    fn a_copy_too_short_is_not_complete() {
        let mut code = Fake::default();
        code.0.insert(0x1000, row(at_sp(64), &[RET]));
        let regs = Regs { ip: 0x1004, sp: 0x7000, ..Regs::default() };
        assert_eq!(run(&mut code, regs, &[0; 4]).0, [0x1004]);
        assert!(!run(&mut code, regs, &[0; 4]).1);
    }

    #[test]
    fn a_frame_that_does_not_grow_ends_the_walk() {
        let mut code = Fake::default();
        code.0.insert(0x1000, row(at_sp(0), &[(RA as u8, Rule::At(0))]));
        let regs = Regs { ip: 0x1004, sp: 0x7000, ..Regs::default() };
        assert_eq!(run(&mut code, regs, &[0x1010; 8]).0, [0x1004]);
    }

    #[test]
    fn frames_are_bounded() {
        let mut code = Fake::default();
        code.0.insert(0x1000, row(at_sp(8), &[RET]));
        let regs = Regs { ip: 0x1004, sp: 0x7000, ..Regs::default() };
        let (addresses, complete, _) = run(&mut code, regs, &[0x1010; 1000]);
        assert_eq!((addresses.len(), complete), (MAX_FRAMES, false));
    }

    #[test]
    fn a_signal_frame_is_exact_and_restores_all() {
        // CFA = *(rsp + 16), rip = *(rsp + 8); the rest is as it is.
        let mut code = Fake::default();
        let cfa: Arc<[u8]> = [0x77, 16, 0x06].into(); // breg7 16, deref
        let rip: Arc<[u8]> = [0x77, 8].into();
        code.0.insert(
            0x1000,
            Row {
                cfa: CfaRule::Expression(cfa),
                rules: [(RA as u8, Rule::ExpressionAt(rip))].into(),
                signal: true,
            },
        );
        code.0.insert(0x2000, row(at_sp(8), &[(RA as u8, Rule::Undefined)]));
        let regs = Regs { ip: 0x1000, sp: 0x7000, ax: 5, ..Regs::default() };
        let (addresses, complete, steps) = run(&mut code, regs, &[0, 0x2000, 0x6000]);
        assert_eq!((addresses, complete), (vec![0x1000, 0x2000], true));
        assert_eq!((steps[1].regs.sp(), steps[1].regs.get(0)), (Some(0x6000), Some(5)));
    }

    #[test]
    fn code_without_rows_is_walked_by_frame_pointers() {
        let mut code = Fake::default();
        code.0.insert(0x2000, row(at_sp(8), &[(RA as u8, Rule::Undefined)]));
        let regs = Regs { ip: 0x3000, sp: 0x7000, bp: 0x7010, ..Regs::default() };
        let (addresses, complete, _) = run(&mut code, regs, &[1, 2, 0x7020, 0x3500, 0, 0x2001]);
        assert_eq!((addresses, complete), (vec![0x3000, 0x34ff, 0x2000], true));
        // What does not point into code is no return address.
        let (addresses, complete, _) = run(&mut code, regs, &[1, 2, 0x7020, 0xdead_0000, 0, 0x2001]);
        assert_eq!((addresses, complete), (vec![0x3000], false));
    }

    #[test]
    fn a_call_to_nowhere_is_unwound() {
        let mut code = Fake::default();
        code.0.insert(0x2000, row(at_sp(16), &[(RA as u8, Rule::Undefined)]));
        let regs = Regs { ip: 0, sp: 0x7000, ..Regs::default() };
        let (addresses, complete, _) = run(&mut code, regs, &[0x2001, 0]);
        assert_eq!((addresses, complete), (vec![0, 0x2000], true));
    }

    fn rules() -> impl Strategy<Value = Rule> {
        let bytes = || proptest::collection::vec(any::<u8>(), 0..12).prop_map(Arc::from);
        prop_oneof![
            Just(Rule::Undefined),
            Just(Rule::Same),
            any::<i64>().prop_map(Rule::At),
            (-64i64..64).prop_map(Rule::At),
            any::<i64>().prop_map(Rule::Is),
            any::<u8>().prop_map(Rule::Register),
            bytes().prop_map(Rule::ExpressionAt),
            bytes().prop_map(Rule::ExpressionIs),
        ]
    }

    proptest! {
        #[test]
        fn any_rows_and_memory(
            rows in proptest::collection::vec(
                (proptest::collection::vec((0u8..17, rules()), 0..4), 0u8..17, -64i64..64, any::<bool>()), 1..6),
            words in proptest::collection::vec(prop_oneof![0x1000u64..0x1600, 0x7000u64..0x7200, any::<u64>()], 0..64),
            ip in 0x1000u64..0x1600,
        ) {
            let mut code = Fake::default();
            for (i, (rules, r, n, signal)) in rows.into_iter().enumerate() {
                let row = Row { cfa: CfaRule::Register(r, n), rules: rules.into(), signal };
                code.0.insert(0x1000 + 0x100 * i as u64, row);
            }
            let regs = Regs { ip, sp: 0x7000, bp: 0x7020, ..Regs::default() };
            let (addresses, ..) = run(&mut code, regs, &words);
            prop_assert!(addresses.len() <= MAX_FRAMES && !addresses.is_empty());
        }

        #[test]
        fn any_expression(bytes in proptest::collection::vec(any::<u8>(), 0..40), copy in proptest::collection::vec(any::<u8>(), 0..40)) {
            let frame = FrameRegs::from(&Regs { sp: 0x7000, ..Regs::default() });
            evaluate(&bytes, Some(0x7000), &frame, &Memory { start: 0x7000, bytes: &copy });
        }
    }
}
