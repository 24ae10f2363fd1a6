//! The bundled program that hangs.

use std::process::Command;

#[test]
fn the_hanging_program_ends_by_itself_and_leaves_nothing_behind() {
    let tmp = tempfile::tempdir().expect("a folder");
    let out = Command::new(env!("CARGO_BIN_EXE_pg-tui"))
        .args(["demo-hang", "--seconds", "0.4"])
        .env("TMPDIR", tmp.path())
        .output()
        .expect("it starts");
    let text = String::from_utf8_lossy(&out.stdout);
    assert!(out.status.success(), "{out:?}");
    assert!(text.starts_with("shopd: ") && text.contains(" orders paid"), "{text}");
    assert_eq!(std::fs::read_dir(tmp.path()).expect("still there").count(), 0, "the socket's folder is gone");
}
