//! How threads, times and functions are named in sentences.

use pg_event::{Catalog, ModuleKind, Ns, Process, StackId, ThreadId, UnitTypeId};

/// A time span with its unit: `13.0 s`, `212 ms`, `40 µs`, `7 ns`.
pub fn span(ns: Ns) -> String {
    // The unit is that of the rounded figure, so that 999.7 ms are 1.00 s and not 1000 ms.
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..999_500 => format!("{} µs", (ns + 500) / 1_000),
        999_500..9_950_000 => format!("{:.1} ms", ns as f64 / 1e6),
        9_950_000..999_500_000 => format!("{:.0} ms", ns as f64 / 1e6),
        999_500_000..9_995_000_000 => format!("{:.2} s", ns as f64 / 1e9),
        _ => format!("{:.1} s", ns as f64 / 1e9),
    }
}

/// A point in time: `12.410 s`.
pub fn moment(ns: Ns) -> String {
    format!("{:.3} s", ns as f64 / 1e9)
}

/// A share of one: `98 %`.
pub fn percent(part: Ns, whole: Ns) -> String {
    if whole == 0 {
        return "0 %".into();
    }
    format!("{:.0} %", (part as f64 / whole as f64 * 100.0).min(100.0))
}

/// Text from outside made harmless for a sentence: no control characters, at most `max` characters.
pub fn clean(text: &str, max: usize) -> String {
    let mut out: String = text.chars().map(|c| if c.is_control() { '?' } else { c }).take(max + 1).collect();
    if out.chars().count() > max {
        out = out.chars().take(max.saturating_sub(1)).collect();
        out.push('…');
    }
    out
}

/// The name a process had at `time`. The catalogue keeps the latest only; before a later exec it was that of
/// the program then running.
pub fn process_at(catalog: &Catalog, thread: ThreadId, time: Ns) -> String {
    let Some(p) = catalog.process_of(thread) else { return String::new() };
    let program = |text: &str| -> String {
        let first = text.split(' ').next().unwrap_or("");
        first.rsplit('/').next().unwrap_or("").trim_start_matches('-').chars().take(15).collect()
    };
    let then = p.cmdlines.iter().rposition(|c| c.time <= time).unwrap_or(0);
    if let (Some(now), Some(then)) = (p.cmdlines.last(), p.cmdlines.get(then))
        && now.time > time
        && program(&now.text) == p.name
        && !program(&then.text).is_empty()
    {
        return program(&then.text);
    }
    p.name.clone()
}

/// `process (pid 7)`, with the thread where it is not the main one.
pub fn who(catalog: &Catalog, thread: ThreadId) -> String {
    who_at(catalog, thread, Ns::MAX)
}

/// The same with the name it had at `time`.
pub fn who_at(catalog: &Catalog, thread: ThreadId, time: Ns) -> String {
    let Some(t) = catalog.thread(thread) else { return "an unknown thread".into() };
    let Some(p) = catalog.process(t.process) else {
        return format!("{} (thread {})", clean(&t.name, 40), t.tid);
    };
    let name = process_at(catalog, thread, time);
    let process = if name.is_empty() { "a process".into() } else { clean(&name, 40) };
    let pid = ids(p);
    if t.tid == p.pid {
        format!("{process} (pid {pid})")
    } else if t.name == p.name {
        format!("{process} (pid {pid}, thread {})", t.tid)
    } else {
        format!("{process} (pid {pid}, thread {} \"{}\")", t.tid, clean(&t.name, 40))
    }
}

/// Short form for lists: `process/thread:tid`, `process:pid` for a main thread.
pub fn short_who(catalog: &Catalog, thread: ThreadId) -> String {
    short_who_at(catalog, thread, Ns::MAX)
}

/// The same with the name that the process had at `time`.
pub fn short_who_at(catalog: &Catalog, thread: ThreadId, time: Ns) -> String {
    let Some(t) = catalog.thread(thread) else { return "?".into() };
    let Some(p) = catalog.process(t.process) else {
        return format!("{}:{}", clean(&t.name, 24), t.tid);
    };
    let process = clean(&process_at(catalog, thread, time), 24);
    if t.tid == p.pid {
        format!("{process}:{}", p.pid)
    } else if t.name == p.name {
        format!("{process}/{}", t.tid)
    } else {
        format!("{process}/{}:{}", clean(&t.name, 24), t.tid)
    }
}

