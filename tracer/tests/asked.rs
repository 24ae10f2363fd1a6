//! Which programs know in what interrupt a CPU is: where the kernel can be asked, none is called for each soft
//! interrupt, each packet and each timer.

use pg_tracer::{Collector, Level, Options, check_permission};

/// What would be followed otherwise.
const ALL: [&str; 5] =
    ["hrtimer_expire_entry", "hrtimer_expire_exit", "softirq_entry", "softirq_exit", "softirq_raise"];

/// The tracepoints that this process has programs at.
fn tracepoints() -> Vec<String> {
    let of = |info: String| {
        info.lines().find_map(|l| l.strip_prefix("tp_name:")).map(|name| name.trim().to_owned())
    };
    let mut names: Vec<_> = std::fs::read_dir("/proc/self/fdinfo")
        .unwrap()
        .flatten()
        .filter_map(|f| std::fs::read_to_string(f.path()).ok())
        .filter_map(of)
        .collect();
    names.sort_unstable();
    names
}

fn frequent(options: Options) -> Vec<String> {
    let (sender, items) = crossbeam_channel::unbounded();
    let collector = Collector::start(options, sender).unwrap();
    let all = tracepoints();
    collector.stop().unwrap();
    drop(items);
    assert!(all.iter().any(|n| n == "irq_handler_entry"), "{all:?}");
    all.into_iter().filter(|name| ALL.contains(&name.as_str())).collect()
}

#[test]
fn frequent_interrupts_are_followed_only_where_the_kernel_cannot_be_asked() {
    if let Err(e) = check_permission() {
        println!("skipped: frequent_interrupts_are_followed_only_where_the_kernel_cannot_be_asked: {e}");
        return;
    }
    for level in [Level::Waits, Level::Messages] {
        assert_eq!(frequent(Options { level, follow_interrupts: true, ..Options::default() }), ALL);
    }
    let btf = std::fs::read("/sys/kernel/btf/vmlinux").unwrap();
    let has = |member: &str| btf.windows(member.len()).any(|w| w == member.as_bytes());
    let asked = has("\0in_net_rx_action\0") && !has("\0softirq_disable_cnt\0");
    let expected = |with: &'static [&str]| if asked { with } else { &ALL };
    let level = |level| frequent(Options { level, ..Options::default() });
    assert_eq!(level(Level::Waits), expected(&[]));
    assert_eq!(level(Level::Messages), expected(&["hrtimer_expire_entry"]));
}
