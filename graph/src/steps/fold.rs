//! Folds what is repeated: a list of nodes in which no part of up to [`LONGEST`] nodes follows itself.

use super::{Node, What};

/// Most nodes of a loop's body.
const LONGEST: usize = 24;

/// Shape of a list, and of what has one.
pub(super) fn shape(kind: u64, parts: impl IntoIterator<Item = u64>) -> u64 {
    // FNV-1a over whole numbers.
    parts
        .into_iter()
        .fold(0xcbf2_9ce4_8422_2325 ^ kind, |h, p| (h ^ p).wrapping_mul(0x0100_0000_01b3).rotate_left(23))
}

fn same(a: &[Node], b: &[Node]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.shape == b.shape)
}

/// Append a node, and fold what is now repeated.
pub(super) fn push(list: &mut Vec<Node>, node: Node) {
    list.push(node);
    while again(list) || pair(list) {}
}

/// Is the end of the list another turn of the loop before it?
fn again(list: &mut Vec<Node>) -> bool {
    for n in 1..=LONGEST.min(list.len().saturating_sub(1)) {
        let (before, body) = list.split_at(list.len() - n);
        let Some(l) = before.last().filter(|l| matches!(l.what, What::Loop { .. })) else { continue };
        if same(&l.children, body) {
            let body = list.split_off(list.len() - n);
            if let Some(l) = list.last_mut() {
                turn(l, body);
            }
            return true;
        }
    }
    false
}

/// One more turn of a loop that is being gone round.
fn turn(l: &mut Node, body: Vec<Node>) {
    if let What::Loop { least, most } = &mut l.what {
        *least = least.saturating_add(1);
        *most = most.saturating_add(1);
    }
    for (into, from) in l.children.iter_mut().zip(body) {
        l.end = from.end;
        l.steps += from.steps;
        merge(into, from);
    }
}

/// Is the end of the list twice the same?
fn pair(list: &mut Vec<Node>) -> bool {
    for n in 1..=LONGEST.min(list.len() / 2) {
        let len = list.len();
        if !same(&list[len - 2 * n..len - n], &list[len - n..]) {
            continue;
        }
        let second = list.split_off(len - n);
        let first = list.split_off(len - 2 * n);
        // A loop whose body is a loop would be that loop, entered twice: one that goes on.
        let mut l = looped(first, 1);
        turn(&mut l, second);
        list.push(l);
        return true;
    }
    false
}

/// A loop with this body, gone round so often (the nodes of the body tell all turns).
pub(super) fn looped(body: Vec<Node>, turns: u32) -> Node {
    // Gone round once, a loop of one part is that part.
    let shape = match &body[..] {
        [one] => one.shape,
        all => shape(1, all.iter().map(|n| n.shape)),
    };
    Node {
        what: What::Loop { least: turns, most: turns },
        first: body.first().map_or(0, |n| n.first),
        end: body.last().map_or(0, |n| n.end),
        steps: body.iter().map(|n| n.steps).sum(),
        times: 1,
        children: body,
        shape,
    }
}

/// Another execution of the same.
pub(super) fn merge(into: &mut Node, mut from: Node) {
    let (a, b) = (matches!(into.what, What::Loop { .. }), matches!(from.what, What::Loop { .. }));
    if a != b {
        // A loop of one part, gone round once: it was not seen to be one.
        if a {
            from = looped(vec![from], 1);
        } else {
            let one = std::mem::replace(into, Node { children: Vec::new(), ..from.clone() });
            *into = looped(vec![one], 1);
        }
    }
    into.times += from.times;
    into.steps += from.steps;
    match (&mut into.what, from.what) {
        (What::Loop { least, most }, What::Loop { least: l, most: m }) => {
            *least = (*least).min(l);
            *most = (*most).max(m);
        }
        (What::Syscall { result, .. }, What::Syscall { result: other, .. }) if *result != other => {
            *result = None;
        }
        (What::Call { returned, .. }, What::Call { returned: other, .. }) if *returned != other => {
            *returned = None;
        }
        _ => {}
    }
    for (into, from) in into.children.iter_mut().zip(from.children) {
        merge(into, from);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One node for each letter; what it looks like folded: `(ab)x3`.
    fn folded(text: &str) -> String {
        let mut list = Vec::new();
        for (i, c) in text.bytes().enumerate() {
            let node = Node {
                what: What::Code { block: u32::from(c) },
                first: i as u32,
                end: i as u32 + 1,
                steps: 1,
                times: 1,
                children: Vec::new(),
                shape: shape(0, [u64::from(c)]),
            };
            push(&mut list, node);
        }
        let steps: u64 = list.iter().map(|n| n.steps).sum();
        assert_eq!(steps, text.len() as u64, "nothing is lost: {list:#?}");
        show(&list)
    }

    fn show(list: &[Node]) -> String {
        let one = |n: &Node| match n.what {
            What::Code { block } => char::from(block as u8).to_string(),
            What::Loop { least, most } if least == most => format!("({})x{least}", show(&n.children)),
            What::Loop { least, most } => format!("({})x{least}-{most}", show(&n.children)),
            _ => "?".into(),
        };
        list.iter().map(one).collect()
    }

    #[test]
    fn drawn_loops() {
        for (text, drawn) in [
            ("", ""),
            ("abc", "abc"),
            ("aaaa", "(a)x4"),
            ("abababa", "(ab)x3a"),
            ("xabcabcabcy", "x(abc)x3y"),
            // A loop within a loop, also when it goes round more or less often.
            ("aabaabaab", "((a)x2b)x3"),
            ("aabaaabab", "((a)x1-3b)x3"),
            ("abaabaaab", "((a)x1-3b)x3"),
            // Two loops after each other.
            ("aaabbb", "(a)x3(b)x3"),
        ] {
            assert_eq!(folded(text), drawn, "{text}");
        }
    }

    #[test]
    fn a_merged_loop_counts_all_turns() {
        let mut list = Vec::new();
        for c in "aabaaab".bytes() {
            let shape = shape(0, [u64::from(c)]);
            let what = What::Code { block: u32::from(c) };
            push(&mut list, Node { what, first: 0, end: 1, steps: 3, times: 1, children: Vec::new(), shape });
        }
        let inner = &list[0].children[0];
        assert_eq!((inner.times, inner.children[0].times, inner.children[0].steps), (2, 5, 15));
        assert_eq!(inner.what, What::Loop { least: 2, most: 3 });
    }

    #[test]
    fn long_lists_fold_fast() {
        // No repetition at all: each push looks back a bounded way only.
        let mut list = Vec::new();
        for i in 0..50_000u32 {
            let what = What::Code { block: i };
            let shape = shape(0, [u64::from(i)]);
            push(
                &mut list,
                Node { what, first: i, end: i + 1, steps: 1, times: 1, children: Vec::new(), shape },
            );
        }
        assert_eq!(list.len(), 50_000);
    }
}
