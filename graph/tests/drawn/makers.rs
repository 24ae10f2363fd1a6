//! Who keeps a loop of tries going where no call of theirs was recorded, and limits that calls come to, drawn.

use crate::draw::{Drawing, what};
use pg_event::{Direction, ObjectId, ObjectKind, Relation, ThreadId, endpoint_v4};
use pg_graph::report::Report;
use pg_graph::{VictimOptions, victims};

/// A process that has ended, with its exit code.
pub fn ended(d: &mut Drawing, t: ThreadId, end: f64, code: u32) {
    let p = d.catalog.threads[t.index()].process;
    let row = &mut d.catalog.processes[p.index()];
    (row.end, row.exit_status) = (Some(crate::draw::ns(end)), Some(code << 8));
    d.exit(t, end);
}

/// A child of `parent` that lives from `start` to `end`, and the parent's wait for it.
fn child(d: &mut Drawing, parent: ThreadId, line: &str, (start, end): (f64, f64), code: u32) -> ThreadId {
    let t = d.process(line.split(' ').next().unwrap(), line, Some(parent), start);
    d.spawn(parent, t, start);
    ended(d, t, end, code);
    let any = d.object(ObjectKind::Child, 0, 0, "");
    d.wait(parent, start + 0.000_1, end + 0.000_1, "wait4").on(any).by(t, "exit_group", ObjectId::NONE);
    t
}

/// `until LINE; do sleep 1; done` from 2.5 s on, ten times in vain.
fn tries(d: &mut Drawing, shell: ThreadId, line: &str) -> Vec<ThreadId> {
    let mut failed = Vec::new();
    for i in 0..10 {
        let t = 2.5 + 1.005 * f64::from(i);
        failed.push(child(d, shell, line, (t, t + 0.002), 1));
        let nap = child(d, shell, "sleep 1", (t + 0.003, t + 1.003), 0);
        d.wait(nap, t + 0.004, t + 1.002, "clock_nanosleep").times_out();
    }
    failed
}

/// The thread sleeps two seconds, and calls in between.
fn sleeps(d: &mut Drawing, t: ThreadId, call: (&str, ObjectId, i64)) {
    for i in 0..6 {
        let at = 1.0 + 2.001 * f64::from(i);
        d.call(t, at, call.0, call.1, call.2);
        d.wait(t, at + 0.001, at + 2.001, "clock_nanosleep").times_out();
    }
}

/// A script that computes until 13 s after its child `line` ended with `code` at 0.6 s.
fn script(d: &mut Drawing, line: &str, code: u32) -> ThreadId {
    let script = d.process("bash", "bash backup.sh", None, 0.0);
    child(d, script, line, (0.5, 0.6), code);
    let hash = d.stack(&["compress (bash)", "main (bash)"]);
    d.runs(script, 0.7, 13.2, hash);
    script
}

pub fn names(r: &Report) -> Vec<&str> {
    r.slice.iter().map(|s| s.process.as_str()).collect()
}

/// `lockfile mbox.lock` for a script, and another one that looks whether that file is still there, or tries to make it.
#[test]
fn who_had_a_lock_file_made_by_a_helper_is_followed() {
    for (line, code, call, follows) in [
        ("lockfile /srv/mbox.lock", 0, ("newfstatat", 0), true),
        ("lockfile mbox.lock", 0, ("link", -17), true),
        ("lockfile mbox.lock", 1, ("newfstatat", 0), false),
        ("lockfile other.lock", 0, ("newfstatat", 0), false),
        ("lockfile mbox.lock", 0, ("newfstatat", -2), false),
    ] {
        let mut d = Drawing::new(16.0);
        script(&mut d, line, code);
        let victim = d.process("lockfile", "lockfile -2 /srv/mbox.lock", None, 0.9);
        let lock = d.object(ObjectKind::File, 1, 0, "/srv/mbox.lock");
        sleeps(&mut d, victim, (call.0, lock, call.1));
        let r = d.diagnose("^lockfile -2");
        if follows {
            assert_eq!(names(&r), ["lockfile", "bash"], "{r:#?}");
            assert!(r.slice[1].why_weak.as_deref().is_some_and(|w| w.contains("run by it")), "{r:#?}");
            assert_eq!(r.root_causes[0].process.as_deref(), Some("bash"));
            assert!(r.root_causes.iter().any(|c| c.why.contains("/srv/mbox.lock")), "{r:#?}");
        } else {
            assert_eq!(names(&r), ["lockfile"], "{line} {call:?}: {r:#?}");
        }
    }
}

