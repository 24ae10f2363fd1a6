//! Names for types, from the functions that tell them apart.

use super::path::FunctionId;
use super::types::{UnitType, UnitTypes};
use crate::words::clean;
use std::collections::{BTreeMap, HashSet};

/// Functions named at most.
const MOST_FUNCTIONS: usize = 3;
/// Characters of a function's name.
const LONGEST: usize = 60;
/// Shares are counted in millionths.
const ALL: u64 = 1_000_000;
/// A type of whose units this share comes by a function "has" it.
const HAS: u64 = ALL / 2;
/// What a function must gain at least to be named.
const LEAST_GAIN: i128 = ALL as i128 / 20;

/// What is known of a function in a type.
#[derive(Clone, Copy, Default)]
struct Seen {
    /// Share of the type's units that came by it, in millionths.
    share: u64,
    /// The least depth it was seen at.
    depth: usize,
}

/// A name for each type, as [`UnitTypes::types`] has them, made of functions that most of its units come by and
/// units of few other types do: `cgi_handler`, `apr_stat + dav_handler`, `worker without dav_handler`. Among
/// functions that say as much, the outermost names it: it stands for all that it calls.
///
/// The names differ from each other, contain no control characters, and depend on nothing but the types and what
/// `function` says. They are proposals: whoever keeps them may change them.
pub fn type_names<'a>(types: &UnitTypes, function: impl Fn(FunctionId) -> &'a str) -> Vec<String> {
    let seen: Vec<BTreeMap<FunctionId, Seen>> = types.types().iter().map(|t| functions(types, t)).collect();
    let mut totals: BTreeMap<FunctionId, u64> = BTreeMap::new();
    for (f, s) in seen.iter().flatten() {
        *totals.entry(*f).or_default() += s.share;
    }
    let mut used = HashSet::new();
    let mut names = Vec::with_capacity(seen.len());
    for (t, of) in types.types().iter().enumerate() {
        let mut name = proposal(&seen, &totals, t, &function);
        if name.is_empty() {
            name = shared(types, of, &function);
        }
        let mut n = 1;
        let mut unique = name.clone();
        while !used.insert(unique.clone()) {
            n += 1;
            unique = format!("{name} #{n}");
        }
        names.push(unique);
    }
    names
}

fn functions(types: &UnitTypes, of: &UnitType) -> BTreeMap<FunctionId, Seen> {
    let mut seen: BTreeMap<FunctionId, (u64, usize)> = BTreeMap::new();
    for tree in of.trees.iter().map(|&i| &types.trees()[i]) {
        let mut here: BTreeMap<FunctionId, usize> = BTreeMap::new();
        for (depth, f) in tree.paths.paths().iter().flat_map(|p| p.functions().iter().enumerate()) {
            let least = here.entry(*f).or_insert(depth);
            *least = (*least).min(depth);
        }
        for (f, depth) in here {
            let e = seen.entry(f).or_insert((0, depth));
            *e = (e.0.saturating_add(tree.units), e.1.min(depth));
        }
    }
    let share = |units: u64| (u128::from(units) * u128::from(ALL) / u128::from(of.units.max(1))) as u64;
    seen.into_iter().map(|(f, (units, depth))| (f, Seen { share: share(units), depth })).collect()
}

/// Functions that tell type `t` from the others, and where that is not enough one that it lacks.
fn proposal<'a>(
    seen: &[BTreeMap<FunctionId, Seen>],
    totals: &BTreeMap<FunctionId, u64>,
    t: usize,
    function: &impl Fn(FunctionId) -> &'a str,
) -> String {
    let share = |of: usize, f: FunctionId| seen[of].get(&f).map_or(0, |s| s.share);
    let mut rivals: Vec<usize> = (0..seen.len()).filter(|&o| o != t).collect();
    // The share of `t` less the mean share of the rivals, times their number: integers, so that ties are ties.
    let gain = |rivals: &[usize], f: FunctionId| {
        let own = share(t, f);
        let theirs = if rivals.len() + 1 == seen.len() {
            totals.get(&f).copied().unwrap_or(0).saturating_sub(own)
        } else {
            rivals.iter().map(|&r| share(r, f)).sum()
        };
        i128::from(own) * rivals.len() as i128 - i128::from(theirs)
    };
    // The best first: what is gained, then the outermost, then by name.
    let best = |gains: Vec<(i128, usize, FunctionId)>, rivals: usize| {
        let gains = gains.into_iter().filter(|(gain, ..)| *gain > LEAST_GAIN * rivals as i128);
        gains.min_by(|a, b| {
            let name = || function(a.2).cmp(function(b.2));
            b.0.cmp(&a.0).then(a.1.cmp(&b.1)).then_with(name).then(a.2.cmp(&b.2))
        })
    };
    let mut with: Vec<FunctionId> = Vec::new();
    while !rivals.is_empty() && with.len() < MOST_FUNCTIONS {
        let left = seen[t].iter().filter(|(f, _)| !with.contains(f));
        let gains = left.map(|(&f, s)| (gain(&rivals, f), s.depth, f)).collect();
        let Some((_, _, f)) = best(gains, rivals.len()) else { break };
        with.push(f);
        rivals.retain(|&r| share(r, f) >= HAS);
    }
    let mut name: Vec<String> = with.iter().map(|f| clean(function(*f), LONGEST)).collect();
    if !rivals.is_empty() && with.len() < MOST_FUNCTIONS {
        let theirs: BTreeMap<FunctionId, usize> =
            rivals.iter().flat_map(|&r| seen[r].iter()).map(|(&f, s)| (f, s.depth)).collect();
        let gains = theirs.into_iter().map(|(f, depth)| (-gain(&rivals, f), depth, f)).collect();
        if let Some((_, _, f)) = best(gains, rivals.len()) {
            let without = format!("without {}", clean(function(f), LONGEST));
            match name.last_mut() {
                Some(last) => *last = format!("{last} {without}"),
                None => name.push(without),
            }
        }
    }
    name.join(" + ")
}

