//! A commit that waits for a synchronous standby (PostgreSQL). What says so comes over the connection of another process of
//! the server, which sends the standby the log, and is itself let go on by whoever writes some.

use super::activity::{Spans, extent};
use super::answerless::main_thread;
use super::ask::Candidate;
use super::walk::{Flow, Walk};
use crate::class::WaitClass;
use crate::words::{cmdline_at, who};
use pg_event::{ProcessId, ThreadId};

/// The function in which a session waits for a standby to have its commit.
pub(crate) const FOR_STANDBY: &str = "SyncRepWaitForLSN";

impl Walk<'_> {
    /// Goes on to the one client that takes the log and is kept from taking more, where the last step waits for a standby.
    pub(super) fn by_standby(&mut self, thread: ThreadId, silent: &Spans) -> Flow<bool> {
        let waits = self.out.nodes.last().is_some_and(|n| n.stack.iter().any(|f| f.starts_with(FOR_STANDBY)));
        let server = self.c.process_of(thread).map(|p| p.parent).filter(|p| p.is_some() && waits);
        let Some(server) = server else { return Ok(false) };
        let until = extent(silent).1;
        let of_server = |p: &ProcessId| self.c.process(*p).is_some_and(|p| p.parent == server);
        let processes = (0..self.c.processes.len()).map(|i| ProcessId(i as u32)).filter(of_server);
        let senders = processes
            .filter_map(|p| main_thread(self.g, self.c, p))
            .filter(|t| sends_log(&cmdline_at(self.c, *t, until)));
        let mut kept = senders.filter_map(|s| {
            let mut clients = self.clients(s, until).into_iter();
            clients.find(|t| self.is_kept(*t, silent)).map(|t| (s, t))
        });
        let Some((sender, client)) = kept.next().filter(|_| kept.next().is_none()) else { return Ok(false) };
        let why = format!(
            "no wake-up was recorded; a commit waits for a standby to have the log, which this one takes from {}",
            who(self.c, sender)
        );
        let c = Candidate::unseen(client, silent.clone(), (None, until), why);
        self.follow(c, WaitClass::Channel)?;
        Ok(true)
    }
}

/// By its title, does a process of PostgreSQL send the log to somebody?
pub(super) fn sends_log(title: &str) -> bool {
    title.starts_with("postgres: walsender ")
        || title.starts_with("postgres: ") && title.contains(": walsender ")
}
