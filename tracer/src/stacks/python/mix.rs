//! Python frames put where the native stack has the interpreter's loop.

/// The frames of a stack, innermost first, in which each call of the interpreter's loop is replaced by the Python
/// functions it executes. `calls` are those of the Python stack, innermost first. Calls without functions stay
/// native. What the native stack does not reach comes at its end.
pub(super) fn mix<F: Copy>(native: &[F], is_loop: impl Fn(&F) -> bool, calls: &[Vec<F>]) -> Vec<F> {
    let mut calls = calls.iter();
    let mut out = Vec::new();
    for f in native {
        match if is_loop(f) { calls.next() } else { None } {
            Some(functions) if !functions.is_empty() => out.extend(functions),
            _ => out.push(*f),
        }
    }
    out.extend(calls.flatten());
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Native frames by small letters, 'E' is the loop; Python functions by numbers.
    fn mixed(native: &str, calls: &[&str]) -> String {
        let native: Vec<char> = native.chars().collect();
        let calls: Vec<Vec<char>> = calls.iter().map(|c| c.chars().collect()).collect();
        mix(&native, |&c| c == 'E', &calls).into_iter().collect()
    }

    #[test]
    fn functions_stand_where_the_loop_was() {
        assert_eq!(mixed("abEcdEm", &["12", "3"]), "ab12cd3m");
        // A call that is being prepared has no function yet.
        assert_eq!(mixed("aEbEm", &["", "1"]), "aEb1m");
    }

    #[test]
    fn a_native_stack_cut_short_keeps_all_functions() {
        assert_eq!(mixed("abE", &["1", "23", "4"]), "ab1234");
        assert_eq!(mixed("", &["1"]), "1");
    }

    #[test]
    fn loops_without_known_functions_stay() {
        assert_eq!(mixed("aEbEcE", &["1"]), "a1bEcE");
    }
}
