//! Which type a running unit is of, from the contexts it has come by (section 4.4, figure 4; algorithm 2,
//! lines 9 to 24).

use super::path::FunctionId;
use super::types::TypeId;
use pg_event::Ns;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// A calling context as it is known at run time: a function and how deep the stack is there. (The paper's "context
/// ID", line 13. Two call paths to a function that are equally deep are taken for the same.)
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Context {
    /// The function that was entered.
    pub function: FunctionId,
    /// Bytes from the loop's frame to the function's.
    pub depth: u32,
}

/// What is to be known of a type to recognise its units.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TypeContexts {
    /// Contexts that its units come by.
    pub contexts: BTreeSet<Context>,
    /// How long a unit of it may take, in ns.
    pub threshold: Ns,
}

/// The types that may be meant by each context of one loop.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Contexts {
    types_of: BTreeMap<Context, Vec<TypeId>>,
    thresholds: Vec<Ns>,
}

impl Contexts {
    /// Of types, whose ids are their places, at the functions that are guarded.
    pub fn new(types: &[TypeContexts], guards: &BTreeSet<FunctionId>) -> Self {
        let mut types_of: BTreeMap<Context, Vec<TypeId>> = BTreeMap::new();
        for (t, of) in types.iter().enumerate() {
            for &c in of.contexts.iter().filter(|c| guards.contains(&c.function)) {
                types_of.entry(c).or_default().push(TypeId(t as u32));
            }
        }
        Self { types_of, thresholds: types.iter().map(|t| t.threshold).collect() }
    }

    /// The candidates of a context, ascending; none for a context that is not known.
    pub fn candidates(&self, context: Context) -> &[TypeId] {
        self.types_of.get(&context).map_or(&[], Vec::as_slice)
    }

    /// Every context with its candidates, for tables elsewhere.
    pub fn all(&self) -> impl Iterator<Item = (Context, &[TypeId])> {
        self.types_of.iter().map(|(c, t)| (*c, t.as_slice()))
    }

    /// The threshold of a type, in ns.
    pub fn threshold(&self, of: TypeId) -> Option<Ns> {
        self.thresholds.get(of.0 as usize).copied()
    }

    /// The greatest threshold of all types: what no unit may exceed, whatever its type.
    pub fn greatest_threshold(&self) -> Option<Ns> {
        self.thresholds.iter().copied().max()
    }

    /// Types that these contexts do not tell apart, in groups of two and more: they act as one type, with the
    /// smallest of their thresholds.
    pub fn alike(&self) -> Vec<Vec<TypeId>> {
        let mut contexts_of = vec![Vec::new(); self.thresholds.len()];
        for (c, types) in &self.types_of {
            for t in types {
                contexts_of[t.0 as usize].push(*c);
            }
        }
        let mut groups: BTreeMap<Vec<Context>, Vec<TypeId>> = BTreeMap::new();
        for (t, contexts) in contexts_of.into_iter().enumerate() {
            groups.entry(contexts).or_default().push(TypeId(t as u32));
        }
        groups.into_values().filter(|g| g.len() > 1).collect()
    }
}

/// The occurrences of each type's contexts in the unit that runs.
///
/// Where the paper can be read in two ways: lines 21 to 24 choose the last of several top candidates with the
/// smallest threshold; here it is the first by id. The threshold, which is what is checked, is the same.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Inference {
    hits: Vec<u32>,
    most: u32,
}

impl Inference {
    /// Forgets all hits: a unit starts (line 7).
    pub fn start(&mut self) {
        self.hits.clear();
        self.most = 0;
    }

    /// The unit came by `context` (lines 14 to 16).
    pub fn hit(&mut self, contexts: &Contexts, context: Context) {
        for t in contexts.candidates(context) {
            let t = t.0 as usize;
            if self.hits.len() <= t {
                self.hits.resize(t + 1, 0);
            }
            self.hits[t] = self.hits[t].saturating_add(1);
            self.most = self.most.max(self.hits[t]);
        }
    }

    /// Occurrences of a type so far: the cells of figure 4.
    pub fn hits(&self, of: TypeId) -> u32 {
        self.hits.get(of.0 as usize).copied().unwrap_or(0)
    }

    /// The types with the most occurrences (lines 17 to 20), ascending; none before the first hit.
    pub fn top(&self) -> impl Iterator<Item = TypeId> {
        let all = self.hits.iter().enumerate();
        let most = self.most;
        all.filter(move |(_, h)| most > 0 && **h == most).map(|(t, _)| TypeId(t as u32))
    }

