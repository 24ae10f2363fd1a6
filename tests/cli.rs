//! The commands without a screen: what they print and how they exit.

mod common;

use common::{contract, pg_tui, sample, text};
use std::fs;
use std::io::Read;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

struct Place {
    dir: tempfile::TempDir,
    file: PathBuf,
}

fn place() -> Place {
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("shop.pgs");
    sample::write(&file, "shop");
    Place { dir, file }
}

impl Place {
    fn run(&self, args: &[&str]) -> Output {
        pg_tui(self.dir.path()).current_dir(self.dir.path()).args(args).output().expect("pg-tui starts")
    }

    fn exits(&self, args: &[&str], code: i32, says: &str) {
        let out = self.run(args);
        assert_eq!(out.status.code(), Some(code), "{args:?}: {}", text(&out));
        assert!(text(&out).contains(says), "{args:?} does not say {says:?}: {}", text(&out));
        assert!(code != 2 || out.stdout.is_empty(), "what is wrong goes to standard error");
    }
}

/// As with `2>&1 | head`, or in a terminal that is gone.
#[test]
fn nobody_reading_what_is_said_changes_no_exit_code() {
    let p = place();
    for (args, code) in [
        (&["guard"][..], 2),
        (&["profile", "show", "none.pgprof"][..], 3),
        (&["train", "--from", "shop.pgs"][..], 1),
    ] {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let mut command = pg_tui(p.dir.path());
        let status =
            command.current_dir(p.dir.path()).args(args).stdout(Stdio::null()).stderr(writer).status();
        assert_eq!(status.expect("pg-tui starts").code(), Some(code), "{args:?}");
    }
}

/// Who wants to see waits as text need not think about for how long.
#[test]
fn live_prints_once() {
    let p = place();
    let pid = std::process::id().to_string();
    for args in [&["live", "--once", "-p", &pid][..], &["live", "-p", &pid, "--once", "1"]] {
        p.exits(args, 0, &format!("{pid} "));
    }
}

