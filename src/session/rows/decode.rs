//! From columns to events.

use super::guess::{Positions, Switches};
use super::number::{Wait, Waker};
use super::{
    BURST, COMMON, DATA_FLAG, EXEC, EXIT, GROUPS, HOLD, IPC, LOST, MARK, MAX_COLUMNS, OFF_CPU, SAMPLE,
    SIGNAL, SPAWN, SYSCALL, UNHEARD, UNIT, UNSERVED, VIOLATION, WORK,
};
use crate::session::column::Col;
use pg_event::trace::How;
use pg_event::{
    Burst, Context, Direction, Display, Event, Hold, IpcUse, Kind, Ns, ObjectId, OffCpu, OffState, Relation,
    Sample, SeenBy, StackId, SyscallUse, Sysno, ThreadId, TraceId, UnitTypeId, Unserved, Violation, Work,
};

/// Reads payloads; keeps its buffers from one chunk to the next.
#[derive(Default)]
pub(in crate::session) struct Decoder {
    waits: Vec<Wait>,
    wakers: Vec<Waker>,
    switches: Switches,
}

impl Decoder {
    /// Append the events of a payload to `out`. `rows` is what the chunk's frame claims. Returns how many
    /// rows were of kinds that this version does not know. After an error `out` is as before.
    pub(in crate::session) fn decode(
        &mut self,
        payload: &[u8],
        rows: u32,
        out: &mut Vec<Event>,
    ) -> Result<u32, String> {
        let mut head = Col::new(payload);
        let n = head.u();
        if n != u64::from(rows) {
            return Err(format!("holds {n} rows instead of {rows}"));
        }
        let groups = head.u();
        let mut cols = [[Col::default(); MAX_COLUMNS]; GROUPS];

        for _ in 0..groups {
            let tag = head.u() as usize;
            let columns = head.u();
            for i in 0..columns {
                let len = head.u();
                let bytes = head.take(len);
                if head.is_bad() {
                    return Err("its columns are cut off".into());
                }
                if let Some(slot) = cols.get_mut(tag).and_then(|g| g.get_mut(i as usize)) {
                    *slot = Col::new(bytes);
                }
            }
            if head.is_bad() {
                return Err("its columns are cut off".into());
            }
        }
        let before = out.len();
        // One byte per row at least: what is reserved is bounded by what is there.
        out.reserve((rows as usize).min(payload.len()));
        self.waits.clear();
        self.wakers.clear();
        self.switches.clear();
        let mut positions = Positions::default();
        let mut time = 0u64;
        let mut unknown = 0;
        let [
            common,
            off,
            ipc,
            sys,
            sample,
            spawn,
            _,
            exit,
            signal,
            hold,
            flag,
            unit,
            mark,
            lost,
            work,
            unserved,
            burst,
            unheard,
            violation,
        ] = &mut cols;
        // Before format 1.5 nobody said.
        let has_stolen = !violation[8].is_empty();
        for _ in 0..rows {
            let tag = common[0].byte() as usize;
            time = time.wrapping_add(common[1].i() as u64);
            let thread = ThreadId(common[2].id());
            let cpu = common[3].u16();
            let kind = match tag {
                OFF_CPU => Kind::OffCpu(self.off_cpu(off, time, thread.0, cpu)),
                IPC => {
                    let object = ipc[0].id();
                    let direction = if ipc[1].flag() { Direction::Receive } else { Direction::Send };
                    let count = ipc[2].u32();
                    let bytes = ipc[3].u();
                    let first = time.wrapping_sub(ipc[4].u());
                    let position = positions.slot(object, direction);
                    *position = position.wrapping_add(ipc[5].i() as u64);
                    let position = *position;
                    Kind::Ipc(IpcUse { object: ObjectId(object), direction, count, bytes, first, position })
                }
                SYSCALL => Kind::Syscall(SyscallUse {
                    start: time.wrapping_sub(sys[0].u()),
                    nr: Sysno(sys[1].u16().wrapping_sub(1)),
                    result: sys[2].i(),
                    count: sys[3].u32(),
                    op: sys[4].u32(),
                    object: ObjectId(sys[5].id()),
                }),
                SAMPLE => Kind::Sample(Sample {
                    weight: sample[0].u(),
                    user_stack: StackId(sample[1].id()),
                    kernel_stack: StackId(sample[2].id()),
                }),
                SPAWN => Kind::Spawn { child: ThreadId(spawn[0].id()) },
                EXEC => Kind::Exec,
                EXIT => Kind::Exit { status: exit[0].u32() },
                SIGNAL => Kind::Signal { target: ThreadId(signal[0].id()), signal: signal[1].byte() },
                HOLD => {
                    let (object, subject) = (ObjectId(hold[0].id()), ThreadId(hold[1].id()));
                    let Some(relation) = Relation::from_u8(hold[2].byte()) else {
                        unknown += 1;
                        continue;
                    };
                    Kind::Hold(Hold { object, subject, relation })
                }
                DATA_FLAG => Kind::DataFlag {
                    object: ObjectId(flag[0].id()),
                    value: flag[1].u(),
                    write: flag[2].flag(),
                    stack: StackId(flag[3].id()),
                },
                UNIT => Kind::UnitBoundary { unit_type: UnitTypeId(unit[0].id()), begin: unit[1].flag() },
                UNHEARD => Kind::Unheard { since: time.wrapping_sub(unheard[0].u()) },
                MARK => Kind::Mark { number: mark[0].u32() },
                LOST => Kind::Lost {
                    since: time.wrapping_sub(lost[0].u()),
                    count: lost[1].u(),
                    ring: lost[2].byte(),
                },
                WORK => Kind::Work(Work {
                    object: ObjectId(work[0].id()),
                    requester: ThreadId(work[1].id()),
                    queued: time.wrapping_sub(work[2].u()),
                }),
                UNSERVED => {
                    let object = ObjectId(unserved[0].id());
                    let (since, until) =
                        (time.wrapping_sub(unserved[1].u()), time.wrapping_sub(unserved[2].u()));
                    let bytes = unserved[3].u();
                    let flags = unserved[4].byte();
                    let (open, arrived) = (flags & 1 != 0, flags & 2 != 0);
                    let display = Display::from_u8(flags >> 2);
                    Kind::Unserved(Unserved { object, since, until, bytes, open, arrived, display })
                }
                BURST => Kind::Burst(Burst {
                    start: time.wrapping_sub(burst[0].u()),
                    trace: TraceId(burst[1].id()),
                    steps: burst[2].u32(),
                    how: How::from_u8(burst[3].byte()),
                }),
                VIOLATION => Kind::Violation(Violation {
                    start: time.wrapping_sub(violation[0].u()),
                    elapsed: violation[1].u(),
                    threshold: violation[2].u(),
                    unit_type: UnitTypeId(violation[3].id()),
                    user_stack: StackId(violation[4].id()),
                    kernel_stack: StackId(violation[5].id()),
                    depth: violation[6].u32(),
                    at: SeenBy::from_u8(violation[7].byte()),
                    stolen: if has_stolen { violation[8].u() } else { 0 },
                }),
                COMMON => {
                    common[0].spoil();
                    break;
                }
                _ => {
                    unknown += 1;
                    continue;
                }
            };
            out.push(Event { time, thread, cpu, kind });
        }
        let bad = cols.iter().enumerate().find_map(|(g, c)| c.iter().position(Col::is_bad).map(|i| (g, i)));
        if let Some((group, column)) = bad {
            out.truncate(before);
            return Err(format!("column {column} of group {group} is too short or holds what cannot be"));
        }
        Ok(unknown)
    }

