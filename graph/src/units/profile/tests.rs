//! Merging in any order, writing and reading, and reading what is no profile.

use super::*;
use crate::units::few::bounds;
use crate::units::{Caution, RefineOptions, Rule, TypeId, TypeOptions, threshold};
use pg_event::Sysno;
use proptest::prelude::*;

fn function(i: u32) -> Function {
    Function { module: format!("lib{}.so", i % 3), name: format!("f{i}") }
}

fn key(offset: u64) -> LoopKey {
    // Of two loops one is given.
    let given = (offset == 1).then(|| Given { begin: "f".into(), end: String::new() });
    LoopKey { build_id: "abcd".into(), offset, given }
}

/// A run's functions in an order of its own, and units as (loop, duration, stacks of functions, contexts).
type Run = (Vec<u32>, Vec<(u64, u64, Vec<Vec<u32>>, Vec<(u32, u32)>)>);

fn any_run() -> impl Strategy<Value = Run> {
    let functions = Just((0u32..8).collect::<Vec<_>>()).prop_shuffle();
    let stacks = prop::collection::vec(prop::collection::vec(0u32..8, 0..5), 0..3);
    let contexts = prop::collection::vec((0u32..8, 0u32..3), 0..4);
    (functions, prop::collection::vec((0u64..2, any::<u64>(), stacks, contexts), 0..12))
}

fn profile((order, units): &Run) -> Profile {
    let functions: Vec<Function> = order.iter().map(|&i| function(i)).collect();
    let id = |f: u32| FunctionId(order.iter().position(|o| *o == f).expect("all are there") as u32);
    let units: Vec<(LoopKey, Unit)> = units
        .iter()
        .map(|(l, duration, stacks, contexts)| {
            let paths = PathSet::new(stacks.iter().map(|s| CallPath::new(s.iter().map(|f| id(*f)))));
            let context = |&(f, depth): &(u32, u32)| Context { function: id(f), depth };
            let contexts = contexts.iter().map(context).collect();
            (key(*l), Unit { duration: *duration, paths, contexts })
        })
        .collect();
    let binary = Binary { path: format!("/bin/app{}", units.len() % 2), build_id: "abcd".into() };
    Profile::new([binary], &functions, units.iter().map(|(k, u)| (k.clone(), u)))
}

/// Something that a person says of a type.
#[derive(Clone, Debug)]
enum Said {
    Name(String),
    Limit(Limit),
    Silent(bool),
}

/// The profile with something said of what it knows.
fn with_settings(mut p: Profile, all_said: &[(prop::sample::Index, u64, Said)]) -> Profile {
    for (which, at, said) in all_said {
        let all: Vec<(LoopKey, Called)> =
            p.loops.iter().flat_map(|(k, l)| l.trees.keys().map(|t| (k.clone(), t.clone()))).collect();
        if !all.is_empty() {
            let (k, tree) = &all[which.index(all.len())];
            match said {
                Said::Name(text) => p.name_type(k, tree, *at, text),
                Said::Limit(limit) => p.limit_type(k, tree, *at, *limit),
                Said::Silent(silent) => p.silence_type(k, tree, *at, *silent),
            }
        }
    }
    p
}

/// The profile with functions and loops that are somewhere.
fn with_places(mut p: Profile, functions: &[(u32, u64)], loops: &[(u64, u64)]) -> Profile {
    let place = |at: u64| Place { build_id: format!("build{}", at % 2), entry: at };
    p.place_functions(functions.iter().map(|&(f, at)| (function(f), place(at))));
    for &(l, at) in loops {
        let native = (at % 3 == 2).then(|| NativeWay {
            interpreter: format!("py{}", at % 2),
            module: "select.so".into(),
            call: at,
        });
        let request = (at % 3 == 1).then(|| RequestWay {
            module: format!("build{}", at % 2),
            calls: vec![at, 7],
            turn: (at % 2 == 0).then_some(1),
        });
        let boundary = Boundary { calls: vec![at, at + 1], syscall: Sysno(at as u16), native, request };
        p.place_loop(&key(l), LoopFunction { function: function(1), entry: at }, [boundary]);
    }
    p
}

