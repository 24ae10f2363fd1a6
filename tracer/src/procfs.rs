//! Small bounded readers of `/proc`, shared by everything that looks at the system's state.
//!
//! Every parser takes bytes, never panics, and gives `None` (or skips the line) on what it does not
//! understand: names in `/proc` are chosen by the programs they name. Formats: proc(5).

mod fd;
mod locks;
mod net;

pub use fd::{
    AccessMode, FdInfo, FdLink, parse_epoll_targets, parse_fd_link, parse_fdinfo, read_fd_link,
    read_fd_links, read_fdinfo, socket_protocol,
};
pub use locks::{FileLock, LockKind, parse_locks, read_locks};
pub use net::{InetSocket, TCP_LISTEN, UnixSocket, parse_inet, parse_unix, read_inet, read_unix};

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Most bytes read of any file in `/proc` that has no smaller bound of its own.
pub const MAX_FILE: usize = 4 << 20;
/// Most bytes kept of a thread's name.
pub const MAX_NAME: usize = 64;
/// Most bytes kept of a command line.
pub const MAX_CMDLINE: usize = 4096;
/// Most bytes kept of a path.
pub const MAX_PATH: usize = 4096;
/// `PF_KTHREAD` of the task flags in `/proc/PID/stat` (kernel: `include/linux/sched.h`).
const PF_KTHREAD: u64 = 0x0020_0000;
/// Inode of the initial pid namespace (kernel: `PROC_PID_INIT_INO`).
const INITIAL_PID_NAMESPACE: &str = "pid:[4026531836]";

/// What of `/proc/PID/stat` is used.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stat {
    /// Process or thread id.
    pub pid: u32,
    /// Name, as the program chose it.
    pub comm: Vec<u8>,
    /// State letter: `R`, `S`, `D`, `T`, `t`, `Z`, `X`, `I`, ...
    pub state: u8,
    /// Parent process.
    pub ppid: u32,
    /// Session leader.
    pub session: u32,
    /// Controlling terminal, device number as the kernel packs it.
    pub tty: u32,
    /// A kernel thread.
    pub kernel: bool,
    /// Number of threads in the group.
    pub threads: u32,
    /// Start in clock ticks since boot.
    pub start_ticks: u64,
    /// The CPU it is on, or was on last; `u32::MAX` if not told.
    pub cpu: u32,
    /// Nice value, -20 to 19.
    pub nice: i8,
    /// Priority of a real-time policy; 0 of others.
    pub priority: u8,
    /// Scheduling policy, by the kernel's numbers.
    pub policy: u8,
}

impl Stat {
    /// Has it ended, with all its threads if it is a process?
    pub fn has_ended(&self) -> bool {
        self.stands_empty() && self.threads <= 1
    }

    /// Has the first thread of a process ended (pthread_exit(3) in `main`) while others go on?
    pub fn is_headless(&self) -> bool {
        self.stands_empty() && self.threads > 1
    }

    fn stands_empty(&self) -> bool {
        matches!(self.state, b'Z' | b'X')
    }
}

/// Parse `/proc/PID/stat`. The name may hold spaces and parentheses: it ends at the last `)`.
pub fn parse_stat(bytes: &[u8]) -> Option<Stat> {
    let open = bytes.iter().position(|&b| b == b'(')?;
    let close = bytes.iter().rposition(|&b| b == b')')?;
    let comm = bytes.get(open + 1..close)?.to_vec();
    let pid = std::str::from_utf8(bytes.get(..open)?).ok()?.trim().parse().ok()?;
    let rest = std::str::from_utf8(bytes.get(close + 1..)?).ok()?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().take(64).collect();
    // Field numbers of proc(5) count from 1 and begin with pid and comm: state is number 3.
    let number = |field: usize| fields.get(field - 3)?.parse::<i64>().ok();
    let state = *fields.first()?.as_bytes().first()?;
    Some(Stat {
        pid,
        comm,
        state,
        ppid: number(4)?.try_into().unwrap_or(0),
        session: number(6)?.try_into().unwrap_or(0),
        tty: number(7)? as u32,
        kernel: number(9)? as u64 & PF_KTHREAD != 0,
        threads: number(20)?.try_into().unwrap_or(0),
        start_ticks: fields.get(22 - 3)?.parse().ok()?,
        cpu: number(39).and_then(|n| n.try_into().ok()).unwrap_or(u32::MAX),
        nice: number(19).and_then(|n| n.try_into().ok()).unwrap_or(0),
        priority: number(40).and_then(|n| n.try_into().ok()).unwrap_or(0),
        policy: number(41).and_then(|n| n.try_into().ok()).unwrap_or(0),
    })
}

