//! Slow units without a screen: their list, their lines of JSON, and the diagnosis of one.

mod common;
#[path = "../graph/tests/drawn/draw/mod.rs"]
mod draw;
#[path = "fixtures/slow.rs"]
mod slow;

use common::{contract, pg_tui, sample, text};
use pg_tui::session::{Header, Writer};
use serde_json::Value;
use std::process::Output;

struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let mut w = Writer::create(&dir.path().join("slow.pgs"), &Header::default()).expect("made");
        for item in slow::items() {
            w.item(&item).expect("written");
        }
        w.finish().expect("written");
        sample::write(&dir.path().join("shop.pgs"), "shop");
        Self(dir)
    }

    fn run(&self, args: &[&str]) -> Output {
        pg_tui(self.0.path()).current_dir(self.0.path()).args(args).output().expect("pg-tui starts")
    }

    fn exits(&self, args: &[&str], code: i32) -> String {
        let out = self.run(args);
        assert_eq!(out.status.code(), Some(code), "{args:?}: {}", text(&out));
        text(&out)
    }
}

/// The fields that scripts stand on.
#[test]
fn each_violation_is_a_line_of_json() {
    let p = Place::new();
    let out = p.exits(&["violations", "slow.pgs", "--json"], 0);
    let lines: Vec<Value> = out.lines().map(|l| serde_json::from_str(l).expect("JSON")).collect();
    assert_eq!(lines.len(), 5, "{out}");
    for (i, v) in lines.iter().enumerate() {
        for k in ["number", "time", "pid", "tid", "start_ns", "elapsed_ns", "threshold_ns"] {
            assert!(v[k].is_u64(), "{k}: {v}");
        }
        for k in ["process", "thread", "type", "at"] {
            assert!(v[k].is_string(), "{k}: {v}");
        }
        assert!(["context", "switch", "sample", "asleep"].contains(&v["at"].as_str().unwrap()), "{v}");
        assert!(v["stack"].as_array().is_some_and(|s| s.iter().all(Value::is_string)), "{v}");
        assert_eq!(v["number"], i + 1);
        assert!(v["excess"].as_f64().is_some_and(|x| x > 1.0), "{v}");
        assert!(v["time"].as_u64() >= v["start_ns"].as_u64());
    }
    let times: Vec<_> = lines.iter().map(|v| v["time"].as_u64()).collect();
    assert!(times.is_sorted());
    // One was looked at often enough, another was sampled; of the others too few stacks are known.
    let most: Vec<(usize, &Value)> =
        lines.iter().enumerate().filter_map(|(i, v)| Some((i, v.get("mostly")?))).collect();
    let [(0, looked), (1, sampled)] = most[..] else { panic!("{out}") };
    assert_eq!((&looked["function"], &looked["stacks"]), (&"Cache::get (shopd)".into(), &4.into()));
    assert_eq!(looked["stack"].as_array().map(Vec::len), Some(4), "{looked}");
    assert_eq!(sampled["function"], "backtrack (libpcre2-8.so.0)");
    assert!(sampled["stacks"].as_u64() > Some(20), "{sampled}");
    assert!([looked, sampled].iter().all(|m| m["share"].as_f64() > Some(0.98)), "{looked} {sampled}");
    let said = p.exits(&["violations", "slow.pgs"], 0);
    assert!(said.contains(", 100 % in Cache::get (shopd) and what it calls (4 stacks)"), "{said}");
    let get = &lines[0];
    assert_eq!(
        (&get["type"], &get["distance"], &get["thread"]),
        (&"GET /".into(), &5.into(), &"worker-1".into())
    );
    assert_eq!(get["stack"][5], "event_loop (shopd)");
    // Of one that goes on, and whose type and loop are not known, that is said.
    let last = &lines[4];
    assert!(last["duration_ns"].is_null() && last["distance"].is_null() && last["type"] == "", "{last}");
}

/// Who handed one on is told, and of its transaction the part is diagnosed that took longest.
#[test]
fn slow_units_that_were_handed_on() {
    let p = Place::new();
    let out = p.exits(&["violations", "slow.pgs", "--json"], 0);
    let lines: Vec<Value> = out.lines().map(|l| serde_json::from_str(l).expect("JSON")).collect();
    let by: Vec<Option<u64>> = lines.iter().map(|v| v["handed_on"]["queued_ns"].as_u64()).collect();
    assert_eq!(by, [None, None, Some(30_000_000), Some(20_000_000), None]);
    assert_eq!(
        (&lines[2]["handed_on"]["type"], &lines[2]["handed_on"]["thread"]),
        (&"accept".into(), &"listener".into())
    );
    let list = p.exits(&["violations", "slow.pgs"], 0);
    assert!(list.contains("30 ms before it was taken (30 ms without a CPU), at 3.970 s"), "{list}");
    let said = p.exits(&["diagnose", "slow.pgs", "--violation", "4", "--transaction"], 0);
    assert!(
        said.contains("880 ms of that in the unit of shopd/listener") && said.contains("parse_headers"),
        "{said}"
    );
    let said = p.exits(&["diagnose", "slow.pgs", "--violation", "3", "--transaction"], 0);
    assert!(said.contains("in the slow unit, shopd/worker-1"), "{said}");
    let said = p.exits(&["diagnose", "slow.pgs", "--violation", "1", "--transaction"], 1);
    assert!(said.contains("no other thread is known"), "{said}");
    p.exits(&["diagnose", "slow.pgs", "--transaction"], 2);
}

