//! Columns of numbers: LEB128 variable-length integers, zigzag for signed ones.

/// A column being written. Room for more is there before it is needed, so that a number, nearly always one or two
/// bytes, is put with one check and one store.
#[derive(Default)]
pub(super) struct Out {
    room: Vec<u8>,
    /// Bytes written; what is behind them means nothing.
    len: usize,
}

impl Out {
    pub(super) fn with_capacity(bytes: usize) -> Self {
        Self { room: vec![0; bytes], len: 0 }
    }

    #[inline]
    pub(super) fn u(&mut self, v: u64) {
        if v < 0x4000
            && let Some(room) = self.room.get_mut(self.len..).and_then(<[u8]>::first_chunk_mut)
        {
            let (two, v) = (v >= 0x80, v as u16);
            // The second byte of a number of one byte is behind the end.
            *room = (v & 0x7f | v << 1 & 0x7f00 | u16::from(two) << 7).to_le_bytes();
            self.len += 1 + usize::from(two);
        } else {
            self.long(v);
        }
    }

    #[cold]
    fn long(&mut self, mut v: u64) {
        while v >= 0x80 {
            self.byte(v as u8 | 0x80);
            v >>= 7;
        }
        self.byte(v as u8);
    }

    /// Signed, small in either direction.
    #[inline]
    pub(super) fn i(&mut self, v: i64) {
        self.u(((v << 1) ^ (v >> 63)) as u64);
    }

    #[inline]
    pub(super) fn byte(&mut self, b: u8) {
        if self.len == self.room.len() {
            self.grow(1);
        }
        self.room[self.len] = b;
        self.len += 1;
    }

    #[cold]
    fn grow(&mut self, by: usize) {
        self.room.resize((self.len + by).max(2 * self.room.len()).max(64), 0);
    }

    /// An id: `NONE` (all ones) becomes 0.
    #[inline]
    pub(super) fn id(&mut self, v: u32) {
        self.u(u64::from(v.wrapping_add(1)));
    }

    pub(super) fn clear(&mut self) {
        self.len = 0;
    }

    pub(super) fn extend(&mut self, bytes: &[u8]) {
        if self.room.len() - self.len < bytes.len() {
            self.grow(bytes.len());
        }
        self.room[self.len..self.len + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.room[..self.len]
    }

    pub(super) fn into_bytes(mut self) -> Vec<u8> {
        self.room.truncate(self.len);
        self.room
    }
}

/// The number of rows of a payload, which is bounded by its size, and its columns.
pub(super) fn columns<const N: usize>(payload: &[u8]) -> Result<(u64, [Col<'_>; N]), String> {
    let mut head = Col::new(payload);
    let rows = head.u();
    let mut columns = [Col::default(); N];
    for column in &mut columns {
        let len = head.u();
        *column = Col::new(head.take(len));
    }
    if head.is_bad() {
        return Err("its columns are cut off".into());
    }
    if rows > payload.len() as u64 {
        return Err(format!("claims {rows} rows in {} bytes", payload.len()));
    }
    Ok((rows, columns))
}

/// A column being read. Reading past the end or a malformed number sets `bad` and yields 0, so that
/// the inner loop has no error path; whoever reads checks `bad` once at the end.
#[derive(Clone, Copy, Default)]
pub(super) struct Col<'a> {
    rest: &'a [u8],
    bad: bool,
}

impl<'a> Col<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes, bad: false }
    }

    #[inline]
    pub(super) fn u(&mut self) -> u64 {
        match self.rest {
            [b, rest @ ..] if *b < 0x80 => {
                self.rest = rest;
                u64::from(*b)
            }
            [a, b, rest @ ..] if *b < 0x80 => {
                self.rest = rest;
                u64::from(*a & 0x7f) | u64::from(*b) << 7
            }
            _ => self.long(),
        }
    }

    fn long(&mut self) -> u64 {
        let mut v = 0u64;
        for (i, &b) in self.rest.iter().enumerate().take(10) {
            if i == 9 && b > 1 {
                break;
            }
            v |= u64::from(b & 0x7f) << (7 * i);
            if b < 0x80 {
                self.rest = self.rest.get(i + 1..).unwrap_or_default();
                return v;
            }
        }
        self.bad = true;
        self.rest = &[];
        0
    }

    #[inline]
    pub(super) fn i(&mut self) -> i64 {
        let v = self.u();
        (v >> 1) as i64 ^ -((v & 1) as i64)
    }

    /// A number that fits 32 bits.
    #[inline]
    pub(super) fn u32(&mut self) -> u32 {
        let v = self.u();
        self.bad |= v > u64::from(u32::MAX);
        v as u32
    }

    /// A number that fits 16 bits.
    #[inline]
    pub(super) fn u16(&mut self) -> u16 {
        let v = self.u();
        self.bad |= v > u64::from(u16::MAX);
        v as u16
    }

    #[inline]
    pub(super) fn id(&mut self) -> u32 {
        self.u32().wrapping_sub(1)
    }

    #[inline]
    pub(super) fn byte(&mut self) -> u8 {
        if let [b, rest @ ..] = self.rest {
            self.rest = rest;
            *b
        } else {
            self.bad = true;
            0
        }
    }

    /// A byte that is 0 or 1.
    #[inline]
    pub(super) fn flag(&mut self) -> bool {
        let b = self.byte();
        self.bad |= b > 1;
        b == 1
    }

    /// Take the next `len` bytes out.
    pub(super) fn take(&mut self, len: u64) -> &'a [u8] {
        let Some((head, rest)) = usize::try_from(len).ok().and_then(|n| self.rest.split_at_checked(n)) else {
            self.bad = true;
            self.rest = &[];
            return &[];
        };
        self.rest = rest;
        head
    }

    pub(super) fn spoil(&mut self) {
        self.bad = true;
    }

    pub(super) fn is_bad(&self) -> bool {
        self.bad
    }

    /// Nothing is left of it, or it is not there.
    pub(super) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn numbers_come_back(u in proptest::collection::vec(any::<u64>(), 0..50), i in any::<i64>(), id in any::<u32>()) {
            let mut out = Out::default();
            for &v in &u { for by in [0, 40, 50, 52, 57] { out.u(v >> by); } }
            out.i(i);
            out.id(id);
            let mut c = Col::new(out.bytes());
            for &v in &u { for by in [0, 40, 50, 52, 57] { prop_assert_eq!(c.u(), v >> by); } }
            prop_assert_eq!(c.i(), i);
            prop_assert_eq!(c.id(), id);
            prop_assert!(c.is_empty() && !c.is_bad());
            c.u();
            prop_assert!(c.is_bad());
        }

        #[test]
        fn any_bytes_end(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            let mut c = Col::new(&bytes);
            for _ in 0..=bytes.len() { c.u(); }
            prop_assert!(c.is_bad());
        }
    }
}
