//! Loading of programs: the kernel gives up checking one when a signal comes to the thread that loads it (a child that
//! ends, a terminal that changes its size), and says so by `EAGAIN`. Then it is asked again.

use aya::programs::ProgramError;

/// Longest text of a refusal, characters.
const MAX_REASON: usize = 2000;

/// An error with all that caused it, or the end of that: what the kernel checked last.
pub fn reason(e: &dyn std::error::Error) -> String {
    let mut reason = e.to_string();
    let mut inner = e.source();
    while let Some(e) = inner {
        reason = format!("{reason}: {e}");
        inner = e.source();
    }
    let from = reason.char_indices().rev().nth(MAX_REASON - 1).map_or(0, |(i, _)| i);
    reason.split_off(from)
}

/// Most tries for one program.
pub const TRIES: usize = 20;

/// Load a program, again where a signal came in between.
///
/// # Errors
/// The kernel's refusal, or signals came without end.
pub fn patiently(mut load: impl FnMut() -> Result<(), ProgramError>) -> Result<(), ProgramError> {
    for _ in 1..TRIES {
        match load() {
            Err(e) if is_interrupted(&e) => {}
            other => return other,
        }
    }
    load()
}

fn is_interrupted(e: &ProgramError) -> bool {
    matches!(e, ProgramError::LoadError { io_error, .. } if is_signal(io_error))
}

/// The kernel gave up for a signal.
pub fn is_signal(e: &std::io::Error) -> bool {
    matches!(e.raw_os_error(), Some(libc::EAGAIN | libc::EINTR))
}

#[cfg(test)]
mod tests {
    use super::*;
    use aya_obj::VerifierLog;

    fn refused(errno: i32) -> ProgramError {
        ProgramError::LoadError {
            io_error: std::io::Error::from_raw_os_error(errno),
            verifier_log: VerifierLog::new(String::new()),
        }
    }

    #[test]
    fn a_signal_does_not_end_it() {
        let mut times = 0;
        let mut after = |n: usize, errno: i32| {
            times = 0;
            let result = patiently(|| {
                times += 1;
                if times <= n { Err(refused(errno)) } else { Ok(()) }
            });
            (times, result.is_ok())
        };
        assert_eq!(after(0, libc::EAGAIN), (1, true));
        assert_eq!(after(3, libc::EAGAIN), (4, true));
        assert_eq!(after(1000, libc::EAGAIN), (TRIES, false));
        assert_eq!(after(3, libc::EACCES), (1, false), "a refusal is one");
    }
}