#[test]
fn exit_codes() {
    let p = place();
    p.exits(&["diagnose", "shop.pgs"], 0, "rebuild_index");
    p.exits(&["diagnose", "shop.pgs", "--process", "^shop --verbose$"], 0, "rebuild_index");
    p.exits(&["diagnose", "shop.pgs", "--at", "3"], 0, "rebuild_index");
    p.exits(&["diagnose", "shop.pgs", "--at", "09:10:15"], 0, " 2026-11-25 09:10:12 UTC  host db7");
    p.exits(&["diagnose", "shop.pgs", "--at", "9:10:15"], 0, "(09:10:1");
    p.exits(
        &["diagnose", "shop.pgs", "--at", "9:09:15"],
        2,
        "the recording is from 2026-11-25 09:10:12 UTC to",
    );
    p.exits(&["diagnose", "shop.pgs", "--json"], 0, "\"start_unix_ns\": 1795597812000000000");
    p.exits(
        &["diagnose", "shop.pgs", "--at", "3:77"],
        2,
        "a time of day is expected, such as 09:10:13 (UTC)",
    );
    p.exits(&["diagnose", "shop.pgs", "--pid", "20"], 0, "outside of the focus of the recording");
    p.exits(&["diagnose", "shop.pgs", "--whole-turns"], 0, "rebuild_index");
    p.exits(&["diagnose", "shop.pgs", "--why-not"], 0, "Why not the others");
    p.exits(&["diagnose", "shop.pgs", "--stats"], 0, "connections filtered out");
    p.exits(&["diagnose", "shop.pgs", "--stats", "--json"], 0, "\"automatic\"");
    p.exits(&["diagnose", "shop.pgs", "--pid", "10", "--at", "20"], 1, "nothing abnormal");
    p.exits(&["diagnose", "shop.pgs", "--pid", "999"], 2, "no thread");
    p.exits(&["diagnose", "shop.pgs", "--process", "("], 2, "--process");
    p.exits(&["diagnose", "shop.pgs", "--pid", "10", "--tid", "10"], 2, "cannot be used with");
    p.exits(&["diagnose", "shop.pgs", "--at", "soon"], 2, "seconds");
    p.exits(&["diagnose", "shop.pgs", "--answers", "none.txt"], 2, "none.txt");
    p.exits(&["diagnose"], 2, "FILE");
    p.exits(&["frobnicate"], 2, "unrecognized");
    p.exits(&[], 2, "Usage");
    p.exits(&["--help"], 0, "Exit codes");
    p.exits(&["--version"], 0, env!("CARGO_PKG_VERSION"));
    p.exits(&["diagnose", "none.pgs"], 3, "none.pgs");
    p.exits(&["open", "none.pgs"], 3, "none.pgs");
    p.exits(&["open", "shop.pgs"], 2, "terminal");
    p.exits(&["none.pgs"], 3, "none.pgs");
    p.exits(&["./shop.pgs"], 2, "terminal");
    p.exits(&["redact", "none.pgs", "out.pgs"], 3, "none.pgs");
    p.exits(&["redact", "shop.pgs", "shop.pgs"], 2, "same file");
    p.exits(&["record", "-p", "4194305", "--no-tui"], 2, "no such process");
    p.exits(&["record", "--comm", "*", "--no-tui"], 2, "--comm");
    p.exits(&["man", "nothing"], 2, "record");
    p.exits(&["diagnose", "shop.pgs", "--at", "9999"], 1, "after the end of the recording");
    p.exits(&["demo", "--seconds", "0"], 2, "0.1 to 600");
    // What only goes with something else does nothing alone, so it is refused.
    for alone in ["--after=5s", "--every=5s", "--keep=5"] {
        p.exits(&["record", alone, "-p", "4194305"], 2, "--flight");
        p.exits(&["record", alone, "-p", "4194305", "-d", "1"], 2, "--duration");
    }
    for alone in ["--steps-for=5ms", "--steps-max=5", "--steps-after=5s"] {
        p.exits(&["record", alone, "-p", "4194305"], 2, "--steps");
    }
    p.exits(&["find-flag", "-p", "4194305"], 2, "there is no process 4194305");
    let guard = ["guard", "-p", "4194305", "--unit-begin", "f", "--threshold", "5ms"];
    p.exits(&[&guard[..], &["--run", "true"]].concat(), 2, "--on-violation command");
    p.exits(&[&guard[..], &["-o", "."]].concat(), 2, "--on-violation record");
    // Where it is to write is looked at before it guards.
    p.exits(
        &[&guard[..], &["--on-violation", "record", "-o", "none"]].concat(),
        2,
        "-o none: there is no such folder",
    );
    p.exits(&[&guard[..], &["--metrics", "none/m"]].concat(), 2, "--metrics none/m: there is no such folder");
    p.exits(&[&guard[..], &["--metrics", "."]].concat(), 2, "--metrics .: this is a folder");
    let out = p.run(&["units", "shop.pgs"]);
    assert!(out.status.code() == Some(1) && out.stdout.is_empty(), "{}", text(&out));
}

#[test]
fn damage_is_told_with_its_place() {
    let p = place();
    let whole = fs::read(&p.file).expect("it is there");
    let write = |bytes: &[u8]| fs::write(p.dir.path().join("bad.pgs"), bytes).expect("written");
    write(b"");
    p.exits(&["diagnose", "bad.pgs"], 3, "byte 0");
    write(b"From: alice\nTo: bob\n");
    p.exits(&["diagnose", "bad.pgs"], 3, "not a pg-tui recording");
    // Nobody writes to it: it is not waited for.
    let pipe = p.dir.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().expect("mkfifo").success());
    p.exits(&["diagnose", "pipe"], 3, "not a regular file");
    p.exits(&["diagnose", "."], 3, "a folder");
    write(&whole[..14]);
    p.exits(&["diagnose", "bad.pgs"], 3, "byte 16");
    let mut newer = whole.clone();
    newer[8] = 9;
    write(&newer);
    p.exits(&["diagnose", "bad.pgs"], 3, "format 9.");
    newer[8] = 1;
    newer[10] = 99;
    write(&newer);
    p.exits(&["diagnose", "bad.pgs"], 0, "format 1.99");
    // What is left of a file is not all that there was.
    let mut holes = 0;
    for at in (64..whole.len()).step_by(16) {
        let mut bytes = whole.clone();
        bytes[at] ^= 1;
        write(&bytes);
        let out = p.run(&["diagnose", "bad.pgs"]);
        assert_ne!(out.status.code(), Some(1), "byte {at}: {}", text(&out));
        if out.status.code() == Some(3) {
            assert!(
                text(&out).contains("damaged") || text(&out).contains("byte"),
                "byte {at}: {}",
                text(&out)
            );
            holes += 1;
        }
    }
    assert!(holes > 0, "no byte of the events was hit");
    // Cut off anywhere: nobody knows what was in the rest.
    for at in (64..whole.len()).step_by(64) {
        write(&whole[..at]);
        let out = p.run(&["diagnose", "bad.pgs"]);
        assert_ne!(out.status.code(), Some(1), "{at} bytes: {}", text(&out));
    }
    // Cut off in its last part: it opens, and says what is missing.
    write(&whole[..whole.len() - 200]);
    p.exits(&["diagnose", "bad.pgs"], 0, "not closed");
}

