//! From events to the event graph, and from the graph to the cause.
//!
//! Pure: no I/O, no clock, no threads of its own; it never sees the tracer. What is here implements the
//! event graph and algorithm 1 of Argus (sections 2.2 and 4 of the paper), and the bounded critical path
//! of Giraldeau and Dagenais.

mod edge;
mod question;
pub mod report;
mod vertex;

pub use edge::{Edge, EdgeId, EdgeKind, Weak};
pub use question::{By, Choice, Decision, NearbyEvent, Question, QuestionKey, QuestionKind};
pub use vertex::{BlockType, Vertex, VertexId};
