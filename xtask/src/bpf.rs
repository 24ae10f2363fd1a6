//! Rebuilds the BPF objects. The same clang gives the same bytes in every directory; CI rebuilds and compares.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// Folder of the objects and their sources.
const FOLDER: &str = "tracer/bpf";
/// The core, and what only some recordings need.
const OBJECTS: [&str; 3] = ["causal", "flags", "guard"];

/// `cargo xtask bpf [--check]`
pub fn run(args: &[String]) -> Result<(), String> {
    let check = match args {
        [] => false,
        [a] if a == "--check" => true,
        _ => return Err("usage: cargo xtask bpf [--check]".into()),
    };
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().ok_or("no project folder")?;
    let target = root.join("target");
    fs::create_dir_all(&target).map_err(|e| format!("{}: {e}", target.display()))?;
    OBJECTS.iter().try_for_each(|name| one(root, &target, name, check))
}

/// Rebuild one object, or compare it with the committed one.
fn one(root: &Path, target: &Path, name: &str, check: bool) -> Result<(), String> {
    let (source, object) = (format!("{FOLDER}/{name}.bpf.c"), format!("{FOLDER}/{name}.bpf.o"));
    let built = target.join(format!("{name}.bpf.o"));
    build(root, &source, &built)?;
    let read = |p: &Path| fs::read(p).map_err(|e| format!("{}: {e}", p.display()));
    let new = read(&built)?;
    let committed = root.join(&object);
    if check {
        if read(&committed)? != new {
            return Err(format!(
                "{object} is not what {source} gives: run `cargo xtask bpf` with clang 14 and commit it"
            ));
        }
        println!("{object} is up to date ({} bytes)", new.len());
        return Ok(());
    }
    fs::write(&committed, &new).map_err(|e| format!("{}: {e}", committed.display()))?;
    println!("{object}: {} bytes", new.len());
    Ok(())
}

/// The tool named by an environment variable, else the versioned one, else the plain one.
fn tool(variable: &str, name: &str) -> OsString {
    if let Some(given) = env::var_os(variable) {
        return given;
    }
    let versioned = format!("{name}-14");
    let found = env::var_os("PATH")
        .is_some_and(|p| env::split_paths(&p).any(|d: PathBuf| d.join(&versioned).is_file()));
    if found { versioned.into() } else { name.into() }
}

fn build(root: &Path, source: &str, out: &Path) -> Result<(), String> {
    let mut clang = Command::new(tool("CLANG", "clang"));
    clang
        .current_dir(root)
        .args(["-O2", "-g", "-target", "bpf", "-mcpu=v3", "-Wall", "-Werror", "-Wno-unused-function"])
        .arg(format!("-ffile-prefix-map={}=.", root.display()))
        .args(["-fdebug-compilation-dir=.", "-c", source, "-o"])
        .arg(out);
    call(&mut clang)?;
    let mut strip = Command::new(tool("LLVM_STRIP", "llvm-strip"));
    strip.arg("-g").arg(out);
    call(&mut strip)
}

fn call(command: &mut Command) -> Result<(), String> {
    let status = command.status().map_err(|e| {
        format!("cannot run {}: {e} (apt install clang llvm libbpf-dev)", command.get_program().display())
    })?;
    if status.success() {
        Ok(())
    } else {
        Err(format!("{} failed: {status}", command.get_program().display()))
    }
}