/// What of `/proc/PID/status` is used.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Status {
    /// Process id.
    pub tgid: u32,
    /// Thread id.
    pub pid: u32,
    /// Parent process.
    pub ppid: u32,
    /// Who traces it; 0 = nobody.
    pub tracer: u32,
    /// Effective user id.
    pub uid: u32,
    /// Thread id in each pid namespace, outermost (the reader's) first.
    pub ns_pids: Vec<u32>,
    /// State letter.
    pub state: u8,
    /// Signals that the thread has blocked, a bit each from 1 on.
    pub blocked_signals: u64,
    /// Signals that the program has functions for.
    pub caught_signals: u64,
    /// It crashed, and its memory is being written out.
    pub core_dumping: bool,
    /// The CPUs that it may use, as the kernel lists them (`0-3,8`).
    pub cpus: String,
}

/// Parse `/proc/PID/status`. `None` without `Tgid` and `Pid`.
pub fn parse_status(bytes: &[u8]) -> Option<Status> {
    let mask = |hex: &str| u64::from_str_radix(hex, 16).unwrap_or(0);
    let mut out = Status::default();
    let (mut tgid, mut pid) = (None, None);
    for line in bytes.split(|&b| b == b'\n') {
        let Ok(line) = std::str::from_utf8(line) else { continue };
        let Some((key, value)) = line.split_once(':') else { continue };
        let mut words = value.split_ascii_whitespace();
        let mut number = || words.next().and_then(|w| w.parse::<u32>().ok());
        match key {
            "Tgid" => tgid = number(),
            "Pid" => pid = number(),
            "PPid" => out.ppid = number().unwrap_or(0),
            "TracerPid" => out.tracer = number().unwrap_or(0),
            "Uid" => {
                let real = number();
                out.uid = number().or(real).unwrap_or(0);
            }
            "NSpid" => out.ns_pids = words.take(32).filter_map(|w| w.parse().ok()).collect(),
            "SigBlk" => out.blocked_signals = words.next().map_or(0, mask),
            "SigCgt" => out.caught_signals = words.next().map_or(0, mask),
            "Cpus_allowed_list" => words.next().unwrap_or_default().clone_into(&mut out.cpus),
            "CoreDumping" => out.core_dumping = number() == Some(1),
            "State" => out.state = words.next().and_then(|w| w.bytes().next()).unwrap_or(0),
            _ => {}
        }
    }
    out.tgid = tgid?;
    out.pid = pid?;
    Some(out)
}

/// One line of `/proc/PID/cgroup`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CgroupLine {
    /// Controllers of the hierarchy (`memory`, `cpu,cpuacct`, `name=systemd`); empty for cgroup v2.
    pub controllers: String,
    /// Path within the hierarchy.
    pub path: String,
}

/// Parse `/proc/PID/cgroup` (version 1, version 2 and both at once; see cgroups(7)).
pub fn parse_cgroup(bytes: &[u8]) -> Vec<CgroupLine> {
    let mut out = Vec::new();
    for line in bytes.split(|&b| b == b'\n').take(64) {
        let mut parts = line.splitn(3, |&b| b == b':');
        let (Some(number), Some(controllers), Some(path)) = (parts.next(), parts.next(), parts.next()) else {
            continue;
        };
        if number.is_empty() || !number.iter().all(u8::is_ascii_digit) {
            continue;
        }
        out.push(CgroupLine { controllers: lossy(controllers, MAX_NAME * 4), path: lossy(path, MAX_PATH) });
    }
    out
}

