//! Circular waits, waits that several could end, and which thread of a circle is the victim.

use crate::draw::{Drawing, PRIVATE_WAIT, slice, what};
use pg_event::{Direction, ObjectId, ObjectKind, OffState, Relation};
use pg_graph::{Options, Selection, VictimOptions, run_with_policy, select};

/// A parent waits for its child, which waits for the parent to read: whoever started it is the victim, though
/// nobody named it.
#[test]
fn of_a_circle_the_one_that_started_it_is_the_victim() {
    let mut d = Drawing::new(20.0);
    let shell = d.process("sh", "sh run", None, 0.0);
    let python = d.process("python", "python p.py", Some(shell), 0.1);
    let find = d.process("find", "find /usr", Some(python), 0.3);
    let pipe = d.object(ObjectKind::Pipe, 55, 55, "");
    let child = d.object(ObjectKind::Child, 1002, 0, "");
    let any = d.object(ObjectKind::Child, 0, 0, "");
    d.spawn(shell, python, 0.1);
    d.spawn(python, find, 0.3);
    d.wait(shell, 0.2, 20.0, "wait4").on(any).open();
    d.wait(python, 0.4, 20.0, "wait4").on(child).open();
    d.wait(find, 0.5, 20.0, "write").on(pipe).open();
    d.hold(python, shell, any, Relation::ChildOf, 1.3);
    d.hold(find, python, child, Relation::ChildOf, 1.4);
    d.hold(python, find, pipe, Relation::Reads, 1.5);
    let (g, c) = d.build();
    let v = select(&g, &c, &Selection::default(), &VictimOptions::default()).unwrap();
    assert_eq!(v.thread, python, "{}", v.summary);
    let r = run_with_policy(&g, &c, v, Options::default());
    assert!(r.root_causes[0].why.starts_with("circular wait"), "{}", r.root_causes[0].why);
    assert_eq!(r.circle, [0, 1]);
    assert_eq!((r.slice[0].tid, r.slice[1].tid), (1001, 1002));
}

/// A person names a program whose main thread waits for a child, while another of its threads computes: the
/// hang is the main thread's, the computing one is the cause.
#[test]
fn a_named_program_hangs_where_it_waits() {
    let mut d = Drawing::new(12.0);
    let main = d.process("py", "py g.py", None, 0.0);
    let io = d.thread(main, "io", 0.1);
    let burn = d.thread(main, "burn", 0.1);
    let client = d.process("client", "client", Some(main), 0.2);
    let child = d.object(ObjectKind::Child, 1003, 0, "");
    let (a, b) = (d.object(ObjectKind::UnixStream, 1, 2, ""), d.object(ObjectKind::UnixStream, 2, 1, ""));
    let gil = d.object(ObjectKind::Futex, 0x10, 1, "");
    let eval = d.stack(&["eval_frame (python3)", "main (python3)"]);
    let take = d.stack(&["pthread_cond_timedwait (libc.so.6)", "take_gil (python3)"]);
    d.spawn(main, client, 0.2);
    d.runs(burn, 1.005, 11.0, eval);
    let mut t = 1.0;
    while t < 11.0 {
        d.message(client, a, Direction::Send, t, 1);
        d.wait(client, t + 0.0001, t + 0.0095, "recvfrom").on(a).by(io, "sendto", b);
        d.wait(io, t + 0.001, t + 0.009, "futex")
            .on(gil)
            .stack(take)
            .op(PRIVATE_WAIT, 0)
            .by(burn, "futex", gil);
        t += 0.01;
    }
    d.exit(client, 11.1);
    d.wait(main, 0.5, 11.11, "wait4").on(child).by(client, "exit_group", ObjectId::NONE);
    d.wait(burn, 11.0, 12.0, "pause").open();
    d.wait(io, 11.0, 12.0, "recvfrom").on(b).open();
    let r = d.diagnose("^py g.py$");
    assert_eq!(r.victim.tid, 1000, "{r:#?}");
    assert_eq!(slice(&r)[0], "client");
    assert_eq!(r.root_causes[0].tid, Some(1002));
    assert_eq!(r.root_causes[0].function.as_deref(), Some("eval_frame"));
}

