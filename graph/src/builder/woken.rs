//! Who ended a wait: an edge from there, or a count of what it was instead.

use super::channel::Segment;
use super::thread::Role;
use super::wake::{self, Verdict, Waker};
use super::{Builder, number_of};
use crate::columns::{EdgeRow, INTERRUPTED, TIMED_OUT};
use crate::{EdgeKind, Weak};
use pg_event::{Catalog, Ns, OffCpu, ThreadId};

impl Builder {
    /// The wait `o` of `wakee` ended (its vertex is begun): by whom?
    pub(super) fn woken(&mut self, wakee: ThreadId, o: &OffCpu, catalog: &Catalog) {
        let to = self.current(wakee);
        if let Some(t) = self.threads.get_mut(wakee.index()) {
            t.number_last(&mut self.numbers);
        }
        if o.open && o.woken == 0 {
            return;
        }
        let Some(row) = self.threads.get(wakee.index()).and_then(|t| t.rows.last()) else { return };
        let woken = row.times.woken;
        let waker = if o.waker == wakee { None } else { self.waker(wakee, o, woken, catalog) };
        let wakee_role = self.threads[wakee.index()].role;
        match wake::judge(o, wakee_role, waker.map(|w| w.1), catalog) {
            Verdict::Edge(kind, weak) => {
                let Some((mut from, w)) = waker else { return };
                if w.role == Role::Worker && self.carried_on(from, to, woken, o, catalog) {
                    return;
                }
                if kind == EdgeKind::Ipc {
                    self.channels.note_send(o.waker_object, from, woken, catalog);
                }
                if weak == Some(Weak::Signal) {
                    self.flag_last(wakee, INTERRUPTED);
                }
                if kind == EdgeKind::Exit {
                    let ended_by = |t: ThreadId| self.threads.get(t.index()).and_then(|t| t.ended_by);
                    // The last thread of a process tells of its end, which another one had brought about.
                    from = ended_by(from.thread).filter(|_| !w.kin).unwrap_or(from);
                    if w.kin
                        && weak.is_some()
                        && let Some(t) = self.threads.get_mut(wakee.index())
                    {
                        t.ended_by = Some(from);
                    }
                }
                self.wake_edge(from, woken, to, woken, kind, weak, o);
            }
            Verdict::TimedOut => {
                self.culled.timer += 1;
                self.flag_last(wakee, TIMED_OUT);
            }
            Verdict::Armed => match self.armer(o, catalog) {
                Some((from, at)) if from != to => {
                    self.wake_edge(from, at, to, woken, EdgeKind::Timer, None, o);
                }
                _ => self.culled.timer += 1,
            },
            Verdict::Packet => match self.sender(o, woken, catalog) {
                Some((from, at)) if from.thread != wakee => {
                    let weak = Some(Weak::InterruptInferred);
                    self.wake_edge(from, at, to, woken, EdgeKind::Ipc, weak, o);
                }
                _ => self.culled.interrupt += 1,
            },
            Verdict::Interrupt => {
                self.culled.interrupt += 1;
                if wake::by_alarm(o, catalog) {
                    self.flag_last(wakee, INTERRUPTED);
                }
            }
            Verdict::Maintenance => self.culled.maintenance += 1,
            Verdict::Own => self.culled.own += 1,
            Verdict::Unknown => self.culled.unknown += 1,
        }
    }

    fn waker(
        &mut self,
        wakee: ThreadId,
        o: &OffCpu,
        woken: Ns,
        catalog: &Catalog,
    ) -> Option<(Segment, Waker)> {
        if o.waker.is_none() {
            return None;
        }
        let t = self.touch(o.waker, woken, catalog)?;
        let index = t.segment_at(woken)?;
        let waker = Waker {
            role: t.role,
            exiting: wake::exiting(t.exited, woken),
            ns_tid: catalog.thread(o.waker).map_or(0, |t| t.ns_tid),
            kin: catalog.process_id_of(o.waker).is_some_and(|p| catalog.process_id_of(wakee) == Some(p)),
        };
        Some((Segment { thread: o.waker, index }, waker))
    }

    /// Who armed the timer that `o` waited for.
    fn armer(&self, o: &OffCpu, catalog: &Catalog) -> Option<(Segment, Ns)> {
        let members = catalog.object(o.object).map_or(&[][..], |x| &x.members);
        let all = std::iter::once(&o.object).chain(members);
        all.filter_map(|m| self.armed.get(m)).max_by_key(|a| a.1).copied()
    }

    /// Who sent last, before `woken`, to what `o` waited for.
    fn sender(&mut self, o: &OffCpu, woken: Ns, catalog: &Catalog) -> Option<(Segment, Ns)> {
        let object = catalog.object(o.object)?;
        let mut best = self.channels.sender_to(o.object, woken, catalog);
        for m in &object.members {
            let s = self.channels.sender_to(*m, woken, catalog);
            if s.map(|x| x.1) > best.map(|x| x.1) {
                best = s;
            }
        }
        best
    }

    #[allow(clippy::too_many_arguments)] // An edge has that many parts.
    fn wake_edge(
        &mut self,
        from: Segment,
        from_time: Ns,
        to: Segment,
        to_time: Ns,
        kind: EdgeKind,
        weak: Option<Weak>,
        o: &OffCpu,
    ) {
        self.edges.push(EdgeRow {
            from: number_of(&self.threads, from),
            to: number_of(&self.threads, to),
            from_time: from_time.min(to_time),
            to_time,
            object: if o.object.is_some() { o.object } else { o.waker_object },
            stack: o.waker_stack,
            syscall: o.waker_syscall,
            kind,
            weak,
            waking: true,
        });
    }

    fn flag_last(&mut self, t: ThreadId, flag: u8) {
        if let Some(r) = self.threads.get_mut(t.index()).and_then(|t| t.rows.last_mut()) {
            r.detail.flags |= flag;
        }
    }
}
