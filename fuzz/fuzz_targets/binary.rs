//! A program or library: its sections, symbols (also packed ones), unwind tables, relocations and static probes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pg_tracer::stacks::Binary;
use std::io::Write;

fuzz_target!(|bytes: &[u8]| {
    let mut file = tempfile::tempfile().expect("a file");
    file.write_all(bytes).expect("written");
    let Some(binary) = Binary::open(file, "/fuzzed") else { return };
    let control = |text: &str| text.chars().any(char::is_control);
    assert!(!control(binary.key()));
    for function in binary.functions() {
        assert!(!function.names.iter().any(|n| control(n)));
        let _ = binary.offset(function.address);
    }
    // Each reads the unwind tables anew.
    for &(start, end) in binary.code().iter().take(4) {
        let _ = (binary.offset(end), binary.begin_of(start));
    }
    let _ = (binary.bounds(), binary.usdt(), binary.slots_of(&[b"abort"]), binary.mentions("main"));
});
