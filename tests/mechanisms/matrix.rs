//! The table in `README.md` is true: every test it names exists, and every test of this folder is in it.

use std::collections::BTreeSet;
use std::path::Path;

/// Names of the functions that are tests in a file or in the files of a folder.
fn tests_of(path: &Path, found: &mut BTreeSet<String>) {
    if path.is_dir() {
        for entry in std::fs::read_dir(path).expect("a folder").flatten() {
            tests_of(&entry.path(), found);
        }
        return;
    }
    if path.extension().is_none_or(|e| e != "rs") {
        return;
    }
    let text = std::fs::read_to_string(path).expect("a source file");
    let mut marked = false;
    for line in text.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix("fn ").filter(|_| marked) {
            found.insert(name.split(['(', '<']).next().unwrap_or_default().to_owned());
        }
        marked = line == "#[test]" || (marked && line.starts_with("#["));
        // Tests of binaries without libtest's harness are listed by name.
        let listed = line.strip_prefix("(\"").filter(|_| path.ends_with("tests/hangs/cases.rs"));
        if let Some((name, _)) = listed.and_then(|l| l.split_once("\", ")) {
            found.insert(name.to_owned());
        }
    }
}

#[test]
fn every_test_that_the_table_names_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (mut all, mut own) = (BTreeSet::new(), BTreeSet::new());
    for dir in ["tests", "tracer/tests", "tracer/src", "graph/tests", "graph/src", "src"] {
        tests_of(&root.join(dir), &mut all);
    }
    tests_of(&root.join("tests/mechanisms"), &mut own);
    let readme = include_str!("README.md");
    let rows: Vec<&str> =
        readme.lines().filter(|l| l.starts_with("| ") && !l.starts_with("| mechanism |")).collect();
    assert!(rows.len() > 50, "{} rows", rows.len());
    let mut named = BTreeSet::new();
    for row in rows {
        let last = row.trim_end_matches('|').rsplit('|').next().expect("a cell");
        let names: Vec<&str> = last.split('`').skip(1).step_by(2).collect();
        assert!(!names.is_empty() || last.trim().starts_with("none: "), "no test and no reason: {row}");
        for name in names {
            let name = name.rsplit("::").next().expect("a name");
            assert!(all.contains(name), "there is no test `{name}`: {row}");
            named.insert(name.to_owned());
        }
    }
    let missing: Vec<_> = own
        .iter()
        .filter(|t| !named.contains(*t) && *t != "every_test_that_the_table_names_exists")
        .collect();
    assert!(missing.is_empty(), "not in the table: {missing:?}");
}