/// `until mkdir lock`: the same command ended well for another script, before the loop began.
#[test]
fn whose_child_did_the_same_with_success_is_followed() {
    for (line, follows) in [("mkdir /srv/lock", true), ("mkdir /srv/other", false)] {
        let mut d = Drawing::new(16.0);
        script(&mut d, line, 0);
        let shell = d.process("sh", "sh deploy", None, 0.0);
        tries(&mut d, shell, "mkdir /srv/lock");
        let r = d.diagnose("^sh deploy$");
        let way = if follows { vec!["sh", "mkdir", "bash"] } else { vec!["sh", "mkdir"] };
        assert_eq!(names(&r), way, "{r:#?}");
    }
    // One that succeeds when the loop does is another one that waited.
    let mut d = Drawing::new(16.0);
    let other = d.process("bash", "bash other", None, 0.0);
    d.wait(other, 0.1, 12.0, "clock_nanosleep").times_out();
    child(&mut d, other, "mkdir /srv/lock", (12.1, 12.2), 0);
    d.wait(other, 12.3, 15.0, "clock_nanosleep").times_out();
    let shell = d.process("sh", "sh deploy", None, 0.0);
    tries(&mut d, shell, "mkdir /srv/lock");
    let r = d.diagnose("^sh deploy$");
    assert_eq!(names(&r), ["sh", "mkdir"], "{r:#?}");
}

/// A thread that tries itself for a file that is there already: the other process of its program may have made it, which
/// gives it back during the last pause.
#[test]
fn the_other_process_of_the_program_may_have_the_file_that_a_thread_tries_for() {
    for (others, named) in [(1, true), (2, false)] {
        let mut d = Drawing::new(16.0);
        for _ in 0..others {
            let git = d.process("git", "git update-ref --stdin", None, 0.0);
            let hash = d.stack(&["prepare (git)", "main (git)"]);
            d.runs(git, 0.5, 12.0, hash);
            ended(&mut d, git, 12.1, 0);
        }
        let victim = d.process("git", "git update-ref main", None, 0.9);
        let lock = d.object(ObjectKind::File, 1, 0, "/srv/r/.git/refs/heads/main.lock");
        sleeps(&mut d, victim, ("openat", lock, -17));
        let r = d.diagnose("^git update-ref main$");
        assert_eq!(names(&r), if named { vec!["git", "git"] } else { vec!["git"] }, "{r:#?}");
        let own = r.root_causes.iter().find(|c| c.why.contains("EEXIST")).expect("the loop itself");
        assert!(own.why.contains("main.lock"), "{}", own.why);
    }
}

