//! Events as columns: what the payload of an event chunk looks like.
//!
//! ```text
//! rows, groups; then per group: tag, columns, and per column: length, bytes
//! ```
//! Group 0 holds what every event has (tag of its kind, time, thread, CPU); each other group the fields
//! of one kind. The same few waits come again and again, so what identifies a wait (system call, object,
//! stacks, ...) and its waker is kept once per chunk and named by number: 0 = the next new one. When a
//! thread left its CPU is mostly known from who came onto it then (see `Switches`).
//! A reader skips groups and columns it does not know, so new ones need a new minor version only.

mod decode;
mod encode;
mod guess;
mod number;

pub(super) use decode::Decoder;
pub(super) use encode::Encoder;

const COMMON: usize = 0;
const OFF_CPU: usize = 1;
const IPC: usize = 2;
const SYSCALL: usize = 3;
const SAMPLE: usize = 4;
const SPAWN: usize = 5;
const EXEC: usize = 6;
const EXIT: usize = 7;
const SIGNAL: usize = 8;
const HOLD: usize = 9;
const DATA_FLAG: usize = 10;
const UNIT: usize = 11;
const MARK: usize = 12;
const LOST: usize = 13;
const WORK: usize = 14;
const UNSERVED: usize = 15;
const BURST: usize = 16;
const UNHEARD: usize = 17;
const VIOLATION: usize = 18;
const GROUPS: usize = 19;
/// Columns of each group.
const COLUMNS: [usize; GROUPS] = [4, 17, 6, 6, 3, 1, 0, 1, 2, 3, 4, 2, 1, 3, 3, 5, 4, 1, 9];
const MAX_COLUMNS: usize = 17;