fn any_said() -> impl Strategy<Value = Vec<(prop::sample::Index, u64, Said)>> {
    let said = prop_oneof![
        "[ab]{0,2}".prop_map(Said::Name),
        prop_oneof![Just(Limit::Auto), (0u64..3).prop_map(Limit::Fixed), (0u32..3).prop_map(Limit::Sigma)]
            .prop_map(Said::Limit),
        any::<bool>().prop_map(Said::Silent),
    ];
    prop::collection::vec((any::<prop::sample::Index>(), 0u64..3, said), 0..4)
}

/// What was learnt of one loop, as of one at another place and by functions of which some have no other name.
fn only(p: &Profile, offset: u64) -> Profile {
    let mut all = p.clone();
    let loops = std::mem::take(&mut all.loops).into_values().take(1);
    all.loops = loops.map(|l| (key(offset), LoopProfile { settings: BTreeMap::new(), ..l })).collect();
    all.functions.iter_mut().step_by(2).for_each(|f| f.name.insert(0, 'a'));
    all.in_one_form(crate::units::MAX_FRAMES)
}

fn any_profile() -> impl Strategy<Value = Profile> {
    let functions = prop::collection::vec((0u32..8, 0u64..4), 0..6);
    let loops = prop::collection::vec((0u64..2, 0u64..4), 0..3);
    (any_run(), any_said(), functions, loops).prop_map(|(run, said, functions, loops)| {
        with_places(with_settings(profile(&run), &said), &functions, &loops)
    })
}

proptest! {
    #[test]
    fn units_profiles_merge_in_any_order(a in any_profile(), b in any_profile(), c in any_profile()) {
        prop_assert_eq!(a.merge(&b), b.merge(&a));
        let (left, right) = (a.merge(&b).merge(&c), a.merge(&b.merge(&c)));
        prop_assert_eq!(&left, &right);
        prop_assert_eq!(left.encode(), right.encode());
        prop_assert_eq!(a.merge(&Profile::default()), a.clone());
        let placeless = |mut p: Profile| {
            p.places.iter_mut().for_each(BTreeSet::clear);
            p
        };
        let cut_first = a.cut_to(2).merge(&b.cut_to(2));
        prop_assert_eq!(placeless(a.merge(&b).cut_to(2)), placeless(cut_first));
        prop_assert_eq!(left.units(), a.units() + b.units() + c.units());
    }

    /// Runs on several machines give what one run with all units gives, whatever the machines' function tables.
    #[test]
    fn units_of_many_runs_are_those_of_one(runs in prop::collection::vec(any_run(), 1..5)) {
        let merged = runs.iter().map(profile).fold(Profile::default(), |sum, p| sum.merge(&p));
        let units = runs.iter().flat_map(|r| r.1.clone()).collect();
        let mut whole = profile(&((0..8).collect(), units));
        whole.binaries = merged.binaries.clone();
        prop_assert_eq!(merged, whole);
    }

    #[test]
    fn units_profiles_are_read_as_written(p in any_profile()) {
        let bytes = p.encode().expect("it is small");
        prop_assert_eq!(Profile::decode(&bytes), Ok(p.clone()));
        for end in 0..bytes.len() {
            prop_assert!(Profile::decode(&bytes[..end]).is_err(), "cut at {}", end);
        }
        let text = p.show(TypeOptions::default(), Rule::default());
        prop_assert!(text.chars().all(|c| c == '\n' || !c.is_control()));
    }

    /// Damage is refused or gives a profile that can be written and shown again, and never more than that.
    #[test]
    fn units_profiles_that_are_damaged(p in any_profile(), hits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6)) {
        let mut bytes = p.encode().expect("it is small");
        for (at, byte) in hits {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Ok(read) = Profile::decode(&bytes) {
            prop_assert_eq!(Profile::decode(&read.encode().expect("it was read")), Ok(read.clone()));
            let text = read.show(TypeOptions::default(), Rule::Quantile { q: 0.99, confidence: 0.9 });
            prop_assert!(text.chars().all(|c| c == '\n' || !c.is_control()));
        }
    }

    /// What is said of types is read without clustering, and is what clustering gives, also where other loops were learnt
    /// meanwhile and functions have other numbers.
    #[test]
    fn units_what_is_said_is_read_alone(p in any_profile(), later in any_profile(), said in any_said()) {
        let now = with_settings(p.merge(&only(&later, 5)), &said);
        let clustered = |p: &Profile, of| p.types(of, TypeOptions::default()).map(|t| t.known);
        for of in p.loops() {
            let known = clustered(&p, of).expect("it is there");
            prop_assert_eq!(now.said_since(&p, of, &known), clustered(&now, of));
            prop_assert_eq!(now.said_since(&p, &key(9), &known), None);
            // More units may be other types.
            let twice = p.merge(&p);
            prop_assert_eq!(twice.said_since(&p, of, &known), None);
        }
    }

    #[test]
    fn units_noise_is_no_profile(noise in prop::collection::vec(any::<u8>(), 0..200)) {
        prop_assert_eq!(Profile::decode(&noise), Err(DecodeError::NotAProfile));
        let body = [&b"PGPROF\x01\x00"[..], &noise].concat();
        if let Ok(read) = Profile::decode(&body) {
            prop_assert_eq!(Profile::decode(&read.encode().expect("it was read")), Ok(read));
        }
    }
}