/// Nobody listens until a service has made its key: that comes second, that nobody was there is what happened.
#[test]
fn who_serves_in_the_end_is_followed() {
    let to = endpoint_v4(0x7f00_0007, 8321);
    for (error, result, follows) in [(-111, 0, true), (-115, 0, true), (-111, 7, false)] {
        let mut d = Drawing::new(16.0);
        let shell = d.process("bash", "bash wait.sh", None, 0.0);
        let service = d.process("service", "service --start", None, 0.0);
        let failed = tries(&mut d, shell, "curl http://127.0.0.7:8321/");
        let hash = d.stack(&["dhparam (service)", "main (service)"]);
        d.runs(service, 0.5, 12.4, hash);
        d.wait(service, 12.41, 12.56, "accept4").times_out();
        let nscd = d.object(ObjectKind::UnixStream, 8, 0, "/var/run/nscd/socket");
        let wanted = d.object(ObjectKind::Tcp, 1, to, "");
        let at = crate::draw::S.recip() * d.catalog.threads[failed[4].index()].start as f64;
        d.call(failed[4], at + 0.000_5, "connect", nscd, -2);
        d.call(failed[4], at + 0.001, "connect", wanted, error);
        let last = child(&mut d, shell, "curl http://127.0.0.7:8321/", (12.55, 12.6), result);
        let (client, server) = (d.object(ObjectKind::Tcp, 41, to, ""), d.object(ObjectKind::Tcp, to, 41, ""));
        d.catalog.objects[client.index()].id = 41;
        d.message(last, client, Direction::Send, 12.56, 60);
        d.message(service, server, Direction::Receive, 12.561, 60);
        d.message(service, server, Direction::Send, 12.57, 60);
        d.message(last, client, Direction::Receive, 12.571, 60);
        let r = d.diagnose("^bash wait");
        let c = &r.root_causes[0];
        assert_eq!(c.process.as_deref(), Some("bash"), "{r:#?}");
        assert!(c.why.contains("8321") && !c.why.contains("nscd"), "{}", c.why);
        if follows {
            assert_eq!(names(&r), ["bash", "curl", "service"], "{r:#?}");
            assert!(r.root_causes[1].process.as_deref() == Some("service"), "{r:#?}");
            assert!(c.why.contains("served it in the end"), "{}", c.why);
        } else {
            assert_eq!(names(&r), ["bash", "curl"], "{r:#?}");
        }
    }
}

/// Of several failures the one that no program provokes: a full file system.
#[test]
fn a_full_file_system_is_told_before_other_failures() {
    let mut d = Drawing::new(16.0);
    let shell = d.process("bash", "bash deploy.sh", None, 0.0);
    let failed = tries(&mut d, shell, "cp app.bin /srv/app.bin");
    let file = d.object(ObjectKind::File, 1, 0, "/srv/app.bin");
    let at = crate::draw::S.recip() * d.catalog.threads[failed[4].index()].start as f64;
    d.call(failed[4], at + 0.000_5, "openat", file, -20);
    d.call(failed[4], at + 0.001, "write", file, -28);
    let r = d.diagnose("^bash deploy");
    let c = &r.root_causes[0];
    assert!(c.why.contains("write of /srv/app.bin: ENOSPC, the file system is full"), "{}", c.why);
}

/// A program that fails by no call of its own: who told it so.
#[test]
fn whose_message_came_last_before_a_try_failed_is_told() {
    let mut d = Drawing::new(16.0);
    let shell = d.process("bash", "bash job.sh", None, 0.0);
    let server = d.process("postgres", "postgres: app", None, 0.0);
    let failed = tries(&mut d, shell, "psql -c select");
    let (a, b) =
        (d.object(ObjectKind::UnixStream, 1, 2, ""), d.object(ObjectKind::UnixStream, 2, 1, "/run/s"));
    let last = *failed.last().unwrap();
    let at = crate::draw::S.recip() * d.catalog.threads[last.index()].start as f64;
    d.message(last, a, Direction::Send, at + 0.000_2, 10);
    d.message(server, b, Direction::Receive, at + 0.000_4, 10);
    d.message(server, b, Direction::Send, at + 0.000_6, 10);
    d.message(last, a, Direction::Receive, at + 0.000_8, 10);
    let r = d.diagnose("^bash job");
    assert!(r.root_causes[0].why.contains("its last message came from postgres (pid 1001)"), "{r:#?}");
}

/// A loop that asks a server between its sleeps.
#[test]
fn whom_a_loop_asks_between_its_sleeps_is_told() {
    let mut d = Drawing::new(16.0);
    let worker = d.process("worker", "worker", None, 0.0);
    let redis = d.process("redis", "redis", None, 0.0);
    let (a, b) =
        (d.object(ObjectKind::UnixStream, 1, 2, ""), d.object(ObjectKind::UnixStream, 2, 1, "/run/r"));
    for i in 0..100 {
        let at = 1.0 + 0.101 * f64::from(i);
        d.wait(worker, at + 0.001, at + 0.101, "clock_nanosleep").times_out();
        d.message(worker, a, Direction::Send, at + 0.101_1, 10);
        d.message(redis, b, Direction::Receive, at + 0.101_2, 10);
        d.message(redis, b, Direction::Send, at + 0.101_3, 10);
        d.message(worker, a, Direction::Receive, at + 0.101_4, 10);
    }
    let r = d.diagnose("^worker$");
    assert!(
        r.root_causes[0].why.contains("in between asked redis (pid 1001) over"),
        "{}",
        r.root_causes[0].why
    );
}

