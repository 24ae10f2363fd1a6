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
    s.send(Msg::Job(crate::app::jobs::Done::Victims(rows, 201)));
    assert_eq!(s.state.victims.rows.len(), 2, "{}", s.screen());
    assert!(s.shows("+199") && s.shows("Victims: what hung (201)"), "{}", s.screen());
    s.keys("home right");
    assert_eq!(s.state.victims.rows.len(), 201);
    assert!(s.shows("199 more like it below: left hides them"), "{}", s.screen());
    // The strip below shows when the selected one was, however far down it is.
    s.keys("G");
    assert_eq!(s.screen().lines().filter(|l| l.starts_with('▶')).count(), 2, "{}", s.screen());
    s.keys("home");
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
    s.send(Msg::Job(crate::app::jobs::Done::Victims(vec![row], 1)));
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
    s.send(Msg::Job(crate::app::jobs::Done::Victims(
        vec![row(1_000_000, 9.0), row(2_000_000, 8.0), row(3_000_000, 7.0)],
        3,
    )));
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

/// What the verdict names is told by a shape too, and is what one looks at first.
#[test]
fn the_slice_marks_the_root_cause_wherever_it_stands() {
    let mut s = Session::loading(80, 24, "none", false);
    s.send(Msg::Load(Load::Ready(std::sync::Arc::new(recording()))));
    s.keys("enter A");
    let mut outcome = s.state.diagnosis.outcome.clone().expect("a verdict");
    let waiter = outcome.report.slice[1].clone();
    (outcome.report.root_causes[0].pid, outcome.report.root_causes[0].tid) =
        (Some(waiter.pid), Some(waiter.tid));
    s.send(Msg::Job(crate::app::jobs::Done::Diagnosis(Box::new(outcome))));
    assert!(s.shows("The way there (★ the root cause)"), "{}", s.screen());
    assert!(s.shows("    1★ payd (tid 7741)") && s.shows("    2 payd/rebuild"), "{}", s.screen());
    s.keys("S");
    assert!(s.shows("▶  1★ payd/7741") && s.shows("   2  payd/rebuild"), "{}", s.screen());
    assert!(s.shows("★ root cause"), "{}", s.screen());
}

/// Programs of one interpreter differ by their command lines only.
#[test]
fn a_step_shows_its_command_line() {
    let mut s = Session::new(80, 24, false);
    s.keys("enter A S");
    for command in ["   │  shopd --listen 8080", "   │  payd /etc/payd.conf", "      payd /etc/payd.conf"]
    {
        assert!(s.screen().lines().any(|l| l == command), "{command}:\n{}", s.screen());
    }
    let mut outcome = s.state.diagnosis.outcome.clone().expect("a verdict");
    for step in &mut outcome.report.slice {
        step.process = "python3".into();
    }
    outcome.report.slice[2].cmdline = "/usr/bin/python3 /srv/rates.py 9101".into();
    s.send(Msg::Job(crate::app::jobs::Done::Diagnosis(Box::new(outcome))));
    assert!(s.shows("(tid 7744, `python3 …/rates.py 9101`) running"), "{}", s.screen());
}

/// Whoever hung as one program and executed another since is called by one name in all views.
#[test]
fn a_victim_is_called_as_it_was_then() {
    let mut r = recording();
    let line = |time, text: &str| pg_event::Cmdline { time, text: text.into() };
    let shopd = r.catalog.processes.iter_mut().find(|p| p.pid == 812).expect("the shop");
    shopd.cmdlines = vec![line(0, "/bin/sh /srv/run.sh"), line(7_900_000_000, "shopd --listen 8080")];
    let mut s = Session::with(r, 100, 30, false);
    assert!(s.shows("long wait      sh:812 ") && s.shows("▶ sh:812 "), "{}", s.screen());
    assert!(s.shows("─ sh:812  at 1.001 s (09:10:13 UTC) ─"), "{}", s.screen());
    s.keys("enter A");
    assert!(s.shows("sh (pid 812) waited for"), "{}", s.screen());
    s.keys("S");
    assert!(s.shows("0  sh:812 ") && s.shows("│  /bin/sh /srv/run.sh"), "{}", s.screen());
}

