//! Units of the same contexts, counted together: what probes show of them.

use pg_event::Ns;
use pg_graph::units::{
    CallPath, Called, Context, Function, FunctionId, LoopKey, PathSet, Profile, Tree, TypeOptions, UnitStats,
    unit_from_hits,
};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Kinds that are kept; units of more are left out.
const MAX_KINDS: usize = 1 << 14;
/// Times that are kept of one.
const MAX_TIMES: usize = 1 << 20;

/// Kinds that are compared in pairs at most, the commonest: units pass by meanwhile.
const MAX_COMPARED: usize = 256;
/// Kinds whose means are this far apart are to be told from each other: the difference of logarithms, as in
/// [`pg_graph::units::RefineOptions::apart`].
const APART: f64 = 0.1;

/// What a unit of a loop came by.
type Key = (usize, BTreeSet<Context>);

/// Units that came by the same.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Kind {
    of_loop: usize,
    paths: PathSet,
    contexts: BTreeSet<Context>,
    times: Vec<Ns>,
    /// How often it was seen when all functions were probed, if it was.
    seen: usize,
}

/// Functions at which times were measured; `None` while all are probed.
pub(super) type Measured<'a> = Option<&'a BTreeSet<FunctionId>>;

/// All kinds so far.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Kinds {
    kinds: Vec<Kind>,
    numbers: HashMap<Key, usize>,
}

impl Kinds {
    /// A unit with these contexts, in the order in which it came by them. Its kind's number.
    pub(super) fn add(
        &mut self,
        of_loop: usize,
        own: FunctionId,
        hits: &[(FunctionId, u32)],
        time: Ns,
    ) -> Option<usize> {
        let contexts: BTreeSet<Context> =
            hits.iter().map(|&(function, depth)| Context { function, depth }).collect();
        let key = (of_loop, contexts);
        let number = match self.numbers.get(&key) {
            Some(&number) => number,
            None if self.kinds.len() < MAX_KINDS => {
                let paths = unit_from_hits(std::iter::once((own, 0)).chain(hits.iter().copied()));
                let contexts = key.1.clone();
                self.kinds.push(Kind { of_loop, paths, contexts, ..Kind::default() });
                self.numbers.insert(key, self.kinds.len() - 1);
                self.kinds.len() - 1
            }
            None => return None,
        };
        let times = &mut self.kinds[number].times;
        if times.len() < MAX_TIMES {
            times.push(time);
        }
        Some(number)
    }

    /// The same kinds, known again by what they come by of these functions alone; of several that come by the same of them
    /// the commonest stands for all. They keep the times that they had for want of better ones.
    pub(super) fn known_at(self, functions: &BTreeSet<FunctionId>) -> Self {
        let mut all: BTreeMap<Key, Kind> = BTreeMap::new();
        for mut kind in self.kinds {
            let contexts =
                kind.contexts.iter().filter(|c| functions.contains(&c.function)).copied().collect();
            let known = all.entry((kind.of_loop, contexts)).or_default();
            let seen = kind.times.len();
            if seen > known.seen {
                kind.times.append(&mut known.times);
                kind.seen = seen;
                *known = kind;
            } else {
                known.times.append(&mut kind.times);
            }
        }
        let mut known = Self::default();
        for (key, mut kind) in all {
            kind.seen = kind.times.len();
            known.numbers.insert(key, known.kinds.len());
            known.kinds.push(kind);
        }
        known
    }

