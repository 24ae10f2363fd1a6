//! Bytes as the BPF programs write them, read field by field with every bound checked.

use super::{Again, Call, Name, Off, RawObject, Record, Run, SET_MAX, StackCopy, Use, Waker, Work};
use crate::collector::compat::native;
use crate::stacks::{PT_REGS, RawFrame};

const NAME_BYTES: usize = 64;
const NAME_LEVELS: usize = 8;
const KFRAMES: usize = 48;
/// Most frames of `struct rec_python`.
const PY_FRAMES: usize = 48;
const ARGV_BYTES: usize = 2048;
/// Size of `stack_head`: the bytes of the stack follow it.
const STACK_HEAD: usize = 208;
/// Size of `rec_off`.
const OFF: usize = 128;
/// Size of `rec_run`.
const RUN: usize = 48;
/// Size of `rec_again`.
const AGAIN: usize = 32;
/// Size of `rec_rewoken`.
const REWOKEN: usize = 72;

/// Sizes of the records, in the order of their types; asserted in `bpf/records.h` too.
#[cfg(test)]
const SIZES: [(&str, usize); 15] = [
    ("rec_off", OFF),
    ("rec_run", RUN),
    ("rec_name", 536),
    ("rec_set", 784),
    ("rec_kstack", 400),
    ("rec_fork", 40),
    ("rec_exec", 2088),
    ("rec_exit", 24),
    ("rec_rename", 40),
    ("rec_signal", 32),
    ("stack_head", STACK_HEAD),
    ("rec_use", 64),
    ("rec_call", 64),
    ("rec_again", AGAIN),
    ("rec_rewoken", REWOKEN),
];

struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    #[inline]
    fn array<const N: usize>(&self, at: usize) -> Option<[u8; N]> {
        self.0.get(at..at.checked_add(N)?)?.try_into().ok()
    }
    #[inline]
    fn u8(&self, at: usize) -> Option<u8> {
        self.0.get(at).copied()
    }
    #[inline]
    fn u16(&self, at: usize) -> Option<u16> {
        self.array(at).map(u16::from_le_bytes)
    }
    #[inline]
    fn u32(&self, at: usize) -> Option<u32> {
        self.array(at).map(u32::from_le_bytes)
    }
    #[inline]
    fn u64(&self, at: usize) -> Option<u64> {
        self.array(at).map(u64::from_le_bytes)
    }
    fn slice(&self, at: usize, len: usize) -> Option<&[u8]> {
        self.0.get(at..at.checked_add(len)?)
    }
    #[inline]
    fn object(&self, kind: usize, at: usize) -> Option<RawObject> {
        Some(RawObject { kind: self.u8(kind)?, id: self.u64(at)?, peer: self.u64(at + 8)? })
    }
}

fn until_nul(bytes: &[u8]) -> Vec<u8> {
    bytes.iter().copied().take_while(|&b| b != 0).collect()
}

/// Is this record about the life of a process: a fork, an exec, an exit?
pub fn is_life(bytes: &[u8]) -> bool {
    matches!(bytes.first(), Some(6..=8))
}

/// Is this record of an exec?
pub fn is_exec(bytes: &[u8]) -> bool {
    bytes.first() == Some(&7)
}

/// Of a record in a lane its time (`CLOCK_MONOTONIC`) and its length; `None` when the next block goes on.
#[inline]
pub fn of_lane(bytes: &[u8]) -> Option<(u64, usize)> {
    let len = match bytes.first()? {
        1 => OFF,
        2 => RUN,
        15 => AGAIN,
        16 => REWOKEN,
        _ => return None,
    };
    Some((Bytes(bytes.get(..len)?).u64(8)?, len))
}

/// Up to when (`CLOCK_MONOTONIC`) intervals must be known before this record of the ring is taken: it is about
/// the life of a thread. 0 for others, which carry what later records name.
pub fn comes_after(bytes: &[u8]) -> u64 {
    if matches!(bytes.first(), Some(6..=9)) { Bytes(bytes).u64(8).unwrap_or(0) } else { 0 }
}

/// `CLOCK_MONOTONIC` of a stack copy, without reading all of it.
pub fn stack_time(bytes: &[u8]) -> u64 {
    Bytes(bytes).u64(8).unwrap_or(0)
}

/// Reads one of the records that nearly all are: an interval off the CPU.
#[allow(clippy::inline_always)] // else the record is copied several times
#[inline(always)]
pub fn parse_off(bytes: &[u8]) -> Option<Off> {
    let b: &[u8; OFF] = bytes.get(..OFF)?.try_into().ok()?;
    if b[0] != 1 {
        return None;
    }
    off(&Bytes(b))
}

