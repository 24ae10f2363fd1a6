//! How a person names a data flag: `[PID:]SYMBOL[+OFFSET][:LEN]` or `[PID:]0xADDRESS[:LEN]`.

use super::FlagError;
use std::fmt;
use std::str::FromStr;

/// A data flag as a person names it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FlagSpec {
    /// The process, when it was named here.
    pub pid: Option<u32>,
    /// Where.
    pub place: FlagPlace,
    /// How many bytes: 1, 2, 4 or 8; `None`: as many as the variable has.
    pub len: Option<u8>,
}

/// Where a data flag is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FlagPlace {
    /// At an address.
    Address(u64),
    /// In a variable, so many bytes after its beginning.
    Symbol(String, u64),
}

fn hex_or_decimal(text: &str) -> Option<u64> {
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

impl FromStr for FlagSpec {
    type Err = FlagError;

    fn from_str(text: &str) -> Result<Self, FlagError> {
        let wrong = || FlagError::Syntax(text.to_owned());
        let mut rest = text.trim();
        let mut pid = None;
        // `ns::variable` has colons of its own.
        if let Some((head, tail)) = rest.split_once(':')
            && !head.is_empty()
            && head.bytes().all(|b| b.is_ascii_digit())
            && !tail.starts_with(':')
        {
            pid = Some(head.parse().ok().filter(|p| *p > 0).ok_or_else(wrong)?);
            rest = tail;
        }
        let mut len = None;
        if let Some((head, tail)) = rest.rsplit_once(':')
            && !head.ends_with(':')
            && (tail.is_empty() || tail.bytes().all(|b| b.is_ascii_digit()))
        {
            len = Some(tail.parse().ok().filter(|n| matches!(n, 1 | 2 | 4 | 8)).ok_or_else(wrong)?);
            rest = head;
        }
        let place = if rest.starts_with(|c: char| c.is_ascii_digit()) {
            // A bare decimal number is more likely a mistake than an address.
            let hex = rest.starts_with("0x") || rest.starts_with("0X");
            FlagPlace::Address(hex.then(|| hex_or_decimal(rest)).flatten().ok_or_else(wrong)?)
        } else {
            let plus = rest.rsplit_once('+').and_then(|(name, n)| Some((name, hex_or_decimal(n)?)));
            let (name, offset) = plus.unwrap_or((rest, 0));
            if name.is_empty() || name.chars().any(char::is_control) {
                return Err(wrong());
            }
            FlagPlace::Symbol(name.to_owned(), offset)
        };
        Ok(Self { pid, place, len })
    }
}

impl fmt::Display for FlagSpec {
    /// Without the process: as it is shown.
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match &self.place {
            FlagPlace::Address(a) => write!(f, "0x{a:x}"),
            FlagPlace::Symbol(name, 0) => f.write_str(name),
            FlagPlace::Symbol(name, n) => write!(f, "{name}+0x{n:x}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(pid: Option<u32>, place: FlagPlace, len: Option<u8>) -> FlagSpec {
        FlagSpec { pid, place, len }
    }

    #[test]
    fn all_forms() {
        let symbol = |s: &str, n| FlagPlace::Symbol(s.to_owned(), n);
        for (text, want) in [
            ("ready", spec(None, symbol("ready", 0), None)),
            ("ready:1", spec(None, symbol("ready", 0), Some(1))),
            ("1234:ready", spec(Some(1234), symbol("ready", 0), None)),
            ("1234:shop::open:4", spec(Some(1234), symbol("shop::open", 0), Some(4))),
            ("shop::open", spec(None, symbol("shop::open", 0), None)),
            ("shop+0x18:8", spec(None, symbol("shop", 0x18), Some(8))),
            ("shop+24", spec(None, symbol("shop", 24), None)),
            ("0x55d0c0a04010", spec(None, FlagPlace::Address(0x55d0_c0a0_4010), None)),
            ("7:0x10:2", spec(Some(7), FlagPlace::Address(0x10), Some(2))),
            ("operator+", spec(None, symbol("operator+", 0), None)),
        ] {
            assert_eq!(text.parse(), Ok(want), "{text}");
        }
    }

    #[test]
    fn what_is_none() {
        for text in
            ["", "0x", "0xzz", "12", "ready:3", "ready:", "0:x", "0x10:16", "a\x1b", "4294967296:x", ":4"]
        {
            assert!(text.parse::<FlagSpec>().is_err(), "{text:?}");
        }
    }
}
