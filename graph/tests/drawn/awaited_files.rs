//! Loops that ask for a file until somebody makes or removes it, drawn: that was told by whoever watched its folder.

use crate::draw::{Drawing, ns};
use pg_event::{ObjectId, ObjectKind, Relation, ThreadId};

/// A thread that sleeps for a second ten times from 1 s on, and asks for a file in between; one turn of it was recorded.
fn asks(d: &mut Drawing, name: &str, line: &str, result: i64) -> (ThreadId, ObjectId) {
    let t = d.process(name, line, None, 0.0);
    let file = d.object(ObjectKind::File, 1, 0, "/run/job/ready");
    for i in 0..10 {
        let at = 1.0 + f64::from(i) * 1.001;
        d.wait(t, at, at + 1.0, "clock_nanosleep").times_out();
    }
    d.call(t, 1.0 + 4.0 * 1.001 - 0.000_5, "newfstatat", file, result);
    ends(d, t, 11.02);
    (t, file)
}

fn ends(d: &mut Drawing, t: ThreadId, at: f64) {
    d.exit(t, at);
    let p = d.catalog.threads[t.index()].process;
    d.catalog.processes[p.index()].end = Some(ns(at));
}

/// ```text
/// client  sleeps sleeps sleeps ... goes on
/// server  computes ............ makes the file
/// ```
#[test]
fn who_made_it_in_the_end_is_followed() {
    for (result, relation, did) in [(-2, Relation::Makes, "made"), (0, Relation::Removes, "removed")] {
        let mut d = Drawing::new(14.0);
        let (client, file) = asks(&mut d, "client", "client --wait", result);
        let idle = d.process("other", "other", None, 0.0);
        let server = d.process("server", "server", None, 0.0);
        let load = d.stack(&["load (server)", "main (server)"]);
        d.runs(server, 0.5, 10.9, load);
        d.wait(server, 10.9, 14.0, "epoll_wait").open();
        d.wait(idle, 0.1, 14.0, "epoll_wait").open();
        // It came and went before: who did that is not who ended the loop.
        d.hold(idle, client, file, relation, 0.5);
        d.hold(server, client, file, relation, 10.8);
        let r = d.diagnose("^client ");
        let names: Vec<_> = r.slice.iter().map(|s| s.process.as_str()).collect();
        assert_eq!(names, ["client", "server"], "{r:#?}");
        let why = r.slice[1].why_weak.as_deref().unwrap_or_default();
        assert!(why.ends_with(&format!("it {did} the file, at 10.800 s")), "{why}");
        assert_eq!(r.root_causes[0].process.as_deref(), Some("server"));
        assert_eq!(r.root_causes[0].function.as_deref(), Some("load"));
        let client = r.root_causes.iter().find(|c| c.process.as_deref() == Some("client"));
        let why = &client.expect("told as well").why;
        assert!(why.contains(&format!("server:1002 {did} it in the end")), "{why}");
    }
}

/// The other direction of a change is no answer: a lock that was made anew keeps whoever asks.
#[test]
fn a_file_that_was_made_keeps_who_waits_until_it_is_gone() {
    let mut d = Drawing::new(14.0);
    let (client, file) = asks(&mut d, "client", "client --wait", 0);
    let server = d.process("server", "server", None, 0.0);
    let load = d.stack(&["load (server)", "main (server)"]);
    d.runs(server, 0.5, 13.0, load);
    d.hold(server, client, file, Relation::Makes, 5.0);
    let r = d.diagnose("^client ");
    assert_eq!(r.slice.len(), 1, "{r:#?}");
    assert_eq!(r.root_causes[0].process.as_deref(), Some("client"));
}

/// `sleep 9; mv ready.tmp ready`: the program that made the file lived for a moment, whoever ran it did the waiting.
#[test]
fn of_a_helper_the_script_that_ran_it_is_followed() {
    let mut d = Drawing::new(14.0);
    let (client, file) = asks(&mut d, "client", "client --wait", -2);
    let script = d.process("sh", "sh job.sh", None, 0.0);
    let sleep = d.process("sleep", "sleep 10", Some(script), 0.5);
    d.spawn(script, sleep, 0.5);
    d.wait(sleep, 0.501, 10.5, "clock_nanosleep").times_out();
    ends(&mut d, sleep, 10.501);
    let any = d.object(ObjectKind::Child, 0, 0, "");
    d.wait(script, 0.502, 10.502, "wait4").on(any).by(sleep, "exit_group", ObjectId::NONE);
    let mv = d.process("mv", "mv ready.tmp ready", Some(script), 10.51);
    d.spawn(script, mv, 10.51);
    ends(&mut d, mv, 10.52);
    d.wait(script, 10.511, 10.521, "wait4").on(any).by(mv, "exit_group", ObjectId::NONE);
    d.hold(mv, client, file, Relation::Makes, 10.515);
    let r = d.diagnose("^client ");
    let names: Vec<_> = r.slice.iter().map(|s| s.process.as_str()).collect();
    assert_eq!(names, ["client", "sh", "sleep"], "{r:#?}");
    let why = r.slice[1].why_weak.as_deref().unwrap_or_default();
    assert!(why.contains("mv:") && why.contains(", run by it, made the file, at 10.515 s"), "{why}");
    assert_eq!(r.root_causes[0].process.as_deref(), Some("sleep"));
}
