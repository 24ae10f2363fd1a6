//! Whole sessions by keys and clicks.

use crate::app::harness::{Session, painted, recording, walked};
use crate::app::msg::{Effect, Load, Msg};
use crate::app::state::View;
use crossterm::event::{Event, KeyModifiers, MouseButton, MouseEvent, MouseEventKind};

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
    s.send(Msg::Job(crate::app::jobs::Done::Flag(Ok(lines.map(str::to_owned).to_vec()))));
    assert!(s.shows("The flag that it asks") && s.shows("= 0  at 0x55d1dcaa30c8"), "{}", s.screen());
    assert!(!s.screen().contains('\u{1b}'), "{}", s.screen());
    s.keys("esc");
    assert!(!s.shows("The flag that it asks"), "{}", s.screen());
}

#[test]
fn through_a_trace_by_keys() {
    let mut s = Session::with(walked(), 100, 30, false);
    s.keys("t enter");
    assert!(s.shows("936 instructions in 20.0 ms in single steps"), "{}", s.screen());
    // From the vertex to its burst.
    while !matches!(s.state.vertex.about(), Some(crate::app::views::vertex::About::Burst(_))) {
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
    assert!(cursor > crate::app::harness::recording().graph.duration() / 3);
    click(&mut s, 60, 3);
    assert_eq!(s.state.view, View::Vertex);
    // A hint does what its key does, also the one in the corner.
    let last = s.screen().lines().last().map(str::to_owned).unwrap_or_default();
    let at = last.find(" threads").expect("a hint") as u16;
    click(&mut s, at + 2, 23);
    assert_eq!(s.state.view, View::Threads, "{last}");
    click(&mut s, 76, 0);
    assert!(matches!(s.state.layers.last(), Some(crate::app::layer::Layer::Help(_))), "{}", s.screen());
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

/// Who presses enter before the recording is loaded wants the answer, not to press it again.
#[test]
fn enter_while_loading_is_kept() {
    let load = |s: &mut Session| s.send(Msg::Load(Load::Ready(std::sync::Arc::new(recording()))));
    let mut s = Session::loading(80, 24, "dark", false);
    s.keys("enter");
    assert!(s.shows("is diagnosed as soon as it is found"), "{}", s.screen());
    load(&mut s);
    assert_eq!(s.state.view, View::Question, "{}", s.screen());
    // Taken back, or gone elsewhere.
    for keys in ["enter esc", "enter T"] {
        let mut s = Session::loading(80, 24, "dark", false);
        s.keys(keys);
        load(&mut s);
        assert!(s.state.diagnosis.outcome.is_none() && !s.state.diagnosis.running, "{keys}: {}", s.screen());
    }
}

/// Whoever takes what is recommended has not judged for themselves, and the verdict says so.
#[test]
fn a_recommendation_taken_is_no_answer_of_ones_own() {
    for (keys, told) in [
        ("enter r", "1 answer, taken as recommended"),
        ("enter enter", "1 answer, taken as recommended"),
        ("enter 1", "1 answer, chosen by a person"),
        ("enter 0", "1 answer, chosen by a person"),
    ] {
        let mut s = Session::new(120, 60, false);
        s.keys(keys);
        assert_eq!(s.state.view, View::Verdict, "{}", s.screen());
        assert!(s.shows(told), "{keys}: {}", s.screen());
    }
}

/// A question that was answered is no place any more, and one that waits is passed once.
#[test]
fn the_way_back_leads_through_no_empty_question() {
    let mut s = Session::new(100, 30, false);
    s.keys("enter r");
    assert_eq!(s.state.view, View::Verdict, "{}", s.screen());
    s.keys("esc");
    assert_eq!(s.state.view, View::Victims, "{}", s.screen());
    // Taken back, the verdict is none.
    s.keys("enter T g r u");
    assert_eq!(s.state.view, View::Question, "{}", s.screen());
    s.keys("ctrl-o");
    assert_eq!(s.state.view, View::Threads, "{}", s.screen());
    let mut s = Session::new(100, 30, false);
    s.keys("enter esc");
    assert!(s.state.view == View::Slice && s.shows("the question waits"), "{}", s.screen());
    s.keys("esc");
    assert_eq!(s.state.view, View::Victims, "{}", s.screen());
}

/// What was found is gone through in the view one is in.
#[test]
fn the_next_process_or_thread_that_was_found() {
    let mut s = Session::new(100, 30, false);
    s.keys("/ 'payd enter");
    assert_eq!(s.state.view, View::Threads, "{}", s.screen());
    let first = s.state.threads.selected();
    s.keys("n");
    assert!(s.state.view == View::Threads && s.shows("2 of "), "{}", s.screen());
    let second = s.state.threads.selected();
    assert_ne!(first, second);
    s.keys("N");
    assert_eq!(s.state.threads.selected(), first, "{}", s.screen());
    s.keys("t");
    let before = s.state.timeline.thread;
    s.keys("n");
    assert_eq!(s.state.view, View::Timeline, "{}", s.screen());
    s.keys("n");
    assert_ne!(s.state.timeline.thread, before);
    s.keys("V n");
    assert_eq!(s.state.view, View::Threads, "{}", s.screen());
}

/// What is typed from habit runs nothing else.
#[test]
fn a_command_that_there_is_not_runs_no_other() {
    let mut s = Session::new(100, 30, false);
    s.keys(": 'shell enter");
    assert!(s.shows("no command is called \"shell\"; down chooses"), "{}", s.screen());
    assert!(!s.asked.iter().any(|e| matches!(e, Effect::Suspend)));
    s.keys("down enter");
    assert!(matches!(s.asked.last(), Some(Effect::Suspend)), "{}", s.screen());
    s.keys(": 'zzzzz enter");
    assert!(s.shows("no command is called \"zzzzz\""), "{}", s.screen());
    s.keys("esc : 'w enter");
    assert!(s.shows("are kept in the session as they are made"), "{}", s.screen());
    s.keys("enter A : 'w enter");
    assert!(s.shows("no file to write the report beside"), "{}", s.screen());
    s.keys(": 'wq enter");
    assert!(matches!(s.asked.last(), Some(Effect::Quit)));
}

/// A branch that is not taken loses no answer.
#[test]
fn a_branch_is_given_up_by_esc() {
    let mut s = Session::new(100, 30, false);
    s.keys("enter A S");
    let decisions = |s: &Session| s.state.diagnosis.outcome.as_ref().map(|o| o.decisions.clone());
    let (before, step) = (decisions(&s), s.state.diagnosis.step);
    assert!(before.as_ref().is_some_and(|d| !d.is_empty()), "{}", s.screen());
    s.keys("b");
    assert_eq!(s.state.view, View::Question, "{}", s.screen());
    assert_ne!(decisions(&s), before);
    s.keys("esc");
    assert_eq!((s.state.view, s.state.diagnosis.step), (View::Slice, step), "{}", s.screen());
    assert_eq!(decisions(&s), before);
    assert!(s.shows("the answer stays as it was"), "{}", s.screen());
    assert!(s.state.diagnosis.verdict().is_some(), "the verdict is there again");
    // Another answer is one, and there is nothing to give up any more.
    s.keys("b 0 u esc");
    assert!(s.shows("the question waits"), "{}", s.screen());
}

/// The timeline opens at what is selected, wherever that was.
#[test]
fn the_timeline_shows_what_is_selected() {
    let mut s = Session::new(100, 30, false);
    s.keys("j");
    let victim = s.state.victims.current().cloned().unwrap_or_else(|| panic!("{}", s.screen()));
    s.keys("t");
    let t = &s.state.timeline;
    assert_eq!((s.state.view, t.thread), (View::Timeline, Some(victim.thread)), "{}", s.screen());
    assert!((victim.start..=victim.end()).contains(&t.cursor), "{}", s.screen());
    // Where the cursor is in it already it stays there.
    s.keys("l");
    let cursor = s.state.timeline.cursor;
    s.keys("esc t");
    assert_eq!(s.state.timeline.cursor, cursor);
    s.keys("esc k enter A S end");
    let step = s.state.diagnosis.slice()[s.state.diagnosis.step].clone();
    s.keys("t");
    let t = &s.state.timeline;
    assert_eq!(t.thread, Some(step.thread), "{}", s.screen());
    assert!((step.start..=step.start + step.duration).contains(&t.cursor), "{}", s.screen());
    s.keys("esc");
    assert_eq!(s.state.view, View::Slice);
}

#[test]
fn one_goes_to_a_time_by_typing_it() {
    let mut s = Session::new(100, 30, false);
    s.keys(": 'goto enter");
    assert!(s.shows("goto needs a time, such as goto 2.5 s"), "{}", s.screen());
    s.keys("space '2.5");
    assert!(s.shows("enter shows the timeline at 2.500 s"), "{}", s.screen());
    s.keys("enter");
    assert_eq!((s.state.view, s.state.timeline.cursor), (View::Timeline, 2_500_000_000), "{}", s.screen());
    s.keys(": 'goto500ms enter");
    assert_eq!(s.state.timeline.cursor, 500_000_000);
    s.keys(": 'goto");
    s.keys("space '09:10:14");
    assert!(s.shows("enter shows the timeline at 2.000 s"), "{}", s.screen());
    s.keys("enter");
    assert_eq!(s.state.timeline.cursor, 2_000_000_000);
    s.keys(": 'goto9:10:99 enter");
    assert!(s.shows("goto needs a time, such as goto 2.5 s or goto 09:10:12 (UTC)"), "{}", s.screen());
    s.keys("esc : 'goto9:09 enter");
    assert!(s.shows("the recording is from 09:10:12 UTC to 09:10:20 UTC"), "{}", s.screen());
    s.keys("esc ctrl-o");
    s.keys(": 'goto99 enter");
    assert!(s.shows("the recording is 8.00 s long"), "{}", s.screen());
    s.keys("ctrl-o");
    assert_eq!(s.state.timeline.cursor, 500_000_000, "and back");
}
