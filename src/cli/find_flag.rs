//! `pg-tui find-flag`: the variable that a spinning thread asks.

use super::args::FindFlag;
use super::exit::{Failure, Outcome};
use crate::clean::clean;
use pg_tracer::flags::{Ask, End, FlagError, Found, FoundFlag, Ground, find};
use serde_json::{Value, json};
use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

/// Frames shown of a stack.
const FRAMES: usize = 4;

/// Run it. Code 1: no flag was found.
pub fn run(args: &FindFlag, out: &mut dyn Write) -> Outcome {
    let ask = Ask {
        pid: args.pid,
        tid: args.tid,
        steps: args.steps,
        patience: Duration::from_nanos(args.patience),
    };
    let found = find(&ask).map_err(|e| match e {
        FlagError::Refused { .. } => Failure::NotPermitted(e.to_string()),
        e => Failure::Usage(e.to_string()),
    })?;
    if args.json {
        let text =
            serde_json::to_string_pretty(&as_json(&found)).map_err(|e| Failure::Other(e.to_string()))?;
        writeln!(out, "{text}")?;
    } else {
        for line in lines(&found) {
            writeln!(out, "{}", clean(&line))?;
        }
    }
    Ok(ExitCode::from(u8::from(found.flag().is_none())))
}

fn called(f: &FoundFlag) -> String {
    match (&f.variable, f.symbol.is_empty()) {
        (Some(v), _) => v.clone(),
        (None, false) => f.symbol.clone(),
        (None, true) => "a variable without a name".into(),
    }
}

fn ground(f: &FoundFlag) -> &'static str {
    match f.ground {
        _ if f.own => "the loop counts it itself",
        Ground::Clock => "the clock: the loop looks at the time",
        Ground::Stack => "a local variable of the thread",
        Ground::Constant => "memory that nobody writes",
        Ground::Data => "",
    }
}

/// A flag in lines: what it is, where it lies, where it is asked for.
fn flag_lines(f: &FoundFlag, out: &mut Vec<String>) {
    let value = f.value.map(|v| format!(" = {v}")).unwrap_or_default();
    let mut first = format!("{}{value}  at 0x{:x}, {} byte", called(f), f.address, f.len);
    if f.len != 1 {
        first.push('s');
    }
    let about = ground(f);
    if !about.is_empty() {
        first = format!("{first}  ({about})");
    }
    out.push(first);
    if let Some((file, line)) = &f.declared {
        out.push(format!("  declared in {file}:{line}"));
    }
    let shared = if f.shared { ", shared with other processes" } else { "" };
    if !f.mapping.is_empty() {
        out.push(format!("  in {}{shared}", f.mapping));
    } else if f.shared {
        out.push("  in memory shared with other processes".into());
    }
    let at = f.line.as_ref().map(|(file, line)| format!(", {file}:{line}")).unwrap_or_default();
    let stack: Vec<&str> = f.stack.iter().take(FRAMES).map(String::as_str).collect();
    out.push(format!("  asked in {}{at}", stack.join(" <- ")));
    out.push(format!("  0x{:x}: {}", f.load.1, f.load.0));
    if f.branch.1 != f.load.1 {
        out.push(format!("  0x{:x}: {}   leaves the loop, or goes on in it", f.branch.1, f.branch.0));
    }
}

/// What was found, in lines. Names come from the target: clean them.
pub fn lines(found: &Found) -> Vec<String> {
    let mut out = Vec::new();
    let who = if found.thread.is_empty() { String::new() } else { format!(" ({})", found.thread) };
    let turns = match found.turns {
        0 => "no loop was seen".to_owned(),
        1 => "one turn of its loop".to_owned(),
        n => format!("{n} turns of its loop"),
    };
    out.push(format!(
        "thread {}{who} of process {}: {} instructions followed in {} ms, {turns}",
        found.tid,
        found.pid,
        found.steps,
        found.took.as_millis()
    ));
    let why = match found.end {
        Some(End::Asleep) => "it slept too long between its turns: a larger --patience waits longer",
        Some(End::Exited) => "it ended meanwhile",
        Some(End::Stopped) => "it is stopped (by a signal, or job control)",
        Some(End::Unfit) => "it came to an instruction or call that must not be followed",
        _ => "",
    };
    if !why.is_empty() {
        out.push(format!("  {why}"));
    }
    match found.flag() {
        Some(f) => {
            out.push(String::new());
            out.push("It waits for".into());
            let mut own = Vec::new();
            flag_lines(f, &mut own);
            out.extend(own.into_iter().map(|l| format!("  {l}")));
        }
        None if found.calls.is_empty() => {
            out.push("No variable was found that lets the loop go on.".into());
        }
        None => {
            let calls: Vec<String> = found
                .calls
                .iter()
                .map(|n| {
                    pg_event::syscall_name(*n as u16)
                        .map_or_else(|| format!("system call {n}"), str::to_owned)
                })
                .collect();
            out.push(format!("It asks no variable: the result of {} decides.", calls.join(", ")));
        }
    }
    let others = &found.flags[usize::from(found.flag().is_some())..];
    if !others.is_empty() {
        out.push(String::new());
        out.push("Other things that the loop asks".into());
        for f in others {
            let mut own = Vec::new();
            flag_lines(f, &mut own);
            out.extend(own.into_iter().map(|l| format!("  {l}")));
        }
    }
    if let Some(f) = found.flag() {
        let place = format!("0x{:x}:{}", f.address, f.len);
        out.push(String::new());
        out.push(format!("See who writes it: pg-tui watch-flag -p {} {place}", found.pid));
        out.push(format!("Diagnose with it:  pg-tui record -p {} --flag {place}", found.pid));
    }
    out
}

fn flag_json(f: &FoundFlag) -> Value {
    json!({
        "address": format!("0x{:x}", f.address),
        "bytes": f.len,
        "value": f.value,
        "symbol": f.symbol,
        "variable": f.variable,
        "declared": f.declared.as_ref().map(|(file, line)| json!({"file": file, "line": line})),
        "mapping": f.mapping,
        "shared": f.shared,
        "kind": match f.ground {
            _ if f.own => "counter",
            Ground::Clock => "clock",
            Ground::Stack => "local",
            Ground::Constant => "constant",
            Ground::Data => "flag",
        },
        "load": {"address": format!("0x{:x}", f.load.1), "instruction": f.load.0},
        "branch": {"address": format!("0x{:x}", f.branch.1), "instruction": f.branch.0},
        "stack": f.stack,
        "line": f.line.as_ref().map(|(file, line)| json!({"file": file, "line": line})),
    })
}

fn as_json(found: &Found) -> Value {
    json!({
        "pid": found.pid,
        "tid": found.tid,
        "thread": found.thread,
        "instructions": found.steps,
        "ms": found.took.as_millis() as u64,
        "turns": found.turns,
        "flag": found.flag().map(flag_json),
        "candidates": found.flags.iter().map(flag_json).collect::<Vec<_>>(),
        "calls": found.calls.iter().map(|n| pg_event::syscall_name(*n as u16)).collect::<Vec<_>>(),
    })
}
