//! A copy holds nothing of those it is not about, and leads to the same verdict.

use super::*;
use crate::session::format::{FRAME_LEN, Frame, PREFIX_LEN};
use pg_event::trace::{Flow, Instruction, Mark, MarkKind, Run};
use pg_event::{
    Burst, CatalogDelta, Cmdline, Context, Frame as CodeFrame, FrameId, IpcUse, Kind, Module, ModuleId,
    ModuleKind, Object, ObjectId, ObjectKind, OffCpu, OffState, Process, ProcessId, Stack, StackId, Sysno,
    Thread, ThreadId, Trace, TraceId, endpoint_v4,
};
use std::path::PathBuf;

const S: u64 = 1_000_000_000;

/// One instruction with its result.
fn trace(frame: u32, code: &[u8]) -> Trace {
    let mark = |what| Mark { step: 0, what };
    Trace {
        code: vec![Instruction::new(FrameId(frame), Flow::Syscall, code)],
        blocks: vec![0],
        runs: vec![Run { block: 0, times: 1 }],
        marks: vec![
            mark(MarkKind::Syscall(Sysno(0), Some(0x7fff_1234_5678))),
            mark(MarkKind::Syscall(Sysno(0), Some(-11))),
            mark(MarkKind::Returned(0x7ea5_e11e)),
        ],
        ..Trace::default()
    }
}

/// shop (focus) waits 4 s for pay, which runs; meanwhile a stranger talks to another one.
fn sample(dir: &Path) -> PathBuf {
    sample_with(dir, 0)
}

