//! The programs, their recordings, and who played which part in them.

use crate::common::{pg_tui, text};
use pg_event::ThreadId;
use pg_tui::session::{self, Loaded};
use std::collections::HashMap;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Most recordings for one test.
const TRIES: usize = 5;

/// What is run: a program of `programs/` with its argument.
pub type Program = (&'static str, &'static str);

/// Programs that mostly wait: they run side by side.
const WAITING: &[Program] = &[
    ("futex", ""),
    ("channels", ""),
    ("servers", ""),
    ("sets", ""),
    ("processes", ""),
    ("kernel", ""),
    ("owners", ""),
    ("splits", ""),
    ("yields", "nap"),
    ("yields", "mapped"),
    ("yields", "timedwait"),
    ("yields", "trylock"),
    ("yields", "ready"),
    ("yields", "gone"),
];

/// Programs that keep a CPU busy: one after the other.
const BUSY: &[Program] = &[
    ("cpu", ""),
    ("yields", "yield"),
    ("yields", "poll0"),
    ("yields", "ring"),
    ("yields", "spin"),
    ("yields", "setlk"),
    ("yields", "backoff"),
];

/// A recording of some of the programs, and what they said.
pub struct Truth {
    pub loaded: Loaded,
    /// Process and thread of each part.
    roles: HashMap<String, (u32, u32)>,
    lacks: HashMap<String, String>,
}

impl Truth {
    /// Process and thread that played a part.
    pub fn ids(&self, role: &str) -> (u32, u32) {
        *self.roles.get(role).unwrap_or_else(|| panic!("nobody played {role}"))
    }

    /// The thread that played a part.
    pub fn thread(&self, role: &str) -> ThreadId {
        let (pid, tid) = self.ids(role);
        let c = &self.loaded.catalog;
        let i = c.threads.iter().rposition(|t| t.tid == tid);
        let id = ThreadId(i.unwrap_or_else(|| panic!("{role} ({tid}) is not in the recording")) as u32);
        assert_eq!(c.process_of(id).map(|p| p.pid), Some(pid), "{role} ({tid}) is of another process");
        id
    }

    /// A thread as the test knows it.
    pub fn name(&self, t: ThreadId) -> String {
        let Some(t) = self.loaded.catalog.thread(t) else { return "nobody".into() };
        let role = self.roles.iter().find(|(_, ids)| ids.1 == t.tid);
        role.map_or_else(|| format!("{} ({})", t.name, t.tid), |(name, _)| name.clone())
    }

    /// Can a wait be missing for no fault of ours?
    fn incomplete(&self) -> bool {
        self.loaded.coverage.notes.iter().any(|n| n.contains("did not report"))
    }
}

/// A folder that lives as long as the tests: the programs, built once. `Err` says what is missing.
fn programs() -> Result<&'static Path, String> {
    static BUILT: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let built = BUILT.get_or_init(|| {
        if let Some(why) = crate::common::cannot_trace() {
            return Err(why);
        }
        if !Command::new("cc").arg("--version").stdout(Stdio::null()).status().is_ok_and(|s| s.success()) {
            return Err("there is no C compiler".into());
        }
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("mechanisms");
        std::fs::create_dir_all(&dir).expect("a folder");
        let mut names: Vec<_> = WAITING.iter().chain(BUSY).map(|p| p.0).collect();
        names.dedup();
        for name in names {
            let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/mechanisms/programs");
            let mut cc = Command::new("cc");
            cc.args(["-O1", "-g", "-Wall", "-pthread", "-o"]).arg(dir.join(name));
            cc.arg(source.join(name).with_extension("c")).args(["-lutil", "-lrt"]);
            let out = cc.output().expect("cc runs");
            assert!(out.status.success(), "{}", text(&out));
        }
        Ok(dir)
    });
    built.as_deref().map_err(Clone::clone)
}

/// Records programs: side by side, or one after the other.
fn record(dir: &Path, programs: &[Program], side_by_side: bool) -> Truth {
    // Two recorders at a time get in each other's way.
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut own = tempfile::tempdir().expect("a folder");
    own.disable_cleanup(std::env::var_os("PG_TUI_TEST_KEEP").is_some());
    let file = own.path().join("r.pgs");
    let end = if side_by_side { "&" } else { ";" };
    let line = |p: &Program| format!("{}/{} {} {end}\n", dir.display(), p.0, p.1);
    let script = programs.iter().map(line).collect::<String>() + "wait";
    let mut pg_tui = pg_tui(own.path());
    pg_tui.args(["record", "--no-tui", "--long-wait", "300", "-o"]).arg(&file);
    let out = pg_tui.args(["--", "sh", "-c", &script]).env("MECH_DIR", own.path()).output();
    let out = out.expect("pg-tui starts");
    assert!(out.status.success(), "record: {}\n{}", out.status, text(&out));
    let (mut roles, mut lacks) = (HashMap::new(), HashMap::new());
    for line in String::from_utf8_lossy(&out.stdout).lines() {
        let mut words = line.splitn(4, ' ');
        match [(); 4].map(|()| words.next()) {
            [Some("fact"), Some(role), Some(pid), Some(tid)] => {
                let ids = (pid.parse().expect("a pid"), tid.parse().expect("a tid"));
                roles.insert(role.to_owned(), ids);
            }
            [Some("lacks"), Some(role), why, more] => {
                let why = format!("{} {}", why.unwrap_or_default(), more.unwrap_or_default());
                lacks.insert(role.to_owned(), why);
            }
            _ => {}
        }
    }
    let loaded = session::load(&file, |_| ControlFlow::Continue(())).expect("it loads");
    Truth { loaded, roles, lacks }
}

/// The recording that all tests of a kind share.
fn shared(dir: &Path, busy: bool) -> Arc<Truth> {
    static BOTH: [OnceLock<Arc<Truth>>; 2] = [OnceLock::new(), OnceLock::new()];
    let make = || Arc::new(record(dir, if busy { BUSY } else { WAITING }, !busy));
    Arc::clone(BOTH[usize::from(busy)].get_or_init(make))
}

/// Does `holds` of what was recorded of `program`? Skipped, aloud, where recording is not possible or the machine
/// lacks what `role` needs.
pub fn check(test: &str, program: Program, role: &str, holds: impl Fn(&Truth)) {
    let dir = match programs() {
        Ok(dir) => dir,
        Err(why) => {
            println!("skipped: {test}: {why}");
            return;
        }
    };
    let busy = BUSY.contains(&program);
    assert!(busy || WAITING.contains(&program), "{program:?} is not recorded");
    let mut truth = shared(dir, busy);
    for more in (0..TRIES).rev() {
        if let Some(why) = truth.lacks.get(role) {
            println!("skipped: {test}: {why}");
            return;
        }
        match catch_unwind(AssertUnwindSafe(|| holds(&truth))) {
            Ok(()) => return,
            Err(e) if more == 0 || !truth.incomplete() => resume_unwind(e),
            Err(_) => {
                println!("again: the kernel did not report every switch");
                truth = Arc::new(record(dir, &[program], true));
            }
        }
    }
}
