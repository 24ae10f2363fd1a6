//! Of every kind of event and row that came later, too: a copy holds nothing of others, keeps what the focus and its
//! causes have, and leads to the same verdict.

use super::*;
use crate::draw::{Drawing, ns};
use crate::session::GuardRule;
use pg_event::trace::{Flow, How, Instruction, Mark, MarkKind, Run};
use pg_event::{
    Burst, Direction, Display, FrameId, Kind, LoopTurn, ModuleKind, ObjectKind, Relation, SeenBy, StackId,
    Sysno, ThreadId, Trace, TraceId, UnitTypeId,
};

/// What is in the copy of a drawing, unpacked, and what was counted.
struct Copied {
    bytes: Vec<u8>,
    summary: Summary,
    loaded: Loaded,
    /// The file.
    file: Vec<u8>,
    _dir: tempfile::TempDir,
}

impl Copied {
    /// All threads but `focus` are other people's. `gone` must be in the original and not in the copy, `kept` in both.
    fn of(mut d: Drawing, focus: &[ThreadId], gone: &[&str], kept: &[&str]) -> Self {
        for (i, t) in d.catalog.threads.iter_mut().enumerate() {
            t.focus = focus.contains(&ThreadId(i as u32));
            d.catalog.processes[t.process.index()].focus = t.focus;
        }
        let dir = tempfile::tempdir().unwrap();
        let (input, output) = (dir.path().join("in.pgs"), dir.path().join("out.pgs"));
        let mut w = Writer::create(&input, &Header { host: "db7".into(), ..Header::default() }).unwrap();
        for item in d.items() {
            w.item(&item).unwrap();
        }
        w.finish().unwrap();
        let all = super::tests::unpacked(&input);
        for s in gone.iter().chain(kept) {
            assert!(super::tests::holds(&all, s), "the original holds {s}");
        }
        let summary = redact(&input, &output, &Options::default()).unwrap();
        let bytes = super::tests::unpacked(&output);
        for s in gone {
            assert!(!super::tests::holds(&bytes, s), "the copy holds {s}");
        }
        for s in kept {
            assert!(super::tests::holds(&bytes, s), "the copy lost {s}");
        }
        let loaded = load(&output).unwrap();
        assert!(loaded.warnings.is_empty(), "{:?}", loaded.warnings);
        assert!(summary.compared > 0 && summary.differ == 0 && !summary.everybody, "{summary:?}");
        assert!(summary.names >= gone.len(), "{summary:?}");
        let file = std::fs::read(&output).unwrap();
        Self { bytes, summary, loaded, file, _dir: dir }
    }
}

/// `asker` waits two seconds for `owner`, which computes with `stack`.
fn waits_for(d: &mut Drawing, asker: ThreadId, owner: ThreadId, stack: StackId) {
    let lock = d.object(ObjectKind::FileLock, 1, 2, "/srv/shop/lock");
    d.wait(asker, 0.1, 2.0, "clock_nanosleep").times_out();
    d.wait(asker, 2.1, 4.5, "flock").on(lock).by(owner, "flock", lock);
    d.wait(asker, 4.6, 6.0, "pause").open();
    d.wait(owner, 0.1, 1.9, "clock_nanosleep").times_out();
    d.runs(owner, 1.9, 4.5, stack);
    d.wait(owner, 4.6, 6.0, "pause").open();
}

/// Somebody who has nothing to do with it, with a stack and a file of his own. Whom he `wakes` later brings him into
/// the copy, without names.
fn stranger(d: &mut Drawing, stack: StackId, wakes: Option<ThreadId>) -> ThreadId {
    let t = d.process("affair", "affair --with eve", None, 0.0);
    let file = d.object(ObjectKind::Pipe, 77, 77, "/srv/letters");
    d.wait(t, 0.1, 3.0, "read").on(file).stack(stack).timer();
    if let Some(other) = wakes {
        let pipe = d.object(ObjectKind::Pipe, 88, 88, "");
        d.wait(other, 4.55, 4.58, "read").on(pipe).by(t, "write", pipe);
    }
    d.wait(t, 4.7, 6.0, "read").on(file).stack(stack).open();
    t
}

