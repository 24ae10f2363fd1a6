//! What a person says of a type: its name, how long its units may take, and that it is silent.
//!
//! Each is kept with a call tree of the type and the moment it was said, so that it stays with the units when types
//! change, and merging takes the latest whatever the order.

use super::{LoopKey, MAX_TEXT, Profile, cut};
use crate::units::path::Called;
use crate::units::stats::UnitStats;
use crate::units::thresholds::{Rule, Threshold, threshold};
use pg_event::Ns;
use serde::{Deserialize, Serialize};

/// How certain a threshold of a quantile is to let that share pass.
pub const CONFIDENCE: f64 = 0.95;

/// How long units of a type may take, as a person says. In integers, so that equal ones are equal.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
pub enum Limit {
    /// As the rule for all types says.
    #[default]
    Auto,
    /// This long, in ns.
    Fixed(Ns),
    /// Mean + k sigma; k in thousandths.
    Sigma(u32),
    /// A bound of this quantile ([`CONFIDENCE`]), in millionths.
    Quantile(u32),
}

impl Limit {
    /// The rule that it is; `None` for a time, and where nothing was said.
    pub fn rule(self) -> Option<Rule> {
        match self {
            Self::Sigma(k) => Some(Rule::Sigma { k: f64::from(k) / 1e3 }),
            Self::Quantile(q) => Some(Rule::Quantile { q: f64::from(q) / 1e6, confidence: CONFIDENCE }),
            Self::Auto | Self::Fixed(_) => None,
        }
    }

    /// The threshold it gives for these durations, where `rule` is the one for all types. `None` when there are none.
    pub fn threshold(self, stats: &UnitStats, rule: Rule) -> Option<Threshold> {
        if let Self::Fixed(ns) = self {
            let above = stats.greatest()?.gt(&ns).then(|| stats.histogram().above(ns));
            return Some(Threshold {
                ns,
                above: above.unwrap_or(0),
                caution: None,
                skewed: false,
                few: false,
            });
        }
        threshold(stats, self.rule().unwrap_or(rule))
    }
}

/// Something that was said at a moment, in ns since the epoch. The latest counts; of several at one moment the
/// greatest.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Dated<T> {
    pub at: Ns,
    pub what: T,
}

/// What was said of the type that a call tree belongs to.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Settings {
    /// Its name; an empty one takes an earlier one back.
    pub name: Option<Dated<String>>,
    /// How long its units may take.
    pub limit: Option<Dated<Limit>>,
    /// Whether its violations are not to be told.
    pub silent: Option<Dated<bool>>,
}

impl Settings {
    /// Takes over what is later.
    pub fn merge(&mut self, other: Self) {
        self.name = self.name.take().max(other.name);
        self.limit = self.limit.take().max(other.limit);
        self.silent = self.silent.take().max(other.silent);
    }
}

/// # Settings
/// Each is said of the type that has this call `tree` (of this profile's functions), at a moment given
/// in ns since the epoch: the latest counts. Nothing happens when the loop or the tree is not known.
impl Profile {
    /// Names a type; an empty name takes an earlier one back.
    pub fn name_type(&mut self, of: &LoopKey, tree: &Called, at: Ns, name: &str) {
        let name = Some(Dated { at, what: cut(name, MAX_TEXT) });
        self.set(of, tree, Settings { name, ..Settings::default() });
    }

    /// Says how long units of a type may take.
    pub fn limit_type(&mut self, of: &LoopKey, tree: &Called, at: Ns, limit: Limit) {
        let limit = Some(Dated { at, what: limit });
        self.set(of, tree, Settings { limit, ..Settings::default() });
    }

    /// Says whether violations of a type are not to be told.
    pub fn silence_type(&mut self, of: &LoopKey, tree: &Called, at: Ns, silent: bool) {
        let silent = Some(Dated { at, what: silent });
        self.set(of, tree, Settings { silent, ..Settings::default() });
    }

    /// The latest moment at which something was said; 0 when nothing was.
    pub fn last_said(&self) -> Ns {
        let all = self.loops.values().flat_map(|l| l.settings.values());
        let moments = all.flat_map(|s| {
            [s.name.as_ref().map(|d| d.at), s.limit.as_ref().map(|d| d.at), s.silent.as_ref().map(|d| d.at)]
        });
        moments.flatten().max().unwrap_or(0)
    }

    fn set(&mut self, of: &LoopKey, tree: &Called, settings: Settings) {
        if let Some(l) = self.loops.get_mut(of)
            && l.trees.contains_key(tree)
        {
            l.settings.entry(tree.clone()).or_default().merge(settings);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_of_a_person() {
        let stats = UnitStats::of([2, 4, 4, 4, 5, 5, 7, 9]);
        let at = |limit: Limit| limit.threshold(&stats, Rule::default()).map(|t| (t.ns, t.above));
        assert_eq!(at(Limit::Auto), Some((14, 0)));
        assert_eq!(at(Limit::Sigma(1000)), Some((8, 1)));
        assert_eq!(at(Limit::Fixed(4)), Some((4, 4)));
        assert_eq!(at(Limit::Fixed(9)), Some((9, 0)));
        assert!(at(Limit::Quantile(500_000)).is_some_and(|t| t.0 >= 4));
        assert_eq!(Limit::Fixed(4).threshold(&UnitStats::default(), Rule::default()), None);
    }
}
