//! Slow units by keys, and their views as pictures.

use super::harness::{Session, empty, slow};
use super::msg::Effect;
use super::state::View;
use crate::session::{Header, Writer};
use crate::unit_rule::UnitRule;
use pg_graph::units::Limit;

const SIZES: [(u16, u16, bool, &str); 4] = [
    (80, 24, false, "80x24"),
    (200, 60, false, "200x60"),
    (40, 10, false, "40x10"),
    (80, 24, true, "80x24_ascii"),
];

/// A view in all sizes.
fn picture(name: &str, keys: &str) {
    for (w, h, ascii, size) in SIZES {
        let mut s = Session::with(slow(), w, h, ascii);
        if !keys.is_empty() {
            s.keys(keys);
        }
        let screen = s.screen();
        assert!(!ascii || screen.is_ascii(), "{name}: not ASCII:\n{screen}");
        assert!(!screen.contains('\u{1b}'), "{name}: an escape sequence");
        insta::assert_snapshot!(format!("{name}_{size}"), screen);
    }
}

#[test]
fn violations() {
    picture("violations", "v j");
}

#[test]
fn units_side_by_side() {
    picture("units", "v j c");
}

#[test]
fn the_guard_is_adjusted() {
    picture("adjust_guard", "v j a 'k=5");
}

#[test]
fn slow_units_among_the_victims() {
    picture("victims_slow", "");
}

#[test]
fn verdict_of_a_slow_unit() {
    picture("verdict_slow", "v j enter A");
}

#[test]
fn without_violations_it_is_said_how_to_get_them() {
    let mut s = Session::with(empty(), 80, 24, false);
    for keys in ["v", "v enter", "v c", "v a", "v x", "v o", "v space", "v esc"] {
        s.keys(keys);
        assert!(s.shows("nothing.pgs"), "after `{keys}`:\n{}", s.screen());
    }
    s.keys("v");
    assert!(s.shows("pg-tui guard -p PID") && s.shows("pg-tui train"), "{}", s.screen());
}

#[test]
fn through_the_violations_by_keys() {
    let mut s = Session::with(slow(), 120, 40, false);
    s.keys("v");
    let order = |s: &Session| s.state.violations.rows.iter().map(|r| r.0).collect::<Vec<_>>();
    assert_eq!(order(&s), [4, 0, 3, 1, 2], "by excess: {}", s.screen());
    s.keys("o");
    assert_eq!(order(&s), [0, 1, 2, 3, 4]);
    s.keys("o home");
    assert!(s.shows("by type"), "{}", s.screen());
    s.keys("o");
    assert_eq!(order(&s)[..2], [2, 3], "by time queued: {}", s.screen());
    // Diagnosis: from the slow unit to who has the lock.
    s.keys("o home j");
    assert!(
        s.shows("asleep, 26.1 ms after it began") && s.shows("5 frames inside of the loop"),
        "{}",
        s.screen()
    );
    s.keys("enter A");
    assert_eq!(s.state.view, View::Verdict, "{}", s.screen());
    assert!(s.shows("match_route") || s.shows("backtrack"), "{}", s.screen());
    s.keys("v");
    // Side by side, and from there to the wait itself.
    s.keys("c");
    assert!(s.shows("futex in Cache::get") && s.shows("nearest to the median of"), "{}", s.screen());
    s.keys("enter");
    assert_eq!(s.state.view, View::Vertex, "{}", s.screen());
    s.keys("esc esc space");
    assert_eq!(s.state.view, View::Timeline, "{}", s.screen());
    // What is copied is the list, or the two units.
    for (keys, text) in
        [("g u y", "| type GET / | shopd/worker-1 | 3.026 s |  | 212 ms"), ("c y", "A normal one of shopd/")]
    {
        s.asked.clear();
        s.keys(keys);
        let copied =
            s.asked.iter().find_map(|e| if let Effect::Osc52(t) = e { Some(t.clone()) } else { None });
        assert!(copied.as_ref().is_some_and(|c| c.contains(text)), "{copied:?}");
    }
}