/// For a type that nothing tells apart: the innermost function that all paths of its representative go through.
fn shared<'a>(types: &UnitTypes, of: &UnitType, function: &impl Fn(FunctionId) -> &'a str) -> String {
    let paths = types.trees()[of.representative].paths.paths();
    let Some((first, others)) = paths.split_first() else { return "no calls seen".into() };
    let common =
        |p: &super::CallPath| first.functions().iter().zip(p.functions()).take_while(|(a, b)| a == b).count();
    let depth = others.iter().map(common).min().unwrap_or(first.len());
    match depth.checked_sub(1).and_then(|i| first.functions().get(i)) {
        Some(&f) => clean(function(f), LONGEST),
        None => "any".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::tests::paths;
    use crate::units::{TypeOptions, UnitTypes};

    const LETTERS: [&str; 26] = [
        "A", "B", "C", "D", "E", "F", "G", "H", "I", "J", "K", "L", "M", "N", "O", "P", "Q", "R", "S", "T",
        "U", "V", "W", "X", "Y", "Z",
    ];

    fn letter(f: FunctionId) -> &'static str {
        LETTERS[f.0 as usize - 65]
    }

    fn named(trees: &[(&[&str], u64)]) -> Vec<(String, Vec<String>)> {
        let options = TypeOptions { cut_off: 0.1, ..TypeOptions::default() };
        let types = UnitTypes::new(trees.iter().map(|(words, n)| (paths(words), *n)), options);
        let names = type_names(&types, letter);
        let text = |i: &usize| {
            let words = types.trees()[*i].paths.paths().iter();
            let word =
                |p: &crate::units::CallPath| p.functions().iter().map(|f| letter(*f)).collect::<String>();
            words.map(word).collect::<Vec<_>>().join(",")
        };
        let members = types.types().iter().map(|t| t.trees.iter().map(text).collect());
        names.into_iter().zip(members).collect()
    }

    fn only_names(trees: &[(&[&str], u64)]) -> Vec<String> {
        named(trees).into_iter().map(|(name, _)| name).collect()
    }

    #[test]
    fn the_outermost_function_that_only_this_type_has() {
        // Requests as in figure 3b: the handlers name them, not what these call.
        let names = only_names(&[(&["WPDMR", "WPDB"], 9), (&["WPHO", "WPHB"], 8), (&["WPGX"], 7)]);
        assert_eq!(names, ["D", "H", "G"]);
    }

    #[test]
    fn types_that_share_all_but_one_function() {
        // Y is named by G. X has F; Z has H: figure 4.
        assert_eq!(only_names(&[(&["ABECF"], 3), (&["ABECDG"], 2), (&["ABEDH"], 1)]), ["F", "G", "H"]);
        // The first has nothing that the second lacks.
        assert_eq!(only_names(&[(&["ABC"], 3), (&["ABC", "ABDEFG"], 2)]), ["without D", "D"]);
        // Nothing of its own, but a pair that nobody else has.
        let pairs: [(&[&str], u64); 3] = [(&["ABX", "ACY"], 3), (&["ABX", "ADZ"], 2), (&["ACY", "ADZ"], 1)];
        assert_eq!(only_names(&pairs), ["B + C", "B + D", "C + D"]);
    }

    #[test]
    fn one_type_and_none() {
        assert_eq!(only_names(&[(&["ABCD", "ABCE"], 3)]), ["C"]);
        assert_eq!(only_names(&[(&[], 3)]), ["no calls seen"]);
        assert_eq!(only_names(&[]), [] as [&str; 0]);
        // Another that calls nothing lacks what the first has.
        assert_eq!(only_names(&[(&["AB"], 3), (&[], 2)]), ["A", "without A"]);
    }

    #[test]
    fn names_differ_and_are_harmless() {
        let trees = [(paths(&["AB"]), 3), (paths(&["AC"]), 2)];
        let types = UnitTypes::new(trees, TypeOptions { cut_off: 0.0, ..TypeOptions::default() });
        assert_eq!(type_names(&types, |_| "x\u{1b}[31m"), ["x?[31m", "x?[31m #2"]);
    }
}
