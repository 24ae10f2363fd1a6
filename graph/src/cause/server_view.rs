//! Locks that a server keeps in its own memory: sessions that have one, and where only the server knows who holds them,
//! the query that tells.

use super::{Ranked, Writer};
use crate::builder::{RECV, call_is};
use crate::class::POSTGRES_LOCKS;
use crate::diagnose::{
    FOR_STANDBY, FindingKind, MARIADB_LOCKS, NEXT_STATEMENT, Outcome, SliceNode, executes,
};
use crate::words::{cmdline_at, span};
use pg_event::ThreadId;

/// Functions on the stack of a wait that only the server's own view explains, and where to look.
const VIEWS: [(&[&str], &str); 3] = [
    (
        &[FOR_STANDBY],
        "the commit waits for a synchronous standby; whether one is connected only the server knows: compare `show synchronous_standby_names` with `select application_name, state, sync_state from pg_stat_replication`",
    ),
    (
        POSTGRES_LOCKS,
        "who holds the lock is in the server's own tables: `select pid, pg_blocking_pids(pid), state, wait_event, query from pg_stat_activity where wait_event is not null`",
    ),
    (
        MARIADB_LOCKS,
        "who holds the lock is in the server's own tables: `show full processlist` and `select * from information_schema.innodb_trx`",
    ),
];

/// Transactions that have locks and no session, by the same functions: whoever prepared one may have left long ago.
const PREPARED: [(&[&str], &str); 2] =
    [(POSTGRES_LOCKS, "select * from pg_prepared_xacts"), (MARIADB_LOCKS, "xa recover")];

/// The query to run, when the way back ended in such a wait or a weak link led on from it.
pub(super) fn note(o: &Outcome) -> Option<String> {
    let ends = o.findings.iter().filter(|f| {
        matches!(
            f.kind,
            FindingKind::Idle | FindingKind::Unanswered | FindingKind::Here | FindingKind::Closed
        )
    });
    let ends = ends.filter_map(|f| o.nodes.get(f.node));
    let unsure = o.nodes.windows(2).filter(|w| w[1].why_weak.is_some()).map(|w| &w[0]);
    let stacks = || ends.clone().chain(unsure.clone()).flat_map(|n| &n.stack);
    let view = VIEWS.iter().find(|v| stacks().any(|f| v.0.iter().any(|name| f.contains(name))))?;
    Some(view.1.to_owned())
}

impl Writer<'_> {
    /// Who can have the lock of a server that a step waits for, when no session is known to have it.
    pub(super) fn without_session(&self, n: &SliceNode) -> Option<String> {
        let waits = |names: &[&str]| n.stack.iter().any(|f| names.iter().any(|name| f.contains(name)));
        let (_, query) = PREPARED.iter().find(|v| waits(v.0))?;
        if waits(&["pg_advisory"]) {
            let query = "select pid from pg_locks where locktype = 'advisory' and granted";
            return Some(format!(
                "it is an advisory lock, which any session may have, idle ones too (`{query}`)"
            ));
        }
        let can = format!("a prepared transaction can have it (`{query}`)");
        let middle = n.start + n.duration / 2;
        let idles = |t: &ThreadId| {
            let at = self.g.vertex_at(*t, middle).map(|v| self.g.vertex(v).user_stack);
            *t != n.thread
                && at.is_some_and(|s| self.c.frames_of(s).any(|f| f.function.starts_with(NEXT_STATEMENT)))
        };
        let process = self.c.process_id_of(n.thread)?;
        Some(match self.g.threads_of(process).filter(idles).count() {
            0 => format!("no session was found that could have the lock: {can}"),
            1 => format!("the session that idles may have it by an open transaction; else {can}"),
            many => {
                format!("any of {many} sessions that idle may have it by an open transaction; else {can}")
            }
        })
    }

    /// A session that has a lock and waits for its client.
    pub(super) fn why_session(
        &self,
        r: &Ranked,
        n: &SliceNode,
        full: &str,
        next: Option<&SliceNode>,
    ) -> String {
        let end = n.start + n.duration;
        let has = if n.why_weak.is_some() { "may have the lock" } else { "had the lock" };
        let client = next.map_or_else(|| "its client".into(), |x| self.full(x.thread, x.start + x.duration));
        // Who goes on as the other end reads had waited for room.
        let room = next.and_then(|x| x.edge_id).is_some_and(|e| call_is(self.g.edge_syscall(e), RECV));
        let waited = span(n.spent);
        if room {
            format!("{full} {has} and waited {waited} until its client {client} took more of the answer")
        } else if executes(&cmdline_at(self.c, r.thread, end)) {
            format!(
                "{full} {has} and waited {waited} in the middle of a statement for its client {client}: to take more of the answer, or to send more"
            )
        } else {
            format!(
                "{full} {has} and was idle for {waited}: it waited for the next statement of its client {client}"
            )
        }
    }
}
