//! All test vectors: graphs and kernel traces with known critical paths.

mod support;

use std::path::PathBuf;

/// How many expectations held, and in how many of them our path is the better one.
fn run(folder: &str) -> (usize, usize) {
    let dir = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/vectors").join(folder);
    let (mut n, mut better) = (0, 0);
    for entry in std::fs::read_dir(&dir).expect("the vectors are part of the repository") {
        let path = entry.expect("a readable folder").path();
        if path.extension().is_none_or(|e| e != "toml") {
            continue;
        }
        for o in support::vectors::check(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display())) {
            match o.result {
                Ok(None) => {}
                Ok(Some(note)) => {
                    better += 1;
                    println!("{}: {}: {note}", path.display(), o.what);
                }
                Err(e) => panic!("{}: {} [{}]: {e}", path.display(), o.what, o.status),
            }
            n += 1;
        }
    }
    (n, better)
}

#[test]
fn graphs() {
    assert_eq!(run("graph").0, 9, "vectors are missing");
}

/// The published walk backtracks to the place remembered last and keeps whatever it finds there, even if it
/// explains less than what it had. Ours keeps the way that explains most: in `dead_end` that is asked for;
/// `dead_end_last_way` holds the published walk's result, and ours must differ from it for the better.
#[test]
fn the_best_way_not_the_last_walked() {
    let (outcomes, better) = run("ours");
    assert_eq!((outcomes, better), (2, 1));
}

#[test]
fn kernel_traces() {
    assert_eq!(run("kernel"), (11, 0), "vectors are missing");
}
