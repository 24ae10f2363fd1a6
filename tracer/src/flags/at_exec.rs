//! Holds a command at its exec, when its program's memory is laid out and nothing of it has run yet: the only moment
//! at which its variables can be watched from the first instruction on.
#![allow(unsafe_code)] // ptrace(2) and waitpid(2) have no safe wrapper in std.

use std::io;

/// A suspended child that will stop at its exec. Dropped, it runs on; should this process die, it does so, too.
/// All calls must come from one thread: that is whom the kernel lets trace.
#[derive(Debug)]
pub struct AtExec {
    pid: i32,
    stopped: bool,
}

fn failed() -> io::Error {
    io::Error::last_os_error()
}

impl AtExec {
    /// Have the child `pid` of this process stop when it has exec'ed.
    ///
    /// # Errors
    /// The kernel's refusal: somebody else traces it.
    pub fn seize(pid: u32) -> io::Result<Self> {
        let pid = pid as i32;
        // SAFETY: numbers only. No PTRACE_O_EXITKILL: the command must outlive this process.
        let done =
            unsafe { libc::ptrace(libc::PTRACE_SEIZE, pid, 0usize, libc::PTRACE_O_TRACEEXEC as usize) };
        if done < 0 { Err(failed()) } else { Ok(Self { pid, stopped: false }) }
    }

    /// Wait until it has exec'ed; it stands still then. Returns whether it does: else it has ended.
    ///
    /// # Errors
    /// It is no child of this process.
    pub fn wait(&mut self) -> io::Result<bool> {
        loop {
            let mut status = 0;
            // SAFETY: `status` is a valid place for the result.
            if unsafe { libc::waitpid(self.pid, &raw mut status, libc::__WALL) } < 0 {
                match failed() {
                    e if e.kind() == io::ErrorKind::Interrupted => continue,
                    e => return Err(e),
                }
            }
            if !libc::WIFSTOPPED(status) {
                return Ok(false);
            }
            if status >> 16 == libc::PTRACE_EVENT_EXEC {
                self.stopped = true;
                return Ok(true);
            }
            // A signal on its way to it: passed on; a stop of its own (event 128): let go on.
            let signal = if status >> 16 == 0 { libc::WSTOPSIG(status) as usize } else { 0 };
            // SAFETY: numbers only.
            unsafe { libc::ptrace(libc::PTRACE_CONT, self.pid, 0usize, signal) };
        }
    }
}

impl Drop for AtExec {
    fn drop(&mut self) {
        // Not stopped, it has ended or never came to its exec; the kernel lets go of it when this thread ends.
        if self.stopped {
            // SAFETY: numbers only.
            unsafe { libc::ptrace(libc::PTRACE_DETACH, self.pid, 0usize, 0usize) };
        }
    }
}
