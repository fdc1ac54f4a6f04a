//! The fate of a call's packets, and the measures of a call.

use super::{BIN, HEADERS, START};
use std::time::Duration;
use trunkline_base::Time;
use trunkline_media::quality::emodel::{self, Parameters};
use trunkline_rate::vegas::CodecRate;
use trunkline_sim::agent::adaptive::{PACKET, Verdicts};

/// A packet of a call that was sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    pub due: Time,
    pub at: Time,
    /// Length of the payload, without headers, in bytes.
    pub bytes: usize,
    pub arrived: Option<Time>,
    pub ie: f64,
    /// Time at which its speech arrived with a later packet, and the impairment of that speech.
    pub repaired: Option<(Time, f64)>,
    /// Bytes of earlier packets' speech in it, and of parity after it with all headers.
    pub added: usize,
}

impl Sent {
    /// Codec rate of the packet, if it arrived.
    pub fn rate(&self) -> Option<CodecRate> {
        self.arrived?;
        CodecRate::ALL.into_iter().find(|rate| rate.payload_bytes(PACKET) == self.bytes)
    }

    /// Time at which its speech first arrived, and its impairment.
    pub fn heard(&self) -> Option<(Time, f64)> {
        let itself = self.arrived.map(|at| (at, self.ie));
        match (itself, self.repaired) {
            (Some(a), Some(b)) if b.0 < a.0 => Some(b),
            _ => itself.or(self.repaired),
        }
    }
}

/// The fate of a call's packets.
pub(super) struct CallOutcome {
    pub packets: Vec<Sent>,
    /// Number of packets that became due and were never sent.
    pub unsent: usize,
    pub verdicts: Verdicts,
}

impl CallOutcome {
    /// Bytes of all packets that arrived, with `headers` bytes for each.
    pub fn bytes(&self, headers: usize) -> f64 {
        let came = self.packets.iter().filter(|s| s.arrived.is_some());
        came.map(|s| (s.bytes + headers) as f64).sum()
    }

    /// Bytes of all packets that were sent, with headers and redundancy.
    pub fn sent(&self) -> f64 {
        self.packets.iter().map(|s| (HEADERS + s.bytes + s.added) as f64).sum()
    }

    /// Coefficient of variation of the rate, in percent; NaN if nothing arrived.
    pub fn variation_pct(&self, length: Duration) -> f64 {
        let mut bins = vec![0.0; (length.as_nanos() / BIN.as_nanos()).max(1) as usize];
        for s in &self.packets {
            let since =
                s.arrived.map(|at| at.since(Time::ZERO + START).as_nanos() / BIN.as_nanos());
            if let Some(bin) = since.and_then(|n| bins.get_mut(n as usize)) {
                *bin += (s.bytes + HEADERS) as f64;
            }
        }
        let n = bins.len() as f64;
        let mean = bins.iter().sum::<f64>() / n;
        let squares: f64 = bins.iter().map(|b| (b - mean) * (b - mean)).sum();
        100.0 * libm::sqrt(squares / n) / mean
    }

    /// Mean difference between the delays of two successive packets that arrived, in milliseconds
    /// (D of RFC 3550, section 6.4.1, as an absolute value); NaN if fewer than two arrived. The
    /// wait at the sender is no part of the delay.
    pub fn jitter_ms(&self) -> f64 {
        let delays = self.packets.iter().filter_map(|s| Some(ms(s.arrived?.since(s.at))));
        let delays: Vec<f64> = delays.collect();
        let steps = delays.windows(2).map(|pair| (pair[1] - pair[0]).abs());
        steps.sum::<f64>() / delays.len().saturating_sub(1) as f64
    }

    /// R with the mean of the codecs' impairments, and a playout so late that all packets that
    /// arrive are in time. The mouth-to-ear delay consists of a packet's 20 ms and that playout:
    /// there is no wired part.
    pub fn r(&self) -> f64 {
        let packets = self.packets.len() as f64;
        let delays = || self.packets.iter().filter_map(|s| Some(s.heard()?.0.since(s.due)));
        let Some(playout) = delays().max() else { return 0.0 };
        let missed = 1.0 - delays().count() as f64 / (packets + self.unsent as f64);
        let ie = |s: &Sent| s.heard().map_or(s.ie, |(_, ie)| ie);
        let ie = self.packets.iter().map(ie).sum::<f64>() / packets;
        let codec = emodel::Codec { ie, ..emodel::Codec::G711_PLC };
        let parameters = Parameters::default().with_codec(codec).with_delay(PACKET + playout);
        emodel::rate(&parameters.with_loss(missed, 1.0)).r.max(0.0)
    }
}

/// Ie of G.711 and G.726 (ITU-T G.113, appendix I). It has no Bpl for G.726: that of G.711 with
/// concealment is used for all.
pub(super) fn impairment(rate: CodecRate) -> f64 {
    match rate {
        CodecRate::Kbps16 => 50.0,
        CodecRate::Kbps24 => 25.0,
        CodecRate::Kbps32 => 7.0,
        CodecRate::Kbps40 => 2.0,
        CodecRate::Kbps64 => 0.0,
    }
}

/// Jain's index (5): 1 if all are equal, 1/n if one has everything.
pub(super) fn fairness(rates: &[f64]) -> f64 {
    let (sum, squares) = rates.iter().fold((0.0, 0.0), |(s, q), r| (s + r, q + r * r));
    sum * sum / (rates.len() as f64 * squares)
}

/// The duration as a number of milliseconds.
pub(super) fn ms(d: Duration) -> f64 {
    d.as_secs_f64() * 1e3
}
