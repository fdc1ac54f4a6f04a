//! Big-endian byte cursors that cannot overrun: every read and write that does
//! not fit is an error value, never a panic.

/// Fewer bytes were left than a read or write needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("too short: fewer bytes are left than the field needs")]
pub struct Short;

/// Reads fields off the front of a byte slice.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// A reader of the whole of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader(bytes)
    }

    /// What is left.
    pub fn rest(self) -> &'a [u8] {
        self.0
    }

    /// Whether nothing is left.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The next `n` bytes.
    pub fn bytes(&mut self, n: usize) -> Result<&'a [u8], Short> {
        let (head, tail) = self.0.split_at_checked(n).ok_or(Short)?;
        self.0 = tail;
        Ok(head)
    }

    /// The next `N` bytes.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], Short> {
        let (head, tail) = self.0.split_first_chunk().ok_or(Short)?;
        self.0 = tail;
        Ok(*head)
    }

    /// One byte.
    pub fn u8(&mut self) -> Result<u8, Short> {
        Ok(self.array::<1>()?[0])
    }

    /// Two bytes.
    pub fn u16(&mut self) -> Result<u16, Short> {
        self.array().map(u16::from_be_bytes)
    }

    /// Three bytes, as the low 24 bits.
    pub fn u24(&mut self) -> Result<u32, Short> {
        self.array::<3>().map(|[a, b, c]| u32::from_be_bytes([0, a, b, c]))
    }

    /// Four bytes.
    pub fn u32(&mut self) -> Result<u32, Short> {
        self.array().map(u32::from_be_bytes)
    }

    /// Six bytes, as the low 48 bits.
    pub fn u48(&mut self) -> Result<u64, Short> {
        self.array::<6>().map(|[a, b, c, d, e, f]| u64::from_be_bytes([0, 0, a, b, c, d, e, f]))
    }

    /// Eight bytes.
    pub fn u64(&mut self) -> Result<u64, Short> {
        self.array().map(u64::from_be_bytes)
    }
}

/// Writes fields into a byte slice that the caller owns.
#[derive(Debug)]
pub struct Writer<'a> {
    buf: &'a mut [u8],
    at: usize,
}

impl<'a> Writer<'a> {
    /// A writer from the front of `buf`.
    pub fn new(buf: &'a mut [u8]) -> Writer<'a> {
        Writer { buf, at: 0 }
    }

    /// How many bytes have been written.
    pub fn len(&self) -> usize {
        self.at
    }

    /// Whether nothing has been written.
    pub fn is_empty(&self) -> bool {
        self.at == 0
    }

    /// What has been written.
    pub fn written(&self) -> &[u8] {
        &self.buf[..self.at]
    }

    /// How many bytes more fit.
    pub fn room(&self) -> usize {
        self.buf.len() - self.at
    }

    /// Appends `bytes` whole, or nothing.
    pub fn bytes(&mut self, bytes: &[u8]) -> Result<(), Short> {
        let end = self.at.checked_add(bytes.len()).ok_or(Short)?;
        self.buf.get_mut(self.at..end).ok_or(Short)?.copy_from_slice(bytes);
        self.at = end;
        Ok(())
    }

    /// One byte.
    pub fn u8(&mut self, v: u8) -> Result<(), Short> {
        self.bytes(&[v])
    }

    /// Two bytes.
    pub fn u16(&mut self, v: u16) -> Result<(), Short> {
        self.bytes(&v.to_be_bytes())
    }

    /// The low 24 bits, as three bytes.
    pub fn u24(&mut self, v: u32) -> Result<(), Short> {
        self.bytes(&v.to_be_bytes()[1..])
    }

    /// Four bytes.
    pub fn u32(&mut self, v: u32) -> Result<(), Short> {
        self.bytes(&v.to_be_bytes())
    }

    /// The low 48 bits, as six bytes.
    pub fn u48(&mut self, v: u64) -> Result<(), Short> {
        self.bytes(&v.to_be_bytes()[2..])
    }

    /// Eight bytes.
    pub fn u64(&mut self, v: u64) -> Result<(), Short> {
        self.bytes(&v.to_be_bytes())
    }
}
