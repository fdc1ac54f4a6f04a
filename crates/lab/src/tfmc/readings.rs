//! Set-ups in which the sentences of section 5.4 are judged: what the paper's text leaves open.

use super::network::{Access, INTERVAL, Setup};
use crate::papers::Reading;
use std::time::Duration;
use trunkline_rate::tfmc::{Config, Numbers, Reports, Segment};

/// The declared reading, and where the paper's text asks for it.
///
/// The spread of the calls, the access links and the window were fixed before the first
/// measurement. S(m₁), the numbers of one call and periodic reports are what sections 5.1.2 and
/// 5.1.3 say. At exactly the same instant, the order of the packets at a full queue, and with it the
/// calls that lose them, would be that of the simulator's events in every run; the reading `spread-0`
/// has that.
pub const DECLARED: &str = "S in equation (2) is S(m₁), the size of the present datagram: the sender \
                            varies it only after it has estimated the rate, and keeps it until the \
                            next report (5.1.3). The receiver reports every 5 ms by its own clock, \
                            and finds losses by \"RTP sequence numbers related to one multiplexed \
                            flow\" (5.1.2). The text doesn't say which: a random one in each run \
                            favours none. Packets \"occur at the same instant\" (5.1), but come from \
                            200 sources (5.4), in an order that the text leaves open: here each \
                            call lags by a random time of less than a millisecond, which is about \
                            what the 200 packets take on an access link (0.96 ms). The link \
                            between the routers is the bottleneck (5.4), so \
                            that the access links, which the text doesn't describe, are ten times as \
                            fast and lose nothing. The TCP's window and the bottleneck's queue are \
                            ns-2's defaults, 20 and 50 packets, as the text gives neither.";

const fn reading(name: &'static str, differs: &'static str) -> Reading {
    Reading { name, differs }
}

/// Every reading but the declared one. The sizes in equation (2) are judged with both kinds of
/// sequence numbers: a call that loses most of its packets, or none, leaves no choice to them.
pub const READINGS: [Reading; 20] = [
    reading("next-size", "S in (2) is S(m₂), the size of the datagrams to come, as in (4)"),
    reading("60-bytes", "S in (2) is a single voice packet: 60 bytes"),
    reading("1000-bytes", "S in (2) is ns-2's default for TFRC, and the TCP's: 1,000 bytes"),
    reading("on-arrival", "a datagram that arrives 5 ms after a report, or later, causes the next"),
    reading("trunk-numbers", "losses are found by the trunk's own sequence numbers"),
    reading("trunk-next-size", "the same, and S in (2) is S(m₂)"),
    reading("trunk-60-bytes", "the same, and S in (2) is 60 bytes"),
    reading("trunk-1000-bytes", "the same, and S in (2) is 1,000 bytes"),
    reading("spread-0", "the calls' packets occur at exactly the same instant"),
    reading("spread-5", "the calls begin within 5 ms"),
    reading("spread-10", "the calls begin within 10 ms"),
    reading("spread-20", "the calls begin within 20 ms, the interval between two packets"),
    reading("no-window", "the TCP's window has no limit"),
    reading("access-100-50", "the access links have queues of 50 packets, as the bottleneck"),
    reading("access-30-50", "the access links have 30 Mbit/s and queues of 50 packets"),
    reading("access-30-1000", "the access links have 30 Mbit/s"),
    reading("access-10-50", "the access links are like the bottleneck: 10 Mbit/s and 50 packets"),
    reading("access-10-1000", "the access links have 10 Mbit/s"),
    reading(CARRIED, "bandwidth is what the bottleneck carries, not what the gateway offers"),
    reading(WHOLE_PACKETS, "Table 1's delays are those of the packets whose rates it gives"),
];

/// The declared set-up, judged by another quantity.
pub const CARRIED: &str = "carried";
/// The reading of Table 1.
pub const WHOLE_PACKETS: &str = "whole-packets";
/// Number of readings that only change TFMC, which come first.
const OF_TFMC: usize = 8;
/// Readings of section 5.4, which come before that of Table 1.
pub const OF_SIMULATION: usize = READINGS.len() - 1;

/// Set-ups other than the declared one.
pub fn places() -> impl Iterator<Item = &'static str> {
    READINGS[..OF_SIMULATION].iter().map(|r| r.name).filter(|name| *name != CARRIED)
}

/// Whether a reading changes nothing without TFMC.
pub fn concerns_tfmc_alone(name: &str) -> bool {
    READINGS.iter().take(OF_TFMC).any(|reading| reading.name == name)
}