#[test]
fn json_keeps_the_contract() {
    let p = place();
    let out = p.run(&["diagnose", "shop.pgs", "--json"]);
    assert!(out.status.success(), "{}", text(&out));
    let report: serde_json::Value = serde_json::from_slice(&out.stdout).expect("JSON");
    contract::check(&report);
    assert_eq!(report["victim"]["process"], "shop");
    assert_eq!(report["root_causes"][0]["process"], "pay");
    assert_eq!(report["session"]["host"], "db7");
}

/// Who says nothing about whom they mean is told what else hung; who does is not.
#[test]
fn what_else_hung() {
    let p = place();
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/sessions/redis-lua.pgs");
    for (select, told) in [(&[][..], true), (&["--process", "^redis-cli"], false)] {
        let args = [&["diagnose", file][..], select].concat();
        let out = text(&p.run(&args));
        let also: Vec<&str> = out.lines().filter(|l| l.starts_with("  --tid ")).collect();
        assert_eq!(also.len(), usize::from(told), "{out}");
        assert!(also.iter().all(|l| l.contains("redis-cli (pid 471): long wait on unix")), "{out}");
    }
}

#[test]
fn no_escape_sequence_comes_out() {
    let p = place();
    sample::write(&p.file, "sh\x1b]0;owned\x07\u{9b}2J\u{202e}op");
    for args in [
        &["diagnose", "shop.pgs"][..],
        &["diagnose", "shop.pgs", "--json"],
        &["diagnose", "shop.pgs", "--pid", "9"],
    ] {
        let out = text(&p.run(args));
        let bad = |c: char| (c.is_control() && c != '\n') || c == '\u{202e}';
        assert!(!out.contains(bad), "{args:?}: {out:?}");
    }
    let out = p.run(&["diagnose", "shop.pgs", "--json"]);
    let report: serde_json::Value = serde_json::from_slice(&out.stdout).expect("JSON");
    contract::check(&report);
}

/// In a locale of another character set only ASCII is understood.
#[test]
fn text_for_other_character_sets_is_ascii() {
    let p = place();
    let run = |locale: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pg-tui"));
        command.current_dir(p.dir.path()).args(["diagnose", "shop.pgs"]).env("LC_ALL", locale);
        String::from_utf8_lossy(&command.output().expect("it runs").stdout).into_owned()
    };
    let (plain, latin) = (run("C.UTF-8"), run("de_DE.ISO-8859-1"));
    assert!(plain.contains("│  ↑") && latin.contains("|  ^"), "{latin}");
    assert!(latin.is_ascii(), "{latin}");
    assert_eq!(plain.lines().count(), latin.lines().count());
}

