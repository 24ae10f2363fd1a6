//! What both the workers and the index rebuild want: the ledger, behind one mutex.

use super::hash_rows;
use std::hint::black_box;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// The booked orders and their index.
pub(super) struct Ledger {
    book: Mutex<Book>,
}

struct Book {
    entries: Vec<u64>,
    index: Vec<u64>,
}

impl Ledger {
    pub(super) fn new() -> Self {
        Self { book: Mutex::new(Book { entries: Vec::new(), index: vec![1; 4096] }) }
    }

    /// Books one order: the workers come here.
    #[inline(never)]
    pub(super) fn add(&self, order: u64) -> usize {
        let mut book = self.book.lock().unwrap_or_else(PoisonError::into_inner);
        book.entries.push(order);
        book.entries.len()
    }

    /// Rebuilds the index with the mutex held throughout. This is the fault that the demonstration shows.
    #[inline(never)]
    pub(super) fn rebuild_index(&self, how_long: Duration) {
        let mut book = self.book.lock().unwrap_or_else(PoisonError::into_inner);
        let sum = hash_rows(&mut book.index, how_long);
        black_box(sum);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_are_counted() {
        let ledger = Ledger::new();
        ledger.rebuild_index(Duration::ZERO);
        assert_eq!((ledger.add(7), ledger.add(8)), (1, 2));
    }
}
