//! The size of datagrams with m packets, the saving, and the number of packets that meets a rate
//! (Trad and Afifi, equations 4, 5 and 8).

/// Sizes of a trunk's datagrams.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Packing {
    header: f64,
    packet: f64,
}

/// A chosen number of packets per datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Choice {
    /// m, at least 1.
    pub packets: usize,
    /// Whether the trunk exceeds its share even with this many.
    pub over_share: bool,
}

impl Choice {
    /// A separate datagram for each packet.
    pub const SINGLY: Choice = Choice { packets: 1, over_share: false };
}

impl Packing {
    /// Creates datagrams with `header` bytes of headers, h, and packets of `packet` bytes each,
    /// including what precedes their payload: 28 and 12 + payload in the paper. A negative or NaN
    /// `packet` counts as 0.
    pub fn new(header: usize, packet: f64) -> Packing {
        Packing { header: header as f64, packet: packet.max(0.0) }
    }

    /// S(m), size in bytes of a datagram with `packets` packets: h + m (12 + payload) (equation 5).
    pub fn size(&self, packets: usize) -> f64 {
        self.header + packets as f64 * self.packet
    }

    /// The share of bytes that datagrams of `packets` packets save over single packets, 0 to 1: (1
    /// − 1/m) h / (h + 12 + payload) (equation 8). 0 for 0 packets.
    pub fn saving(&self, packets: usize) -> f64 {
        let single = self.size(1);
        if packets == 0 || single <= 0.0 {
            return 0.0;
        }
        (1.0 - 1.0 / packets as f64) * self.header / single
    }

    /// Maximum number of packets in a datagram of at most `mtu` bytes, at least 1.
    pub fn most(&self, mtu: usize) -> usize {
        let room = mtu as f64 - self.header;
        // A float cast saturates.
        let most = if self.packet > 0.0 { (room / self.packet) as usize } else { mtu };
        most.max(1)
    }

    /// Bytes per second for `rate` packets per second, with `packets` in each datagram; 0 packets
    /// count as 1.
    pub fn bytes_per_s(&self, rate: f64, packets: usize) -> f64 {
        let packets = packets.max(1);
        rate * self.size(packets) / packets as f64
    }

    /// m₂, the smallest number of packets per datagram with which `rate` packets per second, K,
    /// take at most `share` bytes per second, T₂; bounded by `most`.
    ///
    /// Equation 4 states K = m₂ T₂ / S(m₂), so that m₂ = K h / (T₂ − K (12 + payload)), rounded up.
    /// If the packets without any header reach the share, there is no such number; then, or if it
    /// is above `most`, `most` is returned and the trunk exceeds its share. A rate that is NaN or
    /// not positive sends nothing, and gives single packets.
    pub fn choose(&self, rate: f64, share: f64, most: usize) -> Choice {
        let most = most.max(1);
        if rate.is_nan() || rate <= 0.0 {
            return Choice::SINGLY;
        }
        let left = share - rate * self.packet;
        if left.is_nan() || left <= 0.0 {
            return Choice { packets: most, over_share: true };
        }
        within(rate * self.header / left, most)
    }

    /// m₂, the smallest number of packets per datagram with which `rate` packets per second make at
    /// most `segments` datagrams per second; bounded by `most`. This is K over T₂ / S(m₂), that is,
    /// [`choose`](Packing::choose) with the datagram itself as the segment.
    pub fn choose_datagrams(&self, rate: f64, segments: f64, most: usize) -> Choice {
        let most = most.max(1);
        if rate.is_nan() || rate <= 0.0 {
            return Choice::SINGLY;
        }
        within(rate / segments.max(0.0), most)
    }
}