/// Untrusted bytes as text of at most `limit` bytes of input, cut at a character.
pub fn lossy(bytes: &[u8], limit: usize) -> String {
    let mut cut = bytes.get(..limit).unwrap_or(bytes);
    if cut.len() < bytes.len() {
        // Do not leave half a character behind: step back over continuation bytes (at most three).
        let tail = cut.iter().rev().take(3).take_while(|&&b| b & 0xc0 == 0x80).count();
        let head = cut.len() - tail;
        if head > 0 && cut[head - 1] >= 0xc0 && std::str::from_utf8(&cut[head - 1..]).is_err() {
            cut = &cut[..head - 1];
        }
    }
    String::from_utf8_lossy(cut).into_owned()
}

/// A command line as people read it: arguments joined by spaces, padding dropped.
pub fn join_argv(bytes: &[u8]) -> String {
    let end = bytes.iter().rposition(|&b| b != 0 && !b.is_ascii_whitespace()).map_or(0, |i| i + 1);
    let spaced: Vec<u8> =
        bytes[..end].iter().take(MAX_CMDLINE + 1).map(|&b| if b == 0 { b' ' } else { b }).collect();
    lossy(&spaced, MAX_CMDLINE)
}

/// Has the process no memory any more: is it gone, or waits for its parent to take note of its end? `false` also when
/// that may not be looked up.
pub fn has_ended(pid: u32) -> bool {
    match read_bounded(&path_of(pid, "maps"), 1) {
        Ok(maps) => maps.is_empty() && shown_by(pid) == pid,
        Err(e) => e.kind() == io::ErrorKind::NotFound || e.raw_os_error() == Some(libc::ESRCH),
    }
}

/// Read at most `limit` bytes of a file. Files in `/proc` do not know their size, so nobody asks for it.
///
/// # Errors
/// The system's refusal, or that the file is gone.
pub fn read_bounded(path: &Path, limit: usize) -> io::Result<Vec<u8>> {
    let mut file = std::fs::File::open(path)?;
    let mut out = vec![0; limit.min(4096)];
    let mut len = 0;
    loop {
        match file.read(&mut out[len..]) {
            Ok(0) => break,
            Ok(n) => len += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
        if len == out.len() {
            if len >= limit {
                break;
            }
            out.resize((2 * len).min(limit), 0);
        }
    }
    out.truncate(len);
    Ok(out)
}

/// `/proc/PID/NAME`.
pub fn path_of(pid: u32, name: &str) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}/{name}"))
}

/// The number under which `/proc` shows what the threads of a process share: memory, descriptors, program, folders.
/// That is its own; of one whose first thread has ended, that of another thread.
pub fn shown_by(pid: u32) -> u32 {
    if !read_stat(pid).is_some_and(|s| s.is_headless()) {
        return pid;
    }
    threads_of(pid).into_iter().find(|&t| t != pid).unwrap_or(pid)
}

/// How long the machine runs (`/proc/uptime`), by the clock that the starts of processes are told by.
pub fn uptime() -> Option<Duration> {
    let text = read_bounded(Path::new("/proc/uptime"), 128).ok()?;
    let seconds = std::str::from_utf8(&text).ok()?.split_ascii_whitespace().next()?.parse().ok()?;
    Duration::try_from_secs_f64(seconds).ok()
}

/// `/proc/TID/task/TID/stat`: the same of one thread. `/proc/TID/stat` adds up the times of all threads of its process,
/// which of thousands takes milliseconds.
pub fn read_thread_stat(tid: u32) -> Option<Stat> {
    parse_stat(&read_bounded(&path_of(tid, &format!("task/{tid}/stat")), 4096).ok()?)
}

/// `/proc/PID/stat` of a process; `None` when it is gone.
pub fn read_stat(pid: u32) -> Option<Stat> {
    parse_stat(&read_bounded(&path_of(pid, "stat"), 4096).ok()?)
}

