//! Big-endian byte cursors that cannot overrun: a read or write that does not fit returns an error
//! and never panics.

/// Fewer bytes were left than a read or write needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("too short: fewer bytes are left than the field needs")]
pub struct Short;

/// Reads fields off the front of a byte slice.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// Creates a reader over all of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader(bytes)
    }

    /// Returns the bytes not yet read.
    pub fn rest(self) -> &'a [u8] {
        self.0
    }

    /// Whether all bytes have been read.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Reads the next `n` bytes.
    pub fn bytes(&mut self, n: usize) -> Result<&'a [u8], Short> {
        let (head, tail) = self.0.split_at_checked(n).ok_or(Short)?;
        self.0 = tail;
        Ok(head)
    }

    /// Reads the next `N` bytes.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], Short> {
        let (head, tail) = self.0.split_first_chunk().ok_or(Short)?;
        self.0 = tail;
        Ok(*head)
    }

    /// Reads an 8-bit integer.
    pub fn u8(&mut self) -> Result<u8, Short> {
        Ok(self.array::<1>()?[0])
    }

    /// Reads a 16-bit integer.
    pub fn u16(&mut self) -> Result<u16, Short> {
        self.array().map(u16::from_be_bytes)
    }

    /// Reads a 24-bit integer.
    pub fn u24(&mut self) -> Result<u32, Short> {
        self.array::<3>().map(|[a, b, c]| u32::from_be_bytes([0, a, b, c]))
    }

    /// Reads a 32-bit integer.
    pub fn u32(&mut self) -> Result<u32, Short> {
        self.array().map(u32::from_be_bytes)
    }

    /// Reads a 48-bit integer.
    pub fn u48(&mut self) -> Result<u64, Short> {
        self.array::<6>().map(|[a, b, c, d, e, f]| u64::from_be_bytes([0, 0, a, b, c, d, e, f]))
    }

    /// Reads a 64-bit integer.
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
    /// Creates a writer at the front of `buf`.
    pub fn new(buf: &'a mut [u8]) -> Writer<'a> {
        Writer { buf, at: 0 }
    }

    /// Number of bytes written so far.
    pub fn len(&self) -> usize {
        self.at
    }

    /// Whether nothing has been written.
    pub fn is_empty(&self) -> bool {
        self.at == 0
    }

    /// Returns the bytes written so far.
    pub fn written(&self) -> &[u8] {
        &self.buf[..self.at]
    }

    /// Number of bytes that still fit.
    pub fn room(&self) -> usize {
        self.buf.len() - self.at
    }

    /// Appends all of `bytes`, or nothing if they don't fit.
    pub fn bytes(&mut self, bytes: &[u8]) -> Result<(), Short> {
        let end = self.at.checked_add(bytes.len()).ok_or(Short)?;
        self.buf.get_mut(self.at..end).ok_or(Short)?.copy_from_slice(bytes);
        self.at = end;
        Ok(())
    }

    /// Writes an 8-bit integer.
    pub fn u8(&mut self, v: u8) -> Result<(), Short> {
        self.bytes(&[v])
    }

    /// Writes a 16-bit integer.
    pub fn u16(&mut self, v: u16) -> Result<(), Short> {
        self.bytes(&v.to_be_bytes())
    }

    /// Writes the low 24 bits of `v`.
    pub fn u24(&mut self, v: u32) -> Result<(), Short> {
        self.bytes(&v.to_be_bytes()[1..])
    }

    /// Writes a 32-bit integer.
    pub fn u32(&mut self, v: u32) -> Result<(), Short> {
        self.bytes(&v.to_be_bytes())
    }

    /// Writes the low 48 bits of `v`.
    pub fn u48(&mut self, v: u64) -> Result<(), Short> {
        self.bytes(&v.to_be_bytes()[2..])
    }

    /// Writes a 64-bit integer.
    pub fn u64(&mut self, v: u64) -> Result<(), Short> {
        self.bytes(&v.to_be_bytes())
    }
}
