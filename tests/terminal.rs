//! The interactive session in a real (pseudo-)terminal: what a person sees and types, and that the terminal is
//! given back however the session ends.

use pg_tui::session::{Header, Writer};
use portable_pty::{Child, CommandBuilder, MasterPty, PtySize, native_pty_system};
use std::io::{Read, Write};
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

#[path = "fixtures/shop.rs"]
mod shop;

#[path = "fixtures/painted.rs"]
mod painted;

#[path = "fixtures/circle.rs"]
mod circle;

/// How long anything may take before a test gives up. Nothing is measured by it.
const PATIENCE: Duration = Duration::from_secs(60);

struct Screen {
    child: Box<dyn Child + Send + Sync>,
    master: Box<dyn MasterPty + Send>,
    writer: Arc<Mutex<Box<dyn Write + Send>>>,
    seen: Arc<Mutex<(vt100::Parser, Vec<u8>)>>,
}

impl Screen {
    fn start(program: &str, args: &[&str], rows: u16, cols: u16) -> Self {
        Self::start_in(program, args, rows, cols, None)
    }

    /// `background`: the terminal says that when it is asked; else the environment says that it is dark.
    fn start_in(
        program: &str,
        args: &[&str],
        rows: u16,
        cols: u16,
        background: Option<&'static str>,
    ) -> Self {
        let size = PtySize { rows, cols, pixel_width: 0, pixel_height: 0 };
        let pair = native_pty_system().openpty(size).expect("a pseudo-terminal");
        let mut command = CommandBuilder::new(program);
        command.args(args);
        command.env("TERM", "xterm-256color");
        command.env("XDG_CONFIG_HOME", "/nonexistent");
        for name in ["NO_COLOR", "TMUX", "STY", "DISPLAY", "WAYLAND_DISPLAY"] {
            command.env_remove(name);
        }
        match background {
            Some(_) => command.env_remove("COLORFGBG"),
            None => command.env("COLORFGBG", "15;0"),
        }
        let child = pair.slave.spawn_command(command).expect("it starts");
        drop(pair.slave);
        let mut reader = pair.master.try_clone_reader().expect("a reader");
        let writer = Arc::new(Mutex::new(pair.master.take_writer().expect("a writer")));
        let seen = Arc::new(Mutex::new((vt100::Parser::new(rows, cols, 0), Vec::new())));
        let (into, answers) = (seen.clone(), writer.clone());
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            let mut asked = background.map(|colour| format!("\x1b]11;{colour}\x1b\\\x1b[?62;22c"));
            while let Ok(n @ 1..) = reader.read(&mut buffer) {
                let mut seen = into.lock().expect("not poisoned");
                seen.0.process(&buffer[..n]);
                seen.1.extend_from_slice(&buffer[..n]);
                // What it asks for last is who the terminal is (DA1), which all answer.
                if seen.1.ends_with(b"\x1b[c")
                    && let Some(answer) = asked.take()
                {
                    let mut writer = answers.lock().expect("not poisoned");
                    writer.write_all(answer.as_bytes()).and_then(|()| writer.flush()).expect("it is told");
                }
            }
        });
        Self { child, master: pair.master, writer, seen }
    }

    fn open(file: &Path) -> Self {
        let file = file.display().to_string();
        Self::start(env!("CARGO_BIN_EXE_pg-tui"), &["open", &file], 24, 80)
    }

    fn text(&self) -> String {
        self.seen.lock().expect("not poisoned").0.screen().contents()
    }

    fn bytes(&self) -> String {
        String::from_utf8_lossy(&self.seen.lock().expect("not poisoned").1).into_owned()
    }

    fn wait(&self, what: &str, test: impl Fn(&Self) -> bool) {
        let begin = Instant::now();
        while !test(self) {
            assert!(begin.elapsed() < PATIENCE, "{what} never came; the screen shows:\n{}", self.text());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn wait_for(&self, text: &str) {
        self.wait(text, |s| s.text().contains(text));
    }

    fn keys(&mut self, keys: &str) {
        let mut writer = self.writer.lock().expect("not poisoned");
        writer.write_all(keys.as_bytes()).and_then(|()| writer.flush()).expect("keys can be typed");
    }

    fn signal(&self, name: &str) {
        let pid = self.child.process_id().expect("a process").to_string();
        assert!(Command::new("kill").args([&format!("-{name}"), &pid]).status().expect("kill").success());
    }

    /// Waits for the end and gives the exit code.
    fn end(&mut self) -> u32 {
        let begin = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().expect("it can be waited for") {
                return status.exit_code();
            }
            assert!(begin.elapsed() < PATIENCE, "it does not end; the screen shows:\n{}", self.text());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn in_alternate_screen(&self) -> bool {
        self.seen.lock().expect("not poisoned").0.screen().alternate_screen()
    }

    /// The terminal is as a shell wants it: main screen, cursor shown, no mouse, lines edited by the system.
    fn assert_given_back(&self) {
        self.wait("the main screen", |s| !s.in_alternate_screen());
        let seen = self.seen.lock().expect("not poisoned");
        let screen = seen.0.screen();
        assert!(!screen.hide_cursor(), "the cursor is hidden");
        assert!(!screen.bracketed_paste(), "pastes are still bracketed");
        assert_eq!(screen.mouse_protocol_mode(), vt100::MouseProtocolMode::None);
        drop(seen);
        #[cfg(target_os = "linux")]
        {
            let t = self.master.get_termios().expect("terminal settings");
            let flags = format!("{:?}", t.local_flags);
            assert!(flags.contains("ICANON") && flags.contains("ECHO"), "raw mode is still on: {flags}");
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A program to look at, ended with the test however that ends.
struct Killed(std::process::Child);

impl Killed {
    fn pid(&self) -> String {
        self.0.id().to_string()
    }
}

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn recording(folder: &Path) -> std::path::PathBuf {
    written(folder, "shop.pgs", shop::items())
}

fn written(folder: &Path, name: &str, items: Vec<pg_event::Item>) -> std::path::PathBuf {
    let path = folder.join(name);
    let header = Header { host: "db7".into(), focus: "shopd".into(), ..Header::default() };
    let mut w = Writer::create(&path, &header).expect("a file");
    for item in items {
        w.item(&item).expect("it is written");
    }
    w.finish().expect("it is closed");
    path
}

fn opened() -> (tempfile::TempDir, Screen) {
    let folder = tempfile::tempdir().expect("a folder");
    let screen = Screen::open(&recording(folder.path()));
    screen.wait_for("long wait");
    (folder, screen)
}

/// Colours fit the terminal's background, for which it is asked: the names of keys are dark on a light one.
#[test]
fn a_terminal_is_asked_for_its_background() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = recording(folder.path()).display().to_string();
    for (background, key) in [("rgb:fdfd/f6f6/e3e3", 94), ("rgb:1c1c/1c1c/1c1c", 179)] {
        let program = env!("CARGO_BIN_EXE_pg-tui");
        let mut s = Screen::start_in(program, &["open", &file], 24, 80, Some(background));
        s.wait_for("long wait");
        let colour = s.seen.lock().expect("not poisoned").0.screen().cell(23, 1).map(vt100::Cell::fgcolor);
        assert_eq!(colour, Some(vt100::Color::Idx(key)), "{}", s.text());
        s.keys("q");
        s.end();
        s.assert_given_back();
    }
}

#[test]
fn a_hang_is_diagnosed_on_the_screen() {
    let (folder, mut s) = opened();
    s.keys("\r");
    s.wait_for("recommended: ");
    for _ in 0..9 {
        if s.text().contains("Root cause") {
            break;
        }
        let before = s.text();
        s.keys("1");
        s.wait("another screen", |s| s.text() != before);
    }
    s.wait_for("Root cause: payd");
    // Copied through the terminal, in one piece.
    s.keys("y");
    s.wait("the copy", |s| s.bytes().contains("\u{1b}]52;c;"));
    s.wait_for("copied");
    s.keys("q");
    assert_eq!(s.end(), 0);
    s.assert_given_back();
    // Not one byte of a name acted as an escape sequence.
    assert!(!s.bytes().contains("\u{1b}]0;title"), "a process changed the window's title");
    // The answers are in the file: the next one to open it sees the same verdict at once.
    let mut again = Screen::open(&folder.path().join("shop.pgs"));
    again.wait_for("long wait");
    again.keys("\r");
    again.wait_for("Root cause: payd");
    again.keys("q");
    assert_eq!(again.end(), 0);
    // Without a screen they are taken when they are asked for, and it is said that they are there.
    let diagnose = |more: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pg-tui"));
        let out = command.arg("diagnose").arg(folder.path().join("shop.pgs")).args(more).output();
        String::from_utf8_lossy(&out.expect("it runs").stdout).into_owned()
    };
    let (without, with) = (diagnose(&[]), diagnose(&["--replay"]));
    assert!(without.contains("--replay does") && !without.contains("answered on the screen"), "{without}");
    assert!(!with.contains("--replay does") && with.contains("answered on the screen"), "{with}");
}

#[test]
fn the_flag_a_loop_asks_for_is_chosen() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut s = Screen::open(&written(folder.path(), "shell.pgs", painted::items()));
    s.wait_for("repeated yield ");
    s.keys("j\r");
    s.wait_for("Which data flag did");
    // What a terminal reads comes in pieces, and the last lines of a screen last.
    for part in ["painted", "beat", "wrote 1", "recommended: 1", "stop here"] {
        s.wait_for(part);
    }
    // Not the recommended one: the heartbeat leads to the clock; then back, and the right one.
    s.keys("2");
    s.wait_for("Root cause");
    s.keys("u");
    s.wait_for("Which data flag did");
    s.keys("1");
    s.wait_for("thread painter");
    s.keys("q");
    assert_eq!(s.end(), 0);
    s.assert_given_back();
}

#[test]
fn a_circle_is_told_without_a_question() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut s = Screen::open(&written(folder.path(), "circle.pgs", circle::items()));
    s.wait_for("long wait");
    s.keys("\r");
    s.wait_for("circular wait (deadlock)");
    for part in ["left", "right", "pipe:[70]", "pipe:[71]"] {
        assert!(s.text().contains(part), "{part} is not on the screen:\n{}", s.text());
    }
    assert!(!s.bytes().contains("recommended: "), "it asked first:\n{}", s.text());
    s.keys("q");
    assert_eq!(s.end(), 0);
}

#[test]
fn bookmarks_are_kept_in_the_file() {
    let (folder, mut s) = opened();
    s.keys("M");
    s.wait_for("Note, kept in the session");
    s.keys("the queue is full\r'");
    s.wait_for("the queue is full");
    s.keys("q");
    assert_eq!(s.end(), 0);
    let mut again = Screen::open(&folder.path().join("shop.pgs"));
    again.wait_for("long wait");
    again.keys("'");
    again.wait_for("the queue is full");
    again.keys("q");
    assert_eq!(again.end(), 0);
}

#[test]
fn signals_that_end_it_give_the_terminal_back() {
    for (name, number) in [("TERM", 15), ("HUP", 1), ("QUIT", 3)] {
        let (_folder, mut s) = opened();
        s.signal(name);
        let code = s.end();
        assert!(code != 0, "ended by signal {number}, yet the code is {code}");
        s.assert_given_back();
    }
}

#[test]
fn stopped_and_continued() {
    let (_folder, mut s) = opened();
    let pid = s.child.process_id().expect("a process");
    let state = move || {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next())
    };
    for stop in ["key", "signal"] {
        if stop == "key" {
            s.keys("\u{1a}");
        } else {
            s.signal("TSTP");
        }
        s.wait("the stop", |_| state() == Some('T'));
        s.assert_given_back();
        s.signal("CONT");
        s.wait("the session again", |s| s.in_alternate_screen() && s.text().contains("long wait"));
    }
    s.keys("T");
    s.wait_for("Processes");
    s.keys("q");
    assert_eq!(s.end(), 0);
    s.assert_given_back();
}