#[test]
fn claims_of_length_are_not_believed() {
    // An array of four, the first of which claims four billion items.
    let claim = b"PGPROF\x01\x00\x96\xdd\xff\xff\xff\xff";
    assert!(matches!(Profile::decode(claim), Err(DecodeError::Damaged(_))));
    assert_eq!(Profile::decode(b"PGPROF\x06\x00"), Err(DecodeError::Version(6)));
    assert_eq!(Profile::decode(b"PGPROF"), Err(DecodeError::NotAProfile));
    assert!(matches!(Profile::decode(&vec![0; MAX_BYTES + 1]), Err(DecodeError::TooLong(_))));
    // As many empty texts as fit: refused at the first that is too many.
    let many = [&b"PGPROF\x01\x00\x96\x90\xdd\x00\x10\x00\x00"[..], &vec![0xa0; 1 << 20]].concat();
    assert!(Profile::decode(&many).unwrap_err().to_string().contains("more than 4096 items"));
    // Deep nesting.
    let deep = [&b"PGPROF\x01\x00"[..], &vec![0x91; 100_000]].concat();
    assert!(Profile::decode(&deep).is_err());
    let long = Function { module: "m".into(), name: "é".repeat(9000) };
    let paths = PathSet::new([CallPath::new([FunctionId(0)])]);
    let unit = Unit { duration: 1, paths, contexts: BTreeSet::new() };
    let p = Profile::new([], &[long], [(key(0), &unit)]);
    assert_eq!(p.functions()[0].name.len(), MAX_TEXT);
    assert_eq!(Profile::decode(&p.encode().unwrap()), Ok(p));
}

#[test]
fn a_file_that_was_cut_short_is_told_so() {
    let bytes = server().encode().unwrap();
    for n in [8, bytes.len() / 3, bytes.len() / 2, bytes.len() - 1] {
        let refused = Profile::decode(&bytes[..n]).unwrap_err().to_string();
        assert!(refused.contains("it ends too early") && !refused.contains("marker"), "{n}: {refused}");
    }
}

#[test]
fn functions_without_a_name_are_told_by_their_file() {
    let of = |name: &str| Function { module: "nginx".into(), name: name.into() };
    assert_eq!(of("+0x51af0").label(), "nginx+0x51af0");
    assert_eq!(of("ngx_worker").label(), "ngx_worker");
    // So are the types that are called by them.
    let unit = |f: u32| {
        let paths = PathSet::new([CallPath::new([FunctionId(0), FunctionId(f)])]);
        Unit { duration: 5, paths, contexts: BTreeSet::new() }
    };
    let p = Profile::new([], &["+0x10", "+0x20", "+0x30"].map(of), [(key(0), &unit(1)), (key(0), &unit(2))]);
    let text = p.show(TypeOptions::default(), Rule::default());
    assert!(text.contains("nginx+0x10 > nginx+0x30"), "{text}");
    assert!(
        p.types(&key(0), TypeOptions::default()).unwrap().known.names.contains(&"nginx+0x20".into()),
        "{text}"
    );
}

