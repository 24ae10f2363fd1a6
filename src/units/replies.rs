//! Waits within units for the next request of a connection that was answered (servers with a thread or process for each
//! connection, whose loop takes connections and whose handler keeps them): what each such wait came to.

use pg_event::{Catalog, Direction, Event, Kind, Ns, ObjectId, StackId, Sysno, ThreadId};
use pg_tracer::units::Wait;
use std::collections::{BTreeMap, HashMap};

/// Connections that are remembered at a time.
const MOST: usize = 1 << 16;
/// Waits on a connection without a message that are remembered.
const MOST_WAITS: usize = 16;
/// Least waits of a place that are for the next request, and their least share: a message may have been missed.
const LEAST: u64 = 2;
const SHARE: f64 = 0.9;

/// Waits that are told from each other: the loop that the unit is of, the stack, the system call.
pub type Place = (usize, StackId, Sysno);

/// What a thread did last on a connection.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Did {
    /// It was asked first, and has read.
    Read,
    /// Then it has answered.
    Answered,
    /// It was asked first; messages were missed since.
    Missed,
    /// It spoke first: it asks somebody.
    Asks,
}

struct Said {
    did: Did,
    /// Waits since it has answered.
    waits: Vec<Place>,
}

/// What the waits of a place came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Came {
    /// After an answer: to the next request, or to nothing more.
    pub next: u64,
    /// To the rest of a request, to room for the rest of an answer, or to somebody else's answer.
    pub other: u64,
}

impl Came {
    /// Is nothing waited for there but the next request of a connection?
    pub fn is_for_requests(&self) -> bool {
        self.next >= LEAST && self.next as f64 >= SHARE * (self.next + self.other) as f64
    }
}

/// What was said on the connections of threads, and the waits for that.
#[derive(Default)]
pub struct Replies {
    said: HashMap<(ThreadId, ObjectId), Said>,
    came: BTreeMap<Place, Came>,
}

impl Replies {
    /// An event of a thread, in order of time; `within` tells of which loop the unit is that a thread is in since before
    /// some time.
    pub fn event(
        &mut self,
        catalog: &Catalog,
        e: &Event,
        within: impl FnOnce(ThreadId, Ns) -> Option<usize>,
    ) {
        match &e.kind {
            Kind::Ipc(m) => self.message(e.thread, m.object, m.direction == Direction::Send),
            Kind::OffCpu(w) if !w.open && Wait::of(w, catalog) == Some(Wait::Input) => {
                let object = match catalog.object(w.object).map(|o| o.members.as_slice()) {
                    Some([only]) => *only,
                    _ => w.object,
                };
                let Some(said) = self.said.get_mut(&(e.thread, object)) else { return };
                let Some(of) = within(e.thread, w.start) else { return };
                let place = (of, w.user_stack, w.syscall);
                match said.did {
                    Did::Answered if said.waits.len() < MOST_WAITS => said.waits.push(place),
                    Did::Read | Did::Asks => self.came.entry(place).or_default().other += 1,
                    Did::Answered | Did::Missed => {}
                }
            }
            // What was said meanwhile is not known.
            Kind::Unheard { .. } => {
                for said in self.said.values_mut().filter(|s| s.did != Did::Asks) {
                    said.did = Did::Missed;
                    said.waits.clear();
                }
            }
            _ => {}
        }
    }

    fn message(&mut self, thread: ThreadId, object: ObjectId, sends: bool) {
        if self.said.len() >= MOST && !self.said.contains_key(&(thread, object)) {
            self.forget();
        }
        let new = || Said { did: if sends { Did::Asks } else { Did::Read }, waits: Vec::new() };
        let said = self.said.entry((thread, object)).or_insert_with(new);
        for place in said.waits.drain(..) {
            let came = self.came.entry(place).or_default();
            *(if sends { &mut came.other } else { &mut came.next }) += 1;
        }
        said.did = match (said.did, sends) {
            (Did::Asks, _) => Did::Asks,
            (_, true) => Did::Answered,
            (_, false) => Did::Read,
        };
    }

