//! What the kernel's refusal means to a person.

use super::super::permission::not_permitted;
use crate::error::Error;
use crate::loading::reason;
use aya::programs::ProgramError;
use std::io;

/// The error for what it did not take: missing rights, or its verifier's verdict.
pub(super) fn refused(what: &str, e: &(dyn std::error::Error + 'static)) -> Error {
    if let Some(last) = verdict_of_verifier(e) {
        // EACCES here is the verifier's, not one of missing rights.
        return Error::Refused { what: what.into(), reason: last };
    }
    let mut inner: Option<&(dyn std::error::Error + 'static)> = Some(e);
    while let Some(e) = inner {
        if let Some(io) = e.downcast_ref::<io::Error>()
            && io.kind() == io::ErrorKind::PermissionDenied
        {
            return not_permitted(&format!("the right to load BPF programs ({what})"));
        }
        inner = e.source();
    }
    Error::Refused { what: what.into(), reason: reason(e) }
}

/// What the verifier said last before its statistics: that is what is wrong. Its whole log can be megabytes
/// and goes to the log file. Without rights it says nothing.
fn verdict_of_verifier(e: &(dyn std::error::Error + 'static)) -> Option<String> {
    let mut inner = Some(e);
    while let Some(e) = inner {
        if let Some(ProgramError::LoadError { io_error, verifier_log }) = e.downcast_ref::<ProgramError>() {
            let log = verifier_log.to_string();
            let told = |l: &&str| {
                !l.is_empty()
                    && !["processed ", "verification time", "stack depth "].iter().any(|s| l.starts_with(s))
            };
            let last = log.lines().map(str::trim).rfind(told)?;
            tracing::debug!("verifier: {log}");
            return Some(format!("its verifier says: {last} ({io_error})"));
        }
        inner = e.source();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load_error(log: &str) -> ProgramError {
        ProgramError::LoadError {
            io_error: io::Error::from_raw_os_error(libc::EACCES),
            verifier_log: aya_obj::VerifierLog::new(log.into()),
        }
    }

    #[test]
    fn the_verifiers_refusal_is_not_taken_for_missing_rights() {
        let log = "0: (b7) r0 = 0\nR1 type=scalar expected=fp, pkt\nverification time 12 usec\n\
            processed 7 insns (limit 1000000) max_states_per_insn 0\nstack depth 8+128\n\n";
        let e = refused("on_switch", &load_error(log));
        let text = e.to_string();
        assert!(
            matches!(e, Error::Refused { .. }) && text.contains("R1 type=scalar expected=fp, pkt"),
            "{text}"
        );
        assert!(!text.contains("processed") && !text.contains("sudo"), "{text}");
        assert!(matches!(refused("on_switch", &load_error("")), Error::NotPermitted { .. }));
    }
}
