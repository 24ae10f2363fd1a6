//! What of the hand-overs a person should know, in words.

use super::Pair;
use crate::words::span;
use pg_event::Ns;

/// Of the time from handed on to done, so much before it was taken makes that the cause.
const MOSTLY: f64 = 0.5;
/// And so much is worth a word.
const PARTLY: f64 = 0.1;
/// Waits shorter than this are what a wake-up takes on a busy machine, ns.
const WAKE_UP: Ns = 1_000_000;

/// Fewer hand-overs than this say little.
const FEW: usize = 20;

/// Whether the work is slow since it waits for a free worker, and what the workers do meanwhile.
pub fn pair_words(p: &Pair) -> String {
    let share = p.share_queued();
    let (mean, max, service) = (span(p.queued.mean), span(p.queued.max), span(p.service.mean));
    let of_queued = |part: Ns| part as f64 / p.queued.sum.max(1) as f64;
    let workers = match p.workers {
        1 => "the only worker".to_owned(),
        n => format!("all {n} workers"),
    };
    let were = if p.workers == 1 { "was" } else { "were" };
    let queues = p.queued.mean >= WAKE_UP && share >= PARTLY;
    let taken = match () {
        () if !queues => format!("work is taken at once: after {mean} on average"),
        () if share >= MOSTLY => format!(
            "slow since work waits {mean} on average (up to {max}) before a worker takes it, not since it takes long \
             ({service})"
        ),
        () => format!(
            "work waits {mean} on average (up to {max}) before a worker takes it, and takes {service}"
        ),
    };
    let busy = queues && of_queued(p.all_busy) >= MOSTLY;
    let why = match () {
        () if busy => {
            format!(": {workers} {were} busy in {:.0} % of that time", of_queued(p.all_busy) * 100.0)
        }
        () if queues && of_queued(p.runnable) >= MOSTLY => {
            format!(": the worker had no CPU in {:.0} % of that time", of_queued(p.runnable) * 100.0)
        }
        () => String::new(),
    };
    let (times, held) = p.held_up;
    let held_up = held / (p.count.max(1) as u64) >= WAKE_UP;
    let outside = match () {
        () if held_up => format!(
            "; but who hands on waited {times} times until a worker was free, {} in all, and what came meanwhile \
             waited outside",
            span(held)
        ),
        () if p.saturated >= MOSTLY && !queues => format!(
            "; but {workers} {were} busy in {:.0} % of the time, and what came then waited outside",
            p.saturated * 100.0
        ),
        () => String::new(),
    };
    let meanwhile = if held_up || busy { doing(p) } else { String::new() };
    let few = if p.count < FEW { format!("only {} seen: ", p.count) } else { String::new() };
    format!("{few}{taken}{why}{outside}{meanwhile}")
}

/// What the workers did meanwhile.
fn doing(p: &Pair) -> String {
    let all: Ns = p.meanwhile.iter().map(|d| d.time).sum();
    let Some(most) = p.meanwhile.first().filter(|_| all > 0) else { return String::new() };
    let share = most.time as f64 / all as f64 * 100.0;
    let what = match (most.what, most.function.as_str()) {
        ("running", _) => "computed".to_owned(),
        ("runnable", _) => "wanted a CPU".into(),
        (what, "") => format!("waited ({what})"),
        (what, function) => format!("waited ({what}) in {function}"),
    };
    format!("; meanwhile the workers {what} for {share:.0} % of the time")
}
