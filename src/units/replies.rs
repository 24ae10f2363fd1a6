//! Waits within units for the next request of a connection that was answered: such units are connections, not requests
//! (servers with a thread or process for each connection, whose loop takes connections and whose handler keeps them).

use pg_event::{Catalog, Direction, Event, Kind, ObjectId, ThreadId};
use pg_tracer::units::Wait;
use std::collections::HashMap;

/// Connections that are remembered at a time.
const MOST: usize = 1 << 16;

/// What a thread did last on a connection.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Did {
    /// It was asked first, and has read.
    Read,
    /// Then it has answered.
    Answered,
    /// It spoke first: it asks somebody.
    Asks,
}

/// What was said on the connections of threads.
#[derive(Default)]
pub struct Replies(HashMap<(ThreadId, ObjectId), Did>);

impl Replies {
    /// An event of a thread, in order of time. Is it a wait for what comes next on a connection, after an answer?
    pub fn event(&mut self, catalog: &Catalog, e: &Event) -> bool {
        match &e.kind {
            Kind::Ipc(m) => {
                if self.0.len() >= MOST {
                    self.0.clear();
                }
                let sends = m.direction == Direction::Send;
                let new = || if sends { Did::Asks } else { Did::Read };
                let did = self.0.entry((e.thread, m.object)).or_insert_with(new);
                *did = match (*did, sends) {
                    (Did::Asks, _) => Did::Asks,
                    (_, true) => Did::Answered,
                    (_, false) => Did::Read,
                };
                false
            }
            Kind::OffCpu(w) => {
                let object = catalog.object(w.object);
                let object = match object.map(|o| o.members.as_slice()) {
                    Some([only]) => *only,
                    _ => w.object,
                };
                Wait::of(w, catalog) == Some(Wait::Input)
                    && self.0.get(&(e.thread, object)) == Some(&Did::Answered)
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pg_event::{IpcUse, Object, ObjectKind, OffCpu, OffState, syscall_number};

    #[test]
    fn the_wait_after_an_answer_is_for_the_next_request() {
        let mut set = Object::new(ObjectKind::Set, 3, 0);
        set.members = vec![ObjectId(0)];
        let socket = |n| Object::new(ObjectKind::Tcp, n, 0);
        let catalog = Catalog { objects: vec![socket(1), socket(2), set], ..Catalog::default() };
        let mut replies = Replies::default();
        let thread = ThreadId(0);
        let of = |kind| Event { time: 9, thread, cpu: 0, kind };
        let says = |object, direction| {
            let object = ObjectId(object);
            of(Kind::Ipc(IpcUse { object, direction, count: 1, bytes: 9, first: 9, position: 0 }))
        };
        let waits = |object| {
            let (syscall, object) = (syscall_number("poll").unwrap(), ObjectId(object));
            of(Kind::OffCpu(OffCpu { syscall, object, ..OffCpu::new(1, 9, OffState::Interruptible) }))
        };
        let (asks, answers) = (Direction::Receive, Direction::Send);
        let mut tell = |e: Event| replies.event(&catalog, &e);
        // The first request, its rest, and an answer: what comes then is the next. It may be one of a set of one.
        assert!(!tell(waits(0)) && !tell(says(0, asks)) && !tell(waits(0)) && !tell(says(0, answers)));
        assert!(tell(waits(0)) && tell(waits(2)));
        assert!(!tell(says(0, asks)) && !tell(waits(0)));
        // A question to somebody else, and the next to him.
        assert!(!tell(says(1, answers)) && !tell(waits(1)) && !tell(says(1, asks)));
        assert!(!tell(says(1, answers)) && !tell(waits(1)));
    }
}
