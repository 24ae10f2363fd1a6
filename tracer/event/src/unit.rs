//! Units of work: their types, and those that ran longer than units of their type may.

use crate::{Ns, StackId, UnitTypeId, bounded};
use serde::{Deserialize, Serialize};

/// Most types of units in a catalogue.
pub const MAX_UNIT_TYPES: usize = 1 << 16;
/// Most steps of a histogram that are read.
const MAX_STEPS: usize = 1 << 13;
/// Longest name that is read, bytes.
const MAX_TEXT: usize = 4096;

/// A type of units of work, as a guard's profile has it: what was learnt of it, and how long its units may take.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct UnitTypeRow {
    /// Its name. Untrusted.
    #[serde(deserialize_with = "bounded::text::<MAX_TEXT, _>")]
    pub name: String,
    /// The function whose event loop turns once for each unit; empty when it has no name.
    #[serde(deserialize_with = "bounded::text::<MAX_TEXT, _>")]
    pub function: String,
    /// Path of the binary that the loop is in.
    #[serde(deserialize_with = "bounded::text::<MAX_TEXT, _>")]
    pub module: String,
    /// Offset of the loop's head in that file, bytes.
    pub offset: u64,
    /// File of the profile that it comes from; empty when that is not known.
    #[serde(deserialize_with = "bounded::text::<MAX_TEXT, _>")]
    pub profile: String,
    /// Units it was learnt from.
    pub units: u64,
    /// Their mean duration, ns.
    pub mean: Ns,
    /// Standard deviation of their durations, ns.
    pub sigma: Ns,
    /// How long a unit may take, ns.
    pub threshold: Ns,
    /// By what rule that was set: `mean + 4 sigma`.
    #[serde(deserialize_with = "bounded::text::<MAX_TEXT, _>")]
    pub rule: String,
    /// Durations it was learnt from, ascending: the least and the greatest of a step, ns, and how many units.
    #[serde(deserialize_with = "bounded::sequence::<MAX_STEPS, _, _>")]
    pub histogram: Vec<(Ns, Ns, u64)>,
    /// It is none: it stands for units of no known type, and this says why their type is not known.
    #[serde(skip_serializing_if = "String::is_empty", deserialize_with = "bounded::text::<MAX_TEXT, _>")]
    pub unknown: String,
}

/// What saw that a unit took too long.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
#[repr(u8)]
pub enum SeenBy {
    /// A guarded function that the unit came to.
    #[default]
    Context = 0,
    /// The thread's switch off its CPU or back onto it.
    Switch = 1,
    /// A sample of the thread on its CPU.
    Sample = 2,
    /// A look at those that sleep within a unit.
    Asleep = 3,
    /// Nothing while it ran: it was over when that was seen.
    End = 4,
    /// It was told before: a further look at where it is, by a clock or asleep.
    Look = 5,
    /// It was told before and has turned out to be of this type, for which it does not take too long.
    Withdrawn = 6,
}

impl SeenBy {
    /// Does where the unit was then tell where it spends its time? Where a thread leaves its CPU, or comes to a guarded
    /// function, it may be now and then only.
    pub fn is_fair(self) -> bool {
        matches!(self, Self::Sample | Self::Asleep | Self::Look)
    }

    /// By number; unknown numbers are [`SeenBy::Context`].
    pub fn from_u8(n: u8) -> Self {
        [Self::Context, Self::Switch, Self::Sample, Self::Asleep, Self::End, Self::Look, Self::Withdrawn]
            .get(usize::from(n))
            .copied()
            .unwrap_or_default()
    }
}

/// A unit of `Event::thread` ran longer than units of its type may; seen at `Event::time`, while it ran.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Violation {
    /// When the unit began.
    pub start: Ns,
    /// How long it had taken by then without what the guard itself took, ns.
    pub elapsed: Ns,
    /// How long it may take, ns.
    pub threshold: Ns,
    /// Its type, as far as that was known by then.
    pub unit_type: UnitTypeId,
    /// Where the thread was.
    pub user_stack: StackId,
    /// Where it was in the kernel.
    pub kernel_stack: StackId,
    /// How many frames of the user stack, from the innermost, lie inside of the loop's frame: the distance to the
    /// loop. The frame at this place is the loop's; 0 when it was not found.
    pub depth: u32,
    /// What saw it.
    pub at: SeenBy,
    /// How long of it the thread had a CPU that the host of the machine, a guest, had given to others, ns.
    pub stolen: Ns,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Catalog, CatalogDelta};

    #[test]
    fn types_that_make_no_sense_are_refused() {
        let row = |n: usize| {
            (UnitTypeId(n as u32), UnitTypeRow { name: format!("t{n}"), ..UnitTypeRow::default() })
        };
        let mut c = Catalog::default();
        let unit_types = vec![row(MAX_UNIT_TYPES - 1), row(MAX_UNIT_TYPES), row(u32::MAX as usize)];
        assert_eq!(c.apply(CatalogDelta { unit_types, ..CatalogDelta::default() }), 2);
        assert_eq!(c.unit_types.len(), MAX_UNIT_TYPES);
        assert_eq!(
            c.unit_type(UnitTypeId(MAX_UNIT_TYPES as u32 - 1)).map(|t| t.name.as_str()),
            Some("t65535")
        );
        assert_eq!(c.unit_type(UnitTypeId::NONE), None);
    }

    #[test]
    fn why_a_type_is_not_known_is_no_type() {
        let row = UnitTypeRow { unknown: "nobody looked".into(), ..UnitTypeRow::default() };
        let (id, mut c) = (UnitTypeId(0), Catalog::default());
        c.apply(CatalogDelta { unit_types: vec![(id, row)], ..CatalogDelta::default() });
        assert_eq!((c.unit_type(id), c.why_unknown(id)), (None, Some("nobody looked")));
        assert_eq!(c.unit_row(id).map(|t| t.unknown.as_str()), Some("nobody looked"));
        assert_eq!(c.why_unknown(UnitTypeId::NONE), None);
    }
}
