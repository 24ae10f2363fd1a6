//! Untrusted text made fit to be kept; names of functions as their source writes them.

use std::fmt::{self, Write};

/// Longest name kept, in bytes.
const MAX_NAME: usize = 1024;

/// Valid UTF-8 without control characters, of bounded length.
pub(super) fn clean(bytes: &[u8]) -> String {
    let bytes = bytes.get(..MAX_NAME).unwrap_or(bytes);
    String::from_utf8_lossy(bytes).chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

/// Output that stops at a length: a mangled name can repeat itself exponentially.
struct Bounded(String);

impl Write for Bounded {
    fn write_str(&mut self, s: &str) -> fmt::Result {
        if self.0.len() + s.len() > MAX_NAME {
            return Err(fmt::Error);
        }
        self.0.push_str(s);
        Ok(())
    }
}

/// A symbol's name, demangled when it is one of Rust (v0 and legacy, without the hash) or C++ (Itanium ABI).
/// Names that only look like a part of one ("f" is a float there) stay as they are.
pub(super) fn demangle(symbol: &[u8]) -> String {
    let plain = || clean(symbol);
    let Some(text) = std::str::from_utf8(symbol).ok().filter(|t| t.len() <= 4 * MAX_NAME) else {
        return plain();
    };
    let mut out = Bounded(String::new());
    if let Ok(name) = rustc_demangle::try_demangle(text) {
        return if write!(out, "{name:#}").is_ok() { clean(out.0.as_bytes()) } else { plain() };
    }
    if !["_Z", "__Z", "___Z"].iter().any(|p| text.starts_with(p)) {
        return plain();
    }
    let Ok(name) = cpp_demangle::Symbol::new(text) else { return plain() };
    match name.structured_demangle(&mut out, &cpp_demangle::DemangleOptions::default()) {
        Ok(()) => clean(out.0.as_bytes()),
        Err(_) => plain(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names() {
        let cases = [
            ("f", "f"),
            ("main", "main"),
            ("_ZN4shop4Item4stopEv", "shop::Item::stop()"),
            ("_ZN3std6thread5sleep17h0123456789abcdefE", "std::thread::sleep"),
            ("_RNvC6_123foo3bar", "123foo::bar"),
            ("_Znope", "_Znope"),
            ("a\x1b[31mb", "a\u{fffd}[31mb"),
        ];
        for (symbol, name) in cases {
            assert_eq!(demangle(symbol.as_bytes()), name);
        }
    }

    #[test]
    fn a_name_that_repeats_itself_is_bounded() {
        // Each parameter is a pair of the one before.
        let mut s = "_Z1f1AIiiE".to_owned();
        for i in 0..30 {
            let last =
                if i == 0 { "S0_".to_owned() } else { format!("S{}_", char::from(b'0' + (i % 10) as u8)) };
            write!(s, "S_I{last}{last}E").unwrap();
        }
        assert!(demangle(s.as_bytes()).len() <= MAX_NAME);
    }

    proptest! {
        #[test]
        fn any_name(tail in proptest::collection::vec(any::<u8>(), 0..60), kind in 0usize..3) {
            let mut s = [&b"_Z"[..], b"_R", b""][kind].to_vec();
            s.extend(tail);
            let name = demangle(&s);
            prop_assert!(!name.chars().any(char::is_control));
        }

        #[test]
        fn any_cpp_name(tail in "[NSTIEK0-9_a-z]{1,60}") {
            demangle(format!("_Z{tail}").as_bytes());
        }
    }
}
