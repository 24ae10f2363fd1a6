//! The payload of a chunk of traces: what is understood is whole, can be written again, analysed and shown.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pg_event::Catalog;
use pg_tui::session::parse;
use pg_tui::steps::{Steps, source::Sources};

fuzz_target!(|bytes: &[u8]| {
    let Ok(traces) = parse::traces(bytes) else { return };
    assert_eq!(parse::traces(&parse::encode_traces(&traces)).as_ref(), Ok(&traces));
    let catalog = Catalog::default();
    for (_, trace) in traces.iter().take(4) {
        assert_eq!(trace.check(), Ok(()));
        let steps = Steps::new(trace, &catalog);
        let rows = steps.rows(&Default::default());
        let _ = steps.lines(0..300, &Sources::default());
        for step in [0, 1, steps.len() / 2] {
            let _ = steps.row_of(&rows, step);
        }
    }
});