#[test]
fn answers_are_taken() {
    let p = place();
    fs::write(p.dir.path().join("answers"), "edge = recommended\n# nothing else\n").expect("written");
    p.exits(&["diagnose", "shop.pgs", "--answers", "answers"], 0, "rebuild_index");
    fs::write(p.dir.path().join("answers"), "edge = perhaps\n").expect("written");
    p.exits(&["diagnose", "shop.pgs", "--answers", "answers"], 2, "line 1");
    // An option that is not there is not taken for another one.
    let demo = concat!(env!("CARGO_MANIFEST_DIR"), "/sessions/demo.pgs");
    fs::write(p.dir.path().join("answers"), "1: 7\n").expect("written");
    p.exits(&["diagnose", demo, "--answers", "answers"], 2, "has 2 options, and the answer given is 7");
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let p = place();
    for args in [&["diagnose", "shop.pgs"][..], &["completions", "bash"], &["man"]] {
        let mut child = pg_tui(p.dir.path())
            .args(args)
            .current_dir(p.dir.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("starts");
        drop(child.stdout.take());
        let mut said = String::new();
        child.stderr.take().expect("piped").read_to_string(&mut said).expect("text");
        assert_eq!((child.wait().expect("ends").code(), said.as_str()), (Some(0), ""), "{args:?}");
    }
}

#[test]
fn completions_and_manual_pages() {
    let p = place();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        p.exits(&["completions", shell], 0, "diagnose");
    }
    p.exits(&["man"], 0, ".TH");
    p.exits(&["man", "record"], 0, "cgroup");
    p.exits(&["man", "profile", "show"], 0, "pg-tui-profile-show 1");
    p.exits(&["man", "--dir", "pages"], 0, "");
    let pages: Vec<_> = fs::read_dir(p.dir.path().join("pages"))
        .expect("a folder")
        .flatten()
        .map(|e| e.file_name())
        .collect();
    for page in ["pg-tui.1", "pg-tui-record.1", "pg-tui-diagnose.1"] {
        assert!(pages.iter().any(|f| f == page), "{page} is not among {pages:?}");
    }
    // What a page refers to is there.
    for page in &pages {
        let text = fs::read_to_string(p.dir.path().join("pages").join(page)).expect("text").replace('\\', "");
        for other in text.split("pg-tui").skip(1).filter_map(|rest| rest.split_once("(1)").map(|r| r.0)) {
            let other = format!("pg-tui{other}.1");
            let is_name = other.chars().all(|c| c.is_ascii_alphanumeric() || "-.".contains(c));
            assert!(!is_name || pages.iter().any(|f| *f == *other), "{page:?} refers to {other}");
        }
    }
}

#[test]
fn a_redacted_copy_opens_and_says_the_same() {
    let p = place();
    p.exits(&["redact", "shop.pgs", "copy.pgs"], 0, "same as in the original");
    let cause = |file| {
        let out = p.run(&["diagnose", file, "--json"]);
        let report: serde_json::Value = serde_json::from_slice(&out.stdout).expect("JSON");
        contract::check(&report);
        report["root_causes"][0].clone()
    };
    assert_eq!(cause("shop.pgs")["why"], cause("copy.pgs")["why"]);
    let copy = fs::read(p.dir.path().join("copy.pgs")).expect("written");
    // What is at OUT may be a recording that is there once.
    p.exits(&["redact", "shop.pgs", "copy.pgs"], 0, "is now copy.pgs.old");
    assert!(fs::read(p.dir.path().join("copy.pgs.old")).expect("kept") == copy);
    assert!(!copy.windows(3).any(|w| w == b"db7"));
}

/// A copy that has no room is a fault of the output, and what there is of it is taken away again.
#[test]
fn a_copy_without_room_leaves_nothing() {
    let p = place();
    p.exits(&["redact", "shop.pgs", "none/copy.pgs"], 2, "none/copy.pgs: cannot create it");
    p.exits(&["redact", "shop.pgs", "/dev/full"], 5, "/dev/full: cannot write to it: No space left");
    // No file may be longer than 512 bytes; the shell hands on that the signal of it is ignored.
    let script = "trap '' XFSZ; ulimit -f 1; exec \"$0\" redact shop.pgs half.pgs";
    let out = Command::new("bash")
        .args(["-c", script, env!("CARGO_BIN_EXE_pg-tui")])
        .current_dir(p.dir.path())
        .output()
        .expect("bash is there");
    assert!(out.status.code() == Some(5) && text(&out).contains("half.pgs: cannot write"), "{}", text(&out));
    assert!(!p.dir.path().join("half.pgs").exists(), "half a copy looks like one");
}

/// An empty variable in the place of the command (`record -- $CMD`) records nobody's machine.
#[test]
fn no_command_behind_the_dashes() {
    let p = place();
    p.exits(&["record", "--"], 2, "no command stands behind `--`");
    p.exits(&["record", "-d", "1", "--"], 2, "no command stands behind `--`");
}

/// A profile with a type of three units.
fn profile(path: &std::path::Path) {
    use pg_graph::units::{CallPath, Function, FunctionId, LoopKey, PathSet, Profile, Unit};
    let functions = ["main", "search"].map(|n| Function { module: "app".into(), name: n.into() });
    let unit = |ms: u64| Unit {
        duration: ms * 1_000_000,
        paths: PathSet::new([CallPath::new([FunctionId(0), FunctionId(1)])]),
        contexts: std::collections::BTreeSet::new(),
    };
    let units = [unit(3), unit(4), unit(5)];
    let learnt = Profile::new([], &functions, units.iter().map(|u| (LoopKey::default(), u)));
    pg_tui::units::update(path, |_| learnt).expect("it is written");
}

