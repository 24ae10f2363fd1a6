//! Which victim is shown first: the one that a person would complain about.

use crate::draw::{Drawing, PRIVATE_WAIT};
use pg_event::{Direction, ObjectId, ObjectKind, OffState, Relation, ThreadId, endpoint_v4};
use pg_graph::{BlockType, Options, Selection, VictimOptions, also_hung, run_with_policy, select, victims};

/// Two clients wait for the same busy server: the first one's request is what it computes, so the second one
/// is who hangs for no reason of its own. The script around them, its sleep and idle workers come later.
#[test]
fn who_queues_behind_comes_before_who_is_served() {
    let mut d = Drawing::new(20.0);
    let script = d.process("bash", "bash run.sh", None, 0.0);
    let server = d.process("keyd", "keyd *:0", Some(script), 0.0);
    let eval = d.process("cli", "cli eval loop", Some(script), 0.9);
    let get = d.process("cli", "cli get k", Some(script), 1.9);
    let sleep = d.process("sleep", "sleep 19", Some(script), 0.0);
    let idle: Vec<_> = (0..3).map(|_| d.thread(server, "bio", 0.0)).collect();
    let (es, se) =
        (d.object(ObjectKind::UnixStream, 1, 2, ""), d.object(ObjectKind::UnixStream, 2, 1, "/run/k"));
    let (gs, sg) =
        (d.object(ObjectKind::UnixStream, 3, 4, ""), d.object(ObjectKind::UnixStream, 4, 3, "/run/k"));
    let any = d.object(ObjectKind::Child, 0, 0, "");
    let lua = d.stack(&["luaV_execute (keyd)", "main (keyd)"]);
    d.runs(server, 1.0, 15.0, lua);
    d.message(eval, es, Direction::Send, 1.0, 10);
    d.wait(eval, 1.002, 15.0, "recvfrom").on(es).by(server, "write", se);
    d.message(get, gs, Direction::Send, 2.0, 10);
    d.wait(get, 2.001, 15.1, "recvfrom").on(gs).by(server, "write", sg);
    d.wait(script, 0.5, 19.5, "wait4").on(any).by(sleep, "exit_group", ObjectId::NONE);
    d.wait(sleep, 0.4, 19.4, "clock_nanosleep").times_out();
    for (i, t) in idle.into_iter().enumerate() {
        let word = d.object(ObjectKind::Futex, 0x100 + i as u64, 1, "");
        d.wait(t, 0.1, 20.0, "futex").on(word).op(393, 0).open();
    }
    let (g, c) = d.build();
    let all = victims(&g, &c, &VictimOptions::default());
    let rank = |t| all.iter().position(|v| v.thread == t).unwrap_or(usize::MAX);
    assert_eq!(rank(get), 0, "{:#?}", all.iter().map(|v| (&v.summary, v.score)).collect::<Vec<_>>());
    assert!(rank(get) < rank(eval) && rank(eval) < rank(script));
    assert!(rank(get) < rank(sleep));
}

/// A retry loop counts as one, also when its tries stand in the queue for a CPU; the shell around it does not.
#[test]
fn a_retry_loop_on_a_busy_machine_is_one() {
    let mut d = Drawing::new(20.0);
    let script = d.process("bash", "bash run.sh", None, 0.0);
    let sql = d.process("sql", "sql a.db", Some(script), 1.0);
    let any = d.object(ObjectKind::Child, 0, 0, "");
    let mut t = 2.0;
    while t < 16.0 {
        d.wait(sql, t, t + 0.1, "clock_nanosleep").queued(0.04).times_out();
        t += 0.1405;
    }
    d.exit(sql, 16.5);
    d.wait(script, 1.1, 16.6, "wait4").on(any).by(sql, "exit_group", ObjectId::NONE);
    let (g, c) = d.build();
    let all = victims(&g, &c, &VictimOptions::default());
    assert_eq!(all[0].thread, sql);
    assert!(all[0].duration > 13_500_000_000, "{}", all[0].duration);
}

