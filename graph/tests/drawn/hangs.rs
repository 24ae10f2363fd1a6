//! Hangs drawn as tiny recordings, each of a kind that real programs show, with the known cause.

use crate::draw::{Drawing, slice, what};
use pg_event::{Direction, OPEN_FLAGS, ObjectId, ObjectKind, OffState, Relation};
use pg_graph::{BlockType, Options, Selection, VictimOptions, run_with_policy, select};

/// A single-threaded server computes for one client; another one waits for its answer.
#[test]
fn server_busy_with_another_client() {
    let mut d = Drawing::new(20.0);
    let server = d.process("keyd", "keyd *:0", None, 0.0);
    let eval = d.process("cli", "cli eval loop", None, 0.9);
    let get = d.process("cli", "cli get k", None, 1.9);
    let (es, se) =
        (d.object(ObjectKind::UnixStream, 1, 2, ""), d.object(ObjectKind::UnixStream, 2, 1, "/run/key.sock"));
    let (gs, sg) =
        (d.object(ObjectKind::UnixStream, 3, 4, ""), d.object(ObjectKind::UnixStream, 4, 3, "/run/key.sock"));
    let epoll = d.object(ObjectKind::Epoll, 9, 0, "");
    let lua = d.stack(&[
        "luaV_execute (keyd)",
        "luaD_call (keyd)",
        "evalCommand (keyd)",
        "processEvents (keyd)",
        "main (keyd)",
    ]);
    let lua2 = d.stack(&["luaH_get (keyd)", "luaV_execute (keyd)", "evalCommand (keyd)", "main (keyd)"]);
    d.wait(server, 0.0, 1.0, "epoll_wait").on(epoll).before().by(eval, "write", es);
    d.message(eval, es, Direction::Send, 1.0, 10);
    d.message(server, se, Direction::Receive, 1.001, 10);
    d.runs(server, 1.01, 10.0, lua);
    d.runs(server, 10.0, 15.0, lua2);
    d.wait(eval, 1.002, 15.0, "recvfrom").on(es).by(server, "write", se);
    d.message(get, gs, Direction::Send, 2.0, 10);
    d.wait(get, 2.001, 15.1, "recvfrom").on(gs).by(server, "write", sg);
    d.wait(server, 15.2, 20.0, "epoll_wait").on(epoll).open();
    let r = d.diagnose("^cli get");
    assert_eq!(r.victim.block_type, BlockType::LongWait);
    assert_eq!(slice(&r), ["keyd *:0"]);
    let c = &r.root_causes[0];
    assert_eq!(c.process.as_deref(), Some("keyd"));
    assert_eq!(c.block_type, Some(BlockType::LongRunning));
    assert_eq!((c.function.as_deref(), c.module.as_deref()), (Some("luaV_execute"), Some("keyd")));
    assert!(c.why.contains("luaV_execute (keyd), which executes Lua code"), "{}", c.why);
    assert!(c.why.contains("cli eval loop"), "{}", c.why);
    assert!(r.questions.is_empty());
}

/// A client polls its connection again and again; a worker waits for a file lock; another worker computes.
#[test]
fn lock_of_a_computing_worker() {
    let mut d = Drawing::new(20.0);
    let a = d.process("php", "php -S", None, 0.0);
    let b = d.process("php", "php -S", None, 0.0);
    let curl = d.process("curl", "curl -s http://x/fast", None, 1.9);
    let conn = d.object(ObjectKind::Tcp, 101, 202, "");
    let far = d.object(ObjectKind::Tcp, 202, 101, "");
    let listen = d.object(ObjectKind::Tcp, 202, 0, "");
    let lock = d.object(ObjectKind::FileLock, 7, 8, "/tmp/sess_abc");
    let hash = d.stack(&["sha256_transform (php)", "execute_ex (php)", "main (php)"]);
    d.wait(a, 0.0, 1.0, "accept4").on(listen).before().times_out();
    d.runs(a, 1.0, 15.0, hash);
    d.wait(b, 0.0, 2.0, "accept4").on(listen).before().by_packet(curl, "connect", conn);
    d.wait(b, 2.01, 15.0, "flock").on(lock).by(a, "flock", lock);
    let set = d.set(&[conn]);
    let mut t = 2.005;
    while t + 1.0 < 15.0 {
        d.wait(curl, t, t + 1.0, "poll").on(set).times_out();
        t += 1.0001;
    }
    d.wait(curl, t, 15.01, "poll").on(set).by_packet(b, "sendto", far);
    d.wait(a, 15.001, 20.0, "accept4").on(listen).open();
    d.wait(b, 15.02, 20.0, "accept4").on(listen).open();
    let r = d.diagnose("^curl ");
    assert!(r.victim.duration_ns > 12_900_000_000);
    assert_eq!(
        r.slice.iter().map(|n| n.state.as_str()).collect::<Vec<_>>(),
        ["blocked", "blocked", "running"]
    );
    assert_eq!(r.slice[1].waits_on.as_deref(), Some("file-lock"));
    assert_eq!(r.slice[1].object.as_deref(), Some("/tmp/sess_abc"));
    let c = &r.root_causes[0];
    assert_eq!(c.block_type, Some(BlockType::LongRunning));
    assert!(what(c).contains("sha256_transform"));
    assert!(c.why.contains("/tmp/sess_abc"), "{}", c.why);
}

