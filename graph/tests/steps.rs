//! Traces drawn as text: `main: a b >f c d < e` is code, a call into f, code, a return, code.

use pg_event::trace::{Flow, Instruction, Mark, MarkKind, Run};
use pg_event::{Catalog, Frame, FrameId, Module, ModuleId, Sysno, Trace};
use pg_graph::steps::{DEEPEST, Node, What, function_name, walk};
use std::collections::HashMap;

/// Draws a trace. `f.3` is instruction 3 of function f; its last letter says where it leads: `c` call, `r` return,
/// `j` jump, `s` system call, none: to the next.
#[derive(Default)]
struct Draw {
    catalog: Catalog,
    trace: Trace,
    frames: HashMap<String, FrameId>,
    blocks: HashMap<String, u32>,
    steps: u32,
    stripped: bool,
}

impl Draw {
    fn frame(&mut self, function: &str, n: u64) -> FrameId {
        let key = format!("{function}.{n}");
        if let Some(f) = self.frames.get(&key) {
            return *f;
        }
        if self.catalog.modules.is_empty() {
            self.catalog.modules.push(Module { path: "/bin/p".into(), ..Module::default() });
        }
        let id = FrameId(self.catalog.frames.len() as u32);
        let base = function.bytes().fold(0u64, |a, b| (a * 31 + u64::from(b)) & 0xff_ffff) * 0x1000;
        let function = if self.stripped { String::new() } else { function.to_owned() };
        let address = base + n;
        self.catalog.frames.push(Frame { module: ModuleId(0), address, function, ..Frame::default() });
        self.frames.insert(key, id);
        id
    }

    fn run(&mut self, text: &str) -> &mut Self {
        for word in text.split_whitespace() {
            let (function, rest) = word.split_once('.').expect("function.number");
            let digits = rest.trim_end_matches(|c: char| c.is_ascii_alphabetic());
            let flow = match &rest[digits.len()..] {
                "" => Flow::Next,
                "j" => Flow::Jump,
                "c" => Flow::Call,
                "r" => Flow::Return,
                "s" => Flow::Syscall,
                x => panic!("{x}"),
            };
            let frame = self.frame(function, digits.parse().expect("a number"));
            let t = &mut self.trace;
            let next = t.blocks.len() as u32;
            let block = *self.blocks.entry(word.to_owned()).or_insert(next);
            if block == next {
                t.blocks.push(t.code.len() as u32);
                t.code.push(Instruction::new(frame, flow, &[0x90]));
            }
            t.runs.push(Run { block, times: 1 });
            self.steps += 1;
        }
        self
    }

    fn mark(&mut self, what: MarkKind) -> &mut Self {
        self.trace.marks.push(Mark { step: self.steps - 1, what });
        self
    }

    fn shown(&self) -> String {
        assert_eq!(self.trace.check(), Ok(()));
        let w = walk(&self.trace, &self.catalog);
        assert_eq!(w.steps, u64::from(self.steps));
        assert_eq!(w.roots.iter().map(|n| n.steps).sum::<u64>(), w.steps, "{w:#?}");
        assert_eq!(w.functions.iter().map(|f| f.own).sum::<u64>(), w.steps, "{w:#?}");
        w.roots.iter().map(|n| self.show(n)).collect::<Vec<_>>().join(" ")
    }

    fn show(&self, n: &Node) -> String {
        let inner = n.children.iter().map(|c| self.show(c)).collect::<Vec<_>>().join(" ");
        let short = |f| function_name(&self.catalog, f).replace(" (p)", "");
        match &n.what {
            What::Call { frame, signal: 0, returned: None, .. } => format!("{}[{inner}]", short(*frame)),
            What::Call { frame, signal: 0, returned: Some(v), .. } => {
                format!("{}[{inner}]={v}", short(*frame))
            }
            What::Call { frame, signal, .. } => format!("{}!{signal}[{inner}]", short(*frame)),
            What::Loop { least, most } if least == most => format!("({inner})x{least}"),
            What::Loop { least, most } => format!("({inner})x{least}-{most}"),
            What::Code { block } => format!("{}", self.trace.block(*block)[0].frame.0),
            What::Syscall { nr, result } => format!("{}={result:?}", nr.name().unwrap_or_default()),
        }
    }
}

fn drawn(text: &str) -> String {
    Draw::default().run(text).shown()
}

#[test]
fn a_call_and_its_return() {
    assert_eq!(drawn("main.0c f.0 f.1r main.1"), "main[0 f[1 2] 3]");
}

#[test]
fn calls_in_a_loop_are_told_once() {
    let turn = "main.0c f.0 f.1r main.1j ";
    assert_eq!(drawn(&turn.repeat(1204)), "main[(0 f[1 2] 3)x1204]");
}

#[test]
fn inner_loops_may_differ() {
    let turn = |n: usize| format!("main.0c {} f.1r main.1j ", "f.0j ".repeat(n));
    let text: String = [3, 5, 4, 3].iter().map(|n| turn(*n)).collect();
    assert_eq!(drawn(&text), "main[(0 f[(1)x3-5 2] 3)x4]");
}

#[test]
fn recursion_is_a_chain() {
    assert_eq!(drawn("f.0c f.0c f.0 f.1r f.1r f.1"), "f[0 f[0 f[0 1] 1] 1]");
}

