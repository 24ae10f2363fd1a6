//! Times and lengths as people read them: always with a unit.

use pg_event::Ns;

/// A length: `4.02 s`, `212 ms`, `18.3 µs`, `0 ns`. Three digits that count.
pub fn length(ns: Ns) -> String {
    unit(ns, "µs")
}

/// A part of a length: `7.59 s of 7.99 s`; the length alone where the part is nearly all of it.
pub fn part(ns: Ns, whole: Ns) -> String {
    let nearly = u128::from(ns) * 100 >= u128::from(whole) * 99;
    if nearly { length(ns) } else { format!("{} of {}", length(ns), length(whole)) }
}

/// As [`length`], in ASCII.
pub fn length_ascii(ns: Ns) -> String {
    unit(ns, "us")
}

fn unit(ns: Ns, micro: &str) -> String {
    let scaled = |div: f64, unit: &str| {
        let v = ns as f64 / div;
        let decimals = if v < 9.995 { 2 } else { usize::from(v < 99.95) };
        format!("{v:.decimals$} {unit}")
    };
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..999_500 => scaled(1e3, micro),
        999_500..999_500_000 => scaled(1e6, "ms"),
        999_500_000..600_000_000_000 => scaled(1e9, "s"),
        _ => {
            let s = ns / 1_000_000_000;
            if s < 3600 {
                format!("{}:{:02} min", s / 60, s % 60)
            } else {
                format!("{}:{:02}:{:02} h", s / 3600, s / 60 % 60, s % 60)
            }
        }
    }
}

/// A moment: seconds since the recording began, with as many decimals as a step of `step` ns needs.
pub fn moment(ns: Ns, step: Ns) -> String {
    let decimals = match step {
        0 => 9,
        s => 9usize.saturating_sub(s.ilog10() as usize).min(9),
    };
    // Whole numbers throughout: a double has too few digits for nanoseconds of a long recording.
    let unit = 10u64.pow(9 - decimals as u32);
    let rounded = ns.saturating_add(unit / 2) / unit;
    let per_second = 10u64.pow(decimals as u32);
    if decimals == 0 {
        format!("{rounded} s")
    } else {
        format!("{}.{:0decimals$} s", rounded / per_second, rounded % per_second)
    }
}

/// A moment to the millisecond.
pub fn at(ns: Ns) -> String {
    moment(ns, 1_000_000)
}

/// Seconds since 1970. Only kept with what people add to a session; nothing depends on it.
pub fn now() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |d| d.as_secs())
}

/// The least step of 1, 2 or 5 times a power of ten that is at least `least`.
pub fn nice_step(least: Ns) -> Ns {
    let mut decade: Ns = 1;
    loop {
        for m in [1, 2, 5] {
            match decade.checked_mul(m) {
                Some(step) if step >= least => return step,
                Some(_) => {}
                None => return least.max(1),
            }
        }
        decade = match decade.checked_mul(10) {
            Some(d) => d,
            None => return least.max(1),
        };
    }
}

/// A count: `812`, `12.4 k`, `1.24 M`.
pub fn count(n: u64) -> String {
    match n {
        0..10_000 => n.to_string(),
        10_000..1_000_000 => format!("{:.1} k", n as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.2} M", n as f64 / 1e6),
        _ => format!("{:.2} G", n as f64 / 1e9),
    }
}

/// A number with its noun: `1 answer`, `2 answers`.
pub fn counted(n: usize, noun: &str) -> String {
    format!("{n} {noun}{}", if n == 1 { "" } else { "s" })
}

/// A share in percent, never rounded up to everything or down to nothing.
pub fn percent(part: u64, whole: u64) -> String {
    if whole == 0 || part == 0 {
        return "0 %".into();
    }
    let p = part as f64 * 100.0 / whole as f64;
    match p {
        p if part < whole && p > 99.4 => ">99 %".into(),
        p if p < 0.5 => "<1 %".into(),
        p => format!("{p:.0} %"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_have_three_digits_and_a_unit() {
        for (ns, text) in [
            (0, "0 ns"),
            (999, "999 ns"),
            (1_000, "1.00 µs"),
            (18_340, "18.3 µs"),
            (999_499, "999 µs"),
            (999_600, "1.00 ms"),
            (212_000_000, "212 ms"),
            (999_900_000, "1.00 s"),
            (4_020_000_000, "4.02 s"),
            (99_960_000_000, "100 s"),
            (754_000_000_000, "12:34 min"),
            (7_384_000_000_000, "2:03:04 h"),
        ] {
            assert_eq!(length(ns), text);
        }
    }

    #[test]
    fn moments_are_exact() {
        assert_eq!(moment(12_398_000_000, 1_000_000), "12.398 s");
        assert_eq!(moment(12_398_000_001, 1), "12.398000001 s");
        assert_eq!(moment(12_500_000_000, 1_000_000_000), "13 s");
        assert_eq!(moment(12_500_000_000, 500_000_000), "12.5 s");
        assert_eq!(at(1), "0.000 s");
        assert_eq!(moment(u64::MAX, 1), "18446744073.709551615 s");
    }

    #[test]
    fn steps_are_nice() {
        for (least, step) in [(0, 1), (1, 1), (3, 5), (11, 20), (501, 1000), (u64::MAX, u64::MAX)] {
            assert_eq!(nice_step(least), step);
        }
    }

    #[test]
    fn shares_are_honest() {
        assert_eq!(percent(0, 10), "0 %");
        assert_eq!(percent(1, 1000), "<1 %");
        assert_eq!(percent(999, 1000), ">99 %");
        assert_eq!(percent(10, 10), "100 %");
        assert_eq!(count(1_240_000), "1.24 M");
    }
}
