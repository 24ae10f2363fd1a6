//! Who could end a wait for a word of shared memory: a semaphore, a condition or a barrier there names nobody. Whoever has that
//! memory mapped and does not sleep at the same word could.

use super::barrier::{self, Count, FEW};
use super::futex::Around;
use super::mappings::{File, Others, shared};
use super::{Holders, LongWait, Who};
use crate::flags::memory::Area;
use crate::procfs;
use pg_event::{Relation, Sysno};

/// Of more processes than these that have the memory none is looked at closely, since all those of a large server have it; of a
/// barrier, which counts them, of more than so many.
const MAX_SHARERS: usize = 16;
const MAX_PARTIES: usize = 64;
/// Most threads that are looked at.
const MAX_THREADS: usize = 1024;
/// Where more than these could write there, that says nothing of any of them.
const MAX_WRITERS: usize = 3;

/// A word of shared memory, whatever its address is in each process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Word {
    file: File,
    /// Bytes from the beginning of the file.
    at: u64,
}

/// What the threads of a process do at a word.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
struct AtWord {
    /// So many sleep there.
    here: usize,
    /// So many do not.
    elsewhere: usize,
    /// Its first thread waits for a process to end.
    for_child: bool,
}

impl Holders {
    /// Who could end a wait for the word at `address`, which is in shared memory. The waiter itself stands for nobody; others
    /// with [`Relation::Maps`] sleep there, too.
    pub(super) fn sharers(&mut self, wait: &LongWait, address: u64, around: &Around) -> Vec<(Who, Relation)> {
        let own = self.mapped_by(wait.tgid).unwrap_or_default();
        let Some(word) = word_in(&own, address) else { return Vec::new() };
        let barrier = barrier::of_several(around);
        let most = if barrier.is_some() { MAX_PARTIES } else { MAX_SHARERS };
        let others = match self.others_with(wait.tgid, word.file, most) {
            Others::These(pids) if pids.len() <= most => pids,
            Others::These(_) | Others::Unknown => return Vec::new(),
            Others::Nobody => Vec::new(),
        };
        let mut left = MAX_THREADS;
        let mut at: Vec<(u32, AtWord)> = Vec::new();
        for pid in [wait.tgid].into_iter().chain(others) {
            let Some(found) = self.at_word(pid, word, &mut left) else { return Vec::new() };
            at.push((pid, found));
        }
        told(Who::Thread(wait.tid, wait.tgid), &at, barrier)
    }

    /// `None` when there are more threads to look at than `left`.
    fn at_word(&mut self, pid: u32, word: Word, left: &mut usize) -> Option<AtWord> {
        let tids = procfs::threads_of(pid);
        *left = left.checked_sub(tids.len())?;
        let mut found = AtWord::default();
        let mut mapped: Option<Vec<Area>> = None;
        for tid in tids {
            let call =
                self.blocked_call(tid).and_then(|(nr, args)| Some((Sysno(u16::try_from(nr).ok()?), args)));
            let sleeps_at = call.filter(|(nr, _)| nr.is_any(&["futex"])).map(|(_, args)| args[0]);
            let there = sleeps_at.is_some_and(|address| {
                let areas = mapped.get_or_insert_with(|| self.mapped_by(pid).unwrap_or_default());
                word_in(areas, address) == Some(word)
            });
            *(if there { &mut found.here } else { &mut found.elsewhere }) += 1;
            found.for_child |= tid == pid && call.is_some_and(|c| c.0.is_any(&["wait4", "waitid"]));
        }
        Some(found)
    }
}

fn word_in(areas: &[Area], address: u64) -> Option<Word> {
    let area = areas.iter().find(|a| a.has(address) && shared(a))?;
    Some(Word { file: area.file, at: area.offset.saturating_add(address - area.start) })
}

/// What that says; the waiter's process is the first.
fn told(own: Who, at: &[(u32, AtWord)], barrier: Option<Count>) -> Vec<(Who, Relation)> {
    let here: usize = at.iter().map(|a| a.1.here).sum();
    let asleep = |a: &&(u32, AtWord)| a.1.here > 0 && a.1.elsewhere == 0;
    let others = at.iter().skip(1);
    let mut able: Vec<_> = others.clone().filter(|a| !asleep(a)).collect();
    if let Some(count) = barrier.filter(|c| c.here as usize == here) {
        let missing = count.missing as usize;
        // Who made the barrier for its children does not come there.
        if able.len() > missing {
            able.retain(|a| !a.1.for_child);
        }
        if able.len() > missing.max(FEW) {
            return Vec::new();
        }
        // Any thread of a process that has several may be the one.
        let one = |a: &(u32, AtWord)| match a.1.elsewhere {
            1 => (Who::Thread(a.0, a.0), Relation::Missing),
            _ => (Who::Process(a.0), Relation::Writes),
        };
        return able.into_iter().map(one).collect();
    }
    let fellows = others.filter(asleep).take(FEW).map(|a| (Who::Thread(a.0, a.0), Relation::Maps));
    let first: Vec<_> = match able.len() {
        0 => vec![(own, Relation::Maps)],
        1..=MAX_WRITERS => able.into_iter().map(|a| (Who::Process(a.0), Relation::Writes)).collect(),
        _ => return Vec::new(),
    };
    first.into_iter().chain(fellows).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: Who = Who::Thread(10, 10);
    const HERE: AtWord = AtWord { here: 1, elsewhere: 0, for_child: false };
    const AWAY: AtWord = AtWord { here: 0, elsewhere: 1, for_child: false };
    const PARENT: AtWord = AtWord { for_child: true, ..AWAY };
    const MANY: AtWord = AtWord { here: 0, elsewhere: 5, for_child: false };

    #[test]
    fn who_has_not_come_to_a_barrier_of_processes() {
        let count = |here, missing| Some(Count { here, missing, idles: false });
        let one = |pid| (Who::Thread(pid, pid), Relation::Missing);
        assert_eq!(told(OWN, &[(10, HERE), (11, HERE), (12, AWAY)], count(2, 1)), [one(12)]);
        assert_eq!(told(OWN, &[(10, HERE), (9, PARENT), (12, AWAY)], count(1, 1)), [one(12)]);
        // The parent takes part; it waits for another child first.
        assert_eq!(told(OWN, &[(10, HERE), (9, PARENT)], count(1, 1)), [one(9)]);
        let any = (Who::Process(12), Relation::Writes);
        assert_eq!(told(OWN, &[(10, HERE), (12, MANY)], count(1, 1)), [any]);
    }

    #[test]
    fn who_could_post_a_semaphore() {
        let fellow = (Who::Thread(11, 11), Relation::Maps);
        let writes = |pid| (Who::Process(pid), Relation::Writes);
        assert_eq!(told(OWN, &[(10, HERE), (11, AWAY)], None), [writes(11)]);
        assert_eq!(told(OWN, &[(10, HERE), (11, HERE), (12, AWAY)], None), [writes(12), fellow]);
        let many: Vec<_> = (10..20).map(|p| (p, if p == 10 { HERE } else { AWAY })).collect();
        assert_eq!(told(OWN, &many, None), [], "the processes of a server all have it");
        let itself = (OWN, Relation::Maps);
        assert_eq!(told(OWN, &[(10, HERE)], None), [itself]);
        assert_eq!(told(OWN, &[(10, HERE), (11, HERE)], None), [itself, fellow]);
    }
}
