//! What is kept and copied beside the verdict, and what is said where a key does nothing.

use crate::app::harness::Session;
use crate::app::msg::Effect;
use pg_event::{Event, Item, Kind, OffCpu, OffState, ThreadId};
use std::path::Path;

/// The demo, copied to a folder, since notes are kept in the file.
fn demo(dir: &Path) -> Session {
    changed(dir, |_| {})
}

/// The same after something happened to the file.
fn changed(dir: &Path, change: impl FnOnce(&mut Vec<u8>)) -> Session {
    let path = dir.join("demo.pgs");
    let demo = Path::new(env!("CARGO_MANIFEST_DIR")).join("sessions/demo.pgs");
    let mut bytes = std::fs::read(demo).expect("the session is there");
    change(&mut bytes);
    std::fs::write(&path, bytes).expect("a file");
    let r = crate::app::load::load(&path, &crate::session::Symbols::default(), &|_, _| {});
    Session::with(r.expect("it opens"), 80, 24, false)
}

fn copied(s: &Session) -> &str {
    match s.asked.last() {
        Some(Effect::Osc52(text)) => text,
        other => panic!("nothing was copied: {other:?}"),
    }
}

fn last(s: &Session) -> String {
    s.screen().lines().last().unwrap_or_default().to_owned()
}

#[test]
fn a_deleted_note_is_brought_back() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut s = demo(dir.path());
    s.keys("'");
    for word in ["open", "see in timeline", "delete", "undo"] {
        assert!(!last(&s).contains(word), "{word}: {}", last(&s));
    }
    let long = "a_note_that_is_much_too_long_for_a_line_of_eighty_columns_and_goes_on_and_on";
    s.keys(&format!("V M '{long} enter '"));
    assert!(s.shows("a_note_that") && s.screen().lines().any(|l| l.ends_with('…')), "{}", s.screen());
    assert!(last(&s).contains("delete"), "{}", last(&s));
    s.keys("x");
    assert!(s.shows("None yet") && s.shows("deleted; u brings it back"), "{}", s.screen());
    s.keys("u");
    assert!(s.shows("a_note_that"), "{}", s.screen());
    s.keys("u");
    assert!(s.shows("no note was deleted"), "{}", s.screen());
    // And written with the verdict.
    s.keys("V enter A y");
    assert!(copied(&s).contains("**Notes**") && copied(&s).contains(long), "{}", copied(&s));
    s.keys("e");
    let report = dir.path().join("demo.report.md");
    let text = std::fs::read_to_string(&report).expect("a report");
    assert!(text.contains(long), "{text}");
    let json = std::fs::read_to_string(report.with_extension("json")).expect("a report");
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(json["notes"][0]["text"], long, "{json}");
}

/// Whoever edited a report keeps it.
#[test]
fn a_report_is_not_written_over() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut s = demo(dir.path());
    let files = || {
        let all = std::fs::read_dir(dir.path()).expect("a folder").flatten();
        let mut all: Vec<String> = all.map(|e| e.file_name().to_string_lossy().into_owned()).collect();
        all.sort();
        all
    };
    s.keys("enter A e e");
    assert_eq!(files(), ["demo.pgs", "demo.report.json", "demo.report.md"], "the same is not written twice");
    let report = dir.path().join("demo.report.md");
    std::fs::write(&report, "edited").expect("a report");
    s.keys(": 'write enter");
    assert_eq!(std::fs::read_to_string(&report).expect("a report"), "edited");
    assert!(files().contains(&"demo.report-2.md".to_owned()), "{:?}", files());
}

#[test]
fn what_lies_over_the_verdict_is_copied() {
    let mut s = Session::new(100, 30, false);
    s.keys("enter A w y");
    let text = copied(&s);
    assert!(text.starts_with("**Other candidates**") && !text.contains("Root cause"), "{text}");
    assert!(text.contains("**Weak edges on the way**") && s.shows("copied: why not the others"), "{text}");
}

#[test]
fn a_key_that_does_nothing_says_so() {
    let mut s = Session::new(120, 30, false);
    for (keys, told) in [
        ("x", "x: nothing here; delete in notes, silence in violations and units"),
        ("e", "e: nothing here; export in verdict"),
        ("z", "no command on these keys; ? shows all (z)"),
        ("g x", "no command on these keys; ? shows all (g x)"),
        ("l", "no others like it are behind this line"),
        ("T G space", "nothing is below this line"),
        ("enter A A", "A: nothing here; all recommended in"),
        ("g r l", "nothing lies to this side"),
    ] {
        s.keys("V");
        s.keys(keys);
        assert!(s.shows(told), "{keys}: {}", s.screen());
    }
    // The last vertex of a thread.
    s.keys("t G enter l");
    assert!(s.shows("this is the last vertex of this thread"), "{}", s.screen());
}

