//! How a command ends: exit code and message.

use crate::clean::clean_lines;
use crate::session::SessionError;
use std::io;
use std::process::ExitCode;

/// Why a command did not do what it was asked. The number is the exit code.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// 1: nothing abnormal was found.
    #[error("{0}")]
    Nothing(String),
    /// 2: bad arguments.
    #[error("{0}")]
    Usage(String),
    /// 3: unreadable or damaged input.
    #[error("{0}")]
    Input(String),
    /// 4: not permitted to trace.
    #[error("{0}")]
    NotPermitted(String),
    /// 5: anything else.
    #[error("{0}")]
    Other(String),
    /// The command to record could not be run: the code a shell would give.
    #[error("{1}")]
    Command(u8, String),
    /// The reader of our output went away: no failure at all.
    #[error("nobody reads the output")]
    BrokenPipe,
}

impl Failure {
    /// The exit code.
    pub fn code(&self) -> u8 {
        match self {
            Self::BrokenPipe => 0,
            Self::Nothing(_) => 1,
            Self::Usage(_) => 2,
            Self::Input(_) => 3,
            Self::NotPermitted(_) => 4,
            Self::Other(_) => 5,
            Self::Command(code, _) => *code,
        }
    }

    /// Say it on standard error and give the exit code.
    pub fn report(&self) -> ExitCode {
        if !matches!(self, Self::BrokenPipe) {
            tracing::error!("{self}");
            // The message may quote names from a recording.
            say!("pg-tui: {}", clean_lines(&self.to_string()));
        }
        ExitCode::from(self.code())
    }
}

impl From<SessionError> for Failure {
    fn from(e: SessionError) -> Self {
        Self::Input(e.to_string())
    }
}

/// Writing to standard output failed.
impl From<io::Error> for Failure {
    fn from(e: io::Error) -> Self {
        if e.kind() == io::ErrorKind::BrokenPipe {
            Self::BrokenPipe
        } else {
            Self::Other(format!("cannot write the output: {e}"))
        }
    }
}

/// Result of a command.
pub type Outcome = Result<ExitCode, Failure>;