/// A parent waits for a child that cannot write: nobody reads the pipe. A signal ends it.
#[test]
fn circle_of_wait_and_full_pipe() {
    for with_facts in [true, false] {
        let mut d = Drawing::new(20.0);
        let timeout = d.process("timeout", "timeout 15 python p.py", None, 0.0);
        let python = d.process("python", "python p.py", Some(timeout), 0.1);
        let find = d.process("find", "find /usr", Some(python), 0.3);
        let pipe = d.object(ObjectKind::Pipe, 55, 55, "");
        let child = d.object(ObjectKind::Child, 1002, 0, "");
        let write = d.stack(&["__write (libc.so.6)", "print_path (find)", "main (find)"]);
        d.spawn(python, find, 0.3);
        d.wait(find, 0.5, 15.2, "write").on(pipe).stack(write).by(python, "exit_group", ObjectId::NONE);
        d.wait(python, 0.4, 15.1, "wait4").on(child).by(timeout, "kill", ObjectId::NONE);
        if with_facts {
            d.hold(find, python, child, Relation::ChildOf, 1.4);
            d.hold(python, find, pipe, Relation::Reads, 1.5);
        }
        d.exit(python, 15.15);
        d.wait(timeout, 0.2, 15.0, "rt_sigsuspend").times_out();
        let r = d.diagnose("^python p.py$");
        assert_eq!(r.victim.process, "python");
        assert_eq!(slice(&r), ["find /usr"]);
        let c = &r.root_causes[0];
        assert_eq!(c.process.as_deref(), Some("find"), "{r:#?}");
        assert_eq!(c.function.as_deref(), Some("print_path"));
        assert!(c.why.contains("circular") && c.why.contains("nobody reads"), "{}", c.why);
        assert_eq!(c.object.as_deref(), Some("pipe:[55]"));
        assert!(r.questions.len() <= 1);
    }
}

/// A debugger sits at its prompt; the traced server answers nobody.
#[test]
fn traced_server() {
    let mut d = Drawing::new(20.0);
    let server = d.process("keyd", "keyd *:0", None, 0.0);
    let shell = d.process("bash", "bash run", None, 0.0);
    let gdb = d.process("gdb", "gdb -p 1000", None, 0.0);
    let sleep = d.process("sleep", "sleep 14", Some(shell), 0.0);
    let cli = d.process("cli", "cli ping", None, 1.9);
    let (c, s) =
        (d.object(ObjectKind::UnixStream, 1, 2, ""), d.object(ObjectKind::UnixStream, 2, 1, "/run/key.sock"));
    let pipe = d.object(ObjectKind::Pipe, 5, 5, "");
    let any = d.object(ObjectKind::Child, 0, 0, "");
    d.wait(sleep, 0.1, 15.0, "clock_nanosleep").before().times_out();
    d.exit(sleep, 15.0005);
    d.wait(shell, 0.1, 15.001, "wait4").on(any).before().by(sleep, "exit_group", ObjectId::NONE);
    d.wait(gdb, 1.0, 15.002, "poll").on(pipe).by(shell, "write", pipe);
    d.wait(server, 1.0, 15.003, "epoll_wait").state(OffState::Traced).by(gdb, "ptrace", ObjectId::NONE);
    d.wait(cli, 2.0, 15.004, "recvfrom").on(c).by(server, "write", s);
    let r = d.diagnose("^cli ping");
    assert_eq!(slice(&r), ["keyd *:0", "gdb -p 1000", "bash run", "sleep 14"]);
    assert_eq!(r.slice[1].state, "stopped");
    assert_eq!(r.slice[1].waits_on.as_deref(), Some("ptrace"));
    assert_eq!(r.root_causes[0].process.as_deref(), Some("gdb"));
    assert!(r.root_causes[0].why.contains("ptrace"), "{}", r.root_causes[0].why);
    assert_eq!(r.root_causes[1].process.as_deref(), Some("sleep"));
}