/// A shop that waits for its payments, and a stranger, who may wake the payments later.
fn shop_and_stranger(wakes: bool) -> (Drawing, [ThreadId; 3]) {
    let mut d = Drawing::new(6.0);
    let shop = d.process("shop", "shop", None, 0.0);
    let pay = d.process("pay", "pay", None, 0.0);
    let (own, other) = (d.stack(&["checkout (shop)"]), d.stack(&["seduce (affair)"]));
    waits_for(&mut d, shop, pay, own);
    let eve = stranger(&mut d, other, wakes.then_some(pay));
    (d, [shop, pay, eve])
}

#[test]
fn python_files_and_functions_of_others_are_gone() {
    let mut d = Drawing::new(6.0);
    let shop = d.process("python3", "python3 /srv/shop/app.py", None, 0.0);
    let pay = d.process("pay", "pay", None, 0.0);
    let app = d.stack(&["checkout (app.py:17)", "main (app.py:99)", "Py_RunMain (python3.11)"]);
    let diary = d.stack(&["seduce (diary.py:41)", "main (diary.py:7)", "Py_RunMain (python3.11)"]);
    waits_for(&mut d, shop, pay, app);
    stranger(&mut d, diary, Some(pay));
    let gone = ["seduce", "diary.py", "affair", "letters"];
    let c = Copied::of(d, &[shop, pay], &gone, &["checkout", "app.py", "Py_RunMain"]);
    let python = c.loaded.catalog.modules.iter().filter(|m| m.kind == ModuleKind::Python);
    let named =
        python.filter(|m| std::path::Path::new(&m.path).extension().is_some_and(|e| e == "py")).count();
    assert_eq!(named, 1, "{:?}", c.loaded.catalog.modules);
    // A line of a file tells which one it is.
    let lines: Vec<u32> = c.loaded.catalog.frames.iter().map(|f| f.line).filter(|l| *l > 0).collect();
    assert_eq!(lines, [17, 99]);
    assert_eq!((c.summary.modules.kept, c.summary.modules.renamed), (2, 1), "{:?}", c.summary);
}

#[test]
fn variables_that_loops_of_others_ask_are_gone() {
    let mut d = Drawing::new(6.0);
    let shop = d.process("shop", "shop", None, 0.0);
    let pay = d.process("pay", "pay", None, 0.0);
    let (own, other) = (d.stack(&["checkout (shop)"]), d.stack(&["seduce (affair)"]));
    d.loops(own, LoopTurn::Asks(vec!["cart_full".into()]));
    d.loops(other, LoopTurn::Asks(vec!["in_love".into()]));
    waits_for(&mut d, shop, pay, own);
    stranger(&mut d, other, Some(pay));
    let c = Copied::of(d, &[shop, pay], &["seduce", "affair", "in_love"], &["checkout", "cart_full"]);
    assert_eq!(c.loaded.catalog.turns.len(), 1);
}

#[test]
fn what_others_did_not_serve_is_gone() {
    let (mut d, [shop, pay, eve]) = shop_and_stranger(false);
    let clients = d.object(ObjectKind::UnixStream, 5, 0, "/run/shop/clients");
    let lovers = d.object(ObjectKind::UnixStream, 6, 7, "/run/lovers");
    d.unserved(shop, clients, (2.2, 4.4), Display::None);
    d.unserved(eve, lovers, (1.0, 5.0), Display::X11);
    let c = Copied::of(d, &[shop, pay], &["lovers", "affair", "seduce"], &["/run/shop/clients"]);
    let [u] = c.loaded.graph.unserved() else { panic!("{:?}", c.loaded.graph.unserved()) };
    assert_eq!((u.since, u.until), (ns(2.2), ns(4.4)));
    let v = pg_graph::victims(&c.loaded.graph, &c.loaded.catalog, &VictimOptions::default());
    assert!(v[0].unserved.is_some(), "{}", v[0].summary);
    assert!(c.summary.events.1 >= 3, "the stranger's events are counted: {:?}", c.summary);
}