/// A loop that reads a file between its sleeps, of which a burst recorded one turn.
#[test]
fn the_file_that_a_loop_reads_between_its_sleeps_is_told() {
    for (name, told) in
        [("/srv/web/supervise/status", true), ("/etc/localtime", false), ("/usr/lib/x.so", false)]
    {
        let mut d = Drawing::new(13.65);
        let sv = d.process("sv", "sv start web", None, 0.0);
        let (ok, status) =
            (d.object(ObjectKind::File, 1, 0, "/srv/web/ok"), d.object(ObjectKind::File, 2, 0, name));
        for i in 0..30 {
            let at = 1.0 + 0.421 * f64::from(i);
            d.wait(sv, at, at + 0.42, "clock_nanosleep").times_out();
            if i == 12 && told {
                d.call(sv, at + 0.420_2, "openat", ok, 4);
            }
            if i == 12 {
                d.call(sv, at + 0.420_4, "openat", status, 4);
            }
        }
        let r = d.diagnose("^sv start");
        let why = &r.root_causes[0].why;
        assert_eq!(why.contains(&format!("in between opened {name}")), told, "{why}");
    }
}

/// `tail --pid=N -f log`: it watches the file, and asks once a second whether the process is still there.
#[test]
fn the_process_that_is_asked_for_between_looks_at_descriptors_is_followed() {
    // Who started it (the shell), or nobody that is known, is not waited for.
    for (pid, result, follows) in [(1001, 0, true), (1001, -3, false), (1000, 0, false), (1002, 0, false)] {
        let mut d = Drawing::new(14.0);
        let shell = d.process("bash", "bash deploy.sh", None, 0.0);
        let job = d.process("perl", "perl job.pl", None, 0.0);
        d.wait(shell, 0.0, 14.0, "wait4").before().open();
        let hash = d.stack(&["work (perl)", "main (perl)"]);
        d.runs(job, 0.5, 13.1, hash);
        d.exit(job, 13.2);
        let tail = d.process("tail", "tail --pid=1001 -f log", Some(shell), 0.5);
        let watched = d.object(ObjectKind::Inotify, 7, 0, "");
        for i in 0..12 {
            let at = 1.0 + 1.001 * f64::from(i);
            d.wait(tail, at, at + 1.0, "poll").on(watched).times_out();
            if i == 5 {
                d.asks_for(tail, at + 1.000_5, pid, result);
            }
        }
        let r = d.diagnose("^tail ");
        let way = if follows { vec!["tail", "perl"] } else { vec!["tail"] };
        assert_eq!(names(&r), way, "{r:#?}");
        let own = r.root_causes.iter().find(|c| c.process.as_deref() == Some("tail")).expect("tail");
        assert_eq!(
            own.why.contains("whether process 1001 (perl, by kill with signal 0) is there"),
            follows,
            "{}",
            own.why
        );
    }
}

