//! Records as the BPF programs send them (`tracer/bpf/records.h`), of two kinds of work.

/// A stream of records with the time of each.
pub struct Stream {
    pub bytes: Vec<u8>,
    pub ends: Vec<usize>,
    pub times: Vec<u64>,
}

impl Stream {
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], u64)> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).zip(&self.times).map(|((a, &b), &t)| (&self.bytes[a..b], t))
    }

    fn push(&mut self, record: &[u8], time: u64) {
        self.bytes.extend_from_slice(record);
        self.ends.push(self.bytes.len());
        self.times.push(time);
    }
}

/// Numbers above any that Linux gives out: nothing is found in `/proc`.
const FIRST: u32 = 5_000_000;
const READ: u16 = 0;
const WRITE: u16 = 1;
const PIPE: u8 = 2;
/// Size of `struct rec_off`, of `struct rec_again`, and of the head of a stack copy.
const OFF: usize = 128;
const AGAIN: usize = 32;
const STACK_HEAD: usize = 208;

fn put(to: &mut [u8], at: usize, bytes: &[u8]) {
    to[at..at + bytes.len()].copy_from_slice(bytes);
}

struct Wait {
    tid: u32,
    cpu: u16,
    start: u64,
    woken: u64,
    time: u64,
    object: u64,
    stack: u64,
    waker: u32,
}

fn off(w: &Wait) -> [u8; OFF] {
    let mut r = [0; OFF];
    put(&mut r, 0, &[1, 1, 1, 0]);
    put(&mut r, 4, &w.tid.to_le_bytes());
    for (at, n) in [(8, w.time), (16, w.start), (24, w.woken), (64, u64::MAX), (72, w.object), (80, w.object)]
    {
        put(&mut r, at, &n.to_le_bytes());
    }
    put(&mut r, 32, &w.tid.to_le_bytes());
    put(&mut r, 36, &w.waker.to_le_bytes());
    put(&mut r, 40, &w.waker.to_le_bytes());
    put(&mut r, 44, &READ.to_le_bytes());
    put(&mut r, 46, &WRITE.to_le_bytes());
    put(&mut r, 48, &w.cpu.to_le_bytes());
    put(&mut r, 50, &[PIPE, PIPE]);
    put(&mut r, 88, &w.object.to_le_bytes());
    put(&mut r, 96, &w.object.to_le_bytes());
    put(&mut r, 104, &w.stack.to_le_bytes());
    r
}

/// As most travel: like the last one of the thread.
fn again(w: &Wait) -> [u8; AGAIN] {
    let mut r = [0; AGAIN];
    r[0] = 15;
    put(&mut r, 2, &w.cpu.to_le_bytes());
    put(&mut r, 4, &w.tid.to_le_bytes());
    put(&mut r, 8, &w.time.to_le_bytes());
    put(&mut r, 16, &((w.time - w.start) as u32).to_le_bytes());
    put(&mut r, 20, &((w.time - w.woken) as u32).to_le_bytes());
    r
}

fn stack(tid: u32, key: u64, time: u64) -> Vec<u8> {
    let mut r = vec![0; STACK_HEAD + 64];
    r[0] = 11;
    put(&mut r, 4, &tid.to_le_bytes());
    put(&mut r, 8, &time.to_le_bytes());
    put(&mut r, 16, &tid.to_le_bytes());
    put(&mut r, 20, &64u32.to_le_bytes());
    put(&mut r, 24, &key.to_le_bytes());
    // Instruction and stack pointer.
    put(&mut r, 40 + 16 * 8, &(0x40_0000 + key % 4096).to_le_bytes());
    put(&mut r, 40 + 19 * 8, &0x7fff_0000_0000u64.to_le_bytes());
    r
}

/// Numbers that repeat: xorshift.
struct Chance(u64);

impl Chance {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}

fn empty() -> Stream {
    Stream { bytes: Vec::new(), ends: Vec::new(), times: Vec::new() }
}

/// Two threads that answer each other on one CPU, as `perf bench sched pipe` does.
pub fn pipe(turns: u64) -> Stream {
    let mut out = empty();
    let mut chance = Chance(7);
    let mut time = 1_000_000;
    let mut left = [time; 2];
    for n in 0..2u32 {
        out.push(&stack(FIRST + n, 0x1001 + u64::from(n), time), time);
    }
    for turn in 0..turns {
        let me = (turn % 2) as usize;
        let woken = time + 900 + chance.below(300);
        time = woken + 1200 + chance.below(400);
        let w = Wait {
            tid: FIRST + me as u32,
            cpu: 0,
            start: left[me],
            woken,
            time,
            object: 100 + me as u64,
            stack: 0x1001 + me as u64,
            waker: FIRST + 1 - me as u32,
        };
        if turn < 2 {
            out.push(&off(&w), time);
        } else {
            out.push(&again(&w), time);
        }
        left[1 - me] = time;
    }
    out
}

/// 200 threads on two CPUs that wait for each other by chance, as `perf bench sched messaging` has them.
pub fn messaging(events: u64) -> Stream {
    const THREADS: u64 = 200;
    let mut out = empty();
    let mut chance = Chance(11);
    let mut time = 1_000_000;
    let mut left = [time; THREADS as usize];
    for n in 0..THREADS {
        for k in 0..4 {
            out.push(&stack(FIRST + n as u32, (n * 4 + k) << 8 | 1, time), time);
        }
    }
    for _ in 0..events {
        let me = chance.below(THREADS) as usize;
        time += 2000 + chance.below(3000);
        let start = left[me];
        let woken = start + chance.below(time - start);
        let w = Wait {
            tid: FIRST + me as u32,
            cpu: chance.below(2) as u16,
            start,
            woken,
            time,
            object: 100 + chance.below(100),
            stack: (me as u64 * 4 + chance.below(4)) << 8 | 1,
            waker: FIRST + chance.below(THREADS) as u32,
        };
        out.push(&off(&w), time);
        left[me] = time + 1000;
    }
    out
}
