//! Steps through a retry loop made of children: what the child asks for, and who has that.

use super::activity::{Group, Spans, extent, merged, total};
use super::answerless::{main_thread, relation_words};
use super::ask::Candidate;
use super::finding::{Finding, FindingKind};
use super::node::{Entry, Keeps, SliceNode};
use super::walk::{Flow, Walk};
use crate::class::WaitClass;
use crate::looks::{Look, Purpose, look};
use crate::refused::{Evidence, between_sleeps};
use crate::retries::Retries;
use crate::words::moment;
use crate::{EdgeId, EdgeKind, Weak};
use pg_event::{Direction, Ns, ObjectId, ObjectKind, Process, ProcessId, Relation, ThreadId};

/// EEXIST: programs lock out others of their kind by files that are there already.
const EEXIST: i64 = -17;
const ENOENT: i64 = -2;

impl Walk<'_> {
    /// The retry loop in which a thread spent most of these spans.
    pub(super) fn retries(&self, thread: ThreadId, spans: &Spans) -> Option<&Retries> {
        let within = |r: &&Retries| {
            let of: Ns = spans.iter().map(|s| s.1.min(r.end).saturating_sub(s.0.max(r.start))).sum();
            of * 2 >= total(spans)
        };
        // What a job that is done every now and then does is to be told, not that it is one.
        let asks = |r: &&Retries| r.failing || r.purpose(self.g, self.c) != Purpose::Job;
        self.g.retries_of(thread).iter().filter(within).find(asks)
    }

    /// On from a thread that runs the same program again and again, since that fails.
    pub(super) fn tries(&mut self, thread: ThreadId, r: &Retries, spans: &Spans, entry: Entry) -> Flow<()> {
        let cut = spans.iter().map(|s| (s.0.max(r.start), s.1.min(r.end)));
        let within = merged(cut.filter(|s| s.0 < s.1).collect());
        let (start, end) = extent(&within);
        let waits = || self.g.vertices_in(thread, start..end).map(|v| (v, self.g.vertex(v)));
        let Some((vertex, _)) = waits().max_by_key(|(v, x)| (x.waited(), std::cmp::Reverse(*v))) else {
            return Ok(());
        };
        let mut node = SliceNode::waiting(self.g, self.c, vertex, (start, end)).entered(entry);
        node.spent = waits().map(|(_, v)| v.woken.min(end).saturating_sub(v.start.max(start))).sum();
        node.waits = r.tries.len();
        let look = Some(r).filter(|r| !r.failing).and_then(|r| r.look(self.g, self.c));
        if let Some(l) = look {
            (node.syscall, node.object) =
                (l.call.name().map(Into::into), Some(l.object).filter(|o| o.is_some()));
        }
        self.out.nodes.push(node);
        let own = self.out.nodes.len() - 1;
        self.path.push((thread, spans.clone()));
        let loop_itself = Finding { thread, node: own, kind: FindingKind::Retrying, spans: within.clone() };
        if r.pauses {
            // Whoever told somebody to end waits for what that leaves behind to go.
            let found = look.and_then(|l| self.looked_at(thread, l, r.end, &within));
            if let Some(c) = found.or_else(|| self.lives_on(thread, &within)) {
                self.follow(c, WaitClass::Lock)?;
            }
            self.out.findings.push(loop_itself);
            return Ok(());
        }
        let evidence = r.evidence(self.g, self.c);
        let tried = self.longest_try(r);
        // What takes the time is that a try takes long.
        if r.tried(self.c) * 2 > r.end - r.start
            && let Some((child, lived)) = tried
        {
            let entry = self.by_exit(child, thread);
            self.visit(child, vec![lived], entry)?;
            self.out.findings.push(loop_itself);
            return Ok(());
        }
        if !r.failing {
            self.out.findings.push(loop_itself);
            return Ok(());
        }
        let child = evidence.map(|e| e.by).or_else(|| r.children(self.g, self.c).next_back());
        if let Some(child) = child {
            let lived = self.life(child, r.end);
            let mut node =
                SliceNode::plain(child, self.last_vertex(child), "exited", lived, lived.1 - lived.0);
            node = node.entered(self.by_exit(child, thread));
            node.syscall = evidence.and_then(|e| e.call.name()).map(Into::into);
            node.object = evidence.map(|e| e.object).filter(|o| o.is_some());
            self.out.nodes.push(node);
            if let Some(c) =
                self.keeper(thread, r, evidence, &within).or_else(|| self.turned_away(r, &within))
            {
                let before = self.out.findings.len();
                self.follow(c, WaitClass::Lock)?;
                // That nobody was there is what happened; what the one who came later did may explain it.
                if evidence.is_some_and(|e| e.connects()) {
                    self.out.findings.insert(before, loop_itself);
                    return Ok(());
                }
            }
        }
        self.out.findings.push(loop_itself);
        Ok(())
    }

    /// The process that a thread asks about between its sleeps and finds there each time: it waits until that ends. `files`:
    /// also who made the file that it looks at.
    pub(super) fn asked_about(&self, thread: ThreadId, spans: &Spans, files: bool) -> Option<Candidate> {
        let end = spans.last()?.1;
        let within = (spans.first()?.0, end);
        let l = look(self.g, self.c, thread, within, &[])?;
        if l.result < 0 || !files && l.pid == 0 {
            return self.changed_by(thread, l.object, l.result < 0, spans);
        }
        self.looked_at(thread, l, end, spans).filter(|c| c.thread != thread)
    }

    /// The process that a loop asks about and finds there each time, or who made the file.
    fn looked_at(&self, thread: ThreadId, l: Look, end: Ns, within: &Spans) -> Option<Candidate> {
        if l.pid == 0 || l.result < 0 {
            return self.maker(thread, l, end, within);
        }
        let (start, _) = *within.first()?;
        if let Some(ended) = l.unreaped(self.c, thread, (start, end)) {
            let parent = main_thread(self.g, self.c, ended.parent)?;
            let why = "no wake-up can tell; the process that is asked about has ended, and this is its parent, which has not taken its exit status";
            return self
                .counts(parent)
                .then(|| self.keeping(parent, Relation::ChildOf, start, why.into(), within));
        }
        let main = main_thread(self.g, self.c, l.process(self.c, thread, start)?)?;
        let why = "no wake-up can tell; it is the process that is asked about".to_owned();
        self.counts(main).then(|| self.keeping(main, Relation::ChildOf, start, why, within))
    }

    /// Who made what a loop looks at and finds there each time.
    fn maker(&self, thread: ThreadId, l: Look, end: Ns, within: &Spans) -> Option<Candidate> {
        const MAKES: &[&str] = &[
            "open",
            "openat",
            "openat2",
            "creat",
            "mkdir",
            "mkdirat",
            "mknod",
            "mknodat",
            "link",
            "linkat",
            "symlink",
            "symlinkat",
            "rename",
            "renameat",
            "renameat2",
        ];
        let changed = self.changed_by(thread, l.object, l.result < 0, within);
        if changed.is_some() || l.result < 0 {
            return changed;
        }
        let made = |t: ThreadId| {
            let mut calls = self.g.syscalls_of(t, 0..end).iter().rev();
            let call =
                calls.find(|u| u.what.object == l.object && u.what.result >= 0 && u.what.nr.is_any(MAKES))?;
            Some((call.time, t))
        };
        let others = self.g.threads().filter(|t| *t != thread && self.counts(*t));
        let Some((at, maker)) = others.filter_map(made).max() else {
            let (file, process) = (self.c.object(l.object)?, self.c.thread(thread)?.process);
            return self.had_it_made(thread, process, Some(&file.name), end, within);
        };
        let why =
            format!("no wake-up can tell; it was the last that made or opened the file, at {}", moment(at));
        Some(self.keeping(maker, Relation::Owns, at, why, within))
    }

    fn life(&self, child: ThreadId, until: Ns) -> (Ns, Ns) {
        let p = self.c.process_of(child);
        let start = p.map_or(0, |p| p.start);
        (start, p.and_then(|p| p.end).unwrap_or(until).max(start))
    }

    fn longest_try(&self, r: &Retries) -> Option<(ThreadId, (Ns, Ns))> {
        let all = r.children(self.g, self.c).map(|t| (t, self.life(t, r.end)));
        all.max_by_key(|(_, l)| l.1 - l.0)
    }

    /// The edge by which the end of a child lets its parent go on.
    fn by_exit(&self, child: ThreadId, parent: ThreadId) -> Entry {
        let last = self.last_vertex(child);
        let to_parent = |e: &EdgeId| {
            let e = self.g.edge(*e);
            e.kind == EdgeKind::Exit && self.g.vertex(e.to).thread == parent
        };
        let id = self.g.outgoing(last).find(to_parent);
        let weak = id.and_then(|e| self.g.edge(e).weak);
        let why_weak = match (id, weak) {
            (None, _) => Some("no wake-up by its end was recorded; it is a child that failed".to_owned()),
            (_, weak) => weak.map(|w| w.words().to_owned()),
        };
        Entry { edge: Some(EdgeKind::Exit), id, why_weak, ..Entry::default() }
    }

    /// What a thread tries for between its sleeps, in vain, where that was recorded.
    pub(super) fn refused(&self, group: &Group, class: WaitClass) -> Option<Evidence> {
        let (first, last) = (group.clips.first()?, group.clips.last()?);
        // A program that is all callbacks sleeps where it waits for whatever comes.
        let turns = class == WaitClass::EventLoop && self.representative(group).timed_out;
        let sleeps = (class == WaitClass::Sleep || turns) && group.waits > 1;
        let thread = self.g.vertex(last.last).thread;
        sleeps.then(|| between_sleeps(self.g, self.c, thread, (first.start, last.end))).flatten()
    }

    /// For whom the call that fails between the sleeps of a thread succeeded before.
    pub(super) fn has_it(&self, e: &Evidence, thread: ThreadId, within: &Spans) -> Option<Candidate> {
        // Others are connected as well, and have children, without keeping anybody from it.
        if e.of_spawn() || e.connects() {
            return self.served_at_last(thread, None, e, within);
        }
        if let Some(c) = self.changed_by(thread, e.object, e.error == ENOENT, within) {
            return Some(c);
        }
        if let Some((holder, at)) = self.taker(*e, within.last()?.1, |t| t == thread) {
            let why = format!("it was the last for which the same call succeeded, at {}", moment(at));
            return Some(self.keeping(holder, Relation::Owns, at, why, within));
        }
        let process = self.c.thread(thread)?.process;
        let file = self.c.object(e.object).filter(|o| e.error == EEXIST && o.kind == ObjectKind::File)?;
        self.had_it_made(thread, process, Some(&file.name), within.last()?.1, within).or_else(|| {
            // It gave it back before the thread tried for the last time.
            let (start, end) = (within.first()?.0, within.last()?.1);
            self.namesake(thread, process, *e, (start, end - (end - start) / 4), within)
        })
    }

    /// Who has what the children want: as read from the system's state when one of them failed, else who was
    /// recorded to get it by the same call.
    fn keeper(
        &self,
        thread: ThreadId,
        r: &Retries,
        evidence: Option<Evidence>,
        within: &Spans,
    ) -> Option<Candidate> {
        let children: Vec<ThreadId> = r.children(self.g, self.c).collect();
        let wanted = evidence.map(|e| e.object).filter(|o| o.is_some());
        let asks = |t: ThreadId| t == thread || children.contains(&t);
        let about = |o: ObjectId| wanted.is_none_or(|w| w == o);
        let held =
            self.g.holds.iter().filter(|h| about(h.object) && !asks(h.holder) && self.counts(h.holder));
        let held = held.filter(|h| children.contains(&h.subject) || wanted.is_some());
        let last = held.max_by_key(|h| (children.contains(&h.subject), h.time));
        let (holder, relation, at, why) = if let Some(h) = last {
            let why = format!("{}: {}", Weak::FromState.words(), relation_words(h.relation));
            (h.holder, h.relation, h.time, why)
        } else if let Some(c) =
            evidence.and_then(|e| self.changed_by(thread, e.object, e.error == ENOENT, within))
        {
            return Some(c);
        } else if let Some((holder, at)) = evidence.and_then(|e| self.taker(e, r.end, asks)) {
            let why = format!("it was the last for which the same call succeeded, at {}", moment(at));
            (holder, Relation::Owns, at, why)
        } else {
            let program = r.tries.last().copied()?;
            // It may have ended during the pause after the last try that failed.
            let tries = children.iter().filter_map(|t| self.c.process_of(*t)).map(|p| p.start);
            let lived = (within.first()?.0, tries.max()?);
            // Others who run the same command may succeed when this loop does.
            let until = match evidence {
                Some(e) if e.error == EEXIST => Some(lived.1),
                Some(_) => None,
                None => Some(lived.0),
            };
            return until
                .and_then(|t| self.had_it_made(thread, program, None, t, within))
                .or_else(|| self.served_at_last(thread, Some(r), &evidence?, within))
                .or_else(|| self.namesake(thread, program, evidence?, lived, within));
        };
        Some(self.keeping(holder, relation, at, why, within))
    }

    /// Who is at work in a server of which the last child that failed heard last: by one process after the other it turns away
    /// who comes, and one of their kind is busy all the time.
    fn turned_away(&self, r: &Retries, within: &Spans) -> Option<Candidate> {
        let (start, end) = extent(within);
        let heard = |t: ThreadId| {
            let mut all = self.g.ipc_of(t, start..end).iter().rev();
            all.find(|m| m.what.direction == Direction::Receive).map(|m| (m.time, m.what.object))
        };
        let (_, over) = r.children(self.g, self.c).filter_map(heard).max()?;
        let (_, server) = self.at_other_ends(r.thread, &[over], end).into_iter().max()?;
        let p = self.c.process_of(server)?;
        // Who was there before the loop answers by itself.
        let passing = p.start > start && p.parent.is_some();
        let one = self.sibling_at_work(self.c.process_id_of(server)?, within).filter(|_| passing)?;
        let why = "no wake-up can tell; of the processes of the server that let the tries fail, it is the only one at work all the time";
        Some(Candidate { relation: None, ..self.keeping(one, Relation::Owns, start, why.into(), within) })
    }

    pub(super) fn keeping(
        &self,
        holder: ThreadId,
        relation: Relation,
        at: Ns,
        why: String,
        within: &Spans,
    ) -> Candidate {
        let vertex = self.g.vertex_at(holder, at);
        Candidate { relation: Some(relation), ..Candidate::unseen(holder, within.clone(), (vertex, at), why) }
    }

    /// A file that is there already (EEXIST) is how programs lock out others of their kind: the one other process of the
    /// program that was there all the time may have made it. Of several none is named.
    fn namesake(
        &self,
        thread: ThreadId,
        asks: ProcessId,
        e: Evidence,
        (start, end): (Ns, Ns),
        within: &Spans,
    ) -> Option<Candidate> {
        let program = self.c.process(asks).filter(|_| e.error == EEXIST)?;
        // Who lives for milliseconds is known by its name only.
        let same = |p: &Process| {
            let unread = p.exe.is_empty() || program.exe.is_empty();
            p.name == program.name && (unread || p.exe == program.exe)
        };
        let own = self.c.thread(thread)?.process;
        let file = self.c.object(e.object).map_or("", |o| o.name.as_str());
        let like = |(i, p): (usize, &Process)| {
            let there = p.start <= start && p.end.is_none_or(|t| t >= end);
            let main = main_thread(self.g, self.c, ProcessId(i as u32))?;
            let fits =
                same(p) && p.parent != own && ProcessId(i as u32) != asks && !elsewhere(p.cmdline(), file);
            (there && fits && self.counts(main)).then_some(main)
        };
        let mut all = self.c.processes.iter().enumerate().filter_map(like);
        let one = all.next()?;
        if all.next().is_some() {
            return None;
        }
        let name = crate::words::clean(&program.name, 40);
        let why = format!(
            "who made the file was not recorded; it is the only other {name} that was there all the time"
        );
        let mut c = Candidate { relation: None, ..self.keeping(one, Relation::Owns, start, why, within) };
        (c.entry.keeps, c.entry.doubt) = (Keeps::May, 0.4);
        Some(c)
    }

    /// For whom the call that fails succeeded last, before the loop's end.
    fn taker(&self, e: Evidence, end: Ns, asks: impl Fn(ThreadId) -> bool) -> Option<(ThreadId, Ns)> {
        let got = |t: ThreadId| {
            let calls = self.g.syscalls_of(t, 0..end).iter().rev();
            let mut of = calls.filter(|u| u.what.nr == e.call && u.what.object == e.object);
            of.find(|u| u.what.result >= 0).map(|u| (t, u.time))
        };
        let all = self.g.threads().filter(|t| !asks(*t) && self.counts(*t) && e.object.is_some());
        all.filter_map(got).max_by_key(|x| x.1)
    }
}

/// Does a command line name folders or files by whole paths, and none of them is where `file` is?
fn elsewhere(cmdline: &str, file: &str) -> bool {
    let words = cmdline.split_ascii_whitespace().skip(1).map(|w| w.rsplit_once('=').map_or(w, |x| x.1));
    let paths: Vec<&str> = words.filter(|w| w.starts_with('/') && w.len() > 1).collect();
    let there = |p: &&str| {
        file.strip_prefix(p.trim_end_matches('/')).is_some_and(|r| r.starts_with('/') || r.is_empty())
    };
    file.starts_with('/') && !paths.is_empty() && !paths.iter().any(there)
}
