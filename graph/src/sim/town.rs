//! Machines made of parts that are known to be hard to tell apart: servers of many clients, locks, conditions, data
//! flags. Every part has numbers of its own; requests travel through even channels, answers through the next odd one.

use super::{Act, Asking, Script};
use pg_event::Ns;

/// How a server serves its clients.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Serves {
    /// One after the other, waiting for each.
    InTurn,
    /// An event loop: whoever is ready.
    Loop,
    /// It waits for the requests of all and then answers all.
    Batch,
    /// It takes the requests that are there by one call and then answers them all (recvmmsg and sendmmsg).
    Together,
}

/// Threads that have nothing to do with each other but what is said.
#[derive(Clone, Debug, Default)]
pub struct Town {
    scripts: Vec<Script>,
    mutexes: usize,
    conditions: usize,
    channels: usize,
    flags: usize,
}

impl Town {
    /// The threads.
    pub fn scripts(self) -> Vec<Script> {
        self.scripts
    }

    /// A server whose clients ask, wait for the answer, and sleep; `work` is computed for each request.
    pub fn server(&mut self, clients: usize, work: Ns, serves: Serves) {
        let first = self.channels;
        self.channels += 2 * clients;
        let ends = |i: usize| (first + 2 * i, first + 2 * i + 1);
        let mut turn = Vec::new();
        match serves {
            Serves::InTurn => {
                for (request, answer) in (0..clients).map(ends) {
                    turn.extend([Act::Receive(request), Act::Compute(work), Act::Send(answer, 8)]);
                }
            }
            Serves::Loop => {
                turn.push(Act::Poll(first, clients));
                for (request, answer) in (0..clients).map(ends) {
                    turn.extend([Act::Take(request, 2), Act::Compute(work), Act::Send(answer, 8)]);
                }
            }
            Serves::Batch => {
                turn.extend((0..clients).map(|i| Act::Receive(ends(i).0)));
                turn.push(Act::Compute(work));
                turn.extend((0..clients).map(|i| Act::Send(ends(i).1, 8)));
            }
            Serves::Together => turn.extend([
                Act::Poll(first, clients),
                // Meanwhile others ask.
                Act::Compute(work),
                Act::TakeAll(first, clients),
                Act::Compute(work),
                Act::AnswerAll(8),
            ]),
        }
        for (i, (request, answer)) in (0..clients).map(ends).enumerate() {
            let nap = Act::Sleep(work / 2 + i as Ns * 300_000 + 1);
            self.scripts.push(Script::forever([Act::Send(request, 8), Act::Receive(answer), nap]));
        }
        self.scripts.push(Script::forever(turn));
    }

    /// Threads that compute so long under one mutex.
    pub fn mutex(&mut self, threads: usize, work: Ns) {
        for i in 0..threads as Ns {
            let own = Act::Sleep(i * work / 3 + 1);
            let held =
                [Act::Lock(self.mutexes), Act::Compute(work + i * 70_000), Act::Unlock(self.mutexes), own];
            self.scripts.push(Script::forever(held));
        }
        self.mutexes += 1;
    }

    /// Two threads that signal each other.
    pub fn conditions(&mut self, work: Ns) {
        let (a, b) = (self.conditions, self.conditions + 1);
        self.conditions += 2;
        self.scripts.push(Script::forever([Act::Wait(a), Act::Compute(work), Act::Signal(b)]));
        self.scripts.push(Script::forever([Act::Signal(a), Act::Wait(b), Act::Sleep(work + 1)]));
    }

    /// Two threads that ask flags of each other, in that way.
    pub fn flags(&mut self, work: Ns, asking: Asking) {
        let (a, b) = (self.flags, self.flags + 1);
        self.flags += 2;
        self.scripts.push(Script::forever([
            Act::Ask(a, 1, asking),
            Act::Compute(work),
            Act::Set(b, 1),
            Act::Ask(a, 0, asking),
            Act::Set(b, 0),
        ]));
        self.scripts.push(Script::forever([
            Act::Compute(work * 2),
            Act::Set(a, 1),
            Act::Ask(b, 1, asking),
            Act::Set(a, 0),
            Act::Ask(b, 0, asking),
        ]));
    }

    /// A thread that computes and sleeps.
    pub fn stranger(&mut self, work: Ns, nap: Ns) {
        self.scripts.push(Script::forever([Act::Compute(work), Act::Sleep(nap)]));
    }
}
