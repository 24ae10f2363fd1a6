//! Waits that are short each and take most of the time together.

use crate::draw::Drawing;
use pg_event::ObjectKind;
use pg_graph::{BlockType, Options, Selection, VictimOptions, run_with_policy, select, victims};

/// tar writes into a pipe whose reader has next to no CPU: no single wait is long. Named, that is what it waited for; of
/// a pipeline that nobody named it is no hang, nor of a program that hardly waited.
#[test]
fn a_transfer_in_short_pieces_is_a_wait_when_it_is_asked_for() {
    let tars = regex::Regex::new("^tar").unwrap();
    for (room, found) in [(0.09, true), (0.02, false)] {
        let mut d = Drawing::new(12.0);
        let tar = d.process("tar", "tar cf p data", None, 0.0);
        let gzip = d.process("gzip", "gzip -1", None, 0.0);
        let (near, far) = (d.object(ObjectKind::Pipe, 7, 7, ""), d.object(ObjectKind::Pipe, 7, 7, ""));
        let work = d.stack(&["deflate (gzip)", "main (gzip)"]);
        d.runs(gzip, 1.0, 11.0, work);
        let mut t = 1.0;
        while t < 10.9 {
            d.wait(tar, t, t + room, "write").on(near).by(gzip, "read", far);
            t += 0.1;
        }
        d.wait(tar, 11.0, 12.0, "rt_sigsuspend").open();
        let (g, c) = d.build();
        let named = Selection { process: Some(tars.clone()), ..Selection::default() };
        let v = select(&g, &c, &named, &VictimOptions::default());
        assert_eq!(v.is_ok(), found, "{v:?}");
        if let Ok(v) = v {
            assert_eq!((v.thread, v.block_type), (tar, BlockType::LongWait));
            assert!(v.duration > crate::draw::ns(9.8), "{}", v.duration);
            let r = run_with_policy(&g, &c, v, Options::default());
            assert_eq!(r.root_causes[0].function.as_deref(), Some("deflate"), "{r:#?}");
            assert!(r.questions.is_empty(), "{r:#?}");
        }
        let worst = victims(&g, &c, &VictimOptions::default());
        assert!(worst.iter().all(|v| v.thread != tar), "{worst:#?}");
    }
}

/// Another program has a lock again and again, and computes while it does: a convoy. `rare`: it has it a tenth of the time.
fn convoy(rare: bool) -> (Drawing, pg_event::ThreadId) {
    let mut d = Drawing::new(9.0);
    let batch = d.process("batch", "batch", None, 0.0);
    let web = d.process("web", "web", None, 0.0);
    let lock = d.object(ObjectKind::FileLock, 7, 0, "/run/lock");
    let (sums, serves) = (d.stack(&["sum (batch)"]), d.stack(&["serve (web)"]));
    d.runs(batch, 0.0, 9.0, sums);
    for n in 0..80 {
        let at = 0.5 + 0.1 * f64::from(n);
        let until = at + if rare { 0.01 } else { 0.09 };
        d.wait(web, at, until, "flock").on(lock).by(batch, "flock", lock);
        d.runs(web, until, at + 0.1, serves);
    }
    (d, web)
}

#[test]
fn a_lock_that_is_waited_for_again_and_again_adds_up() {
    let named = Selection { process: Some(regex::Regex::new("^web$").unwrap()), ..Selection::default() };
    for rare in [false, true] {
        let (d, web) = convoy(rare);
        let (g, c) = d.build();
        let v = select(&g, &c, &named, &VictimOptions::default());
        assert_eq!(v.as_ref().is_ok_and(|v| v.thread == web && v.waits_on.is_some()), !rare, "{v:?}");
        if let Ok(v) = v
            && !rare
        {
            let r = run_with_policy(&g, &c, v, Options::default());
            assert_eq!(r.root_causes[0].process.as_deref(), Some("batch"), "{r:#?}");
        }
    }
}

/// A name that fits both means who waits: the other one only computes.
#[test]
fn of_a_convoy_the_one_that_waits_is_meant() {
    let (d, web) = convoy(false);
    let (g, c) = d.build();
    let both =
        Selection { process: Some(regex::Regex::new("^(web|batch)$").unwrap()), ..Selection::default() };
    let v = select(&g, &c, &both, &VictimOptions::default());
    assert_eq!(v.as_ref().map(|v| v.thread), Ok(web), "{v:?}");
}

/// A script runs one short command after the other, each of which waits for a lock that another program has most of the time.
#[test]
fn the_short_commands_of_a_script_add_up() {
    let mut d = Drawing::new(9.0);
    let batch = d.process("batch", "batch", None, 0.0);
    let sh = d.process("sh", "sh job", None, 0.0);
    let lock = d.object(ObjectKind::FileLock, 7, 0, "/run/lock");
    let sums = d.stack(&["sum (batch)"]);
    d.runs(batch, 0.0, 9.0, sums);
    for n in 0..80 {
        let at = 0.5 + 0.1 * f64::from(n);
        let flock = crate::retries::child(&mut d, sh, "flock lock true", (at, at + 0.095), 0);
        d.wait(flock, at + 0.002, at + 0.09, "flock").on(lock).by(batch, "flock", lock);
    }
    let (g, c) = d.build();
    let named = Selection { process: Some(regex::Regex::new("^sh job$").unwrap()), ..Selection::default() };
    let v = select(&g, &c, &named, &VictimOptions::default()).expect("its children take all its time");
    assert_eq!((v.thread, v.block_type), (sh, BlockType::LongWait));
    let r = run_with_policy(&g, &c, v, Options::default());
    let cause = &r.root_causes[0];
    assert_eq!(cause.process.as_deref(), Some("batch"), "{r:#?}");
    assert!(cause.why.contains("80 children"), "{}", cause.why);
}