/// What a type of units is called: `type GET /`, `unknown type`.
pub fn unit_type(catalog: &Catalog, id: UnitTypeId) -> String {
    match catalog.unit_type(id) {
        Some(row) if !row.name.trim().is_empty() => format!("type {}", clean(row.name.trim(), 48)),
        Some(_) => format!("type {}", id.0),
        None => "unknown type".into(),
    }
}

/// A process's id as the recorded machine has it; in which container it is, and its id there where that is
/// another one: `812`, `812, 1 in container 3f2a9b1c4d5e`.
pub fn ids(p: &Process) -> String {
    let inside = inside(p);
    match inside.as_str() {
        "" => p.pid.to_string(),
        i if i.starts_with("in ") => format!("{} {i}", p.pid),
        i => format!("{}, {i}", p.pid),
    }
}

/// Where a process is, if that is not the machine itself, and its id there where that is another one:
/// `1 in container 3f2a9b1c4d5e`, `in container web`, `1 in its pid namespace`. Empty for none.
pub fn inside(p: &Process) -> String {
    let container = clean(&p.container, 24);
    let other = p.ns_pid != 0 && p.ns_pid != p.pid;
    match (other, container.is_empty()) {
        (false, true) => String::new(),
        (false, false) => format!("in container {container}"),
        (true, false) => format!("{} in container {container}", p.ns_pid),
        (true, true) => format!("{} in its pid namespace", p.ns_pid),
    }
}

/// The container of a process, for the report.
pub fn container(p: &Process) -> Option<String> {
    (!p.container.is_empty()).then(|| p.container.clone())
}

/// Its id in there, when that is another one than the machine's.
pub fn container_pid(p: &Process) -> Option<u32> {
    (p.ns_pid != 0 && p.ns_pid != p.pid).then_some(p.ns_pid)
}

/// The command line a process had at `time`: the latest set by then (the first one when all are later).
pub fn cmdline_at(catalog: &Catalog, thread: ThreadId, time: Ns) -> String {
    let Some(p) = catalog.process_of(thread) else { return String::new() };
    let at = p.cmdlines.iter().rposition(|c| c.time <= time).unwrap_or(0);
    // What it got from its parent by fork(2) is no name of its own: a server's session has one soon.
    let parents = |text: &str| {
        let parent = catalog.process(p.parent).filter(|parent| parent.exe == p.exe);
        parent.is_some_and(|parent| parent.cmdlines.iter().any(|c| c.text == text))
    };
    let copied = at == 0 && p.cmdlines.first().is_some_and(|c| parents(&c.text));
    let own = if copied { p.cmdlines.get(1) } else { None };
    own.or(p.cmdlines.get(at)).map_or_else(String::new, |c| c.text.clone())
}

/// A command line cut to what tells processes apart: no folders, long words and the middle left out.
pub fn short_command(line: &str, max: usize) -> String {
    let word = |(i, w): (usize, &str)| {
        let last = w.rsplit('/').find(|p| !p.is_empty()).unwrap_or(w);
        let path = w.matches('/').count() >= 2 && !w.contains("://");
        let w = match (path, i) {
            (true, 0) => last.to_owned(),
            (true, _) => match w.split_once(['/', '@']) {
                Some((before, _)) => format!("{before}…/{last}"),
                None => w.to_owned(),
            },
            _ => w.to_owned(),
        };
        ends(&w, 36)
    };
    ends(&clean(&line.split_whitespace().enumerate().map(word).collect::<Vec<_>>().join(" "), 4096), max)
}

/// Begin and end of a text that is too long.
fn ends(text: &str, max: usize) -> String {
    let n = text.chars().count();
    if n <= max {
        return text.to_owned();
    }
    let tail = max / 2;
    let head = max.saturating_sub(tail + 1);
    let begin: String = text.chars().take(head).collect();
    let end: String = text.chars().skip(n - tail).collect();
    format!("{begin}…{end}")
}

