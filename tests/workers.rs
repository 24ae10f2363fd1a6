//! Waits that pass through threads of the kernel, recorded for real: a loop device on a slow file system, a file
//! system served by a program, a device that a limit slows down, a journal, memory that is freed by writing, written
//! data that has to reach the disk. Needs root, loop devices, mkfs.ext4 and bindfs;
//! says so and skips where one of them is missing.

#[path = "hangs/report.rs"]
mod report;

use report::{Report, before_others, diagnose, pg_tui, text};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Loop devices and limits are the machine's: one test at a time.
static ALONE: Mutex<()> = Mutex::new(());

/// A program that must not be missing, and what it printed. `Err` says why there is nothing.
fn run(program: &str, args: &[&dyn AsRef<std::ffi::OsStr>]) -> Result<String, String> {
    let out = Command::new(program).args(args).output().map_err(|e| format!("{program}: {e}"))?;
    if out.status.success() {
        Ok(text(&out).trim().to_owned())
    } else {
        Err(format!("{program}: {}", text(&out)))
    }
}

/// What a test set up, in the order of making; undone in the other order.
struct Machine {
    undo: Vec<(String, Vec<PathBuf>)>,
    /// Write a setting back when their input ends, which it also does when this test is killed.
    restorers: Vec<Child>,
    daemon: Option<Child>,
    dir: tempfile::TempDir,
    _alone: MutexGuard<'static, ()>,
}

impl Drop for Machine {
    fn drop(&mut self) {
        for mut restorer in self.restorers.drain(..) {
            // Closes its input first.
            let _ = restorer.wait();
        }
        for (program, args) in self.undo.drain(..).rev() {
            // What is still in use for a moment is tried again.
            for _ in 0..50 {
                if Command::new(&program)
                    .args(&args)
                    .stderr(Stdio::null())
                    .status()
                    .is_ok_and(|s| s.success())
                {
                    break;
                }
                std::thread::sleep(Duration::from_millis(100));
            }
        }
        if let Some(daemon) = &mut self.daemon {
            let _ = daemon.wait();
        }
    }
}

impl Machine {
    fn new() -> Self {
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let dir = tempfile::tempdir().expect("a folder");
        Self { undo: Vec::new(), restorers: Vec::new(), daemon: None, dir, _alone: alone }
    }

    /// A folder of this name.
    fn folder(&self, name: &str) -> PathBuf {
        let path = self.dir.path().join(name);
        std::fs::create_dir_all(&path).expect("mkdir");
        path
    }