/// What cannot be read may hold what hung.
#[test]
fn a_damaged_file_calms_nobody() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut s = changed(dir.path(), |bytes| {
        let half = bytes.len() / 2;
        bytes[half..half + 20].fill(0xee);
    });
    assert!(s.shows("of what could be read"), "{}", s.screen());
    assert!(!s.shows("lost 0") && !s.shows("Nothing in the focus"), "{}", s.screen());
    // One word and one count.
    let remarks = s.state.recording.as_ref().expect("a recording").remarks().count();
    assert!(s.shows(&crate::app::time::counted(remarks, "remark")), "{}", s.screen());
    s.keys("L g g");
    assert!(s.shows("remark: "), "{}", s.screen());
    let told = s.state.log.iter().filter(|l| l.look == crate::config::Look::Warning).count();
    assert_eq!(told, remarks, "{}", s.screen());
    // With nothing left in it the list is empty for another reason than that nothing hung.
    s.send(crate::app::Msg::Job(crate::app::jobs::Done::Victims(Vec::new(), 0)));
    s.keys("V");
    let words = s.screen().split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("could be read: the file is damaged. What hung may be in the rest"), "{words}");
    let s = changed(dir.path(), |bytes| bytes.truncate(bytes.len() / 3));
    assert!(!s.shows("lost 0") && s.shows("! cut off"), "{}", s.screen());
    // What is damaged in the middle is not cut off.
    let mut r = crate::app::harness::built("shop", crate::app::harness::shop_items());
    r.coverage = pg_event::Coverage::default();
    r.unread = Some("only 12 events could be read: a part of the file is damaged".into());
    let s = Session::with(r, 80, 24, false);
    assert!(s.shows("! damaged") && !s.shows("cut off"), "{}", s.screen());
}

/// How much of what was lost, and when, stands in the log.
#[test]
fn what_was_lost_is_told_in_the_log() {
    let mut r = crate::app::harness::built("shop", crate::app::harness::shop_items());
    r.coverage.loss = pg_event::Loss { events: 12, stacks: 463, samples: 0, ns: 474_444_823 };
    let mut s = Session::with(r, 120, 40, false);
    assert!(s.shows("lost 475"), "{}", s.screen());
    s.keys("L");
    assert!(s.shows("lost: 12 events and 463 stacks, within 474 ms in all"), "{}", s.screen());
    assert!(s.shows("lost: what happened then is not known whole: 6.000 s (100 ms)"), "{}", s.screen());
    // Stacks are no events: what happened is known.
    let mut items = crate::app::harness::shop_items();
    for item in &mut items {
        if let pg_event::Item::Events(e) = item {
            e.retain(|e| !matches!(e.kind, pg_event::Kind::Lost { .. }));
        }
    }
    let mut r = crate::app::harness::built("shop", items);
    r.coverage.loss = pg_event::Loss { events: 0, stacks: 463, samples: 0, ns: 474_444_823 };
    let mut s = Session::with(r, 120, 40, false);
    assert!(s.shows("lost 463 stacks"), "{}", s.screen());
    s.keys("L");
    assert!(s.shows("lost: 463 stacks, within 474 ms in all; no event is missing"), "{}", s.screen());
    assert!(!s.shows("not known whole"), "{}", s.screen());
}

/// What there is to remark is told on a usual screen, too.
#[test]
fn remarks_are_counted_on_a_narrow_screen() {
    let s = Session::new(80, 24, false);
    assert!(s.shows("1 remark (g l)"), "{}", s.screen());
}

/// Parts of the first line are there whole or not at all: what was lost first, then what goes on.
#[test]
fn the_first_line_has_no_halves() {
    for columns in 40..130 {
        let mut s = Session::new(columns, 24, false);
        s.state.busy.push("computing the critical path");
        s.keys("L");
        let screen = s.screen();
        let first = screen.lines().next().unwrap_or_default();
        assert!(first.ends_with(if columns < 60 { "[?]" } else { "[?] help" }), "{first}");
        let parts =
            ["! lost 12 ", "computing the critical path…", "8.00 s", "events ", "1 remark (g l)", "host db7"];
        let begun = ["! ", "computing", "8.", "event", "remark", "host"];
        for (part, begun) in parts.iter().zip(begun) {
            assert!(first.contains(part) || !first.contains(begun), "{columns}: {part}: {first}");
        }
        assert!(first.contains("! lost 12 "), "{columns}: {first}");
        assert!(columns < 64 || first.contains("critical path…"), "{columns}: {first}");
    }
}

#[test]
fn the_help_is_searched_where_it_is_read() {
    let mut s = Session::new(100, 30, false);
    s.keys("t ? / 'waker");
    assert!(s.shows("follow-waker") && !s.shows("zoom-in"), "{}", s.screen());
    s.keys("enter");
    assert!(s.shows("follow-waker") && last(&s).contains("close"), "{}", s.screen());
    s.keys("/ esc");
    assert!(s.shows("zoom-in"), "{}", s.screen());
    s.keys("/ 'qqqq");
    assert!(s.shows("nothing in this help has that"), "{}", s.screen());
    s.keys("esc esc");
    assert!(s.state.layers.is_empty() && s.state.view == crate::app::state::View::Timeline, "{}", s.screen());
    // No line without a key.
    s.keys("V enter A S ? / 'right");
    assert!(!s.shows("right: Right, or open"), "{}", s.screen());
}

