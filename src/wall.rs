//! What the clock on the wall showed at a moment of a recording: logs tell by that when something happened.
//!
//! In UTC: who reads a recording is seldom where it was made, and the zone of that machine is not kept.

use pg_event::Ns;

const SECOND: u64 = 1_000_000_000;
const DAY: u64 = 86_400;

/// `2026-11-25 09:10:12 UTC`, of nanoseconds since 1970; empty where they are not known (0).
pub fn date_time(unix: u64) -> String {
    if unix == 0 {
        return String::new();
    }
    let (y, m, d) = date(unix / SECOND / DAY);
    format!("{y:04}-{m:02}-{d:02} {} UTC", clock(unix))
}

/// `09:10:12 UTC`: the time of day at a moment of a recording whose time 0 was `start` (ns since 1970); empty where
/// that is not known.
pub fn time_of_day(start: u64, at: Ns) -> String {
    match start {
        0 => String::new(),
        _ => format!("{} UTC", clock(start.saturating_add(at))),
    }
}

/// ` (09:10:12 UTC)`, to stand behind a moment; empty where it is not known.
pub fn aside(start: u64, at: Ns) -> String {
    let time = time_of_day(start, at);
    if time.is_empty() { time } else { format!(" ({time})") }
}

/// The moment of a recording that began at `start` (ns since 1970) at which the clock first showed this second of the
/// day (UTC); none when it is not known when that was.
pub fn moment_of(start: u64, second_of_day: u64) -> Option<Ns> {
    let begin = start / SECOND % DAY;
    let ahead = (second_of_day + DAY - begin) % DAY;
    // Time 0 lies within a second.
    (start != 0).then(|| (ahead * SECOND).saturating_sub(start % SECOND))
}

/// The second of the day that a time of day such as `09:10:13`, `9:10` or `09:10:13 UTC` stands for.
pub fn second_of_day(text: &str) -> Option<u64> {
    let text = text.trim();
    let parts: Vec<&str> = text.strip_suffix("UTC").unwrap_or(text).trim().split(':').collect();
    let number = |at: usize, most: u64| match parts.get(at) {
        None if at == 2 => Some(0),
        part => part.and_then(|p| p.parse().ok()).filter(|n| *n <= most),
    };
    let (h, m, s) = (number(0, 23)?, number(1, 59)?, number(2, 59)?);
    (parts.len() <= 3).then_some(h * 3600 + m * 60 + s)
}

fn clock(unix: u64) -> String {
    let s = unix / SECOND % DAY;
    format!("{:02}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60)
}

/// Year, month and day of a day since 1970-01-01 in the Gregorian calendar. A file can claim any time: 64 bits of
/// nanoseconds end in the year 2554.
fn date(day: u64) -> (u64, u64, u64) {
    let leap = |y: u64| y.is_multiple_of(4) && (!y.is_multiple_of(100) || y.is_multiple_of(400));
    let (mut year, mut left) = (1970, day);
    loop {
        let days = if leap(year) { 366 } else { 365 };
        if left < days {
            break;
        }
        left -= days;
        year += 1;
    }
    let february = if leap(year) { 29 } else { 28 };
    let mut month = 1;
    for days in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if left < days {
            break;
        }
        left -= days;
        month += 1;
    }
    (year, month, left + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_have_dates() {
        // `date -u -d @N`
        assert_eq!(date_time(1_795_597_812 * SECOND + 5), "2026-11-25 09:10:12 UTC");
        assert_eq!(date_time(951_782_400 * SECOND), "2000-02-29 00:00:00 UTC");
        assert_eq!(date_time(1_767_225_599 * SECOND), "2025-12-31 23:59:59 UTC");
        assert_eq!(date_time(1_709_251_200 * SECOND), "2024-03-01 00:00:00 UTC");
        assert!(date_time(u64::MAX).starts_with("2554-07-21 "));
        assert_eq!(time_of_day(1_795_597_812 * SECOND, 893_000_000), "09:10:12 UTC");
        assert_eq!(aside(1_795_597_812 * SECOND, 60 * SECOND), " (09:11:12 UTC)");
    }

    #[test]
    fn times_of_day_have_moments() {
        let start = 1_795_597_812 * SECOND + 250_000_000;
        let clock = |h: u64, m: u64, s: u64| h * 3600 + m * 60 + s;
        assert_eq!(moment_of(start, clock(9, 10, 12)), Some(0));
        assert_eq!(moment_of(start, clock(9, 10, 13)), Some(750_000_000));
        assert_eq!(moment_of(start, clock(0, 0, 1)), Some((14 * 3600 + 49 * 60 + 49) * SECOND - 250_000_000));
        assert_eq!(moment_of(0, clock(9, 10, 13)), None);
    }

    #[test]
    fn times_of_day_are_read() {
        let t = Some(9 * 3600 + 10 * 60);
        assert_eq!(second_of_day("9:10"), t);
        assert_eq!(second_of_day("09:10:00"), t);
        assert_eq!(second_of_day(" 09:10:07 UTC"), t.map(|t| t + 7));
        for no in ["", "9", "9:60", "24:00", "9:10:60", "9:10:11:12", "9:", ":10", "a:b", "-1:0"] {
            assert_eq!(second_of_day(no), None, "{no}");
        }
    }

    #[test]
    fn what_is_not_known_is_not_told() {
        assert_eq!(date_time(0) + &time_of_day(0, 5) + &aside(0, 5), "");
    }
}
