//! What is initialised once, by the first who comes: classes of Java, Rust's `Once`.

use crate::draw::{Drawing, PRIVATE_WAIT};
use pg_event::ObjectKind;
use pg_graph::report::Report;
use pg_graph::{Options, Selection, VictimOptions, run_with_policy, select};

const INIT: &str = "InstanceKlass::initialize_impl(JavaThread*) (libjvm.so)";
const RUNS: &str = "InstanceKlass::call_class_initializer(JavaThread*) (libjvm.so)";
const WAITS: [&str; 3] = [
    "pthread_cond_wait (libc.so.6)",
    "os::PlatformEvent::park() (libjvm.so)",
    "ObjectMonitor::wait(long, bool, JavaThread*) (libjvm.so)",
];

fn told(d: Drawing, tid: u32) -> Report {
    let (g, c) = d.build();
    let s = Selection { tid: Some(tid), ..Selection::default() };
    let v = select(&g, &c, &s, &VictimOptions::default()).unwrap();
    run_with_policy(&g, &c, v, Options::default())
}

/// Two classes that need each other, and who needs one of them, too; the JVM's own threads wait for work.
#[test]
fn classes_that_wait_for_each_other() {
    for tid in [1004, 1002] {
        let mut d = Drawing::new(10.0);
        let main = d.process("java", "java App", None, 0.0);
        let names = ["gc", "a", "b", "late"];
        let [gc, a, b, late] = names.map(|n| d.thread(main, n, 0.1));
        let words: Vec<_> = (0..5).map(|i| d.object(ObjectKind::Futex, 0x100 + i, 1000, "")).collect();
        let plain = [&WAITS[..], &["Unsafe_Park (libjvm.so)"]].concat();
        let needs = [&WAITS[..], &[INIT, "Interpreter ([anon])"]].concat();
        let both = [&needs[..], &[RUNS, INIT, "Interpreter ([anon])"]].concat();
        let [plain, needs, both] = [plain, needs, both].map(|s| d.stack(&s));
        for (t, at, stack, i) in [
            (main, 0.2, plain, 0),
            (gc, 0.3, plain, 1),
            (a, 1.0, both, 2),
            (b, 1.1, both, 3),
            (late, 2.0, needs, 4),
        ] {
            d.wait(t, at, 10.0, "futex").on(words[i]).stack(stack).op(PRIVATE_WAIT, 0).open();
        }
        let r = told(d, tid);
        let first: Vec<_> = r.root_causes.iter().filter_map(|c| c.tid).take(2).collect();
        assert_eq!(first, [1003, 1002], "{r:#?}");
        let c = &r.root_causes[0];
        let what = "each initialises something, and waits for what another one initialises";
        assert!(c.why.contains(what), "{}", c.why);
        assert!(c.why.contains("InstanceKlass::initialize_impl") && !c.why.contains("1001"), "{}", c.why);
    }
}

/// Who initialises is not recorded; of those that do something, it is the one whose stack shows an initialisation.
#[test]
fn who_is_in_an_initialisation_is_who_the_others_wait_for() {
    let once = "std::sys::sync::once::futex::Once::call (app)";
    let rust = (["syscall (libc.so.6)", once, "get_config (app)"], [once, "get_config (app)"]);
    let java = (["pthread_cond_wait (libc.so.6)", INIT, "main ([anon])"], [RUNS, INIT]);
    for (needs, runs) in [(&rust.0[..], &rust.1[..]), (&java.0[..], &java.1[..])] {
        let mut d = Drawing::new(10.0);
        let main = d.process("app", "app", None, 0.0);
        let [other, inside] = ["other", "inside"].map(|n| d.thread(main, n, 0.1));
        let word = d.object(ObjectKind::Futex, 0x100, 1000, "");
        let needs = d.stack(needs);
        let runs = d.stack(&[&["connect (libc.so.6)", "load (app)"], runs].concat());
        let busy = d.stack(&["connect (libc.so.6)", "send_metrics (app)"]);
        let far = d.object(ObjectKind::Tcp, 1, 80, "10.0.0.7:80");
        let farther = d.object(ObjectKind::Tcp, 2, 81, "10.0.0.8:81");
        d.wait(other, 0.5, 10.0, "connect").on(far).stack(busy).open();
        d.wait(inside, 0.6, 10.0, "connect").on(farther).stack(runs).open();
        d.wait(main, 1.0, 10.0, "futex").on(word).stack(needs).op(PRIVATE_WAIT, 0).open();
        let r = told(d, 1000);
        let c = &r.root_causes[0];
        assert_eq!(c.tid, Some(1002), "{r:#?}");
        assert!(r.questions.is_empty(), "{r:#?}");
    }
}