/// A resolver thread asks a name server that never answers, twice; the main thread polls for it. Who is there is known by the
/// socket's state, or by who took the messages.
#[test]
fn unanswered_datagram() {
    for (holder, taken, first) in [(true, true, "socat"), (false, true, "socat"), (false, false, "curl")] {
        let mut d = Drawing::new(20.0);
        let socat = d.process("socat", "socat UDP4-RECV:53,bind=127.0.0.9", None, 0.0);
        let main = d.process("curl", "curl http://build", None, 1.0);
        let resolver = d.thread(main, "curl", 1.1);
        let local = pg_event::endpoint_v4(0x7f00_0001, 4000);
        let udp = d.object(ObjectKind::Udp, local, pg_event::endpoint_v4(0x7f00_0009, 53), "");
        let at = d.object(ObjectKind::Udp, pg_event::endpoint_v4(0x7f00_0009, 53), 0, "");
        let pair = d.object(ObjectKind::UnixStream, 1, 2, "");
        let pair2 = d.object(ObjectKind::UnixStream, 2, 1, "");
        let look = d.stack(&[
            "poll (libc.so.6)",
            "send_dg (libc.so.6)",
            "getaddrinfo (libc.so.6)",
            "work (libcurl.so.4)",
        ]);
        d.spawn(main, resolver, 1.1);
        let set = d.set(&[udp]);
        let wake = d.set(&[pair]);
        d.wait(resolver, 1.2, 6.2, "poll").on(set).stack(look).times_out();
        d.wait(resolver, 6.2001, 11.2001, "poll").on(set).stack(look).times_out();
        let mut t = 1.2;
        for _ in 0..9 {
            d.wait(main, t, t + 1.0, "poll").on(wake).times_out();
            t += 1.0001;
        }
        d.wait(main, t, 11.21, "poll").on(wake).by(resolver, "sendto", pair2);
        d.exit(resolver, 11.215);
        d.exit(main, 11.22);
        d.wait(socat, 0.5, 1.19, "pselect6").on(at).before().by_packet(resolver, "sendmmsg", udp);
        // The second try wakes the server again: it reads, and goes back to wait for whatever comes next.
        d.wait(socat, 1.191, 6.1999, "pselect6").on(at).by_packet(resolver, "sendmmsg", udp);
        d.wait(socat, 6.21, 20.0, "pselect6").on(at).open();
        for t in [1.189, 6.1998] {
            d.message(resolver, udp, Direction::Send, t, 35);
            if taken {
                d.message(socat, at, Direction::Receive, t + 0.002, 35);
            }
        }
        if holder {
            d.hold(socat, resolver, udp, Relation::Peer, 2.2);
        }
        let r = d.diagnose("^curl ");
        let c = &r.root_causes[0];
        assert_eq!(c.process.as_deref(), Some(first), "{r:#?}");
        assert!(what(c).contains("127.0.0.9:53"), "{}", what(c));
        assert!(r.root_causes.iter().take(2).any(|c| what(c).contains("getaddrinfo")));
        assert!(!r.root_causes.iter().any(|c| c.why.contains("circular")), "{r:#?}");
        assert!(r.questions.len() <= 1);
    }
}

/// A message bus starts a service, which waits for a lock that a job holds for as long as it sleeps.
#[test]
fn activation_waits_for_a_lock() {
    let mut d = Drawing::new(20.0);
    let job = d.process("flock", "flock lock sleep 15", None, 0.0);
    let sleep = d.process("sleep", "sleep 15", Some(job), 0.0);
    let bus = d.process("busd", "busd --nofork", None, 0.0);
    let call = d.process("send", "send Slow.Ping", None, 1.9);
    let starter = d.process("flock", "flock lock echo-service", Some(bus), 2.01);
    let service = d.process("echo-service", "echo-service", Some(starter), 15.02);
    let lock = d.object(ObjectKind::FileLock, 7, 8, "/tmp/lock");
    let any = d.object(ObjectKind::Child, 0, 0, "");
    let epoll = d.object(ObjectKind::Epoll, 9, 0, "");
    let (c, s) =
        (d.object(ObjectKind::UnixStream, 1, 2, ""), d.object(ObjectKind::UnixStream, 2, 1, "/tmp/bus"));
    let (e, f) =
        (d.object(ObjectKind::UnixStream, 3, 4, ""), d.object(ObjectKind::UnixStream, 4, 3, "/tmp/bus"));
    d.wait(sleep, 0.1, 15.0, "clock_nanosleep").before().times_out();
    d.exit(sleep, 15.0005);
    d.wait(job, 0.1, 15.001, "wait4").on(any).before().by(sleep, "exit_group", ObjectId::NONE);
    d.exit(job, 15.005);
    d.wait(bus, 0.1, 2.0, "epoll_wait").on(epoll).before().by(call, "sendmsg", c);
    d.spawn(bus, starter, 2.01);
    d.wait(call, 2.001, 15.06, "poll").on(c).by(bus, "sendmsg", s);
    d.wait(starter, 2.02, 15.01, "flock").on(lock).by(job, "exit_group", ObjectId::NONE);
    d.spawn(starter, service, 15.02);
    d.wait(starter, 15.021, 20.0, "wait4").on(any).open();
    d.wait(bus, 2.02, 15.03, "epoll_wait").on(epoll).by(service, "connect", e);
    d.wait(service, 15.031, 15.04, "recvmsg").on(e).by(bus, "sendmsg", f);
    d.wait(bus, 15.041, 15.05, "epoll_wait").on(epoll).by(service, "sendmsg", e);
    d.wait(service, 15.051, 20.0, "recvmsg").on(e).open();
    d.wait(bus, 15.07, 20.0, "epoll_wait").on(epoll).open();
    let r = d.diagnose("^send ");
    assert_eq!(
        slice(&r),
        ["busd --nofork", "echo-service", "flock lock echo-service", "flock lock sleep 15", "sleep 15"],
        "{r:#?}"
    );
    assert_eq!(r.slice[2].state, "not-created");
    assert_eq!(r.root_causes[0].cmdline.as_deref(), Some("sleep 15"));
    assert_eq!(r.root_causes[1].cmdline.as_deref(), Some("flock lock sleep 15"));
    assert!(r.root_causes[1].why.contains("lock"), "{}", r.root_causes[1].why);
}