/// A make waits for a token in a pipe. Its jobs' ends interrupt that again and again, but who has the tokens is
/// somebody else; its own parent has the pipe open too, and only waits for it.
#[test]
fn an_interrupted_wait_is_for_what_it_waits_for() {
    let mut d = Drawing::new(24.0);
    let top = d.process("make", "make -j5", None, 0.0);
    let rogue = d.process("sleep", "sleep 24", Some(top), 0.04);
    let sub = d.process("make", "make -f sub.mk", Some(top), 0.1);
    let pipe = d.object(ObjectKind::Pipe, 7, 7, "");
    let any = d.object(ObjectKind::Child, 0, 0, "");
    let token = d.stack(&["pselect (libc.so.6)", "jobserver_acquire (make)", "main (make)"]);
    d.spawn(top, rogue, 0.04);
    d.spawn(top, sub, 0.1);
    let mut t = 0.2;
    for i in 0..4 {
        let job = d.process("sh", &format!("sh -c job {i}"), Some(sub), t - 0.01);
        d.spawn(sub, job, t - 0.01);
        d.wait(job, t, t + 4.99, "clock_nanosleep").times_out();
        d.exit(job, t + 4.995);
        d.wait(sub, t, t + 5.0, "pselect6").on(pipe).stack(token).by(job, "exit_group", ObjectId::NONE);
        for holder in [top, rogue] {
            d.hold(holder, sub, pipe, Relation::Writes, t + 0.7);
        }
        t += 5.02;
    }
    d.exit(sub, t);
    d.hold(sub, top, any, Relation::ChildOf, 1.0);
    d.wait(top, 0.2, t + 0.001, "wait4").on(any).by(sub, "exit_group", ObjectId::NONE);
    d.wait(rogue, 0.05, 23.9, "clock_nanosleep").times_out();
    d.exit(rogue, 23.95);
    d.wait(top, t + 0.01, 24.0, "wait4").on(any).by(rogue, "exit_group", ObjectId::NONE);
    let r = d.diagnose("^make -f sub.mk$");
    assert_eq!(r.root_causes[0].cmdline.as_deref(), Some("sleep 24"), "{r:#?}");
    assert!(r.circle.is_empty());
    assert!(what(&r.root_causes[0]).contains("pipe:[7]"), "{}", what(&r.root_causes[0]));
    let why =
        |tid: u32| r.others.iter().find(|o| o.tid == tid).map(|o| o.why_not.clone()).unwrap_or_default();
    assert!(why(1000).contains("waits for a thread on the way"), "its parent: {:?}", r.others);
    assert!(why(1003).contains("SIGCHLD") && why(1003).contains("sleep:1001 was followed"), "{:?}", r.others);
    assert!(r.questions.len() <= 1);
}

/// Two processes that read from each other's FIFO.
#[test]
fn two_fifos() {
    let mut d = Drawing::new(10.0);
    let (a, b) = (d.process("cat", "cat a", None, 0.0), d.process("cat", "cat b", None, 0.0));
    let (fa, fb) = (d.object(ObjectKind::Fifo, 5, 5, "/tmp/a"), d.object(ObjectKind::Fifo, 6, 6, "/tmp/b"));
    for (who, other, fifo) in [(a, b, fa), (b, a, fb)] {
        d.wait(who, 1.0, 10.0, "read").on(fifo).open();
        d.hold(other, who, fifo, Relation::Writes, 2.0);
    }
    let r = d.diagnose("^cat a$");
    let why = &r.root_causes[0].why;
    assert!(why.contains("/tmp/a") && why.contains("/tmp/b"), "{why}");
    assert_eq!(r.root_causes.len(), 2, "both ends: {r:#?}");
}

