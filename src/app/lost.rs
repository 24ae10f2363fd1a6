//! What the recorder could not keep: how much of what, and when.

use super::recording::Recording;
use super::time;

/// Most spans that are told one by one; the longest ones.
const SPANS: usize = 8;

/// Lost things of each kind, those of which there are any: `12 events`, `1 stack`.
pub fn kinds(r: &Recording) -> Vec<String> {
    let loss = r.coverage.loss;
    [(loss.events, "event"), (loss.stacks, "stack"), (loss.samples, "sample")]
        .into_iter()
        .filter(|(n, _)| *n > 0)
        .map(|(n, of)| format!("{} {of}{}", time::count(n), if n == 1 { "" } else { "s" }))
        .collect()
}

/// What was lost in sentences, for the log; none where nothing was.
pub fn sentences(r: &Recording) -> Vec<String> {
    let loss = r.coverage.loss;
    let kinds = kinds(r);
    let mut told = Vec::new();
    if let Some((last, others)) = kinds.split_last() {
        let all = if others.is_empty() { last.clone() } else { format!("{} and {last}", others.join(", ")) };
        let within =
            if loss.ns == 0 { String::new() } else { format!(", within {} in all", time::length(loss.ns)) };
        let means = match (loss.events, loss.stacks) {
            (0, 0) => "; no event is missing",
            (0, _) => "; no event is missing, but some waits do not tell where in the program",
            _ => "",
        };
        told.push(format!("{all}{within}{means}"));
    }
    let mut spans = r.graph.lost().to_vec();
    let all = spans.len();
    if all > 0 {
        spans.sort_by_key(|(from, to)| std::cmp::Reverse(to.saturating_sub(*from)));
        spans.truncate(SPANS);
        spans.sort_unstable();
        let text = |&(from, to): &(u64, u64)| {
            format!("{} ({})", time::at(from), time::length(to.saturating_sub(from)))
        };
        let list: Vec<String> = spans.iter().map(text).collect();
        let more = match all - spans.len() {
            0 => String::new(),
            n => format!(", and {n} shorter ones"),
        };
        told.push(format!("what happened then is not known whole: {}{more}", list.join(", ")));
    }
    told
}