#[test]
fn what_an_older_program_can_read_is_written_for_it() {
    let unit = Unit { duration: 1, paths: PathSet::default(), contexts: BTreeSet::new() };
    let version = |loops: &[u64]| {
        let bytes = Profile::new([], &[], loops.iter().map(|l| (key(*l), &unit))).encode().unwrap();
        bytes[6..8].to_vec()
    };
    assert_eq!((version(&[0]), version(&[0, 1])), (vec![1, 0], vec![2, 0]));
    // Of a loop of Python, as guards know its wait again.
    let native = NativeWay { interpreter: "cafe".into(), module: "select.so".into(), call: 7 };
    let mut p = server();
    let of = p.loops().next().unwrap().clone();
    let boundary = Boundary { calls: vec![64], syscall: Sysno(7), native: Some(native), request: None };
    p.place_loop(&of, LoopFunction::default(), [boundary.clone()]);
    let bytes = p.encode().unwrap();
    assert_eq!(bytes[6..8], [3, 0]);
    let read = Profile::decode(&bytes).unwrap();
    assert!(read.boundaries(&of).any(|b| *b == boundary) && read == p);
    // Of a loop of connections, whose waits for requests are beside a wait by the same calls.
    let request = RequestWay { module: "abcd".into(), calls: vec![64, 99], turn: Some(1) };
    let next = Boundary { request: Some(request), ..boundary.clone() };
    p.place_loop(&of, LoopFunction::default(), [next.clone()]);
    let mut bytes = p.encode().unwrap();
    assert_eq!(bytes[6..8], [5, 0]);
    let read = Profile::decode(&bytes).unwrap();
    assert!(read.boundaries(&of).eq([&boundary, &next].into_iter().collect::<BTreeSet<_>>()) && read == p);
    // Of a wait that is not there.
    let at = bytes.windows(2).rposition(|w| w == [0, 1]).unwrap();
    bytes[at + 1] = 9;
    assert!(matches!(Profile::decode(&bytes), Err(DecodeError::Damaged(_))));
}

/// Two handlers of a server, 40 units each.
fn server() -> Profile {
    let names = ["main", "serve", "read_file", "stat", "run_cgi", "fork"];
    let functions = names.map(|n| Function { module: "httpd".into(), name: n.into() });
    let set = |paths: &[&[u32]]| {
        PathSet::new(paths.iter().map(|p| CallPath::new(p.iter().map(|f| FunctionId(*f)))))
    };
    let file = set(&[&[0, 1, 2], &[0, 1, 2, 3]]);
    let cgi = set(&[&[0, 1, 4, 5]]);
    let at = |function, depth| Context { function: FunctionId(function), depth };
    let file_contexts = BTreeSet::from([at(2, 96), at(3, 160)]);
    // The last is of a function that is not on the path.
    let cgi_contexts = BTreeSet::from([at(4, 64), at(3, 8)]);
    let units: Vec<Unit> = (0..40u64)
        .flat_map(|i| {
            let unit = |duration, paths: &PathSet, contexts: &BTreeSet<Context>| Unit {
                duration,
                paths: paths.clone(),
                contexts: contexts.clone(),
            };
            [
                unit(100_000 + i * 1000, &file, &file_contexts),
                unit(5_000_000 + i * 10_000, &cgi, &cgi_contexts),
            ]
        })
        .collect();
    let binary = Binary { path: "/usr/sbin/httpd".into(), build_id: "abcd".into() };
    Profile::new([binary], &functions, units.iter().map(|u| (key(0x1234), u)))
}

#[test]
fn a_profile_as_text() {
    let text = server().show(TypeOptions::default(), Rule::default());
    let expected = "\
units: 80, loops: 1, functions: 6
binary /usr/sbin/httpd (build-id abcd)

loop at httpd+0x1234: 2 types, 2 distinct call trees
  no     units      mean     sigma      c    median       p99  greatest threshold  type
   1        40    5.2 ms    117 µs  2.3 %    5.2 ms    5.4 ms    5.4 ms    5.8 ms  run_cgi (bounded from few units)
               main > serve > run_cgi > fork
   2        40    120 µs     12 µs  9.8 %    119 µs    139 µs    139 µs    193 µs  read_file (bounded from few units)
               main > serve > read_file
               main > serve > read_file > stat
mean c of the 2 costliest types: 6.0 %
";
    assert_eq!(text, expected);
}