#[test]
fn names_do_no_harm() {
    let p = Place::new();
    for args in [&["violations", "slow.pgs"][..], &["violations", "slow.pgs", "--json"]] {
        let out = p.exits(args, 0);
        assert!(!out.contains(|c: char| c.is_control() && c != '\n'), "{args:?}: {out:?}");
        assert!(out.contains("report") && out.contains("asleep"), "{out}");
    }
    let list = p.exits(&["violations", "slow.pgs"], 0);
    assert!(list.contains("type GET /: 212 ms, may take 16 ms (13.25 x), seen asleep"), "{list}");
    assert!(list.contains("unknown type: 1.01 s and went on"), "{list}");
}

#[test]
fn a_violation_is_diagnosed_by_its_number() {
    let p = Place::new();
    for n in 1..=5 {
        let number = n.to_string();
        let out = p.exits(&["diagnose", "slow.pgs", "--violation", &number, "--json"], 0);
        let report: Value = serde_json::from_str(&out).expect("JSON");
        contract::check(&report);
        let unit = &report["victim"]["unit"];
        assert_eq!(unit["number"], n, "{unit}");
        assert!(unit["words"].as_str().is_some_and(|w| w.starts_with("its unit (")), "{unit}");
        for part in unit["parts"].as_array().expect("parts") {
            assert!(part["ns"].is_u64() && part["what"].is_string(), "{part}");
            assert_eq!(part["normal_ns"].is_null(), unit["normal"].is_null(), "{unit}");
        }
    }
    // The other worker has the lock while its regular expression backtracks.
    let text = p.exits(&["diagnose", "slow.pgs", "--violation", "1"], 0);
    assert!(text.contains("slow unit of 212 ms") && text.contains("backtrack"), "{text}");
    assert!(text.contains("took 4.9 ms: this one spent 207 ms more"), "{text}");
    assert!(p.exits(&["diagnose", "slow.pgs", "--violation", "6"], 2).contains("it has 5"));
    assert!(p.exits(&["diagnose", "slow.pgs", "--violation", "0"], 2).contains("--violation"));
    p.exits(&["diagnose", "slow.pgs", "--violation", "1", "--pid", "7"], 2);
}

/// What was withdrawn is listed on request only.
#[test]
fn what_only_seemed_to_take_too_long() {
    let mut d = draw::Drawing::new(3.0);
    let t = d.process("shopd", "shopd", None, 0.0);
    let [get, report] =
        [("GET /", 0.02, 0.04), ("report", 0.3, 0.5)].map(|(name, mean, most)| d.unit_type(name, mean, most));
    let stack = d.stack(&["parse (shopd)", "serve (shopd)", "loop (shopd)"]);
    d.violation(t, get, (1.0, 1.041), (stack, 2), pg_event::SeenBy::Sample);
    d.violation(t, report, (1.0, 1.1), (pg_event::StackId::NONE, 0), pg_event::SeenBy::Withdrawn);
    d.unit(t, report, (1.0, 1.35));
    let p = Place::new();
    let mut w = Writer::create(&p.0.path().join("taken.pgs"), &Header::default()).expect("made");
    for item in d.items() {
        w.item(&item).expect("written");
    }
    w.finish().expect("written");
    let said = p.exits(&["violations", "taken.pgs"], 1);
    assert!(said.contains("1 unit only seemed to take too long") && !said.contains("parse"), "{said}");
    let said = p.exits(&["violations", "taken.pgs", "--withdrawn"], 0);
    assert!(said.contains("withdrawn: it is of type report, which may take 500 ms"), "{said}");
    assert!(said.contains("type GET /: 350 ms, may take 40 ms") && said.contains("parse"), "{said}");
    let said = p.exits(&["violations", "taken.pgs", "--withdrawn", "--json"], 0);
    let line: Value = serde_json::from_str(said.trim()).expect("JSON");
    assert_eq!((&line["number"], &line["withdrawn"]["type"]), (&0.into(), &"report".into()), "{line}");
    assert_eq!(line["withdrawn"]["threshold_ns"], 500_000_000);
    // Of what holds it says nothing, and there is none of it.
    assert!(!p.exits(&["violations", "slow.pgs", "--json"], 0).contains("withdrawn"));
    assert!(p.exits(&["violations", "slow.pgs", "--withdrawn"], 1).contains("slow.pgs: of no unit"));
}

#[test]
fn without_any_the_exit_code_says_so() {
    let p = Place::new();
    assert!(p.exits(&["violations", "shop.pgs"], 1).contains("pg-tui guard"));
    assert!(p.exits(&["violations", "shop.pgs", "--json"], 1).contains("no guard looked"));
    p.exits(&["violations", "gone.pgs"], 3);
}
