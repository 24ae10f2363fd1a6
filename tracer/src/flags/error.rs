//! What can keep a data flag from being watched or found, with what to do about it.

/// Why a data flag cannot be watched or found.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FlagError {
    /// What was typed is not a flag.
    #[error(
        "`{0}` names no variable: write SYMBOL, SYMBOL+OFFSET or 0xADDRESS, and :1, :2, :4 or :8 for its bytes"
    )]
    Syntax(String),
    /// No process was named.
    #[error("in which process is {0}? Name it with -p PID, or write PID:{0}")]
    NoProcess(String),
    /// The process is not there, or may not be looked at.
    #[error("process {pid} cannot be looked at: {reason}")]
    Process {
        /// Its id.
        pid: u32,
        /// The system's words.
        reason: String,
    },
    /// There is no such process.
    #[error("there is no process {0}")]
    NoSuchProcess(u32),
    /// Somebody else's process.
    #[error("process {0} is somebody else's: run it with sudo")]
    NotYours(u32),
    /// No such variable.
    #[error(
        "process {pid} has no variable `{name}`, neither in its program nor in its libraries; a stripped program has \
         no names: give an address (0x...), as `pg-tui find-flag -p {pid}` prints it"
    )]
    NoSymbol {
        /// The process.
        pid: u32,
        /// What was asked for.
        name: String,
    },
    /// More than one variable of that name.
    #[error("process {pid} has several variables `{name}`, at {places}: give the address")]
    Ambiguous {
        /// The process.
        pid: u32,
        /// What was asked for.
        name: String,
        /// Where they are.
        places: String,
    },
    /// A thread-local variable.
    #[error(
        "`{0}` is a thread-local variable: each thread has its own; give the address of the one you mean"
    )]
    ThreadLocal(String),
    /// No memory there.
    #[error("process {pid} has no memory at 0x{address:x}")]
    NotMapped {
        /// The process.
        pid: u32,
        /// Where.
        address: u64,
    },
    /// The processor cannot watch these bytes.
    #[error(
        "the processor watches 1, 2, 4 or 8 bytes at an address that is a multiple of that; 0x{address:x} is no \
         multiple of {len}: watch fewer bytes"
    )]
    Unaligned {
        /// Where.
        address: u64,
        /// How many bytes.
        len: u8,
    },
    /// All breakpoints are in use.
    #[error(
        "{flag} cannot be watched: the processor watches four addresses in a thread at a time, and they are in use, by \
         {ours} of the flags named before it and by what else sets hardware breakpoints (a debugger)"
    )]
    TooMany {
        /// Which one was too many.
        flag: String,
        /// How many are ours.
        ours: usize,
    },
    /// The kernel refused.
    #[error("the kernel refused to {what}: {reason}")]
    Refused {
        /// What for.
        what: String,
        /// Its words.
        reason: String,
    },
}

impl FlagError {
    /// A file of a process in /proc cannot be read.
    pub(crate) fn of_process(pid: u32, e: &std::io::Error) -> Self {
        match e.kind() {
            std::io::ErrorKind::NotFound => Self::NoSuchProcess(pid),
            std::io::ErrorKind::PermissionDenied => Self::NotYours(pid),
            _ => Self::Process { pid, reason: e.to_string() },
        }
    }

    /// Would it work with more rights?
    pub fn is_refusal(&self) -> bool {
        matches!(self, Self::Refused { .. } | Self::NotYours(_))
    }
}