    #[inline]
    fn off_cpu(&mut self, c: &mut [Col<'_>; MAX_COLUMNS], time: Ns, thread: u32, cpu: u16) -> OffCpu {
        let flags = c[0].byte();
        let start = if flags & 0x80 == 0 {
            time.wrapping_sub(c[1].u())
        } else if let Some(left) = self.switches.left(thread) {
            left
        } else {
            c[0].spoil();
            0
        };
        self.switches.came(thread, cpu, time);
        let woken = match flags >> 5 & 3 {
            0 => start,
            1 => 0,
            _ => time.wrapping_sub(c[2].u()),
        };
        let value = c[3].u32();
        let timeout = c[4].u().wrapping_sub(1);
        let wait = match c[5].u() {
            0 => {
                let new = Wait {
                    syscall: c[7].u16().wrapping_sub(1),
                    op: c[8].u32(),
                    object: c[9].id(),
                    user_stack: c[10].id(),
                    kernel_stack: c[11].id(),
                };
                self.waits.push(new);
                Some(new)
            }
            n => self.waits.get(n as usize - 1).copied(),
        };
        let waker = match c[6].u() {
            0 => {
                let new = Waker {
                    thread: c[12].id(),
                    context: c[13].byte(),
                    syscall: c[14].u16().wrapping_sub(1),
                    object: c[15].id(),
                    stack: c[16].id(),
                };
                self.wakers.push(new);
                Some(new)
            }
            n => self.wakers.get(n as usize - 1).copied(),
        };
        let state = if flags >> 5 & 3 == 3 { OffState::Throttled } else { OffState::from_u8(flags & 7) };
        let mut off = OffCpu::new(start, woken, state);
        off.open = flags & 8 != 0;
        off.begun_before = flags & 16 != 0;
        off.value = value;
        off.timeout = timeout;
        if let Some(w) = wait {
            off.syscall = Sysno(w.syscall);
            off.op = w.op;
            off.object = ObjectId(w.object);
            off.user_stack = StackId(w.user_stack);
            off.kernel_stack = StackId(w.kernel_stack);
        } else {
            c[5].spoil();
        }
        if let Some(w) = waker {
            off.waker = ThreadId(w.thread);
            off.waker_context = Context::from_u8(w.context);
            off.waker_syscall = Sysno(w.syscall);
            off.waker_object = ObjectId(w.object);
            off.waker_stack = StackId(w.stack);
        } else {
            c[6].spoil();
        }
        off
    }
}
