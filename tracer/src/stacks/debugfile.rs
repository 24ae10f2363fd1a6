//! Where the separate debug information of a binary is: by build-id, by `.gnu_debuglink`, in debuginfod's
//! cache or fetched by its own program (GDB manual, "Debugging Information in Separate Files";
//! debuginfod-find(1)).

use super::elf::Elf;
use super::module::open_plain;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Longest wait for a download, per file.
const FETCH: Duration = Duration::from_secs(30);

/// A build-id that is fit to be part of a path: an untrusted file names it.
pub(super) fn usable(build_id: &str) -> bool {
    (4..=128).contains(&build_id.len()) && build_id.bytes().all(|b| b.is_ascii_hexdigit())
}

/// The file at `path`, if it is an ELF file with this build-id.
pub(super) fn matching(path: &Path, build_id: &str) -> Option<Elf> {
    let elf = Elf::read(&open_plain(path)?)?;
    (elf.build_id == build_id).then_some(elf)
}

/// Find the debug file by build-id below the given directories (`DIR/.build-id/xx/yyyy.debug`).
pub(super) fn by_build_id(dirs: &[PathBuf], build_id: &str) -> Option<PathBuf> {
    if !usable(build_id) {
        return None;
    }
    let (head, tail) = build_id.split_at_checked(2)?;
    dirs.iter().find_map(|d| {
        let path = d.join(format!(".build-id/{head}/{tail}.debug"));
        matching(&path, build_id).map(|_| path)
    })
}

/// Find the debug file by its link: beside the binary, in `.debug` there, and below the directories under
/// the binary's own path. The checksum decides.
pub(super) fn by_link(dirs: &[PathBuf], root: &Path, binary: &str, link: &(String, u32)) -> Option<PathBuf> {
    let dir = Path::new(binary).parent()?;
    let relative = dir.strip_prefix("/").unwrap_or(dir);
    // A path of an untrusted mount may lead anywhere: no `..` in it.
    if relative.components().any(|c| !matches!(c, std::path::Component::Normal(_))) {
        return None;
    }
    let here = root.join(relative);
    let mut candidates = vec![here.join(&link.0), here.join(".debug").join(&link.0)];
    candidates.extend(dirs.iter().map(|d| d.join(relative).join(&link.0)));
    candidates.into_iter().find(|p| checksum(p) == Some(link.1))
}

/// CRC-32 of a whole file.
fn checksum(path: &Path) -> Option<u32> {
    let mut file = open_plain(path)?;
    let mut hasher = crc32fast::Hasher::new();
    let mut buf = vec![0; 1 << 16];
    loop {
        match file.read(&mut buf).ok()? {
            0 => return Some(hasher.finalize()),
            n => hasher.update(buf.get(..n)?),
        }
    }
}

/// How to ask debuginfod: only ever when the user configured it by `DEBUGINFOD_URLS`.
#[derive(Clone, Debug)]
pub(super) struct Debuginfod {
    /// Directory of the client's cache.
    pub cache: Option<PathBuf>,
    /// The program that downloads, `None` when not configured.
    pub program: Option<PathBuf>,
}

impl Debuginfod {
    /// As the environment says (debuginfod_find_debuginfo(3)).
    pub fn from_env() -> Self {
        let var = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
        let cache = var("DEBUGINFOD_CACHE_PATH")
            .or_else(|| var("XDG_CACHE_HOME").map(|d| d.join("debuginfod_client")))
            .or_else(|| var("HOME").map(|d| d.join(".cache/debuginfod_client")));
        let program = var("DEBUGINFOD_URLS").map(|_| PathBuf::from("debuginfod-find"));
        Self { cache, program }
    }

    /// The debug file from the cache, else downloaded.
    pub fn find(&self, build_id: &str) -> Option<PathBuf> {
        if !usable(build_id) {
            return None;
        }
        let cached = self.cache.as_ref().map(|c| c.join(build_id).join("debuginfo"));
        if let Some(path) = cached.filter(|p| matching(p, build_id).is_some()) {
            return Some(path);
        }
        let path = self.fetch(build_id)?;
        matching(&path, build_id).map(|_| path)
    }

    fn fetch(&self, build_id: &str) -> Option<PathBuf> {
        let mut child = Command::new(self.program.as_ref()?)
            .args(["debuginfo", build_id])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .ok()?;
        let begin = Instant::now();
        let status = loop {
            match child.try_wait() {
                Ok(Some(status)) => break status,
                Ok(None) if begin.elapsed() < FETCH => std::thread::sleep(Duration::from_millis(20)),
                _ => {
                    let _ = child.kill();
                    let _ = child.wait();
                    return None;
                }
            }
        };
        let mut out = String::new();
        child.stdout.take()?.take(4096).read_to_string(&mut out).ok()?;
        status.success().then(|| PathBuf::from(out.trim()))
    }
}

/// Directories of debug files of the recorder and, behind those, of a container.
pub(super) fn directories(root: Option<&Path>) -> Vec<PathBuf> {
    let own = [PathBuf::from("/usr/lib/debug")];
    own.into_iter().chain(root.map(|r| r.join("usr/lib/debug"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    /// A stand-in for debuginfod-find that answers with this path.
    fn program(dir: &Path, answer: &Path) -> PathBuf {
        let path = dir.join("find");
        let text = format!("#!/bin/sh\n[ \"$1\" = debuginfo ] && echo {}\n", answer.display());
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    fn sh() -> (PathBuf, String) {
        let path = std::fs::canonicalize("/bin/sh").unwrap();
        let id = Elf::read(&open_plain(&path).unwrap()).unwrap().build_id;
        (path, id)
    }

    #[test]
    fn debuginfod_is_asked_and_its_answer_checked() {
        let (sh, id) = sh();
        if !usable(&id) {
            println!("skipped: /bin/sh has no build-id");
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let none = Debuginfod { cache: Some(dir.path().to_owned()), program: None };
        assert_eq!(none.find(&id), None);
        let ask = Debuginfod { program: Some(program(dir.path(), &sh)), ..none.clone() };
        assert_eq!(ask.find(&id), Some(sh.clone()));
        // An answer with another build-id is not it.
        assert_eq!(ask.find(&"0".repeat(40)), None);
        // The cache is looked at without a program.
        std::fs::create_dir(dir.path().join(&id)).unwrap();
        std::fs::copy(&sh, dir.path().join(&id).join("debuginfo")).unwrap();
        assert_eq!(none.find(&id), Some(dir.path().join(&id).join("debuginfo")));
    }

    #[test]
    fn build_ids_do_not_lead_out() {
        assert!(!usable("../../etc"));
        assert!(!usable("ab"));
        assert!(!usable(""));
        assert!(usable("00ff00ff"));
    }

    #[test]
    fn by_build_id_below_a_directory() {
        let (sh, id) = sh();
        let Some((head, tail)) = id.split_at_checked(2).filter(|_| usable(&id)) else {
            println!("skipped: /bin/sh has no build-id");
            return;
        };
        let dir = tempfile::tempdir().unwrap();
        let dirs = [dir.path().to_owned()];
        assert_eq!(by_build_id(&dirs, &id), None);
        let at = dir.path().join(format!(".build-id/{head}"));
        std::fs::create_dir_all(&at).unwrap();
        let at = at.join(format!("{tail}.debug"));
        std::fs::copy("/bin/true", &at).unwrap();
        assert_eq!(by_build_id(&dirs, &id), None, "another file under this name");
        std::fs::copy(sh, &at).unwrap();
        assert_eq!(by_build_id(&dirs, &id), Some(at));
    }
}
