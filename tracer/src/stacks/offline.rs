//! Names for the frames of a loaded session, from local files with the build-ids that it recorded.

use super::debugfile::{self, Debuginfod};
use super::elf::Elf;
use super::module::open_plain;
use super::symbol::{Symbol, SymbolFile, Worker};
use pg_event::{Catalog, ModuleKind};
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Fill in functions, files and lines of frames that have none, from files on this machine whose build-id
/// is that of the frame's module: the path it was recorded with, below `dirs` (by `.build-id/`, by the
/// recorded path, by its last component), `/usr/lib/debug`, debuginfod's cache and, when the user set
/// `DEBUGINFOD_URLS`, its servers. Modules without a build-id are left alone: a file of the same name
/// need not be the same. So are kernel addresses, which change with every boot, unless the `kernel` is the one that
/// runs, started once: then its own functions are named, by `/proc/kallsyms` where that may be read.
///
/// Returns how many frames got a name.
pub fn symbolize_catalog(catalog: &mut Catalog, dirs: &[PathBuf], kernel: bool) -> usize {
    let mut by_module: HashMap<usize, Vec<(usize, u64)>> = HashMap::new();
    for (i, f) in catalog.frames.iter().enumerate() {
        if f.function.is_empty() && f.module.is_some() {
            by_module.entry(f.module.index()).or_default().push((i, f.address));
        }
    }
    let mut modules: Vec<_> = by_module.into_iter().collect();
    modules.sort_unstable_by_key(|m| m.0);
    let debuginfod = Debuginfod::from_env();
    let mut worker = Worker::new(debuginfod.clone());
    let mut named = 0;
    // Kept to the end: the cache knows them by the numbers of their descriptors.
    let mut kept = Vec::new();
    for (module, frames) in modules {
        let Some(m) = catalog.modules.get(module) else { continue };
        if m.kind == ModuleKind::Kernel && kernel {
            named += name_kernel(catalog, &frames, &mut worker);
            continue;
        }
        if !matches!(m.kind, ModuleKind::Elf | ModuleKind::Vdso) || !debugfile::usable(&m.build_id) {
            continue;
        }
        let Some((elf, files)) = find(&m.path, &m.build_id, dirs, &debuginfod) else { continue };
        let addresses: Vec<u64> = frames.iter().map(|f| f.1).collect();
        let symbols = worker.look_up_all(&files, &elf, &addresses);
        named += give(catalog, &frames, symbols);
        kept.push(files);
    }
    named
}

/// Give frames (by their numbers) their names. Returns how many got one.
fn give(catalog: &mut Catalog, frames: &[(usize, u64)], symbols: Vec<Option<Symbol>>) -> usize {
    let mut named = 0;
    for (&(i, _), symbol) in frames.iter().zip(symbols) {
        let (Some(symbol), Some(frame)) = (symbol, catalog.frames.get_mut(i)) else { continue };
        let (module, address) = (frame.module, frame.address);
        *frame = symbol.into_frame();
        (frame.module, frame.address) = (module, address);
        named += 1;
    }
    named
}

/// Name functions of the kernel that runs. Modules and BPF programs come and go: another one may lie now where one lay
/// that was recorded, so only what belongs to the kernel itself gets a name.
fn name_kernel(catalog: &mut Catalog, frames: &[(usize, u64)], worker: &mut Worker) -> usize {
    let Some(text) = kernel_text(Path::new("/proc/kallsyms")) else { return 0 };
    let own: Vec<(usize, u64)> = frames.iter().copied().filter(|f| text.contains(&f.1)).collect();
    let addresses: Vec<u64> = own.iter().map(|f| f.1).collect();
    let symbols = worker.look_up_kernel(&addresses);
    give(catalog, &own, symbols)
}

/// Where the kernel's own code lies; `None` when that may not be known.
fn kernel_text(kallsyms: &Path) -> Option<Range<u64>> {
    let (mut start, mut end) = (None, None);
    for line in BufReader::new(File::open(kallsyms).ok()?).lines().map_while(Result::ok) {
        let mut words = line.split_ascii_whitespace();
        let (address, name) = (words.next()?, words.nth(1));
        match name {
            Some("_stext") => start = u64::from_str_radix(address, 16).ok(),
            Some("_etext") => end = u64::from_str_radix(address, 16).ok(),
            _ => {}
        }
        if let (Some(start), Some(end)) = (start, end) {
            // Zeros are shown to those who may not know.
            return (start > 0 && start < end).then_some(start..end);
        }
    }
    None
}