/// A parent waits for its child to end; the child's main thread waits for a thread of its own, whose pipe is full
/// and which only the parent reads: no thread of that circle idles.
#[test]
fn a_circle_through_a_thread_that_only_one_other_can_wake() {
    let mut d = Drawing::new(9.0);
    let parent = d.process("py", "py q.py", None, 0.0);
    let child = d.process("py", "py worker", Some(parent), 0.1);
    let feeder = d.thread(child, "feeder", 0.1);
    let of = d.object(ObjectKind::Child, 1001, 0, "");
    let (futex, pipe) = (d.object(ObjectKind::Futex, 0x10, 1, ""), d.object(ObjectKind::Pipe, 5, 5, ""));
    let lock = d.stack(&["__new_sem_wait_slow64 (libc.so.6)", "acquire_lock (py)"]);
    d.spawn(parent, child, 0.1);
    d.wait(parent, 0.5, 9.0, "wait4").on(of).open();
    d.wait(child, 0.5, 9.0, "futex").on(futex).op(PRIVATE_WAIT, 0).stack(lock).open();
    d.wait(feeder, 0.5, 9.0, "write").on(pipe).open();
    d.hold(child, parent, of, Relation::ChildOf, 1.5);
    d.hold(parent, feeder, pipe, Relation::Reads, 1.5);
    let r = d.diagnose("^py q.py");
    let c = &r.root_causes[0];
    assert!(c.why.starts_with("circular wait (deadlock)") && c.why.contains("pipe is full"), "{}", c.why);
    assert_eq!(r.circle.len(), 3, "{r:#?}");
}

/// FIFOs opened crosswise: who was to open which is not recorded, so all of them are shown, and it is said to be a
/// guess. Somebody who opens a FIFO elsewhere has nothing to do with it.
#[test]
fn fifos_opened_crosswise() {
    let draw = |near: &str| {
        let mut d = Drawing::new(20.0);
        let left = d.process("left", "left", None, 0.0);
        let right = d.process("right", "right", None, 0.0);
        let daemon = d.process("daemon", "daemon", None, 0.0);
        let kernel = d.stack(&["wait_for_partner ([kernel])", "fifo_open ([kernel])"]);
        let names = ["/tmp/x/ask".to_owned(), format!("{near}/answer"), "/run/d/control".to_owned()];
        for (i, (t, begin)) in [(left, 1.0), (right, 1.5), (daemon, 0.5)].into_iter().enumerate() {
            let file = d.object(ObjectKind::File, 7 + i as u64, 0, &names[i]);
            d.wait(t, begin, 20.0, "openat").on(file).in_kernel(kernel).open();
        }
        d.diagnose("^left")
    };
    let r = draw("/tmp/x");
    assert_eq!(slice(&r), ["right"]);
    assert_eq!(r.circle, [0, 1]);
    let first = &r.root_causes[0];
    assert!(first.why.starts_with("circular wait (deadlock), as it seems: right"), "{}", first.why);
    assert!(first.why.contains("and so does left") && first.why.contains("/tmp/x/ask"), "{}", first.why);
    let r = draw("/srv");
    assert_eq!(slice(&r), Vec::<String>::new());
    assert!(r.root_causes[0].why.contains("nobody has opened the other end of this FIFO"));
}

/// Threads of a pool that were given one FIFO each to open are no circle; threads that do so at places of their own may be.
#[test]
fn a_pool_that_opens_fifos_is_no_circle() {
    for (same, circle) in [(true, 0), (false, 2)] {
        let mut d = Drawing::new(20.0);
        let main = d.process("node", "node m.js", None, 0.0);
        let kernel = d.stack(&["wait_for_partner ([kernel])", "fifo_open ([kernel])"]);
        let work = d.stack(&["open64 (libc.so.6)", "fs_work (node)", "worker (node)"]);
        let other = d.stack(&["open64 (libc.so.6)", "answer (node)"]);
        let epoll = d.object(ObjectKind::Epoll, 5, 0, "");
        d.wait(main, 0.5, 20.0, "epoll_wait").on(epoll).open();
        for (i, stack) in [work, if same { work } else { other }].into_iter().enumerate() {
            let t = d.thread(main, "node", 0.1);
            let file = d.object(ObjectKind::File, 7 + i as u64, 0, &format!("/tmp/x/f{i}"));
            d.wait(t, 1.0, 20.0, "openat").on(file).stack(stack).in_kernel(kernel).open();
        }
        let r = d.diagnose("^node");
        assert_eq!(r.circle.len(), circle, "{r:#?}");
        let why = &r.root_causes[0].why;
        assert_eq!(why.contains("nobody has opened the other end of this FIFO"), same, "{why}");
    }
}

