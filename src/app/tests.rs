//! Whole sessions by keys, and every view as a picture.

use super::harness::{Session, empty, painted, recording, stranger, unserved, walked};
use super::msg::{Effect, Load, Msg};
use super::state::View;
use crossterm::event::{Event, KeyModifiers, MouseButton, MouseEvent, MouseEventKind};
use proptest::prelude::*;

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

#[test]
fn the_flag_is_chosen_by_keys() {
    let mut s = Session::with(painted(), 100, 30, false);
    s.keys("a j enter");
    assert_eq!(s.state.view, View::Question, "{}", s.screen());
    assert!(s.shows("painted") && s.shows("beat") && s.shows("blur"), "{}", s.screen());
    s.keys("1");
    assert!(s.shows("Root cause: shell (pid 1000, thread painter 1001)"), "{}", s.screen());
    s.keys("u 0");
    assert!(s.shows("Root cause: shell (pid 1000)"), "{}", s.screen());
}

/// A thread of another machine cannot be followed: that is said, and nothing else happens.
#[test]
fn a_flag_is_looked_for_where_it_was_recorded_only() {
    let mut s = Session::with(painted(), 100, 30, false);
    s.keys("a j enter f");
    assert!(s.shows("run `pg-tui find-flag` there"), "{}", s.screen());
    assert_eq!(s.state.view, View::Question);
    // No question about a flag, no flag.
    let mut s = Session::new(100, 30, false);
    s.keys("enter f");
    assert!(s.shows("only a thread that asks for a data flag"), "{}", s.screen());
}

