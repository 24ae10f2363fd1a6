//! Real programs started suspended, resumed, killed; as root also as another user.

use pg_tracer::command::{Command, CommandError, exit_code};
use pg_tracer::procfs;
use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;

fn words(argv: &[&str]) -> Vec<OsString> {
    argv.iter().map(OsString::from).collect()
}

fn run(argv: &[&str]) -> i32 {
    let mut command = Command::spawn(&words(argv)).expect("spawn");
    command.resume().expect("resume");
    exit_code(command.wait().expect("wait"))
}

/// Is a process gone, or dead and only not yet reaped by whoever inherited it?
fn ended(pid: u32) -> bool {
    procfs::read_stat(pid).is_none_or(|s| matches!(s.state, b'Z' | b'X'))
}

#[test]
fn exit_codes_are_passed_on() {
    assert_eq!(run(&["true"]), 0);
    assert_eq!(run(&["sh", "-c", "exit 7"]), 7);
    assert_eq!(run(&["sh", "-c", "kill -KILL $$"]), 137);
    assert_eq!(run(&["sh", "-c", "kill -TERM $$"]), 143);
}

#[test]
fn nothing_runs_before_resume() {
    let dir = tempfile::tempdir().expect("tempdir");
    let file = dir.path().join("ran");
    let touch = words(&["touch", file.to_str().expect("path")]);
    let mut command = Command::spawn(&touch).expect("spawn");
    // Suspended: asleep in read(2), still this program.
    while procfs::read_stat(command.pid()).expect("stat").state != b'S' {
        std::thread::yield_now();
    }
    assert_eq!(procfs::read_exe(command.pid()), procfs::read_exe(std::process::id()));
    assert!(!file.exists());
    assert!(command.try_wait().expect("try_wait").is_none());
    let pid = command.pid();
    command.resume().expect("resume");
    assert_eq!(exit_code(command.wait().expect("wait")), 0);
    assert!(file.exists());
    assert_eq!(command.pid(), pid);
    assert!(command.try_wait().expect("try_wait").is_some_and(|s| s.success()), "asked again");
}

#[test]
fn programs_that_cannot_run() {
    let dir = tempfile::tempdir().expect("tempdir");
    let plain = dir.path().join("plain");
    std::fs::write(&plain, "#!/bin/sh\n").expect("write");
    for (program, code) in
        [("no-such-program-here", 127), ("/no/such/program", 127), (plain.to_str().expect("path"), 126)]
    {
        let mut command = Command::spawn(&words(&[program])).expect("spawn");
        let error = command.resume().expect_err(program);
        assert_eq!(error.exit_code(), code, "{error}");
        assert!(error.to_string().contains(program));
        assert!(ended(command.pid()));
    }
    assert!(matches!(Command::spawn(&[]), Err(CommandError::Empty)));
    assert!(matches!(Command::spawn(&words(&["a\0b"])), Err(CommandError::Nul(_))));
}

#[test]
fn a_script_without_an_interpreter_line_runs_in_the_shell() {
    let dir = tempfile::tempdir().expect("tempdir");
    let script = dir.path().join("script");
    // Written by another process: were it open for writing here while another test forks, exec would
    // find the file busy.
    let path = script.display();
    let make = format!("printf 'exit $(($1 + 1))\\n' > {path}; chmod 755 {path}");
    assert_eq!(run(&["sh", "-c", &make]), 0);
    assert_eq!(run(&[script.to_str().expect("path"), "41"]), 42);
}

#[test]
fn dropped_without_resume_it_is_gone() {
    let dir = tempfile::tempdir().expect("tempdir");
    let file = dir.path().join("ran");
    let command = Command::spawn(&words(&["touch", file.to_str().expect("path")])).expect("spawn");
    let pid = command.pid();
    drop(command);
    assert!(ended(pid));
    assert!(!file.exists());
}

#[test]
fn killed_before_resume_is_an_error() {
    let mut command = Command::spawn(&words(&["true"])).expect("spawn");
    let pid = command.pid().to_string();
    assert!(std::process::Command::new("kill").args(["-KILL", &pid]).status().expect("kill").success());
    while !ended(command.pid()) {
        std::thread::yield_now();
    }
    // The gate may take one byte when another test's fork still holds the reading end: then wait tells.
    match command.resume() {
        Err(error) => assert!(matches!(error, CommandError::Killed(_)), "{error}"),
        Ok(()) => assert_eq!(exit_code(command.wait().expect("wait")), 137),
    }
}

const RECORDER: &str = "PG_TEST_PLAY_RECORDER";

/// Not a test of its own: the recorder that `the_recorders_death_ends_a_suspended_command` kills.
#[test]
fn play_recorder() {
    let Some(file) = std::env::var_os(RECORDER) else { return };
    let command = Command::spawn(&["touch".into(), file]).expect("spawn");
    println!("suspended {}", command.pid());
    loop {
        std::thread::park();
    }
}

#[test]
fn the_recorders_death_ends_a_suspended_command() {
    let dir = tempfile::tempdir().expect("tempdir");
    let file = dir.path().join("ran");
    let mut recorder = std::process::Command::new(std::env::current_exe().expect("exe"))
        .args(["--exact", "play_recorder", "--nocapture"])
        .env(RECORDER, &file)
        .stdout(Stdio::piped())
        .spawn()
        .expect("recorder");
    let lines = BufReader::new(recorder.stdout.take().expect("stdout")).lines();
    let pid = lines
        .map_while(Result::ok)
        .find_map(|l| l.split_once("suspended ")?.1.trim().parse().ok())
        .expect("the recorder says whom it started");
    assert!(!ended(pid));
    recorder.kill().expect("SIGKILL");
    recorder.wait().expect("wait");
    while !ended(pid) {
        std::thread::yield_now();
    }
    assert!(!file.exists());
}

