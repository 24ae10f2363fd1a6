//! A bus to which a recording comes late: what its clients asked it to hand on was before. Where each of them is tells who
//! asks for something in the middle of what it does for another one, and who idles.

use super::activity::{Activity, Mostly, Spans, activity, extent};
use super::ask::Candidate;
use super::finding::FindingKind;
use super::walk::Walk;
use crate::Vertex;
use crate::class::{WaitClass, accepted, class, from_before};
use pg_event::{Catalog, Frame, Ns, ObjectKind, Relation, StackId, ThreadId};

/// Functions that ask for something over D-Bus and wait for the answer: those of libdbus wait by functions of its own.
const ASK: &[&str] = &[
    "sd_bus_call",
    "sd_bus_call_method",
    "g_dbus_connection_call_sync",
    "g_dbus_connection_send_message_with_reply_sync",
    "g_dbus_proxy_call_sync",
];
/// Functions that hand messages of a bus to who serves them.
const SERVE: &[&str] = &["dbus_connection_dispatch", "sd_bus_process"];

/// Does a stack tell that its thread asks for something over a bus?
pub(super) fn asks_over_bus(c: &Catalog, stack: StackId) -> bool {
    let module = |f: &Frame| c.modules.get(f.module.index()).map(pg_event::Module::short);
    let modules = c.frames_of(stack).filter_map(module);
    let caller = modules.map(|m| m.rsplit('/').next().unwrap_or_default()).find(|m| !m.starts_with("libc"));
    // The same library reads and hands on whatever comes for who has no loop of its own.
    let any = |names: &[&str]| c.frames_of(stack).any(|f| names.contains(&f.function.as_str()));
    let idles = || any(&["dbus_connection_read_write", "dbus_connection_read_write_dispatch"]);
    any(ASK) || caller.is_some_and(|m| m.starts_with("libdbus-1")) && !idles()
}

/// ... in the middle of serving another one?
fn asks_for_another(c: &Catalog, stack: StackId) -> bool {
    let serves = || c.frames_of(stack).any(|f| SERVE.contains(&f.function.as_str()));
    asks_over_bus(c, stack) && serves()
}

impl Walk<'_> {
    /// The wait of a thread that lasts (nearly) all of the time, and was on before the recording.
    pub(super) fn waits_from_before(&self, t: ThreadId, spans: &Spans) -> Option<Vertex> {
        let act: Activity = activity(self.g, self.c, t, spans);
        let Mostly::Waiting(i) = act.mostly() else { return None };
        let g = act.groups.get(i).filter(|g| g.blocked * 20 >= act.total * 19)?;
        let v = self.g.vertex(g.longest()?.first);
        from_before(self.g, &v).then_some(v)
    }

    /// Who asks by way of `server`, too, in the middle of what it does for another one: `asker` had asked before the recording
    /// began, and whoever idles would have answered. Of several first who is not on the way.
    pub(super) fn asks_meanwhile(
        &self,
        server: ThreadId,
        asker: ThreadId,
        spans: &Spans,
    ) -> Option<Candidate> {
        self.waits_from_before(asker, spans)?;
        let (a, b) = extent(spans);
        let held = self.g.holds(server, a..b.saturating_add(1)).filter(|h| h.relation == Relation::Peer);
        let mut asking: Vec<(Ns, ThreadId)> = held.map(|h| (h.time, h.holder)).collect();
        asking.sort_unstable_by_key(|x| (x.1, x.0));
        asking.dedup_by_key(|x| x.1);
        asking.retain(|&(_, t)| t != asker && t != server && self.counts(t));
        // What costs least first: a server may have thousands of clients.
        let middle = a.midpoint(b);
        let may_ask = |t: ThreadId| {
            let at = self.g.vertex_at(t, middle).map(|v| self.g.vertex(v));
            at.is_some_and(|v| asks_for_another(self.c, v.user_stack))
        };
        // Somebody who does something else there may have been asked as well.
        let works = |t: ThreadId| {
            let v = self.g.vertex_at(t, middle).map(|v| self.g.vertex(v));
            let here = v.is_some_and(|v| v.woken > middle && self.looks_at_other_end(&v, server, spans));
            !here && self.at_work(t, spans)
        };
        if asking.iter().any(|&(_, t)| !may_ask(t) && works(t)) {
            return None;
        }
        asking.retain(|&(_, t)| {
            may_ask(t)
                && self.waits_at_other_end(t, server, spans)
                && self.waits_from_before(t, spans).is_some_and(|v| asks_for_another(self.c, v.user_stack))
        });
        asking.sort_unstable_by_key(|&(at, t)| (self.on_the_way(t), at, t));
        let &(at, t) = asking.first()?;
        let why = "no message was recorded; it asks by way of the same bus in the middle of what it does for another one, while others there idle";
        Some(Candidate::unseen(t, spans.clone(), (self.g.vertex_at(t, at), at), why))
    }

    /// The way comes back to a bus from one who had asked it for something before the recording began: whom is not known.
    pub(super) fn asked_before_over_bus(&mut self, server: ThreadId, spans: &Spans) -> bool {
        let Some(n) = self.out.nodes.last().filter(|n| n.thread != server) else { return false };
        let (asker, of) = (n.thread, vec![(n.start, n.start + n.duration)]);
        let asks =
            self.waits_from_before(asker, spans).is_some_and(|v| asks_for_another(self.c, v.user_stack));
        if !asks || !self.serves_all(server, spans) {
            return false;
        }
        self.found(asker, FindingKind::Unanswered, of);
        true
    }

    /// Had the one before asked `server`, which waits since then, before the recording began? Whether over a bus: whoever waits
    /// for an answer over one does so in functions that tell.
    pub(super) fn asked_late(&self, server: ThreadId, spans: &Spans) -> Option<bool> {
        let asker = self.path.len().checked_sub(2).map(|i| self.path[i].0)?;
        let asked = self.waits_from_before(asker, spans)?;
        self.waits_from_before(server, spans)?;
        Some(asks_over_bus(self.c, asked.user_stack))
    }

    /// A client that came to a server and idles: not over a bus in the middle of a request. See [`Self::asked_late`].
    pub(super) fn idle_client(&self, c: &Candidate, server: ThreadId, of_bus: bool, spans: &Spans) -> bool {
        let (a, b) = extent(spans);
        let process = |t: ThreadId| self.c.process_id_of(t);
        let unix = |o| self.c.object(o).is_some_and(|o| o.kind == ObjectKind::UnixStream);
        let mut held = self
            .g
            .holds(server, a..b.saturating_add(1))
            .filter(|h| process(h.holder) == process(c.thread))
            .peekable();
        let idles = || {
            let v = self.waits_from_before(c.thread, spans)?;
            let here = of_bus && !asks_over_bus(self.c, v.user_stack);
            Some(match class(&v, self.c) {
                WaitClass::EventLoop => true,
                WaitClass::Channel => here && self.looks_at_other_end(&v, server, spans),
                _ => false,
            })
        };
        held.peek().is_some()
            && held.all(|h| unix(h.object) && accepted(self.c, h.object))
            && idles() == Some(true)
    }
}
