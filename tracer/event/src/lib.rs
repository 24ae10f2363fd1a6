//! Event and catalogue types: the one language that collector, session file, graph and screens share.
//!
//! No I/O, no clock and no `unsafe` live here. Times are nanoseconds since the recording began
//! (the clock is `CLOCK_MONOTONIC`); sizes are bytes. Identifiers are dense indices into a
//! [`Catalog`] and are never reused within a recording, so nothing depends on a pid being unique.

pub mod bounded;
mod catalog;
mod event;
mod ids;
mod lookup;
mod object;
mod scheduling;
mod syscall;
pub mod trace;
mod unit;
mod unserved;

pub use catalog::{
    Catalog, CatalogDelta, Cmdline, Forgotten, Frame, LOOP_FRAMES, LoopTurn, Module, ModuleKind, Process,
    SIGNAL_RETURN, Stack, Thread,
};
pub use event::{
    Context, Coverage, Direction, Event, Hold, IpcUse, Item, Kind, Loss, OPEN_FLAGS, OffCpu, OffState,
    Relation, Sample, SyscallUse, TTY_PAUSED, Work,
};
pub use ids::{FrameId, ModuleId, Ns, ObjectId, ProcessId, StackId, ThreadId, TraceId, UnitTypeId};
pub use lookup::Lookup;
pub use object::{Object, ObjectKind, SHARED_FUTEX, SysV, endpoint_v4, show_endpoint};
pub use scheduling::Scheduling;
pub use syscall::{POLLS, Sysno, syscall_name, syscall_number};
pub use trace::{Burst, Trace};
pub use unit::{MAX_UNIT_TYPES, SeenBy, UnitTypeRow, Violation};
pub use unserved::{Display, Unserved};
