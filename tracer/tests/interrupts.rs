//! Ctrl-C with and without a running command. One test: signals belong to the whole process.
#![allow(unsafe_code)] // signal(2) has no safe form here.

use pg_tracer::command::Interrupts;
use pg_tracer::procfs;

fn send(signal: &str) {
    let pid = std::process::id().to_string();
    assert!(std::process::Command::new("kill").args([signal, &pid]).status().expect("kill").success());
}

#[test]
fn the_first_interrupt_is_the_commands() {
    let caught = || {
        let status = std::fs::read_to_string(procfs::path_of(std::process::id(), "status")).expect("status");
        let line = status.lines().find_map(|l| l.strip_prefix("SigCgt:")).expect("a line").trim().to_owned();
        u64::from_str_radix(&line, 16).expect("a mask") & 0b10 != 0
    };
    assert!(!caught());
    let interrupts = Interrupts::install().expect("install");
    assert!(caught());
    assert!(!interrupts.stop(true) && !interrupts.stop(false));
    send("-INT");
    while interrupts.count() < 1 {
        std::thread::yield_now();
    }
    assert!(!interrupts.stop(true) && interrupts.stop(false));
    send("-INT");
    while interrupts.count() < 2 {
        std::thread::yield_now();
    }
    assert!(interrupts.stop(true));
    drop(interrupts);
    assert!(!caught(), "what was there before is back");
    let interrupts = Interrupts::install().expect("install again");
    assert!(!interrupts.stop(false), "counting begins at zero");
    send("-TERM");
    while !interrupts.stop(true) {
        std::thread::yield_now();
    }
    drop(interrupts);
    // As in the background job of a script.
    // SAFETY: only sets how signals are treated.
    unsafe {
        libc::signal(libc::SIGINT, libc::SIG_IGN);
        libc::signal(libc::SIGHUP, libc::SIG_IGN);
    }
    let interrupts = Interrupts::install().expect("install again");
    send("-HUP");
    send("-INT");
    while interrupts.count() < 1 {
        std::thread::yield_now();
    }
    assert!(!interrupts.stop(true), "a hang-up that was ignored before still is");
}
