//! The kernel follows at most a million instructions when it checks a program. Programs that come near that
//! take a second to load, and are refused by kernels that prune worse.

use aya::programs::loaded_programs;
use pg_tracer::guards::{Guards, Plan};
use pg_tracer::{Collector, Options, check_permission};

/// A sixth of the limit.
const MOST: u32 = 160_000;

#[test]
fn programs_are_easily_verified() {
    if let Err(e) = check_permission() {
        println!("skipped: programs_are_easily_verified: {e}");
        return;
    }
    let (sender, items) = crossbeam_channel::unbounded();
    let collector = Collector::start(Options::default(), sender.clone()).unwrap();
    // What older kernels need besides.
    let follows = Options { follow_interrupts: true, ..Options::default() };
    let following = Collector::start(follows, sender).unwrap();
    let guards = Guards::start(Plan::default(), Box::new(|_| None), &[]).unwrap();
    assert_eq!(guards.notes(), [""; 0]);
    let mut seen = 0;
    for program in loaded_programs().flatten() {
        let Some(name) = program.name_as_str().filter(|n| n.starts_with("on_")).map(str::to_owned) else {
            continue;
        };
        // Unknown before Linux 5.16.
        let Some(count) = program.verified_instruction_count() else { continue };
        println!("{name}: {count}");
        assert!(count < MOST, "{name}: {count} instructions verified");
        seen += 1;
    }
    drop(guards);
    collector.stop().unwrap();
    following.stop().unwrap();
    drop(items);
    assert!(seen > 26, "only {seen} programs found");
}