/// Many short waits of a server for a slow file system, behind which a quick request waits.
#[test]
fn slow_file_system_behind_a_server() {
    let mut d = Drawing::new(20.0);
    let fuse = d.process("slowfs", "slowfs disk mnt", None, 0.0);
    let web = d.process("web", "web: worker", None, 0.0);
    let curl = d.process("curl", "curl index", None, 1.9);
    let conn = d.object(ObjectKind::Tcp, 101, 202, "");
    let far = d.object(ObjectKind::Tcp, 202, 101, "");
    let dev = d.object(ObjectKind::CharDevice, 229, 0, "/dev/fuse");
    let big = d.object(ObjectKind::File, 3, 4, "/mnt/big.bin");
    let mut t = 1.0;
    for _ in 0..28 {
        d.wait(fuse, t + 0.01, t + 0.49, "clock_nanosleep").times_out();
        d.wait(web, t, t + 0.495, "pread64").state(OffState::Uninterruptible).on(big).by(fuse, "writev", dev);
        t += 0.5;
    }
    d.wait(curl, 2.0, 15.01, "poll").on(conn).by_packet(web, "writev", far);
    let r = d.diagnose("^curl ");
    assert_eq!(slice(&r), ["web: worker", "slowfs disk mnt"]);
    assert_eq!(r.root_causes[0].process.as_deref(), Some("slowfs"));
    assert!(what(&r.root_causes[0]).contains("sleep"));
    assert!(r.slice[1].object.as_deref().is_some_and(|o| o.contains("big.bin")));
}

/// Nobody can wake it, and the recording ends: the wait itself is the cause, and that is said.
#[test]
fn futex_that_nobody_wakes() {
    let mut d = Drawing::new(20.0);
    let p = d.process("python", "python f.py", None, 0.0);
    let word = d.object(ObjectKind::Futex, 0x1000, 1, "");
    let stack = d.stack(&[
        "gomp_barrier_wait (libgomp.so.1)",
        "GOMP_parallel (libgomp.so.1)",
        "dgemm (libblas.so.3)",
    ]);
    d.wait(p, 1.0, 20.0, "futex").on(word).stack(stack).open();
    let r = d.diagnose("^python ");
    let c = &r.root_causes[0];
    assert_eq!(c.function.as_deref(), Some("gomp_barrier_wait"));
    assert!(c.why.contains("nobody"), "{}", c.why);
    assert_eq!(c.object.as_deref(), Some("futex 0x1000"));
}

/// A retry loop: short sleeps, each followed by another try; the lock's owner is known from the state.
#[test]
fn yield_loop_on_a_lock_held_by_a_sleeper() {
    let mut d = Drawing::new(20.0);
    let first = d.process("sql", "sql a.db", None, 0.0);
    let sleep = d.process("sleep", "sleep 15", Some(first), 0.0);
    let second = d.process("sql", "sql -cmd a.db", None, 1.9);
    let lock = d.object(ObjectKind::FileLock, 7, 8, "/tmp/a.db");
    let any = d.object(ObjectKind::Child, 0, 0, "");
    d.wait(sleep, 0.1, 15.0, "clock_nanosleep").before().times_out();
    d.exit(sleep, 15.0005);
    d.wait(first, 0.1, 15.001, "wait4").on(any).before().by(sleep, "exit_group", ObjectId::NONE);
    let mut t = 2.0;
    while t < 15.0 {
        d.wait(second, t, t + 0.1, "clock_nanosleep").times_out();
        t += 0.1001;
    }
    d.hold(first, second, lock, Relation::Owns, 3.0);
    let r = d.diagnose("^sql -cmd");
    assert_eq!(r.victim.block_type, BlockType::RepeatedYield);
    assert_eq!(slice(&r), ["sql a.db", "sleep 15"]);
    let ranks: Vec<_> = r.root_causes.iter().take(2).map(|c| c.cmdline.clone().unwrap()).collect();
    assert_eq!(ranks, ["sleep 15", "sql a.db"]);
}

