//! What was seen of units that take too long for what they seem to be, until it is known whether they turn out to be of
//! another type.

use std::time::Instant;

/// A thread, and which of its units.
pub type Of = (u32, u32);

/// What waits, in the order in which it came.
pub struct Unsettled<T>(Vec<(Of, Instant, T)>);

impl<T> Default for Unsettled<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> Unsettled<T> {
    /// It waits until then at the longest.
    pub fn add(&mut self, of: Of, until: Instant, what: T) {
        self.0.push((of, until, what));
    }

    /// All of a unit, of which it is known now.
    pub fn take(&mut self, of: Of) -> Vec<T> {
        self.filter(|unit, _| unit == of)
    }

    /// What has waited for long enough.
    pub fn due(&mut self, now: Instant) -> Vec<T> {
        self.filter(|_, until| until <= now)
    }

    /// All.
    pub fn rest(&mut self) -> Vec<T> {
        self.filter(|_, _| true)
    }

    fn filter(&mut self, wanted: impl Fn(Of, Instant) -> bool) -> Vec<T> {
        self.0.extract_if(.., |(of, until, _)| wanted(*of, *until)).map(|w| w.2).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn each_is_told_once_when_it_is_settled() {
        let (now, mut all) = (Instant::now(), Unsettled::default());
        let after = |ms| now + Duration::from_millis(ms);
        for (of, ms, what) in [((1, 7), 50, "a"), ((2, 1), 20, "b"), ((1, 7), 60, "c"), ((1, 8), 90, "d")] {
            all.add(of, after(ms), what);
        }
        assert_eq!(all.due(after(19)), [""; 0]);
        assert_eq!(all.due(after(20)), ["b"]);
        // Another unit of the same thread goes on.
        assert_eq!(all.take((1, 7)), ["a", "c"]);
        assert_eq!((all.take((1, 7)), all.due(after(89))), (vec![], vec![]));
        all.add((3, 1), after(10), "e");
        assert_eq!((all.rest(), all.rest()), (vec!["d", "e"], vec![]));
    }
}