/// Thresholds that people set are numbers; a text in place of one may be anything.
#[test]
fn thresholds_stay_and_words_do_not() {
    let (mut d, [shop, pay, _]) = shop_and_stranger(false);
    let unit_type = d.unit_type("GET /basket", 0.01, 0.02);
    let stack = d.stack(&["sell (shop)"]);
    d.violation(shop, unit_type, (2.2, 2.5), (stack, 1), SeenBy::Sample);
    let c = Copied::of(d, &[shop, pay], &[], &["sell"]);
    let dir = tempfile::tempdir().unwrap();
    let (input, output) = (dir.path().join("in.pgs"), dir.path().join("out.pgs"));
    std::fs::write(&input, &c.file).unwrap();
    let mut s = Session::open(&input).unwrap();
    for (t, rule) in [(0, "40ms"), (1, "call eve")] {
        let rule = GuardRule { unit_type: UnitTypeId(t), rule: rule.into(), written: 0 };
        s.append_guard_rule(rule).unwrap();
    }
    redact(&input, &output, &Options::default()).unwrap();
    let kept: Vec<_> = Session::open(&output).unwrap().guard_rules().iter().map(|r| r.rule.clone()).collect();
    assert_eq!(kept, ["40ms"]);
}

#[test]
fn units_of_others_are_gone() {
    let (mut d, [shop, pay, eve]) = shop_and_stranger(true);
    let stranger = d.process("lurker", "lurker", None, 0.0);
    let stacks = ["sell (shop)", "hide (affair)", "lurk (lurker)"].map(|f| d.stack(&[f]));
    for (t, stack, name) in [(shop, 0, "GET /basket"), (eve, 1, "POST /letters"), (stranger, 2, "GET /keys")]
    {
        let unit_type = d.unit_type(name, 0.01, 0.02);
        let row = &mut d.catalog.unit_types[unit_type.index()];
        (row.function, row.module) = (format!("loop_of_{name}"), format!("/opt/{name}"));
        row.profile = format!("/home/ann/{}.pgprof", t.0);
        d.unit(t, unit_type, (1.0, 1.01));
        d.violation(t, unit_type, (2.2, 2.5), (stacks[stack], 1), SeenBy::Sample);
    }
    let gone = ["POST /letters", "GET /keys", "hide", "lurk", "/home/ann"];
    let c = Copied::of(d, &[shop, pay], &gone, &["GET /basket", "sell", "loop_of_GET /basket"]);
    let [shop, eve] = &c.loaded.catalog.unit_types[..] else { panic!("{:?}", c.loaded.catalog.unit_types) };
    assert!(shop.histogram.len() == 2 && shop.profile == "/home/user-1/0.pgprof", "{shop:?}");
    // Whoever is only touched keeps what it did, under a made-up name.
    assert!(eve.name == "type-1" && eve.histogram.is_empty() && eve.offset == 0, "{eve:?}");
    let mut seen = Vec::new();
    each(&c.loaded.session, |e| {
        if let Kind::Violation(v) = e.kind {
            seen.push((e.thread, v.unit_type.0, c.loaded.catalog.show_stack(v.user_stack).len()));
        }
    });
    assert_eq!(seen.len(), 2, "{seen:?}");
}

#[test]
fn calls_of_others_in_a_burst_are_gone() {
    let (mut d, [shop, pay, eve]) = shop_and_stranger(false);
    // A thread that only wakes `pay`: what it did is kept without names.
    let passer = d.process("passer", "passer --by", None, 0.0);
    let pipe = d.object(ObjectKind::Pipe, 88, 88, "");
    d.wait(pay, 4.55, 4.58, "read").on(pipe).by(passer, "write", pipe);
    d.wait(passer, 0.1, 4.5, "clock_nanosleep").times_out();
    for (t, path) in [(shop, "/srv/shop/ready"), (eve, "/srv/eve/ring"), (passer, "/srv/passer/keys")] {
        let file = d.object(ObjectKind::File, 100 + u64::from(t.0), 0, path);
        for i in 0..30 {
            d.call(t, 2.5 + f64::from(i) / 100.0, "newfstatat", file, -2);
        }
    }
    let gone = ["/srv/eve", "passer", "seduce"];
    let c = Copied::of(d, &[shop, pay], &gone, &["/srv/shop/ready"]);
    let calls = |t: ThreadId| c.loaded.graph.syscalls_of(t, 0..u64::MAX).len();
    assert_eq!((calls(shop), calls(eve)), (30, 0));
    assert!(c.summary.objects.dropped > 0, "{:?}", c.summary);
}