/// Reads the other frequent one: an interval like the last one of its thread.
pub fn parse_again(bytes: &[u8]) -> Option<Again> {
    let kind = *bytes.first()?;
    if kind != 15 && kind != 16 {
        return None;
    }
    let b = Bytes(bytes.get(..AGAIN)?);
    let time = b.u64(8)?;
    let rewoken = (kind == 16).then(|| {
        let b = Bytes(bytes.get(..REWOKEN)?);
        Some(Waker {
            tid: b.u32(56)?,
            tgid: b.u32(60)?,
            call: b.u16(64)?,
            context: b.u8(66)?,
            object: RawObject { kind: b.u8(67)?, id: b.u64(32)?, peer: b.u64(40)? },
            stack: b.u64(48)?,
        })
    });
    Some(Again {
        cpu: b.u16(2)?,
        tid: b.u32(4)?,
        time,
        start: time.saturating_sub(u64::from(b.u32(16)?)),
        woken: time.saturating_sub(u64::from(b.u32(20)?)),
        kernel_stack: b.u64(24)?,
        rewoken: match rewoken {
            Some(waker) => Some(waker?),
            None => None,
        },
    })
}

/// Reads an interval off the CPU though runnable.
#[inline]
pub fn parse_run(bytes: &[u8]) -> Option<Run> {
    let b: &[u8; RUN] = bytes.get(..RUN)?.try_into().ok()?;
    if b[0] != 2 {
        return None;
    }
    let b = Bytes(b);
    Some(Run {
        flags: b.u8(1)?,
        cpu: b.u16(2)?,
        tid: b.u32(4)?,
        time: b.u64(8)?,
        start: b.u64(16)?,
        tgid: b.u32(24)?,
        call: native(b.u16(28)?),
        woken: b.u64(32)?,
        user_stack: b.u64(40)?,
    })
}

/// Reads a record. `None` when it is too short or its type is unknown.
pub fn parse(bytes: &[u8]) -> Option<Record> {
    let b = Bytes(bytes);
    Some(match b.u8(0)? {
        1 => Record::Off(off(&b)?),
        2 => Record::Run(parse_run(bytes)?),
        3 => Record::Name { object: b.object(1, 8)?, name: name(&b)? },
        4 => {
            let count = usize::from(b.u16(2)?).min(SET_MAX);
            let members = (0..count)
                .map(|i| {
                    let at = 16 + i * 24;
                    Some(RawObject { id: b.u64(at)?, peer: b.u64(at + 8)?, kind: b.u32(at + 16)? as u8 })
                })
                .collect::<Option<_>>()?;
            Record::Set { kind: b.u8(1)?, id: b.u64(8)?, more: b.u32(4)?, members }
        }
        5 => {
            let count = (b.u32(4)? as usize).min(KFRAMES);
            let frames = (0..count).map(|i| b.u64(16 + i * 8)).collect::<Option<_>>()?;
            Record::KernelStack { hash: b.u64(8)?, frames }
        }
        6 => Record::Fork {
            cpu: b.u16(2)?,
            tid: b.u32(4)?,
            time: b.u64(8)?,
            child: b.u32(16)?,
            child_tgid: b.u32(20)?,
            comm: b.array(24)?,
        },
        7 => Record::Exec {
            cpu: b.u16(2)?,
            tid: b.u32(4)?,
            time: b.u64(8)?,
            tgid: b.u32(16)?,
            comm: b.array(24)?,
            argv: b.slice(40, (b.u32(20)? as usize).min(ARGV_BYTES))?.to_vec(),
        },
        8 => Record::Exit {
            cpu: b.u16(2)?,
            tid: b.u32(4)?,
            time: b.u64(8)?,
            tgid: b.u32(16)?,
            status: b.u32(20)?,
        },
        9 => Record::Rename { tid: b.u32(4)?, time: b.u64(8)?, tgid: b.u32(16)?, comm: b.array(24)? },
        10 => Record::Signal {
            signal: b.u8(1)?,
            cpu: b.u16(2)?,
            tid: b.u32(4)?,
            time: b.u64(8)?,
            tgid: b.u32(16)?,
            target: b.u32(20)?,
            target_tgid: b.u32(24)?,
        },
        11 => Record::UserStack(stack(&b)?),
        12 => Record::Sample(stack(&b)?),
        13 => Record::Use(Use {
            receive: b.u8(2)? != 0,
            tid: b.u32(4)?,
            first: b.u64(8)?,
            last: b.u64(16)?,
            tgid: b.u32(24)?,
            count: b.u32(28)?,
            bytes: b.u64(32)?,
            position: b.u64(40)?,
            object: b.object(1, 48)?,
        }),
        14 => Record::Call(Call {
            call: native(b.u16(2)?),
            tid: b.u32(4)?,
            start: b.u64(8)?,
            end: b.u64(16)?,
            result: b.u64(24)? as i64,
            tgid: b.u32(32)?,
            count: b.u32(36)?,
            op: b.u32(40)?,
            object: b.object(1, 48)?,
        }),
        15 | 16 => Record::Again(parse_again(bytes)?),
        17 => Record::Work(Work {
            cpu: b.u16(2)?,
            tid: b.u32(4)?,
            time: b.u64(8)?,
            tgid: b.u32(16)?,
            requester: b.u32(20)?,
            requester_tgid: b.u32(24)?,
            queued: b.u64(32)?,
            object: RawObject { kind: pg_event::ObjectKind::Work as u8, id: b.u64(40)?, peer: 0 },
        }),
        18 => {
            let count = usize::from(b.u16(2)?).min(PY_FRAMES);
            let frame = |i: usize| {
                let at = 16 + i * 24;
                Some(RawFrame { code: b.u64(at)?, instruction: b.u64(at + 8)?, marks: b.u64(at + 16)? })
            };
            let frames = (0..count).map(frame).collect::<Option<Vec<_>>>()?;
            Record::Python {
                tid: b.u32(4)?,
                time: b.u64(8)?,
                whole: b.u8(1)? != 0 || count == PY_FRAMES,
                frames,
            }
        }
        _ => return None,
    })
}