/// TFMC's parameters in a reading; the declared ones for any that doesn't change them.
pub fn config(name: &str) -> Config {
    let paper = Config::paper();
    let trunk = Config { numbers: Numbers::Trunk, ..paper };
    match name {
        "next-size" => Config { segment: Segment::Chosen, ..paper },
        "60-bytes" => Config { segment: Segment::Nominal(60.0), ..paper },
        "1000-bytes" => Config { segment: Segment::Nominal(1_000.0), ..paper },
        "trunk-next-size" => Config { segment: Segment::Chosen, ..trunk },
        "trunk-60-bytes" => Config { segment: Segment::Nominal(60.0), ..trunk },
        "trunk-1000-bytes" => Config { segment: Segment::Nominal(1_000.0), ..trunk },
        "on-arrival" => {
            let datagrams_per_feedback = Config::default().datagrams_per_feedback;
            Config { reports: Reports::OnArrival, datagrams_per_feedback, ..paper }
        }
        "trunk-numbers" => trunk,
        _ => paper,
    }
}

/// The network around TFMC in a reading.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Place {
    /// Time within which the calls begin.
    pub spread: Duration,
    /// The TCP's window in packets; unlimited if `None`.
    pub window: Option<u64>,
    /// The links of gateways and TCP.
    pub access: Access,
}

impl Place {
    /// The place of the declared reading.
    pub const DECLARED: Place =
        Place { spread: Duration::from_millis(1), window: Some(20), access: Access::WIDE };

    /// The place of a reading; the declared one for any that doesn't change it.
    pub fn of(name: &str) -> Place {
        let spread = |spread| Place { spread, ..Place::DECLARED };
        let access =
            |mbit_s, packets| Place { access: Access { mbit_s, packets }, ..Place::DECLARED };
        match name {
            "spread-0" => spread(Duration::ZERO),
            "spread-5" => spread(Duration::from_millis(5)),
            "spread-10" => spread(Duration::from_millis(10)),
            "spread-20" => spread(INTERVAL),
            "no-window" => Place { window: None, ..Place::DECLARED },
            "access-100-50" => access(100, 50),
            "access-30-50" => access(30, 50),
            "access-30-1000" => access(30, 1_000),
            "access-10-50" => access(10, 50),
            "access-10-1000" => access(10, 1_000),
            _ => Place::DECLARED,
        }
    }

    /// The same set-up at this place.
    pub fn apply(self, setup: Setup) -> Setup {
        let Place { spread, window, access } = self;
        Setup { spread, window, access, ..setup }
    }

    /// The spread in milliseconds.
    pub fn spread_ms(&self) -> f64 {
        1e3 * self.spread.as_secs_f64()
    }

    /// Value of the column for the TCP's window.
    pub fn window_name(&self) -> String {
        self.window.map_or("none".to_owned(), |packets| packets.to_string())
    }

    /// Name of the place in the keys of points: two with the same share their runs.
    pub fn key(&self) -> String {
        let Access { mbit_s, packets } = self.access;
        format!("{}-{}-{mbit_s}-{packets}", self.spread_ms(), self.window_name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A reading that changes nothing would be the declared one under another name.
    #[test]
    fn readings_differ_in_one_thing() {
        let all: Vec<_> = places().map(|name| (name, Place::of(name), config(name))).collect();
        for (n, (name, place, config)) in all.iter().enumerate() {
            let (of_place, of_tfmc) = (*place != Place::DECLARED, *config != Config::paper());
            assert!(of_place != of_tfmc, "{name}");
            assert_eq!(of_tfmc, concerns_tfmc_alone(name), "{name}");
            let twin = all[..n].iter().find(|other| (other.1, other.2) == (*place, *config));
            assert!(twin.is_none(), "{name} is {twin:?}");
        }
    }

    /// The reason that the declared reading gives for its spread.
    #[test]
    fn the_spread_is_about_what_the_packets_take_on_an_access_link() {
        let bits = 8.0 * 200.0 * 60.0;
        let takes_ms = bits / (1e3 * f64::from(Place::DECLARED.access.mbit_s));
        assert!((takes_ms - 0.96).abs() < 1e-9 && Place::DECLARED.spread_ms() == 1.0);
        assert!(DECLARED.contains("(0.96 ms)"));
    }

    /// Sections 5.1.2 and 5.1.3.
    #[test]
    fn the_declared_reading_is_the_papers_text() {
        let declared = config("");
        assert_eq!(declared.segment, Segment::Datagram);
        assert_eq!((declared.numbers, declared.reports), (Numbers::OneFlow, Reports::Periodic));
        assert_eq!(declared.feedback_interval, Duration::from_millis(5));
        assert_eq!(Place::of(""), Place::DECLARED);
    }
}