/// Logs tell by the clock on the wall when something happened.
#[test]
fn moments_have_their_time_of_day() {
    let mut s = Session::new(100, 30, false);
    assert!(s.shows("0 s (09:10:12 UTC) to 8.0 s"), "{}", s.screen());
    s.keys("enter A");
    assert!(s.shows("from 1.001 s on (09:10:13 UTC; long wait)."), "{}", s.screen());
    s.keys("y");
    let Some(crate::app::msg::Effect::Osc52(text)) = s.asked.last() else { panic!("nothing was copied") };
    assert!(text.contains("8.00 s recorded from 2026-11-25 09:10:12 UTC on"), "{text}");
    assert!(s.shows("copied: verdict, "), "{}", s.screen());
}

/// The answers of whoever had the file before are not passed off as one's own.
#[test]
fn answers_from_before_are_told_as_such() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("demo.pgs");
    let demo = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("sessions/demo.pgs");
    std::fs::copy(demo, &path).expect("the session is there");
    let open = || {
        let r = crate::app::load::load(&path, &crate::session::Symbols::default(), &|_, _| {});
        Session::with(r.expect("it opens"), 100, 30, false)
    };
    let kept = "1 answer kept in this file from before led here; u takes the last one back.";
    let mut s = open();
    s.keys("enter 0");
    assert!(s.shows("Root cause") && !s.shows(kept), "{}", s.screen());
    drop(s);
    let mut s = open();
    s.keys("enter");
    assert!(s.shows(kept), "{}", s.screen());
    s.keys("u r");
    assert!(s.shows("Root cause") && !s.shows(kept), "{}", s.screen());
}

/// Reading is over before the recording is there: a bar that is full and does not go on tells nothing.
#[test]
fn what_comes_after_reading_has_no_share() {
    let mut s = Session::loading(80, 24, "dark", false);
    let steps = std::cell::RefCell::new(Vec::new());
    let demo = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("sessions/demo.pgs");
    let note = |what, share| steps.borrow_mut().push((what, share));
    crate::app::load::load(&demo, &crate::session::Symbols::default(), &note).expect("it opens");
    let steps = steps.into_inner();
    let what = "naming functions and ordering the graph";
    assert!(steps.contains(&(what, 1.0)), "{steps:?}");
    s.send(Msg::Load(Load::Progress { what, share: 1.0 }));
    assert!(s.shows("naming functions and ordering the graph…") && !s.shows("100 %"), "{}", s.screen());
}

/// A box in which a note is written has nothing to choose from.
#[test]
fn hints_of_layers_say_what_their_keys_do() {
    let mut s = Session::new(80, 24, false);
    let last = |s: &Session| s.screen().lines().last().unwrap_or_default().to_owned();
    s.keys("M");
    assert_eq!(last(&s), " enter keep  esc close");
    s.keys("esc /");
    assert_eq!(last(&s), " enter choose  esc close");
    s.keys("esc enter A w");
    assert!(last(&s).starts_with(" esc close") && !last(&s).contains("help"), "{}", last(&s));
}

/// Where there is nothing to diagnose, to order or to compare, no key for it is offered.
#[test]
fn hints_of_empty_lists_offer_nothing_of_a_row() {
    let mut s = Session::with(crate::app::harness::empty(), 200, 60, false);
    let last = |s: &Session| s.screen().lines().last().unwrap_or_default().to_owned();
    for (key, list) in [("V", "what hung (0)"), ("v", "took too long (0)")] {
        s.keys(key);
        assert!(s.shows(list), "{}", s.screen());
        for word in ["diagnose", "sort", "see in timeline", "what made it", "compare", "adjust", "silence"] {
            assert!(!last(&s).contains(word), "{list}: {word}: {}", last(&s));
        }
        assert!(last(&s).contains("T threads"), "{}", last(&s));
    }
}

/// A message that is cut off and kept in the log says where all of it is.
#[test]
fn a_long_message_leads_to_the_log() {
    use crate::config::Look;
    let mut s = Session::new(80, 24, false);
    let last = |s: &mut Session| {
        s.resize(80, 24);
        s.screen().lines().last().unwrap_or_default().to_owned()
    };
    s.state.say(Look::Good, "x".repeat(79));
    assert_eq!(last(&mut s), format!(" {}", "x".repeat(79)));
    s.state.say(Look::Good, "x".repeat(80));
    assert!(last(&mut s).ends_with("x… L all"), "{}", last(&mut s));
    s.state.say_only(Look::Good, "y".repeat(80));
    assert!(!last(&mut s).contains("L all"), "it is not in the log: {}", last(&mut s));
}

