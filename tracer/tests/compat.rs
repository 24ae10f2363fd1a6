//! A 32-bit program: its system calls are those that it makes, and no frame of its stacks is made up.

use pg_event::{Catalog, Event, Item, Kind, OffCpu};
use pg_tracer::{Collector, Focus, Level, Options, check_permission};
use std::process::Command;

/// Without a C library, which few machines have for 32 bits. Numbers of i386: 158 is sched_yield, 162
/// nanosleep, 168 poll, 240 futex; of x86-64 they would be arch_prctl, sync, swapoff and mq_open.
const SOURCE: &str = r#"
static int sys(int n, int a, int b, int c, int d) {
    int r;
    __asm__ volatile("int $0x80" : "=a"(r) : "a"(n), "b"(a), "c"(b), "d"(c), "S"(d) : "memory");
    return r;
}
struct ts { int s, ns; };
struct pfd { int fd; short events, revents; };
static int word;
__attribute__((noinline)) int inner(void) {
    struct ts t = {0, 30000000};
    for (int i = 0; i < 5; i++) sys(162, (int)&t, 0, 0, 0);
    return word;
}
__attribute__((noinline)) int outer(void) { return inner() + 1; }
void _start(void) {
    int p[2];
    struct ts t = {0, 50000000};
    outer();
    sys(42, (int)p, 0, 0, 0);
    struct pfd f = {p[0], 1, 0};
    sys(168, (int)&f, 1, 70, 0);
    sys(240, (int)&word, 0, 0, (int)&t);
    sys(1, 3, 0, 0, 0);
    for (;;) ;
}
"#;

#[test]
fn a_32_bit_program() {
    if let Err(e) = check_permission() {
        println!("skipped: a_32_bit_program: {e}");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (source, exe) = (dir.path().join("small.c"), dir.path().join("small"));
    std::fs::write(&source, SOURCE).unwrap();
    let flags = ["-m32", "-O1", "-static", "-nostdlib", "-fno-stack-protector", "-no-pie", "-fno-pic", "-o"];
    let built = Command::new("gcc").args(flags).arg(&exe).arg(&source).output();
    if !built.is_ok_and(|o| o.status.success()) || Command::new(&exe).status().is_err() {
        println!("skipped: a_32_bit_program: 32-bit programs cannot be built or run here");
        return;
    }
    for level in [Level::Waits, Level::Syscalls] {
        // A kernel that does not report every switch (see `switch_out` in causal.bpf.c) misses a wait now and
        // then, and on a busy machine the program can be gone before its mappings are read: what is tested here is
        // how what was seen is named.
        let complete = |(catalog, events): &(Catalog, Vec<Event>)| {
            let mut named = [("nanosleep", 5), ("poll", 1), ("futex", 1)].into_iter();
            let of = |e: &&Event| catalog.process_of(e.thread).is_some_and(|p| p.name == "small");
            let wait = |e: &Event| if let Kind::OffCpu(o) = e.kind { Some(o) } else { None };
            let waits: Vec<_> =
                events.iter().filter(of).filter_map(wait).filter(|o| o.woken > o.start).collect();
            let mapped =
                |o: &&OffCpu| !catalog.show_stack(o.user_stack).iter().any(|f| f.contains("[unknown]"));
            named.all(|(call, n)| waits.iter().filter(|o| o.syscall.is_any(&[call])).count() >= n)
                && waits.iter().filter(|o| o.user_stack.is_some()).all(|o| mapped(&o))
        };
        let mut recording = record(&exe, level);
        for _ in 0..5 {
            if !complete(&recording) {
                println!("again: a wait or a mapping is missing");
                recording = record(&exe, level);
            }
        }
        let (catalog, events) = recording;
        let own = |e: &&Event| catalog.process_of(e.thread).is_some_and(|p| p.name == "small");
        let waits: Vec<_> = events
            .iter()
            .filter(own)
            .filter_map(|e| if let Kind::OffCpu(o) = e.kind { Some(o) } else { None })
            // The first wait is that of the recorder's child for the word to begin.
            .filter(|o| o.syscall.is_some() && o.woken > o.start && !o.syscall.is_any(&["read"]))
            .collect();
        let names: Vec<String> = waits.iter().filter_map(|o| Some(o.syscall.name()?.into_owned())).collect();
        let count = |name: &str| names.iter().filter(|n| *n == name).count();
        assert_eq!((count("nanosleep"), count("poll"), count("futex")), (5, 1, 1), "{names:?}");
        for call in ["sync", "swapoff", "mq_open", "arch_prctl"] {
            assert_eq!(count(call), 0, "{names:?}");
        }
        assert!(waits.iter().all(|o| o.object.is_none()), "arguments are not read: {waits:?}");
        let stacks: Vec<_> = waits.iter().filter(|o| o.user_stack.is_some()).collect();
        assert!(!stacks.is_empty());
        for o in stacks {
            let stack = catalog.stack(o.user_stack).unwrap();
            let text = catalog.show_stack(o.user_stack);
            assert!(stack.truncated && text.len() == 1 && text[0].ends_with(" (small)"), "{text:?}");
        }
        let calls: Vec<String> = events
            .iter()
            .filter(own)
            .filter_map(
                |e| if let Kind::Syscall(s) = e.kind { Some(s.nr.name()?.into_owned()) } else { None },
            )
            .collect();
        if level == Level::Syscalls {
            assert!(calls.iter().any(|c| c == "poll") && calls.iter().any(|c| c == "pipe"), "{calls:?}");
        }
        assert!(
            !calls.iter().any(|c| ["sync", "swapoff", "bind", "arch_prctl"].contains(&c.as_str())),
            "{calls:?}"
        );
    }
}

fn record(exe: &std::path::Path, level: Level) -> (Catalog, Vec<Event>) {
    let (sender, items) = crossbeam_channel::unbounded();
    let focus = Focus { command: true, ..Focus::default() };
    let collector = Collector::start(Options { level, focus, ..Options::default() }, sender).unwrap();
    let mut command = pg_tracer::command::Command::spawn(&[exe.into()]).unwrap();
    collector.focus_on_command(command.pid());
    command.resume().unwrap();
    assert_eq!(command.wait().unwrap().code(), Some(3));
    collector.stop().unwrap();
    let (mut catalog, mut events) = (Catalog::default(), Vec::new());
    for item in items {
        match item {
            Item::Catalog(d) => assert_eq!(catalog.apply(d), 0),
            Item::Events(e) => events.extend(e),
            Item::End { .. } => {}
        }
    }
    (catalog, events)
}
