//! Retry loops made of children, drawn: a shell runs a program again and again, since that fails.

use crate::draw::{Drawing, what};
use pg_event::{ObjectId, ObjectKind, Relation, ThreadId};
use pg_graph::{BlockType, Selection, VictimOptions, select};

/// A child of `parent` that lives from `start` to `end`, and the parent's wait for it.
pub(crate) fn child(
    d: &mut Drawing,
    parent: ThreadId,
    line: &str,
    (start, end): (f64, f64),
    code: u32,
) -> ThreadId {
    let t = d.process(line.split(' ').next().unwrap(), line, Some(parent), start);
    let p = d.catalog.threads[t.index()].process;
    let row = &mut d.catalog.processes[p.index()];
    (row.end, row.exit_status) = (Some(crate::draw::ns(end)), Some(code << 8));
    d.spawn(parent, t, start);
    d.exit(t, end);
    let seen = d.catalog.objects.iter().position(|o| o.kind == ObjectKind::Child && o.id == 0);
    let any = seen.map_or_else(|| d.object(ObjectKind::Child, 0, 0, ""), |i| ObjectId(i as u32));
    d.wait(parent, start + 0.000_1, end + 0.000_1, "wait4").on(any).by(t, "exit_group", ObjectId::NONE);
    t
}

/// `turns` times `line`, which fails after 2 ms, and a sleep. The children that failed.
fn tries(d: &mut Drawing, shell: ThreadId, line: &str, from: f64, turns: usize, sleep: f64) -> Vec<ThreadId> {
    let mut failed = Vec::new();
    let mut t = from;
    for _ in 0..turns {
        failed.push(child(d, shell, line, (t, t + 0.002), 1));
        let nap = child(d, shell, &format!("sleep {sleep}"), (t + 0.003, t + 0.003 + sleep), 0);
        d.wait(nap, t + 0.004, t + 0.002 + sleep, "clock_nanosleep").times_out();
        t += sleep + 0.005;
    }
    failed
}

/// `until mkdir lock; do sleep 1; done`, of which nothing else was recorded.
#[test]
fn a_program_that_fails_again_and_again() {
    for sleep in [1.0, 0.1] {
        let mut d = Drawing::new(0.5 + 12.0 * (sleep + 0.005));
        let shell = d.process("sh", "sh job", None, 0.0);
        tries(&mut d, shell, "mkdir lock", 0.5, 12, sleep);
        let r = d.diagnose("^sh job$");
        assert_eq!(r.victim.block_type, BlockType::RepeatedYield);
        assert!(r.victim.duration_ns > 1_100_000_000, "{}", r.victim.duration_ns);
        let c = &r.root_causes[0];
        assert_eq!(
            (c.process.as_deref(), c.block_type),
            (Some("sh"), Some(BlockType::RepeatedYield)),
            "{r:#?}"
        );
        assert!(c.why.contains("ran `mkdir lock` 12 times") && c.why.contains("exit code 1"), "{}", c.why);
        assert!(c.why.contains("`sleep"), "{}", c.why);
        let steps: Vec<_> = r.slice.iter().map(|s| (s.process.as_str(), s.state.as_str())).collect();
        assert_eq!(steps, [("sh", "blocked"), ("mkdir", "exited")]);
        assert_eq!(
            (r.slice[1].edge.as_deref(), r.slice[1].strength.as_deref()),
            (Some("exit"), Some("strong"))
        );
        assert!(r.questions.is_empty());
    }
}

/// A burst recorded the calls of one child: of those that failed, the one about what the command line names tells.
#[test]
fn the_failing_call_of_the_child_is_the_evidence() {
    for taken in [true, false] {
        let mut d = Drawing::new(20.0);
        let shell = d.process("sh", "sh job", None, 0.0);
        let other = d.process("backup", "backup", None, 0.0);
        let failed = tries(&mut d, shell, "mkdir -m 700 lock", 2.5, 10, 1.0);
        let file = |d: &mut Drawing, id, name| d.object(ObjectKind::File, id, 0, name);
        let (lock, preload) = (file(&mut d, 1, "/run/lock"), file(&mut d, 2, "/etc/ld.so.preload"));
        let words = file(&mut d, 4, "/usr/share/locale/C/x.mo");
        let terminal = d.object(ObjectKind::Tty, 3, 0, "/dev/pts/7");
        let child = failed[4];
        let at = crate::draw::S.recip() * d.catalog.threads[child.index()].start as f64;
        d.call(child, at + 0.000_5, "access", preload, -2);
        d.call(child, at + 0.001, "mkdir", lock, -17);
        d.call(child, at + 0.001_2, "ioctl", terminal, -25);
        d.call(child, at + 0.001_5, "openat", words, -2);
        if taken {
            d.call(other, 1.0, "mkdir", lock, 0);
            d.wait(other, 1.1, 19.0, "clock_nanosleep").times_out();
        }
        let r = d.diagnose("^sh job$");
        let retrying = r.root_causes.iter().find(|c| c.process.as_deref() == Some("sh")).expect("the loop");
        assert_eq!(
            (retrying.syscall.as_deref(), retrying.object.as_deref()),
            (Some("mkdir"), Some("/run/lock"))
        );
        assert!(retrying.why.contains("mkdir of /run/lock: EEXIST"), "{}", retrying.why);
        let first = r.root_causes[0].process.as_deref();
        assert_eq!(first, Some(if taken { "backup" } else { "sh" }), "{r:#?}");
        assert_eq!(r.slice.len(), if taken { 3 } else { 2 });
        if taken {
            let why = r.slice[2].why_weak.as_deref().unwrap_or_default();
            assert!(why.contains("same call succeeded, at 1.000 s"), "{why}");
            assert!(retrying.why.contains("backup:1001 keeps it from that"), "{}", retrying.why);
        }
    }
}

