//! Which victim to diagnose: what a person asked for, else the worst one.

use crate::class::{WaitClass, class, connected, vague};
use crate::diagnose::unread::unread;
use crate::unserved;
use crate::victim::{COMPLAINT, INNOCENT, candidates, connected_only, finish, has_focus, in_pieces, in_view};
use crate::words::{clean, moment, span};
use crate::{EventGraph, Victim, VictimOptions};
use pg_event::{Catalog, Cmdline, Ns, Object, ObjectId, ObjectKind, Process, Relation, ThreadId};
use regex::Regex;

/// Which victim a person asked for. Everything given must fit.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// Process id, in the initial or the process' own namespace.
    pub pid: Option<u32>,
    /// Thread id, likewise.
    pub tid: Option<u32>,
    /// Searched in the thread name and in each command line the process had.
    pub process: Option<Regex>,
    /// The episode must cover this time.
    pub at: Option<Ns>,
}

impl Selection {
    /// Does it name a thread or process?
    pub fn names_somebody(&self) -> bool {
        self.pid.is_some() || self.tid.is_some() || self.process.is_some()
    }

    /// The selection as it is given on a command line: `--pid 7 --process '^redis'`.
    pub fn words(&self) -> String {
        let mut out = Vec::new();
        out.extend(self.pid.map(|n| format!("--pid {n}")));
        out.extend(self.tid.map(|n| format!("--tid {n}")));
        out.extend(self.process.as_ref().map(|r| format!("--process '{}'", clean(r.as_str(), 200))));
        out.extend(self.at.map(|t| format!("--at {:.3}", t as f64 / 1e9)));
        out.join(" ")
    }

    /// Does the thread fit?
    pub fn fits(&self, catalog: &Catalog, thread: ThreadId) -> bool {
        let Some(t) = catalog.thread(thread) else { return false };
        let p = catalog.process(t.process);
        let pid = self.pid.is_none_or(|n| p.is_some_and(|p| p.pid == n || p.ns_pid == n));
        let tid = self.tid.is_none_or(|n| t.tid == n || t.ns_tid == n);
        let process = self.process.as_ref().is_none_or(|r| {
            r.is_match(&t.name) || p.is_some_and(|p| own_cmdlines(p).iter().any(|c| r.is_match(&c.text)))
        });
        pid && tid && process
    }
}

/// The command lines that a process had as itself: between fork and exec it shows its parent's.
fn own_cmdlines(p: &Process) -> &[Cmdline] {
    match &p.cmdlines[..] {
        [first, rest @ ..] if !rest.is_empty() && p.start > 0 && first.time <= p.start => rest,
        all => all,
    }
}

/// Why no victim could be chosen.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SelectError {
    /// No thread waited, ran or yielded suspiciously long.
    #[error("nothing abnormal: {0}")]
    NothingAbnormal(String),
    /// The selection names no thread of the recording.
    #[error("no thread of the recording fits {0}; see `pg-tui open FILE`, threads view, for who is in it")]
    NoMatch(String),
}

