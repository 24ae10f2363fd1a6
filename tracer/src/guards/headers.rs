//! What the headers of the programs say, for the tests that hold layouts to it.

const SOURCE: &str = concat!(
    include_str!("../../bpf/guard.h"),
    include_str!("../../bpf/learn.h"),
    include_str!("../../bpf/python_frames.h"),
    include_str!("../../bpf/shape.h"),
    include_str!("../../bpf/sight.h")
);

/// A struct of the programs has this size, bytes.
pub fn assert_size(name: &str, size: usize) {
    let line = format!("_Static_assert(sizeof(struct {name}) == {size}, ");
    assert!(SOURCE.contains(&line), "{name}: {size}");
}

/// A name stands for this number there.
pub fn assert_defined(name: &str, value: usize) {
    let defined = |l: &str| l.split_whitespace().take(3).eq(["#define", name, &value.to_string()]);
    assert!(SOURCE.lines().any(defined), "{name}: {value}");
}
