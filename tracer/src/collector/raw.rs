//! Records of the BPF programs (`bpf/records.h`). How they are read from bytes is in `raw/parse.rs`.

mod parse;

pub use parse::{
    comes_after, is_exec, is_life, of_lane, parse, parse_again, parse_off, parse_run, stack_time,
};

use crate::stacks::{PT_REGS, RawFrame};

/// Most members of a set record.
pub const SET_MAX: usize = 32;

/// A kernel thread.
pub const F_KERNEL: u8 = 1;
/// The wait had begun before the recording.
pub const F_SEEDED: u8 = 2;
/// The recording ends, the wait goes on.
pub const F_OPEN: u8 = 4;
/// The wait has become long and goes on.
pub const F_LONG: u8 = 8;
/// Runnable, but a quota of CPU time kept it off.
pub const F_THROTTLED: u8 = 16;
/// "No object" among the kinds.
pub const K_NONE: u8 = 255;

/// An object as a record names it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct RawObject {
    /// Number of the `pg_event::ObjectKind`, [`K_NONE`] for none.
    pub kind: u8,
    /// Identity.
    pub id: u64,
    /// The other end's identity.
    pub peer: u64,
}

/// An interval off the CPU.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Off {
    pub state: u8,
    pub context: u8,
    pub flags: u8,
    pub tid: u32,
    pub tgid: u32,
    pub time: u64,
    pub start: u64,
    pub woken: u64,
    pub waker: u32,
    pub waker_tgid: u32,
    pub call: u16,
    pub waker_call: u16,
    pub cpu: u16,
    pub op: u32,
    pub value: u32,
    pub fd: u32,
    pub timeout: u64,
    pub object: RawObject,
    pub waker_object: RawObject,
    pub user_stack: u64,
    pub kernel_stack: u64,
    pub waker_stack: u64,
}

/// An interval like the last one of its thread, but for what is here.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Again {
    pub cpu: u16,
    pub tid: u32,
    pub time: u64,
    pub start: u64,
    pub woken: u64,
    pub kernel_stack: u64,
    /// Who woke it, when that is not who woke it the last time.
    pub rewoken: Option<Waker>,
}

/// Who woke a thread, and by what.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Waker {
    pub tid: u32,
    pub tgid: u32,
    pub call: u16,
    pub context: u8,
    pub object: RawObject,
    pub stack: u64,
}

impl Off {
    /// The interval that `again` stands for, when this was the thread's last one.
    pub fn again(&self, again: &Again) -> Self {
        let mut off = Self {
            cpu: again.cpu,
            time: again.time,
            start: again.start,
            woken: again.woken,
            kernel_stack: again.kernel_stack,
            ..*self
        };
        if let Some(w) = again.rewoken {
            off.context = w.context;
            off.waker = w.tid;
            off.waker_tgid = w.tgid;
            off.waker_call = w.call;
            off.waker_object = w.object;
            off.waker_stack = w.stack;
        }
        off
    }
}

/// Off the CPU though runnable.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Run {
    pub flags: u8,
    pub cpu: u16,
    pub tid: u32,
    pub tgid: u32,
    pub time: u64,
    pub start: u64,
    pub woken: u64,
    pub call: u16,
    pub user_stack: u64,
}

/// An object's name.
#[derive(Clone, PartialEq, Debug)]
pub enum Name {
    /// Path components, the leaf first; whether the root was reached.
    Path(Vec<Vec<u8>>, bool),
    /// `sun_path`, whose first byte may be NUL; whether it is that of what the socket connected to.
    Unix(Vec<u8>, bool),
    /// Local and remote IPv6 address.
    Inet6([u8; 16], [u8; 16]),
    /// As given to a system call.
    Text(Vec<u8>),
}

/// Registers, and a piece of stack from the stack pointer upwards.
#[derive(Clone, PartialEq, Debug)]
pub struct StackCopy {
    pub flags: u8,
    pub cpu: u16,
    pub tid: u32,
    pub tgid: u32,
    pub time: u64,
    pub key: u64,
    pub kernel_stack: u64,
    /// In the order of `struct pt_regs`.
    pub regs: [u64; PT_REGS],
    pub data: Vec<u8>,
}

/// Messages over one object.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Use {
    pub tid: u32,
    pub tgid: u32,
    pub receive: bool,
    pub first: u64,
    pub last: u64,
    pub count: u32,
    pub bytes: u64,
    pub position: u64,
    pub object: RawObject,
}

/// Equal system calls in a row.
#[allow(clippy::struct_field_names)] // `call` is what the others call it, too.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Call {
    pub call: u16,
    pub tid: u32,
    pub tgid: u32,
    pub start: u64,
    pub end: u64,
    pub result: i64,
    pub count: u32,
    pub op: u32,
    pub object: RawObject,
}

/// What a kernel worker does, and for whom.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Work {
    pub cpu: u16,
    pub tid: u32,
    pub tgid: u32,
    pub time: u64,
    pub requester: u32,
    pub requester_tgid: u32,
    pub queued: u64,
    pub object: RawObject,
}

/// One record.
#[derive(Clone, PartialEq, Debug)]
pub enum Record {
    Work(Work),
    /// Python frames of the sample that follows; `whole`: as many as there are, or as fit.
    Python {
        tid: u32,
        time: u64,
        whole: bool,
        frames: Vec<RawFrame>,
    },
    Off(Off),
    Run(Run),
    Name {
        object: RawObject,
        name: Name,
    },
    /// Members of a set or an epoll instance; how many more there are.
    Set {
        kind: u8,
        id: u64,
        more: u32,
        members: Vec<RawObject>,
    },
    KernelStack {
        hash: u64,
        frames: Vec<u64>,
    },
    Fork {
        cpu: u16,
        tid: u32,
        time: u64,
        child: u32,
        child_tgid: u32,
        comm: [u8; 16],
    },
    Exec {
        cpu: u16,
        tid: u32,
        time: u64,
        tgid: u32,
        comm: [u8; 16],
        argv: Vec<u8>,
    },
    Exit {
        cpu: u16,
        tid: u32,
        time: u64,
        tgid: u32,
        status: u32,
    },
    Rename {
        tid: u32,
        time: u64,
        tgid: u32,
        comm: [u8; 16],
    },
    Signal {
        cpu: u16,
        tid: u32,
        time: u64,
        tgid: u32,
        signal: u8,
        target: u32,
        target_tgid: u32,
    },
    UserStack(StackCopy),
    Sample(StackCopy),
    Use(Use),
    Call(Call),
    Again(Again),
}
