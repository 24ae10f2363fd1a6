//! Property tests of the format: what goes in comes out, and no bytes can do harm.

use super::format::{ChunkKind, FRAME_LEN, Frame, PREFIX_LEN};
use super::*;
use pg_event::{
    Catalog, CatalogDelta, Context, Coverage, Direction, Display, Event, Hold, IpcUse, Item, Kind, ObjectId,
    OffCpu, OffState, ProcessId, Relation, Sample, SeenBy, StackId, SyscallUse, Sysno, Thread, ThreadId,
    UnitTypeId, UnitTypeRow, Unserved, Violation, Work,
};
use pg_graph::{By, Decision, QuestionKey, QuestionKind};
use proptest::prelude::*;
use std::path::PathBuf;

fn few(max: u32) -> impl Strategy<Value = u32> {
    prop_oneof![4 => 0..max, 1 => Just(u32::MAX), 1 => any::<u32>()]
}

fn ns() -> impl Strategy<Value = u64> {
    prop_oneof![4 => 0..10_000_000_000u64, 1 => Just(0), 1 => any::<u64>()]
}

fn sysno() -> impl Strategy<Value = Sysno> {
    prop_oneof![0..450u16, Just(u16::MAX), any::<u16>()].prop_map(Sysno)
}

fn off_cpu() -> impl Strategy<Value = OffCpu> {
    let states = OffState::ALL;
    let who = (few(9), 0..6u8, sysno(), few(9), few(30));
    let wait = (sysno(), any::<u32>(), few(5), ns(), few(9), few(30), few(30));
    (ns(), ns(), any::<bool>(), 0..states.len(), any::<(bool, bool)>(), wait, who).prop_map(
        move |(start, woken, same, s, b, w, k)| {
            let mut o = OffCpu::new(start, if same { start } else { woken }, states[s]);
            (o.open, o.begun_before) = b;
            (o.syscall, o.op, o.value, o.timeout) = (w.0, w.1, w.2, w.3);
            (o.object, o.user_stack, o.kernel_stack) = (ObjectId(w.4), StackId(w.5), StackId(w.6));
            (o.waker, o.waker_context, o.waker_syscall) = (ThreadId(k.0), Context::from_u8(k.1), k.2);
            (o.waker_object, o.waker_stack) = (ObjectId(k.3), StackId(k.4));
            o
        },
    )
}

