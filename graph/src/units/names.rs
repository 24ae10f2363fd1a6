//! Names for types, from the functions that tell them apart.

use super::path::FunctionId;
use super::types::{UnitType, UnitTypes};
use crate::words::clean;
use std::collections::{BTreeMap, HashSet};

/// Functions named at most.
const MOST_FUNCTIONS: usize = 3;
/// Characters of a function's name.
const LONGEST: usize = 60;
/// A type of whose units this share comes by a function "has" it.
const HAS: f64 = 0.5;

/// What is known of a function in a type.
#[derive(Clone, Copy, Default)]
struct Seen {
    /// Share of the type's units that came by it, 0 to 1.
    share: f64,
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
    let mut used = HashSet::new();
    let mut names = Vec::with_capacity(seen.len());
    for (t, of) in types.types().iter().enumerate() {
        let mut name = proposal(&seen, t, &function);
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
    let share = |units: u64| if of.units == 0 { 0.0 } else { units as f64 / of.units as f64 };
    seen.into_iter().map(|(f, (units, depth))| (f, Seen { share: share(units), depth })).collect()
}

/// Functions that tell type `t` from the others, and where that is not enough one that it lacks.
fn proposal<'a>(
    seen: &[BTreeMap<FunctionId, Seen>],
    t: usize,
    function: &impl Fn(FunctionId) -> &'a str,
) -> String {
    let share = |of: usize, f: FunctionId| seen[of].get(&f).map_or(0.0, |s| s.share);
    let mut rivals: Vec<usize> = (0..seen.len()).filter(|&o| o != t).collect();
    let mean =
        |rivals: &[usize], f| rivals.iter().map(|&r| share(r, f)).sum::<f64>() / rivals.len().max(1) as f64;
    // The best first: what is gained, then the outermost, then by name.
    let best = |gains: Vec<(f64, usize, FunctionId)>| {
        let gains = gains.into_iter().filter(|(gain, ..)| *gain > 0.05);
        gains.min_by(|a, b| {
            let name = || function(a.2).cmp(function(b.2));
            b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)).then_with(name).then(a.2.cmp(&b.2))
        })
    };
    let mut with: Vec<FunctionId> = Vec::new();
    while !rivals.is_empty() && with.len() < MOST_FUNCTIONS {
        let left = seen[t].iter().filter(|(f, _)| !with.contains(f));
        let gains = left.map(|(&f, s)| (s.share - mean(&rivals, f), s.depth, f)).collect();
        let Some((_, _, f)) = best(gains) else { break };
        with.push(f);
        rivals.retain(|&r| share(r, f) >= HAS);
    }
    let mut name: Vec<String> = with.iter().map(|f| clean(function(*f), LONGEST)).collect();
    if !rivals.is_empty() && with.len() < MOST_FUNCTIONS {
        let theirs: BTreeMap<FunctionId, usize> =
            rivals.iter().flat_map(|&r| seen[r].iter()).map(|(&f, s)| (f, s.depth)).collect();
        let gains = theirs.into_iter().map(|(f, depth)| (mean(&rivals, f) - share(t, f), depth, f)).collect();
        if let Some((_, _, f)) = best(gains) {
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
