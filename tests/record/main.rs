//! Real recordings by the real program. They need the right to trace; without it they say that they are skipped.

#[path = "../common/mod.rs"]
mod common;
mod echo;
mod messages;

use common::{contract, pg_tui, skipped, text};
use pg_tui::session::Session;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

fn signal(child: &Child, name: &str) {
    let status = Command::new("kill").args([name, &child.id().to_string()]).status().expect("kill runs");
    assert!(status.success());
}

/// Wait until the recording has events in its file.
fn wait_for_events(path: &Path, child: &mut Child) {
    let begin = Instant::now();
    while Session::open(path).map_or(0, |s| s.len_events()) == 0 {
        assert!(child.try_wait().expect("a child").is_none(), "the recorder ended early");
        assert!(begin.elapsed() < Duration::from_secs(120), "no events");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn start(dir: &Path, args: &[&str]) -> Child {
    pg_tui(dir)
        .current_dir(dir)
        .arg("record")
        .args(args)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("pg-tui starts")
}

#[test]
fn the_command_is_recorded_and_its_exit_code_passed_on() {
    if skipped("the_command_is_recorded_and_its_exit_code_passed_on") {
        return;
    }
    let dir = tempfile::tempdir().expect("a folder");
    let run = |command: &[&str]| {
        let mut c = pg_tui(dir.path());
        c.current_dir(dir.path())
            .args(["record", "--no-tui", "-o", "a.pgs", "--"])
            .args(command)
            .output()
            .expect("starts")
    };
    let out = run(&["sh", "-c", "echo spoken; sleep 1.3; exit 7"]);
    assert_eq!(out.status.code(), Some(7), "{}", text(&out));
    assert_eq!(out.stdout, b"spoken\n");
    let file = dir.path().join("a.pgs");
    assert_eq!(std::fs::metadata(&file).expect("it is there").permissions().mode() & 0o777, 0o600);
    let s = Session::open(&file).expect("it opens");
    assert_eq!(s.warnings(), []);
    assert!(s.is_closed() && s.duration() > 1_000_000_000 && s.len_events() > 0);
    assert_eq!(s.header().command, ["sh", "-c", "echo spoken; sleep 1.3; exit 7"]);
    // The report on it keeps the contract.
    let out = pg_tui(dir.path())
        .arg("diagnose")
        .arg(&file)
        .args(["--json", "--process", "^sleep 1.3$"])
        .output()
        .expect("starts");
    if out.status.success() {
        contract::check(&serde_json::from_slice(&out.stdout).expect("JSON"));
    } else {
        assert_eq!(out.status.code(), Some(1), "{}", text(&out));
    }
    assert_eq!(run(&["/nonexistent/program"]).status.code(), Some(127));
    assert_eq!(run(&["/etc/passwd"]).status.code(), Some(126));
    assert_eq!(run(&["sh", "-c", "kill -9 $$"]).status.code(), Some(128 + 9));
}

#[test]
fn ctrl_c_ends_a_recording_and_keeps_it() {
    if skipped("ctrl_c_ends_a_recording_and_keeps_it") {
        return;
    }
    for name in ["-INT", "-TERM"] {
        let dir = tempfile::tempdir().expect("a folder");
        let mut child =
            start(dir.path(), &["--no-tui", "-o", "a.pgs", "-p", &std::process::id().to_string()]);
        let file = dir.path().join("a.pgs");
        wait_for_events(&file, &mut child);
        signal(&child, name);
        let out = child.wait_with_output().expect("it ends");
        assert!(out.status.success(), "{}", text(&out));
        let s = Session::open(&file).expect("it opens");
        assert!(s.is_closed() && s.warnings().is_empty(), "{:?}", s.warnings());
        assert!(text(&out).contains("pg-tui open a.pgs"), "{}", text(&out));
    }
}

/// Who asks for debug files of a server that does not answer waits for names at the end; Ctrl-C once more ends that, the
/// file is whole, and what has no name gets it when the file is opened.
#[test]
fn ctrl_c_once_more_leaves_names_for_later() {
    if skipped("ctrl_c_once_more_leaves_names_for_later") {
        return;
    }
    let dir = tempfile::tempdir().expect("a folder");
    let (program, asked) = (dir.path().join("debuginfod-find"), dir.path().join("asked"));
    let script = format!("#!/bin/sh\necho $$ > {0}.new; mv {0}.new {0}; exec sleep 1000\n", asked.display());
    std::fs::write(&program, script).expect("a script");
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).expect("it may run");
    let path = format!("{}:{}", dir.path().display(), std::env::var("PATH").unwrap_or_default());
    let mut target = Command::new("bash").args(["-c", "while :; do sleep 0.3; done"]).spawn().expect("bash");
    let mut child = pg_tui(dir.path())
        .current_dir(dir.path())
        .args(["record", "--no-tui", "-o", "a.pgs", "-p", &target.id().to_string()])
        .env("PATH", path)
        .env("DEBUGINFOD_URLS", "http://127.0.0.1:9")
        .env("HOME", dir.path())
        .env_remove("DEBUGINFOD_CACHE_PATH")
        .env_remove("XDG_CACHE_HOME")
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("pg-tui starts");
    let file = dir.path().join("a.pgs");
    wait_for_events(&file, &mut child);
    signal(&child, "-INT");
    let begin = Instant::now();
    while !asked.exists() {
        assert!(child.try_wait().expect("a child").is_none(), "nobody was asked for debug files");
        assert!(begin.elapsed() < Duration::from_secs(60), "nobody was asked for debug files");
        std::thread::sleep(Duration::from_millis(20));
    }
    signal(&child, "-INT");
    let out = child.wait_with_output().expect("it ends");
    let finder = std::fs::read_to_string(&asked).expect("its number");
    let _ = Command::new("kill").arg(finder.trim()).status();
    target.kill().expect("ours");
    target.wait().expect("it ends");
    assert!(out.status.success(), "{}", text(&out));
    assert!(text(&out).contains("places in code have no function name yet"), "{}", text(&out));
    let s = Session::open(&file).expect("it opens");
    assert!(s.is_closed() && s.warnings().is_empty(), "{:?}", s.warnings());
    let load = |symbols| {
        let session = Session::open(&file).expect("it opens");
        let all = |_| std::ops::ControlFlow::Continue(());
        pg_tui::session::load_session(session, pg_graph::BuildOptions::default(), &symbols, all)
            .expect("it loads")
    };
    let named =
        |l: &pg_tui::session::Loaded| l.catalog.frames.iter().filter(|f| !f.function.is_empty()).count();
    let (cut, whole) =
        (load(pg_tui::session::Symbols::AsRecorded), load(pg_tui::session::Symbols::default()));
    assert!(cut.coverage.unnamed > 0, "{:?}", cut.coverage);
    assert!(cut.coverage.notes.iter().any(|n| n.contains("it was told to stop")), "{:?}", cut.coverage.notes);
    assert!(named(&whole) > named(&cut), "{} of {}", named(&whole), whole.catalog.frames.len());
}

#[test]
fn a_recording_ends_by_itself_after_its_duration() {
    if skipped("a_recording_ends_by_itself_after_its_duration") {
        return;
    }
    let dir = tempfile::tempdir().expect("a folder");
    let child = start(dir.path(), &["--no-tui", "--duration", "1.2", "-o", "a.pgs", "--", "sleep", "1000"]);
    let out = child.wait_with_output().expect("it ends");
    assert!(out.status.success(), "{}", text(&out));
    assert!(text(&out).contains("still runs: it is told to end (SIGTERM)"), "{}", text(&out));
    assert!(Session::open(&dir.path().join("a.pgs")).expect("it opens").is_closed());
}

#[test]
fn a_killed_recorder_leaves_a_file_that_opens() {
    if skipped("a_killed_recorder_leaves_a_file_that_opens") {
        return;
    }
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("a.pgs");
    let mut target = Command::new("sleep").arg("1000").spawn().expect("sleep runs");
    let mut child = start(dir.path(), &["--no-tui", "-o", "a.pgs", "-p", &target.id().to_string()]);
    wait_for_events(&file, &mut child);
    child.kill().expect("it is ours");
    let status = child.wait().expect("it ends");
    assert_eq!(status.signal(), Some(9));
    let s = Session::open(&file).expect("it opens");
    assert!(!s.is_closed());
    assert!(s.warnings().iter().any(|w| w.to_string().contains("not closed")), "{:?}", s.warnings());
    let loaded = pg_tui::session::load(&file, |_| std::ops::ControlFlow::Continue(())).expect("it loads");
    assert!(loaded.graph.event_count() > 0 && !loaded.catalog.threads.is_empty());
    assert_eq!(loaded.header.boot, pg_tracer::boot_id());
    assert!(target.try_wait().expect("ours").is_none(), "the target lives on");
    target.kill().expect("ours");
    target.wait().expect("it ends");
}

/// The machine has not been started anew: addresses in its kernel mean what they meant.
#[test]
fn functions_of_the_kernel_are_named_after_a_killed_recorder() {
    if skipped("functions_of_the_kernel_are_named_after_a_killed_recorder") {
        return;
    }
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("a.pgs");
    let mut target = Command::new("bash").args(["-c", "while :; do sleep 0.3; done"]).spawn().expect("bash");
    let mut child = start(dir.path(), &["--no-tui", "-o", "a.pgs", "-p", &target.id().to_string()]);
    let load = || pg_tui::session::load(&file, |_| std::ops::ControlFlow::Continue(())).expect("it loads");
    let of_kernel = |l: &pg_tui::session::Loaded| {
        let frames = l.catalog.stacks.iter().filter(|s| s.kernel).flat_map(|s| s.frames.clone());
        let frames = frames.filter_map(|f| l.catalog.frames.get(f.index()));
        frames.map(|f| f.function.clone()).collect::<Vec<_>>()
    };
    let begin = Instant::now();
    while Session::open(&file).is_err() || of_kernel(&load()).is_empty() {
        assert!(child.try_wait().expect("a child").is_none(), "the recorder ended early");
        assert!(begin.elapsed() < Duration::from_secs(120), "no stack of the kernel");
        std::thread::sleep(Duration::from_millis(50));
    }
    child.kill().expect("it is ours");
    child.wait().expect("it ends");
    target.kill().expect("ours");
    target.wait().expect("it ends");
    let readable = std::fs::read_to_string("/proc/kallsyms")
        .is_ok_and(|t| t.contains(" T schedule\n") && !t.starts_with("0000000000000000 T _stext"));
    if !readable {
        println!("skipped: names of the kernel's functions; /proc/kallsyms shows no addresses");
        return;
    }
    let names = of_kernel(&load());
    // Where the kernel was entered, whatever had been recorded by then.
    assert!(names.iter().any(|n| n.starts_with("entry_") || n.starts_with("asm_")), "{names:?}");
    let unnamed = names.iter().filter(|n| n.is_empty()).count();
    assert!(unnamed * 2 < names.len(), "{names:?}");
}

#[test]
fn without_rights_the_remedy_is_named() {
    let dir = tempfile::tempdir().expect("a folder");
    let own = env!("CARGO_BIN_EXE_pg-tui");
    let mut command = if pg_tracer::check_permission().is_ok() {
        // Give the rights up.
        let mut c = Command::new("setpriv");
        c.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all", own]);
        c
    } else {
        Command::new(own)
    };
    let out =
        match command.env("XDG_STATE_HOME", dir.path()).args(["record", "--no-tui", "--", "true"]).output() {
            Ok(out) => out,
            Err(e) => {
                println!("skipped: without_rights_the_remedy_is_named: setpriv: {e}");
                return;
            }
        };
    if text(&out).contains("setpriv:") {
        println!("skipped: without_rights_the_remedy_is_named: {}", text(&out));
        return;
    }
    assert_eq!(out.status.code(), Some(4), "{}", text(&out));
    assert!(text(&out).contains("sudo"), "{}", text(&out));
}

#[test]
fn what_was_recorded_before_is_kept() {
    let test = "what_was_recorded_before_is_kept";
    if skipped(test) {
        return;
    }
    let dir = tempfile::tempdir().expect("a folder");
    let run = |command: &[&str]| {
        let mut c = pg_tui(dir.path());
        c.current_dir(dir.path()).args(["record", "--no-tui", "-o", "a.pgs", "--"]).args(command);
        c.output().expect("starts")
    };
    let of = |name: &str| Session::open(&dir.path().join(name)).expect("it opens").header().command.clone();
    assert!(run(&["true", "first"]).status.success());
    let out = run(&["true", "second"]);
    assert!(text(&out).contains("is now a.pgs.old"), "{}", text(&out));
    assert_eq!((of("a.pgs")[1].as_str(), of("a.pgs.old")[1].as_str()), ("second", "first"));
    // Nothing was recorded: nothing has changed but that the oldest is gone.
    assert_eq!(run(&["/nonexistent/program"]).status.code(), Some(127));
    assert_eq!(of("a.pgs")[1], "second");
    // What is no recording is left alone, there too.
    std::fs::write(dir.path().join("a.pgs.old"), "a diary").expect("written");
    let out = run(&["true", "third"]);
    assert_eq!(out.status.code(), Some(2), "{}", text(&out));
    assert!(text(&out).contains("a.pgs.old") && text(&out).contains("left alone"), "{}", text(&out));
    assert_eq!(of("a.pgs")[1], "second");
}

#[test]
fn the_recording_ends_with_the_process_it_is_about() {
    if skipped("the_recording_ends_with_the_process_it_is_about") {
        return;
    }
    let dir = tempfile::tempdir().expect("a folder");
    let mut target = Command::new("sleep").arg("1000").spawn().expect("sleep runs");
    let mut child = start(dir.path(), &["--no-tui", "-o", "a.pgs", "-p", &target.id().to_string()]);
    wait_for_events(&dir.path().join("a.pgs"), &mut child);
    target.kill().expect("ours");
    target.wait().expect("it ends");
    let out = child.wait_with_output().expect("it ends");
    assert!(out.status.success() && text(&out).contains("has ended"), "{}", text(&out));
    assert!(Session::open(&dir.path().join("a.pgs")).expect("it opens").is_closed());
}

#[test]
fn what_is_wrong_with_the_arguments_is_said_plainly() {
    let dir = tempfile::tempdir().expect("a folder");
    let says = |args: &[&str], what: &str| {
        let out = pg_tui(dir.path()).current_dir(dir.path()).args(args).output().expect("starts");
        assert_eq!(out.status.code(), Some(2), "{args:?}: {}", text(&out));
        assert!(text(&out).contains(what), "{args:?}: {}", text(&out));
    };
    says(&["record", "-d", "-3", "--", "true"], "'-3' for '--duration <SECONDS>': a number of seconds");
    says(&["diagnose", "--at", "-1", "x.pgs"], "'-1' for '--at <SECONDS|TIME>': a number of seconds");
    says(&["record", "-p", "redis"], "--comm chooses processes by name");
    says(&["record", "-p", "-1"], "the number of a process");
    says(
        &["record", "--cgroup", "/no/such/group"],
        "--cgroup /no/such/group: there is no such control group",
    );
    says(&["record", "-p", "4194999", "--", "true"], "-p 4194999: there is no such process");
}

/// All bytes of a session file, unpacked.
fn unpacked(path: &Path) -> Vec<u8> {
    use pg_tui::session::format::{FRAME_LEN, Frame, PREFIX_LEN};
    let file = std::fs::read(path).expect("it is there");
    let (mut at, mut out) = (PREFIX_LEN, Vec::new());
    while at < file.len() {
        let frame = Frame::read(&file, at).expect("a frame");
        out.extend_from_slice(&frame.payload(&file, at).expect("a payload"));
        at += FRAME_LEN + frame.stored as usize;
    }
    out
}

#[test]
fn a_redacted_recording_tells_nothing_of_bystanders() {
    use std::os::unix::process::CommandExt;
    if skipped("a_redacted_recording_tells_nothing_of_bystanders") {
        return;
    }
    let dir = tempfile::tempdir().expect("a folder");
    let fifo = dir.path().join("rendezvous-of-bystanders");
    assert!(Command::new("mkfifo").arg(&fifo).status().expect("mkfifo runs").success());
    let mut bystander = Command::new("cat").arg0("t0psecret").arg(&fifo).spawn().expect("cat runs");
    let out = pg_tui(dir.path())
        .current_dir(dir.path())
        .args(["record", "--no-tui", "-o", "a.pgs", "--", "sh", "-c", "sleep 1.5"])
        .output()
        .expect("starts");
    bystander.kill().expect("ours");
    bystander.wait().expect("it ends");
    assert!(out.status.success(), "{}", text(&out));
    let out = pg_tui(dir.path()).current_dir(dir.path()).args(["redact", "a.pgs", "b.pgs"]).output();
    let out = out.expect("starts");
    assert!(out.status.success(), "{}", text(&out));
    let (all, left) = (unpacked(&dir.path().join("a.pgs")), unpacked(&dir.path().join("b.pgs")));
    let holds = |bytes: &[u8], t: &str| bytes.windows(t.len()).any(|w| w == t.as_bytes());
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    let secrets = [read("/proc/sys/kernel/hostname"), read("/proc/sys/kernel/osrelease")];
    for s in secrets.iter().map(String::as_str).chain(["t0psecret", "rendezvous-of"]) {
        assert!(holds(&all, s), "the original holds {s}");
        // A host called as a word of the command, or too short to be told from one, is none of the test's.
        assert!(s.len() < 4 || !holds(&left, s), "the copy holds {s}");
    }
    assert!(holds(&left, "sleep 1.5"));
}

/// A control group as container runtimes make them, removed at the end.
struct Group {
    path: std::path::PathBuf,
    name: String,
}

impl Group {
    fn new() -> Option<Self> {
        let top = ["/sys/fs/cgroup/unified", "/sys/fs/cgroup"]
            .into_iter()
            .find(|p| std::fs::metadata(format!("{p}/cgroup.procs")).is_ok())?;
        let id = format!("{:016x}", u64::from(std::process::id())).repeat(4);
        let name = format!("/docker/{id}");
        let path = std::path::PathBuf::from(format!("{top}{name}"));
        std::fs::create_dir_all(&path).ok()?;
        Some(Self { path, name })
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.path);
        let _ = self.path.parent().map(std::fs::remove_dir);
    }
}

