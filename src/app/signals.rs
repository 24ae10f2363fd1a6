//! Signals: they arrive as messages like everything else.

use super::msg::{Msg, Signal};
use super::terminal;
use crossbeam_channel::Sender;
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP};
use signal_hook::iterator::Signals;
use std::io;
use std::time::Duration;

/// Starts the thread that waits for signals.
///
/// # Errors
/// What the system says when handlers cannot be installed.
pub fn listen(send: Sender<Msg>) -> io::Result<()> {
    let mut signals = Signals::new([SIGTERM, SIGHUP, SIGINT, SIGQUIT, SIGTSTP, SIGCONT])?;
    std::thread::Builder::new().name("signals".into()).spawn(move || {
        for number in signals.forever() {
            let signal = match number {
                SIGTSTP => Signal::Stop,
                SIGCONT => Signal::Continue,
                n => Signal::End(n),
            };
            if send.send(Msg::Signal(signal)).is_err() {
                break;
            }
            if let Signal::End(n) = signal {
                // The session ends within this time, or it is stuck: then this thread does it.
                std::thread::sleep(Duration::from_secs(2));
                terminal::restore();
                die_of(n);
            }
        }
    })?;
    Ok(())
}

/// Stops this process as the signal would have, until somebody continues it.
pub fn stop() {
    // An error means that the signal cannot be emulated; then the session just goes on.
    let _ = signal_hook::low_level::emulate_default_handler(SIGTSTP);
}

/// Ends this process as the signal would have: the parent sees which one it was.
pub fn die_of(signal: i32) {
    let _ = signal_hook::low_level::emulate_default_handler(signal);
    std::process::exit(128 + signal);
}
