//! Table 2: what the heuristics changed and what the answers saved.

use crate::draw::Drawing;
use pg_event::{Direction, ObjectKind, StackId};
use pg_graph::sim::{Act, Recording, Script, Setup};
use pg_graph::{
    EdgeKind, Options, Selection, VictimOptions, automatic_slice, run_with_policy, select, stats,
};
use proptest::prelude::*;

#[test]
fn figures_of_a_drawn_hang() {
    let mut d = Drawing::new(10.0);
    let (a, b) = (d.process("a", "a", None, 0.0), d.process("b", "b", None, 0.0));
    let pipe = d.object(ObjectKind::Pipe, 5, 5, "");
    let flag = d.object(ObjectKind::Memory, 0x10, 1, "");
    d.flag(b, flag, 0.2, 1, true, StackId::NONE);
    d.flag(a, flag, 0.5, 1, false, StackId::NONE);
    d.message(b, pipe, Direction::Send, 6.9999, 1);
    d.wait(a, 1.0, 7.0, "read").on(pipe).by(b, "write", pipe);
    d.wait(b, 1.5, 6.0, "clock_nanosleep").times_out();
    d.wait(b, 8.0, 10.0, "pause").open();
    d.wait(a, 8.0, 10.0, "pause").open();
    let (g, c) = d.build();
    let s = Selection { pid: Some(1000), ..Selection::default() };
    let v = select(&g, &c, &s, &VictimOptions::default()).unwrap();
    let r = run_with_policy(&g, &c, v.clone(), Options::default());
    let s = stats(&g, &v, &r);
    assert_eq!((s.edges, s.data_flags, s.questions), (g.edge_count() as u64, 1, 0));
    assert_eq!(s.culled.len(), 1, "{s:?}");
    assert!((s.filtered_out - 1.0 / (1.0 + s.edges as f64)).abs() < 1e-9, "{s:?}");
    let flags = g.edges().filter(|e| g.edge(*e).kind == EdgeKind::DataFlag).count() as f64;
    assert!((s.added - flags / s.edges as f64).abs() < 1e-9);
    // The wait of `a`, then `b` after its sleep and before it.
    assert_eq!((s.interactive, s.automatic), (2, 3), "{s:?}");
    assert!((s.ratio - 2.0 / 3.0).abs() < 1e-9);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases / 8, ..ProptestConfig::default() })]

    /// The automatic slice never goes forward in time, never leaves the hang and visits nothing twice.
    #[test]
    fn the_automatic_slice_goes_back(threads in 2usize..6, cpus in 1usize..4, work in 1u64..20) {
        let ms = 1_000_000;
        let mut scripts = vec![Script::once([Act::Receive(0), Act::Compute(ms), Act::Sleep(ms)])];
        for i in 1..threads {
            scripts.push(Script::once([Act::Compute(work * 50 * ms), Act::Receive(i), Act::Send(i - 1, 8)]));
        }
        scripts.push(Script::once([Act::Compute(800 * ms), Act::Send(threads - 1, 8)]));
        let setup = Setup { cpus, ..Setup::default() };
        let (r, _) = Recording::of(setup, scripts, 6_000 * ms);
        let g = r.graph();
        let s = Selection { pid: Some(1000), ..Selection::default() };
        let v = select(&g, &r.catalog, &s, &VictimOptions::default()).unwrap();
        let way = automatic_slice(&g, &v);
        prop_assert_eq!(way[0], v.vertex);
        let mut seen = way.clone();
        seen.sort();
        seen.dedup();
        prop_assert_eq!(seen.len(), way.len());
        for pair in way.windows(2) {
            let (x, y) = (g.vertex(pair[0]), g.vertex(pair[1]));
            prop_assert!(y.start <= x.end, "{:?} {:?}", x, y);
            let linked = g.incoming(pair[0]).any(|e| g.edge(e).from == pair[1]);
            prop_assert!(linked || g.previous(pair[0]) == Some(pair[1]));
        }
        let report = run_with_policy(&g, &r.catalog, v.clone(), Options::default());
        let s = stats(&g, &v, &report);
        prop_assert!(s.filtered_out >= 0.0 && s.filtered_out <= 1.0 && s.added <= 1.0);
        prop_assert_eq!(s.interactive as usize, report.slice.len());
    }
}
