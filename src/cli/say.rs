//! What is said beside the output.

/// As `eprintln!`, but standard error that nobody reads any more (`2>&1 | head`, a terminal that is gone) is no reason to end:
/// a guard goes on, a recording is kept.
macro_rules! say {
    ($($text:tt)*) => {{
        use std::io::Write as _;
        // There is nowhere left to say it.
        let _ = writeln!(std::io::stderr().lock(), $($text)*);
    }};
}
