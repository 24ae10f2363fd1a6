//! Drawn sessions: a small server in Python, whose loop is read from its source, and what its threads did when.

use super::*;
use pg_event::{
    Catalog, CatalogDelta, Coverage, Event, Frame, FrameId, Item, Kind, Module, ModuleId, ModuleKind, Ns,
    ObjectId, OffCpu, OffState, Process, ProcessId, Sample, Stack, StackId, SyscallUse, Sysno, Thread,
    ThreadId, syscall_number,
};
use pg_graph::units::{Profile, Rule, TypeOptions};
use pg_tracer::units::Places;
use std::path::Path;

/// Line 3 waits for a request, line 4 has it handled.
const SERVER: &str = "\
def serve():
    while True:
        request = wait()
        handle(request)
def wait():
    poll()
def handle(request):
    if request: read(request)
    else: compute(request)
def read(request):
    disk()
def compute(request):
    pass
";

/// Who waits for a request; who reads one from the disk; who computes one.
const WAIT: &str = "serve:3 wait:6";
const READ: &str = "serve:4 handle:8 read:11";
const COMPUTE: &str = "serve:4 handle:9 compute:13";

const US: Ns = 1_000;

/// A session as it is drawn.
struct Drawn {
    catalog: Catalog,
    events: Vec<Event>,
    _dir: tempfile::TempDir,
}

impl Drawn {
    /// Threads 0 and 1 are of the server, thread 2 of somebody else.
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let source = dir.path().join("server.py");
        std::fs::write(&source, SERVER).unwrap();
        let module =
            |path: &Path, kind| Module { kind, path: path.display().to_string(), build_id: String::new() };
        let modules =
            vec![module(&source, ModuleKind::Python), module(Path::new("/bin/python3"), ModuleKind::Elf)];
        let thread = |i: u32| Thread {
            tid: i,
            process: ProcessId(i / 2),
            name: format!("t{i}"),
            focus: i < 2,
            ..Thread::default()
        };
        let process = |exe: &str| Process { exe: exe.into(), ..Process::default() };
        let catalog = Catalog {
            threads: (0..3).map(thread).collect(),
            processes: vec![process("/srv/shop-1.2/server"), process("/bin/other")],
            modules,
            ..Catalog::default()
        };
        Self { catalog, events: Vec::new(), _dir: dir }
    }

    /// A stack by functions and lines, the outermost first; begins with `...` when it was cut off.
    fn stack(&mut self, text: &str) -> StackId {
        let (truncated, text) = text.strip_prefix("...").map_or((false, text), |rest| (true, rest));
        let mut frames: Vec<FrameId> = Vec::new();
        for word in text.split_whitespace().rev() {
            let (function, line) = word.split_once(':').unwrap();
            let frame = Frame {
                module: ModuleId(0),
                address: line.parse().unwrap(),
                function: function.into(),
                ..Frame::default()
            };
            frames.push(FrameId(place(&mut self.catalog.frames, frame)));
        }
        StackId(place(&mut self.catalog.stacks, Stack { frames, truncated, ..Stack::default() }))
    }

    fn push(&mut self, thread: u32, cpu: u16, time: Ns, kind: Kind) -> &mut Self {
        self.events.push(Event { time: time * US, thread: ThreadId(thread), cpu, kind });
        self
    }

    fn off(&mut self, stack: &str, from: Ns, call: &str, state: OffState) -> OffCpu {
        OffCpu {
            syscall: syscall_number(call).unwrap_or(Sysno::NONE),
            user_stack: self.stack(stack),
            object: ObjectId::NONE,
            value: 1,
            ..OffCpu::new(from * US, from * US, state)
        }
    }

    /// Thread 0 waited, on CPU 0; times in us.
    fn wait(&mut self, stack: &str, from: Ns, to: Ns) -> &mut Self {
        let call = if stack.ends_with("wait:6") { "poll" } else { "pread64" };
        let w = self.off(stack, from, call, OffState::Interruptible);
        self.push(0, 0, to, Kind::OffCpu(w))
    }

    /// Four samples, the last at a moment: enough to tell what a unit does.
    fn samples(&mut self, stack: &str, time: Ns) -> &mut Self {
        (0..4).rev().fold(self, |d, before| d.sample(stack, time - before))
    }

    fn sample(&mut self, stack: &str, time: Ns) -> &mut Self {
        let user_stack = self.stack(stack);
        let sample = Sample { weight: 0, user_stack, kernel_stack: StackId::NONE };
        self.push(0, 0, time, Kind::Sample(sample))
    }

    fn call(&mut self, name: &str, from: Ns, to: Ns) -> &mut Self {
        let nr = syscall_number(name).unwrap();
        let call = SyscallUse { start: from * US, nr, result: 0, count: 1, op: 0, object: ObjectId::NONE };
        self.push(0, 0, to, Kind::Syscall(call))
    }

    /// Turns of thread 0 from a moment on: waits 100 us, then reads for 30 us of which it is 10 off the CPU. Each takes
    /// 130 us.
    fn turns(&mut self, from: Ns, count: u64) -> &mut Self {
        for i in 0..count {
            let at = from + i * 130;
            self.wait(WAIT, at, at + 100).wait(READ, at + 110, at + 120);
        }
        self
    }

    fn learn(&self) -> Learnt {
        let items = vec![
            Item::Catalog(CatalogDelta::from(self.catalog.clone())),
            Item::Events(self.events.clone()),
            Item::End { duration: 1_000_000 * US, coverage: Coverage::default() },
        ];
        let focus = |c: &Catalog, t: ThreadId| c.thread(t).is_some_and(|t| t.focus);
        learn(|| items.clone().into_iter(), &mut Places::default(), focus)
    }

    /// Name, units, least and greatest in us of each type.
    fn types(&self) -> Vec<(String, u64, Ns, Ns)> {
        types(&self.learn().profile)
    }
}