#[test]
fn signals_are_as_a_program_expects_them() {
    let dir = tempfile::tempdir().expect("tempdir");
    let file = dir.path().join("status");
    let script = format!("exec grep -E '^Sig(Blk|Ign|Cgt)' /proc/self/status > {}", file.display());
    assert_eq!(run(&["sh", "-c", &script]), 0);
    let status = std::fs::read_to_string(&file).expect("status");
    let mask = |name: &str| {
        let line = status.lines().find_map(|l| l.strip_prefix(name)).expect("a line");
        u64::from_str_radix(line.trim(), 16).expect("a mask")
    };
    assert_eq!(mask("SigBlk:"), 0);
    // SIGPIPE is 13: Rust ignores it in this process.
    assert_eq!(mask("SigIgn:") & 1 << 12, 0);
}

fn as_root(what: &str) -> bool {
    let root = procfs::read_status(std::process::id()).is_some_and(|s| s.uid == 0);
    if !root {
        eprintln!("skipped: {what} needs root");
    }
    root
}

fn under_sudo(env: &[(&str, &str)], script: &str, out: &Path) -> Result<String, CommandError> {
    let mut all: Vec<(OsString, OsString)> = vec![("PATH".into(), "/usr/bin:/bin".into())];
    all.extend(env.iter().map(|(k, v)| (OsString::from(k), OsString::from(v))));
    let script = format!("{{ {script}; }} > {}", out.display());
    let mut command = Command::spawn_with(&words(&["sh", "-c", &script]), all)?;
    command.resume()?;
    assert_eq!(exit_code(command.wait().expect("wait")), 0);
    Ok(std::fs::read_to_string(out).expect("output"))
}

#[test]
fn under_sudo_it_runs_as_the_calling_user() {
    use std::os::unix::fs::PermissionsExt;
    if !as_root("running a command as another user") {
        return;
    }
    let dir = tempfile::tempdir().expect("tempdir");
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o777)).expect("chmod");
    let out = dir.path().join("out");
    let script = "id -u; id -ru; id -g; id -G; echo \"$HOME $USER $LOGNAME [$SUDO_UID$SUDO_COMMAND$MAIL]\"; \
        grep -c '^CapEff:.0000000000000000$' /proc/self/status";
    let env = [
        ("SUDO_UID", "65534"),
        ("SUDO_GID", "65534"),
        ("SUDO_USER", "nobody"),
        ("SUDO_COMMAND", "pg-tui"),
        ("MAIL", "/var/mail/root"),
        ("HOME", "/root"),
        ("USER", "root"),
    ];
    let text = under_sudo(&env, script, &out).expect("as nobody");
    let home = std::fs::read_to_string("/etc/passwd")
        .expect("passwd")
        .lines()
        .find(|l| l.starts_with("nobody:"))
        .and_then(|l| l.split(':').nth(5).map(str::to_owned));
    let home = home.expect("Linux has a user nobody");
    assert_eq!(text, format!("65534\n65534\n65534\n65534\n{home} nobody nobody []\n1\n"));
    assert_eq!(under_sudo(&[("SUDO_UID", "0"), ("SUDO_GID", "0")], "id -u", &out).expect("as root"), "0\n");
    std::fs::remove_file(&out).expect("remove");
    // A user that no database knows.
    let text = under_sudo(&[("SUDO_UID", "54321"), ("SUDO_GID", "54322")], "id -u; id -G", &out);
    assert_eq!(text.expect("as a number"), "54321\n54322\n");
    std::fs::remove_file(&out).expect("remove");
    let error = under_sudo(&[("SUDO_UID", "someone")], "id -u", &out).expect_err("unclear");
    assert!(error.to_string().contains("SUDO_UID"), "{error}");
    assert!(!out.exists());
}

#[test]
fn all_groups_of_the_calling_user() {
    if !as_root("running a command as another user") {
        return;
    }
    let passwd = std::fs::read_to_string("/etc/passwd").expect("passwd");
    let ids = |name: &str| {
        let out = std::process::Command::new("id").args(["-G", name]).output().expect("id");
        String::from_utf8_lossy(&out.stdout).trim().to_owned()
    };
    let member = passwd.lines().find_map(|l| {
        let mut f = l.split(':');
        let (name, uid, gid) = (f.next()?, f.nth(1)?, f.next()?);
        (uid != "0" && ids(name).contains(' ')).then(|| (name.to_owned(), uid.to_owned(), gid.to_owned()))
    });
    let Some((name, uid, gid)) = member else {
        eprintln!("skipped: no user of this machine is in several groups");
        return;
    };
    let dir = tempfile::tempdir_in("/var/tmp").expect("tempdir");
    std::os::unix::fs::chown(dir.path(), uid.parse().ok(), gid.parse().ok()).expect("chown");
    let env = [("SUDO_UID", uid.as_str()), ("SUDO_GID", gid.as_str()), ("SUDO_USER", name.as_str())];
    let text = under_sudo(&env, "id -G", &dir.path().join("out")).expect("as a member");
    assert_eq!(text.trim(), ids(&name));
}
