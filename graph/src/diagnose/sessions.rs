//! Locks that a database server keeps in its own memory. No word, file or descriptor names who has one; a wake-up
//! does, when the wait has ended. While it goes on, two things narrow down who can have it: PostgreSQL writes into
//! each process' title what its session does, and a session that idles in the middle of a transaction since before
//! the wait began has all that the transaction has locked. Which of several sessions it is only the server knows.

use super::activity::{Group, Mostly, Spans, activity, extent, merged};
use super::answerless::main_thread;
use super::ask::Candidate;
use super::finding::{Finding, FindingKind};
use super::node::{SliceNode, one_of};
use super::pose::Posed;
use super::session_client::Client;
use super::standby::sends_log;
use super::walk::{Flow, Walk, group_spans};
use crate::class::{POSTGRES_LOCKS, WaitClass};
use crate::profile::profile;
use crate::words::{cmdline_at, named, short_who};
use crate::{At, QuestionKind, Vertex};
use pg_event::{Direction, IpcUse, Ns, ObjectKind, ProcessId, StackId, ThreadId};

/// Functions of MariaDB and MySQL on the stack of a wait for a row or a table.
pub(crate) const MARIADB_LOCKS: &[&str] =
    &["lock_wait(", "MDL_wait", "MDL_context", "trx_lock_wait", "handler::ha_"];

/// The function in which a thread of MariaDB or MySQL waits for the next statement.
pub(crate) const NEXT_STATEMENT: &str = "do_command(";
/// Functions in which it executes one.
const STATEMENT: &[&str] = &["dispatch_command(", "mysql_execute_command(", "mysql_parse("];

/// Most sessions followed or asked about.
const MOST: usize = 5;

/// What a PostgreSQL process says of its session in its title: `postgres: [CLUSTER: ]USER DATABASE HOST ACTIVITY`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Session<'a> {
    database: &'a str,
    does: &'a str,
}

impl<'a> Session<'a> {
    fn of(title: &'a str) -> Option<Self> {
        let mut rest = title.strip_prefix("postgres: ")?.trim();
        let mut word = || {
            let (word, after) = rest.split_once(' ')?;
            rest = after.trim_start();
            Some(word)
        };
        let first = word()?;
        if first.ends_with(':') {
            word()?;
        }
        let database = word()?;
        word()?;
        Some(Self { database, does: rest })
    }

    fn in_transaction(self) -> bool {
        self.does == "idle in transaction"
    }

    /// It executes a statement, and does not wait for a lock itself.
    fn busy(self) -> bool {
        !self.does.starts_with("idle") && !self.does.ends_with(" waiting") && !self.does.is_empty()
    }
}

/// Does a session of PostgreSQL execute a statement, by its title?
pub(crate) fn executes(title: &str) -> bool {
    Session::of(title).is_some_and(Session::busy)
}

/// How sure it is that a session has the lock.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Likely {
    /// Idle in a transaction since before the wait began.
    Idle,
    /// Executes a statement.
    Busy,
    /// Idle since before the wait began; whether in a transaction is not known: most that idle are in none.
    Unknown,
    /// Idle (in a transaction), which it was not all the time.
    Later,
    /// Waits for a lock itself, and got that when this one gave up.
    Mutual,
}

impl Likely {
    fn words(self) -> &'static str {
        match self {
            Self::Idle => "idle in a transaction since before the wait began",
            Self::Unknown => {
                "idle since before the wait began (whether in a transaction only the server knows)"
            }
            Self::Busy => "executing a statement",
            Self::Later => "idle for a part of the wait",
            Self::Mutual => "waiting for a lock itself, which it got when this one gave up",
        }
    }
}

/// Does a step wait for a lock of a server?
pub(crate) fn waits_for_lock(n: &SliceNode) -> bool {
    stack_has(n, POSTGRES_LOCKS) || stack_has(n, MARIADB_LOCKS)
}

fn stack_has(n: &SliceNode, names: &[&str]) -> bool {
    n.stack.iter().any(|f| names.iter().any(|name| f.contains(name)))
}

