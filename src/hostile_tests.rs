//! Files that open, and whose contents make no sense: numbers of nobody, times in the past and beyond the end, cycles,
//! endless names. Whoever sends a file can write such a one; whatever is done with it ends, with some answer.
//!
//! `HOSTILE_FIRST=100 HOSTILE_COUNT=5000 cargo test -p pg-tui --lib hostile_tests` looks longer, `HOSTILE_FILE=FILE` at another
//! recording.

use crate::app::harness;
use crate::session::{Header, Loaded, Session, Symbols, Writer, load_session};
use pg_event::{CatalogDelta, Event, Item, Kind, ObjectId, StackId, Sysno, ThreadId};
use pg_graph::{BuildOptions, By, Diagnosis, Options, Step, VictimOptions};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::ops::ControlFlow;
use std::path::Path;

/// Random numbers (SplitMix64).
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }

    fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    /// A number that is wrong in a way of its own, or of somebody else.
    fn number(&mut self, old: u64, others: &[u64]) -> u64 {
        const EDGES: [u64; 12] = [
            0,
            1,
            2,
            u16::MAX as u64,
            i32::MAX as u64,
            u32::MAX as u64 - 1,
            u32::MAX as u64,
            1 << 40,
            i64::MAX as u64,
            1 << 63,
            u64::MAX - 1,
            u64::MAX,
        ];
        match self.below(5) {
            0 => EDGES[self.below(EDGES.len())],
            1 => old.wrapping_add(1),
            2 => old.wrapping_sub(1),
            3 => old ^ (1 << self.below(64)),
            _ => others.get(self.below(others.len())).copied().unwrap_or(old),
        }
    }

    fn text(&mut self, old: &str) -> String {
        match self.below(6) {
            0 => String::new(),
            1 => "\u{1b}[2J\u{202e}\u{0}\n".into(),
            2 => old.repeat(self.below(40)),
            3 => "宽".repeat(self.below(300)),
            4 => old.chars().rev().collect(),
            _ => old.chars().filter(|_| !self.one_in(3)).collect(),
        }
    }
}

/// The numbers in it.
fn numbers(v: &Value, out: &mut Vec<u64>) {
    match v {
        Value::Number(n) => out.extend(n.as_u64()),
        Value::Array(a) => a.iter().for_each(|v| numbers(v, out)),
        Value::Object(o) => o.values().for_each(|v| numbers(v, out)),
        _ => {}
    }
}

/// One in `rate` of the values in it is another.
fn spoil(v: &mut Value, dice: &mut Dice, rate: usize, pool: &[u64]) {
    match v {
        Value::Number(n) if dice.one_in(rate) => {
            *v = dice.number(n.as_u64().unwrap_or_default(), pool).into();
        }
        Value::String(s) if dice.one_in(rate * 2) => *v = dice.text(s).into(),
        Value::Bool(b) if dice.one_in(rate) => *v = (!*b).into(),
        Value::Null if dice.one_in(rate) => *v = dice.number(0, pool).into(),
        Value::Array(a) => {
            for v in a.iter_mut() {
                spoil(v, dice, rate, pool);
            }
            if !a.is_empty() && dice.one_in(rate * 2) {
                let (from, to) = (dice.below(a.len()), dice.below(a.len()));
                match dice.below(3) {
                    0 => a.truncate(from),
                    1 => a.swap(from, to),
                    _ => a.extend(std::iter::repeat_n(a[from].clone(), dice.below(60))),
                }
            }
        }
        Value::Object(o) => o.values_mut().for_each(|v| spoil(v, dice, rate, pool)),
        _ => {}
    }
}

/// Rows of a table; what cannot be said in its types stays as it was.
fn rows<T: Serialize + DeserializeOwned>(table: &mut [T], dice: &mut Dice, rate: usize) {
    let values: Vec<Value> = table.iter().filter_map(|row| serde_json::to_value(row).ok()).collect();
    let mut pool = Vec::new();
    for v in &values {
        numbers(v, &mut pool);
    }
    for (row, mut value) in table.iter_mut().zip(values) {
        spoil(&mut value, dice, rate, &pool);
        if let Ok(other) = serde_json::from_value(value) {
            *row = other;
        }
    }
}

