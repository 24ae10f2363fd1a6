//! A small recording made by hand: `shop` waits 4 s on a socket for `pay`, which computes.

use pg_event::{
    CatalogDelta, Cmdline, Context, Coverage, Direction, Event, Frame, FrameId, IpcUse, Item, Kind, Module,
    ModuleId, ModuleKind, Object, ObjectId, ObjectKind, OffCpu, OffState, Process, ProcessId, Sample, Stack,
    StackId, Sysno, Thread, ThreadId,
};
use pg_tui::session::{Header, Writer};
use std::path::Path;

/// A second.
pub const S: u64 = 1_000_000_000;

fn process(pid: u32, name: &str, line: &str, focus: bool) -> Process {
    let cmdlines = vec![Cmdline { time: 0, text: line.into() }];
    Process { pid, ns_pid: pid, name: name.into(), cmdlines, focus, ..Process::default() }
}

fn thread(tid: u32, name: &str, process: u32, focus: bool) -> Thread {
    Thread { tid, ns_tid: tid, process: ProcessId(process), name: name.into(), focus, ..Thread::default() }
}

fn socket(id: u64, peer: u64) -> Object {
    Object { name: "/run/pay.sock".into(), ..Object::new(ObjectKind::UnixStream, id, peer) }
}

fn code(module: u32, function: &str) -> Frame {
    Frame { module: ModuleId(module), address: 64, function: function.into(), ..Frame::default() }
}

fn stack(frame: u32) -> Stack {
    Stack { frames: vec![FrameId(frame)], ..Stack::default() }
}

fn module(path: &str) -> Module {
    Module { kind: ModuleKind::Elf, path: path.into(), build_id: String::new() }
}

fn wait(start: u64, woken: u64, object: u32, stack: u32, waker: (u32, u32)) -> Kind {
    let mut o = OffCpu::new(start, woken, OffState::Interruptible);
    (o.syscall, o.waker_syscall, o.waker_context) = (Sysno(0), Sysno(1), Context::Task);
    (o.object, o.user_stack) = (ObjectId(object), StackId(stack));
    (o.waker, o.waker_object) = (ThreadId(waker.0), ObjectId(waker.1));
    Kind::OffCpu(o)
}

fn send(object: u32, time: u64) -> Kind {
    let direction = Direction::Send;
    Kind::Ipc(IpcUse { object: ObjectId(object), direction, count: 1, bytes: 10, first: time, position: 0 })
}

/// Write it to `path`. `name` is what the shop's thread is called.
pub fn write(path: &Path, name: &str) {
    let rows = CatalogDelta {
        processes: vec![
            (ProcessId(0), process(10, name, "shop --verbose", true)),
            (ProcessId(1), process(20, "pay", "pay --listen /run/pay.sock", false)),
        ],
        threads: vec![(ThreadId(0), thread(10, name, 0, true)), (ThreadId(1), thread(20, "pay", 1, false))],
        objects: vec![(ObjectId(0), socket(100, 101)), (ObjectId(1), socket(101, 100))],
        stacks: vec![(StackId(0), stack(0)), (StackId(1), stack(1))],
        frames: vec![(FrameId(0), code(0, "ask_pay")), (FrameId(1), code(1, "rebuild_index"))],
        modules: vec![(ModuleId(0), module("/opt/shop")), (ModuleId(1), module("/opt/pay"))],
        ..CatalogDelta::default()
    };
    let at = |time, t, kind| Event { time, thread: ThreadId(t), cpu: 0, kind };
    let mut events = vec![
        at(S, 0, send(0, S)),
        at(S + 1000, 1, wait(S / 2, S + 500, 1, 1, (0, 0))),
        at(5 * S - 2000, 1, send(1, 5 * S - 2000)),
        at(5 * S, 0, wait(S + 600, 5 * S - 1000, 0, 0, (1, 1))),
        at(5 * S + 2000, 1, wait(5 * S - 500, 5 * S + 1000, 1, 1, (0, 0))),
    ];
    for i in 0..40 {
        let sample = Sample { weight: S / 10, user_stack: StackId(1), kernel_stack: StackId::NONE };
        events.push(at(S + 2000 + i * S / 10, 1, Kind::Sample(sample)));
    }
    events.sort_by_key(|e| e.time);
    let header =
        // 2026-11-25 09:10:12 UTC.
        Header {
            host: "db7".into(),
            kernel: "6.1.0".into(),
            focus: "shop".into(),
            start_wall: 1_795_597_812_000_000_000,
            ..Header::default()
        };
    let mut w = Writer::create(path, &header).expect("the file can be made");
    w.item(&Item::Catalog(rows)).expect("written");
    w.item(&Item::Events(events)).expect("written");
    w.item(&Item::End { duration: 6 * S, coverage: Coverage::default() }).expect("written");
    w.finish().expect("written");
}
