//! Values of options: what is typed, checked.

use pg_tracer::flags::FlagSpec;
use pg_tracer::given::GivenPoint;

/// A time in seconds: finite and not negative.
pub(super) fn seconds(text: &str) -> Result<f64, String> {
    match text.strip_suffix('s').unwrap_or(text).trim().parse::<f64>() {
        Ok(s) if s.is_finite() && (0.0..=1e9).contains(&s) => Ok(s),
        _ => Err("a number of seconds is expected, such as 12.5".into()),
    }
}

/// A moment of a recording, as a person names it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum At {
    /// Seconds since it began.
    Since(f64),
    /// A time of day in UTC, seconds since midnight.
    Clock(u64),
}

/// `12.5`, or `09:10:13`, or `9:10`.
pub(super) fn moment(text: &str) -> Result<At, String> {
    if !text.contains(':') {
        return seconds(text)
            .map(At::Since)
            .map_err(|e| format!("{e}, or a time of day (UTC) such as 09:10:13"));
    }
    crate::wall::second_of_day(text)
        .map(At::Clock)
        .ok_or_else(|| "a time of day is expected, such as 09:10:13 (UTC)".into())
}

/// A share in percent: more than none, all at most.
pub(super) fn percent(text: &str) -> Result<f64, String> {
    match text.strip_suffix('%').unwrap_or(text).trim().parse::<f64>() {
        Ok(p) if (0.001..=100.0).contains(&p) => Ok(p),
        _ => Err("a share of 0.001 to 100 percent is expected".into()),
    }
}

/// How long the demonstration hangs.
pub(super) fn demo_seconds(text: &str) -> Result<f64, String> {
    match seconds(text)? {
        s if (0.1..=600.0).contains(&s) => Ok(s),
        _ => Err("0.1 to 600 seconds are expected".into()),
    }
}

/// A data flag.
pub(super) fn flag(text: &str) -> Result<FlagSpec, String> {
    text.parse().map_err(|e: pg_tracer::flags::FlagError| e.to_string())
}

/// A process id; a name is a common mistake.
pub(super) fn pid(text: &str) -> Result<u32, String> {
    match text.parse::<u32>() {
        Ok(pid) if pid > 0 => Ok(pid),
        _ => Err("the number of a process is expected; --comm chooses processes by name".into()),
    }
}

/// A process or thread id, where there is no other way to choose by name.
pub(super) fn number(text: &str) -> Result<u32, String> {
    pid(text).map_err(|_| "the number of a process or thread is expected".into())
}

/// Seconds without a fraction, an hour at most.
pub(super) fn whole_seconds(text: &str) -> Result<u32, String> {
    match text.strip_suffix('s').unwrap_or(text).parse::<u32>() {
        Ok(s) if s <= 3600 => Ok(s),
        _ => Err("a whole number of seconds is expected, such as 2".into()),
    }
}

/// A time with its unit, as ns.
pub(super) fn time(text: &str) -> Result<u64, String> {
    let at = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
    let (number, unit) = text.split_at(at);
    let scale = match unit.trim() {
        "us" => 1e3,
        "ms" => 1e6,
        "s" | "" => 1e9,
        "m" | "min" => 60e9,
        "h" => 3600e9,
        _ => f64::NAN,
    };
    match number.parse::<f64>().map(|n| n * scale) {
        Ok(ns) if (0.0..=1e16).contains(&ns) => Ok(ns as u64),
        _ => Err("a time is expected, such as 200ms or 2s".into()),
    }
}

/// Where a unit begins or ends.
pub(super) fn point(text: &str) -> Result<GivenPoint, String> {
    text.parse().map_err(|e: pg_tracer::given::SpecError| e.to_string())
}

/// A system call and a time: `fsync=200ms`.
pub(super) fn call_time(text: &str) -> Result<(pg_event::Sysno, u64), String> {
    let (call, limit) =
        text.split_once('=').ok_or("a system call and a time are expected, such as fsync=200ms")?;
    let nr = pg_event::syscall_number(call).ok_or_else(|| format!("there is no system call {call}"))?;
    Ok((nr, time(limit)?))
}

pub(super) fn milliseconds(text: &str) -> Result<f64, String> {
    match text.strip_suffix("ms").unwrap_or(text).trim().parse::<f64>() {
        Ok(s) if s.is_finite() && (0.0..=1e9).contains(&s) => Ok(s),
        _ => Err("a number of milliseconds is expected, such as 0.5".into()),
    }
}

/// Seconds as nanoseconds.
pub(in crate::cli) fn ns(seconds: f64) -> u64 {
    (seconds * 1e9) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        assert_eq!(seconds("1.5"), Ok(1.5));
        assert_eq!(seconds("2s"), Ok(2.0));
        assert_eq!(milliseconds("0.5ms"), Ok(0.5));
        assert!(pid("redis").is_err() && pid("0").is_err() && pid("-1").is_err() && pid("17") == Ok(17));
        assert!(number("x").is_err() && number("-3").is_err() && number("12") == Ok(12));
        assert!(whole_seconds("x").is_err() && whole_seconds("1.5").is_err() && whole_seconds("2s") == Ok(2));
        assert!(seconds("-1").is_err() && seconds("nan").is_err() && seconds("").is_err());
        assert_eq!(ns(1.25), 1_250_000_000);
    }
}
