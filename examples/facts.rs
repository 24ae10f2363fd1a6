//! What a recording knows of threads: `cargo run --example facts -- FILE.pgs [TID...]` prints their long waits, who had
//! what they waited for, what they sent and received, and who woke them, by time.

use pg_event::{Catalog, Item, Kind, ObjectId, StackId, ThreadId};
use pg_tui::clean::clean;
use pg_tui::session::Session;
use std::io::Write;
use std::path::Path;

/// Shorter waits are left out, ns.
const LONG: u64 = 100_000_000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let file = args.next().ok_or("usage: facts FILE.pgs [TID...]")?;
    let tids: Vec<u32> = args.filter_map(|a| a.parse().ok()).collect();
    let session = Session::open(Path::new(&file))?;
    let (mut c, mut events) = (Catalog::default(), Vec::new());
    for item in session.items() {
        match item {
            Item::Catalog(delta) => drop(c.apply(delta)),
            Item::Events(more) => events.extend(more),
            Item::End { .. } => {}
        }
    }
    events.sort_by_key(|e| e.time);
    let who =
        |t: ThreadId| c.thread(t).map_or_else(|| "?".into(), |t| format!("{}/{}", clean(&t.name), t.tid));
    let what = |o: ObjectId| {
        let Some(x) = c.object(o) else { return "nothing".to_owned() };
        let members: Vec<_> = x.members.iter().map(|m| m.0.to_string()).collect();
        let members = if members.is_empty() { String::new() } else { format!(" of {}", members.join(",")) };
        let asked = if x.unanswered > 0 { ", asked before" } else { "" };
        format!("#{} {} (peer {}{asked}){members}", o.0, clean(&x.label()), x.peer)
    };
    let stack = |s: StackId| {
        let names = c.frames_of(s).map(|f| if f.function.is_empty() { "?" } else { &f.function });
        clean(&names.take(60).collect::<Vec<_>>().join(" < ")).to_string()
    };
    let mut out = std::io::stdout().lock();
    for e in &events {
        let asked = |t: ThreadId| c.thread(t).is_some_and(|t| tids.is_empty() || tids.contains(&t.tid));
        if !asked(e.thread) && !matches!(e.kind, Kind::Hold(h) if asked(h.subject)) {
            continue;
        }
        let line = match e.kind {
            Kind::OffCpu(o) if o.open || o.woken.saturating_sub(o.start) >= LONG => format!(
                "{:?} {} ms{} in {} on {}: {}",
                o.state,
                o.woken.saturating_sub(o.start) / 1_000_000,
                if o.open { ", open" } else { "" },
                o.syscall.name().unwrap_or_default(),
                what(o.object),
                stack(o.user_stack)
            ),
            Kind::Hold(h) => {
                format!("has what {} waits for ({:?}): {}", who(h.subject), h.relation, what(h.object))
            }
            Kind::Ipc(m) => format!("{:?} {} bytes over {}", m.direction, m.bytes, what(m.object)),
            _ => continue,
        };
        if writeln!(out, "{:>12} us  {:<20} {line}", e.time / 1000, who(e.thread)).is_err() {
            break;
        }
    }
    Ok(())
}
