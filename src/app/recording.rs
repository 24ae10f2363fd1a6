//! The loaded recording: catalogue, graph and session file, with the names that screens show.
//!
//! Every text it hands out is clean: this is the one door through which names of the recorded machine reach
//! the screens.

use crate::clean::{clean, clean_to};
use crate::session::{Header, Note, Session};
use crate::unit_rule::UnitRule;
use pg_event::{Catalog, Coverage, Event, Ns, ObjectId, OffState, ProcessId, StackId, ThreadId, UnitTypeId};
use pg_graph::{EventGraph, Vertex, VertexId, ViolationFact};
use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt::Write;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

mod names;

/// Longest name that is kept, columns. What is longer is cut, wherever it is shown.
const NAME: usize = 48;

/// A recording, loaded: nothing in it changes but what is appended to its file.
pub struct Recording {
    /// Its file; empty for one that was made in memory.
    pub path: PathBuf,
    /// File name, clean.
    pub name: String,
    /// What it says about itself.
    pub header: Header,
    /// Identities. Untrusted texts: show them by the methods here.
    pub catalog: Catalog,
    /// Vertices and edges.
    pub graph: EventGraph,
    /// What was not seen.
    pub coverage: Coverage,
    /// What was found wrong in the file.
    pub warnings: Vec<String>,
    /// How many events there are.
    pub events: u64,
    /// What of the file could not be read, in a sentence without its full stop; none when all could.
    pub unread: Option<String>,
    session: Option<Mutex<Session>>,
    threads: Vec<String>,
    processes: Vec<String>,
    groups: Vec<Group>,
}

/// How what could not be read ends where the file's end is missing.
pub const CUT_OFF: &str = "cut off";

/// Most remarks: a file of garbage brings as many as one wants.
const MOST_REMARKS: usize = 200;

/// A process and those of its threads that were seen.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Group {
    /// The process; none for threads whose process is not known.
    pub process: ProcessId,
    /// Its threads, main thread first.
    pub threads: Vec<ThreadId>,
    /// Within the focus.
    pub focus: bool,
}

/// A frame of the stack in which a unit was seen to take too long.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SeenFrame {
    /// `function (module)`, clean.
    pub text: String,
    /// How many frames it lies inside of the loop's: 0 is the loop's own, less what is outside; none for the kernel's,
    /// and when the loop's frame was not found.
    pub distance: Option<i64>,
    /// Of the kernel.
    pub kernel: bool,
}

impl std::fmt::Debug for Recording {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Recording").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Recording {
    /// From its parts.
    pub fn new(
        path: PathBuf,
        header: Header,
        catalog: Catalog,
        graph: EventGraph,
        coverage: Coverage,
        warnings: Vec<String>,
        session: Option<Session>,
    ) -> Self {
        let name = path.file_name().map_or_else(String::new, |n| clean_to(&n.to_string_lossy(), 60));
        let groups = names::group(&catalog, &graph);
        let (threads, processes) = names::name_all(&catalog);
        Self {
            path,
            name,
            header,
            catalog,
            coverage,
            warnings: warnings.iter().map(|w| clean_to(w, 300)).collect(),
            events: graph.event_count(),
            graph,
            unread: None,
            session: session.map(Mutex::new),
            threads,
            processes,
            groups,
        }
    }

