//! Repeated yield (algorithm 1, lines 6 to 11): which data flag does the loop ask for? With the answer it is a
//! long wait like any other: an edge leads from the write to the read, or the write is what is missing.

use super::activity::{Spans, total};
use super::ask::Candidate;
use super::finding::{Finding, FindingKind};
use super::node::Entry;
use super::pose::Posed;
use super::walk::{Flow, Walk};
use crate::class::WaitClass;
use crate::flag::{FlagAccess, FlagSeen, flags_seen};
use crate::words::{clean, moment, short_who, span, who};
use crate::{Choice, EdgeId, EdgeKind, NearbyEvent, Question, QuestionKind, VertexId};
use pg_event::{Ns, ThreadId};

/// A loop that asks again and again.
pub(crate) struct Asks {
    /// Its last vertex.
    pub vertex: VertexId,
    /// When it began.
    pub start: Ns,
    pub spans: Spans,
    /// About how often it went round; 0 when that is not known.
    pub rounds: usize,
    /// "slept 158 times for 95 ms each in clock_nanosleep".
    pub how: String,
    /// The one variable that its code asks, by name, where that is known.
    pub variable: Option<String>,
}

/// Below this nothing is recommended.
const FITS: f64 = 0.5;

/// The word of a step whose thread waited for a data flag.
pub(crate) const DATA_FLAG: &str = "data-flag";

