//! Bianchi's model (*Performance analysis of the IEEE 802.11 distributed coordination function*,
//! 2000), with a retry limit and transmission opportunities.
//!
//! A station that sends at a slot boundary collides with a probability that doesn't depend on its
//! past. EDCA is closer to that than the DCF for which the model was made: as in the model, a
//! backoff counts one slot for each transmission of another station.

use std::time::Duration;
use trunkline_net::wifi::edca::Access;
use trunkline_net::wifi::phy::{ACK_TIME, ACK_TIMEOUT, SIFS, SLOT, data_time};

/// Stations that always have a packet in one category, and none in the others.
#[derive(Clone, Copy)]
pub struct Saturated {
    pub stations: u16,
    pub access: Access,
    /// Number of attempts to send a packet before it is dropped.
    pub attempts: u8,
    /// Length of each packet including the IP header, in bytes.
    pub bytes: u32,
}

/// The model's predictions for [`Saturated`] stations.
#[derive(Clone, Copy)]
pub struct Predicted {
    /// Probability that a station's first packet in an opportunity collides.
    pub collides: f64,
    /// Throughput of packets including IP headers, in Mbit/s.
    pub mbit_s: f64,
}

impl Saturated {
    /// Number of packets in a transmission opportunity: at least one, and as many as fit with their
    /// acknowledgements.
    pub fn burst(&self) -> u32 {
        let one = data_time(self.bytes) + SIFS + ACK_TIME;
        let left = self.access.txop_limit.saturating_sub(one);
        1 + (left.as_nanos() / (SIFS + one).as_nanos()) as u32
    }

    /// Probability that a station begins to send at a boundary if each attempt collides with
    /// probability `p`: attempts per packet, divided by the boundaries that these and their
    /// backoffs take.
    fn begins(&self, p: f64) -> f64 {
        let mut window = f64::from(self.access.cw_min);
        let (mut reached, mut attempts, mut slots) = (1.0, 0.0, 0.0);
        for _ in 0..self.attempts {
            attempts += reached;
            slots += reached * (1.0 + window / 2.0);
            reached *= p;
            window = (2.0 * window + 1.0).min(self.access.cw_max.into());
        }
        attempts / slots
    }

    /// Solves the model for its fixed point and derives the predictions from it.
    pub fn predict(&self) -> Predicted {
        let n = f64::from(self.stations);
        let none_of = |count: f64, tau: f64| libm::pow(1.0 - tau, count);
        // p = 1 - (1 - tau)^(n - 1), where tau falls as p grows: one solution.
        let (mut low, mut high) = (0.0, 1.0);
        for _ in 0..60 {
            let p = f64::midpoint(low, high);
            let implied = 1.0 - none_of(n - 1.0, self.begins(p));
            if implied > p { low = p } else { high = p }
        }
        let tau = self.begins(low);
        let idle = none_of(n, tau);
        let one = n * tau * none_of(n - 1.0, tau);
        let data = data_time(self.bytes);
        let us = |span: Duration| span.as_nanos() as f64 / 1e3;
        let burst = f64::from(self.burst());
        let exchange = us(data + SIFS + ACK_TIME);
        let success = burst * exchange + (burst - 1.0) * us(SIFS) + us(self.access.aifs());
        let collision = us(data + ACK_TIMEOUT + self.access.aifs());
        let slot = idle * us(SLOT) + one * success + (1.0 - idle - one) * collision;
        let bits = burst * 8.0 * f64::from(self.bytes);
        Predicted { collides: low, mbit_s: one * bits / slot }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trunkline_net::wifi::edca::{DRAFT, STATION_2005};

    /// A lone station never collides, and a packet takes 364 + 16 + 28 µs, the AIFS and half the
    /// window.
    #[test]
    fn one_station_by_hand() {
        let alone = |access| Saturated { stations: 1, access, attempts: 7, bytes: 1_500 };
        // 408 + 79 + 7.5·9 = 554.5 µs.
        let background = alone(STATION_2005[0]).predict();
        assert!((background.mbit_s - 12_000.0 / 554.5).abs() < 1e-9, "{}", background.mbit_s);
        assert!(background.collides < 1e-9);
        // Three fit into 1,504 µs: 3·408 + 2·16 = 1,256, and another would take 424. Then 34
        // and 1.5·9.
        let voice = alone(STATION_2005[3]);
        assert_eq!((voice.burst(), alone(STATION_2005[2]).burst()), (3, 7));
        assert!((voice.predict().mbit_s - 36_000.0 / (1_256.0 + 34.0 + 13.5)).abs() < 1e-9);
        assert_eq!(alone(DRAFT[3]).burst(), 1);
    }

    /// Two stations with a window of no slots always collide; with a window of 1 slot each sends at
    /// two of three boundaries: tau = 1 / (1 + 1/2).
    #[test]
    fn two_stations_by_hand() {
        let access = Access { cw_min: 1, cw_max: 1, ..DRAFT[3] };
        let two = Saturated { stations: 2, access, attempts: 7, bytes: 1_500 };
        assert!((two.predict().collides - 2.0 / 3.0).abs() < 1e-9);
        let always = Saturated { access: Access { cw_min: 0, cw_max: 0, ..access }, ..two };
        assert!((always.predict().collides - 1.0).abs() < 1e-9);
        assert!(always.predict().mbit_s.abs() < 1e-9);
    }
}
