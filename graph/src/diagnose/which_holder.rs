//! Of several who have what a thread waits for: the one to follow, or the question where that is not clear.

use super::activity::{Group, Mostly};
use super::ask::Candidate;
use super::finding::FindingKind;
use super::pose::Posed;
use super::walk::{Flow, Walk, group_spans};
use crate::class::{WaitClass, class};
use crate::words::short_who;
use crate::{Question, QuestionKind};
use pg_event::{ProcessId, Relation, ThreadId};

impl Walk<'_> {
    pub(super) fn follow_holder(
        &mut self,
        thread: ThreadId,
        group: &Group,
        class: WaitClass,
        mut holders: Vec<Candidate>,
    ) -> Flow<()> {
        // Any of several ends would do: there is no circle as long as one of them is outside of it.
        if holders.len() > 1 && holders.iter().all(|c| !c.relation.is_some_and(Relation::has_lock)) {
            let rings: Vec<bool> = holders.iter().map(|c| self.closes_ring(c)).collect();
            if rings.contains(&false) {
                let mut ring = rings.into_iter();
                let out = holders.extract_if(.., |_| ring.next() == Some(true));
                let why = "it could act, too, but waits for a thread on the way itself";
                self.out.rejected.extend(out.map(|c| (c.thread, why.to_owned())));
            }
        }
        self.past_heirs(thread, &mut holders);
        // What explains most first: somebody on the way (a circle), then who is not idle.
        holders.sort_by_key(|c| (std::cmp::Reverse(self.guilt(c)), self.keeps_for_children(thread, c)));
        // All of them wait for one another: nothing to ask. Who only waits for its children has an end by inheritance.
        let end = holders.first().and_then(|c| c.spans.last()).map_or(0, |s| s.1);
        let circle = holders.len() > 1 && self.nobody_left(thread, end);
        if circle {
            holders.sort_by_key(|c| (!self.path.iter().any(|(t, _)| *t == c.thread), self.is_parent(c)));
        }
        holders.truncate(5);
        let mut take = 0;
        if !self.auto && holders.len() > 1 && !circle {
            let ends: Vec<_> = holders.iter().map(|c| self.end_of(c)).collect();
            let clear = self.guilt(&holders[0]) > self.guilt(&holders[1]);
            if !clear && ends.windows(2).any(|w| w[0] != w[1]) && self.share(holders[0].time) >= 0.2 {
                let q = self.holder_question(thread, group, &holders);
                match self.decide(q)? {
                    0 => {
                        self.found(thread, FindingKind::Here, group_spans(group));
                        return Ok(());
                    }
                    n => take = n - 1,
                }
            }
        }
        let last = holders.len() - 1;
        let Some(c) = self.take(holders, take.min(last)) else { return Ok(()) };
        if c.relation == Some(Relation::Peer)
            && let Some(next) = self.handed_on(c.thread, thread, &c.merged())
            && ![c.thread, next.thread].iter().any(|x| self.path.iter().any(|(t, _)| t == x))
        {
            return self.past_server(c, next);
        }
        if c.relation == Some(Relation::Peer)
            && let Some(client) = self.grabber(c.thread, group, &c.merged())
            && ![c.thread, client.thread].iter().any(|x| self.path.iter().any(|(t, _)| t == x))
        {
            return self.past_grab(c, client);
        }
        if !circle && self.keeps_silent(&c) {
            return self.never_answered(thread, group, c);
        }
        self.follow(c, class)
    }

    /// Who has an end since it inherited that is at work for who waits for it: the way comes by there. But a parent of
    /// `thread` may wait for just that, and have the end for its children alone.
    fn past_heirs(&mut self, thread: ThreadId, holders: &mut Vec<Candidate>) {
        let process = |c: &Candidate| self.c.process_id_of(c.thread);
        let Some(own) = self.c.process_id_of(thread) else { return };
        let stranger = |p: &ProcessId| *p != own && !self.c.ancestors(own).any(|a| a == *p);
        let waiting = holders.iter().filter(|c| self.waits_for_kin(c)).filter_map(process);
        let parents: Vec<_> = waiting.filter(stranger).collect();
        let heir = |c: &Candidate| {
            let lock = c.relation.is_none_or(|r| r.has_lock() || r == Relation::ChildOf);
            !lock && process(c).is_some_and(|p| self.c.ancestors(p).any(|a| a != p && parents.contains(&a)))
        };
        let heirs: Vec<Candidate> = holders.extract_if(.., |c| heir(c)).collect();
        let why = "it inherited its end from a process that waits for it";
        self.out.rejected.extend(heirs.into_iter().map(|c| (c.thread, why.to_owned())));
    }

    /// Is it one that started the process of `thread`, and has the reading end of what that writes without being about to read?
    /// It may have it to start another reader.
    fn keeps_for_children(&self, thread: ThreadId, c: &Candidate) -> bool {
        let own = self.c.process_id_of(thread).unwrap_or(ProcessId::NONE);
        let process = self.c.process_id_of(c.thread);
        c.relation == Some(Relation::Reads)
            && self.c.ancestors(own).any(|a| Some(a) == process)
            && !self.waits_for_kin(c)
    }

    /// Does it wait for a child to end, or for what one writes?
    fn waits_for_kin(&self, c: &Candidate) -> bool {
        let act = self.meanwhile(c);
        self.is_parent(c) || act.waiting().is_some_and(|g| self.reads_from_child(c.thread, g))
    }

    /// Does it wait for its children?
    fn is_parent(&self, c: &Candidate) -> bool {
        let act = self.meanwhile(c);
        act.waiting().is_some_and(|g| class(&self.representative(g), self.c) == WaitClass::Child)
    }

    /// How much a holder looks like the culprit.
    fn guilt(&self, c: &Candidate) -> u32 {
        if self.path.iter().any(|(t, _)| *t == c.thread) {
            return 3;
        }
        let act = self.meanwhile(c);
        match act.mostly() {
            Mostly::Running | Mostly::Runnable => 4,
            // To be stopped or frozen is never what a program means to do.
            Mostly::Waiting(i) if act.groups.get(i).is_some_and(Group::halts) => 4,
            Mostly::Waiting(_) if !self.is_idle(c) => 3,
            Mostly::Waiting(_) => 2,
            Mostly::Unborn | Mostly::Unknown => 1,
            Mostly::Gone => 0,
        }
    }

    fn holder_question(&self, thread: ThreadId, group: &Group, holders: &[Candidate]) -> Question {
        let end = group.clips.last().map_or(0, |c| c.end);
        let best = &holders[0];
        self.pose(
            thread,
            group,
            Posed {
                kind: QuestionKind::Edge,
                text: format!("Whom did {} wait for?", short_who(self.c, thread)),
                why: format!(
                    "{}, and no wake-up of what it waited for was recorded. {} processes hold it.",
                    self.waited_in(thread, group),
                    holders.len()
                ),
                choices: holders.iter().map(|c| self.choice(c, end)).collect(),
                stop: format!(
                    "stop here: nobody can be blamed for what {} waited for",
                    short_who(self.c, thread)
                ),
                recommended: 1,
                reason: format!("{} {}", short_who(self.c, best.thread), self.did(best)),
            },
            Some(best),
        )
    }
}