/// An object's label without the folders of a path in it.
pub fn short_label(label: &str) -> String {
    let text = match label.rsplit_once('/') {
        Some((before, last)) if label.matches('/').count() >= 3 && !last.is_empty() => {
            let kind = before.split_once(':').map(|k| k.0).filter(|k| !k.contains('/'));
            kind.map_or_else(|| label.to_owned(), |k| format!("{k}:…/{last}"))
        }
        _ => label.to_owned(),
    };
    ends(&clean(&text, 4096), 70)
}

/// What a wait was for: the word and the object, without saying the kind twice.
pub fn on_what(waits_on: Option<&str>, label: Option<&str>) -> String {
    match (waits_on, label.filter(|l| !l.is_empty())) {
        (Some(w), Some(l)) => {
            let plain = l.split([':', ' ', '[']).any(|part| part == w);
            let known =
                ["pipe", "fifo", "unix", "tcp", "udp", "socket", "eventfd", "epoll", "futex", "timerfd"];
            let says =
                plain || known.iter().any(|k| l.strip_prefix(k).is_some_and(|r| r.starts_with([':', ' '])));
            if says { l.to_owned() } else { format!("{w} {l}") }
        }
        (Some(w), None) => w.to_owned(),
        (None, Some(l)) => l.to_owned(),
        (None, None) => String::new(),
    }
}

/// Libraries whose frames only wrap system calls or start programs: no `function` a person asks for.
pub fn is_plumbing(module: &str) -> bool {
    const NAMES: [&str; 8] =
        ["libc.so", "libc-", "ld-linux", "ld-musl", "libpthread", "libc.musl", "[vdso]", "[kernel]"];
    NAMES.iter().any(|n| module.starts_with(n)) || of_python_itself(module)
}

/// A file of Python's own library: `python3.11/threading.py`, as [`pg_event::Module::short`] has it.
fn of_python_itself(module: &str) -> bool {
    let version = module.strip_prefix("python3.").and_then(|rest| rest.split_once('/'));
    version.is_some_and(|(v, _)| v.bytes().all(|b| b.is_ascii_digit())) || module.starts_with("<frozen ")
}

/// The program or library that is the Python interpreter.
pub fn is_interpreter(module: &str) -> bool {
    !module.contains('/') && (module.starts_with("python") || module.starts_with("libpython"))
}

/// The language whose code a function executes: whatever a script does is done below the loop of its interpreter, so its name
/// alone says nothing of what is done.
pub fn executes(function: &str) -> Option<&'static str> {
    const LOOPS: [(&str, &str); 12] = [
        ("Perl_runops_standard", "Perl"),
        ("Perl_runops_debug", "Perl"),
        ("luaV_execute", "Lua"),
        ("execute_ex", "PHP"),
        ("vm_exec_core", "Ruby"),
        ("rb_vm_exec", "Ruby"),
        ("_PyEval_EvalFrameDefault", "Python"),
        ("Builtins_InterpreterEntryTrampoline", "JavaScript"),
        ("TEBCresume", "Tcl"),
        ("r_interpret", "awk"),
        ("jq_next", "jq"),
        ("sqlite3VdbeExec", "SQL"),
    ];
    LOOPS.iter().find(|l| l.0 == function).map(|l| l.1)
}

/// The frames of a stack as text (`function (module)`) that a person asks for: those outside of the C library and the
/// kernel. Of a Python program the Python functions, whatever native ones the interpreter used for them, and of these
/// its own, if there are any.
pub fn own_frames<'a>(frames: &[&'a str]) -> Vec<&'a str> {
    let python: Vec<&str> = frames.iter().filter(|f| is_python(f)).copied().collect();
    let all = if python.is_empty() { frames } else { &python };
    let own: Vec<&str> = all.iter().filter(|f| !is_plumbing(module_of(f))).copied().collect();
    if own.is_empty() { python } else { own }
}

/// Is a frame as text (`function (file:line)`) one of a Python function?
pub fn is_python(frame: &str) -> bool {
    let line = module_of(frame).rsplit_once(':').map_or("", |(_, line)| line);
    !line.is_empty() && line.bytes().all(|b| b.is_ascii_digit())
}