/// A server with one process asks itself over a connection that it would have to accept: it waits for itself, and not
/// for somebody who was not found. With another process or thread that could accept it is not said.
#[test]
fn a_server_that_asks_itself_waits_for_itself() {
    for (others, over) in
        [("", true), ("", false), ("process", true), ("thread", true), ("came and went", true)]
    {
        let mut d = Drawing::new(20.0);
        let php = d.process("php", "php -S 127.0.0.7:80", None, 0.0);
        let curl = d.process("curl", "curl page", None, 0.9);
        let (a, b) = (d.object(ObjectKind::Tcp, 1, 2, ""), d.object(ObjectKind::Tcp, 2, 1, ""));
        let part = d.object(ObjectKind::Tcp, 3, 4, "127.0.0.1:5->127.0.0.7:80");
        d.message(curl, a, Direction::Send, 1.0, 80);
        d.message(php, b, Direction::Receive, 1.01, 80);
        d.message(php, part, Direction::Send, 1.05, 60);
        d.hold(php, php, part, Relation::Listens, 2.0);
        match others {
            "process" => {
                let worker = d.process("php", "php -S 127.0.0.7:80 worker", Some(php), 0.1);
                d.hold(worker, php, part, Relation::Listens, 2.0);
                d.wait(worker, 0.2, 20.0, "clock_nanosleep").times_out();
            }
            "thread" => {
                let worker = d.thread(php, "worker", 0.1);
                d.wait(worker, 0.2, 20.0, "clock_nanosleep").times_out();
            }
            "came and went" => {
                let early = d.thread(php, "early", 0.1);
                d.catalog.threads[early.index()].end = Some(crate::draw::ns(0.5));
            }
            _ => {}
        }
        if over {
            d.wait(php, 1.1, 14.1, "poll").on(part).times_out();
            d.message(php, b, Direction::Send, 14.2, 9);
            d.wait(curl, 1.05, 14.2, "poll").on(a).by(php, "sendto", b);
        } else {
            d.wait(php, 1.1, 20.0, "poll").on(part).open();
            d.hold(php, curl, a, Relation::Peer, 2.0);
            d.wait(curl, 1.05, 20.0, "poll").on(a).open();
        }
        let r = d.diagnose("^curl page$");
        let first = &r.root_causes[0];
        let itself = first.why.contains("waited for itself (");
        assert_eq!(itself, others.is_empty() || others == "came and went", "{others}: {}", first.why);
        if itself {
            assert_eq!(first.cmdline.as_deref(), Some("php -S 127.0.0.7:80"));
            assert!(first.why.contains("listens there") && first.why.contains("curl"), "{}", first.why);
            assert_eq!(first.why.contains("time-out"), over, "{}", first.why);
            let way: Vec<_> = r.slice.iter().map(|n| n.process.as_str()).collect();
            assert_eq!((way, r.circle), (vec!["curl", "php", "php"], vec![1]));
        }
    }
}

/// A server runs a program and waits for its output, without looking at the connections that it listens for meanwhile;
/// the program connects to it. `pair`: the output is a pair of sockets, as libuv makes them.
#[test]
fn a_server_that_waits_for_a_program_which_asks_it() {
    for pair in [true, false] {
        let mut d = Drawing::new(8.0);
        let node = d.process("node", "node server.js", None, 0.0);
        let curl = d.process("curl", "curl http://127.0.0.1:80/", Some(node), 1.0);
        let kind = if pair { ObjectKind::UnixStream } else { ObjectKind::Pipe };
        let output = d.object(kind, 55, if pair { 56 } else { 55 }, "");
        let signals = d.object(ObjectKind::Pipe, 70, 70, "");
        let counter = d.object(ObjectKind::EventFd, 71, 0, "");
        let set = d.set(&[output, signals, counter]);
        let asks = d.object(ObjectKind::Tcp, 3, 4, "127.0.0.1:5->127.0.0.1:80");
        d.wait(node, 0.0, 1.0, "clock_nanosleep").before().times_out();
        d.wait(node, 1.05, 8.0, "epoll_pwait").on(set).open();
        d.hold(curl, node, output, if pair { Relation::Peer } else { Relation::Writes }, 2.0);
        d.message(curl, asks, Direction::Send, 1.5, 80);
        d.wait(curl, 1.6, 8.0, "poll").on(asks).open();
        d.hold(node, curl, asks, Relation::Listens, 2.5);
        let r = d.diagnose("^curl");
        assert_eq!(r.circle.len(), 2, "{pair}: {r:#?}");
        let why = &r.root_causes[0].why;
        assert!(why.contains("circular wait") && why.contains("node") && why.contains("curl"), "{why}");
    }
}

