//! The program that hangs (`pg-tui demo-hang [--seconds N]`, hidden): a shop and its payment service.
//!
//! Two real processes. `shopd` sends one order after the other to `payd` over a unix socket; a worker of
//! `payd` books each in the ledger. Every quarter second the thread `tick` takes the ledger's mutex and
//! rebuilds its index, which takes 12 ms, but once takes seconds: the worker waits for the mutex, `shopd`
//! waits for the worker, and the customer sees a shop that does not answer. Nothing sleeps in place of
//! work: the cause is a thread on CPU.

mod ledger;
mod payd;
mod shopd;

use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

/// Name of the hidden subcommand.
pub const SUBCOMMAND: &str = "demo-hang";

/// How long the one slow rebuild takes when nothing else is asked for.
const DEFAULT_SECONDS: f64 = 4.0;

/// The phases of a run.
#[derive(Clone, Copy, Debug)]
struct Plan {
    /// Normal service before the hang.
    before: Duration,
    /// Time under the ledger's mutex in the slow rebuild.
    hang: Duration,
    /// Normal service after it.
    after: Duration,
}

impl Plan {
    fn new(hang: Duration) -> Self {
        Self {
            before: (hang / 2).min(Duration::from_secs(2)),
            hang,
            after: hang.min(Duration::from_millis(600)),
        }
    }
}

/// Runs the part of the demonstration that `args` (after the subcommand's name) ask for.
pub fn main(args: &[String]) -> ExitCode {
    match run(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("pg-tui {SUBCOMMAND}: {message}");
            ExitCode::from(2)
        }
    }
}

fn run(args: &[String]) -> Result<(), String> {
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args[..] {
        [] => become_shopd(DEFAULT_SECONDS),
        ["--seconds", n] => become_shopd(seconds(n)?),
        ["shopd", n] => shopd::run(Plan::new(Duration::from_secs_f64(seconds(n)?))),
        ["payd", n, socket] => payd::run(Plan::new(Duration::from_secs_f64(seconds(n)?)), socket),
        _ => Err(format!("usage: pg-tui {SUBCOMMAND} [--seconds N]")),
    }
}

fn seconds(text: &str) -> Result<f64, String> {
    let n: f64 = text.parse().map_err(|_| format!("`{text}` is no number of seconds"))?;
    if (0.1..=600.0).contains(&n) { Ok(n) } else { Err(format!("{n} s: must be between 0.1 and 600")) }
}

/// Executes this binary again under the name of the front end, so that the command line tells the role.
fn become_shopd(seconds: f64) -> Result<(), String> {
    let failed = command("shopd")?.args(["shopd", &seconds.to_string()]).exec();
    Err(format!("cannot execute this program again: {failed}"))
}

/// This binary as the process `name`.
fn command(name: &str) -> Result<Command, String> {
    let exe = std::env::current_exe().map_err(|e| format!("cannot find this program's file: {e}"))?;
    let mut command = Command::new(exe);
    command.arg0(name).arg(SUBCOMMAND);
    Ok(command)
}

/// Gives the main thread (and with it the process) a telling name.
fn set_process_name(name: &str) {
    // Without /proc there would be nothing to record either; the command line tells the role anyway.
    let _ = std::fs::write("/proc/self/comm", name);
}

/// Starts a named thread. Thread names are what a person sees in the recording.
fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> Result<(), String> {
    let started = std::thread::Builder::new().name(name.into()).spawn(body);
    started.map(drop).map_err(|e| format!("cannot start the thread {name}: {e}"))
}

/// Real work on the CPU for a while: a hash over a table that grows no further than a page.
#[inline(never)]
fn hash_rows(rows: &mut [u64], how_long: Duration) -> u64 {
    let start = Instant::now();
    let mut sum = 0_u64;
    while start.elapsed() < how_long {
        for row in rows.iter_mut() {
            *row = row.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23) ^ sum;
            sum = sum.wrapping_add(*row);
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_arguments_are_refused() {
        for args in [vec!["--seconds"], vec!["--seconds", "x"], vec!["--seconds", "0"], vec!["nobody"]] {
            let args: Vec<String> = args.into_iter().map(String::from).collect();
            assert!(run(&args).is_err(), "{args:?}");
        }
    }

    #[test]
    fn the_hang_is_the_longest_phase() {
        for s in [0.1, 1.0, 4.0, 30.0] {
            let plan = Plan::new(Duration::from_secs_f64(s));
            assert!(plan.before < plan.hang && plan.after <= plan.hang, "{plan:?}");
        }
    }
}
