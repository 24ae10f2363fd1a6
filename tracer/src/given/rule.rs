//! Which uses of a system call begin and end units.

use iced_x86::Register;
use pg_event::{POLLS, Sysno};

/// What a call must have given for a unit to begin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Gave {
    /// More than 0: bytes, descriptors that are ready, a number of a signal.
    Something,
    /// No error: its success may be 0.
    NoError,
    /// It gives nothing but the error that a signal came.
    Anything,
}

/// Calls of which only some wait, told by their arguments.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Waiting {
    /// `io_uring_enter` hands requests in, waits for completions, or both.
    Ring,
    /// `futex` waits and wakes.
    Futex,
}

/// What has to be so at a place of a system call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AtCall {
    /// Behind the call: what it must have given. `None` where it is made.
    pub gave: Option<Gave>,
    /// Only calls that wait. `None`: all, or the arguments cannot be read there.
    pub waits: Option<Waiting>,
    /// It is made by `syscall(2)`: before that the arguments are where functions have them, behind the number.
    pub by_function: bool,
}

/// What a call gives when what it waits for is there (section 2 of the manual, each under RETURN VALUE).
pub(super) fn gave(call: Sysno) -> Gave {
    /// 0 is the end of a file, the end of a connection, or that the time is over.
    const SOMETHING: [&str; 11] = [
        "read",
        "readv",
        "pread64",
        "preadv",
        "preadv2",
        "recvfrom",
        "recvmsg",
        "recvmmsg",
        "splice",
        "rt_sigtimedwait",
        "wait4",
    ];
    if call.is_any(&SOMETHING) || call.is_any(&POLLS) {
        Gave::Something
    } else if call.is_any(&["pause", "rt_sigsuspend"]) {
        Gave::Anything
    } else {
        Gave::NoError
    }
}

/// Whether only some of a call's uses wait.
pub(super) fn waits(call: Sysno) -> Option<Waiting> {
    if call.is_any(&["io_uring_enter"]) {
        Some(Waiting::Ring)
    } else {
        call.is_any(&["futex"]).then_some(Waiting::Futex)
    }
}

impl Waiting {
    /// The registers of the arguments that tell, as the kernel takes them.
    pub(super) fn registers(self) -> &'static [Register] {
        match self {
            Self::Ring => &[Register::RDX, Register::R10],
            Self::Futex => &[Register::RSI],
        }
    }
}
