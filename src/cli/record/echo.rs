//! Keys typed while a progress line is drawn are not shown: they would stand in it, and Enter leaves a copy of it.
#![allow(unsafe_code)] // tcgetattr(3), tcsetattr(3), tcgetpgrp(3) and sigaction(2) have no safe wrapper in std.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

/// Where the line is drawn.
const TERMINAL: libc::c_int = libc::STDERR_FILENO;
/// Signals that stop or end a recorder at once; what may end it later is counted by `Interrupts`.
const AT_ONCE: [libc::c_int; 2] = [libc::SIGTSTP, libc::SIGQUIT];

/// Is the terminal's echo off, by us?
static OFF: AtomicBool = AtomicBool::new(false);

/// The terminal without echo while this lives, for the recorder in the foreground.
///
/// Nothing else of the terminal is changed: lines are read as before and Ctrl-C interrupts, so that after a recorder
/// that was killed (SIGKILL), which can put nothing back, `stty echo` can be typed. Shells that read lines themselves
/// (bash, zsh) put back the echo after a job that a signal ended.
pub struct Echo {
    before: Vec<(libc::c_int, libc::sigaction)>,
}

impl Echo {
    /// Off from now on.
    pub fn off() -> Self {
        let mut this = Self { before: Vec::new() };
        this.keep_off();
        this
    }

    /// Off again where somebody turned it on since: a shell does so while the recorder is stopped.
    pub fn keep_off(&mut self) {
        if is_ours() && turn(false, libc::TCSANOW) {
            OFF.store(true, SeqCst);
            self.watch();
        }
    }

    fn watch(&mut self) {
        for signal in AT_ONCE {
            // SAFETY: zeroed sigactions are valid; the handler calls only functions that are safe in one.
            unsafe {
                let mut old: libc::sigaction = std::mem::zeroed();
                let mut new: libc::sigaction = std::mem::zeroed();
                let known = libc::sigaction(signal, std::ptr::null(), &raw mut old) == 0;
                // Who ignores it or has a handler wants it so.
                if !known || old.sa_sigaction != libc::SIG_DFL {
                    continue;
                }
                let handler: extern "C" fn(libc::c_int) = give_back;
                new.sa_sigaction = handler as usize;
                new.sa_flags = libc::SA_RESETHAND | libc::SA_RESTART;
                let set = libc::sigaction(signal, &raw const new, std::ptr::null_mut()) == 0;
                if set && self.before.iter().all(|(s, _)| *s != signal) {
                    self.before.push((signal, old));
                }
            }
        }
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        if OFF.swap(false, SeqCst) && is_ours() {
            // As Ctrl-C does: what was typed blindly is not for whoever reads next.
            turn(true, libc::TCSAFLUSH);
        }
        for (signal, old) in &self.before {
            // SAFETY: puts back what sigaction(2) returned before.
            unsafe { libc::sigaction(*signal, &raw const *old, std::ptr::null_mut()) };
        }
    }
}

/// The signal's own effect, with the echo on.
extern "C" fn give_back(signal: libc::c_int) {
    if OFF.swap(false, SeqCst) {
        turn(true, libc::TCSANOW);
    }
    // SAFETY: async-signal-safe. It comes once this handler has returned, and that was for one time only.
    unsafe { libc::raise(signal) };
}

/// Are we in the foreground of it? In the background a shell reads lines in a way of its own, and who changes the
/// terminal is stopped.
fn is_ours() -> bool {
    // SAFETY: neither has memory to misuse.
    unsafe { libc::tcgetpgrp(TERMINAL) == libc::getpgrp() }
}

/// Turns the echo on or off; was it the other way?
fn turn(on: bool, when: libc::c_int) -> bool {
    // SAFETY: a zeroed termios is a valid place for the answer; both calls are async-signal-safe.
    unsafe {
        let mut t: libc::termios = std::mem::zeroed();
        if libc::tcgetattr(TERMINAL, &raw mut t) != 0 || (t.c_lflag & libc::ECHO != 0) == on {
            return false;
        }
        t.c_lflag ^= libc::ECHO;
        libc::tcsetattr(TERMINAL, when, &raw const t) == 0
    }
}