    /// These functions, and others at which kinds of much different times are told apart that are the same at these: in turn
    /// the one that tells most pairs of kinds, of equals the one that is called least. Kinds of fewer than `few` units count
    /// for nothing; `most` functions at most.
    pub(super) fn told_apart(
        &self,
        mut functions: BTreeSet<FunctionId>,
        calls: &HashMap<FunctionId, u64>,
        (few, most): (usize, usize),
    ) -> BTreeSet<FunctionId> {
        let mut kinds: Vec<(&Kind, f64)> =
            self.kinds.iter().filter(|k| k.times.len() >= few).map(|k| (k, k.mean())).collect();
        kinds.sort_by_key(|k| Reverse(k.0.times.len()));
        kinds.truncate(MAX_COMPARED);
        // Of each pair that is the same at `functions` those at which it differs.
        let mut open: Vec<BTreeSet<FunctionId>> = Vec::new();
        for (i, (a, slow)) in kinds.iter().enumerate() {
            for (b, quick) in &kinds[i + 1..] {
                let apart = (slow.max(1.0) / quick.max(1.0)).ln().abs() >= APART;
                if apart && a.of_loop == b.of_loop {
                    let differ: BTreeSet<FunctionId> =
                        a.contexts.symmetric_difference(&b.contexts).map(|c| c.function).collect();
                    open.extend(Some(differ).filter(|d| d.is_disjoint(&functions)));
                }
            }
        }
        while functions.len() < most {
            let mut tells: BTreeMap<FunctionId, usize> = BTreeMap::new();
            for f in open.iter().flatten() {
                *tells.entry(*f).or_default() += 1;
            }
            let called = |f: &FunctionId| calls.get(f).copied().unwrap_or(0);
            let Some((&best, _)) = tells.iter().max_by_key(|(f, n)| (**n, Reverse(called(f)), Reverse(**f)))
            else {
                break;
            };
            functions.insert(best);
            open.retain(|of| !of.contains(&best));
        }
        functions
    }

    /// Of all these units: of kinds that were measured at few functions only those times, of others what there is. What they
    /// came by elsewhere tells kinds apart in their paths, but not in their contexts: the commonest kind stands for others that
    /// came by something else there, so guards must not tell types there.
    pub(super) fn profile(
        &self,
        at: Measured,
        of: &Profile,
        names: &[Function],
        loops: &[(LoopKey, FunctionId)],
    ) -> Profile {
        let trees = self.kinds.iter().filter_map(|k| {
            let (key, _) = loops.get(k.of_loop)?;
            let stats = UnitStats::of(k.measured().iter().copied());
            Some((key.clone(), Called { paths: k.paths.clone(), contexts: k.contexts_at(at) }, stats))
        });
        Profile::of_trees(of.binaries().cloned(), names, trees)
    }

    /// The name of each kind's type in the profile that was made of them.
    pub(super) fn types(
        &self,
        at: Measured,
        learnt: &Profile,
        names: &[Function],
        loops: &[(LoopKey, FunctionId)],
    ) -> Vec<Option<String>> {
        let number: HashMap<&Function, FunctionId> =
            learnt.functions().iter().zip(0..).map(|(f, i)| (f, FunctionId(i))).collect();
        let there = |f: &FunctionId| number.get(names.get(f.0 as usize)?).copied();
        let types: Vec<_> = loops.iter().map(|(key, _)| learnt.types(key, TypeOptions::default())).collect();
        let name = |k: &Kind| {
            let of = types.get(k.of_loop)?.as_ref()?;
            let path = |p: &CallPath| {
                Some(CallPath::new(p.functions().iter().map(there).collect::<Option<Vec<_>>>()?))
            };
            let paths = PathSet::new(k.paths.paths().iter().map(path).collect::<Option<Vec<_>>>()?);
            let context = |c: &Context| Some(Context { function: there(&c.function)?, ..*c });
            let contexts = k.contexts_at(at).iter().map(context).collect::<Option<BTreeSet<_>>>()?;
            let same = |t: &Tree| (&t.paths, &t.contexts).cmp(&(&paths, &contexts));
            let tree = of.types.trees().binary_search_by(same).ok()?;
            let of_type = of.types.type_of(tree)?.0 as usize;
            Some(format!("{} {}", of_type, of.known.names.get(of_type)?))
        };
        self.kinds.iter().map(name).collect()
    }
}

impl Kind {
    /// What it comes by of these functions.
    fn contexts_at(&self, at: Measured) -> BTreeSet<Context> {
        let is_at = |c: &&Context| at.is_none_or(|at| at.contains(&c.function));
        self.contexts.iter().filter(is_at).copied().collect()
    }

    /// Of all its times, ns.
    fn mean(&self) -> f64 {
        self.times.iter().map(|&t| t as f64).sum::<f64>() / self.times.len().max(1) as f64
    }

