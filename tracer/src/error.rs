//! What can keep the recorder from recording, with the remedy.

/// Why recording is not possible, or stopped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The process lacks rights.
    #[error("not permitted to trace the system: missing: {missing}\n{remedy}")]
    NotPermitted {
        /// What is missing.
        missing: String,
        /// What to do about it.
        remedy: String,
    },
    /// The kernel does not describe its types.
    #[error(
        "the kernel has no type information (/sys/kernel/btf/vmlinux is missing)\n\
         boot a kernel built with CONFIG_DEBUG_INFO_BTF=y; those of Debian 12, Ubuntu 22.04, Fedora and \
         RHEL 9 are"
    )]
    NoBtf,
    /// The kernel lacks what the recorder stands on.
    #[error("kernel {found} is too old: tracing needs Linux {needed} or newer")]
    KernelTooOld {
        /// Release that runs.
        found: String,
        /// Oldest that will do.
        needed: String,
    },
    /// The recorder is in a PID namespace of its own: the kernel's numbers are not those its user sees.
    #[error(
        "pg-tui runs in a container (a PID namespace of its own), where process ids are not those of the \
         kernel\nrun it on the host, or in a container that shares the host's process ids (--pid=host)"
    )]
    PidNamespace,
    /// This processor architecture is not supported.
    #[error("recording works on x86-64 only, this machine is {0}")]
    Architecture(String),
    /// The kernel refused a program or map for another reason.
    #[error("the kernel refused {what}: {reason}")]
    Refused {
        /// Program or map.
        what: String,
        /// The kernel's words.
        reason: String,
    },
    /// A data flag cannot be watched.
    #[error(transparent)]
    Flag(#[from] crate::flags::FlagError),
    /// The recording thread ended before it should have.
    #[error("the recorder failed: {0}")]
    Failed(String),
}

impl Error {
    /// Is tracing impossible here (as opposed to having failed)? Ends the program with code 4.
    pub fn is_refusal(&self) -> bool {
        !matches!(self, Self::Failed(_) | Self::Flag(_))
    }
}