/// The files with symbols for a build-id, those with debug information first.
fn find(path: &str, id: &str, dirs: &[PathBuf], debuginfod: &Debuginfod) -> Option<(Elf, Vec<SymbolFile>)> {
    let recorded = Path::new(path);
    let relative = recorded.strip_prefix("/").unwrap_or(recorded);
    // The path comes from a file: it names nothing outside of the directories.
    let inside = relative.components().all(|c| matches!(c, std::path::Component::Normal(_)));
    let (head, tail) = id.split_at_checked(2)?;
    let mut candidates = Vec::new();
    for d in dirs {
        candidates.push(d.join(format!(".build-id/{head}/{tail}.debug")));
        candidates.push(d.join(format!(".build-id/{head}/{tail}")));
        if inside {
            candidates.push(d.join(relative));
            candidates.extend(relative.file_name().map(|n| d.join(n)));
        }
        candidates.push(d.clone());
    }
    if recorded.is_absolute() {
        candidates.push(recorded.to_owned());
    }
    candidates.extend(debugfile::by_build_id(&debugfile::directories(None), id));
    let mut seen = HashSet::new();
    candidates.retain(|p| seen.insert(p.clone()));
    let same = |p: PathBuf| debugfile::matching(&p, id).map(|elf| (p, elf));
    let mut found: Vec<(PathBuf, Elf)> = candidates.into_iter().filter_map(same).collect();
    if !found.iter().any(|f| f.1.has_dwarf) {
        found.extend(debuginfod.find(id).and_then(same));
    }
    found.sort_by_key(|f| (!f.1.has_dwarf, !f.1.has_symtab));
    let mut files = Vec::new();
    for (p, elf) in &found {
        let Some(file) = open_plain(p) else { continue };
        files.extend(SymbolFile::of(&file, Some(p.clone()), elf.has_dwarf));
        files.extend(SymbolFile::mini(elf, &file));
    }
    Some((found.into_iter().next()?.1, files))
}

#[cfg(test)]
mod tests {
    use super::*;
    use pg_event::{Frame, Module, ModuleId};

    #[test]
    fn the_kernels_own_code_is_told_from_that_of_modules() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("kallsyms");
        let write = |text: &str| std::fs::write(&path, text).unwrap();
        write(
            "ffffffff81000000 T _stext\nffffffff81000010 t x\nffffffff82000000 T _etext\nffffffffc0000000 t y\t[m]\n",
        );
        assert_eq!(kernel_text(&path), Some(0xffff_ffff_8100_0000..0xffff_ffff_8200_0000));
        write("0000000000000000 T _stext\n0000000000000000 T _etext\n");
        assert_eq!(kernel_text(&path), None);
        write("nonsense\n\nffffffff81000000 T _stext\n");
        assert_eq!(kernel_text(&path), None);
        assert_eq!(kernel_text(&dir.path().join("none")), None);
    }

    #[test]
    fn functions_of_the_kernel_that_runs_are_named() {
        let Some(text) = kernel_text(Path::new("/proc/kallsyms")) else {
            println!("skipped: /proc/kallsyms shows no addresses");
            return;
        };
        let all = std::fs::read_to_string("/proc/kallsyms").unwrap();
        let schedule = all.lines().find(|l| l.ends_with(" T schedule")).unwrap();
        let schedule = u64::from_str_radix(schedule.split(' ').next().unwrap(), 16).unwrap();
        let frame = |address| Frame { module: ModuleId(0), address, ..Frame::default() };
        let recorded = Catalog {
            modules: vec![Module { kind: ModuleKind::Kernel, path: "[kernel]".into(), ..Module::default() }],
            frames: vec![frame(schedule + 4), frame(text.end + (64 << 20))],
            ..Catalog::default()
        };
        let mut other = recorded.clone();
        assert_eq!(symbolize_catalog(&mut other, &[], false), 0, "another start of the machine");
        assert_eq!(other.frames[0].function, "");
        let mut same = recorded;
        assert_eq!(symbolize_catalog(&mut same, &[], true), 1);
        assert_eq!((same.frames[0].function.as_str(), same.frames[0].address), ("schedule", schedule + 4));
        assert_eq!(same.frames[1].function, "", "no function of the kernel's own");
    }
}
