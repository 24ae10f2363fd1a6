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

/// How many frames of the mixed stack lie inside of the loop's that native frame `frame` runs: of the function that `own`
/// knows, if that is among those of its call, else of all of these.
pub(super) fn inside<F: Copy>(
    native: &[F],
    is_loop: impl Fn(&F) -> bool,
    calls: &[Vec<F>],
    frame: usize,
    own: impl Fn(&F) -> bool,
) -> usize {
    let inner = native.get(..frame).unwrap_or(native);
    let called = inner.iter().filter(|f| is_loop(f)).count();
    let run = native.get(frame).filter(|f| is_loop(f)).and_then(|_| calls.get(called));
    let within = run.and_then(|functions| functions.iter().position(own)).unwrap_or(0);
    mix(inner, is_loop, calls.get(..called).unwrap_or(calls)).len() + within
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
    fn frames_inside_of_the_loops_are_counted() {
        let native: Vec<char> = "abEcdEm".chars().collect();
        let calls = ["12".chars().collect(), "345".chars().collect()];
        let of = |frame, own| inside(&native, |&c| c == 'E', &calls, frame, |&c| c == own);
        // ab12cd345m: the second call runs the loop, which is function 4.
        assert_eq!([of(5, '4'), of(5, '3'), of(5, '9'), of(2, '2'), of(3, '4')], [7, 6, 6, 3, 4]);
        assert_eq!((of(0, '4'), of(9, '4')), (0, 10));
        assert_eq!(
            inside(&native, |&c| c == 'E', &calls[..1], 5, |&c| c == '4'),
            6,
            "no functions are known of it"
        );
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
