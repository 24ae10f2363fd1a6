//! What can be wrong with a session file.

use super::format::{MAJOR, MINOR};
use pg_event::Ns;
use std::path::PathBuf;

/// Why a session could not be opened, read or appended to.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// The system refused.
    #[error("{}: cannot {action}: {source}{}", path.display(), remedy(source, action))]
    Io {
        /// The file.
        path: PathBuf,
        /// What was tried.
        action: &'static str,
        /// What the system said.
        source: std::io::Error,
    },
    /// Another kind of file.
    #[error("{}: not a pg-tui recording: {found}", path.display())]
    NotASession {
        /// The file.
        path: PathBuf,
        /// What is there instead.
        found: String,
    },
    /// Written by a pg-tui that is too new.
    #[error(
        "{}: written in format {major}.{minor} (byte 8), this pg-tui reads formats up to {MAJOR}.{MINOR}: open it with a newer pg-tui",
        path.display()
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its major version.
        major: u16,
        /// Its minor version.
        minor: u16,
    },
    /// Nothing in it can be used.
    #[error("{}: damaged at byte {offset}: {reason}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Where.
        offset: u64,
        /// What is wrong there.
        reason: String,
    },
    /// A recorder or another pg-tui is writing to it.
    #[error("{}: it is being written by another pg-tui: try again when the recording has ended", path.display())]
    Busy {
        /// The file.
        path: PathBuf,
    },
    /// Since it was opened, another file took its place.
    #[error("{}: another recording took the place of the one that is open: nothing was written to it", path.display())]
    Replaced {
        /// The file.
        path: PathBuf,
    },
    /// The caller wanted no more.
    #[error("{}: loading was stopped", path.display())]
    Stopped {
        /// The file.
        path: PathBuf,
    },
}

/// What to do about it, where that is known: a recording made by root, other than under sudo, belongs to root.
fn remedy(source: &std::io::Error, action: &str) -> &'static str {
    match source.kind() {
        std::io::ErrorKind::PermissionDenied if action.starts_with("open") => {
            "; run it with sudo, or make the file yours: sudo chown $USER FILE"
        }
        _ => "",
    }
}

/// Something is wrong with a part of a session; the rest is usable.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Warning {
    /// At which byte of the file.
    pub offset: u64,
    /// What is wrong.
    pub reason: String,
    /// The time span whose events are missing because of it.
    pub lost: Option<(Ns, Ns)>,
    /// How many events are missing, if that is known.
    pub events: u64,
    /// A part of the recording cannot be read because of it, and not just its end that is cut off.
    pub hides: bool,
}

impl std::fmt::Display for Warning {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "byte {}: {}", self.offset, self.reason)?;
        if let Some((from, to)) = self.lost {
            let s = |ns: Ns| ns as f64 / 1e9;
            write!(f, "; events from {:.3} s to {:.3} s are missing", s(from), s(to))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_somebody_else_is_told_with_its_remedy() {
        let why = |kind: std::io::ErrorKind, action| {
            let source = kind.into();
            SessionError::Io { path: "a.pgs".into(), action, source }.to_string()
        };
        let denied = std::io::ErrorKind::PermissionDenied;
        assert!(
            why(denied, "open it")
                .ends_with("; run it with sudo, or make the file yours: sudo chown $USER FILE")
        );
        assert!(!why(denied, "write to it").contains("chown"));
        assert!(!why(std::io::ErrorKind::NotFound, "open it").contains("chown"));
    }
}