fn kind() -> impl Strategy<Value = Kind> {
    let id = || few(20);
    prop_oneof![
        6 => off_cpu().prop_map(Kind::OffCpu),
        3 => (id(), any::<bool>(), any::<u32>(), ns(), ns(), any::<u64>()).prop_map(|(o, r, count, bytes, first, position)| {
            let direction = if r { Direction::Receive } else { Direction::Send };
            Kind::Ipc(IpcUse { object: ObjectId(o), direction, count, bytes, first, position })
        }),
        2 => (ns(), sysno(), any::<i64>(), any::<u32>(), any::<u32>(), id()).prop_map(|(start, nr, result, count, op, o)| {
            Kind::Syscall(SyscallUse { start, nr, result, count, op, object: ObjectId(o) })
        }),
        2 => (ns(), id(), id()).prop_map(|(weight, u, k)| {
            Kind::Sample(Sample { weight, user_stack: StackId(u), kernel_stack: StackId(k) })
        }),
        1 => id().prop_map(|c| Kind::Spawn { child: ThreadId(c) }),
        1 => Just(Kind::Exec),
        1 => any::<u32>().prop_map(|status| Kind::Exit { status }),
        1 => (id(), any::<u8>()).prop_map(|(t, signal)| Kind::Signal { target: ThreadId(t), signal }),
        1 => (id(), id(), 0..11u8).prop_map(|(o, s, r)| Kind::Hold(Hold {
            object: ObjectId(o), subject: ThreadId(s), relation: Relation::from_u8(r).unwrap_or(Relation::Owns),
        })),
        1 => (id(), any::<u64>(), any::<bool>(), id()).prop_map(|(o, value, write, s)| {
            Kind::DataFlag { object: ObjectId(o), value, write, stack: StackId(s) }
        }),
        1 => (id(), any::<bool>()).prop_map(|(unit_type, begin)| {
            Kind::UnitBoundary { unit_type: UnitTypeId(unit_type), begin }
        }),
        1 => ((ns(), ns(), ns(), ns()), few(5), id(), id(), any::<u32>(), 0..4u8).prop_map(
            |((start, elapsed, threshold, stolen), t, u, k, depth, at)| Kind::Violation(Violation {
                start,
                elapsed,
                threshold,
                unit_type: UnitTypeId(t),
                user_stack: StackId(u),
                kernel_stack: StackId(k),
                depth,
                at: SeenBy::from_u8(at),
                stolen,
            })
        ),
        1 => any::<u32>().prop_map(|number| Kind::Mark { number }),
        1 => ns().prop_map(|since| Kind::Unheard { since }),
        1 => (ns(), id(), any::<u32>(), 0u8..3).prop_map(|(start, t, steps, how)| {
            let how = pg_event::trace::How::from_u8(how);
            Kind::Burst(pg_event::Burst { start, trace: pg_event::TraceId(t), steps, how })
        }),
        1 => (id(), id(), ns()).prop_map(|(o, t, queued)| {
            Kind::Work(Work { object: ObjectId(o), requester: ThreadId(t), queued })
        }),
        1 => (id(), ns(), ns(), any::<u64>(), any::<(bool, bool)>(), 0..3u8).prop_map(
            |(o, since, until, bytes, (open, arrived), d)| {
                let (object, display) = (ObjectId(o), Display::from_u8(d));
                Kind::Unserved(Unserved { object, since, until, bytes, open, arrived, display })
            }
        ),
        1 => (ns(), any::<u64>(), any::<u8>()).prop_map(|(since, count, ring)| Kind::Lost { since, count, ring }),
    ]
}

fn event() -> impl Strategy<Value = Event> {
    (ns(), few(9), any::<u16>(), kind()).prop_map(|(time, t, cpu, kind)| Event {
        time,
        thread: ThreadId(t),
        cpu,
        kind,
    })
}

/// A small recording: two batches of events, catalogue rows before each.
fn sample() -> (tempfile::TempDir, PathBuf, Vec<Event>, Catalog) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.pgs");
    let header = Header { host: "db7".into(), kernel: "6.1".into(), ..Header::default() };
    let mut w = Writer::create(&path, &header).unwrap();
    let mut events = Vec::new();
    let mut catalog = Catalog::default();
    for n in 0..4u32 {
        let thread =
            Thread { tid: 100 + n, name: format!("worker-{n}"), process: ProcessId(0), ..Thread::default() };
        let delta = CatalogDelta { threads: vec![(ThreadId(n), thread)], ..CatalogDelta::default() };
        catalog.apply(delta.clone());
        w.item(&Item::Catalog(delta)).unwrap();
        let batch: Vec<Event> = (0..20)
            .map(|i| {
                let time = u64::from(n) * 1_000_000 + i * 1000;
                let off = OffCpu::new(time.saturating_sub(500), time, OffState::Interruptible);
                Event { time, thread: ThreadId(n), cpu: 1, kind: Kind::OffCpu(off) }
            })
            .collect();
        w.item(&Item::Events(batch.clone())).unwrap();
        w.flush().unwrap();
        events.extend(batch);
    }
    let coverage = Coverage { stacks_total: 7, ..Coverage::default() };
    w.item(&Item::End { duration: 5_000_000, coverage }).unwrap();
    w.finish().unwrap();
    (dir, path, events, catalog)
}

type Everything = (Vec<Event>, Catalog, Option<(u64, Coverage)>, Vec<Warning>);

