//! Rows by their ids, of which old ones leave: a recorder that runs for months must not remember everybody.

use crate::collector::hash::FastMap;

/// A table of rows. Ids count up and are never given twice. There is no indexing: any id that was kept may be of a
/// row that has left, and whoever asks says what then.
pub(super) struct Rows<T> {
    // Boxed: a table that grows moves its entries, and rows are large.
    rows: FastMap<u32, Box<T>>,
    next: u32,
}

impl<T> Default for Rows<T> {
    fn default() -> Self {
        Self { rows: FastMap::default(), next: 0 }
    }
}

impl<T> Rows<T> {
    /// The id that the next row gets.
    pub fn next(&self) -> u32 {
        self.next
    }

    /// Add a row; its id is what [`Self::next`] was.
    pub fn push(&mut self, row: T) {
        self.rows.insert(self.next, Box::new(row));
        self.next += 1;
    }

    /// The row, if there is one and it has not left.
    pub fn get(&self, id: usize) -> Option<&T> {
        Some(self.rows.get(&u32::try_from(id).ok()?)?)
    }

    /// The row to change, if there is one and it has not left.
    pub fn get_mut(&mut self, id: usize) -> Option<&mut T> {
        Some(self.rows.get_mut(&u32::try_from(id).ok()?)?)
    }

    /// Let a row leave.
    pub fn remove(&mut self, id: usize) {
        self.rows.remove(&(id as u32));
    }

    /// Rows that are there.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// All rows with their ids, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        self.rows.iter().map(|(&id, row)| (id, &**row))
    }
}
