//! What is used by what is kept, and the catalogue rows rewritten for it.

use super::keep::{Class, Keep};
use super::names::Names;
use pg_event::trace::{Instruction, Mark, MarkKind};
use pg_event::{
    Catalog, CatalogDelta, Event, Frame, FrameId, Kind, Module, ModuleId, ModuleKind, Object, ObjectId,
    ObjectKind, Process, ProcessId, Stack, StackId, Thread, ThreadId, Trace, TraceId, UnitTypeId,
    UnitTypeRow,
};
use std::collections::HashSet;

/// What is kept of each row, by who uses it.
pub(super) struct Used {
    pub(super) threads: Vec<Class>,
    pub(super) processes: Vec<Class>,
    pub(super) objects: Vec<Class>,
    pub(super) stacks: Vec<Class>,
    frames: Vec<Class>,
    pub(super) modules: Vec<Class>,
    traces: Vec<Class>,
    unit_types: Vec<Class>,
}

fn raise(classes: &mut [Class], i: usize, class: Class) {
    if let Some(c) = classes.get_mut(i) {
        *c = (*c).max(class);
    }
}

impl Used {
    pub(super) fn new(catalog: &Catalog, keep: &Keep) -> Self {
        let none = |n: usize| vec![Class::Dropped; n];
        Self {
            threads: keep.threads.clone(),
            processes: keep.processes.clone(),
            objects: none(catalog.objects.len()),
            stacks: none(catalog.stacks.len()),
            frames: none(catalog.frames.len()),
            modules: none(catalog.modules.len()),
            traces: none(catalog.traces.len()),
            unit_types: none(catalog.unit_types.len()),
        }
    }

    /// Note what a kept event refers to.
    pub(super) fn event(&mut self, e: &Event, keep: &Keep) {
        let own = keep.thread(e.thread);
        match e.kind {
            Kind::OffCpu(o) => {
                let waker = keep.thread(o.waker).max(Class::Anonymous);
                self.thread(o.waker);
                self.object(o.object, own);
                self.object(o.waker_object, waker);
                self.stack(o.user_stack, own);
                self.stack(o.kernel_stack, own);
                self.stack(o.waker_stack, waker);
            }
            Kind::Ipc(i) => self.object(i.object, own),
            Kind::Unserved(u) => self.object(u.object, own),
            Kind::Syscall(s) => self.object(s.object, own),
            Kind::Sample(s) => {
                self.stack(s.user_stack, own);
                self.stack(s.kernel_stack, own);
            }
            Kind::Spawn { child } => self.thread(child),
            Kind::Signal { target, .. } => self.thread(target),
            Kind::Hold(h) => {
                self.thread(h.subject);
                self.object(h.object, own.max(keep.thread(h.subject)));
            }
            Kind::Work(w) => {
                self.thread(w.requester);
                self.object(w.object, own);
            }
            // What somebody else's program executes is not kept at all.
            Kind::Burst(b) if own == Class::Named => raise(&mut self.traces, b.trace.index(), own),
            Kind::UnitBoundary { unit_type, .. } => raise(&mut self.unit_types, unit_type.index(), own),
            Kind::Violation(v) => {
                raise(&mut self.unit_types, v.unit_type.index(), own);
                self.stack(v.user_stack, own);
                self.stack(v.kernel_stack, own);
            }
            Kind::DataFlag { object, stack, .. } => {
                self.object(object, own);
                self.stack(stack, own);
            }
            _ => {}
        }
    }

    /// A thread that is only referred to keeps a row without a name.
    fn thread(&mut self, id: ThreadId) {
        raise(&mut self.threads, id.index(), Class::Anonymous);
    }

    fn object(&mut self, id: ObjectId, class: Class) {
        raise(&mut self.objects, id.index(), class);
    }

    fn stack(&mut self, id: StackId, class: Class) {
        raise(&mut self.stacks, id.index(), class);
    }

    /// Once all events were noted: what the rows refer to in turn.
    pub(super) fn spread(&mut self, catalog: &Catalog) {
        for (i, t) in catalog.threads.iter().enumerate() {
            raise(&mut self.processes, t.process.index(), self.threads[i]);
        }
        for (i, o) in catalog.objects.iter().enumerate() {
            let class = self.objects[i];
            for m in &o.members {
                raise(&mut self.objects, m.index(), class);
            }
        }
        for (i, t) in catalog.traces.iter().enumerate() {
            raise(&mut self.stacks, t.stack.index(), self.traces[i]);
            for code in &t.code {
                raise(&mut self.frames, code.frame.index(), self.traces[i]);
            }
        }
        for (i, s) in catalog.stacks.iter().enumerate() {
            for f in &s.frames {
                raise(&mut self.frames, f.index(), self.stacks[i]);
            }
        }
        for (i, f) in catalog.frames.iter().enumerate() {
            raise(&mut self.modules, f.module.index(), self.frames[i]);
        }
        for (i, m) in catalog.modules.iter().enumerate() {
            // The kernel is everybody's.
            if matches!(m.kind, ModuleKind::Kernel | ModuleKind::Vdso) && self.modules[i] == Class::Anonymous
            {
                self.modules[i] = Class::Named;
            }
        }
    }