    /// What is wrong with a file that could not be read whole, in a word: its end is missing, or something within it.
    pub fn unread_word(&self) -> &'static str {
        let cut = self.unread.as_ref().is_some_and(|u| u.ends_with(CUT_OFF));
        if cut { CUT_OFF } else { "damaged" }
    }

    /// What a reader should know of the recording, each once: what is wrong with the file first.
    pub fn remarks(&self) -> impl Iterator<Item = &String> {
        // Notes repeat what is wrong with the file, for the report.
        let told = |n: &&String| !self.warnings.iter().any(|w| n.ends_with(w.as_str()));
        self.warnings.iter().chain(self.coverage.notes.iter().filter(told)).take(MOST_REMARKS)
    }

    /// Processes with their threads: the focus first, the kernel's last, the recorder's own left out.
    pub fn groups(&self) -> &[Group] {
        &self.groups
    }

    /// Name of a thread: `shopd/worker-2`, `payd/7741`, `redis-cli:812`.
    pub fn thread_name(&self, t: ThreadId) -> &str {
        self.threads.get(t.index()).map_or("?", String::as_str)
    }

    /// Name of a thread within its process: `worker-2`, `7741`.
    pub fn short_thread_name(&self, t: ThreadId) -> &str {
        let name = self.thread_name(t);
        name.split_once('/').map_or(name, |(_, s)| s)
    }

    /// Name of a process, with its pid where the name is not unique.
    pub fn process_name(&self, p: ProcessId) -> &str {
        self.processes.get(p.index()).map_or("?", String::as_str)
    }

    /// Name of the process of a thread.
    pub fn process_name_of(&self, t: ThreadId) -> &str {
        self.catalog.thread(t).map_or("?", |t| self.process_name(t.process))
    }

    /// Process and thread id as the recorded machine's user knows them: `pid 812`, `pid 812 tid 815`, with
    /// the ids inside of the container where they differ.
    pub fn ids(&self, t: ThreadId) -> String {
        let Some(thread) = self.catalog.thread(t) else { return String::new() };
        let mut out = String::new();
        if let Some(p) = self.catalog.process(thread.process) {
            out = format!("pid {}", p.pid);
            let inside = pg_graph::words::inside(p);
            if !inside.is_empty() {
                let _ = write!(out, " ({inside})");
            }
            if p.pid == thread.tid {
                return out;
            }
            out.push(' ');
        }
        let _ = write!(out, "tid {}", thread.tid);
        if thread.ns_tid != 0 && thread.ns_tid != thread.tid {
            let _ = write!(out, " ({} there)", thread.ns_tid);
        }
        out
    }

    /// The same with the name its process had at `time`, where it executed another program since: `bash:812` of what
    /// is `cat` by now.
    pub fn thread_name_at(&self, t: ThreadId, time: Ns) -> Cow<'_, str> {
        let now = self.thread_name(t);
        let Some(thread) = self.catalog.thread(t) else { return now.into() };
        let Some(p) = self.catalog.process(thread.process) else { return now.into() };
        let then = pg_graph::words::process_at(&self.catalog, t, time);
        if then == p.name || thread.kernel {
            return now.into();
        }
        let own = now.strip_prefix(self.process_name(thread.process)).unwrap_or_default();
        format!("{}:{}{own}", clean_to(&then, NAME), p.pid).into()
    }

    /// What the clock on the wall showed at a moment, to stand behind it: ` (09:10:12 UTC)`; empty where that is not
    /// known.
    pub fn clock(&self, time: Ns) -> String {
        crate::wall::aside(self.header.start_wall, time)
    }

    /// Command line of the process of a thread, cut to `columns`.
    pub fn cmdline(&self, t: ThreadId, columns: usize) -> String {
        self.catalog.process_of(t).map_or_else(String::new, |p| clean_to(p.cmdline(), columns))
    }

    /// Command line of a process, cut to `columns`.
    pub fn command_of(&self, p: ProcessId, columns: usize) -> String {
        self.catalog.process(p).map_or_else(String::new, |p| clean_to(p.cmdline(), columns))
    }

    /// The one it had at `time`: it may have executed another program since.
    pub fn cmdline_at(&self, t: ThreadId, time: Ns, columns: usize) -> String {
        clean_to(&pg_graph::words::cmdline_at(&self.catalog, t, time), columns)
    }

    /// Is the thread within the focus? Everything is where no focus was set.
    pub fn in_focus(&self, t: ThreadId) -> bool {
        self.catalog.thread(t).is_some_and(|t| t.focus)
    }

    /// Did anybody fit the focus? Where nobody did, victims of everybody are looked for.
    pub fn has_focus(&self) -> bool {
        self.catalog.threads.iter().any(|t| t.focus)
    }

    /// What a type of units is called: `type GET /`.
    pub fn unit_type(&self, t: UnitTypeId) -> String {
        clean_to(&pg_graph::words::unit_type(&self.catalog, t), NAME + 5)
    }

    /// Why the type of a unit is not known, where its recording says so.
    pub fn why_unknown(&self, t: UnitTypeId) -> Option<String> {
        self.catalog.why_unknown(t).map(|why| clean_to(why, 300))
    }

    /// What was decided about the guards of types of units, as the session keeps it; what makes no sense is left out.
    pub fn guard_rules(&self) -> HashMap<UnitTypeId, UnitRule> {
        let rules = self.session().map_or_else(Vec::new, |s| s.guard_rules().to_vec());
        rules.into_iter().filter_map(|r| Some((r.unit_type, UnitRule::parse(&r.rule).ok()?))).collect()
    }

    /// File of the profile that a type of units is from, and the name that it has there; clean, so that they can be
    /// shown in a command to be pasted. `None` when one of them is not known.
    pub fn profile_and_name(&self, t: UnitTypeId) -> Option<(String, String)> {
        let row = self.catalog.unit_type(t)?;
        let known = !row.profile.is_empty() && !row.name.trim().is_empty();
        known.then(|| (clean(&row.profile).into_owned(), clean(row.name.trim()).into_owned()))
    }

    /// Where a unit was seen to take too long, innermost first: the kernel's frames, then those of the program.
    pub fn seen_at(&self, v: &ViolationFact) -> Vec<SeenFrame> {
        let kernel = pg_graph::kernel_frames(&self.catalog, v.kernel_stack);
        let of_kernel = |t: String| SeenFrame { text: clean_to(&t, 300), distance: None, kernel: true };
        let mut out: Vec<SeenFrame> = kernel.into_iter().map(of_kernel).collect();
        for (i, f) in self.catalog.frames_of(v.user_stack).enumerate() {
            let distance = (v.depth > 0).then(|| i64::from(v.depth) - i as i64);
            let module = self.catalog.modules.get(f.module.index()).map_or("[unknown]", |m| m.short());
            let inlined = f.inlined.iter().map(|name| format!("{name} ({module})"));
            let texts = inlined.chain([self.catalog.show_frame(f)]);
            out.extend(texts.map(|t| SeenFrame { text: clean_to(&t, 300), distance, kernel: false }));
        }
        out
    }

    /// What an object is called; empty for none.
    pub fn object(&self, o: ObjectId) -> String {
        self.catalog.object(o).map_or_else(String::new, |o| {
            let name = if o.kind == pg_event::ObjectKind::Set {
                let members: Vec<String> =
                    o.members.iter().take(4).filter_map(|m| Some(self.catalog.object(*m)?.label())).collect();
                match members.len() {
                    0 => o.label(),
                    n if n < o.members.len() => {
                        format!("{} and {} more", members.join(", "), o.members.len() - n)
                    }
                    _ => members.join(", "),
                }
            } else {
                o.label()
            };
            clean_to(&name, 200)
        })
    }

    /// What a vertex waited for before it ran, in a few words: `poll unix:/run/pay.sock`.
    pub fn wait(&self, v: &Vertex) -> String {
        let object = self.object(v.object);
        let call = v.syscall.name();
        let kernel = self.catalog.thread(v.thread).is_some_and(|t| t.kernel);
        let what = match (v.state, call) {
            (OffState::Runnable, _) => return "a CPU".into(),
            (OffState::Stopped, _) => "a signal to continue".into(),
            (OffState::Traced, _) => "its tracer".into(),
            (OffState::Frozen, _) => "its cgroup to thaw".into(),
            (OffState::Throttled, _) => "its CPU quota".into(),
            (OffState::Dead, _) => "nothing: it ended".into(),
            (OffState::Idle, _) => "work (idle)".into(),
            (_, Some(name)) => name.into_owned(),
            (_, None) if kernel => "work".into(),
            (OffState::Uninterruptible, None) => "a page or a kernel lock".into(),
            (_, None) => "an unknown wait".into(),
        };
        // "futex 0x…" names the call by itself.
        if object.starts_with(&what) {
            object
        } else if object.is_empty() {
            what
        } else {
            format!("{what} {object}")
        }
    }

    /// The frames of a stack as shown, leaf first: `function (module)`, clean.
    pub fn frames(&self, stack: StackId) -> Vec<String> {
        self.catalog.show_stack(stack).iter().map(|f| clean_to(f, 300)).collect()
    }

    /// Was the stack cut off while unwinding?
    pub fn truncated(&self, stack: StackId) -> bool {
        self.catalog.stack(stack).is_some_and(|s| s.truncated)
    }

    /// The telling part of a stack in one line: `lock ← Ledger::add ← main`, plumbing of the C library left
    /// out where there is more.
    pub fn stack_line(&self, stack: StackId, from: &str, frames: usize) -> String {
        let all = self.frames(stack);
        let lines: Vec<&str> = all.iter().map(String::as_str).collect();
        let telling = crate::frames::telling(&lines);
        let shown = if telling.is_empty() { lines } else { telling };
        crate::frames::in_line(&shown, from, frames)
    }

    /// The same of the wait that led to a vertex. Where Python waited for too short to be read, its stack shows how the
    /// interpreter is made: then the functions are told in which the thread was seen next to it, or what is no part of
    /// the interpreter, or its name.
    pub fn wait_line(&self, id: VertexId, from: &str, frames: usize) -> String {
        let v = self.graph.vertex(id);
        let named = pg_graph::words::named(&self.catalog, v.user_stack);
        let interpreter = named.iter().find(|f| pg_graph::words::is_interpreter(&f.module));
        let Some(interpreter) = interpreter.filter(|_| named.iter().all(|f| f.python.is_none())) else {
            return self.stack_line(v.user_stack, from, frames);
        };
        if let Some((stack, at)) = self.python_near(id) {
            return format!("{} (as seen at {})", self.stack_line(stack, from, frames), super::time::at(at));
        }
        let own: Vec<String> = pg_graph::words::own_named(&named)
            .filter(|f| f.symbolised && !pg_graph::words::is_interpreter(&f.module))
            .map(|f| clean_to(&f.function, 300))
            .take(frames)
            .collect();
        if own.is_empty() { clean_to(&interpreter.module, NAME) } else { own.join(&format!(" {from} ")) }
    }

    /// The stack with functions of Python that was taken of a thread next to a wait: of another wait in the same system
    /// call, else of its time on the CPU; and when.
    fn python_near(&self, id: VertexId) -> Option<(StackId, Ns)> {
        /// A screen is drawn often: so many are looked at to each side.
        const MOST: usize = 500;
        let v = self.graph.vertex(id);
        let python = |s: StackId| pg_graph::words::has_python(&self.catalog, s);
        let nearest = |at: Ns| at.abs_diff(v.start);
        let before = std::iter::successors(self.graph.previous(id), |v| self.graph.previous(*v));
        let after = std::iter::successors(self.graph.next(id), |v| self.graph.next(*v));
        let waits = before.take(MOST).chain(after.take(MOST)).map(|v| self.graph.vertex(v));
        let like = waits.filter(|w| w.syscall == v.syscall && python(w.user_stack));
        if let Some(w) = like.min_by_key(|w| nearest(w.start)) {
            return Some((w.user_stack, w.start));
        }
        let samples = self.graph.samples_of(v.thread, 0..Ns::MAX);
        let here = samples.partition_point(|s| s.time < v.start);
        let samples = &samples[here.saturating_sub(MOST)..samples.len().min(here + MOST)];
        let seen = samples.iter().filter(|s| python(s.user_stack)).min_by_key(|s| nearest(s.time))?;
        Some((seen.user_stack, seen.time))
    }

    /// Events of a thread within a span, at most `most`.
    pub fn events_in(&self, span: Range<Ns>, thread: ThreadId, most: usize) -> Vec<Event> {
        let mut events = self.session().map_or_else(Vec::new, |s| s.events_in(span, Some(thread)));
        events.truncate(most);
        events
    }

    /// The session file, if there is one.
    pub fn session(&self) -> Option<MutexGuard<'_, Session>> {
        // A panic of another thread while it held the lock left an append half done at worst; the file
        // format survives that.
        self.session.as_ref().map(|s| s.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Bookmarks and notes kept in the session, by time.
    pub fn notes(&self) -> Vec<Note> {
        let mut notes = self.session().map_or_else(Vec::new, |s| s.notes());
        for n in &mut notes {
            n.text = clean(&n.text).into_owned();
        }
        notes.sort_by_key(|n| (n.time, n.id));
        notes
    }

    /// The edge that ended the leading wait of a vertex, or else the first one into it.
    pub fn waking(&self, v: VertexId) -> Option<pg_graph::EdgeId> {
        self.graph.waking(v).or_else(|| self.graph.incoming(v).next())
    }
}

