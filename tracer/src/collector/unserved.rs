//! Events of connections that were not served.

use super::pipeline::Pipeline;
use super::raw::RawObject;
use crate::unserved::{Told, Who};
use pg_event::{Event, Kind, ThreadId, Unserved};

impl Pipeline {
    /// Messages were not recorded from `since` (`CLOCK_MONOTONIC`) until `until`, or are not from now on.
    pub fn unheard(&mut self, since: u64, until: Option<u64>) {
        if let Some(queues) = &mut self.queues {
            queues.unheard(until);
        }
        if let Some(until) = until {
            let (since, time) = (self.time(since), self.time(until));
            self.push(Event { time, thread: ThreadId::NONE, cpu: 0, kind: Kind::Unheard { since } });
        }
    }

    /// Put the events for what is due when all records up to `complete` were taken; `open`: also what goes on as it
    /// is now. Both times are of `CLOCK_MONOTONIC`.
    pub fn tell_unserved(&mut self, complete: u64, now: u64, open: bool) {
        let Some(queues) = &mut self.queues else { return };
        let mut told = queues.due(complete);
        if open {
            told.extend(queues.open());
        }
        for t in told {
            self.unserved(&t, now);
        }
    }

    fn unserved(&mut self, t: &Told, now: u64) {
        let time = self.time(now);
        let thread = match t.who {
            Who::Process(pid) => self.identity.leader(pid, time),
            Who::Thread(tid, tgid) => self.identity.thread(tid, tgid, time),
        };
        let raw = RawObject { kind: t.ends.kind as u8, id: t.ends.id, peer: t.ends.peer };
        let object = if t.ends.name.is_empty() {
            self.objects.id(raw)
        } else {
            self.objects.called(raw, &t.ends.name)
        };
        let kind = Kind::Unserved(Unserved {
            object,
            since: self.time(t.since),
            until: self.time(t.until),
            bytes: t.bytes,
            open: t.open,
            arrived: t.arrived,
            display: t.ends.display,
        });
        self.push(Event { time, thread, cpu: 0, kind });
    }
}