/// The same loop, its failing tries recorded: the lock's owner was found for another one that waits for it.
#[test]
fn yield_loop_whose_failing_call_names_the_lock() {
    for known in [true, false] {
        let mut d = Drawing::new(20.0);
        let first = d.process("sql", "sql a.db", None, 0.0);
        let sleep = d.process("sleep", "sleep 15", Some(first), 0.0);
        let other = d.process("backup", "backup a.db", None, 0.0);
        let second = d.process("sql", "sql -cmd a.db", None, 1.9);
        let lock = d.object(ObjectKind::FileLock, 7, 8, "/tmp/a.db");
        let any = d.object(ObjectKind::Child, 0, 0, "");
        d.wait(sleep, 0.1, 15.0, "clock_nanosleep").before().times_out();
        d.exit(sleep, 15.0005);
        d.wait(first, 0.1, 15.001, "wait4").on(any).before().by(sleep, "exit_group", ObjectId::NONE);
        let mut t = 2.0;
        while t < 15.0 {
            d.wait(second, t, t + 0.1, "clock_nanosleep").times_out();
            d.call(second, t + 0.10005, "fcntl", lock, -11);
            t += 0.1001;
        }
        if known {
            d.hold(first, other, lock, Relation::Owns, 3.0);
        }
        let r = d.diagnose("^sql -cmd");
        assert_eq!(r.victim.block_type, BlockType::RepeatedYield);
        if known {
            assert_eq!(slice(&r), ["sql a.db", "sleep 15"]);
        } else {
            let why = &r.root_causes[0].why;
            assert!(why.contains("fcntl of /tmp/a.db failed each time (EAGAIN)"), "{why}");
            assert!(why.contains("who has that was not recorded") && why.contains("100 ms each"), "{why}");
        }
    }
}

/// A client asks an X-like server, which relays to an application stuck in a write nobody reads.
#[test]
fn relay_through_an_idle_server() {
    let mut d = Drawing::new(20.0);
    let x = d.process("xserver", "xserver :9", None, 0.0);
    let term = d.process("term", "term -l", None, 0.0);
    let reader = d.process("bash", "bash run.sh", None, 0.0);
    let sleep = d.process("sleep", "sleep 18", Some(reader), 0.0);
    let paste = d.process("paste", "paste -o", None, 1.9);
    let fifo = d.object(ObjectKind::Fifo, 5, 5, "/tmp/log");
    let any = d.object(ObjectKind::Child, 0, 0, "");
    let epoll = d.object(ObjectKind::Epoll, 9, 0, "");
    let (c, s) = (d.object(ObjectKind::UnixStream, 1, 2, ""), d.object(ObjectKind::UnixStream, 2, 1, "X9"));
    let (e, f) = (d.object(ObjectKind::UnixStream, 3, 4, ""), d.object(ObjectKind::UnixStream, 4, 3, "X9"));
    d.wait(sleep, 0.1, 16.0, "clock_nanosleep").before().times_out();
    d.exit(sleep, 16.0005);
    d.wait(reader, 0.1, 16.001, "wait4").on(any).before().by(sleep, "exit_group", ObjectId::NONE);
    d.wait(term, 1.0, 16.01, "write").on(fifo).by(reader, "read", fifo);
    d.wait(x, 0.5, 2.0, "epoll_wait").on(epoll).by(paste, "writev", c);
    d.wait(x, 2.01, 16.02, "epoll_wait").on(epoll).by(term, "writev", e);
    d.wait(paste, 2.001, 16.03, "poll").on(c).by(x, "writev", s);
    d.wait(term, 16.025, 20.0, "poll").on(f).open();
    let r = d.diagnose("^paste ");
    assert_eq!(slice(&r)[..2], ["xserver :9", "term -l"], "{r:#?}");
    assert!(r.root_causes.iter().take(2).any(|c| c.cmdline.as_deref() == Some("sleep 18")));
}

