//! The views, and where else keys are looked up: one table makes both, so that none is forgotten in the other.

use std::fmt;

macro_rules! contexts {
    (views { $($view:ident $view_name:literal $view_doc:literal)+ }
     others { $($other:ident $other_name:literal $other_doc:literal)+ }) => {
        /// The views: what fills the screen. Exactly one at a time.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum View { $(#[doc = $view_doc] $view,)+ }

        impl View {
            /// Its keys.
            pub fn context(self) -> Context {
                match self { $(Self::$view => Context::$view,)+ }
            }
        }

        /// Where a key is looked up. A view's own keys win over [`Context::List`], those over
        /// [`Context::Global`].
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
        pub enum Context { $(#[doc = $view_doc] $view,)+ $(#[doc = $other_doc] $other,)+ }

        impl Context {
            /// All of them, in the order of the help.
            pub const ALL: &'static [Self] = &[$(Self::$view,)+ $(Self::$other,)+];

            /// Its name in the keymap and in the help.
            pub fn name(self) -> &'static str {
                match self { $(Self::$view => $view_name,)+ $(Self::$other => $other_name,)+ }
            }
        }
    };
}

contexts! {
    views {
    Victims "victims" "What hung."
    Threads "threads" "Processes and threads."
    Timeline "timeline" "Threads over time."
    Slice "slice" "The backward path."
    Vertex "vertex" "One vertex."
    Question "question" "The open question."
    Verdict "verdict" "The root cause in words."
    Path "path" "The critical path of a span."
    Steps "steps" "What a thread executed, instruction by instruction."
    Notes "notes" "Bookmarks and notes."
    Violations "violations" "Units of work that took too long."
    Units "units" "A slow unit and a normal one, side by side."
    Log "log" "What happened in this session."
    }
    others {
    Live "live" "Waits as they are."
    Help "help" "Help."
    Text "text" "Where text is typed: palette, search, notes."
    List "list" "Moving about, everywhere but where text is typed."
    Global "global" "Everywhere but where text is typed."
    }
}

impl Context {
    /// By name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|c| c.name() == name)
    }
}

impl fmt::Display for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