#[test]
fn one_type_is_told_as_one() {
    let functions = [Function { module: "httpd".into(), name: "serve".into() }];
    let paths = PathSet::new([CallPath::new([FunctionId(0)])]);
    let unit = Unit { duration: 120_000, paths, contexts: BTreeSet::new() };
    let binary = Binary { path: "/usr/sbin/httpd".into(), build_id: "abcd".into() };
    let p = Profile::new([binary], &functions, (0..40).map(|_| (key(0x1234), &unit)));
    let text = p.show(TypeOptions::default(), Rule::default());
    assert!(
        text.contains(": 1 type, 1 distinct call tree\n") && text.contains("of its one type: "),
        "{text}"
    );
}

#[test]
fn names_that_people_give_stay_with_the_type() {
    let mut p = server();
    let types = p.types(&key(0x1234), TypeOptions::default()).unwrap();
    assert_eq!(types.known.stats.iter().map(UnitStats::count).collect::<Vec<_>>(), [40, 40]);
    let cgi = types.known.names.iter().position(|n| n == "run_cgi").unwrap();
    let tree = types.types.trees()[types.types.types()[cgi].representative].called();
    let contexts = |t: usize| -> Vec<(&str, u32)> {
        let name = |c: &Context| (p.functions()[c.function.0 as usize].name.as_str(), c.depth);
        types.contexts[t].iter().map(name).collect()
    };
    assert_eq!(contexts(cgi), [("run_cgi", 64)]);
    assert_eq!(contexts(1 - cgi), [("read_file", 96), ("stat", 160)]);
    let name = |p: &Profile| p.types(&key(0x1234), TypeOptions::default()).unwrap().known.names[cgi].clone();
    let other = p.clone();
    p.name_type(&key(0x1234), &tree, 5, "the\u{1b} gateway");
    assert_eq!(name(&p), "the? gateway");
    // An earlier name does not count; it is kept through merging and writing; an empty one takes it back.
    p.name_type(&key(0x1234), &tree, 4, "old");
    let p2 = Profile::decode(&other.merge(&p).encode().unwrap()).unwrap();
    assert_eq!(name(&p2), "the? gateway");
    p.name_type(&key(0x1234), &tree, 6, "");
    assert_eq!(name(&p), "run_cgi");
    assert!(p.types(&key(7), TypeOptions::default()).is_none());
}

#[test]
fn what_is_too_large_is_told_and_can_be_cut() {
    // Every unit ends in a function of its own.
    let functions: Vec<Function> = (0..20_000).map(function).collect();
    let unit = |i: u32| {
        let path = CallPath::new([FunctionId(0), FunctionId(1), FunctionId(i)]);
        Unit { duration: 5, paths: PathSet::new([path]), contexts: BTreeSet::new() }
    };
    let units: Vec<Unit> = (2..20_000).map(unit).collect();
    let p = Profile::new([], &functions, units.iter().map(|u| (key(0), u)));
    let refused = p.encode().unwrap_err();
    assert_eq!(
        refused,
        EncodeError::TooMany { what: "distinct call trees of one loop", have: 19_998, most: 16_384 }
    );
    let cut = p.cut_to(2);
    assert_eq!((cut.units(), cut.functions().len()), (19_998, 2));
    assert_eq!(Profile::decode(&cut.encode().unwrap()), Ok(cut.clone()));
    let types = cut.types(&key(0), TypeOptions::default()).unwrap();
    let t = threshold(&types.known.stats[0], Rule::Quantile { q: 0.9999, confidence: 0.95 }).unwrap();
    assert_eq!((t.ns, t.caution), (5, Some(Caution::TooFew { have: 19_998, need: 29_956 })));
}

