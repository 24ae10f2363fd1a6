//! An interpreter made up in memory, for tests: sound ones, and such that are made to mislead.

use super::frames::read;
use super::layout::{CONTENT, Current, Entry, Layout, Lines, SIZE, STATE, TYPE};
use super::memory::Memory;
use super::{Function, Interpreter, Types};
use proptest::prelude::*;
use std::collections::HashMap;

/// Memory byte by byte.
#[derive(Clone, Default)]
struct Fake {
    bytes: HashMap<u64, u8>,
    next: u64,
}

impl Memory for Fake {
    fn read(&self, address: u64, buffer: &mut [u8]) -> Option<()> {
        for (i, b) in buffer.iter_mut().enumerate() {
            *b = *self.bytes.get(&address.checked_add(i as u64)?)?;
        }
        Some(())
    }
}

const TID: u32 = 4711;
const TYPES: Types = Types { code: 0x1000, text: 0x2000, bytes: 0x3000, frame: 0x4000 };
const RUNTIME: u64 = 0x10_0000;

impl Fake {
    fn alloc(&mut self, len: u64) -> u64 {
        let at = 0x20_0000 + self.next;
        self.next += (len + 64) & !7;
        for i in 0..len {
            self.bytes.insert(at + i, 0);
        }
        at
    }

    fn put(&mut self, at: u64, bytes: &[u8]) {
        self.bytes.extend(bytes.iter().enumerate().map(|(i, &b)| (at + i as u64, b)));
    }

    fn set(&mut self, at: u64, word: u64) {
        self.put(at, &word.to_le_bytes());
    }

    fn text(&mut self, l: &Layout, text: &str) -> u64 {
        let ascii = text.is_ascii();
        let kind = if ascii { 1 } else { 4 };
        let chars: Vec<u8> = if ascii {
            text.bytes().collect()
        } else {
            text.chars().flat_map(|c| u32::from(c).to_le_bytes()).collect()
        };
        let head = l.text_heads[usize::from(!ascii)];
        let at = self.alloc(head + chars.len() as u64 + 4);
        self.set(at + TYPE, TYPES.text);
        self.set(at + SIZE, text.chars().count() as u64);
        self.set(at + STATE, kind << 2 | 1 << 5 | u64::from(ascii) << 6);
        self.put(at + head, &chars);
        at
    }

    /// A function whose lines are: the first for four bytes, then the next.
    fn code(&mut self, l: &Layout, name: &str, first: u32) -> u64 {
        let table: &[u8] = match l.code.format {
            Lines::Deltas => &[4, 1],
            Lines::Ranges => &[4, 0, 100, 1],
            Lines::Locations => &[0x80 | 13 << 3 | 1, 0, 0x80 | 13 << 3 | 7, 2],
        };
        let (name, file) = (self.text(l, name), self.text(l, "/srv/app.py"));
        let lines = self.alloc(CONTENT + table.len() as u64);
        self.set(lines + TYPE, TYPES.bytes);
        self.set(lines + SIZE, table.len() as u64);
        self.put(lines + CONTENT, table);
        let at = self.alloc(256);
        self.set(at + TYPE, TYPES.code);
        self.set(at + SIZE, 20);
        self.set(at + l.code.name, name);
        self.set(at + l.code.filename, file);
        self.set(at + l.code.lines, lines);
        self.put(at + l.code.first_line, &first.to_le_bytes());
        if l.code.instructions.is_some() {
            self.put(at + l.code.first_traceable, &1u32.to_le_bytes());
        }
        at
    }

    /// A frame within a function at its byte `at`; `entry`: the first of its call.
    fn frame(&mut self, l: &Layout, code: u64, at: i32, previous: u64, entry: bool) -> u64 {
        let f = self.alloc(112);
        let mut previous = previous;
        match (l.frame.entry, entry) {
            (Entry::Each, _) => self.set(f + TYPE, TYPES.frame),
            (Entry::Flag(flag), entry) => self.put(f + flag, &[u8::from(entry)]),
            (Entry::Shim(owner), true) => {
                let shim = self.alloc(112);
                self.put(shim + l.frame.owner.unwrap(), &[owner]);
                self.set(shim + l.frame.previous, previous);
                previous = shim;
            }
            (Entry::Shim(_), false) => {}
        }
        self.set(f + l.frame.code, code);
        self.set(f + l.frame.previous, previous);
        if let Some(begin) = l.code.instructions {
            self.set(f + l.frame.instruction, (code + begin).wrapping_add_signed(at.into()));
        } else {
            let at = if l.code.format == Lines::Deltas { at } else { at / 2 };
            self.put(f + l.frame.instruction, &at.to_le_bytes());
        }
        f
    }

    /// A thread in a frame, before `next` in the list.
    fn thread(&mut self, l: &Layout, tid: u32, frame: u64, next: u64) -> u64 {
        let pthread = self.alloc(0x300);
        self.put(pthread + 0x2d0, &tid.to_le_bytes());
        let t = self.alloc(192);
        self.set(t + l.next_thread, next);
        self.set(t + l.pthread, pthread);
        if let Some(at) = l.native_id {
            self.set(t + at, tid.into());
        }
        match l.current {
            Current::At(at) => self.set(t + at, frame),
            Current::Through(at, then) => {
                let place = self.alloc(24);
                self.set(place + then, frame);
                self.set(t + at, place);
            }
        }
        t
    }

    fn interpreter(&mut self, l: &Layout, threads: u64) {
        let i = self.alloc(l.threads.max(l.next_interpreter) + 8);
        self.set(i + l.threads, threads);
        self.set(RUNTIME + l.interpreters, i);
    }
}

