//! What is frozen: a file system whose writers wait until it is thawed, and a process for part of the time.

use crate::draw::{Drawing, what};
use pg_event::{ObjectId, ObjectKind, OffState};

/// `FIFREEZE` of ioctl(2).
const FIFREEZE: u32 = 0xc004_5877;

/// cp(1) wants to create a file; fsfreeze(8) froze the file system and has ended; another one thaws it later.
fn a_frozen_file_system(freezer_recorded: bool) -> pg_graph::report::Report {
    let mut d = Drawing::new(9.0);
    let shell = d.process("bash", "bash run", None, 0.0);
    let thaw = d.process("fsfreeze", "fsfreeze -u /mnt/x", Some(shell), 0.2);
    let sleep = d.process("sleep", "sleep 8", Some(thaw), 0.2);
    let cp = d.process("cp", "cp a /mnt/x/a", Some(shell), 0.4);
    let freeze = d.process("fsfreeze", "fsfreeze -f /mnt/x", Some(shell), 0.1);
    let (mount, file) =
        (d.object(ObjectKind::File, 7, 1, "/mnt/x"), d.object(ObjectKind::File, 8, 1, "/mnt/x/a"));
    let any = d.object(ObjectKind::Child, 0, 0, "");
    let waits =
        d.stack(&["percpu_rwsem_wait ([kernel])", "mnt_want_write ([kernel])", "path_openat ([kernel])"]);
    if freezer_recorded {
        d.wait(freeze, 0.12, 0.13, "ioctl").on(mount).op(FIFREEZE, 0).state(OffState::Uninterruptible).by(
            shell,
            "futex",
            ObjectId::NONE,
        );
        d.exit(freeze, 0.15);
    }
    d.wait(sleep, 0.21, 8.0, "clock_nanosleep").times_out();
    d.exit(sleep, 8.001);
    d.wait(thaw, 0.21, 8.002, "wait4").on(any).by(sleep, "exit_group", ObjectId::NONE);
    d.wait(cp, 0.5, 8.01, "openat")
        .on(file)
        .state(OffState::Uninterruptible)
        .in_kernel(waits)
        .by(thaw, "ioctl", mount);
    d.wait(cp, 8.1, 9.0, "pause").open();
    d.wait(thaw, 8.1, 9.0, "pause").open();
    d.wait(shell, 0.5, 9.0, "pause").open();
    d.diagnose("^cp a")
}

#[test]
fn who_froze_a_file_system_is_named_though_it_has_ended() {
    let r = a_frozen_file_system(true);
    let c = &r.root_causes[0];
    assert_eq!(c.cmdline.as_deref(), Some("fsfreeze -f /mnt/x"), "{r:#?}");
    assert!(c.why.contains("froze the file system at 0.130 s, ended at 0.150 s"), "{}", c.why);
    assert!(c.why.contains("thawed it at 8.010 s"), "{}", c.why);
    assert_eq!(c.object.as_deref(), Some("/mnt/x/a"));
    assert_eq!((r.slice[0].waits_on.as_deref(), r.slice[1].state.as_str()), (Some("file-system"), "exited"));
    // Who should have thawed it earlier is told next.
    assert_eq!(r.root_causes[1].process.as_deref(), Some("sleep"), "{r:#?}");
    assert!(r.root_causes[1].why.contains("in the end cp"), "{}", r.root_causes[1].why);
}

#[test]
fn a_frozen_file_system_is_the_cause_when_who_froze_it_is_not_known() {
    let r = a_frozen_file_system(false);
    let c = &r.root_causes[0];
    assert_eq!((c.process.as_deref(), c.pid, c.tid), (None, None, None), "{r:#?}");
    assert!(what(c).contains("/mnt/x/a") && c.why.contains("frozen"), "{}", c.why);
    assert!(c.why.contains("not recorded") && c.why.contains("thawed it at 8.010 s"), "{}", c.why);
}

/// The holder of a lock worked most of the time, but was frozen for two fifths of it: that is not its own doing.
#[test]
fn to_be_frozen_for_long_is_told_before_what_took_longer() {
    let mut d = Drawing::new(12.0);
    let holder = d.process("work", "work", None, 0.0);
    let waiter = d.process("flock", "flock f true", None, 0.0);
    let agent = d.process("agent", "agent", None, 0.0);
    let lock = d.object(ObjectKind::FileLock, 5, 1, "/run/f");
    let compute = d.stack(&["compute (work)", "main (work)"]);
    d.wait(waiter, 1.0, 11.0, "flock").on(lock).by(holder, "flock", lock);
    d.runs(holder, 0.5, 2.0, compute);
    d.wait(holder, 2.0, 6.0, "write").state(OffState::Frozen).by(agent, "write", ObjectId::NONE);
    d.runs(holder, 6.01, 11.5, compute);
    d.wait(agent, 0.5, 5.9, "clock_nanosleep").times_out();
    let r = d.diagnose("^flock");
    let c = &r.root_causes[0];
    assert_eq!(c.process.as_deref(), Some("work"), "{r:#?}");
    assert!(c.why.contains("was frozen for 4.00 s") && c.why.contains("agent"), "{}", c.why);
}
