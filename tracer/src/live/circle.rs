//! Circles: threads that wait for one another, so that none of them goes on by itself.
//!
//! Only what is certain is called a circle. A thread counts as stuck when everybody who could end its wait is
//! stuck too; who has a holder that may still act is taken out, again and again, until nothing changes. A
//! client and a server that are both silent are no circle: nobody has asked anything.
//!
//! One thing is only likely, and said to be so: FIFOs that are opened crosswise. open(2) waits for somebody who opens
//! the other end, and who that is to be is written nowhere; those near who wait in the same way cannot.

use super::{Doing, LONG, Row};
use pg_event::Relation;
use std::collections::{HashMap, HashSet};

/// Is what this thread waits for a deed that its holders owe it?
fn owed(r: &Row) -> bool {
    let sends = ["write", "writev", "sendto", "sendmsg", "sendmmsg", "connect"].contains(&r.call.as_str());
    !r.holders.is_empty()
        && r.members.len() <= 1
        && r.holders.iter().all(|h| match h.relation {
            // Whoever waits to hear something may wait for ever, and rightly.
            Relation::Peer | Relation::Listens => sends,
            // A handler of a signal may write to its own process.
            Relation::Reads | Relation::Writes => h.pid != r.pid,
            _ => true,
        })
}

/// Does the holder's own thread hold, and not the process as a whole?
fn by_thread(r: &Row, relation: Relation) -> bool {
    relation == Relation::Traces || (relation == Relation::Owns && r.call == "futex")
}

/// More than so many that open FIFOs are no circle but what these programs do.
const FIFOS: usize = 4;

/// One the parent of the other, or of one parent that is more than the first process of the system.
fn kin(a: &Row, b: &Row) -> bool {
    a.parent == b.pid || b.parent == a.pid || (a.parent == b.parent && a.parent > 1)
}

fn folder(r: &Row) -> Option<&str> {
    r.object.rsplit_once('/').map(|x| x.0)
}

/// Whom a thread that opens a FIFO may wait for: those near it that open another one, but not those of its own process: a
/// pool opens whatever it is given. In the order of their numbers,
/// from its own on, so that a walk from each to its first comes round.
fn openers(r: &Row, rows: &[Row]) -> Vec<u32> {
    let opens = |x: &&Row| x.opens && x.since >= LONG && x.pid != r.pid && x.object != r.object;
    let near = |x: &&Row| kin(r, x) || (folder(r).is_some() && folder(r) == folder(x));
    let mut out: Vec<u32> = rows.iter().filter(opens).filter(near).map(|x| x.tid).collect();
    out.sort_unstable_by_key(|t| (*t < r.tid, *t));
    if out.len() > FIFOS { Vec::new() } else { out }
}

