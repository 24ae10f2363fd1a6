//! Where symbols come from: separate debug files, files elsewhere, containers.
#![allow(unsafe_code)] // ptrace and signals to own children

mod stacks;

use pg_event::{Catalog, StackId};
use pg_tracer::stacks::{StackTable, symbolize_catalog};
use stacks::*;
use std::path::{Path, PathBuf};
use std::process::Command;

const SHOP: &str = r#"
#include <stdio.h>
#include <unistd.h>
__attribute__((noinline)) int shop_stop(int n) { puts("ready"); fflush(stdout); for (;;) pause(); return n; }
__attribute__((noinline)) int shop_wait(int n) { return n ? shop_wait(n - 1) * 3 + n : shop_stop(n) + 1; }
int main(void) { return shop_wait(5) + 1; }
"#;

/// Run a tool in a directory.
fn tool(dir: &Path, command: &[&str]) {
    let status = Command::new(command[0]).args(&command[1..]).current_dir(dir).status().unwrap();
    assert!(status.success(), "{command:?}");
}

fn build_id(exe: &Path) -> String {
    let out = Command::new("readelf").arg("-n").arg(exe).output().unwrap();
    let out = String::from_utf8_lossy(&out.stdout).into_owned();
    out.lines().find_map(|l| l.trim().strip_prefix("Build ID: ")).unwrap().to_owned()
}

/// A program whose symbols were taken out into `shop.debug`, as distributions do; with a build-id.
fn split() -> Option<(PathBuf, tempfile::TempDir, String)> {
    if !has("objcopy") || !has("readelf") {
        println!("skipped: binutils are not installed");
        return None;
    }
    let dir = tempfile::tempdir().unwrap();
    let flags = ["-O1", "-g", "-Wl,--build-id", "-fomit-frame-pointer"];
    let exe = build(dir.path(), "shop.c", SHOP, &flags)?;
    tool(dir.path(), &["objcopy", "--only-keep-debug", "shop", "shop.debug"]);
    tool(dir.path(), &["objcopy", "--strip-all", "--add-gnu-debuglink=shop.debug", "shop"]);
    let id = build_id(&exe);
    Some((exe, dir, id))
}

fn named(catalog: &Catalog, id: StackId) -> bool {
    let names = catalog.show_stack(id);
    names.iter().filter(|n| n.starts_with("shop_wait (")).count() == 6
        && names.iter().any(|n| n.starts_with("shop_stop ("))
}

/// Symbols in a separate file that the binary's debug link names, and not one with another checksum.
#[test]
fn debug_link() {
    let Some((exe, dir, _)) = split() else { return };
    let t = Target::ready(&mut Command::new(&exe));
    let (catalog, id) = catalog_of(&t, true);
    assert!(named(&catalog, id), "{:#?}", catalog.show_stack(id));
    let f = catalog.frames_of(id).find(|f| f.function == "shop_wait").unwrap();
    assert!(f.file.ends_with("shop.c") && f.line == 5, "{f:?}");
    // In `.debug` beside it.
    std::fs::create_dir(dir.path().join(".debug")).unwrap();
    std::fs::rename(dir.path().join("shop.debug"), dir.path().join(".debug/shop.debug")).unwrap();
    let (catalog, id) = catalog_of(&t, true);
    assert!(named(&catalog, id), "{:#?}", catalog.show_stack(id));
    let mut bytes = std::fs::read(dir.path().join(".debug/shop.debug")).unwrap();
    bytes.push(0);
    std::fs::write(dir.path().join(".debug/shop.debug"), bytes).unwrap();
    let (catalog, id) = catalog_of(&t, true);
    assert!(!named(&catalog, id), "{:#?}", catalog.show_stack(id));
}

/// A program that a script or a test made, and removed before its functions were named.
#[test]
fn removed_before_it_is_named() {
    let dir = tempfile::tempdir_in("/tmp").unwrap();
    let Some(exe) = build(dir.path(), "shop.c", SHOP, &["-O1", "-fomit-frame-pointer"]) else { return };
    let t = Target::ready(&mut Command::new(&exe));
    let mut table = StackTable::new();
    wait_asleep(t.pid());
    let (regs, copy) = capture(t.pid(), 1 << 16);
    let id = table.user(t.pid(), &regs, &copy);
    drop(t);
    dir.close().unwrap();
    let mut catalog = Catalog::default();
    catalog.apply(table.symbolize());
    assert!(named(&catalog, id), "{:#?}", catalog.show_stack(id));
}

