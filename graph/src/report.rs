//! The report of a diagnosis: the headless contract, format 1. Fields may be added, never renamed or dropped.
//! Times are nanoseconds of the recording's clock.

use crate::{BlockType, HotPath};
use serde::{Deserialize, Serialize};

/// Version of the contract.
pub const FORMAT: u32 = 1;

/// The whole report.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Report {
    /// [`FORMAT`].
    pub format: u32,
    /// The recording.
    pub session: SessionInfo,
    /// What hung.
    pub victim: VictimInfo,
    /// What was asked, in order.
    pub questions: Vec<QuestionInfo>,
    /// From the victim backwards.
    pub slice: Vec<SliceStep>,
    /// Most likely first.
    pub root_causes: Vec<RootCause>,
    /// Steps of the slice (from 0) that wait in a circle: each for the next one, the last for the first.
    #[serde(default)]
    pub circle: Vec<usize>,
    /// Threads that were looked at and are no cause.
    #[serde(default)]
    pub others: Vec<Other>,
    /// What else hung, worst first, when nobody said who is meant.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub also_hung: Vec<AlsoHung>,
    /// What the recording did not see.
    pub coverage: CoverageInfo,
    /// Figures about the way to the report, when they were asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stats: Option<crate::Stats>,
}

// serde hands a reference over.
#[allow(clippy::trivially_copy_pass_by_ref)]
fn unknown(time: &u64) -> bool {
    *time == 0
}

/// The recording.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct SessionInfo {
    /// File name.
    pub file: String,
    /// Host name.
    pub host: String,
    /// Kernel release.
    pub kernel: String,
    /// Time 0 of the recording on the clock of its machine, ns since 1970; 0 when not known.
    #[serde(default, skip_serializing_if = "unknown")]
    pub start_unix_ns: u64,
    /// Length.
    pub duration_ns: u64,
    /// Number of events.
    pub events: u64,
    /// Number of vertices.
    pub vertices: u64,
    /// Number of edges, program order not counted.
    pub edges: u64,
}

/// A hang beside the one that was diagnosed.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct AlsoHung {
    /// Who hung.
    #[serde(flatten)]
    pub victim: VictimInfo,
    /// What it waited on, as in the slice.
    pub waits_on: Option<String>,
    /// How many other processes of that name hung alike.
    pub alike: usize,
}

/// The vertex under diagnosis.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct VictimInfo {
    /// Process id.
    pub pid: u32,
    /// Thread id.
    pub tid: u32,
    /// Process name.
    pub process: String,
    /// Command line.
    pub cmdline: String,
    /// Thread name.
    pub thread: String,
    /// Begin.
    pub start_ns: u64,
    /// Length.
    pub duration_ns: u64,
    /// In which container, short id or name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
    /// The process id there, when it is another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container_pid: Option<u32>,
    /// Which kind of hang.
    pub block_type: BlockType,
    /// What waited for it meanwhile over a connection and was not received, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unserved: Option<String>,
    /// The unit of work that took too long, when the victim is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<UnitInfo>,
    /// The recording has a focus, and the victim is not in it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub outside_focus: bool,
    /// It had begun before the recording: it lasted longer than told.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub begun_before: bool,
    /// It was not over when the recording ended.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub not_over: bool,
}

/// What of a hang the recording did not see, to follow the words about it; empty when it saw all.
pub fn cut(begun_before: bool, not_over: bool) -> &'static str {
    match (begun_before, not_over) {
        (true, true) => ", begun before the recording and not over at its end",
        (true, false) => ", begun before the recording",
        (false, true) => ", not over when the recording ended",
        (false, false) => "",
    }
}

impl VictimInfo {
    /// What of it the recording did not see ([`cut`]).
    pub fn cut(&self) -> &'static str {
        cut(self.begun_before, self.not_over)
    }

    /// What hung, as a person reads it: `slow unit`, `long wait`, ...
    pub fn words(&self) -> &'static str {
        if self.unit.is_some() { crate::victim::SLOW_UNIT } else { self.block_type.words() }
    }
}

