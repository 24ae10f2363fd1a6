//! Questions of a diagnosis and their answers. Plain data: a terminal, an answers file and the policy
//! are three drivers of one state machine.

use crate::{EdgeId, VertexId};
use pg_event::Ns;
use serde::{Deserialize, Serialize};

/// What is asked about.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum QuestionKind {
    /// Which of several incoming edges, or whether to follow a weak one.
    Edge,
    /// Which similar vertex shows the normal case.
    Baseline,
    /// Which memory location a yield loop asks for.
    DataFlag,
}

impl QuestionKind {
    /// Name as in the report.
    pub fn name(self) -> &'static str {
        match self {
            Self::Edge => "edge",
            Self::Baseline => "baseline",
            Self::DataFlag => "data-flag",
        }
    }
}

/// Identity of a question that survives saving and replaying: about which vertex, the how-manieth.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct QuestionKey {
    /// Kind.
    pub kind: QuestionKind,
    /// Thread (catalogue index) of the vertex asked about.
    pub thread: u32,
    /// Start of the vertex asked about, ns.
    pub start: Ns,
}

/// A line of "events around" an option.
#[derive(Clone, PartialEq, Debug)]
pub struct NearbyEvent {
    /// When.
    pub time: Ns,
    /// What, in words.
    pub text: String,
}

/// One possible answer.
#[derive(Clone, PartialEq, Debug)]
pub struct Choice {
    /// What it is in a few words: thread and act.
    pub label: String,
    /// strong / weak and why, distance in time, similarity, ...
    pub detail: String,
    /// Where it leads.
    pub vertex: Option<VertexId>,
    /// The edge followed.
    pub edge: Option<EdgeId>,
    /// Strong?
    pub strong: bool,
    /// When it happened.
    pub time: Ns,
    /// `function (module)`, leaf first.
    pub stack: Vec<String>,
    /// Events around it, in order of time.
    pub nearby: Vec<NearbyEvent>,
}

/// A question with all a person needs to answer it.
#[derive(Clone, PartialEq, Debug)]
pub struct Question {
    /// Identity.
    pub key: QuestionKey,
    /// The question.
    pub text: String,
    /// Why it is asked.
    pub why: String,
    /// The vertex it is about.
    pub vertex: VertexId,
    /// The options; "stop here" is answer 0 and not among them.
    pub choices: Vec<Choice>,
    /// What stopping here would mean, in words.
    pub stop: String,
    /// Recommended answer, from 1; 0 = stop here.
    pub recommended: usize,
    /// Why that one.
    pub reason: String,
    /// Which question this is, from 1.
    pub number: usize,
    /// A guess at how many follow.
    pub about_to_come: usize,
}

/// Who answered.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum By {
    /// A person at the screen.
    User,
    /// An answers file.
    Answers,
    /// The stated policy: the recommendation.
    Policy,
}

impl By {
    /// Name as in the report.
    pub fn name(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Answers => "answers",
            Self::Policy => "policy",
        }
    }
}

/// An answer that was given: stored in the session, replayable.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Decision {
    /// Which question.
    pub question: QuestionKey,
    /// From 1; 0 = stop here.
    pub answer: usize,
    /// By whom.
    pub by: By,
}
