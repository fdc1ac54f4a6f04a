//! Verdicts of section 5.4's sentences that are published as something else than that they hold,
//! with the reasons.

use crate::claim::Verdict::{self, Fails, Holds, Undecided};

/// Readings in which a sentence doesn't hold, by its name and verdict; the declared one is empty.
const OTHERS: &[(&str, Verdict, &[&str])] = &[
    ("tcp-falls", Fails, &["spread-20", "access-10-50"]),
    (
        "tcp-over-5",
        Undecided,
        &[
            "",
            "spread-0",
            "spread-10",
            "spread-20",
            "no-window",
            "access-100-50",
            "access-30-1000",
            "next-size",
            "60-bytes",
            "1000-bytes",
            "on-arrival",
            "trunk-numbers",
            "trunk-1000-bytes",
        ],
    ),
    ("tcp-over-5", Fails, &["spread-5", "access-30-50", "access-10-1000"]),
    (
        "tcp-steady",
        Undecided,
        &[
            "",
            "spread-0",
            "spread-5",
            "spread-20",
            "no-window",
            "access-100-50",
            "access-10-1000",
            "next-size",
            "60-bytes",
            "1000-bytes",
            "on-arrival",
            "trunk-numbers",
            "trunk-1000-bytes",
        ],
    ),
    ("tcp-steady", Fails, &["spread-10", "access-30-50", "access-30-1000"]),
    (
        "voice-below-tcp",
        Undecided,
        &[
            "spread-5",
            "spread-10",
            "spread-20",
            "access-30-50",
            "access-30-1000",
            "access-10-1000",
            "trunk-numbers",
            "trunk-1000-bytes",
        ],
    ),
    (
        "smoother",
        Undecided,
        &[
            "",
            "spread-0",
            "spread-10",
            "access-100-50",
            "next-size",
            "60-bytes",
            "1000-bytes",
            "trunk-numbers",
        ],
    ),
    (
        "smoother",
        Fails,
        &[
            "spread-5",
            "spread-20",
            "no-window",
            "access-30-50",
            "access-30-1000",
            "access-10-50",
            "access-10-1000",
            "on-arrival",
            "trunk-next-size",
            "trunk-1000-bytes",
        ],
    ),
    (
        "less-bandwidth",
        Undecided,
        &[
            "",
            "spread-0",
            "spread-5",
            "spread-10",
            "spread-20",
            "access-100-50",
            "access-30-50",
            "access-30-1000",
            "access-10-1000",
            "next-size",
            "60-bytes",
            "1000-bytes",
            "on-arrival",
        ],
    ),
    ("less-bandwidth", Fails, &["access-10-50", "carried"]),
    (
        "lower",
        Undecided,
        &[
            "",
            "spread-5",
            "access-10-1000",
            "next-size",
            "60-bytes",
            "1000-bytes",
            "on-arrival",
            "trunk-numbers",
            "trunk-next-size",
            "trunk-60-bytes",
            "trunk-1000-bytes",
        ],
    ),
    (
        "lower",
        Fails,
        &[
            "spread-0",
            "spread-10",
            "spread-20",
            "no-window",
            "access-100-50",
            "access-30-50",
            "access-30-1000",
            "access-10-50",
        ],
    ),
    (
        "by-20-ms",
        Undecided,
        &[
            "",
            "spread-0",
            "spread-5",
            "spread-10",
            "spread-20",
            "access-100-50",
            "access-30-50",
            "next-size",
            "60-bytes",
            "1000-bytes",
            "on-arrival",
            "trunk-numbers",
            "trunk-next-size",
            "trunk-60-bytes",
            "trunk-1000-bytes",
        ],
    ),
    ("by-20-ms", Fails, &["no-window", "access-30-1000", "access-10-50", "access-10-1000"]),
    (
        "fewer-packets",
        Undecided,
        &[
            "",
            "spread-0",
            "spread-5",
            "spread-10",
            "spread-20",
            "access-100-50",
            "access-30-50",
            "access-30-1000",
            "access-10-1000",
            "next-size",
            "60-bytes",
            "1000-bytes",
        ],
    ),
    ("fewer-packets", Fails, &["access-10-50"]),
];