fn place<T: PartialEq>(all: &mut Vec<T>, one: T) -> u32 {
    let known = all.iter().position(|x| *x == one);
    known.unwrap_or_else(|| {
        all.push(one);
        all.len() - 1
    }) as u32
}

fn types(p: &Profile) -> Vec<(String, u64, Ns, Ns)> {
    let listed = p.listed(TypeOptions::default(), Rule::default());
    let row = |l: &pg_graph::units::Listed, of: usize| {
        let s = &l.of.known.stats[of];
        (l.of.known.names[of].clone(), s.count(), s.least().unwrap() / US, s.greatest().unwrap() / US)
    };
    let mut all: Vec<_> = listed.iter().flat_map(|l| l.rows.iter().map(|r| row(l, r.1.of))).collect();
    all.sort();
    all
}

fn one(name: &str, units: u64, least: Ns, greatest: Ns) -> (String, u64, Ns, Ns) {
    (name.to_owned(), units, least, greatest)
}

#[test]
fn units_are_between_waits_for_work_and_typed_by_their_stacks() {
    let mut d = Drawn::new();
    d.turns(0, 5);
    // Two that compute for 900 us, preempted for 100 of them: that counts.
    for at in [700, 1700] {
        let preempted = d.off(COMPUTE, at + 300, "", OffState::Runnable);
        d.wait(WAIT, at, at + 100).push(0, 0, at + 400, Kind::OffCpu(preempted));
        d.samples(COMPUTE, at + 500);
    }
    d.wait(WAIT, 2700, 2800).wait(READ, 2810, 2820);
    let learnt = d.learn();
    assert_eq!(types(&learnt.profile), [one("compute", 2, 900, 900), one("read", 5, 30, 80)]);
    // The first and the last: nobody knows when they began, or ended.
    assert_eq!(learnt.left, Left { edges: 2, ..Left::default() });
    assert_eq!(learnt.program, "server");
    let l = &learnt.loops[0];
    assert_eq!((l.name.as_str(), l.threads, l.units, l.unseen), ("serve", 1, 7, 0));
    assert_eq!((l.key.build_id.as_str(), l.key.offset), ("server.py", 2));
    let boundaries: Vec<_> = learnt.profile.boundaries(&l.key).collect();
    assert_eq!(boundaries.len(), 1);
    assert_eq!(boundaries[0].syscall.name().as_deref(), Some("poll"));
    assert_eq!(
        learnt.profile.loop_function(&l.key).map(|f| (f.function.name.as_str(), f.entry)),
        Some(("serve", 1))
    );
    // What else waits for input has no loop.
    assert_eq!(learnt.quiet.iter().map(|q| q.name.as_str()).collect::<Vec<_>>(), ["t1"]);
}