/// What is in the brackets of a frame as text.
fn module_of(frame: &str) -> &str {
    frame.rsplit_once(" (").map_or("", |(_, m)| m.trim_end_matches(')'))
}

/// One frame of a stack as text.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Named {
    /// Function, or `0xADDRESS`.
    pub function: String,
    /// Short name of its module.
    pub module: String,
    /// The function has a name.
    pub symbolised: bool,
    /// Of a Python function: the line it is at, from 1 on.
    pub python: Option<u32>,
}

impl std::fmt::Display for Named {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.python {
            Some(line) => write!(f, "{} ({}:{line})", self.function, self.module),
            None => write!(f, "{} ({})", self.function, self.module),
        }
    }
}

/// The frames of a stack, leaf first, inlined functions as frames of their own.
pub fn named(catalog: &Catalog, stack: StackId) -> Vec<Named> {
    let mut out = Vec::new();
    for f in catalog.frames_of(stack) {
        let module = catalog.modules.get(f.module.index());
        let short = module.map_or("[unknown]", |m| m.short()).to_owned();
        for i in &f.inlined {
            out.push(Named { function: i.clone(), module: short.clone(), symbolised: true, python: None });
        }
        let symbolised = !f.function.is_empty();
        let function = if symbolised { f.function.clone() } else { format!("{:#x}", f.entry()) };
        let python = module.is_some_and(|m| m.kind == ModuleKind::Python).then_some(f.line);
        out.push(Named { function, module: short, symbolised, python });
    }
    out
}

/// Does a stack have Python functions?
pub fn has_python(catalog: &Catalog, stack: StackId) -> bool {
    let python =
        |m: pg_event::ModuleId| catalog.modules.get(m.index()).is_some_and(|m| m.kind == ModuleKind::Python);
    catalog.frames_of(stack).any(|f| python(f.module))
}

/// The frames a person asks for, as [`own_frames`] has them.
pub fn own_named(frames: &[Named]) -> impl Iterator<Item = &Named> {
    let python = frames.iter().any(|f| f.python.is_some());
    let own = |f: &&Named| !is_plumbing(&f.module);
    let any = frames.iter().any(|f| f.python.is_some() && own(&f));
    frames.iter().filter(move |f| (!python || f.python.is_some()) && (python && !any || own(f)))
}

/// Is it a function of the library of its language (C++, Rust, Go, Java's runtime), also where that is compiled into the program?
pub(crate) fn of_language(function: &str) -> bool {
    const NAMES: [&str; 20] = [
        "std::",
        "<std::",
        "core::",
        "<core::",
        "alloc::",
        "__gnu_cxx::",
        "__glibcxx_",
        "__gthread_",
        "__cxa_guard_",
        "runtime.",
        "runtime/internal/",
        "internal/",
        "syscall.",
        "os.",
        "os::Platform",
        "PlatformEvent::",
        "PlatformMonitor::",
        "Monitor::wait",
        "ObjectMonitor::",
        "JavaThread::",
    ];
    // The type that a template returns stands before its name.
    let head = function.split(['(', '<']).next().unwrap_or_default();
    let name = head.rsplit(' ').next().unwrap_or_default();
    NAMES.iter().any(|n| name.starts_with(n) || function.starts_with(n))
}

/// The frame a person means by "the function it waits in": the first outside the C library, with a name
/// if there is one, and rather one of the program than of its language; of Python programs the first Python function; else
/// the leaf.
pub fn telling(frames: &[Named]) -> Option<&Named> {
    let outside = || own_named(frames);
    let own = outside().find(|f| f.symbolised && !of_language(&f.function));
    own.or_else(|| outside().find(|f| f.symbolised)).or_else(|| outside().next()).or_else(|| frames.first())
}

/// Is the module of this stack's frame the kernel's?
pub fn is_kernel(catalog: &Catalog, frame: &pg_event::Frame) -> bool {
    catalog.modules.get(frame.module.index()).is_some_and(|m| m.kind == ModuleKind::Kernel)
}

#[cfg(test)]
mod tests;
