//! What a simulated thread does.

use pg_event::Ns;

/// One act of a script. Mutexes, semaphores, channels and threads are named by number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Act {
    /// Use a CPU for so long.
    Compute(Ns),
    /// Take a mutex, waiting while another thread has it.
    Lock(usize),
    /// Give a mutex back; the first waiter gets it.
    Unlock(usize),
    /// Wait for a condition to be signalled (a signal sent before counts).
    Wait(usize),
    /// Signal a condition: one waiter goes on.
    Signal(usize),
    /// Send so many bytes into a channel, waiting while it is full.
    Send(usize, u64),
    /// Receive what is in a channel, waiting while it is empty.
    Receive(usize),
    /// Wait until one of so many channels, every second one from the first on, has something: the beginning of a turn
    /// of an event loop.
    Poll(usize, usize),
    /// Receive what is in a channel; while it is empty skip so many acts instead.
    Take(usize, usize),
    /// Receive what is in each of so many channels, every second one from the first on, by one call.
    TakeAll(usize, usize),
    /// Send so many bytes to each of whom something was taken so and who was not answered yet, through the channel after.
    AnswerAll(u64),
    /// Sleep.
    Sleep(Ns),
    /// Start a thread that has not run yet.
    Spawn(usize),
    /// Wait until a thread has ended.
    Join(usize),
    /// Give up the CPU so many times in a row.
    Yield(u32),
    /// Write a value to a data flag (0 at first).
    Set(usize, u64),
    /// Ask again and again until a data flag has a value.
    Ask(usize, u64, Asking),
}

/// What a thread does between two looks at a data flag.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Asking {
    /// Compute for so long and go on.
    Spin(Ns),
    /// Compute for so long, then give up the CPU.
    Yield(Ns),
    /// Sleep for so long.
    Sleep(Ns),
}

/// What a thread does from its beginning to its end.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Script {
    /// One after another.
    pub acts: Vec<Act>,
    /// How many times in all; 0 is without end.
    pub rounds: u32,
    /// Runs only when another thread spawns it.
    pub spawned: bool,
}

impl Script {
    /// Acts done once.
    pub fn once(acts: impl Into<Vec<Act>>) -> Self {
        Self { acts: acts.into(), rounds: 1, spawned: false }
    }

    /// Acts done over and over.
    pub fn forever(acts: impl Into<Vec<Act>>) -> Self {
        Self { acts: acts.into(), rounds: 0, spawned: false }
    }
}
