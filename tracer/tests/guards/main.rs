//! Guards on a real program: what its units are, which contexts they come by, and that one that takes too long is seen
//! while it runs, whatever it does.

mod born;
mod budget;
mod handed;
mod served;
mod stopped;
mod withdrawn;

use object::{Object, ObjectSegment, ObjectSymbol};
use pg_event::SeenBy;
use pg_tracer::check_permission;
use pg_tracer::guards::{
    Guarded, GuardedFunction, GuardedLoop, Guards, Judge, Plan, Stacked, Told, Violation,
};
use std::cell::Cell;
use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{Duration, Instant};

const MS: u64 = 1_000_000;
/// How long a unit may take: on a busy machine a thread may go without a CPU for some while.
const LIMIT: u64 = 150 * MS;
/// The units that take too long, in microseconds.
const LONG: u64 = 400_000;

const SERVER: &str = include_str!("server.c");

/// Addresses of calls, last byte, as the file counts.
type Calls = Arc<Mutex<BTreeSet<u64>>>;

/// The program, compiled, and ended when the test is done.
struct Server {
    child: Child,
    exe: PathBuf,
    _dir: tempfile::TempDir,
    _turn: Turn,
}

/// A test that takes the CPUs from others is alone.
static TURNS: RwLock<()> = RwLock::new(());
enum Turn {
    Shared { _turn: RwLockReadGuard<'static, ()> },
    Alone { _turn: RwLockWriteGuard<'static, ()> },
}

impl Server {
    /// It gets a CPU before what else the machine does, where that is permitted.
    fn comes_first(&self) {
        let pid = self.child.id().to_string();
        let _ = Command::new("chrt").args(["--rr", "--pid", "1", &pid]).stdout(Stdio::null()).status();
    }

    fn start() -> Option<Self> {
        let turn = TURNS.read().unwrap_or_else(PoisonError::into_inner);
        Self::start_in(Turn::Shared { _turn: turn }, SERVER)
    }

    /// Another program, which takes its work as the server does.
    fn start_with(source: &str) -> Option<Self> {
        let turn = TURNS.read().unwrap_or_else(PoisonError::into_inner);
        Self::start_in(Turn::Shared { _turn: turn }, source)
    }

    fn start_alone() -> Option<Self> {
        let turn = TURNS.write().unwrap_or_else(PoisonError::into_inner);
        Self::start_in(Turn::Alone { _turn: turn }, SERVER)
    }

    fn start_in(turn: Turn, program: &str) -> Option<Self> {
        if let Err(e) = check_permission() {
            println!("skipped: recording is not possible: {e}");
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        let (source, exe) = (dir.path().join("server.c"), dir.path().join("server"));
        fs::write(&source, program).unwrap();
        fs::write(dir.path().join("work.h"), include_str!("work.h")).unwrap();
        let built = Command::new("cc")
            .args(["-O1", "-g", "-fno-optimize-sibling-calls", "-pthread", "-Wl,--build-id", "-o"])
            .args([&exe, &source])
            .status();
        if !built.is_ok_and(|s| s.success()) {
            println!("skipped: there is no C compiler");
            return None;
        }
        let child =
            Command::new(&exe).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the program");
        let mut server = Self { child, exe, _dir: dir, _turn: turn };
        // It is this program when it answers.
        server.serve("s 1");
        Some(server)
    }

    fn bytes(&self) -> Vec<u8> {
        fs::read(&self.exe).unwrap()
    }

    /// Where the byte at an address is in the file.
    fn offset(&self, address: u64) -> u64 {
        let bytes = self.bytes();
        let file = object::File::parse(bytes.as_slice()).unwrap();
        let of = |s: &object::Segment<'_, '_>| (s.address()..s.address() + s.size()).contains(&address);
        let segment = file.segments().find(of).unwrap();
        address - segment.address() + segment.file_range().0
    }

    fn build_id(&self) -> String {
        let bytes = self.bytes();
        let file = object::File::parse(bytes.as_slice()).unwrap();
        let hex = |text: String, b: &u8| text + &format!("{b:02x}");
        file.build_id().unwrap().unwrap().iter().fold(String::new(), hex)
    }

    fn function(&self, name: &str) -> GuardedFunction {
        let bytes = self.bytes();
        let file = object::File::parse(bytes.as_slice()).unwrap();
        let symbol = file.symbols().find(|s| s.name() == Ok(name)).expect(name);
        GuardedFunction { file: self.exe.clone(), offset: self.offset(symbol.address()) }
    }

    /// A boundary is poll(2) of the program's own, or where that returned. `calls` gets the addresses of such calls.
    fn judge(&self, calls: Calls) -> Judge {
        let id = self.build_id();
        Box::new(move |s: &Stacked| {
            let frame = s.frames.iter().position(|f| f.module == id)?;
            let call = s.frames[frame].address;
            let polls = ["poll", "ppoll"].map(pg_event::syscall_number);
            let mut calls = calls.lock().unwrap();
            match s.syscall {
                Some(nr) if polls.contains(&Some(nr)) => calls.insert(call),
                None if calls.contains(&call) => true,
                _ => return None,
            };
            Some(Guarded { of: 0, frame, turn: frame, left: false })
        })
    }

    fn ask(&mut self, what: &str) {
        let line = format!("{what:<16}");
        self.child.stdin.as_mut().unwrap().write_all(line.as_bytes()).unwrap();
    }

    /// A whole unit.
    fn serve(&mut self, what: &str) {
        self.ask(what);
        self.answer();
    }

    fn answer(&mut self) {
        let mut done = [0];
        self.child.stdout.as_mut().unwrap().read_exact(&mut done).unwrap();
    }

    fn guards(&self, plan: Plan) -> Guards {
        self.guards_with(plan, Calls::default())
    }

    fn guards_with(&self, plan: Plan, calls: Calls) -> Guards {
        Guards::start(plan, self.judge(calls), &[self.child.id()]).unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn wait_for<T>(guards: &mut Guards, mut found: impl FnMut(Told) -> Option<T>) -> Option<T> {
    let end = Instant::now() + Duration::from_secs(5);
    while Instant::now() < end {
        for told in guards.poll(Duration::from_millis(20)) {
            if let Some(t) = found(told) {
                return Some(t);
            }
        }
    }
    None
}

/// What the guards count, once all that was done is counted: a server comes back to its wait when it gets a CPU.
fn comes_to<T: PartialEq + std::fmt::Debug>(guards: &mut Guards, count: impl Fn(&Guards) -> T, expected: T) {
    let end = Instant::now() + Duration::from_secs(5);
    while count(guards) != expected && Instant::now() < end {
        guards.poll(Duration::from_millis(10));
    }
    assert_eq!(count(guards), expected);
}

/// The server's thread comes under guard with its first units.
fn known(server: &mut Server, guards: &mut Guards) {
    for _ in 0..50 {
        server.serve("s 10");
        let mut is = false;
        for told in guards.poll(Duration::from_millis(20)) {
            is |= matches!(told, Told::Guarded { .. });
        }
        if is {
            // What was under way when it did is no unit.
            server.serve("s 10");
            server.serve("s 10");
            return;
        }
    }
    panic!("the thread did not come under guard: {:?}", guards.notes());
}

#[test]
fn units_are_told_with_their_contexts() {
    let Some(mut server) = Server::start() else { return };
    let names = ["handle", "search", "stick", "fetch", "step"];
    let learnt = learn(&mut server);
    let plan = Plan {
        loops: guarding(&server, &learnt, 0).loops,
        functions: names.iter().map(|n| server.function(n)).collect(),
        learning: true,
        ..Plan::default()
    };
    let mut guards = server.guards_with(plan, learnt.calls.clone());
    assert_eq!(guards.calls(), [0; 5], "nothing was called yet");
    let (hit, step) = guards.costs();
    println!("a probe costs {hit} ns at a push, {step} ns elsewhere");
    assert!((50..100_000).contains(&hit) && (50..100_000).contains(&step), "{hit} {step}");
    known(&mut server, &mut guards);
    guards.poll(Duration::from_millis(1));
    let since = Instant::now();
    for what in ["t 3000", "f 5000", "s 2000"] {
        server.serve(what);
    }
    let mut units = Vec::new();
    wait_for(&mut guards, |told| {
        if let Told::Unit(u) = told
            && u.end - u.start > 1_500_000
        {
            units.push((u.end - u.start, u.spent, u.contexts));
        }
        // The last unit ends when its thread waits again.
        (units.len() == 3).then_some(())
    });
    let took = since.elapsed().as_nanos() as u64;
    let of =
        |contexts: &[(usize, u32, u32)]| -> BTreeSet<&str> { contexts.iter().map(|c| names[c.0]).collect() };
    assert_eq!(units.len(), 3, "{units:?} {:?}", guards.notes());
    let [stick, fetch, search] = units.as_slice() else { panic!() };
    assert_eq!(of(&stick.2), ["handle", "stick"].into());
    assert_eq!(of(&fetch.2), ["fetch", "handle", "step"].into());
    assert_eq!(of(&search.2), ["handle", "search", "step"].into());
    for (unit, least) in [(stick, 3000), (fetch, 5000), (search, 2000)] {
        assert!((least * 1000..took).contains(&unit.0), "{} of {took}", unit.0);
    }
    // Thousands of probes were hit in the search: that was ours.
    assert!(search.1 > 10 * stick.1, "{units:?}");
    // The same function is as deep below the loop whenever it is called from the same place.
    let depth =
        |contexts: &[(usize, u32, u32)], name| contexts.iter().find(|c| names[c.0] == name).unwrap().1;
    let handle = depth(&stick.2, "handle");
    assert_eq!((depth(&fetch.2, "handle"), depth(&search.2, "handle")), (handle, handle));
    assert!(depth(&fetch.2, "step") > depth(&fetch.2, "fetch") && depth(&fetch.2, "fetch") > handle);
}

#[test]
fn what_is_called_too_often_is_probed_no_more_while_units_are_learnt() {
    let Some(mut server) = Server::start() else { return };
    let learnt = learn(&mut server);
    let plan = Plan {
        loops: guarding(&server, &learnt, 0).loops,
        functions: ["handle", "search", "count"].iter().map(|n| server.function(n)).collect(),
        learning: true,
        share: 0.5,
        ..Plan::default()
    };
    let mut guards = server.guards_with(plan, learnt.calls.clone());
    known(&mut server, &mut guards);
    let end = Instant::now() + Duration::from_secs(20);
    while guards.probed().count() == 3 && Instant::now() < end {
        // Thousands of calls in each, which take more than all else.
        server.serve("s 2000");
        guards.poll(Duration::from_millis(10));
    }
    assert_eq!(guards.probed().collect::<Vec<_>>(), [0, 1], "{:?}", guards.calls());
    // That is no news to those who ask for it.
    assert!(guards.notes().iter().all(|n| !n.contains("too often")), "{:?}", guards.notes());
    let before = guards.calls();
    server.serve("s 2000");
    let since: Vec<u64> = guards.calls().iter().zip(&before).map(|(now, then)| now - then).collect();
    assert_eq!(since, [1, 1, 0]);
}

/// Guard the types search, stick and fetch, told from each other by one function each, and units also where poll(2)
/// returned at once.
fn guarding(server: &Server, learnt: &Learnt, threshold: u64) -> Plan {
    let calls = learnt.calls.lock().unwrap();
    let turns = calls.iter().map(|c| (server.exe.clone(), server.offset(c + 1))).collect();
    let depths = &learnt.depths;
    Plan {
        loops: vec![GuardedLoop {
            thresholds: vec![threshold; 3],
            unknown: threshold,
            turns,
            ..GuardedLoop::default()
        }],
        functions: ["search", "stick", "fetch", "step"].iter().map(|n| server.function(n)).collect(),
        contexts: depths.iter().map(|&(f, depth)| (0, f, depth, vec![f])).collect(),
        hz: 199,
        period: 100 * MS,
        ..Plan::default()
    }
}

/// What was learnt of the server.
#[derive(Default)]
struct Learnt {
    /// How deep the three functions are called.
    depths: Vec<(usize, u32)>,
    /// Calls of its own wait.
    calls: Calls,
}

fn learn(server: &mut Server) -> Learnt {
    let calls = Calls::default();
    let plan = Plan { learning: true, ..guarding(server, &Learnt::default(), 0) };
    let mut guards = server.guards_with(plan, calls.clone());
    known(server, &mut guards);
    let mut found = BTreeSet::new();
    for what in ["s 100", "t 100", "f 100", "s 100", "t 100", "f 100"] {
        server.serve(what);
    }
    wait_for(&mut guards, |told| {
        if let Told::Unit(u) = told {
            found.extend(u.contexts.into_iter().map(|c| (c.0, c.1)).filter(|c| c.0 < 3));
        }
        (found.len() == 3).then_some(())
    });
    assert_eq!(found.len(), 3, "{found:?}");
    assert_eq!(calls.lock().unwrap().len(), 1);
    Learnt { depths: found.into_iter().collect(), calls }
}

fn violation(guards: &mut Guards) -> Violation {
    let found = wait_for(guards, |told| match told {
        Told::Violation(v) => Some(*v),
        _ => None,
    });
    found.expect("a violation")
}

/// Units that were under way as the probes were set have come by some functions unseen.
#[test]
fn what_tells_types_apart_counts_from_a_while_after_it_is_probed() {
    let Some(mut server) = Server::start() else { return };
    let learnt = learn(&mut server);
    let mut plan = Plan { share: 10.0, ..guarding(&server, &learnt, LIMIT) };
    // Two types that only the second function tells apart.
    plan.loops[0].thresholds = vec![LIMIT, 2 * LIMIT];
    plan.contexts.retain(|c| c.1 < 2);
    plan.contexts[0].3 = vec![0, 1];
    let mut guards = server.guards_with(plan, learnt.calls.clone());
    assert_eq!(guards.held(0), [2 * LIMIT; 2]);
    let end = Instant::now() + Duration::from_secs(5);
    while guards.held(0) != [LIMIT, 2 * LIMIT] && Instant::now() < end {
        guards.poll(Duration::from_millis(20));
    }
    assert_eq!(guards.held(0), [LIMIT, 2 * LIMIT], "{:?}", guards.notes());
    drop(guards);
    server.serve("s 1");
}

#[test]
fn a_unit_that_takes_too_long_is_seen_while_it_runs() {
    let Some(mut server) = Server::start() else { return };
    let learnt = learn(&mut server);
    let mut guards = server.guards_with(guarding(&server, &learnt, LIMIT), learnt.calls.clone());
    known(&mut server, &mut guards);
    for _ in 0..20 {
        for what in ["s 1000", "t 1000", "f 1000"] {
            server.serve(what);
        }
    }
    for told in guards.poll(Duration::from_millis(10)) {
        assert!(!matches!(told, Told::Violation(_)), "{told:?}");
    }
    let counts = guards.counts(0);
    for of in 0..3 {
        assert!(counts[of].units >= 19 && counts[of].violations == 0, "{counts:?}");
        // Of the search much is the probes' time, which is not counted.
        assert!(of == 0 || counts[of].sum / counts[of].units >= 900_000, "{counts:?}");
    }
    // On a busy machine each may be put off the CPU just when its time is over.
    let cases = [
        ('s', 0, vec![SeenBy::Context, SeenBy::Sample], "search"),
        ('t', 1, vec![SeenBy::Sample], "stick"),
        ('f', 2, vec![SeenBy::Asleep], "fetch"),
    ];
    for (what, of, seen, function) in cases {
        server.ask(&format!("{what} {LONG}"));
        let asked = Instant::now();
        let v = violation(&mut guards);
        let late = asked.elapsed();
        guards.symbolize();
        assert_eq!((v.pid, v.of, v.threshold), (server.child.id(), Some(of), LIMIT), "{what}");
        assert!(seen.contains(&v.seen) || v.seen == SeenBy::Switch, "{what}: {:?}", v.seen);
        assert!(late < Duration::from_micros(LONG), "{what}: told after {late:?}, not while the unit ran");
        assert!((LIMIT..LONG * 1000).contains(&v.elapsed) && v.time - v.start >= v.elapsed, "{what}: {v:?}");
        let frames = guards.catalog().show_stack(v.user_stack);
        let at = |name: &str| {
            frames.iter().position(|f| f.starts_with(name)).unwrap_or_else(|| panic!("{what}: {frames:?}"))
        };
        assert!(at(function) < at("handle") && at("handle") < at("main"), "{what}: {frames:?}");
        // It slept, or it had a CPU or wanted one.
        let asleep = v.away.saturating_sub(v.ready);
        assert!(v.away <= v.elapsed + MS && v.ready <= v.away, "{what}: {v:?}");
        assert!(if of == 2 { asleep > LIMIT / 2 } else { asleep < LIMIT / 4 }, "{what}: {v:?}");
        // Inside the loop's frame is all but `main` and what called it.
        assert_eq!(v.distance, Some(at("main")), "{what}: {frames:?}");
        server.answer();
        let ended = wait_for(&mut guards, |told| match told {
            Told::Ended(e) if e.number == v.number && e.violated => Some((e.elapsed, e.of)),
            _ => None,
        });
        let (elapsed, ended_as) = ended.expect("its end");
        // Of the search, which comes by a guard every 10 us, some is the guards' own time.
        assert!(elapsed >= LONG * 500 && ended_as == Some(of), "{what}: {elapsed} {ended_as:?}");
        server.serve("s 10");
    }
    assert_eq!(guards.counts(0).iter().map(|c| c.violations).collect::<Vec<_>>(), [1, 1, 1, 0]);
}

#[test]
fn a_unit_that_goes_on_is_told_again() {
    let Some(mut server) = Server::start() else { return };
    let learnt = learn(&mut server);
    let mut guards = server.guards_with(guarding(&server, &learnt, LIMIT), learnt.calls.clone());
    known(&mut server, &mut guards);
    server.comes_first();
    server.ask("t 2400000");
    // A while without a CPU is told apart, and may be told first.
    let slow = |v: &Violation| v.elapsed - v.ready > LIMIT;
    let mut told = Vec::new();
    while told.len() < 2 {
        let v = violation(&mut guards);
        if slow(&v) {
            told.push(v);
        }
    }
    server.answer();
    let [first, again] = told.as_slice() else { unreachable!() };
    assert_eq!((first.number, first.start), (again.number, again.start), "{first:?} {again:?}");
    assert!(again.elapsed >= first.elapsed * 8 && again.elapsed < 2_400 * MS, "{first:?} {again:?}");
    assert!(!again.user.is_empty(), "{again:?}");
    // It is one that took too long.
    server.serve("s 10");
    assert_eq!(guards.counts(0).iter().map(|c| c.violations).sum::<u64>(), 1);
}

/// Programs that compute on one CPU; ended when dropped.
struct Hogs(Vec<Child>);

impl Hogs {
    fn on_cpu_0(count: usize) -> Self {
        let hog = || Command::new("taskset").args(["-c", "0", "sh", "-c", "while :; do :; done"]).spawn();
        Self((0..count).filter_map(|_| hog().ok()).collect())
    }
}

impl Drop for Hogs {
    fn drop(&mut self) {
        for hog in &mut self.0 {
            let _ = hog.kill();
            let _ = hog.wait();
        }
    }
}

#[test]
fn time_without_a_cpu_is_told_apart() {
    let Some(mut server) = Server::start_alone() else { return };
    let pinned = Command::new("taskset").args(["-pc", "0", &server.child.id().to_string()]).output();
    if !pinned.is_ok_and(|o| o.status.success()) {
        println!("skipped: taskset cannot bind a process to CPU 0");
        return;
    }
    let learnt = learn(&mut server);
    let mut guards = server.guards_with(guarding(&server, &learnt, LIMIT), learnt.calls.clone());
    known(&mut server, &mut guards);
    let hogs = Hogs::on_cpu_0(3);
    assert_eq!(hogs.0.len(), 3);
    // A quarter of the time the CPU is its own: 75 ms of 300, 150 may be.
    server.serve("t 300000");
    let v = violation(&mut guards);
    assert!(v.is_starved() && v.ready > v.elapsed / 4, "{v:?}");
    server.serve("s 10");
    let count =
        |guards: &Guards| guards.counts(0).iter().fold((0, 0), |n, c| (n.0 + c.violations, n.1 + c.starved));
    comes_to(&mut guards, count, (1, 1));
    // One that goes on for so long with a CPU takes too long by itself, which is told as well, and counted once.
    server.ask("t 4000000");
    let mut found = vec![violation(&mut guards)];
    drop(hogs);
    if found[0].is_starved() {
        found.push(violation(&mut guards));
        assert!(!found[1].is_starved(), "{found:?}");
    }
    assert!(found.iter().all(|v| v.number == found[0].number), "{found:?}");
    server.answer();
    server.serve("s 10");
    comes_to(&mut guards, count, (2, 1));
}

#[test]
fn a_type_that_rings_on_is_told_less_and_less() {
    let Some(mut server) = Server::start() else { return };
    let learnt = learn(&mut server);
    let mut guards = server.guards_with(guarding(&server, &learnt, MS), learnt.calls.clone());
    known(&mut server, &mut guards);
    let (mut told, worst, begun) = (0, Cell::new(0), Instant::now());
    let tell = |guards: &mut Guards| {
        let violations = guards.poll(Duration::ZERO).into_iter().filter_map(|t| match t {
            Told::Violation(v) => Some(v.elapsed),
            _ => None,
        });
        violations.inspect(|ns| worst.set(worst.get().max(*ns))).count()
    };
    for _ in 0..200 {
        server.serve("f 3000");
        told += tell(&mut guards);
    }
    let took = begun.elapsed().as_secs_f64();
    let all = guards.counts(0)[2].violations;
    assert!(all >= 199, "{all} were counted of {:?}, {:?}", guards.counts(0), guards.notes());
    // At 0, 0.1, 0.3, 0.7, 1.5 s and so on: told again after twice the time.
    let most = (took / 0.1 + 1.0).log2().ceil() as usize + 1;
    // And those that are four times as long as all before.
    let most = most + (worst.get() / MS).max(1).ilog(4) as usize;
    assert!((2..=most).contains(&told), "{told} were told in {took} s");
    // What is far worse than all of these is told, asleep or not.
    for _ in 0..20 {
        server.serve("t 3000");
    }
    tell(&mut guards);
    for what in ["f", "t"] {
        // How long those before took on a busy machine is not known; the end is told of units that were told.
        let told = [20, 200, 2000].into_iter().any(|ms: u64| {
            server.serve(&format!("{what} {}", ms * 1000));
            let mut told = (0..10).flat_map(|_| guards.poll(Duration::from_millis(10)));
            told.any(|t| matches!(t, Told::Ended(e) if e.violated && e.elapsed > 10 * MS))
        });
        assert!(told, "{what}");
    }
}

#[test]
fn sleepers_are_counted_and_ring_as_others() {
    let Some(mut server) = Server::start() else { return };
    let of = GuardedLoop { thresholds: vec![MS], unknown: MS, ..GuardedLoop::default() };
    let mut guards = server.guards(Plan { loops: vec![of], period: 100 * MS, ..Plan::default() });
    known(&mut server, &mut guards);
    let before = guards.counts(0)[0].violations;
    let (mut told, mut all, mut ended) = (0, 0, 0);
    let asked = 40;
    for _ in 0..asked {
        server.ask("f 30000");
        let until = Instant::now() + Duration::from_millis(25);
        while Instant::now() < until {
            for t in guards.poll(Duration::from_millis(5)) {
                match t {
                    Told::Violation(v) => {
                        all += 1;
                        told += u32::from(v.seen == SeenBy::Asleep);
                    }
                    Told::Ended(e) if e.violated => ended += 1,
                    _ => {}
                }
            }
        }
        server.answer();
        // Let it come to its wait: without probes, turns without one are one unit.
        std::thread::sleep(Duration::from_millis(5));
    }
    let counted = guards.counts(0)[0].violations - before;
    // On a busy machine some may be one all the same.
    assert!((asked * 3 / 4..=asked).contains(&counted), "{counted} of {asked}");
    // 1.2 s: at 0, 0.1, 0.3, 0.7 s.
    assert!((1..=6).contains(&told), "{told}");
    assert!(ended <= all + 1, "{ended} ends of {all}");
}

#[test]
fn where_there_is_one_type_all_units_are_of_it() {
    let Some(mut server) = Server::start() else { return };
    let of = GuardedLoop { thresholds: vec![LIMIT], unknown: LIMIT, ..GuardedLoop::default() };
    let mut guards = server.guards(Plan { loops: vec![of], hz: 199, ..Plan::default() });
    assert_eq!(guards.costs(), (0, 0), "no probe is used");
    known(&mut server, &mut guards);
    server.ask(&format!("t {LONG}"));
    let v = violation(&mut guards);
    assert_eq!((v.of, v.threshold), (Some(0), LIMIT));
    server.answer();
    // It ends once the server is at its wait again, which it comes to when it gets a CPU.
    let end = Instant::now() + Duration::from_secs(5);
    while guards.counts(0)[0].units == 0 && Instant::now() < end {
        guards.poll(Duration::from_millis(10));
    }
    let counts = guards.counts(0);
    // Without probes, turns between which the server did not have to wait are one unit.
    assert!(counts[0].units >= 1 && counts[0].violations == 1 && counts[1].units == 0, "{counts:?}");
}

#[test]
fn nothing_is_left_behind() {
    let Some(mut server) = Server::start() else { return };
    let text = |s: &Server| code_of(s.child.id(), &s.exe);
    let before = text(&server);
    let guards = {
        let mut guards = server.guards(guarding(&server, &Learnt::default(), LIMIT));
        known(&mut server, &mut guards);
        guards
    };
    assert_ne!(text(&server), before, "probes are in the code");
    drop(guards);
    assert_eq!(text(&server), before, "and are taken out");
    server.serve("s 10");
}

/// The program's code as it is in memory.
fn code_of(pid: u32, exe: &Path) -> Vec<u8> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let line = maps.lines().find(|l| l.contains("r-xp") && l.ends_with(exe.to_str().unwrap())).unwrap();
    let (from, to) = line.split_whitespace().next().unwrap().split_once('-').unwrap();
    let (from, to) = (u64::from_str_radix(from, 16).unwrap(), u64::from_str_radix(to, 16).unwrap());
    let mut code = vec![0; (to - from) as usize];
    let memory = fs::File::open(format!("/proc/{pid}/mem")).unwrap();
    std::os::unix::fs::FileExt::read_exact_at(&memory, &mut code, from).unwrap();
    code
}