/// Who sleeps a second between tries for a lock is who complains, and not the shell around it, nor who has the lock and
/// waits for a job; that its tries fail is enough. A sleep that is for no lock, or for one of its own, is not preferred.
#[test]
fn who_tries_for_a_lock_again_and_again_is_the_victim() {
    for found in ["owner", "refusal", "nobody", "itself"] {
        let mut d = Drawing::new(20.0);
        let script = d.process("bash", "bash run.sh", None, 0.0);
        let first = d.process("pkg", "pkg install a", Some(script), 0.5);
        let job = d.process("job", "job", Some(first), 0.6);
        let second = d.process("pkg", "pkg install b", Some(script), 1.0);
        let (any, child) = (d.object(ObjectKind::Child, 0, 0, ""), d.object(ObjectKind::Child, 1002, 0, ""));
        let lock = d.object(ObjectKind::FileLock, 7, 1, "/run/lock");
        d.wait(job, 0.7, 16.0, "clock_nanosleep").times_out();
        d.exit(job, 16.0);
        d.wait(first, 0.7, 16.1, "wait4").on(child).by(job, "exit_group", ObjectId::NONE);
        d.hold(job, first, child, Relation::ChildOf, 2.0);
        let mut t = 1.1;
        while t < 16.1 {
            if found == "refusal" {
                d.call(second, t, "fcntl", lock, -11);
            }
            d.wait(second, t + 0.001, t + 1.0, "clock_nanosleep").times_out();
            t += 1.002;
        }
        match found {
            "owner" => d.hold(first, second, lock, Relation::Owns, 5.0),
            "itself" => d.hold(second, second, lock, Relation::Owns, 5.0),
            _ => {}
        }
        d.exit(second, 16.4);
        d.wait(script, 1.05, 16.5, "wait4").on(any).by(second, "exit_group", ObjectId::NONE);
        let (g, c) = d.build();
        let all = victims(&g, &c, &VictimOptions::default());
        assert_eq!(all[0].thread == second, matches!(found, "owner" | "refusal"), "{found}: {all:#?}");
    }
}

/// One write of a big file to a slow file system: no single wait is long, all of them together are.
#[test]
fn the_pieces_of_one_transfer_are_one_wait() {
    let (d, dd) = transfer();
    let (g, c) = d.build();
    let all = victims(&g, &c, &VictimOptions::default());
    let worst =
        all.iter().find(|v| v.thread == dd && v.episode.key.is_some()).expect("dd waited for four seconds");
    assert_eq!(worst.block_type, BlockType::LongWait);
    assert!(worst.duration > 3_800_000_000, "{worst:?}");
    let r = transfer().0.diagnose("^dd ");
    assert_eq!(r.root_causes[0].process.as_deref(), Some("slowfs"), "{:#?}", r.root_causes);
}

fn transfer() -> (Drawing, ThreadId) {
    let mut d = Drawing::new(10.0);
    let fuse = d.process("slowfs", "slowfs disk mnt", None, 0.0);
    let dd = d.process("dd", "dd of=mnt/big", None, 0.5);
    let dev = d.object(ObjectKind::CharDevice, 229, 0, "/dev/fuse");
    let big = d.object(ObjectKind::File, 3, 4, "/mnt/big");
    for i in 0..60 {
        let t = 1.0 + f64::from(i) * 0.065;
        d.wait(fuse, t + 0.001, t + 0.060, "clock_nanosleep").times_out();
        d.wait(dd, t, t + 0.062, "write").state(OffState::Uninterruptible).on(big).by(fuse, "writev", dev);
    }
    d.exit(dd, 4.91);
    (d, dd)
}

