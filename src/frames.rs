//! Calls and stacks as people read them: the innermost frames of the kernel, then the program's own.

/// Frames of the kernel shown where the program's own follow.
const KERNEL: usize = 2;
/// Frames of the program shown.
const USER: usize = 10;

/// Is it a frame (`function (module)`) of the kernel?
pub fn in_kernel(frame: &str) -> bool {
    frame.ends_with(" ([kernel])")
}

/// The frames a person asks for, leaf first; what is left out is counted.
pub fn condensed(frames: &[String]) -> Vec<String> {
    let kernel = frames.iter().take_while(|f| in_kernel(f)).count();
    let (inner, user) = frames.split_at(kernel);
    let shown = if user.is_empty() { USER } else { KERNEL };
    let mut out: Vec<String> = inner.iter().take(shown).cloned().collect();
    if kernel > shown {
        out.push(format!("… {} more of the kernel", kernel - shown));
    }
    out.extend(user.iter().take(USER).cloned());
    if user.len() > USER {
        out.push(format!("… {} more", user.len() - USER));
    }
    out
}

/// Names of the innermost functions of the program; of its libraries or the kernel if there are none.
pub fn innermost(frames: &[String], most: usize) -> Vec<&str> {
    let all: Vec<&str> = frames.iter().map(String::as_str).collect();
    let own = pg_graph::words::own_frames(&all);
    let from = own.first().and_then(|first| all.iter().position(|f| f == first));
    let skip = from.or_else(|| frames.iter().position(|f| !in_kernel(f)));
    let python = own.first().is_some_and(|f| pg_graph::words::is_python(f));
    let shown = if python { &own } else { all.get(skip.unwrap_or(0)..).unwrap_or_default() };
    shown.iter().map(|f| f.rsplit_once(" (").map_or(*f, |(name, _)| name)).take(most).collect()
}

/// A call and what it is about, without saying the kind twice: `futex 0x10`, `read pipe:[7]`.
pub fn call_on(call: Option<&str>, object: Option<&str>) -> String {
    let object = object.map(crate::clean::clean).unwrap_or_default();
    match call {
        Some(call) if object.starts_with(call) => object.into_owned(),
        // The object says it in its own words.
        Some("child") if object.ends_with("child") => object.into_owned(),
        Some(call) => format!("{call} {object}").trim_end().to_owned(),
        None => object.into_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_programs_own_functions_are_shown_before_the_kernels() {
        let kernel = (0..7).map(|i| format!("k{i} ([kernel])"));
        let user = ["pthread_cond_wait (libc.so.6)", "wait_until_ready (shop)", "main (shop)"];
        let frames: Vec<String> = kernel.chain(user.map(str::to_owned)).collect();
        assert_eq!(innermost(&frames, 3), ["wait_until_ready", "main"]);
        assert_eq!(innermost(&frames[..8], 3), ["pthread_cond_wait"]);
        assert_eq!(innermost(&frames[..7], 3), ["k0", "k1", "k2"]);
        assert_eq!(innermost(&[], 3), [""; 0]);
        let python = [
            "time_sleep (python3.11)",
            "Job.run (jobs.py:7)",
            "_PyEval_Vector (python3.11)",
            "main (jobs.py:9)",
        ];
        assert_eq!(innermost(&python.map(str::to_owned), 3), ["Job.run", "main"]);
        let lines = condensed(&frames);
        assert_eq!(lines[..3], ["k0 ([kernel])", "k1 ([kernel])", "… 5 more of the kernel"]);
        assert_eq!(lines[3..], user);
        assert_eq!(condensed(&frames[..7]).len(), 7);
        let deep: Vec<String> = (0..30).map(|i| format!("f{i} (x)")).collect();
        assert_eq!(condensed(&deep).last().map(String::as_str), Some("… 20 more"));
    }
}
