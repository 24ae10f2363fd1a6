//! The real program on the big session, in a pseudo-terminal: time to the first frame, and from key to frame.

use crate::{ms, spread};
use portable_pty::{CommandBuilder, PtySize, native_pty_system};
use std::io::{Read, Write};
use std::path::Path;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

const ROWS: u16 = 40;
const COLS: u16 = 120;
/// Nothing written for this long: the program waits for us.
const QUIET: Duration = Duration::from_millis(1500);

/// A piece of output and when it arrived.
type Piece = (Instant, Vec<u8>);

pub fn measure(file: &Path) {
    let size = PtySize { rows: ROWS, cols: COLS, pixel_width: 0, pixel_height: 0 };
    let pair = native_pty_system().openpty(size).expect("a pseudo-terminal");
    let mut command = CommandBuilder::new(env!("CARGO_BIN_EXE_pg-tui"));
    command.arg("open");
    command.arg(file);
    command.env("TERM", "xterm-256color");
    let mut reader = pair.master.try_clone_reader().expect("a reader");
    let mut keys = pair.master.take_writer().expect("a writer");
    let (send, pieces) = channel::<Piece>();
    std::thread::spawn(move || {
        let mut buffer = vec![0; 1 << 16];
        while let Ok(n @ 1..) = reader.read(&mut buffer) {
            if send.send((Instant::now(), buffer[..n].to_vec())).is_err() {
                return;
            }
        }
    });
    let start = Instant::now();
    let mut child = pair.slave.spawn_command(command).expect("it starts");
    drop(pair.slave);
    let mut terminal = vt100::Parser::new(ROWS, COLS, 0);
    let (first, ready) = opening(&pieces, &mut terminal, start);
    println!(
        "first frame        {:.0} ms, last change while loading {:.2} s",
        ms(first),
        ready.as_secs_f64()
    );

    let mut times = Vec::new();
    for key in "jjkj\rjjkk\x1btjjllhh++--gTjjkk?\x1bG".chars().cycle().take(120) {
        while pieces.try_recv().is_ok() {}
        let pressed = Instant::now();
        let mut bytes = [0; 4];
        keys.write_all(key.encode_utf8(&mut bytes).as_bytes()).expect("it reads");
        // Some keys change nothing: no frame, no time.
        if let Ok((at, piece)) = pieces.recv_timeout(Duration::from_millis(400)) {
            times.push(at.saturating_duration_since(pressed));
            terminal.process(&piece);
        }
    }
    times.sort_unstable();
    println!("key to frame       {} frames, {}", times.len(), spread(&times));
    let _ = child.kill();
    let _ = child.wait();
}

/// When the first frame stood (text on several rows), and when the screen last changed by itself.
fn opening(pieces: &Receiver<Piece>, terminal: &mut vt100::Parser, start: Instant) -> (Duration, Duration) {
    let mut first = None;
    let mut last = start;
    while let Ok((at, piece)) =
        pieces.recv_timeout(QUIET.max(Duration::from_secs(if first.is_none() { 30 } else { 0 })))
    {
        terminal.process(&piece);
        last = at;
        let rows = terminal.screen().rows(0, COLS).filter(|r| !r.trim().is_empty()).count();
        if first.is_none() && rows >= 3 {
            first = Some(at - start);
        }
    }
    (first.expect("the program draws a frame"), last - start)
}