/// A name fits threads of the whole machine: those that the recording is about are meant, though others hung longer;
/// if none of them hung the report says that it is about somebody else.
#[test]
fn a_name_means_those_in_the_focus_first() {
    let drawn = |own_hangs: bool| {
        let mut d = Drawing::new(20.0);
        let own = d.process("python3", "python3 shop.py", None, 0.0);
        let other = d.process("python3", "python3 backup.py", None, 0.0);
        for t in [&mut d.catalog.threads[other.index()].focus, &mut d.catalog.processes[1].focus] {
            *t = false;
        }
        let pipes: Vec<_> = (5..7).map(|i| d.object(ObjectKind::Pipe, i, i, "")).collect();
        let until = if own_hangs { 5.0 } else { 0.1 };
        d.wait(own, until + 0.1, 20.0, "pause").open();
        d.wait(own, 0.05, until, "write").on(pipes[0]).by(other, "read", pipes[0]);
        d.wait(other, 0.1, 19.9, "write").on(pipes[1]).by(own, "read", pipes[1]);
        d.build()
    };
    let of = |own_hangs: bool, s: Selection| {
        let (g, c) = drawn(own_hangs);
        let v = select(&g, &c, &s, &VictimOptions::default()).unwrap();
        let r = run_with_policy(&g, &c, v, Options::default());
        (r.victim.cmdline, r.victim.outside_focus)
    };
    let named =
        |text: &str| Selection { process: Some(regex::Regex::new(text).unwrap()), ..Selection::default() };
    assert_eq!(of(true, named("python3")), ("python3 shop.py".into(), false));
    assert_eq!(
        of(true, Selection { at: Some(crate::draw::ns(3.0)), ..named("python3") }).0,
        "python3 shop.py"
    );
    assert_eq!(
        of(true, Selection { at: Some(crate::draw::ns(9.0)), ..named("python3") }),
        ("python3 backup.py".into(), true)
    );
    assert_eq!(of(false, named("python3")), ("python3 backup.py".into(), true));
    assert_eq!(of(true, named("backup")), ("python3 backup.py".into(), true));
    assert_eq!(
        of(true, Selection { pid: Some(1001), ..Selection::default() }),
        ("python3 backup.py".into(), true)
    );
}

/// The other end of a unix connection exists once it is accepted: until then the socket has no peer, as one that listens.
#[test]
fn who_waits_on_a_connection_not_accepted_yet_does_not_listen() {
    let mut d = Drawing::new(12.0);
    let (client, server) = (d.process("ask", "ask", None, 0.0), d.process("srv", "srv", None, 0.0));
    let mine = d.object(ObjectKind::UnixStream, 5, 0, "/run/srv");
    let theirs = d.object(ObjectKind::UnixStream, 6, 5, "/run/srv");
    let busy = d.stack(&["compute (srv)", "main (srv)"]);
    d.runs(server, 0.0, 10.0, busy);
    d.wait(client, 1.0, 10.0, "pselect6").on(mine).by(server, "write", theirs);
    d.wait(server, 10.5, 12.0, "pause").open();
    d.wait(client, 10.5, 12.0, "pause").open();
    let r = d.diagnose("ask");
    assert_eq!(
        (r.victim.block_type, r.root_causes[0].process.as_deref()),
        (BlockType::LongWait, Some("srv"))
    );
}