impl Walk<'_> {
    /// Nobody ended this wait for a lock of a server: go on to the sessions that may have it.
    pub(super) fn by_sessions(&mut self, thread: ThreadId, group: &Group, silent: &Spans) -> Flow<bool> {
        let Some(node) = self.out.nodes.last() else { return Ok(false) };
        let (a, b) = extent(silent);
        let title = cmdline_at(self.c, thread, b);
        let own = Session::of(&title);
        let postgres = stack_has(node, POSTGRES_LOCKS);
        let mut found = match own {
            Some(s) if postgres || s.does.ends_with(" waiting") => {
                self.sessions(thread, Some(s.database), (a, b))
            }
            // Its title was not read in time.
            None if postgres => self.sessions(thread, None, (a, b)),
            None if stack_has(node, MARIADB_LOCKS) => self.session_threads(thread, (a, b)),
            _ => return Ok(false),
        };
        if found.is_empty() {
            found = self.gave_up_for(thread, b);
            found.extend(self.ended_by(thread, group).filter(|f| found.iter().all(|x| x.2 != f.2)));
        }
        // No session is known that can have it: a prepared transaction may, which belongs to nobody. Who waits for a page of a table
        // waits for the disk.
        if found.is_empty() && own.is_none() && !postgres && self.private_futex(group) {
            self.found(thread, FindingKind::Unanswered, group_spans(group));
            return Ok(true);
        }
        // Who has been told nothing yet has locked nothing: of those that only idle, who has been told more is likelier to have.
        let told =
            |x: &(Likely, Ns, ThreadId)| if x.0 == Likely::Unknown { self.statements(x.2, a) } else { 0 };
        found.sort_by_key(|x| (std::cmp::Reverse(told(x)), x.1, x.2));
        let does = |(likely, since, t)| ((likely, self.client(t, silent)), since, t);
        let mut found: Vec<((Likely, Client), Ns, ThreadId)> = found.into_iter().map(does).collect();
        found.sort_by_key(|x| x.0);
        let all = found.len();
        // Of many that only may be in a transaction none is named, but for those whose clients are kept from going on.
        let guess = found.first().is_some_and(|f| f.0.0 != Likely::Busy);
        if all > MOST && own.is_none() && !postgres && guess {
            found.retain(|f| f.0.1.is_kept());
            if found.is_empty() || found.len() > MOST {
                self.found(thread, FindingKind::Unanswered, group_spans(group));
                return Ok(true);
            }
        }
        let doubt = |as_likely| one_of(found.iter().filter(|f| f.0 == as_likely).count());
        let as_candidate = |&(likely, since, t): &((Likely, Client), Ns, ThreadId)| {
            let mut c = session(t, likely, since, all, silent);
            c.entry.doubt = doubt(likely);
            c
        };
        let candidates: Vec<Candidate> = found.iter().take(MOST).map(as_candidate).collect();
        let mut take = 0;
        if !self.auto && candidates.len() > 1 {
            match self.decide(self.session_question(thread, group, &candidates, all))? {
                0 => {
                    self.found(thread, FindingKind::Here, group_spans(group));
                    return Ok(true);
                }
                n => take = (n - 1).min(candidates.len() - 1),
            }
        }
        let Some(c) = self.take(candidates, take) else { return Ok(false) };
        self.follow(c, WaitClass::Other)?;
        Ok(true)
    }

    /// How much a session's thread was told before `until` over the connection at which it waits then: messages that it took, as
    /// far as they were recorded, and waits for the next statement. It may have served another client before.
    fn statements(&self, t: ThreadId, until: Ns) -> usize {
        let Some(own) = self.g.vertex_at(t, until).map(|v| self.g.vertex(v).object) else { return 0 };
        let asks = |v: &Vertex| v.waited() > 0 && v.object == own;
        let waits = self.g.vertices_in(t, 0..until).filter(|id| asks(&self.g.vertex(*id))).count();
        let took = |m: &&At<IpcUse>| m.what.direction == Direction::Receive && m.what.object == own;
        waits + self.g.ipc_of(t, 0..until).iter().filter(took).count()
    }

    /// Do both serve clients of one server, by threads or by processes?
    fn fellows(&self, a: ThreadId, b: ThreadId) -> bool {
        let of = |t: ThreadId| self.c.process_id_of(t);
        of(a).zip(of(b)).is_some_and(|(a, b)| self.c.serve_together(a, b))
    }

    /// Whoever ended this wait in the end: a session of the same server, too.
    fn ended_by(&self, thread: ThreadId, group: &Group) -> Option<(Likely, Ns, ThreadId)> {
        let last = group.longest()?.last;
        let from = self.g.vertex(self.g.edge(self.g.waking(last)?).from);
        let fits = self.fellows(thread, from.thread) && self.on_the_way(from.thread);
        fits.then_some((Likely::Mutual, from.start, from.thread))
    }

    /// Sessions of the same server that waited for a lock, too, and that `thread` woke soon after its own wait was over at `end`,
    /// which nobody ended: a deadlock that the server broke.
    fn gave_up_for(&self, thread: ThreadId, end: Ns) -> Vec<(Likely, Ns, ThreadId)> {
        const SOON: Ns = 2_000_000_000;
        let fellow = |t: ThreadId| self.fellows(t, thread);
        let locks = |v: &Vertex| {
            let stack = self.c.show_stack(v.user_stack);
            stack.iter().any(|f| POSTGRES_LOCKS.iter().chain(MARIADB_LOCKS).any(|n| f.contains(n)))
        };
        let mut out: Vec<(Likely, Ns, ThreadId)> = Vec::new();
        for id in self.g.vertices_in(thread, end..end.saturating_add(SOON)) {
            for e in self.g.outgoing(id).map(|e| self.g.edge(e)) {
                let w = self.g.vertex(e.to);
                let waited = w.start < end && w.thread != thread && fellow(w.thread) && locks(&w);
                if waited && out.iter().all(|o| o.2 != w.thread) {
                    out.push((Likely::Mutual, w.start, w.thread));
                }
            }
        }
        out
    }

    /// Who came to be only at the end of a wait for a lock of a server let it go and never had it: what a prepared
    /// transaction has locked anybody can give back. Those spans nobody ended who could have.
    pub(super) fn past_releasers(
        &mut self,
        candidates: Vec<Candidate>,
        mut silent: Spans,
    ) -> (Vec<Candidate>, Spans) {
        let lock = self.out.nodes.last().is_some_and(waits_for_lock);
        let came = |c: &Candidate| lock && self.meanwhile(c).mostly() == Mostly::Unborn;
        let (late, left): (Vec<_>, Vec<_>) = candidates.into_iter().partition(came);
        for c in late {
            let why = "it let the lock go and cannot have had it: it did not exist for most of the wait";
            self.out.rejected.push((c.thread, why.to_owned()));
            silent.extend(c.spans);
        }
        (left, merged(silent))
    }

    /// The other sessions of the same server and database that may have the lock, and since when they are as they are.
    fn sessions(
        &self,
        thread: ThreadId,
        database: Option<&str>,
        (a, b): (Ns, Ns),
    ) -> Vec<(Likely, Ns, ThreadId)> {
        let own = self.c.thread(thread).map_or(ProcessId::NONE, |t| t.process);
        let advisory = self.out.nodes.last().is_some_and(|n| stack_has(n, &["pg_advisory"]));
        let Some(server) = self.c.process(own).map(|p| p.parent).filter(|p| p.is_some()) else {
            return Vec::new();
        };
        let middle = a + b.saturating_sub(a) / 2;
        let mut out = Vec::new();
        for (i, p) in self.c.processes.iter().enumerate() {
            let id = ProcessId(i as u32);
            // Who came later cannot have had it before.
            if p.parent != server || id == own || p.end.is_some_and(|e| e < b) || p.start > middle {
                continue;
            }
            let Some(t) = main_thread(self.g, self.c, id).filter(|t| self.counts(*t)) else { continue };
            // While a wait lasts its title is the same, whenever it was read.
            let at = self.g.vertex_at(t, middle).map(|v| self.g.vertex(v));
            let (since, until) =
                at.filter(|v| v.start <= middle && middle <= v.woken).map_or((b, b), |v| (v.start, v.woken));
            let title = cmdline_at(self.c, t, until);
            if sends_log(&title) {
                continue;
            }
            let here = |s: &Session<'_>| database.is_none_or(|d| s.database == d);
            let Some(s) = Session::of(&title).filter(here) else { continue };
            if s.in_transaction() {
                out.push((if since <= a { Likely::Idle } else { Likely::Later }, since, t));
            } else if s.busy() {
                out.push((Likely::Busy, since, t));
            } else if advisory && s.does == "idle" && self.client(t, &vec![(a, b)]).is_kept() {
                // A lock of its own keeping outlives transactions.
                out.push((if since <= a { Likely::Unknown } else { Likely::Later }, since, t));
            }
        }
        out
    }

    /// The threads of the same process that wait for the next statement of their client, or execute one and do not wait
    /// for a lock themselves.
    fn session_threads(&self, thread: ThreadId, (a, b): (Ns, Ns)) -> Vec<(Likely, Ns, ThreadId)> {
        let Some(own) = self.c.process_id_of(thread) else { return Vec::new() };
        let idle = |t: ThreadId| {
            let middle = a + b.saturating_sub(a) / 2;
            let v = self.g.vertex_at(t, middle).map(|v| self.g.vertex(v))?;
            let waits = v.start <= middle && middle <= v.woken && v.waited() > 0;
            let asks = self.is_in(v.user_stack, &[NEXT_STATEMENT]);
            let executes = self.in_statement(v.user_stack);
            let likely = if v.start <= a { Likely::Unknown } else { Likely::Later };
            (waits && asks && !executes).then_some((likely, v.start, t))
        };
        let busy = |t: ThreadId| {
            let spans = vec![(a, b)];
            let act = activity(self.g, self.c, t, &spans);
            let stack = match act.mostly() {
                Mostly::Running | Mostly::Runnable => profile(self.g, self.c, t, &spans).stack,
                Mostly::Waiting(i) => {
                    let v = act.groups.get(i).map(|g| self.representative(g))?;
                    self.c.show_stack(v.user_stack)
                }
                _ => return None,
            };
            let has = |names: &[&str]| stack.iter().any(|f| names.iter().any(|n| f.starts_with(n)));
            let locks = stack.iter().any(|f| MARIADB_LOCKS.iter().any(|n| f.contains(n)));
            (has(STATEMENT) && !locks).then_some((Likely::Busy, a, t))
        };
        let others = self.g.threads_of(own).filter(|t| *t != thread && self.counts(*t));
        others.filter_map(|t| idle(t).or_else(|| busy(t))).collect()
    }

    /// Does a session execute a statement at a time, by the title of its process? What it waits for then is its own doing.
    pub(super) fn executes(&self, thread: ThreadId, at: Ns) -> bool {
        Session::of(&cmdline_at(self.c, thread, at)).is_some_and(Session::busy)
    }

    /// Does a thread of MariaDB or MySQL execute a statement where it waits?
    pub(super) fn in_statement(&self, stack: StackId) -> bool {
        self.is_in(stack, STATEMENT)
    }

    /// ... to send its log to a replica, which never ends?
    pub(super) fn sends_log(&self, stack: StackId) -> bool {
        self.is_in(stack, &["mysql_binlog_send("])
    }

    fn is_in(&self, stack: StackId, functions: &[&str]) -> bool {
        named(self.c, stack).iter().any(|f| functions.iter().any(|n| f.function.starts_with(n)))
    }

    fn session_question(
        &self,
        thread: ThreadId,
        group: &Group,
        candidates: &[Candidate],
        all: usize,
    ) -> crate::Question {
        let end = group.clips.last().map_or(0, |c| c.end);
        let best = &candidates[0];
        let posed = Posed {
            kind: QuestionKind::Edge,
            text: format!("Which session has the lock that {} waited for?", short_who(self.c, thread)),
            why: format!(
                "{}, a lock in the server's own memory. {all} sessions may have it.",
                self.waited_in(thread, group)
            ),
            choices: candidates.iter().map(|c| self.choice(c, end)).collect(),
            stop: "stop here: ask the server who has it".into(),
            recommended: 1,
            reason: format!(
                "{} is {}",
                short_who(self.c, best.thread),
                best.entry.why_weak.as_deref().unwrap_or("a session of the same server")
            ),
        };
        self.pose(thread, group, posed, Some(best))
    }

    /// Is this step a session that idles and has the lock of the server that the step before waits for? Only its client lets it
    /// go on.
    pub(super) fn is_session(&self, i: usize) -> bool {
        let Some(n) = self.out.nodes.get(i) else { return false };
        let for_lock = i.checked_sub(1).is_some_and(|i| waits_for_lock(&self.out.nodes[i]));
        let object = n.object.and_then(|o| self.c.object(o));
        let channel = object.is_some_and(|o| matches!(o.kind, ObjectKind::UnixStream | ObjectKind::Tcp));
        for_lock && channel && !waits_for_lock(n)
    }

    /// The session whose idling kept a lock of the server, as a cause of its own behind what its client did: the
    /// step before it waits for such a lock, and it waits for its client.
    pub(super) fn name_session(&mut self) {
        let Some(node) = (1..self.out.nodes.len()).rev().find(|&i| self.is_session(i)) else { return };
        let n = &self.out.nodes[node];
        let goes_on = self.out.nodes.get(node + 1).is_some_and(|next| next.thread != n.thread);
        if !goes_on || self.out.ask.is_some() {
            return;
        }
        let (thread, span) = (n.thread, (n.start, n.start + n.duration));
        let known = self.out.findings.iter_mut().find(|f| f.thread == thread && f.node == node);
        if let Some(f) = known {
            let nobody_at_fault =
                matches!(f.kind, FindingKind::Unanswered | FindingKind::Idle | FindingKind::Here);
            if nobody_at_fault {
                f.kind = FindingKind::Session;
            }
        } else {
            let finding = Finding { thread, node, kind: FindingKind::Session, spans: vec![span] };
            let second = self.out.findings.len().min(1);
            self.out.findings.insert(second, finding);
        }
    }
}