#[test]
fn another_size_is_drawn_anew() {
    let (_folder, mut s) = opened();
    let resize = |s: &Screen, rows, cols| {
        s.seen.lock().expect("not poisoned").0.screen_mut().set_size(rows, cols);
        s.master.resize(PtySize { rows, cols, pixel_width: 0, pixel_height: 0 }).expect("another size");
    };
    resize(&s, 10, 40);
    s.wait_for("[?]");
    resize(&s, 8, 30);
    s.wait_for("too small");
    resize(&s, 24, 80);
    s.wait_for("Victims: what hung");
    s.keys("q");
    assert_eq!(s.end(), 0);
}

#[test]
fn idle_costs_nothing() {
    let (_folder, s) = opened();
    let pid = s.child.process_id().expect("a process");
    let ticks = || {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("it lives");
        let fields: Vec<u64> = stat
            .rsplit_once(") ")
            .expect("stat")
            .1
            .split(' ')
            .skip(11)
            .take(2)
            .map(|f| f.parse().expect("ticks"))
            .collect();
        fields.iter().sum::<u64>()
    };
    // Let the listing of names end first, however long that takes here.
    let begin = Instant::now();
    let mut before = ticks();
    loop {
        std::thread::sleep(Duration::from_millis(500));
        let now = ticks();
        if now == before {
            break;
        }
        assert!(begin.elapsed() < PATIENCE, "it never stops to use the CPU");
        before = now;
    }
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(ticks(), before, "it used the CPU while nothing happened");
}

