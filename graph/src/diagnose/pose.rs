//! Questions as they are put: what all kinds have in common.

use super::activity::Group;
use super::ask::Candidate;
use super::walk::Walk;
use crate::words::{span, who};
use crate::{Choice, Question, QuestionKey, QuestionKind, VertexId};
use pg_event::{Ns, Object, ThreadId};

/// What makes one question another.
pub(crate) struct Posed {
    pub kind: QuestionKind,
    pub text: String,
    pub why: String,
    pub choices: Vec<Choice>,
    /// What stopping here would mean.
    pub stop: String,
    /// From 1, 0 = stop here.
    pub recommended: usize,
    pub reason: String,
}

impl Walk<'_> {
    /// A question about the waits of a group; `next` is where the recommended answer leads.
    pub(crate) fn pose(
        &self,
        thread: ThreadId,
        group: &Group,
        posed: Posed,
        next: Option<&Candidate>,
    ) -> Question {
        let about = group.longest().map_or(VertexId(u32::MAX), |c| c.last);
        self.pose_about(thread, (about, self.representative(group).start), posed, next)
    }

    /// A question about a vertex, known by a moment.
    pub(crate) fn pose_about(
        &self,
        thread: ThreadId,
        (vertex, start): (VertexId, Ns),
        posed: Posed,
        next: Option<&Candidate>,
    ) -> Question {
        let Posed { kind, text, why, choices, stop, recommended, reason } = posed;
        Question {
            key: QuestionKey { kind, thread: thread.0, start },
            text,
            why,
            vertex,
            choices,
            stop,
            recommended,
            reason,
            number: self.out.asked.len() + 1,
            about_to_come: next.map_or(0, |c| self.questions_after(c)),
        }
    }

    /// "cat (pid 7) waited 3.0 s in read pipe:[5]".
    pub(crate) fn waited_in(&self, thread: ThreadId, group: &Group) -> String {
        let v = self.representative(group);
        let call = v.syscall.name().unwrap_or_else(|| "the kernel".into());
        let object = self.c.object(v.object).map(Object::label).unwrap_or_default();
        let wait = super::ask::call_on(&call, &object);
        format!("{} waited {} in {wait}", who(self.c, thread), span(group.blocked))
    }
}