#[test]
fn the_legend_of_the_threads_says_where_it_is_cut() {
    let mut s = Session::new(60, 15, false);
    s.keys("T");
    let legend = s.screen().lines().find(|l| l.contains("on CPU  ◇")).map(str::to_owned);
    assert!(legend.as_ref().is_some_and(|l| l.ends_with('…')), "{}", s.screen());
}

/// What an option did is told of the time asked about, and the same is not said three times.
#[test]
fn a_question_tells_what_its_options_did_meanwhile() {
    let mut s = Session::new(120, 40, false);
    s.keys("enter");
    assert!(s.shows("meanwhile") && s.shows("it ran "), "{}", s.screen());
    let screen = s.screen().split_whitespace().collect::<Vec<_>>().join(" ");
    let q = s.state.diagnosis.question().expect("a question");
    let weak = q.choices[0].detail.split("; ").find_map(|p| p.strip_prefix("weak: "));
    if let Some(why) = weak.filter(|w| q.why.contains(*w)) {
        assert_eq!(screen.matches(why).count(), 1, "{}", s.screen());
    }
    let mut s = Session::new(120, 40, false);
    s.keys("enter r s");
    assert!(s.shows("kept in the session file: 1 answer"), "{}", s.screen());
    s.state.diagnosis.outcome.as_mut().expect("a verdict").decisions.clear();
    s.keys("s");
    assert!(s.shows("no question came up"), "{}", s.screen());
}

/// Being put off the CPU comes beside the time that a thread ran, and a wait that is over is no matter of its running.
#[test]
fn what_runs_is_told_apart_from_what_it_did_before() {
    let mut items = crate::app::harness::shop_items();
    let put_off = OffCpu::new(2_000_000_000, 2_000_000_000, OffState::Runnable);
    for item in &mut items {
        let Item::Events(events) = item else { continue };
        let kind = Kind::OffCpu(put_off);
        events.push(Event { time: 2_500_000_000, thread: ThreadId(3), cpu: 1, kind });
        events.sort_by_key(|e| e.time);
    }
    let mut s = Session::with(crate::app::harness::built("shop", items), 100, 30, false);
    let r = s.state.recording.clone().expect("a recording");
    crate::app::place::see(&mut s.state, ThreadId(3), (900_000_000, 6_000_000_000), 3_000_000_000);
    s.keys("ctrl-l");
    assert!(s.shows("running, ") && !s.shows("time-out"), "{}", s.screen());
    crate::app::place::point(&mut s.state, ThreadId(3), 500_000_000);
    s.keys("ctrl-l");
    assert!(s.shows("ended by its own time-out"), "{}", s.screen());
    let v = r.graph.vertex_at(ThreadId(3), 3_000_000_000).expect("a vertex");
    crate::app::place::open_vertex(&mut s.state, v);
    s.keys("home");
    assert!(s.shows(", and was put off the CPU for 500 ms meanwhile"), "{}", s.screen());
}

/// Of a thread that lacked the CPU, a share is one of the time that it took.
#[test]
fn the_share_of_a_function_is_one_of_the_whole_time() {
    use crate::app::views::victims::share_of_time;
    assert_eq!(share_of_time(1.0, 2_700, 4_000), "68 %");
    assert_eq!(share_of_time(0.5, 4_000, 4_000), "50 %");
    assert_eq!(share_of_time(1.0, 5_000, 4_000), "100 %");
    assert_eq!(share_of_time(0.7, 0, 0), "70 %");
}

/// The selected option tells all there is where there are rows for it; what is cut off shows that.
#[test]
fn the_selected_option_is_told_in_full() {
    for (columns, rows) in [(80, 24), (120, 40), (200, 60)] {
        let mut s = Session::with(crate::app::harness::painted(), columns, rows, false);
        s.keys("a j enter");
        assert_eq!(s.state.view, crate::app::state::View::Question, "{}", s.screen());
        for option in 0..2 {
            let words = s.screen().split_whitespace().collect::<Vec<_>>().join(" ");
            let q = s.state.diagnosis.question().expect("a question");
            let detail = q.choices[option].detail.clone();
            assert!(words.contains(&detail), "{detail}\n{}", s.screen());
            assert!(s.shows("0  stop here"), "{}", s.screen());
            s.keys("j");
        }
    }
    // A click on the second line of a reason selects its option.
    let mut s = Session::with(crate::app::harness::painted(), 80, 24, false);
    s.keys("a j enter j");
    let owners: Vec<_> = (0..9).map(|l| crate::ui::line_owner(&s.state, l)).collect();
    let count = |o| owners.iter().filter(|x| **x == Some(o)).count();
    assert!(count(0) == 2 && count(1) > 2 && count(2) >= 1, "{owners:?}");
    let mut s = Session::new(40, 10, false);
    s.keys("enter");
    assert!(
        s.screen().lines().any(|l| l.starts_with("     ran ") && l.ends_with('\u{2026}')),
        "{}",
        s.screen()
    );
}