/// A unit of work that took too long. Also a line of `violations --json`.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct ViolationInfo {
    /// Which one of the recording, from 1.
    pub number: usize,
    /// When it was seen, ns.
    pub time: u64,
    /// Process id.
    pub pid: u32,
    /// Thread id.
    pub tid: u32,
    /// Process name.
    pub process: String,
    /// Thread name.
    pub thread: String,
    /// Name of the unit's type; empty when it is not known.
    #[serde(rename = "type")]
    pub unit_type: String,
    /// When the unit began.
    pub start_ns: u64,
    /// How long it had taken when it was seen, without what the guard took.
    pub elapsed_ns: u64,
    /// How long it took in the end; none when that was not seen.
    pub duration_ns: Option<u64>,
    /// How long it may take.
    pub threshold_ns: u64,
    /// How many times as long as it may it took, as far as is known.
    pub excess: f64,
    /// What saw it: context, switch, sample, asleep.
    pub at: String,
    /// Where the thread was then: `function (module)`, outermost last, the kernel's first.
    pub stack: Vec<String>,
    /// How many frames of the user stack lie inside of the loop's frame; none when that was not found.
    pub distance: Option<u32>,
    /// Why its type is not known; left out when it is, or nobody said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub type_unknown: Option<String>,
    /// Of its time, as far as that was seen: on a CPU.
    #[serde(default)]
    pub on_cpu_ns: u64,
    /// It seemed to have a CPU, which the host of this machine, a guest, had given to others.
    #[serde(default)]
    pub stolen_ns: u64,
    /// Ready to run, without one.
    #[serde(default)]
    pub ready_ns: u64,
    /// Asleep.
    #[serde(default)]
    pub asleep_ns: u64,
    /// Stopped by a signal or a tracer.
    #[serde(default)]
    pub stopped_ns: u64,
    /// By which signal and whom, in words; left out when that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped_by: Option<String>,
    /// Whose unit handed it on; left out when that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handed_on: Option<HandedOnInfo>,
    /// Where it spent most of its time; left out when too little was seen of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mostly: Option<MostlyInfo>,
    /// It did not take too long: what it turned out to be. Left out of what holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub withdrawn: Option<WithdrawnInfo>,
}

/// The type that a unit turned out to be which had seemed to take too long for another one.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct WithdrawnInfo {
    /// Its name.
    #[serde(rename = "type")]
    pub unit_type: String,
    /// How long such a unit may take; 0: as long as it likes.
    pub threshold_ns: u64,
}

/// Where a unit of work spent most of its time.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct MostlyInfo {
    /// The function, as in stacks: the time was spent in it and in what it called.
    pub function: String,
    /// How much of the time that is known of: more than 0.5, at most 1.
    pub share: f64,
    /// How many stacks tell that.
    pub stacks: usize,
    /// The function, its callers, the loop.
    pub stack: Vec<String>,
}

impl MostlyInfo {
    /// In words: `78 % in sort (shop) and what it calls (12 stacks)`.
    pub fn words(&self) -> String {
        format!("{:.0} % in {} and what it calls ({} stacks)", self.share * 100.0, self.function, self.stacks)
    }
}

impl From<&HotPath> for MostlyInfo {
    fn from(h: &HotPath) -> Self {
        Self {
            function: h.frames.first().cloned().unwrap_or_default(),
            share: (h.share * 1000.0).round() / 1000.0,
            stacks: h.stacks,
            stack: h.frames.clone(),
        }
    }
}

/// Who handed on a unit of work.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct HandedOnInfo {
    /// Process id.
    pub pid: u32,
    /// Thread id.
    pub tid: u32,
    /// Process name.
    pub process: String,
    /// Thread name.
    pub thread: String,
    /// Name of the type of the unit that handed it on; empty when it is not known.
    #[serde(rename = "type")]
    pub unit_type: String,
    /// When that unit began.
    pub start_ns: u64,
    /// When it was handed on.
    pub time_ns: u64,
    /// How long it waited then.
    pub queued_ns: u64,
    /// Of that, how long its thread had no CPU.
    pub runnable_ns: u64,
    /// Of that, how long its thread was in other units.
    pub busy_ns: u64,
    /// Whether an event shows it; else it is put together by the order of the queue, or weak.
    pub strong: bool,
    /// The same in words.
    pub words: String,
}

/// A slow unit beside a normal one.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct UnitInfo {
    /// The slow one.
    #[serde(flatten)]
    pub violation: ViolationInfo,
    /// The normal one of its type that it is compared with; none when none was recorded.
    pub normal: Option<NormalInfo>,
    /// Where the time went, most difference first.
    pub parts: Vec<PartInfo>,
    /// The same in words.
    pub words: String,
}

