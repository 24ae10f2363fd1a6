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

    /// The place before; `here` becomes the one to go forward to.
    pub fn back(&mut self, here: P) -> Option<P> {
        loop {
            let place = self.past.pop()?;
            if place != here {
                self.future.push(here);
                return Some(place);
            }
        }
    }

    /// The place after.
    pub fn forward(&mut self, here: P) -> Option<P> {
        loop {
            let place = self.future.pop()?;
            if place != here {
                self.past.push(here);
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
        let mut h = History::new();
        h.leave(1);
        h.leave(2);
        assert_eq!(h.back(3), Some(2));
        assert_eq!(h.back(2), Some(1));
        assert_eq!(h.back(1), None);
        assert_eq!(h.forward(1), Some(2));
        assert_eq!(h.forward(2), Some(3));
        assert_eq!(h.forward(3), None);
        h.leave(3);
        assert_eq!(h.back(9), Some(3));
        h.leave(3);
        assert_eq!(h.forward(4), None, "a new way forgets the old one");
    }
}
