//! Looks for places in binaries.

use super::calls;
use super::error::GivenError;
use super::rule::AtCall;
use super::spec::GivenPoint;
use crate::stacks::{Binary, Named};
use fuzzy_matcher::FuzzyMatcher;
use fuzzy_matcher::skim::SkimMatcherV2;

/// Names that are told at most.
const TOLD: usize = 8;
/// Names that look like what was typed.
const NEAR: usize = 5;
/// Most places of one static probe.
const MAX_PLACES: usize = 256;
/// What compilers add to names of functions that they changed or cut in parts.
const CLONES: [&str; 4] = [".constprop.", ".isra.", ".part.", ".lto_priv."];

/// A place.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Found {
    /// Which of the binaries.
    pub binary: usize,
    /// Address as its file counts.
    pub address: u64,
    /// Bytes from the beginning of the file.
    pub offset: u64,
    /// Where in the file the counter of a static probe is, 0 for none.
    pub semaphore: u64,
    /// It is the first instruction of a function: at the next the stack may have changed, but nothing else.
    pub entry: bool,
    /// It is one of a system call: what has to be so there.
    pub call: Option<AtCall>,
    /// What it is called.
    pub name: String,
}

/// The places of a point where a unit begins, or `ends`. Several where a static probe or a system call has several.
///
/// # Errors
/// [`GivenError`], with what there is instead.
pub fn find(point: &GivenPoint, binaries: &[&Binary], ends: bool) -> Result<Vec<Found>, GivenError> {
    match point {
        GivenPoint::Function { module, name } => {
            let of = among(binaries, module.as_deref())?;
            function(name, binaries, &of).map(|f| vec![f])
        }
        GivenPoint::Address { module, address } => {
            let of = among(binaries, Some(module))?;
            at(*address, binaries, &of).map(|f| vec![f])
        }
        GivenPoint::Usdt { module, provider, name } => {
            let of = among(binaries, module.as_deref())?;
            usdt(provider, name, binaries, &of)
        }
        GivenPoint::Syscall { call, .. } => {
            let all: Vec<Found> =
                binaries.iter().enumerate().flat_map(|(i, b)| calls::places(i, b, *call, ends)).collect();
            let name = || call.name().unwrap_or_default().into_owned();
            if all.is_empty() { Err(GivenError::NoCall(name())) } else { Ok(all) }
        }
    }
}

fn short(b: &Binary) -> &str {
    b.path.rsplit('/').next().unwrap_or_default()
}

/// `libc` is `libc.so.6` and `libc-2.31.so`, too.
fn is_called(b: &Binary, module: &str) -> bool {
    let name = short(b);
    let rest = name.strip_prefix(module);
    b.path == module
        || rest.is_some_and(|r| {
            r.is_empty() || r.starts_with(".so") || (r.starts_with('-') && r.contains(".so"))
        })
}

/// Those with this name, or all, by their numbers.
fn among(binaries: &[&Binary], module: Option<&str>) -> Result<Vec<usize>, GivenError> {
    let Some(module) = module else { return Ok((0..binaries.len()).collect()) };
    let named: Vec<usize> = (0..binaries.len()).filter(|&i| is_called(binaries[i], module)).collect();
    if named.is_empty() {
        return Err(GivenError::NoModule {
            module: module.into(),
            mapped: list(binaries, 0..binaries.len()),
        });
    }
    Ok(named)
}

fn list(binaries: &[&Binary], of: impl IntoIterator<Item = usize>) -> String {
    let names: Vec<&str> = of.into_iter().map(|i| short(binaries[i])).collect();
    let more = names.len().saturating_sub(TOLD);
    let told = names.into_iter().take(TOLD).collect::<Vec<_>>().join(", ");
    if more > 0 { format!("{told} and {more} more") } else { told }
}

/// Where something was looked for.
fn looked(binaries: &[&Binary], of: &[usize]) -> String {
    match of {
        [first, _, ..] => format!("{} and its libraries", short(binaries[*first])),
        _ => list(binaries, of.iter().copied()),
    }
}

/// Without the arguments, and what compilers add.
fn bare(name: &str) -> &str {
    let name = CLONES.iter().fold(name, |n, c| n.split(c).next().unwrap_or(n));
    // `operator()` is a name.
    match name.find('(') {
        Some(at)
            if at > 0 && !name[..at].ends_with("operator") && name.contains("::") | name.ends_with(')') =>
        {
            &name[..at]
        }
        _ => name,
    }
}