/// Rounds up to a number of packets, at most `most`: beyond that, the trunk exceeds its share.
fn within(wanted: f64, most: usize) -> Choice {
    let wanted = libm::ceil(wanted);
    let over_share = wanted.is_nan() || wanted > most as f64;
    let packets = if over_share { most } else { (wanted as usize).max(1) };
    Choice { packets, over_share }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// G.729A packets over IPv4, UDP and RTP.
    fn g729() -> Packing {
        Packing::new(28, 32.0)
    }

    /// 28 + 32 = 60, 28 + 10 · 32 = 348, 28 + 46 · 32 = 1,500.
    #[test]
    fn sizes_by_hand() {
        assert_eq!([1, 10, 46].map(|m| g729().size(m)), [60.0, 348.0, 1_500.0]);
        assert_eq!(g729().most(1_500), 46);
        assert_eq!(g729().most(1_499), 45);
        // (1,500 − 28) / 172 = 8.56; a packet that doesn't fit is sent anyway.
        assert_eq!(Packing::new(28, 172.0).most(1_500), 8);
        assert_eq!(Packing::new(28, 9_000.0).most(1_500), 1);
        assert_eq!(Packing::new(2_000, 20.0).most(1_500), 1);
    }

    /// (1 − 1/10) 28/60 = 0.42, the paper's 42 %; (1 − 1/8) 28/60 = 0.40833.
    #[test]
    fn savings_by_hand() {
        let near = |got: f64, want: f64| assert!((got - want).abs() < 1e-9, "{got}, {want}");
        near(g729().saving(10), 0.42);
        near(g729().saving(8), 0.875 * 28.0 / 60.0);
        near(g729().saving(1), 0.0);
        near(g729().saving(0), 0.0);
        near(Packing::new(0, 0.0).saving(5), 0.0);
    }

    /// K = 10,000 packets/s of 32 bytes are 320,000 bytes/s without headers.
    ///
    /// T₂ = 600,000: 280,000 / 280,000 = 1. T₂ = 599,999 needs slightly more: 2. T₂ = 348,000:
    /// 280,000 / 28,000 = 10. T₂ = 350,000: 280,000 / 30,000 = 9.33: 10. T₂ = 326,086.96 is
    /// 10,000/46 · 1,500 for 46 packets; slightly less needs 47.
    #[test]
    fn packets_by_hand() {
        let choose = |share| g729().choose(1e4, share, 46);
        let fits = |packets| Choice { packets, over_share: false };
        let over = Choice { packets: 46, over_share: true };
        assert_eq!(choose(f64::INFINITY), fits(1));
        assert_eq!(choose(600_000.0), fits(1));
        assert_eq!(choose(599_999.0), fits(2));
        assert_eq!(choose(348_000.0), fits(10));
        assert_eq!(choose(350_000.0), fits(10));
        assert_eq!(choose(326_087.0), fits(46));
        assert_eq!(choose(326_086.0), over);
        for none in [320_000.0, 100.0, 0.0, -1.0, f64::NAN] {
            assert_eq!(choose(none), over, "{none}");
        }
        for idle in [0.0, -1.0, f64::NAN] {
            assert_eq!(g729().choose(idle, 0.0, 46), Choice::SINGLY);
        }
        assert_eq!(g729().choose(1e4, 0.0, 0).packets, 1);
    }

    /// 10,000 packets/s in at most 1,000 datagrams are 10 each, in 999 they are 11, and in 217 they
    /// are 46.08, while only 46 fit.
    #[test]
    fn datagrams_by_hand() {
        let choose = |segments| g729().choose_datagrams(1e4, segments, 46);
        let fits = |packets| Choice { packets, over_share: false };
        assert_eq!([1e9, 1e4, 1e3, 999.0].map(choose), [1, 1, 10, 11].map(fits));
        let over = Choice { packets: 46, over_share: true };
        assert_eq!([217.0, 0.0, -1.0, f64::NAN].map(choose), [over; 4]);
        assert_eq!(g729().choose_datagrams(0.0, 0.0, 46), Choice::SINGLY);
    }

    proptest! {
        /// The chosen number meets the share, and one packet fewer doesn't.
        #[test]
        fn the_fewest_that_meet_the_share(
            header in 1usize..200, packet in 1.0..1_500.0f64, rate in 0.1..1e6f64, part in 0.01..3.0f64,
            most in 1usize..100,
        ) {
            let packing = Packing::new(header, packet);
            let share = part * packing.bytes_per_s(rate, 1);
            let Choice { packets, over_share } = packing.choose(rate, share, most);
            prop_assert!((1..=most).contains(&packets));
            let slack = 1.0 + 1e-9;
            if over_share {
                prop_assert!(packing.bytes_per_s(rate, most) * slack >= share);
            } else {
                prop_assert!(packing.bytes_per_s(rate, packets) <= share * slack);
                if packets > 1 {
                    prop_assert!(packing.bytes_per_s(rate, packets - 1) * slack >= share);
                }
            }
        }
    }
}
