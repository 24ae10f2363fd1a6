//! Records a command (or for some seconds, without one) and prints every event:
//! `cargo run -p pg-tracer --example dump -- [-l waits|messages|syscalls] [-s SECONDS] [-- CMD ARG...]`

use pg_event::{Catalog, Event, Item, Kind, OffCpu, ThreadId};
use pg_tracer::{Collector, Focus, Level, Options};
use std::io::Write;
use std::time::Duration;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let (mut options, mut seconds, mut quiet) = (Options::default(), 2.0, false);
    let mut command = Vec::new();
    while let Some(a) = args.next() {
        match a.as_str() {
            "-l" => {
                options.level = match args.next().as_deref() {
                    Some("waits") => Level::Waits,
                    Some("syscalls") => Level::Syscalls,
                    _ => Level::Messages,
                }
            }
            "-s" => seconds = args.next().unwrap_or_default().parse()?,
            "-q" => quiet = true,
            "--hz" => options.sample_hz = args.next().unwrap_or_default().parse()?,
            "--" => command = args.by_ref().collect(),
            _ => return Err(format!("unknown argument {a}").into()),
        }
    }
    options.focus = Focus { command: !command.is_empty(), ..Focus::default() };
    let (sender, receiver) = crossbeam_channel::bounded(1024);
    let collector = Collector::start(options, sender)?;
    let printer = std::thread::spawn(move || print_all(&receiver, quiet));
    if let Some((program, args)) = command.split_first() {
        let mut child = std::process::Command::new(program).args(args).spawn()?;
        collector.focus_on(child.id());
        eprintln!("{program}: {}", child.wait()?);
    } else {
        std::thread::sleep(Duration::from_secs_f64(seconds));
    }
    eprintln!("{:?}", collector.stats());
    collector.stop()?;
    printer.join().map_err(|_| "the printer panicked")?;
    Ok(())
}

fn print_all(items: &crossbeam_channel::Receiver<Item>, quiet: bool) {
    let mut catalog = Catalog::default();
    let mut events = Vec::new();
    let out = std::io::stdout();
    let mut out = std::io::BufWriter::new(out.lock());
    for item in items {
        match item {
            Item::Catalog(d) => drop(catalog.apply(d)),
            Item::Events(e) if quiet => events.truncate(e.len()),
            Item::Events(e) => events.extend(e),
            Item::End { duration, coverage } => {
                for e in &events {
                    let focus = catalog.thread(e.thread).is_some_and(|t| t.focus);
                    if focus || e.thread.is_none() || matches!(e.kind, Kind::Hold(_)) {
                        let _ = show(&mut out, &catalog, e);
                    }
                }
                let _ = writeln!(out, "{duration} ns, {coverage:#?}");
            }
        }
    }
}

fn who(c: &Catalog, id: ThreadId) -> String {
    c.thread(id).map_or("-".into(), |t| format!("{}/{}", t.name, t.tid))
}

fn show(out: &mut impl Write, c: &Catalog, e: &Event) -> std::io::Result<()> {
    write!(out, "{:>13.6} {:<22} ", e.time as f64 / 1e9, who(c, e.thread))?;
    match e.kind {
        Kind::OffCpu(o) => off(out, c, e, &o),
        Kind::Sample(s) => {
            writeln!(out, "sample {:?} | {:?}", c.show_stack(s.user_stack), c.show_stack(s.kernel_stack))
        }
        Kind::Ipc(u) => writeln!(
            out,
            "{:?} {} bytes in {} over {} position {}",
            u.direction,
            u.bytes,
            u.count,
            c.object(u.object).map_or("-".into(), pg_event::Object::label),
            u.position
        ),
        Kind::Spawn { child } => writeln!(out, "spawn {}", who(c, child)),
        Kind::Exec => writeln!(out, "exec {:?}", c.process_of(e.thread).map(pg_event::Process::cmdline)),
        Kind::Signal { target, signal } => writeln!(out, "signal {signal} to {}", who(c, target)),
        Kind::Syscall(s) => writeln!(
            out,
            "{} = {} x{} {}",
            s.nr.name().unwrap_or_default(),
            s.result,
            s.count,
            c.object(s.object).map_or("-".into(), pg_event::Object::label)
        ),
        other => writeln!(out, "{other:?}"),
    }
}

fn off(out: &mut impl Write, c: &Catalog, e: &Event, o: &OffCpu) -> std::io::Result<()> {
    let label = |id| c.object(id).map_or("-".into(), pg_event::Object::label);
    writeln!(
        out,
        "{:?}{}{} {:.3} ms (woken {:+.3}) {} op {:#x} value {} timeout {} on {} | by {} {:?} {} {}",
        o.state,
        if o.open { " open" } else { "" },
        if o.begun_before { " before" } else { "" },
        (e.time - o.start) as f64 / 1e6,
        (o.woken as f64 - e.time as f64) / 1e6,
        o.syscall.name().unwrap_or("-".into()),
        o.op,
        o.value,
        o.timeout as i64,
        label(o.object),
        who(c, o.waker),
        o.waker_context,
        o.waker_syscall.name().unwrap_or("-".into()),
        label(o.waker_object),
    )?;
    for m in c.object(o.object).map_or(&[][..], |o| &o.members) {
        writeln!(out, "        member {}", label(*m))?;
    }
    for (what, id) in [("user", o.user_stack), ("kernel", o.kernel_stack), ("waker", o.waker_stack)] {
        if id.is_some() {
            writeln!(out, "        {what}: {}", c.show_stack(id).join(" < "))?;
        }
    }
    Ok(())
}
