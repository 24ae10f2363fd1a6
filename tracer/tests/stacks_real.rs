//! Stacks of real processes, compared with gdb.
#![allow(unsafe_code)] // ptrace and signals to own children

mod stacks;

use pg_event::{Catalog, StackId};
use pg_tracer::stacks::{StackTable, UserFrame};
use stacks::*;
use std::process::Command;
use std::time::{Duration, Instant};

/// Compare the stack of a thread that does not move with gdb's. Returns the names.
fn compare(pid: u32, tid: u32) -> Vec<String> {
    let (regs, copy) = capture(tid, 256 << 10);
    let mut table = StackTable::new();
    let (frames, complete) = table.unwind(pid, &regs, &copy);
    let id = table.user(pid, &regs, &copy);
    let mut catalog = Catalog::default();
    catalog.apply(table.drain());
    catalog.apply(table.symbolize());
    assert_eq!(table.pending(), 0);
    let names = catalog.show_stack(id);
    println!("{names:#?} {:?} {:?}", table.coverage(), table.notes());
    assert!(complete, "not unwound to the end: {names:#?}");
    if let Some(reference) = gdb(tid) {
        same_registers(&frames, &reference.frames);
        same_names(&catalog, id, &reference.names);
    }
    names
}

/// The same frames, with the same values in all registers that both know.
fn same_registers(ours: &[UserFrame], gdb: &[[Option<u64>; 8]]) {
    let of = |f: &UserFrame| COMPARED.map(|(_, column)| f.regs.get(column));
    let hex = |v: &[[Option<u64>; 8]]| format!("{v:#x?}");
    let ours: Vec<_> = ours.iter().map(of).collect();
    assert_eq!(ours.len(), gdb.len(), "{}\n{}", hex(&ours), hex(gdb));
    for (o, g) in ours.iter().zip(gdb) {
        assert!(o[0].is_some() && o[1].is_some());
        for ((o, g), (name, _)) in o.iter().zip(g).zip(COMPARED) {
            assert!(o.is_none() || g.is_none() || o == g, "{name}: {}\n{}", hex(&ours), hex(gdb));
        }
    }
}

/// Where we name a function, gdb names it the same.
fn same_names(catalog: &Catalog, id: StackId, gdb: &[String]) {
    let mut ours = Vec::new();
    for f in catalog.frames_of(id) {
        ours.extend(f.inlined.iter().map(|n| plain(n)));
        ours.push(plain(&f.function));
    }
    // gdb has frames more, of tail calls. It writes aliases of a function by another of its names.
    let bare = |n: &str| {
        let n = n.trim_start_matches('_');
        let n = n.strip_prefix("GI_").or_else(|| n.strip_prefix("libc_")).unwrap_or(n);
        n.trim_start_matches('_').to_owned()
    };
    let mut rest = gdb.iter().map(|n| bare(n));
    for o in ours.iter().filter(|o| !o.is_empty()) {
        assert!(rest.any(|g| g == bare(o)), "{o:?} is not as gdb has it\n{ours:#?}\n{gdb:#?}");
    }
    // What has no name here has none there, or one that gdb took from the nearest symbol.
    let named = ours.iter().filter(|o| !o.is_empty()).count();
    assert!(named + 6 >= gdb.len(), "{ours:#?}\n{gdb:#?}");
}

#[test]
fn sleep() {
    let t = Target::start(Command::new("sleep").arg("100"));
    wait_until(|| std::fs::read_to_string(format!("/proc/{}/comm", t.pid())).unwrap() == "sleep\n");
    wait_asleep(t.pid());
    let names = compare(t.pid(), t.pid());
    assert!(names.iter().any(|n| n.contains("clock_nanosleep") && n.contains("libc")), "{names:#?}");
}