#[test]
fn a_wait_that_is_told_before_it_ended() {
    let mut d = Drawn::new();
    d.turns(0, 3);
    // Told when it had taken 200 us, then as it was; the unit ends where the wait began.
    let mut open = d.off(WAIT, 390, "poll", OffState::Interruptible);
    open.open = true;
    d.push(0, 0, 590, Kind::OffCpu(open)).wait(WAIT, 390, 5000).wait(READ, 5010, 5020).wait(WAIT, 5030, 5100);
    assert_eq!(d.types(), [one("read", 4, 30, 30)]);
    // In a unit.
    let mut d = Drawn::new();
    d.turns(0, 3).wait(WAIT, 390, 400);
    let mut open = d.off(READ, 410, "pread64", OffState::Interruptible);
    open.open = true;
    d.push(0, 0, 610, Kind::OffCpu(open)).wait(READ, 410, 1390).wait(WAIT, 1400, 1500);
    assert_eq!(d.types(), [one("read", 4, 30, 1000)]);
}

#[test]
fn a_wait_whose_end_was_lost_makes_no_giant_unit() {
    // In the wait for work: the next unit has no begin.
    let mut d = Drawn::new();
    d.turns(0, 3);
    let mut open = d.off(WAIT, 390, "poll", OffState::Interruptible);
    open.open = true;
    d.push(0, 0, 590, Kind::OffCpu(open)).wait(READ, 9010, 9020).turns(9030, 3);
    assert_eq!(d.types(), [one("read", 5, 30, 30)]);
    // In the unit: it may hold the end of several.
    let mut d = Drawn::new();
    d.turns(0, 3).wait(WAIT, 390, 400);
    let mut open = d.off(READ, 410, "pread64", OffState::Interruptible);
    open.open = true;
    d.push(0, 0, 610, Kind::OffCpu(open)).wait(READ, 9010, 9020).turns(9030, 3);
    let learnt = d.learn();
    assert_eq!(types(&learnt.profile), [one("read", 5, 30, 30)]);
    assert_eq!((learnt.left.lost, learnt.left.edges), (1, 2));
}

#[test]
fn a_switch_that_was_not_reported_shows_by_who_ran_there() {
    let mut d = Drawn::new();
    d.turns(0, 3);
    // The wait between two units is missing, but another thread ran on the CPU meanwhile.
    d.wait(WAIT, 390, 400).wait(READ, 410, 420);
    let comes = OffCpu::new(0, 500 * US, OffState::Interruptible);
    d.push(2, 0, 500, Kind::OffCpu(comes)).wait(READ, 9010, 9020).turns(9030, 3);
    let learnt = d.learn();
    assert_eq!(types(&learnt.profile), [one("read", 5, 30, 30)]);
    assert_eq!(learnt.left.lost, 1);
    // On another CPU, or while it waits, that is nothing.
    let mut d = Drawn::new();
    d.turns(0, 3);
    d.wait(WAIT, 390, 400).wait(READ, 410, 420);
    d.push(2, 1, 423, Kind::OffCpu(comes)).wait(WAIT, 430, 450);
    let waits = OffCpu::new(424 * US, 425 * US, OffState::Interruptible);
    d.push(2, 0, 440, Kind::OffCpu(waits));
    d.events.sort_by_key(|e| e.time);
    d.wait(READ, 460, 470).turns(480, 2);
    let learnt = d.learn();
    assert_eq!((types(&learnt.profile)[0].1, learnt.left.lost), (6, 0));
}

