//! Real hangs, recorded and diagnosed: the kinds of fault that people meet, as small programs of our own.
//!
//! No libtest harness: this binary is also the programs that hang (`--role NAME ...`). Its output has libtest's
//! form. Where recording is not permitted, each test says so and counts as ignored.

mod cases;
mod record;
mod report;
mod roles;
mod system;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;

/// Why a test did not run.
pub struct Skipped(pub String);

/// A test: its name and what it does.
pub type Test = (&'static str, fn() -> Result<(), Skipped>);

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if args.first().is_some_and(|a| a == "--role") {
        roles::run(&args[1..]);
        return ExitCode::SUCCESS;
    }
    let chosen = |name: &str| {
        let mut filters = args.iter().filter(|a| !a.starts_with('-')).peekable();
        filters.peek().is_none() || filters.any(|f| name.contains(f.as_str()))
    };
    if args.iter().any(|a| a == "--list") {
        for (name, _) in cases::TESTS {
            println!("{name}: test");
        }
        return ExitCode::SUCCESS;
    }
    let (mut passed, mut failed, mut ignored, mut out) = (0, 0, 0, 0);
    println!("\nrunning {} tests", cases::TESTS.iter().filter(|t| chosen(t.0)).count());
    for (name, test) in cases::TESTS {
        if !chosen(name) {
            out += 1;
            continue;
        }
        match catch_unwind(AssertUnwindSafe(test)) {
            Ok(Ok(())) => {
                passed += 1;
                println!("test {name} ... ok");
            }
            Ok(Err(Skipped(why))) => {
                ignored += 1;
                println!("test {name} ... ignored, {}", why.replace('\n', " "));
            }
            Err(_) => {
                failed += 1;
                println!("test {name} ... FAILED");
            }
        }
    }
    let word = if failed == 0 { "ok" } else { "FAILED" };
    println!(
        "\ntest result: {word}. {passed} passed; {failed} failed; {ignored} ignored; 0 measured; {out} filtered out\n"
    );
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::from(101) }
}
