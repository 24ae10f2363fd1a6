//! What lists, legends and layers show, and what they do not.

use crate::app::harness::{Session, recording, stranger};
use crate::app::msg::{Load, Msg};

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
    s.send(Msg::Job(crate::app::jobs::Done::Victims(rows)));
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
    let demo =
        crate::app::load::load(&path, &crate::session::Symbols::default(), &|_, _| {}).expect("it opens");
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
    s.send(Msg::Job(crate::app::jobs::Done::Victims(vec![row])));
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
    s.send(Msg::Job(crate::app::jobs::Done::Victims(vec![
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
