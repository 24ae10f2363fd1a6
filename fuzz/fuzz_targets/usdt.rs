//! Static probes of a program (`.note.stapsdt`).
#![no_main]

use libfuzzer_sys::fuzz_target;
use pg_tracer::stacks::parse_usdt;

fuzz_target!(|bytes: &[u8]| {
    for base in [None, Some(0), Some(u64::MAX)] {
        for probe in parse_usdt(bytes, base) {
            assert!(!probe.provider.is_empty() && !probe.name.is_empty());
            assert!(!probe.provider.chars().chain(probe.name.chars()).any(char::is_control));
        }
    }
});
