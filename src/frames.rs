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

/// The name in a frame, without the types that it was made for (`lock<Ledger>`), and with its place where that alone
/// tells something: `<module> (job.py:4)`.
pub fn name(frame: &str) -> &str {
    let bare = frame.rsplit_once(" (").map_or(frame, |(name, _)| name);
    if !bare.ends_with('>') {
        return bare;
    }
    match bare.split_once('<') {
        Some(("", _)) if pg_graph::words::is_python(frame) => frame,
        Some((name, _))
            if name.ends_with(|c: char| c.is_alphanumeric() || c == '}') && !name.ends_with("operator") =>
        {
            name
        }
        _ => bare,
    }
}

/// A closure whose function is not told with it.
fn is_closure(name: &str) -> bool {
    name.starts_with("{closure")
}

/// Does a function start programs, or belong to the standard library of Rust?
pub fn is_plumbing(frame: &str) -> bool {
    let name = frame.rsplit_once(" (").map_or(frame, |(name, _)| name);
    // `<&std::net::TcpStream as std::io::Read>::read`
    let mut name = name.trim_start_matches(['<', '&', '*']);
    for word in ["mut ", "const ", "dyn "] {
        name = name.strip_prefix(word).unwrap_or(name);
    }
    ["std::", "core::", "alloc::", "__rust_begin_short_backtrace"].iter().any(|n| name.starts_with(n))
}

/// The frames that tell what a program does, leaf first: its own, without the standard library's where there are others.
pub fn telling<'a>(frames: &[&'a str]) -> Vec<&'a str> {
    let own = pg_graph::words::own_frames(frames);
    let telling: Vec<&str> = own.iter().filter(|f| !is_plumbing(f)).copied().collect();
    if telling.is_empty() { own } else { telling }
}

/// The innermost function of the program on a stack, if it has a name: of Python with its file and line.
pub fn own_function(frames: &[String]) -> Option<&str> {
    let all: Vec<&str> = frames.iter().map(String::as_str).collect();
    let own = pg_graph::words::own_frames(&all);
    let first = own.iter().find(|f| !is_plumbing(f)).filter(|f| !f.starts_with("0x"))?;
    Some(if pg_graph::words::is_python(first) { first } else { name(first) })
}

/// Names of the innermost functions of the program; of its libraries or the kernel if there are none.
pub fn innermost(frames: &[String], most: usize) -> Vec<&str> {
    let all: Vec<&str> = frames.iter().map(String::as_str).collect();
    let own = pg_graph::words::own_frames(&all);
    let from = own.first().and_then(|first| all.iter().position(|f| f == first));
    let skip = from.or_else(|| frames.iter().position(|f| !in_kernel(f)));
    let python = own.first().is_some_and(|f| pg_graph::words::is_python(f));
    let shown = if python { &own } else { all.get(skip.unwrap_or(0)..).unwrap_or_default() };
    let telling: Vec<&str> = shown.iter().filter(|f| !is_plumbing(f)).copied().collect();
    let shown = if telling.is_empty() { shown } else { &telling };
    shown.iter().map(|f| name(f)).take(most).collect()
}

/// Functions in one line, leaf first: `lock ← Ledger::add ← main`. Addresses and closures tell nothing beside names, nor
/// does a function that calls itself by being there again; where there are no names at all it is said whose are missing,
/// since debug files may have them.
pub fn in_line(frames: &[&str], from: &str, most: usize) -> String {
    let join = |names: Vec<&str>| names.join(&format!(" {from} "));
    let mut named: Vec<&str> = frames.iter().map(|f| name(f)).filter(|n| !n.starts_with("0x")).collect();
    if named.iter().any(|n| !is_closure(n)) {
        named.retain(|n| !is_closure(n));
    }
    named.dedup();
    named.truncate(most);
    if !named.is_empty() {
        return join(named);
    }
    let addresses = join(frames.iter().map(|f| name(f)).take(most.min(3)).collect());
    let module = frames.first().and_then(|f| f.rsplit_once(" (")).map(|(_, m)| m.trim_end_matches(')'));
    match module.filter(|m| !m.starts_with('[')) {
        Some(m) => format!("{m} (its functions have no names): {addresses}"),
        None => addresses,
    }
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
    fn where_nothing_has_a_name_it_is_said_whose_are_missing() {
        let frames = ["0x4d785 (tar)", "0x4357d (tar)", "0xc78c (tar)", "0xe9f1 (tar)"];
        assert_eq!(in_line(&frames, "<", 6), "tar (its functions have no names): 0x4d785 < 0x4357d < 0xc78c");
        assert_eq!(in_line(&["0x5e3f1 (bash)", "wait_for (bash)", "main (bash)"], "<", 1), "wait_for");
        assert_eq!(in_line(&["0x7f00 ([unknown])"], "<", 6), "0x7f00");
        assert_eq!(in_line(&[], "<", 6), "");
        let read = [
            "fill (x)",
            "fill (x)",
            "{closure#0}<std::io::BufReader<T>> (x)",
            "pay::{closure#1} (x)",
            "main (x)",
        ];
        assert_eq!(in_line(&read, "<", 3), "fill < pay::{closure#1} < main");
        assert_eq!(in_line(&read[2..3], "<", 3), "{closure#0}");
    }

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
        let rust = [
            "__libc_recv (libc.so.6)",
            "<&std::os::unix::net::UnixStream as std::io::Read>::read (shop)",
            "read_exact (shop)",
            "std::io::default_read_exact (shop)",
            "shop::main (shop)",
        ];
        assert_eq!(innermost(&rust.map(str::to_owned), 3), ["read_exact", "shop::main"]);
        assert_eq!(telling(&rust), [rust[2], rust[4]]);
        assert_eq!(telling(&rust[1..2]), [rust[1]]);
        // What has no name of its own is told by its place.
        let script = ["io_read (python3.11)", "<module> (job.py:4)"].map(str::to_owned);
        assert_eq!(innermost(&script, 3), ["<module> (job.py:4)"]);
        assert_eq!(name("<T as Into<U>>::into (shop)"), "<T as Into<U>>::into");
        assert_eq!(name("lock<std::sync::Mutex<shop::Ledger>> (shop)"), "lock");
        assert_eq!(name("operator<=> (shop)"), "operator<=>");
        assert_eq!(
            name("std::vector<int>::push_back(int const&) (shop)"),
            "std::vector<int>::push_back(int const&)"
        );
        let lines = condensed(&frames);
        assert_eq!(lines[..3], ["k0 ([kernel])", "k1 ([kernel])", "… 5 more of the kernel"]);
        assert_eq!(lines[3..], user);
        assert_eq!(condensed(&frames[..7]).len(), 7);
        let deep: Vec<String> = (0..30).map(|i| format!("f{i} (x)")).collect();
        assert_eq!(condensed(&deep).last().map(String::as_str), Some("… 20 more"));
    }
}
