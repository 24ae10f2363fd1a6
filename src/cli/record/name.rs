//! File names of recordings: the local time they began at.

#![allow(unsafe_code)] // localtime_r(3): std knows no time zones.

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// `pg-tui-YYYYmmdd-HHMMSS.pgs` in `dir`, with a number when that is taken.
pub fn free(dir: &Path) -> PathBuf {
    free_of(dir, "pg-tui")
}

/// The same with another beginning.
pub fn free_of(dir: &Path, begin: &str) -> PathBuf {
    let stem = format!("{begin}-{}", local(SystemTime::now()));
    let first = dir.join(format!("{stem}.pgs"));
    if !first.exists() {
        return first;
    }
    (2..1000).map(|n| dir.join(format!("{stem}-{n}.pgs"))).find(|p| !p.exists()).unwrap_or(first)
}

fn local(time: SystemTime) -> String {
    let seconds = time.duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs() as libc::time_t);
    // SAFETY: `tm` is plain data, for which zeros are a value; both pointers are valid for the call.
    let tm = unsafe {
        let mut tm: libc::tm = std::mem::zeroed();
        libc::localtime_r(&raw const seconds, &raw mut tm);
        tm
    };
    format!(
        "{:04}{:02}{:02}-{:02}{:02}{:02}",
        tm.tm_year + 1900,
        tm.tm_mon + 1,
        tm.tm_mday,
        tm.tm_hour,
        tm.tm_min,
        tm.tm_sec
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_do_not_collide() {
        let dir = tempfile::tempdir().unwrap();
        let mut names = Vec::new();
        for _ in 0..3 {
            let path = free(dir.path());
            std::fs::write(&path, "").unwrap();
            assert!(!names.contains(&path));
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            assert!(
                name.starts_with("pg-tui-2") && path.extension().unwrap() == "pgs" && name.len() >= 26,
                "{name}"
            );
            names.push(path);
        }
    }
}