#[test]
fn a_configuration_that_is_wrong_is_told_with_its_line() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = recording(folder.path());
    let config = folder.path().join("config.toml");
    std::fs::write(&config, "theme = \"dark\"\n[keys.timeline]\n\"i\" = \"zoom-inn\"\n").expect("written");
    let args = ["open", "--config", config.to_str().expect("a path"), file.to_str().expect("a path")];
    let mut s = Screen::start(env!("CARGO_BIN_EXE_pg-tui"), &args, 24, 80);
    assert_eq!(s.end(), 2);
    s.wait("the message", |s| s.bytes().contains("line 3") && s.bytes().contains("zoom-in"));
}

#[test]
fn without_a_terminal_it_says_what_to_use() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = Command::new(env!("CARGO_BIN_EXE_pg-tui"))
        .arg("open")
        .arg(recording(folder.path()))
        .output()
        .expect("it starts");
    let text = String::from_utf8_lossy(&out.stderr);
    assert!(!out.status.success() && text.contains("terminal") && text.contains("diagnose"), "{text}");
    assert!(out.stdout.is_empty());
}

/// Not a test by itself: takes the terminal and panics, for the one below.
#[test]
#[ignore = "run by a_panic_gives_the_terminal_back"]
fn panics_in_the_terminal() {
    use pg_tui::app::terminal;
    if std::env::var_os("PG_TUI_PANIC").is_none() {
        println!("skipped: only for a_panic_gives_the_terminal_back");
        return;
    }
    terminal::restore_on_panic();
    let mut t = terminal::Terminal::enter(true).expect("a terminal");
    t.draw(|f| f.render_widget("before the panic", f.area())).expect("a frame");
    panic!("on purpose");
}