/// Between the loop and a function calls may be that are not seen: how deep the stack is tells them.
#[test]
fn units_of_the_same_paths_at_other_depths_are_told_apart() {
    let functions: Vec<Function> = (0..3).map(function).collect();
    let unit = |f: u32, depth, duration| Unit {
        duration,
        paths: PathSet::new([CallPath::new([FunctionId(0), FunctionId(f)])]),
        contexts: [Context { function: FunctionId(f), depth }].into(),
    };
    let of = |depth, duration: u64| (0..50).map(move |i| unit(1, depth, duration + i));
    let others = (0..50).map(|i| unit(2, 8, 10 + i % 3));
    let units: Vec<Unit> = of(64, 1000).chain(of(96, 5000)).chain(others).collect();
    let mut p = Profile::new([], &functions, units.iter().map(|u| (key(0), u)));
    let types = |p: &Profile| p.types(&key(0), TypeOptions::default()).unwrap();
    let stats = |p: &Profile| -> Vec<(u64, Option<u64>)> {
        let mut all: Vec<_> = types(p).known.stats.iter().map(|s| (s.count(), s.least())).collect();
        all.sort_unstable();
        all
    };
    assert_eq!(stats(&p), [(50, Some(10)), (50, Some(1000)), (50, Some(5000))]);
    let bytes = p.encode().unwrap();
    assert_eq!((bytes[6], Profile::decode(&bytes).as_ref()), (1, Ok(&p)), "earlier programs can read it");
    // What is said of the one is not said of the other, whoever merges with whom.
    let slow = types(&p);
    let slow = slow.types.trees().iter().find(|t| t.contexts.iter().any(|c| c.depth == 96)).unwrap().called();
    let before = p.clone();
    p.silence_type(&key(0), &slow, 5, true);
    let bytes = p.encode().unwrap();
    assert_eq!(bytes[6], 4);
    for p in [Profile::decode(&bytes).unwrap(), before.merge(&p), p.merge(&before)] {
        let of = types(&p).known;
        let silent: Vec<_> =
            of.stats.iter().zip(&of.silent).filter(|(_, s)| **s).map(|(s, _)| s.least()).collect();
        assert_eq!(silent, [Some(5000)]);
    }
}

/// A file may say something of a tree that it has not: read and written again, it is not said of another one.
#[test]
fn what_is_said_of_a_tree_that_is_not_there_is_left_out() {
    let paths = PathSet::new([CallPath::new([FunctionId(0)])]);
    let unit = Unit { duration: 1, paths: paths.clone(), contexts: BTreeSet::new() };
    let mut p = Profile::new([], &[function(0)], [(key(0), &unit)]);
    let before = p.clone();
    let other = Called { paths, contexts: [Context { function: FunctionId(0), depth: 8 }].into() };
    p.loops.get_mut(&key(0)).unwrap().settings.insert(other, Settings::default());
    assert_eq!(p.in_one_form(super::super::MAX_FRAMES), before);
}

/// Types that were found by other rules stay: nothing is clustered anew.
#[test]
fn types_stay_as_they_were_found() {
    let mut p = server();
    let before = p.clone();
    let apart = TypeOptions { cut_off: 1.0, ..TypeOptions::default() };
    let known =
        p.types(&key(0x1234), TypeOptions { refine: RefineOptions { most: 0, ..apart.refine }, ..apart });
    let known = known.unwrap().known;
    assert_eq!(known.stats.len(), 1, "by default there are two");
    let tree = p.loops[&key(0x1234)].trees.keys().next_back().unwrap().clone();
    p.name_type(&key(0x1234), &tree, 5, "all");
    p.silence_type(&key(0x1234), &tree, 5, true);
    let heard = p.said_since(&before, &key(0x1234), &known).unwrap();
    assert_eq!(
        (heard.names.as_slice(), heard.silent.as_slice()),
        (["all".to_owned()].as_slice(), [true].as_slice())
    );
    assert_eq!(heard.stats, known.stats);
}