#[cfg(test)]
mod tests {
    use super::Recording;
    use crate::app::harness::{Session, built};

    /// A thread of Python that sleeps shortly again and again; `read`: its functions were read in a longer wait, and in a
    /// sample.
    fn short_sleeps(waits_read: bool, sampled: bool, native: bool) -> Recording {
        use pg_event::{
            CatalogDelta, Context, Coverage, Event as Recorded, Frame, FrameId, Item, Kind, Module, ModuleId,
            ModuleKind, OffCpu, OffState, Process, ProcessId, Sample, Stack, StackId, Thread, ThreadId,
            syscall_number,
        };
        const MS: u64 = 1_000_000;
        let mut d = CatalogDelta::default();
        let process = Process { pid: 7, ns_pid: 7, name: "job.py".into(), focus: true, ..Process::default() };
        d.processes.push((ProcessId(0), process));
        let thread =
            Thread { tid: 7, process: ProcessId(0), name: "job.py".into(), focus: true, ..Thread::default() };
        d.threads.push((ThreadId(0), thread));
        let paths = [
            (ModuleKind::Elf, "/usr/bin/python3.11"),
            (ModuleKind::Python, "/srv/job.py"),
            (ModuleKind::Elf, "/usr/lib/libc.so.6"),
            (ModuleKind::Elf, "/srv/_wire.so"),
        ];
        for (i, (kind, path)) in paths.into_iter().enumerate() {
            d.modules.push((ModuleId(i as u32), Module { kind, path: path.into(), build_id: String::new() }));
        }
        let names = [
            (2, "clock_nanosleep"),
            (0, "time_sleep"),
            (0, "_PyEval_EvalFrameDefault"),
            (0, "Py_BytesMain"),
            (1, "poll_queue"),
            (1, "work"),
            (3, "wire_wait"),
        ];
        for (i, (module, name)) in names.into_iter().enumerate() {
            let f = Frame { module: ModuleId(module), function: name.into(), line: 3, ..Frame::default() };
            d.frames.push((FrameId(i as u32), f));
        }
        for (i, frames) in [&[0, 1, 2, 3][..], &[0, 1, 4, 3], &[5, 3], &[0, 6, 2, 3]].into_iter().enumerate()
        {
            let frames = frames.iter().map(|f| FrameId(*f)).collect();
            d.stacks.push((StackId(i as u32), Stack { frames, kernel: false, truncated: false }));
        }
        let mut events = Vec::new();
        for i in 0..100u64 {
            let mut o = OffCpu::new(i * 50 * MS, i * 50 * MS + 49 * MS, OffState::Interruptible);
            o.syscall = syscall_number("clock_nanosleep").unwrap_or_default();
            (o.timeout, o.waker_context) = (49 * MS, Context::Timer);
            o.user_stack = StackId(if waits_read && i == 60 {
                1
            } else if native {
                3
            } else {
                0
            });
            events.push(Recorded { time: o.woken, thread: ThreadId(0), cpu: 0, kind: Kind::OffCpu(o) });
            if sampled && i == 70 {
                let s = Sample { weight: 10 * MS, user_stack: StackId(2), kernel_stack: StackId::NONE };
                events.push(Recorded {
                    time: i * 50 * MS + 49 * MS + 1,
                    thread: ThreadId(0),
                    cpu: 0,
                    kind: Kind::Sample(s),
                });
            }
        }
        let end = Item::End { duration: 5_000 * MS, coverage: Coverage::default() };
        built("job", vec![Item::Catalog(d), Item::Events(events), end])
    }