fn read(s: &Session) -> Everything {
    let (mut events, mut catalog, mut end) = (Vec::new(), Catalog::default(), None);
    let mut items = s.items();
    for item in &mut items {
        match item {
            Item::Catalog(d) => _ = catalog.apply(d),
            Item::Events(e) => events.extend(e),
            Item::End { duration, coverage } => end = Some((duration, coverage)),
        }
    }
    (events, catalog, end, items.warnings().to_vec())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases * 4 / 5, ..ProptestConfig::default() })]

    #[test]
    fn events_come_back(events in proptest::collection::vec(event(), 0..200)) {
        let (payload, rows) = parse::encode(&events);
        prop_assert_eq!(rows as usize, events.len());
        prop_assert_eq!(parse::events(&payload, rows).unwrap(), events);
    }

    #[test]
    fn damaged_payloads_end_in_an_error_or_in_events(
        events in proptest::collection::vec(event(), 1..40),
        flips in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        cut in any::<prop::sample::Index>(),
        rows in 0u32..70_000,
    ) {
        let (mut payload, n) = parse::encode(&events);
        for (i, b) in flips { let i = i.index(payload.len()); payload[i] ^= b; }
        let _ = parse::events(&payload, n);
        let _ = parse::events(&payload, rows);
        payload.truncate(cut.index(payload.len()));
        let _ = parse::events(&payload, n);
    }

    #[test]
    fn any_bytes_are_no_session(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        prop_assert!(parse::session(&bytes).is_err());
        let mut file = b"\x89PGS\r\n\x1a\n\x01\0\0\0\0\0\0\0".to_vec();
        file.extend_from_slice(&bytes);
        let _ = parse::session(&file);
        let _ = parse::events(&bytes, 5);
    }
}

#[test]
fn a_recording_comes_back() {
    let (_dir, path, events, catalog) = sample();
    let s = Session::open(&path).unwrap();
    assert_eq!(s.warnings(), []);
    assert_eq!((s.header().host.as_str(), s.len_events(), s.duration()), ("db7", 80, 5_000_000));
    let (e, c, end, warnings) = read(&s);
    assert_eq!((e, c, warnings), (events.clone(), catalog, vec![]));
    assert_eq!(end.unwrap().1.stacks_total, 7);
    let part: Vec<Event> = events
        .iter()
        .filter(|e| (1_005_000..2_010_000).contains(&e.time) && e.thread == ThreadId(2))
        .copied()
        .collect();
    assert_eq!(s.events_in(1_005_000..2_010_000, Some(ThreadId(2))), part);
    assert_eq!(s.events_in(0..u64::MAX, Some(ThreadId(9))), []);
    assert_eq!(s.events_in(0..u64::MAX, None), events);
}

#[test]
fn the_file_is_private_and_strangers_are_left_alone() {
    use std::os::unix::fs::PermissionsExt;
    let (dir, path, ..) = sample();
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    // A recording is replaced, another file is not.
    Writer::create(&path, &Header::default()).unwrap();
    let other = dir.path().join("letter.txt");
    std::fs::write(&other, "dear reader").unwrap();
    let refused = Writer::create(&other, &Header::default()).err().unwrap().to_string();
    assert!(refused.contains("left alone"), "{refused}");
    assert_eq!(std::fs::read(&other).unwrap(), b"dear reader");
}

#[test]
fn cut_off_at_every_byte() {
    let (_dir, path, events, _) = sample();
    let whole = std::fs::read(&path).unwrap();
    let mut opened = 0;
    for n in 0..whole.len() {
        match parse::session(&whole[..n]) {
            Ok(s) => {
                opened += 1;
                let (e, _, end, _) = read(&s);
                assert!(
                    e.iter().filter(|e| !matches!(e.kind, Kind::Lost { .. })).eq(events.iter().take(e.len())),
                    "at {n}"
                );
                assert!(end.is_some());
            }
            Err(e) => assert!(e.to_string().contains("byte"), "{e}"),
        }
    }
    assert!(opened > whole.len() / 2, "only {opened} of {} prefixes open", whole.len());
}