fn function(name: &str, binaries: &[&Binary], of: &[usize]) -> Result<Found, GivenError> {
    let mut all: Vec<(usize, Vec<Named>)> = Vec::new();
    for &i in of {
        let functions = binaries[i].functions();
        // The program comes before its libraries.
        if let Some(found) = one_of(name, i, binaries, &functions)? {
            return Ok(found);
        }
        all.push((i, functions));
    }
    if let Some(&i) = of.iter().find(|&&i| binaries[i].mentions(name)) {
        return Err(GivenError::Inlined { name: name.into(), of: short(binaries[i]).into() });
    }
    let near = nearest(name, all.iter().flat_map(|(_, f)| f.iter().filter_map(|f| f.names.first())));
    let mut near = if near.is_empty() { String::new() } else { format!("; there is {}", near.join(", ")) };
    if all.first().is_some_and(|(i, _)| !binaries[*i].has_symbols()) {
        near += ". The program is stripped: only functions that it shares with libraries have names. Install its debug \
                 symbols (Debian: PACKAGE-dbgsym), or say MODULE+0xOFFSET as stacks show it";
    }
    Err(GivenError::NoFunction { name: name.into(), of: looked(binaries, of), near })
}

/// The function of this name in a binary; `None` when there is none.
fn one_of(
    name: &str,
    i: usize,
    binaries: &[&Binary],
    functions: &[Named],
) -> Result<Option<Found>, GivenError> {
    let is = |f: &&Named, exact: bool| {
        f.names.iter().any(|n| if exact { n == name } else { !n.contains(".cold") && bare(n) == name })
    };
    let mut found: Vec<&Named> = functions.iter().filter(|f| is(f, true)).collect();
    if found.is_empty() {
        found = functions.iter().filter(|f| is(f, false)).collect();
    }
    match found.as_slice() {
        [] => Ok(None),
        several if several.iter().any(|f| f.indirect) => Err(GivenError::Indirect { name: name.into() }),
        [one] => Ok(found_at(i, binaries[i], one.address, name)),
        several => {
            let candidate = |f: &&Named| {
                let full =
                    f.names.first().filter(|n| *n != name).map_or(String::new(), |n| format!(" ({n})"));
                format!("{}+{:#x}{full}", short(binaries[i]), f.address)
            };
            let more = several.len().saturating_sub(TOLD);
            let mut candidates: Vec<String> = several.iter().take(TOLD).map(candidate).collect();
            if more > 0 {
                candidates.push(format!("and {more} more"));
            }
            let candidates = candidates.join(", ");
            Err(GivenError::Ambiguous { name: name.into(), candidates })
        }
    }
}

fn found_at(i: usize, binary: &Binary, address: u64, name: &str) -> Option<Found> {
    let offset = binary.offset(address)?;
    Some(Found { binary: i, address, offset, semaphore: 0, entry: true, call: None, name: name.into() })
}

/// Those that look most like a name.
fn nearest<'a>(name: &str, all: impl Iterator<Item = &'a String>) -> Vec<String> {
    let matcher = SkimMatcherV2::default();
    let all: Vec<&String> = all.collect();
    // The whole of it, else its parts: a letter may be wrong.
    let mut end = name.len();
    while end > 0 {
        let Some(query) = name.get(..end).filter(|q| q.len() > 2) else { break };
        // A letter too few, or one too many.
        let score = |n: &str| {
            // A long name has the letters of any short one somewhere.
            if n.len() > 2 * name.len() + 8 {
                return None;
            }
            let more =
                || matcher.fuzzy_match(query, n).filter(|_| n.len() > 2 && 4 * n.len() >= 3 * query.len());
            Some(matcher.fuzzy_match(n, query).or_else(more)? * 2 - n.len() as i64)
        };
        let mut scored: Vec<(i64, &String)> = all.iter().filter_map(|n| Some((score(n)?, *n))).collect();
        if !scored.is_empty() {
            scored.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.cmp(b.1)));
            scored.dedup_by(|a, b| a.1 == b.1);
            return scored.into_iter().take(NEAR).map(|s| s.1.clone()).collect();
        }
        end = end / 4 * 3;
        while !name.is_char_boundary(end) {
            end -= 1;
        }
    }
    Vec::new()
}

fn at(address: u64, binaries: &[&Binary], of: &[usize]) -> Result<Found, GivenError> {
    let mut near = String::new();
    for &i in of {
        // In the middle of an instruction a probe would destroy it.
        let begin = binaries[i].begin_of(address);
        let named = || binaries[i].functions().iter().any(|f| f.address == address && !f.indirect);
        if (begin == Some(address) || named())
            && let Some(found) =
                found_at(i, binaries[i], address, &format!("{}+{address:#x}", short(binaries[i])))
        {
            return Ok(found);
        }
        if let Some(begin) = begin {
            near = format!(": the one around it begins at {begin:#x}");
        }
    }
    Err(GivenError::NoBegin { address, of: list(binaries, of.iter().copied()), near })
}

