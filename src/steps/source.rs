//! Source files of the machine that a recording is looked at on. Their names come from a recording: only plain files are
//! read, and no more of them than a person would look at.

use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Longest file that is read, bytes.
const LONGEST: u64 = 4 << 20;
/// Most files.
const MANY: usize = 64;

/// Lines of source files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sources(HashMap<String, Vec<String>>);

impl Sources {
    /// Read what can be read of these files.
    pub fn read(files: &[String]) -> Self {
        let text = |name: &String| Some((name.clone(), read(name)?));
        Self(files.iter().take(MANY).filter_map(text).collect())
    }

    /// A line, counted from 1.
    pub fn line(&self, file: &str, line: u32) -> Option<&str> {
        self.0.get(file)?.get(line.checked_sub(1)? as usize).map(String::as_str)
    }
}

fn read(name: &str) -> Option<Vec<String>> {
    let path = Path::new(name);
    if !path.is_absolute() {
        return None;
    }
    // A FIFO or a device must neither block nor do anything.
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY | libc::O_CLOEXEC;
    if !std::fs::metadata(path).ok()?.is_file() {
        return None;
    }
    let file = File::options().read(true).custom_flags(flags).open(path).ok()?;
    let meta = file.metadata().ok()?;
    if !meta.is_file() || meta.len() > LONGEST {
        return None;
    }
    let mut bytes = Vec::new();
    file.take(LONGEST).read_to_end(&mut bytes).ok()?;
    // No source: something else of that name.
    if bytes.contains(&0) {
        return None;
    }
    Some(String::from_utf8_lossy(&bytes).lines().map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_files_only() {
        let here = concat!(env!("CARGO_MANIFEST_DIR"), "/src/steps/source.rs").to_owned();
        let files =
            [here.clone(), "/dev/zero".into(), "/proc/self/mem".into(), "src/lib.rs".into(), "/".into()];
        let s = Sources::read(&files);
        assert!(s.line(&here, 1).is_some_and(|l| l.starts_with("//! Source files")));
        assert_eq!((s.line(&here, 0), s.line("/dev/zero", 1), s.line("src/lib.rs", 1)), (None, None, None));
    }
}
