//! What a recording is to do, and what it says about itself.

use crate::cli::args::{Level, Record};
use crate::cli::diagnose::regex;
use crate::cli::exit::Failure;
use crate::session::Header;
use pg_tracer::{Focus, Options};
use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

/// The collector's options.
pub fn options(args: &Record) -> Result<Options, Failure> {
    for pid in &args.pid {
        if !fs::exists(format!("/proc/{pid}")).unwrap_or(true) {
            return Err(Failure::Usage(format!("-p {pid}: there is no such process")));
        }
    }
    for path in &args.cgroup {
        if !pg_tracer::focus::cgroup_exists(path) {
            return Err(Failure::Usage(format!(
                "--cgroup {path}: there is no such control group; `systemd-cgls` or `find /sys/fs/cgroup -type d` \
                 lists them, /proc/PID/cgroup names that of a process"
            )));
        }
    }
    let comms = args.comm.iter().map(|r| regex("--comm", r)).collect::<Result<_, _>>()?;
    let ns = |ms: f64| (ms * 1e6) as u64;
    let defaults = Options::default();
    let focus = Focus {
        pids: args.pid.clone(),
        cgroups: args.cgroup.clone(),
        comms,
        command: !args.command.is_empty(),
    };
    if args.on_unserved.is_some() && focus.is_everything() {
        return Err(Failure::Usage(
            "--on-unserved needs a focus: whose connections? Add -p, --cgroup, --comm or a command".into(),
        ));
    }
    Ok(Options {
        thin_messages: args.level.is_none(),
        level: match args.level.unwrap_or_default() {
            Level::Waits => pg_tracer::Level::Waits,
            Level::Messages => pg_tracer::Level::Messages,
            Level::Syscalls => pg_tracer::Level::Syscalls,
        },
        focus,
        ring_bytes: args.ring_size << 20,
        stack_ring_bytes: args.stack_ring_size << 20,
        sample_hz: args.samples(),
        kernel_stacks: !args.no_kernel_stacks,
        kernel_stack_threshold_ns: ns(args.kernel_stack_threshold),
        user_stacks: !args.no_user_stacks,
        long_wait_ns: ns(args.long_wait),
        unserved_ns: args.on_unserved.unwrap_or(defaults.unserved_ns),
        adaptive: !args.no_bursts,
        names_on_report: args.flight.is_some(),
        follow_interrupts: defaults.follow_interrupts,
    })
}

/// What the file will say about the recording, which begins now.
pub fn header(args: &Record) -> Header {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    let env = |name: &str| std::env::var(name).ok().filter(|v| !v.is_empty());
    let setting = |name: &str, value: &dyn ToString| (name.to_owned(), value.to_string());
    Header {
        version: env!("CARGO_PKG_VERSION").into(),
        host: read("/proc/sys/kernel/hostname"),
        kernel: read("/proc/sys/kernel/osrelease"),
        boot: pg_tracer::boot_id(),
        arch: std::env::consts::ARCH.into(),
        cpus: std::thread::available_parallelism().map_or(0, |n| n.get() as u32),
        start_wall: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos() as u64),
        clock: "CLOCK_MONOTONIC".into(),
        clock_start: 0,
        command: args.command.iter().map(|a| a.to_string_lossy().into_owned()).collect(),
        user: env("SUDO_USER").or_else(|| env("USER")).or_else(|| env("LOGNAME")).unwrap_or_default(),
        focus: focus(args),
        options: vec![
            setting("level", &args.level.map_or("messages, thinned out", Level::name)),
            setting("ring-size", &args.ring_size),
            setting("stack-ring-size", &args.stack_ring_size),
            setting("sample-rate", &args.samples()),
            setting("kernel-stacks", &!args.no_kernel_stacks),
            setting("kernel-stack-threshold", &args.kernel_stack_threshold),
            setting("user-stacks", &!args.no_user_stacks),
            setting("long-wait", &args.long_wait),
            setting("bursts", &!args.no_bursts),
            setting("steps", &steps(args)),
            setting("flags", &args.flag.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")),
        ],
        redacted: String::new(),
    }
}

/// Who is followed instruction by instruction, and how far; empty for nobody.
fn steps(args: &Record) -> String {
    if args.steps.is_empty() {
        return String::new();
    }
    let name = |who: &String| if who.is_empty() { "busiest".to_owned() } else { who.clone() };
    let who: Vec<String> = args.steps.iter().map(name).collect();
    format!("{} for {}, {} at most", who.join(" "), pg_graph::words::span(args.steps_for), args.steps_max)
}

/// The focus in words.
fn focus(args: &Record) -> String {
    let mut words: Vec<String> = Vec::new();
    if !args.command.is_empty() {
        let words_of: Vec<_> = args.command.iter().map(|a| a.to_string_lossy()).collect();
        words.push(words_of.join(" "));
    }
    words.extend(args.pid.iter().map(|p| format!("pid {p}")));
    words.extend(args.cgroup.iter().map(|c| format!("cgroup {c}")));
    words.extend(args.comm.iter().map(|c| format!("comm /{c}/")));
    if words.is_empty() { "everything".into() } else { words.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::args::record_as_typed;

    #[test]
    fn the_cheapest_level_takes_samples_only_if_asked_to() {
        let samples = |line: &[&str]| {
            let typed = record_as_typed(line.iter().map(Into::into)).unwrap();
            let told = header(&typed).options.into_iter().find(|(name, _)| name == "sample-rate").unwrap().1;
            let taken = options(&typed).unwrap().sample_hz;
            assert_eq!(told, taken.to_string());
            taken
        };
        assert_eq!(samples(&[]), 99);
        assert_eq!(samples(&["--level", "messages"]), 99);
        assert_eq!(samples(&["--level", "syscalls"]), 99);
        assert_eq!(samples(&["--level", "waits"]), 0);
        assert_eq!(samples(&["--level", "waits", "--sample-rate", "49"]), 49);
        assert_eq!(samples(&["--sample-rate", "0"]), 0);
    }
}
