//! Project chores, one file per subcommand: `cargo xtask NAME`. Nothing here is needed to build or test.

mod bpf;
mod cookbook;
mod screenshot;
mod svg;

use std::process::ExitCode;

/// A subcommand: its name, what it does, and the function that gets the arguments after the name.
type Command = (&'static str, &'static str, fn(&[String]) -> Result<(), String>);

const COMMANDS: &[Command] = &[
    (
        "bpf",
        "rebuild the objects in tracer/bpf (needs clang 14, llvm-strip, libbpf-dev); --check only compares",
        bpf::run,
    ),
    (
        "screenshot",
        "draw a program's screen as SVG: OUT.svg [--size CxR] [--keys K,...] -- CMD...",
        screenshot::run,
    ),
    ("cookbook", "draw all pictures of README and cookbook afresh: [PROGRAM]", cookbook::run),
];

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let found = args.first().and_then(|name| COMMANDS.iter().find(|c| c.0 == name));
    let Some((name, _, run)) = found else {
        eprintln!("usage: cargo xtask COMMAND [ARG...]");
        for (name, what, _) in COMMANDS {
            eprintln!("  {name:<12} {what}");
        }
        return ExitCode::from(2);
    };
    match run(&args[1..]) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("cargo xtask {name}: {message}");
            ExitCode::FAILURE
        }
    }
}
