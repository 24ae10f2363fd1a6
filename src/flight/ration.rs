//! Which triggers have a file written: one now and then, and at once what is far worse than what the last one was for.

use std::time::{Duration, Instant};

/// Far worse: so many times as bad.
const WORSE: f64 = 4.0;

/// What comes of a trigger.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    /// A file; the one that is going to be written, where a person asked for that.
    File,
    /// The file that is going to be written is for this now: what happens after it belongs to it.
    Pending,
    /// Nothing: it is too soon after another, or in the file that is going to be written anyway.
    Nothing,
}

/// The triggers that had a file.
#[derive(Debug)]
pub struct Ration {
    /// One in so long.
    every: Duration,
    /// When the last one was written, and how bad that was; and of one that is going to be.
    last: Option<(Instant, f64)>,
    pending: Option<f64>,
}

impl Ration {
    /// One file in so long.
    pub fn new(every: Duration) -> Self {
        Self { every, last: None, pending: None }
    }

    /// A trigger, so bad. `pending`: a file is going to be written, for another or since a person asked.
    pub fn ask(&mut self, now: Instant, weight: f64, pending: bool) -> Answer {
        let recent = || self.last.filter(|(t, _)| now.saturating_duration_since(*t) < self.every);
        let other = self.pending.filter(|_| pending);
        let before = other.or_else(|| recent().filter(|_| !pending).map(|l| l.1));
        if before.is_some_and(|before| weight < WORSE * before) {
            return Answer::Nothing;
        }
        self.pending = Some(weight);
        if other.is_some() { Answer::Pending } else { Answer::File }
    }

    /// The file is being written. One that only a person asked for is none of these.
    pub fn written(&mut self, now: Instant) {
        self.last = self.pending.take().map(|weight| (now, weight)).or(self.last);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);

    #[test]
    fn one_in_a_while_has_a_file() {
        let (mut r, t) = (Ration::new(60 * S), Instant::now());
        assert_eq!(r.ask(t, 1.0, false), Answer::File);
        r.written(t + 3 * S);
        assert_eq!(r.ask(t + 4 * S, 3.9, false), Answer::Nothing);
        // Far worse is told at once, and is the measure from then on.
        assert_eq!(r.ask(t + 5 * S, 4.0, false), Answer::File);
        r.written(t + 8 * S);
        assert_eq!(r.ask(t + 9 * S, 15.0, false), Answer::Nothing);
        assert_eq!(r.ask(t + 68 * S, 1.0, false), Answer::File);
    }

    #[test]
    fn what_is_far_worse_than_what_a_file_is_pending_for_has_that() {
        let (mut r, t) = (Ration::new(60 * S), Instant::now());
        assert_eq!(r.ask(t, 1.1, false), Answer::File);
        assert_eq!(r.ask(t + S, 2.0, true), Answer::Nothing);
        assert_eq!(r.ask(t + 2 * S, 25.0, true), Answer::Pending);
        assert_eq!(r.ask(t + 3 * S, 25.0, true), Answer::Nothing);
        r.written(t + 5 * S);
        assert_eq!(r.ask(t + 6 * S, 30.0, false), Answer::Nothing);
        assert_eq!(r.ask(t + 6 * S, 200.0, false), Answer::File);
    }

    #[test]
    fn what_a_person_asked_for_takes_no_file_from_triggers() {
        let (mut r, t) = (Ration::new(60 * S), Instant::now());
        // A mark's file, in which nothing else happened.
        r.written(t);
        assert_eq!(r.ask(t + S, 1.0, false), Answer::File);
        r.written(t + 2 * S);
        // Another.
        r.written(t + 30 * S);
        assert_eq!(r.ask(t + 61 * S, 1.0, false), Answer::Nothing);
        assert_eq!(r.ask(t + 62 * S, 1.0, false), Answer::File);
        r.written(t + 65 * S);
        // What happens while a person waits for a file is in that.
        assert_eq!(r.ask(t + 130 * S, 1.0, true), Answer::File);
        assert_eq!(r.ask(t + 131 * S, 1.0, true), Answer::Nothing);
        assert_eq!(r.ask(t + 132 * S, 9.0, true), Answer::Pending);
    }
}
