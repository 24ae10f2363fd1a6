//! The profile of guards that run: a person may change it meanwhile.

use super::note;
use super::watch::Watch;
use crate::cli::args::Guard;
use crate::guard::{Ask, changed};
use crate::units;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

/// How often the file is looked at.
const LOOK: Duration = Duration::from_secs(1);

/// What tells one state of the file from another: its number, size, and time of change in seconds and ns.
type Stamp = (u64, u64, i64, i64);

/// The file, looked at now and then.
pub struct ProfileFile<'a> {
    args: &'a Guard,
    looked: Instant,
    stamp: Option<Stamp>,
}

impl<'a> ProfileFile<'a> {
    /// As it is now. To be called before it is read.
    pub fn new(args: &'a Guard) -> Self {
        Self { args, looked: Instant::now(), stamp: stamp(args) }
    }

    /// Has the guards follow what was changed.
    pub fn follow(&mut self, watch: &mut Watch) {
        if self.looked.elapsed() < LOOK {
            return;
        }
        self.looked = Instant::now();
        let stamp = stamp(self.args);
        // Without a file the guards go on as they are.
        if stamp.is_none() || stamp == self.stamp {
            return;
        }
        self.stamp = stamp;
        let Some(path) = &self.args.profile else { return };
        let profile = match units::read(path) {
            Ok(p) => p,
            Err(e) => return note(&format!("the profile was changed and is not followed: {e}")),
        };
        let file = path.display().to_string();
        let ask =
            Ask { profile: &profile, file: &file, pids: &[], limit: self.args.threshold, probes: false };
        match changed(&ask, watch.loops()) {
            Some(loops) => {
                watch.limit(loops);
                note(&format!("{file} was changed: its limits hold from now on"));
            }
            None => note(&format!(
                "{file} knows other types of units than before: start the guards anew to hold them to these"
            )),
        }
    }
}

fn stamp(args: &Guard) -> Option<Stamp> {
    let of = fs::metadata(args.profile.as_ref()?).ok()?;
    Some((of.ino(), of.size(), of.mtime(), of.mtime_nsec()))
}