/// Who connected, or reads what its own child writes, is who complains, though it was told something after it asked; who
/// was connected to waits for whatever comes.
#[test]
fn who_began_the_conversation_is_at_the_front() {
    #[derive(Clone, Copy, PartialEq, Debug)]
    enum Way {
        Connects,
        IsConnectedTo,
        SpeaksFirst,
        IsSpokenTo,
        StartedIt,
    }
    use Way::*;
    for way in [Connects, IsConnectedTo, SpeaksFirst, IsSpokenTo, StartedIt] {
        let mut d = Drawing::new(20.0);
        let user = d.process("ask", "ask it", None, 0.5);
        let server = d.process("served", "served", (way == StartedIt).then_some(user), 0.6);
        let auth = d.process("auth", "auth", None, 0.0);
        let (high, low) = (endpoint_v4(1, 40_000), endpoint_v4(2, 22));
        let (kind, own, far) = match way {
            Connects => (ObjectKind::Tcp, high, low),
            IsConnectedTo => (ObjectKind::Tcp, low, high),
            SpeaksFirst | IsSpokenTo => (ObjectKind::UnixStream, 1, 2),
            StartedIt => (ObjectKind::Pipe, 5, 5),
        };
        let (mine, its) = (d.object(kind, own, far, ""), d.object(kind, far, own, ""));
        let (asks, answers) =
            (d.object(ObjectKind::UnixStream, 7, 8, ""), d.object(ObjectKind::UnixStream, 8, 7, ""));
        if matches!(way, Connects | SpeaksFirst) {
            d.message(user, mine, Direction::Send, 1.0, 10);
            d.message(server, its, Direction::Receive, 1.01, 10);
        }
        d.message(server, its, Direction::Send, 1.02, 5);
        d.message(user, mine, Direction::Receive, 1.03, 5);
        d.message(server, asks, Direction::Send, 1.04, 5);
        let sha = d.stack(&["sha256 (auth)", "main (auth)"]);
        d.message(auth, answers, Direction::Receive, 1.05, 5);
        d.runs(auth, 1.05, 14.0, sha);
        d.wait(server, 1.05, 14.0, "poll").on(asks).by(auth, "sendto", answers);
        d.wait(user, 1.05, 14.01, "poll").on(mine).by(server, "sendto", its);
        for t in [user, server, auth] {
            d.exit(t, 14.1);
        }
        let (g, c) = d.build();
        let all = victims(&g, &c, &VictimOptions::default());
        let first = matches!(way, Connects | SpeaksFirst | StartedIt);
        assert_eq!(all[0].thread == user, first, "{way:?}: {all:#?}");
    }
}

/// Threads of a runtime that park until there is work, each at a word of its own, are not who hangs.
#[test]
fn threads_that_may_merely_have_no_work_come_after_who_asked() {
    let mut d = Drawing::new(20.0);
    let web = d.process("webd", "webd run", None, 0.0);
    let ours = d.object(ObjectKind::UnixStream, 1, 2, "");
    let its = d.object(ObjectKind::UnixStream, 2, 1, "");
    let pool = [0, 1, 2].map(|_| d.thread(web, "webd", 0.1));
    for (i, t) in pool.into_iter().enumerate() {
        let word = d.object(ObjectKind::Futex, 64 + i as u64 * 64, 1000, "");
        d.wait(t, 0.2, 14.0, "futex").on(word).by(pool[(i + 1) % 3], "futex", word);
    }
    let user = d.process("ask", "ask it", None, 0.5);
    let sha = d.stack(&["sha256 (webd)", "main (webd)"]);
    d.message(user, ours, Direction::Send, 1.0, 10);
    d.runs(web, 1.0, 13.9, sha);
    d.wait(user, 1.05, 13.0, "poll").on(ours).by(web, "sendto", its);
    let (g, c) = d.build();
    let all = victims(&g, &c, &VictimOptions::default());
    assert_eq!(all[0].thread, user, "{all:#?}");
}

