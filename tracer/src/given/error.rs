//! Why there is no such place.

/// What was typed cannot be found in the processes.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum GivenError {
    /// No library of that name.
    #[error("no library or program called {module:?} is mapped by these processes; those that are: {mapped}")]
    NoModule {
        /// What was typed.
        module: String,
        /// Those that are.
        mapped: String,
    },
    /// No function of that name.
    #[error("there is no function {name:?} in {of}{near}")]
    NoFunction {
        /// What was typed.
        name: String,
        /// Where it was looked for.
        of: String,
        /// What there is instead, a sentence; may be empty.
        near: String,
    },
    /// The compiler put it into its callers.
    #[error(
        "the function {name:?} has no code of its own in {of}: its debug information knows it, so the compiler put it \
         into its callers, or it is never called; take a function that calls it"
    )]
    Inlined {
        /// What was typed.
        name: String,
        /// Where it was looked for.
        of: String,
    },
    /// Several of that name.
    #[error("there are several functions {name:?}: {candidates}; take one of these")]
    Ambiguous {
        /// What was typed.
        name: String,
        /// How each can be typed.
        candidates: String,
    },
    /// Chosen when the program starts.
    #[error(
        "{name:?} is chosen among several functions when the program starts: take the one that is called (it is shown \
         in stacks)"
    )]
    Indirect {
        /// What was typed.
        name: String,
    },
    /// In the middle of something.
    #[error("no function begins at {address:#x} of {of}{near}")]
    NoBegin {
        /// What was typed.
        address: u64,
        /// The module.
        of: String,
        /// What there is instead; may be empty.
        near: String,
    },
    /// No static probe of that name.
    #[error("there is no static probe {name} in {of}{near}")]
    NoUsdt {
        /// What was typed.
        name: String,
        /// Where it was looked for.
        of: String,
        /// Those that there are; may be empty.
        near: String,
    },
    /// No code makes it.
    #[error(
        "no place in these processes' program and libraries makes the system call {0} by its number: say a function \
         that does instead"
    )]
    NoCall(String),
    /// A profile says something else.
    #[error("the profile has units that begin or end at {0:?}, which is no place: train again")]
    Unreadable(String),
}
