//! Traces of instructions as columns: catalogue rows in chunks of their own. Payload: rows, then length and bytes of
//! each column. A recording has few traces, but one has thousands of instructions and of blocks executed.

use super::column::{Col, Out, columns};
use pg_event::trace::{BurstEnd, Flow, How, Instruction, Mark, MarkKind, Run};
use pg_event::{FrameId, StackId, Sysno, Trace, TraceId};

/// Per trace: id, how, end, stack, and how many instructions, blocks, runs and marks it has.
const HEADS: usize = 0;
/// Frames, as differences.
const FRAMES: usize = 1;
/// Flow and length in a byte.
const SHAPES: usize = 2;
/// Bytes of the instructions.
const CODE: usize = 3;
/// Lengths of the blocks.
const BLOCKS: usize = 4;
/// Block (as difference) and times.
const RUNS: usize = 5;
/// Step (as difference), kind, values.
const MARKS: usize = 6;
const COLUMNS: usize = 7;

const SYSCALL: u8 = 0;
const SYSCALL_OPEN: u8 = 1;
const RETURNED: u8 = 2;
const SIGNAL: u8 = 3;

/// The payload of these rows.
pub(super) fn encode(traces: &[(TraceId, Trace)]) -> Vec<u8> {
    let mut c: [Out; COLUMNS] = std::array::from_fn(|_| Out::default());
    for (id, t) in traces {
        let [heads, frames, shapes, code, blocks, runs, marks] = &mut c;
        heads.u(u64::from(id.0));
        heads.byte(t.how as u8);
        heads.byte(t.end as u8);
        heads.id(t.stack.0);
        for n in [t.code.len(), t.blocks.len(), t.runs.len(), t.marks.len()] {
            heads.u(n as u64);
        }
        let mut before = 0i64;
        for i in &t.code {
            // As ids are: none is 0.
            let frame = i64::from(i.frame.0.wrapping_add(1));
            frames.i(frame - before);
            before = frame;
            shapes.byte((i.flow as u8) << 4 | i.code().len() as u8);
            code.extend(i.code());
        }
        for n in 0..t.blocks.len() {
            blocks.u(t.block(n as u32).len() as u64);
        }
        let mut before = 0;
        for r in &t.runs {
            runs.i(i64::from(r.block) - before);
            runs.u(u64::from(r.times));
            before = i64::from(r.block);
        }
        let mut before = 0;
        for m in &t.marks {
            marks.u(u64::from(m.step.wrapping_sub(before)));
            before = m.step;
            match m.what {
                MarkKind::Syscall(nr, Some(result)) => {
                    marks.byte(SYSCALL);
                    marks.u(u64::from(nr.0));
                    marks.i(result);
                }
                MarkKind::Syscall(nr, None) => {
                    marks.byte(SYSCALL_OPEN);
                    marks.u(u64::from(nr.0));
                }
                MarkKind::Returned(value) => {
                    marks.byte(RETURNED);
                    marks.u(value);
                }
                MarkKind::Signal(n) => {
                    marks.byte(SIGNAL);
                    marks.byte(n);
                }
            }
        }
    }
    let mut out = Out::default();
    out.u(traces.len() as u64);
    for column in &c {
        out.u(column.bytes().len() as u64);
        out.extend(column.bytes());
    }
    out.into_bytes()
}

/// The rows of a payload: each is whole and within its bounds.
pub(super) fn decode(payload: &[u8]) -> Result<Vec<(TraceId, Trace)>, String> {
    let (rows, mut c) = columns::<COLUMNS>(payload)?;
    let mut out = Vec::new();
    for _ in 0..rows {
        out.push(row(&mut c, payload.len() as u64)?);
    }
    Ok(out)
}

