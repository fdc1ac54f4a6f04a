//! The load: envelopes like a neighbour's, sent and received by one thread.

use super::under_test::{Contestant, DOWNSTREAM, RELAY, UPSTREAM, UnderTest};
use super::{Error, cannot, sealed};
use crate::clock;
use crate::datapath::mmsg::{BATCH, RxBatch, RxMeta, TxBatch, TxItem};
use hdrhistogram::Histogram;
use std::os::fd::AsFd;
use std::time::Duration;
use trunkline_base::Time;
use trunkline_base::wire::Writer;
use trunkline_overlay::wire::{
    DATA_OVERHEAD, DataHeader, ENVELOPE_OVERHEAD, FlowHeader, HopHeader, Incarnation, Null,
    ReceiverIndex, Seal, Service,
};

/// Bytes of a G.711 packet, with its RTP header.
pub const PAYLOAD: usize = 172;

/// Bytes of each datagram in a load of such packets.
pub const ENVELOPE: usize = DATA_OVERHEAD + PAYLOAD;

/// Packets in flight while saturating: a few batches, so that the relay never idles and no socket
/// buffer ever fills.
const WINDOW: u64 = 4 * BATCH as u64;

/// Number of flows in the load.
const FLOWS: u16 = 1_000;

/// Result of a saturated round.
pub struct Throughput {
    pub pps: f64,
    pub cpu_ns: f64,
    pub busy: f64,
    /// Time for which load and contestant waited for a processor, as a share of the round.
    pub waited: f64,
}

/// Result of a round of single packets, µs.
pub struct Latency {
    pub p50: f64,
    pub p99: f64,
}

/// The load on one contestant.
pub struct Load<'a> {
    under_test: &'a UnderTest,
    seal: Seal,
    /// Opens the envelopes that the node sends on.
    behind: Seal,
    service: Service,
    /// Length of each datagram, in bytes.
    envelope: usize,
    /// Next sequence number, as a neighbour's link would assign it.
    next: u64,
    envelopes: Vec<u8>,
    rx: RxBatch,
    tx: TxBatch,
}

