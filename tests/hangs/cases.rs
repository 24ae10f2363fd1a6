//! What a right diagnosis of each hang says.

use crate::record::{again, record, record_from_the_middle, record_scenario};
use crate::report::{Report, diagnose};
use crate::{Skipped, Test};
use std::cell::RefCell;

/// The hangs last 2.5 s (see `roles`), less what it takes to start the victim.
const LONG: u64 = 1_000_000_000;

pub const TESTS: &[Test] = &[
    ("demo_blames_the_index_rebuild_under_the_mutex", demo),
    ("a_server_busy_with_a_script_keeps_its_other_clients_waiting", script),
    ("a_file_lock_serialises_two_pages", file_lock),
    ("a_pipe_nobody_reads_is_a_deadlock_of_two", pipe),
    ("a_server_stopped_by_a_debugger", traced),
    ("a_name_server_that_never_answers", silent),
    ("a_service_whose_start_waits_for_a_lock", activation),
    ("a_shell_that_makes_a_folder_again_and_again", made_already),
    ("a_shell_that_asks_for_a_lock_again_and_again", locked_already),
    ("a_lock_from_the_middle_of_the_hang", locked_before),
    ("who_gets_no_cpu_from_the_middle_of_the_hang", starved_before),
];

/// A folder of the test's own; `PG_TUI_TEST_KEEP=1` leaves it, with the recording, to be looked at.
fn folder() -> tempfile::TempDir {
    let mut dir = tempfile::tempdir().expect("a folder");
    dir.disable_cleanup(std::env::var_os("PG_TUI_TEST_KEEP").is_some());
    dir
}

/// A scenario of this name, diagnosed for the process.
fn scenario((name, process): (&str, &str), holds: impl Fn(&Report)) -> Result<(), Skipped> {
    let report = || {
        let dir = folder();
        let file = record_scenario(dir.path(), name)?;
        Ok(diagnose(&file, &["--process", process]))
    };
    again(report, holds)
}

/// A script, which gets the folder as its `$0`: by that its shell is told from others of the machine.
fn of_shell(script: &str, holds: impl Fn(&Report)) -> Result<(), Skipped> {
    let report = || {
        let dir = folder();
        let name = dir.path().display().to_string();
        let file = record(dir.path(), &["sh", "-c", script, &name])?;
        Ok(diagnose(&file, &["--process", &format!("(?s)^sh -c.*{name}")]))
    };
    again(report, holds)
}

fn demo() -> Result<(), Skipped> {
    let recorded = |select: &[&str]| {
        let dir = folder();
        let file = record(dir.path(), &[env!("CARGO_BIN_EXE_pg-tui"), "demo-hang", "--seconds", "2.5"])?;
        Ok(diagnose(&file, select))
    };
    // Whoever is the worst victim of the focus: the way back ends at the same cause.
    again(
        || recorded(&[]),
        |r| {
            r.root(1, "^payd .* tick$", "rebuild_index|hash_rows").clean(3);
        },
    )?;
    again(
        || recorded(&["--process", "^shopd "]),
        |r| {
            r.victim("^shopd ", &["long-wait"], LONG)
                .slice(&["^payd .* pay-[123]$", "^payd .* tick$"])
                .root(1, "^payd .* tick$", "rebuild_index|hash_rows")
                .block_type("long-running")
                .clean(3);
        },
    )
}

fn script() -> Result<(), Skipped> {
    scenario(("script", "^store-cli .* get2"), |r| {
        r.victim("^store-cli .* get2 ", &["long-wait"], LONG)
            .slice(&["^store "])
            .root(1, "^store ", "run_script")
            .block_type("long-running")
            .not_first("^store-cli ")
            .clean(3);
    })
}

fn file_lock() -> Result<(), Skipped> {
    scenario(("file-lock", "^browser .* quick"), |r| {
        r.victim("^browser .* quick ", &["long-wait"], LONG)
            .slice(&["^web-worker .* quick ", "^web-worker .* report "])
            .root(1, "^web-worker .* report ", "render_report|run_script")
            .block_type("long-running")
            .clean(3);
    })
}

fn pipe() -> Result<(), Skipped> {
    scenario(("pipe", "^runner "), |r| {
        r.victim("^runner ", &["long-wait"], LONG)
            .slice(&["^lister "])
            .root(2, "^(lister|runner) ", "pipe")
            .root(2, "^(lister|runner) ", "write|full|read|cycle|deadlock")
            .not_first("^scenario ")
            .clean(3);
    })
}

fn traced() -> Result<(), Skipped> {
    scenario(("traced", "^store-cli .* get2"), |r| {
        r.victim("^store-cli .* get2 ", &["long-wait"], LONG)
            .slice(&["^store ", "^inspector "])
            .root(2, "^(inspector|store) ", "inspector|trac|attach|debug")
            .not_first("^store-cli ")
            .clean(3);
    })
}

