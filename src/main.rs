//! pg-tui.
fn main() {}
