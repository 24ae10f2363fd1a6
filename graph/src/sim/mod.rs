//! Recordings made up for tests and benchmarks: with known causes, of any size. Only with feature `sim`.

mod draw;
mod figures;
mod load;
mod machine;
mod script;
mod town;

pub use draw::{DrawError, TICK, draw};
pub use figures::Figures;
pub use load::{Load, Size};
pub use machine::{COST, Machine, Setup, TrueWait};
pub use script::{Act, Asking, Script};
pub use town::{Serves, Town};

use crate::{BuildOptions, Builder, EventGraph};
use pg_event::{Catalog, Event, Ns, ThreadId};

/// A recording in memory.
#[derive(Clone, Debug, Default)]
pub struct Recording {
    /// What the events name.
    pub catalog: Catalog,
    /// By time.
    pub events: Vec<Event>,
    /// Length, ns.
    pub duration: Ns,
}

impl Recording {
    /// What a machine records until `duration`; with it, who really ended which wait.
    pub fn of(setup: Setup, scripts: Vec<Script>, duration: Ns) -> (Self, Vec<TrueWait>) {
        let mut m = Machine::new(setup, scripts);
        let mut events = Vec::new();
        m.run(duration, |e, _| events.extend_from_slice(e));
        m.end(|e, _| events.extend_from_slice(e));
        (Self { catalog: m.catalog().clone(), events, duration }, m.truth)
    }

    /// Its event graph.
    pub fn graph(&self) -> EventGraph {
        let mut b = Builder::new(BuildOptions::default());
        b.events(&self.events, &self.catalog);
        b.finish(self.duration, &self.catalog)
    }

    /// The thread of this name.
    ///
    /// # Panics
    /// When there is none: a test asks for what it has made itself.
    pub fn thread(&self, name: &str) -> ThreadId {
        let i = self.catalog.threads.iter().position(|t| t.name == name);
        ThreadId(i.unwrap_or_else(|| panic!("no thread `{name}`")) as u32)
    }
}
