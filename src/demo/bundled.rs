//! The bundled recording of the demonstration, for those who may not trace.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

/// `sessions/demo.pgs` of the repository.
const RECORDING: &[u8] = include_bytes!("../../sessions/demo.pgs");

/// Writes the recording to a new file in the folder for temporary files, readable by its owner only, and
/// returns its path. The file is kept: answers and notes go into it.
pub fn unpack() -> io::Result<PathBuf> {
    let mut number = 0_u32;
    loop {
        let path = std::env::temp_dir().join(format!("pg-tui-demo-{}-{number}.pgs", std::process::id()));
        match OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path) {
            Ok(mut file) => return file.write_all(RECORDING).map(|()| path),
            // Somebody's file: take another name, never his.
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists && number < 100 => number += 1,
            Err(e) => return Err(io::Error::new(e.kind(), format!("{}: {e}", path.display()))),
        }
    }
}
