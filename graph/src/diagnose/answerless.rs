//! Waits that nobody ended: timed out, killed, or still open. First the state of the resource (who holds
//! it), then a baseline (who woke the thread when it went well), else the wait itself is the cause.

use super::activity::{Group, Mostly, Spans, activity, extent, merged};
use super::ask::Candidate;
use super::closed::left_alone;
use super::data_flag::Asks;
use super::finding::{Finding, FindingKind};
use super::started::STARTED;
use super::walk::{Flow, Walk, group_spans};
use crate::class::{WaitClass, class, is_schedulers_own, opens_fifo};
use crate::episode::LONG_SINGLE;
use crate::victim::kept_out;
use crate::words::span;
use crate::{EventGraph, VertexId};
use pg_event::{Catalog, ObjectKind, ProcessId, Relation, ThreadId};

/// The main thread of a process (the one with its pid), else its first.
pub(crate) fn main_thread(g: &EventGraph, c: &Catalog, p: ProcessId) -> Option<ThreadId> {
    let of = || g.threads_of(p);
    of().find(|t| c.is_first(*t)).or_else(|| of().next())
}

pub(crate) fn relation_words(r: Relation) -> &'static str {
    match r {
        Relation::Reads => "it has the reading end",
        Relation::Writes => "it has the writing end",
        Relation::Peer => "it has the other end",
        Relation::Listens => "it listens on the socket",
        Relation::Owns => "it owns the lock",
        Relation::Shares => {
            "it has the lock by an inherited or shared descriptor; who took the lock has it no more"
        }
        Relation::ChildOf => "it is the child waited for",
        Relation::Traces => "it is the tracer",
        Relation::Serves => "it serves the file system, or decides about the call",
        Relation::Reader => "it may read",
        Relation::Missing => "it has not come to the barrier",
        Relation::Maps => "it has the same memory mapped",
        Relation::Makes => "it made the file",
        Relation::Removes => "it removed the file",
    }
}