fn silent() -> Result<(), Skipped> {
    let port = RefCell::new(String::new());
    again(
        || {
            let dir = folder();
            let file = record_scenario(dir.path(), "silent")?;
            port.replace(std::fs::read_to_string(dir.path().join("udp.port")).expect("published"));
            Ok(diagnose(&file, &["--process", "^fetch "]))
        },
        |r| {
            r.victim("^fetch ", &["long-wait", "repeated-yield"], LONG)
                .root(2, "^(fetch|name-server) |^ *$", &format!("127\\.0\\.0\\.1:{}", port.borrow()))
                .clean(3);
        },
    )
}

fn activation() -> Result<(), Skipped> {
    scenario(("activation", "^store-cli .* call"), |r| {
        r.victim("^store-cli .* call ", &["long-wait"], LONG)
            .slice(&["^bus ", "^service ", "^backup "])
            .root(2, "^backup ", "lock|sleep")
            .not_first("^(bus|store-cli|service) ")
            .clean(3);
    })
}

/// Each try is a child that fails; who made the folder is not recorded, but who removes it in the end.
fn made_already() -> Result<(), Skipped> {
    let script = r#"cd "$0" && rm -rf lock && mkdir lock && { sleep 7; rmdir lock; } &
        sleep 0.3; cd "$0"; until mkdir lock 2>/dev/null; do sleep 0.5; done; wait"#;
    of_shell(script, |r| {
        r.victim("^sh ", &["repeated-yield"], LONG)
            .slice(&["^mkdir mkdir lock ", "^sh ", "^sleep "])
            .root(1, "^sleep sleep 7 ", "slept")
            .root(2, "^sh ", "ran `mkdir lock` \\d+ times")
            .root(2, "^sh ", "mkdir of lock: EEXIST")
            .not_first("^(sh|mkdir) ")
            .clean(0);
    })
}

/// The same with a lock: who has it is looked up when a child is refused.
fn locked_already() -> Result<(), Skipped> {
    let script = r#"flock "$0/lock" sleep 7 & sleep 0.3
        until flock -n "$0/lock" true; do sleep 0.5; done; wait"#;
    of_shell(script, |r| {
        r.victim("^sh ", &["repeated-yield"], LONG)
            .slice(&["^flock flock -n ", "^flock flock .*lock sleep 7 ", "^sleep "])
            .root(1, "^sleep ", "slept")
            .root(2, "^(sh|flock) ", "lock")
            .not_first("^sh ")
            .clean(0);
    })
}

/// A script as in [`of_shell`] that hangs already when the recording begins, and goes on when it ends. Diagnosed for a
/// process whose command line begins like `who`, in which `$0` is the folder.
fn from_the_middle(script: &str, who: &str, holds: impl Fn(&Report)) -> Result<(), Skipped> {
    let report = || {
        let dir = folder();
        let name = dir.path().display().to_string();
        let file = record_from_the_middle(dir.path(), &["sh", "-c", script, &name])?;
        Ok(diagnose(&file, &["--process", &who.replace("$0", &name)]))
    };
    again(report, holds)
}

/// Nobody begins to wait while it is recorded, and nobody is woken.
fn locked_before() -> Result<(), Skipped> {
    let script = r#"flock "$0/lock" sleep 6 & sleep 0.3; flock "$0/lock" true; wait"#;
    from_the_middle(script, "^flock $0/lock true", |r| {
        r.victim("^flock flock .*lock true ", &["long-wait"], LONG)
            .slice(&["^flock flock .*lock sleep 6 ", "^sleep "])
            .root(1, "^sleep ", "slept")
            .not_first("^flock ")
            .clean(0);
    })
}

/// Who has the lock wants a CPU when the recording begins, and may not get it before it ends: no switch tells of that.
fn starved_before() -> Result<(), Skipped> {
    let script = r#"busy='while :; do :; done'
        timeout 6 taskset -c 0 sh -c "$busy" & timeout 6 taskset -c 0 sh -c "$busy" & sleep 0.2
        flock "$0/lock" timeout 6 taskset -c 0 chrt -i 0 sh -c "$busy" & sleep 0.5; flock "$0/lock" true; wait"#;
    from_the_middle(script, "^flock $0/lock true", |r| {
        r.victim("^flock flock .*lock true ", &["long-wait"], LONG)
            .slice(&["^flock flock .*lock timeout ", "^timeout ", "^sh "])
            .root(1, "^sh ", "CPU")
            .not_first("^(flock|timeout) ");
    })
}
