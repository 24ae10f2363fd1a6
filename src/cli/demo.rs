//! `pg-tui demo`: the whole way once, on a bundled program that hangs. Who may not trace is told what is
//! missing, and sees the bundled recording of the same hang instead.

use super::args::{Cli, Command, Demo, record_as_typed};
use super::exit::{Failure, Outcome};
use super::{diagnose, open, record};
use crate::clean::clean_lines;
use crate::demo::{bundled, hang};
use clap::Parser;
use std::ffi::OsString;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Run it.
pub fn run(args: &Demo) -> Outcome {
    let path = args.output.clone().unwrap_or_else(default_path);
    let own = std::env::current_exe()
        .map_err(|e| Failure::Other(format!("cannot find this program's own file: {e}")))?;
    // As if typed: the defaults are those of `record`.
    let line: Vec<OsString> = vec![
        "-o".into(),
        path.clone().into(),
        "--".into(),
        own.into(),
        hang::SUBCOMMAND.into(),
        "--seconds".into(),
        args.seconds.to_string().into(),
    ];
    let recording = record_as_typed(line)?;
    say!("pg-tui: recording a shop whose payment service hangs, for about {:.0} s", args.seconds + 3.0);
    match record::record(&recording) {
        Ok(done) => {
            if args.output.is_none() {
                // The demo of last time is worth nothing.
                let _ = std::fs::remove_file(done.path.with_extension("pgs.old"));
            }
            show(&done.path, args.no_tui)
        }
        Err(Failure::NotPermitted(why)) => bundled_instead(&why, args.no_tui),
        Err(other) => Err(other),
    }
}

/// Where the recording goes: a name per user, since nobody can replace another user's file there.
fn default_path() -> PathBuf {
    let user = std::fs::metadata("/proc/self").map_or(0, |m| m.uid());
    std::env::temp_dir().join(format!("pg-tui-demo-{user}.pgs"))
}

/// Says what is missing and shows the bundled recording.
fn bundled_instead(why: &str, no_tui: bool) -> Outcome {
    say!("pg-tui: {}", clean_lines(why));
    let path = bundled::unpack()
        .map_err(|e| Failure::Other(format!("the bundled recording cannot be written: {e}")))?;
    say!("pg-tui: this is a bundled recording of the same hang instead: {}", path.display());
    if !no_tui && open::can_show() {
        // The screen would hide the message at once.
        say!("pg-tui: press Enter to open it");
        std::io::stdin().read_line(&mut String::new())?;
    }
    show(&path, no_tui)
}

/// The screen, or the diagnosis as text where there is none.
fn show(path: &Path, no_tui: bool) -> Outcome {
    if !no_tui && open::can_show() {
        return open::after(path, ExitCode::SUCCESS, true);
    }
    let line = ["pg-tui".into(), "diagnose".into(), OsString::from(path)];
    let cli = Cli::try_parse_from(line).map_err(|e| Failure::Other(e.to_string()))?;
    let Command::Diagnose(args) = cli.command else {
        return Err(Failure::Other("the demo has no diagnosis".into()));
    };
    let mut out = std::io::stdout().lock();
    let code = diagnose::run(&args, &mut out)?;
    out.flush()?;
    Ok(code)
}
