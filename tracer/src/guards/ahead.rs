//! Whether the programs on messages are needed (`bpf/served.h`): every message of the whole machine comes by them, and many
//! programs never look for another request of a connection before they wait.

/// Units of a loop that show whether it does so, and units that answered somebody.
const ENOUGH: u64 = 1000;

/// What was counted of one loop: units that ended; those that answered who had connected; not 0 once one of them looked for
/// more from the same connection.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Served {
    pub units: u64,
    pub answered: u64,
    pub ahead: u64,
}

/// A state machine without I/O.
#[derive(Debug)]
pub struct Ahead {
    /// The programs are attached.
    heard: bool,
    /// Of each loop: its units when it was looked last, and those that ended while messages were heard.
    units: Vec<(u64, u64)>,
}

impl Ahead {
    /// They are attached.
    pub fn new(loops: usize) -> Self {
        Self { heard: true, units: vec![(0, 0); loops] }
    }

    /// So much was counted by now. Whether they are to be attached from now on, where that changes.
    ///
    /// A loop that served nobody may begin to, so nothing is concluded before some were served. One that had no units until
    /// now is new.
    pub fn look(&mut self, loops: &[Served]) -> Option<bool> {
        for ((last, heard), of) in self.units.iter_mut().zip(loops) {
            *heard += if self.heard { of.units.saturating_sub(*last) } else { 0 };
            *last = of.units;
        }
        let new = |&(last, heard): &(u64, u64)| last > 0 && heard < ENOUGH;
        let answered: u64 = loops.iter().map(|l| l.answered).sum();
        let wanted = loops.iter().any(|l| l.ahead > 0) || self.units.iter().any(new) || answered < ENOUGH;
        (wanted != std::mem::replace(&mut self.heard, wanted)).then_some(wanted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUIET: Served = Served { units: ENOUGH, answered: ENOUGH, ahead: 0 };

    #[test]
    fn who_answers_and_never_looks_for_more_is_not_listened_to() {
        let mut ahead = Ahead::new(1);
        assert_eq!(ahead.look(&[Served::default()]), None);
        assert_eq!(ahead.look(&[Served { units: 900_000, answered: ENOUGH - 1, ahead: 0 }]), None);
        assert_eq!(ahead.look(&[Served { units: 900_001, ..QUIET }]), Some(false));
        assert_eq!(ahead.look(&[Served { units: 900_002, ..QUIET }]), None);
        let mut ahead = Ahead::new(1);
        assert_eq!(ahead.look(&[Served { ahead: 1, ..QUIET }]), None);
    }

    #[test]
    fn who_serves_nobody_may_begin_to() {
        let mut ahead = Ahead::new(1);
        assert_eq!(ahead.look(&[Served { units: 1 << 40, answered: 0, ahead: 0 }]), None);
    }

    #[test]
    fn a_loop_that_comes_later_is_listened_to() {
        let mut ahead = Ahead::new(2);
        assert_eq!(ahead.look(&[QUIET, Served::default()]), Some(false));
        let few = Served { units: 5, answered: 0, ahead: 0 };
        assert_eq!(ahead.look(&[QUIET, few]), Some(true));
        // The five were not heard.
        assert_eq!(ahead.look(&[QUIET, Served { units: ENOUGH + 4, ..few }]), None);
        assert_eq!(ahead.look(&[QUIET, Served { units: ENOUGH + 5, ..few }]), Some(false));
        let mut ahead = Ahead::new(2);
        ahead.look(&[QUIET, Served::default()]);
        assert_eq!(ahead.look(&[QUIET, few]), Some(true));
        assert_eq!(ahead.look(&[QUIET, Served { ahead: 1, ..QUIET }]), None);
    }
}