impl<'a> Load<'a> {
    /// Creates a load that plays the neighbours of the contestant, with packets of `payload` bytes,
    /// 8 or more.
    pub fn new(
        under_test: &'a UnderTest,
        contestant: Contestant,
        payload: usize,
    ) -> Result<Load<'a>, Error> {
        let envelope = DATA_OVERHEAD + payload;
        let best_effort = contestant == Contestant::BestEffort;
        let (seal, behind) = seals(under_test, contestant)?;
        let mut load = Load {
            under_test,
            seal,
            behind,
            service: if best_effort { Service::BestEffort } else { Service::RealTime },
            envelope,
            next: 0,
            envelopes: vec![0; envelope * BATCH],
            rx: RxBatch::new(),
            tx: TxBatch::new(),
        };
        // The first packets teach the node that its neighbour is up. A hello may share a datagram
        // with one of them, which is then longer than those that are counted.
        let patience = clock::now() + Duration::from_secs(2);
        while clock::now() < patience {
            load.send(1)?;
            let again = clock::now() + Duration::from_millis(20);
            while clock::now() < again {
                if load.take()? > 0 {
                    load.settle()?;
                    return Ok(load);
                }
            }
        }
        Err(Error::Broken("nothing comes back through the contestant"))
    }

    fn fill(&mut self, i: usize) {
        let size = self.envelope;
        let envelope = &mut self.envelopes[i * size..(i + 1) * size];
        let flow = (self.next % u64::from(FLOWS)) as u16;
        let header = DataHeader {
            flow: FlowHeader {
                service: self.service,
                metric: trunkline_overlay::wire::Metric::default(),
                source: UPSTREAM,
                destination: DOWNSTREAM,
                source_port: flow,
                destination_port: flow,
                flow_seq: (self.next / u64::from(FLOWS)) as u16,
            },
            hop: HopHeader {
                recovered: false,
                hop_limit: 8,
                link_seq: self.next as u16,
                remaining_ms: 100,
            },
        };
        let mut w = Writer::new(Seal::frames_mut(envelope));
        // The envelope has exactly this much room.
        let _ = header.emit((size - DATA_OVERHEAD) as u16, &mut w);
        let _ = w.u64(clock::now().as_nanos());
        self.seal.seal(envelope);
        self.next += 1;
    }

    fn send(&mut self, n: usize) -> Result<(), Error> {
        (0..n).for_each(|i| self.fill(i));
        // One system call for all packets: the kernel segments them before the receiver's socket,
        // so that the load is not the bottleneck.
        let segment = Some(self.envelope as u16).filter(|_| n > 1);
        let bytes = &self.envelopes[..n * self.envelope];
        let item = TxItem { segment, ..TxItem::new(self.under_test.entry, bytes) };
        loop {
            match self.tx.send(self.under_test.upstream.as_fd(), std::iter::once(item)) {
                Ok(_) => return Ok(()),
                Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(e) => return Err(cannot("send load")(e)),
            }
        }
    }

    /// Counts the packets that have come back. The node's hellos do not count, nor do packets that
    /// share a datagram with one.
    fn take(&mut self) -> Result<u64, Error> {
        self.rx.recv(self.under_test.downstream.as_fd()).map_err(cannot("receive load"))?;
        let size = self.envelope;
        let packets = |m: RxMeta| if m.stride == size { m.len / size } else { 0 };
        Ok(self.rx.iter_mut().map(|(m, _)| packets(m) as u64).sum())
    }

    /// Measures the highest throughput without loss, of packets in trains of [`BATCH`] or sent one
    /// by one.
    pub fn saturate(&mut self, round: Duration, train: usize) -> Result<Throughput, Error> {
        let (start, cpu) = (clock::now(), self.under_test.cpu_ns());
        let waited = self.under_test.waited_ns();
        let (mut under_way, mut done) = (0u64, 0u64);
        let mut heard = start;
        while clock::now().since(start) < round {
            while under_way + BATCH as u64 <= WINDOW {
                for _ in 0..BATCH / train {
                    self.send(train)?;
                }
                under_way += BATCH as u64;
            }
            let n = self.take()?;
            (under_way, done) = (under_way.saturating_sub(n), done + n);
            let now = clock::now();
            if n > 0 {
                heard = now;
            } else if now.since(heard) > Duration::from_millis(50) {
                // Packets were lost at a full socket buffer: begin another window.
                (under_way, heard) = (0, now);
            }
        }
        let seconds = clock::now().since(start).as_secs_f64();
        let cpu = (self.under_test.cpu_ns() - cpu) as f64;
        let waited = (self.under_test.waited_ns() - waited) as f64 / (seconds * 1e9);
        self.settle()?;
        let pps = done as f64 / seconds;
        Ok(Throughput { pps, cpu_ns: cpu / done as f64, busy: cpu / (seconds * 1e9), waited })
    }

    /// Receives the packets that are still in flight.
    fn settle(&mut self) -> Result<(), Error> {
        let mut quiet = clock::now();
        while clock::now().since(quiet) < Duration::from_millis(20) {
            if self.take()? > 0 {
                quiet = clock::now();
            }
        }
        Ok(())
    }

    /// Measures the latency of one packet at a time.
    pub fn ping(&mut self, round: Duration) -> Result<Latency, Error> {
        let mut histogram = Histogram::<u64>::new(3).expect("three digits are a valid precision");
        let start = clock::now();
        let mut due = start;
        while due.since(start) < round {
            crate::call::sleep_until(due);
            due += Duration::from_micros(500);
            self.send(1)?;
            let sent = clock::now();
            while clock::now().since(sent) < Duration::from_millis(10) {
                if self.take()? > 0 {
                    self.note(&mut histogram);
                    break;
                }
            }
        }
        let at = |q| histogram.value_at_quantile(q) as f64 / 1e3;
        Ok(Latency { p50: at(0.5), p99: at(0.99) })
    }

    fn note(&mut self, histogram: &mut Histogram<u64>) {
        let now = clock::now();
        for (_, bytes) in self.rx.iter_mut().filter(|(m, _)| m.len == self.envelope) {
            if self.behind.open(bytes).is_err() {
                continue;
            }
            let at = DATA_OVERHEAD - (ENVELOPE_OVERHEAD - 8);
            let stamp = bytes.get(at..at + 8).and_then(|b| b.try_into().ok());
            let sent = Time::from_nanos(stamp.map_or(0, u64::from_be_bytes));
            // The histogram resizes automatically, so no value is out of range.
            let _ = histogram.record(now.since(sent).as_nanos() as u64);
        }
    }
}

/// Seals for the two ends: the first seals envelopes to the node, the second opens those that it
/// sends on.
fn seals(under_test: &UnderTest, contestant: Contestant) -> Result<(Seal, Seal), Error> {
    if contestant.is_sealed() {
        let &UnderTest { ref upstream, ref downstream, entry, .. } = under_test;
        let behind = sealed::shake(downstream, DOWNSTREAM, RELAY, entry)?;
        return Ok((sealed::shake(upstream, UPSTREAM, RELAY, entry)?, behind));
    }
    let null = |from, to| {
        let index = ReceiverIndex::derived(from, to, "");
        Seal::Null(Null::new(index, Incarnation(clock::since_epoch())))
    };
    // The lean relay forwards envelopes unchanged.
    let last = if contestant == Contestant::Lean { (UPSTREAM, RELAY) } else { (RELAY, DOWNSTREAM) };
    Ok((null(UPSTREAM, RELAY), null(last.0, last.1)))
}
