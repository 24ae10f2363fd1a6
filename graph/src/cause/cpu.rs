//! Who had a CPU, and at whose request; who had none, and by what.

use super::{Ranked, Writer};
use crate::class::owed;
use crate::diagnose::SliceNode;
use crate::profile::Profile;
use crate::starved::{Starved, starved};
use crate::words::{clean, executes, moment, percent, short_label, span, who};
use crate::yields::endless;
use crate::{Edge, EdgeKind};
use pg_event::{Direction, ObjectId, ThreadId};
use std::fmt::Write;

/// The function of the same file that called the one that a profile names: a small one may be called by the loop that is to be
/// mended.
fn caller(p: &Profile) -> Option<&str> {
    const BEGINS: [&str; 3] = ["main", "start_thread", "_start"];
    fn parts(line: &str) -> Option<(&str, &str)> {
        let (name, module) = line.rsplit_once(" (")?;
        Some((name, module.strip_suffix(')')?))
    }
    let (f, module) = (p.function.as_deref()?, p.module.as_deref()?);
    let at = p.stack.iter().position(|line| parts(line).is_some_and(|l| l.0 == f))?;
    let (name, of) = parts(p.stack.get(at + 1)?)?;
    (of == module && !name.starts_with("0x") && !BEGINS.contains(&name)).then_some(name)
}

impl Writer<'_> {
    /// What was set for how a thread is scheduled, in words; `None` where all is as usual.
    fn scheduled(&self, thread: ThreadId) -> Option<String> {
        self.c.thread(thread)?.scheduling.as_ref().map(|s| clean(&s.words(), 80))
    }

    /// Which threads had the CPUs instead.
    fn cpus_had(&self, s: &Starved) -> String {
        let most: Vec<String> = s
            .others
            .iter()
            .filter(|o| o.1 >= 0.1)
            .take(3)
            .map(|(t, share)| {
                let set = self.scheduled(*t).map_or_else(String::new, |s| format!(", {s}"));
                format!("{} ({:.0} %{set})", who(self.c, *t), share * 100.0)
            })
            .collect();
        if most.is_empty() { String::new() } else { format!("; the CPUs were taken by {}", most.join(", ")) }
    }

    pub(super) fn why_throttled(&self, r: &Ranked, n: &SliceNode, full: &str) -> String {
        let s = starved(self.g, self.c, r.thread, &r.spans);
        let whole = crate::diagnose::spans_total(&r.spans);
        let group = n.object_label(self.c).map_or_else(String::new, |l| format!(" of {}", clean(&l, 110)));
        let idle = if s.in_vain() { " though CPUs were idle" } else { "" };
        let turns = if s.period > 0 {
            format!(" lets it run about {} every {}", span(s.slice), span(s.period))
        } else {
            " was used up".to_owned()
        };
        format!(
            "{full} was throttled for {} of {} ({}){idle}: the CPU quota (cpu.max{group}){turns}",
            span(n.spent),
            span(whole),
            percent(n.spent, whole),
        )
    }

    pub(super) fn why_running(&self, r: &Ranked, n: &SliceNode, p: &Profile, full: &str) -> String {
        let spans = &r.spans;
        let whole = crate::diagnose::spans_total(spans);
        let mut s = format!(
            "{full} was on the CPU for {} of {} ({})",
            span(n.spent),
            span(whole),
            percent(n.spent, whole)
        );
        let off = crate::diagnose::activity(self.g, self.c, n.thread, spans).runnable;
        if let Some(f) = &p.function {
            let module = p.module.as_ref().map_or_else(String::new, |m| format!(" ({m})"));
            let _ = write!(s, ", {:.0} % of it in {}{module}", p.share * 100.0, clean(f, 80));
            if let Some(language) = executes(f) {
                let _ = write!(s, ", which executes {language} code");
            } else if let Some(caller) = caller(p) {
                let _ = write!(s, ", called from {}", clean(caller, 60));
            }
        }
        if off * 3 > n.spent {
            let _ = write!(s, ", and queued for it for {}", span(off));
        }
        if endless(self.g, self.c, r.thread, spans) {
            s += ", in a loop that no instruction leads out of";
        }
        if let Some(from) = self.served(n) {
            s += &from;
        }
        // On a busy machine many had a little of it.
        if off > n.spent {
            let had = starved(self.g, self.c, r.thread, spans);
            if had.others.first().is_some_and(|o| o.1 >= 0.15) {
                s += &self.cpus_had(&had);
            }
        }
        s
    }

    /// What set the running thread to work: the message that it took last before it got busy, and whose that was.
    fn served(&self, n: &SliceNode) -> Option<String> {
        let at = self.g.vertex_at(n.thread, n.start + n.duration / 2)?;
        let v = self.g.vertex(at);
        let own = self.g.ipc_of(n.thread, v.run..v.end.saturating_add(1));
        let took = own.iter().find(|m| m.what.direction == Direction::Receive);
        // What came while it was busy and was not taken waits in the queue.
        let row = |o: ObjectId| self.c.object(o);
        let same = |a: ObjectId, b: ObjectId| {
            a == b || row(a).zip(row(b)).is_some_and(|(a, b)| a.is_other_end_of(b))
        };
        let taken = |e: &Edge| {
            let after = self.g.ipc_of(n.thread, e.from_time..n.start + n.duration);
            after.iter().any(|m| m.what.direction == Direction::Receive && same(m.what.object, e.object))
        };
        let waking = self.g.waking(at);
        let asks = self.g.incoming(at).map(|id| (id, self.g.edge(id))).filter(|(id, e)| {
            let from = self.g.vertex(e.from).thread;
            let asked = e.kind == EdgeKind::Ipc && (waking == Some(*id) || taken(e));
            from != n.thread && (asked || took.is_some())
        });
        let e = asks.map(|x| x.1).min_by_key(|e| e.from_time);
        let Some(e) = e else {
            // Nobody is known to have sent it: a terminal, a device, another machine.
            let m = took.filter(|m| m.what.first <= n.start + n.duration / 2)?;
            let from = self.c.object(m.what.object).map(|o| short_label(&o.label()))?;
            return Some(format!(
                ", since it took {} B from {from} at {}",
                m.what.bytes,
                moment(m.what.first)
            ));
        };
        let from = self.g.vertex(e.from).thread;
        let when = moment(e.from_time);
        match self.o.nodes.iter().position(|x| x.thread == from) {
            // Whoever asked for it waits for it: said with the rest.
            Some(_) => Some(format!(", on its request at {when}")).filter(|_| e.kind == EdgeKind::Ipc),
            // What it had asked for itself is no request.
            None if owed(self.g, self.c, n.thread, e.from_time).iter().any(|o| same(*o, e.object)) => {
                Some(format!(", since {} answered it at {when}", self.full(from, e.from_time)))
            }
            None => Some(format!(", for {} since {when}", self.full(from, e.from_time))),
        }
    }

    /// It wanted a CPU, and did not have it.
    pub(super) fn why_no_cpu(&self, r: &Ranked, n: &SliceNode, full: &str) -> String {
        let whole = crate::diagnose::spans_total(&r.spans);
        let set = self.scheduled(r.thread).map_or_else(String::new, |s| format!("; it {s}"));
        format!(
            "{full} could have run but got no CPU for {} of {} ({}), and ran {} of it{set}{}",
            span(n.spent),
            span(whole),
            percent(n.spent, whole),
            span(whole.saturating_sub(n.spent)),
            self.cpus_had(&starved(self.g, self.c, r.thread, &r.spans))
        )
    }
}
