//! `pg-tui demo`: the whole way once, on a bundled program that hangs.

use super::args::{Cli, Command, Demo};
use super::exit::{Failure, Outcome};
use super::{diagnose, open, record};
use crate::demo::hang;
use clap::Parser;
use std::ffi::OsString;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

/// Run it.
pub fn run(args: &Demo) -> Outcome {
    let path = args.output.clone().unwrap_or_else(|| std::env::temp_dir().join("pg-tui-demo.pgs"));
    let own = std::env::current_exe()
        .map_err(|e| Failure::Other(format!("cannot find this program's own file: {e}")))?;
    // As if typed: the defaults are those of `record`.
    let line: Vec<OsString> = vec![
        "pg-tui".into(),
        "record".into(),
        "-o".into(),
        path.clone().into(),
        "--".into(),
        own.into(),
        hang::SUBCOMMAND.into(),
        "--seconds".into(),
        args.seconds.to_string().into(),
    ];
    let cli = Cli::try_parse_from(line).map_err(|e| Failure::Other(e.to_string()))?;
    let Command::Record(recording) = cli.command else {
        return Err(Failure::Other("the demo is no recording".into()));
    };
    eprintln!("pg-tui: recording a shop whose payment service hangs, for about {:.0} s", args.seconds * 2.0);
    let done = record::record(&recording)?;
    show(&done.path, args.no_tui)
}

/// The screen, or the diagnosis as text where there is none.
fn show(path: &Path, no_tui: bool) -> Outcome {
    if !no_tui && open::can_show() {
        return open::after(path, ExitCode::SUCCESS);
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