/// Who handed a slow unit on, how long it waited then, and where most of its transaction's time went.
#[test]
fn slow_units_that_were_handed_on() {
    let mut s = Session::with(slow(), 120, 40, false);
    // Number 2 waited 30 ms, number 3 for 20 ms; of others it is not known.
    s.keys("v o o o home");
    assert!(s.shows("by time queued") && s.shows("30.0 ms") && s.shows("20.0 ms"), "{}", s.screen());
    assert!(
        s.shows("handed on by shopd/listener")
            && s.shows("30 ms before it was taken (30 ms without a CPU), at 3.970 s"),
        "{}",
        s.screen()
    );
    // Most of its time it was slow itself: that is what is diagnosed.
    s.keys("D A");
    assert!(s.shows("journal"), "{}", s.screen());
    // The other one was parsed for long: the listener's unit is diagnosed, and a key leads to it.
    s.keys("v j D A");
    assert_eq!(s.state.view, View::Verdict, "{}", s.screen());
    let victim = s.state.diagnosis.victim().unwrap();
    let name = s.state.recording.as_ref().unwrap().thread_name(victim.thread).to_owned();
    assert_eq!((name.as_str(), victim.start), ("shopd/listener", 4_600_000_000), "{}", s.screen());
    assert!(s.shows("parse_headers"), "{}", s.screen());
    s.keys("v [");
    assert_eq!(s.state.view, View::Timeline, "{}", s.screen());
    let t = &s.state.timeline;
    assert_eq!((t.thread, t.cursor), (Some(victim_thread(&s)), 5_480_000_000), "{}", s.screen());
    // Of others nobody is known.
    s.keys("g u o home [");
    assert!(s.shows("no other thread is known") && s.state.view == View::Violations, "{}", s.screen());
    s.keys("D");
    assert!(s.shows("d diagnoses it") && s.state.view == View::Violations, "{}", s.screen());
}

fn victim_thread(s: &Session) -> pg_event::ThreadId {
    s.state.diagnosis.victim().unwrap().thread
}

/// What is decided is kept in the session, and the command for the profile is told.
#[test]
fn what_is_decided_about_a_guard_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("slow.pgs");
    let mut w = Writer::create(&path, &Header::default()).unwrap();
    for item in super::harness::slow_items() {
        w.item(&item).unwrap();
    }
    w.finish().unwrap();
    let open = || {
        let mut s = Session::with(
            super::load::load(&path, &crate::session::Symbols::default(), &|_, _| {}).unwrap(),
            120,
            40,
            false,
        );
        s.keys("v o o home");
        s
    };
    let mut s = open();
    let slow = *s.state.violations.current().unwrap();
    s.keys("a '3.5x enter");
    assert!(s.shows("is no threshold") && s.state.violations.rules.is_empty(), "{}", s.screen());
    s.keys("ctrl-u '300ms enter");
    assert!(s.shows("pg-tui profile threshold /etc/pg-tui/shopd.pgprof"), "{}", s.screen());
    assert_eq!(s.state.violations.rules[&slow.unit_type], UnitRule::Limit(Limit::Fixed(300_000_000)));
    let again = open();
    assert_eq!(again.state.violations.rules[&slow.unit_type], UnitRule::Limit(Limit::Fixed(300_000_000)));
    assert!(again.shows("decided here: 300ms"), "{}", again.screen());
    let r = again.state.recording.clone().unwrap();
    assert_eq!(again.state.violations.counts(&r, &slow), slow.duration() > 300_000_000);
    // Silenced, and heard again.
    s.keys("x");
    assert!(s.shows("pg-tui profile silence /etc/pg-tui/shopd.pgprof"), "{}", s.screen());
    assert!(!s.state.violations.counts(&r, &slow));
    s.keys("x");
    assert!(s.state.violations.counts(&r, &slow) && s.shows("--off"), "{}", s.screen());
    assert_eq!(open().state.violations.rules[&slow.unit_type], UnitRule::AUTO);
    // Of a unit of unknown type nothing can be decided.
    s.keys("end");
    while s.state.violations.current().is_some_and(|v| r.catalog.unit_type(v.unit_type).is_some()) {
        s.keys("k");
    }
    // Why, is told; and nothing is done to what is not known.
    assert!(s.shows("type of this unit: it had come by none of the 7 functions"), "{}", s.screen());
    for key in ["a", "x"] {
        s.keys(key);
        assert!(s.shows("is not known") && s.state.layers.is_empty(), "{}", s.screen());
    }
}

/// Without a profile there is no distribution, and what is silenced is so in the file only: both are said, on a usual screen.
#[test]
fn what_is_missing_without_a_profile_is_said() {
    let mut items = super::harness::slow_items();
    for item in &mut items {
        let pg_event::Item::Catalog(d) = item else { continue };
        for (_, t) in &mut d.unit_types {
            (t.units, t.mean, t.profile) = (0, 0, String::new());
            t.histogram.clear();
        }
    }
    let mut s = Session::with(super::harness::built("shopd", items), 80, 30, false);
    s.keys("v j");
    assert!(s.shows("there was no profile"), "{}", s.screen());
    s.keys("x");
    assert!(s.shows("is silenced, in this file only: no profile is known"), "{}", s.screen());
}
