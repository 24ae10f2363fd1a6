//! The answers file of `diagnose --answers`.
//!
//! Plain text, one answer a line, `#` begins a comment. Two forms, which may be mixed:
//!
//! ```text
//! edge = 2          # the next question of kind edge (edge, baseline, data-flag): take option 2
//! 3: 0              # question 3 (counted from 1 in the order asked): stop here
//! ```
//!
//! An answer counts from 1; 0 means "stop here"; `recommended` takes the recommendation. A line by number
//! wins over one by kind. Questions that no line answers are answered by the policy.

use crate::{Question, QuestionKind};

/// One line of an answers file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AnswerLine {
    /// Which question.
    pub which: Which,
    /// From 1, 0 = stop here, `None` = the recommended one.
    pub answer: Option<usize>,
}

/// Which question an [`AnswerLine`] answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Which {
    /// The question with this number, from 1.
    Number(usize),
    /// The next question of this kind.
    Next(QuestionKind),
}

/// A line that cannot be read.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "answers file, line {line}: {what} (a line reads `edge = 2`, `baseline = 1`, `data-flag = 0` or `3: 2`)"
)]
pub struct AnswersError {
    /// From 1.
    pub line: usize,
    /// What is wrong.
    pub what: String,
}

/// Read an answers file.
pub fn parse_answers(text: &str) -> Result<Vec<AnswerLine>, AnswersError> {
    let mut out = Vec::new();
    for (i, raw) in text.lines().enumerate() {
        let line = raw.split('#').next().unwrap_or("").trim();
        if line.is_empty() {
            continue;
        }
        let bad = |what: String| AnswersError { line: i + 1, what };
        let Some((left, right)) = line.split_once(['=', ':']) else {
            return Err(bad("neither `=` nor `:`".into()));
        };
        let (left, right) = (left.trim(), right.trim());
        let which = match left {
            "edge" => Which::Next(QuestionKind::Edge),
            "baseline" => Which::Next(QuestionKind::Baseline),
            "data-flag" => Which::Next(QuestionKind::DataFlag),
            n => match n.parse() {
                Ok(0) => return Err(bad("questions count from 1".into())),
                Ok(n) => Which::Number(n),
                Err(_) => return Err(bad(format!("no question is called {:?}", crate::words::clean(n, 20)))),
            },
        };
        let answer = match right {
            "recommended" => None,
            n => Some(n.parse().map_err(|_| bad(format!("{:?} is no answer", crate::words::clean(n, 20))))?),
        };
        out.push(AnswerLine { which, answer });
    }
    Ok(out)
}

/// Take the line that answers `question` out of `lines`. `Some(None)`: the recommendation is wanted.
pub fn take_answer(lines: &mut Vec<AnswerLine>, question: &Question) -> Option<Option<usize>> {
    let by_number = lines.iter().position(|l| l.which == Which::Number(question.number));
    let at = by_number.or_else(|| lines.iter().position(|l| l.which == Which::Next(question.key.kind)))?;
    Some(lines.remove(at).answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_both_forms() {
        let v = parse_answers("# mine\nedge = 2\n\n3: 0 # stop\nbaseline=recommended\n").unwrap();
        assert_eq!(v.len(), 3);
        assert_eq!(v[0], AnswerLine { which: Which::Next(QuestionKind::Edge), answer: Some(2) });
        assert_eq!(v[1], AnswerLine { which: Which::Number(3), answer: Some(0) });
        assert_eq!(v[2].answer, None);
    }

    #[test]
    fn names_the_bad_line() {
        assert_eq!(parse_answers("edge = 1\nfoo = 2").unwrap_err().line, 2);
        assert_eq!(parse_answers("edge = many").unwrap_err().line, 1);
        assert_eq!(parse_answers("0: 1").unwrap_err().line, 1);
        assert_eq!(parse_answers("edge").unwrap_err().line, 1);
    }
}
