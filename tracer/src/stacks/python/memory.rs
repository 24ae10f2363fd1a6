//! Bounded reads of a process's memory.

/// Memory that can be read; nothing is believed of what is in it.
pub(super) trait Memory {
    /// Fill `buffer` from `address`; `None` when not all of it can be read.
    fn read(&self, address: u64, buffer: &mut [u8]) -> Option<()>;

    /// A 64-bit word.
    fn word(&self, address: u64) -> Option<u64> {
        let mut b = [0; 8];
        self.read(address, &mut b)?;
        Some(u64::from_le_bytes(b))
    }

    /// A block of known size, to be taken apart.
    fn block<const N: usize>(&self, address: u64) -> Option<Block<N>> {
        self.part(address, N)
    }

    /// The first `len` bytes of a block; the others are zero.
    fn part<const N: usize>(&self, address: u64, len: usize) -> Option<Block<N>> {
        let mut b = [0; N];
        self.read(address, b.get_mut(..len)?)?;
        Some(Block(b))
    }
}

/// Bytes read at once.
pub(super) struct Block<const N: usize>(pub [u8; N]);

impl<const N: usize> Block<N> {
    fn at<const M: usize>(&self, offset: u64) -> Option<[u8; M]> {
        let at = usize::try_from(offset).ok()?;
        self.0.get(at..at.checked_add(M)?)?.try_into().ok()
    }

    /// A 64-bit word, `None` past the block.
    pub fn u64(&self, offset: u64) -> Option<u64> {
        self.at(offset).map(u64::from_le_bytes)
    }

    /// A signed 32-bit word.
    pub fn i32(&self, offset: u64) -> Option<i32> {
        self.at(offset).map(i32::from_le_bytes)
    }
}

/// The memory of a process, by its number.
pub(super) struct Remote(pub u32);

impl Memory for Remote {
    fn read(&self, address: u64, buffer: &mut [u8]) -> Option<()> {
        (crate::memory::read(self.0, address, buffer) == buffer.len()).then_some(())
    }
}