/// A queue of messages that is full: who wants to send waits for who should receive, and is at the front. What hung beside
/// that, for a reason of its own, is told when nobody said who is meant.
#[test]
fn who_sends_to_a_full_queue_is_at_the_front() {
    let mut d = Drawing::new(14.0);
    let server = d.process("redis", "redis", None, 0.0);
    let consumer = d.process("consume", "consume /q", None, 0.1);
    let producer = d.process("produce", "produce /q", None, 0.2);
    let cp = d.process("cp", "cp a b", None, 0.2);
    let cp2 = d.process("cp", "cp a c", None, 0.2);
    let gzip = d.process("gzip", "gzip -9", None, 0.2);
    let queue = d.object(ObjectKind::SysvIpc, 77, 0x14, "/q");
    let (own, its) =
        (d.object(ObjectKind::UnixStream, 1, 2, ""), d.object(ObjectKind::UnixStream, 2, 1, "/r"));
    d.wait(server, 0.5, 14.0, "epoll_wait").state(OffState::Stopped).open();
    d.message(consumer, own, Direction::Send, 0.8, 10);
    d.wait(consumer, 0.9, 14.0, "recvfrom").on(own).open();
    d.hold(server, consumer, its, Relation::Peer, 1.5);
    d.wait(producer, 1.0, 14.0, "mq_timedsend").on(queue).open();
    d.hold(consumer, producer, queue, Relation::Reads, 1.6);
    let disk = d.object(ObjectKind::File, 5, 1, "/data");
    for t in [cp, cp2] {
        d.wait(t, 6.0, 13.0, "read").on(disk).state(OffState::Uninterruptible).open();
    }
    let work = d.stack(&["deflate (gzip)", "main (gzip)"]);
    d.runs(gzip, 12.0, 13.0, work);
    let (g, c) = d.build();
    let v = select(&g, &c, &Selection::default(), &VictimOptions::default()).unwrap();
    assert_eq!(v.thread, producer, "{v:#?}");
    let r = run_with_policy(&g, &c, v.clone(), Options::default());
    let also: Vec<_> = also_hung(&g, &c, &v, &r).into_iter().map(|a| (a.victim.process, a.alike)).collect();
    assert_eq!(also, [("cp".to_owned(), 1)], "{r:#?}");
}

/// A client waits in an event loop over a connection that it made; what it asked went through memory that both share. A
/// server of one connection that it accepted is idle.
#[test]
fn who_waits_in_an_event_loop_over_what_it_connected_to_hangs_when_it_is_meant() {
    for client in [true, false] {
        let mut d = Drawing::new(12.0);
        let player = d.process("play", "play a.wav", None, 0.0);
        let (near, far) = (endpoint_v4(1, 40_000), endpoint_v4(1, 4713));
        let tcp = if client {
            d.object(ObjectKind::Tcp, near, far, "")
        } else {
            d.object(ObjectKind::Tcp, far, near, "")
        };
        let own: Vec<_> = (0..3).map(|i| d.object(ObjectKind::EventFd, 20 + i, 0, "")).collect();
        let set = d.set(&[tcp, own[0], own[1], own[2]]);
        d.message(player, tcp, Direction::Receive, 0.04, 16);
        d.wait(player, 0.05, 12.0, "ppoll").on(set).open();
        let (g, c) = d.build();
        let found = select(&g, &c, &Selection::default(), &VictimOptions::default());
        assert_eq!(found.is_ok(), client, "{found:?}");
    }
}

/// Who asked over a connection, and is told by a signal that the answer is there, waits for that; a daemon that waits for
/// signals does not.
#[test]
fn who_asked_and_waits_for_a_signal_hangs() {
    for asks in [true, false] {
        let mut d = Drawing::new(12.0);
        let query = d.process("query", "query title", None, 0.0);
        let server = d.process("server", "server", None, 0.0);
        let (near, far) =
            (d.object(ObjectKind::UnixStream, 1, 2, ""), d.object(ObjectKind::UnixStream, 2, 1, "/run/s"));
        let file = d.object(ObjectKind::File, 7, 45, "/mnt/log");
        if asks {
            d.message(query, near, Direction::Send, 0.05, 100);
            d.message(server, far, Direction::Receive, 10.95, 100);
        }
        d.wait(server, 0.01, 10.9, "write").on(file);
        d.wait(query, 0.051, 11.0, "pause").by(server, "kill", ObjectId::NONE);
        d.exit(query, 11.01);
        let (g, c) = d.build();
        let named = Selection { tid: Some(1000), ..Selection::default() };
        let found = select(&g, &c, &named, &VictimOptions::default());
        assert_eq!(found.is_ok(), asks, "{found:?}");
        if let Ok(v) = found {
            let r = run_with_policy(&g, &c, v, Options::default());
            assert!(r.slice.iter().any(|n| n.process == "server"), "{r:#?}");
        }
    }
}