/// A request waits for a handler, which asks for something that is not recorded; another thread of the process does
/// something else all the time, until just before that ended.
fn polled(spins: bool, ended: f64, more: usize) -> Report {
    let mut d = Drawing::new(18.0);
    let client = d.process("curl", "curl", None, 0.0);
    let handler = d.process("app", "app", None, 0.0);
    let (a, b) = (d.object(ObjectKind::UnixStream, 1, 2, ""), d.object(ObjectKind::UnixStream, 2, 1, ""));
    d.message(client, a, Direction::Send, 0.999, 10);
    d.message(handler, b, Direction::Receive, 1.0, 10);
    d.wait(client, 1.0, 13.01, "recvfrom").on(a).by(handler, "sendto", b);
    if spins {
        let stack = d.stack(&["sched_yield (libc.so.6)", "try_lock (app)", "main (app)"]);
        d.runs(handler, 1.001, 13.0, stack);
    } else {
        let stack = d.stack(&["sleep (libc.so.6)", "try_lock (app)", "main (app)"]);
        d.naps(handler, 1.001, 13.0, 0.05, stack);
    }
    d.message(handler, b, Direction::Send, 13.01, 10);
    d.wait(handler, 13.02, 17.9, "recvfrom").on(b).open();
    for i in 0..more {
        let busy = d.thread(handler, &format!("busy{i}"), 0.5);
        let none = d.object(ObjectKind::File, 7, 0, "/srv/big");
        d.wait(busy, 0.9, ended, "pread64").on(none).state(pg_event::OffState::Uninterruptible).timer();
    }
    let idle = d.thread(handler, "idle", 0.5);
    let word = d.object(ObjectKind::Futex, 77, 1, "");
    d.wait(idle, 0.9, 17.9, "futex").on(word).op(0x189, 0).open();
    d.diagnose("^curl$")
}

#[test]
fn the_only_thread_that_did_something_all_the_time_may_let_a_loop_go_on() {
    for spins in [true, false] {
        let r = polled(spins, 12.95, 1);
        let threads: Vec<_> = r.slice.iter().map(|s| s.thread.as_str()).collect();
        assert_eq!(threads, ["curl", "app", "busy0"], "{r:#?}");
        assert_eq!(r.root_causes[0].thread.as_deref(), Some("busy0"), "{r:#?}");
        assert!(r.root_causes.iter().any(|c| c.thread.as_deref() == Some("app")), "the loop itself: {r:#?}");
        // It was over long before, went on after that, or is one of two.
        for (ended, more) in [(10.8, 1), (15.0, 1), (12.95, 2), (0.0, 0)] {
            let r = polled(spins, ended, more);
            assert!(r.slice.iter().all(|s| !s.thread.starts_with("busy")), "{spins} {ended} {more}: {r:#?}");
        }
    }
}

/// Calls that fail again and again on the CPU: for want of room in a pipe, or of descriptors.
#[test]
fn who_has_the_other_end_of_a_pipe_that_is_written_to_in_vain_is_followed() {
    // The third one's child has it, too.
    for readers in [1, 2, 3] {
        let mut d = Drawing::new(14.0);
        let feed = d.process("perl", "perl feed.pl", None, 0.0);
        let pipe = d.object(ObjectKind::Pipe, 5, 0, "");
        let stack = d.stack(&["write (libc.so.6)", "main (perl)"]);
        d.runs(feed, 1.0, 13.0, stack);
        for i in 0..100 {
            d.call(feed, 2.0 + 0.001 * f64::from(i), "write", pipe, -11);
        }
        let mut parent = None;
        for i in 0..readers.min(2) {
            let load = d.process("load", &format!("load {i}"), parent.filter(|_| readers == 3), 0.0);
            parent = Some(load);
            let hash = d.stack(&["hash (load)", "main (load)"]);
            d.runs(load, 1.0, 13.0, hash);
            d.hold(load, feed, pipe, Relation::Reads, 2.01);
        }
        let r = d.diagnose("^perl ");
        if readers == 2 {
            assert_eq!(names(&r), ["perl"], "{r:#?}");
            continue;
        }
        assert_eq!(names(&r), ["perl", "load"], "{r:#?}");
        assert_eq!(r.root_causes[0].process.as_deref(), Some("load"));
        assert!(what(&r.root_causes[1]).contains("EAGAIN"), "{r:#?}");
    }
}

#[test]
fn a_server_that_has_no_descriptors_left_tries_in_vain() {
    let mut d = Drawing::new(14.0);
    let server = d.process("server", "server", None, 0.0);
    let socket = d.object(ObjectKind::Tcp, 5, 0, "tcp 127.0.0.1:80");
    let stack = d.stack(&["accept4 (libc.so.6)", "main (server)"]);
    d.runs(server, 1.0, 13.0, stack);
    for i in 0..100 {
        d.call(server, 2.0 + 0.001 * f64::from(i), "poll", socket, 1);
        d.call(server, 2.000_5 + 0.001 * f64::from(i), "accept4", socket, -24);
    }
    let r = d.diagnose("^server$");
    let why = &r.root_causes[0].why;
    assert!(why.contains("accept4") && why.contains("EMFILE") && why.contains("RLIMIT_NOFILE"), "{why}");
}

