//! What a recording says about itself.

use pg_event::{Ns, ThreadId, UnitTypeId};
use pg_graph::Decision;
use serde::{Deserialize, Serialize};

/// About the recording as a whole. Everything in it is untrusted when read from a file.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Header {
    /// Version of the pg-tui that wrote it.
    pub version: String,
    /// Host name.
    pub host: String,
    /// Kernel release.
    pub kernel: String,
    /// Which start of the machine it was (`/proc/sys/kernel/random/boot_id`): as long as that goes on, addresses in the
    /// kernel mean the same. Empty when not known.
    pub boot: String,
    /// Machine architecture.
    pub arch: String,
    /// Number of CPUs.
    pub cpus: u32,
    /// Wall-clock time of time 0, nanoseconds since 1970.
    pub start_wall: u64,
    /// Name of the clock that times count by.
    pub clock: String,
    /// What that clock showed at time 0, nanoseconds.
    pub clock_start: u64,
    /// The command that was recorded, if one was.
    pub command: Vec<String>,
    /// The user who recorded (under sudo, the one who called).
    pub user: String,
    /// The focus, in words.
    pub focus: String,
    /// Options of the recording, in words: name and value.
    pub options: Vec<(String, String)>,
    /// What was taken out before the file was shared, empty if nothing was.
    pub redacted: String,
}

/// A note or a bookmark on a moment of a thread. A later one with the same `id` replaces it.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Note {
    /// Identity within the session.
    pub id: u32,
    /// On which moment.
    pub time: Ns,
    /// On which thread, [`ThreadId::NONE`] for the moment as such.
    pub thread: ThreadId,
    /// The words.
    pub text: String,
    /// A bookmark (else a note only).
    pub bookmark: bool,
    /// It was removed.
    pub deleted: bool,
    /// When it was written, seconds since 1970.
    pub written: u64,
}

/// The answers given for one victim, oldest first. A later log for the same victim replaces it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DecisionLog {
    /// Thread of the victim.
    pub thread: ThreadId,
    /// Start of the victim vertex, ns.
    pub start: Ns,
    /// The answers.
    pub decisions: Vec<Decision>,
}

/// What was decided about the guard of a type of units. A later one for the same type replaces it.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct GuardRule {
    /// The type.
    pub unit_type: UnitTypeId,
    /// How long its units may take, as `pg-tui profile threshold` reads it, or `silence`.
    pub rule: String,
    /// When it was decided, seconds since 1970.
    pub written: u64,
}