fn catalog(d: &mut CatalogDelta, dice: &mut Dice, rate: usize) {
    rows(&mut d.threads, dice, rate);
    rows(&mut d.processes, dice, rate);
    rows(&mut d.objects, dice, rate);
    rows(&mut d.stacks, dice, rate);
    rows(&mut d.frames, dice, rate);
    rows(&mut d.modules, dice, rate);
    rows(&mut d.unit_types, dice, rate);
}

/// Who and when there is in a recording.
struct Pool {
    times: Vec<u64>,
    small: Vec<u64>,
}

impl Pool {
    fn time(&self, dice: &mut Dice, t: &mut u64, rate: usize) {
        if dice.one_in(rate) {
            *t = dice.number(*t, &self.times);
        }
    }

    fn id(&self, dice: &mut Dice, id: &mut u32, rate: usize) {
        if dice.one_in(rate) {
            *id = dice.number((*id).into(), &self.small) as u32;
        }
    }

    fn thread(&self, dice: &mut Dice, t: &mut ThreadId, rate: usize) {
        self.id(dice, &mut t.0, rate);
    }

    fn object(&self, dice: &mut Dice, o: &mut ObjectId, rate: usize) {
        self.id(dice, &mut o.0, rate);
    }

    fn stack(&self, dice: &mut Dice, s: &mut StackId, rate: usize) {
        self.id(dice, &mut s.0, rate);
    }

    fn call(&self, dice: &mut Dice, nr: &mut Sysno, rate: usize) {
        if dice.one_in(rate) {
            *nr = Sysno(dice.number(nr.0.into(), &self.small) as u16);
        }
    }

    fn flag(dice: &mut Dice, b: &mut bool, rate: usize) {
        *b ^= dice.one_in(rate);
    }

    fn event(&self, dice: &mut Dice, e: &mut Event, rate: usize) {
        self.time(dice, &mut e.time, rate);
        self.thread(dice, &mut e.thread, rate);
        match &mut e.kind {
            Kind::OffCpu(o) => {
                for t in [&mut o.start, &mut o.woken, &mut o.timeout] {
                    self.time(dice, t, rate);
                }
                for b in [&mut o.open, &mut o.begun_before] {
                    Self::flag(dice, b, rate);
                }
                for n in [&mut o.syscall, &mut o.waker_syscall] {
                    self.call(dice, n, rate);
                }
                for n in [&mut o.op, &mut o.value, &mut o.object.0, &mut o.waker.0, &mut o.waker_object.0] {
                    self.id(dice, n, rate);
                }
                for n in [&mut o.user_stack, &mut o.kernel_stack, &mut o.waker_stack] {
                    self.stack(dice, n, rate);
                }
                if dice.one_in(rate) {
                    o.state = pg_event::OffState::from_u8(dice.below(10) as u8);
                }
                if dice.one_in(rate) {
                    o.waker_context = pg_event::Context::from_u8(dice.below(7) as u8);
                }
            }
            Kind::Ipc(i) => {
                for t in [&mut i.first, &mut i.bytes, &mut i.position] {
                    self.time(dice, t, rate);
                }
                self.object(dice, &mut i.object, rate);
                self.id(dice, &mut i.count, rate);
            }
            Kind::Syscall(s) => {
                self.time(dice, &mut s.start, rate);
                self.call(dice, &mut s.nr, rate);
                for n in [&mut s.count, &mut s.op, &mut s.object.0] {
                    self.id(dice, n, rate);
                }
                if dice.one_in(rate) {
                    s.result = dice.number(0, &self.small) as i64;
                }
            }
            Kind::Sample(s) => {
                self.time(dice, &mut s.weight, rate);
                self.stack(dice, &mut s.user_stack, rate);
                self.stack(dice, &mut s.kernel_stack, rate);
            }
            Kind::Spawn { child } => self.thread(dice, child, rate),
            Kind::Exit { status } => self.id(dice, status, rate),
            Kind::Signal { target, .. } => self.thread(dice, target, rate),
            Kind::Hold(h) => {
                self.object(dice, &mut h.object, rate);
                self.thread(dice, &mut h.subject, rate);
                if dice.one_in(rate) {
                    h.relation = pg_event::Relation::from_u8(dice.below(10) as u8).unwrap_or(h.relation);
                }
            }
            Kind::Work(w) => {
                self.object(dice, &mut w.object, rate);
                self.thread(dice, &mut w.requester, rate);
                self.time(dice, &mut w.queued, rate);
            }
            Kind::Unserved(u) => {
                self.object(dice, &mut u.object, rate);
                for t in [&mut u.since, &mut u.until, &mut u.bytes] {
                    self.time(dice, t, rate);
                }
                Self::flag(dice, &mut u.open, rate);
            }
            Kind::DataFlag { object, value, stack, .. } => {
                self.object(dice, object, rate);
                self.time(dice, value, rate);
                self.stack(dice, stack, rate);
            }
            Kind::Burst(b) => {
                self.time(dice, &mut b.start, rate);
                self.id(dice, &mut b.trace.0, rate);
                self.id(dice, &mut b.steps, rate);
            }
            Kind::UnitBoundary { unit_type, begin } => {
                self.id(dice, &mut unit_type.0, rate);
                Self::flag(dice, begin, rate);
            }
            Kind::Violation(v) => {
                for t in [&mut v.start, &mut v.elapsed, &mut v.threshold] {
                    self.time(dice, t, rate);
                }
                for n in [&mut v.unit_type.0, &mut v.user_stack.0, &mut v.kernel_stack.0, &mut v.depth] {
                    self.id(dice, n, rate);
                }
            }
            Kind::Unheard { since } | Kind::Lost { since, .. } => self.time(dice, since, rate),
            _ => {}
        }
    }
}