/// What does not fit is not taken for the whole.
#[test]
fn what_is_cut_off_says_so() {
    let mut s = Session::new(40, 10, false);
    s.keys("t");
    let line = |s: &Session| s.screen().lines().nth(8).unwrap_or_default().to_owned();
    assert!(line(&s).ends_with('…') && line(&s).chars().count() == 40, "{}", s.screen());
    let mut s = Session::new(80, 24, false);
    s.keys("p");
    assert!(s.shows("on the CPU in fsum  weak"), "{}", s.screen());
    s.keys("V enter A w");
    assert!(s.shows("taken as recommended.") && !s.shows("policy"), "{}", s.screen());
}

/// Nor what is told of a step below the slice.
#[test]
fn what_is_told_of_a_step_says_where_it_is_cut_off() {
    let mut s = Session::new(40, 24, false);
    s.keys("enter A enter");
    assert_eq!(s.state.view, crate::app::state::View::Slice, "{}", s.screen());
    let told = s.screen().lines().find(|l| l.contains("UTC) to ")).map(str::to_owned);
    let told = told.unwrap_or_else(|| panic!("{}", s.screen()));
    assert!(told.ends_with('…'), "{}", s.screen());
}

/// A step has no room to say that functions have no names; what it waits on is worth more. Below there is room.
#[test]
fn a_step_without_names_of_functions_tells_what_it_waits_on() {
    let mut s = Session::new(80, 24, false);
    s.keys("enter A");
    let mut outcome = s.state.diagnosis.outcome.clone().expect("a verdict");
    outcome.slice[2].stack = vec!["0x4d785 (payd)".into(), "0x4357d (payd)".into()];
    s.send(Msg::Job(crate::app::jobs::Done::Diagnosis(Box::new(outcome))));
    s.keys("S");
    let said = "payd (its functions have no names)";
    assert!(!s.screen().lines().any(|l| l.contains("2★") && l.contains(said)), "{}", s.screen());
    s.resize(80, 16);
    assert!(s.shows(said), "{}", s.screen());
}

/// Also where there is no room for a column of them.
#[test]
fn the_command_line_of_the_selected_process_is_told() {
    for (w, h) in [(80, 24), (100, 30), (40, 10)] {
        let mut s = Session::new(w, h, false);
        s.keys("T home");
        let first = s.screen();
        assert!(first.contains("  command  shopd --listen 8080"), "{first}");
        s.keys("j");
        assert!(s.shows("  command  payd /etc/payd.conf"), "{}", s.screen());
    }
    let mut s = Session::new(120, 30, false);
    s.keys("T home");
    assert!(s.shows("   command") && !s.shows("  command  shopd"), "{}", s.screen());
}

/// A hang of which the recording saw only a part took longer than what was seen, and the list says so.
#[test]
fn a_victim_that_was_cut_off_says_so() {
    let mut items = crate::app::harness::shop_items();
    for item in &mut items {
        let pg_event::Item::Events(events) = item else { continue };
        for e in events {
            if let pg_event::Kind::OffCpu(o) = &mut e.kind
                && (e.thread, o.start) == (pg_event::ThreadId(0), 1_001_000_000)
            {
                o.begun_before = true;
            }
        }
    }
    let s = Session::with(crate::app::harness::built("shop", items), 80, 24, false);
    assert!(s.shows(">4.01 s") && s.shows("took       more than the 4.01 s seen, begun"), "{}", s.screen());
    let s = Session::new(80, 24, false);
    assert!(s.shows(" 4.01 s") && !s.shows(">4.01 s") && !s.shows("took "), "{}", s.screen());
}

/// However far in a process stands, and however narrow the screen is, it has a name.
#[test]
fn a_process_far_in_has_a_name() {
    use pg_event::{CatalogDelta, Item, Process, ProcessId};
    let mut items = crate::app::harness::shop_items();
    if let Some(Item::Catalog(CatalogDelta { processes, threads, .. })) = items.first_mut() {
        let shells = 10..20u32;
        for i in shells {
            let parent = if i == 10 { ProcessId::NONE } else { ProcessId(i - 1) };
            let row = Process { pid: i, ns_pid: i, name: "bash".into(), parent, ..Process::default() };
            processes.push((ProcessId(i), row));
            let thread = pg_event::Thread {
                tid: i,
                ns_tid: i,
                process: ProcessId(i),
                name: "bash".into(),
                ..pg_event::Thread::default()
            };
            threads.push((pg_event::ThreadId(i), thread));
        }
        processes[0].1.parent = ProcessId(19);
    }
    let mut s = Session::with(crate::app::harness::built("shop", items), 40, 24, false);
    s.keys("T home");
    assert!(s.screen().lines().filter(|l| l.contains("shopd")).count() >= 2, "{}", s.screen());
}