#[test]
fn a_panic_gives_the_terminal_back() {
    let me = std::env::current_exe().expect("this test");
    let args = [
        "PG_TUI_PANIC=1",
        me.to_str().expect("a path"),
        "--exact",
        "panics_in_the_terminal",
        "--ignored",
        "--nocapture",
        "--test-threads=1",
    ];
    let mut s = Screen::start("env", &args, 24, 80);
    assert_ne!(s.end(), 0);
    s.wait("the message", |s| s.bytes().contains("on purpose"));
    assert!(s.bytes().contains("before"), "{}", s.bytes());
    s.assert_given_back();
    // The message comes after the alternate screen is left: it can be read.
    let bytes = s.bytes();
    assert!(bytes.rfind("on purpose") > bytes.rfind("\u{1b}[?1049l"), "the message went to the wrong screen");
}

#[test]
fn live_marks_a_circle() {
    let dir = tempfile::tempdir().expect("a folder");
    // Takes one lock, waits until the other has the other one, and wants that.
    let script = r#"exec 8>"$1"; flock 8; touch "$1.got"; until [ -e "$2.got" ]; do sleep 0.05; done
        exec 9>>"$2"; exec flock 9"#;
    let wants = |own: &str, other: &str| {
        let mut c = Command::new("bash");
        c.args(["-c", script, "-"]).arg(dir.path().join(own)).arg(dir.path().join(other));
        Killed(c.spawn().expect("bash"))
    };
    let (a, b) = (wants("a", "b"), wants("b", "a"));
    let (p, q) = (a.pid(), b.pid());
    let mut s = Screen::start(env!("CARGO_BIN_EXE_pg-tui"), &["live", "-p", &p, "-p", &q], 24, 100);
    s.wait_for(&format!("{p} "));
    if std::fs::read_to_string(format!("/proc/{p}/syscall")).is_ok() {
        // Told from whoever waits longer, and that may be either.
        let from = |x: &str, y: &str| format!("flock:{x} -> flock:{y} -> flock:{x}");
        let (circle, turned) = (from(&p, &q), from(&q, &p));
        s.wait("the circle", |s| s.text().contains(&circle) || s.text().contains(&turned));
        s.wait("two marks", |s| s.text().matches('↺').count() == 2);
    } else {
        println!("skipped: the circle; /proc/{p}/syscall may not be read");
    }
    s.keys("?");
    s.wait_for("Help: live");
    s.keys("?");
    s.wait("no help", |s| !s.text().contains("Help: live"));
    s.keys("q");
    assert_eq!(s.end(), 0);
    s.assert_given_back();
}