/// `until git add f; do sleep 1; done`: a file that is there already keeps others of the same program out. The one that was
/// there all the time may have made it; of two none is named, nor where it was another error, nor who is at work in another folder.
#[test]
fn another_process_of_the_same_program_may_have_made_the_lock_file() {
    let (here, there) = ("git -C /srv/r commit -a", "git -C /srv/rest commit -a");
    let any = "git commit -a";
    for (others, commits, error, named) in [
        (1, any, -17, true),
        (1, here, -17, true),
        (2, any, -17, false),
        (1, any, -13, false),
        (1, there, -17, false),
    ] {
        let mut d = Drawing::new(20.0);
        let shell = d.process("sh", "sh deploy", None, 0.0);
        for i in 0..others {
            let git = d.process("git", commits, None, 0.1 * f64::from(i));
            let editor = d.process("vi", "vi msg", Some(git), 1.0);
            let any = d.object(ObjectKind::Child, 0, 0, "");
            d.wait(git, 1.0, 12.0, "wait4").on(any).by(editor, "exit_group", ObjectId::NONE);
            d.hold(editor, git, any, Relation::ChildOf, 2.0);
            let keyboard = d.object(ObjectKind::Tty, 3, 0, "/dev/pts/7");
            d.wait(editor, 1.1, 11.9, "read").on(keyboard).timer();
            d.exit(editor, 11.9);
            let p = d.catalog.threads[git.index()].process;
            d.catalog.processes[p.index()].end = Some(crate::draw::ns(12.1));
            d.exit(git, 12.1);
        }
        let failed = tries(&mut d, shell, "git add f", 2.5, 10, 1.0);
        let lock = d.object(ObjectKind::File, 1, 0, "/srv/r/.git/index.lock");
        let at = crate::draw::S.recip() * d.catalog.threads[failed[4].index()].start as f64;
        d.call(failed[4], at + 0.001, "openat", lock, error);
        let r = d.diagnose("^sh deploy$");
        let loop_itself =
            r.root_causes.iter().find(|c| c.process.as_deref() == Some("sh")).expect("the loop");
        let names: Vec<_> = r.slice.iter().map(|s| s.process.as_str()).collect();
        if named {
            assert_eq!(names, ["sh", "git", "git", "vi"], "{r:#?}");
            assert!(r.slice[2].why_weak.as_deref().is_some_and(|w| w.contains("the only other git")));
            assert!(loop_itself.why.contains("git:1001 may keep it from that"), "{}", loop_itself.why);
            assert_eq!(r.root_causes[0].process.as_deref(), Some("vi"), "{r:#?}");
            assert!(r.root_causes[0].confidence < 0.5, "a guess: {r:#?}");
        } else {
            assert_eq!(names, ["sh", "git"], "{r:#?}");
        }
    }
}

