//! A whole session file: opening, streaming and loading end without a panic, whatever the bytes are.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::ops::ControlFlow;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(session) = pg_tui::session::parse::session(bytes) {
        let _ = session.events_in(0..u64::MAX, None);
        let _ = (session.notes(), session.decisions().len(), session.duration());
        let _ = pg_tui::session::load_session(session, Default::default(), |_| ControlFlow::Continue(()));
    }
});
