//! Every view as a picture.

mod hostile;
mod keys;
mod said;
mod shown;

use super::harness::{Session, painted, unserved, walked};
use super::msg::{Effect, Load, Msg};

const SIZES: [(u16, u16, bool, &str); 4] = [
    (80, 24, false, "80x24"),
    (200, 60, false, "200x60"),
    (40, 10, false, "40x10"),
    (80, 24, true, "80x24_ascii"),
];

/// A view in all sizes.
fn picture(name: &str, keys: &str) {
    for (w, h, ascii, size) in SIZES {
        let mut s = Session::new(w, h, ascii);
        if !keys.is_empty() {
            s.keys(keys);
        }
        let screen = s.screen();
        assert!(!ascii || screen.is_ascii(), "{name}: not ASCII:\n{screen}");
        insta::assert_snapshot!(format!("{name}_{size}"), screen);
    }
}

#[test]
fn victims() {
    picture("victims", "");
}

/// What was found by what it did not serve says so, in its line and below.
#[test]
fn a_victim_that_did_not_serve_is_marked() {
    for (w, h, ascii, size) in SIZES {
        let s = Session::with(unserved(), w, h, ascii);
        let screen = s.screen();
        assert!(!ascii || screen.is_ascii(), "not ASCII:\n{screen}");
        assert!(w < 72 || screen.contains("unserved, "), "{screen}");
        insta::assert_snapshot!(format!("victims_unserved_{size}"), screen);
    }
}

#[test]
fn threads() {
    picture("threads", "T j");
}

#[test]
fn timeline() {
    picture("timeline", "t");
}

#[test]
fn timeline_zoomed_in() {
    picture("timeline_zoomed", "space w + + + + + + + + + +");
}

#[test]
fn timeline_marked() {
    picture("timeline_marked", "t v l l l l l l");
}

#[test]
fn question() {
    picture("question", "enter");
}

#[test]
fn question_about_a_data_flag() {
    for (w, h, ascii, size) in SIZES {
        let mut s = Session::with(painted(), w, h, ascii);
        s.keys("a j enter");
        let screen = s.screen();
        assert!(!ascii || screen.is_ascii(), "not ASCII:\n{screen}");
        insta::assert_snapshot!(format!("data_flag_{size}"), screen);
    }
}

fn walked_picture(name: &str, keys: &str) {
    for (w, h, ascii, size) in SIZES {
        let mut s = Session::with(walked(), w, h, ascii);
        s.keys(keys);
        let screen = s.screen();
        assert!(!ascii || screen.is_ascii(), "{name}: not ASCII:\n{screen}");
        insta::assert_snapshot!(format!("{name}_{size}"), screen);
    }
}

#[test]
fn steps() {
    walked_picture("steps", "g i j j j");
}

#[test]
fn a_vertex_lists_its_bursts() {
    walked_picture("vertex_burst", "t enter");
}

#[test]
fn slice() {
    picture("slice", "enter A S");
}

#[test]
fn vertex() {
    picture("vertex", "enter A S l");
}

#[test]
fn verdict() {
    picture("verdict", "enter A");
}

#[test]
fn why_not() {
    picture("why_not", "enter A w");
}

#[test]
fn critical_path() {
    picture("path", "p");
}

#[test]
fn notes() {
    picture("notes", "'");
}

#[test]
fn log() {
    picture("log", "L");
}

#[test]
fn help() {
    picture("help", "t ?");
}

#[test]
fn palette() {
    picture("palette", ": 'zoom");
}

#[test]
fn search() {
    picture("search", "/ 'pay");
}

#[test]
fn which_key() {
    picture("which_key", "g");
}

#[test]
fn loading_and_failing() {
    let mut s = Session::loading(80, 24, "dark", false);
    assert!(s.shows("opening"), "{}", s.screen());
    s.send(Msg::Load(Load::Progress { what: "reading events", share: 0.4 }));
    insta::assert_snapshot!("loading", s.screen());
    s.send(Msg::Load(Load::Failed("x.pgs: damaged at byte 16: \u{1b}[31mno".into())));
    insta::assert_snapshot!("failed", s.screen());
    s.keys("j enter t");
    s.keys("q");
    assert!(matches!(s.asked.last(), Some(Effect::Quit)));
}
