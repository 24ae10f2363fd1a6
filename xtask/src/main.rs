//! Project chores: `cargo xtask bpf` rebuilds the BPF object.
fn main() {}
