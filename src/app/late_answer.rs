//! What a terminal answers too late. It is asked for its background ([`crate::config::Environment`]) and not waited for long; over a
//! slow line the answer (`ESC ] 11 ; rgb:…`, xterm's control sequences, OSC 11) comes later, and would be taken for keys.

use crossterm::event::{Event, KeyCode, KeyEvent, KeyModifiers};
use std::time::{Duration, Instant};

/// What comes later than this is no answer any more.
const LATEST: Duration = Duration::from_secs(10);
/// The longest answer, keys: `11;rgba:ffff/ffff/ffff/ffff`.
const LONGEST: usize = 32;

/// Tells the keys of an answer from those of a person.
#[derive(Debug)]
pub struct LateAnswer {
    asked: Instant,
    /// How many keys of an answer came, once it has begun.
    taken: Option<usize>,
}

impl LateAnswer {
    /// The terminal was asked at this time.
    pub fn new(asked: Instant) -> Self {
        Self { asked, taken: None }
    }

    /// Is it a part of an answer, at this time?
    pub fn is(&mut self, event: &Event, now: Instant) -> bool {
        let Event::Key(KeyEvent { code: KeyCode::Char(c), modifiers, .. }) = *event else {
            self.taken = None;
            return false;
        };
        let alt = modifiers == KeyModifiers::ALT;
        let Some(taken) = self.taken else {
            let begins = alt && c == ']' && now.saturating_duration_since(self.asked) < LATEST;
            self.taken = begins.then_some(0);
            return begins;
        };
        let ends = alt && c == '\\' || modifiers == KeyModifiers::CONTROL && c == 'g';
        let within =
            modifiers.is_empty() && (c.is_ascii_hexdigit() || ";:/rg".contains(c)) && taken < LONGEST;
        self.taken = within.then_some(taken + 1);
        within || ends
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(c: char, modifiers: KeyModifiers) -> Event {
        Event::Key(KeyEvent::new(KeyCode::Char(c), modifiers))
    }

    fn left(keys: impl IntoIterator<Item = Event>, after: Duration) -> usize {
        let asked = Instant::now();
        let mut answer = LateAnswer::new(asked);
        keys.into_iter().filter(|k| !answer.is(k, asked + after)).count()
    }

    #[test]
    fn an_answer_is_no_keys_and_keys_are_no_answer() {
        let soon = Duration::from_millis(700);
        let plain = |text: &str| text.chars().map(|c| key(c, KeyModifiers::NONE)).collect::<Vec<_>>();
        let answer = |end: Event| {
            let begin = key(']', KeyModifiers::ALT);
            [vec![begin], plain("11;rgb:ffff/fafa/0000"), vec![end], plain("jq")].concat()
        };
        assert_eq!(left(answer(key('\\', KeyModifiers::ALT)), soon), 2);
        assert_eq!(left(answer(key('g', KeyModifiers::CONTROL)), soon), 2);
        assert_eq!(left(answer(key('g', KeyModifiers::CONTROL)), Duration::from_secs(60)), 25);
        assert_eq!(left(plain("gbj11"), soon), 5);
        // A person who presses that one and goes on.
        assert_eq!(left([vec![key(']', KeyModifiers::ALT)], plain("q")].concat(), soon), 1);
        assert_eq!(left([vec![key(']', KeyModifiers::ALT)], plain(&"1".repeat(60))].concat(), soon), 28);
    }
}
