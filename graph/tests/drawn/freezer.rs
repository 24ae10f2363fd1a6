//! A thread in the freezer of its control group: who froze it, and how to thaw it.

use crate::draw::Drawing;
use pg_event::{ObjectId, ObjectKind, OffState};

/// Frozen from 3 s on. `written`: the call that froze it was recorded; `thawed`: somebody thawed it.
fn why(written: bool, thawed: bool) -> String {
    let mut d = Drawing::new(9.0);
    let job = d.process("job", "job", None, 0.0);
    let admin = d.process("admin", "admin", None, 0.0);
    let p = d.catalog.threads[job.index()].process;
    d.catalog.processes[p.index()].cgroup = "/system.slice/job.service".into();
    d.wait(job, 0.1, 2.9, "clock_nanosleep").times_out();
    d.wait(admin, 0.1, 9.0, "pause").open();
    if written {
        let file = d.object(ObjectKind::File, 5, 0, "/system.slice/job.service/cgroup.freeze");
        d.call(admin, 2.99, "write", file, 1);
        let other = d.object(ObjectKind::File, 6, 0, "/tmp/log");
        d.call(admin, 2.995, "write", other, 1);
    }
    let wait = d.wait(job, 3.0, 8.0, "read").in_no_call().state(OffState::Frozen);
    if thawed {
        wait.by(admin, "write", ObjectId::NONE);
    } else {
        wait.open();
    }
    let r = d.diagnose("^job$");
    assert_eq!(r.root_causes[0].process.as_deref(), Some("job"), "{:?}", r.root_causes);
    r.root_causes[0].why.clone()
}

#[test]
fn who_wrote_the_file_is_named() {
    let said = why(true, false);
    assert!(said.contains("admin (pid 1001) wrote to the file that freezes a group at 2.990 s"), "{said}");
    assert!(said.contains("and nobody thawed it"), "{said}");
}

#[test]
fn otherwise_the_group_and_the_command_are_told() {
    let said = why(false, false);
    assert!(said.contains("who froze it was not recorded"), "{said}");
    assert!(said.contains("it is in the control group /system.slice/job.service"), "{said}");
    assert!(said.contains("echo 0 > /sys/fs/cgroup/system.slice/job.service/cgroup.freeze"), "{said}");
}

#[test]
fn who_thawed_it_is_named_and_no_command_is_needed() {
    let said = why(false, true);
    assert!(said.contains("thawed it at 8.000 s") && !said.contains("echo"), "{said}");
}
