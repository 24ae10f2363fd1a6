//! Waits for input at a terminal: behind its other end is a person, or a program that plays one. That nothing is typed
//! is what holds everybody up, unless that program was kept from typing itself.

use super::activity::{Group, Mostly, activity, merged};
use super::ask::Candidate;
use super::finding::{Finding, FindingKind};
use super::walk::{Walk, group_spans};
use crate::class::WaitClass;
use pg_event::{ObjectKind, ThreadId};

impl Walk<'_> {
    /// Is the way at its end where a thread waits for input? `typed`: who ended the wait.
    pub(super) fn by_input(&mut self, thread: ThreadId, group: &Group, typed: &[Candidate]) -> bool {
        if !self.reads_terminal(group) {
            return false;
        }
        let spans = group_spans(group);
        let mut others = typed.to_vec();
        for h in self.holders(thread, group, WaitClass::Terminal, &spans) {
            if !others.iter().any(|c| c.thread == h.thread) {
                others.push(h);
            }
        }
        if others.iter().any(|c| self.kept(c)) {
            return false;
        }
        let own = self.out.nodes.len().saturating_sub(1);
        if let Some(c) = others.into_iter().find(|c| !self.path.iter().any(|p| p.0 == c.thread)) {
            let act = activity(self.g, self.c, c.thread, &merged(c.spans));
            if let Mostly::Waiting(i) = act.mostly()
                && let Some(g) = act.groups.get(i)
            {
                self.push_wait(c.thread, g, c.entry);
            }
        }
        self.out.findings.push(Finding { thread, node: own, kind: FindingKind::Input, spans });
        true
    }

    /// Does it wait for input at the end of a terminal that programs run at?
    fn reads_terminal(&self, group: &Group) -> bool {
        let v = self.representative(group);
        let slave = self.c.object(v.object).is_some_and(|o| o.kind == ObjectKind::Tty && o.peer != 0);
        slave && crate::class::class(&v, self.c) == WaitClass::Terminal
    }

    /// Does it wait for whatever event its display server sends next? Who waits for the reply to a request of its
    /// own says so by the library's functions for that.
    pub(super) fn waits_at_window(&self, group: &Group) -> bool {
        const REPLIES: [&str; 4] =
            ["_XReply", "xcb_wait_for_reply", "xcb_request_check", "wl_display_roundtrip"];
        let v = self.representative(group);
        let object = |o| self.c.object(o);
        let members = object(v.object).into_iter().flat_map(|o| o.members.iter().copied().chain([v.object]));
        let mut functions = self.c.frames_of(v.user_stack).map(|f| f.function.as_str());
        members.filter_map(object).any(|o| self.of_display(o))
            && !functions.any(|f| REPLIES.iter().any(|r| f.starts_with(r)))
    }

    /// Is there something that kept a candidate from typing, other than that it waits for what comes?
    fn kept(&self, c: &Candidate) -> bool {
        let mut ahead = self.ahead();
        let asks = ahead.visit(c.thread, c.spans.clone(), c.entry.clone()).is_err();
        let waits = |k| {
            matches!(
                k,
                FindingKind::Idle
                    | FindingKind::Unanswered
                    | FindingKind::Circular
                    | FindingKind::Closed
                    | FindingKind::Input
                    | FindingKind::Here
            )
        };
        asks || ahead.out.findings.first().is_some_and(|f| !waits(f.kind))
    }
}
