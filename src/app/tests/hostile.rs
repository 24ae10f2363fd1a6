//! No key, no size and no name does harm.

use crate::app::harness::{Session, empty};
use crate::app::msg::Msg;
use crossterm::event::{Event, KeyModifiers, MouseButton, MouseEvent, MouseEventKind};
use proptest::prelude::*;

#[test]
fn where_nothing_happened_nothing_breaks() {
    for keys in [
        "",
        "a",
        "enter",
        "t",
        "t enter + - f d p",
        "T enter",
        "S",
        "R",
        "L",
        "'",
        "m",
        "/ 'x",
        "y",
        "d p w",
        "g i",
    ] {
        let mut s = Session::with(empty(), 80, 24, false);
        if !keys.is_empty() {
            s.keys(keys);
        }
        assert!(s.shows("nothing.pgs"), "after `{keys}`:\n{}", s.screen());
    }
    let s = Session::with(empty(), 80, 24, false);
    // Nobody fits its focus, so everybody was looked at.
    assert!(s.shows("Nothing waited, ran"), "{}", s.screen());
}

#[test]
fn names_cannot_reach_the_terminal() {
    for keys in ["", "T", "t", "p", "/ 'ev", "enter A", "enter A S", "enter A S l"] {
        let mut s = Session::new(200, 60, false);
        if !keys.is_empty() {
            s.keys(keys);
        }
        let screen = s.screen();
        assert!(
            !screen.contains(['\u{1b}', '\u{202e}', '\u{9b}', '\u{7}']),
            "an escape sequence got through after `{keys}`"
        );
    }
}

#[test]
fn what_is_too_small_is_said() {
    let mut s = Session::new(80, 24, false);
    s.resize(39, 10);
    assert!(s.shows("too narrow: 39x10, needs 40x10"), "{}", s.screen());
    s.resize(40, 9);
    assert!(s.shows("too low"), "{}", s.screen());
    s.resize(1, 1);
    s.resize(80, 24);
    assert!(s.shows("Victims"), "{}", s.screen());
}

/// Every key that does something somewhere, and some that do nothing.
const KEYS: &str = "\
    j k h l up down left right pgup pgdn home end enter esc space tab t T V S R L g v q p s r A 1 2 \
    0 u d a o + - f w b [ ] H / : ? ' m M n N y e x backspace ctrl-o ctrl-t ctrl-w i c ctrl-z";

proptest! {
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases / 6, ..ProptestConfig::default() })]
    #[test]
    fn no_key_and_no_size_is_too_much(
        steps in prop::collection::vec((0..KEYS.split(' ').count() + 4, 1u16..220, 1u16..70), 1..60),
        ascii in any::<bool>(),
    ) {
        let keys: Vec<&str> = KEYS.split(' ').collect();
        let mut s = Session::new(80, 24, ascii);
        for (what, w, h) in steps {
            match keys.get(what) {
                Some(k) => s.keys(k),
                None if what == keys.len() => s.send(Msg::Input(Event::Mouse(MouseEvent {
                    kind: MouseEventKind::Down(MouseButton::Left), column: w, row: h, modifiers: KeyModifiers::NONE,
                }))),
                None if what == keys.len() + 1 => s.send(Msg::Input(Event::Mouse(MouseEvent {
                    kind: MouseEventKind::ScrollDown, column: w, row: h, modifiers: KeyModifiers::CONTROL,
                }))),
                None => s.resize(w, h),
            }
            let escapes = s.screen().contains('\u{1b}');
            prop_assert!(!escapes);
            // Export writes files; nothing asks for it without a recording's path.
            s.asked.clear();
        }
    }
}