/// The kernel function that a thread sleeps in (`/proc/TID/wchan`); empty when it does not sleep, and without the right
/// to ask.
pub fn read_wchan(tid: u32) -> String {
    let name = read_bounded(&path_of(tid, "wchan"), 256).unwrap_or_default();
    if name == b"0" { String::new() } else { lossy(&name, MAX_NAME) }
}

/// `/proc/PID/status` of a process or thread; `None` when it is gone.
pub fn read_status(pid: u32) -> Option<Status> {
    parse_status(&read_bounded(&path_of(pid, "status"), 1 << 16).ok()?)
}

/// `/proc/PID/cgroup`; empty when it is gone.
pub fn read_cgroup(pid: u32) -> Vec<CgroupLine> {
    parse_cgroup(&read_bounded(&path_of(pid, "cgroup"), 1 << 16).unwrap_or_default())
}

/// Path of the executable as the process sees it; `None` for kernel threads and without the right to ask.
pub fn read_exe(pid: u32) -> Option<String> {
    use std::os::unix::ffi::OsStrExt;
    let link = match std::fs::read_link(path_of(pid, "exe")) {
        // Of a process without memory there is none; another thread than its first may have some.
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            let other = Some(shown_by(pid)).filter(|&other| other != pid)?;
            std::fs::read_link(path_of(other, "exe"))
        }
        other => other,
    };
    let link = link.ok()?;
    Some(lossy(link.as_os_str().as_bytes(), MAX_PATH))
}

/// Raw `/proc/PID/cmdline`. This takes the target's memory lock and can block for as long as the target
/// holds it: call it through [`crate::patience::Patience`].
///
/// # Errors
/// The system's refusal, or that the process is gone.
pub fn read_cmdline(pid: u32) -> io::Result<Vec<u8>> {
    let bytes = read_bounded(&path_of(pid, "cmdline"), MAX_CMDLINE * 2)?;
    if bytes.is_empty() {
        let other = shown_by(pid);
        if other != pid {
            return read_bounded(&path_of(other, "cmdline"), MAX_CMDLINE * 2);
        }
    }
    Ok(bytes)
}

fn numbers_in(path: &Path) -> Vec<u32> {
    let Ok(dir) = std::fs::read_dir(path) else { return Vec::new() };
    let mut out: Vec<u32> = dir.flatten().filter_map(|e| e.file_name().to_str()?.parse().ok()).collect();
    out.sort_unstable();
    out
}

/// All processes, ascending.
pub fn processes() -> Vec<u32> {
    numbers_in(Path::new("/proc"))
}

/// These processes and all that descend from them, ascending. One whose parent has ended belongs to nobody's family.
pub fn family(of: &[u32]) -> Vec<u32> {
    let parents = processes().into_iter().filter_map(read_stat).map(|s| (s.pid, s.ppid));
    descendants(of, &parents.collect())
}

/// The same, given everybody's parent.
fn descendants(of: &[u32], parents: &BTreeMap<u32, u32>) -> Vec<u32> {
    let mut children: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for (&pid, &parent) in parents {
        children.entry(parent).or_default().push(pid);
    }
    let mut all: BTreeSet<u32> = BTreeSet::new();
    let mut open: Vec<u32> = of.to_vec();
    while let Some(pid) = open.pop() {
        if all.insert(pid) {
            open.extend(children.get(&pid).into_iter().flatten());
        }
    }
    all.into_iter().collect()
}

/// All threads of a process, ascending; empty when it is gone.
pub fn threads_of(pid: u32) -> Vec<u32> {
    numbers_in(&path_of(pid, "task"))
}

/// All open descriptors of a process or thread, ascending; empty without the right to ask.
pub fn descriptors_of(pid: u32) -> Vec<u32> {
    numbers_in(&path_of(pid, "fd"))
}

/// Does this program run in the initial pid namespace, whose ids the kernel's tracepoints use?
pub fn in_initial_pid_namespace() -> bool {
    std::fs::read_link("/proc/self/ns/pid").is_ok_and(|l| l.as_os_str() == INITIAL_PID_NAMESPACE)
}

#[cfg(test)]
#[path = "procfs/tests.rs"]
mod tests;