/// Who waits for a part of a file has another part of it; who has the wanted one was not found.
#[test]
fn a_lock_of_another_part_of_the_file_is_not_the_one_it_waits_for() {
    let mut d = Drawing::new(20.0);
    let app = d.process("app", "app", None, 0.0);
    let file = d.object(ObjectKind::FileLock, 7, 1, "/data/file");
    d.wait(app, 1.0, 20.0, "fcntl").on(file).op(7, 0).open();
    d.hold(app, app, file, Relation::Owns, 2.0);
    let r = d.diagnose("^app$");
    assert!(!r.root_causes[0].why.contains("itself"), "{}", r.root_causes[0].why);
}

/// A parent polls for room to write to its filter, and takes nothing of what that writes meanwhile.
#[test]
fn who_polls_for_room_in_a_pipe_waits_for_who_is_to_read_it() {
    let mut d = Drawing::new(20.0);
    let feed = d.process("ruby", "ruby p.rb", None, 0.1);
    let filter = d.process("tr", "tr a-z A-Z", Some(feed), 0.3);
    let (to, from) = (d.object(ObjectKind::Pipe, 55, 55, ""), d.object(ObjectKind::Pipe, 56, 56, ""));
    let stop = d.object(ObjectKind::EventFd, 5, 0, "");
    let set = d.set(&[to, stop]);
    d.spawn(feed, filter, 0.3);
    d.wait(feed, 0.5, 20.0, "ppoll").on(set).open();
    d.wait(filter, 0.6, 20.0, "write").on(from).open();
    d.hold(filter, feed, to, Relation::Reads, 1.5);
    d.hold(feed, filter, from, Relation::Reads, 1.6);
    let r = d.diagnose("^ruby p.rb$");
    assert!(r.root_causes[0].why.starts_with("circular wait"), "{}", r.root_causes[0].why);
    assert_eq!(r.circle, [0, 1]);
}

/// A parent waits for whatever comes, and does not read what its child writes. When it has enough it ends: the last of its threads
/// closes the other end, which need not be the one that should have read.
#[test]
fn an_event_loop_that_does_not_read_what_its_child_writes_is_behind_it() {
    for over in [true, false] {
        let mut d = Drawing::new(10.0);
        let app = d.process("node", "node app.js", None, 0.0);
        let idle = d.thread(app, "inspector", 0.1);
        let child = d.process("cat", "cat log", Some(app), 0.5);
        d.spawn(app, child, 0.5);
        let (ours, theirs) =
            (d.object(ObjectKind::UnixStream, 55, 56, ""), d.object(ObjectKind::UnixStream, 56, 55, ""));
        let signals = d.object(ObjectKind::Pipe, 7, 7, "");
        let word = d.object(ObjectKind::Futex, 0x5660_0460, 77, "");
        let set = d.set(&[ours, signals]);
        d.hold(child, app, ours, Relation::Peer, 2.0);
        d.hold(app, child, theirs, Relation::Peer, 2.0);
        if over {
            d.wait(app, 1.0, 9.0, "epoll_pwait").on(set).times_out();
            d.wait(idle, 0.2, 9.01, "futex").on(word).op(crate::draw::PRIVATE_WAIT, 0).by(app, "futex", word);
            d.exit(app, 9.02);
            d.exit(idle, 9.03);
            d.wait(child, 1.1, 9.04, "write").on(theirs).by(idle, "exit_group", ObjectId::NONE);
        } else {
            d.wait(app, 1.0, 10.0, "epoll_pwait").on(set).open();
            d.wait(idle, 0.2, 10.0, "futex").on(word).op(crate::draw::PRIVATE_WAIT, 0).open();
            d.wait(child, 1.1, 10.0, "write").on(theirs).open();
        }
        let r = d.diagnose("^node app.js$");
        let way: Vec<_> = r.slice.iter().map(|n| n.tid).collect();
        assert_eq!(way, [1000, 1002], "{over}: {r:#?}");
        let c = &r.root_causes[0];
        assert_eq!(c.process.as_deref(), Some("cat"), "{over}: {r:#?}");
        assert!(c.why.contains("nobody reads the other end"), "{over}: {}", c.why);
    }
}