/// The same beside so many busy programs that wake one another all the time, and the bystander that wakes pay.
fn sample_with(dir: &Path, crowd: u32) -> PathBuf {
    let process = |pid, name: &str, line: &str, focus| Process {
        pid,
        ns_pid: pid,
        name: name.into(),
        exe: format!("/opt/{name}/bin"),
        cmdlines: vec![Cmdline { time: 0, text: line.into() }],
        cgroup: format!("/user.slice/{name}"),
        container: format!("c0ffee{pid}"),
        uid: 1000 + pid,
        focus,
        ..Process::default()
    };
    let thread = |tid, name: &str, p, focus| Thread {
        tid,
        ns_tid: tid,
        process: ProcessId(p),
        name: name.into(),
        focus,
        ..Thread::default()
    };
    let socket =
        |id, peer, name: &str| Object { name: name.into(), ..Object::new(ObjectKind::UnixStream, id, peer) };
    let tcp = |id, peer, name: &str| Object { name: name.into(), ..Object::new(ObjectKind::Tcp, id, peer) };
    let code = |module, function: &str| CodeFrame {
        module: ModuleId(module),
        address: 64,
        function: function.into(),
        file: format!("/home/alice/src/{function}.c"),
        line: 3,
        ..CodeFrame::default()
    };
    let module =
        |path: &str| Module { kind: ModuleKind::Elf, path: path.into(), build_id: format!("id-of-{path}") };
    let stack = |f| Stack { frames: vec![FrameId(f)], ..Stack::default() };
    let mut delta = CatalogDelta {
        processes: vec![
            (ProcessId(0), process(10, "shop", "shop --conf /home/alice/shop.conf", true)),
            (ProcessId(1), process(20, "pay", "pay --listen /run/pay.sock", false)),
            (ProcessId(2), process(30, "secretd", "secretd --password hunter22", false)),
            (ProcessId(3), process(40, "affair", "affair --with 203.0.113.9", false)),
            (ProcessId(4), process(50, "bystander", "bystander --token t0psecret", false)),
        ],
        threads: vec![
            (ThreadId(0), thread(10, "shop", 0, true)),
            (ThreadId(1), thread(20, "pay", 1, false)),
            (ThreadId(2), thread(30, "secret-thread", 2, false)),
            (ThreadId(3), thread(40, "affair-thread", 3, false)),
            (ThreadId(4), thread(50, "bystander-thread", 4, false)),
        ],
        objects: vec![
            (ObjectId(0), socket(100, 101, "/run/pay.sock")),
            (ObjectId(1), socket(101, 100, "/run/pay.sock")),
            (ObjectId(2), tcp(1 << 40, 1 << 41, "203.0.113.9:443->198.51.100.7:51000")),
            (ObjectId(4), socket(102, 103, "/run/rendezvous.sock")),
            (ObjectId(5), tcp(endpoint_v4(BROTHER, 5432), endpoint_v4(BROTHER + 1, 50_000), "")),
            (ObjectId(3), Object { name: "/srv/diary".into(), ..Object::new(ObjectKind::File, 9, 9) }),
        ],
        stacks: vec![(StackId(0), stack(0)), (StackId(1), stack(1)), (StackId(2), stack(2))],
        frames: vec![
            (FrameId(0), code(0, "ask_pay")),
            (FrameId(1), code(1, "rebuild_index")),
            (FrameId(2), code(2, "read_diary")),
        ],
        modules: vec![
            (ModuleId(0), module("/opt/shop/bin")),
            (ModuleId(1), module("/opt/pay/bin")),
            (ModuleId(2), module("/opt/secretd/bin")),
        ],
        // What shop and a bystander executed.
        traces: vec![(TraceId(0), trace(0, b"shop-codes")), (TraceId(1), trace(2, b"stolen-bytes"))],
        ..CatalogDelta::default()
    };
    let at = |time, t, kind| Event { time, thread: ThreadId(t), cpu: 0, kind };
    let wait = |start, woken, object, stack, waker: Option<(u32, u32)>| {
        let mut o = OffCpu::new(start, woken, OffState::Interruptible);
        o.syscall = Sysno(0);
        (o.object, o.user_stack) = (ObjectId(object), StackId(stack));
        if let Some((t, object)) = waker {
            (o.waker, o.waker_context, o.waker_object) = (ThreadId(t), Context::Task, ObjectId(object));
            o.waker_syscall = Sysno(1);
        }
        Kind::OffCpu(o)
    };
    let message = |object, direction, time| {
        let (count, bytes) = (1, 10);
        Kind::Ipc(IpcUse { object: ObjectId(object), direction, count, bytes, first: time, position: 0 })
    };
    let send = pg_event::Direction::Send;
    let mut events = vec![
        at(S, 0, message(0, send, S)),
        at(S + 1000, 1, wait(S / 2, S + 500, 1, 1, Some((0, 0)))),
        at(2 * S, 2, wait(S, 2 * S, 2, 2, Some((3, 3)))),
        at(3 * S, 2, wait(2 * S + 9, 3 * S, 3, 2, Some((3, 2)))),
        // A bystander wakes pay, which is touched by the graph but by no verdict.
        at(5 * S - 4000, 4, wait(5 * S - 9000, 5 * S - 5000, 5, 2, None)),
        at(5 * S - 3000, 4, message(4, send, 5 * S - 3000)),
        at(5 * S - 2000, 1, message(1, send, 5 * S - 2000)),
        at(5 * S, 0, wait(S + 600, 5 * S - 1000, 0, 0, Some((1, 1)))),
        at(5 * S + 2000, 1, wait(5 * S - 500, 5 * S + 1000, 1, 1, Some((0, 0)))),
        at(S - 2000, 1, wait(S / 4, S - 3000, 1, 1, Some((4, 4)))),
    ];
    for i in 0..crowd {
        let (name, id) = (format!("cc{i}"), 5 + i);
        delta
            .processes
            .push((ProcessId(id), process(100 + i, &name, &format!("{name} -c secret{i}.c"), false)));
        delta.threads.push((ThreadId(id), thread(100 + i, &name, id, false)));
    }
    // Each is woken by the one before it, a thousand times a second; the bystander by each of them in turn.
    let step = S / 1000;
    for i in 0..u64::from(crowd) * 100 {
        let (at_, who, by) = (S / 10 + i * step, 5 + i as u32 % crowd, 5 + (i as u32 + crowd - 1) % crowd);
        events.push(at(at_, who, wait(at_ - step / 2, at_ - step / 4, 3, 2, Some((by, 3)))));
        events.push(at(at_ + 9, 4, wait(at_ - step / 2, at_ - 9, 3, 2, Some((who, 3)))));
    }
    for i in 0..40 {
        let sample = pg_event::Sample { weight: S / 10, user_stack: StackId(1), kernel_stack: StackId::NONE };
        events.push(at(S + 2000 + i * S / 10, 1, Kind::Sample(sample)));
    }
    for (n, thread) in [(0, 0), (1, 4)] {
        let how = pg_event::trace::How::SingleSteps;
        let burst = Burst { start: S / 2, trace: TraceId(n), steps: 1, how };
        events.push(at(S - 5000, thread, Kind::Burst(burst)));
    }
    events.sort_by_key(|e| e.time);
    let path = dir.join("in.pgs");
    let header = Header {
        host: "db7-berlin".into(),
        user: "alice".into(),
        kernel: "6.1.0-tailored".into(),
        boot: "5eedb007-0d15-4c0a".into(),
        command: vec!["shop".into(), "--conf".into(), "/home/alice/shop.conf".into()],
        focus: "shop --conf /home/alice/shop.conf, cgroup /user.slice/c0ffee99".into(),
        ..Header::default()
    };
    let mut w = Writer::create(&path, &header).unwrap();
    w.item(&Item::Catalog(delta)).unwrap();
    w.item(&Item::Events(events)).unwrap();
    let notes = vec![
        "symbols of /opt/secretd/bin are missing".into(),
        "the clock is fine".into(),
        "alice on db7-berlin has no debug files in /home/alice/.debug".into(),
    ];
    let coverage = Coverage { notes, ..Coverage::default() };
    w.item(&Item::End { duration: 6 * S, coverage }).unwrap();
    w.finish().unwrap();
    path
}

