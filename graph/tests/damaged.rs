//! Whatever a damaged recording says, a diagnosis of it comes to an end, without panic, and keeps the contract.

use pg_event::{
    Context, Direction, Event, Hold, IpcUse, Kind, ObjectId, ObjectKind, OffCpu, OffState, Relation, Sample,
    SeenBy, StackId, SyscallUse, Sysno, ThreadId, UnitTypeId, Violation,
};
use pg_graph::sim::{Act, Asking, Recording, Script, Setup};
use pg_graph::{
    BuildOptions, Builder, By, Diagnosis, Options, Step, VictimOptions, automatic_slice, stats, victims,
};
use proptest::prelude::*;

fn time() -> impl Strategy<Value = u64> {
    prop_oneof![8 => 0u64..4_000_000_000, 1 => Just(u64::MAX), 1 => 0u64..100]
}

fn state() -> impl Strategy<Value = OffState> {
    prop::sample::select(OffState::ALL.to_vec())
}

fn off() -> impl Strategy<Value = Kind> {
    let call = prop::sample::select(vec![0u16, 1, 7, 24, 61, 202, 230, 232, u16::MAX]);
    (time(), time(), state(), any::<[bool; 3]>(), call, 0u32..12, 0u32..6, 0u32..140).prop_map(
        |(start, woken, state, [open, before, timer], call, object, waker, op)| {
            let mut o = OffCpu::new(start, woken, state);
            (o.open, o.begun_before, o.syscall) = (open, before, Sysno(call));
            (o.object, o.waker, o.op) = (ObjectId(object), ThreadId(waker), op);
            o.waker_context = if timer { Context::Timer } else { Context::Task };
            (o.waker_syscall, o.timeout) = (Sysno(call), 1_000_000);
            Kind::OffCpu(o)
        },
    )
}

fn kind() -> impl Strategy<Value = Kind> {
    let none = StackId::NONE;
    prop_oneof![
        6 => off(),
        2 => (0u32..12, any::<bool>(), time()).prop_map(|(o, s, first)| Kind::Ipc(IpcUse {
            object: ObjectId(o),
            direction: if s { Direction::Send } else { Direction::Receive },
            count: 1,
            bytes: u64::MAX / 2,
            first,
            position: 0,
        })),
        2 => (0u32..12, any::<u64>(), any::<bool>())
            .prop_map(move |(o, value, write)| Kind::DataFlag { object: ObjectId(o), value, write, stack: none }),
        1 => Just(Kind::Sample(Sample { weight: u64::MAX / 4, user_stack: none, kernel_stack: none })),
        1 => (0u32..12, -200i64..3, any::<u32>()).prop_map(|(o, result, count)| Kind::Syscall(SyscallUse {
            start: 0,
            nr: Sysno(72),
            result,
            count,
            op: 6,
            object: ObjectId(o),
        })),
        2 => (0u32..12, 0u32..6, 0u8..8).prop_filter_map("relation", |(o, s, r)| {
            let (object, subject) = (ObjectId(o), ThreadId(s));
            Relation::from_u8(r).map(|relation| Kind::Hold(Hold { object, subject, relation }))
        }),
        1 => (0u32..6).prop_map(|c| Kind::Spawn { child: ThreadId(c) }),
        1 => any::<u32>().prop_map(|status| Kind::Exit { status }),
        1 => (0u32..6, 0u8..40).prop_map(|(t, signal)| Kind::Signal { target: ThreadId(t), signal }),
        1 => (0u32..3, any::<bool>()).prop_map(|(t, begin)| {
            Kind::UnitBoundary { unit_type: UnitTypeId(t), begin }
        }),
        1 => (time(), time(), time(), 0u32..3, any::<u32>()).prop_map(move |(start, elapsed, threshold, t, depth)| {
            Kind::Violation(Violation {
                start,
                elapsed,
                threshold,
                unit_type: UnitTypeId(t),
                user_stack: none,
                kernel_stack: none,
                depth,
                at: SeenBy::Switch,
                stolen: elapsed,
            })
        }),
        1 => time().prop_map(|since| Kind::Lost { since, count: 3, ring: 0 }),
    ]
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let event = (time(), 0u32..6, 0u16..4, kind()).prop_map(|(time, t, cpu, kind)| Event {
        time,
        thread: ThreadId(t),
        cpu,
        kind,
    });
    prop::collection::vec(event, 1..60)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases * 6 / 5, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_diagnosis_comes_to_an_end(mut events in events(), sorted in any::<bool>(), answers in any::<[u8; 4]>()) {
        if sorted {
            events.sort_by_key(|e| e.time);
        }
        let acts = [Act::Send(0, 1), Act::Send(1, 1), Act::Lock(0), Act::Wait(0), Act::Ask(0, 0, Asking::Spin(1))];
        let setup = Setup { channels: vec![ObjectKind::UnixStream, ObjectKind::Pipe], ..Setup::default() };
        let (mut r, _) = Recording::of(setup, vec![Script::once(acts); 5], 10);
        // Several threads of one process.
        let first = r.catalog.threads[0].process;
        r.catalog.threads[1].process = first;
        r.catalog.threads[2].process = first;
        let mut b = Builder::new(BuildOptions::default());
        b.events(&events, &r.catalog);
        let g = b.finish(4_000_000_000, &r.catalog);
        let options = VictimOptions { everyone: true, innocents: true, limit: 6, ..VictimOptions::default() };
        for v in victims(&g, &r.catalog, &options) {
            let mut d = Diagnosis::new(&g, &r.catalog, v.clone(), Options::default());
            let mut asked = 0;
            let report = loop {
                match d.next() {
                    Step::Ask(q) => {
                        prop_assert!(q.recommended <= q.choices.len() && asked < 8);
                        prop_assert!(!q.text.is_empty() && !q.why.is_empty() && !q.reason.is_empty());
                        d.answer(usize::from(answers[asked % 4]) % (q.choices.len() + 1), By::User);
                        asked += 1;
                    }
                    Step::Progress(_) => {}
                    Step::Done(r) => break *r,
                }
            };
            prop_assert!(!report.root_causes.is_empty());
            for n in &report.slice {
                prop_assert_eq!(n.strength.is_some(), n.edge.is_some());
                prop_assert_eq!(n.strength.as_deref() == Some("weak"), n.why_weak.is_some());
            }
            prop_assert!(report.circle.iter().all(|i| *i < report.slice.len()));
            prop_assert!(report.root_causes.iter().all(|c| c.confidence > 0.0 && c.confidence < 1.0));
            prop_assert!(report.root_causes.iter().all(|c| c.why.ends_with('.')));
            let s = stats(&g, &v, &report);
            prop_assert!(s.automatic as usize == automatic_slice(&g, &v).len());
        }
    }
}