/// A parent waits for the end of its child by a pipe that only the child has, and does not take what that has still to
/// write: a thread of the child that its main thread joins.
#[test]
fn who_waits_for_an_end_by_a_pipe_does_not_read_another() {
    for others in [false, true] {
        let mut d = Drawing::new(10.0);
        let parent = d.process("python3", "python3 m.py", None, 0.0);
        let child = d.process("python3", "python3 m.py", Some(parent), 0.4);
        let feeder = d.thread(child, "feeder", 0.5);
        let (queue, sentinel) =
            (d.object(ObjectKind::Pipe, 55, 55, ""), d.object(ObjectKind::Pipe, 56, 56, ""));
        let joined = d.object(ObjectKind::Futex, 0x7fc7_0b70, 77, "");
        d.spawn(parent, child, 0.4);
        d.wait(parent, 0.6, 10.0, "poll").on(sentinel).open();
        d.wait(child, 0.6, 10.0, "futex").on(joined).op(crate::draw::PRIVATE_WAIT, 0).open();
        d.wait(feeder, 0.6, 10.0, "write").on(queue).open();
        d.hold(child, parent, sentinel, Relation::Writes, 1.6);
        d.hold(parent, feeder, queue, Relation::Reads, 1.6);
        if others {
            let other = d.process("other", "other", None, 0.0);
            d.wait(other, 0.1, 10.0, "clock_nanosleep").open();
            d.hold(other, parent, sentinel, Relation::Writes, 1.6);
        }
        let r = d.diagnose("^python3 m.py$");
        let c = &r.root_causes[0];
        assert_eq!(c.why.starts_with("circular wait"), !others, "{others}: {}", c.why);
        assert_eq!(r.circle.len(), if others { 0 } else { 3 }, "{others}: {r:#?}");
    }
}

/// Each of many could answer each other one, so there are more ways back than anybody can walk: looking ahead ends.
#[test]
fn of_many_that_wait_for_each_other_not_all_ways_are_walked() {
    const MANY: u64 = 14;
    let mut d = Drawing::new(9.0);
    let all: Vec<_> = (0..MANY).map(|i| d.process(&format!("p{i}"), &format!("p{i}"), None, 0.0)).collect();
    let pipes: Vec<_> = (0..MANY).map(|i| d.object(ObjectKind::Pipe, 50 + i, 50 + i, "")).collect();
    for (reader, pipe) in all.iter().zip(&pipes) {
        d.wait(*reader, 0.5, 9.0, "read").on(*pipe).open();
        for writer in all.iter().filter(|w| *w != reader) {
            d.hold(*writer, *reader, *pipe, Relation::Writes, 1.2);
        }
    }
    let r = d.diagnose("^p0$");
    assert!(r.root_causes[0].why.contains("circular wait"), "{:#?}", r.root_causes[0]);
}

/// A thread has a lock of its runtime's (Ruby's Mutex) and sleeps in a wait for a condition with a time-out, whereupon it lets
/// the other one go on, which waits in `ppoll`. The other one was there to tell it, too, but what took the time is what it had set.
#[test]
fn who_goes_on_by_its_own_time_out_does_not_wait_for_whom_it_keeps_waiting() {
    let mut d = Drawing::new(12.0);
    let main = d.process("ruby", "ruby lock.rb", None, 0.0);
    let holder = d.thread(main, "holder", 0.1);
    let counter = d.object(ObjectKind::EventFd, 2, 0, "");
    let condition = d.object(ObjectKind::Futex, 0x1000, 1000, "");
    let sleeps = d.stack(&["pthread_cond_timedwait (libc.so.6)", "native_sleep (ruby)", "rb_vm_exec (ruby)"]);
    let locks = d.stack(&["ppoll (libc.so.6)", "native_sleep (ruby)", "rb_mutex_synchronize (ruby)"]);
    d.wait(holder, 0.2, 10.0, "futex").on(condition).stack(sleeps).op(PRIVATE_WAIT, 0).times_out();
    d.wait(main, 0.3, 10.01, "ppoll").on(counter).stack(locks).by(holder, "write", counter);
    d.hold(main, main, counter, Relation::Peer, 0.7);
    let r = d.diagnose("^ruby$");
    let c = &r.root_causes[0];
    assert_eq!(c.tid, Some(1001), "{r:#?}");
    assert!(c.why.contains("when a time-out of its own had passed: it was idle for 9.70 s"), "{}", c.why);
}

