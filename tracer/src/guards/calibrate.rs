//! What a probe costs the thread that comes by it, on this machine: measured on functions of our own.
#![allow(unsafe_code)] // Functions of which each instruction is known; gettid(2).

use super::layout::{FUNCTIONS, Unit};
use super::multi::Probe;
use super::program::Program;
use crate::clock::monotonic;
use std::path::Path;

/// Calls in a round, and rounds.
const CALLS: u64 = 500;
const ROUNDS: usize = 9;

// A push the kernel emulates; through the other it steps.
std::arch::global_asm!(
    ".pushsection .text",
    ".globl pg_tui_landmark_pushed",
    ".type pg_tui_landmark_pushed, @function",
    "pg_tui_landmark_pushed:",
    "push rbp",
    "pop rbp",
    "ret",
    ".globl pg_tui_landmark_stepped",
    ".type pg_tui_landmark_stepped, @function",
    "pg_tui_landmark_stepped:",
    "lea rax, [rdi + rdi]",
    "ret",
    ".popsection",
);

type Landmark = unsafe extern "C" fn();

unsafe extern "C" {
    fn pg_tui_landmark_pushed();
    fn pg_tui_landmark_stepped();
}

/// Nanoseconds of a probe at the entry of a function of a guarded thread.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Costs {
    /// At a push.
    pub hit: u64,
    /// At another instruction.
    pub step: u64,
}

/// The quickest of some rounds: others were interrupted.
fn call(landmark: Landmark) -> u64 {
    let round = || {
        let before = monotonic();
        for _ in 0..CALLS {
            // SAFETY: it changes no register but rax, which its caller does not expect to be kept.
            unsafe { landmark() };
        }
        monotonic().saturating_sub(before) / CALLS
    };
    (0..ROUNDS).map(|_| round()).min().unwrap_or(0)
}

/// Measure. `None` when that is not possible. Nothing else may be guarded yet.
pub fn costs(program: &mut Program) -> Option<Costs> {
    // This thread as one with a unit under way, which no threshold ends.
    // SAFETY: takes nothing, cannot fail.
    let tid = unsafe { libc::gettid() as u32 };
    let mut unit = Unit::new(tid, std::process::id(), 0, 0, 0);
    unit.running = 1;
    program.units.set(0, unit, 0).ok()?;
    program.slots.insert(tid, 0, 0).ok()?;
    let costs = (|| {
        let hit = cost(program, pg_tui_landmark_pushed)?;
        Some(Costs { hit, step: cost(program, pg_tui_landmark_stepped)? })
    })();
    let _ = program.slots.remove(&tid);
    costs
}

fn cost(program: &Program, landmark: Landmark) -> Option<u64> {
    let offset = offset_of_code(landmark as *const () as u64)?;
    let [_, on_context] = &**program.probes.as_ref()?;
    let bare = call(landmark);
    // No function of a plan: its calls are not counted.
    let probe = Probe { offset, cookie: FUNCTIONS as u64, semaphore: 0 };
    let _link = on_context.attach(Path::new("/proc/self/exe"), &[probe], Some(std::process::id())).ok()?;
    Some(call(landmark).saturating_sub(bare))
}

/// Where in our program's file the byte at an address of this process is.
fn offset_of_code(address: u64) -> Option<u64> {
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    maps.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        let (from, to) = words.next()?.split_once('-')?;
        let (from, to) = (u64::from_str_radix(from, 16).ok()?, u64::from_str_radix(to, 16).ok()?);
        let offset = u64::from_str_radix(words.nth(1)?, 16).ok()?;
        (from..to).contains(&address).then(|| address - from + offset)
    })
}
