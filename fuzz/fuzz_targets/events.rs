//! The payload of an event chunk: the first four bytes are the number of rows that its frame claims.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pg_tui::session::{format::MAX_ROWS, parse};

fuzz_target!(|bytes: &[u8]| {
    let Some((head, payload)) = bytes.split_at_checked(4) else { return };
    let rows = u32::from_le_bytes([head[0], head[1], head[2], head[3]]) % (MAX_ROWS + 1);
    if let Ok(events) = parse::events(payload, rows) {
        // What was understood can be written again, and is then understood the same.
        let (again, n) = parse::encode(&events);
        assert_eq!(parse::events(&again, n).as_deref(), Ok(&events[..]));
    }
});