#[test]
fn what_was_found_of_a_flag_lies_over_the_question() {
    let mut s = Session::with(painted(), 80, 24, false);
    s.keys("a j enter");
    let lines = [
        "thread 1000 (shell) of process 1000: 312 instructions followed in 19 ms, 104 turns of its loop",
        "",
        "It waits for",
        "  painted\u{1b}[31m = 0  at 0x55d1dcaa30c8, 4 bytes",
    ];
    s.send(Msg::Job(super::jobs::Done::Flag(Ok(lines.map(str::to_owned).to_vec()))));
    assert!(s.shows("The flag that it asks") && s.shows("= 0  at 0x55d1dcaa30c8"), "{}", s.screen());
    assert!(!s.screen().contains('\u{1b}'), "{}", s.screen());
    s.keys("esc");
    assert!(!s.shows("The flag that it asks"), "{}", s.screen());
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
fn through_a_trace_by_keys() {
    let mut s = Session::with(walked(), 100, 30, false);
    s.keys("t enter");
    assert!(s.shows("936 instructions in 20.0 ms in single steps"), "{}", s.screen());
    // From the vertex to its burst.
    while !matches!(s.state.vertex.about(), Some(super::views::vertex::About::Burst(_))) {
        s.keys("j");
    }
    s.keys("enter");
    assert_eq!(s.state.view, View::Steps, "{}", s.screen());
    assert!(s.shows("loop x 104") && s.shows("step 1 of 936"), "{}", s.screen());
    s.keys("c");
    assert!(s.shows("step 2 of 936") && s.shows("into may_go_on"), "{}", s.screen());
    s.keys("l l l");
    assert!(s.shows("step 5 of 936") && s.shows("returns 0"), "{}", s.screen());
    s.keys("r");
    assert!(s.shows("step 14 of 936"), "{}", s.screen());
    s.keys("R C h");
    assert!(s.shows("step 1 of 936"), "{}", s.screen());
    s.keys("C");
    assert!(s.shows("there is no call before this step"), "{}", s.screen());
    // Fold what the selected line belongs to, and open it again.
    let rows = s.state.steps.rows.len();
    s.keys("home j enter");
    assert!(s.state.steps.rows.len() < rows, "{}", s.screen());
    s.keys("enter");
    assert_eq!(s.state.steps.rows.len(), rows);
    s.keys("esc");
    assert_eq!(s.state.view, View::Vertex, "{}", s.screen());
}

/// A thread of another machine cannot be followed.
#[test]
fn only_a_thread_that_runs_here_is_followed() {
    let mut s = Session::with(walked(), 100, 30, false);
    s.keys("t enter i");
    assert!(s.shows("this was recorded on db7"), "{}", s.screen());
    assert_eq!(s.state.view, View::Vertex);
    let mut s = Session::new(100, 30, false);
    s.keys("g i");
    assert!(s.shows("nobody was followed"), "{}", s.screen());
}

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
    assert!(s.shows("Nothing in the focus waited"), "{}", s.screen());
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

#[test]
fn themes_draw_the_same_text() {
    let text = |theme: &str| {
        let mut s = Session::loading(80, 24, theme, false);
        s.send(Msg::Load(Load::Ready(std::sync::Arc::new(recording()))));
        s.screen()
    };
    let dark = text("dark");
    for theme in ["light", "16", "none"] {
        assert_eq!(text(theme), dark);
    }
}

#[test]
fn a_hang_is_diagnosed_by_keys_alone() {
    let mut s = Session::new(100, 30, false);
    s.keys("enter");
    let mut answers = 0;
    while s.state.view == View::Question {
        s.keys("r");
        answers += 1;
        assert!(answers < 10, "questions without end");
    }
    assert_eq!(s.state.view, View::Verdict);
    assert!(s.shows("Root cause: payd"), "{}", s.screen());
    assert!(s.shows("rebuild"), "{}", s.screen());
    if answers > 0 {
        s.keys("u");
        assert_eq!(s.state.view, View::Question, "undo asks again");
        s.keys("0");
        assert_eq!(s.state.view, View::Verdict, "stopping is an answer too");
        s.keys("u r");
    }
    s.keys("y");
    let Some(Effect::Osc52(text)) = s.asked.last() else { panic!("nothing was copied") };
    assert!(text.starts_with("## shopd") && text.contains("payd"), "{text}");
    assert!(!text.contains('\u{1b}'), "an escape sequence was copied");
}

#[test]
fn one_comes_back_to_where_one_was() {
    let mut s = Session::new(80, 24, false);
    s.keys("t + + w");
    let there = s.state.place();
    s.keys("T V ctrl-o ctrl-o");
    assert_eq!(s.state.place(), there);
    s.keys("tab");
    assert_eq!(s.state.view, View::Threads);
    s.keys("tab");
    assert_eq!(s.state.view, View::Victims);
}

#[test]
fn a_question_waits_while_one_looks_at_the_timeline() {
    let mut s = Session::new(80, 24, false);
    s.keys("enter");
    if s.state.view != View::Question {
        return;
    }
    s.keys("space");
    assert_eq!(s.state.view, View::Timeline);
    s.keys("ctrl-o");
    assert_eq!(s.state.view, View::Question);
    s.keys("esc enter");
    assert_eq!(s.state.view, View::Question);
}

#[test]
fn searching_leads_to_the_function() {
    let mut s = Session::new(80, 24, false);
    s.keys("/ 'Ledger enter");
    assert_eq!(s.state.view, View::Vertex);
    assert!(s.shows("Ledger::add"), "{}", s.screen());
    s.keys("n");
    assert!(s.shows(" of "), "{}", s.screen());
    // A function that only ran leads to where it did.
    s.keys("/ 'rebuild_index enter");
    assert!(s.shows("1 of 1 in or on rebuild_index"), "{}", s.screen());
    s.keys("/ 'shopd enter");
    assert_eq!(s.state.view, View::Threads);
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

#[test]
fn clicks_select_and_open() {
    let mut s = Session::new(80, 24, false);
    let click = |s: &mut Session, x, y| {
        s.send(Msg::Input(Event::Mouse(MouseEvent {
            kind: MouseEventKind::Down(MouseButton::Left),
            column: x,
            row: y,
            modifiers: KeyModifiers::NONE,
        })));
    };
    s.keys("G");
    click(&mut s, 10, 3);
    assert_eq!(s.state.victims.selected_row(), Some(0));
    click(&mut s, 10, 3);
    assert!(matches!(s.state.view, View::Question | View::Verdict));
    s.keys("t");
    click(&mut s, 60, 3);
    let cursor = s.state.timeline.cursor;
    assert!(cursor > super::harness::recording().graph.duration() / 3);
    click(&mut s, 60, 3);
    assert_eq!(s.state.view, View::Vertex);
    // A hint does what its key does, also the one in the corner.
    let last = s.screen().lines().last().map(str::to_owned).unwrap_or_default();
    let at = last.find(" threads").expect("a hint") as u16;
    click(&mut s, at + 2, 23);
    assert_eq!(s.state.view, View::Threads, "{last}");
    click(&mut s, 76, 0);
    assert!(matches!(s.state.layers.last(), Some(super::layer::Layer::Help(_))), "{}", s.screen());
    let last = s.screen().lines().last().map(str::to_owned).unwrap_or_default();
    click(&mut s, last.find("close").expect("a hint") as u16, 23);
    assert!(s.state.layers.is_empty(), "{}", s.screen());
}

#[test]
fn the_selection_survives_another_order() {
    let mut s = Session::new(80, 24, false);
    s.keys("a j");
    let selected = s.state.victims.selected;
    for _ in 0..4 {
        s.keys("o");
        assert_eq!(s.state.victims.selected, selected);
    }
}

const KEYS: &[&str] = &[
    "j",
    "k",
    "h",
    "l",
    "up",
    "down",
    "left",
    "right",
    "pgup",
    "pgdn",
    "home",
    "end",
    "enter",
    "esc",
    "space",
    "tab",
    "t",
    "T",
    "V",
    "S",
    "R",
    "L",
    "g",
    "v",
    "q",
    "p",
    "s",
    "r",
    "A",
    "1",
    "2",
    "0",
    "u",
    "d",
    "a",
    "o",
    "+",
    "-",
    "f",
    "w",
    "b",
    "[",
    "]",
    "H",
    "/",
    ":",
    "?",
    "'",
    "m",
    "M",
    "n",
    "N",
    "y",
    "e",
    "x",
    "backspace",
    "ctrl-o",
    "ctrl-t",
    "ctrl-w",
    "i",
    "c",
    "ctrl-z",
];

proptest! {
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases / 6, ..ProptestConfig::default() })]
    #[test]
    fn no_key_and_no_size_is_too_much(
        steps in prop::collection::vec((0..KEYS.len() + 4, 1u16..220, 1u16..70), 1..60),
        ascii in any::<bool>(),
    ) {
        let mut s = Session::new(80, 24, ascii);
        for (what, w, h) in steps {
            match KEYS.get(what) {
                Some(k) => s.keys(k),
                None if what == KEYS.len() => s.send(Msg::Input(Event::Mouse(MouseEvent {
                    kind: MouseEventKind::Down(MouseButton::Left), column: w, row: h, modifiers: KeyModifiers::NONE,
                }))),
                None if what == KEYS.len() + 1 => s.send(Msg::Input(Event::Mouse(MouseEvent {
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

#[test]
fn many_victims_of_a_kind_are_one_line() {
    let mut s = Session::new(80, 24, false);
    let one = s.state.victims.all[0].clone();
    let mut rows = Vec::new();
    for i in 0..200u32 {
        let mut r = one.clone();
        (r.victim.vertex, r.victim.score) = (pg_graph::VertexId(1000 + i), f64::from(200 - i));
        rows.push(r);
    }
    rows.push(s.state.victims.all[2].clone());
    s.send(Msg::Job(super::jobs::Done::Victims(rows)));
    assert_eq!(s.state.victims.rows.len(), 2, "{}", s.screen());
    assert!(s.shows("+199") && s.shows("Victims: what hung (201)"), "{}", s.screen());
    s.keys("home right");
    assert_eq!(s.state.victims.rows.len(), 201);
    // Folded from within, its line stands for the one that was selected.
    s.keys("j j j left");
    assert_eq!((s.state.victims.rows.len(), s.state.victims.selected_row()), (2, Some(0)));
}

#[test]
fn long_lines_of_the_log_can_be_read_to_their_end() {
    let mut s = Session::new(40, 10, false);
    s.state.say(
        crate::config::Look::Warning,
        format!("{} the end", "the kernel did not report all ".repeat(12)),
    );
    s.keys("g l");
    assert!(s.shows("the end"), "{}", s.screen());
    s.keys("g g");
    assert!(s.shows("warning:") || !s.shows("the end"), "{}", s.screen());
}

#[test]
fn the_legend_of_the_timeline_is_cut_at_no_width() {
    for w in 80..130 {
        let mut s = Session::new(w, 24, false);
        s.keys("t");
        let screen = s.screen();
        let legend = screen.lines().find(|l| l.contains("● running")).expect("a legend");
        let last = legend.trim_end().rsplit("  ").next().unwrap_or_default();
        assert!(["● mixed", "○▼ wake-up"].contains(&last), "{w}: {legend}");
    }
}

/// In a copy for others most of what the rest of the machine did was left out: that is no alarm.
#[test]
fn what_is_not_known_of_a_thread_is_shown_quietly() {
    // A copy, since answers are kept in the file.
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("demo.pgs");
    let demo = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("sessions/demo.pgs");
    std::fs::copy(demo, &path).expect("the session is there");
    let demo = super::load::load(&path, &crate::session::Symbols::default(), &|_, _| {}).expect("it opens");
    let mut s = Session::with(demo, 100, 30, false);
    s.keys("t");
    assert!(s.shows("???") && !s.shows("!"), "{}", s.screen());
    assert!(s.shows("? unknown"), "{}", s.screen());
    assert!(!s.shows("r related"), "{}", s.screen());
    s.keys("V enter A t");
    assert!(s.shows("enter open  r related"), "{}", s.screen());
    // A function of the standard library tells less than who called it.
    s.keys("V");
    assert!(s.shows("  in         ") && !s.shows("as std::io::Read>"), "{}", s.screen());
}

/// What asks a variable again and again without a pause waits for nothing that could be named: it runs.
#[test]
fn a_loop_that_spins_is_shown_as_what_runs() {
    let mut s = Session::new(100, 24, false);
    s.keys("a");
    let mut of =
        s.state.victims.all.iter().filter(|r| r.victim.block_type == pg_graph::BlockType::LongRunning);
    let mut row = of.next().expect("somebody ran for long").clone();
    row.victim.block_type = pg_graph::BlockType::RepeatedYield;
    assert!(row.victim.waits_on.is_none());
    s.send(Msg::Job(super::jobs::Done::Victims(vec![row])));
    assert!(s.shows("  ran ") && s.shows(" on the CPU") && !s.shows("in         unknown"), "{}", s.screen());
    assert!(s.shows("███"), "{}", s.screen());
}

#[test]
fn victims_of_one_vertex_are_told_from_each_other() {
    let mut s = Session::new(100, 24, false);
    let one = s.state.victims.all[0].clone();
    let row = |start, score| {
        let mut r = one.clone();
        (r.victim.start, r.victim.score) = (start, score);
        r
    };
    // Two slow units that end within one stretch on the CPU.
    s.send(Msg::Job(super::jobs::Done::Victims(vec![
        row(1_000_000, 9.0),
        row(2_000_000, 8.0),
        row(3_000_000, 7.0),
    ])));
    let pointed = |s: &Session| s.screen().lines().take(10).filter(|l| l.starts_with('▶')).count();
    assert_eq!(pointed(&s), 1, "{}", s.screen());
    for wanted in [1, 2, 2] {
        s.keys("j");
        assert_eq!((s.state.victims.selected_row(), pointed(&s)), (Some(wanted), 1), "{}", s.screen());
    }
    // And come back to.
    s.keys("t ctrl-o");
    assert_eq!(s.state.victims.selected_row(), Some(2));
}

#[test]
fn commands_of_other_views_are_found_and_lead_there() {
    let mut s = Session::new(80, 24, false);
    s.keys(": 'zoom-all");
    assert!(s.shows("in timeline: See the whole recording"), "{}", s.screen());
    s.keys("enter");
    assert_eq!(s.state.view, View::Timeline);
    s.keys("V : 'why-not enter");
    assert!(s.state.layers.is_empty() && s.shows("no diagnosis yet"), "{}", s.screen());
}

/// What the focus has nothing to do with is found after what it has, and the title says so.
#[test]
fn what_others_do_is_found_last() {
    let mut s = Session::new(100, 30, false);
    s.keys("/");
    assert!(!s.shows("not of the focus"), "all are tied to the focus:\n{}", s.screen());
    let mut s = Session::with(stranger(), 100, 30, false);
    s.keys("/");
    let screen = s.screen();
    assert!(screen.contains("not of the focus"), "{screen}");
    let line = |what: &str| screen.lines().position(|l| l.contains(what)).unwrap_or(usize::MAX);
    assert!(line("process  ev") != usize::MAX, "{screen}");
    assert!(line("process  ev") > line("process  shopd"), "{screen}");
    assert!(line("process  ev") > line("thread   payd/main"), "{screen}");
    assert!(line("process  ev") > line("/run/pay.sock"), "{screen}");
}

/// On a narrow screen the palette says below what the selected command does, whole.
#[test]
fn a_narrow_palette_tells_what_the_selected_command_does() {
    let mut s = Session::new(40, 10, false);
    s.keys("t : 'zoom-in");
    let screen = s.screen().replace(['│', '\n'], " ");
    let words: Vec<&str> = screen.split_whitespace().collect();
    assert!(
        words.join(" ").contains("See half the time, twice as exactly, around the cursor."),
        "{}",
        s.screen()
    );
}
