//! Tiny recordings drawn as text, for tests that can be read.
//!
//! ```text
//! A  ==....-==        = on a CPU    . waits     - runnable    z sleeps   D waits for a disk
//! B  ======--           (space) does not exist
//! B wakes A 6 mutex   at tick 6, by what: futex mutex cond pipe unix tcp exit signal irq timer packet work
//! A spawns C 2
//! B sends A 3 5 100   100 bytes through a pipe, written at tick 3, read at tick 5
//! lost 3 5            events were lost between these ticks
//! ```
//!
//! A tick is one millisecond. A line is a lane if its second word is made of the signs above.

use super::Recording;
use pg_event::{
    Catalog, Context, Direction, Event, IpcUse, Kind, Ns, Object, ObjectId, ObjectKind, OffCpu, OffState,
    Process, ProcessId, Sysno, Thread, ThreadId, syscall_number,
};

/// Length of a tick, ns.
pub const TICK: Ns = 1_000_000;

/// A drawing that cannot be read.
#[derive(thiserror::Error, Debug, PartialEq, Eq)]
#[error("drawing, line {line}: {why}")]
pub struct DrawError {
    /// Which line, from 1.
    pub line: usize,
    /// What is wrong with it.
    pub why: String,
}

fn is_lane(word: &str) -> bool {
    !word.is_empty() && word.chars().all(|c| "=.-zD".contains(c))
}

/// System call by a name that is known to exist.
pub(crate) fn call(name: &str) -> Sysno {
    syscall_number(name).unwrap_or_default()
}

struct Drawing {
    catalog: Catalog,
    events: Vec<Event>,
    duration: Ns,
    /// By thread: where its lane ends.
    ends: Vec<Ns>,
}

impl Drawing {
    fn thread(&self, name: &str) -> Option<ThreadId> {
        self.catalog.threads.iter().position(|t| t.name == name).map(|i| ThreadId(i as u32))
    }

    fn object(&mut self, kind: ObjectKind, id: u64) -> ObjectId {
        let o = Object::new(kind, id, id);
        let found = self.catalog.objects.iter().position(|x| *x == o);
        ObjectId(found.unwrap_or_else(|| {
            self.catalog.objects.push(o);
            self.catalog.objects.len() - 1
        }) as u32)
    }

    fn lane(&mut self, name: &str, lane: &str) {
        let id = ThreadId(self.catalog.threads.len() as u32);
        let signs: Vec<char> = lane.chars().collect();
        let at = |i: usize| i as Ns * TICK;
        let born = signs.iter().position(|c| *c != ' ').unwrap_or(0);
        let ends = signs.len();
        self.catalog.threads.push(Thread {
            tid: 100 + id.0,
            ns_tid: 100 + id.0,
            process: ProcessId(id.0),
            name: name.into(),
            start: at(born),
            ..Thread::default()
        });
        self.catalog.processes.push(Process { pid: 100 + id.0, name: name.into(), ..Process::default() });
        let mut i = born;
        while i < ends {
            let run = |from: usize, of: &dyn Fn(char) -> bool| {
                signs[from..].iter().position(|c| !of(*c)).map_or(ends, |n| from + n)
            };
            match signs[i] {
                '=' => i = run(i, &|c| c == '='),
                '-' => {
                    let to = run(i, &|c| c == '-');
                    self.off(id, OffCpu::new(at(i), at(i), OffState::Runnable), at(to), to == ends);
                    i = to;
                }
                sign => {
                    let woken = run(i, &|c| c == sign);
                    let to = run(woken, &|c| c == '-');
                    let state = if sign == 'D' { OffState::Uninterruptible } else { OffState::Interruptible };
                    let mut o = OffCpu::new(at(i), at(woken), state);
                    o.begun_before = i == 0;
                    if sign == 'z' {
                        o.syscall = call("clock_nanosleep");
                        o.timeout = at(woken - i);
                        o.waker_context = Context::Timer;
                    }
                    if woken == ends {
                        o.woken = 0;
                    }
                    self.off(id, o, at(to), to == ends);
                    i = to;
                }
            }
        }
        self.duration = self.duration.max(at(ends));
        self.ends.push(at(ends));
    }

    fn off(&mut self, thread: ThreadId, mut o: OffCpu, time: Ns, open: bool) {
        o.open = open;
        self.events.push(Event { time, thread, cpu: 0, kind: Kind::OffCpu(o) });
    }