fn session(
    thread: ThreadId,
    (likely, client): (Likely, Client),
    since: Ns,
    all: usize,
    silent: &Spans,
) -> Candidate {
    let one = if all == 1 { "the one session".into() } else { format!("one of {all} sessions") };
    let why = format!(
        "no wake-up was recorded, and the server has its locks in its own memory; it is {one} that may have this one: {}{}",
        likely.words(),
        client.words()
    );
    Candidate::unseen(thread, silent.clone(), (None, since), why)
}

#[cfg(test)]
mod tests {
    use super::Session;

    #[test]
    fn titles_tell_database_and_activity() {
        let of = |t| Session::of(t).map(|s| (s.database, s.does));
        assert_eq!(
            of("postgres: ann shop [local] idle in transaction"),
            Some(("shop", "idle in transaction"))
        );
        assert_eq!(
            of("postgres: 15/main: ann shop 10.0.0.9(4711) UPDATE waiting"),
            Some(("shop", "UPDATE waiting"))
        );
        assert_eq!(of("postgres: checkpointer "), None);
        assert_eq!(of("postgres: logical replication launcher "), None);
        assert_eq!(of("postgres -D /var/lib/postgresql"), None);
        assert_eq!(of("postgres: a b "), None);
        let busy = |t| Session::of(t).is_some_and(Session::busy);
        assert!(busy("postgres: a b [local] SELECT") && !busy("postgres: a b [local] SELECT waiting"));
        assert!(!busy("postgres: a b [local] idle"));
        let idle = |t| Session::of(t).is_some_and(Session::in_transaction);
        // What failed has given its locks back.
        assert!(!idle("postgres: a b [local] idle in transaction (aborted)"));
    }
}
