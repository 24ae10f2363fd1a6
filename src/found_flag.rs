//! What was found of the flag that a thread asks, in words.

use pg_tracer::flags::{End, Found, FoundFlag, Ground};

/// Frames shown of a stack.
const FRAMES: usize = 4;

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
        Ground::Data if !f.flag => "not what it waits for, as it seems",
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
        None if found.turns == 0 && found.end == Some(End::Asleep) => {
            out.push("It sleeps: nothing can be said of what it asks.".into());
        }
        None if found.calls.is_empty() => {
            out.push("No variable was found that would let it go on: it computes, as it seems.".into());
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