#[allow(clippy::inline_always)] // else the record is copied several times
#[inline(always)]
fn off(b: &Bytes) -> Option<Off> {
    Some(Off {
        state: b.u8(1)?,
        context: b.u8(2)?,
        flags: b.u8(3)?,
        tid: b.u32(4)?,
        time: b.u64(8)?,
        start: b.u64(16)?,
        woken: b.u64(24)?,
        tgid: b.u32(32)?,
        waker: b.u32(36)?,
        waker_tgid: b.u32(40)?,
        call: native(b.u16(44)?),
        waker_call: native(b.u16(46)?),
        cpu: b.u16(48)?,
        op: b.u32(52)?,
        value: b.u32(56)?,
        fd: b.u32(60)?,
        timeout: b.u64(64)?,
        object: b.object(50, 72)?,
        waker_object: b.object(51, 88)?,
        user_stack: b.u64(104)?,
        kernel_stack: b.u64(112)?,
        waker_stack: b.u64(120)?,
    })
}

fn name(b: &Bytes) -> Option<Name> {
    let len = b.u32(4)? as usize;
    let text = b.slice(24, NAME_BYTES * NAME_LEVELS)?;
    Some(match b.u8(2)? {
        0 => {
            let slots = (len & 0xff).min(NAME_LEVELS);
            Name::Path(text.chunks(NAME_BYTES).take(slots).map(until_nul).collect(), len & 0x100 == 0)
        }
        1 => Name::Unix(text.get(..(len & 0xff).min(108))?.to_vec(), len & 0x100 != 0),
        2 => Name::Inet6(text.get(..16)?.try_into().ok()?, text.get(16..32)?.try_into().ok()?),
        3 => Name::Text(until_nul(text.get(..len.min(text.len()))?)),
        _ => return None,
    })
}

