//! `pg-tui find-flag`: the variable that a spinning thread asks.

use super::args::FindFlag;
use super::exit::{Failure, Outcome};
use crate::clean::clean;
use crate::found_flag::lines;
use pg_tracer::flags::{Ask, Found, FoundFlag, Ground, find};
use serde_json::{Value, json};
use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

/// Run it. Code 1: no flag was found.
pub fn run(args: &FindFlag, out: &mut dyn Write) -> Outcome {
    let ask = Ask {
        pid: args.pid,
        tid: args.tid,
        steps: args.steps,
        patience: Duration::from_nanos(args.patience),
    };
    let found = find(&ask).map_err(|e| match e {
        e if e.is_refusal() => Failure::NotPermitted(e.to_string()),
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
            Ground::Data if f.flag => "flag",
            Ground::Data => "data",
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
