//! The line that shows how a recording goes.

use super::echo::Echo;
use crate::clean::clean_to;
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
    /// Only where the terminal is ours alone: a command may want to be typed to.
    echo: Option<Echo>,
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
        let on = wanted && terminal;
        let echo = (on && !command).then(Echo::off);
        Self { on, at_end: when != When::Never && terminal, drawn: None, echo }
    }

    /// Draw, if it is time. `written` bytes are in the file.
    pub fn show(&mut self, stats: &LiveStats, written: u64) {
        if self.on && self.drawn.is_none_or(|d| d.elapsed() >= EVERY) {
            self.drawn = Some(Instant::now());
            if let Some(echo) = &mut self.echo {
                echo.keep_off();
            }
            let _ = write!(stderr(), "\r{}\x1b[K", line(stats, written, columns()));
        }
    }

    /// The recording has ended; what is still to be done can take half a minute.
    pub fn ending(&mut self) {
        if self.at_end {
            self.drawn = Some(Instant::now());
            let _ = write!(stderr(), "\r{}\x1b[K", clean_to(ENDING, columns()));
        }
    }

    /// From now on a signal ends the recorder at once.
    pub fn hurried(&mut self) {
        self.echo = None;
    }

    /// Take the line away; what is typed is shown again.
    pub fn clear(&mut self) {
        self.echo = None;
        if self.drawn.take().is_some() {
            let _ = write!(stderr(), "\r\x1b[K");
        }
    }
}

/// Columns that a line may have without being broken: one that is broken leaves copies behind.
pub fn columns() -> usize {
    crossterm::terminal::size().map_or(80, |(columns, _)| usize::from(columns).max(2)) - 1
}

/// As much as there are columns for, the least telling left out first.
fn line(s: &LiveStats, written: u64, columns: usize) -> String {
    let seconds = s.elapsed_ns / 1_000_000_000;
    let lost = s.lost.events + s.lost.stacks + s.lost.samples;
    let lost = if lost == 0 { "nothing lost".to_owned() } else { format!("LOST {}", count(lost)) };
    let mut parts = vec![
        (0, format!("recording {}:{:02}", seconds / 60, seconds % 60)),
        (2, format!("{} events", count(s.events))),
        (5, format!("{}/s", count(s.events_per_s))),
        (4, bytes(written)),
        (1, lost),
        (3, "Ctrl-C ends".to_owned()),
    ];
    loop {
        let texts: Vec<&str> = parts.iter().map(|p| p.1.as_str()).collect();
        let text = texts.join("  ");
        if text.len() <= columns || parts.len() == 1 {
            return clean_to(&text, columns);
        }
        let least = parts.iter().map(|p| p.0).max();
        parts.retain(|p| Some(p.0) != least);
    }
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
            line(&s, 3_200_000, 79),
            "recording 1:15  1.24 M events  41.0 k/s  3.2 MB  nothing lost  Ctrl-C ends"
        );
        s.lost.events = 7;
        assert!(line(&s, 0, 79).contains("LOST 7"));
    }

    #[test]
    fn a_narrow_terminal_has_the_most_telling() {
        let mut s = LiveStats { events: 1_240_000, elapsed_ns: 75_000_000_000, ..LiveStats::default() };
        s.lost.events = 7;
        assert_eq!(line(&s, 0, 39), "recording 1:15  1.24 M events  LOST 7");
        assert_eq!(line(&s, 0, 25), "recording 1:15  LOST 7");
        assert_eq!(line(&s, 0, 8), "recordi…");
    }
}