#[test]
fn a_flipped_byte_costs_one_chunk_at_most() {
    let (_dir, path, events, _) = sample();
    let whole = std::fs::read(&path).unwrap();
    for at in 0..whole.len() {
        let mut file = whole.clone();
        file[at] ^= 0x55;
        let Ok(s) = parse::session(&file) else {
            assert!(at < 12, "byte {at} makes the whole file unreadable");
            continue;
        };
        let (e, _, end, warnings) = read(&s);
        let there = e.iter().filter(|e| !matches!(e.kind, Kind::Lost { .. })).count();
        assert!(there == 80 || there == 60, "byte {at}: {there} of {} events", events.len());
        assert!(
            there == 80 || !s.warnings().is_empty() || !warnings.is_empty(),
            "byte {at}: loss without a warning"
        );
        let told = end.unwrap().1.loss;
        assert!(there == 80 || told.ns > 0, "byte {at}: lost time is not told");
        assert!(e.is_sorted_by_key(|e| e.time));
    }
}

/// Types of units come back; a chunk that claims more than can be is damage and not an allocation.
#[test]
fn unit_types_come_back() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.pgs");
    let row = UnitTypeRow {
        name: "GET /".into(),
        module: "/usr/sbin/nginx".into(),
        histogram: vec![(1, 2, 3), (4, 5, u64::MAX)],
        threshold: 9,
        ..UnitTypeRow::default()
    };
    let types = |n: u32| (0..n).map(|i| (UnitTypeId(i), row.clone())).collect::<Vec<_>>();
    let mut w = Writer::create(&path, &Header::default()).unwrap();
    w.item(&Item::Catalog(CatalogDelta { unit_types: types(3), ..CatalogDelta::default() })).unwrap();
    let better = UnitTypeRow { name: "GET /index".into(), ..row.clone() };
    let again = CatalogDelta { unit_types: vec![(UnitTypeId(1), better.clone())], ..CatalogDelta::default() };
    w.item(&Item::Catalog(again)).unwrap();
    w.item(&Item::End { duration: 1, coverage: Coverage::default() }).unwrap();
    w.finish().unwrap();
    let (_, catalog, _, warnings) = read(&Session::open(&path).unwrap());
    assert_eq!((catalog.unit_types, warnings), (vec![row.clone(), better, row.clone()], vec![]));

    let most = pg_event::MAX_UNIT_TYPES as u32;
    let many: Vec<_> = (0..=most).map(|i| (UnitTypeId(i), UnitTypeRow::default())).collect();
    let whole =
        rmp_serde::to_vec_named(&CatalogDelta { unit_types: many, ..CatalogDelta::default() }).unwrap();
    let refused = rmp_serde::from_slice::<CatalogDelta>(&whole).unwrap_err().to_string();
    assert!(refused.contains("more than 65536"), "{refused}");
}

#[test]
fn newer_versions() {
    let (_dir, path, events, _) = sample();
    let mut file = std::fs::read(&path).unwrap();
    file[10] = 7;
    let s = parse::session(&file).unwrap();
    assert!(s.warnings()[0].to_string().contains("1.7"), "{:?}", s.warnings());
    assert_eq!(read(&s).0, events);
    file[8] = 3;
    let refused = parse::session(&file).err().unwrap().to_string();
    assert!(refused.contains("3.7") && refused.contains("newer pg-tui"), "{refused}");
}

#[test]
fn lengths_that_lie() {
    let (_dir, path, ..) = sample();
    let whole = std::fs::read(&path).unwrap();
    // Each length of the second chunk's frame set to something enormous, with a right check sum.
    let stored = u32::from_le_bytes(whole[PREFIX_LEN + 8..PREFIX_LEN + 12].try_into().unwrap()) as usize;
    let second = PREFIX_LEN + FRAME_LEN + stored;
    for field in [8, 12, 16] {
        for value in [u32::MAX, 0x7fff_ffff, 1 << 24, 65_537] {
            let mut file = whole.clone();
            file[second + field..second + field + 4].copy_from_slice(&value.to_le_bytes());
            let crc = crc32fast::hash(&file[second..second + FRAME_LEN - 4]);
            file[second + FRAME_LEN - 4..second + FRAME_LEN].copy_from_slice(&crc.to_le_bytes());
            let s = parse::session(&file).unwrap();
            let _ = read(&s);
        }
    }
}

