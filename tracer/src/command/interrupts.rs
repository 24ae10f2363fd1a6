//! What Ctrl-C means to the recorder.

use std::io;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

static INTERRUPTS: AtomicU32 = AtomicU32::new(0);
static TERMINATES: AtomicU32 = AtomicU32::new(0);

extern "C" fn count(signal: libc::c_int) {
    if signal == libc::SIGINT { &INTERRUPTS } else { &TERMINATES }.fetch_add(1, SeqCst);
}

/// Counts SIGINT, SIGTERM and SIGHUP while it lives, then puts back what was there before.
///
/// Ctrl-C reaches the recorded command as well as the recorder. The command decides what to do with it,
/// and how it ends is worth recording: so with a command running, the first SIGINT is left to it, and a
/// second one ends the recording all the same. SIGTERM and SIGHUP are meant for the recorder.
pub struct Interrupts {
    before: Vec<(libc::c_int, libc::sigaction)>,
}

impl Interrupts {
    /// Count from now on, beginning at zero. There may be only one at a time.
    ///
    /// # Errors
    /// The system's refusal.
    pub fn install() -> io::Result<Self> {
        INTERRUPTS.store(0, SeqCst);
        TERMINATES.store(0, SeqCst);
        let mut this = Self { before: Vec::new() };
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
            // SAFETY: zeroed sigactions are valid; the handler only adds to atomics.
            unsafe {
                let mut old: libc::sigaction = std::mem::zeroed();
                let mut new: libc::sigaction = std::mem::zeroed();
                if libc::sigaction(signal, std::ptr::null(), &raw mut old) != 0 {
                    return Err(io::Error::last_os_error());
                }
                // Under nohup they are ignored. A script's background job has SIGINT ignored, too, but `kill -INT $!`
                // is how scripts end a recorder (perf record takes it as well).
                if signal != libc::SIGINT && old.sa_sigaction == libc::SIG_IGN {
                    continue;
                }
                let handler: extern "C" fn(libc::c_int) = count;
                new.sa_sigaction = handler as usize;
                // No SA_RESTART: a wait for input or for the command returns to look at the count.
                if libc::sigaction(signal, &raw const new, std::ptr::null_mut()) != 0 {
                    return Err(io::Error::last_os_error());
                }
                this.before.push((signal, old));
            }
        }
        Ok(this)
    }

    /// How often SIGINT came.
    pub fn count(&self) -> u32 {
        INTERRUPTS.load(SeqCst)
    }

    /// Put back what SIGINT did before: the next one does that.
    pub fn give_back(&mut self) {
        if let Some(at) = self.before.iter().position(|(signal, _)| *signal == libc::SIGINT) {
            let (signal, old) = self.before.swap_remove(at);
            restore(signal, &old);
        }
    }

    /// Must the recording end now?
    pub fn stop(&self, command_running: bool) -> bool {
        TERMINATES.load(SeqCst) > 0 || INTERRUPTS.load(SeqCst) > u32::from(command_running)
    }
}

impl Drop for Interrupts {
    fn drop(&mut self) {
        for (signal, old) in &self.before {
            restore(*signal, old);
        }
    }
}

fn restore(signal: libc::c_int, old: &libc::sigaction) {
    // SAFETY: puts back what sigaction(2) returned before.
    unsafe { libc::sigaction(signal, &raw const *old, std::ptr::null_mut()) };
}
