//! A big recording, made batch by batch: applications, daemons and a database that serve each other.

use super::machine::{Machine, Setup};
use super::script::{Act, Script};
use pg_event::{Catalog, Event, Item, Kind, Ns, ObjectId, SyscallUse, Sysno};

/// How big.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// Threads.
    pub threads: usize,
    /// Events, about.
    pub events: u64,
}

impl Size {
    /// The session of the paper's Chromium case (Argus, section 2.3): 19 M events, 2.75 M vertices,
    /// 3.6 M edges, 679 threads.
    pub const ARGUS: Self = Self { threads: 679, events: 19_000_000 };
}

/// A simulated session that is made while it is read.
#[derive(Debug)]
pub struct Load {
    machine: Machine,
    size: Size,
    made: u64,
    batch: Vec<Event>,
}

/// Groups of seven: a user interface, its worker, a service, the service's worker, a store, a logger
/// and a poller.
const GROUP: usize = 7;

fn script(i: usize, groups: usize) -> Script {
    let g = i / GROUP;
    // Numbers of the group's channels, locks and conditions; the store is shared with the next group.
    let (ask, answer, query, result) = (g * 6, g * 6 + 1, g * 6 + 2, g * 6 + 3);
    let (log, status) = (g * 6 + 4, g * 6 + 5);
    let store = (g / 2) % groups.max(1);
    let compute = |k: u64| Act::Compute(20_000 + (i as u64 * 7919 + k * 104_729) % 90_000);
    let (tell, beat) = (Act::Send(log, 80), Act::Send(status, 8));
    Script::forever(match i % GROUP {
        0 => vec![
            compute(1),
            tell,
            Act::Signal(g),
            Act::Receive(answer),
            compute(2),
            tell,
            beat,
            Act::Sleep(100_000 + g as u64 * 1000),
        ],
        1 => vec![Act::Wait(g), compute(3), tell, Act::Send(ask, 200), compute(4), tell, beat],
        2 => vec![
            Act::Receive(ask),
            tell,
            Act::Lock(store),
            compute(6),
            Act::Unlock(store),
            Act::Send(query, 500),
            compute(5),
            tell,
            beat,
        ],
        3 => vec![Act::Receive(result), compute(7), tell, Act::Send(answer, 4000), compute(12), tell, beat],
        4 => vec![
            Act::Receive(query),
            Act::Lock(store),
            compute(8),
            tell,
            Act::Unlock(store),
            Act::Send(result, 3000),
            compute(9),
            tell,
            beat,
        ],
        // Collects what was told meanwhile by turns.
        5 => vec![Act::Receive(log), compute(10), Act::Sleep(150_000)],
        _ => vec![Act::Sleep(4_000_000), Act::Receive(status), compute(11), Act::Yield(3)],
    })
}

impl Load {
    /// A session of this size.
    pub fn new(size: Size) -> Self {
        let groups = size.threads.div_ceil(GROUP);
        let scripts = (0..size.threads).map(|i| script(i, groups)).collect();
        // Enough CPUs that threads run at once, few enough that they are put off now and then.
        let setup = Setup { cpus: 8, slice: 60_000, sample_every: 10_101_010, ..Setup::default() };
        let mut machine = Machine::new(setup, scripts);
        machine.keep_truth = false;
        let catalog = machine.catalog_mut();
        let roles = ["ui", "worker", "service", "runner", "store", "logger", "poller"];
        for (i, t) in catalog.threads.iter_mut().enumerate() {
            t.name = format!("{}-{}", roles[i % GROUP], i / GROUP);
        }
        for (i, p) in catalog.processes.iter_mut().enumerate() {
            p.name = format!("app-{}", i / GROUP);
            p.exe = format!("/usr/bin/app-{}", i / GROUP);
        }
        Self { machine, size, made: 0, batch: Vec::new() }
    }

    /// What its events name: complete from the beginning.
    pub fn catalog(&self) -> &Catalog {
        self.machine.catalog()
    }

    /// The next events; `None` when the session is as big as asked for.
    pub fn next_batch(&mut self) -> Option<&[Event]> {
        if self.made >= self.size.events {
            return None;
        }
        self.batch.clear();
        let (batch, until) = (&mut self.batch, self.machine.now() + 20_000_000);
        self.machine.run(until, |events, _| {
            for e in events {
                batch.push(*e);
                // On the level that records system calls there are several for each wait.
                if let Kind::OffCpu(o) = e.kind {
                    for k in 0..if o.blocked() { 2 } else { 1 } {
                        let what = SyscallUse {
                            start: e.time,
                            nr: if o.syscall.is_some() { o.syscall } else { Sysno(228) },
                            result: k,
                            count: 1,
                            op: o.op,
                            object: ObjectId::NONE,
                        };
                        batch.push(Event { kind: Kind::Syscall(what), ..*e });
                    }
                }
            }
        });
        self.made += self.batch.len() as u64;
        Some(&self.batch)
    }

    /// How long it is so far, ns.
    pub fn duration(&self) -> Ns {
        self.machine.now()
    }

    /// The whole session as what a source of events delivers.
    pub fn items(mut self) -> impl Iterator<Item = Item> {
        let catalog = self.catalog().clone();
        let rows = |n: usize| 0..n as u32;
        let delta = pg_event::CatalogDelta {
            threads: rows(catalog.threads.len()).map(pg_event::ThreadId).zip(catalog.threads).collect(),
            processes: rows(catalog.processes.len())
                .map(pg_event::ProcessId)
                .zip(catalog.processes)
                .collect(),
            objects: rows(catalog.objects.len()).map(ObjectId).zip(catalog.objects).collect(),
            ..pg_event::CatalogDelta::default()
        };
        let mut first = Some(Item::Catalog(delta));
        let mut ended = false;
        std::iter::from_fn(move || {
            if let Some(item) = first.take() {
                return Some(item);
            }
            if let Some(events) = self.next_batch() {
                return Some(Item::Events(events.to_vec()));
            }
            (!std::mem::replace(&mut ended, true))
                .then(|| Item::End { duration: self.duration(), coverage: pg_event::Coverage::default() })
        })
    }
}
