//! The sentence of a thread that slept, and what is said of a few sleeps.

use super::unanswered::listens;
use super::{Ranked, Writer};
use crate::class::{WaitClass, class};
use crate::diagnose::SliceNode;
use crate::words::{clean, ids, span};
use pg_event::{Ns, Process};

impl Writer<'_> {
    /// Is the victim one that slept before the recording and after it, and a few times within, so that a loop of tries would
    /// not have been seen?
    pub(super) fn may_have_tried(&self, r: &Ranked, n: &SliceNode) -> bool {
        r.node == 0 && matches!(n.waits, 2 | 3) && self.victim.cut(self.g) == (true, true)
    }

    /// How long each of a few sleeps was.
    fn sleeps(&self, n: &SliceNode) -> Vec<Ns> {
        let within = self.g.vertices_in(n.thread, n.start..n.start + n.duration).map(|v| self.g.vertex(v));
        let sleeps = within.filter(|v| class(v, self.c) == WaitClass::Sleep && v.waited() * 50 > n.spent);
        sleeps.map(|v| v.waited()).collect()
    }

    /// `5.00 s and 10.0 s` for a few sleeps that were not alike.
    fn unlike(&self, n: &SliceNode) -> Option<String> {
        // Of what the recording cut only a part is known.
        if !matches!(n.waits, 2 | 3) || self.victim.cut(self.g) != (false, false) {
            return None;
        }
        let all = self.sleeps(n);
        let (least, most) = (all.iter().min()?, all.iter().max()?);
        let words: Vec<_> = all.iter().map(|t| span(*t)).collect();
        let (last, before) = words.split_last()?;
        (all.len() == n.waits && least * 5 < most * 4).then(|| format!("{} and {last}", before.join(", ")))
    }

    /// What a thread called right after the last of several sleeps, where that was recorded and it slept no more: what it
    /// waited for shows there.
    fn called_after(&self, n: &SliceNode) -> String {
        const SOON: Ns = 50_000_000;
        let end = n.start + n.duration;
        let ended = n.waits > 1 && self.g.exited(n.thread).is_some_and(|x| x.0 < end + SOON);
        let calls = self.g.syscalls_of(n.thread, end..end.saturating_add(SOON));
        let mut names: Vec<String> = Vec::new();
        for call in calls.iter().filter(|c| ended && c.what.result >= 0) {
            match call.what.nr.name().map(Into::into) {
                Some(name) if names.len() < 4 && !names.contains(&name) => names.push(name),
                _ => {}
            }
        }
        match &names[..] {
            [] => String::new(),
            [one] => format!("; after the last it called {one}, with success, and ended"),
            [all @ .., last] => {
                format!("; after the last it called {} and {last}, with success, and ended", all.join(", "))
            }
        }
    }

    /// `; it has one child, cat (pid 9), and may wait for that to end`, of a server that sleeps instead of accepting.
    fn may_wait_for_child(&self, n: &SliceNode) -> Option<String> {
        let own = self.c.process_id_of(n.thread).filter(|p| p.is_some() && listens(n))?;
        let (middle, end) = (n.start + n.duration / 2, n.start + n.duration);
        let lives = |p: &&Process| p.parent == own && p.start <= middle && p.end.is_none_or(|e| e >= end);
        let mut all = self.c.processes.iter().filter(lives);
        let (child, None) = (all.next()?, all.next()) else { return None };
        let name = clean(&child.name, 40);
        Some(format!("; it has one child, {name} (pid {}), and may wait for that to end", ids(child)))
    }

    /// It slept: how long, how often, called from where.
    pub(super) fn why_sleeping(&self, r: &Ranked, n: &SliceNode, full: &str) -> String {
        let f = n
            .function
            .as_ref()
            .filter(|f| !f.starts_with("0x") && !self.in_interpreter(n))
            .map_or_else(String::new, |f| format!(", called from {}", clean(f, 60)));
        let v = self.g.vertex(n.vertex);
        let slack = 1_000_000;
        let on = v.open || v.interrupted || v.woken > n.start + n.duration + slack;
        let last = self.last_of(n);
        // A sleep ends by its timer; who is woken by somebody was sent a signal.
        let woken = !self.g.vertex(last).timed_out && self.g.waking(last).is_some();
        let how = if on {
            "and had not finished then"
        } else if woken {
            "until a signal ended that"
        } else if v.begun_before {
            "begun before the recording"
        } else {
            "as long as it had asked for"
        };
        let how = match self.unlike(n) {
            Some(lengths) => lengths,
            None if n.waits > 1 => match self.each(n) {
                Some(each) => format!("{} at a time ({} times)", span(each), n.waits),
                None => format!("{} times, {how}", n.waits),
            },
            // What is looked at may be less than that.
            None if !on && !v.begun_before && n.spent.saturating_add(n.spent / 32) < v.waited() => {
                format!("{how} ({} in all)", span(v.waited()))
            }
            None => how.into(),
        };
        let how = format!("{how}{}", self.called_after(n));
        let unseen = if self.may_have_tried(r, n) {
            "; whether it tries something in between, with longer and longer pauses, was not recorded: a recording from the beginning, or a longer one, tells"
        } else {
            ""
        };
        let reader = r.node.checked_sub(1).and_then(|i| self.o.nodes.get(i));
        let open = reader.and_then(|of| self.kept_open_asleep(n, of).or_else(|| self.unread_asleep(n, of)));
        let open = open.map_or_else(String::new, |o| format!("; {o}"));
        let open = self.may_wait_for_child(n).unwrap_or(open);
        format!(
            "{full} slept {} in {}{f}, {how}{open}{unseen}",
            span(n.spent),
            n.syscall.as_deref().unwrap_or("a sleep")
        )
    }
}
