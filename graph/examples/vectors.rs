//! Checks test vectors of format `pg-vectors/1`:
//!
//! ```text
//! cargo run -p pg-graph --example vectors -- FILE|DIR...
//! ```
//!
//! Prints a line for each expectation and ends with `N passed, N failed`; exit code 1 if any failed.

#[path = "../tests/support/mod.rs"]
mod support;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The vector files under a path, by name.
fn files(path: &Path, out: &mut Vec<PathBuf>) -> std::io::Result<()> {
    if path.is_dir() {
        let mut all: Vec<PathBuf> =
            std::fs::read_dir(path)?.map(|e| e.map(|e| e.path())).collect::<Result<_, _>>()?;
        all.sort();
        for p in all {
            if p.is_dir() || p.extension().is_some_and(|e| e == "toml") {
                files(&p, out)?;
            }
        }
    } else {
        out.push(path.to_path_buf());
    }
    Ok(())
}

fn main() -> ExitCode {
    let arguments: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    if arguments.is_empty() {
        eprintln!("usage: vectors FILE|DIR...");
        return ExitCode::from(2);
    }
    let (mut passed, mut failed) = (0, 0);
    let mut all = Vec::new();
    for a in &arguments {
        if let Err(e) = files(a, &mut all) {
            println!("FAIL  {}: {e}", a.display());
            failed += 1;
        }
    }
    for file in &all {
        match support::vectors::check(file) {
            Err(e) => {
                println!("FAIL  {}: {e}", file.display());
                failed += 1;
            }
            Ok(outcomes) => {
                for o in outcomes {
                    let name = format!("{}: {} [{}]", file.display(), o.what, o.status);
                    match o.result {
                        Ok(note) => {
                            passed += 1;
                            println!("ok    {name}{}", note.map_or(String::new(), |n| format!(": {n}")));
                        }
                        Err(e) => {
                            failed += 1;
                            println!("FAIL  {name}: {e}");
                        }
                    }
                }
            }
        }
    }
    println!("{passed} passed, {failed} failed");
    if failed > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
