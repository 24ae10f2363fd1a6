//! Records a command by the real program.

use crate::report::{Report, before_others, pg_tui, text};
use crate::{Skipped, roles};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Records a command into `folder`; skipped where the kernel does not let us.
pub fn record(folder: &Path, command: &[&str]) -> Result<PathBuf, Skipped> {
    let args: Vec<&str> = std::iter::once("--").chain(command.iter().copied()).collect();
    recorded(folder, &args)
}

/// Records two seconds of a command that has run for a while.
pub fn record_from_the_middle(folder: &Path, command: &[&str]) -> Result<PathBuf, Skipped> {
    let mut child = Command::new(command[0]).args(&command[1..]).spawn().expect("the command starts");
    std::thread::sleep(Duration::from_millis(1500));
    let file = recorded(folder, &["-d", "2", "-p", &child.id().to_string()]);
    child.wait().expect("a child of ours");
    file
}

fn recorded(folder: &Path, args: &[&str]) -> Result<PathBuf, Skipped> {
    let file = folder.join("r.pgs");
    let mut pg_tui = before_others(pg_tui().get_program());
    let out = pg_tui.args(["record", "--no-tui", "-o"]).arg(&file).args(args).output();
    let out = out.expect("pg-tui starts");
    if out.status.code() == Some(4) {
        let why = String::from_utf8_lossy(&out.stderr).lines().next().unwrap_or_default().to_string();
        return Err(Skipped(format!("recording is not permitted here: {why}")));
    }
    assert!(out.status.success(), "record: {}\n{}", out.status, text(&out));
    Ok(file)
}

/// Records one of the scenarios of [`roles`].
pub fn record_scenario(folder: &Path, name: &str) -> Result<PathBuf, Skipped> {
    let command = roles::role(&["scenario", name, &folder.display().to_string()]);
    let program = command.get_program().to_string_lossy().into_owned();
    let args: Vec<String> = command.get_args().map(|a| a.to_string_lossy().into_owned()).collect();
    let mut line = vec![program.as_str()];
    line.extend(args.iter().map(String::as_str));
    record(folder, &line)
}

/// Records and diagnoses until `holds` does, as long as the recording says that the kernel did not report all
/// switches (some do not), a few times.
pub fn again(report: impl Fn() -> Result<Report, Skipped>, holds: impl Fn(&Report)) -> Result<(), Skipped> {
    for _ in 0..4 {
        let r = report()?;
        match catch_unwind(AssertUnwindSafe(|| holds(&r))) {
            Ok(()) => return Ok(()),
            Err(why) if !r.unreported() => resume_unwind(why),
            Err(_) => println!("again: the kernel did not report all switches"),
        }
    }
    holds(&report()?);
    Ok(())
}
