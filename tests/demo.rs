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

/// A command as a user without rights: this user, unless that is root.
fn without_rights(program: &std::path::Path) -> Option<Command> {
    let root = std::fs::metadata("/proc/self").map(|m| std::os::unix::fs::MetadataExt::uid(&m)).ok()? == 0;
    if !root {
        return Some(Command::new(program));
    }
    let mut command = Command::new("setpriv");
    let there = Command::new("setpriv").arg("--version").output().is_ok_and(|o| o.status.success());
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all"]).arg(program);
    there.then_some(command)
}

#[test]
fn without_the_right_to_trace_the_bundled_recording_is_shown() {
    let tmp = tempfile::tempdir().expect("a folder");
    std::fs::set_permissions(tmp.path(), permissions(0o777)).expect("ours");
    // The build folder may not be readable by others.
    let program = tmp.path().join("pg-tui");
    std::fs::copy(env!("CARGO_BIN_EXE_pg-tui"), &program).expect("copied");
    let Some(mut command) = without_rights(&program) else {
        println!("skipped: running as root, and setpriv(1) is not installed");
        return;
    };
    let out = command
        .args(["demo", "--no-tui", "--seconds", "1"])
        .env("TMPDIR", tmp.path())
        .env("HOME", tmp.path());
    let out = out.output().expect("it starts");
    let (text, said) = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    if !said.contains("not permitted") {
        println!("skipped: this user may trace, or the kernel cannot: {said}");
        return;
    }
    assert!(out.status.success(), "{said}");
    assert!(said.contains("CAP_BPF") && said.contains("sudo") && said.contains("setcap"), "{said}");
    assert!(said.contains("bundled recording"), "{said}");
    assert!(text.contains("shopd") && text.contains("\"tick\"") && text.contains("rebuild_index"), "{text}");
}

fn permissions(mode: u32) -> std::fs::Permissions {
    std::os::unix::fs::PermissionsExt::from_mode(mode)
}
