//! Where one has been: back and forward, as in a browser.

/// A path of places with a position in it.
#[derive(Clone, Debug)]
pub struct History<P> {
    past: Vec<P>,
    future: Vec<P>,
}

/// How far back one can go.
const DEPTH: usize = 200;

impl<P: PartialEq> History<P> {
    /// Nowhere been yet.
    pub fn new() -> Self {
        Self { past: Vec::new(), future: Vec::new() }
    }

    /// Leaves a place for a new one.
    pub fn leave(&mut self, place: P) {
        self.future.clear();
        if self.past.last() != Some(&place) {
            self.past.push(place);
        }
        if self.past.len() > DEPTH {
            self.past.remove(0);
        }
    }

    /// The place before; `here` becomes the one to go forward to. Places that are not `there` any more are forgotten.
    pub fn back(&mut self, here: P, there: impl Fn(&P) -> bool) -> Option<P> {
        Self::step(&mut self.past, &mut self.future, here, there)
    }

    /// The place after.
    pub fn forward(&mut self, here: P, there: impl Fn(&P) -> bool) -> Option<P> {
        Self::step(&mut self.future, &mut self.past, here, there)
    }

    fn step(from: &mut Vec<P>, to: &mut Vec<P>, here: P, there: impl Fn(&P) -> bool) -> Option<P> {
        loop {
            let place = from.pop()?;
            if place != here && there(&place) {
                if there(&here) {
                    to.push(here);
                }
                return Some(place);
            }
        }
    }
}

impl<P: PartialEq> Default for History<P> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn back_and_forward() {
        let all = |_: &i32| true;
        let mut h = History::new();
        h.leave(1);
        h.leave(2);
        assert_eq!(h.back(3, all), Some(2));
        assert_eq!(h.back(2, all), Some(1));
        assert_eq!(h.back(1, all), None);
        assert_eq!(h.forward(1, all), Some(2));
        assert_eq!(h.forward(2, all), Some(3));
        assert_eq!(h.forward(3, all), None);
        h.leave(3);
        assert_eq!(h.back(9, all), Some(3));
        h.leave(3);
        assert_eq!(h.forward(4, all), None, "a new way forgets the old one");
    }

    #[test]
    fn what_is_not_there_any_more_is_passed_over() {
        let mut h = History::new();
        h.leave(1);
        h.leave(2);
        h.leave(3);
        assert_eq!(h.back(2, |p| *p != 3 && *p != 2), Some(1));
        assert_eq!(h.forward(1, |_| true), None, "nor is it come back to");
    }
}