/// A thread that gives up the CPU again and again is in a yield loop, not computing.
#[test]
fn yield_loop_on_the_cpu() {
    let mut d = Drawing::new(20.0);
    let parent = d.process("python", "python f.py", None, 0.0);
    let child = d.process("python", "python f.py", Some(parent), 1.0);
    let any = d.object(ObjectKind::Child, 0, 0, "");
    let stack =
        d.stack(&["sched_yield (libc.so.6)", "gomp_team_start (libgomp.so.1)", "dgemm (libblas.so.3)"]);
    d.spawn(parent, child, 1.0);
    d.runs(child, 1.0, 15.0, stack);
    d.exit(child, 15.0);
    d.wait(parent, 1.001, 15.001, "wait4").on(any).by(child, "exit_group", ObjectId::NONE);
    d.exit(parent, 15.1);
    let (g, c) = d.build();
    let s = pg_graph::Selection { tid: Some(1001), ..pg_graph::Selection::default() };
    let v = pg_graph::select(&g, &c, &s, &pg_graph::VictimOptions::default()).unwrap();
    assert_eq!(v.block_type, BlockType::RepeatedYield);
    let s = pg_graph::Selection { tid: Some(1000), ..pg_graph::Selection::default() };
    let v = pg_graph::select(&g, &c, &s, &pg_graph::VictimOptions::default()).unwrap();
    let r = pg_graph::run_with_policy(&g, &c, v, pg_graph::Options::default());
    let first = &r.root_causes[0];
    assert_eq!((first.tid, first.block_type), (Some(1001), Some(BlockType::RepeatedYield)));
    assert_eq!(first.function.as_deref(), Some("gomp_team_start"));
    assert!(first.why.contains("nobody let it"), "{}", first.why);
}

/// `if (!child_done) pause()`: the signal came between the two. Who names the program is told; who waits for children that live,
/// or has other threads, has nothing unusual.
#[test]
fn a_signal_that_came_before_the_wait_for_it() {
    for (case, told) in [("lost", true), ("lives", false), ("threads", false)] {
        let mut d = Drawing::new(9.0);
        let launcher = d.process("launcher", "launcher", None, 0.0);
        let job = d.process("job", "job", Some(launcher), 0.02);
        if case == "threads" {
            let t = d.thread(launcher, "other", 0.01);
            d.wait(t, 0.02, 9.0, "epoll_wait").open();
        }
        if case == "lives" {
            d.wait(job, 0.03, 9.0, "epoll_wait").open();
        } else {
            d.wait(job, 0.03, 0.06, "clock_nanosleep").times_out();
            d.exit(job, 0.07);
            let p = d.catalog.threads[job.index()].process;
            d.catalog.processes[p.index()].end = Some(crate::draw::ns(0.07));
        }
        d.wait(launcher, 0.01, 0.08, "clock_nanosleep").times_out();
        d.wait(launcher, 0.09, 9.0, "pause").open();
        let (g, c) = d.build();
        let s = Selection { tid: Some(1000), ..Selection::default() };
        let found = select(&g, &c, &s, &VictimOptions::default());
        assert_eq!(found.is_ok(), told, "{case}: {found:?}");
        if let Ok(v) = found {
            assert_eq!(c.thread(v.thread).map(|t| t.tid), Some(1000), "{v:?}");
            let r = run_with_policy(&g, &c, v, Options::default());
            let why = &r.root_causes[0].why;
            let early = "the signal of the end of its last child, job (pid 1001), came before the wait did, at 0.070 s";
            assert!(why.contains(early), "{why}");
        }
    }
}

/// A thread that only naps may ask whether it may go on; one beside the first thread of its process may as well keep house.
#[test]
fn who_only_naps_may_keep_house() {
    for beside in [true, false] {
        let mut d = Drawing::new(9.0);
        let server = d.process("server", "server", None, 0.0);
        let t = if beside { d.thread(server, "lru", 0.1) } else { server };
        if beside {
            let epoll = d.object(ObjectKind::Epoll, 9, 0, "");
            d.wait(server, 0.1, 9.0, "epoll_wait").on(epoll).open();
        }
        let nap = d.stack(&["clock_nanosleep (libc.so.6)", "crawl (server)"]);
        d.naps(t, 0.2, 8.9, 0.05, nap);
        let r = d.diagnose("^server$");
        let c = &r.root_causes[0];
        assert_eq!(c.tid, Some(if beside { 1001 } else { 1000 }), "{r:#?}");
        assert_eq!(c.why.contains("only keeps house"), beside, "{}", c.why);
        assert_eq!(c.confidence < 0.6, beside, "{}", c.confidence);
    }
}

/// A program that is well: nothing abnormal.
#[test]
fn idle_loop_is_no_victim() {
    let mut d = Drawing::new(20.0);
    let server = d.process("keyd", "keyd *:0", None, 0.0);
    let epoll = d.object(ObjectKind::Epoll, 9, 0, "");
    let mut t = 0.0;
    while t < 19.8 {
        d.wait(server, t, t + 0.1, "epoll_wait").on(epoll).times_out();
        t += 0.1001;
    }
    let (g, c) = d.build();
    let s = pg_graph::Selection {
        process: Some(regex::Regex::new("keyd").unwrap()),
        ..pg_graph::Selection::default()
    };
    let e = pg_graph::select(&g, &c, &s, &pg_graph::VictimOptions::default());
    assert!(matches!(e, Err(pg_graph::SelectError::NothingAbnormal(_))), "{e:?}");
    let s = pg_graph::Selection { pid: Some(1), ..pg_graph::Selection::default() };
    let e = pg_graph::select(&g, &c, &s, &pg_graph::VictimOptions::default());
    let words = e.unwrap_err().to_string();
    assert!(words.contains("--pid 1"), "{words}");
}

