//! May this process trace, and can this kernel be traced? Asked before anything is started, so that the
//! answer is one sentence with its remedy.

use crate::error::Error;
use std::fs;
use std::path::Path;

/// Oldest kernel. Since 5.18 `sched_switch` tells the state of the thread, task iterators may sleep, and
/// `bpf_copy_from_user_task` reads other threads' memory; `bpf_find_vma` is of 5.17, `bpf_task_pt_regs` of
/// 5.15. Tracepoints that came later (`sock_send_length`, 6.3; `block_io_start`, 6.5) are done without.
const NEEDED: (u32, u32) = (5, 18);
/// The initial PID namespace: `PROC_PID_INIT_INO` in the kernel's `include/linux/proc_ns.h`.
const INITIAL_PIDS: &str = "pid:[4026531836]";
const CAP_SYS_ADMIN: u32 = 21;
const CAP_PERFMON: u32 = 38;
const CAP_BPF: u32 = 39;

/// Checks that the kernel can be traced by this process.
///
/// # Errors
/// [`Error::NotPermitted`], [`Error::NoBtf`], [`Error::KernelTooOld`], [`Error::Architecture`],
/// [`Error::PidNamespace`]: each says what to do.
pub fn check_permission() -> Result<(), Error> {
    if !cfg!(target_arch = "x86_64") {
        return Err(Error::Architecture(std::env::consts::ARCH.into()));
    }
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    check_release(release.trim())?;
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    check_capabilities(effective(&status))?;
    if !fs::exists("/sys/kernel/btf/vmlinux").unwrap_or(false) {
        return Err(Error::NoBtf);
    }
    check_namespace(fs::read_link("/proc/self/ns/pid").ok().as_deref())
}

/// The kernel's programs see the ids of the initial namespace only.
fn check_namespace(own: Option<&Path>) -> Result<(), Error> {
    if own.is_some_and(|n| n != Path::new(INITIAL_PIDS)) { Err(Error::PidNamespace) } else { Ok(()) }
}

fn check_release(release: &str) -> Result<(), Error> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse::<u32>);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) if (major, minor) < NEEDED => {
            Err(Error::KernelTooOld { found: release.into(), needed: format!("{}.{}", NEEDED.0, NEEDED.1) })
        }
        _ => Ok(()),
    }
}

/// The effective capabilities in `/proc/PID/status`.
fn effective(status: &str) -> u64 {
    status
        .lines()
        .find_map(|l| l.strip_prefix("CapEff:"))
        .and_then(|v| u64::from_str_radix(v.trim(), 16).ok())
        .unwrap_or(0)
}

fn check_capabilities(effective: u64) -> Result<(), Error> {
    let has = |cap: u32| effective >> cap & 1 == 1;
    if has(CAP_SYS_ADMIN) {
        return Ok(());
    }
    let missing: Vec<&str> = [(CAP_BPF, "CAP_BPF"), (CAP_PERFMON, "CAP_PERFMON")]
        .iter()
        .filter(|(cap, _)| !has(*cap))
        .map(|(_, name)| *name)
        .collect();
    if missing.is_empty() { Ok(()) } else { Err(not_permitted(&missing.join(" and "))) }
}

/// The refusal with its remedies.
pub fn not_permitted(missing: &str) -> Error {
    let exe = std::env::current_exe().map_or_else(|_| "pg-tui".into(), |p| p.display().to_string());
    let mut remedy =
        format!("run it with sudo, or give it the right once: sudo setcap cap_bpf,cap_perfmon=ep {exe}");
    let locked =
        fs::read_to_string("/sys/kernel/security/lockdown").is_ok_and(|s| s.contains("[confidentiality]"));
    if locked {
        remedy
            .push_str("\nthe kernel is locked down (confidentiality): boot without lockdown=confidentiality");
    }
    if fs::read_to_string("/proc/sys/kernel/perf_event_paranoid")
        .ok()
        .and_then(|s| s.trim().parse::<i32>().ok())
        .is_some_and(|level| level > 2)
    {
        remedy.push_str("\nand allow performance events: sudo sysctl kernel.perf_event_paranoid=2");
    }
    Error::NotPermitted { missing: missing.into(), remedy }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_kernels_are_named() {
        assert!(check_release("6.18.44-generic").is_ok());
        assert!(check_release("5.18.0").is_ok());
        let e = check_release("5.15.0-91-generic").unwrap_err().to_string();
        assert!(e.contains("5.15.0-91-generic") && e.contains("5.18"), "{e}");
        assert!(check_release("strange").is_ok(), "an unreadable release is not a refusal");
    }

    #[test]
    fn a_container_is_refused_with_its_remedy() {
        assert!(check_namespace(Some(Path::new(INITIAL_PIDS))).is_ok());
        assert!(check_namespace(None).is_ok(), "an unreadable /proc is not a refusal");
        let e = check_namespace(Some(Path::new("pid:[4026532221]"))).unwrap_err();
        assert!(e.is_refusal() && e.to_string().contains("--pid=host"), "{e}");
    }

    #[test]
    fn rights_are_read_from_the_status() {
        let status = "Name:\tx\nCapEff:\t000000c000000000\nCapBnd:\t0\n";
        assert_eq!(effective(status), 0xc0 << 32);
        assert!(check_capabilities(effective(status)).is_ok());
        assert!(check_capabilities(1 << CAP_SYS_ADMIN).is_ok());
        let e = check_capabilities(1 << CAP_BPF).unwrap_err().to_string();
        assert!(e.contains("CAP_PERFMON") && !e.contains("CAP_BPF "), "{e}");
        assert!(e.contains("sudo setcap cap_bpf,cap_perfmon=ep"), "{e}");
    }
}
