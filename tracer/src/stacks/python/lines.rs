//! Line tables of code objects: which line the instruction at an offset belongs to.

use super::layout::Lines;

/// The format of the version that counted instructions by bytes.
pub(super) const BY_BYTES: Lines = Lines::Deltas;

/// The line of the instruction at the byte `at`, 0 when it has none. A negative `at` is of a function that did
/// not begin yet.
pub(super) fn line(format: Lines, table: &[u8], first: i32, at: i64) -> u32 {
    if at < 0 {
        return known(Some(first.into()));
    }
    known(match format {
        Lines::Deltas => Some(deltas(table, first, at)),
        Lines::Ranges => ranges(table, first, at),
        Lines::Locations => locations(table, first, at),
    })
}

fn known(line: Option<i64>) -> u32 {
    line.and_then(|l| i32::try_from(l).ok()).and_then(|l| u32::try_from(l).ok()).unwrap_or(0)
}

/// Pairs of bytes: so many bytes of code further, so many lines further.
fn deltas(table: &[u8], first: i32, at: i64) -> i64 {
    let (mut line, mut address) = (i64::from(first), 0);
    for pair in table.chunks_exact(2) {
        address += i64::from(pair[0]);
        if address > at {
            break;
        }
        line += i64::from(pair[1] as i8);
    }
    line
}

/// Pairs of bytes: the line moves by so many, and holds for so many bytes of code; -128: no line there.
fn ranges(table: &[u8], first: i32, at: i64) -> Option<i64> {
    const NO_LINE: i8 = -128;
    let (mut line, mut end) = (i64::from(first), 0);
    for pair in table.chunks_exact(2) {
        let delta = pair[1] as i8;
        if delta != NO_LINE {
            line += i64::from(delta);
        }
        end += i64::from(pair[0]);
        if at < end {
            return (delta != NO_LINE).then_some(line);
        }
    }
    None
}

/// Entries that begin with a byte whose highest bit is set: the kind of the entry, and how many code units of two
/// bytes it is for; then numbers of six bits a byte.
fn locations(table: &[u8], first: i32, at: i64) -> Option<i64> {
    const NO_LINE: u8 = 15;
    let (mut line, mut end) = (i64::from(first), 0);
    let mut rest = table;
    while let Some((&head, tail)) = rest.split_first() {
        let kind = head >> 3 & 15;
        let length = tail.iter().take_while(|&&b| b & 0x80 == 0).count();
        let (entry, next) = tail.split_at_checked(length)?;
        line += match kind {
            13 | 14 => signed(entry)?,
            10..=12 => i64::from(kind) - 10,
            _ => 0,
        };
        end += (i64::from(head & 7) + 1) * 2;
        if at < end {
            return (kind != NO_LINE).then_some(line);
        }
        rest = next;
    }
    None
}

/// A number in pieces of six bits, the lowest first; the lowest bit is the sign.
fn signed(bytes: &[u8]) -> Option<i64> {
    let mut value: u64 = 0;
    for (i, &b) in bytes.iter().take(6).enumerate() {
        value |= u64::from(b & 0x3f) << (6 * i);
        if b & 0x40 == 0 {
            let half = (value >> 1) as i64;
            return Some(if value & 1 == 0 { half } else { -half });
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const FORMATS: [Lines; 3] = [Lines::Deltas, Lines::Ranges, Lines::Locations];

    #[test]
    fn line_tables_of_3_9() {
        // Line 10 up to byte 6, 11 up to 300, then back to 9.
        let table = [6, 1, 255, 0, 39, 0xfe];
        let lines = [0, 5, 6, 299, 300].map(|at| line(Lines::Deltas, &table, 10, at));
        assert_eq!(lines, [10, 10, 11, 11, 9]);
    }

    #[test]
    fn line_tables_of_3_10() {
        let table = [4, 1, 6, 0x80, 2, 0xff];
        let lines = [0, 3, 4, 10, 11, 12].map(|at| line(Lines::Ranges, &table, 10, at));
        assert_eq!(lines, [11, 11, 0, 10, 10, 0]);
    }

    #[test]
    fn line_tables_of_3_11() {
        // Short form for 2 units; one line on, for 1; 70 lines back by a long form, for 1; none, for 3.
        let table = [0x81, 0x00, 0xd8, 1, 2, 0xf0, 0x4d, 0x02, 0, 0, 0, 0xfa];
        let lines = [0, 2, 4, 6, 8, 12, 14].map(|at| line(Lines::Locations, &table, 100, at));
        assert_eq!(lines, [100, 100, 101, 31, 0, 0, 0]);
    }

    #[test]
    fn a_function_that_did_not_begin_is_at_its_first_line() {
        assert_eq!(FORMATS.map(|f| line(f, &[], 7, -2)), [7; 3]);
    }

    proptest! {
        #[test]
        fn any_table(table in proptest::collection::vec(any::<u8>(), 0..200), first in any::<i32>(), at in any::<i64>()) {
            for f in FORMATS {
                prop_assert!(i32::try_from(line(f, &table, first, at)).is_ok());
            }
        }

        /// What is written into a table of 3.11 is read from it.
        #[test]
        fn locations_come_back(entries in proptest::collection::vec((1u8..9, prop::option::of(-5000i64..5000)), 1..30)) {
            let (mut table, mut want, mut line_now) = (Vec::new(), Vec::new(), 10_000i64);
            for (units, delta) in entries {
                let Some(d) = delta else {
                    table.push(0x80 | 15 << 3 | (units - 1));
                    want.extend(std::iter::repeat_n(0, units.into()));
                    continue;
                };
                line_now += d;
                table.push(0x80 | 13 << 3 | (units - 1));
                let mut v = (d.unsigned_abs() << 1) | u64::from(d < 0);
                while v > 0x3f {
                    table.push(0x40 | (v & 0x3f) as u8);
                    v >>= 6;
                }
                table.push(v as u8);
                want.extend(std::iter::repeat_n(u32::try_from(line_now).unwrap_or(0), units.into()));
            }
            for (unit, want) in want.into_iter().enumerate() {
                prop_assert_eq!(line(Lines::Locations, &table, 10_000, unit as i64 * 2), want);
            }
        }
    }
}