#[test]
fn a_wait_without_its_stack_may_have_been_between_two_units() {
    for stack in ["", "...wait:6"] {
        let mut d = Drawn::new();
        d.turns(0, 5);
        // Where it waits is not known, but it is the call of a boundary; in another call it is none.
        let mut w = d.off(stack, 700, "poll", OffState::Interruptible);
        if stack.is_empty() {
            w.user_stack = StackId::NONE;
        }
        let read = OffCpu { syscall: syscall_number("pread64").unwrap(), ..w };
        d.wait(WAIT, 650, 660).push(0, 0, 800, Kind::OffCpu(w)).wait(WAIT, 900, 910);
        d.push(0, 0, 950, Kind::OffCpu(read)).turns(1000, 5);
        let learnt = d.learn();
        assert_eq!((learnt.left.lost, learnt.loops[0].units), (1, 10), "{stack}");
    }
}

#[test]
fn units_with_lost_events_are_left_out() {
    let mut d = Drawn::new();
    d.turns(0, 3);
    d.push(0, 0, 390, Kind::Lost { since: 370 * US, count: 2, ring: 0 }).turns(390, 3);
    let learnt = d.learn();
    assert_eq!((types(&learnt.profile)[0].1, learnt.left.lost), (4, 1));
    // Samples and stacks say nothing of when units begin.
    let mut d = Drawn::new();
    d.turns(0, 3);
    d.push(0, 0, 390, Kind::Lost { since: 370 * US, count: 2, ring: 2 }).turns(390, 3);
    assert_eq!(d.types(), [one("read", 5, 30, 30)]);
}

#[test]
fn several_turns_without_a_wait_are_no_unit() {
    let mut d = Drawn::new();
    d.turns(0, 3).wait(WAIT, 390, 400).sample(COMPUTE, 500).sample(WAIT, 600).sample(COMPUTE, 700);
    d.turns(1000, 3);
    let learnt = d.learn();
    assert_eq!(types(&learnt.profile), [one("read", 5, 30, 30)]);
    assert_eq!(learnt.left.turned, 1);
    // On the way from or to a wait, the call that waits is seen as a matter of course.
    let mut d = Drawn::new();
    d.turns(0, 3).wait(WAIT, 390, 400).sample(WAIT, 401).samples(COMPUTE, 500).sample(WAIT, 999);
    d.turns(1000, 3);
    assert_eq!(d.types(), [one("compute", 1, 600, 600), one("read", 5, 30, 30)]);
}

#[test]
fn system_calls_end_units_of_a_busy_loop_and_tell_them_apart() {
    let mut d = Drawn::new();
    d.turns(0, 3).wait(WAIT, 390, 400).call("poll", 389, 402);
    // Two more turns without waiting.
    d.call("recvfrom", 405, 407).call("poll", 412, 415).call("openat", 416, 418).call("poll", 420, 421);
    d.turns(500, 2);
    let expected =
        [one("(unseen: openat)", 1, 5, 5), one("(unseen: recvfrom)", 1, 10, 10), one("handle", 4, 30, 30)];
    let learnt = d.learn();
    // The last turn before the next wait did nothing that was recorded.
    assert_eq!(types(&learnt.profile)[1..], expected);
    assert_eq!(types(&learnt.profile)[0], one("(unseen)", 1, 79, 79));
    assert_eq!(learnt.loops[0].unseen, 3);
}

