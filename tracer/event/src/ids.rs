//! Dense identifiers: indices into the tables of a [`crate::Catalog`].

use serde::{Deserialize, Serialize};

/// Nanoseconds since the recording began.
pub type Ns = u64;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub u32);

        impl $name {
            /// "No such thing": the value of a field that does not apply or is not known.
            pub const NONE: Self = Self(u32::MAX);

            /// Is this [`Self::NONE`]?
            pub const fn is_none(self) -> bool {
                self.0 == u32::MAX
            }

            /// Does this name something?
            pub const fn is_some(self) -> bool {
                !self.is_none()
            }

            /// Index into the table.
            pub const fn index(self) -> usize {
                self.0 as usize
            }

            /// `None` for [`Self::NONE`].
            pub fn some(self) -> Option<Self> {
                self.is_some().then_some(self)
            }
        }

        impl Default for $name {
            fn default() -> Self {
                Self::NONE
            }
        }
    };
}

id!(
    /// One thread of the recording. Ids are handed out at first sight and never reused.
    ThreadId
);
id!(
    /// One process (thread group) of the recording.
    ProcessId
);
id!(
    /// A thing that threads wait on or communicate through.
    ObjectId
);
id!(
    /// One call stack.
    StackId
);
id!(
    /// One frame of call stacks: a place in a module.
    FrameId
);
id!(
    /// One binary file, the kernel, the vdso, or a perf-map.
    ModuleId
);
id!(
    /// The instructions of one burst.
    TraceId
);
id!(
    /// One type of units of work.
    UnitTypeId
);
