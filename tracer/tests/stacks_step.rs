//! Unwinding at every instruction of a real program: from the first one of the dynamic linker on, through
//! lazy binding in the procedure linkage table, prologues and epilogues, the vdso and a signal handler.
//! The reference is a shadow stack of the return addresses that calls push and returns pop.
#![allow(unsafe_code)] // ptrace of an own child

mod stacks;

use pg_tracer::stacks::{Regs, StackTable};
use stacks::*;
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

const PROGRAM: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <signal.h>
#include <time.h>
#include <math.h>
static int seen;
static void handler(int s) { char b[64]; snprintf(b, sizeof b, "signal %d", s); seen += strlen(b); }
static int compare(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }
int main(int argc, char **argv) {
  signal(SIGUSR1, handler);
  int v[12]; for (int i = 0; i < 12; i++) v[i] = (i * 7) % 12;
  qsort(v, 12, sizeof *v, compare);
  struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t);
  raise(SIGUSR1);
  char *big = __builtin_alloca(100 + argc * 10); memset(big, 1, 100);
  printf("%d %s %f %d\n", v[3], getenv("HOME") ? "home" : "none", sin((double)argc), seen + big[5]);
  return 0; }
"#;

fn ptrace(request: u32, pid: i32, data: usize) -> i64 {
    // SAFETY: the requests used here take no pointers.
    unsafe { libc::ptrace(request, pid, 0usize, data) }
}

fn wait(pid: i32) -> i32 {
    let mut status = 0;
    // SAFETY: waitpid writes the status only.
    unsafe { libc::waitpid(pid, &raw mut status, libc::__WALL) };
    status
}

/// What calls and returns did so far: (stack pointer where the return address lies, return address).
#[derive(Default)]
struct Shadow(Vec<(u64, u64)>);

impl Shadow {
    fn step(&mut self, mem: &std::fs::File, before: &Regs, after: &Regs) {
        let word = |at: u64| {
            let mut b = [0; 8];
            mem.read_exact_at(&mut b, at).ok().map(|()| u64::from_le_bytes(b))
        };
        // Whatever was popped, by returns or by discarding.
        while self.0.last().is_some_and(|&(sp, _)| sp < after.sp) {
            self.0.pop();
        }
        let pushed = after.sp == before.sp.wrapping_sub(8);
        let Some(top) = word(after.sp).filter(|_| pushed) else { return };
        // A call pushes the address of the instruction behind it, and goes on elsewhere.
        if (1..=8).contains(&top.wrapping_sub(before.ip)) && after.ip != top {
            self.0.push((after.sp, top));
        }
    }
}

#[test]
fn every_instruction() {
    let dir = tempfile::tempdir().unwrap();
    let flags = ["-O2", "-fomit-frame-pointer", "-Wl,-z,lazy", "-fno-builtin", "-Wl,--no-as-needed", "-lm"];
    let Some(exe) = build(dir.path(), "all.c", PROGRAM, &flags) else { return };
    let mut command = Command::new(exe);
    command.stdin(Stdio::null()).stdout(Stdio::null()).env_clear();
    // SAFETY: PTRACE_TRACEME is a plain system call.
    unsafe {
        command.pre_exec(|| {
            libc::ptrace(libc::PTRACE_TRACEME, 0, 0usize, 0usize);
            Ok(())
        });
    }
    let t = Target(command.spawn().unwrap());
    let pid = t.pid() as i32;
    wait(pid);
    let mem = std::fs::File::open(format!("/proc/{pid}/mem")).unwrap();
    let mut table = StackTable::new();
    table.exec(t.pid());
    let mut shadow = Shadow::default();
    let (mut steps, mut checked, mut wrong, mut signals) = (0u32, 0u32, Vec::new(), 0);
    let mut before = registers(t.pid());
    let mut deliver = 0;
    loop {
        ptrace(libc::PTRACE_SINGLESTEP, pid, deliver);
        let status = wait(pid);
        if !libc::WIFSTOPPED(status) {
            break;
        }
        let signal = libc::WSTOPSIG(status);
        deliver = if signal == libc::SIGTRAP { 0 } else { signal as usize };
        signals += u32::from(deliver != 0);
        let after = registers(t.pid());
        // Delivering a signal leaves the stack of before where it was.
        shadow.step(&mem, &before, &after);
        before = after;
        steps += 1;
        // The dynamic linker's thousands of symbol comparisons are all alike.
        if steps > 4000 && steps % 7 != 0 {
            continue;
        }
        let copy = stack(t.pid(), after.sp, 64 << 10);
        let (frames, complete) = table.unwind(t.pid(), &after, &copy);
        let ours: Vec<u64> = frames.iter().skip(1).filter_map(|f| f.regs.ip()).collect();
        let reference: Vec<u64> = shadow.0.iter().rev().map(|s| s.1).collect();
        // A signal puts two frames that nobody called between the handler and what it interrupted.
        let same = ours == reference || (signals > 0 && contains(&ours, &reference));
        checked += 1;
        if !same || !complete {
            wrong.push((after.ip, complete, ours, reference));
        }
    }
    println!("{steps} instructions, {checked} stacks, {} wrong, {signals} signals", wrong.len());
    for (ip, complete, ours, reference) in wrong.iter().take(20) {
        println!("{ip:x} complete {complete}\n  ours {ours:x?}\n  reference {reference:x?}");
    }
    assert!(steps > 20_000 && signals > 0, "{steps} steps, {signals} signals");
    assert!(wrong.len() * 1000 <= checked as usize, "{} of {checked} stacks are wrong", wrong.len());
}

/// Is `part` in `all`, in order, with at most three frames left out?
fn contains(all: &[u64], part: &[u64]) -> bool {
    let mut rest = all.iter();
    all.len() <= part.len() + 3 && part.iter().all(|p| rest.any(|a| a == p))
}
