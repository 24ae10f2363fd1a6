//! A normal unit of each type: what the slow ones are compared with.

use super::record::containing;
use super::{UnitFact, ViolationFact};
use crate::EventGraph;
use pg_event::{Catalog, Ns, UnitTypeId};
use std::collections::{HashMap, HashSet};

/// The unit that stands for the normal ones of its type.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NormalUnit {
    /// It.
    pub unit: UnitFact,
    /// Of how many normal ones it is the one nearest to their median duration.
    pub of: usize,
    /// That median, ns.
    pub median: Ns,
}

/// By type: of the units that ended, of which no violation was told and that did not take longer than they may, the
/// one whose duration is nearest to the median. Of equals the first.
pub(crate) fn normal_units(
    units: &[UnitFact],
    violations: &[ViolationFact],
    catalog: &Catalog,
) -> HashMap<UnitTypeId, NormalUnit> {
    let wanted: HashSet<UnitTypeId> = violations.iter().filter_map(|v| v.unit_type.some()).collect();
    let slow: HashSet<_> = violations
        .iter()
        .filter_map(|v| containing(units, v.thread, v.time))
        .map(|u| (u.thread, u.start))
        .collect();
    let mut by_type: HashMap<UnitTypeId, Vec<UnitFact>> = HashMap::new();
    for u in units.iter().filter(|u| !u.open && wanted.contains(&u.unit_type)) {
        let most = catalog.unit_type(u.unit_type).map_or(0, |t| t.threshold);
        if !slow.contains(&(u.thread, u.start)) && (most == 0 || u.duration() <= most) {
            by_type.entry(u.unit_type).or_default().push(*u);
        }
    }
    let normal = |mut all: Vec<UnitFact>| {
        all.sort_by_key(|u| (u.duration(), u.start, u.thread));
        let of = all.len();
        let unit = *all.get((of - 1) / 2)?;
        // Of equals the first: the middle one has as many neighbours as there are of its duration.
        let first = all.partition_point(|u| u.duration() < unit.duration());
        Some(NormalUnit { unit: all[first], of, median: unit.duration() })
    };
    by_type.into_iter().filter_map(|(t, all)| Some((t, normal(all)?))).collect()
}

impl EventGraph {
    /// The normal unit that a slow one of this type is compared with; `None` when none was recorded.
    pub fn normal_unit(&self, unit_type: UnitTypeId) -> Option<&NormalUnit> {
        self.normal_units.get(&unit_type)
    }
}