/// All bytes of a session file, unpacked.
pub(super) fn unpacked(path: &Path) -> Vec<u8> {
    let file = std::fs::read(path).unwrap();
    let (mut at, mut out) = (PREFIX_LEN, Vec::new());
    while at < file.len() {
        let frame = Frame::read(&file, at).unwrap();
        out.extend_from_slice(&frame.payload(&file, at).unwrap());
        at += FRAME_LEN + frame.stored as usize;
    }
    out
}

pub(super) fn holds(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|w| w == text.as_bytes())
}

/// An address as it stands in a socket's identity: 10.77.66.55.
const BROTHER: u32 = 0x0a4d_4237;

const PRIVATE: [&str; 23] = [
    "5eedb007",
    "stolen-bytes",
    "tailored",
    "c0ffee",
    "bystander",
    "t0psecret",
    "rendezvous",
    "/opt/secretd",
    "/opt/affair",
    "alice",
    "db7",
    "berlin",
    "secretd",
    "hunter22",
    "affair",
    "203.0.113",
    "198.51.100",
    "diary",
    "secret-thread",
    "/user.slice",
    "my words",
    "read_diary",
    "id-of-/opt/secretd",
];

#[test]
fn strangers_are_gone_and_the_verdict_stays() {
    let dir = tempfile::tempdir().unwrap();
    let (input, output) = (sample(dir.path()), dir.path().join("out.pgs"));
    let note = session::Note { text: "my words".into(), ..session::Note::default() };
    Session::open(&input).unwrap().append_note(note).unwrap();
    let all = unpacked(&input);
    let held = |bytes: &[u8], n: u32| bytes.windows(4).any(|w| w == n.to_be_bytes());
    for s in PRIVATE {
        assert!(holds(&all, s), "the original holds {s}");
    }
    assert!(held(&all, BROTHER));
    let summary = redact(&input, &output, &Options::default()).unwrap();
    let left = unpacked(&output);
    for s in PRIVATE {
        assert!(!holds(&left, s), "the copy holds {s}");
    }
    assert!(!held(&left, BROTHER) && !held(&left, BROTHER + 1), "the copy holds an address");
    for s in [
        "shop",
        "pay --listen",
        "/run/pay.sock",
        "ask_pay",
        "rebuild_index",
        "the clock is fine",
        "shop-codes",
    ] {
        assert!(holds(&left, s), "the copy lost {s}");
    }
    assert_eq!((summary.differ, summary.everybody, summary.notes), (0, false, 2));
    assert!(summary.compared >= 1, "{summary:?}");
    assert_eq!(
        (summary.processes.kept, summary.processes.dropped, summary.events.1),
        (2, 2, 3),
        "{summary:?}"
    );
    let copy = load(&output).unwrap();
    assert!(copy.warnings.is_empty());
    // Results that may be anything are gone; errors and small numbers stay.
    let marks: Vec<_> = copy.catalog.traces[0].marks.iter().map(|m| m.what).collect();
    assert_eq!(marks, [MarkKind::Syscall(Sysno(0), None), MarkKind::Syscall(Sysno(0), Some(-11))]);
    assert_eq!((copy.catalog.traces.len(), copy.graph.bursts().len()), (1, 1));
    assert_eq!(copy.catalog.threads[0].name, "shop");
    assert_eq!(copy.catalog.processes[0].cmdline(), "shop --conf /home/user-1/shop.conf");
}