    /// `slow` shows what is in `fast`, through a program that lets so many bytes a second be written.
    fn bindfs(&mut self, rate: &str) -> Result<(PathBuf, PathBuf), String> {
        let (fast, slow) = (self.folder("fast"), self.folder("slow"));
        run("bindfs", &[&"--version"])?;
        let daemon = before_others("bindfs")
            .args(["-f", &format!("--write-rate={rate}")])
            .args([&fast, &slow])
            .spawn();
        let daemon = self.daemon.insert(daemon.map_err(|e| format!("bindfs: {e}"))?);
        let shown = || {
            let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
            mounts.contains(slow.to_str().expect("a path"))
        };
        while !shown() {
            if daemon.try_wait().expect("wait").is_some() {
                return Err("bindfs cannot mount here".into());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        self.undo.push(("umount".into(), vec![slow.clone()]));
        Ok((fast, slow))
    }

    /// An ext4 file system on a loop device on the file `image`, which is `made` by another way perhaps. Where it
    /// is mounted, and the device.
    fn ext4(&mut self, made: &Path, image: &Path) -> Result<(PathBuf, PathBuf), String> {
        let file = std::fs::File::create(made).map_err(|e| e.to_string())?;
        file.set_len(64 << 20).map_err(|e| e.to_string())?;
        run("mkfs.ext4", &[&"-q", &"-F", &made])?;
        let device = PathBuf::from(run("losetup", &[&"-f", &"--show", &image])?);
        self.undo.push(("losetup".into(), vec!["-d".into(), device.clone()]));
        let folder = self.folder("mounted");
        run("mount", &[&device, &folder])?;
        self.undo.push(("umount".into(), vec![folder.clone()]));
        Ok((folder, device))
    }

    /// The same on a device whose writes take long, since `bindfs` has them wait.
    fn slow_ext4(&mut self) -> Result<(PathBuf, PathBuf), String> {
        let (fast, slow) = self.bindfs("1M")?;
        self.ext4(&fast.join("image"), &slow.join("image"))
    }

    /// A control group of the first of these settings (the controller's folder below /sys/fs/cgroup, file, text) that
    /// there is: the file to write a process id to.
    fn group(&mut self, settings: [(&str, &str, String); 2]) -> Result<PathBuf, String> {
        for (controller, file, text) in settings {
            let name = format!("pg-tui-test-{}", std::process::id());
            let group = Path::new("/sys/fs/cgroup").join(controller).join(name);
            if std::fs::create_dir(&group).is_err() {
                continue;
            }
            self.undo.push(("rmdir".into(), vec![group.clone()]));
            if std::fs::write(group.join(file), text).is_ok() {
                return Ok(group.join("cgroup.procs"));
            }
        }
        Err("no control group with such a limit can be made here".into())
    }

    /// A control group whose members write 1 MB/s to `device`.
    fn limit(&mut self, device: &Path) -> Result<PathBuf, String> {
        let number = run("lsblk", &[&"-dno", &"MAJ:MIN", &device])?.trim().to_owned();
        self.group([
            ("blkio", "blkio.throttle.write_bps_device", format!("{number} 1048576")),
            ("", "io.max", format!("{number} wbps=1048576")),
        ])
    }

    /// No more than a megabyte that was written may wait to reach `device`.
    fn few_unwritten(&mut self, device: &Path) -> Result<(), String> {
        let number = run("lsblk", &[&"-dno", &"MAJ:MIN", &device])?.trim().to_owned();
        let of = Path::new("/sys/class/bdi").join(number);
        let script = "cd $0 && r=$(cat max_ratio) s=$(cat strict_limit) && echo && cat > /dev/null; \
            echo $r > max_ratio; echo $s > strict_limit";
        let mut restorer = Command::new("sh");
        restorer.args(["-c", script]).arg(&of).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut restorer = restorer.spawn().map_err(|e| format!("sh: {e}"))?;
        let known = restorer.stdout.take().is_some_and(|mut out| out.read_exact(&mut [0]).is_ok());
        self.restorers.push(restorer);
        if !known {
            return Err("what a device may have unwritten is not told here".into());
        }
        for (file, text) in [("max_bytes", "1048576"), ("strict_limit", "1")] {
            std::fs::write(of.join(file), text).map_err(|e| format!("{file} of {}: {e}", of.display()))?;
        }
        Ok(())
    }

    /// Records a shell command.
    fn record(&self, command: &str) -> Result<PathBuf, String> {
        let file = self.folder("r").join("r.pgs");
        let mut pg_tui = before_others(pg_tui().get_program());
        pg_tui.args(["record", "--no-tui", "-o"]).arg(&file).args(["--", "sh", "-c", command]);
        let out = pg_tui.output().expect("pg-tui starts");
        if out.status.code() == Some(4) {
            return Err(format!("recording is not permitted here: {}", text(&out)));
        }
        assert!(out.status.success(), "record: {}\n{}", out.status, text(&out));
        Ok(file)
    }
}

/// Runs a test, says why not where it cannot, and tries again when a switch of importance was not reported (one
/// in 200 is not on some kernels).
fn check(name: &str, prepare: impl Fn(&mut Machine) -> Result<PathBuf, String>, holds: impl Fn(&Report)) {
    check_of(name, "^dd ", prepare, holds);
}

/// The same of another program than dd.
fn check_of(
    name: &str,
    victim: &str,
    prepare: impl Fn(&mut Machine) -> Result<PathBuf, String>,
    holds: impl Fn(&Report),
) {
    if !Path::new("/dev/loop-control").exists() || !Path::new("/dev/fuse").exists() {
        println!("skipped: {name}: no loop devices or no FUSE here");
        return;
    }
    for last in [false, false, true] {
        let mut machine = Machine::new();
        let file = match prepare(&mut machine) {
            Ok(file) => file,
            Err(why) => {
                println!("skipped: {name}: {}", why.replace('\n', " "));
                return;
            }
        };
        // Others of the machine may be called like it.
        let victim = format!("{victim}.*{}", machine.dir.path().display());
        let attempt = || holds(&diagnose(&file, &["--process", &victim]));
        if last {
            attempt();
        } else if std::panic::catch_unwind(std::panic::AssertUnwindSafe(attempt)).is_ok() {
            return;
        }
    }
}

/// No thread of the kernel is the first cause, and one that is named further down comes with what it did.
fn kernel_is_explained(r: &Report) {
    r.not_first("kworker|kthread|^jbd2");
    for cause in r.0["root_causes"].as_array().into_iter().flatten() {
        let (process, why) = (cause["process"].as_str().unwrap_or(""), cause["why"].as_str().unwrap_or(""));
        assert!(!process.starts_with("kworker") || why.starts_with("the kernel's "), "{why}");
    }
}

#[test]
fn a_loop_device_on_a_slow_file_system() {
    let prepare = |m: &mut Machine| {
        let (mounted, _) = m.slow_ext4()?;
        m.record(&format!("exec dd if=/dev/zero of={}/f bs=1M count=3 conv=fsync", mounted.display()))
    };
    check("a_loop_device_on_a_slow_file_system", prepare, |r| {
        r.victim("^dd ", &["long-wait"], 1_000_000_000).slice(&["kworker", "^bindfs "]);
        r.root(1, "^bindfs ", "slept").clean(1);
        kernel_is_explained(r);
    });
}

#[test]
fn a_file_system_served_by_a_program() {
    let prepare = |m: &mut Machine| {
        // It asks for 4 KB at a time.
        let (_, slow) = m.bindfs("4k")?;
        m.record(&format!("exec dd if=/dev/zero of={}/f bs=4k count=3", slow.display()))
    };
    check("a_file_system_served_by_a_program", prepare, |r| {
        r.victim("^dd ", &["long-wait", "repeated-yield"], 500_000_000).slice(&["^bindfs "]);
        r.root(1, "^bindfs ", "slept").clean(1);
        kernel_is_explained(r);
    });
}

#[test]
fn a_device_that_a_limit_slows_down() {
    let prepare = |m: &mut Machine| {
        let image = m.folder("image").join("image");
        let (mounted, device) = m.ext4(&image, &image)?;
        let group = m.limit(&device)?;
        m.record(&format!(
            "echo $$ > {} && exec dd if=/dev/zero of={}/f bs=1M count=3 conv=fsync",
            group.display(),
            mounted.display()
        ))
    };
    check("a_device_that_a_limit_slows_down", prepare, |r| {
        r.victim("^dd ", &["long-wait"], 1_000_000_000).root(1, "^dd ", "for the disk|device").clean(1);
        kernel_is_explained(r);
    });
}

/// The program has nothing to write but a byte; the journal's thread first writes what another one wrote before.
#[test]
fn a_journal_that_writes_what_another_one_wrote() {
    let prepare = |m: &mut Machine| {
        let (mounted, device) = m.slow_ext4()?;
        // Blocks that are allocated at once are written before the commit that they belong to.
        run("umount", &[&mounted])?;
        run("mount", &[&"-o", &"nodelalloc", &device, &mounted])?;
        let at = mounted.display();
        m.record(&format!(
            "dd if=/dev/zero of={at}/big bs=1M count=3; echo x > {at}/small; exec sync {at}/small"
        ))
    };
    check_of("a_journal_that_writes_what_another_one_wrote", "^sync ", prepare, |r| {
        r.victim("^sync ", &["long-wait"], 1_000_000_000).waits(&[("^sync ", "disk"), ("^jbd2/", "disk")]);
        r.slice(&["^jbd2/", "^kworker", "^bindfs "]).root(1, "^bindfs ", "slept").clean(1);
        kernel_is_explained(r);
    });
}

/// The group has memory for a part of the file only: pages must be written before they can be given away.
#[test]
fn memory_that_is_freed_by_writing() {
    let prepare = |m: &mut Machine| {
        let (mounted, _) = m.slow_ext4()?;
        let limit = || (6 << 20).to_string();
        let group = m.group([("memory", "memory.limit_in_bytes", limit()), ("", "memory.max", limit())])?;
        m.record(&format!(
            "echo $$ > {} && exec dd if=/dev/zero of={}/f bs=1M count=11",
            group.display(),
            mounted.display()
        ))
    };
    check("memory_that_is_freed_by_writing", prepare, |r| {
        r.victim("^dd ", &["long-wait"], 1_000_000_000).waits(&[("^dd ", "memory-reclaim")]);
        r.slice(&["^bindfs "]).root(1, "^bindfs ", "slept").root(1, "^bindfs ", "for memory to be freed");
        r.clean(1);
        kernel_is_explained(r);
    });
}

/// Nobody ends the pauses of a writer (balance_dirty_pages): who writes back, and who is that disk, are found by what
/// they did.
#[test]
fn written_data_that_has_to_reach_the_disk() {
    let prepare = |m: &mut Machine| {
        let (mounted, device) = m.slow_ext4()?;
        m.few_unwritten(&device)?;
        m.record(&format!("exec dd if=/dev/zero of={}/f bs=256k count=16", mounted.display()))
    };
    check("written_data_that_has_to_reach_the_disk", prepare, |r| {
        r.victim("^dd ", &["long-wait", "repeated-yield"], 1_000_000_000).waits(&[("^dd ", "write-back")]);
        r.slice(&["^kworker", "^bindfs "]).root(1, "^bindfs ", "slept");
        r.root(3, "^kworker", "for written data to reach the disk").clean(1);
        kernel_is_explained(r);
    });
}
