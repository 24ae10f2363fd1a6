//! The length of the longest common subsequence of two call paths.
//!
//! What both begin and end with is common in any case and is taken off first (two paths of one loop share their
//! outer frames). The rest is done 64 cells at a time: a row of the table of lengths rises by 0 or 1 from cell to
//! cell, so it fits into bits, and the next row comes from it by an addition (Hyyrö, "Bit-parallel LCS-length
//! computation revisited", 2004).

use super::path::FunctionId;

/// Memory that is used again from call to call.
#[derive(Clone, Debug, Default)]
pub struct Lcs {
    /// Distinct functions of the shorter side, ascending.
    alphabet: Vec<FunctionId>,
    /// For each of them `words` words: bit i is set where it stands at place i.
    places: Vec<u64>,
    /// The row: bit i is clear where the length rises at place i.
    row: Vec<u64>,
}

impl Lcs {
    /// Nothing is allocated before it is needed.
    pub fn new() -> Self {
        Self::default()
    }

    /// Length of the longest common subsequence of `a` and `b`, |LCS| in equation 1.
    pub fn length(&mut self, a: &[FunctionId], b: &[FunctionId]) -> usize {
        let before = a.iter().zip(b).take_while(|(x, y)| x == y).count();
        let (a, b) = (&a[before..], &b[before..]);
        let after = a.iter().rev().zip(b.iter().rev()).take_while(|(x, y)| x == y).count();
        let (a, b) = (&a[..a.len() - after], &b[..b.len() - after]);
        let (short, long) = if a.len() <= b.len() { (a, b) } else { (b, a) };
        before + after + self.middle(short, long)
    }

    fn middle(&mut self, short: &[FunctionId], long: &[FunctionId]) -> usize {
        if short.is_empty() {
            return 0;
        }
        let words = short.len().div_ceil(64);
        self.alphabet.clear();
        self.alphabet.extend_from_slice(short);
        self.alphabet.sort_unstable();
        self.alphabet.dedup();
        self.places.clear();
        self.places.resize(self.alphabet.len() * words, 0);
        for (i, f) in short.iter().enumerate() {
            if let Ok(letter) = self.alphabet.binary_search(f) {
                self.places[letter * words + i / 64] |= 1 << (i % 64);
            }
        }
        self.row.clear();
        self.row.resize(words, u64::MAX);
        for f in long {
            let Ok(letter) = self.alphabet.binary_search(f) else { continue };
            let places = &self.places[letter * words..][..words];
            let mut carry = false;
            for (row, place) in self.row.iter_mut().zip(places) {
                let hit = *row & place;
                let (sum, over) = row.overflowing_add(hit);
                let (sum, over_again) = sum.overflowing_add(u64::from(carry));
                carry = over || over_again;
                *row = sum | (*row & !place);
            }
        }
        // Bits beyond the end of the last word stay set: nothing hits there, and a carry into them is put
        // back by the second term.
        self.row.iter().map(|r| r.count_zeros() as usize).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The table of lengths as textbooks have it.
    fn reference(a: &[FunctionId], b: &[FunctionId]) -> usize {
        let mut row = vec![0; b.len() + 1];
        for x in a {
            let mut diagonal = 0;
            for (j, y) in b.iter().enumerate() {
                let above = row[j + 1];
                row[j + 1] = if x == y { diagonal + 1 } else { above.max(row[j]) };
                diagonal = above;
            }
        }
        row[b.len()]
    }

    fn ids(letters: u32, longest: usize) -> impl Strategy<Value = Vec<FunctionId>> {
        prop::collection::vec((0..letters).prop_map(FunctionId), 0..=longest)
    }

    /// A path and one made from it by edits, as two stacks of one program are.
    fn alike() -> impl Strategy<Value = (Vec<FunctionId>, Vec<FunctionId>)> {
        let edits = prop::collection::vec((0u8..3, any::<prop::sample::Index>(), 0u32..40), 0..12);
        (ids(40, 256), edits).prop_map(|(a, edits)| {
            let mut b = a.clone();
            for (what, at, f) in edits {
                match (what, b.is_empty()) {
                    (0, _) | (_, true) => b.insert(at.index(b.len() + 1), FunctionId(f)),
                    (1, false) => drop(b.remove(at.index(b.len()))),
                    _ => {
                        let at = at.index(b.len());
                        b[at] = FunctionId(f);
                    }
                }
            }
            (a, b)
        })
    }

    proptest! {
        #[test]
        fn units_lcs_is_that_of_the_table(a in ids(6, 256), b in ids(6, 256), c in ids(300, 256)) {
            let mut lcs = Lcs::new();
            prop_assert_eq!(lcs.length(&a, &b), reference(&a, &b));
            prop_assert_eq!(lcs.length(&b, &c), reference(&b, &c));
            prop_assert_eq!(lcs.length(&c, &a), reference(&c, &a));
        }

        #[test]
        fn units_lcs_of_similar_paths_is_that_of_the_table((a, b) in alike()) {
            prop_assert_eq!(Lcs::new().length(&a, &b), reference(&a, &b));
        }
    }

    #[test]
    fn borders_of_words() {
        // Nothing in common at either end, so nothing is taken off.
        for n in [1, 2, 63, 64, 65, 127, 128, 129, 254] {
            let ramp: Vec<FunctionId> = (1..=n).map(FunctionId).collect();
            let framed = |x: u32| [vec![FunctionId(x)], ramp.clone(), vec![FunctionId(x)]].concat();
            assert_eq!(Lcs::new().length(&framed(900), &framed(901)), n as usize);
            let reversed: Vec<FunctionId> = ramp.iter().rev().copied().collect();
            assert_eq!(Lcs::new().length(&ramp, &reversed), 1);
        }
    }
}