impl Walk<'_> {
    /// Ask for the flag and go on to who wrote it. Returns whether that led anywhere.
    pub(crate) fn by_flag(&mut self, thread: ThreadId, asks: &Asks) -> Flow<bool> {
        let mut flags = flags_seen(self.g, thread, &asks.spans, asks.rounds);
        flags.truncate(5);
        if flags.is_empty() {
            return Ok(false);
        }
        self.out.would_ask += usize::from(self.auto);
        let q = self.flag_question(thread, asks, &flags);
        match self.decide(q)? {
            0 => Ok(false),
            n => {
                let f = flags.swap_remove((n - 1).min(flags.len() - 1));
                self.follow_flag(thread, asks, &f)?;
                Ok(true)
            }
        }
    }

    /// Nothing else explains the loop and no flag was recorded: say how to record one (lines 7 to 10). Only for
    /// the victim, since a person can do something about one loop at a time.
    pub(crate) fn no_flag(&mut self, thread: ThreadId, asks: &Asks) -> Flow<()> {
        if self.auto || self.out.nodes.len() > 1 {
            return Ok(());
        }
        let function = self.out.nodes.last().and_then(|n| n.function.as_ref());
        let tests = function.map_or_else(String::new, |f| format!(" (in {})", clean(f, 60)));
        let t = self.c.thread(thread).map_or(0, |t| t.tid);
        let pid = self.c.process_of(thread).map_or(t, |p| p.pid);
        let next = match &asks.variable {
            Some(v) => {
                let v = clean(v, 60);
                format!(
                    "It asks `{v}`: while it hangs, `sudo pg-tui record -p {pid} --flag '{v}'` records who reads and writes that (`record --flag '{v}' -- CMD` from the start of a command)."
                )
            }
            None => format!(
                "While it hangs, `sudo pg-tui find-flag -p {pid} -t {t}` finds the variable that the loop tests{tests}. With its address or name, `sudo pg-tui record -p {pid} --flag NAME` records who writes it (`record --flag NAME -- CMD` from the start of a command)."
            ),
        };
        let q = self.pose_about(
            thread,
            (asks.vertex, asks.start),
            Posed {
                kind: QuestionKind::DataFlag,
                text: format!("Which data flag does {} wait for?", short_who(self.c, thread)),
                why: format!(
                    "{} {}: it asks a variable whether it may go on. No access to a data flag of it was recorded, so who should have written it is not known. {next}",
                    who(self.c, thread),
                    asks.how
                ),
                choices: Vec::new(),
                stop: "unknown: the loop itself is shown as the cause".into(),
                recommended: 0,
                reason: "no data flag was recorded".into(),
            },
            None,
        );
        self.decide(q).map(|_| ())
    }

    /// Who let the loop go on, or should have.
    fn follow_flag(&mut self, thread: ThreadId, asks: &Asks, f: &FlagSeen) -> Flow<()> {
        if let Some(n) = self.out.nodes.last_mut() {
            n.waits_on = Some(DATA_FLAG.into());
            n.object = Some(f.object);
        }
        if let Some(w) = f.ended_by {
            let c = self.writer(thread, asks, f, &w);
            return self.follow(c, WaitClass::Other);
        }
        let label = self.flag_label(f);
        let mut useful: Vec<(FlagAccess, Candidate)> = Vec::new();
        let mut direct = None;
        for w in &f.writers {
            let Some(v) = self.g.vertex_at(w.thread, w.time).filter(|_| self.counts(w.thread)) else {
                continue;
            };
            let why = format!(
                "nobody wrote {label} meanwhile; {} wrote it at {}",
                short_who(self.c, w.thread),
                moment(w.time)
            );
            let step = (v, EdgeKind::DataFlag, w.time);
            if let Some(c) = self.along(step, thread, &asks.spans, &why)
                && !useful.iter().any(|u| u.1.thread == c.thread)
            {
                useful.push((*w, c));
            }
            direct.get_or_insert_with(|| self.missing(step, &asks.spans, &why));
        }
        let mut take = 0;
        if !self.auto && useful.len() > 1 {
            let q = self.writer_question(thread, asks, f, &useful);
            take = self.decide(q)?;
            if take == 0 {
                self.found(thread, FindingKind::Unanswered, asks.spans.clone());
                return Ok(());
            }
            take -= 1;
        }
        let take = take.min(useful.len().saturating_sub(1));
        let c = if useful.is_empty() { direct } else { Some(useful.swap_remove(take).1) };
        match c {
            Some(c) => {
                self.visit(c.thread, c.spans, c.entry)?;
                // Whoever was to write it idles: the flag that nobody wrote is what a person can act on.
                if self.out.findings.last().is_some_and(|f| f.kind == FindingKind::Idle) {
                    let own = self.out.nodes.iter().position(|n| n.thread == thread).unwrap_or(0);
                    let spans = asks.spans.clone();
                    let kind = FindingKind::Unanswered;
                    self.out.findings.push(Finding { thread, node: own, kind, spans });
                }
            }
            None => self.found(thread, FindingKind::Unanswered, asks.spans.clone()),
        }
        Ok(())
    }

    fn flag_label(&self, f: &FlagSeen) -> String {
        self.c.object(f.object).map_or_else(|| "the flag".into(), |o| clean(&o.label(), 60))
    }

    /// The edge from a write of the flag to the thread that asked for it.
    fn flag_edge(&self, thread: ThreadId, asks: &Asks, f: &FlagSeen, w: &FlagAccess) -> Option<EdgeId> {
        let from = self.g.vertex_at(w.thread, w.time)?;
        self.g.outgoing(from).find(|id| {
            let e = self.g.edge(*id);
            e.kind == EdgeKind::DataFlag
                && e.object == f.object
                && e.to_time >= asks.start
                && self.g.vertex(e.to).thread == thread
        })
    }

    /// The thread whose write ended the loop.
    fn writer(&self, thread: ThreadId, asks: &Asks, f: &FlagSeen, w: &FlagAccess) -> Candidate {
        let cut = |s: &(Ns, Ns)| (s.0 < w.time).then(|| (s.0, s.1.min(w.time)));
        let spans: Spans = asks.spans.iter().filter_map(cut).collect();
        let spans = if spans.is_empty() { asks.spans.clone() } else { spans };
        let id = self.flag_edge(thread, asks, f, w);
        Candidate {
            thread: w.thread,
            time: total(&spans),
            spans,
            entry: Entry { edge: Some(EdgeKind::DataFlag), id, why_weak: None, ..Entry::default() },
            weak: None,
            waking: true,
            vertex: self.g.vertex_at(w.thread, w.time),
            at: w.time,
            kind: EdgeKind::DataFlag,
            relation: None,
        }
    }

    fn flag_question(&self, thread: ThreadId, asks: &Asks, flags: &[FlagSeen]) -> Question {
        let best = &flags[0];
        let recommended = usize::from(best.score >= FITS);
        let next = best.ended_by.filter(|_| recommended > 0).map(|w| self.writer(thread, asks, best, &w));
        let several = match flags.len() {
            1 => "One recorded data flag was touched by it meanwhile.".to_owned(),
            n => format!("{n} recorded data flags were touched by it meanwhile."),
        };
        self.pose_about(
            thread,
            (asks.vertex, asks.start),
            Posed {
                kind: QuestionKind::DataFlag,
                text: format!("Which data flag did {} wait for?", short_who(self.c, thread)),
                why: format!(
                    "{} {}: it asks a variable whether it may go on. {several}",
                    who(self.c, thread),
                    asks.how
                ),
                choices: flags.iter().map(|f| self.flag_choice(thread, asks, f)).collect(),
                stop: "unknown, or none of them: the loop itself is the cause".into(),
                recommended,
                reason: if recommended > 0 {
                    format!("{} {}", self.flag_label(best), self.flag_story(best))
                } else {
                    "none of them looks like what the loop asks for".into()
                },
            },
            next.as_ref(),
        )
    }

    /// What the flag was to the loop.
    fn flag_story(&self, f: &FlagSeen) -> String {
        let by = |w: &FlagAccess| {
            format!("{} wrote {} at {}", short_who(self.c, w.thread), w.value, moment(w.time))
        };
        let read = match f.reads {
            0 => "was not read in the loop".to_owned(),
            1 => "was read once in the loop".to_owned(),
            n => format!("was read {n} times in the loop"),
        };
        let own = if f.own_writes > 0 {
            format!(" and written {} times by it", f.own_writes)
        } else {
            String::new()
        };
        let then = match (&f.ended_by, f.written, f.writers.first()) {
            (Some(w), ..) => format!("{}, after which it asked no more", by(w)),
            (None, n @ 1.., _) => format!("others wrote it {n} times meanwhile, and it asked on"),
            (None, 0, Some(w)) => format!("nobody wrote it meanwhile; {}", by(w)),
            (None, 0, None) => "nobody wrote it".to_owned(),
        };
        format!("{read}{own}; {then}")
    }

    fn flag_choice(&self, thread: ThreadId, asks: &Asks, f: &FlagSeen) -> Choice {
        let edge = f.ended_by.and_then(|w| self.flag_edge(thread, asks, f, &w));
        let at = f.ended_by.unwrap_or(f.last);
        let stack = edge.map(|e| self.g.edge_stack(e)).filter(|s| s.is_some());
        Choice {
            label: format!("{} = {}", self.flag_label(f), f.last.value),
            detail: format!("{}; read last by {}", self.flag_story(f), short_who(self.c, thread)),
            vertex: self.g.vertex_at(at.thread, at.time),
            edge,
            strong: f.ended_by.is_some(),
            time: at.time,
            stack: self.c.show_stack(stack.unwrap_or(at.stack)),
            nearby: self.flag_nearby(thread, f, at.time),
        }
    }

    /// Accesses around a moment: the loop's own and all writes.
    fn flag_nearby(&self, thread: ThreadId, f: &FlagSeen, at: Ns) -> Vec<NearbyEvent> {
        const EACH: usize = 3;
        let own = || self.g.flags_of(thread, 0..Ns::MAX).filter(|x| x.object == f.object && !x.write);
        let writes = || self.g.flag_writes(f.object);
        let mut near: Vec<FlagAccess> = Vec::new();
        near.extend(own().rev().filter(|x| x.time < at).take(EACH));
        near.extend(own().filter(|x| x.time >= at).take(EACH));
        near.extend(writes().rev().filter(|x| x.time <= at).take(EACH));
        near.extend(writes().filter(|x| x.time > at).take(EACH));
        near.sort_by_key(|x| (x.time, x.thread, x.write));
        near.dedup();
        let text = |x: FlagAccess| {
            let verb = if x.write { "writes" } else { "reads" };
            NearbyEvent { time: x.time, text: format!("{} {verb} {}", short_who(self.c, x.thread), x.value) }
        };
        near.into_iter().map(text).collect()
    }

    fn writer_question(
        &self,
        thread: ThreadId,
        asks: &Asks,
        f: &FlagSeen,
        useful: &[(FlagAccess, Candidate)],
    ) -> Question {
        let label = self.flag_label(f);
        let choice = |(w, c): &(FlagAccess, Candidate)| Choice {
            label: format!("{} wrote {} at {}", short_who(self.c, w.thread), w.value, moment(w.time)),
            detail: format!("{} {} during the hang", short_who(self.c, c.thread), self.did(c)),
            vertex: self.g.vertex_at(w.thread, w.time),
            edge: None,
            strong: false,
            time: w.time,
            stack: self.c.show_stack(w.stack),
            nearby: self.flag_nearby(thread, f, w.time),
        };
        let c = &useful[0].1;
        self.pose_about(
            thread,
            (asks.vertex, asks.start),
            Posed {
                kind: QuestionKind::Baseline,
                text: format!("Which of these shows how {label} is normally written?"),
                why: format!(
                    "{} asked {label} for {} and nobody wrote it. {} threads did at other times.",
                    who(self.c, thread),
                    span(total(&asks.spans)),
                    useful.len()
                ),
                choices: useful.iter().map(choice).collect(),
                stop: "none of them: that nobody wrote it is the cause".into(),
                recommended: 1,
                reason: format!(
                    "it wrote it last before the hang, and {} {}",
                    short_who(self.c, c.thread),
                    self.did(c)
                ),
            },
            Some(c),
        )
    }
}
