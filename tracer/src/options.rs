//! What to record, and how much it may cost.

use crate::focus::Focus;

/// How much is recorded. Each level contains those before it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Level {
    /// Waits, wakings, who waits on what. The cheapest.
    Waits,
    /// Also bytes over sockets, so that threads that never block are tied to each other.
    #[default]
    Messages,
    /// Also every system call. Costs up to half as much again on programs that do little else.
    Syscalls,
}

/// Options of a recording.
#[derive(Clone, Debug)]
pub struct Options {
    /// How much is recorded.
    pub level: Level,
    /// Whose stacks are rich, and whom the recording is about.
    pub focus: Focus,
    /// Bytes for events under way: intervals off the CPU have as much in the rings of all CPUs together, other
    /// events half of it. Made powers of two.
    pub ring_bytes: u32,
    /// Size of the ring for copies of user stacks; made a power of two.
    pub stack_ring_bytes: u32,
    /// On-CPU samples a second on each CPU, 0 for none.
    pub sample_hz: u32,
    /// Take kernel stacks.
    pub kernel_stacks: bool,
    /// Only of waits longer than this.
    pub kernel_stack_threshold_ns: u64,
    /// Take user stacks.
    pub user_stacks: bool,
    /// When a wait counts as long and the holders of its object are looked up.
    pub long_wait_ns: u64,
    /// When a connection of the focus in which something waits counts as not served, 0 for never.
    pub unserved_ns: u64,
    /// Where more messages are passed than can be recorded cheaply, record them in windows (`collector::duty`).
    pub thin_messages: bool,
    /// Raise the level for short bursts on threads of the focus that look as if they spun.
    pub adaptive: bool,
    /// Look functions' names up only when a report of open waits is asked for, and forget what was read for
    /// that: a recorder that runs all the time reads no debug information of what nobody will look at.
    pub names_on_report: bool,
    /// Follow by programs in what interrupt each CPU is, also where the kernel can be asked (`bpf/context.h`): costs
    /// more, for tests of what older kernels need.
    pub follow_interrupts: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            level: Level::default(),
            focus: Focus::default(),
            ring_bytes: 16 << 20,
            stack_ring_bytes: 16 << 20,
            sample_hz: 99,
            kernel_stacks: true,
            kernel_stack_threshold_ns: 1_000_000,
            user_stacks: true,
            long_wait_ns: 500_000_000,
            unserved_ns: 1_000_000_000,
            thin_messages: true,
            adaptive: true,
            names_on_report: false,
            follow_interrupts: false,
        }
    }
}