#[test]
fn profiles_and_what_is_none() {
    let p = place();
    let path = |name: &str| p.dir.path().join(name);
    profile(&path("a.pgprof"));
    fs::write(path("notes.txt"), "not to be lost").expect("written");
    fs::write(path("new.pgprof"), b"PGPROF\x07\x00").expect("written");
    fs::write(path("cut.pgprof"), &fs::read(path("a.pgprof")).expect("it was written")[..40])
        .expect("written");
    p.exits(&["train"], 2, "whose units?");
    p.exits(&["train", "--from", "none.pgs"], 3, "none.pgs");
    p.exits(
        &["train", "--from", "a.pgprof"],
        3,
        "not a pg-tui recording: it is a profile: pg-tui profile show",
    );
    p.exits(&["train", "--from", "shop.pgs"], 1, "no unit of work was found in the focus");
    p.exits(&["train", "--from", "shop.pgs", "--comm", "nobody"], 1, "that -p and --comm name");
    p.exits(&["train", "--from", "shop.pgs", "--comm", "("], 2, "--comm");
    p.exits(&["train", "--from", "shop.pgs", "--", "true"], 2, "cannot be used with");
    p.exits(&["train", "--from", "shop.pgs", "--measure", "3"], 2, "cannot be used with --from");
    // Before anything is learnt, not after it.
    p.exits(&["train", "--from", "shop.pgs", "-o", "none/shop.pgprof"], 2, "there is no folder none");
    p.exits(&["train", "--units", "u.jsonl", "--", "true"], 2, "cannot be used with a command");
    // A recording has no times of units that a person names.
    p.exits(&["train", "--from", "shop.pgs", "--unit-begin", "serve"], 2, "Name it as well");
    // Before anything is recorded.
    p.exits(&["train", "-o", "notes.txt", "--", "true"], 3, "no profile");
    p.exits(&["profile", "show", "a.pgprof"], 0, "search (too few units: 3 of 30)");
    p.exits(&["profile", "show", "a.pgprof", "--json"], 0, "\"mean_ns\": 4000000.0");
    p.exits(&["profile", "show", "none.pgprof"], 3, "none.pgprof");
    p.exits(&["profile", "show", "notes.txt"], 3, "does not begin with PGPROF. `pg-tui train` writes one");
    p.exits(&["profile", "show", "new.pgprof"], 3, "use a newer one");
    p.exits(&["profile", "show", "cut.pgprof"], 3, "damaged");
    p.exits(&["profile", "merge", "notes.txt", "a.pgprof"], 2, "it is there already");
    p.exits(&["profile", "merge", "b.pgprof", "a.pgprof", "notes.txt"], 3, "no profile");
    p.exits(&["profile", "merge", "none/b.pgprof", "a.pgprof"], 5, "nothing was changed");
    p.exits(&["profile", "merge", "b.pgprof", "a.pgprof", "a.pgprof"], 0, "b.pgprof: 6 units");
    p.exits(&["profile", "merge", "b.pgprof", "b.pgprof", "a.pgprof"], 0, "b.pgprof: 9 units");
    p.exits(&["profile", "name", "a.pgprof", "2", "x"], 2, "the numbers 1 to 1");
    p.exits(&["profile", "name", "a.pgprof", "find", "x"], 2, "no type");
    p.exits(&["profile", "threshold", "a.pgprof", "1", "soon"], 2, "p99.9");
    p.exits(
        &["profile", "threshold", "a.pgprof", "search", "40ms"],
        0,
        "1 search: threshold 40 ms (set by hand)",
    );
    p.exits(&["profile", "name", "a.pgprof", "1", "bad\u{1b}[31m"], 0, "1 bad");
    let shown = text(&p.run(&["profile", "show", "a.pgprof"]));
    assert!(shown.contains("bad") && !shown.contains('\u{1b}'), "{shown:?}");
    assert_eq!(fs::read_to_string(path("notes.txt")).expect("it is there"), "not to be lost");
}

#[test]
fn help_of_each_command() {
    trycmd::TestCases::new().case("tests/cli/*.trycmd");
}