/// A server that has TCP and unix sockets that listen, and whom nobody asks anything: that is no hang, though both of its
/// sockets are few enough to be channels. Where a client waits for it, the client hangs.
#[test]
fn a_server_that_nobody_asks_does_not_hang() {
    let draw = |name: &str, client: bool| {
        let mut d = Drawing::new(6.0);
        let server = d.process("serverd", "serverd -D /var/lib/s", None, 0.0);
        let tcp = d.object(ObjectKind::Tcp, endpoint_v4(0x7f00_0001, 5432), 0, "127.0.0.1:5432");
        let unix = d.object(ObjectKind::UnixStream, 9, 0, name);
        let both = d.set(&[tcp, unix]);
        d.wait(server, 0.0, 6.0, "pselect6").on(both).before().open();
        if client {
            let asks = d.process("cli", "cli status", None, 0.5);
            let own = d.object(ObjectKind::UnixStream, 11, 12, "/run/s");
            d.hold(server, asks, own, Relation::Peer, 1.5);
            d.message(asks, own, Direction::Send, 1.0, 10);
            d.wait(asks, 1.001, 6.0, "recvfrom").on(own).open();
        }
        d.build()
    };
    let (g, c) = draw("/run/s", false);
    assert_eq!(victims(&g, &c, &VictimOptions::default()).len(), 0);
    assert!(select(&g, &c, &Selection::default(), &VictimOptions::default()).is_err());
    let (g, c) = draw("/run/s", true);
    let all = victims(&g, &c, &VictimOptions::default());
    assert_eq!((all[0].thread, all[0].block_type), (ThreadId(1), BlockType::LongWait));
    assert!(all.iter().all(|v| v.thread == ThreadId(1)), "{all:#?}");
    // One without an address asks for something.
    let (g, c) = draw("", false);
    assert_eq!(victims(&g, &c, &VictimOptions::default()).len(), 1);
}

/// Threads that a server starts for work that may come wait for longer than a request hangs, and hang not. One whose main
/// thread is stuck as well may be what it waits for.
#[test]
fn threads_that_never_had_work_are_behind_a_short_hang() {
    for stuck in [false, true] {
        let mut d = Drawing::new(9.0);
        let server = d.process("keyd", "keyd *:0", None, 0.1);
        let client = d.process("cli", "cli ping", None, 5.0);
        let (c, s) =
            (d.object(ObjectKind::UnixStream, 1, 2, ""), d.object(ObjectKind::UnixStream, 2, 1, "/run/k"));
        for (name, function) in [("close", "close_files (keyd)"), ("purge", "purge (keyd)")] {
            let t = d.thread(server, name, 0.11);
            let stack = d.stack(&["pthread_cond_wait (libc.so.6)", function]);
            let word = d.object(ObjectKind::Futex, 0x100 + u64::from(t.0), 1, "");
            d.wait(t, 0.12, 9.0, "futex").on(word).op(PRIVATE_WAIT, 0).stack(stack).open();
        }
        let epoll = d.set(&[s]);
        if stuck {
            let join = d.stack(&["pthread_cond_wait (libc.so.6)", "finish (keyd)"]);
            let word = d.object(ObjectKind::Futex, 0x900, 1, "");
            d.wait(server, 0.13, 9.0, "futex").on(word).op(PRIVATE_WAIT, 0).stack(join).open();
        } else {
            for at in [0.2, 2.0, 4.0] {
                d.wait(server, at, at + 1.7, "epoll_wait").on(epoll).times_out();
            }
            d.wait(server, 6.0, 7.4, "clock_nanosleep").times_out();
        }
        d.message(client, c, Direction::Send, 5.9, 16);
        d.wait(client, 6.0, 7.5, "read").on(c).by(server, "write", s);
        let (g, c) = d.build();
        let first = &victims(&g, &c, &VictimOptions::default())[0];
        let process = &c.process_of(first.thread).unwrap().name;
        assert_eq!(process, if stuck { "keyd" } else { "cli" }, "{}", first.summary);
    }
}