/// Tells each thread which circle it waits for.
pub fn find(rows: &mut [Row]) {
    let mut threads: HashMap<u32, Vec<u32>> = HashMap::new();
    for r in rows.iter() {
        threads.entry(r.pid).or_default().push(r.tid);
    }
    let waits = |r: &&Row| matches!(r.doing, Doing::Waits | Doing::Stopped) && r.since >= LONG && owed(r);
    // Whom each waits for: all threads of a process, when the process holds.
    let mut waits_for: HashMap<u32, Vec<u32>> = rows
        .iter()
        .filter(waits)
        .map(|r| {
            let of = |h: &super::Holder| match threads.get(&h.pid) {
                Some(all) if !by_thread(r, h.relation) => all.clone(),
                _ => vec![h.tid],
            };
            (r.tid, r.holders.iter().flat_map(of).collect())
        })
        .collect();
    let fifos: HashMap<u32, Vec<u32>> = rows
        .iter()
        .filter(|r| r.opens && r.doing == Doing::Waits && r.since >= LONG)
        .map(|r| (r.tid, openers(r, rows)))
        .filter(|(_, by)| !by.is_empty())
        .collect();
    waits_for.extend(fifos.iter().map(|(t, by)| (*t, by.clone())));
    let mut stuck: HashSet<u32> = waits_for.keys().copied().collect();
    loop {
        let before = stuck.len();
        let all = stuck.clone();
        stuck.retain(|t| waits_for[t].iter().all(|h| all.contains(h)));
        if stuck.len() == before {
            break;
        }
    }
    for r in rows.iter_mut().filter(|r| stuck.contains(&r.tid)) {
        let mut way = vec![r.tid];
        while let Some(next) = waits_for.get(&way[way.len() - 1]).and_then(|h| h.first()) {
            if let Some(at) = way.iter().position(|t| t == next) {
                r.circle = way.split_off(at);
                r.likely = r.circle.iter().any(|t| fifos.contains_key(t));
                break;
            }
            way.push(*next);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Holder;
    use super::*;
    use proptest::prelude::*;

    /// `tid` of process `pid` waits in `call`; each of `by` could end it.
    fn row(pid: u32, tid: u32, call: &str, by: &[(u32, u32, Relation)]) -> Row {
        let holder = |&(pid, tid, relation): &(u32, u32, Relation)| Holder {
            pid,
            process: String::new(),
            tid,
            relation,
        };
        Row {
            pid,
            tid,
            process: String::new(),
            thread: String::new(),
            cmdline: String::new(),
            doing: Doing::Waits,
            since: LONG,
            longer: false,
            cpu: 0.0,
            call: call.into(),
            object: String::new(),
            members: Vec::new(),
            holders: by.iter().map(holder).collect(),
            parent: 0,
            opens: false,
            circle: Vec::new(),
            likely: false,
        }
    }

    fn opener(tid: u32, parent: u32, fifo: &str) -> Row {
        Row { parent, opens: true, object: fifo.into(), ..row(tid, tid, "openat", &[]) }
    }

    fn circles(mut rows: Vec<Row>) -> Vec<Vec<u32>> {
        find(&mut rows);
        rows.into_iter().map(|r| r.circle).collect()
    }

    use Relation::{ChildOf, Owns, Peer, Writes};

    #[test]
    fn two_threads_with_each_others_mutex() {
        let rows = vec![
            row(1, 1, "futex", &[(1, 2, Owns)]),
            row(1, 2, "futex", &[(1, 1, Owns)]),
            // Waits for the first, and is not part of it.
            row(1, 3, "futex", &[(1, 1, Owns)]),
            row(9, 9, "wait4", &[(1, 1, ChildOf)]),
        ];
        assert_eq!(circles(rows), [vec![1, 2], vec![2, 1], vec![1, 2], vec![1, 2]]);
    }

    #[test]
    fn somebody_else_could_act() {
        // 1 waits for a pipe that 2 and 3 can write; 2 waits for 1, 3 runs.
        let mut rows = vec![
            row(1, 1, "read", &[(2, 2, Writes), (3, 3, Writes)]),
            row(2, 2, "read", &[(1, 1, Writes)]),
            row(3, 3, "", &[]),
        ];
        assert_eq!(circles(rows.clone()), [vec![0; 0], vec![], vec![]]);
        // Another thread of 2 could write too.
        rows[0].holders.truncate(1);
        rows.push(row(2, 4, "futex", &[]));
        assert_eq!(circles(rows.clone()), [vec![0; 0], vec![], vec![], vec![]]);
        rows.pop();
        assert_eq!(circles(rows), [vec![1, 2], vec![2, 1], vec![]]);
    }

    #[test]
    fn silence_on_both_ends_of_a_connection_is_no_circle() {
        let both = |call: &str| vec![row(1, 1, call, &[(2, 2, Peer)]), row(2, 2, call, &[(1, 1, Peer)])];
        assert_eq!(circles(both("recvfrom")), [vec![0; 0], vec![]]);
        assert_eq!(circles(both("sendto")), [vec![1, 2], vec![2, 1]]);
    }

    #[test]
    fn fifos_opened_crosswise_look_like_a_circle() {
        let shell = row(9, 9, "wait4", &[(1, 1, ChildOf), (2, 2, ChildOf)]);
        let two = vec![opener(1, 9, "fifo:/tmp/a"), opener(2, 9, "fifo:/run/b"), shell];
        assert_eq!(circles(two.clone()), [vec![1, 2], vec![2, 1], vec![1, 2]]);
        let mut told = two.clone();
        find(&mut told);
        assert!(told.iter().all(|r| r.likely));
        // Near by the folder, though nothing else ties them together.
        let apart = |b: &str| vec![opener(11, 1, "fifo:/run/x/a"), opener(12, 1, b)];
        assert_eq!(circles(apart("fifo:/run/x/b")), [vec![11, 12], vec![12, 11]]);
        assert_eq!(circles(apart("fifo:/run/y/b")), [vec![0; 0], vec![]], "strangers");
        // Both want the same end of one: a third one is missing.
        assert_eq!(circles(apart("fifo:/run/x/a")), [vec![0; 0], vec![]]);
        // A moment ago is no circle yet.
        let mut fresh = two.clone();
        fresh[1].since = LONG - 1;
        assert_eq!(circles(fresh), [vec![0; 0], vec![], vec![]]);
        let three: Vec<Row> = (1..4).map(|t| opener(t, 9, &format!("fifo:/tmp/{t}"))).collect();
        assert_eq!(circles(three), [vec![1, 2, 3], vec![2, 3, 1], vec![3, 1, 2]]);
        let many: Vec<Row> = (1..9).map(|t| opener(t, 9, &format!("fifo:/tmp/{t}"))).collect();
        assert!(circles(many).iter().all(Vec::is_empty), "that is their way");
    }

    proptest! {
        #[test]
        fn a_circle_is_one(by in prop::collection::vec(prop::collection::vec((0u32..8, any::<bool>()), 0..3), 8)) {
            let rel = |(t, own): &(u32, bool)| (*t, *t, if *own { Owns } else { Writes });
            let mut rows: Vec<Row> = by.iter().enumerate().map(|(i, b)| {
                row(i as u32, i as u32, "read", &b.iter().map(rel).collect::<Vec<_>>())
            }).collect();
            find(&mut rows);
            for r in &rows {
                for (i, t) in r.circle.iter().enumerate() {
                    let next = r.circle[(i + 1) % r.circle.len()];
                    let at = &rows[*t as usize];
                    prop_assert!(at.holders.iter().any(|h| h.tid == next));
                    prop_assert!(!at.circle.is_empty());
                }
            }
        }
    }
}
