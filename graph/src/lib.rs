//! From events to the event graph, and from the graph to the cause.
//!
//! Pure: no I/O, no clock, no threads of its own; it never sees the tracer. What is here implements the
//! event graph and algorithm 1 of Argus (sections 2.2 and 4 of the paper), and the bounded critical path
//! of Giraldeau and Dagenais.

mod builder;
mod edge;
mod graph;
mod lane;
mod question;
pub mod report;
mod vertex;
mod waits;

pub use builder::{BuildOptions, Builder};
pub use edge::{Edge, EdgeId, EdgeKind, Weak};
pub use graph::{At, CullCounts, EventGraph, FlagAccess, HoldFact, MarkFact, SamplePoint, SignalFact};
pub use lane::{Cell, LANE_STATES, LaneState, Share};
pub use question::{By, Choice, Decision, NearbyEvent, Question, QuestionKey, QuestionKind};
pub use vertex::{BlockType, Vertex, VertexId};
pub use waits::{WaitsOn, main_object, wait_kind, waits_on};
