//! Pools and jobservers whose threads or tokens have run out.

use super::Writer;
use crate::diagnose::{SliceNode, killed_beside};
use crate::words::{moment, who};

impl Writer<'_> {
    /// A thread of a pool, all of whose `threads` wait for results of their own pool.
    pub(super) fn why_starved(&self, n: &SliceNode, full: &str, threads: u32) -> String {
        let all = match threads {
            1 => "its only thread waits".into(),
            n => format!("all {n} of its threads wait"),
        };
        format!(
            "{full}, of a pool, {} for the result of work that the pool is to do: {all} for such results, and none is left to do it",
            self.waited(n)
        )
    }

    /// Who waits for a token of a jobserver while `jobs` run, of `all` that may.
    pub(super) fn why_tokens(&self, n: &SliceNode, full: &str, (jobs, all): (u32, u32)) -> String {
        let lost = match all - jobs {
            1 => "a token was".into(),
            n => format!("{n} tokens were"),
        };
        let end = n.start + n.duration;
        let killed = self.c.process_id_of(n.thread).and_then(|p| killed_beside(self.g, self.c, p, end));
        let by = killed.map_or_else(
            || "by who has ended".into(),
            |(t, signal, at)| {
                format!("perhaps by {}, which was killed (signal {signal}) at {}", who(self.c, t), moment(at))
            },
        );
        format!(
            "{full} {} for a token of the jobserver, though {jobs} of {all} jobs ran: {lost} taken and never given back, {by}",
            self.waited(n)
        )
    }
}