impl Walk<'_> {
    pub(crate) fn answerless(
        &mut self,
        thread: ThreadId,
        group: &Group,
        class: WaitClass,
        silent: Spans,
    ) -> Flow<()> {
        let first = self.out.nodes.len() <= 1;
        let v = self.representative(group);
        let asks = self.asks(group);
        if let Some(a) = &asks
            && self.by_flag(thread, a)?
        {
            return Ok(());
        }
        // Also of sleeps too long to be asked about one by one; who watches descriptors meanwhile may ask for a process.
        let turns = (group.waits > 1 && (v.timed_out || v.open)).then(|| group_spans(group));
        let sleeps = class == WaitClass::Sleep;
        let naps = sleeps && group.waits > 3;
        let for_child =
            || naps.then(|| self.slept_for_child(thread, &group_spans(group), group.waits)).flatten();
        if let Some(spans) = turns
            && let Some(c) = self
                .asked_about(thread, &spans, sleeps)
                .or_else(for_child)
                .or_else(|| self.lives_on(thread, &spans))
        {
            return self.sleeps_for(c, WaitClass::Child, thread, spans);
        }
        let refused = self.refused(group, class);
        if class == WaitClass::Sleep
            && refused.is_none()
            && let Some(a) = &asks
            && let Some(c) = self.let_go_on(
                thread,
                &a.spans,
                group.blocked / group.waits.max(1) as u64,
                a.variable.as_deref(),
            )
        {
            return self.sleeps_for(c, WaitClass::Lock, thread, a.spans.clone());
        }
        if class == WaitClass::Sleep
            && refused.is_none()
            && group.waits > 2
            && let Some(c) = self.changed_answer(thread, group)
        {
            return self.sleeps_for(c, WaitClass::Lock, thread, group_spans(group));
        }
        // A sleep that ended by itself explains itself, unless the thread tries something in between, or the victim may.
        let class = refused.map_or(class, |_| WaitClass::Sleep);
        let within = extent(&silent);
        // Of the parts of a file that it tries for it may get some each time: somebody was found to have the others.
        let kept_out = sleeps && group.waits > 3 && kept_out(self.g, thread, within);
        let polls = first && group.waits > 3 || refused.is_some() || kept_out;
        // Who does not accept and looks again and again whether it may: its other threads are what it waits for.
        if class == WaitClass::Sleep && !polls && asks.is_some() && self.is_listener() {
            let inside = self.handed_inside(thread, &silent);
            if !inside.is_empty() {
                let own = self.out.nodes.len() - 1;
                self.follow_holder(thread, group, WaitClass::EventLoop, inside)?;
                let (kind, spans) = (FindingKind::Sleeping, group_spans(group));
                self.out.findings.push(Finding { thread, node: own, kind, spans });
                return Ok(());
            }
        }
        let memory = asks.as_ref().and_then(|a| self.shares_memory(thread, &a.spans)).filter(|_| sleeps);
        if class == WaitClass::Sleep && !polls && !v.interrupted {
            if let Some(c) = memory {
                return self.sleeps_for(c, WaitClass::Lock, thread, group_spans(group));
            }
            self.found(thread, FindingKind::Sleeping, group_spans(group));
            return Ok(());
        }
        let by_others = self.by_sessions(thread, group, &silent)? || self.by_standby(thread, &silent)?;
        if by_others || self.by_starved_pool(thread, group) || self.by_call_over_bus(thread, &silent)? {
            return Ok(());
        }
        let mut holders = self.holders(thread, group, class, &silent);
        // It owes an answer and waits for something else than requests: that nobody brings that is the cause, not
        // that others idle who have an end of a pipe that it watches, too.
        let silent_end = |w: &Self| w.owes(group) && !w.reads_from_child(thread, group);
        if class == WaitClass::EventLoop && !holders.is_empty() && silent_end(self) {
            let why = "it has an end of a pipe that was watched, too; nothing ever came that way";
            self.out.rejected.extend(holders.iter().map(|c| (c.thread, why.to_owned())));
            if let Some(c) = self.kin_of_stopped(thread, &silent) {
                return self.visit(c.thread, c.spans, c.entry);
            }
            if let Some(c) = self.kin_at_work(thread, group, &silent) {
                return self.follow_asked(c, thread, group);
            }
            self.found(thread, FindingKind::Unanswered, group_spans(group));
            return Ok(());
        }
        if class == WaitClass::EventLoop {
            let mut by_timer = self.answers_by_timer(group);
            if by_timer && self.puts_off() {
                self.only_at_work(thread, &silent, &mut holders);
                by_timer = holders.is_empty();
            }
            holders = self.asked_by_loop(thread, group, &silent, holders, by_timer);
            if holders.is_empty()
                && let Some(c) = self.stopped_peer(thread, &silent)
            {
                let own = self.out.nodes.len() - 1;
                self.follow(c, class)?;
                let (kind, spans) = (FindingKind::Idle, group_spans(group));
                self.out.findings.push(Finding { thread, node: own, kind, spans });
                return Ok(());
            }
            if holders.is_empty() && by_timer {
                self.found(thread, FindingKind::Idle, group_spans(group));
                return Ok(());
            }
        }
        if class == WaitClass::Channel && holders.len() > 1 {
            holders = self.asked_of_several(thread, &silent, holders);
        }
        if class == WaitClass::Channel && self.only_waiters_write(thread, &holders) {
            let why = "its process waits for this one itself, and it has nothing to do";
            self.out.rejected.extend(holders.iter().map(|c| (c.thread, why.to_owned())));
            self.found(thread, FindingKind::Unanswered, group_spans(group));
            return Ok(());
        }
        if !holders.is_empty() {
            holders.extend(self.interruptions(group));
            return self.follow_holder(thread, group, class, holders);
        }
        if let Some(c) = refused.and_then(|e| self.has_it(&e, thread, &silent)) {
            let own = self.out.nodes.len().saturating_sub(1);
            let (kind, spans) = (FindingKind::Sleeping, group_spans(group));
            let itself = Finding { thread, node: own, kind, spans };
            let before = self.out.findings.len();
            self.follow(c, WaitClass::Lock)?;
            // That nobody was there is what happened; what the one who came later did until then may explain it, and does where
            // that was kept from coming nearly all the time.
            let kept = self.out.findings.get(before).is_some_and(|f| {
                let idle =
                    [FindingKind::Idle, FindingKind::Unanswered, FindingKind::Here, FindingKind::Ended];
                let all = self.out.nodes.get(own + 1).map_or(0, |n| n.spent);
                !idle.contains(&f.kind) && all * 4 >= group.blocked * 3
            });
            let after = kept || !refused.is_some_and(|e| e.connects());
            let at = if after { self.out.findings.len() } else { before };
            self.out.findings.insert(at, itself);
            return Ok(());
        }
        // Whoever ends next lets it go on.
        if refused.is_some_and(|e| e.of_spawn()) {
            self.found(thread, FindingKind::Sleeping, group_spans(group));
            return Ok(());
        }
        if is_schedulers_own(&v, self.c) {
            let kind = if first { FindingKind::Unanswered } else { FindingKind::Idle };
            self.found(thread, kind, group_spans(group));
            return Ok(());
        }
        if self.waits_for_itself(thread, group, &silent) {
            return Ok(());
        }
        if let Some(c) = self.locked_in_handler(thread, group, &silent) {
            return self.visit(c.thread, c.spans, c.entry);
        }
        // Nobody is left who could act: how it goes when it goes well tells no more, and is not asked.
        if let Some(others) = self.locked_in(thread, group, &silent) {
            return self.closed_or_child(thread, group, others, &silent);
        }
        if let Some(others) = self.locked_together(thread, group, &silent) {
            return self.closed_or_child(thread, group, others, &silent);
        }
        if class == WaitClass::EventLoop
            && let Some(c) = self.unread(thread, &silent)
        {
            return self.follow_holder(thread, group, class, vec![c]);
        }
        if self.by_fifos(thread, group, &silent)? {
            return Ok(());
        }
        if let Some(c) = self.given_work(thread, group, &silent) {
            return self.visit(c.thread, c.spans, c.entry);
        }
        let for_lock = asks.is_some() && matches!(class, WaitClass::Lock | WaitClass::Condition);
        if let Some(c) = for_lock.then(|| self.one_that_runs(thread, group, &silent)).flatten() {
            return self.visit(c.thread, c.spans, c.entry);
        }
        if refused.is_none()
            && let Some(c) = memory
        {
            return self.sleeps_for(c, WaitClass::Lock, thread, group_spans(group));
        }
        if class != WaitClass::Sleep && self.by_baseline(thread, group, &silent)? {
            return Ok(());
        }
        if self.by_elimination(thread, group, &silent)? {
            return Ok(());
        }
        if let Some(c) = self.lost_child(thread, class, &silent) {
            return self.visit(c.thread, c.spans, c.entry);
        }
        if let Some(c) = self.kin_at_work(thread, group, &silent) {
            return self.follow_asked(c, thread, group);
        }
        if let Some(a) = &asks {
            self.no_flag(thread, a)?;
        }
        if class == WaitClass::Sleep {
            self.found(thread, FindingKind::Sleeping, group_spans(group));
            return Ok(());
        }
        let kind = match class {
            WaitClass::Disk => FindingKind::Device,
            WaitClass::Stopped | WaitClass::Traced => FindingKind::Stopped,
            c if c.idle() && !first => FindingKind::Idle,
            _ => FindingKind::Unanswered,
        };
        self.found(thread, kind, group_spans(group));
        Ok(())
    }

    /// Goes on to who may do what a thread asks for; that nobody told it is a cause, too.
    fn follow_asked(&mut self, c: Candidate, thread: ThreadId, group: &Group) -> Flow<()> {
        let own = self.out.nodes.len().saturating_sub(1);
        self.visit(c.thread, c.spans, c.entry)?;
        let (kind, spans) = (FindingKind::Unanswered, group_spans(group));
        self.out.findings.push(Finding { thread, node: own, kind, spans });
        Ok(())
    }

    /// Goes on to whom a thread asks, or waits for, between its sleeps; that it sleeps is a cause, too.
    fn sleeps_for(&mut self, c: Candidate, class: WaitClass, thread: ThreadId, spans: Spans) -> Flow<()> {
        let own = self.out.nodes.len().saturating_sub(1);
        self.follow(c, class)?;
        self.out.findings.push(Finding { thread, node: own, kind: FindingKind::Sleeping, spans });
        Ok(())
    }

    /// Was the last step come to as it listens on the socket that the one before is not accepted at?
    fn is_listener(&self) -> bool {
        let why = self.out.nodes.last().and_then(|n| n.why_weak.as_deref());
        why.is_some_and(|w| w.contains(relation_words(Relation::Listens)))
    }

    /// Did a server answer the step before when its own time-out had passed?
    fn answers_by_timer(&self, group: &Group) -> bool {
        let last = group.longest().map_or(VertexId(u32::MAX), |c| c.last);
        self.representative(group).timed_out && self.answers(last)
    }

    /// Short waits again and again, each ended by its own time-out: a loop that asks whether it may go on.
    fn asks(&self, group: &Group) -> Option<Asks> {
        let v = self.representative(group);
        let each = group.blocked / group.waits.max(1) as u64;
        (group.waits > 3 && each < LONG_SINGLE && v.timed_out).then(|| Asks {
            vertex: group.longest().map_or(VertexId(u32::MAX), |c| c.last),
            start: v.start,
            spans: group_spans(group),
            rounds: group.waits,
            variable: None,
            how: format!(
                "waited {} times for {} each in {}, {} in all",
                group.waits,
                span(each),
                v.syscall.name().unwrap_or_else(|| "the kernel".into()),
                span(group.blocked)
            ),
        })
    }

    /// Does the step before wait for an answer over a channel that this thread does not even look at?
    fn owes(&self, group: &Group) -> bool {
        let Some(before) = self.out.nodes.len().checked_sub(2).map(|i| &self.out.nodes[i]) else {
            return false;
        };
        let Some(channel) = before.object.and_then(|o| self.c.object(o)).filter(|o| o.kind.is_channel())
        else {
            return false;
        };
        let v = self.representative(group);
        let Some(set) = self.c.object(v.object).filter(|o| !o.members.is_empty()) else { return false };
        // A signal or a counter can come from anybody.
        let internal = |o: &pg_event::Object| {
            matches!(
                o.kind,
                ObjectKind::SignalFd | ObjectKind::EventFd | ObjectKind::Pipe | ObjectKind::TimerFd
            )
        };
        let unseen = |o: &pg_event::Object| matches!(o.kind, ObjectKind::SignalFd | ObjectKind::EventFd);
        let watched = || set.members.iter().filter_map(|m| self.c.object(*m));
        // What hung from before the recording on had asked.
        let hung = self.out.nodes.len() == 2 && self.g.vertex(before.vertex).begun_before;
        (hung || crate::class::asked(self.g, self.c, before.vertex))
            && watched().any(unseen)
            && watched().all(|o| internal(o) && !o.is_other_end_of(channel))
    }

    /// Does the way back from a candidate come to a thread that is on it?
    pub(crate) fn closes_ring(&self, c: &Candidate) -> bool {
        let mut ahead = self.ahead();
        // An open question ends a look ahead as well; what it came to counts.
        let _ = ahead.visit(c.thread, c.spans.clone(), c.entry.clone());
        ahead.out.ring
    }

    /// The holder idles: show it, then look whether a baseline tells who should have acted.
    pub(super) fn never_answered(&mut self, thread: ThreadId, group: &Group, c: Candidate) -> Flow<()> {
        let own = self.out.nodes.len().saturating_sub(1);
        let spans = c.spans.clone();
        let act = activity(self.g, self.c, c.thread, &merged(spans.clone()));
        if let Mostly::Waiting(i) = act.mostly()
            && let Some(g) = act.groups.get(i)
            && !self.path.iter().any(|p| p.0 == c.thread)
        {
            self.push_wait(c.thread, g, c.entry.clone());
            // It took the request and waits for something else than the next one.
            if class(&self.representative(g), self.c) == WaitClass::EventLoop && self.owes(g) {
                self.found(c.thread, FindingKind::Unanswered, group_spans(g));
                let kind = FindingKind::Unanswered;
                let spans = group_spans(group);
                self.out.findings.push(Finding { thread, node: own, kind, spans });
                return Ok(());
            }
        }
        let holder_node = self.out.nodes.len() - 1;
        let idles = class(&self.g.vertex(self.out.nodes[holder_node].vertex), self.c) == WaitClass::EventLoop;
        let terminal = |s: &Candidate| {
            act.waiting().is_some_and(|g| self.at_its_terminal(g, c.thread, s, &merged(spans.clone())))
        };
        let ends = || self.lives_on(c.thread, &spans);
        let started = || self.started_for(c.thread, &spans).or_else(ends).filter(|s| !terminal(s));
        if idles && let Some(started) = started().or_else(|| self.stopped_peer(c.thread, &spans)) {
            self.path.push((c.thread, spans));
            return self.visit(started.thread, started.spans, started.entry);
        }
        if idles
            && holder_node != own
            && let Some((started, at)) = self.started_in_vain(c.thread, &spans)
        {
            let until = spans.last().map_or(at, |s| s.1);
            self.push_ended(started, (at, until), until.saturating_sub(at), STARTED);
            self.found(started, FindingKind::Ended, vec![(at, until)]);
            let (thread, node, kind) = (c.thread, holder_node, FindingKind::Unanswered);
            self.out.findings.push(Finding { thread, node, kind, spans });
            return Ok(());
        }
        // The display server has nothing for it: who is missing is whoever uses the window.
        if idles && self.waits_at_window(group) {
            let (kind, spans) = (FindingKind::Input, group_spans(group));
            self.out.findings.push(Finding { thread, node: own, kind, spans });
            return Ok(());
        }
        let waits = self.g.vertex(self.out.nodes[holder_node].vertex);
        // Who waits for the other end of a FIFO to be opened is no server that waits for requests.
        let over = spans.last().map_or(0, |s| s.1);
        let stuck = opens_fifo(&waits, self.c) || left_alone(self.g, self.c, &waits, over);
        if is_schedulers_own(&waits, self.c)
            && let Some(asked) = self.asked_by_tasks(c.thread, &spans)
        {
            self.path.push((c.thread, spans));
            return self.visit(asked.thread, asked.spans, asked.entry);
        }
        if !stuck && self.by_baseline(thread, group, &spans)? {
            return Ok(());
        }
        // The first thread of a daemon may only wait for signals.
        let heeds = c.relation == Some(Relation::Serves) && class(&waits, self.c) == WaitClass::Signal
            || c.relation == Some(Relation::Peer) && self.parked(&waits);
        let anybody = heeds || self.serves_anybody(&waits);
        let inside = if anybody { self.handed_inside(c.thread, &spans) } else { Vec::new() };
        if !inside.is_empty() {
            self.path.push((c.thread, spans));
            return self.follow_holder(thread, group, WaitClass::EventLoop, inside);
        }
        if holder_node != own {
            let outside = act.waiting().filter(|_| idles);
            let outside = outside.and_then(|g| self.asked_outside(c.thread, g, &merged(spans.clone())));
            let unanswered = outside.is_some() || stuck;
            let kind = if unanswered { FindingKind::Unanswered } else { FindingKind::Idle };
            if let Some(n) = self.out.nodes.last_mut().filter(|_| outside.is_some()) {
                n.object = outside;
            }
            let (thread, node) = (c.thread, holder_node);
            self.out.findings.push(Finding { thread, node, kind, spans });
        }
        self.out.findings.push(Finding {
            thread,
            node: own,
            kind: FindingKind::Unanswered,
            spans: group_spans(group),
        });
        Ok(())
    }

    /// It has the other end, waits itself, and nobody is known to be at fault for that: whatever was to
    /// come through was never sent.
    pub(super) fn keeps_silent(&self, c: &Candidate) -> bool {
        if c.relation.is_none_or(|r| r.has_lock() || matches!(r, Relation::ChildOf | Relation::Traces)) {
            return false;
        }
        if c.relation == Some(Relation::Peer) && self.asked_on(c) {
            return false;
        }
        if c.relation == Some(Relation::Peer) && self.accepts(c.thread, &c.merged()) {
            return true;
        }
        // It takes what comes and hands it on to another thread, which is at work.
        let act = self.meanwhile(c);
        let carries = |g: &Group| self.carries(&self.representative(g));
        if c.relation == Some(Relation::Peer)
            && act.waiting().is_some_and(carries)
            && !self.handed_inside(c.thread, &c.merged()).is_empty()
        {
            return true;
        }
        // It has something to say, and waits for room to write it.
        if act.waiting().is_some_and(|g| class(&self.representative(g), self.c) == WaitClass::Room) {
            return false;
        }
        let mut ahead = self.ahead();
        if ahead.visit(c.thread, c.spans.clone(), c.entry.clone()).is_err() {
            return false;
        }
        // Its first thread does nothing at all: others have the connection.
        if c.relation == Some(Relation::Peer)
            && act.waiting().is_some_and(|g| self.parked(&self.representative(g)))
            && !self.handed_inside(c.thread, &c.merged()).is_empty()
        {
            return true;
        }
        ahead.out.findings.first().is_none_or(|f| {
            let blameless = matches!(f.kind, FindingKind::Idle | FindingKind::Unanswered | FindingKind::Here);
            f.thread == c.thread && blameless
        })
    }

    pub(super) fn is_idle(&self, c: &Candidate) -> bool {
        let act = self.meanwhile(c);
        match act.mostly() {
            Mostly::Waiting(i) => act.groups.get(i).is_some_and(|g| {
                let woken = self.g.waking(g.longest().map_or(VertexId(u32::MAX), |c| c.last)).is_some();
                let class = class(&self.representative(g), self.c);
                // Who only looks after others that accept has pauses.
                let pauses =
                    c.relation == Some(Relation::Listens) && class == WaitClass::Sleep && g.waits > 2;
                (class.idle() || pauses) && !woken && !self.reads_from_child(c.thread, g)
            }),
            _ => false,
        }
    }

    pub(super) fn only_heeds_signals(&self, c: &Candidate) -> bool {
        let act = self.meanwhile(c);
        act.waiting().is_some_and(|g| class(&self.representative(g), self.c) == WaitClass::Signal)
    }
}