/// `until flock -n lock job; do sleep 1; done`: who has the lock was looked up when it was refused.
#[test]
fn the_holder_of_what_the_child_wants_is_followed() {
    let mut d = Drawing::new(20.0);
    let shell = d.process("bash", "bash -e job", None, 0.0);
    let other = d.process("report", "report --all", None, 0.0);
    let failed = tries(&mut d, shell, "flock -n /run/l true", 2.5, 10, 1.0);
    let lock = d.object(ObjectKind::FileLock, 1, 2, "/run/l");
    let hash = d.stack(&["render (report)", "main (report)"]);
    d.call(failed[3], 5.6, "flock", lock, -11);
    d.hold(other, failed[3], lock, Relation::Owns, 5.61);
    d.wait(other, 0.0, 1.0, "clock_nanosleep").before().times_out();
    d.runs(other, 1.0, 19.9, hash);
    let r = d.diagnose("^bash ");
    let names: Vec<_> = r.slice.iter().map(|s| s.process.as_str()).collect();
    assert_eq!(names, ["bash", "flock", "report"], "{r:#?}");
    assert_eq!(r.slice[1].object.as_deref(), Some("/run/l"));
    assert_eq!(r.slice[2].edge.as_deref(), Some("holder"));
    let c = &r.root_causes[0];
    assert_eq!((c.process.as_deref(), c.block_type), (Some("report"), Some(BlockType::LongRunning)));
    assert!(what(c).contains("render"));
    assert_eq!(r.root_causes[1].process.as_deref(), Some("bash"));
}

/// Each try takes long itself: what the child waits for is what there is to say.
#[test]
fn a_slow_try_is_followed() {
    let mut d = Drawing::new(40.0);
    let shell = d.process("sh", "sh job", None, 0.0);
    let server = d.process("server", "server", None, 0.0);
    let (a, b) = (d.object(ObjectKind::Tcp, 1, 2, ""), d.object(ObjectKind::Tcp, 2, 1, ""));
    let hash = d.stack(&["rebuild (server)", "main (server)"]);
    d.wait(server, 0.0, 0.5, "epoll_wait").before().times_out();
    d.runs(server, 0.5, 39.0, hash);
    for i in 0..6 {
        let t = 1.0 + 6.0 * f64::from(i);
        let curl = child(&mut d, shell, "curl -m 5 http://x", (t, t + 5.0), 28);
        d.wait(curl, t + 0.01, t + 4.99, "poll").on(a).times_out();
        d.hold(server, curl, a, Relation::Peer, t + 1.0);
        child(&mut d, shell, "sleep 1", (t + 5.001, t + 5.9), 0);
    }
    let _ = b;
    let r = d.diagnose("^sh job$");
    let names: Vec<_> = r.slice.iter().map(|s| s.process.as_str()).collect();
    assert_eq!(names, ["sh", "curl", "server"], "{r:#?}");
    assert_eq!(r.root_causes[0].process.as_deref(), Some("server"));
}

/// Whoever waits for such a loop waits for what it asks for.
#[test]
fn who_waits_for_the_loop_is_led_through_it() {
    let mut d = Drawing::new(20.0);
    let make = d.process("make", "make all", None, 0.0);
    let shell = d.process("sh", "sh job", Some(make), 0.4);
    tries(&mut d, shell, "nc -z localhost 5432", 0.5, 12, 1.0);
    let any = d.object(ObjectKind::Child, 0, 0, "");
    d.spawn(make, shell, 0.4);
    d.wait(make, 0.41, 13.0, "wait4").on(any).by(shell, "exit_group", ObjectId::NONE);
    d.exit(shell, 13.0);
    let r = d.diagnose("^make ");
    let names: Vec<_> = r.slice.iter().map(|s| s.process.as_str()).collect();
    assert_eq!(names, ["make", "sh", "nc"], "{r:#?}");
    assert!(r.root_causes[0].why.contains("ran `nc -z localhost 5432` 12 times"), "{}", r.root_causes[0].why);
}

/// Work, and loops that only wait for time to pass, are none.
#[test]
fn what_is_no_retry() {
    let abnormal = |draw: &dyn Fn(&mut Drawing, ThreadId)| {
        let mut d = Drawing::new(30.0);
        let shell = d.process("sh", "sh job", None, 0.0);
        draw(&mut d, shell);
        let (g, c) = d.build();
        let tries = g.retries_of(shell).len();
        assert_eq!(tries, 0, "{:?}", g.retries_of(shell));
        let s = Selection { pid: Some(1000), ..Selection::default() };
        select(&g, &c, &s, &VictimOptions::default()).is_ok_and(|v| v.block_type == BlockType::RepeatedYield)
    };
    let one_after_another = |line: &'static dyn Fn(usize) -> String, code: u32| {
        move |d: &mut Drawing, shell: ThreadId| {
            for i in 0..20 {
                let t = 1.0 + i as f64;
                child(d, shell, &line(i), (t, t + 0.01), code);
                child(d, shell, "sleep 0.9", (t + 0.02, t + 0.95), 0);
            }
        }
    };
    assert!(!abnormal(&one_after_another(&|_| "collect".into(), 0)), "it works");
    assert!(!abnormal(&one_after_another(&|i| format!("grep -q x f{i}"), 1)), "each time another file");
    let twice = |d: &mut Drawing, shell: ThreadId| {
        tries(d, shell, "mkdir lock", 1.0, 2, 1.0);
    };
    assert!(!abnormal(&twice), "two are not many");
    let busy = |d: &mut Drawing, shell: ThreadId| {
        let own = d.stack(&["compute (sh)"]);
        for i in 0..20 {
            let t = 1.0 + f64::from(i);
            child(d, shell, "test -e f", (t, t + 0.01), 1);
            d.runs(shell, t + 0.02, t + 1.0, own);
        }
    };
    assert!(!abnormal(&busy), "it does much in between");
}