/// Chunks that cannot be unpacked and claim all of time: what is lost is counted as far as can be.
#[test]
fn times_that_lie() {
    let (_dir, path, ..) = sample();
    let mut file = std::fs::read(&path).unwrap();
    let mut at = PREFIX_LEN;
    let (begin, frame) = loop {
        let frame = Frame::read(&file, at).unwrap();
        if frame.kind == ChunkKind::Events as u8 {
            break (at, frame);
        }
        at += FRAME_LEN + frame.stored as usize;
    };
    let end = begin + FRAME_LEN + frame.stored as usize;
    let mut chunk = file[begin..end].to_vec();
    chunk[..FRAME_LEN]
        .copy_from_slice(&Frame { first: 0, last: u64::MAX, crc: !frame.crc, ..frame }.to_bytes());
    file.splice(begin..end, chunk.repeat(200));
    let (_, _, end, warnings) = read(&parse::session(&file).unwrap());
    let (_, coverage) = end.expect("an end");
    assert_eq!((coverage.loss.ns, coverage.loss.events), (u64::MAX, 200 * u64::from(frame.rows)));
    assert_eq!(warnings.len(), 100, "a file of garbage would bring millions");
}

#[test]
fn notes_and_decisions_are_appended() {
    let (_dir, path, events, _) = sample();
    let key = QuestionKey { kind: QuestionKind::Edge, thread: 3, start: 17 };
    let decision = |answer| Decision { question: key, answer, by: By::User };
    let log = |d: &[usize]| DecisionLog {
        thread: ThreadId(3),
        start: 17,
        decisions: d.iter().map(|a| decision(*a)).collect(),
    };
    let note = |text: &str| Note { text: text.into(), time: 5, bookmark: true, ..Note::default() };
    let mut s = Session::open(&path).unwrap();
    let a = s.append_note(note("here it hangs")).unwrap();
    let b = s.append_note(note("not this one")).unwrap();
    s.append_decisions(log(&[1, 2])).unwrap();
    s.append_decisions(log(&[1])).unwrap();
    let rule = |t, rule: &str| GuardRule { unit_type: UnitTypeId(t), rule: rule.into(), written: 7 };
    for r in [rule(1, "40ms"), rule(2, "silence"), rule(1, "k=5")] {
        s.append_guard_rule(r).unwrap();
    }
    s.remove_note(b).unwrap();
    let check = |s: &Session| {
        assert_eq!(s.notes().iter().map(|n| n.text.as_str()).collect::<Vec<_>>(), ["here it hangs"]);
        assert_eq!(s.notes()[0].id, a);
        assert_eq!(s.decisions(), [log(&[1])]);
        assert_eq!(s.guard_rules(), [rule(2, "silence"), rule(1, "k=5")]);
    };
    check(&s);
    check(&Session::open(&path).unwrap());
    // A torn append is ignored, and the next one takes its place.
    let whole = std::fs::read(&path).unwrap();
    std::fs::write(&path, [&whole[..], &whole[PREFIX_LEN..PREFIX_LEN + 60]].concat()).unwrap();
    let mut s = Session::open(&path).unwrap();
    check(&s);
    assert_eq!(s.warnings().len(), 1);
    s.append_note(note("after the crash")).unwrap();
    let s = Session::open(&path).unwrap();
    assert_eq!(s.warnings(), []);
    assert_eq!(s.notes().len(), 2);
    assert_eq!(read(&s).0, events);
}