fn row(c: &mut [Col<'_>; COLUMNS], most: u64) -> Result<(TraceId, Trace), String> {
    let bad = || "its columns are too short or hold what cannot be".to_owned();
    let heads = &mut c[HEADS];
    let id = TraceId(heads.u32());
    let (how, end) = (How::from_u8(heads.byte()), BurstEnd::from_u8(heads.byte()));
    let stack = StackId(heads.id());
    let counts = [heads.u(), heads.u(), heads.u(), heads.u()];
    // Each of them takes a byte at least: what is claimed is bounded by what is there.
    if heads.is_bad() || counts.iter().any(|n| *n > most) {
        return Err(bad());
    }
    let mut t = Trace { how, end, stack, ..Trace::default() };
    let mut frame = 0i64;
    for _ in 0..counts[0] {
        frame = frame.wrapping_add(c[FRAMES].i());
        let shape = c[SHAPES].byte();
        let flow = Flow::from_u8(shape >> 4).ok_or_else(bad)?;
        let bytes = c[CODE].take(u64::from(shape & 15));
        let number = u32::try_from(frame).map_err(|_| bad())?;
        t.code.push(Instruction::new(FrameId(number.wrapping_sub(1)), flow, bytes));
        if c[FRAMES].is_bad() || c[SHAPES].is_bad() || c[CODE].is_bad() {
            return Err(bad());
        }
    }
    let mut at = 0u64;
    for _ in 0..counts[1] {
        t.blocks.push(u32::try_from(at).map_err(|_| bad())?);
        at = at.saturating_add(c[BLOCKS].u());
        if c[BLOCKS].is_bad() || at > counts[0] {
            return Err(bad());
        }
    }
    if at != counts[0] {
        return Err("its blocks do not fill its code".into());
    }
    let mut block = 0i64;
    for _ in 0..counts[2] {
        block = block.wrapping_add(c[RUNS].i());
        t.runs.push(Run { block: u32::try_from(block).map_err(|_| bad())?, times: c[RUNS].u32() });
        if c[RUNS].is_bad() {
            return Err(bad());
        }
    }
    let mut step = 0u32;
    for _ in 0..counts[3] {
        let m = &mut c[MARKS];
        step = step.checked_add(m.u32()).ok_or_else(bad)?;
        let what = match m.byte() {
            SYSCALL => MarkKind::Syscall(Sysno(m.u16()), Some(m.i())),
            SYSCALL_OPEN => MarkKind::Syscall(Sysno(m.u16()), None),
            RETURNED => MarkKind::Returned(m.u()),
            SIGNAL => MarkKind::Signal(m.byte()),
            _ => return Err(bad()),
        };
        if m.is_bad() {
            return Err(bad());
        }
        t.marks.push(Mark { step, what });
    }
    t.check()?;
    Ok((id, t))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn mark() -> impl Strategy<Value = MarkKind> {
        prop_oneof![
            (any::<u16>(), any::<Option<i64>>()).prop_map(|(n, r)| MarkKind::Syscall(Sysno(n), r)),
            any::<u64>().prop_map(MarkKind::Returned),
            any::<u8>().prop_map(MarkKind::Signal),
        ]
    }

    /// Blocks of 1 to 4 instructions, executed a few times each.
    fn trace() -> impl Strategy<Value = (TraceId, Trace)> {
        let one =
            (any::<u32>(), 0u8..5, proptest::collection::vec(any::<u8>(), 0..16)).prop_map(|(f, flow, b)| {
                Instruction::new(FrameId(f), Flow::from_u8(flow).unwrap_or_default(), &b)
            });
        let blocks = proptest::collection::vec(proptest::collection::vec(one, 1..5), 0..6);
        let runs = proptest::collection::vec((any::<prop::sample::Index>(), 1u32..2000), 0..12);
        let marks = proptest::collection::vec((0u32..9, mark()), 0..8);
        (any::<u32>(), 0u8..3, 0u8..7, any::<u32>(), blocks, runs, marks).prop_map(
            |(id, how, end, stack, blocks, runs, marks)| {
                let mut t = Trace {
                    how: How::from_u8(how),
                    end: BurstEnd::from_u8(end),
                    stack: StackId(stack),
                    ..Trace::default()
                };
                for b in &blocks {
                    t.blocks.push(t.code.len() as u32);
                    t.code.extend(b);
                }
                if !blocks.is_empty() {
                    let run = |(i, times): (prop::sample::Index, u32)| Run {
                        block: i.index(blocks.len()) as u32,
                        times,
                    };
                    t.runs.extend(runs.into_iter().map(run));
                }
                let mut step = 0;
                for (by, what) in marks {
                    step += by;
                    t.marks.push(Mark { step, what });
                }
                (TraceId(id), t)
            },
        )
    }

    proptest! {
        #[test]
        fn traces_come_back(traces in proptest::collection::vec(trace(), 0..4)) {
            prop_assert_eq!(decode(&encode(&traces)), Ok(traces));
        }

        #[test]
        fn damage_ends_in_an_error_or_in_a_trace_that_is_whole(
            traces in proptest::collection::vec(trace(), 1..3),
            flips in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
            cut in any::<prop::sample::Index>(),
        ) {
            let mut payload = encode(&traces);
            for (i, b) in flips { let i = i.index(payload.len()); payload[i] ^= b; }
            for (_, t) in decode(&payload).unwrap_or_default() {
                prop_assert_eq!(t.check(), Ok(()));
            }
            payload.truncate(cut.index(payload.len()));
            let _ = decode(&payload);
        }
    }

    #[test]
    fn a_long_loop_takes_few_bytes_and_an_endless_one_is_refused() {
        let code = vec![Instruction::new(FrameId(1), Flow::Jump, &[0xeb, 0xfe])];
        let looped = |times| {
            let t = Trace {
                code: code.clone(),
                blocks: vec![0],
                runs: vec![Run { block: 0, times }],
                ..Trace::default()
            };
            encode(&[(TraceId(0), t)])
        };
        assert!(looped(1 << 20).len() < 40);
        assert_eq!(decode(&looped(1 << 20)).map(|t| t[0].1.steps()), Ok(1 << 20));
        assert!(decode(&looped(1 << 21)).is_err_and(|e| e.contains("at most")));
    }
}