#[test]
fn steps_of_others_are_gone() {
    let (mut d, [shop, pay, eve]) = shop_and_stranger(true);
    for (i, (t, frame, code)) in
        [(shop, 0u32, &b"shop-codes"[..]), (eve, 1, b"stolen-bytes"), (pay, 0, b"pay-codes")]
            .into_iter()
            .enumerate()
    {
        let mark = |what| Mark { step: 0, what };
        d.catalog.traces.push(Trace {
            code: vec![Instruction::new(FrameId(frame), Flow::Syscall, code)],
            blocks: vec![0],
            runs: vec![Run { block: 0, times: 1 }],
            marks: vec![
                mark(MarkKind::Syscall(Sysno(0), Some(0x7fff_1234_5678))),
                mark(MarkKind::Returned(0x7ea5_e11e)),
            ],
            ..Trace::default()
        });
        let burst = Burst { start: ns(0.5), trace: TraceId(i as u32), steps: 1, how: How::SingleSteps };
        d.event(ns(1.0), t, Kind::Burst(burst));
    }
    let c = Copied::of(d, &[shop, pay], &["stolen-bytes", "seduce"], &["shop-codes", "pay-codes"]);
    assert_eq!(c.loaded.graph.bursts().len(), 2);
    for t in &c.loaded.catalog.traces {
        let values = t.marks.iter().any(|m| matches!(m.what, MarkKind::Returned(_)));
        assert!(!values, "what functions returned may be anything: {:?}", t.marks);
    }
}

/// The session that has the lock and its client are kept, with the title that says so; other sessions are not, and
/// their titles tell users and databases.
#[test]
fn sessions_of_a_database_that_have_nothing_to_do_with_it_are_gone() {
    let mut d = Drawing::new(9.0);
    let server = d.process("postgres", "postgres -D /data", None, 0.0);
    d.wait(server, 0.1, 9.0, "pause").open();
    let mut pairs = Vec::new();
    for (n, client, title) in [
        (0, "shop", "postgres: ann shop [local] UPDATE waiting"),
        (1, "report", "postgres: bob shop [local] idle in transaction"),
        (2, "payroll", "postgres: eve salaries [local] idle in transaction"),
    ] {
        let c = d.process(client, &format!("{client} --night"), None, 0.0);
        let s = d.process("postgres", title, Some(server), 0.0);
        let mine = d.object(ObjectKind::UnixStream, 10 + n, 20 + n, "");
        let theirs = d.object(ObjectKind::UnixStream, 20 + n, 10 + n, "/run/pg/s");
        pairs.push((c, s, mine, theirs));
    }
    for (i, &(c, s, mine, theirs)) in pairs.iter().enumerate().skip(1) {
        let since = 1.0 + i as f64 / 2.0;
        let stack = d.stack(&["epoll_wait (libc.so.6)", "WaitLatch (postgres)", "secure_read (postgres)"]);
        d.message(c, mine, Direction::Send, since - 0.1, 9);
        d.message(s, theirs, Direction::Receive, since - 0.09, 9);
        d.wait(s, since, 9.0, "epoll_wait").on(theirs).stack(stack).open();
        d.hold(c, s, theirs, Relation::Peer, 6.0);
        let pipe = d.object(ObjectKind::Pipe, 70 + i as u64, 70 + i as u64, "");
        d.wait(c, since, 9.0, "read").on(pipe).open();
    }
    let (c, s, mine, theirs) = pairs[0];
    let stack = d.stack(&["epoll_wait (libc.so.6)", "WaitLatch (postgres)", "ProcSleep (postgres)"]);
    let latch = d.object(ObjectKind::SignalFd, 900, 0, "");
    d.message(c, mine, Direction::Send, 2.9, 9);
    d.wait(c, 2.95, 9.0, "poll").on(mine).open();
    d.message(s, theirs, Direction::Receive, 2.96, 9);
    d.wait(s, 3.0, 9.0, "epoll_wait").on(latch).stack(stack).open();
    let titles = ["UPDATE waiting", "bob shop [local] idle in transaction"];
    let c = Copied::of(d, &[c], &["eve salaries", "salaries", "payroll"], &titles);
    let v = pg_graph::victims(&c.loaded.graph, &c.loaded.catalog, &VictimOptions::default());
    let r = run_with_policy(&c.loaded.graph, &c.loaded.catalog, v[0].clone(), pg_graph::Options::default());
    let way: Vec<_> = r.slice.iter().map(|s| s.process.as_str()).collect();
    assert_eq!(way, ["shop", "postgres", "postgres", "report"]);
    assert!(
        !c.bytes.is_empty() && c.summary.processes.dropped + c.summary.processes.renamed >= 2,
        "{:?}",
        c.summary
    );
}