fn layouts() -> Vec<Layout> {
    (9..13).map(|m| Layout::of_version(m).unwrap()).collect()
}

fn interpreter(layout: Layout) -> Interpreter {
    Interpreter { layout, runtime: RUNTIME, types: TYPES }
}

/// `outer` calls `middle`, which has native code call `inner`; one more thread is elsewhere.
fn sound(l: &Layout) -> (Fake, [u64; 3]) {
    let mut m = Fake::default();
    let codes = [m.code(l, "inner", 10), m.code(l, "mittlere größe", 20), m.code(l, "outer", 30)];
    let outer = m.frame(l, codes[2], 8, 0, true);
    let middle = m.frame(l, codes[1], 4, outer, false);
    let inner = m.frame(l, codes[0], 2, middle, true);
    let other = m.thread(l, TID + 1, outer, 0);
    let own = m.thread(l, TID, inner, other);
    m.interpreter(l, own);
    (m, [inner, middle, outer])
}

fn names(calls: &[Vec<Function>]) -> Vec<Vec<String>> {
    calls.iter().map(|c| c.iter().map(|f| format!("{}:{}", f.name, f.line)).collect()).collect()
}

#[test]
fn frames_come_by_calls_of_the_loop() {
    for l in layouts() {
        let (m, _) = sound(&l);
        let got = names(&read(&m, &interpreter(l), TID).unwrap());
        if l.frame.entry == Entry::Each {
            assert_eq!(got, [["inner:10"], ["mittlere größe:21"], ["outer:31"]]);
        } else {
            assert_eq!(got, [vec!["inner:10"], vec!["mittlere größe:21", "outer:31"]]);
        }
        assert_eq!(names(&read(&m, &interpreter(l), TID + 1).unwrap()), [["outer:31"]]);
        assert_eq!(read(&m, &interpreter(l), TID + 2), None, "a thread that is not there");
    }
}

#[test]
fn a_function_that_is_being_called_is_left_out() {
    for l in layouts().into_iter().filter(|l| l.code.instructions.is_some()) {
        let (mut m, [inner, ..]) = sound(&l);
        let code = m.code(&l, "new", 1);
        let frame = m.frame(&l, code, -2, inner, false);
        let own = m.thread(&l, TID, frame, 0);
        m.interpreter(&l, own);
        assert_eq!(names(&read(&m, &interpreter(l), TID).unwrap())[0], ["inner:10"]);
    }
}

#[test]
fn what_is_amiss_is_no_stack() {
    for l in layouts() {
        let (good, [inner, middle, outer]) = sound(&l);
        let broken: [(&str, u64, u64); 6] = [
            ("a circle of frames", outer + l.frame.previous, inner),
            ("a frame outside of memory", middle + l.frame.previous, 0xdead_0000),
            ("a frame at an odd address", middle + l.frame.previous, outer + 1),
            ("code outside of memory", middle + l.frame.code, 0x8),
            ("code that is something else", middle + l.frame.code, inner),
            ("an instruction of other code", outer + l.frame.instruction, 0x7fff_ffff_ffff_0000),
        ];
        for (what, at, value) in broken {
            let mut m = good.clone();
            m.set(at, value);
            // An index past the table's end is only a line that is not known.
            if l.code.instructions.is_some() || !what.starts_with("an instruction") {
                assert_eq!(read(&m, &interpreter(l), TID), None, "{what} {l:?}");
            }
        }
    }
}

#[test]
fn a_circle_of_threads_ends() {
    for l in layouts() {
        let (mut m, [inner, ..]) = sound(&l);
        let t = m.thread(&l, TID + 7, inner, 0);
        m.set(t + l.next_thread, t);
        m.interpreter(&l, t);
        assert_eq!(read(&m, &interpreter(l), TID), None);
    }
}

#[test]
fn of_two_stacks_of_a_thread_none_is_chosen() {
    for l in layouts() {
        let (mut m, [inner, _, outer]) = sound(&l);
        let second = m.thread(&l, TID, outer, 0);
        let first = m.thread(&l, TID, inner, second);
        m.interpreter(&l, first);
        assert_eq!(read(&m, &interpreter(l), TID), None);
        // A state without frames is not in use.
        let idle = m.thread(&l, TID, 0, 0);
        let first = m.thread(&l, TID, inner, idle);
        m.interpreter(&l, first);
        assert!(read(&m, &interpreter(l), TID).is_some());
    }
}

#[test]
fn a_stack_is_read_to_a_depth() {
    for l in layouts() {
        let mut m = Fake::default();
        let code = m.code(&l, "down", 1);
        let mut frame = 0;
        for _ in 0..500 {
            frame = m.frame(&l, code, 4, frame, false);
        }
        let own = m.thread(&l, TID, frame, 0);
        m.interpreter(&l, own);
        assert_eq!(read(&m, &interpreter(l), TID).unwrap().concat().len(), 128);
    }
}

proptest! {
    /// Whatever is changed: it ends, within bounds, and without a panic.
    #[test]
    fn any_memory(version in 0usize..4, changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..60)) {
        let l = layouts()[version];
        let (mut m, _) = sound(&l);
        let mut places: Vec<u64> = m.bytes.keys().copied().collect();
        places.sort_unstable();
        for (i, b) in changes {
            m.bytes.insert(*i.get(&places), b);
        }
        if let Some(calls) = read(&m, &interpreter(l), TID) {
            prop_assert!(calls.concat().len() <= 128);
            prop_assert!(calls.concat().iter().all(|f| f.name.len() <= 4096 && !f.name.chars().any(char::is_control)));
        }
    }
}
