//! The other end of a pseudo-terminal.

use super::candidates::others_first;
use super::{Holders, LongWait, Who};
use pg_event::{Object, Relation};

/// Set in the identity of a master's end; the rest is the slave's device number.
const MASTER: u64 = 1 << 63;
/// Major number of the first pseudo-terminal slaves (kernel: `UNIX98_PTY_SLAVE_MAJOR`).
const SLAVE_MAJOR: u64 = 136;

impl Holders {
    /// Who waits on the slave waits for the terminal emulator that has the master; who waits on the
    /// master, for the programs on the terminal.
    pub(super) fn terminal_end(&mut self, wait: &LongWait, object: &Object) -> Vec<(Who, Relation)> {
        let dev = object.id & !MASTER;
        let (major, index) = (dev >> 8 & 0xfff, (dev & 0xff) | (dev >> 12 & !0xff));
        if major != SLAVE_MAJOR {
            return Vec::new();
        }
        let holders: Vec<u32> = if object.id & MASTER == 0 {
            let masters = self.open.with_path(|p| p == "/dev/ptmx" || p == "/dev/pts/ptmx");
            masters
                .into_iter()
                .filter(|o| o.info().is_some_and(|i| i.tty_index.map(u64::from) == Some(index)))
                .map(|o| o.pid)
                .collect()
        } else {
            let slave = format!("/dev/pts/{index}");
            self.open.with_path(|p| p == slave).into_iter().map(|o| o.pid).collect()
        };
        others_first(holders, wait.tgid).into_iter().map(|p| (Who::Process(p), Relation::Peer)).collect()
    }
}