    /// The rows to write.
    pub(super) fn rows(&self, catalog: &Catalog, names: &mut Names) -> CatalogDelta {
        for (o, class) in catalog.objects.iter().zip(&self.objects) {
            if *class == Class::Named {
                names.kept_strings.insert(o.name.clone());
                if matches!(o.kind, ObjectKind::Tcp | ObjectKind::Udp) {
                    names.kept_endpoints.extend([o.id, o.peer]);
                }
            }
        }
        let mut number = 0;
        let processes: Vec<_> = select(&catalog.processes, &self.processes)
            .map(|(i, p, class)| (ProcessId(i), process(p, class, &mut number, names)))
            .collect();
        let mut number = 0;
        let threads = select(&catalog.threads, &self.threads)
            .map(|(i, t, c)| (ThreadId(i), Self::thread_row(t, c, &mut number, names)));
        let threads = threads.collect();
        let objects = select(&catalog.objects, &self.objects)
            .map(|(i, o, class)| (ObjectId(i), object(o, class, names)));
        let objects = objects.collect();
        let stacks =
            select(&catalog.stacks, &self.stacks).map(|(i, s, _)| (StackId(i), Stack::clone(s))).collect();
        let frames = select(&catalog.frames, &self.frames)
            .map(|(i, f, _)| (FrameId(i), self.frame(f, names)))
            .collect();
        // Whose names are kept: what they ask is a name of theirs.
        let kept = |id: FrameId| {
            let module = catalog.frames.get(id.index()).map_or(ModuleId::NONE, |f| f.module);
            let frame = self.frames.get(id.index()).is_some_and(|c| *c != Class::Dropped);
            frame && self.modules.get(module.index()) == Some(&Class::Named)
        };
        let turns = catalog.turns.iter().filter(|t| kept(*t.0)).map(|(id, t)| (*id, t.clone())).collect();
        let modules = select(&catalog.modules, &self.modules)
            .map(|(i, m, class)| (ModuleId(i), module(m, class, names)));
        let modules = modules.collect();
        let traces = select(&catalog.traces, &self.traces)
            .map(|(i, t, _)| (TraceId(i), self.trace(t, catalog)))
            .collect();
        let unit_types = select(&catalog.unit_types, &self.unit_types)
            .map(|(i, t, class)| (UnitTypeId(i), unit_type(t, class, i, names)))
            .collect();
        CatalogDelta {
            threads,
            processes,
            objects,
            stacks,
            frames,
            modules,
            traces,
            unit_types,
            turns,
            ..CatalogDelta::default()
        }
    }

    /// Without values, which may be anything, and without the code of what is not kept by name or is in no file.
    fn trace(&self, t: &Trace, catalog: &Catalog) -> Trace {
        let bare = |i: &Instruction| {
            let module = catalog.frames.get(i.frame.index()).map_or(ModuleId::NONE, |f| f.module);
            let file = catalog.modules.get(module.index()).is_some_and(|m| m.kind == ModuleKind::Elf);
            let known = file && self.modules.get(module.index()) == Some(&Class::Named);
            Instruction::new(i.frame, i.flow, if known { i.code() } else { &[] })
        };
        let small = |r: i64| (-4096..4096).contains(&r).then_some(r);
        let mark = |m: &Mark| match m.what {
            MarkKind::Syscall(nr, result) => {
                Some(Mark { what: MarkKind::Syscall(nr, result.and_then(small)), ..*m })
            }
            MarkKind::Signal(_) => Some(*m),
            MarkKind::Returned(_) => None,
        };
        let (code, marks) = (t.code.iter().map(bare).collect(), t.marks.iter().filter_map(mark).collect());
        Trace { code, marks, ..t.clone() }
    }

    fn thread_row(t: &Thread, class: Class, number: &mut u32, names: &mut Names) -> Thread {
        *number += 1;
        let name = if class == Class::Named {
            names.scrub(&t.name)
        } else if t.kernel {
            kernel_name(&t.name).unwrap_or_else(|| format!("kthread-{number}"))
        } else if t.own {
            "pg-tui".into()
        } else {
            format!("thread-{number}")
        };
        Thread { name, ..t.clone() }
    }

    fn frame(&self, f: &Frame, names: &mut Names) -> Frame {
        let known = self.modules.get(f.module.index()) == Some(&Class::Named);
        if known {
            return Frame { file: names.scrub(source(&f.file)), ..f.clone() };
        }
        Frame {
            function: String::new(),
            offset: 0,
            file: String::new(),
            line: 0,
            inlined: Vec::new(),
            ..f.clone()
        }
    }
}

/// A source file without the folder it was built in, which is a matter of whoever built it.
fn source(path: &str) -> &str {
    if !path.starts_with('/') || path.starts_with("/rustc/") {
        return path;
    }
    match path.rmatch_indices('/').nth(1) {
        Some((at, _)) => &path[at + 1..],
        None => path,
    }
}