fn stack(b: &Bytes) -> Option<StackCopy> {
    let mut regs = [0; PT_REGS];
    for (i, r) in regs.iter_mut().enumerate() {
        *r = b.u64(40 + i * 8)?;
    }
    Some(StackCopy {
        flags: b.u8(1)?,
        cpu: b.u16(2)?,
        tid: b.u32(4)?,
        time: b.u64(8)?,
        tgid: b.u32(16)?,
        key: b.u64(24)?,
        kernel_stack: b.u64(32)?,
        regs,
        data: b.slice(STACK_HEAD, b.u32(20)? as usize)?.to_vec(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collector::raw::K_NONE;

    fn put(to: &mut [u8], at: usize, bytes: &[u8]) {
        to[at..at + bytes.len()].copy_from_slice(bytes);
    }

    #[test]
    fn sizes_agree_with_the_header() {
        let header = include_str!("../../../bpf/records.h");
        for (name, size) in SIZES {
            assert!(header.contains(&format!("SAME({name}, {size});")), "{name} {size}");
        }
    }

    #[test]
    fn an_interval() {
        let mut r = vec![0; 128];
        put(&mut r, 0, &[1, 2, 5, 4]);
        put(&mut r, 4, &77u32.to_le_bytes());
        put(&mut r, 8, &300u64.to_le_bytes());
        put(&mut r, 16, &100u64.to_le_bytes());
        put(&mut r, 24, &200u64.to_le_bytes());
        put(&mut r, 36, &88u32.to_le_bytes());
        put(&mut r, 44, &7u16.to_le_bytes());
        put(&mut r, 46, &0xffffu16.to_le_bytes());
        put(&mut r, 50, &[2, 255]);
        put(&mut r, 72, &4711u64.to_le_bytes());
        put(&mut r, 120, &9u64.to_le_bytes());
        let Some(Record::Off(o)) = parse(&r) else { panic!("no interval") };
        assert_eq!(parse_off(&r), Some(o));
        assert_eq!(parse_off(&r[..127]), None);
        assert_eq!((o.state, o.context, o.flags, o.tid, o.waker), (2, 5, 4, 77, 88));
        assert_eq!((o.start, o.woken, o.time, o.call, o.waker_call), (100, 200, 300, 7, 0xffff));
        assert_eq!(o.object, RawObject { kind: 2, id: 4711, peer: 0 });
        assert_eq!((o.waker_object.kind, o.waker_stack), (K_NONE, 9));
    }

    #[test]
    fn intervals_like_the_last_one() {
        let mut r = vec![0; REWOKEN];
        put(&mut r, 0, &[16, 0, 3, 0]);
        put(&mut r, 4, &77u32.to_le_bytes());
        put(&mut r, 8, &9000u64.to_le_bytes());
        put(&mut r, 16, &500u32.to_le_bytes());
        put(&mut r, 20, &100u32.to_le_bytes());
        put(&mut r, 32, &4711u64.to_le_bytes());
        put(&mut r, 56, &88u32.to_le_bytes());
        put(&mut r, 66, &[1, 2]);
        let again = parse_again(&r).unwrap();
        assert_eq!((again.cpu, again.tid, again.time, again.start, again.woken), (3, 77, 9000, 8500, 8900));
        let waker = again.rewoken.unwrap();
        assert_eq!((waker.tid, waker.context, waker.object.kind, waker.object.id), (88, 1, 2, 4711));
        assert_eq!(parse(&r), Some(Record::Again(again)));
        assert_eq!(parse_again(&r[..REWOKEN - 1]), None);
        r[0] = 15;
        put(&mut r, 20, &20u32.to_le_bytes());
        let same = parse_again(&r[..AGAIN]).unwrap();
        assert_eq!((same.woken, same.rewoken), (8980, None));

        let mut first = vec![0; OFF];
        put(&mut first, 0, &[1, 1, 1, 0]);
        put(&mut first, 36, &99u32.to_le_bytes());
        put(&mut first, 112, &5u64.to_le_bytes());
        let first = parse_off(&first).unwrap();
        let off = first.again(&same);
        assert_eq!((off.time, off.start, off.woken, off.waker, off.kernel_stack), (9000, 8500, 8980, 99, 0));
        assert_eq!(first.again(&again).waker, 88);
    }

    #[test]
    fn cut_off_records_and_unknown_types_are_refused() {
        for (kind, (_, size)) in SIZES.iter().enumerate() {
            // Types 11 and 12 share `stack_head`.
            let kind = if kind >= 11 { kind + 2 } else { kind + 1 };
            let mut r = vec![0; *size];
            r[0] = kind as u8;
            assert!(parse(&r).is_some(), "type {kind}");
            for cut in 0..8 {
                assert!(parse(&r[..cut]).is_none(), "type {kind} cut to {cut}");
            }
        }
        assert_eq!(parse(&[]), None);
        assert_eq!(parse(&[99; 256]), None);
    }

    #[test]
    fn lengths_in_records_are_not_trusted() {
        let mut r = vec![0; STACK_HEAD + 100];
        r[0] = 11;
        put(&mut r, 20, &100u32.to_le_bytes());
        assert!(matches!(parse(&r), Some(Record::UserStack(s)) if s.data.len() == 100));
        put(&mut r, 20, &u32::MAX.to_le_bytes());
        assert_eq!(parse(&r), None);
        let mut set = vec![0; 784];
        set[0] = 4;
        put(&mut set, 2, &u16::MAX.to_le_bytes());
        assert!(matches!(parse(&set), Some(Record::Set { members, .. }) if members.len() == SET_MAX));
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..900)) {
            let _ = parse(&bytes);
        }
    }
}