/// `fork` took a lock along, but not the thread that has it: the child, which nobody can wake, hung, not a thread of its parent that
/// naps all the time.
#[test]
fn who_nobody_can_wake_comes_before_who_naps() {
    let mut d = Drawing::new(10.0);
    let parent = d.process("app", "app", None, 0.0);
    let flush = d.thread(parent, "flush", 0.0);
    let child = d.process("app", "app", Some(parent), 0.2);
    let stack = d.stack(&["sem_wait (libc.so.6)", "acquire_lock (app)"]);
    let naps = d.stack(&["clock_nanosleep (libc.so.6)", "flush (app)"]);
    let word = d.object(ObjectKind::Futex, 0x10, 1002, "");
    d.naps(flush, 0.1, 9.9, 0.1, naps);
    d.wait(child, 0.3, 9.9, "futex").on(word).stack(stack).op(128, 0).open();
    d.wait(parent, 0.3, 9.95, "wait4").open();
    let r = d.diagnose("^app$");
    assert_ne!(r.victim.tid, 1001, "{r:#?}");
    assert_eq!(r.root_causes[0].tid, Some(1002), "{r:#?}");
    assert!(r.root_causes[0].why.contains("nobody is left to wake it"), "{}", r.root_causes[0].why);
}

/// A program that waits for nothing but a timer: who names it is told so.
#[test]
fn who_waits_for_timers_alone_is_told_when_named() {
    let mut d = Drawing::new(12.0);
    let timer = d.process("timer", "timer --wait", None, 0.49);
    let expires = d.object(ObjectKind::TimerFd, 7, 0, "");
    let other = d.process("app", "app", None, 0.0);
    let set = d.set(&[expires]);
    d.wait(timer, 0.5, 12.0, "epoll_wait").on(set).open();
    d.wait(other, 0.0, 12.0, "epoll_wait").before().open();
    let why = d.diagnose("^timer ").root_causes.remove(0).why;
    assert!(why.contains("only its timers could wake it"), "{why}");
}

/// What Node.js has a thread for is no hang beside its event loop, which asked for something.
#[test]
fn who_waits_in_nodes_event_loop_hangs_and_not_its_inspector() {
    let mut d = Drawing::new(12.0);
    let node = d.process("node", "node ask.js", None, 0.0);
    let inspector = d.thread(node, "node", 0.0);
    let (near, far) = (endpoint_v4(1, 40_000), endpoint_v4(1, 6379));
    let tcp = d.object(ObjectKind::Tcp, near, far, "");
    let own: Vec<_> = (0..3).map(|i| d.object(ObjectKind::EventFd, 20 + i, 0, "")).collect();
    let set = d.set(&[tcp, own[0], own[1], own[2]]);
    d.message(node, tcp, Direction::Receive, 0.04, 16);
    d.wait(node, 0.05, 12.0, "epoll_wait").on(set).open();
    let idle =
        d.stack(&["sem_wait (libc.so.6)", "uv_sem_wait (node)", "node::inspector::StartIoThreadMain (node)"]);
    let word = d.object(ObjectKind::Futex, 0x100, 9, "");
    d.wait(inspector, 0.03, 12.0, "futex").on(word).stack(idle).open();
    let (g, c) = d.build();
    let found = select(&g, &c, &Selection::default(), &VictimOptions::default()).unwrap();
    assert_eq!(found.thread, node, "{found:?}");
}