#[test]
fn live_marks_fifos_opened_crosswise() {
    let dir = tempfile::tempdir().expect("a folder");
    let made = Command::new("mkfifo").args(["a", "b"]).current_dir(dir.path()).status().expect("mkfifo");
    assert!(made.success());
    let opens = |first: &str, then: &str| {
        let mut c = Command::new("bash");
        c.args(["-c", r#"exec 3>"$1"; exec 4<"$2""#, "-", first, then]).current_dir(dir.path());
        Killed(c.spawn().expect("bash"))
    };
    let (a, b) = (opens("a", "b"), opens("b", "a"));
    let (p, q) = (a.pid(), b.pid());
    let mut s = Screen::start(env!("CARGO_BIN_EXE_pg-tui"), &["live", "-p", &p, "-p", &q], 24, 100);
    s.wait_for(&format!("{p} "));
    if std::fs::read_to_string(format!("/proc/{p}/syscall")).is_ok() {
        s.wait("two marks", |s| s.text().matches('↺').count() == 2);
        let text = s.text();
        let from = |x: &str, y: &str| format!("as it seems: bash:{x} -> bash:{y} -> bash:{x}");
        assert!(text.contains(&from(&p, &q)) || text.contains(&from(&q, &p)), "{text}");
        assert!(text.contains("nobody has opened the other end"), "{text}");
        assert!(
            text.contains(&format!("fifo:{}", dir.path().display())),
            "a relative path is told whole: {text}"
        );
    } else {
        println!("skipped: the circle; /proc/{p}/syscall may not be read");
    }
    s.keys("q");
    assert_eq!(s.end(), 0);
}

#[test]
fn live_shows_who_waits_for_whom() {
    use std::process::Stdio;
    let mut sleep =
        Command::new("sleep").arg("600").stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("sleep");
    let out = sleep.stdout.take().expect("a pipe");
    let sleep = Killed(sleep);
    let cat = Killed(Command::new("cat").stdin(out).stdout(Stdio::null()).spawn().expect("cat"));
    let pid = cat.pid();
    let mut s = Screen::start(env!("CARGO_BIN_EXE_pg-tui"), &["live", "-p", &pid], 24, 100);
    s.wait_for(&format!("cat:{pid}"));
    s.wait_for("command    cat");
    let readable = std::fs::read_to_string(format!("/proc/{pid}/syscall")).is_ok();
    if readable {
        s.wait_for("read pipe:[");
        s.wait_for(&format!("sleep:{} (can write it)", sleep.pid()));
    } else {
        println!("skipped: who could end it; /proc/{pid}/syscall may not be read");
    }
    s.keys(" ");
    s.wait_for("paused");
    // What is typed is looked for in names and waits; esc shows all again, and never leaves.
    s.keys("/qzx");
    s.wait_for("No thread has this");
    s.keys("\u{15}cat\r");
    s.wait_for("Threads with \"cat\"");
    s.wait("the thread", |s| s.text().contains(&format!("cat:{pid}")) && !s.text().contains("all again"));
    s.keys("\u{1b}");
    s.wait("no filter", |s| !s.text().contains("Threads with"));
    s.keys("\u{1b}");
    s.wait_for("q quits");
    s.keys(":");
    s.wait_for(":: nothing here; command in a recording");
    s.keys("?/paus");
    s.wait("only what has it", |s| s.text().contains("live-pause") && !s.text().contains("live-all"));
    s.keys("\rq");
    s.wait("no help", |s| !s.text().contains("live-pause"));
    s.keys("q");
    assert_eq!(s.end(), 0);
    s.assert_given_back();
}

/// A key leads from the live view to the answer: what hangs already is recorded for some seconds, and shown.
#[test]
fn live_records_what_hangs_and_shows_why() {
    use std::process::Stdio;
    let mut sleep =
        Command::new("sleep").arg("600").stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("sleep");
    let out = sleep.stdout.take().expect("a pipe");
    let _sleep = Killed(sleep);
    let cat = Killed(Command::new("cat").stdin(out).stdout(Stdio::null()).spawn().expect("cat"));
    let pid = cat.pid();
    if std::fs::read_to_string(format!("/proc/{pid}/syscall")).is_err() {
        println!("skipped: /proc/{pid}/syscall may not be read");
        return;
    }
    let dir = tempfile::tempdir().expect("a folder");
    let line = format!("cd {} && exec {} live -p {pid}", dir.path().display(), env!("CARGO_BIN_EXE_pg-tui"));
    let mut s = Screen::start("sh", &["-c", &line], 24, 100);
    s.wait_for("(can write it)");
    s.keys("r");
    let refused = |s: &Screen| s.text().contains("not permitted");
    s.wait("it is recorded", |s| s.text().contains("hangs already: recording it for 5 s") || refused(s));
    s.wait("the recording", |s| s.text().contains("of the focus, by rank") || refused(s));
    if refused(&s) {
        println!("skipped: recording is not permitted here");
        return;
    }
    s.wait_for("waits on   read pipe:[");
    s.keys("\r");
    s.wait_for("Root cause: sleep");
    s.keys("q");
    assert_eq!(s.end(), 0);
    s.assert_given_back();
}
