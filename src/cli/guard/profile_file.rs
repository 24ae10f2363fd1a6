//! The profile of guards that run: a person may change it meanwhile.
//!
//! Reading a big profile takes a while, and whoever has the guards beside a recorder must not stand still for it: a thread
//! of its own reads.

use super::note;
use super::watch::Watch;
use crate::cli::args::Guard;
use crate::guard::{Ask, Watched, changed};
use crate::units::{self, ProfileError};
use pg_graph::units::{Limit, Profile};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

/// How often the file is looked at.
const LOOK: Duration = Duration::from_secs(1);

/// What tells one state of the file from another: its number, size, and time of change in seconds and ns.
type Stamp = (u64, u64, i64, i64);

/// The loops with what the file says of them now; none when it knows other types.
type Read = Result<Option<Vec<Watched>>, ProfileError>;

/// The file, looked at now and then.
pub struct ProfileFile {
    path: Option<PathBuf>,
    /// How long units may take of which nobody said it.
    limit: Limit,
    /// What the guards began with.
    learnt: Arc<Profile>,
    looked: Instant,
    stamp: Option<Stamp>,
    reading: Option<JoinHandle<Read>>,
}

impl ProfileFile {
    /// As it is now. To be called before it is read.
    pub fn new(args: &Guard) -> Self {
        let path = args.profile.clone();
        let stamp = path.as_deref().and_then(stamp);
        let (limit, looked) = (args.threshold, Instant::now());
        Self { path, limit, learnt: Arc::default(), looked, stamp, reading: None }
    }

    /// What of it is guarded.
    pub fn guards(&mut self, learnt: Profile) {
        self.learnt = Arc::new(learnt);
    }

    /// Has the guards follow what was changed.
    pub fn follow(&mut self, watch: &mut Watch) {
        if self.reading.is_none() && self.looked.elapsed() < LOOK {
            return;
        }
        let file = self.path.as_ref().map_or_else(String::new, |p| p.display().to_string());
        match self.look(&watch.shared()) {
            None => {}
            Some(Ok(Some(loops))) => {
                watch.limit(loops);
                note(&format!("{file} was changed: its limits hold from now on"));
            }
            Some(Ok(None)) => note(&format!(
                "{file} knows other types of units than before: start the guards anew to hold them to these"
            )),
            Some(Err(e)) => note(&format!("the profile was changed and is not followed: {e}")),
        }
    }

    /// What a change gave, once it was read. Never waits.
    fn look(&mut self, loops: &Arc<Vec<Watched>>) -> Option<Read> {
        if let Some(reading) = self.reading.take_if(|r| r.is_finished()) {
            return reading.join().ok();
        }
        if self.reading.is_some() {
            return None;
        }
        self.looked = Instant::now();
        let path = self.path.clone()?;
        let stamp = stamp(&path);
        // Without a file the guards go on as they are.
        if stamp.is_none() || stamp == self.stamp {
            return None;
        }
        self.stamp = stamp;
        let (limit, learnt, loops) = (self.limit, Arc::clone(&self.learnt), Arc::clone(loops));
        let read = move || {
            pg_tracer::lower_priority();
            read(&path, limit, &learnt, &loops)
        };
        // Where no thread can be had the next change is another try.
        self.reading = Builder::new().name("pg-profile".into()).spawn(read).ok();
        None
    }
}

fn read(path: &Path, limit: Limit, learnt: &Profile, loops: &[Watched]) -> Read {
    let profile = units::read(path)?;
    let file = path.display().to_string();
    let ask = Ask { profile: &profile, file: &file, pids: &[], limit, probes: false };
    Ok(changed(&ask, learnt, loops))
}

fn stamp(path: &Path) -> Option<Stamp> {
    let of = fs::metadata(path).ok()?;
    Some((of.ino(), of.size(), of.mtime(), of.mtime_nsec()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use pg_graph::units::{CallPath, Function, FunctionId, LoopKey, PathSet, TypeOptions, Unit};
    use std::collections::BTreeSet;

    fn profile(units: u64) -> Profile {
        let paths = PathSet::new([CallPath::new([FunctionId(0)])]);
        let unit = Unit { duration: 5_000, paths, contexts: BTreeSet::new() };
        let function = Function { module: "app".into(), name: "serve".into() };
        Profile::new([], &[function], (0..units).map(|_| (LoopKey::default(), &unit)))
    }

    #[test]
    fn a_change_is_read_by_a_thread_of_its_own() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("app.pgprof");
        let (key, learnt) = (LoopKey::default(), profile(40));
        let write = |p: &Profile| fs::write(&path, p.encode().unwrap()).unwrap();
        write(&learnt);
        let watched = Watched {
            key: key.clone(),
            module: "app".into(),
            function: "serve".into(),
            types: Vec::new(),
            known: learnt.types(&key, TypeOptions::default()).unwrap().known,
            limits: (vec![7], 7),
            guards: 0,
            given: None,
        };
        let loops = Arc::new(vec![watched]);
        let mut file = ProfileFile {
            path: Some(path.clone()),
            limit: Limit::Auto,
            learnt: Arc::new(learnt.clone()),
            looked: Instant::now(),
            stamp: stamp(&path),
            reading: None,
        };
        assert!(file.look(&loops).is_none() && file.reading.is_none(), "nothing was changed");
        let told = |file: &mut ProfileFile| {
            // The look that sees the change does not wait for what it says.
            assert!(file.look(&loops).is_none() && file.reading.is_some());
            loop {
                match file.look(&loops) {
                    Some(told) => return told,
                    None => std::thread::yield_now(),
                }
            }
        };
        let mut said = learnt.clone();
        said.limit_type(
            &key,
            &PathSet::new([CallPath::new([FunctionId(0)])]).into(),
            1,
            Limit::Fixed(900_000),
        );
        write(&said);
        let limits = told(&mut file).unwrap().unwrap().remove(0).limits;
        assert_eq!(limits, (vec![900_000], 900_000));
        write(&said.merge(&profile(3)));
        assert!(told(&mut file).unwrap().is_none(), "it knows other units");
        fs::write(&path, "no profile").unwrap();
        assert!(told(&mut file).is_err());
        assert!(file.look(&loops).is_none() && file.reading.is_none(), "a change is told once");
        fs::remove_file(&path).unwrap();
        assert!(file.look(&loops).is_none() && file.reading.is_none(), "without it all goes on");
    }
}