/// Of very many victims not all are listed, and that is told.
#[test]
fn a_list_that_is_not_all_says_so() {
    let mut s = Session::new(80, 24, false);
    let rows = s.state.victims.all.clone();
    let n = rows.len();
    s.send(Msg::Job(crate::app::jobs::Done::Victims(rows, 431)));
    assert!(s.shows(&format!("what hung ({n} of 431, the worst)")), "{}", s.screen());
}

/// Columns are as wide as what stands in them asks for.
#[test]
fn what_is_waited_for_has_the_room_that_names_leave() {
    let mut s = Session::new(120, 40, false);
    let mut row = s.state.victims.all[0].clone();
    row.waits = "poll tcp 127.0.0.1:34862 and something".into();
    row.suspects = "payd".into();
    s.send(Msg::Job(crate::app::jobs::Done::Victims(vec![row], 1)));
    assert!(s.shows("poll tcp 127.0.0.1:34862 and something  "), "{}", s.screen());
}

/// A wake-up passes behind the command line of a process.
#[test]
fn command_lines_in_the_timeline_are_whole() {
    let mut s = Session::new(100, 30, false);
    s.keys("t");
    let end = s.state.recording.as_ref().expect("a recording").graph.duration();
    let steps = 40;
    for i in 0..steps {
        s.state.timeline.cursor = end / steps * i;
        s.resize(100, 30);
        assert!(s.shows("payd /etc/payd.conf"), "{}", s.screen());
    }
}

/// Shares of threads add up in their process, and a folded line stands for all that it hides.
#[test]
fn a_process_has_the_time_of_its_threads_and_a_folded_one_of_its_children() {
    use pg_graph::LaneState;
    let mut s = Session::new(120, 40, false);
    s.keys("T");
    let r = s.state.recording.clone().expect("a recording");
    let payd = s.state.threads.roots.iter().find(|b| b.threads > 1).expect("one with threads").clone();
    let all: u64 = payd.children.iter().map(|c| c.times.get(LaneState::Running)).sum();
    assert!(all > 0 && payd.lasted() <= r.graph.duration(), "{} of {}", all, payd.lasted());
    let share = crate::app::time::percent(all, payd.lasted());
    let line = |s: &Session, name: &str| {
        let screen = s.screen();
        let line = screen.lines().find(|l| l.contains(name));
        line.map_or_else(|| panic!("{screen}"), str::to_owned)
    };
    assert!(line(&s, &payd.name).contains(&share), "{share}: {}", s.screen());
    // As its parent, a process that does little itself shows what its child does when it is folded.
    let mut parent = s.state.threads.roots.iter().find(|b| b.threads == 1).expect("another one").clone();
    let alone = parent.whole().0.times.running();
    parent.children.push(payd);
    let (both, hidden) = parent.whole();
    assert_eq!((both.times.running(), hidden), (alone + all, 1));
    s.state.threads.roots = vec![parent.clone()];
    s.state.threads.tree.get_mut().close_all();
    s.resize(120, 40);
    assert!(
        line(&s, &format!("{} +1", parent.name)).contains(&format!(" {} ", parent.whole().0.threads)),
        "{}",
        s.screen()
    );
}

/// A thread without a name of its own is told by its number: its process may have waits of its main thread, too.
#[test]
fn a_verdict_tells_which_thread_waited() {
    let mut s = Session::new(100, 30, false);
    s.keys("enter A");
    let mut outcome = s.state.diagnosis.outcome.clone().expect("a verdict");
    let v = &mut outcome.report.victim;
    (v.thread, v.tid) = (v.process.clone(), v.pid + 7);
    let told = format!("shopd (pid {}, thread {}) waited", v.pid, v.tid);
    s.send(Msg::Job(crate::app::jobs::Done::Diagnosis(Box::new(outcome))));
    assert!(s.shows(&told), "{}", s.screen());
}