    /// No more is said on the connections so far: who waited has waited for more.
    fn forget(&mut self) {
        for (_, said) in self.said.drain() {
            for place in said.waits {
                self.came.entry(place).or_default().next += 1;
            }
        }
    }

    /// What the waits of each place came to.
    pub fn end(mut self) -> BTreeMap<Place, Came> {
        self.forget();
        self.came
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pg_event::{IpcUse, Object, ObjectKind, OffCpu, OffState, syscall_number};

    /// What waits of each stack came to: `r` and `s` are messages of a connection (0, 1), `w` waits with a stack.
    fn came(events: &[(char, u32, u32)]) -> BTreeMap<u32, (u64, u64)> {
        let mut set = Object::new(ObjectKind::Set, 3, 0);
        set.members = vec![ObjectId(0)];
        let socket = |n| Object::new(ObjectKind::Tcp, n, 0);
        let catalog = Catalog { objects: vec![socket(1), socket(2), set], ..Catalog::default() };
        let mut replies = Replies::default();
        let thread = ThreadId(0);
        for &(what, object, stack) in events {
            let (object, user_stack) = (ObjectId(object), StackId(stack));
            let says = |direction| {
                Kind::Ipc(IpcUse { object, direction, count: 1, bytes: 9, first: 9, position: 0 })
            };
            let syscall = syscall_number("poll").unwrap();
            let wait = OffCpu::new(1, 9, OffState::Interruptible);
            let kind = match what {
                'r' => says(Direction::Receive),
                's' => says(Direction::Send),
                'u' => Kind::Unheard { since: 3 },
                _ => Kind::OffCpu(OffCpu { syscall, object, user_stack, ..wait }),
            };
            replies.event(&catalog, &Event { time: 9, thread, cpu: 0, kind }, |_, _| Some(7));
        }
        replies.end().into_iter().map(|((_, stack, _), c)| (stack.0, (c.next, c.other))).collect()
    }

    #[test]
    fn the_wait_after_an_answer_is_for_the_next_request() {
        // The first request, its rest, and an answer: what comes then is the next. It may be one of a set of one.
        let whole =
            [('w', 0, 1), ('r', 0, 0), ('w', 0, 2), ('r', 0, 0), ('s', 0, 0), ('w', 0, 3), ('w', 2, 4)];
        let then = [whole.as_slice(), &[('r', 0, 0), ('s', 0, 0)]].concat();
        let all = BTreeMap::from([(2, (0, 1)), (3, (1, 0)), (4, (1, 0))]);
        assert_eq!((came(&then), came(&whole)), (all.clone(), all));
        // It had no room for the rest of the answer.
        assert_eq!(
            came(&[('r', 0, 0), ('s', 0, 0), ('w', 0, 3), ('s', 0, 0)]),
            BTreeMap::from([(3, (0, 1))])
        );
        // A question to somebody else, and the next to him.
        let asks = [('s', 1, 0), ('w', 1, 5), ('r', 1, 0), ('w', 1, 5), ('s', 1, 0), ('w', 1, 5)];
        assert_eq!(came(&asks), BTreeMap::from([(5, (0, 3))]));
        // Messages were missed: of what was asked first that is still known, once it speaks again.
        let missed = [('r', 0, 0), ('s', 0, 0), ('w', 0, 3), ('u', 0, 0), ('w', 0, 3)];
        assert_eq!(came(&missed), BTreeMap::new());
        let again = [missed.as_slice(), &[('s', 0, 0), ('w', 0, 3), ('r', 0, 0)]].concat();
        assert_eq!(came(&again), BTreeMap::from([(3, (1, 0))]));
    }

    #[test]
    fn most_of_a_places_waits_are_for_requests() {
        let of = |next, other| Came { next, other }.is_for_requests();
        assert!(of(2, 0) && of(90, 10) && !of(1, 0) && !of(89, 11) && !of(0, 0));
    }
}
