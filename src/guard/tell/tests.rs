use super::*;
use pg_event::UnitTypeRow;
use pg_graph::HotPath;
use pg_graph::units::{KnownTypes, LoopKey};

fn shown() -> Shown {
    let info = ViolationInfo {
        number: 3,
        pid: 7,
        tid: 8,
        process: "shop".into(),
        thread: "worker".into(),
        unit_type: "sort".into(),
        elapsed_ns: 41_000_000,
        threshold_ns: 10_000_000,
        excess: 4.1,
        at: "sample".into(),
        stack: ["do_page_fault ([kernel])", "swap (shop)", "sort (shop)", "serve (shop)", "main (shop)"]
            .map(String::from)
            .into(),
        distance: Some(2),
        on_cpu_ns: 40_000_000,
        ready_ns: 900_000,
        asleep_ns: 100_000,
        ..ViolationInfo::default()
    };
    let (of_loop, starved, stopped, given) = ("serve".into(), false, false, None);
    Shown { info, seen: 0, of_loop, kernel: 1, starved, goes_on: false, slow_before: false, stopped, given }
}

fn over(took: Ns) -> Over {
    Over { shown: Box::new(shown()), took, halted: 0, mostly: None }
}

fn mostly() -> MostlyInfo {
    let frames = ["sort (shop)", "serve (shop)"].map(String::from).into();
    MostlyInfo::from(&HotPath { frames, share: 0.9377, stacks: 11 })
}

#[test]
fn where_most_of_the_time_went_is_told() {
    let mut with_mostly = shown();
    with_mostly.info.mostly = Some(mostly());
    let said = text(&with_mostly);
    let line = said.lines().nth(1).map(str::trim);
    assert_eq!(line, Some("most of that time: 94 % in sort (shop) and what it calls (11 stacks)"));
    // Also when it took little longer than was told.
    let o = Over { mostly: Some(mostly()), ..over(45_000_000) };
    assert_eq!(
        over_text(&o).as_deref(),
        Some(
            "shop/8 worker: a unit of type sort that ran for 41 ms took 45 ms in all, 94 % in sort (shop) and what it \
             calls (11 stacks)"
        )
    );
    let line = over_json(&o);
    assert_eq!(
        (&line["mostly"]["function"], &line["mostly"]["share"]),
        (&json!("sort (shop)"), &json!(0.938))
    );
    assert!(over_json(&over(1)).get("mostly").is_none());
}