#[test]
fn more_can_be_kept() {
    let dir = tempfile::tempdir().unwrap();
    let (input, output) = (sample(dir.path()), dir.path().join("out.pgs"));
    let keep_process = vec![Regex::new("^secretd").unwrap()];
    redact(&input, &output, &Options { keep_process, keep_host: true, keep_notes: true }).unwrap();
    let left = unpacked(&output);
    for s in ["secretd", "hunter22", "db7-berlin", "6.1.0-tailored"] {
        assert!(holds(&left, s), "{s} was asked for");
    }
    assert!(!holds(&left, "affair"));
}

#[test]
fn a_redacted_copy_can_be_redacted_again() {
    let dir = tempfile::tempdir().unwrap();
    let (input, once, twice) = (sample(dir.path()), dir.path().join("1.pgs"), dir.path().join("2.pgs"));
    redact(&input, &once, &Options::default()).unwrap();
    let summary = redact(&once, &twice, &Options::default()).unwrap();
    assert_eq!((summary.events.1, summary.differ), (0, 0), "{summary:?}");
}

/// Whoever is woken by everybody is no reason to keep everybody.
#[test]
fn a_busy_machine_is_dropped() {
    let dir = tempfile::tempdir().unwrap();
    let (input, output) = (sample_with(dir.path(), 30), dir.path().join("out.pgs"));
    let summary = redact(&input, &output, &Options::default()).unwrap();
    assert_eq!((summary.differ, summary.everybody), (0, false), "{summary:?}");
    assert_eq!(summary.processes.kept, 2, "{summary:?}");
    // What the bystander did is kept without a name, and with it numbers of who woke it, but not what those did.
    assert!(summary.events.1 > 2000 && summary.events.0 < 4000, "{summary:?}");
    let left = unpacked(&output);
    assert!(!holds(&left, "secret"), "a command line of the crowd is in the copy");
}

/// Where the verdict needs more, more is kept.
#[test]
fn what_the_verdict_needs_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let loaded = load(&sample_with(dir.path(), 30)).unwrap();
    let verdicts = verdicts(&loaded);
    let kept = |reach| {
        let keep = Keep::new(&loaded, &verdicts, &Options::default(), reach);
        keep.threads.iter().filter(|c| **c != Class::Dropped).count()
    };
    let (little, past, all) = (kept(Reach::WakeUps), kept(Reach::Past), kept(Reach::Everybody));
    assert!(little <= 8 && past > 30 && all == 35, "{little} {past} {all}");
}