/// A normal unit.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct NormalInfo {
    /// Process id.
    pub pid: u32,
    /// Thread id.
    pub tid: u32,
    /// When it began.
    pub start_ns: u64,
    /// How long it took.
    pub duration_ns: u64,
    /// Of how many normal ones it is the one nearest to their median duration.
    pub of: usize,
}

/// A part of a unit's time.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct PartInfo {
    /// `running`, `runnable`, `unseen`, or what was waited on.
    pub what: String,
    /// The function that waited.
    pub function: Option<String>,
    /// Time of the slow unit.
    pub ns: u64,
    /// Time of the normal one.
    pub normal_ns: Option<u64>,
}

/// A question that was asked, and its answer.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct QuestionInfo {
    /// edge, baseline or data-flag.
    pub kind: String,
    /// The question.
    pub text: String,
    /// How many options there were.
    pub options: usize,
    /// The one taken, from 1; 0 = stop here.
    pub answer: usize,
    /// user, answers or policy.
    pub by: String,
}

/// One step of the slice.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct SliceStep {
    /// Process id.
    pub pid: u32,
    /// Thread id.
    pub tid: u32,
    /// Process name.
    pub process: String,
    /// Command line.
    pub cmdline: String,
    /// Thread name.
    pub thread: String,
    /// Begin.
    pub start_ns: u64,
    /// Length.
    pub duration_ns: u64,
    /// How long of it the thread was in `state`.
    #[serde(default)]
    pub spent_ns: u64,
    /// In which container, short id or name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
    /// The process id there, when it is another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container_pid: Option<u32>,
    /// running, runnable, blocked, throttled, stopped, exited, not-created.
    pub state: String,
    /// The state was seen. Where it was not (events were lost), `state` is `blocked`: no sample met the
    /// thread on the CPU.
    #[serde(default = "seen")]
    pub seen: bool,
    /// futex, pipe, unix, tcp, udp, poll, sleep, disk, file-lock, child, page-fault, ptrace, ...
    pub waits_on: Option<String>,
    /// Label of the object.
    pub object: Option<String>,
    /// System call.
    pub syscall: Option<String>,
    /// Kind of the edge that leads here from the step before.
    pub edge: Option<String>,
    /// strong or weak; none only where there is no edge.
    pub strength: Option<String>,
    /// Why weak.
    pub why_weak: Option<String>,
    /// `function (module)`, outermost last.
    pub stack: Vec<String>,
}

fn seen() -> bool {
    true
}

/// Another party named by a root cause.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Party {
    /// Process id, if it is a process.
    pub pid: Option<u32>,
    /// Its name.
    pub process: Option<String>,
}

/// One candidate of the cause.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct RootCause {
    /// From 1.
    pub rank: usize,
    /// Process id; none when no process is the cause.
    pub pid: Option<u32>,
    /// Thread id.
    pub tid: Option<u32>,
    /// Process name.
    pub process: Option<String>,
    /// Command line.
    pub cmdline: Option<String>,
    /// Thread name.
    pub thread: Option<String>,
    /// In which container, short id or name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
    /// The process id there, when it is another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container_pid: Option<u32>,
    /// What it did meanwhile.
    pub block_type: Option<BlockType>,
    /// For how long.
    pub duration_ns: Option<u64>,
    /// The function (of the profile when running, of the wait when blocked).
    pub function: Option<String>,
    /// Its module.
    pub module: Option<String>,
    /// System call it waited in.
    pub syscall: Option<String>,
    /// Object it waited on, or that is the cause.
    pub object: Option<String>,
    /// `function (module)`, outermost last.
    pub stack: Vec<String>,
    /// One sentence for a ticket.
    pub why: String,
    /// Whom it waits for itself.
    pub waits_for: Option<Party>,
    /// 0 to 1.
    pub confidence: f64,
}

/// A thread that is no cause.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Other {
    /// Process id.
    pub pid: u32,
    /// Thread id.
    pub tid: u32,
    /// Process name.
    pub process: String,
    /// Thread name.
    pub thread: String,
    /// Why it is none, in words.
    pub why_not: String,
}

/// What the recording did not see.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct CoverageInfo {
    /// Events lost.
    pub lost_events: u64,
    /// Time during which events were lost.
    pub lost_ns: u64,
    /// Share of user stacks unwound to their end; of those of the focus, if there is one.
    pub stacks_complete: f64,
    /// Share of frames with a function name, of the same stacks.
    pub symbols_resolved: f64,
    /// Sentences.
    pub notes: Vec<String>,
}
