//! `cargo xtask cookbook [PG-TUI]`: draws the pictures of the cookbook and of the README afresh, each from a copy of
//! its recording (opening one keeps the answers in it).

use crate::screenshot;
use std::path::Path;

/// A picture: its file, the recording it shows, columns and rows, and the keys typed.
const PICTURES: &[(&str, &str, &str, &str)] = &[
    ("assets/screenshot.svg", "sessions/demo.pgs", "110x17", "enter,enter,enter"),
    ("assets/cookbook/redis-lua-victims.svg", "sessions/redis-lua.pgs", "100x22", ""),
    ("assets/cookbook/redis-lua.svg", "sessions/redis-lua.pgs", "100x26", "enter"),
    ("assets/cookbook/full-pipe.svg", "assets/cookbook/full-pipe.pgs", "110x18", "enter,enter"),
    ("assets/cookbook/sqlite-busy.svg", "assets/cookbook/sqlite-busy.pgs", "110x22", "enter,enter"),
    ("assets/cookbook/stopped-server.svg", "assets/cookbook/stopped-server.pgs", "110x20", "enter,enter"),
    ("assets/cookbook/cpu-quota.svg", "assets/cookbook/cpu-quota.pgs", "110x20", "t"),
];

/// Runs the subcommand, in the top folder of the repository.
pub fn run(args: &[String]) -> Result<(), String> {
    let program = args.first().map_or("target/debug/pg-tui", String::as_str);
    let dir = std::env::temp_dir().join(format!("pg-tui-cookbook-{}", std::process::id()));
    std::fs::create_dir_all(&dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    let all = PICTURES.iter().try_for_each(|picture| draw(picture, program, &dir));
    // Copies only: nothing is lost if they stay.
    let _ = std::fs::remove_dir_all(&dir);
    all
}

fn draw(
    (out, recording, size, keys): &(&str, &str, &str, &str),
    program: &str,
    dir: &Path,
) -> Result<(), String> {
    let name = Path::new(recording).file_name().ok_or_else(|| format!("{recording}: no file"))?;
    let copy = dir.join(name);
    std::fs::copy(recording, &copy).map_err(|e| format!("{recording}: {e}"))?;
    let mut line = vec![(*out).to_owned(), "--size".into(), (*size).to_owned()];
    if !keys.is_empty() {
        line.extend(["--keys".to_owned(), (*keys).to_owned()]);
    }
    line.extend(["--", program, "open"].map(str::to_owned));
    line.push(copy.display().to_string());
    println!("{out}");
    screenshot::run(&line)
}
