//! Where functions and loops are in the binaries: what a guard needs to find them, and no part of what they are.

use super::{Function, LoopKey, MAX_TEXT, Profile, cut};
use pg_event::Sysno;
use std::collections::BTreeSet;

/// Bytes of a build-id that are kept, in hexadecimal digits.
pub const MAX_BUILD_ID: usize = 128;

/// Where a function is entered.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Place {
    /// Build-id of the binary.
    pub build_id: String,
    /// Address of the function's first byte, as the binary's file counts.
    pub entry: u64,
}

/// The function that a loop is in, in the binary of its [`LoopKey`].
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct LoopFunction {
    /// What it is called.
    pub function: Function,
    /// Address of its first byte, as the binary's file counts.
    pub entry: u64,
}

/// The way from a loop's function to a wait between two units.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Boundary {
    /// Addresses of the calls in the loop's own binary, as its file counts (of the last byte of each), the outermost
    /// first: that of the loop's function is the first. Lines where the loop is one of Python, unless `native` is set.
    pub calls: Vec<u64>,
    /// The system call that waits.
    pub syscall: Sysno,
    /// Set for the same way of a loop of Python as the kernel sees it: `calls` are the interpreter's then.
    pub native: Option<NativeWay>,
    /// Set where the loop takes connections, and this is a wait within a turn for the next request of one.
    pub request: Option<RequestWay>,
}

/// The way through a loop, inside the event loop, of which each turn serves one request of a connection.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct RequestWay {
    /// Build-id of its binary, or the file name of one without: the event loop's or another.
    pub module: String,
    /// Addresses of the calls in there, as [`Boundary::calls`] has them.
    pub calls: Vec<u64>,
    /// Which of them is the loop's own; `None` where that was not proven.
    pub turn: Option<u32>,
}

impl RequestWay {
    fn in_one_form(&self) -> Self {
        let calls: Vec<u64> = self.calls.iter().take(crate::units::MAX_FRAMES).copied().collect();
        let turn = self.turn.filter(|t| (*t as usize) < calls.len());
        Self { module: cut(&self.module, MAX_TEXT), calls, turn }
    }
}

/// The binaries on the way from an interpreter's call that runs a loop to its wait.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct NativeWay {
    /// Build-id of the interpreter's binary, or its file name where it has none.
    pub interpreter: String,
    /// Binary of the call that enters the C library to wait, named likewise: the interpreter's or that of a module of it.
    pub module: String,
    /// Address of that call's last byte, as the binary's file counts.
    pub call: u64,
}

impl NativeWay {
    fn in_one_form(&self) -> Self {
        let text = |t: &str| cut(t, MAX_TEXT);
        Self { interpreter: text(&self.interpreter), module: text(&self.module), call: self.call }
    }
}

/// Where a loop is.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct LoopFacts {
    /// One, unless machines named it differently.
    pub functions: BTreeSet<LoopFunction>,
    pub boundaries: BTreeSet<Boundary>,
}

impl LoopFacts {
    pub fn merge(&mut self, other: Self) {
        self.functions.extend(other.functions);
        self.boundaries.extend(other.boundaries);
    }

    /// The same with texts and paths no longer than allowed.
    pub fn in_one_form(&self) -> Self {
        let function = |f: &LoopFunction| LoopFunction { function: f.function.in_one_form(), entry: f.entry };
        let boundary = |b: &Boundary| Boundary {
            calls: b.calls.iter().take(crate::units::MAX_FRAMES).copied().collect(),
            syscall: b.syscall,
            native: b.native.as_ref().map(NativeWay::in_one_form),
            request: b.request.as_ref().map(RequestWay::in_one_form),
        };
        Self {
            functions: self.functions.iter().map(function).collect(),
            boundaries: self.boundaries.iter().map(boundary).collect(),
        }
    }
}

impl Function {
    /// With texts no longer than allowed.
    pub(super) fn in_one_form(&self) -> Self {
        Self { module: cut(&self.module, MAX_TEXT), name: cut(&self.name, MAX_TEXT) }
    }
}

impl Profile {
    /// Says where functions are; those that are on no call path are left out.
    pub fn place_functions(&mut self, all: impl IntoIterator<Item = (Function, Place)>) {
        for (function, place) in all {
            // They are sorted.
            if let Ok(i) = self.functions.binary_search(&function.in_one_form()) {
                let build_id = cut(&place.build_id, MAX_BUILD_ID);
                self.places[i].insert(Place { build_id, entry: place.entry });
            }
        }
    }

    /// Says where a loop is and which waits are between its units. Nothing happens when the loop is not known.
    pub fn place_loop(
        &mut self,
        of: &LoopKey,
        function: LoopFunction,
        boundaries: impl IntoIterator<Item = Boundary>,
    ) {
        if let Some(l) = self.loops.get_mut(of) {
            let facts = LoopFacts {
                functions: BTreeSet::from([function]),
                boundaries: boundaries.into_iter().collect(),
            };
            l.facts.merge(facts.in_one_form());
        }
    }

    /// Where a function is, by its place in [`Profile::functions`]; one for each binary that has it.
    pub fn places(&self, of: crate::units::FunctionId) -> impl Iterator<Item = &Place> {
        self.places.get(of.0 as usize).into_iter().flatten()
    }

    /// Every function with each place that it has.
    pub fn placed_functions(&self) -> impl Iterator<Item = (Function, Place)> + '_ {
        let all = self.functions.iter().zip(&self.places);
        all.flat_map(|(f, places)| places.iter().map(move |p| (f.clone(), p.clone())))
    }

    /// The function that a loop is in; of several names one that is no address.
    pub fn loop_function(&self, of: &LoopKey) -> Option<&LoopFunction> {
        let all = &self.loops.get(of)?.facts.functions;
        all.iter().find(|f| !f.function.name.starts_with("+0x")).or_else(|| all.first())
    }

    /// The waits between the units of a loop.
    pub fn boundaries(&self, of: &LoopKey) -> impl Iterator<Item = &Boundary> {
        self.loops.get(of).into_iter().flat_map(|l| &l.facts.boundaries)
    }
}
