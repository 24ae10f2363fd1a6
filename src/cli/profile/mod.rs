//! `pg-tui profile`.

mod json;

use super::args::{Change, Profile as Args};
use super::diagnose::harmless;
use super::exit::{Failure, Outcome};
use crate::app::time::counted;
use crate::clean::{clean, clean_lines};
use crate::units::{self, ProfileError};
use pg_graph::units::{Called, LoopKey, Profile, Rule, TypeOptions};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

/// Run it.
pub fn run(args: &Args, out: &mut dyn Write) -> Outcome {
    match &args.change {
        Change::Show { file, json: false } => {
            let profile = units::read(file).map_err(unreadable)?;
            show(&profile, out)?;
        }
        Change::Show { file, json: true } => {
            let profile = units::read(file).map_err(unreadable)?;
            let text = serde_json::to_string_pretty(&json::profile(&profile));
            let text = text.map_err(|e| Failure::Other(format!("cannot write JSON: {e}")))?;
            writeln!(out, "{}", harmless(&text))?;
        }
        Change::Merge { out: to, from } => merge(to, from, out)?,
        Change::Name { file, of, name } => {
            change(file, of, |p, key, tree, at| p.name_type(key, tree, at, name), out)?;
        }
        Change::Threshold { file, of, limit } => {
            change(file, of, |p, key, tree, at| p.limit_type(key, tree, at, *limit), out)?;
        }
        Change::Silence { file, of, off } => {
            change(file, of, |p, key, tree, at| p.silence_type(key, tree, at, !off), out)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The table of types.
pub fn show(profile: &Profile, out: &mut dyn Write) -> std::io::Result<()> {
    writeln!(out, "{}", clean_lines(&profile.show(TypeOptions::default(), Rule::default())))
}

/// What is to be read cannot be.
pub fn unreadable(e: ProfileError) -> Failure {
    Failure::Input(e.to_string())
}

/// What is to be changed cannot be read, or not be written.
pub fn unchanged(e: ProfileError) -> Failure {
    match e {
        ProfileError::Decode { .. } => Failure::Input(e.to_string()),
        _ => Failure::Other(format!("{e}; nothing was changed")),
    }
}

/// That call paths were cut, and why.
pub fn cut(frames: usize) -> String {
    format!("; call paths were cut to {frames} frames, since there were too many different ones")
}

fn merge(to: &Path, from: &[PathBuf], out: &mut dyn Write) -> Result<(), Failure> {
    let mut all = Profile::default();
    for path in from {
        all = all.merge(&units::read(path).map_err(unreadable)?);
    }
    let place = |p: &Path| fs::canonicalize(p).ok();
    let there = place(to);
    if there.is_some() && !from.iter().any(|p| place(p) == there) {
        return Err(Failure::Usage(format!(
            "{0}: it is there already; to add to it, name it among the profiles to read: \
             pg-tui profile merge {0} {0} ...",
            to.display()
        )));
    }
    let written = units::update(to, |_| all).map_err(unchanged)?;
    writeln!(
        out,
        "{}: {}, {}{}",
        clean(&to.display().to_string()),
        counted(written.profile.units() as usize, "unit"),
        counted(written.profile.loops().count(), "loop"),
        written.cut_to.map(cut).unwrap_or_default()
    )?;
    Ok(())
}

/// Says something of a type, and prints what then holds for it.
fn change(
    file: &Path,
    of: &str,
    say: impl FnOnce(&mut Profile, &LoopKey, &Called, u64),
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let (key, called) = find(&units::read(file).map_err(unreadable)?, of)?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos() as u64);
    // What others added meanwhile is kept: trees never leave a profile.
    let written = units::update(file, |current| {
        let mut current = current.unwrap_or_default();
        // What was said on a machine whose clock is ahead must not outlive what is said now.
        let at = now.max(current.last_said().saturating_add(1));
        say(&mut current, &key, &called, at);
        current
    })
    .map_err(unchanged)?;
    let listed = written.profile.listed(TypeOptions::default(), Rule::default());
    let of_tree = listed.iter().filter(|l| l.key == key).find_map(|l| {
        let tree = l.of.types.trees().iter().position(|t| t.called() == called)?;
        let of = l.of.types.type_of(tree)?.0 as usize;
        Some((l, l.rows.iter().find(|r| r.1.of == of)?))
    });
    if let Some((l, (number, row))) = of_tree {
        let silent = if l.of.known.silent[row.of] { ", silent" } else { "" };
        let threshold = pg_graph::words::span(row.threshold.ns);
        let how = crate::unit_rule::threshold_words(l.of.known.limits[row.of], Some(&row.threshold));
        writeln!(
            out,
            "{number} {}: threshold {threshold} ({how}){silent}",
            clean(&l.of.known.names[row.of])
        )?;
    }
    Ok(())
}

/// The type with this number or name: its loop and its representative call tree.
fn find(profile: &Profile, of: &str) -> Result<(LoopKey, Called), Failure> {
    let listed = profile.listed(TypeOptions::default(), Rule::default());
    let all = || listed.iter().flat_map(|l| l.rows.iter().map(move |r| (l, r)));
    let mut named = all().filter(|(l, (_, row))| l.of.known.names[row.of] == of);
    let found = match (named.next(), named.next(), of.parse::<usize>()) {
        (Some(one), None, _) => Some(one),
        (Some(_), Some(_), _) => {
            return Err(Failure::Usage(format!("several types are called {of:?}: give its number")));
        }
        (None, _, Ok(number)) => all().find(|(_, r)| r.0 == number),
        (None, ..) => None,
    };
    let Some((l, (_, row))) = found else {
        return Err(Failure::Usage(format!(
            "there is no type {of:?}: types have the numbers 1 to {} and the names that `pg-tui profile show` prints",
            all().count()
        )));
    };
    let representative = l.of.types.types()[row.of].representative;
    Ok((l.key.clone(), l.of.types.trees()[representative].called()))
}