/// The numbers of one call as witness for those of all.
const WATCHED: &str = "The calls keep their order at a full queue: some lose every packet and some none. \
                       The numbers of either reveal no loss, and nothing is multiplexed; those of any \
                       other reveal so much that up to 46 packets share a datagram. Runs show both.";
const SWINGS: &str = "Where the watched call does lose packets, m swings between 1 and 46 with every \
                      report, as equation (2) with S(m₁) allows 25 times as much with 46 packets in \
                      a datagram as with one, and most datagrams are single packets.";
const SETTLES: &str = "Some runs settle at 46 packets in a datagram, where nothing is lost. In others m \
                       swings between 1 and 46 with every report.";
const LARGE: &str = "At 1,000 bytes a segment, equation (2) allows single packets at most losses: m \
                     stays at 1 for most of the time.";
const STEADY: &str = "Without multiplexing the queue lets the same calls' packets through every 20 ms, \
                      which hardly varies.";
const EMPTY: &str = "Without multiplexing a packet is lost, or finds the queue nearly empty: 50 such \
                     packets are 2.4 ms. With TFMC there are fewer losses, and packets wait for others.";
const ACCESS: &str = "A queue of 50 packets in front of an access link of 10 Mbit/s drops two thirds of \
                      the calls' packets, and the same calls' each time. The bottleneck has no queue, and \
                      the watched calls reveal no loss.";

/// The published verdict of a claim, and the reason where it doesn't hold.
pub fn published(id: &str) -> (Verdict, &'static str) {
    let (sentence, reading) = id.split_once('@').unwrap_or((id, ""));
    let is_it = |(named, _, readings): &&(&str, Verdict, &[&str])| {
        *named == sentence && readings.contains(&reading)
    };
    match OTHERS.iter().find(is_it) {
        Some((_, verdict, _)) => (*verdict, why(sentence, reading)),
        None => (Holds, ""),
    }
}

fn why(sentence: &str, reading: &str) -> &'static str {
    match (sentence, reading) {
        (_, "access-10-50") => ACCESS,
        ("tcp-falls", _) => {
            "Packets that are spread evenly leave 5.2 of 10 Mbit/s, of which the TCP had 6.65."
        }
        ("by-20-ms", "no-window" | "access-10-1000") => {
            "Where queues can be that long, TFMC leaves room that the TCP takes."
        }
        ("by-20-ms", "access-30-1000") => WATCHED,
        // The claim's note has the reason, with the numbers.
        ("by-20-ms", _) => "",
        ("lower", "no-window") => "The TCP fills the queue with what the calls leave it.",
        ("lower", _) => EMPTY,
        (_, "carried") => {
            "Without multiplexing two thirds of the calls' packets don't reach the bottleneck; more \
             do with TFMC."
        }
        ("smoother", _) => STEADY,
        (_, "trunk-numbers") => SETTLES,
        (_, "trunk-1000-bytes") => LARGE,
        (
            "tcp-over-5" | "tcp-steady" | "voice-below-tcp",
            "spread-5" | "spread-10" | "access-10-1000",
        ) => SWINGS,
        _ => WATCHED,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tfmc::readings::READINGS;

    /// A name with a slip would publish a failing claim as holding.
    #[test]
    fn every_reading_of_the_list_exists() {
        for (sentence, verdict, readings) in OTHERS {
            assert_ne!(*verdict, Holds, "{sentence}");
            let known = |name: &&str| name.is_empty() || READINGS.iter().any(|r| r.name == *name);
            assert!(readings.iter().all(known), "{sentence}: {readings:?}");
        }
        assert_eq!(published("tcp-falls"), (Holds, ""));
        assert_eq!(published("tcp-falls@spread-20").0, Fails);
        assert_eq!(published("by-20-ms"), (Undecided, ""));
    }
}
