//! From a running program to a violation: train, profile, guard, and the recording around the slow unit.

use super::RECORDER;
use super::common::{Guard, can_trace_and_compile, pg_tui, text};
use super::fed::Fed;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

/// The server with three kinds of work.
fn server(dir: &Path) -> Fed {
    let work = ["s 300", "t 700", "f 1500"].iter().map(|w| line(w)).collect();
    Fed::start(dir, "tracer/tests/guards/server.c", work).unwrap()
}

/// A piece of work as the server reads it.
fn line(what: &str) -> Vec<u8> {
    format!("{what:<16}").into_bytes()
}

fn lines(out: &Output) -> Vec<Value> {
    String::from_utf8_lossy(&out.stdout).lines().filter_map(|l| serde_json::from_str(l).ok()).collect()
}

#[test]
fn a_slow_unit_is_caught_in_the_act() {
    if !can_trace_and_compile("a_slow_unit_is_caught_in_the_act") {
        return;
    }
    let _turn = RECORDER.lock().unwrap_or_else(PoisonError::into_inner);
    let dir = tempfile::tempdir().unwrap();
    let pg_tui = |args: &[&str]| {
        let mut command = pg_tui(dir.path());
        command.args(args);
        command
    };
    let server = server(dir.path());
    let profile = dir.path().join("server.pgprof");
    let profile = profile.to_str().unwrap();

    let trained =
        pg_tui(&["train", "-p", &server.pid().to_string(), "-d", "4", "--measure", "4", "-o", profile])
            .output()
            .unwrap();
    let said = text(&trained);
    assert!(trained.status.success() && said.contains("measured by probes"), "{said}");
    let shown = pg_tui(&["profile", "show", "--json", profile]).output().unwrap();
    let shown: Value = serde_json::from_slice(&shown.stdout).unwrap();
    let types = shown["loops"][0]["types"].as_array().unwrap().clone();
    assert_eq!(shown["loops"][0]["function"], "main", "{said}");
    let least = |name: &str| {
        let of = types.iter().find(|t| t["name"].as_str().unwrap().contains(name));
        of.unwrap_or_else(|| panic!("{name}: {said}"))["median_ns"].as_f64().unwrap()
    };
    // Each kind of work is a type of its own, with its own durations.
    assert!(least("stick") > 600_000.0 && least("fetch") > 1_400_000.0, "{said}");

    // On a busy machine any unit may take some while: the limits are far above, and the slow one farther.
    let set = |number: usize, limit: &str| {
        let set = pg_tui(&["profile", "threshold", profile, &number.to_string(), limit]).output().unwrap();
        assert!(set.status.success(), "{}", text(&set));
    };
    (1..=types.len()).for_each(|number| set(number, "60s"));
    let metrics = dir.path().join("metrics");
    let mut guard = Guard::start(
        pg_tui(&["guard", "-p", &server.pid().to_string(), "--profile", profile, "--json", "-d", "300"])
            .args(["--on-violation", "record", "-o", dir.path().to_str().unwrap()])
            .args(["--metrics", metrics.to_str().unwrap()]),
    );
    // Guards that run follow the profile.
    let stuck = types.iter().position(|t| t["name"].as_str().unwrap().contains("stick")).unwrap();
    set(stuck + 1, "150ms");
    guard.until("its limits hold from now on");
    assert!(server.ask(&line("t 1200000")));
    // One that is far worse (four times) has a file of its own, soon after the other or not.
    // What comes while that is not written yet, as on a busy machine, is in it.
    written(dir.path(), 1);
    std::thread::sleep(Duration::from_secs(1));
    assert!(server.ask(&line("t 6000000")));
    written(dir.path(), 2);
    let guarded = guard.end();
    let said = text(&guarded);
    assert_eq!(guarded.status.code(), Some(6), "{said}");
    assert!(said.contains("its limits hold from now on"), "{said}");
    let told = lines(&guarded);
    let stack = |v: &Value| -> Vec<String> {
        v["stack"].as_array().into_iter().flatten().map(|f| f.as_str().unwrap().into()).collect()
    };
    // A while without a CPU is told apart, and may be told first.
    let slow = told.iter().filter(|v| v["event"] == "violation" && v["starved"] == false);
    let mut slow: Vec<&Value> =
        slow.filter(|v| stack(v).iter().any(|f| f.starts_with("stick (server)"))).collect();
    // One that goes on is told again.
    slow.dedup_by_key(|v| &v["start_ns"]);
    let [slow, _] = slow.as_slice() else { panic!("{said}") };
    assert_eq!((&slow["type"], &slow["threshold_ns"]), (&"stick".into(), &150_000_000.into()), "{said}");
    // It was seen while it ran.
    let elapsed = slow["elapsed_ns"].as_u64().unwrap();
    assert!((150_000_000..1_200_000_000).contains(&elapsed), "{said}");
    // How long it took in the end is told, too.
    let mut ends = told.iter().filter(|v| v["event"] == "ended" && v["start_ns"] == slow["start_ns"]);
    let ended = ends.next().unwrap_or_else(|| panic!("{said}"));
    let took = ended["duration_ns"].as_u64();
    assert!(took.is_some_and(|ns| (1_150_000_000..6_000_000_000).contains(&ns)), "{said}");
    // It was looked at while it went on: `stick` calls small functions, and has most of its time.
    let most = &ended["mostly"];
    assert!(most["stacks"].as_u64() >= Some(3) && most["share"].as_f64() > Some(0.5), "{said}");
    assert!(stack(most).iter().any(|f| f.starts_with("stick (server)")), "{said}");
    assert!(stack(most).last().is_some_and(|f| f.starts_with("main (server)")), "{said}");
    let summary = told.last().unwrap();
    assert_eq!(summary["event"], "summary", "{said}");
    assert!(
        summary["units"].as_u64().unwrap() > 100 && summary["violations"].as_u64().unwrap() >= 1,
        "{said}"
    );
    let metrics = std::fs::read_to_string(metrics).unwrap();
    // Also those that are told apart.
    let of_type = summary["types"].as_array().unwrap().iter().find(|t| t["type"] == "stick").unwrap();
    let [all, starved] = ["violations", "starved"].map(|n| of_type[n].as_u64().unwrap());
    assert_eq!(all - starved, 2, "{said}");
    let counted = format!("pg_tui_violations_total{{loop=\"main\",type=\"stick\"}} {all}\n");
    assert!(metrics.contains(&counted), "{metrics}");

    // What the machine did around it was written, with the unit as the victim.
    let mut written = files(dir.path());
    assert_eq!(written.len(), 2, "{said}");
    written.sort();
    let file = &written[0];
    let file = file.to_str().unwrap();
    let listed = pg_tui(&["violations", "--json", file]).output().unwrap();
    let listed = lines(&listed);
    let number = listed.iter().find(|v| v["type"] == "stick" && v["threshold_ns"] == 150_000_000);
    let number = number.unwrap_or_else(|| panic!("{listed:?}, told was: {said}"));
    assert!(stack(number).iter().any(|f| f.starts_with("stick (server)")), "{number}");
    // The looks at it are in the file, too.
    let most = &number["mostly"];
    assert!(most["stacks"].as_u64() >= Some(3), "{number}");
    assert!(stack(most).iter().any(|f| f.starts_with("stick (server)")), "{number}");
    let number = number["number"].to_string();
    let diagnosed = pg_tui(&["diagnose", "--json", "--violation", &number, file]).output().unwrap();
    let report: Value =
        serde_json::from_slice(&diagnosed.stdout).unwrap_or_else(|e| panic!("{e}: {}", text(&diagnosed)));
    assert_eq!(report["victim"]["pid"].as_u64(), Some(u64::from(server.pid())), "{report}");
    // It is compared with another of its type, which took about as long as these do.
    let normal = report["victim"]["unit"]["normal"]["duration_ns"].as_u64();
    assert!(normal.is_some_and(|ns| (300_000..100_000_000).contains(&ns)), "{}", report["victim"]);
    let cause = &report["root_causes"][0];
    assert_eq!(cause["pid"].as_u64(), Some(u64::from(server.pid())), "{report}");
    assert!(cause["stack"].to_string().contains("stick (server)"), "{cause}");
}

/// Waits until there are so many files.
fn written(dir: &Path, count: usize) {
    let end = Instant::now() + Duration::from_secs(60);
    while files(dir).len() < count {
        assert!(Instant::now() < end, "{:?}", files(dir));
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let all = std::fs::read_dir(dir).unwrap().flatten().map(|e| e.path());
    all.filter(|p| p.extension().is_some_and(|e| e == "pgs")).collect()
}

#[test]
fn what_cannot_be_guarded_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let absent = dir.path().join("no.pgprof");
    let pg_tui = |args: &[&str]| {
        let mut command = pg_tui(dir.path());
        command.args(args);
        command
    };
    let none = pg_tui(&["guard", "-p", "1", "--profile", absent.to_str().unwrap()]).output().unwrap();
    assert_eq!(none.status.code(), Some(3), "{}", text(&none));
    assert!(text(&none).contains("no.pgprof"), "{}", text(&none));
    std::fs::write(&absent, "no profile at all").unwrap();
    let damaged = pg_tui(&["guard", "-p", "1", "--profile", absent.to_str().unwrap()]).output().unwrap();
    assert_eq!(damaged.status.code(), Some(3), "{}", text(&damaged));
}
