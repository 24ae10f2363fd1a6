//! `cargo xtask screenshot OUT.svg [--size COLSxROWS] [--keys KEY,KEY,...] -- CMD ARG...`
//!
//! Runs a program in a pseudo-terminal, types the keys, and draws what is then on the screen as SVG. The
//! pictures of the README are made this way, so that they show the program and not a wish.

use crate::svg;
use portable_pty::{CommandBuilder, PtySize, native_pty_system};
use std::io::{Read, Write};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// The screen counts as settled when nothing was written for this long.
const QUIET: Duration = Duration::from_millis(600);
/// A program that never settles (a clock, a progress line) is drawn after this long.
const PATIENCE: Duration = Duration::from_secs(20);

struct Request<'a> {
    out: &'a str,
    cols: u16,
    rows: u16,
    keys: Vec<&'a str>,
    command: &'a [String],
}

/// Runs the subcommand.
pub fn run(args: &[String]) -> Result<(), String> {
    let request = parse(args)?;
    let pair = native_pty_system()
        .openpty(PtySize { rows: request.rows, cols: request.cols, pixel_width: 0, pixel_height: 0 })
        .map_err(|e| format!("no pseudo-terminal: {e}"))?;
    // A name is looked up in PATH; a path is meant from here.
    let program = match &request.command[0] {
        path if path.contains('/') => {
            std::path::absolute(path).map_err(|e| format!("{path}: {e}"))?.into_os_string()
        }
        name => name.into(),
    };
    let mut command = CommandBuilder::new(program);
    command.args(&request.command[1..]);
    command.env("TERM", "xterm-256color");
    command.env("COLORTERM", "truecolor");
    command.cwd(std::env::current_dir().map_err(|e| e.to_string())?);
    let mut child = pair.slave.spawn_command(command).map_err(|e| format!("cannot start it: {e}"))?;
    drop(pair.slave);
    let mut reader = pair.master.try_clone_reader().map_err(|e| e.to_string())?;
    let mut writer = pair.master.take_writer().map_err(|e| e.to_string())?;
    let (send, bytes) = channel();
    std::thread::spawn(move || {
        let mut buffer = [0; 8192];
        while let Ok(n @ 1..) = reader.read(&mut buffer) {
            if send.send(buffer[..n].to_vec()).is_err() {
                break;
            }
        }
    });

    let mut terminal = vt100::Parser::new(request.rows, request.cols, 0);
    settle(&mut terminal, &bytes);
    for key in &request.keys {
        writer.write_all(&bytes_of(key)?).and_then(|()| writer.flush()).map_err(|e| format!("{key}: {e}"))?;
        settle(&mut terminal, &bytes);
    }
    let picture = svg::draw(terminal.screen());
    let _ = child.kill();
    let _ = child.wait();
    std::fs::write(request.out, picture).map_err(|e| format!("{}: {e}", request.out))
}

fn parse(args: &[String]) -> Result<Request<'_>, String> {
    const USAGE: &str = "usage: screenshot OUT.svg [--size COLSxROWS] [--keys KEY,...] -- CMD ARG...";
    let end = args.iter().position(|a| a == "--").ok_or(USAGE)?;
    let (options, command) = (&args[..end], &args[end + 1..]);
    let [out, options @ ..] = options else { return Err(USAGE.into()) };
    if command.is_empty() || options.len() % 2 != 0 {
        return Err(USAGE.into());
    }
    let mut request = Request { out, cols: 100, rows: 28, keys: Vec::new(), command };
    for pair in options.chunks_exact(2) {
        match pair[0].as_str() {
            "--size" => {
                let size =
                    pair[1].split_once('x').and_then(|(c, r)| Some((c.parse().ok()?, r.parse().ok()?)));
                (request.cols, request.rows) = size.ok_or("--size wants COLSxROWS, as in 100x28")?;
            }
            "--keys" => request.keys = pair[1].split(',').collect(),
            _ => return Err(USAGE.into()),
        }
    }
    Ok(request)
}

fn settle(terminal: &mut vt100::Parser, bytes: &Receiver<Vec<u8>>) {
    let start = Instant::now();
    while start.elapsed() < PATIENCE {
        match bytes.recv_timeout(QUIET) {
            Ok(more) => terminal.process(&more),
            Err(RecvTimeoutError::Timeout) if terminal.screen().contents().trim().is_empty() => {}
            Err(_) => return,
        }
    }
}

/// What a terminal sends for a key: a single character, or one of the names.
fn bytes_of(key: &str) -> Result<Vec<u8>, String> {
    Ok(match key {
        "enter" => b"\r".to_vec(),
        "esc" => b"\x1b".to_vec(),
        "tab" => b"\t".to_vec(),
        "space" => b" ".to_vec(),
        "up" => b"\x1b[A".to_vec(),
        "down" => b"\x1b[B".to_vec(),
        "right" => b"\x1b[C".to_vec(),
        "left" => b"\x1b[D".to_vec(),
        _ if key.chars().count() == 1 => key.as_bytes().to_vec(),
        _ => {
            return Err(format!(
                "`{key}` is no key: a character, enter, esc, tab, space, up, down, left, right"
            ));
        }
    })
}
