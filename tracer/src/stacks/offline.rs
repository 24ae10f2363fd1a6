//! Names for the frames of a loaded session, from local files with the build-ids that it recorded.

use super::debugfile::{self, Debuginfod};
use super::elf::Elf;
use super::module::open_plain;
use super::symbol::{SymbolFile, Worker};
use pg_event::{Catalog, ModuleKind};
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

/// Fill in functions, files and lines of frames that have none, from files on this machine whose build-id
/// is that of the frame's module: the path it was recorded with, below `dirs` (by `.build-id/`, by the
/// recorded path, by its last component), `/usr/lib/debug`, debuginfod's cache and, when the user set
/// `DEBUGINFOD_URLS`, its servers. Modules without a build-id are left alone: a file of the same name
/// need not be the same. So are kernel addresses, which change with every boot.
///
/// Returns how many frames got a name.
pub fn symbolize_catalog(catalog: &mut Catalog, dirs: &[PathBuf]) -> usize {
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
        if !matches!(m.kind, ModuleKind::Elf | ModuleKind::Vdso) || !debugfile::usable(&m.build_id) {
            continue;
        }
        let Some((elf, files)) = find(&m.path, &m.build_id, dirs, &debuginfod) else { continue };
        let addresses: Vec<u64> = frames.iter().map(|f| f.1).collect();
        let symbols = worker.look_up_all(&files, &elf, &addresses);
        for ((i, _), symbol) in frames.into_iter().zip(symbols) {
            let (Some(symbol), Some(frame)) = (symbol, catalog.frames.get_mut(i)) else { continue };
            let (module, address) = (frame.module, frame.address);
            *frame = symbol.into_frame();
            (frame.module, frame.address) = (module, address);
            named += 1;
        }
        kept.push(files);
    }
    named
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