/// The recording with some of it wrong.
fn spoilt(mut items: Vec<Item>, seed: u64) -> Vec<Item> {
    let mut dice = Dice(seed);
    let rate = [5, 20, 100, 1000][dice.below(4)];
    let (in_catalog, in_events) = [(true, true), (true, false), (false, true)][dice.below(3)];
    // A writer leaves out what comes too late.
    let ordered = !dice.one_in(8);
    let mut pool = Pool { times: Vec::new(), small: (0..70).collect() };
    for item in &items {
        if let Item::Events(events) = item {
            pool.times.extend(events.iter().map(|e| e.time));
        }
    }
    for item in &mut items {
        match item {
            Item::Catalog(d) if in_catalog => catalog(d, &mut dice, rate),
            Item::Events(events) if in_events => {
                for i in 0..events.len() {
                    if dice.one_in(rate) {
                        let other = dice.below(events.len());
                        match dice.below(3) {
                            0 => events[i].kind = events[other].kind,
                            1 => events.swap(i, other),
                            _ => events[i] = events[other],
                        }
                    }
                    pool.event(&mut dice, &mut events[i], rate);
                }
                if ordered {
                    events.sort_by_key(|e| e.time);
                }
            }
            Item::End { duration, .. } => pool.time(&mut dice, duration, 4),
            _ => {}
        }
    }
    items
}

/// All that is in a file.
fn items_of(path: &Path) -> (Header, Vec<Item>) {
    let session = Session::open(path).unwrap_or_else(|e| panic!("{e}"));
    (session.header().clone(), session.items().collect())
}

fn loaded(path: &Path) -> Option<Loaded> {
    let session = Session::open(path).ok()?;
    let on = |_| ControlFlow::Continue(());
    load_session(session, BuildOptions::default(), &Symbols::AsRecorded, on).ok()
}