/// A child reads to the end of a pipe; only its parents have the writing end, and wait for the child, the nearer one by signals.
/// Somebody else who has it, too, may write.
#[test]
fn who_keeps_a_pipe_open_and_waits_for_its_reader_to_end_is_waited_for_itself() {
    for other in [false, true] {
        let mut d = Drawing::new(3.0);
        let app = d.process("app", "app", None, 0.0);
        let limit = d.process("timeout", "timeout 3 cat", Some(app), 0.1);
        let cat = d.process("cat", "cat", Some(limit), 0.2);
        let (pipe, timers) = (d.object(ObjectKind::Pipe, 9, 9, ""), d.object(ObjectKind::Timer, 2, 0, ""));
        let of_app = d.object(ObjectKind::Child, 1001, 0, "");
        d.wait(app, 0.2, 3.0, "wait4").on(of_app).open();
        d.wait(limit, 0.3, 3.0, "rt_sigsuspend").on(timers).open();
        d.wait(cat, 0.3, 3.0, "read").on(pipe).open();
        d.hold(limit, app, of_app, Relation::ChildOf, 1.0);
        d.hold(cat, limit, timers, Relation::ChildOf, 1.0);
        d.hold(app, cat, pipe, Relation::Writes, 1.0);
        d.hold(limit, cat, pipe, Relation::Writes, 1.0);
        if other {
            let writer = d.process("writer", "writer", None, 0.0);
            d.wait(writer, 0.1, 3.0, "clock_nanosleep").open();
            d.hold(writer, cat, pipe, Relation::Writes, 1.0);
        }
        let r = d.diagnose("^app");
        let why = &r.root_causes[0].why;
        assert_eq!(why.contains("circular wait (deadlock): cat"), !other, "{why}");
        assert_eq!(why.contains("kept open by app"), !other, "{why}");
        assert_eq!(r.root_causes[0].process.as_deref() == Some("writer"), other, "{why}");
    }
}

/// A file system of one thread runs a program that reads from it: who wants a file waits for a circle.
#[test]
fn a_file_system_that_waits_for_its_own_client_closes_a_circle() {
    let mut d = Drawing::new(14.0);
    let server = d.process("thumbfs", "thumbfs /mnt", None, 0.0);
    let tool = d.process("head", "head /mnt/big", Some(server), 0.5);
    let cat = d.process("cat", "cat /mnt/thumb", None, 0.3);
    let (thumb, big) =
        (d.object(ObjectKind::File, 1, 0, "/mnt/thumb"), d.object(ObjectKind::File, 2, 0, "/mnt/big"));
    let pipe = d.object(ObjectKind::Pipe, 7, 7, "");
    d.spawn(server, tool, 0.5);
    let fuse = d.stack(&["request_wait_answer ([kernel])", "fuse_simple_request ([kernel])"]);
    d.wait(cat, 0.4, 14.0, "read").on(thumb).in_kernel(fuse).state(OffState::Uninterruptible).open();
    d.wait(server, 0.6, 14.0, "read").on(pipe).open();
    d.wait(tool, 0.7, 14.0, "openat").on(big).in_kernel(fuse).state(OffState::Uninterruptible).open();
    d.hold(server, cat, thumb, Relation::Serves, 2.0);
    d.hold(tool, server, pipe, Relation::Writes, 2.0);
    d.hold(server, tool, big, Relation::Serves, 2.0);
    let r = d.diagnose("^cat ");
    assert_eq!(r.circle.len(), 2, "{r:#?}");
    assert!(r.root_causes[0].why.contains("circular"), "{r:#?}");
}
