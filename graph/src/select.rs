//! Which victim to diagnose: what a person asked for, else the worst one.

mod meant;

use crate::unserved;
use crate::victim::{INNOCENT, candidates, connected_only, finish, has_focus, in_pieces, in_view};
use crate::words::{clean, moment, span};
use crate::{EventGraph, Victim, VictimOptions};
use pg_event::{Catalog, Cmdline, Ns, Process, ThreadId};
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
    if named {
        meant::weigh(graph, catalog, &mut all);
    }
    let mut idles = false;
    // A person who points at a moment means that one; else an idle wait is not what hung.
    if selection.at.is_none() && !options.innocents {
        let asks = |v: &Victim| named && meant::asked_before(graph, catalog, v);
        let (hung, idle): (Vec<_>, Vec<_>) = all.into_iter().partition(|(v, w)| *w >= INNOCENT || asks(v));
        all = hung;
        if named && meant::naps_before_signal(graph, catalog, &all, &idle) {
            all.clear();
        }
        if all.is_empty() && (named || focus) {
            idles = !idle.is_empty();
            all = idle;
            all.retain(|(v, _)| {
                connected_only(graph, catalog, v)
                    || named && meant::listens_to_children(graph, catalog, v)
                    || meant::lost_signal(graph, catalog, v)
            });
        }
    }
    if named && selection.at.is_none() {
        // What took several times as long in pieces is what a person means, not the longest of these.
        let mut pieces = in_pieces(graph, catalog, options, |t| selection.fits(catalog, t));
        let longest = all.iter().map(|(v, _)| v).max_by_key(|v| v.duration);
        let (most, runs) = longest.map_or((0, false), |v| (v.duration, v.episode.key.is_none()));
        // Where another one computes as long, that may be what it waited for.
        let more = |blocked: Ns| blocked > most.saturating_mul(3);
        pieces.retain(|(v, _)| more(v.episode.blocked) || runs && v.episode.blocked * 2 > most);
        if pieces.iter().any(|(v, _)| more(v.episode.blocked)) {
            all.clear();
        }
        all.extend(pieces);
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