/// Everything that can be done with a file and no screen.
fn headless(path: &Path, dice: &mut Dice) {
    use crate::cli;
    let run = |words: &[&str]| {
        let file = path.to_str().unwrap_or_default();
        let args = ["pg-tui"].into_iter().chain(words.iter().copied()).chain([file]);
        cli::to_nobody(args);
    };
    run(&["diagnose", "--json"]);
    run(&["diagnose", "--why-not", "--whole-turns"]);
    run(&["diagnose", "--stats"]);
    run(&["diagnose", "--steps"]);
    run(&["violations", "--json"]);
    run(&["units", "--json"]);
    let Some(loaded) = loaded(path) else { return };
    for victim in pg_graph::victims(&loaded.graph, &loaded.catalog, &VictimOptions::default()).iter().take(6)
    {
        let mut d = Diagnosis::new(&loaded.graph, &loaded.catalog, victim.clone(), Options::default());
        // As a person who answers anything.
        for _ in 0..200 {
            match d.next() {
                Step::Ask(q) => d.answer(dice.below(q.choices.len() + 1), By::User),
                Step::Progress(_) => {}
                Step::Done(report) => {
                    drop(cli::report_text(&report, ""));
                    break;
                }
            }
        }
        let span = victim.start..victim.end().max(victim.start);
        drop(pg_graph::path_of_span(&loaded.graph, &loaded.catalog, victim.thread, span));
    }
}

/// Everything on the screen, by keys.
fn on_screen(header: Header, path: &Path, dice: &mut Dice) {
    const KEYS: [&str; 40] = [
        "a",
        "j",
        "j",
        "k",
        "enter",
        "enter",
        "esc",
        "t",
        "T",
        "V",
        "v",
        "s",
        "l",
        "h",
        "+",
        "-",
        "w",
        "0",
        "1",
        "2",
        "r",
        "u",
        "f",
        "c",
        "C",
        "i",
        "p",
        "g",
        "G",
        "end",
        "home",
        "tab",
        "space",
        "ctrl-o",
        "o",
        "A",
        "D",
        "n",
        "N",
        "/ 'a enter",
    ];
    let Some(l) = loaded(path) else { return };
    let recording = crate::app::recording::Recording::new(
        path.to_owned(),
        header,
        l.catalog,
        l.graph,
        l.coverage,
        l.warnings.iter().map(ToString::to_string).collect(),
        None,
    );
    let (width, height) = [(80, 24), (200, 60), (40, 10), (1, 1)][dice.below(4)];
    let mut s = harness::Session::with(recording, width, height, dice.one_in(2));
    for _ in 0..40 {
        let key = KEYS[dice.below(KEYS.len())];
        s.keys(key);
    }
}

fn survives(header: &Header, items: &[Item], seed: u64) {
    let dir = tempfile::tempdir().unwrap_or_else(|e| panic!("{e}"));
    let path = dir.path().join("hostile.pgs");
    let mut writer = Writer::create(&path, header).unwrap_or_else(|e| panic!("{e}"));
    for item in spoilt(items.to_vec(), seed) {
        // What cannot be written is not read by anybody.
        let _ = writer.item(&item);
    }
    let _ = writer.finish();
    let mut dice = Dice(!seed);
    headless(&path, &mut dice);
    on_screen(header.clone(), &path, &mut dice);
}

/// Recordings to begin with.
fn seeds() -> Vec<(Header, Vec<Item>)> {
    if let Some(file) = std::env::var_os("HOSTILE_FILE") {
        return vec![items_of(Path::new(&file))];
    }
    let sessions = Path::new(env!("CARGO_MANIFEST_DIR")).join("sessions");
    let mut all: Vec<_> = ["demo", "file-lock", "redis-lua"]
        .map(|name| items_of(&sessions.join(name).with_extension("pgs")))
        .into();
    all.push((Header::default(), harness::slow_items()));
    all
}

#[test]
fn contents_that_make_no_sense_are_survived() {
    let number =
        |name, otherwise| std::env::var(name).ok().and_then(|n| n.parse::<u64>().ok()).unwrap_or(otherwise);
    let (first, count) = (number("HOSTILE_FIRST", 0), number("HOSTILE_COUNT", 8));
    let recordings = seeds();
    let mut failed = Vec::new();
    for seed in first..first + count {
        let (header, items) = &recordings[seed as usize % recordings.len()];
        let began = std::time::Instant::now();
        if std::panic::catch_unwind(|| survives(header, items, seed)).is_err() {
            failed.push(seed);
        }
        println!("{seed}: {:.1} s", began.elapsed().as_secs_f64());
    }
    assert!(failed.is_empty(), "these seeds failed: {failed:?}");
}
