//! Stacks told by hand over a small program.

use super::drawn::Told;
use pg_event::ThreadId;

/// A function that forks in a loop, two event loops, and a library's function that repeats an interrupted wait.
const TEXT: &str = "forks: spawn: call jne:forks ret
    | head: nop poll: call inner: work: call jne:inner jmp:head
    | other: nop sleep: call job: call jne:other ret
    | retry: nop wait: call jne:retry ret
    | plain: nop once: call ret";

fn told() -> Told {
    Told::new(TEXT, &["spawn", "poll", "work", "sleep", "job", "wait", "once"])
}

#[test]
fn the_loop_that_turns_and_not_the_one_around_a_fork() {
    let mut t = told();
    t.stacks(&["spawn poll!", "spawn work", "spawn poll!", "spawn work", "spawn poll!"]);
    let (head, forks, poll) = (t.program.at("head"), t.program.at("forks"), t.program.at("poll"));
    let found = t.found();
    assert_eq!(found.len(), 1);
    let l = &found[0];
    assert_eq!((l.at.head, l.turns, l.waits, l.all), (head, 2, 3, 3));
    assert_eq!(l.still.iter().map(|s| s.head).collect::<Vec<_>>(), [forks]);
    // The address of a wait's own call is that of the instruction behind it.
    assert_eq!((l.sites.len(), l.sites[0].address, l.sites[0].input), (1, poll - 1, 3));
}

#[test]
fn a_loop_that_only_repeats_a_wait_is_none() {
    let mut t = told();
    let wait = "poll once wait once!";
    t.stacks(&[wait, wait, "work", wait, wait, "work", wait]);
    let head = t.program.at("head");
    assert_eq!(t.heads(), [(head, 4, 5)]);
    // Of a thread that does nothing else, nobody can tell: the innermost is what is proven.
    let mut t = told();
    t.stacks(&[wait, wait, wait]);
    let retry = t.program.at("retry");
    assert_eq!(t.heads(), [(retry, 2, 3)]);
}

/// Sessions wait by `retry` in their own loop, `head`, and work; others wait by it in `other`.
fn sessions() -> Told {
    let mut t = told();
    for session in 0..4 {
        t.thread = ThreadId(session);
        for _ in 0..8 {
            t.stacks(&["spawn poll wait once!", "spawn poll wait once!", "spawn work"]);
        }
    }
    t
}

#[test]
fn who_is_hardly_seen_at_work_does_not_turn_a_loop_in_which_others_only_wait() {
    let wait = "spawn sleep wait once!";
    let mut t = sessions();
    let (head, other, retry) = (t.program.at("head"), t.program.at("other"), t.program.at("retry"));
    // One that only waits; one that by chance was seen just behind the call; one of which a wait's stack was cut off.
    t.thread = ThreadId(10);
    t.stacks(&[wait; 5]);
    assert_eq!(t.heads(), [(other, 4, 5)]);
    t.thread = ThreadId(11);
    t.stacks(&[wait, wait, wait, "spawn sleep wait", wait, wait]);
    assert_eq!(t.heads().iter().map(|h| (h.0, h.2)).collect::<Vec<_>>(), [(other, 5)]);
    t.thread = ThreadId(12);
    t.stacks(&[wait; 4]);
    t.cut = true;
    t.stacks(&["sleep wait once!"]);
    t.cut = false;
    assert_eq!(t.heads().iter().map(|h| (h.0, h.2)).collect::<Vec<_>>(), [(other, 5)]);
    // Where there is no loop around it, nobody can tell.
    t.thread = ThreadId(13);
    t.stacks(&["once wait once!"; 3]);
    assert_eq!(t.heads(), [(retry, 2, 3)]);
    // The sessions keep theirs, and one that was hardly seen has it, too.
    t.thread = ThreadId(14);
    t.stacks(&["spawn poll wait once!"; 3]);
    assert_eq!(t.heads(), [(head, 2, 3)]);
    t.thread = ThreadId(0);
    assert_eq!(t.heads(), [(head, 15, 16)]);
}

#[test]
fn who_is_hardly_seen_at_work_turns_a_loop_in_which_others_work() {
    // The same function waits, and works.
    let mut t = told();
    for session in 0..4 {
        t.thread = ThreadId(session);
        for _ in 0..8 {
            t.stacks(&["spawn poll once!", "spawn work"]);
        }
    }
    let head = t.program.at("head");
    t.thread = ThreadId(10);
    t.stacks(&["sleep poll once!"; 3]);
    assert_eq!(t.heads(), [(head, 2, 3)]);
}

#[test]
fn what_happened_once_does_not_recur() {
    assert_eq!(told().stacks(&["spawn poll once!"]).heads(), []);
    assert_eq!(told().stacks(&["spawn poll once!", "spawn work once", "spawn poll once!"]).heads(), []);
    assert_eq!(told().stacks(&["once!", "once!", "once!"]).heads(), []);
    assert_eq!(told().stacks(&["poll once", "work once", "poll once", "work once", "poll once"]).heads(), []);
}

#[test]
fn the_outermost_of_nested_loops_that_turn() {
    let mut t = told();
    // The loop of a session within that of connections.
    let turn = ["poll once!", "work sleep once!", "work job once", "work sleep once!", "work job once"];
    t.stacks(&turn).stacks(&turn).stacks(&turn);
    let (head, other) = (t.program.at("head"), t.program.at("other"));
    let found = t.found();
    assert_eq!((found.len(), found[0].at.head, found[0].waits), (1, head, 9));
    assert!(found[0].nested.iter().any(|n| n.head == other), "{found:?}");
    assert_eq!(found[0].sites.iter().map(|s| s.input).collect::<Vec<_>>(), [6, 3]);
}

#[test]
fn one_loop_after_the_other_and_two_fibres() {
    let turns = |a: &'static str, b: &'static str| [a, b, a, b, a, b, a, b];
    let mut t = told();
    t.stacks(&turns("spawn poll once!", "spawn work once"))
        .stacks(&turns("spawn sleep once!", "spawn job once"));
    let (head, other) = (t.program.at("head"), t.program.at("other"));
    let heads: Vec<u64> = t.heads().iter().map(|h| h.0).collect();
    assert_eq!(heads, [head, other]);
    // Stacks of their own, in turns.
    let mut t = told();
    for _ in 0..4 {
        t.stacks(&["poll once!", "sleep once!", "work once", "job once"]);
    }
    let heads: Vec<u64> = t.heads().iter().map(|h| h.0).collect();
    // Each begins at calls of its own, so none is taken for a step of another.
    assert!(heads.is_empty() || heads == [head, other], "{heads:?}");
}

#[test]
fn stacks_that_are_cut_off_are_put_side_by_side_where_they_meet() {
    let turn = ["spawn poll once!", "spawn work once"];
    let mut t = told();
    t.cut = true;
    t.stacks(&turn).stacks(&["poll once!", "work once"]).stacks(&turn).stacks(&["poll once!"]);
    let head = t.program.at("head");
    assert_eq!(t.heads(), [(head, 3, 4)]);
    // Nothing in common: they say nothing.
    let mut t = told();
    t.cut = true;
    t.stacks(&["poll once!", "job once", "poll once!", "job once", "poll once!", "job once"]);
    assert_eq!(t.heads(), []);
}
