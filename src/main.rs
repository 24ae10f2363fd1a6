//! pg-tui: from "it hangs" to the thread, the function and the variable that cause it.

use pg_tui::demo::hang;
use std::process::ExitCode;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if args.first().is_some_and(|a| a == hang::SUBCOMMAND) {
        return hang::main(&args[1..]);
    }
    eprintln!("pg-tui: no command is built in yet");
    ExitCode::from(2)
}