/// The victim to diagnose: the worst one that fits the selection, of those in the focus if there is one; who is
/// outside of it is taken only when named.
///
/// # Errors
/// When no thread fits, or none of those that fit did anything suspicious.
pub fn select(
    graph: &EventGraph,
    catalog: &Catalog,
    selection: &Selection,
    options: &VictimOptions,
) -> Result<Victim, SelectError> {
    let named = selection.names_somebody();
    if named && !graph.threads().any(|t| selection.fits(catalog, t)) {
        return Err(SelectError::NoMatch(selection.words()));
    }
    let focus = has_focus(catalog, options);
    let wanted = |t| selection.fits(catalog, t) && (named || in_view(catalog, focus, t));
    let mut all = candidates(graph, catalog, options, wanted, named || focus);
    unserved::prefer(graph, catalog, &mut all);
    if let Some(at) = selection.at {
        all.retain(|(v, _)| v.start <= at && at <= v.end());
    }
    // A person who names a process that waits for a child means that wait, not how the process began.
    if named {
        for (v, _) in &mut all {
            if class(&graph.vertex(v.vertex), catalog) == WaitClass::Child && v.episode.key.is_some() {
                v.score *= 4.0;
            }
        }
    }
    // A person who names a process that leaves another one waiting to write to it means the thread that does not read.
    if named {
        for (v, w) in all.iter_mut().filter(|(v, _)| leaves_waiting(graph, catalog, v)) {
            *w = w.max(COMPLAINT);
            v.score = v.score.max(v.duration as f64 / 1e9 * COMPLAINT);
        }
    }
    if named {
        before_the_parked(graph, catalog, &mut all);
        before_its_workers(graph, catalog, &mut all);
    }
    let mut idles = false;
    // A person who points at a moment means that one; else an idle wait is not what hung.
    if selection.at.is_none() && !options.innocents {
        let asks = |v: &Victim| named && asked_before(graph, catalog, v);
        let (meant, idle): (Vec<_>, Vec<_>) = all.into_iter().partition(|(v, w)| *w >= INNOCENT || asks(v));
        all = meant;
        if all.is_empty() && (named || focus) {
            idles = !idle.is_empty();
            all = idle;
            all.retain(|(v, _)| {
                connected_only(graph, catalog, v)
                    || named && listens_to_children(graph, catalog, v)
                    || lost_signal(graph, catalog, v)
            });
        }
    }
    if named && selection.at.is_none() {
        // What took several times as long in pieces is what a person means, not the longest of these.
        let mut pieces = in_pieces(graph, catalog, options, |t| selection.fits(catalog, t));
        let longest = all.iter().map(|(v, _)| v.duration).max().unwrap_or(0);
        pieces.retain(|(v, _)| v.episode.blocked > longest.saturating_mul(3));
        if !pieces.is_empty() {
            all = pieces;
        }
    }
    // A name fits many: whom the recording is about is meant, if anybody of them hung.
    if focus && all.iter().any(|(v, w)| *w >= INNOCENT && in_view(catalog, focus, v.thread)) {
        all.retain(|(v, _)| in_view(catalog, focus, v.thread));
    }
    finish(graph, catalog, all, 1, named).pop().ok_or_else(|| {
        let least = span(options.min);
        let whose = if named { format!(" of what {} selects", selection.words()) } else { String::new() };
        SelectError::NothingAbnormal(match selection.at {
            Some(t) if t > graph.duration() => {
                format!(
                    "{} is after the end of the recording, which is {} long",
                    moment(t),
                    span(graph.duration())
                )
            }
            Some(t) => {
                format!("no wait and no stretch on the CPU of {least} or longer{whose} covers {}", moment(t))
            }
            None if idles => format!(
                "no unusual wait, yield loop or stretch on the CPU of {least} or longer{whose}; there are waits of who seems to have nothing to do: --at SECONDS takes the one at that time all the same"
            ),
            None => format!("no unusual wait, yield loop or stretch on the CPU of {least} or longer{whose}"),
        })
    })
}

/// Does it wait all through the recording in an event loop, with a connection that it made? It may have asked something
/// before; or it has nothing to do, which whoever names it does not think.
fn asked_before(graph: &EventGraph, catalog: &Catalog, v: &Victim) -> bool {
    let (first, last) = (graph.vertex(v.first), graph.vertex(v.vertex));
    let members = catalog.object(last.object).map_or(&[][..], |o| &o.members);
    v.episode.key.is_some()
        && first.begun_before
        && last.open
        && class(&last, catalog) == WaitClass::EventLoop
        && members.iter().any(|m| connected(catalog, *m))
}

/// Does it wait in an event loop to the end of the recording, beside much else for what its children write, which are there
/// all that time? A launcher does that until they have ended; whoever names it means this.
fn listens_to_children(graph: &EventGraph, catalog: &Catalog, v: &Victim) -> bool {
    let last = graph.vertex(v.vertex);
    let pipe = |o| catalog.object(o).is_some_and(|o: &Object| o.kind == ObjectKind::Pipe);
    let own = catalog.process_id_of(v.thread);
    let lives = |p: &Process| {
        Some(p.parent) == own
            && p.start <= v.start + v.duration / 8
            && p.end.is_none_or(|e| e >= v.end() - v.duration / 8)
    };
    v.episode.key.is_some()
        && last.open
        && class(&last, catalog) == WaitClass::EventLoop
        && catalog.object(last.object).is_some_and(|o| o.members.iter().any(|m| pipe(*m)))
        && catalog.processes.iter().any(lives)
}

/// Does the only thread of a process without children wait for a signal, for a good part of the recording and to its end? Who
/// names it may mean that the signal came before the wait did.
fn lost_signal(graph: &EventGraph, catalog: &Catalog, v: &Victim) -> bool {
    let last = graph.vertex(v.vertex);
    let Some(own) = catalog.process_id_of(v.thread) else { return false };
    let child = |p: &Process| p.parent == own && p.end.is_none();
    v.episode.key.is_some()
        && last.open
        && v.duration >= graph.duration() / 4
        && class(&last, catalog) == WaitClass::Signal
        && graph.threads_of(own).nth(1).is_none()
        && !catalog.processes.iter().any(child)
}

/// Is it the first thread of its process?
fn is_first(catalog: &Catalog, thread: ThreadId) -> bool {
    catalog.process_of(thread).zip(catalog.thread(thread)).is_some_and(|(p, t)| p.pid == t.tid)
}

