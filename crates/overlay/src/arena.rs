//! Memory that a driver and a node exchange: received datagrams in, sealed envelopes out.

use core::net::SocketAddr;
use trunkline_base::Time;

/// A received datagram, opened in place.
#[derive(Debug)]
pub struct RxDatagram<'a> {
    /// Arrival time, from the kernel's timestamp where there is one.
    pub at: Time,
    /// Source address of the datagram.
    pub from: SocketAddr,
    /// The datagram's bytes; their content is undefined afterwards.
    pub bytes: &'a mut [u8],
}

/// Consecutive envelopes of the arena with the same destination and marking. All have `segment`
/// bytes except the last, which may be shorter: one call of generic segmentation offload takes one
/// run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Run {
    /// Destination address of the run.
    pub to: SocketAddr,
    /// Differentiated services code point (RFC 2474), 0 to 63.
    pub dscp: u8,
    /// Bytes of each envelope except the last.
    pub segment: usize,
    /// Number of envelopes in the run.
    pub count: usize,
    /// Offset of the first envelope in the arena.
    start: usize,
    len: usize,
}

impl Run {
    /// Range of the run's bytes in [`TxArena::bytes`].
    pub fn range(&self) -> core::ops::Range<usize> {
        self.start..self.start + self.len
    }
}

/// Maximum number of envelopes in a run: the number that Linux segments in one call.
pub const MAX_RUN: usize = 64;

/// Maximum bytes in a run: one UDP datagram before segmentation.
const MAX_RUN_BYTES: usize = 65_000;

/// Memory that the driver owns and a node seals envelopes into. It never grows: when it is full,
/// packets stay in the node's bounded queues.
#[derive(Debug)]
pub struct TxArena {
    bytes: Box<[u8]>,
    used: usize,
    runs: Vec<Run>,
    max_runs: usize,
}

impl TxArena {
    /// Allocates an arena of `bytes` bytes for at most `runs` runs.
    pub fn new(bytes: usize, runs: usize) -> TxArena {
        TxArena {
            bytes: vec![0; bytes].into(),
            used: 0,
            runs: Vec::with_capacity(runs),
            max_runs: runs,
        }
    }

    /// Reserves one envelope of `len` bytes, in the last run if it can continue it; `None` when the
    /// arena is full.
    pub fn envelope(&mut self, to: SocketAddr, dscp: u8, len: usize) -> Option<&mut [u8]> {
        let start = self.used;
        let end = start.checked_add(len).filter(|&end| end <= self.bytes.len())?;
        let room = self.runs.len() < self.max_runs;
        match self.runs.last_mut() {
            Some(run) if run.takes(to, dscp, len) => {
                run.count += 1;
                run.len += len;
            }
            _ if room => self.runs.push(Run { to, dscp, segment: len, count: 1, start, len }),
            _ => return None,
        }
        self.used = end;
        self.bytes.get_mut(start..end)
    }

    /// Appends a copy of the last envelope, of `len` bytes, for `to`; false when the arena is full.
    pub(crate) fn copy_last(&mut self, to: SocketAddr, len: usize) -> bool {
        let (Some(run), Some(from)) = (self.runs.last(), self.used.checked_sub(len)) else {
            return false;
        };
        if self.envelope(to, run.dscp, len).is_none() {
            return false;
        }
        self.bytes.copy_within(from..from + len, from + len);
        true
    }

    /// The runs, in the order of sending.
    pub fn runs(&self) -> &[Run] {
        &self.runs
    }

    /// All envelopes, one after the other.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.used]
    }

    /// Iterates over the envelopes of `run`.
    pub fn envelopes(&self, run: &Run) -> impl Iterator<Item = &[u8]> {
        self.bytes[run.range()].chunks(run.segment)
    }

    /// Whether the arena holds no envelope.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Removes all envelopes and keeps the memory.
    pub fn clear(&mut self) {
        self.used = 0;
        self.runs.clear();
    }
}

impl Run {
    fn takes(&self, to: SocketAddr, dscp: u8, len: usize) -> bool {
        let last_is_whole = self.len == self.segment * self.count;
        self.to == to
            && self.dscp == dscp
            && len <= self.segment
            && last_is_whole
            && self.count < MAX_RUN
            && self.len + len <= MAX_RUN_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_sizes_to_one_place_are_one_run() {
        let a: SocketAddr = "127.0.0.1:1".parse().unwrap();
        let b: SocketAddr = "127.0.0.1:2".parse().unwrap();
        let mut arena = TxArena::new(1_000, 10);
        for (to, dscp, len) in
            [(a, 46, 100), (a, 46, 100), (a, 46, 40), (a, 46, 40), (b, 46, 40), (b, 0, 40)]
        {
            assert_eq!(arena.envelope(to, dscp, len).unwrap().len(), len);
        }
        let shape: Vec<_> = arena.runs().iter().map(|r| (r.segment, r.count, r.len)).collect();
        // The shorter third envelope ends the first run.
        assert_eq!(shape, [(100, 3, 240), (40, 1, 40), (40, 1, 40), (40, 1, 40)]);
        let lens: Vec<_> = arena.envelopes(&arena.runs()[0]).map(<[u8]>::len).collect();
        assert_eq!(lens, [100, 100, 40]);
        assert!(arena.envelope(a, 0, 700).is_none(), "full");
        arena.clear();
        assert!(arena.envelope(a, 0, 700).is_some());
    }

    #[test]
    fn an_envelope_goes_to_two_places() {
        let [a, b]: [SocketAddr; 2] = ["127.0.0.1:1", "127.0.0.1:2"].map(|a| a.parse().unwrap());
        let mut arena = TxArena::new(100, 10);
        assert!(!arena.copy_last(b, 10), "there is none");
        arena.envelope(a, 46, 30).unwrap().fill(7);
        assert!(arena.copy_last(b, 30));
        let last = arena.runs()[1];
        assert_eq!((last.to, last.dscp), (b, 46));
        assert_eq!(arena.envelopes(&last).collect::<Vec<_>>(), [&[7; 30][..]]);
        arena.envelope(a, 46, 30).unwrap();
        assert!(!arena.copy_last(b, 30), "full");
    }

    #[test]
    fn runs_are_bounded() {
        let a: SocketAddr = "[::1]:1".parse().unwrap();
        let mut arena = TxArena::new(10_000, 2);
        let taken = (0..1_000).take_while(|_| arena.envelope(a, 0, 10).is_some()).count();
        assert_eq!(taken, 2 * MAX_RUN);
    }
}