#[test]
fn redis() {
    if !has("redis-server") {
        println!("skipped: redis-server is not installed");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let t = Target::start(
        Command::new("redis-server")
            .args(["--port", "0", "--unixsocket", "s", "--save", ""])
            .current_dir(dir.path()),
    );
    wait_until(|| dir.path().join("s").exists());
    let threads = || std::fs::read_dir(format!("/proc/{}/task", t.pid())).unwrap().flatten();
    let threads = || threads().map(|d| d.file_name().to_string_lossy().parse::<u32>().unwrap());
    wait_until(|| threads().count() > 3 && threads().all(|t| state(t) == Some('S')));
    freeze(t.pid());
    let names = compare(t.pid(), t.pid());
    assert!(names.iter().any(|n| n.contains("redis-server") || n.contains("redis-check")), "{names:#?}");
    // Its background threads wait in a condition.
    for tid in threads().filter(|&tid| tid != t.pid()) {
        compare(t.pid(), tid);
    }
}

#[test]
fn python() {
    if !has("python3") {
        println!("skipped: python3 is not installed");
        return;
    }
    let code = "import time, sys\ndef f(n):\n  if n: return f(n-1)\n  print('ready', flush=True); time.sleep(100)\nf(5)";
    let t = Target::ready(Command::new("python3").args(["-c", code]));
    wait_asleep(t.pid());
    compare(t.pid(), t.pid());
}

const CPP: &str = r#"
#include <vector>
#include <algorithm>
#include <cstdio>
#include <unistd.h>
#include <csignal>
#include <ctime>
#include <cstring>
namespace shop {
struct Item { int n; virtual int cost(int k) { return k ? twice(k - 1) + n : stop(); } virtual ~Item() {}
  __attribute__((noinline)) int twice(int k) { volatile char pad[100]; pad[3] = k; return cost(k) * 2 + pad[3]; }
  __attribute__((noinline)) static int stop(); };
static int mode;
template <class T> __attribute__((noinline)) T chain(T n) { if (n > 0) return chain<T>(n - 1) + 1; Item i; i.n = 3; return i.cost(6); }
__attribute__((noinline)) int Item::stop() {
  if (mode == 0) { puts("ready"); fflush(stdout); for (;;) pause(); }
  if (mode == 1) { puts("ready"); fflush(stdout); raise(SIGUSR1); }
  if (mode == 2) { puts("ready"); fflush(stdout); timespec t; long n = 0; for (;;) { clock_gettime(CLOCK_MONOTONIC, &t); n += t.tv_nsec; if (n == 42) break; } }
  if (mode == 3) { puts("ready"); fflush(stdout); volatile unsigned long n = 0; for (;;) n = n + 1; }
  return 1; }
}
extern "C" void handler(int) { for (;;) pause(); }
int main(int argc, char **argv) {
  shop::mode = argv[1][0] - '0';
  struct sigaction a; memset(&a, 0, sizeof a); a.sa_handler = handler; sigaction(SIGUSR1, &a, 0);
  std::vector<int> v{3, 1, 2};
  int r = 0;
  std::sort(v.begin(), v.end(), [&](int a, int b) { r += shop::chain<long>(4); return a < b; });
  return r;
}
"#;

fn cpp(mode: &str, flags: &[&str]) -> Option<(Target, tempfile::TempDir)> {
    let dir = tempfile::tempdir().unwrap();
    let exe = build(dir.path(), "shop.cc", CPP, flags)?;
    Some((Target::ready(Command::new(exe).arg(mode)), dir))
}

#[test]
fn cpp_without_frame_pointers() {
    let kinds: [&[&str]; 8] = [
        &["-O2"],
        &["-O1", "-g"],
        &["-O0", "-g"],
        &["-O2", "-static"],
        &["-O2", "-no-pie"],
        // No search table: the entries are indexed.
        &["-O2", "-Wl,--no-eh-frame-hdr"],
        // The program's own frames in .debug_frame only, plain and compressed.
        &["-O2", "-g", "-fno-asynchronous-unwind-tables", "-fno-exceptions"],
        &["-O2", "-g", "-fno-asynchronous-unwind-tables", "-fno-exceptions", "-gz"],
    ];
    for kind in kinds {
        let flags = &[kind, &["-fomit-frame-pointer"]].concat();
        println!("{flags:?}");
        let Some((t, _dir)) = cpp("0", flags) else { return };
        wait_asleep(t.pid());
        let names = compare(t.pid(), t.pid());
        assert!(names.iter().any(|n| n.starts_with("shop::Item::stop")), "{names:#?}");
        assert!(
            names
                .iter()
                .any(|n| n.starts_with("long shop::chain<long>") || n.starts_with("shop::chain<long>")),
            "{names:#?}"
        );
    }
}

#[test]
fn signal_handler() {
    let Some((t, _dir)) = cpp("1", &["-O2", "-g", "-fomit-frame-pointer"]) else { return };
    wait_asleep(t.pid());
    let names = compare(t.pid(), t.pid());
    let at = |what: &str| names.iter().position(|n| n.starts_with(what));
    assert!(at("handler") < at("shop::Item::stop") && at("handler").is_some(), "{names:#?}");
}

#[test]
fn vdso() {
    let Some((t, _dir)) = cpp("2", &["-O2", "-g", "-fomit-frame-pointer"]) else { return };
    for _ in 0..500 {
        freeze(t.pid());
        let (catalog, id) = stack_now(t.pid(), false);
        if catalog.show_stack(id)[0].contains("[vdso]") {
            let names = compare(t.pid(), t.pid());
            assert!(names[0].contains("clock_gettime") || names[0].starts_with("0x"), "{names:#?}");
            return;
        }
        thaw(t.pid());
    }
    println!("skipped: 500 looks at a program that reads the clock all the time never saw it in the vdso");
}

#[test]
fn spinning() {
    let Some((t, _dir)) = cpp("3", &["-O2", "-fomit-frame-pointer"]) else { return };
    std::thread::sleep(Duration::from_millis(50));
    freeze(t.pid());
    compare(t.pid(), t.pid());
}

/// A stripped binary: frames are found, names are not guessed.
#[test]
fn stripped() {
    let Some((t, _dir)) = cpp("0", &["-O2", "-s", "-fomit-frame-pointer"]) else { return };
    wait_asleep(t.pid());
    let (catalog, id) = stack_now(t.pid(), true);
    let names = catalog.show_stack(id);
    let own: Vec<_> = names.iter().filter(|n| n.ends_with("(shop)")).collect();
    assert!(own.len() > 10 && own.iter().all(|n| n.starts_with("0x")), "{names:#?}");
    assert!(!catalog.stack(id).unwrap().truncated);
}

/// A deleted binary, and one that another has replaced, are still read through the mapping.
#[test]
fn deleted_and_replaced() {
    for replace in [false, true] {
        let Some((t, dir)) = cpp("0", &["-O2", "-fomit-frame-pointer"]) else { return };
        wait_asleep(t.pid());
        std::fs::remove_file(dir.path().join("shop")).unwrap();
        if replace {
            std::fs::copy("/bin/true", dir.path().join("shop")).unwrap();
        }
        let (catalog, id) = stack_now(t.pid(), true);
        let names = catalog.show_stack(id);
        if std::fs::read_link(format!("/proc/{}/map_files", t.pid())).is_err() && !root() {
            println!("skipped: map_files needs root");
            return;
        }
        assert!(names.iter().any(|n| n.starts_with("shop::Item::stop")), "{names:#?}");
    }
}

const HEADLESS: &str = r#"
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>
__attribute__((noinline)) static int deep(int n) { if (n) return deep(n - 1) + 1; for (;;) pause(); }
static void *go_on(void *arg) { sleep(1); puts("ready"); fflush(stdout); deep(3); return arg; }
int main(void) { pthread_t t; pthread_create(&t, 0, go_on, 0); pthread_exit(0); }
"#;

/// `/proc/PID` shows nothing of a process whose first thread has ended.
#[test]
fn first_thread_ended() {
    let dir = tempfile::tempdir().unwrap();
    let Some(exe) = build(dir.path(), "headless.c", HEADLESS, &["-O1", "-pthread"]) else { return };
    let t = Target::ready(&mut Command::new(exe));
    let pid = t.pid();
    let tasks = || std::fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten();
    let numbers = || tasks().map(|d| d.file_name().to_string_lossy().parse::<u32>().unwrap());
    let tid = numbers().find(|&n| n != pid).unwrap();
    wait_asleep(tid);
    assert_eq!(state(pid), Some('Z'));
    let (regs, copy) = capture(tid, 64 << 10);
    let mut table = StackTable::new();
    // That the first one ended is seen; its process goes on.
    table.exit(pid, true, true);
    let id = table.user(pid, &regs, &copy);
    let mut catalog = Catalog::default();
    catalog.apply(table.drain());
    catalog.apply(table.symbolize());
    let names = catalog.show_stack(id);
    assert!(names.iter().filter(|n| n.starts_with("deep")).count() == 4, "{names:#?}");
    assert!(names.iter().any(|n| n.starts_with("go_on")), "{names:#?}");
}

/// Late records: the process is gone, its stack is still unwound.
#[test]
fn after_the_end() {
    let Some((t, _dir)) = cpp("0", &["-O2", "-fomit-frame-pointer"]) else { return };
    let pid = t.pid();
    wait_asleep(pid);
    let (regs, copy) = capture(pid, 64 << 10);
    let mut table = StackTable::new();
    let before = table.user(pid, &regs, &copy);
    table.fork(pid, 4_000_000);
    table.exit(pid, true, false);
    drop(t);
    assert_eq!(table.user(pid, &regs, &copy), before);
    // A child that nobody saw alive has its parent's memory; after an exec it has not.
    assert_eq!(table.user(4_000_000, &regs, &copy), before);
    table.exec(4_000_000);
    assert_ne!(table.user(4_000_000, &regs, &copy), before);
}

#[inline(never)]
fn deep(n: u32) -> u32 {
    if n == 0 {
        println!("ready");
        std::thread::sleep(Duration::from_secs(100));
        return 0;
    }
    std::hint::black_box(deep(n - 1)) + 1
}

/// Not a test of its own: what the next one looks at.
#[test]
fn rust_child() {
    if std::env::var_os("PG_STACKS_CHILD").is_some() {
        deep(20);
    }
}

#[test]
fn rust_thread() {
    let exe = std::env::current_exe().unwrap();
    let mut child = Command::new(exe);
    let t = Target::start(child.args(["--exact", "rust_child", "--nocapture"]).env("PG_STACKS_CHILD", "1"));
    let pid = t.pid();
    let mut tid = pid;
    wait_until(|| {
        for d in std::fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten() {
            let comm = std::fs::read_to_string(d.path().join("comm")).unwrap_or_default();
            let id: u32 = d.file_name().to_string_lossy().parse().unwrap();
            if comm == "rust_child\n"
                && std::fs::read_to_string(d.path().join("syscall")).is_ok_and(|s| s.starts_with("230 "))
            {
                tid = id;
                return true;
            }
        }
        false
    });
    let names = compare(pid, tid);
    assert_eq!(names.iter().filter(|n| n.contains("deep")).count(), 21, "{names:#?}");
}

/// Kernel stacks are named.
#[test]
fn kernel_stack() {
    let text = std::fs::read_to_string("/proc/kallsyms").unwrap_or_default();
    let find = |name: &str| {
        let line = text.lines().find(|l| l.split(' ').nth(2) == Some(name))?;
        u64::from_str_radix(line.split(' ').next()?, 16).ok().filter(|&a| a != 0)
    };
    let (Some(a), Some(b)) = (find("schedule"), find("do_exit")) else {
        println!("skipped: kallsyms shows no addresses");
        return;
    };
    let mut table = StackTable::new();
    let id = table.kernel(&[a + 5, b + 9, 0, 0]);
    assert_eq!(id, table.kernel(&[a + 5, b + 9]));
    let mut catalog = Catalog::default();
    catalog.apply(table.drain());
    catalog.apply(table.symbolize());
    assert_eq!(catalog.show_stack(id), ["schedule ([kernel])", "do_exit ([kernel])"]);
    assert_eq!(catalog.frames_of(id).map(|f| f.offset).collect::<Vec<_>>(), [5, 8]);
}

/// Code made at run time, named by a perf-map.
#[test]
fn perf_map() {
    const JIT: &str = r#"
#include <stdio.h>
#include <string.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
void stop(void) { puts("ready"); fflush(stdout); for (;;) pause(); }
int main(void) {
  unsigned char code[] = {0x55, 0x48, 0x89, 0xe5, 0xff, 0xd7, 0x5d, 0xc3}; // push rbp; mov rbp,rsp; call rdi; pop; ret
  unsigned char *p = mmap(0, 4096, 7, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  memcpy(p + 64, code, sizeof code);
  char name[64]; snprintf(name, sizeof name, "/tmp/perf-%d.map", getpid());
  FILE *f = fopen(name, "w"); fprintf(f, "%lx 8 js:\x1bwait /app.js:3\n", (unsigned long)p + 64); fclose(f);
  ((void (*)(void (*)(void)))(p + 64))(stop);
  return 0; }
"#;
    let dir = tempfile::tempdir().unwrap();
    let Some(exe) = build(dir.path(), "jit.c", JIT, &["-O2", "-fno-omit-frame-pointer"]) else { return };
    let t = Target::ready(&mut Command::new(exe));
    wait_asleep(t.pid());
    let (catalog, id) = stack_now(t.pid(), true);
    let names = catalog.show_stack(id);
    let _ = std::fs::remove_file(format!("/tmp/perf-{}.map", t.pid()));
    // The escape character does not reach the catalogue.
    let at = names.iter().position(|n| n == "js:\u{fffd}wait /app.js:3 ([jit])");
    let at = at.unwrap_or_else(|| panic!("{names:#?}"));
    assert!(names[at - 1].starts_with("stop ") && names[at + 1].starts_with("main "), "{names:#?}");
    assert!(!catalog.stack(id).unwrap().truncated, "{names:#?}");
}

/// A stack of which only the place was wanted is not one that is cut off.
#[test]
fn places_alone_are_not_counted() {
    let Some((t, _dir)) = cpp("0", &["-O2", "-fomit-frame-pointer"]) else { return };
    wait_asleep(t.pid());
    let (regs, copy) = capture(t.pid(), 16 << 10);
    let mut table = StackTable::new();
    table.user(t.pid(), &regs, &[]);
    assert_eq!(table.coverage().stacks_total, 0);
    table.user(t.pid(), &regs, &copy[..256]);
    table.user(t.pid(), &regs, &copy);
    let c = table.coverage();
    assert!(c.stacks_total > 0 && c.stacks_complete == 1, "{c:?}");
}

/// Prints how long a warm unwind takes; what it takes differs from machine to machine.
#[test]
fn speed() {
    let Some((t, _dir)) = cpp("0", &["-O2", "-fomit-frame-pointer"]) else { return };
    wait_asleep(t.pid());
    let (regs, copy) = capture(t.pid(), 16 << 10);
    let mut table = StackTable::new();
    let begin = Instant::now();
    let first = table.unwind(t.pid(), &regs, &copy).0.len();
    let cold = begin.elapsed();
    let rounds = 2000;
    let begin = Instant::now();
    for _ in 0..rounds {
        table.user(t.pid(), &regs, &copy);
    }
    let each = begin.elapsed().as_secs_f64() * 1e6 / f64::from(rounds) / first as f64;
    println!("{first} frames: cold {cold:?}, warm {each:.2} us a frame, {:.0} frames a second", 1e6 / each);
    assert_eq!(table.coverage().stacks_total, 1);
}