/// Does the first thread of a process wait all through the recording in an event loop for what comes from another one, as its
/// standard output or by a pair of sockets in place of that? Whoever starts programs does that until all that inherited the
/// other end have closed it.
fn reads_output(graph: &EventGraph, catalog: &Catalog, v: &Victim) -> bool {
    let (first, last) = (graph.vertex(v.first), graph.vertex(v.vertex));
    let own = catalog.process_id_of(v.thread);
    let output = |o: ObjectId, relation: Relation| {
        catalog.object(o).is_some_and(|o| match o.kind {
            ObjectKind::Pipe => relation == Relation::Writes,
            ObjectKind::UnixStream => relation == Relation::Peer && o.name.is_empty(),
            _ => false,
        })
    };
    let theirs = |t: ThreadId| {
        let holder = catalog.process_id_of(t);
        holder != own && own.is_some_and(|own| !catalog.ancestors(own).any(|p| Some(p) == holder))
    };
    v.episode.key.is_some()
        && first.begun_before
        && last.open
        && is_first(catalog, v.thread)
        && class(&last, catalog) == WaitClass::EventLoop
        && graph.holds(v.thread, v.start..v.end().saturating_add(1)).any(|h| {
            let member = catalog.object(last.object).is_some_and(|o| o.members.contains(&h.object));
            member && output(h.object, h.relation) && theirs(h.holder)
        })
}

/// Threads of a runtime park when there is nothing for them to do: where another one of their process waits for an answer to
/// what it may have asked before the recording, or for the output of others, that is told first.
fn before_the_parked(graph: &EventGraph, catalog: &Catalog, all: &mut [(Victim, f64)]) {
    let process = |v: &Victim| catalog.process_id_of(v.thread);
    let parks = |v: &Victim| {
        let (first, last) = (graph.vertex(v.first), graph.vertex(v.vertex));
        v.episode.key.is_some()
            && first.begun_before
            && last.open
            && (vague(&last, catalog) || class(&last, catalog) == WaitClass::Condition)
            && !is_first(catalog, v.thread)
    };
    let meant = |v: &Victim| asked_before(graph, catalog, v) || reads_output(graph, catalog, v);
    for i in (0..all.len()).filter(|i| meant(&all[*i].0)).collect::<Vec<_>>() {
        let own = process(&all[i].0);
        let parked = all.iter().filter(|(v, _)| process(v) == own && parks(v)).map(|(v, _)| v.score);
        if let Some(most) = parked.max_by(f64::total_cmp) {
            let (victim, weight) = &mut all[i];
            victim.score = victim.score.max(most * 1.01);
            *weight = weight.max(INNOCENT);
        }
    }
}

/// A first thread that waited for whatever comes until a worker of its process let it go on, which had computed all that time:
/// the wait is what a person sees of that.
fn before_its_workers(graph: &EventGraph, catalog: &Catalog, all: &mut [(Victim, f64)]) {
    let process = |t: ThreadId| catalog.process_id_of(t);
    let waits = |v: &Victim| {
        v.episode.key.is_some()
            && is_first(catalog, v.thread)
            && class(&graph.vertex(v.vertex), catalog) == WaitClass::EventLoop
    };
    for i in (0..all.len()).filter(|i| waits(&all[*i].0)).collect::<Vec<_>>() {
        let v = &all[i].0;
        let Some(waker) = graph.waking(v.vertex).map(|e| graph.vertex(graph.edge(e).from).thread) else {
            continue;
        };
        let worker = |(w, _): &&(Victim, f64)| {
            let both = w.end().min(v.end()).saturating_sub(w.start.max(v.start));
            let computes = w.episode.key.is_none() && w.thread != v.thread;
            computes
                && process(w.thread) == process(v.thread)
                && both * 2 >= v.duration
                && both * 2 >= w.duration
        };
        let workers: Vec<_> = all.iter().filter(worker).map(|(w, _)| (w.thread, w.score)).collect();
        if !workers.iter().any(|w| w.0 == waker) {
            continue;
        }
        let most = workers.iter().map(|w| w.1).fold(0.0, f64::max);
        let (victim, weight) = &mut all[i];
        victim.score = victim.score.max(most * 1.01);
        *weight = weight.max(INNOCENT);
    }
}

/// Does it wait for whatever comes, while another process waits for most of that time to write to it?
fn leaves_waiting(graph: &EventGraph, catalog: &Catalog, v: &Victim) -> bool {
    v.episode.key.is_some()
        && class(&graph.vertex(v.vertex), catalog) == WaitClass::EventLoop
        && unread(graph, catalog, v.thread, (v.start, v.end())).any(|h| h.holder == v.thread)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(start: Ns, cmdlines: &[(Ns, &str)]) -> Process {
        let cmdlines = cmdlines.iter().map(|&(time, text)| Cmdline { time, text: text.into() }).collect();
        Process { start, cmdlines, ..Process::default() }
    }

    #[test]
    fn what_a_fork_inherits_is_no_command_line_of_its_own() {
        let texts = |p: &Process| own_cmdlines(p).iter().map(|c| c.text.clone()).collect::<Vec<_>>();
        assert_eq!(texts(&process(5, &[(5, "sh -c ls"), (6, "ls")])), ["ls"]);
        assert_eq!(texts(&process(5, &[(5, "php -S")])), ["php -S"], "a worker that never calls exec");
        assert_eq!(texts(&process(0, &[(0, "nginx: old"), (6, "nginx: new")])), ["nginx: old", "nginx: new"]);
    }
}