fn select<'a, T>(rows: &'a [T], classes: &'a [Class]) -> impl Iterator<Item = (u32, &'a T, Class)> {
    let all = rows.iter().zip(classes).enumerate().map(|(i, (row, class))| (i as u32, row, *class));
    all.filter(|(_, _, class)| *class != Class::Dropped)
}

/// Kernel threads that every machine has.
const KNOWN: [&str; 16] = [
    "kworker",
    "ksoftirqd",
    "migration",
    "rcu_preempt",
    "rcu_sched",
    "rcuog",
    "rcuop",
    "jbd",
    "kswapd",
    "kcompactd",
    "khugepaged",
    "loop",
    "kthreadd",
    "kblockd",
    "khungtaskd",
    "watchdogd",
];

/// What a kernel thread is called everywhere: without devices and addresses, which may stand in the rest.
fn kernel_name(name: &str) -> Option<String> {
    let stem =
        name.split(['/', ':', '-']).next().unwrap_or_default().trim_end_matches(|c: char| c.is_ascii_digit());
    KNOWN.contains(&stem).then(|| stem.to_owned())
}

fn process(p: &Process, class: Class, number: &mut u32, names: &mut Names) -> Process {
    *number += 1;
    if class == Class::Named {
        let mut out = p.clone();
        out.name = names.scrub(&p.name);
        out.exe = names.scrub(&p.exe);
        out.cgroup = names.made_up(&p.cgroup);
        out.container = names.made_up(&p.container);
        out.uid = names.uid(p.uid);
        for c in &mut out.cmdlines {
            c.text = names.scrub(&c.text);
        }
        return out;
    }
    let name = if p.kernel {
        kernel_name(&p.name).unwrap_or_else(|| format!("kthread-{number}"))
    } else if p.own {
        "pg-tui".into()
    } else {
        format!("process-{number}")
    };
    Process {
        name,
        exe: String::new(),
        cmdlines: Vec::new(),
        cgroup: names.made_up(&p.cgroup),
        container: names.made_up(&p.container),
        uid: names.uid(p.uid),
        ..p.clone()
    }
}

fn object(o: &Object, class: Class, names: &mut Names) -> Object {
    if class == Class::Named { Object { name: names.scrub(&o.name), ..o.clone() } } else { names.object(o) }
}

fn module(m: &Module, class: Class, names: &mut Names) -> Module {
    if matches!(m.kind, ModuleKind::Kernel | ModuleKind::Vdso) && !names.keep_kernel {
        // Its path is the kernel's release, and a build may be of one machine only.
        return Module { kind: m.kind, ..Module::default() };
    }
    if class == Class::Named {
        return Module { path: names.scrub(&m.path), ..m.clone() };
    }
    Module { kind: m.kind, path: names.made_up(&m.path), build_id: String::new() }
}

/// Of somebody else's type its number stays: how its units are spread and where their loop is would tell the program.
fn unit_type(t: &UnitTypeRow, class: Class, number: u32, names: &mut Names) -> UnitTypeRow {
    if class == Class::Named {
        return UnitTypeRow {
            name: names.scrub(&t.name),
            function: names.scrub(&t.function),
            module: names.scrub(&t.module),
            profile: names.scrub(&t.profile),
            unknown: names.scrub(&t.unknown),
            ..t.clone()
        };
    }
    UnitTypeRow {
        name: format!("type-{number}"),
        function: String::new(),
        module: names.made_up(&t.module),
        offset: 0,
        profile: String::new(),
        histogram: Vec::new(),
        unknown: if t.unknown.is_empty() { String::new() } else { "not told".into() },
        ..t.clone()
    }
}

/// Every name in a catalogue.
pub(super) fn strings(catalog: &Catalog) -> HashSet<&str> {
    let mut all: HashSet<&str> = HashSet::new();
    all.extend(catalog.threads.iter().map(|t| t.name.as_str()));
    for p in &catalog.processes {
        all.extend([p.name.as_str(), &p.exe, &p.cgroup, &p.container]);
        all.extend(p.cmdlines.iter().map(|c| c.text.as_str()));
    }
    all.extend(catalog.objects.iter().map(|o| o.name.as_str()));
    for f in &catalog.frames {
        all.extend([f.function.as_str(), &f.file]);
        all.extend(f.inlined.iter().map(String::as_str));
    }
    for m in &catalog.modules {
        all.extend([m.path.as_str(), &m.build_id]);
    }
    for t in &catalog.unit_types {
        all.extend([t.name.as_str(), &t.function, &t.module, &t.profile]);
    }
    all.remove("");
    all
}

#[cfg(test)]
mod tests {
    use super::source;

    #[test]
    fn build_folders_are_left_out() {
        assert_eq!(source("/home/ann/secret/src/main.rs"), "src/main.rs");
        assert_eq!(source("./nptl/pthread_create.c"), "./nptl/pthread_create.c");
        assert_eq!(source("/rustc/5980/library/std/src/rt.rs"), "/rustc/5980/library/std/src/rt.rs");
        assert_eq!(source("/main.c"), "/main.c");
    }
}