    fn measured(&self) -> &[Ns] {
        if self.times.len() > self.seen { &self.times[self.seen..] } else { &self.times }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: FunctionId = FunctionId(9);

    fn hits(letters: &str) -> Vec<(FunctionId, u32)> {
        letters.bytes().zip(1..).map(|(l, depth)| (FunctionId((l - b'A').into()), depth * 16)).collect()
    }

    fn times(kinds: &Kinds) -> Vec<(usize, Vec<Ns>)> {
        let mut all: Vec<_> = kinds.kinds.iter().map(|k| (k.contexts.len(), k.measured().to_vec())).collect();
        all.sort();
        all
    }

    #[test]
    fn units_measured_at_few_functions_are_those_that_were_seen_at_all() {
        let mut kinds = Kinds::default();
        for (letters, time) in [("ABC", 50), ("ABC", 51), ("ABD", 90), ("ABCE", 52), ("F", 7)] {
            kinds.add(0, OWN, &hits(letters), time);
        }
        assert_eq!(times(&kinds), [(1, vec![7]), (3, vec![50, 51]), (3, vec![90]), (4, vec![52])]);
        // Only C and D are probed: ABC and ABCE are not told apart, of which ABC is the commoner.
        let c = |letters: &str| -> Vec<_> {
            hits(letters).into_iter().filter(|h| [2, 3].contains(&h.0.0)).collect()
        };
        let mut known = kinds.known_at(&[FunctionId(2), FunctionId(3)].into());
        assert_eq!(times(&known), [(1, vec![7]), (3, vec![50, 51, 52]), (3, vec![90])]);
        assert_eq!(known.add(0, OWN, &c("ABC"), 40), known.add(0, OWN, &c("ABCE"), 41));
        // Of what was not measured what was seen counts; what is new is what it is.
        known.add(0, OWN, &hits("CD")[..1], 3);
        assert_eq!(times(&known), [(1, vec![3]), (1, vec![7]), (3, vec![40, 41]), (3, vec![90])]);
    }

    #[test]
    fn kinds_of_other_times_are_told_apart() {
        let mut kinds = Kinds::default();
        for n in 0..5 {
            // B tells the first from all others, C and D the second from the third, E what takes as long.
            for (letters, time) in [("AB", 100), ("ACD", 200), ("ACDE", 201), ("A", 300)] {
                kinds.add(0, OWN, &hits(letters), time + n);
            }
        }
        kinds.add(0, OWN, &hits("AF"), 9000);
        let calls: HashMap<FunctionId, u64> =
            [9, 9, 7, 3, 1, 1].into_iter().zip(0..).map(|(n, f)| (FunctionId(f), n)).collect();
        let told = |own: &str, most| -> String {
            let own = hits(own).iter().map(|h| h.0).collect();
            let told = kinds.told_apart(own, &calls, (5, most));
            told.iter().map(|f| char::from(b'A' + f.0 as u8)).collect()
        };
        // D is called less than C, and tells as much; what is left is the first and the last.
        assert_eq!(told("", 9), "BD");
        assert_eq!(told("B", 9), "BD");
        assert_eq!(told("BC", 9), "BC");
        assert_eq!(told("", 1), "D");
    }

    #[test]
    fn kinds_are_of_types() {
        let mut kinds = Kinds::default();
        for n in 0..60 {
            kinds.add(0, OWN, &hits("AB"), 1000 + n);
            kinds.add(0, OWN, &hits("CD"), 9000 + n);
        }
        let names: Vec<Function> =
            ('a'..='j').map(|l| Function { module: "m".into(), name: l.to_string() }).collect();
        let loops = [(LoopKey { build_id: "id".into(), offset: 4, ..LoopKey::default() }, OWN)];
        let learnt = kinds.profile(None, &Profile::default(), &names, &loops);
        assert_eq!(learnt.units(), 120);
        let types = kinds.types(None, &learnt, &names, &loops);
        // Times were measured at C alone: guards tell the types there.
        let at = [FunctionId(2)].into();
        let few = kinds.profile(Some(&at), &Profile::default(), &names, &loops);
        let of = few.types(&loops[0].0, TypeOptions::default()).unwrap();
        let name = |c: &Context| few.functions()[c.function.0 as usize].name.clone();
        assert_eq!(of.contexts.iter().flatten().map(name).collect::<Vec<_>>(), ["c"]);
        let named = kinds.types(Some(&at), &few, &names, &loops);
        assert!(named.iter().all(Option::is_some) && named[0] != named[1], "{named:?}");
        assert!(
            types.len() == 2 && types[0] != types[1] && types[0].is_some() && types[1].is_some(),
            "{types:?}"
        );
    }
}