/// A long wait is told of while it lasts, should the recording be cut off; its end replaces that.
#[test]
fn a_wait_told_of_twice_is_one() {
    let mut d = Drawing::new(20.0);
    let a = d.process("app", "app", None, 0.0);
    let b = d.process("other", "other", None, 0.0);
    let pipe = d.object(ObjectKind::Pipe, 5, 5, "");
    d.wait(a, 1.0, 9.0, "read").on(pipe).told(1.5);
    d.wait(a, 1.0, 9.0, "read").on(pipe).by(b, "write", pipe);
    let (g, _) = d.build();
    let t = g.threads().next().unwrap();
    let v: Vec<_> = g.vertices_of(t).map(|v| g.vertex(v)).collect();
    assert_eq!(v.len(), 2, "{v:?}");
    assert_eq!((v[1].start, v[1].woken, v[1].open), (1_000_000_000, 9_000_000_000, false));
    assert!(g.waking(g.vertices_of(t).next_back().unwrap()).is_some());
}

/// A thread keeps a mutex and waits for a signal: it does not release it, which is no message unsent.
#[test]
fn idle_owner_of_a_mutex() {
    let mut d = Drawing::new(20.0);
    let main = d.process("shop", "shop --all", None, 0.0);
    let owner = d.thread(main, "keeper", 0.0);
    let (mutex, held) = (d.object(ObjectKind::Futex, 0x1000, 0, ""), d.stack(&["compact (shop)"]));
    d.wait(owner, 0.1, 20.0, "pause").before().stack(held).open();
    d.wait(main, 3.0, 20.0, "futex").on(mutex).open();
    d.hold(owner, main, mutex, Relation::Owns, 4.0);
    let why = d.diagnose("^shop ").root_causes.remove(0).why;
    let starts = "has futex 0x1000 and did not release it: it waited in pause";
    assert!(why.contains(starts) && why.contains(", called from compact, while"), "{why}");
}

/// Both ends of a FIFO are opened together; who opens it alone waits for no disk.
#[test]
fn nobody_opens_the_other_end() {
    for (flags, words) in [(0, ", for writing"), (1, ", for reading"), (2, "")] {
        let mut d = Drawing::new(20.0);
        let shell = d.process("sh", "sh reader", None, 0.0);
        let file = d.object(ObjectKind::File, 7, 0, "queue");
        let kernel = d.stack(&["wait_for_partner ([kernel])", "fifo_open ([kernel])"]);
        let wait = d.wait(shell, 1.0, 20.0, "openat").on(file).op(OPEN_FLAGS | 0x8_0000 | flags, 0);
        wait.in_kernel(kernel).open();
        let why = d.diagnose("^sh ").root_causes.remove(0).why;
        assert!(why.contains(&format!("nobody has opened the other end of this FIFO{words}.")), "{why}");
    }
}

/// A server that waits for the other end of a FIFO to be opened does not wait for requests.
#[test]
fn a_server_that_opens_a_fifo_has_something_to_do() {
    for fifo in [true, false] {
        let mut d = Drawing::new(20.0);
        let client = d.process("ask", "ask srv", None, 0.0);
        let server = d.process("srv", "srv 80", None, 0.0);
        let (own, far) = (d.object(ObjectKind::Tcp, 1, 2, ""), d.object(ObjectKind::Tcp, 2, 1, ""));
        d.message(client, own, Direction::Send, 0.9, 7);
        d.message(server, far, Direction::Receive, 0.95, 7);
        let kernel = d.stack(&["wait_for_partner ([kernel])", "fifo_open ([kernel])"]);
        let file = d.object(ObjectKind::File, 7, 0, "/run/queue");
        let epoll = d.object(ObjectKind::Epoll, 9, 0, "");
        if fifo {
            d.wait(server, 1.0, 20.0, "openat").on(file).in_kernel(kernel).open();
        } else {
            d.wait(server, 1.0, 20.0, "epoll_wait").on(epoll).open();
        }
        d.wait(client, 0.91, 20.0, "read").on(own).open();
        d.hold(server, client, own, Relation::Peer, 2.0);
        let r = d.diagnose("^ask ");
        let said = &r.root_causes[0];
        assert_eq!(said.process.as_deref(), Some("srv"), "{r:#?}");
        assert_eq!(said.why.contains("nobody has opened the other end of this FIFO"), fifo, "{r:#?}");
        assert_eq!(said.why.contains("it was idle"), !fifo, "{r:#?}");
    }
}