    fn wake(&mut self, waker: ThreadId, wakee: ThreadId, tick: Ns, how: &str) -> Result<(), String> {
        let pipe = self.object(ObjectKind::Pipe, 1000 + u64::from(wakee.0));
        let unix = self.object(ObjectKind::UnixStream, 2000 + u64::from(wakee.0));
        let tcp = self.object(ObjectKind::Tcp, 3000 + u64::from(wakee.0));
        let futex = self.object(ObjectKind::Futex, 4000 + u64::from(wakee.0));
        let wait = self.events.iter_mut().find_map(|e| match &mut e.kind {
            Kind::OffCpu(o) if e.thread == wakee && o.woken == tick * TICK && o.blocked() => Some(o),
            _ => None,
        });
        let Some(o) = wait else { return Err(format!("nobody is woken at {tick}")) };
        o.waker = waker;
        o.waker_context = Context::Task;
        let mut through = |object, reads: &str, writes: &str| {
            (o.object, o.waker_object) = (object, object);
            (o.syscall, o.waker_syscall) = (call(reads), call(writes));
        };
        match how {
            "" => {}
            "futex" => through(futex, "futex", "futex"),
            "mutex" => {
                through(futex, "futex", "futex");
                (o.op, o.value) = (128, 2);
            }
            "cond" => {
                through(futex, "futex", "futex");
                (o.op, o.value) = (137, 0);
            }
            "pipe" => through(pipe, "read", "write"),
            "unix" => through(unix, "recvmsg", "sendmsg"),
            "tcp" | "packet" => {
                through(tcp, "recvfrom", "sendto");
                o.waker_context = Context::NetRx;
                if how == "packet" {
                    (o.waker_object, o.waker_syscall) = (ObjectId::NONE, Sysno::NONE);
                }
            }
            "exit" => (o.syscall, o.waker_syscall) = (call("wait4"), call("exit_group")),
            "signal" => (o.syscall, o.waker_syscall) = (call("poll"), call("kill")),
            "irq" => o.waker_context = Context::HardIrq,
            "timer" => o.waker_context = Context::Timer,
            "work" => o.syscall = call("fsync"),
            other => return Err(format!("`{other}` is no way to wake")),
        }
        Ok(())
    }
}

/// Read a drawing.
pub fn draw(text: &str) -> Result<Recording, DrawError> {
    let mut d = Drawing { catalog: Catalog::default(), events: Vec::new(), duration: 0, ends: Vec::new() };
    let lines = || text.lines().enumerate().map(|(i, l)| (i + 1, l.trim_start().trim_end_matches('|')));
    // Lanes first: the other lines name them.
    for (_, l) in lines() {
        let (name, lane) = l.split_once(char::is_whitespace).unwrap_or((l, ""));
        if lane.split_whitespace().count() > 0 && lane.split_whitespace().all(is_lane) {
            // One space parts the name from the lane; further ones mean that it does not exist yet.
            d.lane(name, lane.trim_end());
        }
    }
    for (i, ended) in std::mem::take(&mut d.ends).into_iter().enumerate() {
        if ended < d.duration {
            let thread = ThreadId(i as u32);
            d.events.push(Event { time: ended, thread, cpu: 0, kind: Kind::Exit { status: 0 } });
        }
    }
    for (line, l) in lines() {
        let words: Vec<&str> = l.split_whitespace().collect();
        let fail = |why: String| DrawError { line, why };
        let who = |d: &Drawing, n: &str| d.thread(n).ok_or_else(|| fail(format!("no lane `{n}`")));
        let number = |w: &str| w.parse::<Ns>().map_err(|_| fail(format!("`{w}` is no tick")));
        match words[..] {
            [] => {}
            [_, ref lanes @ ..] if !lanes.is_empty() && lanes.iter().all(|w| is_lane(w)) => {}
            [a, "wakes", b, t, ref how @ ..] => {
                let (a, b, t) = (who(&d, a)?, who(&d, b)?, number(t)?);
                d.wake(a, b, t, how.first().copied().unwrap_or_default()).map_err(fail)?;
            }
            [a, "spawns", b, t] => {
                let (thread, child, t) = (who(&d, a)?, who(&d, b)?, number(t)?);
                d.events.push(Event { time: t * TICK, thread, cpu: 0, kind: Kind::Spawn { child } });
            }
            [a, "sends", b, t, u, bytes] => {
                let (a, b, t, u, bytes) = (who(&d, a)?, who(&d, b)?, number(t)?, number(u)?, number(bytes)?);
                let object = d.object(ObjectKind::Pipe, 5000 + u64::from(a.0) * 100 + u64::from(b.0));
                for (thread, at, direction) in [(a, t, Direction::Send), (b, u, Direction::Receive)] {
                    let time = at * TICK;
                    let what = IpcUse { object, direction, count: 1, bytes, first: time, position: 0 };
                    d.events.push(Event { time, thread, cpu: 0, kind: Kind::Ipc(what) });
                }
            }
            ["lost", t, u] => {
                let (since, time) = (number(t)? * TICK, number(u)? * TICK);
                let kind = Kind::Lost { since, count: 1, ring: 0 };
                d.events.push(Event { time, thread: ThreadId(0), cpu: 0, kind });
            }
            _ => return Err(fail(format!("`{l}` says nothing known"))),
        }
    }
    // Stable: what happens first in a tick is what the lanes say.
    d.events.sort_by_key(|e| e.time);
    Ok(Recording { catalog: d.catalog, events: d.events, duration: d.duration })
}