#[test]
fn limits_and_silence_stay_with_the_type() {
    let mut p = server();
    let of = p.types(&key(0x1234), TypeOptions::default()).unwrap();
    let at = of.known.names.iter().position(|n| n == "run_cgi").unwrap();
    let tree = of.types.trees()[of.types.types()[at].representative].called();
    let auto = of.known.threshold(TypeId(at as u32), Rule::default()).unwrap().ns;
    let other = p.clone();
    p.limit_type(&key(0x1234), &tree, 5, Limit::Fixed(5_100_000));
    p.silence_type(&key(0x1234), &tree, 5, true);
    // What was said before does not count, whoever merges with whom; nor what is said of a tree that nobody has.
    let mut earlier = other.clone();
    earlier.limit_type(&key(0x1234), &tree, 4, Limit::Fixed(1));
    earlier.silence_type(&key(0x1234), &Called::default(), 9, true);
    let merged = Profile::decode(&earlier.merge(&p).encode().unwrap()).unwrap();
    assert_eq!(merged, p.merge(&earlier));
    let of = merged.types(&key(0x1234), TypeOptions::default()).unwrap();
    assert_eq!((of.known.limits[at], of.known.silent[at]), (Limit::Fixed(5_100_000), true));
    assert_eq!((of.known.limits[1 - at], of.known.silent[1 - at]), (Limit::Auto, false));
    assert_eq!(of.known.threshold(TypeId(at as u32), Rule::default()).unwrap().ns, 5_100_000);
    let rows = of.table(Rule::default());
    let row = rows.iter().find(|r| r.of == at).unwrap();
    assert_eq!(row.threshold.ns, 5_100_000);
    let text = merged.show(TypeOptions::default(), Rule::default());
    assert!(text.contains("run_cgi") && text.contains("(threshold set by hand) (silent)"), "{text}");
    // Auto and no silence take both back.
    p.limit_type(&key(0x1234), &tree, 6, Limit::Auto);
    p.silence_type(&key(0x1234), &tree, 6, false);
    let of = p.types(&key(0x1234), TypeOptions::default()).unwrap();
    assert_eq!(of.known.threshold(TypeId(at as u32), Rule::default()).unwrap().ns, auto);
    assert!(!of.known.silent[at]);
}

#[test]
fn units_of_a_rare_type_may_take_as_long_as_any_of_the_loop() {
    let functions: Vec<Function> = (0..4).map(function).collect();
    let unit = |f: u32, duration| Unit {
        duration,
        paths: PathSet::new([CallPath::new([FunctionId(0), FunctionId(f)])]),
        contexts: BTreeSet::new(),
    };
    // Hundreds of one kind, three of the second that happened to be quick, three of the third that are slow.
    let units: Vec<Unit> = (0..400).map(|i| unit(1, 100 + i % 7)).collect();
    let units: Vec<Unit> = units
        .into_iter()
        .chain([(2, 10), (2, 11), (2, 12), (3, 5000), (3, 6000), (3, 7000)].map(|(f, d)| unit(f, d)))
        .collect();
    let mut p = Profile::new([], &functions, units.iter().map(|u| (key(0), u)));
    let all = UnitStats::of(units.iter().map(|u| u.duration));
    // Of 406 units: somewhat more than what they themselves say.
    let pooled = bounds(&all).unwrap().0;
    assert!(pooled > threshold(&all, Rule::default()).unwrap().ns);
    let of = p.types(&key(0), TypeOptions::default()).unwrap();
    let at = |mean: f64| {
        of.known.stats.iter().position(|s| s.mean().is_some_and(|m| (m - mean).abs() < 4.0)).unwrap()
    };
    let ns = |of: &LoopTypes, t: usize, rule| of.known.threshold(TypeId(t as u32), rule).unwrap().ns;
    let (usual, rare, slow) = (at(103.0), at(11.0), at(6000.0));
    assert_eq!(ns(&of, usual, Rule::default()), bounds(&of.known.stats[usual]).unwrap().1);
    assert_eq!(ns(&of, rare, Rule::default()), pooled);
    // Its own is more.
    assert_eq!(ns(&of, slow, Rule::default()), threshold(&of.known.stats[slow], Rule::default()).unwrap().ns);
    assert!(ns(&of, slow, Rule::default()) > pooled);
    let few = of.known.threshold(TypeId(rare as u32), Rule::default()).unwrap().caution;
    assert_eq!(few, Some(Caution::TooFew { have: 3, need: 30 }));
    // Of a loop of which little is known: its times may be skewed.
    let little = Profile::new([], &functions, units[390..].iter().map(|u| (key(0), u)));
    let of_little = little.types(&key(0), TypeOptions::default()).unwrap();
    let quick = of_little.known.stats.iter().position(|s| s.greatest() == Some(12)).unwrap();
    let all = UnitStats::of(units[390..].iter().map(|u| u.duration));
    let (plain, skewed) = bounds(&all).unwrap();
    assert!(plain < 4 * 7000 && skewed > 4 * 7000, "{plain} {skewed}");
    assert_eq!(ns(&of_little, quick, Rule::default()), 4 * 7000);
    // What a person says of it counts.
    let tree = of.types.trees()[of.types.types()[rare].representative].called();
    p.limit_type(&key(0), &tree, 1, Limit::Sigma(4000));
    let of = p.types(&key(0), TypeOptions::default()).unwrap();
    assert_eq!(ns(&of, rare, Rule::default()), threshold(&of.known.stats[rare], Rule::default()).unwrap().ns);
}

