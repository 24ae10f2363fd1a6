//! Loops of a Python function, by the indentation of its source: the interpreter's machine code shows its own loop only.

use crate::flow::LoopId;
use crate::flow::Way;
use crate::stacks::open_plain;
use std::io::Read;
use std::path::Path;

/// Largest source file read.
const MAX_SOURCE: u64 = 4 << 20;

/// A `while` or `for` statement: lines, counted from 1.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Statement {
    head: u32,
    /// Last line of its body.
    last: u32,
}

/// A function, or the outermost code of a file, with its loops.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct PythonFunction {
    first: u32,
    /// In order of their heads.
    loops: Vec<Statement>,
}

/// The lines of a source file.
pub(super) fn source(path: &Path) -> Option<Vec<String>> {
    let file = open_plain(path).filter(|_| path.is_absolute())?;
    let mut text = String::new();
    file.take(MAX_SOURCE).read_to_string(&mut text).ok()?;
    Some(text.lines().map(str::to_owned).collect())
}

fn indent(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

/// Says something: no comment, not empty.
fn says(line: &str) -> bool {
    !line.trim_start().is_empty() && !line.trim_start().starts_with('#')
}

fn line_at(source: &[String], line: u32) -> Option<&str> {
    source.get((line as usize).checked_sub(1)?).map(String::as_str)
}

fn begins(line: &str, words: &[&str]) -> bool {
    let text = line.trim_start();
    let text = text.strip_prefix("async").map_or(text, str::trim_start);
    words.iter().any(|w| {
        text.strip_prefix(w).is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_'))
    })
}

/// The line of the `def` around a line, 0 for code outside of functions.
pub(super) fn definition(source: &[String], line: u32) -> Option<u32> {
    let mut depth = indent(line_at(source, line)?);
    for at in (1..line).rev() {
        let text = line_at(source, at)?;
        if says(text) && indent(text) < depth {
            depth = indent(text);
            if begins(text, &["def"]) {
                return Some(at);
            }
        }
    }
    Some(0)
}

impl PythonFunction {
    /// The function whose `def` is at a line.
    pub fn read(source: &[String], first: u32) -> Option<Self> {
        let outer = line_at(source, first).map_or(-1, |l| indent(l) as i64);
        let end = |head: u32, depth: i64| {
            let after = (head + 1..=source.len() as u32)
                .find(|&l| line_at(source, l).is_some_and(|t| says(t) && indent(t) as i64 <= depth));
            after.map_or(source.len() as u32, |l| l - 1)
        };
        let last = end(first, outer);
        let mut loops = Vec::new();
        for at in first + 1..=last {
            let text = line_at(source, at)?;
            if begins(text, &["while", "for"]) && definition(source, at) == Some(first) {
                loops.push(Statement { head: at, last: end(at, indent(text) as i64).min(last) });
            }
        }
        Some(Self { first, loops })
    }

    /// The line of its `def`.
    pub fn first(&self) -> u32 {
        self.first
    }

    /// The loops around a line, the innermost first.
    pub fn around(&self, line: u64) -> Vec<LoopId> {
        let holds = |s: &Statement| (u64::from(s.head)..=u64::from(s.last)).contains(&line);
        (0..self.loops.len()).rev().filter(|&i| holds(&self.loops[i])).collect()
    }

    /// The line of a loop's statement.
    pub fn head(&self, id: LoopId) -> u64 {
        self.loops.get(id).map_or(0, |s| s.head.into())
    }

    /// How a thread got from one line to another.
    pub fn way(&self, from: u64, to: u64) -> Way {
        if from < to {
            return Way::On;
        }
        let there = self.around(to);
        match self.around(from).into_iter().find(|id| there.contains(id)) {
            Some(id) => Way::Around(id),
            None => Way::Not,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loops_by_indentation() {
        let text = "import x
class A:
    def run(self):
        self.begin()
        while True:
            self.once()

            for i in self.ready:
                i()
            if self.stopping:
# odd
                break
        forget()
    async def other(self):
        async for x in y: pass
while 1:
    go()
";
        let source: Vec<String> = text.lines().map(str::to_owned).collect();
        assert_eq!(definition(&source, 9), Some(3));
        assert_eq!(definition(&source, 17), Some(0));
        let run = PythonFunction::read(&source, 3).unwrap();
        let heads = |f: &PythonFunction, l| f.around(l).iter().map(|&i| f.head(i)).collect::<Vec<_>>();
        assert_eq!((heads(&run, 6), heads(&run, 9), heads(&run, 13)), (vec![5], vec![8, 5], vec![]));
        assert!(matches!(run.way(9, 6), Way::Around(_)));
        assert_eq!((run.way(4, 6), run.way(4, 4), run.way(13, 4)), (Way::On, Way::Not, Way::Not));
        assert_eq!(heads(&PythonFunction::read(&source, 14).unwrap(), 15), vec![15]);
        let module = PythonFunction::read(&source, 0).unwrap();
        assert_eq!((heads(&module, 17), heads(&module, 6)), (vec![16], vec![]));
    }
}
