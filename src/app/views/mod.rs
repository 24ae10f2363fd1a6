//! State and behaviour of each view; how they look is in `crate::ui`.

pub mod diagnosis;
pub mod notes;
pub mod path;
pub mod steps;
pub mod threads;
pub mod timeline;
pub mod vertex;
pub mod victims;
pub mod violations;

/// The first line to show so that line `selected` of `len` is among `height` lines shown, moving `offset`
/// no further than needed.
pub fn scrolled(offset: usize, selected: usize, len: usize, height: usize) -> usize {
    let height = height.max(1);
    let lowest = selected.saturating_sub(height - 1);
    offset.clamp(lowest, selected.max(lowest)).min(len.saturating_sub(height))
}

/// A movement in a list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Move {
    /// This many lines down (up when negative).
    By(isize),
    /// This many pages down.
    Page(isize),
    /// To the first line.
    First,
    /// To the last line.
    Last,
}

impl Move {
    /// Where a movement leads.
    pub fn from(self, at: usize, len: usize, page: usize) -> usize {
        let last = len.saturating_sub(1);
        let by = |n: isize| at.saturating_add_signed(n).min(last);
        match self {
            Self::By(n) => by(n),
            Self::Page(n) => by(n.saturating_mul(page.max(2) as isize - 1)),
            Self::First => 0,
            Self::Last => last,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scrolling_moves_no_further_than_needed() {
        assert_eq!(scrolled(0, 5, 100, 10), 0);
        assert_eq!(scrolled(0, 12, 100, 10), 3);
        assert_eq!(scrolled(50, 12, 100, 10), 12);
        assert_eq!(scrolled(99, 99, 100, 10), 90);
        assert_eq!(scrolled(7, 0, 0, 10), 0);
        assert_eq!(scrolled(7, 3, 4, 0), 3);
    }

    #[test]
    fn movements_stay_inside() {
        assert_eq!(Move::By(-3).from(1, 10, 5), 0);
        assert_eq!(Move::By(3).from(8, 10, 5), 9);
        assert_eq!(Move::Page(1).from(0, 10, 5), 4);
        assert_eq!(Move::Last.from(0, 0, 5), 0);
        assert_eq!(Move::First.from(5, 10, 5), 0);
    }
}