#[test]
fn outwards_beyond_where_it_began() {
    // It began deep inside: two callers are met on the way out.
    assert_eq!(drawn("c.5 c.6r b.5r a.5 a.6"), "a[b[c[0 1] 2] 3 4]");
}

#[test]
fn a_jump_to_a_function_is_a_call_without_a_return() {
    assert_eq!(drawn("main.0c stub.0j lib.0 lib.1r main.1"), "main[0 stub[1 lib[2 3]] 4]");
}

#[test]
fn a_handler_of_a_signal_comes_and_goes() {
    let mut d = Draw::default();
    d.run("main.0 main.1 on_signal.0").mark(MarkKind::Signal(10));
    d.run("on_signal.1r restore.0 restore.1s").mark(MarkKind::Syscall(Sysno(15), None)).run("main.2 main.3");
    assert_eq!(d.shown(), "main[0 1 on_signal!10[2 3 restore[4 5 rt_sigreturn=None]] 6 7]");
}

/// Signals faster than the program: each comes right after the end of the handler before it.
#[test]
fn signal_after_signal() {
    let mut d = Draw::default();
    d.run("on_signal.1r restore.0 restore.1s").mark(MarkKind::Syscall(Sysno(15), None));
    for _ in 0..3 {
        d.run("on_signal.0").mark(MarkKind::Signal(10));
        d.run("on_signal.1r restore.0 restore.1s").mark(MarkKind::Syscall(Sysno(15), None));
    }
    d.run("main.2");
    let handler = "on_signal!10[2 3 restore[4 5 rt_sigreturn=None]]";
    let handler = handler.replace('3', "0").replace('4', "1").replace('5', "2").replacen('2', "3", 1);
    assert_eq!(d.shown(), format!("restore[on_signal[0] 1 2 rt_sigreturn=None] ({handler})x3 main[4]"));
}

#[test]
fn results_of_calls() {
    let mut d = Draw::default();
    for turn in 0..3 {
        d.run("main.0s").mark(MarkKind::Syscall(Sysno(24), Some(0)));
        d.run("main.1s").mark(MarkKind::Syscall(Sysno(39), Some(turn)));
    }
    assert_eq!(d.shown(), "main[(0 sched_yield=Some(0) 1 getpid=None)x3]");
    let mut d = Draw::default();
    d.run("main.0c f.0r").mark(MarkKind::Returned(7)).run("main.1");
    assert_eq!(d.shown(), "main[0 f[1]=7 2]");
}

#[test]
fn without_names_calls_are_still_calls() {
    let mut d = Draw { stripped: true, ..Draw::default() };
    d.run("main.0c f.0 f.1r main.1");
    let shown = d.shown();
    assert!(shown.starts_with("0x") && shown.matches('[').count() == 2, "{shown}");
}

#[test]
fn deep_recursion_is_bounded() {
    let n = 3 * DEEPEST;
    // The last call leads into the first return.
    let text = "f.0c ".repeat(n - 1) + &"f.1r ".repeat(n) + "main.1";
    let mut d = Draw::default();
    d.run(&("main.0c ".to_owned() + &text));
    let w = walk(&d.trace, &d.catalog);
    assert_eq!((w.depth, w.roots.len()), (n as u32 + 1, 1));
    d.shown();
}

#[test]
fn shares_of_functions() {
    let mut d = Draw::default();
    d.run("main.0c f.0 f.1c g.0 g.1 g.2r f.2r main.1");
    let w = walk(&d.trace, &d.catalog);
    let shares: Vec<_> =
        w.functions.iter().map(|f| (function_name(&d.catalog, f.frame), f.calls, f.own, f.total)).collect();
    let expected = [("f (p)", 1, 3, 6), ("g (p)", 1, 3, 3), ("main (p)", 1, 2, 8)];
    assert_eq!(shares, expected.map(|(n, c, o, t)| (n.to_owned(), c, o, t)));
}

/// Of what is called by itself nothing counts twice, also when its callers are met on the way out.
#[test]
fn recursion_counts_once() {
    for text in ["f.0c f.0c f.0 f.1r f.1r f.1", "f.0 f.1r f.1r f.1r f.2"] {
        let mut d = Draw::default();
        d.run(text);
        let w = walk(&d.trace, &d.catalog);
        assert_eq!((w.functions.len(), w.functions[0].total), (1, u64::from(d.steps)), "{text}: {w:#?}");
    }
}

/// What is in a file may be anything: nothing breaks.
#[test]
fn nonsense_ends() {
    let mut seed = 7u64;
    let mut random = |n: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % n
    };
    for _ in 0..200 {
        let mut d = Draw::default();
        for _ in 0..random(300) {
            let f = ["a", "b", "c", "d"][random(4) as usize];
            let flow = ["", "j", "c", "r", "s"][random(5) as usize];
            d.run(&format!("{f}.{}{flow}", random(6)));
            if random(4) == 0 {
                let what = [MarkKind::Signal(3), MarkKind::Returned(4), MarkKind::Syscall(Sysno(1), None)];
                d.mark(what[random(3) as usize]);
            }
        }
        d.shown();
        // Frames that do not exist.
        d.catalog.frames.clear();
        let _ = walk(&d.trace, &d.catalog);
    }
}
