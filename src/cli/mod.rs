//! The command line: what each command does, without a screen.

#[macro_use]
mod say;

pub mod args;
mod chosen;
mod demo;
mod diagnose;
mod exit;
mod find_flag;
mod generate;
mod guard;
mod launched;
mod live;
mod loading;
mod log;
mod mark;
mod measure;
mod open;
mod page;
mod profile;
mod record;
mod redact;
mod stats;
mod steps;
mod text;
mod train;
mod train_given;
mod units;
mod violations;
mod watch_flag;

pub use exit::{Failure, Outcome};
pub use text::report as report_text;

use args::{Cli, Command};
use clap::{CommandFactory, Parser};
use std::ffi::OsString;
use std::io::{BufWriter, Write, stdout};
use std::path::Path;
use std::process::ExitCode;

/// Run pg-tui with the arguments of this process.
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse_from(words(std::env::args_os())) {
        Ok(cli) => cli,
        Err(e) => {
            // Help and version are no errors; a broken pipe while printing them is none either.
            let _ = e.print();
            return ExitCode::from(if e.use_stderr() { 2 } else { 0 });
        }
    };
    log::start();
    tracing::info!("pg-tui {} {:?}", env!("CARGO_PKG_VERSION"), cli.command);
    match run(&cli.command) {
        Ok(code) => code,
        Err(failure) => failure.report(),
    }
}

/// A recording without a command, after options perhaps, is to be looked at; so is whatever else is there and is called
/// like no command.
fn words(args: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let recording = |w: &OsString| {
        let path = Path::new(w);
        // `record` keeps an older recording as FILE.old.
        let path =
            if path.extension().is_some_and(|e| e == "old") { path.with_extension("") } else { path.into() };
        path.extension().is_some_and(|e| e == "pgs")
    };
    let command = |w: &OsString| w == "help" || Cli::command().get_subcommands().any(|c| c.get_name() == w);
    let mut words: Vec<OsString> = args.collect();
    let option = words.get(1).is_some_and(|w| w.as_encoded_bytes().starts_with(b"-"));
    let there = |w: &OsString| !option && !command(w) && Path::new(w).exists();
    if words.get(1).is_some_and(|w| recording(w) || there(w)) || option && words.iter().skip(2).any(recording)
    {
        words.insert(1, "open".into());
    }
    words
}

fn run(command: &Command) -> Outcome {
    let mut out = BufWriter::new(stdout().lock());
    let code = match command {
        Command::Diagnose(a) => diagnose::run(a, &mut out)?,
        Command::Violations(a) => violations::run(a, &mut out)?,
        Command::Units(a) => units::run(a, &mut out)?,
        Command::Redact(a) => redact::run(a, &mut out)?,
        Command::Train(a) => train::run(a, &mut out)?,
        Command::Guard(a) => guard::run(a, &mut out)?,
        Command::Profile(a) => profile::run(a, &mut out)?,
        Command::Completions(a) => generate::completions(a, &mut out)?,
        Command::Man(a) => generate::man(a, &mut out)?,
        Command::Mark(a) => mark::run(a, &mut out)?,
        Command::FindFlag(a) => find_flag::run(a, &mut out)?,
        Command::WatchFlag(a) => watch_flag::run(a, &mut out)?,
        Command::Record(_) | Command::Open(_) | Command::Demo(_) | Command::Live(_) => {
            // These may open the screen, which has standard output for itself.
            drop(out);
            return match command {
                Command::Record(a) => record::run(a),
                Command::Open(a) => open::run(a),
                Command::Live(a) => live::run(a),
                Command::Demo(a) => demo::run(a),
                _ => Ok(ExitCode::SUCCESS),
            };
        }
    };
    out.flush()?;
    Ok(code)
}

/// Runs what only reads a file, for nobody. Its errors are answers, too.
#[cfg(test)]
pub(crate) fn to_nobody<'a>(words: impl IntoIterator<Item = &'a str>) {
    let cli = Cli::try_parse_from(words).unwrap_or_else(|e| panic!("{e}"));
    let out = &mut std::io::sink();
    let _ = match &cli.command {
        Command::Diagnose(a) => diagnose::run(a, out),
        Command::Violations(a) => violations::run(a, out),
        Command::Units(a) => units::run(a, out),
        Command::Redact(a) => redact::run(a, out),
        other => panic!("{other:?} does more than read"),
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recording_without_a_command_is_opened() {
        let to = |line: &str| {
            words(line.split(' ').map(OsString::from)).join(" ".as_ref()).into_string().unwrap_or_default()
        };
        assert_eq!(to("pg-tui a.pgs --ascii"), "pg-tui open a.pgs --ascii");
        assert_eq!(to("pg-tui --theme light a.pgs"), "pg-tui open --theme light a.pgs");
        assert_eq!(to("pg-tui gone.pgs.old"), "pg-tui open gone.pgs.old");
        // Cargo runs tests where the sources are.
        assert_eq!(to("pg-tui Cargo.toml"), "pg-tui open Cargo.toml");
        assert_eq!(to("pg-tui sessions"), "pg-tui open sessions");
        for whole in ["pg-tui diagnose a.pgs", "pg-tui --version", "pg-tui a.txt", "pg-tui --theme light"] {
            assert_eq!(to(whole), whole);
        }
    }
}