    /// What the interpreter is made of tells nobody where a program of Python sleeps.
    #[test]
    fn short_sleeps_of_python_are_told_by_what_was_seen_next_to_them() {
        let line = |r: &Recording| {
            let at = r.graph.vertex_at(pg_event::ThreadId(0), 1_000_000_000).unwrap();
            r.wait_line(at, "<", 8)
        };
        assert_eq!(line(&short_sleeps(true, true, false)), "poll_queue (as seen at 3.000 s)");
        assert_eq!(line(&short_sleeps(false, true, false)), "work (as seen at 3.549 s)");
        assert_eq!(line(&short_sleeps(false, false, true)), "wire_wait");
        assert_eq!(line(&short_sleeps(false, false, false)), "python3.11");
        let s = Session::with(short_sleeps(true, true, false), 100, 30, false);
        assert!(s.shows("in         poll_queue (as seen at 3.000 s)"), "{}", s.screen());
        assert!(!s.shows("_PyEval_EvalFrameDefault"), "{}", s.screen());
    }

    /// One turn of a loop that sleeps tells nothing: whoever asks what made it means the loop.
    #[test]
    fn what_made_a_sleep_of_a_loop_is_told_of_the_loop() {
        let mut s = Session::with(short_sleeps(true, true, false), 100, 30, false);
        s.keys("t p");
        assert!(s.shows("What made these 5.00 s of job.py"), "{}", s.screen());
        s.keys("t v l l p");
        assert!(s.shows("What made these 111 ms"), "{}", s.screen());
    }
}