/// A session recorded without names gets them from files with the same build-id elsewhere.
#[test]
fn symbolized_later() {
    let Some((exe, dir, build_id)) = split() else { return };
    let t = Target::ready(&mut Command::new(&exe));
    let (recorded, id) = catalog_of(&t, false);
    assert!(recorded.modules.iter().any(|m| m.build_id == build_id));
    drop(t);
    let elsewhere = tempfile::tempdir().unwrap();
    let by_id = elsewhere.path().join(".build-id").join(&build_id[..2]);
    std::fs::create_dir_all(&by_id).unwrap();
    let debug = by_id.join(format!("{}.debug", &build_id[2..]));
    std::fs::rename(dir.path().join("shop.debug"), &debug).unwrap();
    std::fs::remove_file(&exe).unwrap();
    let mut without = recorded.clone();
    symbolize_catalog(&mut without, &[], true);
    assert!(!named(&without, id), "nothing had these names");
    let mut with = recorded.clone();
    let count = symbolize_catalog(&mut with, &[elsewhere.path().to_owned()], true);
    assert!(named(&with, id) && count >= 4, "{count} {:#?}", with.show_stack(id));
    // The frames are the same ones.
    let of = |c: &Catalog| c.frames.iter().map(|f| (f.module, f.address)).collect::<Vec<_>>();
    assert_eq!(of(&with), of(&recorded));
    // The same name with another build-id is another file.
    std::fs::remove_dir_all(&by_id).unwrap();
    std::fs::copy("/bin/true", elsewhere.path().join("shop")).unwrap();
    let mut with = recorded;
    symbolize_catalog(&mut with, &[elsewhere.path().to_owned()], true);
    assert!(!named(&with, id));
}

/// A binary that only its container has.
#[test]
fn container() {
    if !root() || !has("unshare") {
        println!("skipped: a mount namespace needs root and unshare(1)");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    if build(dir.path(), "shop.c", SHOP, &["-O1", "-static", "-fomit-frame-pointer"]).is_none() {
        return;
    }
    let name = "inside_the_container";
    let script =
        format!("mount -t tmpfs none /mnt && cp shop /mnt/{name} && cd /mnt && exec chroot /mnt /{name}");
    let mut command = Command::new("unshare");
    let t = Target::ready(command.args(["-m", "sh", "-c", &script]).current_dir(dir.path()));
    assert!(!Path::new("/mnt").join(name).exists());
    let (catalog, id) = catalog_of(&t, true);
    assert!(named(&catalog, id), "{:#?}", catalog.show_stack(id));
    assert!(catalog.show_stack(id)[1].ends_with(&format!("({name})")), "{:#?}", catalog.show_stack(id));
}

/// However many processes run a binary, it is read once.
#[test]
fn one_module_for_many_processes() {
    let mut table = StackTable::new();
    let mut modules = Vec::new();
    for _ in 0..20 {
        let t = Target::start(Command::new("sleep").arg("100"));
        wait_until(|| std::fs::read_to_string(format!("/proc/{}/comm", t.pid())).unwrap() == "sleep\n");
        wait_asleep(t.pid());
        let (regs, copy) = capture(t.pid(), 64 << 10);
        table.user(t.pid(), &regs, &copy);
        modules.extend(table.drain().modules);
        table.exit(t.pid(), true, false);
    }
    let c = table.coverage();
    assert_eq!((c.stacks_total, c.stacks_complete, modules.len()), (1, 1, 2), "{c:?} {modules:?}");
}

/// A stripped binary with its symbols in `.gnu_debugdata`, as Fedora builds them (GDB manual, MiniDebugInfo).
#[test]
fn mini_debug_info() {
    if !has("xz") {
        println!("skipped: xz is not installed");
        return;
    }
    let Some((exe, dir, _)) = split() else { return };
    let t = Target::ready(&mut Command::new(&exe));
    std::fs::rename(dir.path().join("shop.debug"), dir.path().join("full")).unwrap();
    let (catalog, id) = catalog_of(&t, true);
    assert!(!named(&catalog, id), "without it there are no names: {:#?}", catalog.show_stack(id));
    drop(t);
    let keep = ["--keep-symbol=shop_wait", "--keep-symbol=shop_stop"];
    let strip = ["objcopy", "-S", "--remove-section=.comment", keep[0], keep[1], "full", "mini"];
    tool(dir.path(), &strip);
    tool(dir.path(), &["xz", "mini"]);
    tool(
        dir.path(),
        &["objcopy", "--remove-section=.gnu_debuglink", "--add-section=.gnu_debugdata=mini.xz", "shop"],
    );
    let t = Target::ready(&mut Command::new(&exe));
    let (catalog, id) = catalog_of(&t, true);
    assert!(named(&catalog, id), "{:#?}", catalog.show_stack(id));
}