fn usdt(provider: &str, name: &str, binaries: &[&Binary], of: &[usize]) -> Result<Vec<Found>, GivenError> {
    let (mut found, mut there) = (Vec::new(), Vec::new());
    for &i in of {
        for probe in binaries[i].usdt() {
            if probe.provider != provider || probe.name != name {
                there.push(format!("{}:{}", probe.provider, probe.name));
                continue;
            }
            let Some(offset) = binaries[i].offset(probe.address) else { continue };
            // `sys/sdt.h` leaves an instruction that does nothing; anything else is none of its places.
            if !is_nop(&binaries[i].bytes(offset, 8)) || found.len() >= MAX_PLACES {
                continue;
            }
            let semaphore = match probe.semaphore {
                0 => 0,
                at => binaries[i].offset(at).unwrap_or(0),
            };
            // With a counter that cannot be counted up the probe would never be come by.
            if (semaphore == 0) == (probe.semaphore == 0) {
                let name = format!("{provider}:{name}");
                let address = probe.address;
                found.push(Found { binary: i, address, offset, semaphore, entry: false, call: None, name });
            }
        }
    }
    if !found.is_empty() {
        return Ok(found);
    }
    there.sort();
    there.dedup();
    let typed = format!("{provider}:{name}");
    let near = nearest(&typed, there.iter());
    let near = match (near.is_empty(), there.is_empty()) {
        (false, _) => format!("; there is {}", near.join(", ")),
        (true, false) => format!("; there are {} others, {} among them", there.len(), there[0]),
        (true, true) => ": it was built without such probes".into(),
    };
    Err(GivenError::NoUsdt { name: typed, of: looked(binaries, of), near })
}

fn is_nop(code: &[u8]) -> bool {
    code.first() == Some(&0x90) || code.starts_with(&[0x0f, 0x1f]) || code.starts_with(&[0x66, 0x90])
}

/// The binaries of a process with its program first.
pub fn program_first(pid: u32, mut all: Vec<Binary>) -> Vec<Binary> {
    let exe = std::fs::metadata(format!("/proc/{pid}/exe")).ok();
    let is_program = |b: &Binary| {
        use std::os::unix::fs::MetadataExt;
        exe.as_ref().is_some_and(|m| (m.dev(), m.ino()) == b.id())
    };
    all.sort_by_key(|b| !is_program(b));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_without_what_compilers_and_arguments_add() {
        for (full, name) in [
            ("handle", "handle"),
            ("handle.constprop.0", "handle"),
            ("handle.isra.0.part.1", "handle"),
            ("shop::Till::pay(int, char const*)", "shop::Till::pay"),
            ("pay(int)", "pay"),
            ("std::less<int>::operator()(int) const", "std::less<int>::operator()(int) const"),
        ] {
            assert_eq!(bare(full), name, "{full}");
        }
    }

    #[test]
    fn nearest_names() {
        let all: Vec<String> =
            ["processCommand", "processInput", "call", "rejectCommand"].map(Into::into).into();
        assert_eq!(nearest("procesCommand", all.iter())[0], "processCommand");
        // One letter is wrong.
        assert_eq!(nearest("processCommamd", all.iter())[0], "processCommand");
        assert!(nearest("zz", all.iter()).is_empty());
    }

    #[test]
    fn modules_by_their_names() {
        let own = Binary::of_process(std::process::id());
        let own: Vec<&Binary> = own.iter().collect();
        let libc = among(&own, Some("libc")).unwrap();
        assert_eq!(libc.len(), 1);
        assert_eq!(among(&own, Some("libc.so.6")), Ok(libc));
        let none = among(&own, Some("libnone")).unwrap_err().to_string();
        assert!(none.contains("libnone") && none.contains("libc.so.6"), "{none}");
        let place = find(&"libc:getppid".parse().unwrap(), &own, false).unwrap();
        assert!(place.len() == 1 && place[0].entry);
        let again = format!("libc.so.6+{:#x}", place[0].address).parse().unwrap();
        assert_eq!(find(&again, &own, false).unwrap()[0].offset, place[0].offset);
        let inside = format!("libc.so.6+{:#x}", place[0].address + 1).parse().unwrap();
        assert!(matches!(find(&inside, &own, false), Err(GivenError::NoBegin { .. })));
        let wrong = find(&"libc:getpppid".parse().unwrap(), &own, false).unwrap_err().to_string();
        assert!(wrong.contains("getppid"), "{wrong}");
        assert!(matches!(
            find(&"libc:memcpy".parse().unwrap(), &own, false),
            Err(GivenError::Indirect { .. })
        ));
    }
}