#[test]
fn for_people() {
    insta::assert_snapshot!(text(&shown()), @"
    shop/8 worker: a unit of type sort runs for 41 ms, 4.1 times the 10 ms it may (40 ms on a CPU, 900 µs ready without a CPU)
        do_page_fault ([kernel])
        swap (shop)
        sort (shop)
        serve (shop)  <- event loop
    ");
}

#[test]
fn a_deep_stack_ends_at_its_loop() {
    let deep = |distance, frames: usize| {
        let mut s = shown();
        (s.kernel, s.info.distance) = (0, distance);
        s.info.stack = (0..frames).map(|i| format!("f{i} (shop)")).collect();
        text(&s).lines().skip(15).map(str::trim).map(String::from).collect::<Vec<_>>()
    };
    assert_eq!(deep(Some(16), 20), ["f14 (shop)", "f15 (shop)", "f16 (shop)  <- event loop"]);
    assert_eq!(deep(Some(18), 20), ["f14 (shop)", "f15 (shop)", "... 2 more", "f18 (shop)  <- event loop"]);
    assert_eq!(deep(None, 20), ["f14 (shop)", "f15 (shop)", "... 4 more"]);
    assert_eq!(deep(Some(30), 16), ["f14 (shop)", "f15 (shop)"], "a loop that is not in the stack");
}

#[test]
fn why_its_type_is_not_known_is_told() {
    let mut unknown = shown();
    unknown.info.unit_type = String::new();
    unknown.info.type_unknown = Some("no types of this loop were learnt".into());
    let said = text(&unknown);
    assert!(said.contains("a unit of no known type") && said.contains("no types of this loop"), "{said}");
    assert_eq!(json(&unknown)["type_unknown"], "no types of this loop were learnt");
    assert!(json(&shown()).get("type_unknown").is_none());
}

#[test]
fn what_it_took_in_the_end_is_told_where_that_is_more() {
    let said = over_text(&over(1_200_000_000));
    assert_eq!(
        said.as_deref(),
        Some("shop/8 worker: a unit of type sort that ran for 41 ms took 1.20 s in all")
    );
    assert_eq!(over_text(&over(45_000_000)), None);
    // A stop is no place where it was.
    let o = Over { halted: 1_100_000_000, ..over(1_200_000_000) };
    assert!(over_text(&o).is_some_and(|said| said.ends_with("took 1.20 s in all, stopped for 1.10 s")));
    assert_eq!(over_json(&o)["stopped_ns"], json!(1_100_000_000));
    let line = over_json(&over(45_000_000));
    assert_eq!(
        (&line["event"], &line["number"], &line["duration_ns"]),
        (&json!("ended"), &json!(3), &json!(45_000_000))
    );
}

#[test]
fn where_its_time_went_is_told() {
    let spent = |[on_cpu_ns, ready_ns, asleep_ns]: [Ns; 3]| ViolationInfo {
        on_cpu_ns,
        ready_ns,
        asleep_ns,
        ..shown().info
    };
    let of = |ns, starved| where_time_went(&Shown { info: spent(ns), starved, ..shown() });
    assert_eq!(
        of([1_000_000, 40_000_000, 0], true),
        " (1.0 ms on a CPU, 40 ms ready without a CPU; others had the CPUs)"
    );
    assert_eq!(of([500_000, 0, 40_000_000], false), " (40 ms asleep)");
    let host = ViolationInfo { stolen_ns: 30_000_000, ..spent([10_000_000, 900_000, 0]) };
    assert_eq!(
        where_time_went(&Shown { info: host, starved: true, ..shown() }),
        " (10 ms on a CPU, 30 ms the host had its CPU, 900 µs ready without a CPU; it is the host's doing)"
    );
    let halted = ViolationInfo { stopped_ns: 39_000_000, ..spent([1_000_000, 0, 1_000_000]) };
    let stopped = Shown { info: halted, stopped: true, ..shown() };
    assert_eq!(
        where_time_went(&stopped),
        " (1.0 ms on a CPU, 1.0 ms asleep, 39 ms stopped by a signal or a debugger; it is stopped still)"
    );
    assert_eq!(of([0; 3], false), "");
}

#[test]
fn for_scripts() {
    let line = json(&shown());
    assert_eq!((line["event"].as_str(), line["loop"].as_str()), (Some("violation"), Some("serve")));
    assert_eq!((line["type"].as_str(), line["threshold_ns"].as_u64()), (Some("sort"), Some(10_000_000)));
    let spent = ["on_cpu_ns", "ready_ns", "asleep_ns"].map(|k| line[k].as_u64());
    assert_eq!(
        (spent, line["starved"].as_bool()),
        ([Some(40_000_000), Some(900_000), Some(100_000)], Some(false))
    );
}

#[test]
fn for_prometheus() {
    let types = vec![UnitTypeRow { name: "a \"b\"\\".into(), ..UnitTypeRow::default() }];
    let watched = Watched {
        key: LoopKey::default(),
        module: String::new(),
        function: "main".into(),
        types,
        known: KnownTypes::default(),
        limits: (Vec::new(), 0),
        guards: 0,
        given: None,
    };
    let counts =
        Counts { units: 4, sum: 2_500_000_000, violations: 1, starved: 1, withdrawn: 2, unsettled: 0 };
    let text = metrics(&[watched], &[vec![counts, Counts::default()]], &Sight::default());
    insta::assert_snapshot!(text, @r#"
    # HELP pg_tui_units_total Units of work that ended.
    # TYPE pg_tui_units_total counter
    pg_tui_units_total{loop="main",type="a \"b\"\\"} 4
    # HELP pg_tui_unit_seconds_total Time that they took.
    # TYPE pg_tui_unit_seconds_total counter
    pg_tui_unit_seconds_total{loop="main",type="a \"b\"\\"} 2.5
    # HELP pg_tui_violations_total Units of work that took too long.
    # TYPE pg_tui_violations_total counter
    pg_tui_violations_total{loop="main",type="a \"b\"\\"} 1
    # HELP pg_tui_violations_starved_total Of these, those that were ready without a CPU for what they took too long, or whose CPU the host had.
    # TYPE pg_tui_violations_starved_total counter
    pg_tui_violations_starved_total{loop="main",type="a \"b\"\\"} 1
    # HELP pg_tui_violations_withdrawn_total Others that seemed to, and turned out to be of another type, which may take as long.
    # TYPE pg_tui_violations_withdrawn_total counter
    pg_tui_violations_withdrawn_total{loop="main",type="a \"b\"\\"} 2
    "#);
}