#[test]
fn places_are_joined_and_are_no_part_of_what_a_function_is() {
    let place = |build: &str, entry| Place { build_id: build.into(), entry };
    let build = |of: &str, entry| {
        let mut p = server();
        let cgi = p.functions().iter().find(|f| f.name == "run_cgi").unwrap().clone();
        let nowhere = Function { module: "httpd".into(), name: "nowhere".into() };
        p.place_functions([(cgi, place(of, entry)), (nowhere, place(of, 1))]);
        let main = Function { module: "httpd".into(), name: "main".into() };
        let boundary = Boundary { calls: vec![entry], syscall: Sysno(7), native: None, request: None };
        p.place_loop(&key(0x1234), LoopFunction { function: main, entry: 0x1200 }, [boundary]);
        p
    };
    let merged = build("aa", 64).merge(&build("bb", 96));
    assert_eq!((merged.units(), merged.functions().len()), (160, 6));
    let cgi = merged.functions().iter().position(|f| f.name == "run_cgi").unwrap();
    let places: Vec<&Place> = merged.places(FunctionId(cgi as u32)).collect();
    assert_eq!(places, [&place("aa", 64), &place("bb", 96)]);
    assert_eq!(merged.boundaries(&key(0x1234)).map(|b| b.calls[0]).collect::<Vec<_>>(), [64, 96]);
    assert_eq!(merged.loop_function(&key(0x1234)).map(|f| f.entry), Some(0x1200));
    let text = merged.show(TypeOptions::default(), Rule::default());
    assert!(text.contains("loop main (httpd+0x1234): 2 types"), "{text}");
}

#[test]
fn units_without_a_stack_are_told_by_what_they_did() {
    let functions = [
        Function { module: "httpd".into(), name: "main".into() },
        Function::unseen("recvfrom, writev"),
        Function::unseen("accept4"),
        Function { module: "httpd".into(), name: "run_cgi".into() },
    ];
    let unit = |f: u32, duration| Unit {
        duration,
        paths: PathSet::new([CallPath::new([FunctionId(0), FunctionId(f)])]),
        contexts: BTreeSet::new(),
    };
    let units = [unit(1, 40), unit(1, 44), unit(2, 9), unit(3, 900)];
    let p = Profile::new([], &functions, units.iter().map(|u| (key(0), u)));
    let of = p.types(&key(0), TypeOptions::default()).unwrap();
    let unseen = |t| of.unseen(TypeId(t as u32), p.functions());
    let mut told: Vec<(&str, bool)> =
        of.known.names.iter().enumerate().map(|(t, n)| (n.as_str(), unseen(t))).collect();
    told.sort_unstable();
    assert_eq!(told, [("(unseen: accept4)", true), ("(unseen: recvfrom, writev)", true), ("run_cgi", false)]);
    let listed = p.listed(TypeOptions::default(), Rule::default());
    let numbers: Vec<usize> = listed.iter().flat_map(|l| l.rows.iter().map(|r| r.0)).collect();
    assert_eq!(numbers, [1, 2, 3]);
    assert_eq!(
        p.show(TypeOptions::default(), Rule::default()).matches("what they called is not known").count(),
        2
    );
}