/// A server that has accepted one connection sleeps instead of accepting the next: until its only child has ended, perhaps.
#[test]
fn a_listener_that_sleeps_may_wait_for_its_child() {
    for children in [0, 1, 2] {
        let mut d = Drawing::new(9.0);
        let client = d.process("ask", "ask srv", None, 0.0);
        let server = d.process("srv", "srv 80", None, 0.0);
        for _ in 0..children {
            let child = d.process("serve", "serve", Some(server), 0.0);
            d.wait(child, 0.0, 9.0, "pause").before().open();
        }
        let own = d.object(ObjectKind::Tcp, 0x7f00_0001_c350, 0x7f00_0001_0050, "");
        d.wait(server, 0.0, 9.0, "clock_nanosleep").before().open();
        d.message(client, own, Direction::Send, 0.9, 7);
        d.wait(client, 1.0, 9.0, "read").on(own).open();
        d.hold(server, client, own, Relation::Listens, 2.0);
        let r = d.diagnose("^ask ");
        let why = &r.root_causes[0].why;
        let told = why.contains("; it has one child, serve (pid 1002), and may wait for that to end");
        assert_eq!(told, children == 1, "{why}");
        assert!(why.contains("slept"), "{why}");
    }
}

/// Who waits for a child's end has not asked it for anything.
#[test]
fn a_child_that_idles_did_not_end() {
    let mut d = Drawing::new(9.0);
    let shell = d.process("sh", "sh run", None, 0.0);
    let child = d.process("serve", "serve", Some(shell), 0.5);
    let epoll = d.object(ObjectKind::Epoll, 9, 0, "");
    d.wait(child, 0.6, 9.0, "epoll_wait").on(epoll).open();
    d.wait(shell, 0.7, 9.0, "wait4").open();
    d.hold(child, shell, ObjectId::NONE, Relation::ChildOf, 2.0);
    let r = d.diagnose("^sh ");
    let said = &r.root_causes[0];
    assert_eq!(said.process.as_deref(), Some("serve"), "{r:#?}");
    assert!(said.why.contains("was waited for and did not end: it was idle"), "{}", said.why);
}

/// Many threads queue for one lock, which one of them had for long: the queue is one step, whoever had the
/// lock before them all is the cause.
#[test]
fn a_queue_for_a_lock_is_one_step() {
    const QUEUE: usize = 100;
    let mut d = Drawing::new(10.0);
    let main = d.process("many", "many", None, 0.0);
    let slow = d.thread(main, "slow", 0.0);
    let lock = d.object(ObjectKind::Futex, 0x10, 0, "");
    let mutex = d.stack(&["___pthread_mutex_lock (libc.so.6)", "work (many)"]);
    let compute = d.stack(&["compute (many)", "work (many)"]);
    d.wait(slow, 0.0, 0.5, "clock_nanosleep").before().times_out();
    d.runs(slow, 0.5, 6.0, compute);
    let mut before = slow;
    for i in 0..QUEUE {
        let t = d.thread(main, &format!("w{i}"), 0.0);
        let start = 0.6 + i as f64 * 0.001;
        d.wait(t, 0.0, start, "clock_nanosleep").before().times_out();
        let woken = 6.0 + i as f64 * 0.001;
        d.wait(t, start, woken, "futex").on(lock).stack(mutex).by(before, "futex", lock);
        before = t;
    }
    let r = d.diagnose("w99");
    assert_eq!(r.victim.thread, "w99");
    assert_eq!(r.slice.len(), 2, "{:?}", r.slice);
    assert_eq!(r.root_causes[0].thread.as_deref(), Some("slow"));
    assert_eq!(r.root_causes[0].function.as_deref(), Some("compute"));
    let why = r.slice[1].why_weak.as_deref().unwrap_or_default();
    assert!(why.contains("99 threads that queued for it"), "{why}");
}

/// A program waits for the same twice: for long until another one has done something, and then for a moment until the disk
/// has. The long one is the hang.
#[test]
fn a_short_wait_after_the_long_one_is_no_part_of_the_hang() {
    let mut d = Drawing::new(12.0);
    let insert = d.process("insert", "insert", None, 0.0);
    let keeper = d.process("keeper", "keeper", None, 0.0);
    let file = d.object(ObjectKind::File, 7, 8, "/vol/db");
    let work = d.stack(&["compute (keeper)", "main (keeper)"]);
    let commit = d.stack(&["log_wait_commit ([kernel])", "sync_file ([kernel])"]);
    let flush = d.stack(&["blk_wait_io ([kernel])", "sync_file ([kernel])"]);
    d.runs(keeper, 0.0, 11.0, work);
    let disk = OffState::Uninterruptible;
    d.wait(insert, 0.05, 11.0, "fdatasync").on(file).in_kernel(commit).state(disk).by(
        keeper,
        "write",
        ObjectId::NONE,
    );
    d.wait(insert, 11.000_1, 11.000_2, "fdatasync").on(file).in_kernel(flush).state(disk).timer();
    d.exit(insert, 11.001);
    let r = d.diagnose("^insert$");
    assert_eq!(r.root_causes[0].process.as_deref(), Some("keeper"), "{r:#?}");
}
