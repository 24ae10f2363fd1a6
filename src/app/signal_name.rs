//! Names of signals (signal(7)).

/// `SIGCHLD`; `signal 34` of one without a name.
pub fn signal_name(signal: u32) -> String {
    const NAMES: [&str; 31] = [
        "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2", "PIPE",
        "ALRM", "TERM", "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG", "XCPU", "XFSZ",
        "VTALRM", "PROF", "WINCH", "IO", "PWR", "SYS",
    ];
    let name = (signal as usize).checked_sub(1).and_then(|n| NAMES.get(n));
    name.map_or_else(|| format!("signal {signal}"), |n| format!("SIG{n}"))
}

#[cfg(test)]
mod tests {
    use super::signal_name;

    #[test]
    fn signals_have_their_names() {
        for (number, name) in [
            (1, "SIGHUP"),
            (9, "SIGKILL"),
            (17, "SIGCHLD"),
            (31, "SIGSYS"),
            (34, "signal 34"),
            (0, "signal 0"),
        ] {
            assert_eq!(signal_name(number), name);
        }
        assert_eq!(signal_name(libc::SIGWINCH as u32), "SIGWINCH");
    }
}
