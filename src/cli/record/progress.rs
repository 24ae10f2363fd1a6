//! The line that shows how a recording goes.

use crate::cli::args::When;
use crate::cli::text::{bytes, count};
use pg_tracer::LiveStats;
use std::io::{IsTerminal, Write, stderr};
use std::time::{Duration, Instant};

/// Time between two drawings.
const EVERY: Duration = Duration::from_millis(500);

/// Shown from the end of a recording until its file is whole.
const ENDING: &str = "ending: functions get their names; Ctrl-C leaves the rest without";

/// A line on standard error, drawn again and again in place; silent when that is no terminal.
pub struct Progress {
    on: bool,
    /// Once a command has ended, the terminal is ours.
    at_end: bool,
    drawn: Option<Instant>,
}

impl Progress {
    /// A command shares the terminal with us: unless asked, what it prints is not to be mixed with ours.
    pub fn new(when: When, command: bool) -> Self {
        let wanted = match when {
            When::Auto => !command,
            When::Always => true,
            When::Never => false,
        };
        let terminal = stderr().is_terminal();
        Self { on: wanted && terminal, at_end: when != When::Never && terminal, drawn: None }
    }

    /// Draw, if it is time. `written` bytes are in the file.
    pub fn show(&mut self, stats: &LiveStats, written: u64) {
        if self.on && self.drawn.is_none_or(|d| d.elapsed() >= EVERY) {
            self.drawn = Some(Instant::now());
            let _ = write!(stderr(), "\r{}\x1b[K", line(stats, written));
        }
    }

    /// The recording has ended; what is still to be done can take half a minute.
    pub fn ending(&mut self) {
        if self.at_end {
            self.drawn = Some(Instant::now());
            let _ = write!(stderr(), "\r{ENDING}\x1b[K");
        }
    }

    /// Take the line away.
    pub fn clear(&mut self) {
        if self.drawn.take().is_some() {
            let _ = write!(stderr(), "\r\x1b[K");
        }
    }
}

fn line(s: &LiveStats, written: u64) -> String {
    let seconds = s.elapsed_ns / 1_000_000_000;
    let lost = s.lost.events + s.lost.stacks + s.lost.samples;
    let lost = if lost == 0 { "nothing lost".to_owned() } else { format!("LOST {}", count(lost)) };
    format!(
        "recording {}:{:02}  {} events  {}/s  {}  {lost}  Ctrl-C ends",
        seconds / 60,
        seconds % 60,
        count(s.events),
        count(s.events_per_s),
        bytes(written)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_has_a_unit() {
        let mut s = LiveStats {
            events: 1_240_000,
            events_per_s: 41_000,
            elapsed_ns: 75_000_000_000,
            ..LiveStats::default()
        };
        assert_eq!(
            line(&s, 3_200_000),
            "recording 1:15  1.24 M events  41.0 k/s  3.2 MB  nothing lost  Ctrl-C ends"
        );
        s.lost.events = 7;
        assert!(line(&s, 0).contains("LOST 7"));
    }
}
