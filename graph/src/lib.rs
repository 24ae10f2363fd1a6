//! From events to the event graph, and from the graph to the cause.
//!
//! Pure: no I/O, no clock, no threads of its own; it never sees the tracer. What is here implements the
//! event graph and algorithm 1 of Argus (sections 2.2 and 4 of the paper), and the bounded critical path
//! of Giraldeau and Dagenais.

mod alike;
mod also;
mod answers;
mod baseline;
mod builder;
mod burst;
mod cause;
mod class;
mod columns;
mod diagnose;
mod disks;
mod edge;
mod episode;
mod facts;
mod flag;
mod front;
mod graph;
mod handler;
mod hot_path;
mod initialise;
mod kernel;
mod lane;
mod looks;
mod others;
pub mod path;
pub mod petgraph;
mod profile;
mod python;
mod question;
mod refused;
pub mod report;
mod retries;
mod select;
#[cfg(feature = "sim")]
pub mod sim;
mod sleeps;
mod starved;
mod stats;
pub mod steps;
pub mod transactions;
pub mod units;
mod unseen;
mod unserved;
mod vertex;
mod victim;
mod violations;
mod waits;
pub mod words;
mod yields;

pub use also::also_hung;
pub use answers::{AnswerLine, AnswersError, Which, parse_answers, take_answer};
pub use baseline::{Similar, similar};
pub use builder::{BuildOptions, Builder, Join, Task};
pub use burst::BurstFact;
pub use class::{WaitClass, class};
pub use diagnose::{Diagnosis, Keeps, Options, SliceNode, Step, path_of_span, run_with, run_with_policy};
pub use edge::{Edge, EdgeId, EdgeKind, Weak};
pub use episode::{Episode, WaitKey, episodes, wait_key};
pub use facts::{At, CullCounts, HoldFact, MarkFact, NO_STATUS, SamplePoint, SignalFact, WorkFact};
pub use flag::FlagAccess;
pub use graph::EventGraph;
pub use hot_path::{HotPath, Moment, hot_path};
pub use lane::{Cell, LANE_STATES, LaneState, Share};
pub use profile::{Profile, profile};
pub use question::{By, Choice, Decision, NearbyEvent, Question, QuestionKey, QuestionKind};
pub use retries::Retries;
pub use select::{SelectError, Selection, select};
pub use stats::{Reason, Stats, automatic_slice, stats};
pub use unserved::UnservedFact;
pub use vertex::{BlockType, Vertex, VertexId};
pub use victim::{Victim, VictimOptions, victim_of, victims, victims_of_all};
pub use violations::{
    Comparison, NormalUnit, Part, Side, SlowWay, Spent, UnitFact, ViolationFact, WayPart, WithdrawnFact,
    compare, kernel_frames, seen_by, violation_info, violation_victim, way_victim, withdrawn_info,
};
pub use waits::{WaitsOn, main_object, wait_kind, waits_on};