#[test]
fn two_that_have_a_file_open_keep_what_the_other_appended() {
    let (dir, path, events, _) = sample();
    let note = |text: &str| Note { text: text.into(), time: 5, ..Note::default() };
    let log = |answer| {
        let question = QuestionKey { kind: QuestionKind::Edge, thread: 3, start: 17 };
        let decisions = vec![Decision { question, answer, by: By::User }];
        DecisionLog { thread: ThreadId(3), start: 17, decisions }
    };
    let texts = |s: &Session| s.notes().into_iter().map(|n| n.text).collect::<Vec<_>>();
    let (mut one, mut two) = (Session::open(&path).unwrap(), Session::open(&path).unwrap());
    let a = one.append_note(note("one")).unwrap();
    assert_eq!(one.append_decisions(log(1)).unwrap(), None);
    let b = two.append_note(note("two")).unwrap();
    assert_ne!(a, b);
    assert_eq!(texts(&two), ["one", "two"]);
    // What the other had answered is told before it is replaced; the same answer is nothing to tell.
    assert_eq!(two.append_decisions(log(1)).unwrap(), None);
    assert_eq!(one.append_decisions(log(2)).unwrap(), None);
    assert_eq!(two.append_decisions(log(3)).unwrap(), Some(log(2)));
    // Both change one note: both texts stay.
    let of = |s: &Session| s.notes().into_iter().find(|n| n.id == a).unwrap();
    let (mine, its) = (of(&one), of(&two));
    one.append_note(Note { text: "changed".into(), ..mine }).unwrap();
    two.append_note(Note { text: "changed, too".into(), ..its }).unwrap();
    let s = Session::open(&path).unwrap();
    assert_eq!(texts(&s), ["changed", "two", "changed, too"]);
    assert_eq!((s.decisions(), s.warnings()), (&[log(3)][..], &[][..]));
    assert_eq!(read(&s).0, events);

    // Another recording in its place is not written to.
    let other = dir.path().join("other.pgs");
    std::fs::copy(&path, &other).unwrap();
    std::fs::rename(&other, &path).unwrap();
    let before = std::fs::read(&path).unwrap();
    assert!(matches!(one.append_note(note("lost")), Err(SessionError::Replaced { .. })));
    assert_eq!(std::fs::read(&path).unwrap(), before);
}

#[test]
fn a_full_disk_leaves_what_was_written() {
    // /dev/full refuses every write: the error names the file and the reason.
    let e = Writer::create(std::path::Path::new("/dev/full"), &Header::default()).err().unwrap().to_string();
    assert!(e.contains("/dev/full") && e.contains("space"), "{e}");
}

#[test]
fn a_recording_in_progress_cannot_be_appended_to() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("live.pgs");
    let mut w = Writer::create(&path, &Header::default()).unwrap();
    w.item(&Item::Events(vec![Event { time: 3, thread: ThreadId(0), cpu: 0, kind: Kind::Exec }])).unwrap();
    w.flush().unwrap();
    let mut s = Session::open(&path).unwrap();
    assert!(!s.is_closed());
    assert_eq!(read(&s).0.len(), 1);
    assert!(matches!(s.append_note(Note::default()), Err(SessionError::Busy { .. })));
}

#[test]
fn a_short_recording_is_written_again_in_full_chunks() {
    use std::os::unix::fs::PermissionsExt;
    let (dir, path, events, catalog) = sample();
    let before = std::fs::metadata(&path).unwrap().len();
    let n = compact(&path).unwrap();
    let after = std::fs::metadata(&path).unwrap();
    assert!(n < before && n == after.len() && after.permissions().mode() & 0o777 == 0o600);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "nothing is left beside it");
    let s = Session::open(&path).unwrap();
    let (e, c, end, _) = read(&s);
    assert_eq!((e, c), (events, catalog));
    assert_eq!((end.unwrap().1.stacks_total, s.header().host.as_str()), (7, "db7"));
    // A damaged one is left as it is.
    let mut file = std::fs::read(&path).unwrap();
    let middle = file.len() / 2;
    file[middle] ^= 1;
    std::fs::write(&path, &file).unwrap();
    assert_eq!(compact(&path), None);
    assert_eq!(std::fs::read(&path).unwrap(), file);
}

/// Opening a FIFO that nobody reads would wait for ever.
#[test]
fn a_fifo_is_written_to_when_somebody_reads_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("fifo");
    assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
    let refused = super::create::create(&path).unwrap_err();
    assert!(refused.to_string().contains("nobody reads"), "{refused}");
    let reader = std::fs::File::options().read(true).write(true).open(&path).unwrap();
    let (mut file, regular) = super::create::create(&path).unwrap();
    assert!(!regular && std::io::Write::write_all(&mut file, b"PG").is_ok());
    drop(reader);
}
