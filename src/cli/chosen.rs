//! Whose units of work are asked for.

use super::diagnose::regex;
use super::exit::Failure;
use pg_event::{Catalog, ThreadId};
use regex::Regex;

/// Whose units are wanted.
pub(super) enum Chosen {
    /// Those in the recording's focus.
    Focus,
    /// Those of these processes, and those with such a name.
    Named(Vec<u32>, Vec<Regex>),
}

impl Chosen {
    /// From the options -p and --comm; without any, the focus.
    pub fn of(pids: &[u32], comms: &[String]) -> Result<Self, Failure> {
        if pids.is_empty() && comms.is_empty() {
            return Ok(Self::Focus);
        }
        let comms = comms.iter().map(|r| regex("--comm", r)).collect::<Result<_, _>>()?;
        Ok(Self::Named(pids.to_vec(), comms))
    }

    /// Is this thread one of them?
    pub fn wants(&self, catalog: &Catalog, id: ThreadId) -> bool {
        let (thread, process) = (catalog.thread(id), catalog.process_of(id));
        match self {
            Self::Focus => thread.is_some_and(|t| t.focus),
            Self::Named(pids, comms) => {
                let named = |name: &str| comms.iter().any(|c| c.is_match(name));
                process.is_some_and(|p| pids.contains(&p.pid) || named(&p.name))
                    || thread.is_some_and(|t| named(&t.name))
            }
        }
    }
}
