//! Help for tests on real processes: capture by ptrace, gdb as the reference, small programs to build.
#![allow(dead_code)] // not every test file uses all of it

use pg_event::{Catalog, StackId};
use pg_tracer::stacks::{Regs, StackTable};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A child that is ended with the test.
pub struct Target(pub Child);

impl Target {
    pub fn start(command: &mut Command) -> Self {
        Self(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }

    /// Start a program that writes a line when it is where it should be.
    pub fn ready(command: &mut Command) -> Self {
        let mut child =
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        let out = child.stdout.take().unwrap();
        BufReader::new(out).read_line(&mut line).unwrap();
        assert!(line.contains("ready"), "the target said {line:?}");
        Self(child)
    }

    pub fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn ptrace(request: u32, pid: u32, addr: usize, data: usize) -> i64 {
    // SAFETY: requests of these tests only write to memory they pass in `data`.
    unsafe { libc::ptrace(request, pid as libc::pid_t, addr, data) }
}

/// Registers of a thread that is stopped by ptrace.
pub fn registers(tid: u32) -> Regs {
    // SAFETY: user_regs_struct is plain numbers; GETREGS writes one.
    let mut r: libc::user_regs_struct = unsafe { std::mem::zeroed() };
    let e = ptrace(libc::PTRACE_GETREGS, tid, 0, &raw mut r as usize);
    assert_eq!(e, 0, "PTRACE_GETREGS: {}", std::io::Error::last_os_error());
    Regs::from(&r)
}

/// At most `len` bytes from the stack pointer upward.
pub fn stack(tid: u32, sp: u64, len: usize) -> Vec<u8> {
    let mem = std::fs::File::open(format!("/proc/{tid}/mem")).unwrap();
    let mut copy = vec![0; len];
    let mut have = 0;
    while have < len {
        match mem.read_at(&mut copy[have..], sp + have as u64) {
            Ok(n) if n > 0 => have += n,
            _ => break,
        }
    }
    copy.truncate(have);
    copy
}

/// Stop a thread, take its registers and up to `len` bytes of its stack, let it go.
pub fn capture(tid: u32, len: usize) -> (Regs, Vec<u8>) {
    assert_eq!(ptrace(libc::PTRACE_SEIZE, tid, 0, 0), 0, "{}", std::io::Error::last_os_error());
    assert_eq!(ptrace(libc::PTRACE_INTERRUPT, tid, 0, 0), 0);
    let mut status = 0;
    // SAFETY: waitpid writes the status only.
    unsafe { libc::waitpid(tid as i32, &raw mut status, libc::__WALL) };
    let regs = registers(tid);
    let copy = stack(tid, regs.sp, len);
    ptrace(libc::PTRACE_DETACH, tid, 0, 0);
    (regs, copy)
}

/// The stack of a thread as it is now, with names if asked for.
pub fn stack_now(tid: u32, names: bool) -> (Catalog, StackId) {
    let (regs, copy) = capture(tid, 64 << 10);
    let mut table = StackTable::new();
    let id = table.user(tid, &regs, &copy);
    let mut catalog = Catalog::default();
    catalog.apply(table.drain());
    if names {
        catalog.apply(table.symbolize());
    }
    (catalog, id)
}

/// The stack of a target that sleeps, with names if asked for.
pub fn catalog_of(t: &Target, names: bool) -> (Catalog, StackId) {
    wait_asleep(t.pid());
    let (catalog, id) = stack_now(t.pid(), names);
    assert!(!catalog.stack(id).unwrap().truncated);
    (catalog, id)
}

/// Wait until a thread sleeps in (a part of the name of) a system call, or give up after 20 s.
pub fn wait_asleep(tid: u32) {
    wait_until(|| state(tid) == Some('S'));
}

pub fn state(tid: u32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{tid}/stat")).ok()?;
    stat.rsplit(") ").next()?.chars().next()
}

pub fn wait_until(mut done: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !done() {
        assert!(begin.elapsed() < Duration::from_secs(20), "the target did not get there");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Stop a process so that gdb and we see the same.
pub fn freeze(pid: u32) {
    // SAFETY: a signal to an own child.
    unsafe { libc::kill(pid as i32, libc::SIGSTOP) };
    wait_until(|| state(pid) == Some('T'));
}

pub fn thaw(pid: u32) {
    // SAFETY: a signal to an own child.
    unsafe { libc::kill(pid as i32, libc::SIGCONT) };
}

pub fn has(program: &str) -> bool {
    Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
}

/// Registers that gdb is asked for, with their DWARF numbers.
pub const COMPARED: [(&str, usize); 8] =
    [("pc", 16), ("sp", 7), ("rbx", 3), ("rbp", 6), ("r12", 12), ("r13", 13), ("r14", 14), ("r15", 15)];

/// What gdb says of a thread's stack: registers of the frames (inlined frames merged) and the names of all.
pub struct Reference {
    pub frames: Vec<[Option<u64>; 8]>,
    pub names: Vec<String>,
}

/// Ask gdb; `None` when it is not installed.
pub fn gdb(tid: u32) -> Option<Reference> {
    if !has("gdb") {
        println!("skipped: gdb is not installed, nothing to compare with");
        return None;
    }
    let fields: Vec<String> =
        COMPARED.iter().map(|(n, _)| format!(" -ex 'frame apply all -q p/x ${n}'")).collect();
    let fields = fields.concat();
    let script = format!(
        "exec gdb -batch -nx -iex 'set debuginfod enabled off' -iex 'set width 0' -ex 'set backtrace past-main \
         on' -ex 'set print frame-arguments none' -p {tid} -ex 'bt 260'{fields}"
    );
    let out = Command::new("sh").args(["-c", &script]).stdin(Stdio::null()).output().unwrap();
    let text = String::from_utf8_lossy(&out.stdout);
    let names: Vec<String> = text.lines().filter(|l| l.starts_with('#')).map(name_of).collect();
    let values: Vec<Option<u64>> = text
        .lines()
        .filter_map(|l| l.strip_prefix('$')?.split_once(" = "))
        .map(|(_, v)| u64::from_str_radix(v.trim_start_matches("0x"), 16).ok())
        .collect();
    assert!(!names.is_empty(), "gdb gave no stack: {text}\n{}", String::from_utf8_lossy(&out.stderr));
    assert_eq!(values.len(), names.len() * 8, "{text}");
    let mut frames: Vec<[Option<u64>; 8]> = Vec::new();
    for i in 0..names.len() {
        let frame = std::array::from_fn(|r| values[r * names.len() + i]);
        // Frames inlined, and tail calls that gdb reconstructs, have the stack pointer of the frame they
        // are in, which comes last.
        match frames.last_mut() {
            Some(last) if last[1] == frame[1] => *last = frame,
            _ => frames.push(frame),
        }
    }
    Some(Reference { frames, names })
}

/// The function of a line of gdb's backtrace.
fn name_of(line: &str) -> String {
    let rest = line.trim_start_matches(|c: char| c == '#' || c.is_ascii_digit()).trim_start();
    let rest = rest.split_once(" in ").filter(|(a, _)| a.starts_with("0x")).map_or(rest, |(_, r)| r);
    plain(rest)
}

/// A name without arguments, template parameters, result and the clone suffixes of compilers.
pub fn plain(name: &str) -> String {
    let name = name.replace("operator()", "operator").replace("(anonymous namespace)", "anonymous");
    let name = name.replace("<signal handler called>", "signal handler called");
    let mut depth = 0;
    let mut out = String::new();
    let mut last = ' ';
    for c in name.chars() {
        match c {
            '(' if depth == 0 => break,
            '<' | '(' => depth += 1,
            '>' if last == '-' => {}
            '>' | ')' => depth -= 1,
            _ if depth == 0 => out.push(c),
            _ => {}
        }
        last = c;
    }
    let out = out.split(['.', '@']).next().unwrap_or_default().trim();
    if out == "signal handler called" {
        return "__restore_rt".to_owned();
    }
    // Only the last component: how namespaces and traits are written differs. Not the hash of Rust's names.
    let hash = |p: &str| p.len() == 17 && p.starts_with('h');
    let parts = out.split("::").filter(|p| !p.is_empty() && !hash(p) && !p.starts_with("{shim"));
    let last = parts.last().unwrap_or_default();
    // Not the result type of a function template.
    last.rsplit(' ').next().unwrap_or(last).to_owned()
}

/// Build a C or C++ program; `None` when there is no compiler.
pub fn build(dir: &Path, name: &str, source: &str, flags: &[&str]) -> Option<PathBuf> {
    let compiler = if name.ends_with("cc") { "g++" } else { "gcc" };
    if !has(compiler) {
        println!("skipped: {compiler} is not installed");
        return None;
    }
    let file = dir.join(name);
    std::fs::write(&file, source).unwrap();
    let exe = dir.join(name.split('.').next().unwrap());
    let status = Command::new(compiler).args(flags).arg("-o").arg(&exe).arg(&file).status().unwrap();
    assert!(status.success(), "{compiler} failed");
    Some(exe)
}

/// Running as root?
pub fn root() -> bool {
    // SAFETY: no preconditions.
    unsafe { libc::geteuid() == 0 }
}
