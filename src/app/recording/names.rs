//! How processes and threads of a recording are called, and in which order they stand.

use super::{Group, NAME};
use crate::clean::clean_to;
use pg_event::{Catalog, ProcessId, ThreadId};
use pg_graph::EventGraph;
use std::collections::HashMap;

/// Processes with their threads: the focus first, the kernel's last, the recorder's own left out.
pub fn group(catalog: &Catalog, graph: &EventGraph) -> Vec<Group> {
    let mut by_process: HashMap<ProcessId, Vec<ThreadId>> = HashMap::new();
    for t in graph.threads() {
        let Some(thread) = catalog.thread(t) else { continue };
        if !thread.own && thread.tid != 0 {
            by_process.entry(thread.process).or_default().push(t);
        }
    }
    let mut groups: Vec<Group> = by_process
        .into_iter()
        .map(|(process, mut threads)| {
            let pid = catalog.process(process).map_or(0, |p| p.pid);
            threads.sort_by_key(|t| catalog.thread(*t).map_or((true, 0), |t| (t.tid != pid, t.tid)));
            let focus = threads.iter().any(|t| catalog.thread(*t).is_some_and(|t| t.focus));
            Group { process, threads, focus }
        })
        .collect();
    groups.sort_by_key(|g| {
        let p = catalog.process(g.process);
        let kernel = p.is_some_and(|p| p.kernel)
            || g.threads.first().and_then(|t| catalog.thread(*t)).is_some_and(|t| t.kernel);
        (!g.focus, kernel, p.map_or(u32::MAX, |p| p.pid), g.process)
    });
    groups
}

/// Names of all threads and processes, told apart where they are the same: by their ids on the machine, which
/// is where its user looks. Two containers may have the same ids inside.
pub fn name_all(catalog: &Catalog) -> (Vec<String>, Vec<String>) {
    let mut same: HashMap<&str, usize> = HashMap::new();
    let mut members: HashMap<ProcessId, usize> = HashMap::new();
    for p in &catalog.processes {
        *same.entry(p.name.as_str()).or_default() += 1;
    }
    let mut twins: HashMap<(ProcessId, &str), usize> = HashMap::new();
    for t in &catalog.threads {
        *members.entry(t.process).or_default() += 1;
        *twins.entry((t.process, t.name.as_str())).or_default() += 1;
    }
    let processes: Vec<String> = catalog
        .processes
        .iter()
        .map(|p| {
            let name = clean_to(&p.name, NAME);
            let unique = same.get(p.name.as_str()).is_some_and(|n| *n == 1);
            if name.is_empty() {
                format!("pid {}", p.pid)
            } else if unique {
                name
            } else {
                format!("{name}:{}", p.pid)
            }
        })
        .collect();
    let threads = catalog
        .threads
        .iter()
        .map(|t| {
            let own = clean_to(&t.name, NAME);
            let Some(process) = processes.get(t.process.index()) else { return format!("{own}:{}", t.tid) };
            let p = &catalog.processes[t.process.index()];
            if t.kernel {
                return format!("[{own}]");
            }
            let several = members.get(&t.process).is_some_and(|n| *n > 1);
            if !several {
                return process.clone();
            }
            if t.tid == p.pid {
                return format!("{process}/main");
            }
            let unique =
                t.name != p.name && twins.get(&(t.process, t.name.as_str())).is_some_and(|n| *n == 1);
            if unique && !own.is_empty() {
                format!("{process}/{own}")
            } else if t.name == p.name || own.is_empty() {
                format!("{process}/{}", t.tid)
            } else {
                format!("{process}/{own}:{}", t.tid)
            }
        })
        .collect();
    (threads, processes)
}