#[test]
fn stacks_that_were_cut_off_count_from_the_loop_inwards() {
    let mut d = Drawn::new();
    d.turns(0, 3).wait(WAIT, 390, 400).samples("...serve:4 handle:9 compute:13", 500);
    d.wait(WAIT, 600, 700).samples("...handle:9 compute:13", 720).turns(800, 9);
    let expected = [one("(unseen)", 1, 100, 100), one("compute", 1, 200, 200), one("read", 11, 30, 30)];
    assert_eq!(d.types(), expected);
}

#[test]
fn waits_one_after_the_other_have_no_unit_between_them() {
    let mut d = Drawn::new();
    d.turns(0, 4).wait(WAIT, 520, 600).wait(WAIT, 600, 700).turns(710, 2);
    let learnt = d.learn();
    assert_eq!((learnt.left.empty, learnt.left.turned, learnt.loops[0].units), (1, 0, 6));
}

#[test]
fn without_a_loop_nothing_is_learnt_and_it_is_told() {
    let mut d = Drawn::new();
    d.wait("wait:6", 0, 100).wait("wait:6", 200, 300).wait("wait:6", 400, 500);
    let learnt = d.learn();
    assert_eq!((learnt.profile.units(), learnt.loops.len()), (0, 0));
    let told: Vec<_> = learnt.quiet.iter().map(|q| (q.name.as_str(), q.threads, q.waits)).collect();
    assert_eq!(told, [("t0", 1, 3), ("t1", 1, 0)]);
}

#[test]
fn a_glimpse_is_no_type() {
    // Read, and sampled once or three times while it does: that it read is certain, the rest is chance.
    let mut d = Drawn::new();
    d.turns(0, 3).sample(COMPUTE, 389).turns(390, 2);
    d.wait(WAIT, 700, 710).sample(COMPUTE, 720).sample(COMPUTE, 730).sample(COMPUTE, 740).turns(800, 3);
    assert_eq!(d.types(), [one("(unseen)", 1, 90, 90), one("handle", 7, 30, 80)]);
}

#[test]
fn what_a_unit_does_now_and_then_is_no_part_of_its_type() {
    let mut d = Drawn::new();
    d.turns(0, 3);
    // One computes, and is seen reading once among twenty times; the other half of the time.
    for (at, reads) in [(400, 1), (1400, 10)] {
        d.wait(WAIT, at, at + 100);
        for i in 0..20 {
            d.sample(if i < reads { READ } else { COMPUTE }, at + 200 + i);
        }
    }
    d.turns(2400, 3);
    // Paths and units of each call tree.
    let listed = d.learn().profile.listed(TypeOptions::default(), Rule::default());
    let trees = listed[0].of.types.trees().iter();
    let trees: Vec<(usize, u64)> = trees.map(|t| (t.paths.len(), t.units)).collect();
    assert_eq!(trees, [(1, 1), (2, 1), (1, 5)]);
}

/// A thread for each client ends when that has gone: its last unit with it. The first thread's end is the program's, and a thread
/// that was woken to end did nothing.
#[test]
fn a_thread_that_ends_ends_its_unit() {
    for (thread, works, units, left) in [(1, true, 5, 1), (1, false, 4, 2), (0, true, 4, 2)] {
        let mut d = Drawn::new();
        d.turns(0, 4).wait(WAIT, 520, 620);
        if works {
            d.wait(READ, 630, 640);
        }
        d.push(0, 0, 670, Kind::Exit { status: 0 });
        for e in &mut d.events {
            e.thread = ThreadId(thread);
        }
        let learnt = d.learn();
        let all: u64 = types(&learnt.profile).iter().map(|t| t.1).sum();
        assert_eq!(all, units, "{thread} {works}: {:?}", types(&learnt.profile));
        // The first one nobody saw begin.
        assert_eq!(learnt.left, Left { edges: left, ..Left::default() }, "{thread} {works}");
    }
}