/// The control group has no memory left: who raised its limit ended that, and did not cause it.
#[test]
fn a_limit_of_memory_is_the_cause() {
    for (function, words) in
        [("mem_cgroup_oom_synchronize", "memory.oom_control"), ("mem_cgroup_handle_over_high", "memory.high")]
    {
        let mut d = Drawing::new(14.0);
        let app = d.process("app", "app", None, 0.0);
        let admin = d.process("admin", "admin", None, 0.0);
        d.wait(admin, 0.5, 12.0, "clock_nanosleep").times_out();
        let kernel = d.stack(&[&format!("{function} ([kernel])"), "exc_page_fault ([kernel])"]);
        let file = d.object(ObjectKind::File, 5, 0, "/app/memory.limit_in_bytes");
        d.wait(app, 1.0, 12.001, "read").in_no_call().in_kernel(kernel).by(admin, "write", file);
        let r = d.diagnose("^app$");
        let c = &r.root_causes[0];
        assert_eq!(c.process.as_deref(), Some("app"), "{r:#?}");
        assert!(c.why.contains(words), "{}", c.why);
        assert_eq!(names(&r), ["app"]);
    }
}

/// Who has what was looked up a second after the wait began, before the victim complained.
#[test]
fn what_was_found_of_a_wait_before_the_victim_waited_counts() {
    let mut d = Drawing::new(14.0);
    let client = d.process("curl", "curl", None, 0.0);
    let server = d.process("server", "server", None, 0.0);
    let wrapper = d.process("timeout", "timeout 12 xz", Some(server), 0.3);
    let xz = d.process("xz", "xz -9", Some(wrapper), 0.4);
    let (a, b) = (d.object(ObjectKind::UnixStream, 1, 2, ""), d.object(ObjectKind::UnixStream, 2, 1, ""));
    let any = d.object(ObjectKind::Child, 0, 0, "");
    let hash = d.stack(&["lzma_code (liblzma.so.5)", "main (xz)"]);
    d.runs(xz, 0.5, 12.4, hash);
    d.wait(wrapper, 0.5, 12.4, "rt_sigsuspend").timer();
    d.hold(xz, wrapper, ObjectId::NONE, Relation::ChildOf, 1.5);
    d.exit(xz, 12.41);
    d.wait(server, 0.5, 12.42, "wait4").on(any).by(wrapper, "exit_group", ObjectId::NONE);
    d.exit(wrapper, 12.42);
    d.message(client, a, Direction::Send, 1.999, 10);
    d.wait(client, 2.0, 12.43, "recvfrom").on(a).by(server, "sendto", b);
    let r = d.diagnose("^curl$");
    assert_eq!(names(&r), ["curl", "server", "timeout", "xz"], "{r:#?}");
    assert_eq!(r.root_causes[0].process.as_deref(), Some("xz"));
}

/// Who tries in vain is more likely what a person complains about than who computes; a server whose children end with an
/// error each is not.
#[test]
fn who_tries_in_vain_comes_before_who_computes() {
    for (line, first) in [("curl http://x", "bash"), ("bash job.sh", "gzip")] {
        let mut d = Drawing::new(12.6);
        let shell = d.process("bash", "bash job.sh", None, 0.0);
        tries(&mut d, shell, line);
        let gzip = d.process("gzip", "gzip -9", None, 0.0);
        d.wait(gzip, 0.0, 2.0, "read").before().times_out();
        let hash = d.stack(&["deflate (gzip)", "main (gzip)"]);
        d.runs(gzip, 2.0, 12.6, hash);
        let (g, c) = d.build();
        let v = victims(&g, &c, &VictimOptions::default());
        let name = c.thread(v[0].thread).map(|t| t.name.as_str());
        assert_eq!(name, Some(first), "{line}: {}", v[0].summary);
    }
}
