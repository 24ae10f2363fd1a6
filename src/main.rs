//! pg-tui: from "it hangs" to the thread, the function and the variable that cause it.

use pg_tui::{cli, demo::hang};
use std::process::ExitCode;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args_os().skip(1).map(|a| a.to_string_lossy().into_owned()).collect();
    if args.first().is_some_and(|a| a == hang::SUBCOMMAND) {
        // A program to be recorded, not a part of pg-tui: nothing of it is set up.
        return hang::main(&args[1..]);
    }
    if let Err(e) = color_eyre::install() {
        eprintln!("pg-tui: {e}");
    }
    cli::main()
}