    /// The type that is most likely: of those at the top the one with the smallest threshold (lines 21 to 24).
    /// `None` before the first hit.
    pub fn inferred(&self, contexts: &Contexts) -> Option<TypeId> {
        self.top().min_by_key(|t| contexts.threshold(*t))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const DEPTH: u32 = 64;

    fn at(letter: char, depth: usize) -> Context {
        Context { function: FunctionId(letter.into()), depth: depth as u32 * DEPTH }
    }

    fn guards() -> BTreeSet<FunctionId> {
        ('A'..='H').map(|l| FunctionId(l.into())).collect()
    }

    /// Contexts along call paths, one frame a letter.
    fn along(path: &str, threshold: Ns) -> TypeContexts {
        TypeContexts { contexts: path.chars().enumerate().map(|(d, l)| at(l, d)).collect(), threshold }
    }

    const X: TypeId = TypeId(0);
    const Y: TypeId = TypeId(1);
    const Z: TypeId = TypeId(2);

    /// Figure 4: types X (ABECF), Y (ABECDG) and Z (ABEDH); a unit of type Z runs.
    ///
    /// The figure marks D as a context of Y and of Z. Their Ds are at different depths when each call is one frame,
    /// so here, as drawn, contexts are told by the function alone.
    #[test]
    fn figure_4() {
        let flat = |path: &str, threshold| TypeContexts {
            contexts: path.chars().map(|l| at(l, 0)).collect(),
            threshold,
        };
        let types = [flat("ABECF", 30), flat("ABECDG", 20), flat("ABEDH", 40)];
        let contexts = Contexts::new(&types, &guards());
        // The candidates of each function, as the graph at the left has them.
        let candidates: Vec<_> = "ABECDFGH".chars().map(|l| contexts.candidates(at(l, 0)).to_vec()).collect();
        let all = vec![X, Y, Z];
        assert_eq!(
            candidates,
            [all.clone(), all.clone(), all.clone(), vec![X, Y], vec![Y, Z], vec![X], vec![Y], vec![Z]]
        );
        // The table at the right, column by column: occurrences of X, Y, Z, the top types, and the one chosen,
        // which is the one with the smallest threshold.
        let columns = [
            ('A', [1, 1, 1], vec![X, Y, Z], Y),
            ('B', [2, 2, 2], vec![X, Y, Z], Y),
            ('E', [3, 3, 3], vec![X, Y, Z], Y),
            ('D', [3, 4, 4], vec![Y, Z], Y),
            ('H', [3, 4, 5], vec![Z], Z),
        ];
        let mut unit = Inference::default();
        assert_eq!((unit.top().count(), unit.inferred(&contexts)), (0, None));
        for (letter, hits, top, inferred) in columns {
            unit.hit(&contexts, at(letter, 0));
            assert_eq!([X, Y, Z].map(|t| unit.hits(t)), hits, "after {letter}");
            assert_eq!(unit.top().collect::<Vec<_>>(), top, "after {letter}");
            assert_eq!(unit.inferred(&contexts), Some(inferred), "after {letter}");
        }
        unit.start();
        assert_eq!((unit.hits(Z), unit.inferred(&contexts)), (0, None));
    }

    #[test]
    fn depth_tells_call_paths_of_a_function_apart() {
        let types = [along("ABECF", 30), along("ABECDG", 20), along("ABEDH", 40)];
        let contexts = Contexts::new(&types, &guards());
        assert_eq!(contexts.candidates(at('D', 4)), [Y]);
        assert_eq!(contexts.candidates(at('D', 3)), [Z]);
        assert_eq!(contexts.candidates(at('D', 2)), []);
    }

    #[test]
    fn types_that_guards_do_not_tell_apart() {
        let types = [along("ABECF", 30), along("ABECDG", 20), along("ABEDH", 40)];
        let only = |letters: &str| letters.chars().map(|l| FunctionId(l.into())).collect();
        assert_eq!(Contexts::new(&types, &guards()).alike(), [] as [Vec<TypeId>; 0]);
        assert_eq!(Contexts::new(&types, &only("ABC")).alike(), [[X, Y]]);
        assert_eq!(Contexts::new(&types, &only("")).alike(), [[X, Y, Z]]);
        assert_eq!(Contexts::new(&types, &only("F")).alike(), [[Y, Z]]);
        assert_eq!(Contexts::new(&types, &only("")).greatest_threshold(), Some(40));
    }

    fn any_types() -> impl Strategy<Value = Vec<TypeContexts>> {
        let context = (0u32..5, 0u32..3).prop_map(|(f, depth)| Context { function: FunctionId(f), depth });
        let one = (prop::collection::btree_set(context, 0..8), 0u64..4);
        prop::collection::vec(
            one.prop_map(|(contexts, threshold)| TypeContexts { contexts, threshold }),
            0..6,
        )
    }

    proptest! {
        #[test]
        fn units_inferred_as_algorithm_2_is_written(
            types in any_types(),
            guarded in prop::collection::btree_set((0u32..5).prop_map(FunctionId), 0..5),
            run in prop::collection::vec((0u32..6, 0u32..4), 0..30),
        ) {
            let contexts = Contexts::new(&types, &guarded);
            let mut unit = Inference::default();
            let mut seen = Vec::new();
            for (f, depth) in run {
                let context = Context { function: FunctionId(f), depth };
                // Guards that are not there are not hit.
                if guarded.contains(&context.function) {
                    unit.hit(&contexts, context);
                    seen.push(context);
                }
                // From the beginning each time: how often each type's contexts occurred in the run.
                let hits: Vec<usize> =
                    types.iter().map(|t| seen.iter().filter(|c| t.contexts.contains(c)).count()).collect();
                let most = hits.iter().copied().max().unwrap_or(0);
                let top: Vec<usize> = (0..types.len()).filter(|&t| most > 0 && hits[t] == most).collect();
                let least = top.iter().map(|&t| types[t].threshold).min();
                let chosen = top.iter().copied().find(|&t| Some(types[t].threshold) == least);
                prop_assert_eq!(unit.top().map(|t| t.0 as usize).collect::<Vec<_>>(), top);
                prop_assert_eq!(unit.inferred(&contexts).map(|t| t.0 as usize), chosen);
            }
        }
    }
}