/// The try that succeeds ends the loop.
#[test]
fn a_loop_ends_with_the_try_that_succeeds() {
    let mut d = Drawing::new(20.0);
    let shell = d.process("sh", "sh job", None, 0.0);
    tries(&mut d, shell, "mkdir lock", 0.5, 5, 1.0);
    let t = 0.5 + 5.0 * 1.005;
    child(&mut d, shell, "mkdir lock", (t, t + 0.002), 0);
    child(&mut d, shell, "work", (t + 0.01, t + 9.0), 0);
    let (g, _) = d.build();
    let [r] = g.retries_of(shell) else { panic!("{:?}", g.retries_of(shell)) };
    assert_eq!(r.tries.len(), 5);
    assert_eq!((r.start, r.end), (crate::draw::ns(0.5), crate::draw::ns(t + 0.002)));
}

/// A server started its workers together, and they were ended together, by a signal: none of them is a new try.
#[test]
fn workers_of_a_server_are_no_tries() {
    let mut d = Drawing::new(20.0);
    let server = d.process("php", "php serve", None, 0.0);
    let base = d.process("db", "db", None, 0.0);
    for _ in 0..3 {
        let t = d.process("php", "php serve", Some(server), 0.8);
        let p = d.catalog.threads[t.index()].process;
        let row = &mut d.catalog.processes[p.index()];
        (row.end, row.exit_status) = (Some(crate::draw::ns(19.0)), Some(15));
        d.spawn(server, t, 0.8);
        d.wait(t, 0.9, 18.9, "accept4").interrupted();
        d.exit(t, 19.0);
    }
    let (a, b) = (d.object(ObjectKind::UnixStream, 1, 2, ""), d.object(ObjectKind::UnixStream, 2, 1, ""));
    d.message(server, a, pg_event::Direction::Send, 1.0, 9);
    d.wait(server, 1.001, 15.0, "poll").on(a).by(base, "sendto", b);
    let join = d.stack(&["join (db)", "main (db)"]);
    d.runs(base, 1.0, 15.0, join);
    let r = d.diagnose("^php serve$");
    assert_eq!(r.root_causes[0].process.as_deref(), Some("db"), "{r:#?}");
    assert!(!r.slice.iter().skip(1).any(|s| s.process == "php"), "{r:#?}");
}

/// A loop whose children do some work each time is a job done again and again. Each of its waits is for another child, and none
/// of them could have come before the shell made it: that is no circle.
#[test]
fn a_loop_of_jobs_is_no_circle() {
    let mut d = Drawing::new(3.66);
    let shell = d.process("bash", "bash job", None, 0.0);
    let stack = d.stack(&["main (redis-cli)"]);
    let any = d.object(ObjectKind::Child, 0, 0, "");
    let mut t = 0.1;
    for i in 0..8 {
        let nap = if i == 7 { 0.9 } else { 0.3 };
        for (line, start, end) in
            [("redis-cli set k v nx", t, t + 0.06), ("sleep 0.3", t + 0.061, t + 0.061 + nap)]
        {
            let kid = d.process(line.split(' ').next().unwrap(), line, Some(shell), start);
            let p = d.catalog.threads[kid.index()].process;
            let row = &mut d.catalog.processes[p.index()];
            (row.end, row.exit_status) = (Some(crate::draw::ns(end)), Some(0));
            d.spawn(shell, kid, start);
            if line.starts_with("sleep") {
                d.wait(kid, start + 0.001, end - 0.001, "clock_nanosleep").times_out();
            } else {
                d.runs(kid, start + 0.001, end - 0.001, stack);
            }
            d.exit(kid, end);
            d.wait(shell, start + 0.000_1, end + 0.000_1, "wait4").on(any).by(
                kid,
                "exit_group",
                ObjectId::NONE,
            );
        }
        t += 0.07 + nap;
    }
    let r = d.diagnose("^bash job$");
    assert_eq!(r.victim.block_type, BlockType::RepeatedYield, "{r:#?}");
    assert!(r.circle.is_empty() && !r.root_causes[0].why.contains("circular"), "{r:#?}");
}