#[test]
fn processes_of_containers_are_found_and_named() {
    let test = "processes_of_containers_are_found_and_named";
    if skipped(test) {
        return;
    }
    let Some(group) = Group::new() else {
        println!("skipped: {test}: no control group can be made");
        return;
    };
    let dir = tempfile::tempdir().expect("a folder");
    let fifo = dir.path().join("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().expect("mkfifo runs").success());
    let script = format!(
        "echo $$ > {}/cgroup.procs && exec unshare --pid --fork sh -c 'cat {f}; cat {f}; :'",
        group.path.display(),
        f = fifo.display()
    );
    let mut container =
        Command::new("sh").args(["-c", &script]).stderr(Stdio::piped()).spawn().expect("sh runs");
    let write = || std::fs::write(&fifo, "x").expect("somebody reads");
    write();
    let child = &mut start(dir.path(), &["--no-tui", "-o", "a.pgs", "--cgroup", &group.name]);
    wait_for_events(&dir.path().join("a.pgs"), child);
    std::thread::sleep(Duration::from_millis(1500));
    write();
    let ended = container.wait().expect("it ends");
    signal(child, "-INT");
    assert!(ended.success() && child.wait().expect("it ends").success());
    let run = |args: &[&str]| {
        let out = pg_tui(dir.path()).current_dir(dir.path()).args(args).output().expect("starts");
        assert!(out.status.success(), "{}", text(&out));
        out
    };
    // Others of the machine may be called like it.
    let cat = format!("^cat {}", fifo.display());
    let report: serde_json::Value =
        serde_json::from_slice(&run(&["diagnose", "a.pgs", "--process", &cat, "--json"]).stdout)
            .expect("JSON");
    contract::check(&report);
    let short = &group.name["/docker/".len()..][..12];
    let victim = &report["victim"];
    assert_eq!(victim["container"], short, "{victim}");
    let inside = victim["container_pid"].as_u64().expect("an id inside");
    assert!(inside < 10 && victim["pid"].as_u64() > Some(inside), "{victim}");
    let shown = run(&["diagnose", "a.pgs", "--process", &cat]);
    assert!(text(&shown).contains(&format!("{inside} in container {short}")), "{}", text(&shown));
    // The id that the container's user knows finds it, too.
    run(&["diagnose", "a.pgs", "--pid", &inside.to_string()]);
}

/// A file system of a few pages, unmounted at the end.
struct TinyDisk(std::path::PathBuf);

impl TinyDisk {
    fn new(at: &Path, kilobytes: u32) -> Option<Self> {
        std::fs::create_dir(at).ok()?;
        let size = format!("size={kilobytes}k");
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", &size, "none"]).arg(at).status();
        mounted.is_ok_and(|s| s.success()).then(|| Self(at.to_owned()))
    }
}

impl Drop for TinyDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn a_full_disk_ends_the_recording_and_not_the_command() {
    let test = "a_full_disk_ends_the_recording_and_not_the_command";
    if skipped(test) {
        return;
    }
    let dir = tempfile::tempdir().expect("a folder");
    let Some(disk) = TinyDisk::new(&dir.path().join("disk"), 256) else {
        println!("skipped: {test}: no tmpfs can be mounted here");
        return;
    };
    // Each process takes room. On a busy machine all of them were in the first piece that did not fit: what comes before
    // them is written by then.
    let script = "sleep 2; for i in $(seq 4000); do /bin/true; done; echo went on";
    let file = disk.0.join("a.pgs");
    let out = pg_tui(dir.path())
        .current_dir(dir.path())
        .args(["record", "--no-tui", "-o"])
        .arg(&file)
        .args(["--", "sh", "-c", script])
        .output()
        .expect("starts");
    assert_eq!(out.status.code(), Some(5), "{}", text(&out));
    assert!(text(&out).contains("a.pgs: cannot write to it: No space left on device"), "{}", text(&out));
    assert!(text(&out).contains("; what came after that is missing"), "{}", text(&out));
    assert!(!text(&out).contains("nothing lost"), "{}", text(&out));
    assert!(text(&out).contains("what was written before can be opened"), "{}", text(&out));
    assert!(text(&out).contains("went on"), "{}", text(&out));
    assert_eq!(std::fs::read_dir(&disk.0).expect("a folder").count(), 1, "nothing but the recording is left");
    let s = Session::open(&file).expect("it opens");
    assert!(s.len_events() > 0);
    let loaded = pg_tui::session::load(&file, |_| std::ops::ControlFlow::Continue(())).expect("it loads");
    assert!(loaded.graph.event_count() > 0);
}

#[test]
fn under_sudo_the_command_and_the_file_are_the_callers() {
    use std::os::unix::fs::MetadataExt;
    let test = "under_sudo_the_command_and_the_file_are_the_callers";
    if skipped(test) {
        return;
    }
    let dir = tempfile::tempdir().expect("a folder");
    if std::fs::metadata(dir.path()).expect("a folder").uid() != 0 {
        println!("skipped: {test}: only root can become another user");
        return;
    }
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).expect("ours");
    let nobody = [("SUDO_UID", "65534"), ("SUDO_GID", "65534"), ("SUDO_USER", "nobody")];
    let out = pg_tui(dir.path())
        .current_dir(dir.path())
        .envs(nobody)
        .args(["record", "--no-tui", "-o", "a.pgs", "--", "sh", "-c", "id -u; id -g; id -G; sleep 0.3"])
        .output()
        .expect("starts");
    assert!(out.status.success(), "{}", text(&out));
    assert_eq!(String::from_utf8_lossy(&out.stdout).lines().collect::<Vec<_>>(), ["65534", "65534", "65534"]);
    let file = dir.path().join("a.pgs");
    let meta = std::fs::metadata(&file).expect("it is there");
    assert_eq!((meta.uid(), meta.gid(), meta.mode() & 0o777), (65534, 65534, 0o600));
    assert_eq!(Session::open(&file).expect("it opens").header().user, "nobody");
}
